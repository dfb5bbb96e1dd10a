//! Milestones of one attempt: decides when the job has reached a point such as `data-out`. Each rank reports a
//! milestone once; the job has reached it when all ranks have.
//!
//! "All" means the ranks that the job received, except
//! * ranks that failed within the tolerance: the job continued without them;
//! * ranks that were released while the job still held others (after a `shrink`, beyond `keep`, or by a finish of a
//!   part): the job continued without these ranks too.
//!
//! A rank that failed and was not forgiven still counts: only an operator can report a milestone in its place. So a job
//! may never reach a milestone. Once all ranks are released, perilog reports to waiting clients that the milestone will
//! not come.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::ids::MilestoneName;
use crate::idset::IdSet;

/// Maximum number of milestone names of one attempt; a job needs only a handful. The bound is needed because scripts
/// choose the names, and each name may hold a scattered set of ranks.
pub const MAX_NAMES: usize = 64;

/// Names that a client can wait for although they are no milestones: the names of the events in a job's log, and
/// `clean`, which means the job's last release. Operators and services may not use them as milestones. If a script
/// does, perilog logs that milestone, but no client can wait for it.
#[rustfmt::skip]
pub const EVENTS: [&str; 28] = [
    "action-start", "attempt", "attempt-abandoned", "attempt-closed", "attempt-forgotten", "attempt-over",
    "attempt-taken-up", "given-up",
    "cancel", "clean", "closed", "drain", "exception", "expect-reboot", "finish", "job-finish", "job-hand-over",
    "late", "lease-expired", "lingering", "milestone", "milestones-full", "overdue", "release", "release-forgotten",
    "resolve", "shrink", "verdict",
];

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Milestones {
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    recorded: BTreeMap<MilestoneName, Reported>,
    /// Ranks that the job handed over while keeping others.
    #[serde(default, skip_serializing_if = "IdSet::is_empty")]
    left: IdSet,
}

/// The ranks that have reported one milestone.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Reported {
    ranks: IdSet,
    /// Whether the job as a whole has reached the milestone.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    job: bool,
}

/// The error if an attempt would have more milestone names than [`MAX_NAMES`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooMany;

impl Milestones {
    /// Records that these ranks have reported the milestone `name`. Returns the ranks that had not reported it before.
    ///
    /// # Errors
    ///
    /// [`TooMany`]: the milestone is new, and the job has no room for another one.
    pub fn record(&mut self, name: &MilestoneName, ranks: &IdSet) -> Result<IdSet, TooMany> {
        if !self.recorded.contains_key(name) && self.recorded.len() >= MAX_NAMES {
            return Err(TooMany);
        }
        let recorded = self.recorded.entry(name.clone()).or_default();
        let news = ranks.difference(&recorded.ranks);
        recorded.ranks.extend_with(&news);
        Ok(news)
    }

    /// Records ranks that the job handed over while keeping others. Until the release, these ranks may still report
    /// milestones.
    pub fn leave(&mut self, ranks: &IdSet) {
        self.left.extend_with(ranks);
    }

    /// Returns the ranks that the job handed over while keeping others.
    pub const fn left(&self) -> &IdSet {
        &self.left
    }

    pub(crate) const fn left_mut(&mut self) -> &mut IdSet {
        &mut self.left
    }

    /// Returns `true` if the job has no room for another milestone name.
    pub fn is_full(&self) -> bool {
        self.recorded.len() >= MAX_NAMES
    }

    /// Returns the names of all milestones that at least one rank has reported.
    pub fn names(&self) -> BTreeSet<MilestoneName> {
        self.recorded.keys().cloned().collect()
    }

    /// Iterates over the milestones that the job as a whole has reached.
    pub fn reached(&self) -> impl Iterator<Item = &MilestoneName> {
        self.recorded.iter().filter(|(_, recorded)| recorded.job).map(|(name, _)| name)
    }

    pub fn is_reached(&self, name: &MilestoneName) -> bool {
        self.recorded.get(name).is_some_and(|recorded| recorded.job)
    }

    /// Returns `true` if at least one rank has reported a milestone that the job as a whole has not reached.
    pub fn is_under_way(&self) -> bool {
        self.recorded.values().any(|recorded| !recorded.job)
    }

    /// Records and returns the milestones that the job has newly reached, each with the ranks that did not report it.
    /// `given`: all ranks of the attempt. `forgiven`: ranks that failed within the tolerance. `released`: released
    /// ranks; a rank that was handed over early need not report once released.
    pub fn reach(&mut self, given: &IdSet, forgiven: &IdSet, released: &IdSet) -> Vec<(MilestoneName, IdSet)> {
        let mut all = given.difference(forgiven);
        all.subtract(&self.left.intersection(released));
        let is_by_all = |recorded: &IdSet| (!all.is_empty() && all.is_subset(recorded)) || given.is_subset(recorded);
        let new = self.recorded.iter_mut().filter(|(_, recorded)| !recorded.job && is_by_all(&recorded.ranks));
        new.map(|(name, recorded)| {
            recorded.job = true;
            (name.clone(), given.difference(&recorded.ranks))
        })
        .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> MilestoneName {
        MilestoneName::new(text).unwrap()
    }

    #[test]
    fn all_are_those_that_the_job_goes_on_with() {
        // Columns: ranks of the attempt, forgiven, handed over early, reported; then the ranks that the job reached the
        // milestone without, if it has reached it.
        for (given, forgiven, left, recorded, reached) in [
            ("0-3", "", "", "0-3", Some("")),
            ("0-3", "", "", "0-2", None),
            ("0-3", "3", "", "0-2", Some("3")),
            ("0-3", "", "1,3", "0,2", Some("1,3")),
            ("0-3", "3", "1", "0,2", Some("1,3")),
            // A rank that need not report may report.
            ("0-3", "3", "", "0-3", Some("")),
            ("0-3", "0-1", "2-3", "", None),
            // No rank remains of "all": then every rank has to report.
            ("0-3", "0-3", "", "0-3", Some("")),
            ("0-3", "0-1", "2-3", "0", None),
        ] {
            let set = |text: &str| text.parse::<IdSet>().unwrap();
            let mut milestones = Milestones::default();
            milestones.leave(&set(left));
            milestones.record(&name("data-out"), &set(recorded)).unwrap();
            let seen = milestones.reach(&set(given), &set(forgiven), &set(left));
            let expect: Vec<_> = reached.map(|without| (name("data-out"), set(without))).into_iter().collect();
            assert_eq!(seen, expect, "{given} {forgiven} {left} {recorded}");
            // The second call reports nothing.
            assert_eq!(milestones.reach(&set(given), &set(forgiven), &set(left)), []);
        }
    }

    #[test]
    fn a_rank_says_it_once_and_names_are_few() {
        let mut milestones = Milestones::default();
        let mut record = |text: &str, ranks: &str| {
            milestones.record(&name(text), &ranks.parse().unwrap()).map(|news| news.to_string())
        };
        assert_eq!(record("a", "0-1").as_deref(), Ok("0-1"));
        assert_eq!(record("a", "1-2").as_deref(), Ok("2"));
        for at in 1..MAX_NAMES {
            record(&format!("b{at}"), "0").unwrap();
        }
        assert_eq!(record("one-more", "0"), Err(TooMany));
        assert!(milestones.is_full());
        let mut record = |text: &str, ranks: &str| {
            milestones.record(&name(text), &ranks.parse().unwrap()).map(|news| news.to_string())
        };
        assert_eq!(record("a", "7").as_deref(), Ok("7"));
        let stored = serde_json::to_string(&milestones).unwrap();
        assert_eq!(serde_json::from_str::<Milestones>(&stored).unwrap(), milestones);
        assert_eq!(serde_json::from_str::<Milestones>("{}").unwrap(), Milestones::default());
    }
}
