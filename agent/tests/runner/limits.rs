//! Past a limit, the runner inspects the script, records, sends TERM once, and then leaves or kills the script. The
//! limits are long enough for a shell to set its traps.

use perilog_core::ExitStatus::{Exit, Signal};
use perilog_core::task::{OnError, OnTimeout, Retries, ScriptPlan, StepRecord};

use crate::bench::{Left, Task, hammered};

/// Returns each record that a script passed a limit, in order: script, limit in milliseconds, and forensics.
fn overdue(left: &Left) -> Vec<(&str, u64, &str)> {
    let seen = left.steps.iter().filter_map(|step| match step {
        StepRecord::Overdue { script, limit_ms, forensics, .. } => {
            Some((script.as_str(), *limit_ms, forensics.as_str()))
        }
        _ => None,
    });
    seen.collect()
}

#[test]
fn an_overdue_script_goes_on_and_its_true_status_is_kept() {
    let mut task =
        Task::with(&[("10-slow", "trap 'echo termed' TERM; sleep 1000; echo after; exit 5"), ("20-next", "echo next")]);
    task.intent.plan.script_timeout_ms = Some(1000);
    task.intent.plan.retries.count = 3;
    let left = task.run();
    assert_eq!(left.out(), ["termed", "after", "next"], "one TERM, no retry, and the next script runs");
    assert_eq!(left.tries(), [("10-slow", Some(Exit(5))), ("20-next", Some(Exit(0)))]);
    let result = left.result();
    assert_eq!((result.status, result.timed_out, result.worst), (5, true, Some(Exit(5))));
    let seen = overdue(&left);
    assert_eq!((seen.len(), seen[0].0, seen[0].1), (1, "10-slow", 1000));
    assert!(seen[0].2.contains("sleep") && seen[0].2.contains(": sleep 1000\n"), "{}", seen[0].2);
    let at = |wanted: fn(&StepRecord) -> bool| left.steps.iter().position(wanted).unwrap();
    let (begin, past, end) = (
        at(|s| matches!(s, StepRecord::Begin { .. })),
        at(|s| matches!(s, StepRecord::Overdue { .. })),
        at(|s| matches!(s, StepRecord::End { timed_out: true, .. })),
    );
    assert!(begin < past && past < end);
}

#[test]
fn an_overdue_script_that_ends_well_is_still_timed_out() {
    let mut task = Task::with(&[("10-slow", "trap : TERM; sleep 1000; exit 0")]);
    let own = ScriptPlan { timeout_ms: Some(1000), tolerable: true, ..ScriptPlan::default() };
    task.intent.plan.script_timeout_ms = Some(600_000);
    task.intent.plan.scripts.insert("10-slow".to_owned(), own);
    let left = task.run();
    assert_eq!((left.code(), left.result().timed_out, left.result().worst), (0, true, None));
}

#[test]
fn an_overdue_script_stops_a_task_that_stops_on_errors() {
    let mut task = Task::with(&[("10-slow", "trap : TERM; sleep 1000; exit 0"), ("20-next", "echo next")]);
    task.intent.plan.script_timeout_ms = Some(1000);
    task.intent.plan.on_error = OnError::Stop;
    let left = task.run();
    assert_eq!((left.tries(), left.code()), (vec![("10-slow", Some(Exit(0)))], 124));
    assert!(left.result().timed_out);
}

#[test]
fn the_policy_kill_kills_after_its_grace() {
    let mut task = Task::with(&[("10-slow", "trap '' TERM; echo ready; sleep 1000")]);
    task.intent.plan.script_timeout_ms = Some(1000);
    task.intent.plan.on_timeout = OnTimeout::Kill;
    let left = task.run();
    assert_eq!((left.tries(), left.code()), (vec![("10-slow", Some(Signal(9)))], 137));
    assert!(left.result().timed_out && left.result().elapsed_ms >= 10_000, "{left:?}");
    assert_eq!(overdue(&left).len(), 1);
}

#[test]
fn a_script_that_was_cancelled_is_not_signalled_again_by_its_limit() {
    let body =
        "trap 'echo termed' TERM; echo ready; while ! grep -q overdue $STEPS; do sleep 0.05; done; sleep 0.1; exit 4";
    let mut task = Task::with(&[("10-slow", body)]);
    let steps = task.directory().join("steps.jsonl").display().to_string();
    task.intent.plan.env.insert("STEPS".to_owned(), steps);
    task.intent.plan.script_timeout_ms = Some(1000);
    task.accept();
    let mut live = task.start();
    live.wait_for("ready");
    live.signal(rustix::process::Signal::TERM);
    let left = task.left(live.end());
    assert_eq!(left.out(), ["ready", "termed"], "{left:?}");
    assert_eq!((left.code(), left.result().timed_out, left.result().cancelled), (4, true, true));
}

#[test]
fn after_the_tasks_limit_nothing_further_begins() {
    let mut task = Task::with(&[("10-slow", "trap : TERM; sleep 1000; exit 0"), ("20-next", "echo next")]);
    task.intent.plan.timeout_ms = Some(600_000);
    task.intent.start.timeout_ms = Some(1000);
    let left = task.run();
    assert_eq!(left.tries(), [("10-slow", Some(Exit(0)))]);
    assert_eq!(overdue(&left).iter().map(|o| o.1).collect::<Vec<_>>(), [1000]);
    let result = left.result();
    assert_eq!((result.status, result.timed_out, result.ran, result.of), (124, true, 1, 2));
}

#[test]
fn the_tasks_limit_ends_the_pause_before_a_retry() {
    let mut task = Task::with(&[("10-mount", "exit 32"), ("20-next", "echo next")]);
    task.intent.plan.timeout_ms = Some(1000);
    task.intent.plan.retries = Retries { count: 9, backoff_ms: 3_600_000, ceiling_ms: 3_600_000 };
    let left = task.run();
    assert_eq!(left.tries(), [("10-mount", Some(Exit(32)))]);
    let result = left.result();
    assert_eq!((result.status, result.timed_out, result.ran, result.of), (124, true, 1, 2));
}

#[test]
fn a_script_in_another_users_name_has_its_limit_too() {
    let mut task = Task::with(&[("10-slow", "sleep 1000")]);
    task.intent.plan.user = "nobody".to_owned();
    task.intent.plan.script_timeout_ms = Some(1000);
    let left = task.run();
    assert_eq!(left.tries(), [("10-slow", Some(Signal(15)))]);
    assert!(overdue(&left)[0].2.contains(": sleep 1000"));
}

/// Regression test: four processes of any user connected to a runner's control socket and closed in a loop. The runner
/// then did not enforce its limit, handled no cancel, read no output and did not notice the end of its script.
#[test]
fn endless_connections_keep_no_runner_from_its_limit() {
    for user in ["root", "nobody"] {
        let mut task = Task::with(&[("10-slow", "sleep 1000"), ("20-next", "echo next")]);
        task.intent.plan.user = user.to_owned();
        task.intent.plan.script_timeout_ms = Some(1000);
        task.accept();
        let left = hammered(&task.control(), || task.left(task.start().end()));
        assert_eq!(left.tries(), [("10-slow", Some(Signal(15))), ("20-next", Some(Exit(0)))], "{user}");
        assert!(left.result().timed_out, "{user}");
    }
}
