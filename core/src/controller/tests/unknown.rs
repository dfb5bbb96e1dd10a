//! Unknown tasks: one blocks its host; who takes up its attempt adopts it, or an operator undrains the host.

use crate::job::Terms;

use super::release::{add, bench, contexts, finish};
use super::*;

/// Returns a controller on a copy of the store in which nothing of job `j` had begun. The job was finished since, and
/// no node has said Hello yet.
fn finished_while_away(nodes: u32, hosts: &str) -> Bench {
    let (mut b, _) = bench(nodes, |_| {});
    b.ask(add("j", hosts, Terms::default())).0.unwrap();
    let copy = b.store.clone();
    let mut b = b.restored(&copy);
    b.ask(finish("j", None)).0.unwrap();
    b
}

#[test]
fn an_unknown_task_blocks_its_host_until_adopted_or_undrained() {
    for adopt in [true, false] {
        let mut b = Bench::new();
        let (n0, _) = b.up("n0", "b", vec![held("prolog", "j", 0, live())]);
        let reason = &b.store.drains[0].reason;
        assert!(reason.contains(&task("prolog", "j", 0).to_string()), "{reason}");
        assert_eq!(starts(&b.run("prolog", "other", "n0")), [], "beside an unknown task");
        assert_eq!(
            b.receives(n0, finished(task("prolog", "j", 0), Outcome::Ok)),
            [],
            "the only witness keeps what it has"
        );
        if adopt {
            // The node reported the end before the adoption. The other job's prolog begins too, as on a shared node.
            assert_eq!(starts(&b.run("prolog", "j", "n0")), [(n0, 0), (n0, 0)]);
            assert_eq!(b.drained(), []);
            assert!(
                b.receives(n0, finished(task("prolog", "j", 0), Outcome::Ok))
                    .contains(&ack(n0, task("prolog", "j", 0)))
            );
            continue;
        }
        b.pass(2_000);
        let undrain = Request::Undrain { hosts: "n0".parse().unwrap(), forget: false, notice_id: None };
        let (reply, effects) = b.ask(undrain);
        reply.unwrap();
        assert!(effects.contains(&ack(n0, task("prolog", "j", 0))), "{effects:?}");
        assert_eq!((starts(&effects), b.drained()), (vec![(n0, 0)], vec![]));
    }
}

/// The end of a running task is acknowledged when it comes, also after its node was away.
#[test]
fn an_undrain_answers_for_later_ends() {
    let mut b = Bench::new();
    let both = || vec![held("prolog", "j", 0, live()), held("prolog", "k", 0, HeldState::Unclaimed)];
    let (n0, _) = b.up("n0", "b", both());
    b.pass(2_000);
    let undrain = Request::Undrain { hosts: "n0".parse().unwrap(), forget: false, notice_id: None };
    let (_, effects) = b.ask(undrain);
    assert!(effects.iter().any(|effect| is_cancel(effect, task("prolog", "k", 0))), "it never begins: {effects:?}");
    assert!(!effects.iter().any(|effect| is_cancel(effect, task("prolog", "j", 0))), "it goes on");
    b.batch(vec![Input::Closed { session: n0, why: String::new() }]);
    let (n0, _) = b.up("n0", "b", both());
    assert_eq!(b.drained(), []);
    let effects = b.ends(n0, task("prolog", "j", 0));
    assert!(effects.contains(&ack(n0, task("prolog", "j", 0))));
}

/// Regression test: a task waited for an unknown task of another job on its node. The node never came back, and the
/// task waited for ever.
#[test]
fn nothing_waits_for_an_unknown_task_on_a_host_that_is_away() {
    let mut b = Bench::new();
    let (n0, _) = b.up("n0", "b", vec![held("prolog", "j", 0, live())]);
    assert_eq!(starts(&b.run("prolog", "other", "n0")), [], "beside an unknown task");
    b.batch(vec![Input::Closed { session: n0, why: String::new() }]);
    assert_eq!(contexts(&b, "verdict").len(), 0, "it may come back");
    b.pass(600_000);
    assert_eq!(contexts(&b, "verdict").len(), 1);
}

#[test]
fn an_adopted_task_is_shown_as_its_node_reported_it() {
    let phase = |script: &str| Phase::Running { script: script.into(), index: 1, of: 2, progress: None };
    let mut b = Bench::new();
    let (n0, _) = b.up("n0", "b", vec![held("prolog", "j", 0, HeldState::Live { phase: phase("10"), age_ms: 10 })]);
    b.receives(n0, FromAgent::PhaseChanged { task: task("prolog", "j", 0), phase: phase("20"), age_ms: 0 });
    b.pass(1_000);
    b.run("prolog", "j", "n0");
    let Ok(Reply::Ps { rows, .. }) = b.ask(Request::Ps { older_than_ms: 1_000, held: false }).0 else { panic!() };
    let shown: Vec<_> = rows.iter().map(|row| (row.state.as_str(), row.why.as_str())).collect();
    assert_eq!(shown, [("running", "20 (1 of 2)")]);
}

#[test]
fn an_adopted_task_waits_for_nothing() {
    let mut b = Bench::new();
    let (n0, _) = b.up("n0", "b", vec![held("epilog", "j", 0, HeldState::Ended)]);
    assert_eq!(starts(&b.run("prolog", "j", "n0")), [(n0, 0)]);
    // In a normal order the epilog would wait for the prolog. This epilog ended in a lost epoch, and its node reports
    // the end now.
    let (_, effects) = b.ask(finish("j", None));
    assert_eq!(starts(&effects), [(n0, 0)]);
    assert_eq!(b.action("epilog", "j", 0).accepted.to_string(), "0");
    let effects = b.receives(n0, finished(task("epilog", "j", 0), exit(3)));
    assert!(effects.contains(&ack(n0, task("epilog", "j", 0))));
    assert_eq!(b.store.ranks[0].ended.outcome, exit(3));
}

/// Regression test: a store was lost, and a prolog of job `j` waited for an unknown task of another job. The node then
/// reported that an epilog of `j` had already ended in the lost epoch. The prolog began after that epilog.
#[test]
fn a_setup_action_does_not_follow_the_epilog_of_a_lost_epoch() {
    let (mut b, _) = bench(0, |_| {});
    let unknown = || held("firmware", "x", 0, HeldState::Ended);
    let tombstone = HeldState::Tombstone { outcome: Outcome::Ok, past_ms: 0, reboot: Reboot::None };
    let (first, _) = b.up("n0", "b", vec![unknown()]);
    b.run("prolog", "j", "n0");
    b.ask(finish("j", None)).0.unwrap();
    b.batch(vec![super::boots::closed(first)]);
    let (second, effects) = b.up("n0", "b", vec![unknown(), held("epilog", "j", 0, tombstone)]);
    assert_eq!(starts(&effects), []);
    b.batch(vec![super::boots::closed(second)]);
    let (_, effects) = b.up("n0", "b", vec![]);
    assert_eq!(starts(&effects), [], "the rank was cleaned up");
}

/// The unknown setup task of a job that was taken up becomes the job's, no matter which client took it up.
#[test]
fn the_unknown_setup_task_of_a_taken_up_job_is_adopted() {
    for before in [true, false] {
        let (mut b, _) = bench(1, |_| {});
        b.ask(add("j", "n0", Terms::default())).0.unwrap();
        let copy = b.store.clone();
        let mut b = b.restored(&copy);
        let there = || vec![held("prolog", "j", 0, live())];
        if before {
            b.up("n0", "b", there());
        }
        b.ask(finish("j", None)).0.unwrap();
        let n0 = if before { b.m.nodes.get("n0").unwrap().session.unwrap() } else { b.up("n0", "b", there()).0 };
        assert_eq!(b.action("prolog", "j", 0).accepted.to_string(), "0");
        let effects = b.ends(n0, task("prolog", "j", 0));
        assert!(effects.contains(&ack(n0, task("prolog", "j", 0))) && starts(&effects) == [(n0, 0)], "{effects:?}");
        b.ends(n0, task("epilog", "j", 0));
        assert_eq!(contexts(&b, "release").len(), 1);
    }
}

/// Regression test: a hook finished its job before the node was back. The node then reported the job's prolog as ended
/// and its epilog as running, and the adopted prolog ended `cancelled`: it had not begun before the epilog, it seemed.
#[test]
fn an_adopted_prolog_has_its_end_also_if_the_epilog_is_known() {
    let mut b = finished_while_away(1, "n0");
    let tombstone = HeldState::Tombstone { outcome: Outcome::Ok, past_ms: 0, reboot: Reboot::None };
    let (n0, _) = b.up("n0", "b", vec![held("prolog", "j", 0, tombstone), held("epilog", "j", 0, live())]);
    let prolog = b.action("prolog", "j", 0);
    assert_eq!((prolog.ok.to_string().as_str(), b.action("epilog", "j", 0).accepted.to_string().as_str()), ("0", "0"));
    b.ends(n0, task("epilog", "j", 0));
    assert_eq!(contexts(&b, "release").len(), 1);
}

/// An adopted setup action grows with each node that comes back before its verdict.
#[test]
fn each_node_that_comes_back_adds_to_the_adopted_action() {
    let mut b = finished_while_away(2, "n[0-1]");
    let mut sessions = Vec::new();
    for rank in [0, 1] {
        let (session, effects) = b.up(&format!("n{rank}"), "b", vec![held("prolog", "j", rank, live())]);
        assert_eq!(starts(&effects), [], "beside its own prolog");
        sessions.push((session, rank));
    }
    assert_eq!(b.action("prolog", "j", 0).accepted.to_string(), "0-1");
    for (session, rank) in sessions {
        assert_eq!(starts(&b.ends(session, task("prolog", "j", rank))), [(session, rank)]);
        b.ends(session, task("epilog", "j", rank));
    }
    b.pass(600_000);
    assert_eq!(b.store.attempts[0].released.ranks.to_string(), "0-1");
    assert_eq!(b.drained(), []);
}

#[test]
fn a_nodes_report_makes_no_attempt_and_touches_no_other_host() {
    let (mut b, n) = bench(2, |_| {});
    b.ask(add("j", "n[0-1]", Terms::default())).0.unwrap();
    b.run("prolog", "j", "n[0-1]");
    let (attempts, actions) = (b.store.attempts.clone(), b.store.actions.clone());
    // The node reports a newer attempt of the job, its epilog on all ranks, and an unknown job.
    let newer = TaskId { action: id("epilog", "j", 9), rank: Rank(0) };
    let newer = Held { task: newer, attempt: Attempt::from_number(9), ..held("epilog", "j", 0, live()) };
    let reported = vec![newer, held("epilog", "j", 1, live()), held("prolog", "other", 0, live())];
    let (n9, _) = b.up("n9", "b", reported);
    b.receives(n9, finished(task("prolog", "j", 0), exit(1)));
    b.pass(2 * super::recovery::GATE_MS);
    assert_eq!((&b.store.attempts, &b.store.actions), (&attempts, &actions));
    assert_eq!(b.drained(), [("n9", false)]);
    assert!(contexts(&b, "release").is_empty());
    // The job goes on where it was.
    b.ends(n[0], task("prolog", "j", 0));
    b.ends(n[1], task("prolog", "j", 1));
    assert_eq!(b.action("prolog", "j", 0).ok.to_string(), "0-1");
}
