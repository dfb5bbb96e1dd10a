//! Outcomes of tasks and verdicts of actions.
//!
//! Unknown is never success: there is no default outcome. For the scripts of a task, only [`crate::judge`] makes
//! [`Outcome::Ok`]; for an external action, its service reports it.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The end of a process, from wait(2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ExitStatus {
    /// The process exited with this code, 0-255.
    Exit(u8),
    /// The process was ended by the signal with this number.
    Signal(u8),
}

impl ExitStatus {
    /// Returns the status as a shell gives it: the exit code, or 128 + signal.
    pub const fn shell(self) -> u8 {
        match self {
            Self::Exit(code) => code,
            Self::Signal(signal) => 128u8.saturating_add(signal),
        }
    }

    pub const fn is_success(self) -> bool {
        matches!(self, Self::Exit(0))
    }
}

impl fmt::Display for ExitStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exit(code) => write!(f, "exit {code}"),
            Self::Signal(signal) => write!(f, "signal {}", signal_name(*signal)),
        }
    }
}

/// Returns the name of a signal without `SIG` (signal(7)): `TERM`. Returns the number if the table has no name for it.
pub fn signal_name(signal: u8) -> String {
    SIGNALS
        .iter()
        .find(|(number, _)| *number == signal)
        .map_or_else(|| signal.to_string(), |(_, name)| (*name).to_owned())
}

/// Parses the name or number of a signal (`TERM`, `SIGTERM` or `15`) and returns the number. `None`: `text` is neither
/// a name in the table nor a number from 1 to 64.
pub fn signal_number(text: &str) -> Option<u8> {
    let name = text.strip_prefix("SIG").unwrap_or(text);
    SIGNALS
        .iter()
        .find(|(_, known)| known.eq_ignore_ascii_case(name))
        .map(|(number, _)| *number)
        .or_else(|| text.parse().ok().filter(|n| (1..=64).contains(n)))
}

/// The signals that perilog may send to scripts: HUP, INT, KILL, USR1, USR2, TERM. The runner passes on only these;
/// most others would stop or end the runner itself.
pub const SENT: [u8; 6] = [1, 2, 9, 10, 12, 15];

/// Checks that perilog may send a signal to scripts.
///
/// # Errors
///
/// A text that lists the allowed signals.
pub fn check_sent(signal: u8) -> Result<(), String> {
    if SENT.contains(&signal) {
        return Ok(());
    }
    let name = signal_name(signal);
    Err(format!("signal {name} cannot be sent: scripts can be sent only HUP, INT, USR1, USR2, TERM and KILL"))
}

#[rustfmt::skip]
const SIGNALS: &[(u8, &str)] = &[
    (1, "HUP"), (2, "INT"), (3, "QUIT"), (4, "ILL"), (6, "ABRT"), (7, "BUS"), (8, "FPE"), (9, "KILL"), (10, "USR1"),
    (11, "SEGV"),
    (12, "USR2"), (13, "PIPE"), (14, "ALRM"), (15, "TERM"), (17, "CHLD"), (18, "CONT"), (19, "STOP"), (24, "XCPU"),
    (25, "XFSZ"), (31, "SYS"),
];

/// The outcome of a task. The controller stores one outcome per task; a result that comes later does not replace the
/// outcome. A stored outcome normally changes in one case only: a reboot undoes the work of a prolog before the
/// verdict.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "kebab-case")]
pub enum Outcome {
    /// Every script ran and ended with 0, and the runner's result confirms that; a task may also have no script to run.
    /// Or the service of an external action reported success.
    Ok,
    /// Every script ran, and nothing failed but named checks or scripts that the node marks as tolerable. Or the
    /// service of an external action reported a tolerable failure.
    Tolerable,
    Failed {
        why: Failure,
    },
    /// A script or the whole task ran past its limit. `status`: how the scripts ended then, if known.
    Timeout {
        status: Option<ExitStatus>,
    },
    /// A person or the resource manager asked perilog to stop the task, and the task stopped.
    Cancelled {
        status: Option<ExitStatus>,
    },
    Lost {
        why: Loss,
    },
    /// The node did not let the task begin. `why`: the reason, as text for the operator.
    Refused {
        why: String,
    },
    /// An operator's resolution gives the outcome. `ok`: whether the resolution counts as success. `by`: the operator's
    /// uid.
    Resolved {
        ok: bool,
        reason: String,
        by: u32,
    },
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Failure {
    Exit(u8),
    Signal(u8),
    Oom,
    /// systemd could not execute the runner, or the runner could not execute a script.
    Exec(String),
    /// An error in the node's configuration: a missing directory, or a script that others can write.
    Configuration(String),
    /// systemd refused the unit or reports a failure of it that no exit status explains, or the unit did not come up.
    /// Contains the reason, for example systemd's own word.
    Unit(String),
    /// The runner ended without a complete result. Contains the runner's exit status; `None`: unknown.
    NoResult(Option<ExitStatus>),
    /// The service of an external action reported the failure.
    Reported,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Loss {
    /// The node rebooted before the task's end was known. Or a reboot undid the work of a task that had succeeded.
    Rebooted,
    /// The node has no record of the task, or the unit is gone and left no result.
    Vanished,
    /// The node accepted the task, but reported no end before the task's limit and a grace had passed. The node has
    /// been disconnected at least for the grace.
    Unreachable,
    /// The node was not connected, or did not accept the task within the start-grace.
    Offline,
    /// No node of this name has ever connected.
    UnknownNode,
    /// The service of an external action did not report within its lease.
    Lease,
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Rebooted => "the node rebooted",
            Self::Vanished => "its unit vanished without a result",
            Self::Unreachable => "the node is unreachable",
            Self::Offline => "the node is offline",
            Self::UnknownNode => "the controller knows no such node",
            Self::Lease => "the lease of its service expired",
        })
    }
}

impl Outcome {
    /// Returns the outcome's name, one of those in docs/semantics.md, such as `failed`.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Tolerable => "tolerable",
            Self::Failed { .. } => "failed",
            Self::Timeout { .. } => "timeout",
            Self::Cancelled { .. } => "cancelled",
            Self::Lost { .. } => "lost",
            Self::Refused { .. } => "refused",
            Self::Resolved { .. } => "resolved",
        }
    }

    /// Returns `true` for a success that needs no tolerance: `ok`, or a resolution as `ok`.
    pub const fn is_ok(&self) -> bool {
        matches!(self, Self::Ok | Self::Resolved { ok: true, .. })
    }

    /// Returns `true` for `ok` and `tolerable`: all failures of the task, if any, were tolerable.
    pub const fn went_well(&self) -> bool {
        matches!(self, Self::Ok | Self::Tolerable)
    }

    /// Returns `true` if the outcome itself says how the scripts ended: `ok`, `tolerable`, `failed`, `timeout`, or
    /// `cancelled` with a status. An `ok` or a `failed` counts even if no script ran.
    pub const fn is_of_scripts(&self) -> bool {
        match self {
            Self::Ok | Self::Tolerable | Self::Failed { .. } | Self::Timeout { .. } => true,
            Self::Cancelled { status } => status.is_some(),
            Self::Lost { .. } | Self::Refused { .. } | Self::Resolved { .. } => false,
        }
    }

    /// Returns `true` if a task that a node reports with this outcome may have begun a script. That is so if the
    /// outcome says how the scripts ended, or if the node lost their end (`Vanished`, `Rebooted`).
    pub const fn may_have_begun(&self) -> bool {
        self.is_of_scripts() || matches!(self, Self::Lost { why: Loss::Vanished | Loss::Rebooted })
    }

    /// Returns the exit status of the scripts as a shell gives it (128 + signal), if the outcome contains a status.
    pub fn status(&self) -> Option<u8> {
        match self {
            Self::Ok | Self::Tolerable => Some(0),
            Self::Failed { why: Failure::Exit(code) } => Some(*code),
            Self::Failed { why: Failure::Signal(signal) } => Some(ExitStatus::Signal(*signal).shell()),
            Self::Failed { why: Failure::NoResult(status) } => status.map(ExitStatus::shell),
            Self::Timeout { status } | Self::Cancelled { status } => status.map(ExitStatus::shell),
            _ => None,
        }
    }

    /// Returns `true` if a signal may have cut the scripts off, which neither an operator nor a limit asked for: a node
    /// that goes down sends HUP, TERM or KILL. A shell reports a signal as 128 and its number.
    pub const fn may_be_cut_off(&self) -> bool {
        match self {
            Self::Failed { why: Failure::NoResult(_) } | Self::Lost { .. } => true,
            Self::Failed { why: Failure::Signal(signal) } => matches!(signal, 1 | 9 | 15),
            Self::Failed { why: Failure::Exit(code) } => matches!(code, 129 | 137 | 143),
            _ => false,
        }
    }

    /// Returns the outcome's severity, from 0 (success) to 6 (failure). The most severe outcome of an action's ranks
    /// decides the verdict.
    pub(crate) const fn severity(&self) -> u8 {
        match self {
            Self::Ok | Self::Resolved { ok: true, .. } => 0,
            Self::Tolerable => 1,
            Self::Cancelled { .. } => 2,
            Self::Refused { .. } => 3,
            Self::Lost { .. } => 4,
            Self::Timeout { .. } => 5,
            Self::Failed { .. } | Self::Resolved { ok: false, .. } => 6,
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())?;
        match self {
            Self::Ok | Self::Tolerable => Ok(()),
            Self::Failed { why } => match why {
                Failure::Exit(code) => write!(f, " (exit {code})"),
                Failure::Signal(signal) => write!(f, " (signal {})", signal_name(*signal)),
                Failure::Oom => f.write_str(" (out of memory)"),
                Failure::Exec(text) => write!(f, " (cannot execute: {text})"),
                Failure::Configuration(text) => write!(f, " ({text})"),
                Failure::Unit(text) => write!(f, " (systemd: {text})"),
                Failure::NoResult(Some(ExitStatus::Signal(signal))) => {
                    write!(f, " (its runner was killed: signal {})", signal_name(*signal))
                }
                Failure::NoResult(Some(status)) => write!(f, " (its runner ended with {status} and no result)"),
                Failure::NoResult(None) => f.write_str(" (its runner ended without a result)"),
                Failure::Reported => f.write_str(" (reported by its service)"),
            },
            Self::Timeout { status } | Self::Cancelled { status } => match status {
                Some(status) => write!(f, " ({status})"),
                None => Ok(()),
            },
            Self::Lost { why } => write!(f, " ({why})"),
            Self::Refused { why } => write!(f, " ({why})"),
            Self::Resolved { ok, reason, by } => {
                write!(f, " as {} by uid {by} ({reason})", if *ok { "ok" } else { "failed" })
            }
        }
    }
}

/// The verdict of an action: its ranks' outcomes, summed up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    Ok,
    Failed,
    Timeout,
    Lost,
    Refused,
    Cancelled,
}

impl Verdict {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Failed => "failed",
            Self::Timeout => "timeout",
            Self::Lost => "lost",
            Self::Refused => "refused",
            Self::Cancelled => "cancelled",
        }
    }

    /// Returns the verdict over all outcomes of an action, without any tolerance: the most severe outcome decides. An
    /// action without ranks is `Ok`.
    pub fn of<'a>(outcomes: impl IntoIterator<Item = &'a Outcome>) -> Self {
        match outcomes.into_iter().max_by_key(|o| o.severity()) {
            None | Some(Outcome::Ok | Outcome::Resolved { ok: true, .. }) => Self::Ok,
            Some(Outcome::Cancelled { .. }) => Self::Cancelled,
            Some(Outcome::Refused { .. }) => Self::Refused,
            Some(Outcome::Lost { .. }) => Self::Lost,
            Some(Outcome::Timeout { .. }) => Self::Timeout,
            // Only the job's terms can forgive a tolerable failure; here it counts as a failure.
            Some(Outcome::Tolerable | Outcome::Failed { .. } | Outcome::Resolved { .. }) => Self::Failed,
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_verdict_is_the_worst_outcome() {
        let lost = || Outcome::Lost { why: Loss::Rebooted };
        let failed = || Outcome::Failed { why: Failure::Exit(3) };
        let timeout = || Outcome::Timeout { status: None };
        let resolved = |ok| Outcome::Resolved { ok, reason: String::new(), by: 0 };
        let cancelled = || Outcome::Cancelled { status: None };
        let refused = || Outcome::Refused { why: String::new() };
        for (outcomes, expect) in [
            (vec![], Verdict::Ok),
            (vec![Outcome::Ok, Outcome::Ok], Verdict::Ok),
            (vec![Outcome::Ok, resolved(true)], Verdict::Ok),
            (vec![Outcome::Ok, Outcome::Tolerable], Verdict::Failed),
            (vec![Outcome::Ok, resolved(false)], Verdict::Failed),
            (vec![cancelled(), Outcome::Ok], Verdict::Cancelled),
            (vec![cancelled(), refused()], Verdict::Refused),
            (vec![refused(), lost()], Verdict::Lost),
            (vec![lost(), timeout()], Verdict::Timeout),
            (vec![timeout(), failed(), lost()], Verdict::Failed),
        ] {
            assert_eq!(Verdict::of(&outcomes), expect, "{outcomes:?}");
        }
    }

    #[test]
    fn six_signals_are_sent_and_a_refusal_names_them() {
        for name in ["HUP", "INT", "USR1", "USR2", "TERM", "KILL"] {
            assert_eq!(signal_number(name).map(check_sent), Some(Ok(())), "{name}");
        }
        for signal in [3, 14, 18, 19, 43, 64] {
            let why = check_sent(signal).unwrap_err();
            assert!(why.contains("HUP, INT, USR1, USR2, TERM and KILL") && why.contains(&signal_name(signal)), "{why}");
        }
    }

    #[test]
    fn signals_by_name_and_number() {
        for (text, number) in
            [("TERM", Some(15)), ("SIGKILL", Some(9)), ("usr1", Some(10)), ("34", Some(34)), ("0", None), ("x", None)]
        {
            assert_eq!(signal_number(text), number, "{text}");
        }
        assert_eq!((signal_name(9), signal_name(40)), ("KILL".to_owned(), "40".to_owned()));
    }
}
