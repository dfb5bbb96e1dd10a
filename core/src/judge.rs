//! Judge: decides the outcome of a task from its evidence. No other code makes `ok` for scripts.
//!
//! *A unit that is gone reads Result=success, status 0*, and so does a unit whose job is still queued (measured,
//! systemd 252). So the judge believes a unit only if the unit is loaded, has the claim's invocation, and waits for no
//! start. The outcome `ok` requires a runner's claim, and a complete `result.json` of the same invocation that says
//! that every script ran and ended with 0. A believed unit must agree: exit 0 and systemd's `success`. If unit and
//! result differ, the worse outcome stands and the note shows both. If systemd does not know the unit, the result
//! stands alone, with a note.

mod boot;
mod report;
#[cfg(test)]
mod tests;

use crate::defect;
use crate::ids::UNIT_PREFIX;
use crate::outcome::{ExitStatus, Failure, Loss, Outcome};
use crate::task::{
    Claim, Ended, Intent, NO_CLAIM, Process, RAN_NOTHING, RUNNER, RunResult, StepRecord, Tail, UnitFacts,
};

pub use boot::if_it_boots;
pub(crate) use boot::is_announced;
pub use report::{MAX_LISTED, MAX_TAILS};

/// The evidence of a task, normally after all processes have ended: unit, claim, steps and result, as far as they
/// remain.
#[derive(Debug, Clone, Copy)]
pub struct Evidence<'a> {
    /// The facts that systemd reports about the task's unit; `None`: systemd knows no such unit.
    pub unit: Option<&'a UnitFacts>,
    pub claim: Option<&'a Claim>,
    pub result: Option<&'a RunResult>,
    pub steps: &'a [StepRecord],
    pub tails: &'a [Tail],
    /// Processes that outlived the scripts, and were killed by the agent or left alive (`lingering = "keep"`).
    pub lingering: &'a [Process],
    /// Whether an operator, the resource manager or a caller asked perilog to stop the task. A TERM that reached the
    /// runner is no proof: any process of root may have sent the signal.
    pub cancelled: bool,
}

/// Returns the end of a task: the outcome with all details. `ended_ms`: the current time in milliseconds since 1970,
/// used as the time of the end unless the runner's result names one.
pub fn judge(evidence: &Evidence<'_>, intent: &Intent, ended_ms: u64) -> Ended {
    let (unit, result) = (evidence.believed_unit(), evidence.believed_result());
    let (outcome, note) = match (evidence.claim, unit, result) {
        (Some(Claim::Cancelled), ..) => (Outcome::Cancelled { status: None }, None),
        (Some(Claim::Withdrawn(outcome)), ..) => (withdrawn(outcome), None),
        (_, None, None) if defect!(TrustMissingUnit) => (Outcome::Ok, None),
        (_, None, None) => (Outcome::Lost { why: Loss::Vanished }, None),
        (_, None, Some(result)) => {
            let note = if evidence.unit.is_some_and(|unit| unit.invocation.is_some()) {
                "systemd restarted its unit (does a drop-in for all services set Restart=?); the outcome is the \
                 runner's result"
            } else {
                "systemd no longer knows its unit; the outcome is the runner's result"
            };
            (of_result(result), Some(note.to_owned()))
        }
        (claim, Some(unit), None) => (of_unit(unit, claim, evidence, intent), None),
        (_, Some(unit), Some(result)) => of_both(unit, result, evidence, intent),
    };
    // No resource manager waits for the boot of a local task (`Exec`): an announced boot does not change its outcome.
    let booted = (!intent.local && boot::was_shut_down(&outcome, evidence)).then(|| boot::of_steps(evidence.steps));
    let (outcome, note) = match (outcome, booted) {
        // `booted` is `lost` if scripts were still to begin. Then the TERM decides, as below.
        (_, Some(booted)) if !matches!(booted, Outcome::Lost { .. }) => (booted, note),
        (Outcome::Cancelled { status }, _) if evidence.was_stopped_by_others() => {
            let notes = note.into_iter().chain([STOPPED_BY_OTHERS.to_owned()]);
            (stopped_by_others(status), Some(notes.collect::<Vec<_>>().join("; ")))
        }
        (outcome, _) => (outcome, note),
    };
    report::Report { evidence, unit, result }.fill(outcome, note, intent, ended_ms)
}

impl<'a> Evidence<'a> {
    /// Returns the unit's facts, if they are evidence of this task: the unit is loaded, awaits no start, and has the
    /// claim's invocation (if a runner claimed).
    fn believed_unit(&self) -> Option<&'a UnitFacts> {
        let ours = |unit: &&UnitFacts| match self.claim {
            Some(Claim::Runner(invocation)) => unit.invocation.as_ref() == Some(invocation),
            Some(Claim::Cancelled | Claim::Withdrawn(_)) => false,
            // No runner claimed the task. The unit still shows why: for example, systemd could not execute the runner.
            None => true,
        };
        self.unit.filter(|unit| unit.loaded && !unit.is_to_start()).filter(ours)
    }

    /// Returns the result, if the runner that has the claim wrote it.
    fn believed_result(&self) -> Option<&'a RunResult> {
        match self.claim {
            Some(Claim::Runner(invocation)) => self.result.filter(|result| result.invocation == *invocation),
            _ => None,
        }
    }

    /// Returns `true` if perilog was not asked to stop the task, so that any TERM came from another sender.
    fn was_stopped_by_others(&self) -> bool {
        !self.cancelled && matches!(self.claim, Some(Claim::Runner(_)) | None)
    }

    /// Returns `true` if perilog was asked to stop the task, or a TERM from any sender reached the runner.
    fn was_cancelled(&self) -> bool {
        self.cancelled || self.steps.iter().any(|step| matches!(step, StepRecord::Cancelled { .. }))
    }
}

const STOPPED_BY_OTHERS: &str = "its runner was sent SIGTERM, but not by perilog (systemctl stop, a shutdown past its \
                                 limit, or another process)";

/// Returns the outcome of a task that a TERM of another sender stopped: `failed`, with the scripts' status if that is
/// not 0, otherwise with TERM.
fn stopped_by_others(status: Option<ExitStatus>) -> Outcome {
    const TERM: u8 = 15;
    let why = match status {
        Some(ExitStatus::Exit(code)) if code != 0 => Failure::Exit(code),
        Some(ExitStatus::Signal(signal)) => Failure::Signal(signal),
        Some(ExitStatus::Exit(_)) | None => Failure::Signal(TERM),
    };
    Outcome::Failed { why }
}

/// Returns the outcome of a task that the agent withdrew: the outcome in the agent's claim. No script ran, so a success
/// becomes `lost`.
fn withdrawn(outcome: &Outcome) -> Outcome {
    match outcome {
        Outcome::Ok | Outcome::Tolerable | Outcome::Resolved { .. } => Outcome::Lost { why: Loss::Vanished },
        other => other.clone(),
    }
}

/// Returns how the unit's main process ended; `None`: it has not ended, or never ran.
fn exit_of(unit: &UnitFacts) -> Option<ExitStatus> {
    let status = u8::try_from(unit.main_status).unwrap_or(u8::MAX);
    match unit.main_code {
        1 => Some(ExitStatus::Exit(status)),
        2 | 3 => Some(ExitStatus::Signal(status)),
        _ => None,
    }
}

/// Advice where systemd, and not the runner, ended a unit: the runner names drop-ins only where it runs.
const DROP_INS: &str = "see the journal of its unit; on that node, `perilog doctor` names the drop-ins that change the \
                        unit";

/// systemd's exit code (systemd.exec(5)) of a child that could not execute the unit's program.
const NOT_EXECUTED: u8 = 203;

/// Returns `true` for systemd's exit codes (systemd.exec(5)) of a child that failed before it executed the program.
const fn is_exec_code(code: u8) -> bool {
    code >= 200 && code <= 245
}

fn of_both(
    unit: &UnitFacts,
    result: &RunResult,
    evidence: &Evidence<'_>,
    intent: &Intent,
) -> (Outcome, Option<String>) {
    let from_result = of_result(result);
    let exit = exit_of(unit);
    let systemd_agrees = unit.result == if result.status == 0 { "success" } else { "exit-code" };
    if exit == Some(ExitStatus::Exit(result.status)) && systemd_agrees {
        return (from_result, None);
    }
    let state = exit.map_or_else(|| unit.result.clone(), |exit| format!("{} ({exit})", unit.result));
    let note = format!("unit and result differ: the unit ended with {state}, the runner with {from_result}");
    let failed = |why| Outcome::Failed { why };
    let from_unit = match exit {
        _ if unit.result == "oom-kill" => failed(Failure::Oom),
        // Unit and result differ, so the result reports a status other than 0, which is worse.
        Some(ExitStatus::Exit(0)) if unit.result == "success" => return (from_result, Some(note)),
        Some(ExitStatus::Exit(0)) => failed(Failure::Unit(unit.result.clone())),
        Some(ExitStatus::Exit(code)) => failed(Failure::Exit(code)),
        Some(ExitStatus::Signal(_)) | None => of_unit(unit, evidence.claim, evidence, intent),
    };
    let worse = if badness(&from_result) > badness(&from_unit) { from_result } else { from_unit };
    (worse, Some(note))
}

/// Returns the key by which outcomes compare: severity, then status. An outcome without a status counts as the worst of
/// its severity.
fn badness(outcome: &Outcome) -> (u8, u8) {
    (outcome.severity(), outcome.status().unwrap_or(u8::MAX))
}

/// Returns the outcome according to the unit and the claim, without the runner's result: never `ok`.
fn of_unit(unit: &UnitFacts, claim: Option<&Claim>, evidence: &Evidence<'_>, intent: &Intent) -> Outcome {
    let failed = |why| Outcome::Failed { why };
    let exit = exit_of(unit);
    if unit.result == "oom-kill" {
        return failed(Failure::Oom);
    }
    match (claim, exit) {
        (None, Some(ExitStatus::Exit(NOT_EXECUTED))) => {
            failed(Failure::Exec(format!("systemd cannot execute {RUNNER} (exit {NOT_EXECUTED}): is it installed?")))
        }
        (None, Some(ExitStatus::Exit(code))) if is_exec_code(code) => failed(Failure::Exec(format!(
            "systemd failed before the runner began (exit {code}, see systemd.exec(5)): {DROP_INS}"
        ))),
        (None, Some(ExitStatus::Exit(NO_CLAIM))) => Outcome::Refused {
            why: format!(
                "its runner could not write to /run/perilog, and ran no script (exit {NO_CLAIM}): is /run full (df \
                 /run; df -i /run)?"
            ),
        },
        (None, Some(ExitStatus::Exit(code))) if RAN_NOTHING.contains(&code) => {
            // Not the name of this unit: a drain of many nodes for one cause has one reason.
            let units = format!("{UNIT_PREFIX}{}-{}-*", intent.start.action, intent.start.job);
            let why = format!(
                "its runner stopped before it ran any script (exit {code}): see journalctl -u '{units}' on that node"
            );
            Outcome::Refused { why }
        }
        // The runner was killed before its claim; or it made the claim, and another program removed the claim.
        (None, Some(_)) => failed(Failure::NoResult(exit)),
        (None, None) => {
            failed(Failure::Unit(format!("systemd never started its runner (result {}): {DROP_INS}", unit.result)))
        }
        (Some(_), _) if defect!(KilledIsCancelled) => Outcome::Cancelled { status: exit },
        (Some(_), _) if evidence.was_cancelled() => Outcome::Cancelled { status: exit },
        (Some(_), exit) => failed(Failure::NoResult(exit)),
    }
}

/// Returns the outcome according to the runner's result alone. A cancel counts only if the scripts did not all run and
/// end with 0: a TERM that came too late changes nothing.
fn of_result(result: &RunResult) -> Outcome {
    let failed = |why| Outcome::Failed { why };
    let all_ran = result.ran >= result.of;
    if let Some(text) = &result.configuration {
        return failed(Failure::Configuration(text.clone()));
    }
    if let Some(text) = &result.exec {
        return failed(Failure::Exec(text.clone()));
    }
    if result.timed_out {
        return Outcome::Timeout { status: result.worst };
    }
    if result.cancelled && (result.status != 0 || !all_ran) {
        return Outcome::Cancelled { status: result.worst };
    }
    match result.worst {
        Some(ExitStatus::Signal(signal)) => failed(Failure::Signal(signal)),
        Some(ExitStatus::Exit(code)) if code != 0 => failed(Failure::Exit(code)),
        _ if result.status != 0 => failed(Failure::Exit(result.status)),
        _ if !all_ran => failed(Failure::Exec(format!("only {} of {} scripts ran", result.ran, result.of))),
        _ => Outcome::Ok,
    }
}
