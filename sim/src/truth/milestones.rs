//! Checks the milestones in the controller's event log. The controller logs a rank's milestone once, and only if a
//! script or an operator really reported it. The controller logs the job's milestone once, when all ranks with which
//! the job goes on have reported it.

use std::collections::{BTreeMap, BTreeSet};

use perilog_core::controller::Snapshot;
use perilog_core::{Attempt, Event, IdSet, JobId, MilestoneName, Rank, Verdict};
use serde_json::Value;

use super::Truth;

type Key = (JobId, Attempt, String);

/// A number above every rank in the simulated worlds: the end of the range "all ranks".
const ANY_RANK: u32 = 100_000;

#[derive(Debug, Default)]
pub(super) struct Book {
    /// The ranks whose scripts reported each milestone.
    reported: BTreeMap<Key, IdSet>,
    /// The ranks for which an operator reported each milestone of a job, for any of its attempts.
    by_operator: BTreeMap<(JobId, String), IdSet>,
    /// The ranks for which the first controller has logged each milestone.
    logged: BTreeMap<Key, IdSet>,
    reported_of_job: BTreeSet<Key>,
    /// Whether another store has replaced the first controller's: the controller may then log a milestone again.
    forgetful: bool,
}

impl Book {
    pub(super) fn reported(&mut self, job: &JobId, attempt: Attempt, rank: Rank, name: &str) {
        self.reported.entry((job.clone(), attempt, name.to_owned())).or_default().insert(rank.0);
    }

    pub(super) fn forget_all(&mut self) {
        self.forgetful = true;
    }

    /// Forgets what was logged of a pruned attempt: its nodes may report the milestones anew.
    pub(super) fn forget(&mut self, job: &JobId, attempt: Attempt) {
        self.logged.retain(|(of, number, _), _| !(of == job && *number == attempt));
        self.reported_of_job.retain(|(of, number, _)| !(of == job && *number == attempt));
    }
}

impl Truth {
    pub(crate) fn reported_by_operator(&mut self, job: &JobId, name: &MilestoneName, ranks: Option<&IdSet>) {
        let ranks = ranks.cloned().unwrap_or_else(|| IdSet::from(0..=ANY_RANK));
        self.milestones.by_operator.entry((job.clone(), name.to_string())).or_default().extend_with(&ranks);
    }

    /// Checks an event `milestone` in the log: with `ranks` it says that these ranks have reached the milestone;
    /// without, that the job has.
    pub(super) fn check_milestone(&mut self, store: &Snapshot, job: &JobId, event: &Event) {
        let text = |key: &str| event.context().and_then(|c| c.get(key)).and_then(Value::as_str);
        let (Some(attempt), Some(name)) = (text("attempt").and_then(|text| text.parse().ok()), text("name")) else {
            return self.broken(|| format!("5 milestone: one of {job} is reported without its attempt or name"));
        };
        let (key, by_operator) = ((job.clone(), attempt, name.to_owned()), (job.clone(), name.to_owned()));
        let book = &mut self.milestones;
        let mut reported = book.reported.get(&key).cloned().unwrap_or_default();
        reported.extend_with(&book.by_operator.get(&by_operator).cloned().unwrap_or_default());
        let Some(ranks) = text("ranks").map(|ranks| ranks.parse::<IdSet>().unwrap_or_default()) else {
            let twice = !book.reported_of_job.insert(key) && !book.forgetful;
            return self.check_reached(store, job, attempt, name, &reported, twice);
        };
        let logged = book.logged.entry(key).or_default();
        let (twice, untrue) = (logged.intersection(&ranks), ranks.difference(&reported));
        logged.extend_with(&ranks);
        if !twice.is_empty() && !self.milestones.forgetful {
            self.broken(|| {
                format!(
                    "5 milestone: {name} of {job} attempt {attempt} is reported twice of ranks \
                                    {twice}"
                )
            });
        } else if !untrue.is_empty() {
            self.broken(|| format!("5 milestone: {name} of {job} attempt {attempt}: ranks {untrue} never said it"));
        }
    }

    /// Checks a log event which says that a job has reached a milestone. Every rank has reported the milestone
    /// (`reported`), has been released, or ended in an action with verdict `ok`, so that the job goes on without it.
    /// `twice`: an earlier event said the same.
    fn check_reached(
        &mut self,
        store: &Snapshot,
        job: &JobId,
        attempt: Attempt,
        name: &str,
        reported: &IdSet,
        twice: bool,
    ) {
        if twice {
            return self.broken(|| {
                format!(
                    "5 milestone: {name} of {job} attempt {attempt} is reported twice of the \
                                           job"
                )
            });
        }
        let Some(row) = store.attempts.iter().find(|row| row.job == *job && row.attempt == attempt) else { return };
        let mut without = row.ranks.difference(reported);
        without.subtract(&row.released.ranks);
        for action in store.actions.iter().filter(|action| action.job == *job && action.attempt == attempt) {
            if action.verdict == Some(Verdict::Ok) && action.name.as_str() != "epilog" {
                without.subtract(&action.not_ok);
            }
        }
        if !without.is_empty() {
            self.broken(|| {
                format!(
                    "5 milestone: {job} attempt {attempt} is said to have reached {name}, and ranks {without} have not"
                )
            });
        }
    }

    /// Checks, when nothing is left to happen, that the controller has logged each milestone that all ranks of a job
    /// have reported.
    pub(crate) fn all_reached(&mut self, store: &Snapshot) {
        let book = &self.milestones;
        let missing = book.logged.iter().find(|((job, attempt, name), ranks)| {
            let row = store.attempts.iter().find(|row| row.job == *job && row.attempt == *attempt);
            let all = row.is_some_and(|row| row.ranks.is_subset(ranks));
            all && !book.reported_of_job.contains(&(job.clone(), *attempt, name.clone()))
        });
        let missing = missing.filter(|_| !book.forgetful).map(|(key, _)| key.clone());
        if let Some((job, attempt, name)) = missing {
            self.broken(|| {
                format!("8 milestone: all of {job} attempt {attempt} have said {name}, and no notice was sent")
            });
        }
    }
}
