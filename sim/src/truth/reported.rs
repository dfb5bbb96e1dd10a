//! Checks the ends of tasks that agents and controllers report, and records which ends they may forget.

use perilog_core::controller::Snapshot;
use perilog_core::{Attempt, JobId, Loss, Outcome, TaskId};

use super::Truth;
use super::runs::Run;

impl Truth {
    pub(crate) fn cancel_reported(&mut self, machine: usize, boot: u64, task: TaskId) {
        self.cancel_reported.insert((machine, boot, task));
    }

    /// Returns `true` if the agent of this machine reported, in this boot, that the task was cancelled before it began.
    /// `false` also if neither node nor controller can still know of the cancel.
    pub(crate) fn was_cancel_reported(&self, machine: usize, boot: u64, task: TaskId) -> bool {
        let known = !self.is_cleared(task) || !self.is_doubtful(task, None);
        known && self.cancel_reported.contains(&(machine, boot, task))
    }

    pub(crate) fn forgotten(&mut self, at: usize, task: TaskId) {
        self.cancel_reported.retain(|(_, _, reported)| *reported != task);
        self.answers.retain(|(node, _, reported), _| (*node, *reported) != (at, task));
        self.forgotten.insert(task);
        self.runs_before.insert((at, task), self.runs.len());
    }

    /// Returns the outcome of the task, if a store showed one before the world time `t` (ms). `None` also for doubtful
    /// tasks.
    pub(crate) fn ended_before(&self, task: TaskId, t: u64) -> Option<&Outcome> {
        let sure = !self.is_doubtful(task, None);
        let shown = self.shown.iter().filter(|_| sure).filter_map(|shown| shown.ended_at(task));
        shown.filter(|(at, _)| *at < t).map(|(_, outcome)| outcome).next()
    }

    pub(super) fn was_resolved(&self, task: TaskId) -> bool {
        matches!(self.shown[0].outcome(task), Some(Outcome::Resolved { .. }))
    }

    /// Checks, when nothing is left to happen, that the store has every end that nodes could report: as the task's
    /// outcome, or as a late result, if the task had got another outcome before.
    pub(crate) fn all_reported(&mut self, store: &Snapshot) {
        self.all_received(store);
        let mut missing = None;
        // A task with an announced reboot may end by the reboot, or because the reboot is late.
        let unknowable = |run: &Run| run.down || run.meddled || run.announced || self.is_cleared(run.task);
        // The controller stored the end, and pruned the attempt. Another node's late report then brought the action
        // back without it.
        let unknowable = |run: &Run| unknowable(run) || self.reported_and_pruned.contains(&run.task);
        // An operator resolved the task before its first script: no end remains to report.
        let unknowable = |run: &Run| unknowable(run) || (!run.begun && self.was_resolved(run.task));
        let sure = |run: &&Run| !unknowable(run) && !run.local && !self.is_doubtful(run.task, None);
        for run in self.runs.iter().filter(sure) {
            let Some(row) = store.actions.iter().find(|row| row.id == run.task.action) else { continue };
            let rank = run.task.rank;
            let reported = row.ok.contains(rank.0) && self.agrees(run.task, &Outcome::Ok).is_ok();
            let rows = store.ranks.iter().filter(|row| row.task == run.task);
            let mut ends = rows.flat_map(|row| std::iter::once(&row.ended).chain(&row.late));
            let is_reported = |outcome: &Outcome| match outcome {
                // A reboot undid the task's work while the action was open: the end was reported, and the task counts
                // as lost.
                Outcome::Lost { why: Loss::Rebooted } => run.rebooted,
                Outcome::Lost { .. } | Outcome::Resolved { .. } => false,
                _ => true,
            };
            if !reported && !ends.any(|ended| is_reported(&ended.outcome)) {
                missing = Some(run.stem.clone());
            }
        }
        if let Some(stem) = missing {
            self.broken(|| {
                format!("5 reported:  {stem} ran to its end, its node is there, and the controller was never notified")
            });
        }
    }

    /// Records that the agent of node `at` writes the intent of a task.
    pub(crate) fn written(&mut self, at: usize, task: TaskId) {
        self.at_rest.insert((task, at), false);
        self.stops.written(task);
    }

    /// Records that the agent of node `at` writes the task's tombstone: a tombstone takes the place of the directory.
    /// The agent does so once the controller, or the callers on the node's local socket, know the end.
    pub(crate) fn tombstone_written(&mut self, at: usize, task: TaskId) {
        self.at_rest.insert((task, at), true);
    }

    /// Returns `true` if the task was on a node, and every node that had it has its tombstone.
    fn has_tombstone(&self, task: TaskId) -> bool {
        let mut there = self.at_rest.range((task, 0)..=(task, usize::MAX)).map(|(_, rests)| *rests).peekable();
        there.peek().is_some() && there.all(|rests| rests)
    }

    /// Records that the controller prunes an attempt which the resource manager still has, and will assert again.
    pub(crate) fn comes_again(&mut self, job: &JobId, attempt: Attempt) {
        self.coming_again.insert((job.clone(), attempt));
    }

    /// Records that controller `which` has pruned an attempt. If the attempt may come back, also forgets all outcomes
    /// of it that the controller's store has shown: all ranks may then run again. It comes back if the resource manager
    /// asserts it again. It also does if a node reports an end late, because the node was away or accepted another
    /// controller.
    pub(super) fn pruned(&mut self, which: usize, job: &JobId, attempt: Attempt) {
        let asked = self.coming_again.remove(&(job.clone(), attempt));
        let shown = self.shown[which].tasks_of(job, attempt).any(|task| !self.has_tombstone(*task));
        let ran = |run: &Run| self.shown[which].is_of(run.task.action, job, attempt) && !self.has_tombstone(run.task);
        // A node may also hold tasks of a lost epoch, whose report brings the attempt back.
        let comes_again = asked || shown || self.may_be_behind() || self.runs.iter().any(ran);
        if which == 0 {
            let reported = self.shown[which].tasks_of(job, attempt).copied().filter(|task| self.has_tombstone(*task));
            self.reported_and_pruned.extend(reported.collect::<Vec<_>>());
        }
        self.cleaned.pruned(job, attempt, self.runs.len());
        if comes_again {
            self.shown[which].forget(job, attempt);
        }
        if which == 0 {
            self.services.forget(job, attempt);
            self.releases.forget(job, attempt);
            self.attempts.uncleaned(job, attempt);
            self.milestones.forget(job, attempt);
        }
    }

    /// Records that the resource manager, after a rollback, holds a pruned attempt again: the attempt begins anew.
    pub(crate) fn held_after_prune(&mut self, job: &JobId, attempt: Attempt) {
        self.shown[0].forget(job, attempt);
    }

    /// Checks an end that a caller on the local socket of node `at` got: the end is true, and equals the end that
    /// earlier callers got.
    pub(crate) fn answered(&mut self, at: usize, boot: u64, task: TaskId, outcome: &Outcome) {
        let since = |from: usize| -> Vec<&Run> {
            let runs = self.by_task.get(&task).into_iter().flatten().filter(|index| **index >= from);
            runs.filter_map(|index| self.runs.get(*index)).filter(|run| run.node == at).collect()
        };
        // If the host had evicted the task's tombstone, a request ran the task again: the end may be that of the later
        // runs alone.
        let anew = self.runs_before.get(&(at, task)).map(|from| self.runs_agree(task, &since(*from), outcome));
        if let (Err(truth), None | Some(Err(_))) = (self.runs_agree(task, &since(0), outcome), anew) {
            self.broken(|| format!("3 true: n{at} tells a caller that {task} is {outcome}; {truth}"));
        }
        let before = *self.answers.entry((at, boot, task)).or_insert(outcome.as_str());
        if before != outcome.as_str() && !self.is_cleared(task) {
            self.broken(|| format!("5 shown: n{at} reported to a caller that {task} was {before}, and now {outcome}"));
        }
    }
}
