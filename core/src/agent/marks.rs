//! Marks: decides which commits of the controller's store this host remembers.
//!
//! From the marks of its nodes, a restored store learns that it is behind. An intent has the commit that requested the
//! task. A tombstone has the commit that stored the task's end, or that cancelled the task. `epoch.json` has a commit
//! of the accepted epoch: that of its first Welcome, or a newer one of removed tombstones.

use crate::defect;
use crate::ids::ActionName;
use crate::mark::{AcceptedEpoch, Commit, Mark};
use crate::task::Start;

use super::machine::{Cx, Machine};
use super::tombstones::KeptTombstone;

impl Machine {
    /// Returns the commit with this number in the accepted epoch. `None`: the number is 0, because an older controller
    /// numbers no commits; or this host has accepted no epoch yet.
    pub(super) fn commit(&self, number: u64) -> Option<Commit> {
        let epoch = self.session.accepted?.epoch;
        (number > 0).then_some(Commit { epoch, number })
    }

    /// Returns the newest commit that this host remembers, for Hello. `None`: it remembers none, or does not know the
    /// cluster of the accepted epoch.
    pub(super) fn newest(&self) -> Option<Mark> {
        let accepted = self.session.accepted?;
        let tasks = self.tasks.values().filter_map(|task| task.intent.commit);
        let tombstones = self.tombstones.iter().filter_map(|entry| entry.tombstone.commit);
        let all = tasks.chain(tombstones).chain([accepted.newest()]).filter(|commit| commit.number > 0);
        Some(Mark { cluster: accepted.cluster?, commit: all.max()? })
    }

    /// Writes the newest commit of the removed tombstones `gone` into `epoch.json`, if that commit is newer than the
    /// one in the file and of the same epoch.
    pub(super) fn keep_newest(&mut self, gone: &[KeptTombstone], cx: &mut Cx) {
        let Some(accepted) = self.session.highest() else { return };
        let newest = gone.iter().filter_map(|entry| entry.tombstone.commit).max();
        if defect!(MarksGo) {
        } else if let Some(newest) =
            newest.filter(|newest| *newest > accepted.newest() && newest.epoch == accepted.epoch)
        {
            self.write_epoch(AcceptedEpoch { commit: newest.number, ..accepted }, cx);
        }
    }

    /// Returns an after-action that this host has accepted for the attempt of `start`. `None`: there is none, so a
    /// setup action may begin.
    pub(super) fn after_of(&self, start: &Start) -> Option<&ActionName> {
        if defect!(SetupAfterCleanup) {
            return None;
        }
        let tasks = self.tasks.values().filter(|task| !task.intent.local).map(|task| &task.intent.start);
        let tasks = tasks.map(|of| (of.after, &of.job, of.attempt, &of.action));
        let tombstones = self.tombstones.iter().map(|entry| &entry.tombstone).filter(|tombstone| !tombstone.local);
        let tombstones = tombstones.map(|of| (of.after, &of.job, of.attempt, &of.action));
        let found = tasks
            .chain(tombstones)
            .find(|(after, job, attempt, _)| *after && **job == start.job && *attempt == start.attempt);
        found.map(|(.., action)| action)
    }
}
