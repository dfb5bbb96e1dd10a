//! The end of a task with all details.

use serde::{Deserialize, Serialize};

use super::{Check, NO_SCRIPT, Process, Reboot, Step, Tail};
use crate::outcome::Outcome;

/// The contents of `outcome.json` and the body of `Finished`: the outcome of a task with all details.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ended {
    pub outcome: Outcome,
    /// Milliseconds since the epoch, if known.
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
    /// A script announced a boot of its host, and the boot ends the task.
    #[serde(default)]
    pub expect_reboot: bool,
    /// The announced boot has come; or, without an announcement, a boot has undone the task.
    #[serde(default)]
    pub booted: bool,
    /// Processes that were left behind and, by the plan, killed or kept.
    #[serde(default)]
    pub lingering: Vec<Process>,
    /// The last 4 KiB of each failed script.
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
    /// The difference between unit and result, or another remark for people.
    #[serde(default)]
    pub note: Option<String>,
    /// Files that the runner skipped and that may have been meant as scripts, each with the reason.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub skipped: Vec<String>,
    /// The outcome is `ok` because no script existed to run.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub empty: bool,
    /// The outcome is `refused` because the host has as many tasks or records as it takes. The host is not at fault.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub full: bool,
}

impl Ended {
    /// Creates the end that a tombstone reports: the controller acknowledged the details before.
    pub fn of_tombstone(outcome: Outcome, reboot: Reboot, ended_ms: u64) -> Self {
        Self::bare(outcome, ended_ms).in_boot(reboot)
    }

    /// Returns the same end with the state of the boot.
    pub fn in_boot(self, reboot: Reboot) -> Self {
        Self { expect_reboot: reboot.is_announced(), booted: reboot.is_past(), ..self }
    }

    pub const fn reboot(&self) -> Reboot {
        Reboot::of(self.expect_reboot, self.booted)
    }

    /// Returns `true` if scripts of the task ran, as far as the end shows. Scripts that ended well before a cancel
    /// leave no status, only steps.
    pub fn has_run(&self) -> bool {
        let was_stopped = matches!(self.outcome, Outcome::Cancelled { .. });
        self.outcome.is_of_scripts() || (was_stopped && !self.steps.is_empty())
    }

    /// Returns a remark about an end that is `ok`, for the operator: no script ran, or the runner skipped a file.
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

    /// Returns the outcome for people: `failed (exit 7)`, `ok (no script ran)`.
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
            full: false,
        }
    }
}
