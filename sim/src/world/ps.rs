//! Checks the rows of `ps` against the store and the time of the simulated world. A `ps` must show every open
//! task, every unsettled drain, and on request every held rank, each with reason and age.

use std::collections::BTreeSet;

use perilog_core::controller::Snapshot;
use perilog_core::controller::io::ActionRow;
use perilog_core::controller::view::PsRow;
use perilog_core::{Attempt, HostName, JobId, Rank, TaskId};

use super::World;

/// The open tasks, held ranks and unsettled drains of a store. If the controller answers a `ps` in a batch, the answer
/// must show each of them that is there throughout the batch.
pub(crate) struct Waits {
    tasks: BTreeSet<TaskId>,
    /// Ranks that jobs hold, and ended ranks that actions hold, as (job, attempt, holder, rank). The holder is `job` or
    /// the action's name.
    held: BTreeSet<(JobId, Attempt, String, u32)>,
    /// Hosts with a drain that a hook has yet to carry out or lift.
    drains: BTreeSet<HostName>,
}

impl Waits {
    pub(crate) fn of(store: &Snapshot) -> Self {
        let unsettled = store.drains.iter().filter(|drain| drain.lifted || !drain.confirmed);
        Self {
            tasks: open_tasks(store).into_iter().collect(),
            held: held(store),
            drains: unsettled.map(|drain| drain.host.clone()).collect(),
        }
    }

    /// Keeps what is also in `now`.
    pub(crate) fn keep(&mut self, now: &Self) {
        self.tasks.retain(|task| now.tasks.contains(task));
        self.held.retain(|held| now.held.contains(held));
        self.drains.retain(|drain| now.drains.contains(drain));
    }
}

impl World {
    /// Describes a mistake in the rows of a `ps`; `None`: there is none. `all`: the request also asked for held ranks.
    /// `waits`: what the store has had throughout the batch.
    pub(crate) fn check_ps(&self, which: usize, all: bool, waits: &Waits, rows: &[PsRow]) -> Option<String> {
        let store = &self.controllers[which].store;
        let unshown = waits.tasks.iter().find_map(|task| {
            let row = store.actions.iter().find(|row| row.id == task.action)?;
            let shown = rows.iter().find(|shown| is_of(shown, row) && shown.ranks.contains(task.rank.0));
            match shown {
                None => Some(format!("{task} ({} of {}) waits, and ps does not show it", row.name, row.job)),
                Some(shown) => self.too_young(which, row, *task, shown),
            }
        });
        let unheld = || {
            let shows = |(job, attempt, by, rank): &(JobId, Attempt, String, u32)| {
                rows.iter().any(|row| {
                    row.state == "held"
                        && row.job.as_ref() == Some(job)
                        && row.attempt == *attempt
                        && row.action.as_str() == by
                        && row.ranks.contains(*rank)
                })
            };
            let missing = waits.held.iter().filter(|_| all).find(|held| !shows(held))?;
            let (job, attempt, by, rank) = missing;
            Some(format!("rank {rank} of {job} attempt {attempt} is held by {by}, and ps does not show it"))
        };
        let undrained = || {
            let shows = |host: &HostName| {
                let of = |row: &PsRow| ["notifying", "draining"].contains(&row.state.as_str());
                rows.iter().any(|row| of(row) && row.hosts.iter().any(|shown| shown == host.as_str()))
            };
            let missing = waits.drains.iter().find(|host| !shows(host))?;
            Some(format!("{missing} drains, and ps does not show it"))
        };
        unshown.or_else(unheld).or_else(undrained).or_else(|| rows.iter().find_map(|row| self.unexplained(which, row)))
    }

    /// Describes what is wrong if the row has no reason, or an impossible age; `None`: the row is right.
    fn unexplained(&self, which: usize, row: &PsRow) -> Option<String> {
        let what = || format!("{} of {:?} attempt {} ({})", row.action, row.job, row.attempt, row.state);
        if row.why.trim().is_empty() || row.why.starts_with(';') {
            return Some(format!("{} is shown without saying why: {:?}", what(), row.why));
        }
        let of = |action: &&ActionRow| is_of(row, action);
        let action = self.controllers[which].store.actions.iter().find(of);
        let begun = action.and_then(|action| self.watch.begun_at(action.id)).unwrap_or_default();
        let most = self.t - begun + self.controllers[0].clock_gained();
        (which == 0 && row.age_ms > most)
            .then(|| format!("{} is shown as {} ms old, and is {most} at most", what(), row.age_ms))
    }

    /// Describes what is wrong if the row shows too small an age: a task that no node has accepted waits since its
    /// request. `None`: the row is right.
    fn too_young(&self, which: usize, action: &ActionRow, task: TaskId, shown: &PsRow) -> Option<String> {
        // An accepted task may be waiting on its node for as long as the node says.
        let is_untaken = [&action.waiting, &action.sent].into_iter().any(|ranks| ranks.contains(task.rank.0));
        if which != 0 || !is_untaken || !["waiting", "sent"].contains(&shown.state.as_str()) {
            return None;
        }
        let since = self.watch.written_at(action.id)?;
        let least = (self.t - since).saturating_sub(self.controllers[0].clock_lost());
        (shown.age_ms < least).then(|| {
            let (name, job, age_ms) = (&action.name, &action.job, shown.age_ms);
            format!("{name} of {job} is shown as {age_ms} ms old, and waits for {least} at least")
        })
    }
}

fn is_of(shown: &PsRow, action: &ActionRow) -> bool {
    shown.job.as_ref() == Some(&action.job) && shown.attempt == action.attempt && shown.action == action.name
}

/// Returns the tasks that have not ended.
fn open_tasks(store: &Snapshot) -> Vec<TaskId> {
    store.actions.iter().flat_map(open_of).collect()
}

fn open_of(row: &ActionRow) -> impl Iterator<Item = TaskId> {
    let sets = [&row.waiting, &row.sent, &row.accepted];
    sets.into_iter().flat_map(|set| set.iter().map(|rank| TaskId { action: row.id, rank: Rank(rank) }))
}

/// Returns the held ranks of all attempts: those that jobs hold, and ended ranks that actions hold. Each comes with
/// job, attempt and holder.
fn held(store: &Snapshot) -> BTreeSet<(JobId, Attempt, String, u32)> {
    let mut held = BTreeSet::new();
    for of in store.attempts.iter().filter(|of| !of.complete) {
        let by = |name: &str, rank| (of.job.clone(), of.attempt, name.to_owned(), rank);
        held.extend(of.hold.ranks.iter().map(|rank| by("job", rank)));
        for action in store.actions.iter().filter(|row| row.job == of.job && row.attempt == of.attempt) {
            let open: BTreeSet<u32> = open_of(action).map(|task| task.rank.0).collect();
            let done = action.held.ranks.iter().filter(|rank| !open.contains(rank));
            held.extend(done.map(|rank| by(action.name.as_str(), rank)));
        }
    }
    held
}
