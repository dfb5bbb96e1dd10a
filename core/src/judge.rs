//! From what is left of a task to its outcome: the one place where `ok` is made.
//!
//! *A unit that is gone reads Result=success, status 0*, and so does one whose job is still queued (measured, systemd 252). So a unit is
//! believed only when it is loaded, carries the claim's invocation, and has no job pending; and `ok` needs exit 0 *and* a complete
//! `result.json` of the same invocation. Where unit and result differ the worse stands and the note shows both.

use std::fmt::Write as _;

use crate::outcome::{ExitStatus, Failure, Loss, Outcome};
use crate::task::{Check, Claim, Ended, Intent, Process, Report, RunResult, Step, StepRecord, Tail, UnitFacts};

/// Most steps, checks, milestones and tails that an outcome carries, so that it fits a frame.
pub const MAX_LISTED: usize = 256;
/// Most bytes of script output that an outcome carries.
pub const MAX_TAILS: usize = 64 * 1024;

/// All that is left of a task whose main process and cgroup are gone, or whose unit is.
#[derive(Debug, Clone, Copy)]
pub struct Evidence<'a> {
    /// `None`: systemd knows no such unit.
    pub unit: Option<&'a UnitFacts>,
    pub claim: Option<&'a Claim>,
    pub result: Option<&'a RunResult>,
    pub steps: &'a [StepRecord],
    pub tails: &'a [Tail],
    /// Processes that were left behind and killed or kept.
    pub lingering: &'a [Process],
    /// A cancel was asked for.
    pub cancelled: bool,
}

/// What the unit says, where it may be believed.
fn believed<'a>(evidence: &Evidence<'a>) -> Option<&'a UnitFacts> {
    let unit = evidence.unit?;
    let ours = match evidence.claim {
        Some(Claim::Runner(invocation)) => unit.invocation.as_ref() == Some(invocation),
        Some(Claim::Cancelled | Claim::Withdrawn(_)) => false,
        // Nobody claimed: the unit can still tell that it could not execute the runner.
        None => true,
    };
    (unit.loaded && !unit.job_pending && ours).then_some(unit)
}

/// The wait status of a unit's main process.
fn unit_status(unit: &UnitFacts) -> Option<ExitStatus> {
    let status = u8::try_from(unit.main_status).unwrap_or(u8::MAX);
    match unit.main_code {
        1 => Some(ExitStatus::Exit(status)),
        2 | 3 => Some(ExitStatus::Signal(status)),
        _ => None,
    }
}

/// systemd.exec(5): the exit codes by which PID 1's child tells that it could not get as far as the program.
const fn is_exec_code(code: u8) -> bool {
    code >= 200 && code <= 245
}

/// The outcome and everything that goes with it.
pub fn judge(evidence: &Evidence<'_>, intent: &Intent, ended_ms: u64) -> Ended {
    let (outcome, note) = outcome(evidence);
    let mut ended = Ended::bare(outcome, ended_ms);
    ended.note = note;
    ended.dropped_env = intent.dropped_env;
    ended.lingering = evidence.lingering.iter().take(MAX_LISTED).cloned().collect();
    if let Some(result) = evidence.result {
        ended.began_ms = Some(result.began_ms);
        ended.ended_ms = result.ended_ms;
        ended.elapsed_ms = Some(result.elapsed_ms);
    }
    if let Some(unit) = believed(evidence) {
        ended.cpu_ns = unit.cpu_ns;
        ended.memory_peak = unit.memory_peak;
    }
    gather(&mut ended, evidence);
    // Everything ran and nothing failed but named checks.
    if ended.outcome == Outcome::Ok && (!ended.checks.is_empty() || ended.steps.iter().any(|s| s.tolerable)) {
        ended.outcome = Outcome::Tolerable;
    }
    ended
}

fn outcome(evidence: &Evidence<'_>) -> (Outcome, Option<String>) {
    if evidence.claim == Some(&Claim::Cancelled) {
        return (Outcome::Cancelled { status: None }, None);
    }
    let result = match (evidence.claim, evidence.result) {
        (Some(Claim::Runner(invocation)), Some(result)) if result.invocation == *invocation => Some(result),
        _ => None,
    };
    let Some(unit) = believed(evidence) else {
        return match result {
            Some(result) => {
                (of_result(result, evidence), Some("the unit was gone; the runner's result stands".to_owned()))
            }
            None => (Outcome::Lost { why: Loss::Vanished }, None),
        };
    };
    let status = unit_status(unit);
    let Some(result) = result else {
        return (without_result(unit, status, evidence), None);
    };
    let from_result = of_result(result, evidence);
    match status {
        Some(ExitStatus::Exit(code)) if code == result.status => (from_result, None),
        // The runner wrote its result and then did not exit with it: both are shown, the worse stands.
        _ => {
            let from_unit = without_result(unit, status, evidence);
            let note =
                format!("unit and result differ: the unit says {}, the result {from_result}", describe(unit, status));
            let stands = if from_result.status().unwrap_or(u8::MAX) > from_unit.status().unwrap_or(u8::MAX) {
                from_result
            } else {
                from_unit
            };
            (stands, Some(note))
        }
    }
}

fn describe(unit: &UnitFacts, status: Option<ExitStatus>) -> String {
    status.map_or_else(|| unit.result.clone(), |s| format!("{} ({s})", unit.result))
}

/// The runner ended and left no result: what the unit says, and never `ok`.
fn without_result(unit: &UnitFacts, status: Option<ExitStatus>, evidence: &Evidence<'_>) -> Outcome {
    if unit.result == "oom-kill" {
        return Outcome::Failed { why: Failure::Oom };
    }
    match (evidence.claim, status) {
        (None, Some(ExitStatus::Exit(code))) if is_exec_code(code) => {
            Outcome::Failed { why: Failure::Exec(format!("systemd exit code {code}, systemd.exec(5)")) }
        }
        (None, _) => Outcome::Refused {
            why: "the runner did not claim the task: it came too late, or its directory was gone".to_owned(),
        },
        (Some(_), _) if evidence.cancelled => Outcome::Cancelled { status },
        (Some(_), Some(ExitStatus::Signal(signal))) => Outcome::Failed { why: Failure::Signal(signal) },
        (Some(_), status) => Outcome::Failed { why: Failure::NoResult(status) },
    }
}

fn of_result(result: &RunResult, evidence: &Evidence<'_>) -> Outcome {
    if let Some(text) = &result.configuration {
        return Outcome::Failed { why: Failure::Configuration(text.clone()) };
    }
    if let Some(text) = &result.exec {
        return Outcome::Failed { why: Failure::Exec(text.clone()) };
    }
    if result.timed_out {
        return Outcome::Timeout { status: result.worst };
    }
    if (result.cancelled || evidence.cancelled) && (result.status != 0 || result.ran < result.of) {
        return Outcome::Cancelled { status: result.worst };
    }
    match result.worst {
        Some(ExitStatus::Signal(signal)) => Outcome::Failed { why: Failure::Signal(signal) },
        Some(ExitStatus::Exit(code)) if code != 0 => Outcome::Failed { why: Failure::Exit(code) },
        _ if result.status != 0 => Outcome::Failed { why: Failure::Exit(result.status) },
        _ => Outcome::Ok,
    }
}

/// Fills in steps, checks, milestones, tails and forensics from the records.
fn gather(ended: &mut Ended, evidence: &Evidence<'_>) {
    let mut steps: Vec<(u32, Step)> = Vec::new();
    let mut forensics = String::new();
    for record in evidence.steps {
        match record {
            StepRecord::Begin { seq, script, digest, attempt, at_ms, .. } => {
                let step = Step {
                    script: script.clone(),
                    digest: digest.clone(),
                    attempt: *attempt,
                    began_ms: *at_ms,
                    elapsed_ms: 0,
                    status: None,
                    tolerable: false,
                    timed_out: false,
                };
                steps.push((*seq, step));
            }
            StepRecord::End { seq, elapsed_ms, status, tolerable, timed_out, .. } => {
                if let Some((_, step)) = steps.iter_mut().rev().find(|(s, _)| s == seq) {
                    step.elapsed_ms = *elapsed_ms;
                    step.status = Some(*status);
                    step.tolerable = *tolerable;
                    step.timed_out = *timed_out;
                }
            }
            StepRecord::Overdue { script, limit_ms, forensics: seen, .. } => {
                // A String never fails to be written to.
                let _ = writeln!(forensics, "{script} past its limit of {limit_ms} ms:\n{seen}");
            }
            StepRecord::Report { report, .. } => match report {
                Report::Tolerable { check, message } => {
                    ended.checks.push(Check { check: check.clone(), message: message.clone() })
                }
                Report::Milestone { name } => ended.milestones.push(name.clone()),
                Report::User { message } => ended.user_message = Some(message.clone()),
                Report::ExpectReboot => ended.expect_reboot = true,
                Report::Progress { .. } => {}
            },
            StepRecord::NotRun { .. } | StepRecord::Cancelled { .. } => {}
        }
    }
    ended.checks.truncate(MAX_LISTED);
    ended.milestones.truncate(MAX_LISTED);
    ended.steps = steps.into_iter().map(|(_, step)| step).take(MAX_LISTED).collect();
    ended.forensics = (!forensics.is_empty()).then(|| crop(forensics, MAX_TAILS));
    let mut room = MAX_TAILS;
    for tail in evidence.tails.iter().take(MAX_LISTED) {
        room = room.saturating_sub(tail.text.len());
        if room == 0 {
            break;
        }
        ended.tails.push(tail.clone());
    }
}

fn crop(mut text: String, most: usize) -> String {
    if text.len() > most {
        let mut end = most;
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        text.truncate(end);
    }
    text
}
