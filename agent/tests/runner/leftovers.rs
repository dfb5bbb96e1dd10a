//! Processes that outlive the scripts: the runner names them, waits for them, kills them or lets them live.

use std::fs;

use perilog_core::ExitStatus::{Exit, Signal as Signalled};
use perilog_core::task::{Leftover, Lingering, OnTimeout, StepRecord, Treatment};
use perilog_host::clock;
use rustix::process::{Pid, Signal};

use crate::bench::{Left, Live, SILENCE, Task};

/// Returns a task whose script leaves behind an orphan in a session of its own, and then does `then`. The orphan does
/// `first`, and then `rest`. The script prints `left PID` once the orphan has done `first`.
fn leaving(first: &str, rest: &str, then: &str) -> Task {
    let mut task = Task::with(&[(
        "10-a",
        &format!(
            "(setsid sh -c '{first}; echo $$ >$MARK.new; mv $MARK.new $MARK; {rest}' </dev/null >/dev/null 2>&1 &)\n\
             while [ ! -e $MARK ]; do sleep 0.05; done; echo left $(cat $MARK); {then}"
        ),
    )]);
    let mark = task.path("mark").display().to_string();
    task.intent.plan.env.insert("MARK".to_owned(), mark);
    task
}

/// Starts a runner on the task, and returns it with the orphan's pid.
fn start(task: &Task) -> (Live, Pid) {
    task.accept();
    let mut live = task.start();
    let line = live.wait_for("left ");
    let pid = line.strip_prefix("left ").and_then(|pid| pid.parse().ok()).and_then(Pid::from_raw).unwrap();
    (live, pid)
}

fn is_alive(pid: Pid) -> bool {
    // A process that its parent has not reaped is no more.
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.starts_with(" Z"))
}

fn kill(pid: Pid) {
    rustix::process::kill_process(pid, Signal::KILL).unwrap();
}

/// Returns what the records say of each treatment: the commands of the processes.
fn records(left: &Left) -> Vec<(Treatment, Vec<Leftover>)> {
    let seen = left.steps.iter().filter_map(|step| match step {
        StepRecord::Left { treatment, processes, .. } => Some((*treatment, processes.clone())),
        _ => None,
    });
    seen.collect()
}

const SLEEP: &str = "exec sleep 1000";

const HOLD: Treatment = Treatment::Hold { term: false, kill: false };

#[test]
fn an_orphan_of_a_script_holds_the_task_until_it_ends_and_is_named() {
    let task = leaving(":", SLEEP, "exit 0");
    let (mut live, orphan) = start(&task);
    let line = live.wait_for("waits for processes");
    assert!(line.contains(&format!("{orphan} sleep 1000")), "{line}");
    assert!(!task.directory().join("result.json").exists(), "a result with a live process");
    assert!(task.kept("steps.jsonl").contains("\"left\""), "it is recorded before it ends");
    kill(orphan);
    let left = task.left(live.end());
    assert_eq!((left.code(), left.tries()), (0, vec![("10-a", Some(Exit(0)))]));
    let records = records(&left);
    assert_eq!((records.len(), records[0].0), (1, HOLD), "{records:?}");
    let found = &records[0].1[0];
    assert_eq!(
        (found.pid, found.uid, found.cgroup.as_deref()),
        (orphan.as_raw_nonzero().get().unsigned_abs(), 0, None)
    );
}

#[test]
fn a_runner_that_is_killed_while_it_waits_leaves_no_result() {
    let task = leaving(":", SLEEP, "exit 0");
    let (mut live, orphan) = start(&task);
    live.wait_for("waits for processes");
    live.signal(Signal::KILL);
    live.end();
    assert!(is_alive(orphan) && !task.directory().join("result.json").exists());
    kill(orphan);
}

#[test]
fn the_policy_kill_reaches_orphans() {
    let mut task = leaving("trap \"\" TERM", SLEEP, "exit 0");
    task.intent.plan.lingering = Lingering::Kill;
    let (live, orphan) = start(&task);
    let left = task.left(live.end());
    assert!(!is_alive(orphan));
    assert_eq!((left.code(), records(&left)[0].0), (0, Treatment::Kill));
}

#[test]
fn the_policy_keep_lets_orphans_live_and_names_them() {
    let mut task = leaving(":", SLEEP, "exit 0");
    task.intent.plan.lingering = Lingering::Keep;
    let (live, orphan) = start(&task);
    let left = task.left(live.end());
    assert!(is_alive(orphan));
    kill(orphan);
    assert_eq!((left.code(), records(&left)[0].0), (0, Treatment::Keep));
}

#[test]
fn orphans_of_a_failed_script_get_term_once_and_hold() {
    let task = leaving("trap \"echo x >>$MARK.term\" TERM", "while :; do sleep 0.05; done", "exit 3");
    let (mut live, orphan) = start(&task);
    live.wait_for("waits for processes");
    let terms = || fs::read_to_string(task.path("mark.term")).unwrap_or_default();
    let deadline_ms = clock::mono_ms() + u64::try_from(SILENCE.as_millis()).unwrap();
    while terms().is_empty() && clock::mono_ms() < deadline_ms {
        std::thread::yield_now();
    }
    assert!(is_alive(orphan));
    kill(orphan);
    let left = task.left(live.end());
    assert_eq!((left.code(), terms().as_str()), (3, "x\n"));
    assert_eq!(records(&left)[0].0, Treatment::Hold { term: true, kill: false });
}

#[test]
fn signal_43_kills_what_the_runner_waits_for() {
    let task = leaving("trap \"\" TERM", SLEEP, "exit 0");
    let (mut live, orphan) = start(&task);
    live.wait_for("waits for processes");
    signal_43(&live);
    let left = task.left(live.end());
    assert!(!is_alive(orphan));
    assert_eq!(records(&left).last().map(|(treatment, _)| *treatment), Some(Treatment::Kill));
    assert_eq!((left.code(), left.result().cancelled), (0, false));
}

#[test]
fn a_term_is_for_what_the_runner_waits_for_and_cancels_nothing() {
    let task = leaving(":", SLEEP, "exit 0");
    let (mut live, orphan) = start(&task);
    live.wait_for("waits for processes");
    live.signal(Signal::TERM);
    let left = task.left(live.end());
    assert!(!is_alive(orphan));
    assert_eq!((left.code(), left.result().cancelled), (0, false));
    assert!(!left.steps.iter().any(|step| matches!(step, StepRecord::Cancelled { .. })));
}

/// The script waits for a process in a session of its own, as it waits for su(1).
#[test]
fn signal_43_reaches_a_descendant_outside_of_the_scripts_group() {
    let task = Task::with(&[("10-a", "setsid -w sh -c 'echo left $$; exec sleep 1000'; echo after")]);
    let (live, child) = start(&task);
    signal_43(&live);
    let left = task.left(live.end());
    assert!(!is_alive(child));
    assert_eq!((left.tries(), left.code()), (vec![("10-a", Some(Signalled(9)))], 137));
}

#[test]
fn past_a_limit_the_policy_kill_reaches_orphans() {
    let mut task = leaving("trap \"\" TERM", SLEEP, "sleep 1000");
    task.intent.plan.script_timeout_ms = Some(1000);
    task.intent.plan.on_timeout = OnTimeout::Kill;
    let (live, orphan) = start(&task);
    let left = task.left(live.end());
    assert!(!is_alive(orphan) && left.result().timed_out);
    let treatments: Vec<Treatment> = records(&left).iter().map(|(treatment, _)| *treatment).collect();
    assert_eq!(treatments, [Treatment::Hold { term: true, kill: true }, Treatment::Kill]);
}

#[test]
fn orphans_that_end_while_a_script_runs_are_reaped() {
    let task = Task::with(&[(
        "10-a",
        "for i in 1 2 3 4 5 6 7 8; do (true &); done; n=1\n\
         while [ $n -gt 0 ]; do n=$(ps -o stat= --ppid $PPID | grep -c ^Z); done; echo none",
    )]);
    assert_eq!(task.run().out(), ["none"]);
}

fn signal_43(live: &Live) {
    // rustix names no real-time signals.
    let kill =
        std::process::Command::new("/bin/sh").args(["-c", &format!("kill -43 {}", live.pid())]).status().unwrap();
    assert!(kill.success());
}
