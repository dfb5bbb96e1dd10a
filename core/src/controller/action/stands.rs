//! Deltas of rows. A delta has the changed ranks of an action or attempt, without the unchanged ranks. The store gets
//! deltas while ranks end one by one.
//!
//! A row contains all its ranks. If thousands of ranks end in any order, their sets are scattered, and the row is a
//! text of a hundred kilobytes. A whole row for every ended rank would add up to gigabytes. So the machine stores a
//! whole row only in two cases: another field changes, or the deltas since the last whole row weigh as much as the row.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::controller::io::{ActionRow, AttemptRow};
use crate::idset::IdSet;

/// Delta of an action's row. Each field has the part of the field in [`ActionRow`] that concerns `ranks`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Stands {
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
    #[serde(skip_serializing_if = "IdSet::is_empty")]
    pub ended: IdSet,
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

/// Delta of an attempt's row: the holds of `ranks`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Holds {
    /// The ranks of this delta.
    pub ranks: IdSet,
    /// Ranks that the job itself holds.
    #[serde(skip_serializing_if = "IdSet::is_empty")]
    pub hold: IdSet,
    #[serde(skip_serializing_if = "IdSet::is_empty")]
    pub released: IdSet,
    /// Ranks that the job handed over while it kept others. Once such a rank is released, no milestone waits for it.
    #[serde(skip_serializing_if = "IdSet::is_empty")]
    pub left: IdSet,
    /// Ranks that the resource manager no longer holds for the attempt.
    #[serde(skip_serializing_if = "IdSet::is_empty")]
    pub disowned: IdSet,
}

impl Stands {
    /// Returns the estimated size in the store, in bytes.
    pub(crate) fn weight(&self) -> usize {
        let Self {
            ranks,
            waiting,
            sent,
            accepted,
            ok,
            ended,
            cancelling,
            held,
            boots,
            overdue,
            lingering,
            limits,
            remarks,
        } = self;
        let sets = [ranks, waiting, sent, accepted, ok, ended, cancelling, held, lingering];
        weigh(
            sets.into_iter()
                .chain(boots.values())
                .chain(overdue.values())
                .chain(limits.values())
                .chain(remarks.values()),
        )
    }
}

fn weigh<'a>(sets: impl Iterator<Item = &'a IdSet>) -> usize {
    /// Estimated size (bytes) of a range of ranks as text, with its comma.
    const RANGE: usize = 8;
    /// Estimated size (bytes) of field names, numbers and punctuation.
    const AROUND: usize = 32;
    AROUND + RANGE * sets.map(IdSet::pieces).sum::<usize>()
}

impl ActionRow {
    /// Returns the states of `ranks`, as a delta of the action's row.
    pub fn stands(&self, ranks: &IdSet) -> Stands {
        let of = |set: &IdSet| set.intersection(ranks);
        let boots = self.boots.iter().map(|(number, set)| (*number, of(set))).filter(|(_, set)| !set.is_empty());
        let overdue = self.overdue.iter().map(|(script, set)| (script.clone(), of(set)));
        let limits = self.limits.iter().map(|(limit, set)| (*limit, of(set))).filter(|(_, set)| !set.is_empty());
        let remarks = self.remarks.iter().map(|(text, set)| (text.clone(), of(set)));
        Stands {
            ranks: ranks.clone(),
            waiting: of(&self.waiting),
            sent: of(&self.sent),
            accepted: of(&self.accepted),
            ok: of(&self.ok),
            ended: of(&self.ended),
            cancelling: of(&self.cancelling),
            held: of(&self.held.ranks),
            boots: boots.collect(),
            overdue: overdue.filter(|(_, set)| !set.is_empty()).collect(),
            lingering: of(&self.lingering),
            limits: limits.collect(),
            remarks: remarks.filter(|(_, set)| !set.is_empty()).collect(),
        }
    }

    /// Applies a delta: replaces the states of the delta's ranks. A delta may be applied twice.
    pub fn put(&mut self, part: &Stands) {
        let Stands {
            ranks,
            waiting,
            sent,
            accepted,
            ok,
            ended,
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
            (&mut self.ended, ended),
            (&mut self.cancelling, cancelling),
            (&mut self.held.ranks, held),
            (&mut self.lingering, lingering),
        ] {
            replace(set, ranks, part);
        }
        self.boots.values_mut().for_each(|set| set.subtract(ranks));
        for (number, part) in boots {
            self.boots.entry(*number).or_default().extend_with(part);
        }
        self.boots.retain(|_, set| !set.is_empty());
        self.overdue.values_mut().for_each(|set| set.subtract(ranks));
        for (script, part) in overdue {
            self.overdue.entry(script.clone()).or_default().extend_with(part);
        }
        self.overdue.retain(|_, set| !set.is_empty());
        self.limits.values_mut().for_each(|set| set.subtract(ranks));
        for (limit, part) in limits {
            self.limits.entry(*limit).or_default().extend_with(part);
        }
        self.limits.retain(|_, set| !set.is_empty());
        self.remarks.values_mut().for_each(|set| set.subtract(ranks));
        for (text, part) in remarks {
            self.remarks.entry(text.clone()).or_default().extend_with(part);
        }
        self.remarks.retain(|_, set| !set.is_empty());
    }

    /// Returns the estimated size in the store, in bytes.
    pub(crate) fn weight(&self) -> usize {
        let sets = [&self.ranks, &self.waiting, &self.sent, &self.accepted, &self.ok, &self.ended];
        let sets = sets.into_iter().chain([&self.cancelling, &self.held.ranks, &self.lingering]);
        let sets = sets.chain(self.boots.values()).chain(self.overdue.values()).chain(self.limits.values());
        let sets = sets.chain(self.remarks.values());
        let env: usize = self.env.iter().map(|(name, value)| name.len() + value.len()).sum();
        weigh(sets) + env
    }
}

impl AttemptRow {
    /// Applies a delta: replaces the holds of the delta's ranks. A delta may be applied twice.
    pub fn put(&mut self, part: &Holds) {
        let Holds { ranks, hold, released, left, disowned } = part;
        replace(&mut self.hold.ranks, ranks, hold);
        replace(&mut self.released.ranks, ranks, released);
        replace(self.milestones.left_mut(), ranks, left);
        replace(&mut self.disowned, ranks, disowned);
    }
}

fn replace(set: &mut IdSet, ranks: &IdSet, part: &IdSet) {
    set.subtract(ranks);
    set.extend_with(part);
}
