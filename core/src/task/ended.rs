//! All that is told about a task that ended.

use serde::{Deserialize, Serialize};

use super::{Check, NO_SCRIPT, Process, Reboot, Step, Tail};
use crate::outcome::Outcome;

/// `outcome.json` and the body of `Finished`: all that is told about a task that ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ended {
    pub outcome: Outcome,
    /// Milliseconds since the epoch, where known.
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
    /// A script announced a boot of its host, which is its end.
    #[serde(default)]
    pub expect_reboot: bool,
    /// That boot has come; or, where none was announced, one that undid it.
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
    /// Where unit and result differ, or what else a person should know.
    #[serde(default)]
    pub note: Option<String>,
    /// Files that its runner left out and that may have been meant as scripts, each with the reason.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub skipped: Vec<String>,
    /// Is it `ok` because there was no script to run?
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub empty: bool,
}

impl Ended {
    /// What a tombstone tells of an end: details were acknowledged before.
    pub fn of_tombstone(outcome: Outcome, reboot: Reboot, ended_ms: u64) -> Self {
        Self::bare(outcome, ended_ms).in_boot(reboot)
    }

    /// The same, as it stands in a boot.
    pub fn in_boot(self, reboot: Reboot) -> Self {
        Self { expect_reboot: reboot.is_announced(), booted: reboot.is_past(), ..self }
    }

    pub const fn reboot(&self) -> Reboot {
        Reboot::of(self.expect_reboot, self.booted)
    }

    /// Did scripts of it run, as far as it tells? Those that went well before it was stopped leave no status.
    pub fn has_run(&self) -> bool {
        let was_stopped = matches!(self.outcome, Outcome::Cancelled { .. });
        self.outcome.is_of_scripts() || (was_stopped && !self.steps.is_empty())
    }

    /// A remark for the operator about an end that is `ok` all the same: no script ran, or the runner skipped a file.
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

    /// The outcome for people: `failed (exit 7)`, `ok (no script ran)`.
    pub fn result(&self) -> String {
        match self.remark() {
            Some(remark) => format!("{} ({remark})", self.outcome),
            None => self.outcome.to_string(),
        }
    }

    /// An end that nothing else is known about.
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
        }
    }
}
