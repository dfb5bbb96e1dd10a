//! Tests of the choice of scripts: the scripts that run, their order, and the files that the runner skips.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

use perilog_core::ExitStatus::{Exit, Signal};
use perilog_core::task::{Empty, OnError, Retries, Run, ScriptPlan, StepRecord};

use crate::bench::Task;

#[test]
fn scripts_run_in_byte_order_and_leftover_files_are_skipped() {
    let task = Task::new();
    for name in ["b", "a", "B", "10-x", "9-x", ".hidden", "a~", "a.rpmsave", "a.dpkg-old", "a.bak", "a.swp"] {
        task.script(name, &format!("echo {name}"));
    }
    let plain = task.script("c-plain", "echo c-plain");
    fs::set_permissions(&plain, fs::Permissions::from_mode(0o644)).unwrap();
    fs::create_dir(task.path("scripts/d-directory")).unwrap();
    symlink("/dev/null", task.path("scripts/e-masked")).unwrap();
    symlink("a", task.path("scripts/f-link")).unwrap();
    let left = task.run();
    assert_eq!(left.out(), ["10-x", "9-x", "B", "a", "b", "a"]);
    assert!(left.has_printed("c-plain is skipped: not executable"));
    assert!(left.has_printed("d-directory is skipped: not a regular file") && left.has_printed("e-masked is skipped"));
    let result = left.result();
    assert_eq!((result.status, result.ran, result.of, result.worst), (0, 6, 6, None));
    assert!(left.tries().iter().all(|(_, status)| *status == Some(Exit(0))));
}

#[test]
fn directories_run_in_the_order_of_the_list() {
    let mut task = Task::with(&[("50-first", "echo first")]);
    fs::create_dir(task.path("more")).unwrap();
    task.executable("more/10-second", b"#!/bin/sh\necho second\n");
    let more = task.path("more").display().to_string();
    if let Run::Directories(directories) = &mut task.intent.plan.run {
        directories.push(more);
    }
    assert_eq!(task.run().out(), ["first", "second"]);
}

#[test]
fn an_empty_directory_is_ok_with_zero_scripts() {
    let left = Task::new().run();
    assert_eq!((left.result().status, left.result().of, left.steps.len()), (0, 0, 0));
    assert!(left.result().skipped.is_empty());
}

/// Regression test: the only file of a prolog was skipped, because it had no x bit, and the prolog ended as `ok`. Only
/// the journal of each node said that the file was skipped.
#[test]
fn a_skipped_file_is_in_the_result_and_empty_decides_the_rest() {
    for (empty, status) in [(Empty::Ok, 0), (Empty::Fail, 78)] {
        let mut task = Task::new();
        let plain = task.script("10-hello", "echo hello");
        fs::set_permissions(&plain, fs::Permissions::from_mode(0o644)).unwrap();
        task.intent.plan.empty = empty;
        let left = task.run();
        let result = left.result();
        assert_eq!((result.status, result.of, left.steps.len()), (status, 0, 0), "{empty:?}");
        assert!(
            matches!(&result.skipped[..], [one] if one.ends_with("/10-hello is skipped: not executable")),
            "{result:?}"
        );
        let why = result.configuration.as_deref().unwrap_or_default();
        assert_eq!(why.contains("no script to run"), empty == Empty::Fail, "{why}");
    }
}

#[test]
fn a_command_is_one_script_with_arguments() {
    let mut task = Task::new();
    let words = ["/bin/sh", "-c", "echo \"$0 $1\"; exit 4", "one", "a b"];
    task.intent.plan.run = Run::Command(words.map(str::to_owned).into());
    let left = task.run();
    assert_eq!((left.out(), left.tries()), (vec!["one a b"], vec![("sh", Some(Exit(4)))]));
    assert_eq!(left.code(), 4);
}

#[test]
fn what_others_can_write_is_not_run_nor_is_anything_else() {
    let table: &[(&str, u32, &str)] = &[
        ("scripts/20-bad", 0o777, "everyone can write it"),
        ("scripts", 0o777, "everyone can write it"),
        ("scripts", 0o1777, "everyone can write it"),
        ("", 0o777, "everyone can write it"),
    ];
    for (path, mode, why) in table {
        let task = Task::with(&[("10-good", "echo ran"), ("20-bad", "echo ran")]);
        fs::set_permissions(task.path(path), fs::Permissions::from_mode(*mode)).unwrap();
        let left = task.run();
        let text = left.result().configuration.clone().unwrap();
        assert!(text.contains(why) && text.contains(path), "{text}");
        assert_eq!((left.code(), left.out().len(), left.steps.len()), (78, 0, 0), "{path}");
    }
    let task = Task::with(&[("10-good", "echo ran")]);
    std::os::unix::fs::chown(task.path("scripts/10-good"), Some(1), None).unwrap();
    assert!(task.run().result().configuration.clone().unwrap().contains("its owner, uid 1"));
}

#[test]
fn a_script_behind_a_link_is_judged_by_where_it_is() {
    let task = Task::new();
    fs::create_dir(task.path("elsewhere")).unwrap();
    task.executable("elsewhere/real", b"#!/bin/sh\necho ran\n");
    symlink("../elsewhere/real", task.path("scripts/10-link")).unwrap();
    fs::set_permissions(task.path("elsewhere"), fs::Permissions::from_mode(0o757)).unwrap();
    let left = task.run();
    let text = left.result().configuration.clone().unwrap();
    assert!(text.contains("elsewhere: everyone can write it"), "{text}");
    assert!(left.out().is_empty());
}

#[test]
fn what_is_missing_is_named() {
    let table: &[(Run, &str)] = &[
        (Run::Directories(vec!["/nowhere/prolog.d".to_owned()]), "script directory /nowhere: No such file"),
        (Run::Command(vec!["/nowhere/x".to_owned()]), "/nowhere: No such file"),
    ];
    for (run, why) in table {
        let mut task = Task::new();
        task.intent.plan.run = run.clone();
        let left = task.run();
        assert_eq!(left.code(), 78);
        assert!(left.result().configuration.clone().unwrap().contains(why), "{left:?}");
    }
    let task = Task::with(&[("10-good", "echo ran")]);
    symlink("gone", task.path("scripts/20-dangling")).unwrap();
    let left = task.run();
    assert!(left.result().configuration.clone().unwrap().contains("20-dangling: No such file"));
    assert!(left.out().is_empty());
    let mut task = Task::with(&[("10-good", "echo ran")]);
    task.intent.plan.cwd = "/nowhere".to_owned();
    assert!(task.run().result().configuration.clone().unwrap().contains("working directory /nowhere is missing"));
}

#[test]
fn after_an_error_the_rest_runs_or_does_not_as_the_plan_says() {
    let scripts = [("10-a", "exit 3"), ("20-b", "kill -9 $$"), ("30-c", "echo c; exit 1")];
    let task = Task::with(&scripts);
    let left = task.run();
    let ends = vec![("10-a", Some(Exit(3))), ("20-b", Some(Signal(9))), ("30-c", Some(Exit(1)))];
    assert_eq!((left.tries(), left.code()), (ends, 137));
    assert_eq!((left.result().worst, left.result().ran, left.result().of), (Some(Signal(9)), 3, 3));

    let mut task = Task::with(&scripts);
    task.intent.plan.on_error = OnError::Stop;
    let left = task.run();
    assert_eq!((left.tries(), left.code()), (vec![("10-a", Some(Exit(3)))], 3));
    assert_eq!((left.result().ran, left.result().of), (1, 3));
}

#[test]
fn a_failed_script_is_tried_again_after_growing_pauses() {
    let mut task = Task::new();
    let count = task.path("count");
    task.script("10-mount", &format!("echo x >> {0}; [ $(wc -l < {0}) -ge 3 ]", count.display()));
    task.script("20-next", "echo next");
    task.intent.plan.retries = Retries { count: 5, backoff_ms: 40, ceiling_ms: 60 };
    let left = task.run();
    let first = ("10-mount", Some(Exit(1)));
    assert_eq!(left.tries(), [first, first, ("10-mount", Some(Exit(0))), ("20-next", Some(Exit(0)))]);
    assert_eq!((left.code(), left.result().ran, left.result().worst), (0, 2, None));
    assert!(left.result().elapsed_ms >= 100, "40 and 60 ms of pauses");
    let begins = left.steps.iter().filter_map(|step| match step {
        StepRecord::Begin { seq, attempt, of, digest, .. } => Some((*seq, *attempt, *of, digest.len())),
        _ => None,
    });
    assert_eq!(begins.collect::<Vec<_>>(), [(0, 1, 2, 64), (1, 2, 2, 64), (2, 3, 2, 64), (3, 1, 2, 64)]);
}

#[test]
fn retries_end_and_are_a_scripts_own_where_it_has_some() {
    let mut task = Task::with(&[("10-a", "exit 3"), ("20-b", "exit 2")]);
    task.intent.plan.retries = Retries { count: 1, backoff_ms: 1, ceiling_ms: 1 };
    let own = ScriptPlan { retries: Some(Retries::default()), ..ScriptPlan::default() };
    task.intent.plan.scripts.insert("20-b".to_owned(), own);
    let left = task.run();
    assert_eq!(left.tries().iter().map(|(name, _)| *name).collect::<Vec<_>>(), ["10-a", "10-a", "20-b"]);
    assert_eq!((left.code(), left.result().ran), (3, 2));
}

#[test]
fn a_script_that_the_plan_calls_tolerable_may_fail() {
    let mut task = Task::with(&[("10-check", "exit 9"), ("20-b", "true")]);
    let own = ScriptPlan { tolerable: true, ..ScriptPlan::default() };
    task.intent.plan.scripts.insert("10-check".to_owned(), own);
    let left = task.run();
    assert_eq!((left.code(), left.result().worst, left.result().ran), (0, None, 2));
    assert!(left.steps.iter().any(|step| matches!(step, StepRecord::End { tolerable: true, status: Exit(9), .. })));
}

#[test]
fn what_cannot_be_executed_says_so_and_the_rest_runs() {
    let task = Task::with(&[("30-good", "echo ran")]);
    task.executable("scripts/10-interpreter", b"#!/nowhere/sh\n");
    task.executable("scripts/20-text", b"echo no interpreter\n");
    let left = task.run();
    assert_eq!((left.out(), left.code()), (vec!["ran"], 127));
    let exec = left.result().exec.clone().unwrap();
    assert!(exec.starts_with("10-interpreter: cannot be executed: No such file") && exec.contains("#! line"), "{exec}");
    let not_run: Vec<_> = left
        .steps
        .iter()
        .filter_map(|step| match step {
            StepRecord::NotRun { script, why, .. } => Some((script.as_str(), why.contains("no #! line"))),
            _ => None,
        })
        .collect();
    assert_eq!(not_run, [("10-interpreter", false), ("20-text", true)]);
    assert_eq!((left.result().ran, left.result().of), (1, 3));
}

#[test]
fn a_step_that_cannot_be_recorded_is_not_run() {
    let task = Task::with(&[("10-a", "echo ran")]);
    task.accept();
    fs::create_dir(task.directory().join("steps.jsonl")).unwrap();
    let ended = task.start().end();
    assert_eq!((ended.status.code(), ended.out.len()), (Some(78), 0));
    let result = fs::read_to_string(task.directory().join("result.json")).unwrap();
    assert!(result.contains("the runner runs no script that it cannot record"), "{result}");
}

#[test]
fn a_full_file_system_stops_the_task_between_whole_lines() {
    let mut task = Task::with(&[("10-fill", "echo filling"), ("20-b", "echo ran")]);
    task.accept();
    // The script fills the file system of the records, which belongs to this test alone. Then it fills the last page of
    // the records, first with records that fit in part, then with the shortest records.
    let fill = "head -c 1M /dev/zero > $ROOM/ballast 2>/dev/null\n\
                while $REPORT user $(printf %1000d 0) 2>/dev/null; do :; done; while $REPORT milestone m; do :; done; \
                echo filled";
    task.script("10-fill", fill);
    task.intent.plan.env.insert("ROOM".to_owned(), task.directory().display().to_string());
    let report = task.report().display().to_string();
    task.intent.plan.env.insert("REPORT".to_owned(), report);
    let intent = task.path("intent.json");
    fs::write(&intent, serde_json::to_vec(&task.intent).unwrap()).unwrap();
    let set_up = format!(
        "mount -t tmpfs -o size=64k,mode=755 none {0} && cp {1} {0}/ && \"$@\"; s=$?; rm -f {0}/ballast; cp \
         {0}/steps.jsonl {2}; exit $s",
        task.directory().display(),
        intent.display(),
        task.path("steps").display(),
    );
    task.through =
        ["unshare", "--mount", "--propagation", "private", "sh", "-c", &set_up, "sh"].map(str::to_owned).into();
    let ended = task.start().end();
    assert_eq!(ended.status.code(), Some(78), "{ended:?}");
    assert_eq!(ended.out, ["filled"], "{ended:?}");
    let steps = fs::read_to_string(task.path("steps")).unwrap();
    assert!(
        steps.ends_with('\n') && steps.lines().all(|line| serde_json::from_str::<StepRecord>(line).is_ok()),
        "{steps}"
    );
    assert!(!steps.contains("20-b"), "{steps}");
    assert!(ended.err.iter().any(|line| line.contains("refused: the report cannot be recorded")), "{ended:?}");
}
