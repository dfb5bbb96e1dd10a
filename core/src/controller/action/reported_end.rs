//! Reported end: decides what a node's report that a task ended means for the task's outcome. [`super::end`] gives the
//! task its outcome.

use crate::controller::machine::Machine;
use crate::ids::TaskId;
use crate::outcome::{Loss, Outcome};
use crate::task::Ended;

impl Machine {
    /// Ends a task as its node reports, unless the rank still waits for an announced reboot or for a resolution.
    pub(crate) fn end_reported(&mut self, task: TaskId, ended: Ended) {
        let Some(ended) = self.end_or_boot(task, ended) else { return };
        let Some(ended) = self.jobs.apply_resolution(task, ended, &self.cx) else { return };
        let ended = if self.facts().is_invalidated(task, &ended) {
            Ended::bare(Outcome::Lost { why: Loss::Rebooted }, self.cx.now.wall_ms)
        } else {
            ended
        };
        self.jobs.give_outcome(task, ended, &mut self.cx);
    }
}
