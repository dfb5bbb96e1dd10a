//! An announced reboot of a node: how a task ends when its node has rebooted, or has not in time.

use crate::controller::interface::io::{Now, RankRow};
use crate::outcome::Outcome;
use crate::task::Ended;

/// A reboot that a script of the rank has announced.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Expected {
    /// The rank's row; `ended` in the row is the end that the reboot brings.
    pub(crate) row: RankRow,
    /// Time (CLOCK_MONOTONIC, ms) until which the node must say Hello from its next boot; `None`: the task has no
    /// limit.
    pub(crate) until_ms: Option<u64>,
    /// `true` if the task's scripts have ended, and only the reboot is to come.
    pub(crate) is_over: bool,
}

impl Expected {
    /// Creates the state of a rank's announced reboot from the rank's stored row. The node must say Hello within the
    /// rest of the task's limit plus `grace_ms`, both counted from `armed_ms` (monotonic).
    pub(crate) fn stored(row: RankRow, armed_ms: u64, grace_ms: u64) -> Self {
        let until_ms = Self::until(&row, armed_ms, grace_ms);
        Self { row, until_ms, is_over: false }
    }

    pub(crate) fn until(row: &RankRow, armed_ms: u64, grace_ms: u64) -> Option<u64> {
        let within_ms = row.expects.as_ref().and_then(|expects| expects.within_ms);
        within_ms.map(|within| armed_ms.saturating_add(within).saturating_add(grace_ms))
    }

    pub(crate) fn is_late(&self, now: Now) -> bool {
        self.until_ms.is_some_and(|until| until <= now.mono_ms)
    }

    /// Returns the end of a rank that waits for an announced reboot. This is the end reported with the announcement,
    /// but with `outcome` unless the reported outcome is worse, and with `note` appended to its note.
    pub(crate) fn but(&self, outcome: Outcome, note: &str, now: Now) -> Ended {
        let reported = &self.row.ended;
        let outcome = if reported.outcome.severity() > outcome.severity() { reported.outcome.clone() } else { outcome };
        let note = reported.note.iter().map(String::as_str).chain([note]).collect::<Vec<_>>().join("; ");
        Ended { outcome, ended_ms: now.wall_ms, note: Some(note), ..reported.clone() }
    }
}
