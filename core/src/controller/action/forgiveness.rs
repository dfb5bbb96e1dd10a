//! Forgiveness: which failures of an action the job forgives, by the tolerance that it asked for.

use std::collections::BTreeMap;

use crate::defect;
use crate::ids::CheckName;
use crate::idset::IdSet;
use crate::outcome::Outcome;
use crate::task::Ended;

/// Limits on the failures that a job forgives in one action.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Forgiveness {
    /// Maximum number of forgiven ranks and named resources.
    pub(crate) ranks: u64,
    /// Maximum number of forgiven failures for each check with a tolerance of its own.
    pub(crate) checks: BTreeMap<CheckName, u64>,
    /// `true` if the job forgives failures of checks outside `checks`, and failures without a check.
    pub(crate) others: bool,
    /// `true` if enough good ranks are left for the job to go on: `keep` of them, and at least one if the job hands
    /// failed ranks over.
    pub(crate) enough: bool,
    /// `true` if the job forgives `lost` ranks too.
    pub(crate) lost: bool,
    /// `true` if the job forgives ranks past their limit too.
    pub(crate) timeout: bool,
    /// Ranks that the job handed over before a task began on them. The job goes on without these ranks, so they are no
    /// failures.
    pub(crate) shed: IdSet,
}

impl Forgiveness {
    /// Returns `true` if a tolerance can forgive this outcome.
    pub(crate) fn forgives(&self, outcome: &Outcome) -> bool {
        match outcome {
            Outcome::Tolerable => true,
            Outcome::Lost { .. } => self.lost,
            Outcome::Timeout { .. } => self.timeout,
            Outcome::Failed { .. } if defect!(UnmarkedForgiven) => true,
            _ => false,
        }
    }

    /// Returns `true` if the job forgives all these failures together: their number is within the limit for ranks and
    /// the limits of single checks, and no failure is of a kind that the job never forgives.
    pub(crate) fn covers(&self, forgiven: &[&Ended]) -> bool {
        let few = forgiven.len() as u64 <= self.ranks;
        let few = if defect!(CountIgnored) { true } else { few };
        let of_checks = |ended: &&Ended| self.others || is_of(ended, &self.checks);
        let within = |(check, most): (&CheckName, &u64)| {
            forgiven.iter().filter(|ended| names(ended, check)).count() as u64 <= *most
        };
        few && forgiven.iter().all(of_checks) && self.checks.iter().all(within)
    }
}

pub(crate) fn names(ended: &Ended, check: &CheckName) -> bool {
    ended.checks.iter().any(|failed| failed.check == check.as_str())
}

/// Returns `true` if the end names failed checks, and each of these checks has a tolerance of its own in `checks`.
fn is_of(ended: &Ended, checks: &BTreeMap<CheckName, u64>) -> bool {
    !ended.checks.is_empty() && ended.checks.iter().all(|failed| checks.contains_key(failed.check.as_str()))
}
