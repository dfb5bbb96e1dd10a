//! Tests of a runner that is stopped (SIGSTOP) or hangs: the agent itself notices that a limit has passed, and reports
//! signals that have no effect.

use super::bed::Bed;
use super::values::*;
use crate::agent::io::{Input, Node, Seen};
use crate::ids::TaskId;
use crate::message::ToAgent;
use crate::task::OnTimeout;

const DEAF: &str = "its runner is stopped (SIGSTOP, or a debugger)";
const TASK: &str = "j.1.prolog.0";

fn seen(deaf: bool) -> Seen {
    let steps = vec![begin_step(0, "a", 1)];
    Seen { steps, deaf: deaf.then(|| DEAF.to_owned()), ..seen_running(&intent("j", 1, "prolog", 0), 1) }
}

/// Makes a task whose script runs, with a limit of a minute; returns the bed and the task.
fn runs(node: Node) -> (Bed, TaskId) {
    let mut bed = Bed::up_as(node);
    let id = bed.live("j", 1, "prolog", 0);
    bed.watches = true;
    bed.check(task_changed(id), &["inspect j.1.prolog.0"]);
    bed.check(inspected(id, seen(false)), &["moved j.1.prolog.0 running a 1/1"]);
    // The check whether its first script begins comes, and has nothing to do.
    bed.pass(5_000, &["wake 65000"]);
    (bed, id)
}

/// Regression test: the limit of a task passed while its runner was stopped (SIGSTOP). The task never became overdue,
/// and its node was never drained.
#[test]
fn the_agent_reports_a_limit_that_a_stopped_runner_misses() {
    let (mut bed, id) = runs(node());
    bed.pass(60_000, &["inspect j.1.prolog.0", "wake 70000"]);
    let late = [
        "warning: prolog of job j, attempt 1, rank 0 is past its limit, and its runner is stopped*",
        "moved j.1.prolog.0 overdue a 60000 its runner is stopped*",
    ];
    bed.check(inspected(id, seen(true)), &late);
    // The agent reports the limit once. A runner that is back reports by itself, so the agent does not repeat the
    // report.
    bed.check(task_changed(id), &["inspect j.1.prolog.0"]);
    bed.check(inspected(id, seen(true)), &[]);
    bed.check(task_changed(id), &["inspect j.1.prolog.0"]);
    bed.check(inspected(id, seen(false)), &["moved j.1.prolog.0 running a 1/1"]);
}

#[test]
fn a_runner_that_is_only_slow_is_inspected_again() {
    let (mut bed, id) = runs(node());
    bed.pass(60_000, &["inspect j.1.prolog.0", "wake 70000"]);
    bed.check(inspected(id, seen(false)), &[]);
    bed.pass(30_000, &["inspect j.1.prolog.0", "wake 100000"]);
}

#[test]
fn the_kill_policy_ends_a_stopped_runners_unit() {
    let mut node = node();
    node.policy.actions.get_mut(&action("prolog")).unwrap().on_timeout = OnTimeout::Kill;
    let (mut bed, id) = runs(node);
    bed.pass(60_000, &["inspect j.1.prolog.0", "wake 70000"]);
    bed.check(inspected(id, seen(true)), &["warning: *", "moved j.1.prolog.0 overdue a 60000*"]);
    bed.pass(10_000, &["inspect j.1.prolog.0"]);
    bed.check(inspected(id, seen(true)), &["warning: *", "kill-lingering j.1.prolog.0"]);
}

/// Regression test: `perilog cancel` and `perilog kill -s KILL` reported success, but did nothing to the unit of a
/// stopped runner.
#[test]
fn a_kill_reaches_the_unit_of_a_stopped_runner() {
    let (mut bed, id) = runs(node());
    bed.check(Input::Message(ToAgent::Signal { task: id, signal: 9 }), &["signal j.1.prolog.0 43"]);
    bed.now.boot_ms += 2_000;
    bed.check(task_changed(id), &["inspect j.1.prolog.0"]);
    bed.check(inspected(id, seen(true)), &["warning: perilog-task-prolog-j-0-*", "kill-lingering j.1.prolog.0"]);
    // A runner that handles the signal needs no more.
    let (mut bed, id) = runs(node());
    bed.check(Input::Message(ToAgent::Signal { task: id, signal: 9 }), &["signal j.1.prolog.0 43"]);
    bed.now.boot_ms += 2_000;
    bed.check(task_changed(id), &["inspect j.1.prolog.0"]);
    bed.check(inspected(id, seen(false)), &[]);

    let (mut bed, id) = runs(node());
    bed.check(cancel("j", 1, "prolog", 0), &[&format!("signal {TASK} 15")]);
    bed.now.boot_ms += 2_000;
    bed.check(task_changed(id), &["inspect j.1.prolog.0"]);
    let reported = "moved j.1.prolog.0 running a 1/1: asked to stop, but its runner is stopped*";
    bed.check(inspected(id, seen(true)), &["warning: prolog of job j*", reported]);
}
