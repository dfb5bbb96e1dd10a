//! Recovery: what the controller does with a store that is behind what its nodes have accepted, for example after a
//! restore from a backup. The store's facts stay. Its debts are dropped: the controller *abandons* each attempt that is
//! not released whole. It begins, sends and releases nothing of an abandoned attempt, until a request for that attempt
//! arrives again and so *takes it up*: an edge's list, a hook or `perilog run` that waits, or an operator.
//!
//! ```text
//!   start --> gate shut --all nodes said Hello, or a time passed--> gate open
//!      \                                                               |
//!       evidence: a copy's stamp, the anchor, or nodes with commits that this store never made
//!                \------> new generation, grace begins <--------------/
//!                              \--the grace is over--> hosts are judged: unknown tasks, missing clean-ups
//! ```
//!
//! * **The gate.** After every start, the attempts of the store are *suspended* until the gate opens: the controller
//!   begins, sends and releases no pending work of the store. A request for an attempt lets it proceed at once.
//! * **A generation** is one commit that abandons all attempts ([`generation`]). Abandoned attempts are suspended too.
//! * **The grace** is the time in which the askers come back. Drains for unknown tasks and missing clean-ups wait until
//!   it is over.
//! * **A lost epoch** is an epoch of the controller whose commits this store lacks. Tasks of a lost epoch may run on
//!   nodes.
//! * **An unknown task** is a task that a node holds and the store lacks, or of an attempt that no request has taken
//!   up.
//!
//! Files: `evidence` (is the store behind?), `gate` (the wait after a start), `generation` (abandoning and taking up),
//! `held_back` (why a task waits), `unknown` (tasks that the store lacks), `missing` (clean-ups that may not have run),
//! `give_up` (ranks whose hosts another job has).

mod evidence;
mod gate;
mod generation;
mod give_up;
mod held_back;
mod missing;
mod unknown;

use std::collections::{BTreeMap, BTreeSet};

use crate::controller::io::RecoveryRow;
use crate::defect;
use crate::ids::{Attempt, HostName, JobId, TaskId};
use crate::mark::Commit;

pub(super) use held_back::suspended;
pub(super) use unknown::Unknown;

/// State of the gate and of the recovery, except the flags that each attempt has for itself.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Recovery {
    /// The stored row of the last generation, even if its grace is over.
    pub(super) row: Option<RecoveryRow>,
    gate: Option<Gate>,
    /// Key: a host that got no Welcome. Value: the newest commit of its node, which this store never made. A second
    /// such host is evidence that the store is behind.
    pub(crate) suspects: BTreeMap<HostName, Commit>,
    /// Time (monotonic) at which the grace is over; `None`: no grace runs.
    grace_ms: Option<u64>,
}

/// The gate of a start: it opens at `until_ms` (monotonic), or when no node is missing.
#[derive(Debug, Clone, PartialEq)]
struct Gate {
    until_ms: u64,
    /// Nodes of the store that have not said Hello yet.
    missing: BTreeSet<HostName>,
}

/// Tasks that the last Hello of a node named and the store lacks, and tasks that wait for their attempts to proceed.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Unsettled {
    /// Tasks of suspended attempts that the node does not hold.
    pub(super) absent: BTreeSet<TaskId>,
    /// Unclaimed tasks on the node that must not begin yet.
    pub(super) unclaimed: BTreeSet<TaskId>,
    /// Unknown tasks of the node, tombstones included. Tombstones are dropped when the host was judged.
    pub(super) unknown: BTreeMap<TaskId, Unknown>,
    /// Attempts whose clean-up may not have run on the host, judged after the grace ([`missing`]).
    pub(super) uncleaned: BTreeSet<(JobId, Attempt)>,
}

impl Unsettled {
    /// Removes a task from the unsettled tasks, because the controller forgets its attempt. The node's tombstone of the
    /// task goes too: an attempt that was taken up after the node was judged leaves it.
    pub(super) fn forget(&mut self, task: TaskId) {
        self.absent.remove(&task);
        self.unclaimed.remove(&task);
        if defect!(TombstoneStays) {
        } else if self.unknown.get(&task).is_some_and(Unknown::is_tombstone) {
            self.unknown.remove(&task);
        }
    }

    /// Drops the tombstones of unknown attempts whose clean-up is known to be missing: the node reports them anew when
    /// it comes back. A grace keeps tombstones, because they name the newest attempt of a job.
    pub(super) fn drop_judged(&mut self) {
        self.unknown.retain(|_, of| !of.is_tombstone() || !self.uncleaned.contains(&(of.job.clone(), of.attempt)));
    }

    /// Returns the number of entries, without unknown tasks that an operator gave up.
    pub(super) fn len(&self) -> usize {
        let unknown = self.unknown.values().filter(|unknown| !unknown.given_up).count();
        self.absent.len() + self.unclaimed.len() + unknown
    }

    /// Returns `true` if the node holds an unknown task, other than a tombstone.
    fn has_tasks(&self) -> bool {
        self.unknown.values().any(|unknown| !unknown.is_tombstone())
    }
}

impl Recovery {
    pub(super) fn new(row: Option<RecoveryRow>) -> Self {
        Self { row, ..Self::default() }
    }

    /// Returns the time (monotonic) at which the recovery needs a tick: the gate opens, or the grace is over. `None`:
    /// nothing waits for a time.
    pub(super) fn next_check(&self) -> Option<u64> {
        let gate = self.gate.as_ref().map(|gate| gate.until_ms);
        [gate, self.grace_ms].into_iter().flatten().min()
    }

    /// Returns `true` while a grace runs.
    pub(super) fn is_on(&self) -> bool {
        self.row.as_ref().is_some_and(|row| row.ended_ms.is_none())
    }

    /// Returns `true` while the gate is shut after a start of the controller.
    pub(super) const fn is_settling(&self) -> bool {
        self.gate.is_some()
    }
}
