//! Values that an operator types, checked before the verb asks a daemon. An error shows a malformed value with a caret
//! under the wrong place.

use std::fmt;
use std::str::FromStr;

use perilog_core::outcome::{signal_name, signal_number};
use perilog_core::{
    ActionName, Attempt, CheckName, Fluid, HostList, HostName, JobId, MilestoneName, ParseError, ResourceName, Span,
    Targets, Tolerance, environment,
};

/// Maximum number of characters that an error shows before the wrong place, and from the wrong place on.
const AROUND: usize = 40;

/// The error of a malformed value, with the wrong place and the text around it. clap prints it after the name of the
/// option or argument.
#[derive(Debug)]
pub(crate) struct Pointed {
    expected: String,
    shown: String,
    /// Number of characters of `shown` before the wrong place.
    before: usize,
}

impl Pointed {
    fn new(text: &str, at: usize, expected: String) -> Self {
        let chars = || text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c });
        let place = text.char_indices().take_while(|(offset, _)| *offset < at).count();
        let from = place.saturating_sub(AROUND);
        let mut shown: String = chars().skip(from).take(place - from + AROUND).collect();
        let mut before = place - from;
        if from > 0 {
            shown.insert(0, '…');
            before += 1;
        }
        if chars().count() > place + AROUND {
            shown.push('…');
        }
        Self { expected, shown, before }
    }

    fn of(text: &str, error: ParseError) -> Self {
        Self::new(text, error.at, error.expected)
    }
}

impl fmt::Display for Pointed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "expected {}\n\n    {}\n    {}^", self.expected, self.shown, " ".repeat(self.before))
    }
}

impl std::error::Error for Pointed {}

fn pointed<T: FromStr<Err = ParseError>>(text: &str) -> Result<T, Pointed> {
    text.parse().map_err(|error| Pointed::of(text, error))
}

/// Parses a job id. A Flux id in F58 with its sign loses the sign: `ƒuZZybuNNy` becomes `fuZZybuNNy`. Other forms stay
/// unchanged, because another resource manager may use them: `1234` is a job of Slurm.
pub(crate) fn job(text: &str) -> Result<JobId, Pointed> {
    if text.trim_start().starts_with('\u{192}') {
        return pointed::<Fluid>(text).map(Fluid::job);
    }
    pointed(text)
}

pub(crate) fn action(text: &str) -> Result<ActionName, Pointed> {
    pointed(text)
}

pub(crate) fn attempt(text: &str) -> Result<Attempt, Pointed> {
    pointed(text)
}

pub(crate) fn targets(text: &str) -> Result<Targets, Pointed> {
    let targets: Targets = pointed(text)?;
    match &targets {
        Targets::Ranks(ranks) if ranks.is_empty() => Err(nobody(text)),
        Targets::Hosts(hosts) if hosts.is_empty() => Err(nobody(text)),
        _ => Ok(targets),
    }
}

pub(crate) fn hosts(text: &str) -> Result<HostList, Pointed> {
    let hosts: HostList = pointed(text)?;
    if hosts.is_empty() {
        return Err(nobody(text));
    }
    // RFC 29 allows names that no host can have.
    let wrong = hosts.iter().find_map(|name| HostName::new(name).err());
    let Some(error) = wrong else { return Ok(hosts) };
    let at = text.find(&error.input).map_or(0, |start| start + error.at);
    Err(Pointed::new(text, at, error.expected))
}

fn nobody(text: &str) -> Pointed {
    Pointed::new(text, text.len(), "at least one rank or host".to_owned())
}

/// Parses the name of one node. Refuses a list, and names the verb that takes lists.
pub(crate) fn one_host(text: &str) -> Result<HostName, Pointed> {
    let list = |at| Pointed::new(text, at, format!("one node; for several: perilog nodes {text}"));
    text.find(['[', ',']).map_or_else(|| host(text), |at| Err(list(at)))
}

/// Parses the name of an action for a verb about all jobs. Refuses a job id, and names the verb that shows one job.
pub(crate) fn action_of_all(text: &str) -> Result<ActionName, Pointed> {
    action(text).map_err(|error| match job(text) {
        Ok(job) => Pointed { expected: format!("an action, such as prolog; for one job: perilog show {job}"), ..error },
        Err(_) => error,
    })
}

pub(crate) fn host(text: &str) -> Result<HostName, Pointed> {
    pointed(text)
}

pub(crate) fn tolerance(text: &str) -> Result<Tolerance, Pointed> {
    pointed(text)
}

/// Parses `CHECK=TOLERANCE`, such as `lustre=2`.
pub(crate) fn tolerance_of(text: &str) -> Result<(CheckName, Tolerance), Pointed> {
    let none = || Pointed::new(text, text.len(), "a check and its tolerance, such as lustre=2".to_owned());
    let (check, of) = text.split_once('=').ok_or_else(none)?;
    let after = check.len() + 1;
    let wrong = |error: ParseError| Pointed::new(text, after + error.at, error.expected);
    Ok((pointed(check)?, of.parse().map_err(wrong)?))
}

pub(crate) fn resource(text: &str) -> Result<ResourceName, Pointed> {
    pointed(text)
}

pub(crate) fn span(text: &str) -> Result<Span, Pointed> {
    pointed(text)
}

/// Parses `NAME=VALUE`. Refuses variables that perilog sets.
pub(crate) fn variable(text: &str) -> Result<(String, String), Pointed> {
    let (name, value) = text.split_once('=').ok_or_else(|| Pointed::new(text, text.len(), "NAME=VALUE".to_owned()))?;
    if let Err(at) = environment::check_name(name) {
        return Err(Pointed::new(text, at, "a name of [A-Za-z_][A-Za-z0-9_]*".to_owned()));
    }
    if environment::OWN.contains(&name) {
        return Err(Pointed::new(text, 0, format!("another name, because perilog itself sets {name}")));
    }
    Ok((name.to_owned(), value.to_owned()))
}

/// Parses `TERM`, `SIGTERM` or `15`; returns the name without `SIG`, or the number of a signal without a name.
pub(crate) fn signal(text: &str) -> Result<String, Pointed> {
    signal_number(text)
        .map(signal_name)
        .ok_or_else(|| Pointed::new(text, 0, "a signal such as TERM, KILL, USR1 or 10 (kill -l lists them)".to_owned()))
}

/// Parses a uid, or the name of a user of this host.
pub(crate) fn user(text: &str) -> Result<u32, String> {
    match text.parse() {
        Ok(uid) => Ok(uid),
        Err(_) => perilog_host::accounts::account(text).map(|account| account.uid).map_err(|error| error.to_string()),
    }
}

/// The event for which `perilog wait` waits: `EVENT` or `EVENT:ACTION`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Awaited {
    pub(crate) event: String,
    pub(crate) action: Option<ActionName>,
}

impl Awaited {
    /// Returns `true` if the event is a milestone: its name is none of the names that perilog gives to a job's events.
    pub(crate) fn is_milestone(&self) -> bool {
        !perilog_core::milestone::EVENTS.contains(&self.event.as_str())
    }
}

pub(crate) fn milestone(text: &str) -> Result<MilestoneName, Pointed> {
    pointed(text)
}

pub(crate) fn awaited(text: &str) -> Result<Awaited, Pointed> {
    let (event, name) = text.split_once(':').map_or((text, None), |(event, name)| (event, Some(name)));
    MilestoneName::new(event).map_err(|error| {
        Pointed::new(text, error.at, format!("the name of an event or milestone: {}", error.expected))
    })?;
    let action = name
        .map(|name| {
            let offset = event.len() + 1;
            name.parse().map_err(|error: ParseError| Pointed::new(text, offset + error.at, error.expected))
        })
        .transpose()?;
    Ok(Awaited { event: event.to_owned(), action })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown<T>(result: Result<T, Pointed>) -> String {
        result.err().map_or_else(|| "fine".to_owned(), |error| error.to_string())
    }

    #[test]
    fn a_caret_is_printed_under_the_place() {
        #[rustfmt::skip]
        let table = [
            (shown(hosts("n[0-3]")), "fine"),
            (shown(hosts("n[3-1]")), "expected the end of an ascending range, 3 or more\n\n    n[3-1]\n        ^"),
            (shown(hosts("")), "expected at least one rank or host\n\n    \n    ^"),
            (shown(hosts("n0,n/1")),
             "expected [A-Za-z0-9._-], not starting with `.` or `-`\n\n    n0,n/1\n        ^"),
            (shown(job("ƒuZ0Z")), "expected a digit of base 58 (no 0, I, O or l)\n\n    ƒuZ0Z\n       ^"),
            (shown(job("uƒZZ")), "expected [A-Za-z0-9._-], not starting with `.` or `-`\n\n    uƒZZ\n     ^"),
            (shown(targets("0-3,x[")), ""),
            (shown(variable("A-B=1")), "expected a name of [A-Za-z_][A-Za-z0-9_]*\n\n    A-B=1\n     ^"),
            (shown(variable("AB")), "expected NAME=VALUE\n\n    AB\n      ^"),
            (shown(variable("PERILOG_JOB=f1")),
             "expected another name, because perilog itself sets PERILOG_JOB\n\n    PERILOG_JOB=f1\n    ^"),
            (shown(variable("A=\u{e9}=x")), "fine"),
            (shown(tolerance_of("lustre=10%")), "fine"),
            (shown(tolerance_of("lustre")),
             "expected a check and its tolerance, such as lustre=2\n\n    lustre\n          ^"),
            (shown(tolerance_of("lustre=1x")),
             "expected a digit: a number of ranks, or a percentage such as 10%\n\n    lustre=1x\n            ^"),
            (shown(signal("TURM")),
             "expected a signal such as TERM, KILL, USR1 or 10 (kill -l lists them)\n\n    TURM\n    ^"),
            (shown(awaited("finish:Prolog")), "expected [a-z][a-z0-9-]\n\n    finish:Prolog\n           ^"),
            (shown(awaited("data-out")), "fine"),
            (shown(awaited(":prolog")),
             "expected the name of an event or milestone: 1 to 64 of [A-Za-z0-9._-], not starting with `.` or \
              `-`\n\n    :prolog\n    ^"),
        ];
        for (seen, expect) in table {
            if expect.is_empty() {
                assert!(seen.starts_with("expected "), "{seen}");
            } else {
                assert_eq!(seen, expect);
            }
        }
    }

    #[test]
    fn a_long_text_is_shown_around_the_place() {
        let text = format!("{}/{}", "a".repeat(60), "b".repeat(60));
        let seen = shown(job(&text));
        let lines: Vec<&str> = seen.lines().skip(2).collect();
        assert_eq!(lines[0], format!("    …{}/{}…", "a".repeat(40), "b".repeat(39)));
        assert_eq!(lines[1].find('^'), Some(4 + 1 + 40));
    }

    #[test]
    fn only_a_flux_id_with_its_sign_becomes_plain() {
        for (text, id) in [
            ("ƒuZZybuNNy", "fuZZybuNNy"),
            ("fuZZybuNNy", "fuZZybuNNy"),
            ("1234", "1234"),
            ("0x1234", "0x1234"),
            ("0017.e9fb.8df1.6c2e", "0017.e9fb.8df1.6c2e"),
            ("flux", "flux"),
        ] {
            assert_eq!(job(text).unwrap().as_str(), id);
        }
    }

    #[test]
    fn names_become_what_is_sent() {
        assert_eq!(signal("sigkill").ok(), None);
        assert_eq!(signal("SIGKILL").unwrap(), "KILL");
        assert_eq!(signal("9").unwrap(), "KILL");
        assert_eq!(user("1000"), Ok(1000));
        assert_eq!(user("root"), Ok(0));
        assert!(user("no-such-user-here").unwrap_err().contains("no user"));
        let awaited = awaited("finish:prolog").unwrap();
        assert_eq!((awaited.event.as_str(), awaited.action.unwrap().as_str()), ("finish", "prolog"));
    }
}
