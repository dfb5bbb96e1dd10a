//! Which job each host was given to, as the resource manager has it: no after-action of another job begins there.

use std::collections::{BTreeMap, BTreeSet};

use perilog_core::controller::io::ActionRow;
use perilog_core::controller::{Record, Snapshot};
use perilog_core::{ActionId, Attempt, JobId, Rank, TaskId};

use super::Truth;
use crate::world::site;

#[derive(Debug, Default)]
pub(super) struct Hosts {
    /// By node: whose it is, and since when both the resource manager and the controller knew so.
    holders: BTreeMap<usize, ((JobId, Attempt), u64)>,
    /// Given back by the controller, of a job that has ended, before its resource manager has heard of it.
    free: BTreeSet<(usize, (JobId, Attempt))>,
    /// When the Start of a task was committed by the first controller, last.
    sent: BTreeMap<TaskId, u64>,
    /// Until the resource manager asserts again a controller cannot know what that forgot.
    asserted: u64,
}

impl Truth {
    pub(crate) fn host_given(&mut self, at: usize, of: &(JobId, Attempt), t: u64) {
        let holder = self.hosts.holders.get(&at);
        if holder.is_none_or(|(holder, _)| holder != of) {
            self.hosts.holders.insert(at, (of.clone(), t));
            self.hosts.free.remove(&(at, of.clone()));
        }
    }

    pub(crate) fn host_is_free(&mut self, at: usize, of: &(JobId, Attempt)) {
        self.hosts.free.insert((at, of.clone()));
    }

    pub(crate) fn host_back(&mut self, at: usize, of: &(JobId, Attempt)) {
        if self.hosts.holders.get(&at).is_some_and(|(holder, _)| holder == of) {
            self.hosts.holders.remove(&at);
        }
    }

    /// Is a host this attempt's?
    pub(crate) fn is_host_of(&self, of: &(JobId, Attempt)) -> bool {
        self.hosts.holders.values().any(|(holder, _)| holder == of)
    }

    /// The resource manager was rolled back, and has these hosts given to these.
    pub(crate) fn hosts_put_back(&mut self, holders: Vec<(usize, (JobId, Attempt))>, t: u64) {
        self.hosts.holders = holders.into_iter().map(|(at, of)| (at, (of, t))).collect();
        self.hosts.asserted = u64::MAX;
        self.told_may_repeat();
    }

    pub(crate) fn hosts_asserted(&mut self, t: u64) {
        if self.hosts.asserted == u64::MAX {
            self.hosts.asserted = t;
        }
    }

    /// Before a batch of the first controller is committed: Starts that are new with it.
    pub(crate) fn note_starts(&mut self, store: &Snapshot, records: &[Record], t: u64) {
        let before = |id: ActionId| store.actions.iter().find(|row| row.id == id);
        for record in records {
            match record {
                Record::Action(row) => self.note_sent(before(row.id), row, t),
                Record::Moved { action, stands } => {
                    let Some(before) = before(*action) else { continue };
                    let mut after = before.clone();
                    after.put(stands);
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
        self.hosts.sent.extend(new.iter().map(|rank| (TaskId { action: row.id, rank: Rank(rank) }, t)));
    }

    /// A script of this run begins.
    pub(super) fn check_given_to_another(&mut self, index: usize) {
        let Some(run) = self.runs.get(index).filter(|run| !run.local && site::is_launched(&run.job)) else { return };
        let follows = site::FOLLOWING.contains(&run.step.1.as_str());
        // A second controller has a book of its own, and its Starts are not among these.
        if !follows || self.is_unseen() || self.given.has_second() || !self.is_one(run.node) {
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
