//! Reads the journal through a journalctl process: on a full disk the read may take long, and the agent's event loop
//! must not wait.

use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::process::Command;

use super::{About, MAX_TEXT};

/// Limit of a read; a journal of many gigabytes takes seconds.
const LIMIT: Duration = Duration::from_secs(20);

/// Longest wait for journald to store output that scripts have printed. On a busy disk this may not suffice; the agent
/// then reads the lines that are stored.
const SYNC: Duration = Duration::from_secs(5);

/// Returns the last lines that the job's scripts have printed, oldest first; empty if the journal has no such line.
///
/// # Errors
/// A text for people: journalctl failed, or took longer than [`LIMIT`].
pub(super) async fn read(about: &About) -> Result<String, String> {
    sync().await;
    query(about).await
}

/// Waits until journald has stored all earlier messages (journalctl(1), `--sync`): the end of a script may arrive
/// before its last lines.
async fn sync() {
    let mut command = Command::new("journalctl");
    command.arg("--sync").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true);
    match tokio::time::timeout(SYNC, command.status()).await {
        Ok(Ok(status)) if status.success() => {}
        Ok(Ok(status)) => tracing::debug!("journalctl --sync: {status}"),
        Ok(Err(error)) => tracing::debug!("journalctl --sync: {error}"),
        Err(_) => tracing::debug!("journalctl --sync took longer than {SYNC:?}"),
    }
}

async fn query(about: &About) -> Result<String, String> {
    let mut command = Command::new("journalctl");
    command
        .args(arguments(about))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    let run = async {
        let mut child = command.spawn()?;
        let (out, err) = (child.stdout.take(), child.stderr.take());
        let mut text = Vec::new();
        if let Some(out) = out {
            text = last_lines(out).await?;
        }
        let mut complaint = String::new();
        if let Some(err) = err {
            err.take(4096).read_to_string(&mut complaint).await?;
        }
        let status = child.wait().await?;
        Ok::<_, std::io::Error>((text, complaint, status))
    };
    match tokio::time::timeout(LIMIT, run).await {
        Err(_) => Err(format!("journalctl took longer than {LIMIT:?}")),
        Ok(Err(error)) => Err(format!("journalctl: {error}")),
        Ok(Ok((text, complaint, status))) if text.is_empty() && !status.success() => {
            Err(format!("journalctl: {status}: {}", complaint.trim()))
        }
        Ok(Ok((text, ..))) => Ok(String::from_utf8_lossy(&text).into_owned()),
    }
}

/// Reads to the end, and returns the last whole lines of at most [`MAX_TEXT`] bytes: what a script printed last says
/// most.
async fn last_lines(mut out: impl AsyncRead + Unpin) -> std::io::Result<Vec<u8>> {
    let (mut text, mut is_cut) = (Vec::new(), false);
    loop {
        let is_over = out.read_buf(&mut text).await? == 0;
        // A cut at each read would move the text again and again.
        if text.len() > if is_over { MAX_TEXT } else { 2 * MAX_TEXT } {
            text.drain(..text.len() - MAX_TEXT);
            is_cut = true;
        }
        if is_over {
            break;
        }
    }
    if is_cut {
        let begun = text.iter().position(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        text.drain(..begun);
    }
    Ok(text)
}

/// Returns the arguments of journalctl. Matches on different fields must all hold (journalctl(1)).
///
/// * `_TRANSPORT=stdout`: scripts print to the stdout of their unit. The lines of a controller on the same host have
///   another transport.
/// * No match on the slice: journald stores no slice with lines that it reads after the unit's end.
/// * `--all`: without it, a line with colours would be "[42B blob data]". The CLI escapes such a line.
///
/// Ids contain no character that journalctl treats specially.
fn arguments(about: &About) -> Vec<String> {
    let mut arguments: Vec<String> =
        ["--quiet", "--no-pager", "--no-hostname", "--all", "--output=short-iso-precise"].map(str::to_owned).to_vec();
    arguments.push(format!("--lines={}", about.lines));
    arguments.push("_TRANSPORT=stdout".to_owned());
    arguments.push(format!("PERILOG_JOB={}", about.job));
    arguments.extend(about.action.iter().map(|action| format!("PERILOG_ACTION={action}")));
    arguments.extend(about.attempt.iter().map(|attempt| format!("PERILOG_ATTEMPT={attempt}")));
    arguments.extend(about.rank.iter().map(|rank| format!("PERILOG_RANK={rank}")));
    arguments
}

#[cfg(test)]
mod tests {
    use super::*;
    use perilog_core::ids::{ActionName, Attempt, JobId};

    /// Regression test: of more than a MiB of output, an answer had the first MiB, without the newest lines.
    #[tokio::test]
    async fn an_answer_has_the_last_lines() {
        for lines in [1, MAX_TEXT / 16, MAX_TEXT / 4, MAX_TEXT] {
            let whole: Vec<u8> = (0..lines).flat_map(|n| format!("line {n}\n").into_bytes()).collect();
            let text = last_lines(whole.as_slice()).await.unwrap();
            assert!(whole.ends_with(&text) && text.starts_with(b"line "), "{lines}");
            assert!(text.len() + 16 > whole.len().min(MAX_TEXT) && text.len() <= MAX_TEXT, "{lines}: {}", text.len());
        }
    }

    #[test]
    fn what_is_asked_of_the_journal() {
        let mut about = About {
            job: JobId::new("f1").unwrap(),
            action: None,
            attempt: Some(Attempt::from_number(2)),
            rank: Some(0),
            lines: 50,
        };
        let shown = |about: &About| arguments(about)[5..].join(" ");
        assert_eq!(shown(&about), "--lines=50 _TRANSPORT=stdout PERILOG_JOB=f1 PERILOG_ATTEMPT=2 PERILOG_RANK=0");
        about.action = Some(ActionName::new("epilog").unwrap());
        assert!(shown(&about).contains("PERILOG_ACTION=epilog"));
    }
}
