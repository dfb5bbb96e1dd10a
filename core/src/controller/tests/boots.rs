//! Announced reboots, and drains that a reboot lifts.

use crate::outcome::{Loss, Verdict};

use super::*;

pub(super) const LIMIT: u64 = 600_000;
/// Value (ms) of `unreachable_grace_ms` in the settings of the bench.
const GRACE: u64 = 300_000;

pub(super) fn t() -> TaskId {
    task("prolog", "j", 0)
}

fn expects(outcome: Outcome, within_ms: Option<u64>) -> FromAgent {
    let ended = Ended { expect_reboot: true, note: Some("steps so far".to_owned()), ..Ended::bare(outcome, 1) };
    FromAgent::ExpectsBoot { task: t(), within_ms, ended: Box::new(ended) }
}

/// Returns a node's report that the scripts of a task have ended, one of which had announced a reboot.
pub(super) fn over(outcome: Outcome) -> FromAgent {
    FromAgent::Finished { task: t(), ended: Box::new(Ended { expect_reboot: true, ..Ended::bare(outcome, 1) }) }
}

/// Returns a node's report after the announced reboot: the task ended `ok`.
fn booted() -> FromAgent {
    let ended = Ended { expect_reboot: true, booted: true, ..Ended::bare(Outcome::Ok, 1) };
    FromAgent::Finished { task: t(), ended: Box::new(ended) }
}

pub(super) fn closed(session: SessionId) -> Input {
    Input::Closed { session, why: String::new() }
}

/// Connects n0 in the boot `boot`, and n1, and runs a prolog on both. Both nodes accept their tasks and neither task
/// ends, so the action has no verdict.
pub(super) fn accepted_in(boot: &str) -> (Bench, SessionId) {
    let mut b = Bench::new();
    let (n0, _) = b.up("n0", boot, vec![]);
    let (n1, _) = b.up("n1", "b1", vec![]);
    b.run("prolog", "j", "n[0-1]");
    b.receives(n0, FromAgent::Accepted { task: t(), limit_ms: None });
    b.receives(n1, FromAgent::Accepted { task: task("prolog", "j", 1), limit_ms: None });
    (b, n0)
}

/// Runs a prolog on n0 and n1, and lets n0 announce a reboot that would end its task with `outcome`. `within_ms` is the
/// rest of the task's time limit; `None`: no limit.
pub(super) fn announced(outcome: Outcome, within_ms: Option<u64>) -> (Bench, SessionId) {
    let (mut b, n0) = accepted_in("b1");
    let effects = b.receives(n0, expects(outcome, within_ms));
    assert_eq!(effects, [send(n0, ToAgent::BootExpected { task: t() })]);
    (b, n0)
}

/// Lets the task's time limit and then unreachable-grace pass, so that the controller gives up its wait for n0. Asserts
/// that rank 0 of the prolog still counts as accepted just before that.
pub(super) fn wait_in_vain(b: &mut Bench) {
    b.pass(LIMIT + GRACE - 100);
    assert!(b.action("prolog", "j", 0).accepted.contains(0));
    b.pass(200);
}

#[test]
fn only_the_announced_boot_is_the_end() {
    let (failed, tolerable) = (exit(3), Outcome::Tolerable);
    let timeout = Outcome::Timeout { status: None };
    for outcome in [Outcome::Ok, tolerable, failed, timeout] {
        for over_first in [false, true] {
            for restarts in [false, true] {
                let (mut b, n0) = announced(outcome.clone(), Some(LIMIT));
                if over_first {
                    b.receives(
                        n0,
                        FromAgent::Finished {
                            task: t(),
                            ended: Box::new(Ended::bare(Outcome::Lost { why: Loss::Vanished }, 1)),
                        },
                    );
                }
                b.batch(vec![closed(n0)]);
                if restarts {
                    b = b.restart();
                }
                b.pass(LIMIT + GRACE - 1_000);
                assert!(b.action("prolog", "j", 0).accepted.contains(0), "it was waited for");
                let (n0, _) = b.up("n0", "b2", vec![]);
                assert_eq!(b.outcome(t()), outcome, "{over_first} {restarts}");
                let row = b.store.ranks.iter().find(|row| row.task == t()).unwrap();
                assert_eq!(row.expects, None);
                assert_eq!(row.ended.note.as_deref(), Some("steps so far; the announced reboot ended the task"));
                b.batch(vec![closed(n0)]);
                b.up("n0", "b3", vec![]);
                let lost = Outcome::Lost { why: Loss::Rebooted };
                assert_eq!(b.outcome(t()), if outcome.went_well() { lost } else { outcome.clone() });
            }
        }
    }
}

/// Regression test: a node's directory of tasks was removed. After the announced reboot the node's agent reported the
/// task as lost. The controller ended the task as `lost`, and not with the announced outcome.
#[test]
fn a_node_without_its_mark_ends_as_announced() {
    let (mut b, n0) = announced(Outcome::Ok, Some(LIMIT));
    b.batch(vec![closed(n0)]);
    // The controller has just started, and waits for n1: no attempt is asserted yet.
    let mut b = b.restart_settling();
    let (n0, _) = b.up("n0", "b2", vec![held("prolog", "j", 0, HeldState::Ended)]);
    b.receives(n0, finished(t(), Outcome::Lost { why: Loss::Rebooted }));
    assert_eq!(b.outcome(t()), Outcome::Ok);
    assert_eq!(b.drained(), []);
}

#[test]
fn an_unreported_boot_is_a_loss_and_so_is_one_reported_too_late() {
    let mut b = Bench::new();
    let (n0, _) = b.up("n0", "b1", vec![]);
    b.run("prolog", "j", "n0");
    b.receives(n0, FromAgent::Accepted { task: t(), limit_ms: None });
    b.batch(vec![closed(n0)]);
    let (n0, _) = b.up("n0", "b2", vec![]);
    assert_eq!(b.outcome(t()), Outcome::Lost { why: Loss::Rebooted });
    // The task has ended: its script gets no confirmation of the reboot.
    assert_eq!(b.receives(n0, expects(Outcome::Ok, None)), []);
    assert_eq!(b.outcome(t()), Outcome::Lost { why: Loss::Rebooted });
}

/// Regression test: the controller took the Hello of another machine with the same host name for the announced reboot.
#[test]
fn another_machine_is_not_the_boot() {
    let (mut b, n0) = announced(Outcome::Tolerable, Some(LIMIT));
    b.batch(vec![closed(n0)]);
    let other = Hello { machine: MachineId::new("another").unwrap(), ..hello("n0", "b2", 99, vec![]) };
    b.receives(SessionId(99), FromAgent::Hello(other));
    assert_eq!(b.outcome(t()), Outcome::Lost { why: Loss::Rebooted });
}

#[test]
fn an_early_end_waits_for_the_boot_unless_scripts_failed() {
    let lost = Outcome::Lost { why: Loss::Vanished };
    let cancelled = Outcome::Cancelled { status: None };
    for (reported, reported_before, waits) in [
        (over(Outcome::Ok), true, true),
        (over(Outcome::Ok), false, true),
        (over(Outcome::Tolerable), false, true),
        (finished(t(), lost), true, true),
        (over(exit(3)), true, false),
        (over(cancelled), true, false),
        (finished(t(), Outcome::Ok), false, false),
    ] {
        let (mut b, n0) = match reported_before {
            true => announced(Outcome::Ok, Some(LIMIT)),
            false => {
                let mut b = Bench::new();
                let (n0, _) = b.up("n0", "b1", vec![]);
                b.up("n1", "b1", vec![]);
                b.run("prolog", "j", "n[0-1]");
                (b, n0)
            }
        };
        assert!(b.receives(n0, reported.clone()).contains(&ack(n0, t())));
        assert_eq!(b.action("prolog", "j", 0).accepted.contains(0), waits, "{reported:?}");
        if waits {
            // A tombstone on the node shows only that the scripts ended.
            b.batch(vec![closed(n0)]);
            let tombstone = HeldState::Tombstone { outcome: Outcome::Ok, past_ms: 0, reboot: Reboot::None };
            b.up("n0", "b1", vec![held("prolog", "j", 0, tombstone)]);
            assert!(b.action("prolog", "j", 0).accepted.contains(0), "{reported:?}");
        }
    }
}

#[test]
fn a_boot_that_comes_too_late_or_not_at_all_is_none() {
    let timeout = Outcome::Timeout { status: None };
    let unreachable = Outcome::Lost { why: Loss::Unreachable };
    for (outcome, over_first, away, expect) in [
        (Outcome::Ok, true, false, timeout.clone()),
        (Outcome::Ok, true, true, unreachable.clone()),
        (Outcome::Ok, false, true, unreachable.clone()),
        (Outcome::Tolerable, false, true, unreachable),
        // The earlier failure is worse than the missing reboot.
        (exit(3), false, true, exit(3)),
    ] {
        let (mut b, n0) = announced(outcome, Some(LIMIT));
        if over_first {
            b.receives(n0, over(Outcome::Ok));
        }
        if away {
            b.batch(vec![closed(n0)]);
        }
        wait_in_vain(&mut b);
        assert_eq!(b.outcome(t()), expect);
        let row = b.store.ranks.iter().find(|row| row.task == t()).unwrap();
        let note = if away { "did not come back from its announced reboot" } else { "did not reboot in time" };
        assert!(row.ended.note.as_deref().is_some_and(|text| text.contains(note)), "{:?}", row.ended.note);
        assert!(b.m.drains.contains_key("n0"));
    }
    // A live script is left to its runner, which stops the script or reports it as overdue.
    let (mut b, n0) = announced(Outcome::Ok, Some(LIMIT));
    b.pass(10 * LIMIT);
    assert!(b.action("prolog", "j", 0).accepted.contains(0));
    // The node leaves after the limit: a Hello in the same batch is too late as well.
    b.now.mono_ms += 10;
    b.batch(vec![closed(n0), from(SessionId(99), FromAgent::Hello(hello("n0", "b2", 99, vec![])))]);
    assert_eq!(b.outcome(t()), timeout);
    // Without a limit the rank waits until an operator resolves the task.
    let (mut b, n0) = announced(Outcome::Ok, None);
    b.batch(vec![closed(n0)]);
    b.pass(100 * LIMIT);
    assert!(b.action("prolog", "j", 0).accepted.contains(0));
    let ps = b.m.facts().ps(0, false);
    assert!(ps.iter().any(|row| row.state == "rebooting" && row.ranks.contains(0)), "{ps:?}");
    let resolve = Request::Resolve { which: which("j", Some("0")), ok: false, reason: "dead".to_owned() };
    b.ask(resolve).0.unwrap();
    b.up("n0", "b2", vec![]);
    assert!(matches!(b.outcome(t()), Outcome::Resolved { ok: false, .. }));
}

#[test]
fn a_cancel_ends_the_wait_for_a_boot_and_a_boot_ends_a_cancel() {
    let cancelled = Outcome::Cancelled { status: None };
    let cancel = || Request::Cancel { which: which("j", Some("0")), why: "enough".to_owned() };
    // The scripts have ended, and their tombstone answers the Cancel.
    let (mut b, n0) = announced(Outcome::Ok, Some(LIMIT));
    b.receives(n0, over(Outcome::Ok));
    b.ask(cancel()).0.unwrap();
    b.receives(n0, finished(t(), Outcome::Ok));
    assert_eq!(b.outcome(t()), cancelled);
    assert!(b.m.drains.is_empty(), "what was cancelled drains no node");
    // The scripts end after the Cancel: a restarted agent does not know that the controller sent the TERM.
    let (mut b, n0) = announced(Outcome::Ok, Some(LIMIT));
    b.ask(cancel()).0.unwrap();
    b.receives(n0, over(Outcome::Ok));
    assert_eq!(b.outcome(t()), cancelled);
    // The reboot came before the Cancel.
    let (mut b, n0) = announced(Outcome::Ok, Some(LIMIT));
    b.batch(vec![closed(n0)]);
    b.ask(cancel()).0.unwrap();
    b.up("n0", "b2", vec![]);
    assert_eq!(b.outcome(t()), Outcome::Ok);
}

#[test]
fn an_unannounced_soft_reboot_shows_in_what_it_left() {
    let mut b = Bench::new();
    let (n0, _) = b.up("n0", "b1", vec![]);
    b.up("n1", "b1", vec![]);
    b.run("prolog", "j", "n[0-1]");
    b.receives(n0, FromAgent::Accepted { task: t(), limit_ms: None });
    b.batch(vec![closed(n0)]);
    let (n0, _) = b.up("n0", "b1+1", vec![held("prolog", "j", 0, HeldState::Ended)]);
    b.receives(n0, booted());
    assert!(b.action("prolog", "j", 0).ok.contains(0));
    b.batch(vec![closed(n0)]);
    b.up("n0", "b1+2", vec![]);
    assert_eq!(b.outcome(t()), Outcome::Lost { why: Loss::Rebooted });
}

#[test]
fn waiting_tasks_have_the_time_that_the_boot_takes() {
    for comes in [true, false] {
        let (mut b, n0) = announced(Outcome::Ok, Some(LIMIT));
        b.batch(vec![closed(n0)]);
        b.pass(100_000);
        b.run("check", "other", "n0");
        b.pass(LIMIT + GRACE - 110_000);
        let check = task("check", "other", 0);
        assert!(b.action("check", "other", 0).waiting.contains(0));
        if comes {
            let (n0, effects) = b.up("n0", "b2", vec![]);
            assert_eq!(starts(&effects), [(n0, 0)]);
            // After the reboot the check has the full start-grace.
            b.pass(59_000);
            assert!(b.action("check", "other", 0).sent.contains(0));
            b.pass(1_000);
            assert_eq!(b.outcome(check), Outcome::Lost { why: Loss::Offline });
        } else {
            b.pass(20_000);
            b.pass(1);
            assert_eq!(b.outcome(check), Outcome::Lost { why: Loss::Offline });
        }
    }
}

#[test]
fn a_node_known_to_be_down_is_offline_at_once_and_fenced() {
    for (away_ms, at_once) in [(59_000, false), (60_000, true)] {
        let mut b = Bench::new();
        let (n0, _) = b.up("n0", "b1", vec![]);
        b.batch(vec![closed(n0)]);
        b.pass(away_ms);
        b.run("prolog", "j", "n0");
        assert_eq!(b.action("prolog", "j", 0).verdict, at_once.then_some(Verdict::Lost));
        if at_once {
            assert_eq!(b.outcome(t()), Outcome::Lost { why: Loss::Offline });
            // An earlier controller may have sent the Start.
            let (_, effects) = b.up("n0", "b1", vec![held("prolog", "j", 0, HeldState::Unclaimed)]);
            assert!(effects.iter().any(|effect| is_cancel(effect, t())), "{effects:?}");
        }
    }
    // A restarted controller has not seen the node away for start-grace.
    let mut b = Bench::new();
    let (n0, _) = b.up("n0", "b1", vec![]);
    b.batch(vec![closed(n0)]);
    b.pass(600_000);
    let mut b = b.restart();
    b.run("prolog", "j", "n0");
    assert_eq!(b.action("prolog", "j", 0).verdict, None);
}

/// Drains n0 in its first boot by calling `how`, with a drain hook if `hook` is `true`. Restarts the controller, and
/// reboots n0, which holds the tasks `held_then` after the reboot. Returns the bench and n0's new session.
fn cleaned(hook: bool, how: impl Fn(&mut Bench, SessionId), held_then: Vec<Held>) -> (Bench, SessionId) {
    let mut b = Bench::new();
    b.settings.reboot_cleans = true;
    b.settings.drain_hook = hook;
    let settings = b.settings.clone();
    b.batch(vec![Input::Settings(settings)]);
    let (n0, _) = b.up("n0", "b1", vec![]);
    b.run("epilog", "j", "n0");
    b.receives(n0, FromAgent::Accepted { task: task("epilog", "j", 0), limit_ms: None });
    how(&mut b, n0);
    assert!(b.m.drains.contains_key("n0"));
    b.batch(vec![closed(n0)]);
    // A new session of the same boot is no reboot.
    let (n0, _) = b.up("n0", "b1", vec![held("epilog", "j", 0, live())]);
    assert!(b.m.drains.get("n0").is_some_and(|drain| !drain.lifted));
    b.batch(vec![closed(n0)]);
    b = b.restart();
    let (n0, _) = b.up("n0", "b2", held_then);
    (b, n0)
}

#[test]
fn a_boot_lifts_the_drain_for_a_stuck_script_and_no_other() {
    let epilog = || task("epilog", "j", 0);
    let overdue = |b: &mut Bench, n0: SessionId| {
        let phase = Phase::Overdue { script: "10-hangs".to_owned(), limit_ms: 1_000, doing: String::new() };
        b.receives(n0, FromAgent::PhaseChanged { task: epilog(), phase, age_ms: 0 });
    };
    let drain = |b: &mut Bench| {
        let hosts = "n0".parse().unwrap();
        b.ask(Request::Drain { hosts, reason: "bad memory".to_owned(), force: true }).0.unwrap();
    };
    type How<'a> = &'a dyn Fn(&mut Bench, SessionId);
    let table: [(&str, How<'_>, bool); 6] = [
        ("overdue", &overdue, true),
        (
            "ended past its limit",
            &|b, n0| drop(b.receives(n0, finished(epilog(), Outcome::Timeout { status: None }))),
            true,
        ),
        ("failed", &|b, n0| drop(b.receives(n0, finished(epilog(), exit(1)))), false),
        ("by an operator", &|b, _| drain(b), false),
        (
            "overdue, then by an operator",
            &|b, n0| {
                overdue(b, n0);
                drain(b)
            },
            false,
        ),
        (
            "overdue, then failed",
            &|b, n0| {
                overdue(b, n0);
                drop(b.receives(n0, finished(epilog(), exit(1))))
            },
            false,
        ),
    ];
    for (what, how, lifts) in table {
        for hook in [false, true] {
            let (mut b, _) = cleaned(hook, |b, n0| how(b, n0), vec![]);
            match b.m.drains.get("n0").cloned() {
                None => assert!(lifts && !hook, "{what}"),
                Some(drain) => {
                    assert_eq!(drain.lifted, lifts && hook, "{what}");
                    if lifts {
                        b.ask(Request::DrainsDone { drains: vec![(drain.host, drain.notice_id)], lifted: true })
                            .0
                            .unwrap();
                        assert!(b.m.drains.is_empty() && b.store.drains.is_empty());
                    }
                }
            }
        }
    }
    // A soft reboot left a task under inspection: the task's end lifts the drain.
    let (mut b, n0) = cleaned(false, overdue, vec![held("epilog", "j", 0, live())]);
    assert!(b.m.drains.contains_key("n0"));
    b.receives(n0, finished(epilog(), Outcome::Lost { why: Loss::Rebooted }));
    assert!(b.m.drains.is_empty());
    // Without `reboot-cleans` in the configuration, a reboot lifts no drain.
    let mut b = Bench::new();
    let (n0, _) = b.up("n0", "b1", vec![]);
    b.run("epilog", "j", "n0");
    overdue(&mut b, n0);
    b.batch(vec![closed(n0)]);
    b.up("n0", "b2", vec![]);
    assert!(b.m.drains.contains_key("n0"));
}
