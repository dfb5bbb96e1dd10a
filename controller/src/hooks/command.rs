//! One run of a hook's command.

use std::io;
use std::process::Stdio;
use std::time::Duration;

use perilog_core::Span;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process;

/// Of what it says on standard error the end is shown.
const KEPT: usize = 4 * 1024;
/// How long the pipe of a program that has ended is read on.
const PIPE_LIMIT: Duration = Duration::from_secs(1);

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Command {
    /// The program and its arguments.
    pub(crate) argv: Vec<String>,
    pub(crate) limit: Duration,
}

impl Command {
    /// Runs it with this on its standard input.
    ///
    /// # Errors
    /// For people: how it ended, and the last line of its standard error.
    pub(crate) async fn tell(&self, body: &Value) -> Result<(), String> {
        let [program, arguments @ ..] = self.argv.as_slice() else { return Err("no command".to_owned()) };
        let mut child = process::Command::new(program)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| format!("cannot run {program}: {error}"))?;
        let (stdin, stderr) = (child.stdin.take(), child.stderr.take());
        let whole = async {
            let mut said = String::new();
            let status = {
                let listening = async { said = last_line(stderr).await };
                tokio::pin!(listening);
                let ended = async { tokio::join!(feed(stdin, body), child.wait()).1 };
                tokio::pin!(ended);
                tokio::select! {
                    status = &mut ended => {
                        // What it left in the background may hold the pipe for ever.
                        let _ = tokio::time::timeout(PIPE_LIMIT, listening).await;
                        status
                    }
                    () = &mut listening => ended.await,
                }
            };
            let status = status.map_err(|error| format!("{program}: {error}"))?;
            match status.success() {
                true => Ok(()),
                false if said.is_empty() => Err(format!("{program}: {status}")),
                false => Err(format!("{program}: {status}: {said}")),
            }
        };
        let limit = Span::from_millis(u64::try_from(self.limit.as_millis()).unwrap_or(u64::MAX));
        tokio::time::timeout(self.limit, whole)
            .await
            .unwrap_or_else(|_| Err(format!("{program}: no end within {limit}")))
    }
}

/// A program that does not read what it is told may know it already: its status decides.
async fn feed(stdin: Option<process::ChildStdin>, body: &Value) -> io::Result<()> {
    let Some(mut stdin) = stdin else { return Ok(()) };
    stdin.write_all(format!("{body}\n").as_bytes()).await?;
    stdin.shutdown().await
}

async fn last_line(stderr: Option<process::ChildStderr>) -> String {
    let Some(mut stderr) = stderr else { return String::new() };
    let (mut kept, mut buffer) = (Vec::new(), [0u8; 1024]);
    while let Ok(read @ 1..) = stderr.read(&mut buffer).await {
        kept.extend_from_slice(&buffer[..read]);
        let surplus = kept.len().saturating_sub(KEPT);
        kept.drain(..surplus);
    }
    String::from_utf8_lossy(&kept)
        .lines()
        .rev()
        .map(str::trim)
        .find(|line| !line.is_empty())
        .unwrap_or_default()
        .to_owned()
}
