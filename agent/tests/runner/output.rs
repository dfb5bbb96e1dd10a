//! Output of scripts: the runner forwards all of it and keeps its first and last part. A journal that stops reading
//! delays the task's result only by seconds.

use std::io::Read;
use std::os::fd::AsFd;
use std::os::unix::net::{UnixDatagram, UnixStream};

use perilog_core::ExitStatus::Exit;
use perilog_core::task::ScriptPlan;
use rustix::process::{Pid, Signal};

use crate::bench::{SILENCE, Task};

#[test]
fn both_streams_are_forwarded_and_kept_in_order() {
    let task =
        Task::with(&[("10-a", "echo one; sleep 0.1; echo two >&2; sleep 0.1; printf three"), ("20-quiet", "true")]);
    let left = task.run();
    assert_eq!(left.out(), ["one", "three"]);
    assert_eq!(left.ended.err.iter().filter(|line| !line.contains("limits are lower")).collect::<Vec<_>>(), ["two"]);
    assert_eq!(task.kept("out.0.head"), "one\ntwo\nthree\n");
    for none in ["out.0.tail", "out.1.head", "out.1.tail"] {
        assert!(!task.directory().join(none).exists(), "{none}");
    }
}

#[test]
fn a_million_lines_pass_and_a_bounded_part_is_kept() {
    let task = Task::with(&[("10-a", "seq 1000000; grep VmHWM /proc/$PPID/status >&2")]);
    let left = task.run();
    assert_eq!(left.code(), 0);
    assert_eq!(left.ended.out.len(), 1_000_000);
    assert!(left.ended.out.iter().zip(1..).all(|(line, n): (_, u32)| *line == n.to_string()));
    let peak = left
        .ended
        .err
        .iter()
        .find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    assert!(peak.is_some_and(|kb| kb < 20_000), "{peak:?} kB");

    let (head, tail) = (task.kept("out.0.head"), task.kept("out.0.tail"));
    assert!(head.starts_with("1\n2\n") && head.ends_with('\n') && (32_000..=32_768).contains(&head.len()));
    let (note, tail) = tail.split_once('\n').unwrap();
    let left_out: usize =
        note.strip_prefix("[perilog: ").unwrap().strip_suffix(" bytes left out]").unwrap().parse().unwrap();
    assert!((32_000..=32_768).contains(&tail.len()));
    let total: usize = (1..=1_000_000).map(|n: u32| n.to_string().len() + 1).sum();
    let memory = left.ended.err.iter().find(|line| line.starts_with("VmHWM")).unwrap().len() + 1;
    assert_eq!(head.len() + left_out + tail.len(), total + memory);
    assert!(tail.contains("\n1000000\n"));
}

#[test]
fn a_line_without_an_end_is_broken_and_what_is_no_text_passes() {
    let task = Task::with(&[("10-a", "head -c 40000 /dev/zero | tr '\\0' x; printf '\\n\\377\\n'")]);
    let left = task.run();
    assert_eq!(left.ended.out.iter().map(String::len).collect::<Vec<_>>(), [16384, 16384, 7232, '\u{fffd}'.len_utf8()]);
}

#[test]
fn a_child_that_holds_the_pipes_is_not_waited_for() {
    let task = Task::with(&[("10-a", "sleep 1000 & echo child $!"), ("20-b", "echo b")]);
    task.accept();
    let mut live = task.start();
    let line = live.wait_for("child ");
    let child = line.strip_prefix("child ").and_then(|pid| pid.parse().ok()).and_then(Pid::from_raw).unwrap();
    // The next script runs, and the child holds the task alone.
    live.wait_for("waits for processes");
    rustix::process::kill_process(child, Signal::KILL).expect("it is still there");
    let left = task.left(live.end());
    assert_eq!(left.code(), 0);
    assert_eq!((left.out().len(), left.out()[1]), (2, "b"));
    assert!(left.result().elapsed_ms < 10_000);
}

#[test]
fn an_endlessly_printing_child_loses_no_output_of_its_script() {
    let task = Task::with(&[(
        "10-a",
        "(trap '' PIPE; while echo noise 2>/dev/null; do :; done) & seq 1000; echo last of the script",
    )]);
    let left = task.run();
    assert_eq!(left.code(), 0);
    assert!(left.out().contains(&"last of the script"));
}

#[test]
fn the_last_lines_of_a_pipeline_arrive() {
    let task = Task::with(&[("10-a", "(sleep 0.1; echo from the pipeline) & echo from the script")]);
    assert_eq!(task.run().out(), ["from the script", "from the pipeline"]);
}

#[test]
fn in_the_journal_stderr_is_a_warning_and_lines_stay_whole() {
    let task = Task::with(&[("10-a", "echo out; echo err >&2; echo '<3>error' >&2; exit 1")]);
    task.accept();
    let (mut ours, theirs) = UnixStream::pair().unwrap();
    let stat = rustix::fs::fstat(theirs.as_fd()).unwrap();
    let mut task = task;
    task.env.insert("JOURNAL_STREAM".to_owned(), format!("{}:{}", stat.st_dev, stat.st_ino));
    let mut child = task.start_on(theirs);
    let mut text = String::new();
    ours.read_to_string(&mut text).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(1));
    let mut lines: Vec<&str> = text.lines().filter(|line| !line.contains("limits are lower")).collect();
    lines.sort_unstable();
    assert_eq!(lines.len(), 4, "{text}");
    assert_eq!(lines[0], "<3>error");
    assert!(lines[1].starts_with("<3>perilog-runner: 10-a: exit 1 after "), "{text}");
    assert_eq!(&lines[2..], ["<4>err", "out"]);
    assert_eq!(task.kept("out.0.head").len(), "out\nerr\n<3>error\n".len(), "kept as the script said it");
}

/// Regression test: a journal that stopped reading in the middle of a line kept the runner from its result for ever.
#[test]
fn a_journal_that_never_reads_only_delays_the_result() {
    let task = Task::with(&[("10-a", "head -c 2000000 /dev/zero | tr '\\0' x; exit 3")]);
    task.accept();
    let (ours, theirs) = UnixStream::pair().unwrap();
    let mut child = task.start_on(theirs);
    let pid = Pid::from_child(&child);
    let ended = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()).unwrap();
    let limit = rustix::event::Timespec { tv_sec: SILENCE.as_secs().try_into().unwrap(), tv_nsec: 0 };
    let mut wait = [rustix::event::PollFd::new(&ended, rustix::event::PollFlags::IN)];
    if rustix::event::poll(&mut wait, Some(&limit)).unwrap() == 0 {
        child.kill().unwrap();
        child.wait().unwrap();
        panic!("it still waits for its journal");
    }
    assert_eq!(child.wait().unwrap().code(), Some(3));
    assert!(task.directory().join("result.json").exists());
    drop(ours);
}

#[test]
fn the_status_text_says_where_it_is() {
    let body = "read go < $GO; $REPORT progress 'mounting /p/lustre1'; exit 3";
    let mut task = Task::with(&[("10-a", "true"), ("20-lustre", body)]);
    let go = task.fifo("go");
    task.intent.plan.env.insert("GO".to_owned(), go.display().to_string());
    let report = task.report().display().to_string();
    task.intent.plan.env.insert("REPORT".to_owned(), report);
    let path = task.path("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    task.env.insert("NOTIFY_SOCKET".to_owned(), path.display().to_string());
    let tolerable = ScriptPlan { tolerable: true, ..ScriptPlan::default() };
    task.intent.plan.scripts.insert("20-lustre".to_owned(), tolerable);
    socket.set_read_timeout(Some(SILENCE)).unwrap();
    let mut buffer = [0; 4096];
    let mut text = || {
        let n = socket.recv(&mut buffer).unwrap();
        String::from_utf8_lossy(&buffer[..n]).trim_end().strip_prefix("STATUS=prolog fABC rank 3: ").unwrap().to_owned()
    };
    task.accept();
    let live = task.start();
    // The first script is shown only if it runs long enough.
    let first = text();
    let second = if first.starts_with("1/2 10-a (since ") { text() } else { first };
    assert_eq!(timeless(&second), "2/2 20-lustre (since T, no limit)");
    std::fs::write(&go, "go\n").unwrap();
    let left = task.left(live.end());
    assert_eq!(left.tries(), [("10-a", Some(Exit(0))), ("20-lustre", Some(Exit(3)))]);
    assert_eq!(timeless(&text()), "2/2 20-lustre, mounting /p/lustre1 (since T, no limit)");
    assert_eq!(text(), "2 of 2 scripts ran, status 0");
}

/// Returns `text` with T instead of a time such as `03:12:07Z`.
fn timeless(text: &str) -> String {
    let (before, (time, after)) =
        text.split_once("(since ").and_then(|(before, rest)| Some((before, rest.split_once(',')?))).unwrap();
    let form: String = time.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
    assert_eq!(form, "00:00:00Z", "{text}");
    format!("{before}(since T,{after}")
}
