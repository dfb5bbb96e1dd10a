//! End of a task, with all details.

use serde::{Deserialize, Serialize};

use super::{Check, NO_SCRIPT, Process, Reboot, Step, Tail};
use crate::outcome::Outcome;
use crate::output;

/// The end of a task: its outcome with all details. Contents of `outcome.json`, and body of `Finished`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ended {
    pub outcome: Outcome,
    /// Time of the first script's begin in milliseconds since 1970; `None`: no script began, as far as known.
    pub began_ms: Option<u64>,
    pub ended_ms: u64,
    pub elapsed_ms: Option<u64>,
    #[serde(default)]
    pub steps: Vec<Step>,
    #[serde(default)]
    pub checks: Vec<Check>,
    #[serde(default)]
    pub milestones: Vec<String>,
    #[serde(default)]
    pub user_message: Option<String>,
    /// Whether a script announced a reboot of the host as the task's end. This field and `booted` store a [`Reboot`].
    #[serde(default)]
    pub expect_reboot: bool,
    /// Whether the announced reboot has come; without an announcement, whether a reboot has undone the task.
    #[serde(default)]
    pub booted: bool,
    /// Processes that outlived the scripts, and were killed or left alive as the plan says.
    #[serde(default)]
    pub lingering: Vec<Process>,
    /// The last 4 KiB of output of each failed script.
    #[serde(default)]
    pub tails: Vec<Tail>,
    #[serde(default)]
    pub forensics: Option<String>,
    #[serde(default)]
    pub cpu_ns: Option<u64>,
    #[serde(default)]
    pub memory_peak: Option<u64>,
    #[serde(default)]
    pub dropped_env: u32,
    /// A remark for operators, such as a difference between unit and result.
    #[serde(default)]
    pub note: Option<String>,
    /// Files that the runner skipped but that may be meant as scripts, each with the reason.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub skipped: Vec<String>,
    /// Whether the outcome is `ok` because the task had no script to run.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub empty: bool,
    /// Whether the outcome is `refused` because the node does not configure the action, or has its maximum of tasks or
    /// tombstones. If the refused task was of a setup action, the controller does not drain the node for this.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub excused: bool,
}

impl Ended {
    /// Creates the end that the agent reports from a tombstone: the outcome and the reboot alone, because a tombstone
    /// keeps no other details.
    pub fn of_tombstone(outcome: Outcome, reboot: Reboot, ended_ms: u64) -> Self {
        Self::bare(outcome, ended_ms).in_boot(reboot)
    }

    /// Returns the end with `expect_reboot` and `booted` set from `reboot`.
    pub fn in_boot(self, reboot: Reboot) -> Self {
        Self { expect_reboot: reboot.is_announced(), booted: reboot.is_past(), ..self }
    }

    pub const fn reboot(&self) -> Reboot {
        Reboot::of(self.expect_reboot, self.booted)
    }

    /// Returns `true` if both tasks ended in the same way, for people: equal outcomes, scripts, remarks, and last lines
    /// of output. Times, digests, other output and what the unit took may differ.
    pub fn is_like(&self, other: &Self) -> bool {
        let step = |step: &Step| (step.status, step.attempt, step.tolerable, step.timed_out);
        let steps = self.steps.len() == other.steps.len()
            && self.steps.iter().zip(&other.steps).all(|(a, b)| a.script == b.script && step(a) == step(b));
        let left = |ended: &Self| ended.lingering.iter().map(|of| of.command.clone()).collect::<Vec<_>>();
        self.outcome == other.outcome
            && steps
            && self.checks == other.checks
            && self.milestones == other.milestones
            && self.user_message == other.user_message
            && self.reboot() == other.reboot()
            && self.note == other.note
            && self.skipped == other.skipped
            && (self.empty, self.excused) == (other.empty, other.excused)
            && left(self) == left(other)
            && last_lines(&self.tails).eq(last_lines(&other.tails))
    }

    /// Returns `true` if scripts of the task ran, as far as the end shows: the outcome says how they ended, or the task
    /// was cancelled and the end lists steps.
    pub fn has_run(&self) -> bool {
        let was_stopped = matches!(self.outcome, Outcome::Cancelled { .. });
        self.outcome.is_of_scripts() || (was_stopped && !self.steps.is_empty())
    }

    /// Returns a remark for the operator about an `ok`: that no script ran, or which files the runner skipped. `None`:
    /// there is nothing to remark, or the outcome is another one.
    pub fn remark(&self) -> Option<String> {
        if self.outcome != Outcome::Ok {
            return None;
        }
        let nothing = self.empty.then(|| NO_SCRIPT.to_owned());
        let skipped = self.skipped.split_first().map(|(first, more)| match more.len() {
            0 => first.clone(),
            more => format!("{first}, and {more} more"),
        });
        let parts: Vec<String> = nothing.into_iter().chain(skipped).collect();
        (!parts.is_empty()).then(|| parts.join("; "))
    }

    /// Returns the outcome with its remark, for operators: `failed (exit 7)`, `ok (no script ran)`.
    pub fn result(&self) -> String {
        match self.remark() {
            Some(remark) => format!("{} ({remark})", self.outcome),
            None => self.outcome.to_string(),
        }
    }

    /// Creates an end without details.
    pub fn bare(outcome: Outcome, ended_ms: u64) -> Self {
        Self {
            outcome,
            began_ms: None,
            ended_ms,
            elapsed_ms: None,
            steps: Vec::new(),
            checks: Vec::new(),
            milestones: Vec::new(),
            user_message: None,
            expect_reboot: false,
            booted: false,
            lingering: Vec::new(),
            tails: Vec::new(),
            forensics: None,
            cpu_ns: None,
            memory_peak: None,
            dropped_env: 0,
            note: None,
            skipped: Vec::new(),
            empty: false,
            excused: false,
        }
    }
}

/// Returns the last line of each script's output, with the script's name.
fn last_lines(tails: &[Tail]) -> impl Iterator<Item = (&str, Option<String>)> {
    tails.iter().map(|tail| (tail.script.as_str(), output::last_line(&tail.text)))
}
