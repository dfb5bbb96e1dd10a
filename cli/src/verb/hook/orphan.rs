//! Whoever runs a hook may die under it (kill -9 of slurmd, of a broker). Nobody hears its status then, and a resource manager that has lost it makes one
//! up: a slurmd that was restarted during an epilog reports that it has ended well, and the node goes to the next job. So the hook, which outlives its
//! starter, runs a program of the site's that tells it otherwise: `begun` as soon as the starter is dead, `ended` with what came of the task.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use perilog_host::clock;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, getppid, pidfd_open};

use crate::out::aside;

/// Pauses between tries of the program, and for how long it is tried: whoever must be told may be down with its starter.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
const PATIENCE_MS: u64 = 60 * 60 * 1000;
/// Where the kernel cannot tell of another process's end (before 5.3).
const LOOK: Duration = Duration::from_secs(1);

/// The process that started this one.
pub(super) struct Starter {
    pid: Pid,
    alive: Option<OwnedFd>,
}

impl Starter {
    /// `None` where there is none that could die without us: PID 1 of a container takes us with it.
    pub(super) fn of_this_process() -> Option<Self> {
        let pid = getppid()?;
        let alive = pidfd_open(pid, PidfdFlags::empty()).ok();
        Some(Self { pid, alive })
    }

    /// Until it is dead.
    pub(super) fn wait(&self) {
        // It may have died, and its number may be another's, before its descriptor was there.
        while getppid() == Some(self.pid) {
            match &self.alive {
                None => thread::park_timeout(LOOK),
                // An error but EINTR cannot be; looking again is never wrong.
                Some(alive) => {
                    if poll(&mut [PollFd::new(alive, PollFlags::IN)], None).is_ok() {
                        return;
                    }
                }
            }
        }
    }
}

/// What is done about it.
pub(super) struct Orphan {
    program: Option<PathBuf>,
    /// Who has started this process.
    starter: Option<Pid>,
    telling: Option<Telling>,
}

/// `begun` is being told, beside the task.
struct Telling {
    thread: JoinHandle<()>,
    ended: Arc<AtomicBool>,
}

type Variables = Vec<(&'static str, String)>;

impl Orphan {
    pub(super) fn new(program: Option<PathBuf>) -> Self {
        Self { program, starter: getppid(), telling: None }
    }

    /// The starter is dead, and the task is not over.
    pub(super) fn begun(&mut self, variables: &Variables) {
        let Some(program) = self.program.clone() else { return };
        let (variables, ended) = (variables.clone(), Arc::new(AtomicBool::new(false)));
        let enough = ended.clone();
        let work = move || tell(&program, "begun", &variables, || enough.load(Ordering::Acquire));
        match thread::Builder::new().name("orphan".to_owned()).spawn(work) {
            Ok(thread) => self.telling = Some(Telling { thread, ended }),
            Err(error) => aside(format_args!("cannot start a thread: {error}")),
        }
    }

    /// The task is over. Nothing is told where the starter lives and hears our status; otherwise after `begun` was told, or could not be.
    pub(super) fn ended(&mut self, variables: &Variables) {
        let Some(program) = self.program.clone().filter(|_| getppid() != self.starter) else { return };
        if let Some(Telling { thread, ended }) = self.telling.take() {
            ended.store(true, Ordering::Release);
            thread.thread().unpark();
            // It cannot panic.
            let _ = thread.join();
        }
        tell(&program, "ended", variables, || false);
    }
}

/// Runs it until it has exited with 0, until `enough`, or for an hour.
fn tell(program: &Path, word: &str, variables: &Variables, enough: impl Fn() -> bool) {
    let until_ms = clock::mono_ms().saturating_add(PATIENCE_MS);
    let mut pause = FIRST_PAUSE;
    loop {
        let told = Command::new(program).arg(word).envs(variables.iter().cloned()).stdin(Stdio::null()).status();
        match told {
            Ok(status) if status.success() => return,
            Ok(status) => aside(format_args!("{} {word}: {status}", program.display())),
            Err(error) => aside(format_args!("cannot run {} {word}: {error}", program.display())),
        }
        if enough() || clock::mono_ms() >= until_ms {
            return aside(format_args!("{} {word}: given up", program.display()));
        }
        thread::park_timeout(pause);
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}
