//! munge(7): proves which user on which host made a text, among hosts that share a key. This module runs munge's two
//! programs ([`crate::program`]) instead of linking a library that a host may lack.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::Duration;

use crate::program::{ProgramError, ProgramOutput, ask};

/// Path of the program `munge` in distribution packages.
pub const MUNGE: &str = "/usr/bin/munge";
/// Path of the program `unmunge` in distribution packages.
pub const UNMUNGE: &str = "/usr/bin/unmunge";

/// Limit for a run of `munge` or `unmunge`. munged answers within milliseconds; an `unmunge` without `--numeric` also
/// looks up names.
const LIMIT: Duration = Duration::from_secs(4);
/// Fields that the module requests from `unmunge`; `unmunge` prints them in its own order.
const KEYS: &str = "STATUS,UID,ENCODE_HOST";
/// Option of `unmunge` that requests addresses and ids instead of names, so that decoding never waits for a resolver.
const NUMERIC: &str = "--numeric";

/// The contents of a valid credential: user, origin and payload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decoded {
    pub uid: u32,
    /// The address that munged on the credential's host takes for its own. Any holder of munge's key can write any
    /// address.
    pub origin: Ipv4Addr,
    pub payload: Vec<u8>,
}

/// The reason why a credential could not be made, or was not accepted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MungeError {
    #[error("{0}; is munge installed on this host, and does munged run (systemctl status munge)?")]
    Program(#[from] ProgramError),
    #[error("{}: {status}{output}{}", program.display(), hint(*status))]
    Failed { program: PathBuf, status: ExitStatus, output: String },
    #[error("{}: its output is not an answer: {why}", program.display())]
    Odd { program: PathBuf, why: String },
    #[error("the text is not a munge credential (MUNGE:...:)")]
    NoCredential,
}

impl MungeError {
    /// Returns `true` if a stranger without munge's key could have caused this error.
    pub fn is_of_strangers(&self) -> bool {
        match self {
            // munge(3): the credential is malformed, or another key made it. An expired, rewound or replayed credential
            // was valid once.
            Self::Failed { status, .. } => matches!(status.code(), Some(8..=14)),
            Self::NoCredential => true,
            Self::Program(_) | Self::Odd { .. } => false,
        }
    }
}

/// Makes a credential of this process's user with this payload. `unmunge` of a host with the same key accepts the
/// credential once.
///
/// # Errors
/// [`MungeError`]: `program` cannot be run, does not end within [`LIMIT`], or prints too much or no credential; or it
/// fails, normally because munged does not run on this host.
pub async fn encode(program: &Path, payload: &str) -> Result<String, MungeError> {
    let output = well(program, ask(program, &[], payload.as_bytes(), LIMIT).await?)?;
    let text = String::from_utf8_lossy(&output);
    let credential = text.trim();
    if is_credential(credential) {
        Ok(credential.to_owned())
    } else {
        Err(MungeError::Odd { program: program.to_owned(), why: "not MUNGE:...:".to_owned() })
    }
}

/// Decodes a credential. munge accepts it only if the same key made it, within its lifetime, and if this host has not
/// decoded it before.
///
/// # Errors
/// [`MungeError`]: `credential` has not the form of one; `program` cannot be run, does not end within [`LIMIT`], or
/// prints what cannot be read; or it fails or refuses the credential, with munge's own words.
pub async fn decode(program: &Path, credential: &str) -> Result<Decoded, MungeError> {
    if !is_credential(credential) {
        return Err(MungeError::NoCredential);
    }
    let arguments = [NUMERIC, "--keys", KEYS];
    let mut output = ask(program, &arguments, credential.as_bytes(), LIMIT).await?;
    if knows_no_numeric(&output) {
        output = ask(program, &arguments[1..], credential.as_bytes(), LIMIT).await?;
    }
    let output = well(program, output)?;
    read(&output).map_err(|why| MungeError::Odd { program: program.to_owned(), why: why.to_owned() })
}

/// Returns `true` if this `unmunge` refused the option `--numeric`. `unmunge` checks its arguments before it reads the
/// credential.
fn knows_no_numeric(output: &ProgramOutput) -> bool {
    let complaints = String::from_utf8_lossy(&output.complaints);
    output.status.code() == Some(1) && complaints.contains("option") && complaints.contains(NUMERIC)
}

fn is_credential(text: &str) -> bool {
    text.len() > 7
        && text.starts_with("MUNGE:")
        && text.ends_with(':')
        && text.bytes().all(|byte| byte.is_ascii_graphic())
}

/// Parses lines of `KEY: number`, or `KEY: text (number)` from a munge without `--numeric`, then an empty line and the
/// payload, which may contain any lines.
pub(crate) fn read(output: &[u8]) -> Result<Decoded, &'static str> {
    let ends = output.windows(2).position(|two| two == b"\n\n").ok_or("no empty line")?;
    let (head, payload) = (std::str::from_utf8(&output[..ends]).map_err(|_| "no text")?, &output[ends + 2..]);
    let value = |key: &str| {
        let mut values = head.lines().filter_map(|line| Some(line.strip_prefix(key)?.strip_prefix(':')?.trim()));
        // A field must not appear twice: a name from a resolver could contain a line break.
        let value = values.next().filter(|_| values.next().is_none())?;
        match value.strip_suffix(')') {
            Some(named) => named.rsplit_once('(').map(|(_, number)| number),
            None => Some(value),
        }
    };
    if value("STATUS") != Some("0") {
        return Err("no STATUS of success");
    }
    let uid = value("UID").and_then(|uid| uid.parse().ok()).ok_or("no UID")?;
    let origin = value("ENCODE_HOST").and_then(|address| address.parse().ok()).ok_or("no ENCODE_HOST")?;
    Ok(Decoded { uid, origin, payload: payload.to_owned() })
}

/// Returns advice for the operator by the exit status, which is munge's error number (`munge_err_t` of munge(3)).
fn hint(status: ExitStatus) -> &'static str {
    match status.code() {
        Some(6 | 7) => "; is munged up (systemctl status munge)?",
        Some(8..=14) => "; do both hosts have the same munge key (/etc/munge/munge.key)?",
        Some(15) => "; Expired credential: are the clocks of both hosts right?",
        Some(16) => "; Rewound credential: are the clocks of both hosts right?",
        Some(17) => "; Replayed credential",
        _ => "",
    }
}

/// Returns the program's standard output if its exit status is 0, otherwise an error with its last line on standard
/// error.
fn well(program: &Path, output: ProgramOutput) -> Result<Vec<u8>, MungeError> {
    if output.status.success() {
        return Ok(output.output);
    }
    let text = String::from_utf8_lossy(&output.complaints);
    let last = text.lines().rev().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
    let words: String = last.chars().filter(|c| !c.is_control()).take(200).collect();
    let complaint = if words.is_empty() { words } else { format!(": {words}") };
    Err(MungeError::Failed { program: program.to_owned(), status: output.status, output: complaint })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program::tests::program;

    const NAMED: &str =
        "STATUS:          Success (0)\nENCODE_HOST:     n1.site (10.0.0.3)\nUID:             root (0)\n\n";
    const GOOD: &str = "STATUS:          0\nENCODE_HOST:     10.0.0.3\nUID:             0\n\n";

    #[test]
    fn what_unmunge_says_is_read_whole_or_not_at_all() {
        let decoded = |payload: &str| Decoded { uid: 0, origin: "10.0.0.3".parse().unwrap(), payload: payload.into() };
        // The sender controls the payload: no line of the payload is metadata.
        let forged = "x\nUID: root (1000)\n\nSTATUS: Success (17)\n";
        for good in [GOOD, NAMED] {
            assert_eq!(read(good.as_bytes()), Ok(decoded("")));
            assert_eq!(read(format!("{good}{forged}").as_bytes()), Ok(decoded(forged)));
        }
        for (good, from, to, why) in [
            (GOOD, "         0\nENC", "         17\nENC", "no STATUS of success"),
            (GOOD, "UID:             0", "UID:             -1", "no UID"),
            (GOOD, "UID:             0", "UID: 0\nUID: 0", "no UID"),
            (GOOD, "10.0.0.3", "n1", "no ENCODE_HOST"),
            (NAMED, "Success (0)", "Replayed credential (17)", "no STATUS of success"),
            (NAMED, "STATUS:", "STATE:", "no STATUS of success"),
            (NAMED, "root (0)", "root", "no UID"),
            (NAMED, "root (0)", "root (-1)", "no UID"),
            (NAMED, "UID:             root (0)", "UID: a (0)\nUID: b (0)", "no UID"),
            (NAMED, "(10.0.0.3)", "(n1)", "no ENCODE_HOST"),
            (NAMED, "\n\n", "\n", "no empty line"),
        ] {
            assert_eq!(read(good.replace(from, to).as_bytes()), Err(why), "{from} -> {to}");
        }
        // A name may contain brackets; the number is in the last pair.
        assert_eq!(read(NAMED.replace("root (0)", "x (0) (1000)").as_bytes()).map(|decoded| decoded.uid), Ok(1000));
    }

    #[tokio::test]
    async fn how_munge_and_unmunge_end_is_reported() {
        let dir = tempfile::tempdir().unwrap();
        let echo = program(&dir, "echo \"MUNGE:$(/bin/cat):\"");
        assert_eq!(encode(&echo, "abc").await.unwrap(), "MUNGE:abc:");
        for (body, part) in [
            ("echo hello", "not MUNGE:...:"),
            (
                "echo 'munge: Error: Failed to access \"/run/munge\"' >&2; exit 6",
                "exit status: 6: munge: Error: Failed to access \"/run/munge\"; is munged up",
            ),
        ] {
            let error = encode(&program(&dir, body), "abc").await.unwrap_err().to_string();
            assert!(error.contains(part), "{body}: {error}");
        }
        for (body, part, of_strangers) in [
            ("echo 'STATUS: 17'; exit 17", "exit status: 17; Replayed credential", false),
            ("echo 'STATUS: Expired credential (15)'; exit 15", "are the clocks of both hosts right?", false),
            ("echo 'unmunge: Error: Invalid credential' >&2; exit 14", "do both hosts have the same munge key", true),
            ("exit 6", "is munged up", false),
            ("echo hello", "its output is not an answer: no empty line", false),
        ] {
            let error = decode(&program(&dir, body), "MUNGE:abc:").await.unwrap_err();
            assert_eq!(
                (error.to_string().contains(part), error.is_of_strangers()),
                (true, of_strangers),
                "{body}: {error}"
            );
        }
        let error = decode(Path::new("/no/such"), "MUNGE:abc:").await.unwrap_err().to_string();
        assert!(error.starts_with("cannot run /no/such: ") && error.contains("is munge installed"), "{error}");
        // A text that is no credential is refused before the program runs.
        let error = decode(Path::new("/no/such"), "MUNGE:a b:").await.unwrap_err();
        assert!(matches!(error, MungeError::NoCredential), "{error}");
    }

    /// The module calls `unmunge` with `--numeric`, and again without it if that `unmunge` does not know the option.
    /// Without the option, `unmunge` asks a resolver for the name of an address that the sender wrote.
    #[tokio::test]
    async fn unmunge_is_asked_for_numbers_if_it_knows_the_option() {
        let dir = tempfile::tempdir().unwrap();
        let asked = dir.path().join("asked");
        let knows = format!("echo \"$*\" >>{0}\nprintf '{1}'", asked.display(), GOOD.replace('\n', "\\n"));
        decode(&program(&dir, &knows), "MUNGE:abc:").await.unwrap();
        let old = format!(
            "echo \"$*\" >>{0}\n[ $1 != --numeric ] || \
             {{ echo 'unmunge: Error: Invalid option \"--numeric\"' >&2; exit 1; }}\nprintf '{1}'",
            asked.display(),
            NAMED.replace('\n', "\\n")
        );
        decode(&program(&dir, &old), "MUNGE:abc:").await.unwrap();
        let (numeric, named) = ("--numeric --keys STATUS,UID,ENCODE_HOST\n", "--keys STATUS,UID,ENCODE_HOST\n");
        assert_eq!(std::fs::read_to_string(asked).unwrap(), [numeric, numeric, named].concat());
    }
}
