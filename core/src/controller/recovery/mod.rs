//! Recovery: a store may be behind what its nodes have obeyed. Then the controller begins no task, sends no notice and
//! releases no rank until a source or an operator has vouched.
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
//! * **In recovery**, an attempt is asserted by its source ([`Request::Assert`], `job add`, `run`, `job finish`), or by
//!   an operator ([`Request::Recover`]). The store records which attempts are unvouched ([`AttemptRow::unvouched`]), so
//!   a restart changes nothing.
//! * **An unasserted attempt** is frozen: no Start, no Begin, no after-action, no release, no notice, no loss, limit,
//!   lease or verdict, and no pruning. Ends that nodes report are recorded.
//!
//! The files: `evidence` (is the store behind?), `gate` (freezing and thawing), `held_back` (why a task waits),
//! `orphans` (tasks that the store does not know), `assert` (an edge's list), `disowned` (hosts of disowned ranks),
//! `confirm` (an operator's statement), `close` (parts that the lost life had released).
//!
//! [`Request::Assert`]: crate::controller::io::Request::Assert
//! [`Request::Recover`]: crate::controller::io::Request::Recover
//! [`AttemptRow::unvouched`]: crate::controller::io::AttemptRow::unvouched

mod assert;
mod close;
mod confirm;
mod disowned;
mod evidence;
mod gate;
mod held_back;
mod orphans;

use std::collections::{BTreeMap, BTreeSet};

use crate::controller::io::{RecoveryRow, Source};
use crate::ids::{Attempt, Epoch, HostName, JobId, TaskId};
use crate::mark::Commit;
use crate::message::HeldState;

pub(super) use gate::NOT_ASKED_AGAIN;
pub(super) use orphans::Orphan;

/// State of a recovery, apart from the state of each attempt.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Recovery {
    /// Stored row of the last recovery, even if the recovery is over.
    pub(super) row: Option<RecoveryRow>,
    gate: Option<Gate>,
    /// Hosts that are not welcomed, each with the reported commit that this store never made.
    pub(crate) suspects: BTreeMap<HostName, Commit>,
    /// Lives that nodes have obeyed and this store never had. Each life counts as evidence once in this recovery. At
    /// most [`MAX_JUDGED`].
    judged: BTreeSet<Epoch>,
    /// Hosts of refused attempts in the last list of each source: a job may run there.
    refused: BTreeMap<Source, BTreeMap<HostName, (JobId, Attempt)>>,
    /// Sources that have listed their attempts (`Assert`) in this life. The list of another instance of the same name
    /// says nothing about an attempt.
    asserted: BTreeSet<Source>,
    /// Sources whose edges have followed their attempts (`Attempts`) in this life.
    pub(super) followed: BTreeSet<Source>,
    /// Time (monotonic) at which hosts with orphans are drained; `None`: no orphan waits for a drain.
    orphans_ms: Option<u64>,
}

/// The wait after a start, and the conditions that end the wait.
#[derive(Debug, Clone, PartialEq)]
struct Gate {
    until_ms: u64,
    /// Nodes of the store that have not said Hello.
    missing: BTreeSet<HostName>,
}

/// The part of a node's last Hello that is not settled.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Unsettled {
    /// Tasks of unasserted attempts that the node does not hold.
    pub(super) absent: BTreeSet<TaskId>,
    /// Unclaimed tasks on the node that must not begin yet.
    pub(super) unclaimed: BTreeSet<TaskId>,
    /// The node's orphans: tasks that the store neither knows nor has pruned.
    pub(super) orphans: BTreeMap<TaskId, Orphan>,
    /// Tombstones of unknown tasks. A tombstone can be the outcome of an after-action.
    tombstones: BTreeMap<TaskId, HeldState>,
}

impl Unsettled {
    /// Returns `true` if the node has reported, while the task's attempt is frozen, that it does not hold the task.
    pub(super) fn is_absent(&self, task: TaskId) -> bool {
        self.absent.contains(&task)
    }

    /// Forgets a task, because its attempt is forgotten.
    pub(super) fn forget(&mut self, task: TaskId) {
        self.absent.remove(&task);
        self.unclaimed.remove(&task);
    }

    /// Returns the number of unsettled tasks. An orphan that was given up does not count: only its node must still
    /// report.
    pub(super) fn len(&self) -> usize {
        let orphans = self.orphans.values().filter(|orphan| !orphan.given_up).count();
        self.absent.len() + self.unclaimed.len() + orphans + self.tombstones.len()
    }
}

/// Maximum number of lives that count as evidence in one recovery; the controller ignores forged marks of further
/// lives.
const MAX_JUDGED: usize = 16;

impl Recovery {
    fn has_judged(&self, epoch: Epoch) -> bool {
        self.judged.contains(&epoch) || self.judged.len() >= MAX_JUDGED
    }

    /// Records the lives that suspects reported: each life is evidence once.
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

    /// Returns `true` while the controller settles or is in recovery: attempts can be frozen then.
    fn freezes(&self) -> bool {
        self.is_settling() || self.is_on()
    }
}
