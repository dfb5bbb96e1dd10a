//! Parameters of the methods about jobs, their resources, and drains.

use std::collections::{BTreeMap, BTreeSet};

use perilog_core::controller::io::{FailedNotice, JobAdd as Add, Refusal, Request};
use perilog_core::{HostList, ResourceSet, Terms};
use perilog_proto::check_start;
use serde::Deserialize;
use serde_json::Value;

use super::actions::names;
use super::parameters::{Parameters, parse, perhaps, positions, text};
use super::recovery::Source;
use super::{MaxHosts, invalid};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct JobAdd {
    job: String,
    attempt: Option<String>,
    #[serde(rename = "R")]
    r: Option<Value>,
    nodes: Option<String>,
    userid: Option<u32>,
    source: Option<Source>,
    tolerate: Option<String>,
    tolerate_checks: Option<BTreeMap<String, String>>,
    keep: Option<u32>,
    shrink: Option<bool>,
    resources: Option<Vec<String>>,
}

/// Parameters of a call that adds or asserts a job: how much failure the job forgives, and its named resources.
#[derive(Deserialize)]
pub(super) struct Forgiven {
    tolerate: Option<String>,
    tolerate_checks: Option<BTreeMap<String, String>>,
    keep: Option<u32>,
    shrink: Option<bool>,
    resources: Option<Vec<String>>,
}

impl Forgiven {
    pub(super) fn terms(self) -> Result<Terms, Refusal> {
        let resources: Result<BTreeSet<_>, Refusal> = self.resources.iter().flatten().map(|name| parse(name)).collect();
        let check = |(name, of): (&String, &String)| Ok((parse(name)?, parse(of)?));
        let checks: Result<BTreeMap<_, _>, Refusal> = self.tolerate_checks.iter().flatten().map(check).collect();
        Ok(Terms {
            r: None,
            resources: resources?,
            tolerate: perhaps(self.tolerate)?,
            checks: checks?,
            keep: self.keep,
            shrink: self.shrink.unwrap_or(false),
        })
    }
}

impl Parameters for JobAdd {
    const IS_LARGE: bool = true;

    fn bound(&mut self, most: MaxHosts) -> Result<(), Refusal> {
        most.check(self.nodes.as_deref())?;
        self.r.as_ref().map_or(Ok(()), |r| most.check_r(r))
    }

    fn request(self) -> Result<Request, Refusal> {
        let r = self.r.map(|r| ResourceSet::from_json(&r.to_string()).map(Box::new)).transpose().map_err(invalid)?;
        let Self { tolerate, tolerate_checks, keep, shrink, resources, .. } = self;
        let terms = Terms { r, ..Forgiven { tolerate, tolerate_checks, keep, shrink, resources }.terms()? };
        let source = self.source.map(Source::value).transpose()?;
        let (job, attempt, nodes) = (parse(&self.job)?, perhaps(self.attempt)?, perhaps::<HostList>(self.nodes)?);
        // The job's prolog and epilog send the whole layout to each node, so the controller refuses a job whose layout
        // does not fit a frame.
        let env = BTreeMap::new();
        if let Some(nodes) = &nodes {
            check_start(&positions(nodes), nodes, &env).map_err(invalid)?;
        }
        if let Some(r) = &terms.r {
            check_start(r.ranks(), r.hosts(), &env).map_err(invalid)?;
        }
        Ok(Request::JobAdd(Box::new(Add { job, attempt, nodes, userid: self.userid, terms, source })))
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct JobFinish {
    job: String,
    attempt: Option<String>,
    targets: Option<String>,
    resources: Option<Vec<String>>,
}

impl Parameters for JobFinish {
    fn bound(&mut self, most: MaxHosts) -> Result<(), Refusal> {
        most.check_targets(self.targets.as_deref())
    }

    fn request(self) -> Result<Request, Refusal> {
        let (job, attempt, targets) = (parse(&self.job)?, perhaps(self.attempt)?, perhaps(self.targets)?);
        Ok(Request::JobFinish { job, attempt, targets, resources: names(self.resources)? })
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct JobForget {
    job: String,
    attempt: Option<String>,
    #[serde(default)]
    releases: bool,
    reason: String,
}

impl Parameters for JobForget {
    fn request(self) -> Result<Request, Refusal> {
        let (job, attempt) = (parse(&self.job)?, perhaps(self.attempt)?);
        Ok(Request::JobForget { job, attempt, releases: self.releases, reason: text("reason", self.reason)? })
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct JobCancel {
    job: String,
    attempt: Option<String>,
    why: Option<String>,
}

impl Parameters for JobCancel {
    fn request(self) -> Result<Request, Refusal> {
        let (job, attempt) = (parse(&self.job)?, perhaps(self.attempt)?);
        Ok(Request::JobCancel { job, attempt, why: text("why", self.why.unwrap_or_default())? })
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Milestone {
    job: String,
    attempt: Option<String>,
    name: String,
    targets: Option<String>,
}

impl Parameters for Milestone {
    fn bound(&mut self, most: MaxHosts) -> Result<(), Refusal> {
        most.check_targets(self.targets.as_deref())
    }

    fn request(self) -> Result<Request, Refusal> {
        let (job, attempt, targets) = (parse(&self.job)?, perhaps(self.attempt)?, perhaps(self.targets)?);
        Ok(Request::Milestone { job, attempt, name: parse(&self.name)?, targets })
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Failed {
    job: String,
    attempt: Option<String>,
}

impl Parameters for Failed {
    fn request(self) -> Result<Request, Refusal> {
        Ok(Request::Failed { job: parse(&self.job)?, attempt: perhaps(self.attempt)? })
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Drains {
    nodes: Option<String>,
}

impl Parameters for Drains {
    fn bound(&mut self, most: MaxHosts) -> Result<(), Refusal> {
        most.check(self.nodes.as_deref())
    }

    fn request(self) -> Result<Request, Refusal> {
        Ok(Request::Drains { targets: perhaps(self.nodes)?, after: None, known: None })
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Drain {
    nodes: String,
    reason: String,
    #[serde(default)]
    force: bool,
}

impl Parameters for Drain {
    fn bound(&mut self, most: MaxHosts) -> Result<(), Refusal> {
        most.check([self.nodes.as_str()])
    }

    fn request(self) -> Result<Request, Refusal> {
        Ok(Request::Drain { hosts: parse(&self.nodes)?, reason: text("reason", self.reason)?, force: self.force })
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct DrainDone {
    host: String,
    notice_id: u64,
    lifted: bool,
    failed: Option<String>,
}

impl Parameters for DrainDone {
    fn request(self) -> Result<Request, Refusal> {
        let (host, Self { notice_id, lifted, failed, .. }) = (parse(&self.host)?, self);
        Ok(match failed {
            None => Request::DrainDone { drains: vec![(host, notice_id)], lifted },
            Some(why) => {
                let what = vec![FailedNotice::Drain { host, notice_id, lifted }];
                Request::HookFailed { what, why: text("failed", why)? }
            }
        })
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Undrain {
    nodes: String,
    #[serde(default)]
    forget: bool,
    notice_id: Option<u64>,
}

impl Parameters for Undrain {
    fn bound(&mut self, most: MaxHosts) -> Result<(), Refusal> {
        most.check([self.nodes.as_str()])
    }

    fn request(self) -> Result<Request, Refusal> {
        Ok(Request::Undrain { hosts: parse(&self.nodes)?, forget: self.forget, notice_id: self.notice_id })
    }
}
