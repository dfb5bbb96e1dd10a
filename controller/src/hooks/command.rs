//! One run of a hook's command.

use std::io;
use std::process::Stdio;
use std::time::Duration;

use perilog_core::Span;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process;

/// Of what it says on standard error the end is logged, and the last line shown.
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
    /// How it ended, and what it said.
    pub(crate) async fn tell(&self, body: &Value) -> Result<(), Untold> {
        let [program, arguments @ ..] = self.argv.as_slice() else {
            return Err(Untold::new("no command".to_owned(), &[]));
        };
        let mut child = process::Command::new(program)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| Untold::new(format!("cannot run {program}: {error}"), &[]))?;
        let (stdin, stderr) = (child.stdin.take(), child.stderr.take());
        let mut said = Vec::new();
        let whole = async {
            let listening = listen(stderr, &mut said);
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
        let how = match tokio::time::timeout(self.limit, whole).await {
            Ok(Ok(status)) if status.success() => return Ok(()),
            Ok(Ok(status)) => format!("{program}: {status}"),
            Ok(Err(error)) => format!("{program}: {error}"),
            Err(_) => {
                let limit = Span::from_millis(u64::try_from(self.limit.as_millis()).unwrap_or(u64::MAX));
                format!("{program}: no end within {limit}")
            }
        };
        Err(Untold::new(how, &said))
    }
}

/// Why something is not told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Untold {
    /// One line for people: how the program ended, and the last line of its standard error.
    pub(crate) why: String,
    /// All that is kept of its standard error, where that is more than the last line.
    pub(crate) said: Option<String>,
}

impl Untold {
    fn new(how: String, said: &[u8]) -> Self {
        let said = String::from_utf8_lossy(said);
        let mut lines = said.lines().map(str::trim_end).filter(|line| !line.is_empty());
        let Some(last) = lines.next_back() else { return Self { why: how, said: None } };
        let more = lines.next().is_some();
        Self { why: format!("{how}: {}", last.trim()), said: more.then(|| said.trim_end().to_owned()) }
    }
}

/// A program that does not read what it is told may know it already: its status decides.
async fn feed(stdin: Option<process::ChildStdin>, body: &Value) -> io::Result<()> {
    let Some(mut stdin) = stdin else { return Ok(()) };
    stdin.write_all(format!("{body}\n").as_bytes()).await?;
    stdin.shutdown().await
}

/// Until the pipe is closed; `kept`: the end of what was said so far.
async fn listen(stderr: Option<process::ChildStderr>, kept: &mut Vec<u8>) {
    let Some(mut stderr) = stderr else { return };
    let mut buffer = [0u8; 1024];
    while let Ok(read @ 1..) = stderr.read(&mut buffer).await {
        kept.extend_from_slice(&buffer[..read]);
        let surplus = kept.len().saturating_sub(KEPT);
        kept.drain(..surplus);
    }
}
