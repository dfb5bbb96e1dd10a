//! Tombstones: decides how long the record of an ended task stays. A tombstone answers a repeated Start or Cancel of
//! its task. The agent removes a tombstone in three cases:
//!
//! * the controller has sent Forget, and the not-after has passed;
//! * the host has no room for one more task (`max-tombstones`): the oldest whose end the controller has acknowledged
//!   goes (docs/decisions/0006-what-we-measured-otherwise.md);
//! * the tombstones of local tasks (`Exec`) are half of `max-tombstones`: the oldest of these goes.
//!
//! If the host is full and no tombstone may go, the agent accepts no new setup action.

use std::collections::{BTreeMap, BTreeSet};

use crate::defect;
use crate::ids::TaskId;
use crate::outcome::{Failure, Outcome};
use crate::task::Tombstone;

use super::backoff::Backoff;
use super::io::Now;

/// Maximum number of characters of an outcome's text in a tombstone, which keeps the tombstone within 512 bytes.
const MAX_TEXT: usize = 64;

#[derive(Debug)]
pub(super) struct KeptTombstone {
    pub(super) tombstone: Tombstone,
    pub(super) stem: String,
    /// Whether the controller has acknowledged the end.
    pub(super) acked: bool,
    /// Whether the controller has sent Forget for the task.
    pub(super) forgotten: bool,
}

#[derive(Debug, Default)]
pub(super) struct Tombstones {
    kept: BTreeMap<TaskId, KeptTombstone>,
    /// Tombstones that the daemon is writing for cancelled tasks which this host does not know.
    writing: BTreeMap<TaskId, (KeptTombstone, Backoff)>,
    /// Not-after and task of each tombstone for which the controller has sent Forget.
    forgotten: BTreeSet<(u64, TaskId)>,
}

impl Tombstones {
    pub(super) fn len(&self) -> usize {
        self.kept.len() + self.writing.len()
    }

    pub(super) fn get(&self, task: TaskId) -> Option<&KeptTombstone> {
        self.kept.get(&task)
    }

    /// Returns the tombstone of a task, even if the daemon is still writing it.
    pub(super) fn get_or_writing(&self, task: TaskId) -> Option<&KeptTombstone> {
        self.get(task).or_else(|| self.writing.get(&task).map(|(entry, _)| entry))
    }

    pub(super) fn take(&mut self, task: TaskId) -> Option<KeptTombstone> {
        self.kept.remove(&task)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &KeptTombstone> {
        self.kept.values()
    }

    /// Returns `true` if the daemon is still writing a tombstone for a cancelled, unknown task. The agent already
    /// ignores a Start of the task, and reports the cancel after the write.
    pub(super) fn is_writing(&self, task: TaskId) -> bool {
        self.writing.contains_key(&task)
    }

    pub(super) fn keep(&mut self, entry: KeptTombstone) {
        let task = entry.tombstone.task;
        if entry.forgotten {
            self.forgotten.insert((entry.tombstone.not_after_boottime_ms, task));
        }
        self.kept.insert(task, entry);
    }

    pub(super) fn write(&mut self, entry: KeptTombstone) {
        self.writing.insert(entry.tombstone.task, (entry, Backoff::default()));
    }

    /// Records that the tombstone of a cancelled, unknown task is on disk. Returns the outcome that the agent now
    /// reports; `None`: the daemon was not writing a tombstone of this task.
    pub(super) fn written(&mut self, task: TaskId) -> Option<Outcome> {
        let (entry, _) = self.writing.remove(&task)?;
        let outcome = entry.tombstone.outcome.clone();
        self.keep(entry);
        Some(outcome)
    }

    /// Records that the write of a task's tombstone failed; returns `false` if the daemon was not writing one for this
    /// task.
    pub(super) fn not_written(&mut self, task: TaskId, now: Now) -> bool {
        let found = self.writing.get_mut(&task);
        found.map(|(_, backoff)| backoff.failed(now)).is_some()
    }

    /// Returns the tombstones to write again, each with its stem: their last write failed, and the backoff is over.
    pub(super) fn take_due(&mut self, now: Now) -> Vec<(String, Tombstone)> {
        let due = self.writing.values_mut().filter(|(_, backoff)| backoff.at().is_some());
        due.filter_map(|(entry, backoff)| backoff.take_due(now).then(|| (entry.stem.clone(), entry.tombstone.clone())))
            .collect()
    }

    pub(super) fn next_due(&self) -> Option<u64> {
        self.writing.values().filter_map(|(_, backoff)| backoff.at()).min()
    }

    pub(super) fn acknowledge(&mut self, task: TaskId) {
        if let Some(entry) = self.kept.get_mut(&task) {
            entry.acked = true;
        }
    }

    /// Records the controller's Forget for a task. Does nothing for a local task (`Exec`).
    pub(super) fn forget(&mut self, task: TaskId) {
        let writing = self.writing.get_mut(&task).map(|(entry, _)| entry);
        let Some(entry) = writing.filter(|entry| !entry.tombstone.local) else {
            if let Some(entry) = self.kept.get_mut(&task).filter(|entry| !entry.tombstone.local) {
                self.forgotten.insert((entry.tombstone.not_after_boottime_ms, task));
            }
            return;
        };
        entry.forgotten = true;
    }

    /// Removes and returns the tombstones for which the controller has sent Forget and whose not-after has passed.
    /// Keeps those for which `stays` is `true`.
    pub(super) fn sweep(&mut self, now: Now, stays: impl Fn(&KeptTombstone) -> bool) -> Vec<KeptTombstone> {
        let until = if defect!(EarlyTombstoneSweep) { u64::MAX } else { now.boot_ms };
        let due = self.forgotten.range(..=(until, LAST_TASK)).copied();
        let go: Vec<_> = due.filter(|(_, task)| !self.kept.get(task).is_some_and(&stays)).collect();
        go.iter()
            .filter_map(|key| {
                self.forgotten.remove(key);
                self.kept.remove(&key.1)
            })
            .collect()
    }

    /// Removes and returns the oldest tombstone of a local task (`Exec`), if the host has at least `most` of them.
    /// Keeps those for which `stays` is `true`. The not-after does not matter here, because no controller sends a
    /// message about such a task. `None`: removed none.
    pub(super) fn evict_local(&mut self, most: usize, stays: impl Fn(&KeptTombstone) -> bool) -> Option<KeptTombstone> {
        let own = || self.kept.values().filter(|entry| entry.tombstone.local);
        if own().count() < most {
            return None;
        }
        let oldest = own().filter(|entry| !stays(entry)).min_by_key(|entry| entry.tombstone.not_after_boottime_ms)?;
        let task = oldest.tombstone.task;
        self.kept.remove(&task)
    }

    /// Removes and returns up to `most` acknowledged tombstones, the oldest first. Keeps those for which `stays` is
    /// `true`, and those of local tasks. The removal is safe: a controller sends no Start for a task whose end it has
    /// stored, and a session keeps messages in order. Only a controller that lost its store may send such a Start.
    pub(super) fn evict_acknowledged(
        &mut self,
        most: usize,
        stays: impl Fn(&KeptTombstone) -> bool,
    ) -> Vec<KeptTombstone> {
        let may_go = |entry: &&KeptTombstone| entry.acked && !entry.tombstone.local && !stays(entry);
        let tombstones = self.kept.values().filter(may_go);
        let mut go: Vec<_> =
            tombstones.map(|entry| (entry.tombstone.not_after_boottime_ms, entry.tombstone.task)).collect();
        go.sort_unstable();
        go.truncate(most);
        go.iter()
            .filter_map(|key| {
                self.forgotten.remove(key);
                self.kept.remove(&key.1)
            })
            .collect()
    }

    /// Returns the tombstones whose end the controller has not acknowledged.
    pub(super) fn unacknowledged(&self) -> impl Iterator<Item = &KeptTombstone> {
        self.kept.values().filter(|entry| !entry.acked)
    }
}

/// The greatest possible task id. As the upper end of a range of (not-after, task), it includes all tasks with that
/// not-after.
const LAST_TASK: TaskId = TaskId { action: crate::ids::ActionId(uuid::Uuid::max()), rank: crate::ids::Rank(u32::MAX) };

/// Shortens an outcome for a tombstone: cuts its text, and replaces characters that JSON would escape.
pub(super) fn brief(outcome: &Outcome) -> Outcome {
    let cut = |text: &str| -> String {
        let plain = |c: char| if c.is_ascii_graphic() && !matches!(c, '"' | '\\') { c } else { ' ' };
        text.chars().take(MAX_TEXT).map(plain).collect()
    };
    match outcome {
        Outcome::Failed { why } => Outcome::Failed {
            why: match why {
                Failure::Exec(text) => Failure::Exec(cut(text)),
                Failure::Configuration(text) => Failure::Configuration(cut(text)),
                Failure::Unit(text) => Failure::Unit(cut(text)),
                other => other.clone(),
            },
        },
        Outcome::Refused { why } => Outcome::Refused { why: cut(why) },
        Outcome::Resolved { ok, reason, by } => Outcome::Resolved { ok: *ok, reason: cut(reason), by: *by },
        other => other.clone(),
    }
}
