//! Quota: how many ranks or hosts a batch changes by itself. A job of 65,536 ranks begins, and is lost, at once. In one
//! batch that would be a transaction of as many rows, and no request would be answered meanwhile.
//!
//! ```text
//!   ranks that may begin, ranks whose limit has passed, hosts of a request
//!        │ the first ones, up to the quota ──> this batch
//!        └ the others ──> later ──(the next batch goes on at once, beside new inputs)
//! ```
//! What is left for later is in memory only. A rank that may begin waits for its Start in the store too, and a limit
//! that has passed passes again, so a restarted controller carries on with both. A request has its reply only when all
//! of it is done.

use std::collections::BTreeMap;

use crate::controller::state::change::Change;
use crate::controller::state::drain_order::DrainOrder;
use crate::defect;
use crate::ids::ActionId;
use crate::idset::IdSet;

/// Maximum number of ranks or hosts that a batch starts, loses or drains by itself: as many as the inputs of a batch of
/// the daemon can end. Each of them is two rows at most.
pub(crate) const RANKS: u64 = 1_024;

/// What the present batch may still change by itself, and what is left for the next batches.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Quota {
    most: u64,
    left: u64,
    /// By action: the earliest time (monotonic, ms) from which the limits of these ranks count, and the waiting ranks
    /// that a later batch checks and starts.
    starts: BTreeMap<ActionId, (u64, IdSet)>,
    /// Requests with hosts left, each of a client that waits for its reply.
    unfinished: Vec<DrainOrder>,
}

impl Default for Quota {
    fn default() -> Self {
        Self { most: RANKS, left: RANKS, starts: BTreeMap::new(), unfinished: Vec::new() }
    }
}

impl Quota {
    /// Sets the quota of each batch, at least 1. Tests set a low one, so that they need no large job.
    pub(crate) fn set(&mut self, most: u64) {
        self.most = most.max(1);
        self.left = self.left.min(self.most);
    }

    /// Begins a batch. Returns what the batches before have left for it.
    pub(crate) fn begin(&mut self) -> impl Iterator<Item = Change> + use<> {
        self.left = self.most;
        let starts = std::mem::take(&mut self.starts).into_iter();
        let starts = starts.map(|(id, (since_ms, ranks))| Change::Continuing(id, ranks, since_ms));
        std::mem::take(&mut self.unfinished).into_iter().map(|order| Change::Ordered(Box::new(order))).chain(starts)
    }

    /// Returns how many ranks or hosts the batch may still change.
    pub(crate) fn left(&self) -> u64 {
        if defect!(BatchUnbounded) { u64::MAX } else { self.left }
    }

    pub(crate) fn spend(&mut self, count: u64) {
        self.left = self.left.saturating_sub(count);
    }

    /// Leaves the Starts of these ranks for a later batch.
    pub(crate) fn start_later(&mut self, id: ActionId, ranks: &IdSet, since_ms: u64) {
        if defect!(RestForgotten) {
            return;
        }
        if ranks.is_empty() {
            return;
        }
        let (since, later) = self.starts.entry(id).or_insert_with(|| (since_ms, IdSet::new()));
        *since = since_ms.min(*since);
        later.extend_with(ranks);
    }

    /// Leaves the rest of an order for a later batch.
    pub(crate) fn carry_out_later(&mut self, order: DrainOrder) {
        if !defect!(RestForgotten) {
            self.unfinished.push(order);
        }
    }

    /// Returns `true` if the next batch has something to go on with.
    pub(crate) fn continues(&self) -> bool {
        !(self.starts.is_empty() && self.unfinished.is_empty())
    }
}
