//! Faults: decides which end of a task is its node's fault, and writes the reason of the drain, which
//! [`crate::controller::state::drains`] keeps. [`Machine::drain_task`] puts the action's name before the reason, and
//! the job behind it. All files that write reasons of drains:
//!
//! | the reason says | worded in |
//! |---|---|
//! | how a task ended: script, outcome, first check or last line | `fault_of` below |
//! | a script is past its limit; a task that was lost lives | `action/end.rs` |
//! | processes outlive their scripts | `action/deadlines.rs` |
//! | a task was resolved manually while it may be alive | `operator/resolve.rs` |
//! | an after-action had ended before ranks joined | `job/hand_over.rs` |
//! | an unknown task is there; a clean-up may be missing; an unlisted attempt is cleaned up | `recovery/` |
//! | what an operator typed, or the resource manager says | `operator/drain.rs`, `state/drains.rs` |

use crate::controller::action::verdict::{blamed, last_line};
use crate::controller::facts::Facts;
use crate::controller::machine::Machine;
use crate::controller::state::drains::{Cause, DrainChange, Fault, MAX_REASON};
use crate::defect;
use crate::ids::TaskId;
use crate::outcome::{Loss, Outcome};
use crate::output;
use crate::task::Ended;

/// Returns `true` if this outcome is the fault of the task's node.
fn is_at_fault(outcome: &Outcome) -> bool {
    match outcome {
        Outcome::Cancelled { .. } if defect!(CancelDrains) => true,
        Outcome::Ok | Outcome::Cancelled { .. } | Outcome::Resolved { .. } => false,
        Outcome::Tolerable | Outcome::Failed { .. } => true,
        _ if defect!(OnlyFailuresDrain) => false,
        Outcome::Timeout { .. } | Outcome::Lost { .. } | Outcome::Refused { .. } => true,
    }
}

/// Number of characters that a reason keeps of a script's last line, however long the text before the line is.
const LEAST_OF_LINE: usize = 80;

/// Reason of a drain, without the action and the job.
#[derive(Debug)]
pub(crate) struct Why {
    /// What happened, after the action's name: `: a.sh is past its limit of 10m`.
    what: String,
    /// The last line that the script to blame wrote. If the reason is too long, the end of the line stays.
    line: Option<String>,
}

impl From<&str> for Why {
    fn from(what: &str) -> Self {
        Self { what: what.to_owned(), line: None }
    }
}

impl Facts<'_> {
    /// Builds the [`Fault::Stuck`] for the drain of the task's node, with the number of the node's present boot. Does
    /// not check whether a script is stuck there: the caller decides that.
    pub(crate) fn stuck(&self, task: TaskId) -> Fault {
        Fault::Stuck(self.nodes.of(&self.jobs, task).map(|node| node.row.boot_number))
    }

    /// Returns the reason to drain the task's node because of this end, for [`Machine::drain_task`], and the kind of
    /// fault. `None`: the end is not the node's fault, and no clean-up was cancelled.
    ///
    /// The reason has no time, no process id and no name of the host, so that one cause on many nodes is one reason:
    /// lists of drains fold it. `perilog why` and `perilog show` have the rest.
    pub(crate) fn fault_of(&self, task: TaskId, ended: &Ended) -> Option<(Why, Fault)> {
        let action = self.jobs.action(task.action)?;
        // A cancelled after-action has not cleaned up.
        let unclean = matches!(ended.outcome, Outcome::Cancelled { .. }) && self.jobs.follows(action);
        // A node may refuse a setup action because the node does not configure the action, or has its maximum of tasks
        // or tombstones; the end says so. If a node refuses an after-action, nothing cleans up, so the node is drained.
        let is_excused = if defect!(RefusalsAreExcused) { true } else { ended.excused };
        let is_refused = matches!(ended.outcome, Outcome::Refused { .. });
        let excused = is_refused && is_excused && !self.jobs.follows(action);
        let excused = if defect!(ExcusedDrains) { false } else { excused };
        let unclean = if defect!(CancelledEpilogIsClean) { false } else { unclean };
        let at_fault = is_at_fault(&ended.outcome) && !excused || unclean;
        let lacking_after_action = self.jobs.lacking_after_action(task, ended);
        if !at_fault && lacking_after_action.is_none() {
            return None;
        }
        let step = blamed(ended);
        let script = step.map(|step| format!(" {}", step.script)).unwrap_or_default();
        let mut what = format!("{script}: {}", ended.outcome);
        // The text of `tolerable` lacks the script's status.
        if let (Outcome::Tolerable, Some(status)) = (&ended.outcome, step.and_then(|step| step.status)) {
            what.push_str(&format!(" ({status})"));
        }
        if let Some(note) = ended.note.as_ref().filter(|_| unclean) {
            what.push_str(&format!(": {note}"));
        }
        if let Some(name) = lacking_after_action {
            what.push_str(&format!(", and {name} had been cancelled"));
        }
        for check in ended.checks.iter().take(1) {
            what.push_str(&format!(": {}: {}", check.check, check.message));
        }
        let line = last_line(ended).filter(|_| ended.checks.is_empty());
        let fault = match ended.outcome {
            // A reboot does not replace the after-action.
            _ if lacking_after_action.is_some() => Fault::Other,
            Outcome::Timeout { .. } => self.stuck(task),
            // An operator may have rebooted the node to end the stuck script for which it is drained.
            Outcome::Lost { why: Loss::Rebooted | Loss::Offline | Loss::Unreachable } => Fault::Away,
            _ => Fault::Other,
        };
        Some((Why { what, line }, fault))
    }
}

impl Machine {
    /// Drains the host of a task. The end of the batch logs the reason, unless the drain has the reason already. The
    /// reason is the action's name, then `why`, then the job and attempt. A long `why` is cut, so that the reason has
    /// at most [`MAX_REASON`] characters.
    pub(crate) fn drain_task(&mut self, task: TaskId, why: impl Into<Why>, fault: Fault) {
        let Some(host) = self.jobs.host_of(task) else { return };
        let Some(row) = self.jobs.action(task.action).map(|action| &action.row) else { return };
        let Why { what, line } = why.into();
        let suffix = format!(" (job {} attempt {})", row.job, row.attempt);
        let room = MAX_REASON.saturating_sub(suffix.chars().count());
        let (what, line) = (format!("{}{what}", row.name), line.map(|line| format!(": {line}")).unwrap_or_default());
        let what = output::beginning(&what, room.saturating_sub(line.chars().count().min(LEAST_OF_LINE)));
        let line = output::end(&line, room.saturating_sub(what.chars().count()));
        let reason = format!("{what}{line}");
        let reason: String = reason.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        let cause = Cause { reason: format!("{reason}{suffix}"), by: None, fault };
        if self.drains.drain(&host, cause, &mut self.cx) == DrainChange::Unchanged {
            return;
        }
        let newest = self.drains.get(&host).map(|drain| drain.newest().reason).unwrap_or_default();
        self.cx.drained.entry((task.action, newest)).or_default().insert(task.rank.0);
    }
}
