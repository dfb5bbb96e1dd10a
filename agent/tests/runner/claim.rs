//! Tests of the runner's permission to run. At most one runner runs a task, only until not-after, and only in that
//! task's own directory, which root alone can write.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

use perilog_core::ids::InvocationId;
use perilog_core::task::{Claim, StepRecord};
use rustix::process::Signal;
use rustix::time::{ClockId, clock_gettime};

use crate::bench::{INVOCATION, Live, Task, runner, there, written};

/// Runs a runner on the task, and asserts that it exits with `status`, says `why`, runs nothing, records nothing and
/// leaves the claim unchanged.
fn runs_nothing(task: &Task, status: i32, why: &str) {
    let claim = fs::read(task.directory().join("claim")).ok();
    let ended = task.start().end();
    assert_eq!(ended.status.code(), Some(status), "{ended:?}");
    assert!(ended.err.iter().any(|line| line.contains(why)), "{why}: {ended:?}");
    assert!(ended.out.is_empty());
    for file in ["steps.jsonl", "result.json"] {
        assert!(!there(&task.directory().join(file)), "{file}");
    }
    assert_eq!(fs::read(task.directory().join("claim")).ok(), claim);
    assert!(!there(&task.control()));
}

fn boottime_ms() -> u64 {
    let now = clock_gettime(ClockId::Boottime);
    u64::try_from(now.tv_sec * 1000 + now.tv_nsec / 1_000_000).unwrap()
}

#[test]
fn the_claim_names_the_invocation() {
    let task = Task::with(&[("10-a", "true")]);
    assert_eq!(task.run().code(), 0);
    let claim: Claim = written(&task.kept("claim"));
    assert_eq!(claim, Claim::Runner(InvocationId::new(INVOCATION).unwrap()));
    let leavings = fs::read_dir(task.directory()).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap());
    assert_eq!(leavings.filter(|name| name.ends_with(".tmp")).count(), 0);
}

#[test]
fn a_claim_that_is_taken_leaves_nothing_to_run() {
    for claim in [Claim::Cancelled, Claim::Runner(InvocationId::new(&"f".repeat(32)).unwrap())] {
        let task = Task::with(&[("10-a", "echo ran")]);
        task.accept();
        fs::write(task.directory().join("claim"), serde_json::to_vec(&claim).unwrap()).unwrap();
        runs_nothing(&task, 75, "claim: another process has claimed the task");
    }
}

#[test]
fn a_start_that_comes_too_late_runs_nothing() {
    let mut task = Task::with(&[("10-a", "echo ran")]);
    task.intent.not_after_boottime_ms = boottime_ms() - 1;
    task.accept();
    runs_nothing(&task, 75, "too late by");

    task.intent.not_after_boottime_ms = boottime_ms() + 60_000;
    assert_eq!(task.run().out(), ["ran"]);
}

#[test]
fn a_directory_that_is_not_there_or_not_roots_runs_nothing() {
    let task = Task::with(&[("10-a", "echo ran")]);
    runs_nothing(&task, 66, "No such file");
    fs::create_dir_all(task.directory()).unwrap();
    runs_nothing(&task, 66, "intent.json: No such file");
    task.accept();
    fs::set_permissions(task.directory(), fs::Permissions::from_mode(0o777)).unwrap();
    runs_nothing(&task, 66, "other users than root can write it");
    fs::set_permissions(task.directory(), fs::Permissions::from_mode(0o700)).unwrap();
    std::os::unix::fs::chown(task.directory(), Some(1), None).unwrap();
    runs_nothing(&task, 66, "other users than root can write it");
}

#[test]
fn an_intent_that_is_none_or_anothers_runs_nothing() {
    let task = Task::with(&[("10-a", "echo ran")]);
    task.accept();
    let intent = task.directory().join("intent.json");
    fs::write(&intent, "{").unwrap();
    runs_nothing(&task, 66, "intent.json: EOF");
    let mut other = task.intent.clone();
    other.start.task.rank.0 += 1;
    fs::write(&intent, serde_json::to_vec(&other).unwrap()).unwrap();
    runs_nothing(&task, 66, "the intent in it is that of perilog-task-prolog-fABC-4-");
}

#[test]
fn without_an_invocation_or_with_a_wrong_stem_nothing_runs() {
    let mut task = Task::with(&[("10-a", "echo ran")]);
    task.accept();
    task.env.insert("INVOCATION_ID".to_owned(), "x".to_owned());
    runs_nothing(&task, 2, "malformed invocation id");
    task.env.remove("INVOCATION_ID");
    runs_nothing(&task, 2, "INVOCATION_ID is not set");
    let stem = format!("{}/../x", task.stem());
    let mut command = Command::new(runner());
    command.arg(stem).stdout(Stdio::piped()).stderr(Stdio::piped());
    assert_eq!(Live::new(&mut command).end().status.code(), Some(2));
}

#[test]
fn a_second_runner_runs_nothing_and_disturbs_nobody() {
    let task = Task::with(&[("10-a", "trap 'exit 5' TERM; echo ready; while :; do sleep 0.05; done")]);
    task.accept();
    let mut first = task.start();
    first.wait_for("ready");
    let second = task.start().end();
    assert_eq!((second.status.code(), second.out.len()), (Some(75), 0));
    assert!(there(&task.control()), "the first one's socket stands");
    first.signal(Signal::TERM);
    let left = task.left(first.end());
    assert_eq!(left.code(), 5);
    assert_eq!(left.steps.iter().filter(|step| matches!(step, StepRecord::Begin { .. })).count(), 1);
}

#[test]
fn of_many_runners_at_once_one_runs() {
    let task = Task::with(&[("10-a", "echo ran")]);
    task.accept();
    let all: Vec<Live> = (0..8).map(|_| task.start()).collect();
    let ended: Vec<_> = all.into_iter().map(Live::end).collect();
    assert_eq!(ended.iter().filter(|e| e.status.code() == Some(0)).count(), 1, "{ended:?}");
    assert_eq!(ended.iter().filter(|e| e.status.code() == Some(75)).count(), 7, "{ended:?}");
    assert_eq!(ended.iter().map(|e| e.out.len()).sum::<usize>(), 1);
}
