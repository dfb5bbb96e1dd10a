//! Parameters of `Assert` and `Recover`: statements of the resource manager and of operators about the jobs of a store
//! that may be behind.

use perilog_core::controller::io::{
    Assert as Said, Confirm, JobPhase, Listed as One, ListedDrain, Recover as Part, Refusal, Request, Source as Of,
};
use perilog_core::{HostList, IdSet, Terms};
use perilog_proto::check_start;
use serde::Deserialize;

use super::invalid;
use super::jobs::Forgiven;
use super::parameters::{Parameters, parse, perhaps, text};

/// Marker in the reason of a drain in the resource manager: an edge made this drain for the controller.
const MARKER: &str = "[perilog:";

/// Maximum number of attempts in one Assert: more than a resource manager runs at a time.
const MAX_LISTED: usize = 1_000_000;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Source {
    name: String,
    instance: String,
}

impl Source {
    pub(super) fn value(self) -> Result<Of, Refusal> {
        if self.name.is_empty() || self.instance.is_empty() {
            return Err(invalid("a source has a name and an instance"));
        }
        Ok(Of { name: text("source.name", self.name)?, instance: text("source.instance", self.instance)? })
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Assert {
    source: Source,
    attempts: Vec<Listed>,
    #[serde(default)]
    drains: Vec<Drain>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Listed {
    job: String,
    attempt: String,
    userid: Option<u32>,
    ranks: String,
    hosts: String,
    phase: JobPhase,
    #[serde(flatten)]
    forgiven: Forgiven,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Drain {
    host: String,
    reason: String,
}

impl Listed {
    fn value(self) -> Result<One, Refusal> {
        let (ranks, hosts) = (parse::<IdSet>(&self.ranks)?, parse::<HostList>(&self.hosts)?);
        check_start(&ranks, &hosts, &Default::default()).map_err(invalid)?;
        let terms = self.forgiven.terms()?;
        Ok(One {
            job: parse(&self.job)?,
            attempt: parse(&self.attempt)?,
            userid: self.userid,
            ranks,
            hosts,
            terms: Terms { r: None, ..terms },
            phase: self.phase,
        })
    }
}

impl Parameters for Assert {
    fn request(self) -> Result<Request, Refusal> {
        if self.attempts.len() > MAX_LISTED {
            return Err(invalid(format!("{} attempts, at most {MAX_LISTED} are taken", self.attempts.len())));
        }
        let drain = |drain: Drain| {
            let ours = drain.reason.contains(MARKER);
            Ok(ListedDrain { host: parse(&drain.host)?, reason: text("reason", drain.reason)?, ours })
        };
        Ok(Request::Assert(Box::new(Said {
            source: self.source.value()?,
            attempts: self.attempts.into_iter().map(Listed::value).collect::<Result<_, _>>()?,
            drains: self.drains.into_iter().map(drain).collect::<Result<_, Refusal>>()?,
        })))
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Recover {
    #[serde(default)]
    take_over: bool,
    confirm: Option<Confirm>,
    job: Option<String>,
    attempt: Option<String>,
    #[serde(default)]
    all: bool,
    forget: Option<String>,
}

impl Parameters for Recover {
    fn request(self) -> Result<Request, Refusal> {
        let (job, attempt) = (self.job.as_deref().map(parse).transpose()?, perhaps(self.attempt)?);
        let alone = job.is_none() && attempt.is_none() && !self.all;
        let part = match (self.take_over, self.confirm, self.forget) {
            (false, None, None) if alone => Part::List,
            (true, None, None) if alone => Part::TakeOver,
            (false, None, Some(host)) if alone => Part::Forget { host: parse(&host)? },
            // Confirms all jobs only if that was requested.
            (false, Some(word), None) if job.is_some() != self.all && (attempt.is_none() || job.is_some()) => {
                Part::Confirm { job, attempt, word }
            }
            _ => {
                return Err(invalid(
                    "`take_over` alone, or `forget` alone, or `confirm` (over, running, gone) with a `job` or with \
                     `all`, or nothing of these",
                ));
            }
        };
        Ok(Request::Recover(part))
    }
}
