//! Tombstones that a node told of in its Hello, and whose tasks this store does not know: it was lost, or has pruned them. Another node may tell of
//! the same action while it lives; how it ended here is then known, whichever of the two comes first.

use std::collections::{BTreeMap, BTreeSet};

use crate::defect;
use crate::ids::{Attempt, JobId, TaskId};
use crate::message::HeldState;

/// Of one node: as many as an agent keeps, where nothing else is configured. After a store was lost each node has as many as it ran tasks within the
/// retention; most nodes have few.
const MAX_STONES: usize = 4_096;

/// Kept until the next Hello, which tells of all again: also while their node is away.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Stones {
    /// With their limits, where a boot is to be their end.
    of: BTreeMap<TaskId, (HeldState, Option<u64>)>,
    /// The attempts that they are of.
    spoke: BTreeSet<(JobId, Attempt)>,
    cut: bool,
}

impl Stones {
    pub(super) fn keep(&mut self, task: TaskId, stone: &HeldState, limit_ms: Option<u64>) {
        if defect!(StoneForgotten) {
            return;
        }
        if self.of.len() < MAX_STONES || self.of.contains_key(&task) {
            self.of.insert(task, (stone.clone(), limit_ms));
        } else {
            self.cut = true;
        }
    }

    pub(super) fn spoke(&mut self, job: &JobId, attempt: Attempt) {
        if self.spoke.len() < MAX_STONES {
            self.spoke.insert((job.clone(), attempt));
        }
    }

    /// Was anything of this attempt there?
    pub(super) fn has_spoken(&self, job: &JobId, attempt: Attempt) -> bool {
        !self.spoke.is_empty() && self.spoke.contains(&(job.clone(), attempt))
    }

    pub(super) fn has(&self, task: TaskId) -> bool {
        self.of.contains_key(&task)
    }

    /// Did scripts of it run?
    pub(super) fn ran(&self, task: TaskId) -> bool {
        let ran = |stone: &HeldState| matches!(stone, HeldState::Tombstone { outcome, .. } if outcome.is_of_scripts());
        self.of.get(&task).is_some_and(|(stone, _)| ran(stone))
    }

    pub(super) fn take(&mut self, task: TaskId) -> Option<(HeldState, Option<u64>)> {
        self.of.remove(&task)
    }

    /// There were more than are kept: what is not here may have been told.
    pub(super) const fn is_cut(&self) -> bool {
        self.cut
    }
}
