//! Part of a measurement, in a separate process: reads commands in lines, and answers each command with a line.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Limit of open descriptors that each process asks for: enough for fifty thousand connections.
const NOFILE: u64 = 65_536;
/// Number of descriptors that a process may need besides those of its connections.
const OWN: u64 = 64;

/// Handle on a part of the bench that runs in a separate process. Dropping the handle ends that process.
#[derive(Debug)]
pub(crate) struct Part {
    name: &'static str,
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Part {
    /// Starts this program again as the part `name`, such as `swarm`, with `directory` for its files.
    pub(crate) fn start(name: &'static str, directory: &Path) -> Result<Self> {
        let program = std::env::current_exe().context("the path of this program")?;
        Self::spawn(name, directory, Command::new(program))
    }

    /// Starts a part as [`start`](Self::start) does, in the network namespace of the process `pid`.
    pub(crate) fn start_in(pid: u32, name: &'static str, directory: &Path) -> Result<Self> {
        let mut command = Command::new("nsenter");
        command.arg(format!("--target={pid}")).arg("--net").arg("--");
        command.arg(std::env::current_exe().context("the path of this program")?);
        Self::spawn(name, directory, command)
    }

    fn spawn(name: &'static str, directory: &Path, mut command: Command) -> Result<Self> {
        command.arg(name).arg(directory).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().with_context(|| format!("starting {name}"))?;
        let (input, output) = (child.stdin.take(), child.stdout.take().context("a pipe that was asked for")?);
        Ok(Self { name, child, input, output: BufReader::new(output) })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends a command line to the part's process. Returns the text of its answer; an error if the command failed
    /// there.
    pub(crate) fn ask(&mut self, line: &str) -> Result<String> {
        self.send(line)?;
        self.answer(line)
    }

    /// Sends a command line to the part's process, whose answer [`answer`](Self::answer) reads. So several parts work
    /// at the same time.
    pub(crate) fn send(&mut self, line: &str) -> Result<()> {
        let input = self.input.as_mut().context("a pipe that is open as long as this")?;
        writeln!(input, "{line}").with_context(|| format!("telling {}: {line}", self.name))
    }

    /// Reads the answer to the command `line`, which [`send`](Self::send) has sent.
    pub(crate) fn answer(&mut self, line: &str) -> Result<String> {
        let mut answer = String::new();
        self.output.read_line(&mut answer).with_context(|| format!("hearing {}", self.name))?;
        ensure!(!answer.is_empty(), "{} has ended instead of: {line}", self.name);
        match answer.trim_end().strip_prefix("ok ") {
            Some(answer) => Ok(answer.to_owned()),
            None => bail!("{}: {line}: {}", self.name, answer.trim_end()),
        }
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        // The part ends when its input is closed.
        self.input = None;
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Sends the result of a command to the asking process. Returns `false` if that process no longer reads.
pub(crate) fn answer(result: &Result<String>) -> bool {
    let line = match result {
        Ok(text) => format!("ok {text}\n"),
        Err(error) => format!("{}\n", format!("{error:#}").replace('\n', " ")),
    };
    let mut out = std::io::stdout().lock();
    out.write_all(line.as_bytes()).and_then(|()| out.flush()).is_ok()
}

/// Checks that this process may open enough descriptors for so many connections. Otherwise the last connections would
/// be retried for ever, and the figures would be wrong.
pub(crate) fn room_for(connections: usize) -> Result<()> {
    let most = descriptors();
    ensure!(connections as u64 + OWN <= most, "{connections} connections, and {most} descriptors (ulimit -n)");
    Ok(())
}

/// Returns the number of descriptors that this process, and each process that it starts, may have open.
pub(crate) fn descriptors() -> u64 {
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// Returns the maximum number of connections, in whole hundreds, that one process with so many descriptors can have.
pub(crate) fn connections(descriptors: u64) -> usize {
    usize::try_from(descriptors.saturating_sub(OWN) / 100 * 100).unwrap_or(usize::MAX)
}

/// Sets the limit of open descriptors to [`NOFILE`] for this process and its children. If the hard limit is lower and
/// this process is not root, sets the limit to the hard limit.
pub(crate) fn raise_nofile() -> Result<()> {
    let limit = getrlimit(Resource::Nofile);
    let most = limit.maximum.map_or(NOFILE, |maximum| maximum.max(NOFILE));
    // Only root may raise the hard limit; otherwise the present one must do.
    let wish = Rlimit { current: Some(NOFILE), maximum: Some(most) };
    if setrlimit(Resource::Nofile, wish).is_err() {
        let all = Rlimit { current: limit.maximum, maximum: limit.maximum };
        setrlimit(Resource::Nofile, all).context("raising the number of descriptors")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_leave_room_for_other_descriptors() {
        assert_eq!([0, 64, 163, 164, 20_000, 131_072].map(connections), [0, 0, 0, 100, 19_900, 131_000]);
    }
}
