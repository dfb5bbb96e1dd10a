//! Checks once a second that no task waits for its first script unseen. PID 1 may hang, or the runner may begin
//! nothing: once the limit has passed, counted from the agent's start call, the controller's store shows the task as
//! overdue.

use perilog_core::TaskId;
use perilog_core::task::Claim;

use super::World;

/// Longest time (ms) from the limit to the record in the store, while the session stands: the agent waits five seconds
/// for an answer of systemd, and messages take seconds.
const SEEN_MS: u64 = 20_000;

impl World {
    /// Checks the tasks of node `at` that have begun no script.
    pub(super) fn check_stalled(&mut self, at: usize) {
        let Some(since) = self.steady(at) else { return };
        let Some(agent) = self.nodes[at].agent.as_ref() else { return };
        let asked: Vec<(TaskId, u64)> = agent.asked.iter().map(|(task, asked)| (*task, *asked)).collect();
        for (task, asked) in asked {
            let Some(limit) = self.limit_of_stalled(at, task) else { continue };
            if self.t > since.max(asked + limit) + SEEN_MS && !self.is_shown_overdue(task) {
                let text =
                    format!("{task} on n{at} was asked for at {asked}, its limit is {limit} ms, no script began");
                return self.violate("8 visible", &format!("{text}, and at {} it is not overdue", self.t));
            }
        }
    }

    /// Returns the world time (ms) since which the agent of node `at` runs undisturbed with a standing session. Whether
    /// systemd answers does not matter. `None`: it does not.
    fn steady(&mut self, at: usize) -> Option<u64> {
        let now = self.session_now(at);
        let Some(now) = now.filter(|_| !self.quiet) else {
            self.watch.steady.remove(&at);
            return None;
        };
        let entry = self.watch.steady.entry(at).or_insert((now, self.t));
        if entry.0 != now {
            *entry = (now, self.t);
        }
        Some(entry.1)
    }

    /// Returns the limit (ms) of a task that has begun no script and may still begin one; `None`: it has no limit, or
    /// is in another state, or the world cannot be sure of it.
    fn limit_of_stalled(&self, at: usize, task: TaskId) -> Option<u64> {
        let store = &self.controllers[0].store;
        let row = store.actions.iter().find(|row| row.id == task.action && row.accepted.contains(task.rank.0))?;
        let abandoned = store.attempts.iter().any(|of| of.job == row.job && of.abandoned);
        let stopped = row.cancelling.contains(task.rank.0);
        if abandoned || stopped || !self.truth.is_certain(task) || !self.truth.is_sure(task, at) {
            return None;
        }
        let dirs = &self.nodes[at].spool.tasks;
        let dir = dirs.values().find(|dir| dir.intent.as_ref().is_some_and(|intent| intent.start.task == task))?;
        let withdrawn = matches!(dir.claim, Some(Claim::Cancelled | Claim::Withdrawn(_)));
        let begun = dir.ended.is_some() || dir.result.is_some() || !dir.steps.is_empty();
        // A unit that has ended without a script is judged, not watched.
        let is_over =
            |unit: &super::systemd::Unit| unit.foreign || matches!(unit.state, super::systemd::UnitState::Over(_));
        let over = self.nodes[at].systemd.units.values().any(|unit| unit.intent.start.task == task && is_over(unit));
        dir.intent.as_ref().filter(|_| !withdrawn && !begun && !over)?.limit_ms()
    }

    fn is_shown_overdue(&self, task: TaskId) -> bool {
        let row = self.controllers[0].store.actions.iter().find(|row| row.id == task.action);
        row.is_some_and(|row| row.overdue.values().any(|ranks| ranks.contains(task.rank.0)))
    }
}
