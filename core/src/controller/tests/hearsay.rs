//! Whose word counts for what: a node speaks for itself, in whatever order nodes come, and of others it has only heard.

use super::release::{add, bench, contexts, finish};
use super::*;
use crate::idset::IdSet;
use crate::job::Terms;
use crate::outcome::{Loss, Verdict};

const VANISHED: Outcome = Outcome::Lost { why: Loss::Vanished };

/// As an agent tells of a tombstone: without ranks and hosts.
pub(super) fn stone(action: &str, rank: u32, outcome: Outcome) -> Held {
    let held = held(action, "j", rank, "n0", HeldState::Tombstone { outcome, past_ms: 0, reboot: Reboot::None });
    Held { ranks: IdSet::new(), hosts: crate::HostList::new(), ..held }
}

/// A task of an attempt on these hosts, in rank order.
pub(super) fn told(action: &str, attempt: u64, rank: u32, nodes: &str, state: HeldState) -> Held {
    let task = TaskId { action: id(action, "j", attempt), rank: Rank(rank) };
    Held { task, attempt: Attempt::from_number(attempt), ..held(action, "j", rank, nodes, state) }
}

fn open(b: &Bench) -> Vec<String> {
    b.store.attempts.iter().filter(|row| row.open).map(|row| row.attempt.to_string()).collect()
}

/// Hosts that were drained, and the actions that were begun on nodes.
fn done_by_it(b: &Bench, effects: &[Effect]) -> (Vec<String>, usize) {
    (b.store.drains.iter().map(|drain| drain.host.to_string()).collect(), starts(effects).len())
}

/// Found by a review: a tombstone that was told before its action was known counted for nothing, its node was drained and its rank lost.
#[test]
fn a_lost_store_comes_to_the_same_end_in_whatever_order_its_nodes_come() {
    let orders = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];
    // What n0 and n2 had come to -> outcomes of all, verdict, drained
    for (action, ends, verdict, drained) in [
        ("prolog", [Outcome::Ok, Outcome::Ok], Verdict::Ok, &[][..]),
        ("epilog", [Outcome::Ok, Outcome::Ok], Verdict::Ok, &[]),
        ("prolog", [Outcome::Ok, exit(3)], Verdict::Failed, &["n2"]),
    ] {
        for order in orders {
            let mut b = Bench::new();
            let mut session = None;
            for rank in order {
                let task = match rank {
                    0 => stone(action, 0, ends[0].clone()),
                    2 => stone(action, 2, ends[1].clone()),
                    _ => held(action, "j", 1, "n[0-2]", live()),
                };
                let (id, effects) = b.up(&format!("n{rank}"), "b", vec![task]);
                assert_eq!(starts(&effects), []);
                session = if rank == 1 { Some(id) } else { session };
            }
            b.says(session.unwrap(), finished(task(action, "j", 1), Outcome::Ok));
            b.ask(finish("j", None)).0.unwrap();
            let row = b.action(action, "j", 0);
            let bad: Vec<_> = b.store.ranks.iter().filter(|row| row.ended.outcome != Outcome::Ok).collect();
            assert_eq!(
                (row.verdict, row.ranks.to_string()),
                (Some(verdict), "0-2".into()),
                "{action} {order:?} {bad:?}"
            );
            assert_eq!(done_by_it(&b, &[]).0, drained, "{action} {order:?}");
        }
    }
}

/// An epilog had grown by n3; what n3 came to was told before anybody had told that it has such a rank.
#[test]
fn a_tombstone_of_a_rank_by_which_an_action_grew_counts() {
    let mut b = Bench::new();
    b.up("n0", "b", vec![held("epilog", "j", 0, "n[0-1]", live())]);
    b.up("n3", "b", vec![stone("epilog", 3, Outcome::Ok)]);
    assert_eq!(b.action("epilog", "j", 0).ranks.to_string(), "0-1");
    b.up("n2", "b", vec![held("epilog", "j", 2, "n[0-3]", live())]);
    let row = b.action("epilog", "j", 0);
    assert_eq!((row.ok.to_string(), row.unknown.to_string(), row.ended.is_empty()), ("3".into(), "1".into(), true));
    // With its session what it told goes: the next one tells it again.
    let mut b = Bench::new();
    let (n3, _) = b.up("n3", "b", vec![stone("epilog", 3, Outcome::Ok)]);
    b.batch(vec![Input::Closed { session: n3, why: String::new() }]);
    b.up("n2", "b", vec![held("epilog", "j", 2, "n[0-3]", live())]);
    assert_eq!(b.action("epilog", "j", 0).unknown.to_string(), "0-1,3");
    b.up("n3", "b", vec![stone("epilog", 3, Outcome::Ok)]);
    assert_eq!(b.action("epilog", "j", 0).ok.to_string(), "3");
}

#[test]
fn of_more_tombstones_than_are_kept_nothing_is_made_up() {
    let mut b = Bench::new();
    let stones = || {
        let of = |attempt| {
            told(
                "prolog",
                attempt,
                0,
                "n0",
                HeldState::Tombstone { outcome: Outcome::Ok, past_ms: 0, reboot: Reboot::None },
            )
        };
        (0..4_097).map(of).map(|stone| Held { ranks: IdSet::new(), hosts: crate::HostList::new(), ..stone }).collect()
    };
    let (n0, _) = b.up("n0", "b", stones());
    // In the order of their ids: which of them the last is does not matter.
    let mut all: Vec<u64> = (0..4_097).collect();
    all.sort_by_key(|attempt| id("prolog", "j", *attempt));
    let (kept, cut) = (all[0], all[4_096]);
    let (_, effects) =
        b.up("n1", "b", [kept, cut].map(|attempt| told("prolog", attempt, 1, "n[0-1]", HeldState::Ended)).into());
    let of = |b: &Bench, attempt| {
        (b.action("prolog", "j", attempt).ok.clone(), b.action("prolog", "j", attempt).unknown.clone())
    };
    let ranks = |text: &str| text.parse::<IdSet>().unwrap();
    assert_eq!((of(&b, kept), of(&b, cut)), ((ranks("0"), ranks("")), (ranks(""), ranks("0"))));
    // Its next Hello tells the rest: it is asked for that.
    assert!(effects.iter().any(|effect| matches!(effect, Effect::Close { session, .. } if *session == n0)));
    b.up("n0", "b", stones());
    assert_eq!(of(&b, cut), (ranks("0"), ranks("")));
    assert!(b.store.drains.is_empty());
}

/// Found by a review: by one node's Hello any other host was drained, and an epilog begun beside the job that runs there.
#[test]
fn a_node_drains_no_other_and_begins_nothing_there() {
    // A job that never was.
    let (mut b, _) = bench(3, |_| {});
    let (n9, effects) = b.up("n9", "b", vec![told("prolog", 3, 3, "n[0-2],n9", live())]);
    assert_eq!(done_by_it(&b, &effects), (vec![], 0));
    let row = b.action("prolog", "j", 3);
    assert_eq!(
        (row.accepted.to_string(), row.ended.to_string(), row.held.ranks.to_string()),
        ("3".into(), "0-2".into(), "3".into())
    );
    assert_eq!(b.outcome(TaskId { action: row.id, rank: Rank(0) }), VANISHED);
    assert_eq!(
        (b.store.attempts[0].hold.ranks.to_string(), b.store.attempts[0].told.to_string()),
        ("3".into(), "0-2".into())
    );
    // Also where an operator is done with it: only n9 has its epilog, and goes back.
    b.says(n9, finished(TaskId { action: id("prolog", "j", 3), rank: Rank(3) }, Outcome::Ok));
    let (reply, effects) = b.ask(finish("j", None));
    assert_eq!(
        (reply, starts(&effects)),
        (Ok(Reply::Finished(crate::Part::of_ranks("3".parse().unwrap()))), vec![(n9, 3)])
    );
    b.says(n9, finished(TaskId { action: id("epilog", "j", 3), rank: Rank(3) }, Outcome::Ok));
    let released: Vec<_> =
        contexts(&b, "release").iter().map(|of| (of["ranks"].clone(), of["final"].clone())).collect();
    assert_eq!(released, [("3".into(), true.into())]);
    assert!(b.store.attempts[0].complete && b.store.drains.is_empty());

    // An attempt before the one that runs.
    let (mut b, n) = bench(2, |_| {});
    let Request::JobAdd(job) = add("j", "n[0-1]", Terms::default()) else { panic!() };
    b.ask(Request::JobAdd(Box::new(JobAdd { attempt: Some(Attempt::from_number(5)), ..*job }))).0.unwrap();
    b.run("prolog", "j", "n[0-1]");
    for rank in 0..2 {
        b.says(n[rank as usize], finished(TaskId { action: id("prolog", "j", 5), rank: Rank(rank) }, Outcome::Ok));
    }
    let (n9, effects) = b.up("n9", "b", vec![told("prolog", 3, 2, "n[0-1],n9", live())]);
    assert_eq!((done_by_it(&b, &effects), open(&b)), ((vec![], 0), vec!["5".to_owned()]));
    // What it says of itself is settled there: its epilog comes after its prolog.
    let effects = b.says(n9, finished(TaskId { action: id("prolog", "j", 3), rank: Rank(2) }, Outcome::Ok));
    assert_eq!((starts(&effects), b.action("epilog", "j", 3).ranks.to_string()), (vec![(n9, 2)], "2".into()));
    assert!(b.store.actions.iter().all(|row| row.id != id("epilog", "j", 5)));
}

/// n0 is away, and another says that it has an older attempt: the new one is given up there in its time, as without that.
#[test]
fn what_only_another_node_tells_keeps_nobody_waiting() {
    let (mut b, n) = bench(1, |_| {});
    b.batch(vec![Input::Closed { session: n[0], why: String::new() }]);
    b.up("n9", "b", vec![told("prolog", 3, 1, "n0,n9", live())]);
    b.ask(Request::Run(request("prolog", "j", Some("n0"), Some(5)))).0.unwrap();
    b.pass(60_000);
    assert_eq!(b.action("prolog", "j", 5).verdict, Some(Verdict::Lost));
    // Where its own node tells of it it is waited for.
    let (mut b, n) = bench(1, |_| {});
    b.batch(vec![Input::Closed { session: n[0], why: String::new() }]);
    b.up("n9", "b", vec![told("prolog", 3, 1, "n0,n9", live())]);
    let (n0, _) = b.up("n0", "b", vec![told("prolog", 3, 0, "n0,n9", live())]);
    let (_, effects) = b.ask(Request::Run(request("prolog", "j", Some("n0"), Some(5))));
    assert_eq!(starts(&effects), []);
    let effects = b.says(n0, finished(TaskId { action: id("prolog", "j", 3), rank: Rank(0) }, Outcome::Ok));
    assert_eq!((starts(&effects), b.action("epilog", "j", 3).ranks.to_string()), (vec![(n0, 0)], "0-1".into()));
}

/// What was asked for has the ranks that it was asked for with, whatever a node adds to them.
#[test]
fn no_node_joins_an_attempt_that_was_asked_for() {
    for added in [false, true] {
        let (mut b, _) = bench(2, |_| {});
        match added {
            true => drop(b.ask(add("j", "n[0-1]", Terms::default())).0.unwrap()),
            false => drop(b.run("check", "j", "n[0-1]")),
        }
        let actions = b.store.actions.len();
        let (_, effects) = b.up("n9", "b", vec![told("prolog", 0, 2, "n[0-1],n9", live())]);
        assert_eq!((done_by_it(&b, &effects), b.store.actions.len()), ((vec![], 0), actions));
        assert_eq!(b.store.attempts[0].ranks.to_string(), "0-1");
        // The resource manager's own is begun.
        let Ok(Reply::Running { attached, .. }) = b.ask(Request::Run(request("prolog", "j", None, None))).0 else {
            panic!()
        };
        assert!(!attached);
    }
}

/// Found by a review: what `run` had asked for gave way to a node's word, and the epilog began beside the job.
#[test]
fn what_was_asked_for_by_run_ends_by_no_nodes_word() {
    let prolog = |attempt, nodes| Request::Run(request("prolog", "j", nodes, attempt));
    // It attaches to what nodes told of.
    let mut b = Bench::new();
    let (n0, _) = b.up("n0", "b", vec![held("prolog", "j", 0, "n0", live())]);
    assert!(matches!(b.ask(prolog(None, Some("n0"))).0, Ok(Reply::Running { attached: true, .. })));
    b.says(n0, finished(task("prolog", "j", 0), Outcome::Ok));
    let (_, effects) = b.up("n2", "b", vec![told("prolog", 7, 0, "n2", live())]);
    assert_eq!((done_by_it(&b, &effects), open(&b)), ((vec![], 0), vec!["0".into(), "7".into()]));
    assert!(contexts(&b, "attempt-closed").is_empty());
    let asked = |b: &Bench| contexts(b, "attempt").iter().map(|of| of["attempt"].clone()).collect::<Vec<_>>();
    assert_eq!(asked(&b), ["0"]);
    // It begins another action of the attempt that a node told of.
    let mut b = b.restart();
    b.ask(Request::Run(request("check", "j", None, Some(7)))).0.unwrap();
    assert_eq!(open(&b), ["7"]);
    b.up("n3", "b", vec![told("prolog", 9, 0, "n3", live())]);
    assert_eq!(open(&b), ["7", "9"]);
    let closed: Vec<_> = contexts(&b, "attempt-closed").iter().map(|of| of["attempt"].clone()).collect();
    assert_eq!(closed, ["0"]);
    // Said once of each that was asked for, from which a reader of the log knows which one is meant.
    assert_eq!(asked(&b), ["0", "7"]);
}

/// Nobody has asked for either: each node's own word closes what it has of the older one, and the log says so once.
#[test]
fn attempts_that_only_nodes_tell_of_give_way_host_by_host() {
    let mut b = Bench::new();
    let (n0, _) = b.up("n0", "b", vec![told("prolog", 0, 0, "n[0-1]", live())]);
    let (n1, _) = b.up("n1", "b", vec![told("prolog", 0, 1, "n[0-1]", live())]);
    b.batch([n0, n1].map(|session| Input::Closed { session, why: String::new() }).into());
    // Another node tells of a newer attempt on all of them.
    b.up("n2", "b", vec![told("prolog", 1, 2, "n[0-2]", live())]);
    assert_eq!((open(&b), b.store.actions.len()), (vec!["0".into(), "1".into()], 2));
    // n1 has both.
    let both =
        |rank| vec![told("prolog", 0, rank, "n[0-1]", live()), told("prolog", 1, rank, "n[0-2]", HeldState::Unclaimed)];
    b.up("n1", "b", both(1));
    assert_eq!((open(&b).len(), b.action("epilog", "j", 0).ranks.to_string()), (2, "1".into()));
    let mut b = b.restart();
    b.up("n0", "b", both(0));
    assert_eq!((open(&b), b.action("epilog", "j", 0).ranks.to_string()), (vec!["1".to_owned()], "0-1".into()));
    assert_eq!(contexts(&b, "attempt-closed").len(), 1);
}

/// Whoever names ranks vouches for them; their nodes then have their epilog, whatever becomes of them.
#[test]
fn ranks_that_are_asked_for_by_name_are_the_attempts_own() {
    for named in [false, true] {
        let mut b = Bench::new();
        let (n0, _) = b.up("n0", "b", vec![held("prolog", "j", 0, "n[0-1]", live())]);
        let reply = b.ask(Request::Run(request("prolog", "j", named.then_some("n[0-1]"), None))).0;
        assert!(matches!(reply, Ok(Reply::Running { attached: true, .. })));
        let row = &b.store.attempts[0];
        assert_eq!((row.asked, row.told.to_string()), (true, if named { String::new() } else { "1".into() }));
        let (n1, _) = b.up("n1", "b", vec![]);
        b.says(n0, finished(task("prolog", "j", 0), Outcome::Ok));
        let (_, effects) = b.ask(finish("j", None));
        assert_eq!(starts(&effects), if named { vec![(n0, 0), (n1, 1)] } else { vec![(n0, 0)] });
        assert!(b.store.drains.is_empty());
    }
}

/// Found by a review: one made-up number blocked requeues for ever.
#[test]
fn an_operator_says_that_an_attempt_never_was() {
    let forget = |attempt: u64| Request::JobForget {
        job: JobId::new("j").unwrap(),
        attempt: Some(Attempt::from_number(attempt)),
        releases: false,
        reason: "n9 was broken into".to_owned(),
    };
    let resolve = |attempt: u64| {
        let which = Which { attempt: Some(Attempt::from_number(attempt)), ..which("j", None) };
        Request::Resolve { which, ok: false, reason: "n9 was broken into".to_owned() }
    };
    let (mut b, _) = bench(2, |_| {});
    b.ask(add("j", "n[0-1]", Terms::default())).0.unwrap();
    let (n9, _) = b.up("n9", "b", vec![told("prolog", u64::MAX, 0, "n9", live())]);
    let requeue = |nodes| Request::Run(request("prolog", "j", nodes, Some(1)));
    assert!(matches!(b.ask(requeue(None)).0, Err(Refusal::AttemptClosed(_))));
    let text = "attempt 0 of job j was asked for, and not told of by nodes alone: perilog job finish j --attempt 0";
    assert_eq!(b.ask(forget(0)).0, Err(Refusal::Conflict(text.to_owned())));
    // What lives is not forgotten.
    let refused = b.ask(forget(u64::MAX)).0;
    assert!(matches!(&refused, Err(Refusal::Conflict(text)) if text.ends_with("--ranks n9 first")), "{refused:?}");
    b.ask(resolve(u64::MAX)).0.unwrap();
    assert_eq!(b.ask(forget(u64::MAX)).0, Ok(Reply::Reached { tasks: 1 }));
    assert_eq!(
        (b.store.attempts.len(), b.store.actions.len(), b.told("j").last().copied()),
        (1, 0, Some("attempt-forgotten"))
    );
    let mut b = b.restart();
    b.ask(requeue(None)).0.unwrap();
    // What it still says of that is acknowledged, and of nobody.
    let _ = n9;
    let (n9, _) = b.up("n9", "b", vec![]);
    let made_up = TaskId { action: id("prolog", "j", u64::MAX), rank: Rank(0) };
    assert_eq!(b.says(n9, finished(made_up, Outcome::Ok)), [ack(n9, made_up)]);
    // Of a job of which nothing else is known all goes.
    let mut b = Bench::new();
    b.up("n9", "b", vec![told("prolog", 3, 0, "n9", live())]);
    b.ask(resolve(3)).0.unwrap();
    b.ask(forget(3)).0.unwrap();
    assert!(matches!(b.ask(Request::Show { job: JobId::new("j").unwrap() }).0, Err(Refusal::NoSuchJob(_))));
    assert!(b.m.nodes.values().all(|node| node.tasks.is_empty() && node.live.is_empty()));
}

/// Found by the simulator: an attempt that was over held a rank of which its node told only then.
#[test]
fn what_a_node_tells_of_an_attempt_that_is_over_is_cleaned_up_after_and_goes_back() {
    let mut b = Bench::new();
    let (n0, _) = b.up("n0", "b", vec![held("prolog", "j", 0, "n[0-1]", live())]);
    b.ask(Request::Run(request("prolog", "j", None, None))).0.unwrap();
    b.ask(Request::Run(request("prolog", "j", Some("n0"), Some(1)))).0.unwrap();
    let row = |b: &Bench| (b.store.attempts[0].open, b.store.attempts[0].hold.is_empty());
    assert_eq!(row(&b), (false, true));
    let (n1, _) = b.up("n1", "b", vec![held("prolog", "j", 1, "n[0-1]", live())]);
    assert_eq!((row(&b), b.action("epilog", "j", 0).ranks.to_string()), ((false, true), "0-1".into()));
    for (rank, session) in [(0, n0), (1, n1)] {
        b.says(session, finished(task("prolog", "j", rank), Outcome::Ok));
        b.says(session, finished(task("epilog", "j", rank), Outcome::Ok));
    }
    assert!(b.store.attempts[0].complete);
}

/// Found by the simulator: something began on a rank that had gone back with the rest of its attempt.
#[test]
fn nothing_begins_on_hearsay_of_an_attempt_that_went_back_whole() {
    let mut b = Bench::new();
    let (n0, _) = b.up("n0", "b", vec![held("prolog", "j", 0, "n[0-1]", live())]);
    b.up("n1", "b", vec![]);
    b.says(n0, finished(task("prolog", "j", 0), Outcome::Ok));
    b.ask(finish("j", None)).0.unwrap();
    b.says(n0, finished(task("epilog", "j", 0), Outcome::Ok));
    assert!(b.store.attempts[0].complete);
    for nodes in ["n1", "n[0-1]"] {
        let (reply, effects) = b.ask(Request::Run(request("check", "j", Some(nodes), None)));
        assert!(matches!(reply, Err(Refusal::Conflict(_))), "{nodes}: {reply:?}");
        assert_eq!(starts(&effects), []);
    }
}
