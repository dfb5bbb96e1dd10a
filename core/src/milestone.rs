//! Milestones of one attempt of a job: points such as `data-out` that its ranks reach, each said once, and which the
//! job has reached when all of its ranks have.
//!
//! "All" are the ranks that the job was given, but for
//! * those that failed within its tolerance: it went on without them;
//! * those that were given back while it held others still (shrunk, kept in surplus, finished early): it went on
//!   without them too.
//!
//! A rank that failed and was not forgiven stays one of all: nobody says for it what it has not said, but an operator
//! may. So a milestone may never be reached; whoever waits for one is told so when everything has been given back.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::ids::MilestoneName;
use crate::idset::IdSet;

/// Most names of one attempt. A job has a handful of stages; each name may hold a scattered set of its ranks, and comes
/// from scripts.
pub const MAX_NAMES: usize = 64;

/// What a waiter can wait for that is no milestone: the events of a job's log, and `clean`, its last release. No
/// operator or service may call a milestone so; a script that does is told of, and waited for by nobody.
#[rustfmt::skip]
pub const EVENTS: [&str; 23] = [
    "action-start", "attempt", "attempt-closed", "attempt-forgotten", "cancel", "clean", "drain", "exception", "expect-reboot", "finish", "job-finish", "job-let-go",
    "late", "lease-expired", "lingering", "milestone", "milestones-full", "overdue", "release", "release-forgotten", "resolve", "shrink", "verdict",
];

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Milestones {
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    said: BTreeMap<MilestoneName, Said>,
    /// Ranks that the job let go of while it held others still.
    #[serde(default, skip_serializing_if = "IdSet::is_empty")]
    left: IdSet,
}

/// Who said one.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Said {
    ranks: IdSet,
    /// All did, and that was told.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    job: bool,
}

/// More names than [`MAX_NAMES`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooMany;

impl Milestones {
    /// These ranks have reached it: those of them that had not said so before.
    ///
    /// # Errors
    /// [`TooMany`]: it is new, and there is no room for it.
    pub fn say(&mut self, name: &MilestoneName, ranks: &IdSet) -> Result<IdSet, TooMany> {
        if !self.said.contains_key(name) && self.said.len() >= MAX_NAMES {
            return Err(TooMany);
        }
        let said = self.said.entry(name.clone()).or_default();
        let news = ranks.difference(&said.ranks);
        said.ranks.extend_with(&news);
        Ok(news)
    }

    /// The job let go of these, and goes on. Until they are given back they may say something still.
    pub fn leave(&mut self, ranks: &IdSet) {
        self.left.extend_with(ranks);
    }

    /// Ranks that the job let go of while it held others.
    pub const fn left(&self) -> &IdSet {
        &self.left
    }

    pub(crate) const fn left_mut(&mut self) -> &mut IdSet {
        &mut self.left
    }

    /// Has it as many names as there is room for?
    pub fn is_full(&self) -> bool {
        self.said.len() >= MAX_NAMES
    }

    /// Those that the job has reached.
    pub fn reached(&self) -> impl Iterator<Item = &MilestoneName> {
        self.said.iter().filter(|(_, said)| said.job).map(|(name, _)| name)
    }

    pub fn is_reached(&self, name: &MilestoneName) -> bool {
        self.said.get(name).is_some_and(|said| said.job)
    }

    /// Is there one that some ranks have said, and that is not the job's yet?
    pub fn is_under_way(&self) -> bool {
        self.said.values().any(|said| !said.job)
    }

    /// What the job has reached just now: each with the ranks that did not have to say it. `given`: all its ranks;
    /// `forgiven`: those that failed within its tolerance; `released`: those that were given back, of which the ones
    /// that had left early are waited for no more.
    pub fn reach(&mut self, given: &IdSet, forgiven: &IdSet, released: &IdSet) -> Vec<(MilestoneName, IdSet)> {
        let mut all = given.difference(forgiven);
        all.subtract(&self.left.intersection(released));
        let is_by_all = |said: &IdSet| (!all.is_empty() && all.is_subset(said)) || given.is_subset(said);
        let new = self.said.iter_mut().filter(|(_, said)| !said.job && is_by_all(&said.ranks));
        new.map(|(name, said)| {
            said.job = true;
            (name.clone(), given.difference(&said.ranks))
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
        // (ranks given, forgiven, given back early, said) -> the job has reached it, without these
        for (given, forgiven, left, said, reached) in [
            ("0-3", "", "", "0-3", Some("")),
            ("0-3", "", "", "0-2", None),
            ("0-3", "3", "", "0-2", Some("3")),
            ("0-3", "", "1,3", "0,2", Some("1,3")),
            ("0-3", "3", "1", "0,2", Some("1,3")),
            // Who need not say it may.
            ("0-3", "3", "", "0-3", Some("")),
            ("0-3", "0-1", "2-3", "", None),
            // Nobody is left of all: then it takes everyone.
            ("0-3", "0-3", "", "0-3", Some("")),
            ("0-3", "0-1", "2-3", "0", None),
        ] {
            let set = |text: &str| text.parse::<IdSet>().unwrap();
            let mut milestones = Milestones::default();
            milestones.leave(&set(left));
            milestones.say(&name("data-out"), &set(said)).unwrap();
            let seen = milestones.reach(&set(given), &set(forgiven), &set(left));
            let expect: Vec<_> = reached.map(|without| (name("data-out"), set(without))).into_iter().collect();
            assert_eq!(seen, expect, "{given} {forgiven} {left} {said}");
            // Once.
            assert_eq!(milestones.reach(&set(given), &set(forgiven), &set(left)), []);
        }
    }

    #[test]
    fn a_rank_says_it_once_and_names_are_few() {
        let mut milestones = Milestones::default();
        let mut say =
            |text: &str, ranks: &str| milestones.say(&name(text), &ranks.parse().unwrap()).map(|news| news.to_string());
        assert_eq!(say("a", "0-1").as_deref(), Ok("0-1"));
        assert_eq!(say("a", "1-2").as_deref(), Ok("2"));
        for at in 1..MAX_NAMES {
            say(&format!("b{at}"), "0").unwrap();
        }
        assert_eq!(say("one-more", "0"), Err(TooMany));
        assert!(milestones.is_full());
        let mut say =
            |text: &str, ranks: &str| milestones.say(&name(text), &ranks.parse().unwrap()).map(|news| news.to_string());
        assert_eq!(say("a", "7").as_deref(), Ok("7"));
        let stored = serde_json::to_string(&milestones).unwrap();
        assert_eq!(serde_json::from_str::<Milestones>(&stored).unwrap(), milestones);
        assert_eq!(serde_json::from_str::<Milestones>("{}").unwrap(), Milestones::default());
    }
}
