//! Held back: decides whether recovery keeps a task from beginning, and writes the reason that `perilog ps` and
//! `perilog why` show.

use std::fmt;

use crate::controller::facts::Facts;
use crate::controller::io::Source;
use crate::controller::job::attempt::JobAttempt;
use crate::defect;
use crate::ids::{ActionId, ActionName, Attempt, HostName, JobId, Rank};

/// Reason for which recovery keeps a task from beginning.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum HeldBack {
    /// The controller has started, and the gate is still shut.
    Starting,
    /// No edge, request or operator has vouched for the attempt of this job.
    Unvouched(JobId),
    /// No request has named this setup action of the job since the recovery began.
    NotAskedAgain(ActionName, JobId),
    /// An orphan is on the host: a task of the named action, of the named other job.
    Orphan(ActionName, JobId),
    /// The task's rank on this host is disowned for this job, and must not be cleaned up yet, for the given reason.
    Disowned(HostName, JobId, Doubt),
}

/// Reason for which an action must not begin on a disowned rank yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Doubt {
    /// This newer attempt of the job holds the host.
    Newer(Attempt),
    /// The attempt has no source whose edge could name the host's holder: an operator must decide.
    NoEdge,
    /// A recovery is under way.
    InRecovery,
    /// The host's drain is not in force yet.
    Undrained,
    /// The edge of this source has not listed all its jobs since this controller started.
    Unlisted(Source),
    /// The resource manager lists the host for this attempt, which the controller refused.
    Refused(JobId, Attempt),
    /// Another attempt holds the host. The id is of that attempt's job, which may be the same job.
    Holder(JobId),
    /// The host was released for an attempt of this job, and the attempt's edge has not read all notices of releases.
    Unread(JobId),
}

impl fmt::Display for HeldBack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let put_back = "the store was put back, and nobody has";
        match self {
            Self::Starting => f.write_str("the controller has started, and waits for its nodes first"),
            Self::Unvouched(job) => write!(f, "{put_back} said whether {job} goes on: perilog controller recover"),
            Self::NotAskedAgain(name, job) => {
                write!(f, "{put_back} asked for {name} again: perilog run {name} --job {job}")
            }
            Self::Orphan(action, job) => write!(
                f,
                "{action} of job {job} runs or ran there, and this store does not know it: perilog controller recover"
            ),
            Self::Disowned(host, job, doubt) => doubt.write(f, host, job),
        }
    }
}

impl Doubt {
    fn write(&self, f: &mut fmt::Formatter<'_>, host: &HostName, job: &JobId) -> fmt::Result {
        let gone = "the resource manager does not hold";
        match self {
            Self::Newer(newer) => {
                write!(f, "attempt {newer} of the job has {host}: cleaned up when that was given back")
            }
            Self::NoEdge => write!(
                f,
                "the resource manager may have given {host} to another job: perilog controller recover --confirm {job} \
                 --over (it has not), or --gone (it has)"
            ),
            Self::InRecovery => write!(f, "{gone} {host} for {job} any more: cleaned up after the recovery"),
            Self::Undrained => write!(f, "{gone} {host} for {job} any more: drained first"),
            Self::Unlisted(source) => write!(
                f,
                "{source} has not listed all its jobs since the controller started: {host} may be another job's (if \
                 {source} comes no more: perilog controller recover --confirm {job} --over, or --gone)"
            ),
            Self::Refused(of, attempt) => write!(
                f,
                "the resource manager lists {host} for attempt {attempt} of job {of}, which was refused: cleaned up \
                 when it does no longer"
            ),
            Self::Holder(of) => {
                write!(f, "job {of} holds {host}: cleaned up when it does no longer")
            }
            Self::Unread(of) => write!(
                f,
                "the resource manager may still have {host} for job {of}: cleaned up when it has read what {of} gave \
                 back"
            ),
        }
    }
}

impl Facts<'_> {
    /// Returns `true` if recovery may keep this action from beginning on one of its ranks.
    pub(crate) fn may_be_held_back(&self, id: ActionId) -> bool {
        let Some(action) = self.jobs.action(id) else { return false };
        let disowned = || {
            let attempt = self.jobs.attempt(&action.row.job, action.row.attempt);
            attempt.is_some_and(|attempt| !attempt.asserted || !attempt.disowned.is_empty())
        };
        action.row.unvouched || self.has_orphans() || disowned()
    }

    /// Returns the reason why recovery makes the attempt or one of its tasks wait, for clients that wait for the job;
    /// `None` if recovery keeps no task waiting.
    pub(crate) fn waits_for(&self, job: &JobId, number: Attempt) -> Option<HeldBack> {
        let attempt = self.jobs.attempt(job, number).filter(|attempt| !attempt.complete || attempt.unvouched)?;
        if let Some(why) = self.jobs.is_frozen(job, number).then(|| unasserted(job, attempt)) {
            return Some(why);
        }
        let mut actions = self.jobs.of(attempt).filter(|action| self.may_be_held_back(action.row.id));
        actions.find_map(|action| {
            let mut unbegun = action.row.waiting.iter().map(Rank);
            unbegun.find_map(|rank| self.held_back(action.row.id, rank))
        })
    }

    /// Returns the reason why recovery keeps the action from beginning on a rank; `None` if the action may begin.
    pub(crate) fn held_back(&self, id: ActionId, rank: Rank) -> Option<HeldBack> {
        let action = self.jobs.action(id)?;
        let row = &action.row;
        let (job, attempt) = (&row.job, self.jobs.attempt(&row.job, row.attempt)?);
        if !attempt.asserted {
            return Some(unasserted(job, attempt));
        }
        let host = attempt.layout.host(rank)?;
        // On a disowned rank, any waiting action counts as an after-action: it may have been one under earlier
        // settings.
        if self.jobs.follows(action) || attempt.disowned.contains(rank.0) {
            let doubt = self.must_not_clean(row.attempt, job, attempt, rank, &host);
            return doubt.map(|doubt| HeldBack::Disowned(host, job.clone(), doubt));
        }
        if row.unvouched && !defect!(StaleSetupBegins) {
            return Some(HeldBack::NotAskedAgain(row.name.clone(), job.clone()));
        }
        self.orphan_before(job, &host)
    }
}

/// Returns the reason why an attempt that is not asserted waits: the controller is starting, or the attempt is
/// unvouched.
fn unasserted(job: &JobId, attempt: &JobAttempt) -> HeldBack {
    if attempt.unvouched { HeldBack::Unvouched(job.clone()) } else { HeldBack::Starting }
}
