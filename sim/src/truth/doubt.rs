//! Records the facts that no controller can know, so that the checks do not count them as violations. Such facts
//! concern actions of a lost store or of two controllers, machines that share a name, and removed directories.

use perilog_core::controller::Snapshot;
use perilog_core::controller::io::{ActionRow, AttemptRow, RankRow};
use perilog_core::{ActionId, JobId, TaskId};

use super::Truth;
use super::store::Shown;

impl Truth {
    /// Records that a fault removed the directory of a task on node `at`. `task`: the task of the intent, if the
    /// directory had an intent. `ended`: whether the directory had an outcome.
    pub(crate) fn cleared(&mut self, at: usize, stem: &str, task: Option<TaskId>, ended: bool) {
        self.cleared.extend(task.map(|task| (task, stem.to_owned())));
        for run in self.runs.iter_mut().filter(|run| run.node == at && run.stem == stem) {
            run.traceless |= run.unloaded || run.rebooted || run.meddled || ended;
            if let Some((_, written)) = &mut run.result {
                *written = false;
            }
        }
    }

    pub(crate) fn is_cleared(&self, task: TaskId) -> bool {
        self.cleared.contains_key(&task)
    }

    pub(crate) fn is_cleared_stem(&self, stem: &str) -> bool {
        self.cleared.values().any(|cleared| cleared == stem)
    }

    /// Records that controller `which` gets a new store, at world time `t` (ms). Actions that differ between the two
    /// stores are doubtful. Actions that only the new store has are doubtful too, because the controller has ordered
    /// the nodes to forget them.
    pub(crate) fn store_replaced(&mut self, which: usize, before: &Snapshot, store: &Snapshot, t: u64) {
        let only_in = |one: &Snapshot, other: &Snapshot| -> Vec<ActionId> {
            let only = |row: &&ActionRow| !other.actions.contains(row);
            one.actions.iter().filter(only).map(|row| row.id).collect()
        };
        self.doubtful.extend(only_in(before, store));
        self.doubtful.extend(only_in(store, before));
        // A late result changes only the row of its rank, not that of the action.
        let rank = |row: &&RankRow| !store.ranks.contains(row);
        self.doubtful.extend(before.ranks.iter().filter(rank).map(|row| row.task.action));
        // A pruned attempt is back, perhaps from before some of its actions began: the actions of all its runs are
        // doubtful.
        let again = |job: &JobId, attempt| {
            let of = |row: &&AttemptRow| row.job == *job && row.attempt == attempt;
            store.attempts.iter().any(|row| of(&row)) && !before.attempts.iter().any(|row| of(&row))
        };
        let runs = self.runs.iter().filter(|run| again(&run.job, run.step.0));
        self.doubtful.extend(runs.map(|run| run.task.action).collect::<Vec<_>>());
        self.store_may_be_behind();
        self.shown[which] = Shown::of(store, &self.shown[0], t);
        self.releases_forget(which, before, store);
        if which == 0 {
            self.services_forget();
            self.attempts.forget();
            self.milestones.forget_all();
            self.quiet.forget();
        }
    }

    /// Records that machine `clone` runs with the host name of node `of`.
    pub(crate) fn cloned(&mut self, of: usize, clone: usize) {
        self.doubtful_nodes.extend([of, clone]);
    }

    /// Returns `true` if no other machine has this node's name.
    pub(crate) fn is_one(&self, at: usize) -> bool {
        !self.doubtful_nodes.contains(&at)
    }

    /// Returns `true` if no controller can know all facts about the task: a lost store or two controllers have its
    /// action, or a node that ran it shares its host name with another machine. `at`: the node of the current event,
    /// whose shared name counts too; `None`: there is no such node.
    pub(super) fn is_doubtful(&self, task: TaskId, at: Option<usize>) -> bool {
        let there = |node| self.doubtful_nodes.contains(&node);
        self.doubtful.contains(&task.action) || at.is_some_and(there) || self.runs_of(task).any(|run| there(run.node))
    }

    /// Returns `true` if a controller can know all facts about the task: the task is not doubtful, and no fault removed
    /// its directory.
    pub(crate) fn is_certain(&self, task: TaskId) -> bool {
        !self.is_doubtful(task, None) && !self.is_cleared(task)
    }

    pub(crate) fn is_sure(&self, task: TaskId, at: usize) -> bool {
        !self.is_doubtful(task, Some(at))
    }
}
