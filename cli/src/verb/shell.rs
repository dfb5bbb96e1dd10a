//! Runs other programs with a time limit: a program such as systemctl(1) hangs when the service behind it does.

use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use perilog_host::clock;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

/// Time limit for a program: systemctl and similar programs answer in milliseconds, or hang.
const LIMIT: Duration = Duration::from_secs(10);
/// Maximum number of bytes that are read of each of a program's two outputs, standard output and standard error.
const MOST: u64 = 1024 * 1024;

/// The end of a program, with its output. `ok`: its exit status was 0.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ShellOutput {
    pub(super) ok: bool,
    pub(super) stdout: String,
    pub(super) stderr: String,
}

/// Runs a program, and kills it once the time [`LIMIT`] has passed. `Err` is a text for people: the program could not
/// be started or watched, or did not end in time.
pub(super) fn ask(program: &str, arguments: &[&str]) -> Result<ShellOutput, String> {
    ask_within(LIMIT, program, arguments)
}

/// Runs a program as [`ask`] does, but at most for the time `limit`.
pub(super) fn ask_within(limit: Duration, program: &str, arguments: &[&str]) -> Result<ShellOutput, String> {
    ask_for(MOST, limit, program, arguments)
}

/// Runs a program as [`ask_within`] does, and reads at most `most` bytes of each of its outputs.
pub(super) fn ask_for(most: u64, limit: Duration, program: &str, arguments: &[&str]) -> Result<ShellOutput, String> {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| format!("{program}: {error}"))?;
    // Reads beside waiting: a full pipe would block the program.
    let reading = move |from: Option<Box<dyn Read + Send>>| {
        std::thread::spawn(move || {
            let mut bytes = Vec::new();
            if let Some(from) = from {
                // After a read error, the bytes read so far count.
                let _ = from.take(most).read_to_end(&mut bytes);
            }
            String::from_utf8_lossy(&bytes).into_owned()
        })
    };
    let stdout = reading(child.stdout.take().map(|pipe| Box::new(pipe) as _));
    let stderr = reading(child.stderr.take().map(|pipe| Box::new(pipe) as _));
    let status = match ends(&child, limit) {
        Ok(true) => child.wait().map_err(|error| format!("{program}: {error}"))?,
        other => {
            // If the program has ended meanwhile, the kill fails harmlessly, and the wait reaps it.
            let _ = child.kill();
            let _ = child.wait();
            let why = other.err().map_or_else(|| format!("no answer within {}s", limit.as_secs()), |e| e.to_string());
            return Err(format!("{program}: {why}"));
        }
    };
    let text = |thread: std::thread::JoinHandle<String>| thread.join().unwrap_or_default();
    Ok(ShellOutput { ok: status.success(), stdout: text(stdout), stderr: text(stderr) })
}

/// Waits until the program ends, at most for the time `limit`; returns `true` if the program has ended. Does not reap
/// the program.
fn ends(child: &Child, limit: Duration) -> Result<bool, Errno> {
    let process = pidfd_open(Pid::from_child(child), PidfdFlags::empty())?;
    let limit_ms = u64::try_from(limit.as_millis()).unwrap_or(u64::MAX);
    let until_ms = clock::mono_ms().saturating_add(limit_ms);
    loop {
        let left = Timespec::try_from(clock::until(until_ms)).map_err(|_| Errno::INVAL)?;
        match poll(&mut [PollFd::new(&process, PollFlags::IN)], Some(&left)) {
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
            Ok(ready) => return Ok(ready > 0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_read_and_a_missing_one_is_named() {
        let output = ask("/bin/sh", &["-c", "echo out; echo err >&2; exit 3"]);
        assert_eq!(output, Ok(ShellOutput { ok: false, stdout: "out\n".to_owned(), stderr: "err\n".to_owned() }));
        assert!(ask("/no/such", &[]).is_err_and(|why| why.starts_with("/no/such: ")));
    }

    #[test]
    fn one_that_hangs_is_not_waited_for() {
        let mut child = Command::new("sleep").arg("600").spawn().unwrap();
        assert_eq!(ends(&child, Duration::from_millis(20)), Ok(false));
        child.kill().unwrap();
        assert_eq!(ends(&child, LIMIT), Ok(true));
        child.wait().unwrap();
    }
}
