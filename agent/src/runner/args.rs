//! The command line of perilog-runner.

use std::ffi::OsString;
use std::path::PathBuf;

use perilog_core::ids::UNIT_PREFIX;

pub(crate) const HELP: &str = include_str!("usage.txt");

/// The directory that agent and runner share.
const RUN_DIR: &str = "/run/perilog";

/// Maximum length of a stem in bytes (`perilog_core::ids::stem`).
const MAX_STEM: usize = 139;

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Command {
    Run {
        run_dir: PathBuf,
        /// CLOCK_BOOTTIME (ms) from which the task's limit counts; `None`: it counts from the claim.
        since_boot_ms: Option<u64>,
        stem: String,
    },
    /// `--enter`, with which the runner starts itself again: the new process becomes the script's user, then the
    /// script.
    Enter,
    Help,
    Version,
}

/// Reads the arguments after the program's name.
///
/// # Errors
/// A sentence with the mistake.
pub(crate) fn parse(args: impl Iterator<Item = OsString>) -> Result<Command, String> {
    let mut run_dir = PathBuf::from(RUN_DIR);
    let (mut stem, mut since_boot_ms) = (None, None);
    let mut args = args.map(|arg| arg.into_string().map_err(|arg| format!("{arg:?} is not valid UTF-8")));
    while let Some(arg) = args.next().transpose()? {
        match arg.as_str() {
            "-h" | "--help" => return Ok(Command::Help),
            "-V" | "--version" => return Ok(Command::Version),
            "--enter" => return Ok(Command::Enter),
            "--run-dir" => run_dir = args.next().transpose()?.ok_or("--run-dir needs a directory")?.into(),
            "--since" => {
                let since = args.next().transpose()?.and_then(|since| since.parse().ok());
                since_boot_ms = Some(since.ok_or("--since needs a number of milliseconds")?);
            }
            _ if arg.starts_with("--run-dir=") => run_dir = arg["--run-dir=".len()..].into(),
            _ if arg.starts_with('-') => return Err(format!("unknown option `{arg}`")),
            _ if stem.is_some() => return Err(format!("one argument too many: `{arg}`")),
            _ => stem = Some(arg),
        }
    }
    let stem = stem.ok_or("which task? (STEM is missing)")?;
    if !run_dir.is_absolute() {
        return Err(format!("--run-dir {} is not an absolute path", run_dir.display()));
    }
    check_stem(&stem)?;
    Ok(Command::Run { run_dir, since_boot_ms, stem })
}

/// Checks the form and length of a stem. The stem becomes part of paths, and must not lead to another directory.
///
/// # Errors
/// A sentence with the mistake.
fn check_stem(stem: &str) -> Result<(), String> {
    let fits = |b: u8| b.is_ascii_alphanumeric() || b"._-".contains(&b);
    match stem.bytes().position(|b| !fits(b)) {
        Some(at) => {
            Err(format!("malformed unit name {stem:?} at character {}: expected one of [A-Za-z0-9._-]", at + 1))
        }
        None if !stem.starts_with(UNIT_PREFIX) => {
            Err(format!("malformed unit name {stem:?}: expected {UNIT_PREFIX}..."))
        }
        None if stem.len() > MAX_STEM => Err(format!("malformed unit name {stem:?}: more than {MAX_STEM} characters")),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_and_what_is_wrong_with_others() {
        let run = |dir: &str, since_boot_ms| {
            Ok(Command::Run { run_dir: dir.into(), since_boot_ms, stem: "perilog-task-prolog-f1-0-0123".to_owned() })
        };
        let long = format!("perilog-task-{}", "x".repeat(140));
        let table: &[(&[&str], Result<Command, &str>)] = &[
            (&["perilog-task-prolog-f1-0-0123"], run("/run/perilog", None)),
            (&["--run-dir", "/tmp/x", "perilog-task-prolog-f1-0-0123"], run("/tmp/x", None)),
            (&["perilog-task-prolog-f1-0-0123", "--run-dir=/tmp/x"], run("/tmp/x", None)),
            (&["--since", "7", "perilog-task-prolog-f1-0-0123"], run("/run/perilog", Some(7))),
            (&["--since", "x", "perilog-task-prolog-f1-0-0123"], Err("--since needs")),
            (&["--enter"], Ok(Command::Enter)),
            (&["--help"], Ok(Command::Help)),
            (&["--version"], Ok(Command::Version)),
            (&[], Err("STEM is missing")),
            (&["--run-dir"], Err("needs a directory")),
            (&["--run-dir", "x", "perilog-task-a"], Err("not an absolute path")),
            (&["perilog-task-a/../../b"], Err("at character 15")),
            (&["perilog-agent"], Err("expected perilog-task-")),
            (&["perilog-task-a", "b"], Err("one argument too many")),
            (&["-x"], Err("unknown option")),
            (&[&long], Err("more than 139")),
        ];
        for (args, expect) in table {
            let got = parse(args.iter().map(OsString::from));
            match (&got, expect) {
                (Err(got), Err(part)) => assert!(got.contains(part), "{args:?}: {got}"),
                (Ok(got), Ok(expect)) => assert_eq!(got, expect, "{args:?}"),
                _ => panic!("{args:?}: {got:?}"),
            }
        }
    }
}
