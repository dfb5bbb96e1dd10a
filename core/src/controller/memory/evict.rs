//! Jobs leave memory when they have ended, and come back when a batch needs them.

use std::collections::BTreeSet;

use crate::controller::facts::Facts;
use crate::controller::interface::io::{Fetched, Now, RankRow};
use crate::controller::state::Action;
use crate::controller::state::Jobs;
use crate::controller::state::away::Holding;
use crate::controller::state::context::Context;
use crate::controller::state::expected::Expected;
use crate::defect;
use crate::ids::{JobId, TaskId};

/// Maximum number of jobs that leave memory at the end of a batch.
const MAX_EVICTED: usize = 2_000;

impl Jobs {
    /// Takes in the rows of jobs that a batch needs. None of these jobs has pending work.
    pub(crate) fn take_in(&mut self, fetched: Fetched, now: Now, cx: &mut Context) {
        let Fetched { attempts, actions, ranks, events_last, outbox } = fetched;
        let new: BTreeSet<JobId> = attempts.iter().map(|row| row.job.clone()).collect();
        let new: BTreeSet<JobId> = new.into_iter().filter(|job| !self.contains_key(job)).collect();
        for row in attempts.into_iter().filter(|row| new.contains(&row.job)) {
            self.load(row);
        }
        for row in actions.into_iter().filter(|row| new.contains(&row.job)) {
            self.add_action(Action::stored(row, now.mono_ms));
        }
        let is_new = |row: &RankRow| self.action(row.task.action).is_some_and(|of| new.contains(&of.row.job));
        let ranks: Vec<RankRow> = ranks.into_iter().filter(is_new).collect();
        self.take_in_ranks(ranks, now, cx.settings.unreachable_grace_ms);
        for (job, last) in events_last.into_iter().filter(|(job, _)| new.contains(job)) {
            self.table.set_events_last(job, last);
        }
        self.table.came_back(&new);
        self.table.refresh(now.mono_ms);
        cx.outbox.take_in(outbox, |job| self.contains_key(job));
    }

    /// Adds the details of ranks to their actions. `unreachable_ms`: unreachable-grace.
    pub(crate) fn take_in_ranks(&mut self, ranks: Vec<RankRow>, now: Now, unreachable_ms: u64) {
        for row in ranks {
            let Some(action) = self.action_mut(row.task.action) else { continue };
            if row.expects.is_some() {
                let expected = Expected::stored(row, now.mono_ms, unreachable_ms);
                action.expected.insert(expected.row.task.rank, expected);
            } else {
                action.ended.insert(row.task.rank, row);
            }
        }
    }

    /// Lets jobs that have ended leave memory, unless they are `pinned`. The store must have all records of the
    /// machine.
    pub(crate) fn evict(&mut self, pinned: &BTreeSet<JobId>, holding: Holding, cx: &mut Context) {
        cx.outbox.evict_guests(|job| self.contains_key(job));
        let mono_ms = cx.now.mono_ms;
        let idle = self.table.away.take_idle(mono_ms, holding, MAX_EVICTED);
        for job in idle {
            if pinned.contains(&job) {
                self.table.away.add_idle(mono_ms, job);
            } else if self.table.evict(&job) {
                cx.outbox.evict(&job);
            }
        }
        self.table.refresh(mono_ms);
    }
}

impl Facts<'_> {
    /// Returns the jobs that stay in memory even if they have ended: other state in memory names them, an edge's list
    /// has named them, or their verdicts are the newest. `None`: no job leaves now, because none is due, a grace runs,
    /// or the gate is shut.
    pub(crate) fn pinned(&self, holding: Holding) -> Option<BTreeSet<JobId>> {
        let is_due = self.jobs.table.away.is_due(self.cx.now.mono_ms, holding) || self.cx.outbox.has_guests();
        if defect!(NothingEvicted) {
            return None;
        }
        if self.recovery.is_on() || self.recovery.is_settling() || !is_due {
            return None;
        }
        let mut jobs = BTreeSet::new();
        if defect!(NothingPinned) {
            return Some(jobs);
        }
        let mut tasks: BTreeSet<TaskId> = BTreeSet::new();
        for node in self.nodes.values() {
            let unsettled = &node.unsettled;
            tasks.extend(node.tasks.iter().chain(node.live.keys()).chain(&node.failed));
            tasks.extend(unsettled.absent.iter().chain(&unsettled.unclaimed));
            jobs.extend(unsettled.unknown.values().map(|unknown| unknown.job.clone()));
            jobs.extend(unsettled.uncleaned.iter().map(|(job, _)| job.clone()));
        }
        jobs.extend(tasks.into_iter().filter_map(|task| Some(self.jobs.action(task.action)?.row.job.clone())));
        jobs.extend(self.drains.values().filter_map(|drain| drain.passing.as_ref()?.job().cloned()));
        jobs.extend(self.drains.waiting.values().flatten().map(|(job, ..)| job.clone()));
        jobs.extend(self.cx.outbox.hooked_jobs().cloned());
        jobs.extend(self.jobs.table.listed_from(None).map(|(job, _)| job.clone()));
        let verdicts = self.jobs.table.newest_verdicts().take(holding.verdicts);
        jobs.extend(verdicts.map(|action| action.row.job.clone()));
        Some(jobs)
    }
}
