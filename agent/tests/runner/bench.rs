//! Bench for a task: its directory, its scripts, a runner on it, and the files that the runner leaves.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use perilog_core::ids::{ActionId, ActionName, Attempt, BootId, ClusterId, InvocationId, JobId, Rank, TaskId, stem};
use perilog_core::task::{BOOT_EXPECTED, Intent, Plan, Run, RunResult, Start, StepRecord};
use perilog_core::{ExitStatus as Status, HostList, IdSet};
use rustix::process::{Pid, Signal};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tempfile::TempDir;

/// Path of the runner that cargo built with the tests.
pub(crate) const BUILT: &str = env!("CARGO_BIN_EXE_perilog-runner");
/// Environment variable: another build of the runner, for all tests of the runner.
const RUNNER_VARIABLE: &str = "PERILOG_RUNNER";
pub(crate) const REPORT: &str = env!("CARGO_BIN_EXE_perilog-report");
pub(crate) const INVOCATION: &str = "0123456789abcdef0123456789abcdef";

/// Longest silence of a runner before a test fails: far above every wait, including KILL's grace of ten seconds.
pub(crate) const SILENCE: Duration = Duration::from_secs(60);

/// Lock by which tests write executables and start processes in turn. A child that another test starts at the same time
/// would inherit a file that is open for writing, and such a file cannot be executed.
static FORKS: Mutex<()> = Mutex::new(());

/// Returns the path of the runner under test.
pub(crate) fn runner() -> String {
    std::env::var(RUNNER_VARIABLE).unwrap_or_else(|_| BUILT.to_owned())
}

fn turn() -> MutexGuard<'static, ()> {
    FORKS.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) struct Task {
    /// The run directory. It is not below /tmp, because every user can write to /tmp.
    pub(crate) dir: TempDir,
    pub(crate) intent: Intent,
    /// Path of the runner's program.
    pub(crate) runner: String,
    /// Words before the runner's own command line, for example `unshare --mount`; empty: the test starts the runner
    /// directly.
    pub(crate) through: Vec<String>,
    pub(crate) env: BTreeMap<String, String>,
}

impl Task {
    /// Makes a task with one empty script directory.
    pub(crate) fn new() -> Self {
        assert!(
            rustix::process::geteuid().is_root(),
            "the tests of the runner need root: run them as root or through sudo"
        );
        let dir = tempfile::Builder::new().prefix("perilog-runner-test-").tempdir_in("/var/lib").unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        fs::create_dir(dir.path().join("scripts")).unwrap();
        let scripts = dir.path().join("scripts").display().to_string();
        let job = JobId::new("fABC").unwrap();
        let action = ActionName::new("prolog").unwrap();
        let attempt = Attempt::from_number(2);
        let id = ActionId::of(ClusterId::LOCAL, &job, attempt, &action);
        let intent = Intent {
            start: Start {
                milestones: BTreeSet::new(),
                task: TaskId { action: id, rank: Rank(3) },
                job,
                attempt,
                action,
                boot: BootId::new("b").unwrap(),
                not_after_ms: 60_000,
                ranks: "0-3".parse::<IdSet>().unwrap(),
                hosts: "n[0-3]".parse::<HostList>().unwrap(),
                userid: Some(4711),
                env: BTreeMap::new(),
                timeout_ms: None,
                after: false,
                commit: 0,
            },
            plan: Plan { run: Run::Directories(vec![scripts]), nofile: 512, ..Plan::default() },
            env: BTreeMap::new(),
            dropped_env: 0,
            not_after_boottime_ms: u64::MAX,
            accepted_boottime_ms: 0,
            hook: Default::default(),
            local: false,
            commit: None,
        };
        let env = [("INVOCATION_ID", INVOCATION), ("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")];
        Self {
            dir,
            intent,
            runner: runner(),
            through: Vec::new(),
            env: env.map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
        }
    }

    /// Makes a task with shell scripts, each given by its name and its lines without the `#!` line.
    pub(crate) fn with(scripts: &[(&str, &str)]) -> Self {
        let task = Self::new();
        for (name, body) in scripts {
            task.script(name, body);
        }
        task
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn script(&self, name: &str, body: &str) -> PathBuf {
        self.executable(&format!("scripts/{name}"), format!("#!/bin/sh\n{body}\n").as_bytes())
    }

    pub(crate) fn executable(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.path(name);
        let _turn = turn();
        fs::write(&path, bytes).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    /// Installs perilog-report where every user can execute it; returns the path.
    pub(crate) fn report(&self) -> PathBuf {
        self.executable("perilog-report", &fs::read(REPORT).unwrap())
    }

    /// Makes a named pipe in the run directory, and returns its path. A process that opens the pipe waits until the
    /// other side is open, too.
    pub(crate) fn fifo(&self, name: &str) -> PathBuf {
        let path = self.path(name);
        rustix::fs::mkfifoat(rustix::fs::CWD, &path, rustix::fs::Mode::from_raw_mode(0o666)).unwrap();
        path
    }

    pub(crate) fn stem(&self) -> String {
        let start = &self.intent.start;
        stem(&start.action, &start.job, start.task)
    }

    /// Returns the task's own directory.
    pub(crate) fn directory(&self) -> PathBuf {
        self.path("tasks").join(self.stem())
    }

    pub(crate) fn control(&self) -> PathBuf {
        self.path("control").join(format!("{}.sock", self.stem()))
    }

    /// Writes the task's `intent.json` into its directory, as the agent does when it accepts a task.
    pub(crate) fn accept(&self) {
        fs::create_dir_all(self.directory()).unwrap();
        fs::write(self.directory().join("intent.json"), serde_json::to_vec(&self.intent).unwrap()).unwrap();
    }

    /// Marks, as the agent does, that the controller knows of the announced reboot.
    pub(crate) fn mark_boot_expected(&self) {
        let (temporary, mark) = (self.directory().join(".agent-boot-expected"), self.directory().join(BOOT_EXPECTED));
        fs::write(&temporary, "true").unwrap();
        fs::rename(temporary, mark).unwrap();
    }

    fn command(&self) -> Command {
        let mut words = self.through.clone();
        words.extend(
            [&self.runner, "--run-dir", &self.dir.path().display().to_string(), &self.stem()].map(str::to_owned),
        );
        let mut command = Command::new(&words[0]);
        command
            .args(&words[1..])
            .env_clear()
            .envs(&self.env)
            .envs(std::env::var("PERILOG_DEFECT").map(|name| ("PERILOG_DEFECT", name)))
            .stdin(Stdio::null());
        command
    }

    /// Starts a runner on the task.
    pub(crate) fn start(&self) -> Live {
        let mut command = self.command();
        Live::new(command.stdout(Stdio::piped()).stderr(Stdio::piped()))
    }

    /// Starts a runner whose stdout and stderr are the same socket.
    pub(crate) fn start_on(&self, socket: std::os::unix::net::UnixStream) -> Child {
        let socket = std::os::fd::OwnedFd::from(socket);
        let mut command = self.command();
        command.stdout(socket.try_clone().unwrap()).stderr(socket);
        let _turn = turn();
        command.spawn().unwrap()
    }

    /// Writes the intent, runs a runner to its end, and reads the files that the runner left.
    pub(crate) fn run(&self) -> Left {
        self.accept();
        let ended = self.start().end();
        self.left(ended)
    }

    /// Reads the files that a runner left behind. `ended` is the end of that runner's process.
    pub(crate) fn left(&self, ended: Ended) -> Left {
        let read = |name: &str| fs::read_to_string(self.directory().join(name)).ok();
        let result: Option<RunResult> = read("result.json").as_deref().map(written);
        if let Some(result) = &result {
            assert_eq!(ended.status.code(), Some(result.status.into()), "the result is what it exits with: {ended:?}");
            assert_eq!(result.invocation, InvocationId::new(INVOCATION).unwrap());
        }
        assert!(!self.control().exists(), "the socket goes with the runner");
        Left {
            steps: read("steps.jsonl").map_or_else(Vec::new, |text| text.lines().map(written).collect()),
            result,
            ended,
        }
    }

    /// Reads a kept output file; empty if it does not exist.
    pub(crate) fn kept(&self, name: &str) -> String {
        fs::read_to_string(self.directory().join(name)).unwrap_or_default()
    }
}

/// Parses what a runner wrote. Checks that the bytes are those of the type, which `agent/src/spool/tests/golden`
/// freezes.
pub(crate) fn written<T: Serialize + DeserializeOwned>(text: &str) -> T {
    let value: T = serde_json::from_str(text).unwrap();
    assert_eq!(serde_json::to_string(&value).unwrap(), text);
    value
}

/// A process that a test has started: a runner, or another program.
pub(crate) struct Live {
    child: Child,
    lines: Receiver<(bool, String)>,
    out: Vec<String>,
    err: Vec<String>,
}

#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) status: ExitStatus,
    pub(crate) out: Vec<String>,
    pub(crate) err: Vec<String>,
}

impl Live {
    pub(crate) fn new(command: &mut Command) -> Self {
        let mut child = {
            let _turn = turn();
            command.spawn().unwrap()
        };
        // A test that reads a line at a time needs no more.
        let (sender, lines) = sync_channel(1024);
        let streams: [Box<dyn std::io::Read + Send>; 2] =
            [Box::new(child.stdout.take().unwrap()), Box::new(child.stderr.take().unwrap())];
        for (is_err, stream) in [false, true].into_iter().zip(streams) {
            let sender = sender.clone();
            thread::spawn(move || {
                for line in BufReader::new(stream).split(b'\n').map_while(Result::ok) {
                    if sender.send((is_err, String::from_utf8_lossy(&line).into_owned())).is_err() {
                        return;
                    }
                }
            });
        }
        Self { child, lines, out: Vec::new(), err: Vec::new() }
    }

    fn next(&mut self) -> Option<String> {
        match self.lines.recv_timeout(SILENCE) {
            Ok((is_err, line)) => {
                let lines = if is_err { &mut self.err } else { &mut self.out };
                lines.push(line.clone());
                Some(line)
            }
            Err(RecvTimeoutError::Disconnected) => None,
            Err(RecvTimeoutError::Timeout) => {
                // Cancels, and kills the script, so that a failed test leaves no process behind.
                let pid = self.pid();
                let _ = Command::new("/bin/sh").args(["-c", &format!("kill -TERM {pid}; kill -43 {pid}")]).status();
                panic!("silent for {SILENCE:?} after {:?} {:?}", self.out.last(), self.err.last());
            }
        }
    }

    /// Reads lines until one on stdout or stderr contains `part`, and returns that line. Panics if the output ends
    /// before, or nothing comes for [`SILENCE`].
    pub(crate) fn wait_for(&mut self, part: &str) -> String {
        loop {
            match self.next() {
                Some(line) if line.contains(part) => return line,
                Some(_) => {}
                None => panic!("{part:?} never came: {:?} {:?}", self.out, self.err),
            }
        }
    }

    pub(crate) fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    pub(crate) fn signal(&self, signal: Signal) {
        rustix::process::kill_process(self.pid(), signal).unwrap();
    }

    pub(crate) fn end(mut self) -> Ended {
        while self.next().is_some() {}
        Ended { status: self.child.wait().unwrap(), out: self.out, err: self.err }
    }
}

/// Files and output of a finished task.
#[derive(Debug)]
pub(crate) struct Left {
    pub(crate) ended: Ended,
    pub(crate) result: Option<RunResult>,
    pub(crate) steps: Vec<StepRecord>,
}

impl Left {
    pub(crate) fn result(&self) -> &RunResult {
        self.result.as_ref().unwrap_or_else(|| panic!("no result: {self:?}"))
    }

    pub(crate) fn code(&self) -> i32 {
        self.ended.status.code().unwrap_or_else(|| panic!("no exit: {self:?}"))
    }

    /// Returns the script and the status of each try that began, in order; `None`: the try has no recorded end.
    pub(crate) fn tries(&self) -> Vec<(&str, Option<Status>)> {
        let ends = |seq: u32| {
            self.steps.iter().find_map(|step| match step {
                StepRecord::End { seq: s, status, .. } if *s == seq => Some(*status),
                _ => None,
            })
        };
        let begins = self.steps.iter().filter_map(|step| match step {
            StepRecord::Begin { seq, script, .. } => Some((script.as_str(), ends(*seq))),
            _ => None,
        });
        begins.collect()
    }

    pub(crate) fn out(&self) -> Vec<&str> {
        self.ended.out.iter().map(String::as_str).collect()
    }

    /// Returns `true` if a line on stderr contains `part`.
    pub(crate) fn has_printed(&self, part: &str) -> bool {
        self.ended.err.iter().any(|line| line.contains(part))
    }
}

/// Runs `what` while processes of uid 65534 connect to `socket` and close, as fast as they can.
pub(crate) fn hammered<T>(socket: &Path, what: impl FnOnce() -> T) -> T {
    let (over, stranger) = (AtomicBool::new(false), rustix::process::Uid::from_raw(65534));
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                // Affects only this thread.
                rustix::thread::set_thread_res_uid(stranger, stranger, stranger).unwrap();
                while !over.load(Ordering::Relaxed) {
                    let _ = UnixStream::connect(socket);
                }
            });
        }
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(what));
        over.store(true, Ordering::Relaxed);
        done.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Returns `true` if the path exists.
pub(crate) fn there(path: &Path) -> bool {
    path.try_exists().unwrap()
}
