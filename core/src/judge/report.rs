//! Report: adds the details to a task's outcome: times, steps, checks, milestones, the end of the output. Cuts every
//! list so that the report fits a frame, and names each cut in the field `note` of [`Ended`].

use std::fmt::Write as _;

use super::Evidence;
use crate::duration::Span;
use crate::outcome::Outcome;
use crate::task::{
    self, Check, Ended, Intent, Leftover, Process, RunResult, Step, StepRecord, Tail, Treatment, UnitFacts,
};

/// Maximum number of entries in each list of a task's end, such as its steps or checks.
pub const MAX_LISTED: usize = 256;
/// Maximum size in bytes of each list in a task's end, such as the kept output. Seven such lists fit a frame of 1 MiB,
/// with room for the other fields.
pub const MAX_TAILS: usize = 64 * 1024;
/// Maximum size in bytes of one text that a script reports.
const MAX_TEXT: usize = 4096;

pub(super) struct Report<'a> {
    pub(super) evidence: &'a Evidence<'a>,
    /// The facts about the unit; `None`: there are none, or the judge does not believe them.
    pub(super) unit: Option<&'a UnitFacts>,
    /// The runner's result; `None`: there is none, or the judge does not believe it.
    pub(super) result: Option<&'a RunResult>,
}

impl Report<'_> {
    pub(super) fn fill(&self, outcome: Outcome, note: Option<String>, intent: &Intent, ended_ms: u64) -> Ended {
        let mut reported = Reports::read(self.evidence.steps);
        let mut ended = Ended::bare(outcome, ended_ms);
        // Every script ran; only named checks or scripts marked as tolerable failed.
        let excused = !reported.checks.is_empty() || is_any_tolerable(&reported.steps);
        if ended.outcome == Outcome::Ok && excused {
            ended.outcome = Outcome::Tolerable;
        }
        ended.dropped_env = intent.dropped_env;
        ended.began_ms = reported.steps.first().map(|step| step.began_ms);
        if let Some(result) = self.result {
            ended.began_ms = Some(result.began_ms);
            ended.ended_ms = result.ended_ms;
            ended.elapsed_ms = Some(result.elapsed_ms);
            ended.empty = ended.outcome == Outcome::Ok && result.of == 0;
        }
        if let Some(unit) = self.unit {
            ended.cpu_ns = unit.cpu_ns;
            ended.memory_peak = unit.memory_peak;
        }
        let mut cut = Vec::new();
        ended.steps = fit("steps", reported.steps, |s: &Step| s.script.len() + s.digest.len() + 32, &mut cut);
        ended.checks = fit("checks", reported.checks, |c: &Check| c.check.len() + c.message.len(), &mut cut);
        let skipped = self.result.map(|result| result.skipped.clone()).unwrap_or_default();
        ended.skipped = fit("skipped files", skipped, String::len, &mut cut);
        ended.milestones = fit("milestones", reported.milestones, String::len, &mut cut);
        let unnamed =
            reported.left.into_iter().filter(|p| self.evidence.lingering.iter().all(|known| known.pid != p.pid));
        let lingering = self.evidence.lingering.iter().cloned().chain(unnamed).collect();
        ended.lingering = fit("processes", lingering, |p: &Process| p.command.len() + 8, &mut cut);
        ended.tails =
            fit("tails of output", self.evidence.tails.to_vec(), |t: &Tail| t.script.len() + t.text.len(), &mut cut);
        ended.user_message = reported.user_message.map(|text| crop(text, MAX_TEXT));
        ended.expect_reboot = reported.expect_reboot;
        if reported.forensics.len() > MAX_TAILS {
            cut.push("forensics".to_owned());
        }
        ended.forensics =
            (!reported.forensics.is_empty()).then(|| crop(std::mem::take(&mut reported.forensics), MAX_TAILS));
        let cut = (!cut.is_empty()).then(|| format!("too long to report in full: {}", cut.join(", ")));
        let notes: Vec<String> = note.into_iter().chain(cut).collect();
        ended.note = (!notes.is_empty()).then(|| crop(notes.join("; "), MAX_TEXT));
        ended
    }
}

/// The details of a task's end that come from the records of the runner (`steps.jsonl`).
#[derive(Default)]
struct Reports {
    steps: Vec<Step>,
    checks: Vec<Check>,
    milestones: Vec<String>,
    user_message: Option<String>,
    expect_reboot: bool,
    forensics: String,
    /// Processes that the runner killed, or let live as the plan says.
    left: Vec<Process>,
}

impl Reports {
    fn read(records: &[StepRecord]) -> Self {
        let mut reported = Self::default();
        // The `seq` of each entry of `steps`.
        let mut numbers: Vec<u32> = Vec::new();
        for record in records {
            match record {
                StepRecord::Begin { seq, script, digest, attempt, at_ms, .. } => {
                    numbers.push(*seq);
                    reported.steps.push(Step {
                        script: script.clone(),
                        digest: digest.clone(),
                        attempt: *attempt,
                        began_ms: *at_ms,
                        elapsed_ms: 0,
                        status: None,
                        tolerable: false,
                        timed_out: false,
                    });
                }
                StepRecord::End { seq, elapsed_ms, status, tolerable, timed_out, .. } => {
                    if let Some(at) = numbers.iter().rposition(|number| number == seq) {
                        let step = &mut reported.steps[at];
                        step.elapsed_ms = *elapsed_ms;
                        step.status = Some(*status);
                        step.tolerable = *tolerable;
                        step.timed_out = *timed_out;
                    }
                }
                StepRecord::Overdue { script, limit_ms, forensics, .. } => {
                    // Writing to a String never fails.
                    let _ = writeln!(
                        reported.forensics,
                        "{script} past its limit of {}:\n{forensics}",
                        Span::from_millis(*limit_ms)
                    );
                }
                StepRecord::Report { report, .. } => reported.receive(report),
                StepRecord::Left { treatment: Treatment::Hold { .. }, .. } => {}
                StepRecord::Left { processes, .. } => {
                    let known = |p: &Process| reported.left.iter().any(|known| known.pid == p.pid);
                    let new: Vec<Process> = processes.iter().map(Leftover::named).filter(|p| !known(p)).collect();
                    reported.left.extend(new);
                }
                StepRecord::NotRun { .. } | StepRecord::Cancelled { .. } => {}
            }
        }
        reported
    }

    fn receive(&mut self, report: &task::Report) {
        match report {
            task::Report::Tolerable { check, message } => {
                self.checks.push(Check { check: check.clone(), message: message.clone() });
            }
            task::Report::Milestone { name } => self.milestones.push(name.clone()),
            task::Report::User { message } => self.user_message = Some(message.clone()),
            task::Report::ExpectReboot => self.expect_reboot = true,
            task::Report::Progress { .. } => {}
        }
    }
}

/// Returns `true` if the last try of any script failed, and the node's configuration marks that script as tolerable.
fn is_any_tolerable(steps: &[Step]) -> bool {
    let tried_again = |i: usize| {
        let (this, next) = (&steps[i], steps.get(i + 1));
        next.is_some_and(|next| next.script == this.script && next.attempt > this.attempt)
    };
    steps.iter().enumerate().any(|(i, step)| step.tolerable && !tried_again(i))
}

/// Returns the first entries of `all` that fit [`MAX_LISTED`] and [`MAX_TAILS`]; `size`: the bytes of an entry. If
/// others are left out, appends a remark with the noun `what` to `cut`: `256 of 300 steps`.
fn fit<T>(what: &str, mut all: Vec<T>, size: impl Fn(&T) -> usize, cut: &mut Vec<String>) -> Vec<T> {
    let of = all.len();
    let mut room = MAX_TAILS;
    let mut keep = 0;
    for item in all.iter().take(MAX_LISTED) {
        let Some(left) = room.checked_sub(size(item)) else { break };
        room = left;
        keep += 1;
    }
    if keep < of {
        all.truncate(keep);
        cut.push(format!("{keep} of {of} {what}"));
    }
    all
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
