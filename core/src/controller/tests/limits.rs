//! Limits: the time that a task, an absent node or a finished attempt may take, and the size of what a task may add to
//! the job's log.

use crate::outcome::{Loss, Verdict};

use super::*;

#[test]
fn not_accepted_within_start_grace_is_lost_and_fenced() {
    let mut b = Bench::new();
    let (n0, _) = b.up("n0", "b", vec![]);
    b.run("prolog", "j", "n0");
    assert_eq!(b.pass(59_000), []);
    let effects = b.pass(1_000);
    assert!(effects.iter().any(|e| is_cancel(e, task("prolog", "j", 0))), "{effects:?}");
    assert_eq!(b.outcome(task("prolog", "j", 0)), Outcome::Lost { why: Loss::Offline });
    // The task was cancelled, not forgotten: a late acceptance gets another Cancel.
    let effects = b.receives(n0, FromAgent::Accepted { task: task("prolog", "j", 0), limit_ms: None });
    assert!(matches!(&effects[..], [e] if is_cancel(e, task("prolog", "j", 0))));
}

#[test]
fn an_absent_node_is_unreachable_past_limit_and_grace() {
    // Each row: the requested limit, the limit that the node reported, and whether the task is lost.
    for (timeout_ms, limit_ms, lost) in [
        (Some(600_000), None, true),
        (Some(600_000), Some(600_000), true),
        (Some(6_000_000), Some(600_000), true),
        // The node's limit is longer than the requested one.
        (Some(600_000), Some(60_000_000), false),
        (None, Some(600_000), true),
        (None, None, false),
    ] {
        let mut b = Bench::new();
        let (n0, _) = b.up("n0", "b", vec![]);
        let mut run = request("epilog", "j", Some("n0"), None);
        run.timeout_ms = timeout_ms;
        b.ask(Request::Run(run)).0.unwrap();
        b.receives(n0, FromAgent::Accepted { task: task("epilog", "j", 0), limit_ms });
        b.pass(2_000_000);
        b.batch(vec![Input::Closed { session: n0, why: String::new() }]);
        b.pass(600_000);
        // The not-after (an hour) has not passed yet.
        assert_eq!(b.action("epilog", "j", 0).verdict, None);
        b.pass(3_000_000);
        b.pass(300_000);
        assert_eq!(b.action("epilog", "j", 0).verdict, lost.then_some(Verdict::Lost));
    }
}

#[test]
fn a_nodes_limit_outlives_a_restart_and_hello_repeats_it() {
    let mut b = Bench::new();
    let (n0, _) = b.up("n0", "b", vec![]);
    let (n1, _) = b.up("n1", "b", vec![]);
    b.run("epilog", "j", "n[0-1]");
    b.receives(n0, FromAgent::Accepted { task: task("epilog", "j", 0), limit_ms: Some(600_000) });
    b.receives(n1, FromAgent::Accepted { task: task("epilog", "j", 1), limit_ms: Some(900_000) });
    b.receives(n1, finished(task("epilog", "j", 1), Outcome::Ok));
    b.batch(vec![Input::Closed { session: n0, why: String::new() }]);
    let mut b = b.restart();
    b.pass(4_000_000);
    assert_eq!(b.outcome(task("epilog", "j", 0)), Outcome::Lost { why: Loss::Unreachable });
    // An older agent reports no limit with its acceptance; a newer agent repeats the limit in Hello.
    let mut b = Bench::new();
    let (n0, _) = b.up("n0", "b", vec![]);
    b.run("epilog", "j", "n0");
    b.receives(n0, FromAgent::Accepted { task: task("epilog", "j", 0), limit_ms: None });
    b.batch(vec![Input::Closed { session: n0, why: String::new() }]);
    let (n0, _) = b.up("n0", "b", vec![Held { limit_ms: Some(600_000), ..held("epilog", "j", 0, live()) }]);
    b.batch(vec![Input::Closed { session: n0, why: String::new() }]);
    b.pass(4_000_000);
    assert_eq!(b.outcome(task("epilog", "j", 0)), Outcome::Lost { why: Loss::Unreachable });
}

/// An agent that restarts with another configuration reports its new time limit. The new limit replaces the earlier
/// one, even if the new limit equals the limit in the request.
#[test]
fn the_limit_that_a_node_reported_last_counts() {
    let mut b = Bench::new();
    let (n0, _) = b.up("n0", "b", vec![]);
    b.batch(vec![Input::Closed { session: n0, why: String::new() }]);
    let run = RunRequest { timeout_ms: Some(900_000), ..request("epilog", "j", Some("n0"), None) };
    b.ask(Request::Run(run)).0.unwrap();
    for (reported, limits) in
        [(Some(600_000), "600000: 0"), (Some(300_000), "300000: 0"), (None, "300000: 0"), (Some(900_000), "")]
    {
        let (n0, _) = b.up("n0", "b", vec![Held { limit_ms: reported, ..held("epilog", "j", 0, live()) }]);
        b.batch(vec![Input::Closed { session: n0, why: String::new() }]);
        let known = &b.action("epilog", "j", 0).limits;
        let known: Vec<String> = known.iter().map(|(limit, ranks)| format!("{limit}: {ranks}")).collect();
        assert_eq!(known.join(", "), limits, "{reported:?}");
    }
}

#[test]
fn no_node_reports_a_limit_for_another() {
    let mut b = Bench::new();
    b.up("n0", "b", vec![]);
    let (n1, _) = b.up("n1", "b", vec![]);
    b.run("epilog", "j", "n0");
    b.receives(n1, FromAgent::Accepted { task: task("epilog", "j", 0), limit_ms: Some(1) });
    b.batch(vec![Input::Closed { session: n1, why: String::new() }]);
    b.up("n1", "b", vec![Held { limit_ms: Some(1), ..held("epilog", "j", 0, live()) }]);
    assert_eq!(b.action("epilog", "j", 0).limits, Default::default());
}

/// A task waits on its node until another task has ended. Once its scripts have begun, its time limit counts from their
/// start.
#[test]
fn a_limit_counts_from_the_begin_of_the_scripts() {
    let waits = Phase::Waiting { why: "another".to_owned() };
    let runs = Phase::Running { script: "10-a".to_owned(), index: 1, of: 1, progress: None };
    for (phases, lost) in [(vec![waits.clone()], true), (vec![waits, runs], false)] {
        let mut b = Bench::new();
        let (n0, _) = b.up("n0", "b", vec![]);
        let mut run = request("epilog", "j", Some("n0"), None);
        run.timeout_ms = Some(10_000_000);
        b.ask(Request::Run(run)).0.unwrap();
        let t = task("epilog", "j", 0);
        b.receives(n0, FromAgent::Accepted { task: t, limit_ms: None });
        b.pass(9_000_000);
        for phase in phases {
            b.receives(n0, FromAgent::PhaseChanged { task: t, phase, age_ms: 0 });
        }
        b.batch(vec![Input::Closed { session: n0, why: String::new() }]);
        b.pass(2_000_000);
        assert_eq!(b.action("epilog", "j", 0).verdict, lost.then_some(Verdict::Lost));
        b.pass(9_000_000);
        assert_eq!(b.action("epilog", "j", 0).verdict, Some(Verdict::Lost));
    }
}

#[test]
fn a_connected_node_is_never_unreachable() {
    let mut b = Bench::new();
    let (n0, _) = b.up("n0", "b", vec![]);
    let mut run = request("epilog", "j", Some("n0"), None);
    run.timeout_ms = Some(1_000);
    b.ask(Request::Run(run)).0.unwrap();
    b.receives(n0, FromAgent::Accepted { task: task("epilog", "j", 0), limit_ms: None });
    for _ in 0..10 {
        b.pass(3_600_000);
    }
    assert_eq!(b.action("epilog", "j", 0).verdict, None);
    // The node leaves: the grace counts from there.
    b.batch(vec![Input::Closed { session: n0, why: String::new() }]);
    b.pass(299_000);
    assert_eq!(b.action("epilog", "j", 0).verdict, None);
    b.pass(1_000);
    assert_eq!(b.outcome(task("epilog", "j", 0)), Outcome::Lost { why: Loss::Unreachable });
}

#[test]
fn limits_count_while_the_controller_listens() {
    let mut b = Bench::new();
    let (n0, _) = b.up("n0", "b", vec![]);
    b.run("prolog", "j", "n0");
    b.batch(vec![Input::Closed { session: n0, why: String::new() }]);
    b.pass(59_000);
    let mut b = b.restart();
    assert_eq!(b.pass(59_000), []);
    assert_eq!(b.action("prolog", "j", 0).verdict, None);
    b.pass(1_000);
    assert_eq!(b.action("prolog", "j", 0).verdict, Some(Verdict::Lost));
}

#[test]
fn attempts_past_retention_are_pruned_with_their_tombstones() {
    let mut b = Bench::new();
    let (n0, _) = b.up("n0", "b", vec![]);
    b.run("prolog", "j", "n0");
    b.run("prolog", "open", "n0");
    let t = task("prolog", "j", 0);
    b.receives(n0, finished(t, exit(1)));
    b.receives(n0, FromAgent::Accepted { task: task("prolog", "open", 0), limit_ms: None });
    assert_eq!(b.pass(3_600_000), []);
    let effects = b.pass(30 * 86_400_000);
    assert!(effects.contains(&send(n0, ToAgent::Forget { tasks: vec![t] })), "{effects:?}");
    assert_eq!((b.store.attempts.len(), b.store.ranks.len(), b.store.outbox.len()), (1, 0, 0));
    // The node repeats the end of a pruned task: the controller acknowledges it, and no attempt comes back.
    assert_eq!(b.receives(n0, finished(t, exit(1))), [ack(n0, t)]);
    assert_eq!(b.store.actions.len(), 1);
    // The task's tombstone in a later Hello may go too.
    b.batch(vec![Input::Closed { session: n0, why: String::new() }]);
    let up = |b: &mut Bench, past_ms| {
        let tombstone =
            held("prolog", "j", 0, HeldState::Tombstone { outcome: exit(1), past_ms, reboot: Reboot::None });
        b.up("n0", "b", vec![tombstone, held("prolog", "open", 0, live())])
    };
    let (n0, effects) = up(&mut b, 30 * 86_400_000);
    assert_eq!(effects, [send(n0, ToAgent::Forget { tasks: vec![t] })]);
    // A younger tombstone may belong to a lost store: without it, a repeated request would run the task again.
    b.batch(vec![Input::Closed { session: n0, why: String::new() }]);
    let (n0, effects) = up(&mut b, 30 * 86_400_000 - 1);
    assert_eq!(effects, []);
    b.run("prolog", "j", "n0");
    b.receives(n0, finished(t, exit(1)));
    assert_eq!(b.outcome(t), exit(1));
}

/// Regression test: with a stolen node key, reports about one task, each with a new script name, could add 40 MiB of
/// events a second to the job's log.
#[test]
fn what_one_task_adds_to_the_log_is_bounded() {
    let mut b = Bench::new();
    let (n0, _) = b.up("n0", "b", vec![]);
    b.run("epilog", "j", "n0");
    let t = task("epilog", "j", 0);
    b.receives(n0, FromAgent::Accepted { task: t, limit_ms: None });
    let (quiet, long) = (b.events.len(), "x".repeat(4_000));
    let moved = |phase| FromAgent::PhaseChanged { task: t, phase, age_ms: 0 };
    for n in 0..2_000 {
        let processes = vec![crate::task::Process { pid: n, command: "sleep".into() }];
        b.receives(n0, moved(Phase::Overdue { script: format!("{n}-{long}"), limit_ms: 1, doing: String::new() }));
        b.receives(n0, moved(Phase::Lingering { processes }));
        b.receives(n0, FromAgent::Milestone { task: t, name: format!("m{n}") });
    }
    for n in 0..2_000 {
        let mut late = ended(exit(1));
        late.elapsed_ms = Some(n);
        b.receives(n0, FromAgent::Finished { task: t, ended: Box::new(late) });
    }
    // Scripts with a drain for each, lingering processes, milestones of rank and job, and late results.
    let reported = b.events.len() - quiet;
    assert!(reported < 300, "{reported} events");
    let names: usize = b.action("epilog", "j", 0).overdue.keys().map(String::len).sum();
    assert!(names < 300, "{names} bytes of names");
    // The bound is per task: another task on the node can still add events.
    b.run("epilog", "k", "n0");
    let t = task("epilog", "k", 0);
    b.receives(n0, FromAgent::Accepted { task: t, limit_ms: None });
    let overdue = Phase::Overdue { script: "10-a".into(), limit_ms: 1, doing: String::new() };
    b.receives(n0, FromAgent::PhaseChanged { task: t, phase: overdue, age_ms: 0 });
    assert!(b.reported("k").contains(&"overdue"), "{:?}", b.reported("k"));
}
