//! Tests of a task whose unit was asked for and whose first script does not begin: the limit counts from the start
//! call, and the agent says for what the task waits.

use super::bed::Bed;
use super::values::*;
use crate::agent::io::{Input, Node, Seen, StartReply};
use crate::ids::TaskId;
use crate::message::ToAgent;
use crate::task::UnitFacts;

const TASK: &str = "j.1.prolog.0";

fn up() -> Bed {
    let mut bed = Bed::up();
    bed.watches = true;
    bed
}

/// Begins a task with a limit of a minute; systemd has not answered the start call.
fn asked(bed: &mut Bed) -> TaskId {
    let id = task("j", 1, "prolog", 0);
    bed.check(start_message("j", 1, "prolog", 0), &[&format!("write-intent {TASK}")]);
    bed.check(intent_written(id), &[&format!("accepted {TASK}"), &format!("start-unit {TASK}"), "wake 5000"]);
    id
}

/// Returns an inspection that finds the unit with its runner, which has no claim.
fn unclaimed(deaf: Option<&str>) -> Seen {
    let runs = seen_running(&intent("j", 1, "prolog", 0), 1);
    Seen { claim: None, runner: Some("pid 7, state S".to_owned()), deaf: deaf.map(str::to_owned), ..runs }
}

/// Regression test: PID 1 of a node did not answer. For 310 s the task had no limit, `ps` said that its unit was about
/// to begin, and the node was not drained.
#[test]
fn a_systemd_that_does_not_answer_a_start_is_named_and_overdue() {
    let mut bed = up();
    let id = asked(&mut bed);
    bed.pass(
        5_000,
        &[&format!("moved {TASK} waiting for systemd, which does not answer on the system bus"), "wake 60000"],
    );
    bed.pass(
        55_000,
        &["warning: prolog of job j*", &format!("moved {TASK} overdue its start 60000 it waits for systemd*")],
    );
    // The call has no answer, and neither has the inspection that follows.
    bed.check(
        Input::Started { task: id, reply: StartReply::Unknown("timed out".into()) },
        &[&format!("inspect {TASK}")],
    );
    bed.pass(60_000, &[]);
    // systemd goes on, and the runner runs the scripts.
    bed.check(
        inspected(id, seen_running(&intent("j", 1, "prolog", 0), 1)),
        &["watch j.1.prolog.0", "moved j.1.prolog.0 overdue its start 60000 it waits for its first script*"],
    );
    let steps = vec![begin_step(0, "a", 1)];
    bed.check(task_changed(id), &[&format!("inspect {TASK}")]);
    let seen = Seen { steps, ..seen_running(&intent("j", 1, "prolog", 0), 1) };
    bed.check(inspected(id, seen), &[&format!("moved {TASK} running a 1/1"), "wake 150000"]);
}

#[test]
fn a_start_that_goes_well_needs_no_check_after_it() {
    let mut bed = up();
    let id = asked(&mut bed);
    bed.check(queued(id), &[]);
    bed.check(task_changed(id), &[&format!("inspect {TASK}")]);
    let seen = Seen { steps: vec![begin_step(0, "a", 1)], ..seen_running(&intent("j", 1, "prolog", 0), 1) };
    bed.check(inspected(id, seen), &[&format!("moved {TASK} running a 1/1")]);
    bed.pass(5_000, &["wake 65000"]);
}

/// The unit exists, and its runner has not claimed the task: it is frozen, or its program hangs.
#[test]
fn a_runner_that_does_not_claim_is_named_and_overdue() {
    let mut bed = up();
    let id = asked(&mut bed);
    bed.check(queued(id), &[]);
    bed.pass(5_000, &[&format!("inspect {TASK}"), "wake 10000"]);
    let frozen = Some("its unit is frozen with perilog.slice");
    let why = "its first script; its runner (pid 7, state S) has not begun it: its unit is frozen with perilog.slice";
    bed.check(inspected(id, unclaimed(frozen)), &[&format!("moved {TASK} waiting for {why}")]);
    bed.pass(55_000, &[&format!("inspect {TASK}"), "wake 65000"]);
    let late = format!("moved {TASK} overdue its start 60000 it waits for {why}");
    bed.check(inspected(id, unclaimed(frozen)), &["warning: prolog of job j*", &late]);
    // Each report comes once.
    bed.check(task_changed(id), &[&format!("inspect {TASK}")]);
    bed.check(inspected(id, unclaimed(frozen)), &[]);
}

/// The runner has the claim and hangs over a directory, a link, or the name of a user.
#[test]
fn a_runner_that_begins_no_script_is_named_and_overdue_at_the_limit_of_scripts() {
    let mut node: Node = node();
    let plan = node.policy.actions.get_mut(&action("prolog")).unwrap();
    (plan.timeout_ms, plan.script_timeout_ms) = (None, Some(20_000));
    let mut bed = Bed::up_as(node);
    bed.watches = true;
    let id = asked(&mut bed);
    bed.check(queued(id), &[]);
    bed.check(task_changed(id), &[&format!("inspect {TASK}")]);
    let seen = || Seen { runner: Some("pid 7, state S".to_owned()), ..seen_running(&intent("j", 1, "prolog", 0), 1) };
    bed.check(inspected(id, seen()), &[]);
    bed.pass(5_000, &[&format!("inspect {TASK}"), "wake 10000"]);
    let why = "its first script; its runner (pid 7, state S) has not begun it; before that the runner reads *";
    bed.check(inspected(id, seen()), &[&format!("moved {TASK} waiting for {why}")]);
    bed.pass(15_000, &[&format!("inspect {TASK}"), "wake 25000"]);
    bed.check(
        inspected(id, seen()),
        &["warning: *", &format!("moved {TASK} overdue its start 20000 it waits for {why}")],
    );
}

/// Without a limit nothing is overdue, and the reason is shown.
#[test]
fn without_a_limit_the_reason_is_named_and_nothing_is_overdue() {
    let mut node = node();
    node.policy.actions.get_mut(&action("prolog")).unwrap().timeout_ms = None;
    let mut bed = Bed::up_as(node);
    bed.watches = true;
    asked(&mut bed);
    bed.pass(5_000, &[&format!("moved {TASK} waiting for systemd, which does not answer*")]);
    bed.pass(3_600_000, &[]);
}

/// The agent has the claim of a cancelled task, and waits for systemd to know that no unit is left.
#[test]
fn a_cancelled_start_says_that_no_script_will_begin_and_is_never_overdue() {
    let mut bed = up();
    let id = asked(&mut bed);
    bed.check(cancel("j", 1, "prolog", 0), &[&format!("take-claim {TASK} cancelled")]);
    bed.check(claim_taken(id, true), &[]);
    let why = "systemd, which does not answer on the system bus; no script of it will begin";
    bed.pass(5_000, &[&format!("moved {TASK} waiting for {why}")]);
    bed.pass(100_000, &[]);
    // A cancel that comes past the limit says so, too.
    let mut bed = up();
    let id = asked(&mut bed);
    bed.now.boot_ms = 60_000;
    bed.check(Input::Tick, &["warning: *", &format!("moved {TASK} overdue its start 60000*")]);
    bed.check(cancel("j", 1, "prolog", 0), &[&format!("take-claim {TASK} cancelled")]);
    bed.check(claim_taken(id, true), &[&format!("moved {TASK} waiting for {why}")]);
}

/// The time in which a task waits for its turn is no part of its limit.
#[test]
fn the_limit_counts_from_the_start_call() {
    let mut bed = Bed::up();
    let first = bed.live("j", 1, "prolog", 0);
    bed.check(start_message("j", 1, "epilog", 0), &["write-intent j.1.epilog.0"]);
    let second = task("j", 1, "epilog", 0);
    bed.check(intent_written(second), &["accepted j.1.epilog.0", "moved j.1.epilog.0 waiting for prolog of job j*"]);
    bed.feed(task_changed(first));
    bed.now.boot_ms = 8_000;
    let effects = bed.feed(inspected(first, seen_exited(&intent("j", 1, "prolog", 0), 1, 0)));
    let since = effects.iter().find_map(|effect| match effect {
        crate::agent::io::Effect::StartUnit { since_boot_ms, .. } => Some(*since_boot_ms),
        _ => None,
    });
    assert_eq!(since, Some(8_000), "{effects:?}");
    bed.now.boot_ms = 67_000;
    assert!(bed.feed(Input::Tick).iter().all(|effect| !super::effect_text::effect_text(effect).contains("overdue")));
}

/// systemd stops answering while a script runs: its limit passes all the same.
#[test]
fn a_limit_passes_while_systemd_does_not_answer() {
    let mut bed = up();
    let id = asked(&mut bed);
    bed.check(queued(id), &[]);
    bed.check(task_changed(id), &[&format!("inspect {TASK}")]);
    let seen = Seen { steps: vec![begin_step(0, "a", 1)], ..seen_running(&intent("j", 1, "prolog", 0), 1) };
    bed.check(inspected(id, seen), &[&format!("moved {TASK} running a 1/1")]);
    bed.pass(65_000, &[&format!("inspect {TASK}"), "wake 70000"]);
    bed.pass(5_000, &["warning: prolog of job j*", &format!("moved {TASK} overdue a 60000 unknown without systemd*")]);
}

/// /run has no room for a claim: the runner ends with 73, and the agent cannot take the claim either.
#[test]
fn a_claim_without_room_is_named() {
    let mut bed = up();
    let id = asked(&mut bed);
    bed.check(queued(id), &[]);
    bed.check(task_changed(id), &[&format!("inspect {TASK}")]);
    let exited = seen_exited(&intent("j", 1, "prolog", 0), 1, 73);
    bed.feed(inspected(id, Seen { claim: None, ..exited }));
    bed.feed(Input::ClaimTaken { task: id, result: Err("no room".to_owned()) });
    bed.now.boot_ms = 5_000;
    let reported: Vec<String> = bed.feed(Input::Tick).iter().map(super::effect_text::effect_text).collect();
    assert!(reported.iter().any(|it| it.contains("waiting for its outcome") && it.contains("exit 73")), "{reported:?}");
}

/// A resolution and the loss of a session send a Cancel: the machine takes the claim of a start that is overdue.
#[test]
fn a_kill_of_a_stalled_start_says_that_it_waits() {
    let mut bed = up();
    let id = asked(&mut bed);
    bed.check(queued(id), &[]);
    bed.check(Input::Message(ToAgent::Signal { task: id, signal: 9 }), &[]);
    bed.pass(5_000, &[&format!("inspect {TASK}"), "wake 10000"]);
    let none = Seen { unit: Some(UnitFacts { main_pid: 0, ..unclaimed(None).unit.unwrap() }), ..unclaimed(None) };
    let reported = bed.feed(inspected(id, none));
    let reported: Vec<String> = reported.iter().map(super::effect_text::effect_text).collect();
    assert!(
        reported
            .iter()
            .any(|it| it.contains("systemd to start its unit")
                && it.contains("the signal that was sent to the task waits")),
        "{reported:?}"
    );
}
