//! Command line of perilog-report, parsed by its own code: for five words, a parser library would take more time than
//! the rest of the program.

use std::ffi::OsString;

use perilog_core::Span;
use perilog_core::task::Report;

use crate::protocol;

pub(crate) const HELP: &str = include_str!("usage.txt");

/// Default of `--wait` in milliseconds: how long `expect-reboot` waits until the controller knows of the reboot. An
/// agent that redials after a restart of the controller needs seconds.
const WAIT_MS: u64 = 60_000;

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Command {
    /// Sends a report. `wait_ms`: for `expect-reboot`, the time for the controller to learn of the boot.
    Send {
        report: Report,
        wait_ms: u64,
    },
    Help,
    Version,
}

/// Reads the arguments after the program's name.
///
/// # Errors
/// A sentence with the mistake and its place.
pub(crate) fn parse(args: impl Iterator<Item = OsString>) -> Result<Command, String> {
    let mut words = Vec::new();
    let (mut check, mut wait) = (None, None::<String>);
    let mut options = true;
    let mut args = args.map(|arg| arg.into_string().map_err(|arg| format!("{arg:?} is not valid UTF-8")));
    while let Some(arg) = args.next().transpose()? {
        match arg.as_str() {
            "-h" | "--help" if options => return Ok(Command::Help),
            "-V" | "--version" if options => return Ok(Command::Version),
            "--" if options => options = false,
            "--wait" if options => wait = Some(args.next().transpose()?.ok_or("--wait needs a duration")?),
            _ if options && arg.starts_with("--wait=") => wait = Some(arg["--wait=".len()..].to_owned()),
            "--check" if options => check = Some(args.next().transpose()?.ok_or("--check needs a name")?),
            _ if options && arg.starts_with("--check=") => check = Some(arg["--check=".len()..].to_owned()),
            _ if options && arg.len() > 1 && arg.starts_with('-') => return Err(format!("unknown option `{arg}`")),
            _ => words.push(arg),
        }
    }
    let mut words = words.into_iter();
    let verb = words.next().ok_or("say what to report: tolerable, milestone, progress, expect-reboot or user")?;
    let mut one = |what: &str| words.next().ok_or_else(|| format!("`{verb}` needs {what}"));
    let report = match verb.as_str() {
        "tolerable" => {
            let check = check.take().ok_or("`tolerable` needs --check NAME")?;
            protocol::check_name("check name", &check).map_err(|e| e.to_string())?;
            let message = one("a message")?;
            Report::Tolerable { check, message }
        }
        "milestone" => {
            let name = one("a name")?;
            protocol::check_name("milestone name", &name).map_err(|e| e.to_string())?;
            Report::Milestone { name }
        }
        "progress" => Report::Progress { message: one("a message")? },
        "expect-reboot" => Report::ExpectReboot,
        "user" => Report::User { message: one("a message")? },
        _ => {
            return Err(format!(
                "unknown report `{verb}`: expected tolerable, milestone, progress, expect-reboot or user"
            ));
        }
    };
    if check.is_some() {
        return Err(format!("`{verb}` takes no --check"));
    }
    let wait_ms = match wait {
        Some(_) if report != Report::ExpectReboot => return Err(format!("`{verb}` takes no --wait")),
        Some(text) => text.parse::<Span>().map_err(|e| e.to_string())?.as_millis().unwrap_or(u64::MAX),
        None => WAIT_MS,
    };
    match words.next() {
        Some(extra) => Err(format!("one argument too many: `{extra}` (a message is one argument: quote it)")),
        None => Ok(Command::Send { report, wait_ms }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_report_and_every_slip() {
        let send = |report| Ok(Command::Send { report, wait_ms: WAIT_MS });
        let boot = |wait_ms| Ok(Command::Send { report: Report::ExpectReboot, wait_ms });
        let text = |text: &str| text.to_owned();
        let tolerable = || send(Report::Tolerable { check: text("lustre"), message: text("mount missing") });
        let table: &[(&[&str], Result<Command, &str>)] = &[
            (&["tolerable", "--check", "lustre", "mount missing"], tolerable()),
            (&["tolerable", "mount missing", "--check=lustre"], tolerable()),
            (&["milestone", "data-out"], send(Report::Milestone { name: text("data-out") })),
            (&["progress", "mounting"], send(Report::Progress { message: text("mounting") })),
            (&["user", "--", "--check"], send(Report::User { message: text("--check") })),
            (&["progress", "-"], send(Report::Progress { message: text("-") })),
            (&["expect-reboot"], send(Report::ExpectReboot)),
            (&["expect-reboot", "--wait", "5s"], boot(5_000)),
            (&["expect-reboot", "--wait=inf"], boot(u64::MAX)),
            (&["expect-reboot", "--wait", "soon"], Err("soon")),
            (&["progress", "--wait", "5s", "x"], Err("takes no --wait")),
            (&["progress", "--help"], Ok(Command::Help)),
            (&["-V"], Ok(Command::Version)),
            (&[], Err("say what")),
            (&["tolerable", "x"], Err("needs --check NAME")),
            (&["tolerable", "--check"], Err("--check needs a name")),
            (&["tolerable", "--check", "a b", "x"], Err("at character 2")),
            (&["tolerable", "--check", "lustre"], Err("needs a message")),
            (&["milestone", "data out"], Err("at character 5")),
            (&["milestone", "--check", "x", "data"], Err("takes no --check")),
            (&["progress", "two", "words"], Err("quote it")),
            (&["progress", "--loud", "x"], Err("unknown option `--loud`")),
            (&["expect-reboot", "now"], Err("one argument too many")),
            (&["shout", "x"], Err("unknown report `shout`")),
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
