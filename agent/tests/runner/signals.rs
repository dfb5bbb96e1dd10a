//! Signals to the runner are meant for its script.
//!
//! A shell that is signalled just before it starts a long `sleep` finishes that sleep first; so the scripts here sleep
//! in short steps.

use perilog_core::ExitStatus::{Exit, Signal as Signalled};
use perilog_core::task::{Retries, StepRecord};
use rustix::process::Signal;

use crate::bench::Task;

#[test]
fn a_cancel_is_forwarded_once_and_nothing_further_begins() {
    let task = Task::with(&[
        (
            "10-a",
            "trap 't=1; echo termed' TERM; echo ready; while [ -z \"$t\" ]; do sleep 0.05; done; sleep 0.1; exit 7",
        ),
        ("20-b", "echo b"),
    ]);
    task.accept();
    let mut live = task.start();
    live.wait_for("ready");
    live.signal(Signal::TERM);
    live.wait_for("termed");
    live.signal(Signal::TERM);
    let left = task.left(live.end());
    assert_eq!(left.out(), ["ready", "termed"]);
    assert_eq!(left.tries(), [("10-a", Some(Exit(7)))]);
    assert_eq!(left.steps.iter().filter(|step| matches!(step, StepRecord::Cancelled { .. })).count(), 1);
    let result = left.result();
    assert_eq!((result.cancelled, result.ran, result.of, result.worst), (true, 1, 2, Some(Exit(7))));
    assert_eq!(left.code(), 143);
}

#[test]
fn a_cancelled_script_that_was_the_last_keeps_its_status() {
    for (end, status) in [("exit 0", 0), ("exit 3", 3)] {
        let task = Task::with(&[("10-a", &format!("trap '{end}' TERM; echo ready; while :; do sleep 0.05; done"))]);
        task.accept();
        let mut live = task.start();
        live.wait_for("ready");
        live.signal(Signal::TERM);
        let left = task.left(live.end());
        assert_eq!((left.code(), left.result().cancelled, left.result().ran), (status, true, 1));
    }
}

#[test]
fn a_cancel_reaches_a_script_of_another_user_and_ends_a_pause() {
    let mut task = Task::with(&[("10-a", "echo ready; sleep 1000")]);
    task.intent.plan.user = "nobody".to_owned();
    task.accept();
    let mut live = task.start();
    live.wait_for("ready");
    live.signal(Signal::TERM);
    let left = task.left(live.end());
    assert_eq!((left.tries(), left.code()), (vec![("10-a", Some(Signalled(15)))], 143));

    let mut task = Task::with(&[("10-a", "exit 3")]);
    task.intent.plan.retries = Retries { count: 1, backoff_ms: 3_600_000, ceiling_ms: 3_600_000 };
    task.accept();
    let mut live = task.start();
    live.wait_for("try 2 in 1h");
    live.signal(Signal::TERM);
    let left = task.left(live.end());
    assert_eq!((left.code(), left.result().cancelled, left.tries().len()), (3, true, 1));
}

#[test]
fn other_signals_are_forwarded_to_the_scripts_group() {
    let task = Task::with(&[(
        "10-a",
        "for s in HUP INT USR1 USR2; do trap \"echo got $s\" $s; done\n\
         sh -c 'trap : HUP USR1; trap \"echo child too; exit\" USR2; echo ready; while :; do sleep 0.05; done' &\n\
         while kill -0 $!; do wait $!; done; exit 3",
    )]);
    task.accept();
    let mut live = task.start();
    live.wait_for("ready");
    for (signal, name) in [(Signal::HUP, "got HUP"), (Signal::USR1, "got USR1")] {
        live.signal(signal);
        live.wait_for(name);
    }
    live.signal(Signal::USR2);
    let left = task.left(live.end());
    assert!(left.out().contains(&"got USR2") && left.out().contains(&"child too"), "{left:?}");
    assert_eq!((left.code(), left.result().cancelled), (3, false));
}

#[test]
fn signal_43_kills_the_script_and_not_the_runner() {
    let task = Task::with(&[("10-a", "trap '' TERM; echo ready; sleep 1000"), ("20-b", "echo b")]);
    task.accept();
    let mut live = task.start();
    live.wait_for("ready");
    // rustix names no real-time signals.
    let kill =
        std::process::Command::new("/bin/sh").args(["-c", &format!("kill -43 {}", live.pid())]).status().unwrap();
    assert!(kill.success());
    let left = task.left(live.end());
    assert_eq!(left.tries(), [("10-a", Some(Signalled(9))), ("20-b", Some(Exit(0)))]);
    assert_eq!((left.code(), left.result().cancelled), (137, false));
}

#[test]
fn a_killed_runner_leaves_a_claim_a_begin_and_no_result() {
    let task = Task::with(&[("10-a", "echo $$ ready; sleep 1000")]);
    task.accept();
    let mut live = task.start();
    let line = live.wait_for("ready");
    live.signal(Signal::KILL);
    let ended = live.end();
    let script =
        line.split(' ').next().and_then(|pid| pid.parse().ok()).and_then(rustix::process::Pid::from_raw).unwrap();
    rustix::process::kill_process_group(script, Signal::KILL).unwrap();
    assert_eq!(ended.status.code(), None);
    assert!(!task.directory().join("result.json").exists());
    let steps = task.kept("steps.jsonl");
    assert!(steps.lines().count() == 1 && steps.contains("\"begin\""), "{steps}");
    assert_eq!(task.kept("out.0.head"), format!("{line}\n"), "kept while it ran");
}
