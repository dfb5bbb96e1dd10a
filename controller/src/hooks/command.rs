//! The run of a hook's command, in a process group of its own. The run ends in one of two ways:
//!
//! * The program ends by itself. The processes that it leaves in the background go on.
//! * The limit passes. The controller kills the whole group, and waits until no process of the group lives. So no
//!   killed command is still at work when the controller repeats the notice.

use std::fs;
use std::io::{self, Seek as _, Write as _};
use std::process::Stdio;
use std::time::Duration;

use perilog_core::Span;
use perilog_host::process_stat;
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::process::{Pid, Signal};
use serde_json::Value;
use tokio::io::AsyncReadExt;
use tokio::process;

/// Number of bytes of the command's standard error to keep: the controller logs them, and shows the last line.
const KEPT: usize = 4 * 1024;
/// Time for which the controller still reads the standard error of a program that has ended.
const PIPE_LIMIT: Duration = Duration::from_secs(1);
/// Period at which the controller checks whether killed processes are gone: the kernel reports only the end of a child.
const POLL: Duration = Duration::from_millis(20);
/// Time that a killed process group has to end. A process that still lives then hangs in the kernel: the controller
/// logs a warning, and goes on waiting.
const KILLED: Duration = Duration::from_secs(5);

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Command {
    /// The absolute path of the program, and its arguments.
    pub(crate) argv: Vec<String>,
    pub(crate) limit: Duration,
}

impl Command {
    /// Runs the hook's command with `body` (JSON) on its standard input.
    ///
    /// # Errors
    /// [`NotifyError`]: there is no command, the notice cannot be written to memory, the command cannot be started or
    /// waited for, ended with a status above 0 or by a signal, or passed its limit.
    pub(crate) async fn notify(&self, body: &Value) -> Result<(), NotifyError> {
        let [program, arguments @ ..] = self.argv.as_slice() else {
            return Err(NotifyError::new("no command".to_owned(), &[]));
        };
        let stdin = schedule(body)
            .map_err(|error| NotifyError::new(format!("cannot pass the notice to {program}: {error}"), &[]))?;
        let mut child = process::Command::new(program)
            .args(arguments)
            .stdin(stdin)
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| NotifyError::new(format!("cannot run {program}: {error}"), &[]))?;
        let mut group = Group::of(&child);
        let stderr = child.stderr.take();
        let mut printed = Vec::new();
        let ended = {
            let listening = listen(stderr, &mut printed);
            let ended = child.wait();
            tokio::pin!(listening, ended);
            let received = async {
                tokio::select! {
                    status = &mut ended => (status, false),
                    () = &mut listening => (ended.await, true),
                }
            };
            match tokio::time::timeout(self.limit, received).await {
                Ok((status, received)) => {
                    group.is_reaped();
                    if !received {
                        // A background process may hold the pipe for ever.
                        let _ = tokio::time::timeout(PIPE_LIMIT, listening).await;
                    }
                    Some(status)
                }
                Err(_) => None,
            }
        };
        let how = match ended {
            Some(Ok(status)) if status.success() => return Ok(()),
            Some(Ok(status)) => format!("{program}: {status}"),
            Some(Err(error)) => format!("{program}: {error}"),
            None => {
                group.end(&mut child, program).await;
                let limit = Span::from_millis(u64::try_from(self.limit.as_millis()).unwrap_or(u64::MAX));
                format!("{program}: killed, because it did not end within {limit}")
            }
        };
        Err(NotifyError::new(how, &printed))
    }
}

/// The reason why a hook's command did not carry out a notice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NotifyError {
    /// The text for log lines and `perilog ps`: how the program ended, and the last line of its standard error.
    pub(crate) why: String,
    /// The end of the program's standard error, for the log; `None` if `why` already has all of it.
    pub(crate) printed: Option<String>,
}

impl NotifyError {
    fn new(how: String, printed: &[u8]) -> Self {
        let printed = String::from_utf8_lossy(printed);
        let mut lines = printed.lines().map(str::trim_end).filter(|line| !line.is_empty());
        let Some(last) = lines.next_back() else { return Self { why: how, printed: None } };
        let more = lines.next().is_some();
        Self { why: format!("{how}: {}", last.trim()), printed: more.then(|| printed.trim_end().to_owned()) }
    }
}

/// The process group of a hook's command. Dropping this value kills the group, unless the program was reaped: the
/// number may then belong to another group.
struct Group(Option<Pid>);

impl Group {
    fn of(child: &process::Child) -> Self {
        Self(child.id().and_then(|id| Pid::from_raw(id.cast_signed())))
    }

    const fn is_reaped(&mut self) {
        self.0 = None;
    }

    /// Kills the process group, and waits until no process of the group lives.
    async fn end(mut self, child: &mut process::Child, program: &str) {
        let Some(group) = self.0 else { return };
        self.kill();
        let gone = async {
            let _ = child.wait().await;
            self.is_reaped();
            while is_any_alive(group) {
                tokio::time::sleep(POLL).await;
            }
        };
        tokio::pin!(gone);
        if tokio::time::timeout(KILLED, &mut gone).await.is_err() {
            let group = group.as_raw_nonzero();
            tracing::warn!(
                "{program} was killed past its limit and does not end; perilog retries only after its end. To see \
                 where it hangs: ps -o pid,stat,wchan,args --pgroup {group}"
            );
            gone.await;
        }
    }

    fn kill(&self) {
        if let Some(group) = self.0 {
            // The group still exists, because its first process is not reaped yet.
            let _ = rustix::process::kill_process_group(group, Signal::KILL);
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Returns `true` if the group contains a process that is no zombie. Zombie orphans stay if no process reaps them, as
/// in some containers.
fn is_any_alive(group: Pid) -> bool {
    if rustix::process::test_kill_process_group(group) == Err(rustix::io::Errno::SRCH) {
        return false;
    }
    let Ok(processes) = fs::read_dir("/proc") else { return true };
    let mut stats = processes.flatten().filter_map(|entry| process_stat::read(entry.file_name().to_str()?, "stat"));
    stats.any(|stat| is_living_member(&stat, group))
}

/// Returns `true` if this line of /proc/PID/stat, such as `42 (a name) S 1 42 ...` (pid, name, state, parent, group),
/// is of a living process of `group`.
fn is_living_member(stat: &str, group: Pid) -> bool {
    let mut fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace();
    let (state, of) = (fields.next(), fields.nth(1));
    !matches!(state, None | Some("Z" | "X")) && of.and_then(|of| of.parse().ok()) == Some(group.as_raw_nonzero().get())
}

/// Makes the program's standard input: a file in memory with `body`. The file is complete before the program begins,
/// even if the controller dies at that moment.
fn schedule(body: &Value) -> io::Result<Stdio> {
    let make = |flags| memfd_create("perilog-hook", MemfdFlags::CLOEXEC | flags);
    // A kernel before 6.3 does not know the flag; a later kernel may require the flag.
    let memory = make(MemfdFlags::NOEXEC_SEAL).or_else(|_| make(MemfdFlags::empty()))?;
    let mut file = fs::File::from(memory);
    writeln!(file, "{body}")?;
    file.rewind()?;
    Ok(file.into())
}

/// Reads standard error until the pipe is closed; `kept` always has the last [`KEPT`] bytes.
async fn listen(stderr: Option<process::ChildStderr>, kept: &mut Vec<u8>) {
    let Some(mut stderr) = stderr else { return };
    let mut buffer = [0u8; 1024];
    while let Ok(read @ 1..) = stderr.read(&mut buffer).await {
        kept.extend_from_slice(&buffer[..read]);
        let surplus = kept.len().saturating_sub(KEPT);
        kept.drain(..surplus);
    }
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};
    use std::sync::Arc;

    use serde_json::json;

    use super::*;

    const LIMIT: Duration = Duration::from_secs(3600);

    /// Makes a command whose program starts a child that ignores SIGTERM. The program writes the child's process id
    /// into `file`.
    fn with_grandchild(file: &Path) -> Arc<Command> {
        let script = "trap '' TERM; sleep 1000 & echo $! >\"$0.new\"; mv \"$0.new\" \"$0\"; wait";
        let argv = vec!["sh".to_owned(), "-c".to_owned(), script.to_owned(), file.display().to_string()];
        Arc::new(Command { argv, limit: LIMIT })
    }

    fn is_alive(pid: &str) -> bool {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
    }

    async fn begun(
        command: &Arc<Command>,
        file: &PathBuf,
    ) -> (tokio::task::JoinHandle<Result<(), NotifyError>>, String) {
        let command = Arc::clone(command);
        let run = tokio::spawn(async move { command.notify(&json!({})).await });
        while !file.exists() {
            tokio::time::sleep(POLL).await;
        }
        let pid = fs::read_to_string(file).unwrap().trim().to_owned();
        assert!(is_alive(&pid));
        (run, pid)
    }

    /// Regression test: the controller killed only the program itself, and the program's children went on beside the
    /// next try.
    #[tokio::test]
    async fn nothing_of_a_run_past_its_limit_is_alive_at_the_next_try() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("pid");
        let (run, pid) = begun(&with_grandchild(&file), &file).await;
        // An hour passes.
        tokio::time::pause();
        let ended = run.await.unwrap().map_err(|error| error.why);
        assert!(!is_alive(&pid), "the child of the hook lives when its run is over");
        assert_eq!(ended, Err("sh: killed, because it did not end within 1h".to_owned()));
    }

    #[tokio::test]
    async fn nothing_of_a_run_that_is_given_up_is_alive() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("pid");
        let (run, pid) = begun(&with_grandchild(&file), &file).await;
        run.abort();
        assert!(run.await.unwrap_err().is_cancelled());
        let gone = async {
            while is_alive(&pid) {
                tokio::time::sleep(POLL).await;
            }
        };
        tokio::time::timeout(KILLED, gone).await.expect("the child of the hook runs when no task waits for it");
    }

    #[tokio::test]
    async fn a_status_decides_although_a_child_holds_both_pipes() {
        for (status, expect) in [(0, Ok(())), (3, Err("sh: exit status: 3: busy".to_owned()))] {
            // The body is more than a pipe holds, and the program does not read it.
            let body = json!({"event": "x".repeat(1 << 20)});
            let script = format!("echo busy >&2; exec 3<&0; sleep 10 <&3 & exit {status}");
            let argv = ["sh", "-c", &script].map(str::to_owned).to_vec();
            let command = Command { argv, limit: LIMIT };
            assert_eq!(command.notify(&body).await.map_err(|error| error.why), expect);
        }
    }

    /// Regression test: if the controller died while it started a hook's command, the command ran with an empty
    /// standard input.
    #[tokio::test]
    async fn what_a_program_gets_is_whole_before_it_begins() {
        let body = json!({"event": "x".repeat(1 << 20)});
        let length = body.to_string().len() + 1;
        let script = format!("test \"$(stat -L -c %s /dev/stdin)\" = {length} && test \"$(wc -c)\" = {length}");
        let argv = ["sh", "-c", &script].map(str::to_owned).to_vec();
        assert_eq!(Command { argv, limit: LIMIT }.notify(&body).await, Ok(()));
    }

    #[test]
    fn a_zombie_is_gone_and_a_name_may_be_anything() {
        let group = Pid::from_raw(42).unwrap();
        for (stat, expect) in [
            ("42 (sh) S 1 42 42 0", true),
            ("43 (a) Z 9 (b) D 1 42 42 0", true),
            ("43 (sh) Z 1 42 42 0", false),
            ("43 (sh) X 1 42 42 0", false),
            ("42 (sh) S 42 43 42 0", false),
            ("", false),
        ] {
            assert_eq!(is_living_member(stat, group), expect, "{stat}");
        }
    }
}
