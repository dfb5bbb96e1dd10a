//! Boot that a script announced (`perilog-report expect-reboot`): decides the outcome of a task that this boot ended.
//!
//! A host that goes down sends TERM to every process, and a runner that received TERM reports `cancelled` in its
//! result. If a script had announced the boot and perilog was not asked to stop the task, that TERM belongs to the
//! boot, and is no failure of a script.

use super::report::Report;
use super::{Evidence, withdrawn};
use crate::outcome::{ExitStatus, Failure, Loss, Outcome};
use crate::task::{self, Claim, Ended, Intent, StepRecord};

/// Returns how the task ends if the host reboots now. A task that the agent cancelled or withdrew ends as its claim
/// says. If a script announced the boot, the records of the scripts so far decide: for example, a script past its limit
/// makes a timeout. Any other task is lost.
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

/// Returns `true` if the boot that a script announced ended this task. A TERM then stopped the task, and perilog was
/// not asked to stop it.
pub(super) fn was_shut_down(outcome: &Outcome, evidence: &Evidence<'_>) -> bool {
    let of_runner = matches!(evidence.claim, Some(Claim::Runner(_)) | None);
    of_runner && matches!(outcome, Outcome::Cancelled { .. }) && !evidence.cancelled && is_announced(evidence.steps)
}

/// Returns the outcome of a task that a boot of its host ended, as one of its scripts had announced. `steps`: the
/// records of the task's scripts up to the boot. The first case that applies decides:
///
/// 1. A script could not be executed: `failed`.
/// 2. A script ran past its limit: `timeout`.
/// 3. The last try of a script failed, and the failure is not tolerable: `failed`. A script that the boot interrupted
///    has not failed.
/// 4. A script had not begun: `lost`, because the boot came too early.
/// 5. Any other task: `ok`.
pub(super) fn of_steps(steps: &[StepRecord]) -> Outcome {
    let (mut worst, mut exec, mut timed_out, mut termed) = (None::<ExitStatus>, None::<String>, false, false);
    // The failure of the current script's last try; a further try replaces it.
    let mut failed: Option<ExitStatus> = None;
    let worse = |worst: Option<ExitStatus>, failed: Option<ExitStatus>| {
        worst.into_iter().chain(failed).max_by_key(|status| status.shell())
    };
    // Scripts that have begun, and scripts of the plan. A further try of a script has a `seq` of its own.
    let (mut begun, mut planned) = (0_u32, 0_u32);
    for step in steps {
        match step {
            StepRecord::Begin { attempt, of, .. } => {
                planned = *of;
                if *attempt <= 1 {
                    begun = begun.saturating_add(1);
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
            StepRecord::Report { .. } | StepRecord::Left { .. } => {}
        }
    }
    worst = worse(worst, failed);
    let failed = |why| Outcome::Failed { why };
    match (exec, worst) {
        (Some(text), _) => failed(Failure::Exec(text)),
        (None, status) if timed_out => Outcome::Timeout { status },
        (None, Some(ExitStatus::Signal(signal))) => failed(Failure::Signal(signal)),
        (None, Some(ExitStatus::Exit(code))) => failed(Failure::Exit(code)),
        // Without a record of a begin nothing shows that a script ran.
        (None, None) if begun < planned || begun == 0 => Outcome::Lost { why: Loss::Rebooted },
        (None, None) => Outcome::Ok,
    }
}
