//! Checks the requests of an edge's user ([`Request::OfEdge`]): they are about jobs that an edge added, or about drains
//! that its resource manager shows.
//!
//! | the request | is carried out if |
//! |---|---|
//! | `JobAdd` | it names a source and an attempt |
//! | `Run`, `ActionStart`, `JobFinish`, `Cancel` | it names an attempt that has a source |
//! | `Undrain` | it names the number of the drain's notice, and the drain is in force |
//! | others | always |
//!
//! No edge adds or lists an attempt of a job that an edge of another name has not finished (`job_add`, `Sync`). A job
//! of a hook or an operator has no source. An edge becomes the source of such a job: it adds or lists the job with the
//! hosts and the owner that it has, or a newer attempt of it. This way a site can replace its hooks by an edge while
//! jobs run. The API decides which methods an edge may call.

use crate::controller::interface::io::{Refusal, Request};
use crate::controller::machine::Machine;
use crate::ids::{Attempt, HostName, JobId};

impl Machine {
    /// Checks that the request is about a job of an edge or a drain, by the table at the top of this file.
    ///
    /// # Errors
    /// `Invalid`: the request names no source, attempt or notice. `Conflict`: the attempt has no source, or a drain is
    /// not in force. `NoSuchJob`, `NoSuchAttempt`.
    pub(crate) fn check_edge(&self, request: &Request) -> Result<(), Refusal> {
        match request {
            Request::JobAdd(add) if add.source.is_none() => {
                Err(Refusal::Invalid("an edge must name the source of the jobs that it adds".to_owned()))
            }
            Request::JobAdd(add) if add.attempt.is_none() => Err(unnamed(&add.job)),
            Request::Run(run) => self.check_sourced(&run.job, run.attempt),
            Request::ActionStart(start) => self.check_sourced(&start.run.job, start.run.attempt),
            Request::JobFinish { job, attempt, .. } => self.check_sourced(job, *attempt),
            Request::Cancel { which, .. } => self.check_sourced(&which.job, which.attempt),
            Request::Undrain { hosts, notice_id, .. } => {
                let Some(notice_id) = *notice_id else {
                    let text = "an edge must name the number (notice_id) of the drain that its resource manager shows";
                    return Err(Refusal::Invalid(text.to_owned()));
                };
                let is_coming = |host: &str| {
                    let drain = HostName::new(host).ok().and_then(|host| self.drains.get(&host));
                    drain.is_some_and(|drain| drain.notice_id == notice_id && !drain.confirmed)
                };
                match hosts.iter().find(|host| is_coming(host)) {
                    Some(host) => Err(Refusal::Conflict(format!("{host} is not drained in the resource manager yet"))),
                    None => Ok(()),
                }
            }
            _ => Ok(()),
        }
    }

    /// Checks that this attempt has a source.
    ///
    /// # Errors
    /// `Invalid`: no attempt is named. `Conflict`: it has no source. `NoSuchJob`, `NoSuchAttempt`.
    fn check_sourced(&self, job: &JobId, attempt: Option<Attempt>) -> Result<(), Refusal> {
        let Some(number) = attempt else { return Err(unnamed(job)) };
        let (_, attempt) = self.jobs.attempt_meant(job, attempt)?;
        match attempt.source {
            Some(_) => Ok(()),
            None => {
                let text = format!("job {job} attempt {number} was added by a hook or an operator, and not by an edge");
                Err(Refusal::Conflict(text))
            }
        }
    }
}

/// Returns the refusal of a request that names no attempt: it could reach another one than the edge means.
fn unnamed(job: &JobId) -> Refusal {
    Refusal::Invalid(format!("an edge must name the attempt of job {job}"))
}
