//! What is to be carried on, by who carries it and in order. A hook that was away for a day finds a job's thousands of releases here, and takes
//! them one by one: none of that walks all of them.

use std::collections::{BTreeMap, BTreeSet};

use crate::controller::io::{Edge, OutboxEntry};
use crate::defect;
use crate::ids::{Attempt, JobId};

#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Outbox {
    entries: BTreeMap<(Edge, u64), OutboxEntry>,
    /// What waits for the release hook, by job.
    hooked: BTreeMap<JobId, BTreeSet<u64>>,
}

impl Outbox {
    pub(super) fn of(entries: Vec<OutboxEntry>) -> Self {
        let mut outbox = Self::default();
        entries.into_iter().for_each(|entry| outbox.push(entry));
        outbox
    }

    pub(super) fn push(&mut self, entry: OutboxEntry) {
        if entry.edge == Edge::ReleaseHook {
            self.hooked.entry(entry.job.clone()).or_default().insert(entry.sequence);
        }
        self.entries.insert((entry.edge, entry.sequence), entry);
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// For the resource manager, past that sequence.
    pub(super) fn manager(&self, after: u64) -> impl Iterator<Item = &OutboxEntry> {
        let from = (Edge::Manager, after.saturating_add(1));
        self.entries.range(from..=(Edge::Manager, u64::MAX)).map(|(_, entry)| entry)
    }

    /// For the release hook.
    pub(super) fn releases(&self) -> impl Iterator<Item = &OutboxEntry> {
        self.entries.range((Edge::ReleaseHook, 0)..).map(|(_, entry)| entry)
    }

    /// Of each job the oldest that the release hook has not carried out: the next one only after it, so that they come in order.
    pub(super) fn oldest_releases(&self, limit: usize) -> Vec<OutboxEntry> {
        let first = |of: &BTreeSet<u64>| if defect!(ReleasesOutOfOrder) { of.last() } else { of.first() }.copied();
        let mut oldest: Vec<u64> = self.hooked.values().filter_map(first).collect();
        oldest.sort_unstable();
        let entry = |sequence| self.entries.get(&(Edge::ReleaseHook, sequence)).cloned();
        oldest.into_iter().take(limit).filter_map(entry).collect()
    }

    /// The resource manager has applied all through this.
    pub(super) fn applied(&mut self, through: u64) {
        let through = if defect!(OutboxDropsUnapplied) { u64::MAX } else { through };
        while let Some((key, _)) = self.entries.range((Edge::Manager, 0)..=(Edge::Manager, through)).next() {
            let key = *key;
            self.entries.remove(&key);
        }
    }

    /// One entry was carried out, whoever did.
    pub(super) fn done(&mut self, sequence: u64) {
        for edge in [Edge::Manager, Edge::ReleaseHook] {
            if let Some(entry) = self.entries.remove(&(edge, sequence)) {
                self.unhook(&entry.job, sequence);
            }
        }
    }

    pub(super) fn forget(&mut self, job: &JobId, attempt: Attempt) {
        let of = |entry: &OutboxEntry| entry.job == *job && entry.attempt == attempt;
        let gone: Vec<u64> = self.entries.values().filter(|entry| of(entry)).map(|entry| entry.sequence).collect();
        gone.into_iter().for_each(|sequence| self.done(sequence));
    }

    fn unhook(&mut self, job: &JobId, sequence: u64) {
        if let Some(of) = self.hooked.get_mut(job) {
            of.remove(&sequence);
            if of.is_empty() {
                self.hooked.remove(job);
            }
        }
    }
}
