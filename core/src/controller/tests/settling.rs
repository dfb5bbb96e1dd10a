//! Reconciling: each row of the table in `reconcile`, which lists the differences between the store and a node's Hello;
//! and the completions of tasks as they arrive.

use crate::job::{Terms, Tolerance};
use crate::outcome::{Loss, Verdict};

use super::release::add;
use super::*;

#[test]
fn an_action_starts_once_per_node_and_names_unknown_nodes() {
    let mut b = Bench::new();
    b.up("n0", "b", vec![]);
    b.up("n1", "b", vec![]);
    let mut b = b.restart();
    let (n0, _) = b.up("n0", "b", vec![]);
    let effects = b.run("prolog", "j", "n[0-1],ghost");
    assert_eq!(starts(&effects), [(n0, 0)]);
    let row = b.action("prolog", "j", 0);
    assert_eq!(
        (row.sent.to_string(), row.waiting.to_string(), row.not_ok.to_string()),
        ("0".into(), "1".into(), "2".into())
    );
    assert_eq!(b.outcome(task("prolog", "j", 2)), Outcome::Lost { why: Loss::UnknownNode });
    // The node that was away gets its Start when it comes.
    let (n1, effects) = b.up("n1", "b", vec![]);
    assert_eq!(starts(&effects), [(n1, 1)]);
}

#[test]
fn a_completion_is_reported_once_and_its_verdict_is_a_notice() {
    let mut b = Bench::new();
    let (n0, _) = b.up("n0", "b", vec![]);
    let (n1, _) = b.up("n1", "b", vec![]);
    b.run("prolog", "j", "n[0-1]");
    let t0 = task("prolog", "j", 0);
    assert_eq!(b.receives(n0, FromAgent::Accepted { task: t0, limit_ms: None }), []);
    assert_eq!(b.receives(n0, finished(t0, Outcome::Ok)), [ack(n0, t0)]);
    // The agent repeats the end after a lost acknowledgement: acknowledged again, logged once.
    assert_eq!(b.receives(n0, finished(t0, Outcome::Ok)), [ack(n0, t0)]);
    assert_eq!(b.reported("j"), ["attempt", "action-start", "finish"]);
    let t1 = task("prolog", "j", 1);
    let effects = b.receives(n1, finished(t1, exit(3)));
    assert_eq!(effects, [ack(n1, t1), Effect::OutboxGrew]);
    assert_eq!(b.reported("j"), ["attempt", "action-start", "finish", "drain", "finish", "verdict"]);
    let row = b.action("prolog", "j", 0);
    assert_eq!(
        (row.verdict, row.ok.to_string(), row.not_ok.to_string()),
        (Some(Verdict::Failed), "0".into(), "1".into())
    );
    assert_eq!(b.store.outbox[0].body.value()["status"], 3);
}

#[test]
fn equal_results_of_a_batch_are_one_event() {
    let mut b = Bench::new();
    let sessions: Vec<_> = (0..4).map(|i| b.up(&format!("n{i}"), "b", vec![]).0).collect();
    b.run("epilog", "j", "n[0-3]");
    let results = [Outcome::Ok, exit(1), Outcome::Ok, Outcome::Ok];
    let inputs =
        results.into_iter().enumerate().map(|(i, o)| from(sessions[i], finished(task("epilog", "j", i as u32), o)));
    b.batch(inputs.collect());
    assert_eq!(b.reported("j"), ["attempt", "action-start", "drain", "finish", "finish", "verdict"]);
    let ok = b.events.iter().find(|(_, _, e)| e.get("outcome").is_some_and(|o| o == "ok")).unwrap();
    assert_eq!(
        (ok.2.get("ranks").unwrap().as_str(), ok.2.get("hosts").unwrap().as_str()),
        (Some("0,2-3"), Some("n[0,2-3]"))
    );
}

/// Starts a task, and lets the node accept it if `accepted` is `true`. Then ends the node's session, and lets the node
/// say Hello in the boot `boot`. `state` is the task's state in the Hello; `None`: the node does not hold the task.
fn settle(accepted: bool, boot: &str, state: Option<HeldState>) -> (Vec<Effect>, Bench, SessionId) {
    let mut b = Bench::new();
    let (n0, _) = b.up("n0", "b1", vec![]);
    b.run("prolog", "j", "n0");
    if accepted {
        b.receives(n0, FromAgent::Accepted { task: task("prolog", "j", 0), limit_ms: None });
    }
    b.batch(vec![Input::Closed { session: n0, why: String::new() }]);
    let held = state.map(|s| held("prolog", "j", 0, s)).into_iter().collect();
    let (session, effects) = b.up("n0", boot, held);
    (effects, b, session)
}

#[test]
fn hello_settles_every_difference_at_once() {
    let t = task("prolog", "j", 0);
    for accepted in [false, true] {
        // Another boot: the task is lost, accepted or not.
        let (effects, b, _) = settle(accepted, "b2", None);
        assert_eq!(effects, [Effect::OutboxGrew]);
        assert_eq!(b.outcome(t), Outcome::Lost { why: Loss::Rebooted });
        // An unclaimed task is still wanted.
        let (effects, b, s) = settle(accepted, "b1", Some(HeldState::Unclaimed));
        assert_eq!(effects, [send(s, ToAgent::Begin { task: t })]);
        assert_eq!(b.action("prolog", "j", 0).accepted.to_string(), "0");
        // For a live task, and for an ended task before its Finished, the controller sends nothing.
        for state in [live(), HeldState::Ended] {
            let (effects, b, _) = settle(accepted, "b1", Some(state));
            assert_eq!(effects, []);
            assert_eq!(b.action("prolog", "j", 0).accepted.to_string(), "0");
        }
        // The tombstone's end was acknowledged by a controller whose store is lost or older.
        let (effects, b, _) =
            settle(accepted, "b1", Some(HeldState::Tombstone { outcome: exit(9), past_ms: 0, reboot: Reboot::None }));
        assert_eq!(effects, [Effect::OutboxGrew]);
        assert_eq!(b.outcome(t), exit(9));
    }
    // Same boot, holds nothing: a task not accepted is sent again, an accepted task has vanished.
    let (effects, _, s) = settle(false, "b1", None);
    assert_eq!(starts(&effects), [(s, 0)]);
    let (_, b, _) = settle(true, "b1", None);
    assert_eq!(b.outcome(t), Outcome::Lost { why: Loss::Vanished });
}

#[test]
fn a_new_boot_undoes_a_prolog_before_its_verdict_and_no_epilog() {
    for (action, lost) in [("prolog", true), ("epilog", false)] {
        let mut b = Bench::new();
        let (n0, _) = b.up("n0", "b1", vec![]);
        b.up("n1", "b1", vec![]);
        b.run(action, "j", "n[0-1]");
        b.receives(n0, finished(task(action, "j", 0), Outcome::Ok));
        b.batch(vec![Input::Closed { session: n0, why: String::new() }]);
        b.up("n0", "b2", vec![]);
        assert_eq!(b.action(action, "j", 0).ok.is_empty(), lost, "{action}");
    }
    // A job counts on a rank that failed only a check, unless the job sheds such ranks.
    for shrink in [false, true] {
        let terms = Terms { tolerate: Some(Tolerance::Ranks(1)), shrink, ..Terms::default() };
        let mut b = Bench::new();
        let (n0, _) = b.up("n0", "b1", vec![]);
        b.up("n1", "b1", vec![]);
        b.ask(add("j", "n[0-1]", terms)).0.unwrap();
        b.run("prolog", "j", "n[0-1]");
        let t = task("prolog", "j", 0);
        b.receives(n0, finished(t, Outcome::Tolerable));
        b.batch(vec![Input::Closed { session: n0, why: String::new() }]);
        b.up("n0", "b2", vec![]);
        assert_eq!(b.outcome(t) == (Outcome::Lost { why: Loss::Rebooted }), !shrink);
        let why = b.ask(Request::Why { host: crate::HostName::new("n0").unwrap() }).0.unwrap();
        let Reply::Why(why) = why else { panic!("{why:?}") };
        assert_eq!(why.failed.len(), 1, "once");
    }
    // A soft reboot ends all processes and leaves /run: the node's report is about the boot before.
    for reported in [false, true] {
        for state in [HeldState::Ended, HeldState::Tombstone { outcome: Outcome::Ok, past_ms: 0, reboot: Reboot::None }]
        {
            let mut b = Bench::new();
            let (n0, _) = b.up("n0", "b1", vec![]);
            b.up("n1", "b1", vec![]);
            b.run("prolog", "j", "n[0-1]");
            let t = task("prolog", "j", 0);
            b.receives(n0, FromAgent::Accepted { task: t, limit_ms: None });
            if reported {
                b.receives(n0, finished(t, Outcome::Ok));
            }
            b.batch(vec![Input::Closed { session: n0, why: String::new() }]);
            let (n0, _) = b.up("n0", "b1+1", vec![held("prolog", "j", 0, state.clone())]);
            if state == HeldState::Ended {
                b.receives(n0, finished(t, Outcome::Ok));
            }
            assert_eq!(b.outcome(t), Outcome::Lost { why: Loss::Rebooted }, "reported before:  {reported}, {state:?}");
        }
    }
    // The controller knew the tolerable end before: the second drain is for the reboot.
    let mut b = Bench::new();
    let (n0, _) = b.up("n0", "b1", vec![]);
    b.up("n1", "b1", vec![]);
    b.run("prolog", "j", "n[0-1]");
    b.receives(n0, finished(task("prolog", "j", 0), Outcome::Tolerable));
    b.batch(vec![Input::Closed { session: n0, why: String::new() }]);
    let state = HeldState::Tombstone { outcome: Outcome::Tolerable, past_ms: 0, reboot: Reboot::Since };
    b.up("n0", "b1+1", vec![held("prolog", "j", 0, state)]);
    assert_eq!(b.outcome(task("prolog", "j", 0)), Outcome::Lost { why: Loss::Rebooted });
    let newest = b.store.drains[0].newest().reason;
    assert!(newest.contains("rebooted"), "{newest}");
    // After the verdict a reboot changes nothing.
    let mut b = Bench::new();
    let (n0, _) = b.up("n0", "b1", vec![]);
    b.run("prolog", "j", "n0");
    b.receives(n0, finished(task("prolog", "j", 0), Outcome::Ok));
    b.batch(vec![Input::Closed { session: n0, why: String::new() }]);
    let (_, effects) = b.up("n0", "b2", vec![]);
    assert_eq!((effects, b.action("prolog", "j", 0).ok.to_string()), (vec![], "0".into()));
}

#[test]
fn an_ended_task_is_fenced_before_its_begin_and_late_after_it() {
    let mut b = Bench::new();
    let (n0, _) = b.up("n0", "b1", vec![]);
    b.run("prolog", "j", "n0");
    let t = task("prolog", "j", 0);
    b.batch(vec![Input::Closed { session: n0, why: String::new() }]);
    b.pass(60_000);
    assert_eq!(b.outcome(t), Outcome::Lost { why: Loss::Offline });
    let (_, effects) = b.up("n0", "b1", vec![held("prolog", "j", 0, HeldState::Unclaimed)]);
    assert!(matches!(&effects[..], [e] if is_cancel(e, t)), "{effects:?}");

    // The node accepted the task without the controller's knowledge; the task waits in the host's queue.
    let waits = HeldState::Live { phase: Phase::Waiting { why: "another".to_owned() }, age_ms: 10 };
    let (_, effects) = b.up_again("n0", vec![held("prolog", "j", 0, waits)]);
    assert!(matches!(&effects[..], [e] if is_cancel(e, t)), "{effects:?}");

    // The task waits for a slow systemd.
    let starts = HeldState::Live { phase: Phase::Starting, age_ms: 10 };
    let (_, effects) = b.up_again("n0", vec![held("prolog", "j", 0, starts)]);
    assert!(matches!(&effects[..], [e] if is_cancel(e, t)), "{effects:?}");

    let phase = Phase::Running { script: "10-a".to_owned(), index: 1, of: 1, progress: None };
    let runs = HeldState::Live { phase, age_ms: 10 };
    let (n0, effects) = b.up_again("n0", vec![held("prolog", "j", 0, runs)]);
    assert_eq!(effects, []);
    assert_eq!(b.receives(n0, finished(t, exit(4))), [ack(n0, t)]);
    assert_eq!(b.outcome(t), Outcome::Lost { why: Loss::Offline });
    assert_eq!(b.store.ranks[0].late[0].outcome, exit(4));
    let reported = b.reported("j");
    assert_eq!(reported[reported.len() - 2..], ["late", "drain"]);
    // The end is reported twice and recorded once.
    b.receives(n0, finished(t, exit(4)));
    assert_eq!(b.store.ranks[0].late.len(), 1);
}

/// Regression test: an operator lifted the drain of an absent node with a lost task. The node came back, and the rank
/// was released while the task's script lived.
#[test]
fn what_was_given_up_as_lost_and_is_alive_drains_its_node_again() {
    let t = task("prolog", "j", 0);
    let running = || Phase::Running { script: "10-a".to_owned(), index: 1, of: 1, progress: None };
    let lift = |b: &mut Bench| {
        b.ask(Request::Undrain { hosts: "n0".parse().unwrap(), forget: false, notice_id: None }).0.unwrap()
    };
    let drained = |b: &Bench| b.store.drains.first().map(|drain| drain.newest().reason);
    let epochs = Some("prolog: still runs, although it was given up as lost (job j attempt 0)".to_owned());
    // The operator lifts the drain before the node comes back with the live task, in Hello or later; or lifts no drain.
    for (lifted, by_hello) in [(true, true), (true, false), (false, true)] {
        let mut b = Bench::new();
        let (n0, _) = b.up("n0", "b1", vec![]);
        b.run("prolog", "j", "n0");
        b.batch(vec![Input::Closed { session: n0, why: String::new() }]);
        b.pass(60_000);
        assert_eq!(drained(&b).as_deref(), Some("prolog: lost (the node is offline) (job j attempt 0)"));
        if lifted {
            lift(&mut b);
        }
        let comes = |phase| vec![held("prolog", "j", 0, HeldState::Live { phase, age_ms: 10 })];
        let (n0, _) = b.up_again("n0", comes(if by_hello { running() } else { Phase::Starting }));
        if !by_hello {
            assert_eq!(drained(&b), None, "it has not begun");
            b.receives(n0, FromAgent::PhaseChanged { task: t, phase: running(), age_ms: 10 });
        }
        assert_eq!(drained(&b), epochs);
        // The operator who lifts the drain now has seen the live task, also for the next controller.
        b.pass(1_000);
        lift(&mut b);
        let mut b = b.restart();
        b.up_again("n0", comes(running()));
        assert_eq!(drained(&b), None);
        // A reboot ends a script, but does not undo its failure.
        let (n0, _) = b.up_again("n0", vec![]);
        b.receives(n0, finished(t, exit(4)));
        assert_eq!(drained(&b).as_deref(), Some("prolog: failed (exit 4) (job j attempt 0)"));
    }
}

/// Regression test: a task was lost because its node was away, and an operator lifted the node's drain. The node came
/// back and reported that the task had failed. It was drained again only if a report had shown the scripts alive
/// before.
#[test]
fn a_lost_task_that_failed_drains_its_node_again() {
    let t = task("prolog", "j", 0);
    for (outcome, drained) in [
        (Outcome::Ok, None),
        (exit(4), Some("prolog: failed (exit 4) (job j attempt 0)")),
        (Outcome::Cancelled { status: None }, None),
    ] {
        let mut b = Bench::new();
        let (n0, _) = b.up("n0", "b1", vec![]);
        b.run("prolog", "j", "n0");
        b.batch(vec![Input::Closed { session: n0, why: String::new() }]);
        b.pass(60_000);
        b.ask(Request::Undrain { hosts: "n0".parse().unwrap(), forget: false, notice_id: None }).0.unwrap();
        let (n0, _) = b.up_again("n0", vec![held("prolog", "j", 0, HeldState::Ended)]);
        b.receives(n0, finished(t, outcome));
        assert_eq!(b.store.drains.first().map(|drain| drain.reason.as_str()), drained);
    }
}

impl Bench {
    /// Opens a newer session of the same agent on `host`, whose node holds the tasks `held`.
    fn up_again(&mut self, host: &str, held: Vec<Held>) -> (SessionId, Vec<Effect>) {
        let session = self.session();
        let effects = self.receives(session, FromAgent::Hello(hello(host, "b1", session.0, held)));
        (
            session,
            effects
                .into_iter()
                .filter(|e| !matches!(e, Effect::Close { .. } | Effect::Send { message: ToAgent::Welcome { .. }, .. }))
                .collect(),
        )
    }
}

#[test]
fn a_milestone_reported_twice_is_one_event() {
    let mut b = Bench::new();
    let (n0, _) = b.up("n0", "b", vec![]);
    b.run("epilog", "j", "n0");
    let t = task("epilog", "j", 0);
    b.receives(n0, FromAgent::Accepted { task: t, limit_ms: None });
    b.receives(n0, FromAgent::Milestone { task: t, name: "data-out".into() });
    let mut end = ended(Outcome::Ok);
    end.milestones.push("data-out".into());
    b.receives(n0, FromAgent::Finished { task: t, ended: Box::new(end) });
    assert_eq!(b.reported("j"), ["attempt", "action-start", "milestone", "milestone", "finish", "verdict"]);
}

/// Regression test: a job's id was used again on other nodes while an old node was away. The controller refused the old
/// node at each Hello, for ever.
#[test]
fn a_node_of_an_earlier_use_of_a_job_id_is_not_locked_out() {
    let mut b = Bench::new();
    b.up("n1", "b", vec![]);
    b.run("epilog", "j", "n1");
    let t = task("epilog", "j", 0);
    let reported = |state| held("epilog", "j", 0, state);
    let away = |b: &mut Bench, session| b.batch(vec![Input::Closed { session, why: String::new() }]);
    let tombstone = |past_ms| HeldState::Tombstone { outcome: exit(2), past_ms, reboot: Reboot::None };
    // If the store is lost again, only the tombstone shows that the task ran here.
    let (n0, effects) = b.up("n0", "b", vec![reported(tombstone(0))]);
    assert_eq!(effects, []);
    away(&mut b, n0);
    let (n0, effects) = b.up("n0", "b", vec![reported(tombstone(settings().retention_ms))]);
    assert!(matches!(&effects[..], [Effect::Send { message: ToAgent::Forget { .. }, .. }]), "{effects:?}");
    // A live task goes on; the controller acknowledges its end, which is not the end of the task on n1.
    away(&mut b, n0);
    let (n0, effects) = b.up("n0", "b", vec![reported(live())]);
    assert_eq!(effects, []);
    assert_eq!(b.receives(n0, finished(t, Outcome::Ok)), [ack(n0, t)]);
    assert_eq!((b.action("epilog", "j", 0).sent.to_string(), b.action("epilog", "j", 0).verdict), ("0".into(), None));
    away(&mut b, n0);
    let (_, effects) = b.up("n0", "b", vec![reported(HeldState::Unclaimed)]);
    assert!(effects.iter().any(|e| is_cancel(e, t)), "{effects:?}");
    // The action no longer has this rank.
    let old = held("epilog", "j", 2, tombstone(settings().retention_ms));
    let (_, effects) = b.up("n2", "b", vec![old]);
    assert!(matches!(&effects[..], [Effect::Send { message: ToAgent::Forget { .. }, .. }]), "{effects:?}");
}

/// An operator resolved a task, and the task's own result came late. After a restore of an older store, which lacks
/// that result, the tombstone on the node brings it again.
#[test]
fn what_came_late_is_reported_again_by_the_tombstone() {
    let mut b = Bench::new();
    b.up("n0", "b", vec![]);
    b.run("epilog", "j", "n0");
    b.ask(Request::Resolve { which: which("j", None), ok: true, reason: "r".into() }).0.unwrap();
    let tombstone =
        |outcome| held("epilog", "j", 0, HeldState::Tombstone { outcome, past_ms: 0, reboot: Reboot::None });
    for (outcome, late) in [
        // A tombstone without a run is no result of the task.
        (Outcome::Cancelled { status: None }, 0),
        (exit(3), 1),
        (exit(3), 1),
    ] {
        b = b.restart();
        let (_, effects) = b.up("n0", "b", vec![tombstone(outcome)]);
        assert_eq!(effects, []);
        assert_eq!(b.store.ranks[0].late.len(), late);
        assert!(matches!(b.store.ranks[0].ended.outcome, Outcome::Resolved { .. }));
    }
    assert_eq!(b.reported("j").iter().filter(|name| **name == "late").count(), 1);
}

/// Regression test: a controller lost its store, and clients repeated their requests before the nodes had connected.
/// Tasks became `lost (unknown node)` while their scripts ran.
#[test]
fn an_empty_store_gives_nodes_time_before_they_are_unknown() {
    let mut b = Bench::new();
    assert_eq!(b.run("prolog", "j", "n[0-1],ghost"), []);
    let [t0, t1, ghost] = [0, 1, 2].map(|rank| task("prolog", "j", rank));
    let (n0, effects) = b.up("n0", "b", vec![held("prolog", "j", 0, live())]);
    assert_eq!(starts(&effects), [], "it runs");
    let (n1, effects) = b.up("n1", "b", vec![]);
    assert_eq!(starts(&effects), [(n1, 1)]);
    assert_eq!(b.receives(n0, finished(t0, exit(3))), [ack(n0, t0)]);
    b.receives(n1, finished(t1, Outcome::Ok));
    assert_eq!(b.action("prolog", "j", 0).waiting.to_string(), "2");
    b.pass(60_000);
    assert_eq!(b.outcome(ghost), Outcome::Lost { why: Loss::UnknownNode });
    assert_eq!(b.outcome(t0), exit(3));
    // A later request with an unknown node ends at once.
    b.run("prolog", "k", "other");
    assert_eq!(b.outcome(task("prolog", "k", 0)), Outcome::Lost { why: Loss::UnknownNode });
}
