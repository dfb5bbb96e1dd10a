//! Recovery: a store that may be behind what its nodes have obeyed begins, tells and releases nothing until its source
//! or an operator vouched for it.
//!
//! ```text
//!   start --> settling --all nodes said Hello, or a time passed--> open
//!      \         |                                                   |
//!       evidence: a stamp, the anchor, or nodes with commits that this store never made
//!                \------------------------> in recovery <-----------/
//!                                                \--everything was vouched for--> open
//! ```
//!
//! * **Settling.** After every start, attempts of the store are *unasserted* until the gate opens. A request for an
//!   attempt asserts it at once.
//! * **In recovery** an attempt is asserted by its source ([`Request::Assert`], `job add`, `run`, `job finish`), or by
//!   an operator ([`Request::Recover`]). The store records the others ([`AttemptRow::unvouched`]), so a restart changes
//!   nothing.
//! * **An unasserted attempt** is frozen: no Start, no Begin, no after-action, no release, no notice, no loss, limit,
//!   lease or verdict, and no pruning. Ends that nodes report are recorded.
//!
//! The rooms: `evidence` (is the store behind?), `gate` (freezing and thawing), `orphans` (tasks that the store does
//! not know), `assert` (an edge's list), `vouch` (hosts that the resource manager no longer holds), `confirm` (an
//! operator's word).
//!
//! [`Request::Assert`]: crate::controller::io::Request::Assert
//! [`Request::Recover`]: crate::controller::io::Request::Recover
//! [`AttemptRow::unvouched`]: crate::controller::io::AttemptRow::unvouched

mod assert;
mod confirm;
mod evidence;
mod gate;
mod orphans;
mod vouch;

use std::collections::{BTreeMap, BTreeSet};

use crate::controller::io::RecoveryRow;
use crate::ids::{Attempt, Epoch, HostName, JobId, TaskId};
use crate::mark::Commit;
use crate::message::HeldState;

pub(super) use gate::NOT_ASKED_AGAIN;
pub(super) use orphans::Orphan;

/// State of recovery beside the attempts.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Recovery {
    /// Stored row of the last recovery, even if it is over.
    pub(super) row: Option<RecoveryRow>,
    gate: Option<Gate>,
    /// Hosts that are not welcomed, with the foreign commit that each reported.
    pub(in crate::controller) suspects: BTreeMap<HostName, Commit>,
    /// Lives that nodes of this recovery have obeyed and the store never had: each counted as evidence once. At most
    /// [`MAX_JUDGED`].
    judged: BTreeSet<Epoch>,
    /// Hosts that a source, by its name, listed last for attempts that were refused: a job may be there. A new instance
    /// of the resource manager replaces what the former one listed.
    refused: BTreeMap<String, BTreeMap<HostName, (JobId, Attempt)>>,
    /// Names of the sources that have listed their attempts (`Assert`) in this life.
    asserted: BTreeSet<String>,
    /// Names of the sources whose edges have followed their attempts (`Attempts`) in this life.
    pub(super) followed: BTreeSet<String>,
    pub(in crate::controller) orphan_hosts: BTreeSet<HostName>,
    /// When hosts with orphans are drained (monotonic); `None`: no orphan waits for that.
    orphans_ms: Option<u64>,
    /// Attempts with unreleased ranks that the resource manager no longer holds for them.
    cleaning: BTreeSet<(JobId, Attempt)>,
}

/// Condition for ending the wait after a start.
#[derive(Debug, Clone, PartialEq)]
struct Gate {
    until_ms: u64,
    /// Nodes of the store that have not said Hello.
    missing: BTreeSet<HostName>,
}

/// Unfinished part of a node's last Hello.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Unsettled {
    /// Tasks of unasserted attempts that the node does not hold.
    absent: BTreeSet<TaskId>,
    /// The node's tasks of unasserted attempts that wait for a Begin.
    unclaimed: BTreeSet<TaskId>,
    /// The node's tasks that this store does not know and never pruned.
    pub(super) orphans: BTreeMap<TaskId, Orphan>,
    /// Tombstones of such tasks: they answer for an after-action.
    tombstones: BTreeMap<TaskId, HeldState>,
}

impl Unsettled {
    /// Forgets a task whose attempt is forgotten.
    pub(super) fn forget(&mut self, task: TaskId) {
        self.absent.remove(&task);
        self.unclaimed.remove(&task);
    }

    /// Returns how many tasks wait for somebody. An orphan that was given up waits only for its node.
    pub(super) fn len(&self) -> usize {
        let orphans = self.orphans.values().filter(|orphan| !orphan.given_up).count();
        self.absent.len() + self.unclaimed.len() + orphans + self.tombstones.len()
    }
}

/// Most lives that count as evidence in one recovery; forged marks of more are ignored.
const MAX_JUDGED: usize = 16;

impl Recovery {
    fn has_judged(&self, epoch: Epoch) -> bool {
        self.judged.contains(&epoch) || self.judged.len() >= MAX_JUDGED
    }

    /// Records the lives that suspects reported, so that each is evidence once.
    fn judge_suspects(&mut self) {
        let epochs = self.suspects.values().map(|commit| commit.epoch);
        self.judged.extend(epochs.take(MAX_JUDGED.saturating_sub(self.judged.len())));
    }

    pub(super) fn is_on(&self) -> bool {
        self.row.as_ref().is_some_and(|row| row.ended_ms.is_none())
    }

    pub(super) const fn is_settling(&self) -> bool {
        self.gate.is_some()
    }

    /// Returns `true` if an attempt may be frozen.
    fn freezes(&self) -> bool {
        self.is_settling() || self.is_on()
    }
}
