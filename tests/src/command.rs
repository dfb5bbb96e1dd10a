//! Commands under a time limit, whose output never goes through a pipe.
//!
//! A script may leave children that keep the output open, and a read of a pipe to the end would wait for the children.
//! So output goes to memory files, and a command ends with the command's process.

use std::fmt;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::clock::Stopwatch;

/// Output of an ended or running command.
#[derive(Debug, Clone)]
pub struct Output {
    /// Command and host, for messages.
    pub what: String,
    /// `None` while the command runs.
    pub status: Option<ExitStatus>,
    pub stdout: String,
    pub stderr: String,
}

impl Output {
    pub fn success(&self) -> bool {
        self.status.is_some_and(|status| status.success())
    }

    /// Returns the exit code; `None` while the command runs, or if a signal ended the command.
    pub fn code(&self) -> Option<i32> {
        self.status.and_then(|status| status.code())
    }

    /// Returns standard output, or an error with all details if the command did not exit with 0.
    pub fn ok(self) -> Result<String> {
        if self.success() { Ok(self.stdout.trim_end().to_owned()) } else { bail!("{self}") }
    }
}

impl fmt::Display for Output {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let end = match self.status {
            None => "still runs".to_owned(),
            Some(status) => match (status.code(), status.signal()) {
                (Some(124), _) => "ended with 124 (timeout(1): its time limit)".to_owned(),
                (Some(code), _) => format!("ended with {code}"),
                (None, Some(signal)) => format!("was ended by signal {signal}"),
                (None, None) => status.to_string(),
            },
        };
        write!(f, "{} {end}", self.what)?;
        for (name, text) in [("stdout", &self.stdout), ("stderr", &self.stderr)] {
            if !text.trim().is_empty() {
                write!(f, "\n--- {name}\n{}", text.trim_end())?;
            }
        }
        Ok(())
    }
}

/// A running command. Dropping the value kills the command.
#[derive(Debug)]
pub struct Running {
    what: String,
    child: Child,
    stdout: File,
    stderr: File,
    status: Option<ExitStatus>,
}

impl Running {
    /// Starts `command` with empty input, in a process group of its own, out of reach of the terminal's Ctrl-C. `what`
    /// names the command in messages.
    pub fn start(what: impl Into<String>, command: &mut Command) -> Result<Self> {
        let what = what.into();
        let file = |name: &str| -> Result<File> {
            Ok(File::from(memfd_create(name, MemfdFlags::CLOEXEC).context("a memory file for a command's output")?))
        };
        let (stdout, stderr) = (file("stdout")?, file("stderr")?);
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::from(stdout.try_clone().context("sharing a memory file")?))
            .stderr(Stdio::from(stderr.try_clone().context("sharing a memory file")?))
            .process_group(0)
            .spawn()
            .with_context(|| format!("starting {what}: {:?}", command.get_program()))?;
        Ok(Self { what, child, stdout, stderr, status: None })
    }

    /// Returns the pid of the started process on this machine.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns all output so far, and the status if the command has ended.
    pub fn output(&mut self) -> Result<Output> {
        if self.status.is_none() {
            self.status = self.child.try_wait().context("asking after a command")?;
        }
        Ok(Output {
            what: self.what.clone(),
            status: self.status,
            stdout: text(&self.stdout)?,
            stderr: text(&self.stderr)?,
        })
    }

    pub fn has_ended(&mut self) -> Result<bool> {
        if self.status.is_none() {
            self.status = self.child.try_wait().context("asking after a command")?;
        }
        Ok(self.status.is_some())
    }

    /// Waits for the end of the command; fails after `limit`.
    pub fn wait(&mut self, limit: Duration) -> Result<Output> {
        if !self.ends_within(limit)? {
            bail!("not within {limit:?}: the end of: {}", self.output()?);
        }
        self.output()
    }

    /// Kills the command with all its descendants; returns its output. In a command under nsenter(1) and timeout(1), a
    /// descendant does the work.
    pub fn kill(&mut self) -> Result<Output> {
        let below = descendants(self.pid());
        for &pid in &below {
            signal(pid, Signal::KILL);
        }
        // nsenter(1) reaps the child and then ends by itself. If killed first, nsenter(1) would leave a zombie on the
        // node.
        if below.is_empty() || !self.ends_within(REAPING)? {
            self.child.kill().with_context(|| format!("killing {}", self.what))?;
        }
        self.wait(KILLED)
    }

    fn ends_within(&mut self, limit: Duration) -> Result<bool> {
        if self.has_ended()? {
            return Ok(true); // and reaped: a watch is no longer possible
        }
        let watch = Stopwatch::start();
        let process = pidfd_open(Pid::from_child(&self.child), PidfdFlags::empty()).context("watching a command")?;
        while !self.has_ended()? {
            let Some(left) = limit.checked_sub(watch.elapsed()) else {
                return Ok(false);
            };
            let left = Timespec::try_from(left).context("a time limit")?;
            match poll(&mut [PollFd::new(&process, PollFlags::IN)], Some(&left)) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error).context("waiting for a command"),
            }
        }
        Ok(true)
    }
}

/// Time limit for nsenter(1) to reap its killed child; it needs moments.
const REAPING: Duration = Duration::from_secs(1);
/// Time limit for the end of a killed process, which ends at once unless it is in an uninterruptible call.
const KILLED: Duration = Duration::from_secs(20);

impl Drop for Running {
    fn drop(&mut self) {
        if !matches!(self.has_ended(), Ok(true)) {
            let _ = self.kill();
        }
    }
}

/// Returns all descendants of `pid`, parents first.
pub(crate) fn descendants(pid: u32) -> Vec<u32> {
    let mut found = children(pid);
    let mut next = 0;
    while let Some(&pid) = found.get(next) {
        found.extend(children(pid));
        next += 1;
    }
    found
}

/// Returns the child processes of a process with only one thread; empty if the process has ended.
pub(crate) fn children(pid: u32) -> Vec<u32> {
    let list = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    list.split_ascii_whitespace().filter_map(|pid| pid.parse().ok()).collect()
}

/// Sends a signal to a process. A process that has already ended is no error.
pub(crate) fn signal(pid: u32, signal: Signal) {
    let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) else {
        return;
    };
    if let Ok(process) = pidfd_open(pid, PidfdFlags::empty()) {
        let _ = pidfd_send_signal(process, signal);
    }
}

/// Returns the whole content of a command's output file, without moving the file offset that the writing process
/// shares.
fn text(file: &File) -> Result<String> {
    let length = file.metadata().context("the size of a command's output")?.len();
    let mut bytes = vec![0; usize::try_from(length).context("the size of a command's output")?];
    file.read_exact_at(&mut bytes, 0).context("reading a command's output")?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Runs `command` to the end; fails only if the command cannot start or exceeds `limit`.
pub(crate) fn run(what: impl Into<String>, command: &mut Command, limit: Duration) -> Result<Output> {
    Running::start(what, command)?.wait(limit)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn output_and_status_are_kept() {
        let output = run("a script", &mut shell("echo out; echo err >&2; exit 3"), Duration::from_secs(20)).unwrap();
        assert_eq!((output.code(), output.stdout.as_str(), output.stderr.as_str()), (Some(3), "out\n", "err\n"));
        assert_eq!(output.to_string(), "a script ended with 3\n--- stdout\nout\n--- stderr\nerr");
        assert!(output.ok().is_err());
    }

    #[test]
    fn a_child_left_behind_holds_nothing_up() {
        let output = run("a script", &mut shell("sleep 30 & echo $!"), Duration::from_secs(20)).unwrap();
        assert!(output.success());
        signal(output.stdout.trim().parse().unwrap(), Signal::KILL);
    }

    #[test]
    fn a_limit_is_an_error_that_shows_the_output_so_far() {
        let mut running = Running::start("a script", &mut shell("echo begun; exec sleep 30")).unwrap();
        crate::wait_until("its output", Duration::from_secs(20), || Ok(running.output()?.stdout == "begun\n")).unwrap();
        let error = running.wait(Duration::ZERO).unwrap_err().to_string();
        assert!(error.contains("still runs") && error.contains("begun"), "{error}");
        assert_eq!(running.kill().unwrap().status.unwrap().signal(), Some(9));
    }
}
