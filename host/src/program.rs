//! A child program with one question: the question goes to the program's standard input, the answer comes from its
//! standard output. The program gets no shell and no environment. Time and output are bounded; past a bound, the module
//! kills the program and its children.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, ChildStdin, Command};

/// Maximum number of bytes on standard output, and on standard error. The programs in use write some hundred bytes.
const MOST: u64 = 16 * 1024;

/// Exit status, standard output and standard error (`complaints`) of a program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProgramOutput {
    pub status: ExitStatus,
    pub output: Vec<u8>,
    pub complaints: Vec<u8>,
}

/// The reason why a program gave no answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProgramError {
    #[error("cannot run {}: {source}", program.display())]
    Run { program: PathBuf, source: io::Error },
    #[error("{}: it did not end within {limit:?}, and was killed", program.display())]
    Late { program: PathBuf, limit: Duration },
    #[error("{}: it printed more than {MOST} bytes", program.display())]
    TooMuch { program: PathBuf },
}

/// Runs the program with `input` on its standard input, and waits for its end, at most `limit`. Dropping the future
/// kills the program.
///
/// # Errors
/// [`ProgramError`]. An exit status other than 0 is no error here.
pub async fn ask(
    program: &Path,
    arguments: &[&str],
    input: &[u8],
    limit: Duration,
) -> Result<ProgramOutput, ProgramError> {
    let failed = |source| ProgramError::Run { program: program.to_owned(), source };
    let mut child = Command::new(program)
        .args(arguments)
        .env_clear()
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .kill_on_drop(true)
        .spawn()
        .map_err(failed)?;
    let mut group = Group::of(&child);
    let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let talk = async {
        // Feeds and reads all three pipes at once: a program blocks on a full pipe that its parent does not read.
        let ((), output, complaints) = tokio::join!(feed(stdin, input), most(stdout), most(stderr));
        let (Some(output), Some(complaints)) = (output, complaints) else {
            return Err(ProgramError::TooMuch { program: program.to_owned() });
        };
        let status = child.wait().await.map_err(failed)?;
        group.is_reaped();
        Ok(ProgramOutput { status, output, complaints })
    };
    let late = |_| ProgramError::Late { program: program.to_owned(), limit };
    tokio::time::timeout(limit, talk).await.map_err(late)?
}

/// Writes the input. Ignores errors: a program that ends early shows the reason by its status.
async fn feed(stdin: Option<ChildStdin>, input: &[u8]) {
    if let Some(mut stdin) = stdin {
        let _ = stdin.write_all(input).await;
    }
}

/// Reads a program's output to its end; `None` if the output has more than [`MOST`] bytes.
async fn most(from: Option<impl AsyncRead + Unpin>) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    if let Some(from) = from {
        // After a read error, the bytes read so far count.
        let _ = from.take(MOST + 1).read_to_end(&mut bytes).await;
    }
    (bytes.len() as u64 <= MOST).then_some(bytes)
}

/// Process group of a program and its children. Dropping this value kills the group, unless the program was reaped
/// (`None`).
struct Group(Option<Pid>);

impl Group {
    fn of(child: &Child) -> Self {
        Self(child.id().and_then(|id| Pid::from_raw(id.cast_signed())))
    }

    const fn is_reaped(&mut self) {
        self.0 = None;
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if let Some(group) = self.0 {
            // The group still exists, because its first process is not reaped yet.
            let _ = rustix::process::kill_process_group(group, Signal::KILL);
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    const LIMIT: Duration = Duration::from_secs(5);

    pub(crate) fn program(dir: &tempfile::TempDir, body: &str) -> PathBuf {
        let (path, new) = (dir.path().join("program"), dir.path().join("new"));
        std::fs::write(&new, format!("#!/bin/sh\n{body}\n")).unwrap();
        std::fs::set_permissions(&new, std::fs::Permissions::from_mode(0o755)).unwrap();
        // `cp` makes the executable: another test that forks at this moment would inherit this process's open file, and
        // exec would fail with "text file busy".
        let copied = std::process::Command::new("cp").arg("--remove-destination").args([&new, &path]).status();
        assert!(copied.unwrap().success());
        path
    }

    #[tokio::test]
    async fn a_program_has_stdin_no_environment_and_a_bounded_output() {
        let dir = tempfile::tempdir().unwrap();
        let talks = program(&dir, "/bin/cat; echo \"$1 $PERILOG_LOG$HOME\"; echo no >&2; exit 3");
        let text = ask(&talks, &["a b"], b"abc", LIMIT).await.unwrap();
        assert_eq!((text.status.code(), text.output, text.complaints), (Some(3), b"abca b \n".into(), b"no\n".into()));
        let error = ask(&program(&dir, "exec /usr/bin/yes"), &[], b"", LIMIT).await.unwrap_err().to_string();
        assert!(error.ends_with("program: it printed more than 16384 bytes"), "{error}");
        let error = ask(Path::new("/no/such"), &[], b"", LIMIT).await.unwrap_err().to_string();
        assert!(error.starts_with("cannot run /no/such: "), "{error}");
    }

    #[tokio::test]
    async fn one_that_hangs_is_killed_with_what_it_has_begun() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("pid");
        let body =
            format!("trap '' TERM; /bin/sleep 1000 & echo $! > {0}.new; /bin/mv {0}.new {0}; wait", file.display());
        let hangs = program(&dir, &body);
        let asked = tokio::spawn(async move { ask(&hangs, &[], b"abc", LIMIT).await });
        while !file.exists() {
            tokio::task::yield_now().await;
        }
        tokio::time::pause();
        let error = asked.await.unwrap().unwrap_err().to_string();
        assert!(error.contains("it did not end within 5s, and was killed"), "{error}");
        let pid = std::fs::read_to_string(&file).unwrap();
        // The process is a zombie until init reaps it.
        let is_alive = || {
            let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.trim())).unwrap_or_default();
            stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
        };
        while is_alive() {
            tokio::task::yield_now().await;
        }
    }
}
