//! Phase: derives the phase and the milestones of a task from the records of its runner (`steps.jsonl`).

use crate::message::Phase;
use crate::task::{Leftover, Report, StepRecord, Treatment};

/// Maximum number of milestones that the agent reports for a task.
const MAX_MILESTONES: usize = 256;

#[derive(Debug, Default, PartialEq)]
pub(super) struct Progress {
    /// The phase of the task; `None`: no script has begun yet. Between two scripts, the phase still names the earlier
    /// one.
    pub(super) phase: Option<Phase>,
    /// The milestones in the order in which scripts reached them.
    pub(super) milestones: Vec<String>,
}

struct Current<'a> {
    seq: u32,
    script: &'a str,
    attempt: u32,
    of: u32,
    progress: Option<&'a str>,
    /// The limit (ms) that the script passed, and what it did at that time; `None`: no limit has passed.
    overdue: Option<(u64, &'a str)>,
}

/// Returns `true` if the last script that began has not ended, by the runner's records.
pub(super) fn is_script_running(steps: &[StepRecord]) -> bool {
    let turn = |step: &StepRecord| match step {
        StepRecord::Begin { .. } => Some(true),
        StepRecord::End { .. } | StepRecord::NotRun { .. } => Some(false),
        _ => None,
    };
    steps.iter().rev().find_map(turn).unwrap_or(false)
}

pub(super) fn read(steps: &[StepRecord]) -> Progress {
    let mut progress = Progress::default();
    let mut index = 0;
    let mut current: Option<Current<'_>> = None;
    let mut left = None;
    for step in steps {
        match step {
            StepRecord::Begin { seq, script, attempt, of, .. } => {
                // A further try of the same script keeps the script's number.
                let again = current.as_ref().is_some_and(|c| c.script == script && c.attempt < *attempt);
                index += u32::from(!again);
                current =
                    Some(Current { seq: *seq, script, attempt: *attempt, of: *of, progress: None, overdue: None });
            }
            StepRecord::NotRun { .. } => index += 1,
            StepRecord::End { seq, .. } => {
                if let Some(current) = current.as_mut().filter(|c| c.seq == *seq) {
                    current.overdue = None;
                }
            }
            StepRecord::Overdue { seq, limit_ms, doing, .. } => {
                if let Some(current) = current.as_mut().filter(|c| c.seq == *seq) {
                    current.overdue = Some((*limit_ms, doing));
                }
            }
            StepRecord::Report { report, .. } => match report {
                Report::Progress { message } => {
                    if let Some(current) = &mut current {
                        current.progress = Some(message);
                    }
                }
                Report::Milestone { name } if progress.milestones.len() < MAX_MILESTONES => {
                    progress.milestones.push(name.clone());
                }
                _ => {}
            },
            StepRecord::Left { treatment: Treatment::Keep, .. } | StepRecord::Cancelled { .. } => {}
            StepRecord::Left { processes, .. } => left = Some(processes.iter().map(Leftover::named).collect()),
        }
    }
    let lingering = left.map(|processes| Phase::Lingering { processes });
    let running = current.map(|c| match c.overdue {
        Some((limit_ms, doing)) => Phase::Overdue { script: c.script.to_owned(), limit_ms, doing: doing.to_owned() },
        None => {
            Phase::Running { script: c.script.to_owned(), index, of: c.of, progress: c.progress.map(str::to_owned) }
        }
    });
    progress.phase = lingering.or(running);
    progress
}
