//! Checks that no after-action of the resource manager's jobs begins on a host that another job has got.

use std::collections::{BTreeMap, BTreeSet};

use perilog_core::controller::io::ActionRow;
use perilog_core::controller::{Record, Snapshot};
use perilog_core::{ActionId, Attempt, JobId, Rank, TaskId};

use super::Truth;
use crate::world::site;

#[derive(Debug, Default)]
pub(super) struct Hosts {
    /// The attempt that holds each node, and the world time (ms) since when resource manager and controller agree on
    /// that.
    holders: BTreeMap<usize, ((JobId, Attempt), u64)>,
    /// Nodes of ended attempts, by index: the controller has committed the attempt's release, and the resource manager
    /// has not applied it.
    free: BTreeSet<(usize, (JobId, Attempt))>,
    /// World time (ms) at which the first controller last committed the Start of each after-action's task.
    sent: BTreeMap<TaskId, u64>,
    /// World time (ms) at which the resource manager asserted its jobs after its last rollback; `u64::MAX`: not yet.
    /// Until then a controller cannot know what the resource manager has forgotten.
    asserted: u64,
}

impl Truth {
    pub(crate) fn host_released(&mut self, at: usize, of: &(JobId, Attempt), t: u64) {
        let holder = self.hosts.holders.get(&at);
        if holder.is_none_or(|(holder, _)| holder != of) {
            self.hosts.holders.insert(at, (of.clone(), t));
            self.hosts.free.remove(&(at, of.clone()));
        }
    }

    pub(crate) fn host_is_free(&mut self, at: usize, of: &(JobId, Attempt)) {
        self.hosts.free.insert((at, of.clone()));
    }

    pub(crate) fn free_host(&mut self, at: usize, of: &(JobId, Attempt)) {
        if self.hosts.holders.get(&at).is_some_and(|(holder, _)| holder == of) {
            self.hosts.holders.remove(&at);
        }
    }

    /// Returns `true` if the attempt holds a host in the resource manager.
    pub(crate) fn is_host_of(&self, of: &(JobId, Attempt)) -> bool {
        self.hosts.holders.values().any(|(holder, _)| holder == of)
    }

    /// Records a rollback of the resource manager. `holders`: the attempt that then holds each node.
    pub(crate) fn hosts_restored(&mut self, holders: Vec<(usize, (JobId, Attempt))>, t: u64) {
        self.hosts.holders = holders.into_iter().map(|(at, of)| (at, (of, t))).collect();
        self.hosts.asserted = u64::MAX;
        self.notices_may_repeat();
    }

    pub(crate) fn hosts_asserted(&mut self, t: u64) {
        if self.hosts.asserted == u64::MAX {
            self.hosts.asserted = t;
        }
    }

    /// Records the Starts in a batch that the first controller is about to commit.
    pub(crate) fn note_starts(&mut self, store: &Snapshot, records: &[Record], t: u64) {
        let before = |id: ActionId| store.actions.iter().find(|row| row.id == id);
        for record in records {
            match record {
                Record::Action(row) => self.note_sent(before(row.id), row, t),
                Record::ActionDelta { action, delta } => {
                    let Some(before) = before(*action) else { continue };
                    let mut after = before.clone();
                    after.put(delta);
                    self.note_sent(Some(before), &after, t);
                }
                _ => {}
            }
        }
    }

    fn note_sent(&mut self, before: Option<&ActionRow>, row: &ActionRow, t: u64) {
        if !site::is_launched(&row.job) || !site::FOLLOWING.contains(&row.name.as_str()) {
            return;
        }
        let new = before.map_or_else(|| row.sent.clone(), |before| row.sent.difference(&before.sent));
        if self.is_unseen() {
            // After a lost epoch, the controller cannot know to which job the host was given.
            for rank in new.iter().map(Rank) {
                self.hosts.sent.remove(&TaskId { action: row.id, rank });
            }
            return;
        }
        self.hosts.sent.extend(new.iter().map(|rank| (TaskId { action: row.id, rank: Rank(rank) }, t)));
    }

    /// Checks the run with this index when a script of an after-action begins: no other job had the host when the
    /// controller committed the Start.
    pub(super) fn check_released_to_another(&mut self, index: usize) {
        let Some(run) = self.runs.get(index).filter(|run| !run.local && site::is_launched(&run.job)) else { return };
        let follows = site::FOLLOWING.contains(&run.step.1.as_str());
        // The Starts of a second controller are not recorded here.
        if !follows || self.is_unseen() || self.releases.has_second() || !self.is_one(run.node) {
            return;
        }
        let Some(sent) = self.hosts.sent.get(&run.task).copied().filter(|sent| *sent >= self.hosts.asserted) else {
            return;
        };
        let of = (run.job.clone(), run.step.0);
        let another = self.hosts.holders.get(&run.node).filter(|(holder, since)| *holder != of && *since < sent);
        let another = another.filter(|(holder, _)| !self.hosts.free.contains(&(run.node, holder.clone())));
        if let Some(((job, attempt), since)) = another {
            let text = format!(
                "{} begins on n{}, which was given to {job} attempt {attempt} at {since}, before its Start of {sent}",
                run.stem, run.node
            );
            self.broken(|| format!("rule 6: {text}"));
        }
    }
}
