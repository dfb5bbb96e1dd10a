//! Quota: what concerns many ranks takes several batches, each of a few ranks, and no client loses anything by it.

use crate::controller::state::quota::RANKS;
use crate::hostlist::HostList;
use crate::outcome::Verdict;

use super::*;

/// Returns a bench with connected nodes `n0`, `n1` and so on, whose batches change two ranks each by themselves.
fn bench(nodes: u32) -> (Bench, Vec<SessionId>) {
    let mut b = Bench::new();
    let sessions = (0..nodes).map(|n| b.up(&format!("n{n}"), "b1", vec![]).0).collect();
    b.m.cx.quota.set(2);
    (b, sessions)
}

/// Handles ticks until nothing is left for a later batch; returns the effects of each.
fn go_on(b: &mut Bench) -> Vec<Vec<Effect>> {
    let mut all = Vec::new();
    while b.m.facts().next_check().is_some_and(|at| at <= b.now.mono_ms) {
        assert!(all.len() < 20, "it never ends");
        all.push(b.batch(vec![Input::Tick]));
    }
    all
}

fn ranks_of(effects: &[Effect]) -> Vec<u32> {
    starts(effects).into_iter().map(|(_, rank)| rank).collect()
}

/// Regression test: all Starts of a job of 65,536 ranks were one batch, and no request was answered meanwhile.
#[test]
fn the_starts_of_a_large_job_take_several_batches() {
    let (mut b, _) = bench(5);
    let first = b.run("prolog", "f2", "n[0-4]");
    assert_eq!((ranks_of(&first), b.action("prolog", "f2", 0).waiting.to_string()), (vec![0, 1], "2-4".to_owned()));
    // The next batches go on beside new inputs.
    let (reply, beside) = b.ask(Request::Status {});
    assert!(reply.is_ok());
    assert_eq!(ranks_of(&beside), [2, 3]);
    assert_eq!(go_on(&mut b).iter().map(|effects| ranks_of(effects)).collect::<Vec<_>>(), [[4]]);
    assert_eq!(b.action("prolog", "f2", 0).sent.to_string(), "0-4");
    // The limits of all ranks count from the Run, so none has a time of its own.
    let action = b.m.jobs.action(id("prolog", "f2", 0)).unwrap();
    assert!((0..5).all(|rank| action.armed(Rank(rank)) == action.armed_ms));
}

#[test]
fn a_restart_between_two_parts_starts_the_others_once() {
    let (mut b, _) = bench(5);
    b.run("prolog", "f2", "n[0-4]");
    let mut b = b.restart_settling();
    b.m.cx.quota.set(2);
    let mut ranks = Vec::new();
    for rank in 0..5 {
        let unclaimed = vec![held("prolog", "f2", rank, live())];
        ranks.extend(ranks_of(&b.up(&format!("n{rank}"), "b1", if rank < 2 { unclaimed } else { vec![] }).1));
    }
    ranks.extend(go_on(&mut b).iter().flat_map(|effects| ranks_of(effects)));
    ranks.sort_unstable();
    assert_eq!(ranks, [2, 3, 4]);
}

#[test]
fn a_rank_that_was_cancelled_meanwhile_does_not_start() {
    let (mut b, _) = bench(5);
    b.run("prolog", "f2", "n[0-4]");
    // The batch goes on with its part, and then handles the request.
    b.ask(Request::Cancel { which: which("f2", Some("4")), why: "late".into() }).0.unwrap();
    assert_eq!(go_on(&mut b).concat(), []);
    assert_eq!(b.outcome(task("prolog", "f2", 4)), Outcome::Cancelled { status: None });
}

#[test]
fn the_ends_of_a_tick_take_several_batches_and_one_verdict() {
    let (mut b, _) = bench(5);
    b.run("prolog", "f2", "n[0-4]");
    go_on(&mut b);
    let mut lost = Vec::new();
    b.now.mono_ms += 60_000;
    while b.m.facts().next_check().is_some_and(|at| at <= b.now.mono_ms) {
        assert!(lost.len() < 5, "it never ends");
        assert_eq!(b.action("prolog", "f2", 0).verdict, None);
        let before = b.store.ranks.len();
        b.batch(vec![Input::Tick]);
        lost.push(b.store.ranks.len() - before);
    }
    assert_eq!(lost, [2, 2, 1]);
    assert_eq!(b.action("prolog", "f2", 0).verdict, Some(Verdict::Lost));
    assert_eq!((b.store.drains.len(), b.reported("f2").iter().filter(|name| **name == "verdict").count()), (5, 1));
}

#[test]
fn a_restart_between_two_parts_of_a_tick_loses_the_others() {
    let (mut b, _) = bench(5);
    b.run("prolog", "f2", "n[0-4]");
    go_on(&mut b);
    b.pass(60_000);
    assert_eq!(b.store.ranks.len(), 2);
    let mut b = b.restart();
    b.pass(60_000);
    go_on(&mut b);
    assert_eq!((b.store.ranks.len(), b.action("prolog", "f2", 0).verdict), (5, Some(Verdict::Lost)));
}

/// A resolution that waits for its drain keeps its task open past start-grace: such tasks do not use up the quota.
#[test]
fn tasks_that_no_limit_ends_keep_no_others_from_their_end() {
    let mut b = Bench::load_with(
        Snapshot::default(),
        Settings { drain_hook: true, ..settings() },
        Holding::NONE,
        Now { mono_ms: 1_000_000, wall_ms: 1_700_000_000_000 },
    );
    (0..5).for_each(|n| drop(b.up(&format!("n{n}"), "b1", vec![])));
    b.run("prolog", "f2", "n[0-4]");
    b.ask(Request::Resolve { which: which("f2", Some("0-2")), ok: false, reason: "broken".into() }).0.unwrap();
    b.m.cx.quota.set(2);
    b.pass(60_000);
    go_on(&mut b);
    assert_eq!(b.action("prolog", "f2", 0).not_ok.to_string(), "3-4");
}

fn drain(hosts: &str) -> Request {
    Request::Drain { hosts: hosts.parse().unwrap(), reason: "fan".into(), force: true }
}

/// Returns the reply to client 1 among the effects.
fn reply(effects: &[Effect]) -> Option<&Result<Reply, Refusal>> {
    effects.iter().find_map(|effect| match effect {
        Effect::Reply { client: 1, reply } => Some(reply),
        _ => None,
    })
}

#[test]
fn a_request_for_many_hosts_is_answered_when_all_of_it_is_done() {
    let (mut b, _) = bench(5);
    let undrain = Request::Undrain { hosts: "n[0-4]".parse().unwrap(), forget: false, notice_id: None };
    let none = HostList::new;
    for (request, stored, done) in [
        (drain("n[0-4]"), [2, 4, 5], Reply::Drained { tasks: 5, already: none() }),
        (drain("n[0-4]"), [5, 5, 5], Reply::Drained { tasks: 0, already: "n[0-4]".parse().unwrap() }),
        (undrain, [3, 1, 0], Reply::Undrained { tasks: 5, already: none(), lifting: none() }),
    ] {
        let first = b.batch(vec![Input::Request { client: 1, uid: 0, request: request.clone() }]);
        assert_eq!((reply(&first), b.store.drains.len()), (None, stored[0]), "{request:?}");
        let beside = b.batch(vec![Input::Request { client: 2, uid: 0, request: Request::Status {} }]);
        assert_eq!((reply(&beside), beside.len(), b.store.drains.len()), (None, 1, stored[1]), "{request:?}");
        let last = go_on(&mut b).concat();
        assert_eq!((reply(&last), b.store.drains.len()), (Some(&Ok(done)), stored[2]), "{request:?}");
    }
    // A request that is refused changes nothing.
    let refused = b.ask(Request::Drain { hosts: "n[0-4],x".parse().unwrap(), reason: "fan".into(), force: false }).0;
    assert!(refused.is_err() && b.store.drains.is_empty());
}

#[test]
fn no_batch_of_the_daemon_changes_more_ranks_than_its_quota() {
    let mut b = Bench::new();
    let count = u32::try_from(RANKS).unwrap() + 1;
    let request = drain(&format!("n[0-{}]", count - 1));
    assert_eq!(reply(&b.batch(vec![Input::Request { client: 1, uid: 0, request }])), None);
    assert_eq!(b.store.drains.len() as u64, RANKS);
    go_on(&mut b);
    assert_eq!(b.store.drains.len() as u64, RANKS + 1);
}
