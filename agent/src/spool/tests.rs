use super::*;
use crate::testing;
use crate::wakeups::Wakeups;
use perilog_core::ids::{self, ClusterId, Epoch};
use perilog_core::outcome::{ExitStatus, Loss, Outcome};
use perilog_core::task::StepRecord;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::sync::Arc;

mod ends;
mod golden;
mod samples;

fn spool() -> (tempfile::TempDir, Spool, Lock) {
    perilog_core::switch_on_defect!(perilog_host::defect::chosen());
    let dir = tempfile::tempdir().unwrap();
    let (spool, lock) = Spool::open(&dir.path().join("perilog")).unwrap();
    (dir, spool, lock)
}

fn task() -> (String, Intent) {
    let intent = testing::intent();
    (ids::stem(&intent.start.action, &intent.start.job, intent.start.task), intent)
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

/// Regression test: a task began anew, but its directory still had the outcome of the earlier begin. The next agent
/// took that outcome for the new one, and stopped the running script.
#[test]
fn an_outcome_of_an_earlier_begin_goes_before_the_task_begins_anew() {
    let (_dir, spool, _lock) = spool();
    let (stem, intent) = task();
    let rebuilt = intent.clone().rebuilt();
    for (intent, stays) in [(rebuilt.clone(), true), (intent, false)] {
        // The directory was removed, and an agent recorded the loss.
        spool.write_outcome(&stem, &Ended::bare(Outcome::Lost { why: Loss::Vanished }, 7), &rebuilt).unwrap();
        spool.mark_boot_expected(&stem).unwrap();
        spool.write_intent(&stem, &intent).unwrap();
        let boot = spool.task(&stem).join(BOOT_EXPECTED).exists();
        assert_eq!((spool.intent(&stem), spool.outcome(&stem).is_some(), boot), (Some(intent), stays, stays));
        spool.remove_task(&stem).unwrap();
    }
}

/// Writing an outcome must also write a removed intent again. With only an outcome, the next agent would not know the
/// task and would begin it again.
#[test]
fn writing_an_outcome_restores_a_removed_intent() {
    let (_dir, spool, _lock) = spool();
    let (stem, intent) = task();
    let (rebuilt, ended) = (intent.clone().rebuilt(), Ended::bare(Outcome::Ok, 7));
    let removes: [&dyn Fn(); 2] = [&|| fs::remove_dir_all(spool.task(&stem)).unwrap(), &|| {
        fs::remove_file(spool.task(&stem).join("intent.json")).unwrap()
    }];
    for remove in removes {
        spool.write_intent(&stem, &intent).unwrap();
        remove();
        spool.write_outcome(&stem, &ended, &rebuilt).unwrap();
        assert_eq!((spool.intent(&stem), spool.outcome(&stem)), (Some(rebuilt.clone()), Some(ended.clone())));
        spool.remove_task(&stem).unwrap();
    }
}

/// Regression test: the removal of a task's directory failed within the directory. When the task had begun anew, each
/// further removal failed too, until the agent restarted.
#[test]
fn a_removal_that_failed_is_completed_by_the_next() {
    let (_dir, spool, _lock) = spool();
    let (stem, intent) = task();
    spool.write_intent(&stem, &intent).unwrap();
    let left = spool.tasks().join(format!("{TEMPORARY}gone-{stem}"));
    fs::create_dir(&left).unwrap();
    fs::write(left.join("claim"), "").unwrap();
    spool.write_tombstone(&stem, &testing::tombstone(&intent)).unwrap();
    assert_eq!((spool.has(&stem), left.exists()), (false, false));
}

#[test]
fn a_task_from_intent_to_tombstone() {
    let (_dir, spool, _lock) = spool();
    let (stem, intent) = task();
    spool.write_intent(&stem, &intent).unwrap();
    assert_eq!(spool.stems().unwrap(), std::slice::from_ref(&stem));
    assert_eq!((mode(&spool.task(&stem)), mode(&spool.task(&stem).join("intent.json"))), (0o700, 0o600));
    let ended = Ended::bare(Outcome::Ok, 7);
    spool.write_outcome(&stem, &ended, &intent.clone().rebuilt()).unwrap();
    assert_eq!((spool.intent(&stem), spool.outcome(&stem)), (Some(intent.clone()), Some(ended)));
    // Files of a killed runner.
    let tail: Vec<&str> = stem.rsplitn(3, '-').take(2).collect();
    for name in [format!("{stem}.sock"), format!("{stem}.hosts"), format!("{}-{}.ranks", tail[1], tail[0])] {
        fs::write(spool.root.join("control").join(name), "").unwrap();
    }

    spool.write_tombstone(&stem, &testing::tombstone(&intent)).unwrap();
    assert!(spool.stems().unwrap().is_empty() && names(&spool.root.join("control")).unwrap().is_empty());
    assert_eq!(names(&spool.root.join("tasks")).unwrap(), Vec::<String>::new());
    assert_eq!(spool.tombstones().unwrap(), [testing::tombstone(&intent)]);
    assert!(fs::metadata(spool.tombstone(&stem)).unwrap().len() <= 512, "the design's bound");
    spool.write_tombstone(&stem, &testing::tombstone(&intent)).unwrap();
    spool.remove_tombstone(&stem).unwrap();
    spool.remove_tombstone(&stem).unwrap();
    assert!(spool.tombstones().unwrap().is_empty());
}

/// A reader that opened the file before its replacement sees the old file, complete.
#[test]
fn a_reader_gets_a_whole_file() {
    let (_dir, spool, _lock) = spool();
    let (stem, intent) = task();
    spool.write_intent(&stem, &intent).unwrap();
    let mut old = fs::File::open(spool.task(&stem).join("intent.json")).unwrap();
    let other = Intent { dropped_env: 7, ..intent.clone() };
    spool.write_intent(&stem, &other).unwrap();
    let read: Intent = serde_json::from_reader(&mut old).unwrap();
    assert_eq!((read, spool.intent(&stem)), (intent, Some(other)));
}

/// If the tombstone cannot be written, the task's directory must stay. Without both, the agent would not know that the
/// task has run, and could run it again.
#[test]
fn a_failed_tombstone_keeps_the_directory() {
    let (_dir, spool, _lock) = spool();
    let (stem, intent) = task();
    spool.write_intent(&stem, &intent).unwrap();
    fs::remove_dir(spool.root.join("tombstones")).unwrap();
    fs::write(spool.root.join("tombstones"), "in the way").unwrap();
    spool.write_tombstone(&stem, &testing::tombstone(&intent)).unwrap_err();
    assert_eq!(spool.intent(&stem), Some(intent));
}

#[test]
fn the_runtime_directory_has_its_modes_and_one_agent() {
    let (dir, spool, lock) = spool();
    for (name, expect) in [("", 0o755), ("tasks", 0o700), ("tombstones", 0o700), ("control", 0o711)] {
        assert_eq!(mode(&spool.root.join(name)), expect, "{name:?}");
    }
    let second = Spool::open(&dir.path().join("perilog")).unwrap_err();
    let text = second.to_string();
    assert!(text.contains(&format!("(pid {})", std::process::id())) && text.contains("agent.lock"), "{text}");
    drop(lock);
    Spool::open(&dir.path().join("perilog")).unwrap();
}

#[test]
fn the_first_claim_wins() {
    let (_dir, spool, _lock) = spool();
    let (stem, intent) = task();
    spool.write_intent(&stem, &intent).unwrap();
    assert!(spool.take_claim(&stem, &Claim::Cancelled).unwrap());
    assert!(spool.take_claim(&stem, &Claim::Cancelled).unwrap(), "asked again after a crash");
    assert_eq!(spool.traces(&stem, false).claim, Some(Claim::Cancelled));
    fs::remove_file(spool.task(&stem).join("claim")).unwrap();
    let runner = r#"{"runner":"0123456789abcdef0123456789abcdef"}"#;
    fs::write(spool.task(&stem).join("claim"), runner).unwrap();
    assert!(!spool.take_claim(&stem, &Claim::Cancelled).unwrap());
    assert_eq!(names(&spool.task(&stem)).unwrap(), ["claim", "intent.json"], "no temporary file stays");
    fs::remove_dir_all(spool.task(&stem)).unwrap();
    assert!(!spool.take_claim(&stem, &Claim::Cancelled).unwrap(), "a runner's claim may have been in it");
    assert!(!spool.has(&stem), "and none is made that would say otherwise");
}

#[test]
fn what_a_crash_left_is_tidied_and_what_a_runner_writes_is_not() {
    let (dir, spool, lock) = spool();
    let (stem, intent) = task();
    spool.write_intent(&stem, &intent).unwrap();
    let tasks = spool.root.join("tasks");
    for half in [
        spool.root.join(".agent-epoch.json"),
        spool.root.join("tombstones/.agent-x.json"),
        spool.task(&stem).join(".agent-outcome.json"),
        spool.task(&stem).join("result.json.tmp"),
    ] {
        fs::write(half, "{").unwrap();
    }
    fs::create_dir(tasks.join(".agent-perilog-task-a-b-0-0")).unwrap();
    let ended = "perilog-task-prolog-j-0-0";
    fs::create_dir(tasks.join(ended)).unwrap();
    fs::write(spool.tombstone(ended), serde_json::to_vec(&testing::tombstone(&intent)).unwrap()).unwrap();
    drop(lock);

    let (spool, _lock) = Spool::open(&dir.path().join("perilog")).unwrap();
    assert_eq!(
        spool.stems().unwrap(),
        std::slice::from_ref(&stem),
        "a directory beside its tombstone was as good as removed"
    );
    assert_eq!(names(&spool.task(&stem)).unwrap(), ["intent.json", "result.json.tmp"]);
    assert_eq!(spool.tombstones().unwrap().len(), 1);
    assert_eq!(names(&tasks).unwrap().len(), 1);
    assert!(!spool.root.join(".agent-epoch.json").exists());
}

/// The table of `core/src/boot.rs`, with the file. An upgrade under live tasks is no reboot to them.
#[test]
fn the_record_of_a_boot_stays_until_pid_1_or_run_is_another() {
    let (dir, spool, lock) = spool();
    let first = spool.boot("k", Some(7), &lock).unwrap();
    assert!(first.nonce.is_some());
    drop(lock);
    let again = || Spool::open(&dir.path().join("perilog")).unwrap();
    let (spool, lock) = again();
    assert_eq!(spool.boot("k", Some(7), &lock).unwrap(), first, "another agent of the same boot");
    let second = spool.boot("k", Some(8), &lock).unwrap();
    assert_ne!(second.nonce, first.nonce, "another PID 1");
    assert_eq!(spool.boot("k", Some(8), &lock).unwrap(), second);
    let path = spool.root.join("boot.json");
    fs::write(&path, "{").unwrap();
    let third = spool.boot("k", Some(8), &lock).unwrap();
    assert!(third.nonce.is_some() && third.nonce != second.nonce, "an unreadable record proves nothing");
    // An agent of an earlier version leaves its lock's file, and no record.
    fs::remove_file(&path).unwrap();
    drop(lock);
    let (spool, lock) = again();
    let old = spool.boot("k", Some(8), &lock).unwrap();
    assert_eq!(old.nonce, None);
    assert_eq!(spool.boot("k", Some(8), &lock).unwrap(), old);
    assert!(spool.boot("k", Some(9), &lock).unwrap().nonce.is_some(), "and the next PID 1 is another boot");
}

#[test]
fn epochs() {
    let (_dir, spool, _lock) = spool();
    assert_eq!(spool.accepted(), None);
    fs::write(spool.root.join("epoch.json"), r#"{"number":3,"nonce":18446744073709551615}"#).unwrap();
    let epoch = Epoch { number: 3, nonce: u64::MAX };
    assert_eq!(spool.accepted(), Some(epoch.into()), "as an older agent wrote it");
    let accepted = AcceptedEpoch { epoch, cluster: Some(ClusterId::from_name("c")), commit: 7 };
    spool.write_accepted_epoch(accepted).unwrap();
    assert_eq!(spool.accepted(), Some(accepted));
}

#[test]
fn an_intent_of_another_task_and_broken_files_count_as_missing() {
    let (_dir, spool, _lock) = spool();
    let (_, intent) = task();
    spool.write_intent("perilog-task-prolog-other-0-0", &intent).unwrap();
    for (name, text) in [("claim", ""), ("result.json", "{\"invocation\":"), ("outcome.json", "[]")] {
        fs::write(spool.task("perilog-task-prolog-other-0-0").join(name), text).unwrap();
    }
    let other = "perilog-task-prolog-other-0-0";
    assert_eq!((spool.intent(other), spool.outcome(other)), (None, None));
    let traces = spool.traces(other, false);
    assert!(traces.claim.is_none() && traces.result.is_none());
}

fn begin(seq: u32, script: &str) -> StepRecord {
    let (digest, user) = (String::new(), "root".to_owned());
    StepRecord::Begin { seq, script: script.to_owned(), digest, user, attempt: 1, at_ms: 0, of: 3 }
}

fn end(seq: u32, script: &str, code: u8) -> StepRecord {
    let status = ExitStatus::Exit(code);
    StepRecord::End {
        seq,
        script: script.to_owned(),
        at_ms: 0,
        elapsed_ms: 0,
        status,
        tolerable: false,
        timed_out: false,
    }
}

#[test]
fn tails_of_failed_scripts_skip_a_half_written_step() {
    let (_dir, spool, _lock) = spool();
    let (stem, intent) = task();
    spool.write_intent(&stem, &intent).unwrap();
    let dir = spool.task(&stem);
    let records =
        [begin(0, "a"), end(0, "a", 0), begin(1, "b"), end(1, "b", 1), begin(2, "b"), end(2, "b", 2), begin(3, "c")];
    let mut steps = OpenOptions::new().create(true).append(true).open(dir.join("steps.jsonl")).unwrap();
    for record in &records {
        writeln!(steps, "{}", serde_json::to_string(record).unwrap()).unwrap();
    }
    write!(steps, "{}", &serde_json::to_string(&end(3, "c", 9)).unwrap()[..20]).unwrap();
    fs::write(dir.join("out.0.head"), "fine\n").unwrap();
    fs::write(dir.join("out.1.head"), "first try\n").unwrap();
    fs::write(dir.join("out.2.head"), format!("{}h", "x".repeat(9000))).unwrap();
    fs::write(dir.join("out.2.tail"), "\u{20ac}".repeat(1000)).unwrap();
    fs::write(dir.join("out.3.head"), "stuck\n").unwrap();

    let running = spool.traces(&stem, true);
    assert_eq!(running.steps, records);
    let [b] = &running.tails[..] else { panic!("{:?}", running.tails) };
    assert_eq!((b.script.as_str(), b.text.len()), ("b", 4096));
    assert!(b.text.starts_with('x') && b.text.contains("h\u{20ac}") && b.text.ends_with('\u{20ac}'));
    let ended = spool.traces(&stem, false);
    assert_eq!(ended.tails.iter().map(|t| t.script.as_str()).collect::<Vec<_>>(), ["b", "c"]);
    assert_eq!(ended.tails[1].text, "stuck\n");
}

#[tokio::test]
async fn a_runners_record_wakes_its_task_and_output_does_not() {
    let (_dir, spool, _lock) = spool();
    let (stem, intent) = task();
    spool.write_intent(&stem, &intent).unwrap();
    let wakeups = Arc::new(Wakeups::default());
    let watcher = Watcher::new(spool.clone(), wakeups.clone()).unwrap();
    watcher.watch(&stem);
    watcher.watch(&stem);
    let dir = spool.task(&stem);
    fs::write(dir.join("out.0.head"), "x").unwrap();
    fs::write(dir.join(".result.json.tmp"), "{}").unwrap();
    let quiet = tokio::time::timeout(std::time::Duration::from_millis(300), wakeups.next()).await;
    assert!(quiet.is_err(), "{quiet:?}");
    for write in [
        &|| fs::write(dir.join("claim"), "x").unwrap(),
        &|| fs::write(dir.join("steps.jsonl"), "x\n").unwrap(),
        &|| OpenOptions::new().append(true).open(dir.join("steps.jsonl")).unwrap().write_all(b"y\n").unwrap(),
        &|| fs::rename(dir.join(".result.json.tmp"), dir.join("result.json")).unwrap(),
    ] as [&dyn Fn(); 4]
    {
        write();
        assert_eq!(wakeups.next().await, std::slice::from_ref(&stem));
        while tokio::time::timeout(std::time::Duration::from_millis(150), wakeups.next()).await.is_ok() {}
    }
}

#[tokio::test]
async fn a_runner_that_closes_its_steps_without_a_result_is_gone() {
    for (ends, gone) in [(false, true), (true, false)] {
        let (_dir, spool, _lock) = spool();
        let (stem, intent) = task();
        spool.write_intent(&stem, &intent).unwrap();
        let wakeups = Arc::new(Wakeups::default());
        let watcher = Watcher::new(spool.clone(), wakeups.clone()).unwrap();
        watcher.watch(&stem);
        let dir = spool.task(&stem);
        let steps = fs::File::create(dir.join("steps.jsonl")).unwrap();
        assert_eq!(wakeups.next().await, std::slice::from_ref(&stem));
        assert!(!watcher.runner_is_gone(&stem), "it is at work");
        drop(steps);
        if ends {
            fs::write(dir.join("result.json"), "{}").unwrap();
        }
        assert_eq!(wakeups.next().await, std::slice::from_ref(&stem));
        assert_eq!((watcher.runner_is_gone(&stem), watcher.runner_is_gone(&stem)), (gone, false), "reported once");
    }
}

/// Regression test: a script of root put a FIFO into its task's directory. The agent waited for ever for the FIFO's
/// other end, and so did the next agent.
#[test]
fn only_regular_files_are_read_and_no_fifo_is_waited_for() {
    let (_dir, spool, _lock) = spool();
    let (stem, intent) = task();
    spool.write_intent(&stem, &intent).unwrap();
    let dir = spool.task(&stem);
    let secret = dir.join("secret");
    fs::write(&secret, "{}").unwrap();
    let names = ["claim", "result.json", "outcome.json", "steps.jsonl", "out.0.head", "out.0.tail"];
    for name in names {
        let _ = fs::remove_file(dir.join(name));
        rustix::fs::mkfifoat(rustix::fs::CWD, dir.join(name), rustix::fs::Mode::from_raw_mode(0o600)).unwrap();
    }
    // Writes do not wait for a reader, either.
    let temporary = dir.join(".agent-outcome.json");
    rustix::fs::mkfifoat(rustix::fs::CWD, &temporary, rustix::fs::Mode::from_raw_mode(0o600)).unwrap();
    let (done, read) = std::sync::mpsc::sync_channel(1);
    let (reader, of, at) = (spool.clone(), stem.clone(), dir.clone());
    std::thread::spawn(move || {
        let traces = reader.traces(&of, false);
        let nothing = traces.claim.is_none() && traces.result.is_none() && traces.steps.is_empty();
        let nothing = nothing && names.iter().all(|name| read::bounded(&at.join(name), 10).is_err());
        let ended = Ended::bare(Outcome::Ok, 7);
        let _ =
            done.send((nothing, reader.outcome(&of), reader.write_outcome(&of, &ended, &intent), reader.outcome(&of)));
    });
    let patience = std::time::Duration::from_secs(20);
    let (nothing, before, written, after) = read.recv_timeout(patience).expect("it waits for a FIFO's other end");
    assert!(nothing && before.is_none() && written.is_ok() && after.is_some(), "{written:?} {after:?}");
    // The reader follows no link, and reads no more than requested.
    std::os::unix::fs::symlink(&secret, dir.join("link")).unwrap();
    std::os::unix::fs::symlink("/dev/zero", dir.join("zero")).unwrap();
    assert!(read::bounded(&dir.join("link"), 10).is_err() && read::bounded(&dir.join("zero"), 10).is_err());
    assert_eq!(read::bounded(&secret, 1).unwrap().unwrap(), b"{");
}

/// Regression test: after `rm -rf /run/perilog/tasks` (a cleaner of temporary files) the agent refused every task until
/// a restart.
#[test]
fn removed_directories_are_made_again() {
    let (_dir, spool, _lock) = spool();
    let (stem, intent) = task();
    for name in ["tasks", "tombstones"] {
        fs::remove_dir_all(spool.root.join(name)).unwrap();
    }
    spool.write_intent(&stem, &intent).unwrap();
    assert_eq!((spool.intent(&stem), mode(&spool.tasks())), (Some(intent.clone()), 0o700));
    fs::remove_dir_all(spool.tasks()).unwrap();
    spool.write_outcome(&stem, &Ended::bare(Outcome::Ok, 7), &intent.clone().rebuilt()).unwrap();
    assert!(spool.outcome(&stem).is_some());
    spool.write_tombstone(&stem, &testing::tombstone(&intent)).unwrap();
    assert_eq!(spool.tombstones().unwrap().len(), 1);
}
