//! Other programs, asked with a limit: one of them may hang with what it asks.

use std::io::Read;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// systemctl and its like answer in milliseconds, or are stuck.
const LIMIT: Duration = Duration::from_secs(10);
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// Of what they say.
const MOST: u64 = 1024 * 1024;

/// What a program said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Said {
    pub(super) ok: bool,
    pub(super) stdout: String,
    pub(super) stderr: String,
}

/// `Err`: it is not there, or did not end; for people.
pub(super) fn ask(program: &str, arguments: &[&str]) -> Result<Said, String> {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| format!("{program}: {error}"))?;
    // Read beside waiting: a full pipe would hold it up.
    let reading = |from: Option<Box<dyn Read + Send>>| {
        std::thread::spawn(move || {
            let mut bytes = Vec::new();
            if let Some(from) = from {
                // What came before an error is what there is.
                let _ = from.take(MOST).read_to_end(&mut bytes);
            }
            String::from_utf8_lossy(&bytes).into_owned()
        })
    };
    let stdout = reading(child.stdout.take().map(|pipe| Box::new(pipe) as _));
    let stderr = reading(child.stderr.take().map(|pipe| Box::new(pipe) as _));
    let began = Instant::now();
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status,
            Ok(None) if began.elapsed() < LIMIT => std::thread::sleep(LOOK_EVERY),
            other => {
                let _ = child.kill();
                let _ = child.wait();
                let why =
                    other.err().map_or_else(|| format!("no answer within {} s", LIMIT.as_secs()), |e| e.to_string());
                return Err(format!("{program}: {why}"));
            }
        }
    };
    let text = |thread: std::thread::JoinHandle<String>| thread.join().unwrap_or_default();
    Ok(Said { ok: status.success(), stdout: text(stdout), stderr: text(stderr) })
}
