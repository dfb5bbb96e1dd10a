//! A boot as the end of a task (`perilog-report expect-reboot`): what its scripts have come to, where the rest of it is
//! a boot that one of them announced.
//!
//! A host that goes down sends TERM to everything. A runner that got it says `cancelled`, and so does its result; but
//! where nobody asked us to cancel and a script had announced the boot, that TERM is the boot's beginning and ends no
//! script by a fault of its own.

use super::report::Report;
use super::{Evidence, withdrawn};
use crate::outcome::{ExitStatus, Failure, Loss, Outcome};
use crate::task::{self, Claim, Ended, Intent, StepRecord};

/// How the task has ended if its host boots now; only where a script said that it will. Past a limit that is no longer
/// well.
pub fn if_it_boots(evidence: &Evidence<'_>, intent: &Intent, ended_ms: u64) -> Ended {
    let outcome = match evidence.claim {
        Some(Claim::Cancelled) => Outcome::Cancelled { status: None },
        Some(Claim::Withdrawn(outcome)) => withdrawn(outcome),
        _ if is_announced(evidence.steps) => of_steps(evidence.steps),
        _ => Outcome::Lost { why: Loss::Rebooted },
    };
    Report { evidence, unit: None, result: None }.fill(outcome, None, intent, ended_ms)
}

/// Did a script say that the host will boot?
pub(crate) fn is_announced(steps: &[StepRecord]) -> bool {
    steps.iter().any(|step| matches!(step, StepRecord::Report { report: task::Report::ExpectReboot, .. }))
}

/// Is it the announced boot that ended this task?
pub(super) fn was_shut_down(outcome: &Outcome, evidence: &Evidence<'_>) -> bool {
    matches!(outcome, Outcome::Cancelled { .. }) && !evidence.cancelled && is_announced(evidence.steps)
}

/// What the scripts came to before TERM reached the runner, if it did. One that has not ended has the boot for its end;
/// where others have not begun the boot came too early, and the task is lost.
pub(super) fn of_steps(steps: &[StepRecord]) -> Outcome {
    let (mut worst, mut exec, mut timed_out, mut termed) = (None::<ExitStatus>, None::<String>, false, false);
    // The last try of the script at hand: another one takes its place.
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
