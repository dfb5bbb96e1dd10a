//! The end of a task by an announced boot (`perilog-report expect-reboot`): the outcome of the scripts if one of them
//! announced a boot of the host.
//!
//! A host that goes down sends TERM to every process. A runner that received TERM reports `cancelled`, also in its
//! result. But if perilog had no request to cancel and a script had announced the boot, the TERM is the beginning of
//! the boot. Such a TERM is no fault of a script.

use super::report::Report;
use super::{Evidence, withdrawn};
use crate::outcome::{ExitStatus, Failure, Loss, Outcome};
use crate::task::{self, Claim, Ended, Intent, StepRecord};

/// Returns how the task ends if the host boots now; only meaningful if a script announced a boot. A boot past the limit
/// is no success.
pub fn if_it_boots(evidence: &Evidence<'_>, intent: &Intent, ended_ms: u64) -> Ended {
    let outcome = match evidence.claim {
        Some(Claim::Cancelled) => Outcome::Cancelled { status: None },
        Some(Claim::Withdrawn(outcome)) => withdrawn(outcome),
        _ if is_announced(evidence.steps) => of_steps(evidence.steps),
        _ => Outcome::Lost { why: Loss::Rebooted },
    };
    Report { evidence, unit: None, result: None }.fill(outcome, None, intent, ended_ms)
}

/// Returns `true` if a script announced a boot of the host.
pub(crate) fn is_announced(steps: &[StepRecord]) -> bool {
    steps.iter().any(|step| matches!(step, StepRecord::Report { report: task::Report::ExpectReboot, .. }))
}

/// Returns `true` if the announced boot ended this task.
pub(super) fn was_shut_down(outcome: &Outcome, evidence: &Evidence<'_>) -> bool {
    matches!(outcome, Outcome::Cancelled { .. }) && !evidence.cancelled && is_announced(evidence.steps)
}

/// Returns the outcome of the scripts up to the TERM, if one came. A script that has not ended ends with the boot. If
/// other scripts have not begun, the boot came too early, and the task is lost.
pub(super) fn of_steps(steps: &[StepRecord]) -> Outcome {
    let (mut worst, mut exec, mut timed_out, mut termed) = (None::<ExitStatus>, None::<String>, false, false);
    // The last try of the current script: a further try replaces it.
    let mut failed: Option<ExitStatus> = None;
    let worse = |worst: Option<ExitStatus>, failed: Option<ExitStatus>| {
        worst.into_iter().chain(failed).max_by_key(|status| status.shell())
    };
    let mut left = 0;
    for step in steps {
        match step {
            StepRecord::Begin { attempt, seq, of, .. } => {
                left = of.saturating_sub(seq.saturating_add(1));
                if *attempt <= 1 {
                    worst = worse(worst, failed);
                }
                failed = None;
            }
            StepRecord::End { timed_out: late, .. } if termed => timed_out |= late,
            StepRecord::End { status, tolerable, timed_out: late, .. } => {
                timed_out |= late;
                failed = Some(*status).filter(|status| !tolerable && !status.is_success());
            }
            StepRecord::NotRun { script, why, .. } => {
                exec.get_or_insert_with(|| format!("{script}: {why}"));
            }
            StepRecord::Overdue { .. } => timed_out = true,
            StepRecord::Cancelled { .. } => termed = true,
            StepRecord::Report { .. } => {}
        }
    }
    worst = worse(worst, failed);
    let failed = |why| Outcome::Failed { why };
    match (exec, worst) {
        (Some(text), _) => failed(Failure::Exec(text)),
        (None, status) if timed_out => Outcome::Timeout { status },
        (None, Some(ExitStatus::Signal(signal))) => failed(Failure::Signal(signal)),
        (None, Some(ExitStatus::Exit(code))) => failed(Failure::Exit(code)),
        (None, None) if left > 0 => Outcome::Lost { why: Loss::Rebooted },
        (None, None) => Outcome::Ok,
    }
}
