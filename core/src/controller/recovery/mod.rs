//! Recovery: decides what the controller may do while its store may be behind what its nodes have obeyed, for example
//! after a restore from a backup. Then an edge, a request or an operator must vouch for an attempt first. Until then no
//! task of the attempt begins, no notice about it is sent and no rank of it is released.
//!
//! ```text
//!   start --> settling --all nodes said Hello, or a time passed--> open
//!      \         |                                                   |
//!       evidence: a copy's stamp, the anchor, or nodes with commits that this store never made
//!                \------------------------> in recovery <-----------/
//!                                                \--over (1)--> open
//! ```
//! 1. The gate is open, no attempt waits for an operator, an operator has given up every orphan that is left, and no
//!    agent refuses this controller's epoch.
//!
//! * **Settling.** After every start, the attempts of the store are *unasserted* until the gate opens. A request for an
//!   attempt asserts it at once.
//! * **In recovery**, an attempt is asserted by its source's edge ([`Request::Sync`], `job add`), by a request
//!   (`run`, `job finish`), or by an operator ([`Request::Recover`]). The store records which attempts are unvouched
//!   ([`AttemptRow::unvouched`]), so a restart changes nothing.
//! * **An unasserted attempt** is frozen: no Start, no Begin, no after-action, no release, no notice, no loss, no
//!   limit, no lease, no verdict, and no pruning. Ends that nodes report are recorded.
//! * **A lost life** is a life of the controller whose commits this store lacks. Tasks of a lost life may run on nodes,
//!   and the resource manager may have got its notices.
//! * **A bare `run`** is an attempt that `perilog run` opened without `job add`. No resource manager and no edge knows
//!   the attempt.
//!
//! Files: `evidence` (is the store behind?), `gate` (freezing and thawing), `held_back` (why a task waits), `orphans`
//! (tasks that the store does not know), `sync` (an edge's list), `pages` (its pages), `disowned` (hosts of disowned
//! ranks), `confirm` (an operator's statement), `close` (parts that a lost life had released).
//!
//! [`Request::Sync`]: crate::controller::io::Request::Sync
//! [`Request::Recover`]: crate::controller::io::Request::Recover
//! [`AttemptRow::unvouched`]: crate::controller::io::AttemptRow::unvouched

mod close;
mod confirm;
mod disowned;
mod evidence;
mod gate;
mod held_back;
mod orphans;
mod pages;
mod sync;

use std::collections::{BTreeMap, BTreeSet};

use crate::controller::io::{Now, RecoveryRow, Source};
use crate::ids::{Epoch, HostName, TaskId};
use crate::mark::Commit;
use crate::message::HeldState;

pub(super) use gate::NOT_ASKED_AGAIN;
pub(super) use orphans::Orphan;
use pages::Lists;

/// State of the recovery and of the gate, except the flags that each attempt has for itself.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Recovery {
    /// The stored row of the last recovery, even if that recovery is over.
    pub(super) row: Option<RecoveryRow>,
    gate: Option<Gate>,
    /// Key: a host that got no Welcome. Value: the newest commit of its node, which this store never made. A second
    /// such host is evidence that the store is behind.
    pub(crate) suspects: BTreeMap<HostName, Commit>,
    /// Lost lives whose commits were evidence in this recovery already. A further commit of such a life is no new
    /// evidence. At most [`MAX_JUDGED`] lives are kept.
    judged: BTreeSet<Epoch>,
    /// The lists of the edges (`Sync`). A list says nothing about other instances of the same resource manager.
    lists: Lists,
    /// Sources whose edges have asked for their attempts (`Attempts`) since their last list (`Sync`), or since this
    /// controller started. Such an edge learns of releases from the attempts and reads no notices. So a notice in the
    /// outbox does not mean that the edge has missed a release.
    pub(super) followed: BTreeSet<Source>,
    /// Time (monotonic) at which the controller drains the hosts of orphans; `None`: no such drain is due.
    orphans_ms: Option<u64>,
}

/// The gate of a start: it opens at `until_ms` (monotonic), or when no node is missing.
#[derive(Debug, Clone, PartialEq)]
struct Gate {
    until_ms: u64,
    /// Nodes of the store that have not said Hello yet.
    missing: BTreeSet<HostName>,
}

/// Tasks of one node about which the controller could not decide at the last Hello, for example because the Hello and
/// the store differ.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Unsettled {
    /// Tasks of frozen attempts that the node does not hold.
    pub(super) absent: BTreeSet<TaskId>,
    /// Unclaimed tasks on the node that must not begin yet.
    pub(super) unclaimed: BTreeSet<TaskId>,
    /// The node's orphans: tasks on the node that this store does not know.
    pub(super) orphans: BTreeMap<TaskId, Orphan>,
    /// Tombstones of tasks unknown to the store. A tombstone may become the outcome of an after-action that begins
    /// later.
    tombstones: BTreeMap<TaskId, HeldState>,
}

impl Unsettled {
    /// Removes a task from the unsettled tasks, because the controller forgets its attempt.
    pub(super) fn forget(&mut self, task: TaskId) {
        self.absent.remove(&task);
        self.unclaimed.remove(&task);
    }

    /// Returns the number of absent tasks, unclaimed tasks, tombstones and orphans, without orphans that an operator
    /// gave up.
    pub(super) fn len(&self) -> usize {
        let orphans = self.orphans.values().filter(|orphan| !orphan.given_up).count();
        self.absent.len() + self.unclaimed.len() + orphans + self.tombstones.len()
    }
}

/// Maximum number of lost lives that can be evidence in one recovery. Commits of further lives are ignored, because a
/// node can forge marks of any number of lives.
const MAX_JUDGED: usize = 16;

impl Recovery {
    pub(super) fn new(row: Option<RecoveryRow>, epoch: Epoch) -> Self {
        Self { row, lists: Lists::new(epoch), ..Self::default() }
    }

    /// Returns the time (monotonic) at which the next half list is dropped; `None`: no list is half.
    pub(super) fn next_drop_of_a_list(&self) -> Option<u64> {
        self.lists.next_drop()
    }

    /// Drops each half list whose edge has sent no further page in time.
    pub(super) fn drop_old_lists(&mut self, now: Now) {
        self.lists.drop_old(now);
    }

    /// Returns the number of the source's newest list; `None`: this controller has no whole list of the source.
    pub(super) fn list_of(&self, source: &Source) -> Option<u64> {
        self.lists.whole(source)
    }

    fn has_judged(&self, epoch: Epoch) -> bool {
        self.judged.contains(&epoch) || self.judged.len() >= MAX_JUDGED
    }

    /// Marks the lives of the suspects' newest commits as judged: further commits of such a life are no new evidence.
    /// At most [`MAX_JUDGED`] lives are judged.
    fn judge_suspects(&mut self) {
        let epochs = self.suspects.values().map(|commit| commit.epoch);
        self.judged.extend(epochs.take(MAX_JUDGED.saturating_sub(self.judged.len())));
    }

    /// Returns `true` if a recovery is under way.
    pub(super) fn is_on(&self) -> bool {
        self.row.as_ref().is_some_and(|row| row.ended_ms.is_none())
    }

    /// Returns `true` while the gate is shut after a start of the controller.
    pub(super) const fn is_settling(&self) -> bool {
        self.gate.is_some()
    }

    /// Returns `true` if attempts can be frozen: the gate is still shut after a start, or a recovery is under way.
    fn freezes(&self) -> bool {
        self.is_settling() || self.is_on()
    }
}
