//! Process of a try of a script: the runner starts it in its own process group, reads from it, signals it, reaps it.
//!
//! The script has ended when its process has. Processes that the script left behind may hold its pipes for ever, so the
//! runner waits for them only a moment. By then the pipes contain the script's own output, and the runner reads it to
//! the last byte.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use perilog_core::outcome::ExitStatus;
use rustix::buffer::spare_capacity;
use rustix::fs::Mode;
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitStatus};

use crate::descendants;
use crate::directory::Directory;
use crate::environment::Environment;
use crate::output::{Output, Sinks, Stream};
use crate::scripts::Script;
use crate::stage::{self, Order};
use crate::users::User;

/// Time for which processes left behind may hold the script's pipes before the runner closes them. The time is enough
/// for the end of a pipeline to print its last lines.
const PIPE_GRACE_MS: u64 = 250;

/// Maximum number of bytes of one read: a pipe's default capacity.
const CHUNK: usize = 64 * 1024;

/// Maximum size in bytes of the reason that a stage ([`crate::stage`]) sends if it cannot become the script.
const MAX_REFUSAL: u64 = 4096;

/// Working directory, file mode mask and environment of a script.
#[derive(Debug)]
pub(crate) struct Setting<'a> {
    pub(crate) cwd: &'a str,
    pub(crate) umask: u32,
    pub(crate) env: &'a Environment,
}

#[derive(Debug)]
struct Pipe {
    file: File,
    /// Number of unread bytes that were in the pipe when the script ended. The runner reads all of them, also while the
    /// journal is slow.
    unread: usize,
}

#[derive(Debug)]
pub(crate) struct Running {
    group: Pid,
    out: Option<Pipe>,
    err: Option<Pipe>,
    output: Output,
    /// Socket to the stage ([`crate::stage`]), open until the stage has executed the script or failed. `None`: the
    /// socket is closed, or the script has no stage because it is root's.
    stage: Option<UnixStream>,
    refusal: String,
    began: u64,
    ended: Option<(ExitStatus, u64)>,
    /// CLOCK_MONOTONIC (ms) at which the runner stops reading output of processes that the script left behind.
    grace_until: Option<u64>,
}

impl Running {
    /// Starts `script` as `user`. `seq` is the number of the try, `now` is CLOCK_MONOTONIC (ms).
    ///
    /// # Errors
    /// The script, or for another user than root the stage process, cannot be started, or the runner cannot take it
    /// over: then it is killed. If the stage runs but cannot execute the script, [`Self::refusal`] has the reason
    /// later.
    pub(crate) fn start(script: &Script, user: &User, setting: &Setting<'_>, seq: u32, now: u64) -> io::Result<Self> {
        let as_we_are = user.uid == 0 && user.gid == 0 && user.groups.is_empty();
        let (mut command, mut stage) = if as_we_are {
            let mut command = Command::new(&script.path);
            command.args(&script.args).env_clear().envs(setting.env).current_dir(setting.cwd).stdin(Stdio::null());
            (command, None)
        } else {
            let (command, stage) = stage::command()?;
            (command, Some(stage))
        };
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
        let ours = rustix::process::umask(Mode::from_raw_mode(setting.umask));
        let spawned = command.spawn();
        rustix::process::umask(ours);
        // The command would otherwise hold the child's ends of the pipes.
        drop(command);
        let mut child = spawned?;

        let order = || Order {
            uid: user.uid,
            gid: user.gid,
            groups: user.groups.clone(),
            cwd: setting.cwd.to_owned(),
            program: script.path.clone(),
            args: script.args.clone(),
            env: setting.env.clone(),
        };
        let taken_over = take_over(&mut child, stage.as_mut(), order);
        let (out, err, refusal) = taken_over.inspect_err(|_| end_at_once(&mut child))?;
        Ok(Self {
            group: Pid::from_child(&child),
            out,
            err,
            output: Output::new(seq),
            stage,
            refusal,
            began: now,
            ended: None,
            grace_until: None,
        })
    }

    pub(crate) fn group(&self) -> Pid {
        self.group
    }

    /// Returns the pipe of a stream, while the pipe is open.
    pub(crate) fn pipe(&self, stream: Stream) -> Option<BorrowedFd<'_>> {
        let pipe = match stream {
            Stream::Out => &self.out,
            Stream::Err => &self.err,
        };
        pipe.as_ref().map(|pipe| pipe.file.as_fd())
    }

    /// Returns the socket to the stage process while the stage may still send the reason of a failure; `None`: no
    /// message can come.
    pub(crate) fn stage(&self) -> Option<BorrowedFd<'_>> {
        self.stage.as_ref().map(AsFd::as_fd)
    }

    /// Reads once from the ready pipe of `stream`, and passes the bytes on as the script's output.
    pub(crate) fn read(&mut self, stream: Stream, sinks: &mut Sinks, directory: &Directory) -> io::Result<()> {
        let slot = match stream {
            Stream::Out => &mut self.out,
            Stream::Err => &mut self.err,
        };
        let Some(pipe) = slot else {
            return Ok(());
        };
        // The buffer is not zeroed, so pages beyond the output stay untouched: most scripts print little, and each
        // closes two pipes.
        let mut chunk = Vec::with_capacity(CHUNK);
        match rustix::io::read(&pipe.file, spare_capacity(&mut chunk)) {
            Ok(0) => *slot = None,
            Ok(n) => {
                pipe.unread = pipe.unread.saturating_sub(n);
                return self.output.take(stream, &chunk, sinks, directory);
            }
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(_) => *slot = None,
        }
        Ok(())
    }

    /// Reads from the stage ([`crate::stage`]) the reason why it could not execute the script, if it has sent one.
    pub(crate) fn read_stage(&mut self) {
        let Some(stage) = &mut self.stage else {
            return;
        };
        let mut text = Vec::new();
        match stage.take(MAX_REFUSAL).read_to_end(&mut text) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            _ => self.stage = None,
        }
        self.refusal.push_str(&String::from_utf8_lossy(&text));
    }

    /// Signals the script's process group, but only until the runner has reaped the leader: later the number may belong
    /// to another group.
    pub(crate) fn signal(&self, signal: Signal) {
        if self.ended.is_none() {
            // Fails only if the whole group has ended; SIGCHLD then follows.
            let _ = rustix::process::kill_process_group(self.group, signal);
        }
    }

    /// Sends KILL to the script, to its process group, and to the processes that descend from it, wherever they have
    /// gone. A process whose parent has ended is none of these: the runner treats it once all scripts have ended.
    pub(crate) fn kill(&self) {
        if self.ended.is_none() {
            let all = descendants::of(self.group.as_raw_nonzero().get());
            self.signal(Signal::KILL);
            all.iter().for_each(|(pid, stat)| descendants::signal(*pid, stat, Signal::KILL));
        }
    }

    /// Records the script's status, once the runner has reaped it at the time `now` (CLOCK_MONOTONIC, ms).
    pub(crate) fn end(&mut self, status: WaitStatus, now: u64) {
        let byte = |n: i32| u8::try_from(n).unwrap_or(u8::MAX);
        let status = match (status.exit_status(), status.terminating_signal()) {
            (Some(code), _) => ExitStatus::Exit(byte(code)),
            (None, signal) => ExitStatus::Signal(byte(signal.unwrap_or(0))),
        };
        self.ended = Some((status, now));
        self.read_stage();
        for pipe in [&mut self.out, &mut self.err].into_iter().flatten() {
            pipe.unread =
                rustix::io::ioctl_fionread(&pipe.file).map_or(0, |n| usize::try_from(n).unwrap_or(usize::MAX));
        }
    }

    /// Returns `true` if the script has ended and its output is complete, or processes left behind have held its pipes
    /// for too long. `now` is CLOCK_MONOTONIC (ms).
    pub(crate) fn done(&mut self, now: u64) -> bool {
        if self.ended.is_none() {
            return false;
        }
        let pipes = || [&self.out, &self.err].into_iter().flatten();
        if pipes().any(|pipe| pipe.unread > 0) {
            return false;
        }
        pipes().next().is_none() || *self.grace_until.get_or_insert(now.saturating_add(PIPE_GRACE_MS)) <= now
    }

    /// Returns CLOCK_MONOTONIC (ms) at which to call [`Self::done`] again; `None`: no such time is set, and only more
    /// output or the script's end can change the result.
    pub(crate) fn next(&self) -> Option<u64> {
        self.grace_until
    }

    /// Returns the script's exit status and how many milliseconds the script ran; `None` while the script runs.
    pub(crate) fn ended(&self) -> Option<(ExitStatus, u64)> {
        self.ended.map(|(status, at)| (status, at.saturating_sub(self.began)))
    }

    /// Returns the reason why the stage could not become the script; `None` if no failure is known.
    pub(crate) fn refusal(&self) -> Option<&str> {
        (!self.refusal.is_empty()).then_some(self.refusal.as_str())
    }

    /// Closes the pipes, and writes the rest of the output that the runner has read.
    pub(crate) fn finish(self, sinks: &mut Sinks, directory: &Directory) -> io::Result<()> {
        self.output.finish(sinks, directory)
    }
}

/// Takes over the pipes of a started child. If the child is a stage, gives it its order. Returns the pipes, and the
/// reason why the stage did not get the order; empty: the stage got it, or there is no stage.
fn take_over(
    child: &mut Child,
    stage: Option<&mut UnixStream>,
    order: impl FnOnce() -> Order,
) -> io::Result<(Option<Pipe>, Option<Pipe>, String)> {
    let out = child.stdout.take().map(|pipe| Pipe::new(pipe.into())).transpose()?;
    let err = child.stderr.take().map(|pipe| Pipe::new(pipe.into())).transpose()?;
    let mut refusal = String::new();
    if let Some(socket) = stage {
        // A stage that died before it read the order runs no script; the stage's own end is the status.
        if let Err(error) = stage::give(socket, &order()) {
            refusal = format!("the process that becomes its user ended before it read its order: {error}");
        }
        socket.set_nonblocking(true)?;
    }
    Ok((out, err, refusal))
}

/// Kills and reaps a child, with its process group, that the runner cannot take over: the runner records that the
/// script did not run.
fn end_at_once(child: &mut Child) {
    // Both calls fail only if there is nothing left to kill or to reap.
    let _ = rustix::process::kill_process_group(Pid::from_child(child), Signal::KILL);
    let _ = child.wait();
}

impl Pipe {
    fn new(fd: OwnedFd) -> io::Result<Self> {
        // Sets only the runner's end: the script's end is a separate description and stays blocking, as scripts expect.
        rustix::io::ioctl_fionbio(&fd, true)?;
        Ok(Self { file: fd.into(), unread: 0 })
    }
}

#[cfg(test)]
mod tests {
    use rustix::process::WaitOptions;

    use super::*;

    #[test]
    fn output_before_a_scripts_end_is_always_read() {
        let script = Script {
            name: "sh".to_owned(),
            path: "/bin/sh".into(),
            args: ["-c", "echo unread; sleep 1000 & echo $! >&2"].map(str::to_owned).into(),
        };
        let setting = Setting { cwd: "/", umask: 0o022, env: &Environment::new() };
        let mut running = Running::start(&script, &User::root(), &setting, 0, 100).unwrap();
        while running.ended().is_none() {
            assert!(!running.done(u64::MAX));
            let reaped = rustix::process::waitpid(Some(running.group()), WaitOptions::NOHANG).unwrap();
            reaped.into_iter().for_each(|(_, status)| running.end(status, 150));
            std::thread::yield_now();
        }
        assert_eq!(running.ended(), Some((ExitStatus::Exit(0), 50)));
        assert!(!running.done(u64::MAX - 1) && running.next().is_none());

        let mut printed = String::new();
        for pipe in [&mut running.out, &mut running.err].into_iter().flatten() {
            let mut bytes = vec![0; pipe.unread];
            pipe.file.read_exact(&mut bytes).unwrap();
            pipe.unread = 0;
            printed.push_str(&String::from_utf8(bytes).unwrap());
        }
        assert!(!running.done(200) && !running.done(199 + PIPE_GRACE_MS) && running.done(200 + PIPE_GRACE_MS));
        let child = printed.strip_prefix("unread\n").unwrap().trim().parse().ok().and_then(Pid::from_raw).unwrap();
        rustix::process::kill_process(child, Signal::KILL).unwrap();
    }

    /// Regression test: a script that the runner could not take over went on, although its record was "not run".
    #[test]
    fn a_child_that_cannot_be_taken_over_is_killed_and_reaped() {
        let mut child = Command::new("/bin/sleep").arg("1000").process_group(0).spawn().unwrap();
        end_at_once(&mut child);
        assert_eq!(rustix::process::test_kill_process_group(Pid::from_child(&child)), Err(Errno::SRCH));
    }
}
