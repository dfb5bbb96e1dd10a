//! Checks each outcome against what the task's scripts really did, never against the report of a machine.

use perilog_core::{ExitStatus, Failure, Loss, Outcome, TaskId};

use super::{Run, Truth};

/// Returns `true` if the outcome says that no script of the task ran and none will run.
pub(super) const fn nothing_ran(outcome: &Outcome) -> bool {
    matches!(
        outcome,
        Outcome::Refused { .. }
            | Outcome::Cancelled { status: None }
            | Outcome::Failed { why: Failure::Unit(_) | Failure::Exec(_) }
    )
}

/// Returns `true` for the outcome `lost (offline)`: the node did not accept the task in time, and the task must not
/// begin later.
pub(super) const fn is_offline(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Lost { why: Loss::Offline })
}

impl Truth {
    /// Checks the outcome of a task against all runs of the task.
    ///
    /// # Errors
    ///
    /// A text that describes the runs, if they contradict the outcome.
    pub(super) fn agrees(&self, task: TaskId, outcome: &Outcome) -> Result<(), String> {
        let runs: Vec<&Run> = self.runs_of(task).collect();
        self.runs_agree(task, &runs, outcome)
    }

    /// Checks the outcome of a task against some of its runs.
    ///
    /// # Errors
    ///
    /// A text that describes the runs, if they contradict the outcome.
    pub(super) fn runs_agree(&self, task: TaskId, runs: &[&Run], outcome: &Outcome) -> Result<(), String> {
        // The node has lost the units of these runs. A repeated request may have started another unit of the same name.
        let traceless = runs.iter().all(|run| run.unloaded || run.rebooted);
        // After a fault removed the directory, the agent takes a unit for a runner with the claim. A unit that had no
        // claim ran no script, and gets one of these outcomes.
        let by_unit =
            matches!(outcome, Outcome::Failed { why: Failure::NoResult(_) } | Outcome::Cancelled { status: Some(_) });
        // The unit was gone when a fault removed the directory, and with it the outcome, before the agent reported it.
        if (by_unit || nothing_ran(outcome)) && traceless && self.is_cleared(task) {
            return Ok(());
        }
        // A reboot removes everything that a host knows of its own tasks: a repeated request is a new task.
        if nothing_ran(outcome) && runs.iter().all(|run| run.local && run.rebooted) {
            return Ok(());
        }
        if let Outcome::Failed { why: Failure::NoResult(Some(ExitStatus::Signal(signal))) } = outcome
            && traceless
            && self.died_unclaimed.contains(&(task, *signal))
        {
            return Ok(());
        }
        // For doubtful tasks, a controller may not know that the task waited for a reboot.
        agrees(runs, outcome, !self.is_doubtful(task, None), self.was_to_stop(task))
    }
}

/// Checks an outcome against runs. `sure`: the controller knows all facts about the task. `was_to_stop`: an agent was
/// asked to stop the task.
///
/// # Errors
///
/// A text that describes the runs, if they contradict the outcome.
fn agrees(runs: &[&Run], outcome: &Outcome, sure: bool, was_to_stop: bool) -> Result<(), String> {
    let one = |fits: &dyn Fn(&Run) -> bool| {
        if runs.iter().any(|run| fits(run)) { Ok(()) } else { Err(reported(runs)) }
    };
    match outcome {
        Outcome::Ok => {
            one(&|run| run.went_well(sure) && !run.tolerable || run.is_ended_by_boot(sure) && !run.tolerable_before)
        }
        Outcome::Tolerable => one(&|run| (run.went_well(sure) || run.is_ended_by_boot(sure)) && run.tolerable),
        // An announced reboot may have come after the limit, or not at all.
        Outcome::Timeout { .. } => {
            one(&|run| run.announced || run.result.as_ref().is_some_and(|(result, _)| result.timed_out))
        }
        // The runner got TERM, and stopped. If it could not write its result, a request to stop the task is enough.
        Outcome::Cancelled { status: Some(_) } => {
            let unwritten = |run: &Run| run.result.as_ref().is_some_and(|(_, written)| !written);
            one(&|run| run.cancelled || (was_to_stop || run.meddled) && (run.killed || unwritten(run)))
        }
        // The runner claimed the task, and the cancel came before its first script.
        Outcome::Cancelled { status: None } => {
            if runs.iter().all(|run| !run.begun || run.cancelled || run.announced) {
                Ok(())
            } else {
                Err(reported(runs))
            }
        }
        Outcome::Failed { why } => match why {
            Failure::Exit(code) => one(&|run| run.had(ExitStatus::Exit(*code)) || run.exits_with(*code)),
            Failure::Signal(signal) => one(&|run| {
                // A stop from outside ended the task before all scripts had begun.
                let stopped = |(result, _): &(perilog_core::task::RunResult, bool)| {
                    result.status == 128 + *signal && result.ran < result.of
                };
                run.had(ExitStatus::Signal(*signal))
                    || (run.killed && *signal == 9)
                    || run.result.as_ref().is_some_and(stopped)
            }),
            Failure::NoResult(_) => one(&|run| run.killed || run.result.as_ref().is_some_and(|(_, written)| !written)),
            Failure::Configuration(_) => {
                one(&|run| run.result.as_ref().is_some_and(|(result, _)| result.configuration.is_some()))
            }
            // The kernel killed a script for its memory.
            Failure::Oom => one(&|run| run.oom),
            // The service of an external action reported the failure: `services` checks it.
            Failure::Reported => Ok(()),
            Failure::Exec(_) | Failure::Unit(_) => {
                if runs.is_empty() {
                    Ok(())
                } else {
                    Err(reported(runs))
                }
            }
        },
        Outcome::Refused { .. } => {
            if runs.is_empty() {
                Ok(())
            } else {
                Err(reported(runs))
            }
        }
        // Both outcomes state nothing about scripts.
        Outcome::Lost { .. } | Outcome::Resolved { .. } => Ok(()),
    }
}

impl Run {
    fn succeeded(&self) -> bool {
        let whole = self.result.as_ref().is_some_and(|(result, _)| result.ran >= result.of && result.status == 0);
        whole && !self.alive && self.ends.iter().all(|end| end.is_success())
    }

    /// Returns `true` if every script ran and ended well. `sure`: an announced reboot, except that of a local task,
    /// must have happened too.
    fn went_well(&self, sure: bool) -> bool {
        self.succeeded() && (!self.announced || self.boots > 0 || self.local || !sure)
    }

    /// Returns `true` if an announced reboot ended the run well: the last script had begun, and no script had failed
    /// before the announcement. Failures after the announcement do not count, because the controller may never get a
    /// report of them. `sure`: the node must have rebooted already; otherwise the announcement suffices.
    fn is_ended_by_boot(&self, sure: bool) -> bool {
        self.announced && (self.boots > 0 || !sure) && !self.failed_before && self.last_begun
    }

    /// Returns `true` if an outcome may name `status` as the run's exit status: it is the worst of the run. In a run
    /// with an announced reboot, the status of any script may be named.
    fn had(&self, status: ExitStatus) -> bool {
        self.worst_is(status) || (self.announced && self.ends.contains(&status))
    }

    fn worst_is(&self, status: ExitStatus) -> bool {
        self.result.as_ref().is_some_and(|(result, _)| result.worst == Some(status))
    }

    fn exits_with(&self, code: u8) -> bool {
        self.result.as_ref().is_some_and(|(result, written)| result.status == code || (!written && code == 74))
    }
}

fn reported(runs: &[&Run]) -> String {
    if runs.is_empty() {
        return "no script of it ever ran".to_owned();
    }
    let one = |run: &&Run| {
        let ends: Vec<String> = run.ends.iter().map(ToString::to_string).collect();
        let result = run.result.as_ref().map(|(result, written)| (result.status, result.ran, result.of, *written));
        format!("on n{} scripts ended {ends:?}, result {result:?}, killed {}", run.node, run.killed)
    };
    runs.iter().map(one).collect::<Vec<_>>().join("; ")
}
