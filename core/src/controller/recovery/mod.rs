//! A store that may be behind what its nodes have obeyed begins, tells and gives back nothing until somebody vouched for it.
//!
//! ```text
//!   start --> settling --all nodes said Hello, or a while passed--> open
//!      \         |                                                   |
//!       evidence: a stamp, the anchor, or nodes with commits that this store never made
//!                \------------------------> in recovery <-----------/
//!                                                \--everything was vouched for--> open
//! ```
//!
//! * **Settling.** After every start, attempts of the store are *unasserted* until the gate opens. A request that means an attempt asserts that one
//!   at once.
//! * **In recovery** an attempt is asserted by its source ([`Request::Assert`], `job add`, `run`, `job finish`), or by a person
//!   ([`Request::Recover`]). The store keeps which ones are not ([`AttemptRow::unvouched`]), so a restart changes nothing.
//! * **An unasserted attempt** is frozen: no Start, no Begin, no after-action, no release, no telling, no loss, limit, lease or verdict, and it is
//!   not pruned. Ends that nodes report are recorded.
//!
//! The rooms: `evidence` (is the store behind?), `gate` (what is frozen, and how it thaws), `orphans` (tasks that the store does not know), `assert`
//! (what an edge says), `vouch` (hosts that the resource manager holds no more), `confirm` (what a person says).
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

pub(super) use orphans::Orphan;

/// What the machine knows of recovery beside its attempts.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Recovery {
    /// As stored: the last recovery, also one that is over.
    pub(super) row: Option<RecoveryRow>,
    gate: Option<Gate>,
    /// Hosts that are not welcomed, with the foreign commit that each told.
    suspects: BTreeMap<HostName, Commit>,
    /// Lives that the nodes of this recovery have obeyed, and that its store never had: each was evidence once. At most [`MAX_JUDGED`].
    judged: BTreeSet<Epoch>,
    orphan_hosts: BTreeSet<HostName>,
    /// When hosts with orphans are drained (monotonic); `None`: no orphan waits for that.
    orphans_ms: Option<u64>,
    /// Attempts with ranks that the resource manager does not hold for them any more, and that are not given back.
    cleaning: BTreeSet<(JobId, Attempt)>,
}

/// What a start waits for before what was owed goes on.
#[derive(Debug, Clone, PartialEq)]
struct Gate {
    until_ms: u64,
    /// Nodes of the store that have not said Hello.
    missing: BTreeSet<HostName>,
}

/// What a node's last Hello left open.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Unsettled {
    /// Tasks of unasserted attempts that the node does not hold.
    absent: BTreeSet<TaskId>,
    /// Its tasks of unasserted attempts that wait for a Begin.
    unclaimed: BTreeSet<TaskId>,
    /// Its tasks that this store does not know and never pruned.
    pub(super) orphans: BTreeMap<TaskId, Orphan>,
    /// Tombstones of such tasks: they answer for an after-action.
    tombstones: BTreeMap<TaskId, HeldState>,
}

impl Unsettled {
    pub(super) fn len(&self) -> usize {
        self.absent.len() + self.unclaimed.len() + self.orphans.len() + self.tombstones.len()
    }
}

/// Lives that are evidence in one recovery. Whoever forges marks of more has them ignored.
const MAX_JUDGED: usize = 16;

impl Recovery {
    fn has_judged(&self, epoch: Epoch) -> bool {
        self.judged.contains(&epoch) || self.judged.len() >= MAX_JUDGED
    }

    /// Remembers what the suspects have told, so that it is evidence once.
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

    /// May anything be frozen?
    fn freezes(&self) -> bool {
        self.is_settling() || self.is_on()
    }
}
