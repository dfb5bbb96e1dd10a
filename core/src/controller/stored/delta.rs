//! Deltas of rows. A delta has the changed ranks of an action or attempt, without the unchanged ranks. The store gets
//! deltas while ranks end one by one.
//!
//! A row contains all its ranks. If thousands of ranks end in any order, their sets are scattered, and the row is a
//! text of a hundred kilobytes. A whole row for every ended rank would add up to gigabytes. So the machine stores a
//! whole row only in three cases: this controller has not stored the row yet, another field changes, or the deltas
//! since the last whole row weigh as much as the row.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::controller::stored::rows::{ActionRow, AttemptRow};
use crate::ids::Rank;
use crate::idset::IdSet;

/// Delta of an action's row. Each field has the part of the field in [`ActionRow`] that concerns `ranks`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ActionDelta {
    /// The ranks of this delta.
    pub ranks: IdSet,
    #[serde(skip_serializing_if = "IdSet::is_empty")]
    pub waiting: IdSet,
    #[serde(skip_serializing_if = "IdSet::is_empty")]
    pub sent: IdSet,
    #[serde(skip_serializing_if = "IdSet::is_empty")]
    pub accepted: IdSet,
    #[serde(skip_serializing_if = "IdSet::is_empty")]
    pub ok: IdSet,
    #[serde(rename = "ended", skip_serializing_if = "IdSet::is_empty")]
    pub not_ok: IdSet,
    #[serde(skip_serializing_if = "IdSet::is_empty")]
    pub cancelling: IdSet,
    #[serde(skip_serializing_if = "IdSet::is_empty")]
    pub held: IdSet,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub boots: BTreeMap<u32, IdSet>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub overdue: BTreeMap<String, IdSet>,
    #[serde(skip_serializing_if = "IdSet::is_empty")]
    pub lingering: IdSet,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub limits: BTreeMap<u64, IdSet>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub remarks: BTreeMap<String, IdSet>,
}

/// Change to an attempt's row, for a few of its ranks: which of them the job now holds, which are released, and handed
/// over (`left`).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct AttemptDelta {
    /// The ranks that this change concerns.
    pub ranks: IdSet,
    /// Ranks that the job itself holds.
    #[serde(skip_serializing_if = "IdSet::is_empty")]
    pub hold: IdSet,
    #[serde(skip_serializing_if = "IdSet::is_empty")]
    pub released: IdSet,
    /// Ranks that the job handed over while it kept others. Until such a rank is released, it normally must still
    /// report each milestone before the job reaches it.
    #[serde(skip_serializing_if = "IdSet::is_empty")]
    pub left: IdSet,
}

impl ActionDelta {
    /// Returns the estimated size of this delta in the store, in bytes.
    pub(crate) fn estimated_bytes(&self) -> usize {
        let Self {
            ranks,
            waiting,
            sent,
            accepted,
            ok,
            not_ok,
            cancelling,
            held,
            boots,
            overdue,
            lingering,
            limits,
            remarks,
        } = self;
        let sets = [ranks, waiting, sent, accepted, ok, not_ok, cancelling, held, lingering];
        sum_sizes(
            sets.into_iter()
                .chain(boots.values())
                .chain(overdue.values())
                .chain(limits.values())
                .chain(remarks.values()),
        )
    }
}

fn sum_sizes<'a>(sets: impl Iterator<Item = &'a IdSet>) -> usize {
    /// Estimated size (bytes) of a range of ranks as text, with its comma.
    const RANGE: usize = 8;
    /// Estimated size (bytes) of a delta's or row's text without its ranges of ranks: field names, numbers,
    /// punctuation.
    const AROUND: usize = 32;
    AROUND + RANGE * sets.map(IdSet::pieces).sum::<usize>()
}

impl ActionRow {
    /// Returns the delta that has the state of `ranks` in this row: their rank states, holds, boots, limits and so on.
    pub fn delta(&self, ranks: &IdSet) -> ActionDelta {
        let of = |set: &IdSet| set.intersection(ranks);
        ActionDelta {
            ranks: ranks.clone(),
            waiting: of(&self.waiting),
            sent: of(&self.sent),
            accepted: of(&self.accepted),
            ok: of(&self.ok),
            not_ok: of(&self.not_ok),
            cancelling: of(&self.cancelling),
            held: of(&self.held.ranks),
            boots: within(&self.boots, ranks),
            overdue: within(&self.overdue, ranks),
            lingering: of(&self.lingering),
            limits: within(&self.limits, ranks),
            remarks: within(&self.remarks, ranks),
        }
    }

    /// Applies the delta `part`: for its ranks, replaces the rank states, the holds and every other value of this row.
    /// The same delta may be applied twice: the second time changes nothing.
    pub fn put(&mut self, part: &ActionDelta) {
        let ActionDelta {
            ranks,
            waiting,
            sent,
            accepted,
            ok,
            not_ok,
            cancelling,
            held,
            boots,
            overdue,
            lingering,
            limits,
            remarks,
        } = part;
        for (set, part) in [
            (&mut self.waiting, waiting),
            (&mut self.sent, sent),
            (&mut self.accepted, accepted),
            (&mut self.ok, ok),
            (&mut self.not_ok, not_ok),
            (&mut self.cancelling, cancelling),
            (&mut self.held.ranks, held),
            (&mut self.lingering, lingering),
        ] {
            replace(set, ranks, part);
        }
        replace_in(&mut self.boots, ranks, boots);
        replace_in(&mut self.overdue, ranks, overdue);
        replace_in(&mut self.limits, ranks, limits);
        replace_in(&mut self.remarks, ranks, remarks);
    }

    /// Returns the estimated size of the action's whole row in the store, in bytes.
    pub(crate) fn estimated_bytes(&self) -> usize {
        let sets = [&self.ranks, &self.waiting, &self.sent, &self.accepted, &self.ok, &self.not_ok];
        let sets = sets.into_iter().chain([&self.cancelling, &self.held.ranks, &self.lingering]);
        let sets = sets.chain(self.boots.values()).chain(self.overdue.values()).chain(self.limits.values());
        let sets = sets.chain(self.remarks.values());
        let env: usize = self.env.iter().map(|(name, value)| name.len() + value.len()).sum();
        sum_sizes(sets) + env
    }
}

impl AttemptRow {
    /// Applies the delta `part`: for its ranks, replaces what the job holds, has handed over or released.
    /// The same delta may be applied twice: the second time changes nothing.
    pub fn put(&mut self, part: &AttemptDelta) {
        let AttemptDelta { ranks, hold, released, left } = part;
        replace(&mut self.hold.ranks, ranks, hold);
        replace(&mut self.released.ranks, ranks, released);
        replace(self.milestones.left_mut(), ranks, left);
    }
}

fn replace(set: &mut IdSet, ranks: &IdSet, part: &IdSet) {
    set.subtract(ranks);
    set.extend_with(part);
}

/// Applies a delta to the sets of ranks: removes `ranks` from every set, then adds each set of `parts` to the set with
/// its key. Drops sets that are empty afterwards.
fn replace_in<K: Ord + Clone>(sets: &mut BTreeMap<K, IdSet>, ranks: &IdSet, parts: &BTreeMap<K, IdSet>) {
    sets.values_mut().for_each(|set| set.subtract(ranks));
    for (key, part) in parts {
        sets.entry(key.clone()).or_default().extend_with(part);
    }
    sets.retain(|_, set| !set.is_empty());
}

/// Returns the delta of the sets of ranks: of each set, the members that are in `ranks`. Leaves empty sets out.
fn within<K: Ord + Clone>(sets: &BTreeMap<K, IdSet>, ranks: &IdSet) -> BTreeMap<K, IdSet> {
    let parts = sets.iter().map(|(key, set)| (key.clone(), set.intersection(ranks)));
    parts.filter(|(_, part)| !part.is_empty()).collect()
}

/// Takes a rank out of each set. Drops empty sets.
pub(crate) fn take_out<K: Ord>(sets: &mut BTreeMap<K, IdSet>, rank: Rank) {
    sets.retain(|_, set| {
        set.remove(rank.0);
        !set.is_empty()
    });
}
