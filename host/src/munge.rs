//! munge(7): who of which user made a text, between hosts that share a key. Asked through its two programs, so that nothing is linked that a host may not
//! have. Each is given its input on standard input, no shell and no environment, and has a limit, past which it is killed.

use std::io;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, ChildStdin, Command};

/// Where packages put them.
pub const MUNGE: &str = "/usr/bin/munge";
pub const UNMUNGE: &str = "/usr/bin/unmunge";

/// munged answers within milliseconds; looking up the name of an address may take seconds.
const LIMIT: Duration = Duration::from_secs(5);
/// A credential of ours has some 300 bytes.
const MOST: u64 = 16 * 1024;
/// Of what is asked of `unmunge`; it says its lines in an order of its own.
const KEYS: &str = "STATUS,UID,ENCODE_HOST";

/// A credential that is good: who made it, where, and what it says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decoded {
    pub uid: u32,
    /// The address that munged of the host of its origin takes for its own. Whoever has munge's key can write any.
    pub origin: Ipv4Addr,
    pub payload: Vec<u8>,
}

/// Why there is no credential, or nothing in it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MungeError {
    #[error("cannot run {}: {source}; is munge installed here?", program.display())]
    Run { program: PathBuf, source: io::Error },
    #[error("{}: not done within {LIMIT:?}, and killed; is munged well (systemctl status munge)?", program.display())]
    Late { program: PathBuf },
    #[error("{}: {status}{said}{}", program.display(), hint(*status))]
    Failed { program: PathBuf, status: ExitStatus, said: String },
    #[error("{}: it says what is no answer: {why}", program.display())]
    Odd { program: PathBuf, why: String },
}

/// A credential of our user's that says this, for `unmunge` of a host with the same key, once.
///
/// # Errors
/// [`MungeError`]: mostly, munged does not run here.
pub async fn encode(program: &Path, payload: &str) -> Result<String, MungeError> {
    let said = run(program, &[], payload.as_bytes()).await?;
    let text = String::from_utf8_lossy(&said);
    let credential = text.trim();
    if is_credential(credential) {
        Ok(credential.to_owned())
    } else {
        Err(MungeError::Odd { program: program.to_owned(), why: "not MUNGE:...:".to_owned() })
    }
}

/// What a credential says, if munge takes it for good: by the same key, in its time, not decoded here before.
///
/// # Errors
/// [`MungeError`], with munge's word for what is wrong with it.
pub async fn decode(program: &Path, credential: &str) -> Result<Decoded, MungeError> {
    let odd = |why: &str| MungeError::Odd { program: program.to_owned(), why: why.to_owned() };
    if !is_credential(credential) {
        return Err(odd("it was not asked: what was sent is not MUNGE:...:"));
    }
    let said = run(program, &["--keys", KEYS], credential.as_bytes()).await?;
    read(&said).map_err(odd)
}

fn is_credential(text: &str) -> bool {
    text.len() > 7
        && text.starts_with("MUNGE:")
        && text.ends_with(':')
        && text.bytes().all(|byte| byte.is_ascii_graphic())
}

/// Lines of `KEY: text (number)`, an empty one, and the payload, which may have any lines.
fn read(said: &[u8]) -> Result<Decoded, &'static str> {
    let ends = said.windows(2).position(|two| two == b"\n\n").ok_or("no empty line")?;
    let (head, payload) = (std::str::from_utf8(&said[..ends]).map_err(|_| "no text")?, &said[ends + 2..]);
    let value = |key: &str| {
        let mut values = head.lines().filter_map(|line| Some(line.strip_prefix(key)?.strip_prefix(':')?.trim()));
        let value = values.next().and_then(|value| value.strip_suffix(')')?.rsplit_once('('));
        // A name that is looked up is no place for a second line.
        value.filter(|_| values.next().is_none()).map(|(_, number)| number)
    };
    if value("STATUS") != Some("0") {
        return Err("no STATUS of success");
    }
    let uid = value("UID").and_then(|uid| uid.parse().ok()).ok_or("no UID")?;
    let origin = value("ENCODE_HOST").and_then(|address| address.parse().ok()).ok_or("no ENCODE_HOST")?;
    Ok(Decoded { uid, origin, payload: payload.to_owned() })
}

/// Exit statuses are munge's error numbers (`munge_err_t` of munge(3)).
fn hint(status: ExitStatus) -> &'static str {
    match status.code() {
        Some(6 | 7) => "; is munged up (systemctl status munge)?",
        Some(8..=14) => "; have both hosts the same key of munge (/etc/munge/munge.key)?",
        Some(15 | 16) => "; are the clocks of both hosts right?",
        _ => "",
    }
}

/// Its standard output, if it ends well.
async fn run(program: &Path, arguments: &[&str], input: &[u8]) -> Result<Vec<u8>, MungeError> {
    let failed = |source| MungeError::Run { program: program.to_owned(), source };
    let odd = |why: &str| MungeError::Odd { program: program.to_owned(), why: why.to_owned() };
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
        // All three at once: a full pipe holds up whoever does not read the other.
        let ((), said, complained) = tokio::join!(feed(stdin, input), most(stdout), most(stderr));
        let (Some(said), Some(complained)) = (said, complained) else { return Err(odd("it says too much")) };
        let status = child.wait().await.map_err(failed)?;
        group.is_reaped();
        if status.success() {
            return Ok(said);
        }
        Err(MungeError::Failed { program: program.to_owned(), status, said: last_words(&said, &complained) })
    };
    tokio::time::timeout(LIMIT, talk).await.map_err(|_| MungeError::Late { program: program.to_owned() })?
}

/// `unmunge` tells of a bad credential by its STATUS, and of anything else on its standard error.
fn last_words(said: &[u8], complained: &[u8]) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let status = text(said).lines().find_map(|line| Some(line.strip_prefix("STATUS:")?.trim().to_owned()));
    let last = || text(complained).lines().rev().map(str::trim).find(|line| !line.is_empty()).map(str::to_owned);
    let words = status.or_else(last).unwrap_or_default();
    let words: String = words.chars().filter(|c| !c.is_control()).take(200).collect();
    if words.is_empty() { words } else { format!(": {words}") }
}

/// Whoever ends before it has read all says why by its status.
async fn feed(stdin: Option<ChildStdin>, input: &[u8]) {
    if let Some(mut stdin) = stdin {
        let _ = stdin.write_all(input).await;
    }
}

/// All of it; none if that is too much.
async fn most(from: Option<impl AsyncRead + Unpin>) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    if let Some(from) = from {
        // What came before an error is what there is.
        let _ = from.take(MOST + 1).read_to_end(&mut bytes).await;
    }
    (bytes.len() as u64 <= MOST).then_some(bytes)
}

/// The program and whatever it begins: killed when this is dropped before it was reaped.
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
            // It is there: nobody has reaped its first process.
            let _ = rustix::process::kill_process_group(group, Signal::KILL);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    const GOOD: &str =
        "STATUS:          Success (0)\nENCODE_HOST:     n1.site (10.0.0.3)\nUID:             root (0)\n\n";

    #[test]
    fn what_unmunge_says_is_read_whole_or_not_at_all() {
        let decoded = |payload: &str| Decoded { uid: 0, origin: "10.0.0.3".parse().unwrap(), payload: payload.into() };
        assert_eq!(read(GOOD.as_bytes()), Ok(decoded("")));
        // The payload is the sender's: none of it is metadata.
        let forged = "x\nUID: root (1000)\n\nSTATUS: Success (17)\n";
        assert_eq!(read(format!("{GOOD}{forged}").as_bytes()), Ok(decoded(forged)));
        for (from, to, why) in [
            ("Success (0)", "Replayed credential (17)", "no STATUS of success"),
            ("STATUS:", "STATE:", "no STATUS of success"),
            ("root (0)", "root", "no UID"),
            ("root (0)", "root (-1)", "no UID"),
            ("UID:             root (0)", "UID: a (0)\nUID: b (0)", "no UID"),
            ("(10.0.0.3)", "(n1)", "no ENCODE_HOST"),
            ("\n\n", "\n", "no empty line"),
        ] {
            assert_eq!(read(GOOD.replace(from, to).as_bytes()), Err(why), "{from} -> {to}");
        }
        // A name may have brackets of its own; the number is the last.
        assert_eq!(read(GOOD.replace("root (0)", "x (0) (1000)").as_bytes()).map(|decoded| decoded.uid), Ok(1000));
    }

    fn program(dir: &tempfile::TempDir, body: &str) -> PathBuf {
        let path = dir.path().join("program");
        std::fs::write(&path, format!("#!/bin/sh\n{body}\n")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    #[tokio::test]
    async fn a_program_is_asked_on_its_standard_input_and_how_it_ends_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let echo = program(&dir, "echo \"MUNGE:$(/bin/cat)$PERILOG_LOG$HOME:\"");
        assert_eq!(encode(&echo, "abc").await.unwrap(), "MUNGE:abc:");
        for (body, part) in [
            ("echo hello", "not MUNGE:...:"),
            (
                "echo 'munge: Error: Failed to access \"/run/munge\"' >&2; exit 6",
                "exit status: 6: munge: Error: Failed to access \"/run/munge\"; is munged up",
            ),
            ("exec /usr/bin/yes", "it says too much"),
        ] {
            let error = encode(&program(&dir, body), "abc").await.unwrap_err().to_string();
            assert!(error.contains(part), "{body}: {error}");
        }
        let error = encode(Path::new("/no/such"), "abc").await.unwrap_err().to_string();
        assert!(error.starts_with("cannot run /no/such: "), "{error}");
        for (body, part) in [
            ("echo 'STATUS: Replayed credential (17)'; exit 17", "exit status: 17: Replayed credential (17)"),
            ("echo 'STATUS: Expired credential (15)'; exit 15", "are the clocks of both hosts right?"),
            ("echo 'unmunge: Error: Invalid credential' >&2; exit 14", "have both hosts the same key"),
        ] {
            let error = decode(&program(&dir, body), "MUNGE:abc:").await.unwrap_err().to_string();
            assert!(error.contains(part), "{body}: {error}");
        }
        // What is no credential is shown to nobody.
        let error = decode(&program(&dir, "touch asked"), "MUNGE:a b:").await.unwrap_err().to_string();
        assert!(error.contains("it was not asked"), "{error}");
    }

    #[tokio::test]
    async fn one_that_hangs_is_killed_with_what_it_has_begun() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("pid");
        let body =
            format!("trap '' TERM; /bin/sleep 1000 & echo $! > {0}.new; /bin/mv {0}.new {0}; wait", file.display());
        let hangs = program(&dir, &body);
        let asked = tokio::spawn(async move { encode(&hangs, "abc").await });
        while !file.exists() {
            tokio::task::yield_now().await;
        }
        tokio::time::pause();
        let error = asked.await.unwrap().unwrap_err().to_string();
        assert!(error.contains("not done within 5s, and killed"), "{error}");
        let pid = std::fs::read_to_string(&file).unwrap();
        // Until init has noticed, it is a zombie.
        let lives = || {
            let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.trim())).unwrap_or_default();
            stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
        };
        while lives() {
            tokio::task::yield_now().await;
        }
    }
}
