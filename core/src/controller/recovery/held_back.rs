//! Held back: decides whether the gate or the recovery keeps a task from beginning, and writes the reason that
//! `perilog ps` and `perilog why` show.

use std::fmt;

use crate::controller::facts::Facts;
use crate::controller::state::attempt::JobAttempt;
use crate::ids::{ActionId, ActionName, Attempt, HostName, JobId, Rank, TaskId};

/// Reason for which the gate or the recovery keeps a task from beginning.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum HeldBack {
    /// The controller has started, and the gate is still shut.
    Starting,
    /// The attempt of this job is abandoned. The number is for the command that takes it up.
    Abandoned(JobId, Attempt),
    /// An unknown task is on the host: a task of the named action, of the named other job.
    Unknown(ActionName, JobId),
    /// The host's clean-up after an attempt of this job may be missing, and its drain is not in force yet.
    Uncleaned(HostName, JobId),
    /// The attempt of this job is unlisted, and its after-action must not begin on this host yet.
    Unlisted(HostName, JobId),
}

impl fmt::Display for HeldBack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Starting => f.write_str("the controller has just started, and first waits for its nodes"),
            Self::Abandoned(job, attempt) => write!(
                f,
                "the store was restored, and job {job} needs confirmation: its resource manager or a hook must ask for \
                 it again; if the job is over: perilog job finish {job} --attempt {attempt}"
            ),
            Self::Unknown(action, job) => {
                write!(f, "{action} of job {job}, which this store does not know, runs or ran there")
            }
            Self::Uncleaned(host, job) => {
                write!(f, "{host} is being drained: the clean-up of job {job} may not have run")
            }
            Self::Unlisted(host, job) => write!(
                f,
                "the resource manager no longer lists job {job}: {host} is drained first, and cleaned up when the edge \
                 has listed all jobs"
            ),
        }
    }
}

impl Facts<'_> {
    /// Returns `true` if recovery may keep this action from beginning on one of its ranks.
    pub(crate) fn may_be_held_by_recovery(&self, id: ActionId) -> bool {
        let Some(action) = self.jobs.action(id) else { return false };
        let attempt = self.jobs.attempt_of(action);
        self.has_unknown() || self.has_uncleaned() || attempt.is_some_and(|attempt| attempt.suspended || attempt.silent)
    }

    /// Returns the reason why recovery makes the attempt or one of its tasks wait, for clients that wait for the job;
    /// `None` if recovery keeps no task waiting, or if the attempt does not exist or has no pending work.
    pub(crate) fn waits_for(&self, job: &JobId, number: Attempt) -> Option<HeldBack> {
        let attempt = self.jobs.attempt(job, number).filter(|attempt| !attempt.complete || attempt.abandoned)?;
        if let Some(why) = attempt.suspended.then(|| suspended(job, number, attempt)) {
            return Some(why);
        }
        let mut actions = self.jobs.of(attempt).filter(|action| self.may_be_held_by_recovery(action.row.id));
        actions.find_map(|action| {
            let mut unbegun = action.row.waiting.iter().map(Rank);
            unbegun.find_map(|rank| self.held_by_recovery(action.row.id, rank))
        })
    }

    /// Returns the reason why recovery keeps the action from beginning on a rank; `None` if recovery
    /// does not, or if there is no such rank.
    pub(crate) fn held_by_recovery(&self, id: ActionId, rank: Rank) -> Option<HeldBack> {
        let action = self.jobs.action(id)?;
        let row = &action.row;
        let (job, attempt) = (&row.job, self.jobs.attempt(&row.job, row.attempt)?);
        if attempt.suspended {
            return Some(suspended(job, row.attempt, attempt));
        }
        let host = attempt.layout.host(rank)?;
        if self.jobs.follows(action) || attempt.silent {
            // A task on a rank that was given up never begins, and ends as cancelled.
            let waits = self.must_not_clean(job, attempt, &host) && !self.jobs.is_given_up(TaskId { action: id, rank });
            return waits.then(|| HeldBack::Unlisted(host, job.clone()));
        }
        self.unknown_before(job, &host).or_else(|| self.uncleaned_before(job, &host))
    }
}

/// Returns the reason why a suspended attempt waits: the controller is starting, or the attempt is abandoned.
pub(crate) fn suspended(job: &JobId, number: Attempt, attempt: &JobAttempt) -> HeldBack {
    if attempt.abandoned { HeldBack::Abandoned(job.clone(), number) } else { HeldBack::Starting }
}
