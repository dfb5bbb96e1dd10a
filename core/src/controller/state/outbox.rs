//! Outbox: keeps the notices of each receiver in order, and chooses the next notices for the release hook. While the
//! hook is away for a day, thousands of releases can wait. So entries are indexed by number, by job and by
//! attempt, and the frequent operations do not walk all entries.

use std::collections::{BTreeMap, BTreeSet};

use crate::controller::interface::io::{OutboxEntry, Reader};
use crate::controller::stored::body::Body;
use crate::defect;
use crate::ids::{Attempt, JobId};

/// Largest sequence number that [`first_sequence`] takes from the clock: 2^53 - 1, which every JSON reader represents
/// exactly. In microseconds since 1970, this is the year 2255.
const MAX_SEQUENCE: u64 = (1 << 53) - 1;

/// Returns the sequence number from which a new epoch of the controller counts on: the present time in microseconds
/// since 1970 (at most [`MAX_SEQUENCE`]), or `last` if that is higher. So entries after a restore have higher numbers
/// than those of the lost epoch.
pub(crate) fn first_sequence(wall_ms: u64, last: u64) -> u64 {
    if defect!(SequencesReused) {
        return last;
    }
    wall_ms.saturating_mul(1_000).min(MAX_SEQUENCE).max(last)
}

/// The outbox: the notices that their receivers have not carried out yet.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Outbox {
    entries: BTreeMap<(Reader, u64), OutboxEntry>,
    /// Sequence numbers of the entries for the release hook, by job.
    hooked: BTreeMap<JobId, BTreeSet<u64>>,
    /// Keys of the entries of each attempt.
    of: BTreeMap<(JobId, Attempt), BTreeSet<(Reader, u64)>>,
    /// Sequence numbers of the entries on which the release hook failed, each with the reason. Not stored: a restarted
    /// controller sends each entry again.
    failed: BTreeMap<u64, String>,
    /// Highest sequence number so far, at the start of an epoch of the controller the number from [`first_sequence`].
    /// The next entry gets the number after this one.
    pub(crate) last: u64,
    /// Bounds of the sequence numbers of the entries that are in the store alone, lowest and highest: entries for the
    /// resource manager about jobs that have left memory. `None`: there are none.
    elsewhere: Option<(u64, u64)>,
    /// Entries that a batch has needed, about jobs that are not in memory.
    guests: Vec<u64>,
    /// The controller's epoch, which new entries bear.
    pub(crate) epoch: u64,
}

impl Outbox {
    pub(crate) fn of(entries: Vec<OutboxEntry>, last: u64) -> Self {
        let mut outbox = Self { last, ..Self::default() };
        entries.into_iter().for_each(|entry| outbox.push(entry));
        outbox
    }

    /// Adds an entry with the next sequence number; returns the entry.
    pub(crate) fn next(&mut self, reader: Reader, job: &JobId, attempt: Attempt, body: Body) -> OutboxEntry {
        self.last += 1;
        let entry = OutboxEntry { sequence: self.last, epoch: self.epoch, reader, job: job.clone(), attempt, body };
        self.push(entry.clone());
        entry
    }

    pub(crate) fn push(&mut self, entry: OutboxEntry) {
        if entry.reader == Reader::ReleaseHook {
            self.hooked.entry(entry.job.clone()).or_default().insert(entry.sequence);
        }
        self.of.entry((entry.job.clone(), entry.attempt)).or_default().insert((entry.reader, entry.sequence));
        self.entries.insert((entry.reader, entry.sequence), entry);
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns the entries for the resource manager with a higher sequence number than `after`.
    pub(crate) fn manager(&self, after: u64) -> impl Iterator<Item = &OutboxEntry> {
        let from = (Reader::Manager, after.saturating_add(1));
        self.entries.range(from..=(Reader::Manager, u64::MAX)).map(|(_, entry)| entry)
    }

    /// Returns the jobs with an entry for the release hook.
    pub(crate) fn hooked_jobs(&self) -> impl Iterator<Item = &JobId> {
        self.hooked.keys()
    }

    /// Returns the number of entries for the release hook.
    pub(crate) fn pending(&self) -> usize {
        self.hooked.values().map(BTreeSet::len).sum()
    }

    /// Returns the entries for the release hook.
    pub(crate) fn releases(&self) -> impl Iterator<Item = &OutboxEntry> {
        self.entries.range((Reader::ReleaseHook, 0)..).map(|(_, entry)| entry)
    }

    /// Returns the oldest entry of each job for the release hook, at most `limit` entries: a job's entries are carried
    /// out in order. `first`: jobs whose entries come first. `except`: jobs that wait for a retry, and are left out
    /// unless they are in `first`. `may`: returns `true` for an entry that the hook may get now.
    pub(crate) fn oldest_releases(
        &self,
        first: &[JobId],
        except: &BTreeSet<JobId>,
        limit: usize,
        may: impl Fn(&OutboxEntry) -> bool,
    ) -> Vec<OutboxEntry> {
        let oldest = |of: &BTreeSet<u64>| {
            if defect!(ReleasesOutOfOrder) {
                return of.last().copied();
            }
            of.first().copied()
        };
        let others = self.hooked.iter().filter(|(job, _)| !except.contains(*job) && !first.contains(*job));
        let mut others: Vec<u64> = others.filter_map(|(_, of)| oldest(of)).collect();
        others.sort_unstable();
        let first = first.iter().filter_map(|job| self.hooked.get(job).and_then(oldest));
        let entry = |sequence| self.entries.get(&(Reader::ReleaseHook, sequence)).filter(|entry| may(entry)).cloned();
        first.chain(others).filter_map(entry).take(limit).collect()
    }

    /// Records that the release hook failed on an entry. The entry stays, and is sent again.
    pub(crate) fn fail(&mut self, sequence: u64, why: String) {
        if self.entries.contains_key(&(Reader::ReleaseHook, sequence)) {
            self.failed.insert(sequence, why);
        }
    }

    /// Returns the reason why the release hook failed on an entry. `None` if the hook has not failed on it since this
    /// controller started, or the entry is gone.
    pub(crate) fn failure(&self, sequence: u64) -> Option<&str> {
        self.failed.get(&sequence).map(String::as_str)
    }

    /// Removes the entries for the resource manager with the sequence number `through` or a lower one, because the
    /// resource manager's reader has applied them.
    pub(crate) fn applied(&mut self, through: u64) {
        let through = if defect!(OutboxDropsUnapplied) { u64::MAX } else { through };
        self.elsewhere = self.elsewhere.filter(|(_, last)| *last > through);
        while let Some((key, _)) = self.entries.range((Reader::Manager, 0)..=(Reader::Manager, through)).next() {
            let key = *key;
            self.remove(key);
        }
    }

    /// Removes the entry with this sequence number, whether the entry is for the resource manager or for the release
    /// hook.
    pub(crate) fn done(&mut self, sequence: u64) {
        self.failed.remove(&sequence);
        for reader in [Reader::Manager, Reader::ReleaseHook] {
            self.remove((reader, sequence));
        }
    }

    /// Returns `true` if the outbox has a notice about this attempt that the release hook has not carried out.
    pub(crate) fn is_hooked(&self, job: &JobId, attempt: Attempt) -> bool {
        self.keys(job, attempt).any(|(reader, _)| reader == Reader::ReleaseHook)
    }

    /// Returns `true` if neither memory nor the store has an entry.
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.elsewhere.is_none()
    }

    /// Returns `true` if memory or the store has an entry for the resource manager.
    pub(crate) fn has_manager(&self) -> bool {
        self.manager(0).next().is_some() || self.elsewhere.is_some()
    }

    /// Returns `true` if the store may have an entry for the resource manager with a higher sequence number than
    /// `after` that is not in memory.
    pub(crate) fn lacks(&self, after: u64) -> bool {
        self.elsewhere.is_some_and(|(_, last)| last > after)
    }

    /// Sets the bounds of the entries that are in the store alone, after a start.
    pub(crate) const fn set_elsewhere(&mut self, elsewhere: Option<(u64, u64)>) {
        self.elsewhere = elsewhere;
    }

    /// Takes in entries that a batch needs. `is_held`: returns `true` if the job of the entry is in memory.
    pub(crate) fn take_in(&mut self, entries: Vec<OutboxEntry>, is_held: impl Fn(&JobId) -> bool) {
        for entry in entries.into_iter().filter(|entry| entry.reader == Reader::Manager) {
            if !self.entries.contains_key(&(entry.reader, entry.sequence)) {
                self.guests.extend(Some(entry.sequence).filter(|_| !is_held(&entry.job)));
                self.push(entry);
            }
        }
    }

    /// Lets the entries for the resource manager about a job leave memory: the store has them.
    pub(crate) fn evict(&mut self, job: &JobId) {
        let from = (job.clone(), Attempt::default());
        let of = self.of.range(from..).take_while(|((of, _), _)| of == job).flat_map(|(_, keys)| keys);
        let keys: Vec<(Reader, u64)> = of.copied().filter(|(reader, _)| *reader == Reader::Manager).collect();
        keys.into_iter().for_each(|key| self.leave(key));
    }

    /// Returns `true` if memory has entries that a batch has needed.
    pub(crate) fn has_guests(&self) -> bool {
        !self.guests.is_empty()
    }

    /// Lets the entries that a batch has needed leave memory, unless their job is in memory now.
    pub(crate) fn evict_guests(&mut self, is_held: impl Fn(&JobId) -> bool) {
        for sequence in std::mem::take(&mut self.guests) {
            let key = (Reader::Manager, sequence);
            if self.entries.get(&key).is_some_and(|entry| !is_held(&entry.job)) {
                self.leave(key);
            }
        }
    }

    pub(crate) fn leave(&mut self, key: (Reader, u64)) {
        self.remove(key);
        let (first, last) = self.elsewhere.unwrap_or((key.1, key.1));
        self.elsewhere = Some((first.min(key.1), last.max(key.1)));
    }

    /// Returns the entries about an attempt, those for the resource manager first, each in order.
    pub(crate) fn about(&self, job: &JobId, attempt: Attempt) -> impl Iterator<Item = &OutboxEntry> {
        self.keys(job, attempt).filter_map(|key| self.entries.get(&key))
    }

    fn keys(&self, job: &JobId, attempt: Attempt) -> impl Iterator<Item = (Reader, u64)> {
        self.of.get(&(job.clone(), attempt)).into_iter().flatten().copied()
    }

    /// Removes the entries about an attempt; returns their sequence numbers. `reader`: only the entries for it; `None`:
    /// all.
    pub(crate) fn forget(&mut self, job: &JobId, attempt: Attempt, reader: Option<Reader>) -> Vec<u64> {
        let keys = self.keys(job, attempt).filter(|(of, _)| reader.is_none_or(|reader| *of == reader));
        let gone: Vec<u64> = keys.map(|(_, sequence)| sequence).collect();
        gone.iter().for_each(|sequence| self.done(*sequence));
        gone
    }

    fn remove(&mut self, key: (Reader, u64)) {
        let Some(entry) = self.entries.remove(&key) else { return };
        let attempt = (entry.job, entry.attempt);
        if let Some(of) = self.of.get_mut(&attempt) {
            of.remove(&key);
            if of.is_empty() {
                self.of.remove(&attempt);
            }
        }
        // A sequence number is of one reader only.
        if let Some(of) = self.hooked.get_mut(&attempt.0) {
            of.remove(&key.1);
            if of.is_empty() {
                self.hooked.remove(&attempt.0);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controller::stored::body::Body;

    fn job(name: &str) -> JobId {
        JobId::new(name).unwrap()
    }

    #[test]
    fn each_job_gives_its_oldest_release_and_retries_block_nobody() {
        let entry = |(name, sequence): (&str, u64)| OutboxEntry {
            sequence,
            epoch: 1,
            reader: Reader::ReleaseHook,
            job: job(name),
            attempt: Attempt::default(),
            body: Body::from(&serde_json::Value::Null),
        };
        let outbox = Outbox::of([("a", 1), ("b", 2), ("a", 3), ("c", 4), ("d", 5)].map(entry).to_vec(), 0);
        let cases: [(&[&str], &[&str], usize, &[u64]); 7] = [
            (&[], &[], 9, &[1, 2, 4, 5]),
            (&[], &[], 2, &[1, 2]),
            (&[], &["a", "b"], 2, &[4, 5]),
            (&["b"], &["a", "b"], 2, &[2, 4]),
            (&["d", "a"], &[], 9, &[5, 1, 2, 4]),
            (&["d", "a"], &[], 1, &[5]),
            (&["gone"], &["gone", "b"], 2, &[1, 4]),
        ];
        for (first, except, limit, expect) in cases {
            let first: Vec<_> = first.iter().map(|name| job(name)).collect();
            let except = except.iter().map(|name| job(name)).collect();
            let reported: Vec<_> =
                outbox.oldest_releases(&first, &except, limit, |_| true).iter().map(|e| e.sequence).collect();
            assert_eq!(reported, expect, "{first:?} {except:?} {limit}");
        }
    }

    #[test]
    fn a_failure_goes_with_what_failed() {
        let entry = |sequence| OutboxEntry {
            sequence,
            epoch: 1,
            reader: Reader::ReleaseHook,
            job: job("a"),
            attempt: Attempt::default(),
            body: Body::from(&serde_json::Value::Null),
        };
        // Entries for the manager do not count as pending: a site may have no reader of the outbox.
        let mut outbox = Outbox::of(vec![entry(1), entry(2), OutboxEntry { reader: Reader::Manager, ..entry(3) }], 0);
        assert_eq!(outbox.pending(), 2);
        (1..4).for_each(|sequence| outbox.fail(sequence, "exit 1".to_owned()));
        assert_eq!([1, 2, 3].map(|sequence| outbox.failure(sequence).is_some()), [true, true, false]);
        outbox.done(1);
        assert_eq!((outbox.failure(1), outbox.failed.len(), outbox.pending()), (None, 1, 1));
        outbox.forget(&job("a"), Attempt::default(), None);
        assert_eq!(outbox, Outbox::default());
    }
}
