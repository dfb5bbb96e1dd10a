//! Tombstones that a node told of in its Hello, and whose tasks this store does not know: it was lost, or has pruned them. Another node may tell of
//! the same action while it lives; how it ended here is then known, whichever of the two comes first.

use std::collections::BTreeMap;

use crate::defect;
use crate::ids::TaskId;
use crate::message::HeldState;

/// Of one node. After a store was lost each node has as many as it ran tasks within the retention; most nodes have few.
const MAX_STONES: usize = 1_024;

/// Kept for the session: the next Hello tells of all again.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Stones {
    of: BTreeMap<TaskId, HeldState>,
    cut: bool,
}

impl Stones {
    pub(super) fn keep(&mut self, task: TaskId, stone: &HeldState) {
        if defect!(StoneForgotten) {
            return;
        }
        if self.of.len() < MAX_STONES {
            self.of.insert(task, stone.clone());
        } else {
            self.cut = true;
        }
    }

    pub(super) fn take(&mut self, task: TaskId) -> Option<HeldState> {
        self.of.remove(&task)
    }

    /// There were more than are kept: what is not here may have been told.
    pub(super) const fn is_cut(&self) -> bool {
        self.cut
    }
}
