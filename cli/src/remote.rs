//! `perilog -H HOST ...`: hands the command line to `perilog` on another host, over ssh(1), as `systemctl -H` does.
//!
//! This program becomes ssh: signals, the terminal and the exit status are those of ssh, which passes on the status of
//! the remote `perilog` and ends with 255 where it did not reach the host. The remote `perilog` checks the verb and its
//! arguments, because it may be of another version.

use std::ffi::{OsStr, OsString};
use std::io::{IsTerminal, stderr, stdin, stdout};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::CommandExt;
use std::process::Command;

use clap::parser::ValueSource;
use clap::{Args, FromArgMatches};

use crate::args::Global;
use crate::fault::Fault;

/// A command line for `perilog` on another host.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Remote {
    host: OsString,
    /// Arguments of the remote `perilog`.
    arguments: Vec<OsString>,
    /// Whether the answer may be for a person: the command line has no `--json`, `--quiet` or `-q`. Only then may ssh
    /// allocate a terminal on the host.
    for_people: bool,
}

impl Remote {
    /// Reads `-H` and the other options before the verb. Returns `None` without `-H`, on a mistake in those options, or
    /// if neither a verb, `--help` nor `--version` follows.
    pub(crate) fn of(line: impl IntoIterator<Item = OsString>) -> Option<Self> {
        const REST: &str = "rest";
        const ASKED: [(&str, char); 2] = [("help", 'h'), ("version", 'V')];
        let rest = clap::Arg::new(REST).num_args(0..).trailing_var_arg(true);
        let asked = |name, short| clap::Arg::new(name).long(name).short(short).action(clap::ArgAction::SetTrue);
        let command = clap::Command::new("perilog").disable_help_flag(true).disable_version_flag(true);
        let command = command.args(ASKED.map(|(name, short)| asked(name, short)));
        let command = Global::augment_args(command).arg(rest.value_parser(clap::value_parser!(OsString)));
        // A mistake in these options is reported with the whole command line's help.
        let mut matches = command.try_get_matches_from(line).ok()?;
        let mut arguments = Vec::new();
        // The environment of this host names a socket of this host.
        if matches.value_source("socket") == Some(ValueSource::CommandLine) {
            arguments.extend([OsString::from("--socket"), matches.get_raw("socket")?.next()?.to_owned()]);
        }
        let color = match matches.value_source("color") {
            Some(ValueSource::CommandLine) => matches.get_raw("color")?.next().map(OsStr::to_owned),
            _ => std::env::var_os("NO_COLOR").filter(|text| !text.is_empty()).map(|_| "never".into()),
        };
        arguments.extend(color.into_iter().flat_map(|color| [OsString::from("--color"), color]));
        let asked = ASKED.iter().filter(|(name, _)| matches.get_flag(name)).map(|(name, _)| format!("--{name}").into());
        let mut rest: Vec<OsString> = asked.collect();
        rest.extend(matches.remove_many::<OsString>(REST).into_iter().flatten());
        let global = Global::from_arg_matches(&matches).ok()?;
        let flags = [(global.json, "--json"), (global.quiet, "--quiet")];
        arguments.extend(flags.into_iter().filter(|(given, _)| *given).map(|(_, flag)| OsString::from(flag)));
        let host = global.host.filter(|_| !rest.is_empty())?;
        let scripted = |argument: &OsString| ["--json", "--quiet", "-q"].iter().any(|flag| argument == flag);
        let for_people = !arguments.iter().chain(&rest).any(scripted);
        arguments.extend(rest);
        Some(Self { host, arguments, for_people })
    }

    /// Becomes ssh(1); returns only if that fails.
    pub(crate) fn become_ssh(self) -> Fault {
        let terminals = stdin().is_terminal() && stdout().is_terminal() && stderr().is_terminal();
        let source = Command::new(SSH).args(self.of_ssh(terminals)).exec();
        Fault::NoSsh { source }
    }

    /// Returns the arguments of ssh(1). `terminals`: whether all three standard streams are terminals.
    fn of_ssh(&self, terminals: bool) -> Vec<OsString> {
        let mut all: Vec<OsString> = Vec::new();
        if terminals && self.for_people {
            // A terminal serves folded tables, colours, `top` and Ctrl-C. LogLevel keeps ssh from printing "Connection
            // closed."
            all.extend(["-t", "-o", "LogLevel=ERROR"].map(OsString::from));
        } else if !self.arguments.iter().any(|argument| reads_stdin(argument)) {
            // `-n`: ssh must not read the input of a `while read` loop in a shell.
            all.push("-n".into());
        }
        let mut command = b"perilog".to_vec();
        for argument in &self.arguments {
            command.push(b' ');
            quote(argument.as_bytes(), &mut command);
        }
        // After `--`, ssh takes neither the host nor the command for an option.
        all.extend(["--".into(), self.host.clone(), OsString::from_vec(command)]);
        all
    }
}

pub(crate) const SSH: &str = "ssh";

/// Returns `true` if the argument is `-` (standard input), or an option with the value `-`.
fn reads_stdin(argument: &OsStr) -> bool {
    argument == "-" || argument.as_bytes().ends_with(b"=-")
}

/// Appends `word` to the command `to`, quoted for a POSIX shell: ssh hands the command to the login shell of the host.
fn quote(word: &[u8], to: &mut Vec<u8>) {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"_@+:,./-".contains(byte);
    if !word.is_empty() && word.iter().all(plain) {
        return to.extend(word);
    }
    to.push(b'\'');
    for byte in word {
        match byte {
            b'\'' => to.extend(br"'\''"),
            _ => to.push(*byte),
        }
    }
    to.push(b'\'');
}

/// Parses the argument HOST of `--host`. Refuses a text that ssh would read as an option; ssh itself refuses characters
/// that a shell expands.
pub(crate) fn host(text: OsString) -> Result<OsString, String> {
    let bytes = text.as_bytes();
    if bytes.is_empty() || bytes.starts_with(b"-") {
        return Err("expected a host, such as ctl, root@ctl or ssh://ctl:2222".to_owned());
    }
    if bytes.iter().any(|byte| byte.is_ascii_whitespace() || byte.is_ascii_control()) {
        return Err("a host has no blanks".to_owned());
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::args::Cli;

    fn of(line: &[&str]) -> Option<(String, Vec<OsString>, bool)> {
        let remote = Remote::of(std::iter::once("perilog").chain(line.iter().copied()).map(OsString::from))?;
        Some((remote.host.into_string().unwrap(), remote.arguments, remote.for_people))
    }

    #[test]
    fn options_before_the_verb_go_with_it_and_the_host_does_not() {
        #[rustfmt::skip]
        let table: &[(&[&str], &str, &[&str], bool)] = &[
            (&["-H", "ctl", "ps"], "ctl", &["ps"], true),
            (&["-Hctl", "ps", "--held"], "ctl", &["ps", "--held"], true),
            (&["--host=root@ctl", "--version"], "root@ctl", &["--version"], true),
            (&["-qH", "ctl", "nodes"], "ctl", &["--quiet", "nodes"], false),
            (&["--json", "--host", "ctl", "ps"], "ctl", &["--json", "ps"], false),
            (&["-H", "ctl", "ps", "--json"], "ctl", &["ps", "--json"], false),
            (&["--socket", "/s", "-H", "ctl", "ps"], "ctl", &["--socket", "/s", "ps"], true),
            (&["--color=always", "-H", "ctl", "ps"], "ctl", &["--color", "always", "ps"], true),
            // Behind the verb everything is the remote's.
            (&["-H", "ctl", "drain", "n1", "-H", "x", "--socket=/y"], "ctl", &["drain", "n1", "-H", "x", "--socket=/y"],
             true),
        ];
        for (line, host, arguments, people) in table {
            let arguments = arguments.iter().map(OsString::from).collect();
            assert_eq!(of(line), Some(((*host).to_owned(), arguments, *people)), "{line:?}");
        }
    }

    #[test]
    fn without_a_host_or_a_verb_nothing_is_remote() {
        for line in [&["ps"][..], &["-H", "ctl"], &["-H"], &["-H", "-oProxyCommand=x", "ps"], &["-H", "a b", "ps"], &[]]
        {
            assert_eq!(of(line), None, "{line:?}");
            // A `-H` that was misread must not run the verb on this host.
            let here = Cli::try_parse_from(std::iter::once(&"perilog").chain(line));
            assert_eq!(here.is_ok(), line == ["ps"], "{line:?}");
        }
    }

    #[test]
    fn a_terminal_only_for_people_and_input_only_for_who_reads_it() {
        let args = |line: &[&str], terminals| {
            let line = std::iter::once("perilog").chain(line.iter().copied()).map(OsString::from);
            let args = Remote::of(line).unwrap().of_ssh(terminals);
            args.iter().map(|arg| arg.to_string_lossy().into_owned()).collect::<Vec<_>>()
        };
        assert_eq!(args(&["-H", "ctl", "top"], true), ["-t", "-o", "LogLevel=ERROR", "--", "ctl", "perilog top"]);
        assert_eq!(args(&["-H", "ctl", "ps"], false), ["-n", "--", "ctl", "perilog ps"]);
        assert_eq!(args(&["-H", "ctl", "-q", "ps"], true), ["-n", "--", "ctl", "perilog --quiet ps"]);
        assert_eq!(args(&["-H", "c", "job", "add", "j", "--R", "-"], false), ["--", "c", "perilog job add j --R -"]);
        assert_eq!(args(&["-H", "c", "job", "add", "j", "--R=-"], false), ["--", "c", "perilog job add j '--R=-'"]);
        let hostile = ["-H", "c", "drain", "n[0-3]", "it's $(rm *)\n`x`", "", "ƒ"];
        let expected = "perilog drain 'n[0-3]' 'it'\\''s $(rm *)\n`x`' '' 'ƒ'";
        assert_eq!(args(&hostile, false).last().unwrap(), expected);
    }
}
