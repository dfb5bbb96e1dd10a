//! State of the recovery.

use std::collections::{BTreeMap, BTreeSet};

use crate::controller::interface::io::RecoveryRow;
use crate::defect;
use crate::ids::{ActionName, Attempt, HostName, JobId, TaskId};
use crate::mark::Commit;
use crate::message::HeldState;

/// State of the gate and of the recovery, except the flags that each attempt has for itself.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Recovery {
    /// The stored row of the last generation, even if its grace is over.
    pub(crate) row: Option<RecoveryRow>,
    pub(crate) gate: Option<Gate>,
    /// Key: a host that got no Welcome. Value: the newest commit of its node, which this store never made. A second
    /// such host is evidence that the store is behind.
    pub(crate) suspects: BTreeMap<HostName, Commit>,
    /// Time (monotonic) at which the grace is over; `None`: no grace runs.
    pub(crate) grace_ms: Option<u64>,
}

/// The gate of a start: it opens at `until_ms` (monotonic), or when no node is missing.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Gate {
    pub(crate) until_ms: u64,
    /// Nodes of the store that have not said Hello yet.
    pub(crate) missing: BTreeSet<HostName>,
}

/// Tasks that the last Hello of a node named and the store lacks, and tasks that wait for their attempts to proceed.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Unsettled {
    /// Tasks of suspended attempts that the node does not hold.
    pub(crate) absent: BTreeSet<TaskId>,
    /// Unclaimed tasks on the node that must not begin yet.
    pub(crate) unclaimed: BTreeSet<TaskId>,
    /// Unknown tasks of the node, tombstones included. Tombstones are dropped when the host has been judged.
    pub(crate) unknown: BTreeMap<TaskId, Unknown>,
    /// Attempts whose clean-up may not have run on the host, judged after the grace ([`missing`]).
    pub(crate) uncleaned: BTreeSet<(JobId, Attempt)>,
}

impl Unsettled {
    /// Removes a task from the unsettled tasks, because the controller forgets its attempt. Also drops the node's
    /// tombstone of the task, which is left here if the attempt was taken up after the node was judged.
    pub(crate) fn forget(&mut self, task: TaskId) {
        self.absent.remove(&task);
        self.unclaimed.remove(&task);
        if defect!(TombstoneStays) {
            return;
        }
        if self.unknown.get(&task).is_some_and(Unknown::is_tombstone) {
            self.unknown.remove(&task);
        }
    }

    /// Drops the tombstones of unknown attempts whose clean-up is known to be missing: the node reports them anew when
    /// it comes back. A grace keeps tombstones, because they name the newest attempt of a job.
    pub(crate) fn drop_judged(&mut self) {
        self.unknown.retain(|_, of| !of.is_tombstone() || !self.uncleaned.contains(&(of.job.clone(), of.attempt)));
    }

    /// Returns the number of entries, without unknown tasks that an operator gave up.
    pub(crate) fn len(&self) -> usize {
        let unknown = self.unknown.values().filter(|unknown| !unknown.given_up).count();
        self.absent.len() + self.unclaimed.len() + unknown
    }

    /// Returns `true` if the node holds an unknown task, other than a tombstone.
    pub(crate) fn has_tasks(&self) -> bool {
        self.unknown.values().any(|unknown| !unknown.is_tombstone())
    }
}

impl Recovery {
    pub(crate) fn new(row: Option<RecoveryRow>) -> Self {
        Self { row, ..Self::default() }
    }

    /// Returns the time (monotonic) at which the recovery needs a tick: the gate opens, or the grace is over. `None`:
    /// nothing waits for a time.
    pub(crate) fn next_check(&self) -> Option<u64> {
        let gate = self.gate.as_ref().map(|gate| gate.until_ms);
        [gate, self.grace_ms].into_iter().flatten().min()
    }

    /// Returns `true` while a grace runs.
    pub(crate) fn is_on(&self) -> bool {
        self.row.as_ref().is_some_and(|row| row.ended_ms.is_none())
    }

    /// Returns `true` while the gate is shut after a start of the controller.
    pub(crate) const fn is_settling(&self) -> bool {
        self.gate.is_some()
    }
}

/// A task that a node holds and the store does not know.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Unknown {
    pub(crate) job: JobId,
    pub(crate) attempt: Attempt,
    pub(crate) action: ActionName,
    pub(crate) userid: Option<u32>,
    /// The task's state in the node's last report.
    pub(crate) state: HeldState,
    /// Time (monotonic) of the node's last report about the task.
    pub(crate) reported_ms: u64,
    /// The task's time limit; `None`: no limit, or none reported.
    pub(crate) limit_ms: Option<u64>,
    /// `true` if an operator has lifted the host's drain. The controller then acknowledges the task's end.
    pub(crate) given_up: bool,
}

impl Unknown {
    pub(crate) const fn is_tombstone(&self) -> bool {
        matches!(self.state, HeldState::Tombstone { .. })
    }

    /// Returns `true` if the node's tombstone says that the task went well.
    pub(crate) const fn went_well(&self) -> bool {
        matches!(&self.state, HeldState::Tombstone { outcome, .. } if outcome.went_well())
    }

    /// Returns the name of the task's state, for people.
    pub(crate) const fn as_str(&self) -> &'static str {
        match self.state {
            HeldState::Unclaimed => "unclaimed",
            HeldState::Live { .. } => "live",
            HeldState::Ended | HeldState::Tombstone { .. } => "ended",
        }
    }
}
