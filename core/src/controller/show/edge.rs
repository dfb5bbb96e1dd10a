//! `Attempts`: shows an edge the attempts of its source. The edge compares the attempts with its resource manager, and
//! acts on the differences. So the edge needs no history.
//!
//! | request | reply |
//! |---|---|
//! | without jobs | attempts not fully released, abandoned, or of jobs in the source's last list; in pages, in order |
//! | with jobs | every attempt of these jobs that is the source's, released or not |

use std::collections::BTreeMap;

use crate::controller::facts::Facts;
use crate::controller::interface::io::{AttemptsOf, Reply};
use crate::controller::interface::view::{EdgeAction, EdgeAttempt};
use crate::controller::state::Action;
use crate::controller::state::Job;
use crate::controller::state::attempt::JobAttempt;
use crate::defect;
use crate::ids::{Attempt, JobId, ResourceName};
use crate::task::Ended;

#[cfg(doc)]
use crate::controller::interface::io::Request;

impl Facts<'_> {
    /// Returns the replies to [`Request::Attempts`] and [`Request::Drains`] of an edge, both as of the last batch. The
    /// drains are empty if their list still has the number `known`. `None`: a job of `of` is not in memory, so only a
    /// batch that needs the job can show it.
    pub(crate) fn replies_to_edge(&self, of: &AttemptsOf, known: Option<u64>) -> Option<[Reply; 2]> {
        let are_held = of.jobs.iter().flatten().all(|job| self.jobs.contains_key(job));
        let are_held = if defect!(HandedOverFromMemory) { true } else { are_held };
        are_held.then(|| [self.edge_attempts(of), self.drains_page(None, None, known)])
    }

    pub(crate) fn edge_attempts(&self, of: &AttemptsOf) -> Reply {
        let is_of = |attempt: &JobAttempt| attempt.source.as_ref() == Some(&of.source);
        let view = |job: &JobId, number: Attempt, attempt: &JobAttempt| self.edge_attempt(job, number, attempt);
        if let Some(jobs) = &of.jobs {
            let entries = jobs.iter().filter_map(|job| Some((job, self.jobs.get(job)?)));
            let attempts =
                entries.flat_map(|(job, entry)| entry.attempts.iter().map(move |(number, of)| (job, number, of)));
            let attempts = attempts.filter(|(_, _, attempt)| is_of(attempt));
            return Reply::Attempts(attempts.map(|(job, number, attempt)| view(job, *number, attempt)).collect());
        }
        // The resource manager has the jobs that its last list names, also if perilog is done with them.
        let list = self.lists.whole(&of.source);
        let is_listed = |entry: &Job| list.is_some() && entry.attempts.values().any(|of| Some(of.listed) == list);
        let is_past = |job: &JobId, number| of.after.as_ref().is_none_or(|(last, at)| (job, number) > (last, *at));
        let live = self.jobs.table.live_from(of.after.as_ref());
        let live = live.filter(|(job, number, attempt)| {
            is_past(job, *number) && is_of(attempt) && (!attempt.complete || attempt.abandoned)
        });
        let listed = self.jobs.table.listed_from(of.after.as_ref().map(|(job, _)| job));
        let listed = listed
            .filter(|(_, entry)| is_listed(entry))
            .flat_map(|(job, entry)| entry.attempts.iter().map(move |(number, attempt)| (job, *number, attempt)));
        let listed = listed.filter(|(job, number, attempt)| is_past(job, *number) && is_of(attempt));
        // The first ones of both, in order, and each once.
        let both = live.take(of.limit).chain(listed.take(of.limit));
        let page: BTreeMap<(&JobId, Attempt), &JobAttempt> =
            both.map(|(job, number, attempt)| ((job, number), attempt)).collect();
        let page = page.into_iter().take(of.limit);
        Reply::Attempts(page.map(|((job, number), attempt)| view(job, number, attempt)).collect())
    }

    fn edge_attempt(&self, job: &JobId, number: Attempt, attempt: &JobAttempt) -> EdgeAttempt {
        EdgeAttempt {
            job: job.clone(),
            attempt: number,
            ranks: attempt.layout.ranks().clone(),
            hosts: attempt.layout.hosts().clone(),
            open: attempt.open,
            hold: attempt.hold.ranks.clone(),
            released: attempt.released.ranks.clone(),
            complete: attempt.complete,
            abandoned: attempt.abandoned,
            actions: self.jobs.of(attempt).map(|action| self.edge_action(action)).collect(),
            milestones: attempt.milestones.reached().cloned().collect(),
        }
    }

    fn edge_action(&self, action: &Action) -> EdgeAction {
        let row = &action.row;
        let bad = action.bad().difference(&action.never_begun());
        // Before the verdict the failures are not complete.
        let failures = if row.verdict.is_some() { self.jobs.failed_checks(row.id, &bad) } else { Vec::new() };
        let hosts = self.jobs.layout(row.id).map(|layout| layout.hosts_of(&bad)).unwrap_or_default();
        EdgeAction {
            name: row.name.clone(),
            verdict: row.verdict,
            ended_ms: row.ended_ms,
            bad: if row.verdict.is_some() { bad } else { Default::default() },
            bad_hosts: if row.verdict.is_some() { hosts } else { Default::default() },
            bad_resources: if row.verdict.is_some() { bad_resources(action) } else { Default::default() },
            failures,
        }
    }
}

/// Returns the failed named resources, each with its outcome and failed checks, such as `tolerable: quota: none is
/// left`.
fn bad_resources(action: &Action) -> BTreeMap<ResourceName, String> {
    let text = |ended: &Ended| {
        let checks = ended.checks.iter().map(|check| format!(": {}: {}", check.check, check.message));
        ended.outcome.to_string() + &checks.collect::<String>()
    };
    let bad = action.row.external.iter().flat_map(|external| external.bad());
    bad.map(|(name, ended)| (name.clone(), text(ended))).collect()
}
