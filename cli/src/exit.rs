//! Exit codes in one table, for programs that call `perilog` and for `--help`.
//!
//! Unknown is never success: only [`Exit::Ok`] is 0.

use perilog_core::Verdict;

/// The ways in which `perilog` ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    Ok,
    Failed,
    Usage,
    Timeout,
    Lost,
    Refused,
    Cancelled,
    NoDaemon,
    Other,
    /// No such job, attempt, action or node.
    NotFound,
    /// The controller refuses a request that is well-formed.
    NotNow,
    StillRunning,
    Detached,
    PipeClosed,
    /// `-H`: ssh(1) did not reach the host, which ssh itself reports with this status; or no ssh is installed.
    NoHost,
    /// The status of a script (`run --propagate`, `try`).
    Status(u8),
}

#[rustfmt::skip]
const TABLE: &[(Exit, u8, &str)] = &[
    (Exit::Ok,           0,   "ok"),
    (Exit::Failed,       1,   "failed: a script failed (exit status or signal), a check failed, or no task matched"),
    (Exit::Usage,        2,   "wrong usage"),
    (Exit::Timeout,      3,   "a script ended past its limit"),
    (Exit::Lost,         4,   "lost: a node rebooted, vanished or cannot be reached"),
    (Exit::Refused,      5,   "a node refused to begin"),
    (Exit::Cancelled,    6,   "cancelled"),
    (Exit::NoDaemon,     7,   "no controller answers on this host (`try`, and `hook` on a node: no agent)"),
    (Exit::Other,        8,   "not permitted, or another error"),
    (Exit::NotFound,     9,   "no such job, attempt, action or node"),
    (Exit::NotNow,       10,
     "the controller refuses the request: the request contradicts what exists, or the controller is quiesced, is in \
      recovery, or has a full disk"),
    (Exit::StillRunning, 124,
     "the time limit of `wait --timeout`, `quiesce --wait` or `init --wait` passed first"),
    (Exit::Detached,     130, "detached by a signal (Ctrl-C); the scripts keep running"),
    (Exit::PipeClosed,   141, "the program that read the output has ended; the scripts keep running"),
    (Exit::NoHost,       255,
     "-H: ssh is not installed, or did not reach HOST and printed why (127: perilog is not installed on HOST)"),
];

impl Exit {
    pub(crate) fn code(self) -> u8 {
        match self {
            Self::Status(status) => status,
            // Every other variant has a row; a test checks that.
            _ => TABLE.iter().find(|(exit, ..)| *exit == self).map_or(8, |(_, code, _)| *code),
        }
    }

    pub(crate) const fn of(verdict: Verdict) -> Self {
        match verdict {
            Verdict::Ok => Self::Ok,
            Verdict::Failed => Self::Failed,
            Verdict::Timeout => Self::Timeout,
            Verdict::Lost => Self::Lost,
            Verdict::Refused => Self::Refused,
            Verdict::Cancelled => Self::Cancelled,
        }
    }
}

/// Returns the worse of two verdicts, in the order of [`Verdict::of`].
pub(crate) fn worse(a: Verdict, b: Verdict) -> Verdict {
    const fn blame(verdict: Verdict) -> u8 {
        match verdict {
            Verdict::Ok => 0,
            Verdict::Cancelled => 1,
            Verdict::Refused => 2,
            Verdict::Lost => 3,
            Verdict::Timeout => 4,
            Verdict::Failed => 5,
        }
    }
    if blame(b) > blame(a) { b } else { a }
}

/// Formats the table of exit codes for `--help`.
pub(crate) fn help() -> String {
    let mut text = "Exit status:".to_owned();
    for (_, code, meaning) in TABLE {
        text.push_str(&format!("\n  {code:>3}  {meaning}"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_the_contract() {
        #[rustfmt::skip]
        let contract = [
            (Exit::Ok, 0), (Exit::Failed, 1), (Exit::Usage, 2), (Exit::Timeout, 3), (Exit::Lost, 4), (Exit::Refused, 5),
            (Exit::Cancelled, 6),
            (Exit::NoDaemon, 7), (Exit::Other, 8), (Exit::NotFound, 9), (Exit::NotNow, 10),
            (Exit::StillRunning, 124), (Exit::Detached, 130),
            (Exit::PipeClosed, 141), (Exit::NoHost, 255),
            (Exit::Status(7), 7), (Exit::Status(0), 0),
        ];
        for (exit, code) in contract {
            assert_eq!(exit.code(), code, "{exit:?}");
        }
        assert_eq!(TABLE.len(), 15);
        assert_eq!(help().lines().count(), 16);
    }

    #[test]
    fn the_worse_verdict_wins() {
        let order =
            [Verdict::Ok, Verdict::Cancelled, Verdict::Refused, Verdict::Lost, Verdict::Timeout, Verdict::Failed];
        for (i, a) in order.into_iter().enumerate() {
            for (j, b) in order.into_iter().enumerate() {
                assert_eq!(worse(a, b), order[i.max(j)]);
            }
        }
    }
}
