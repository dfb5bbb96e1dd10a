//! Parameters of the methods by which an external service starts and reports its own actions.

use std::collections::BTreeSet;

use perilog_core::controller::io::{ActionStart as Start, Refusal, Report, ReportKind, Request, RunRequest};
use perilog_core::{ResourceName, Span};
use serde::Deserialize;

use super::parameters::{Parameters, parse, perhaps, text};
use super::{MaxHosts, invalid};

/// Maximum length of a check's name in bytes.
const MAX_NAME: usize = 64;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ActionStart {
    job: String,
    attempt: Option<String>,
    action: String,
    nodes: Option<String>,
    targets: Option<String>,
    resources: Option<Vec<String>>,
    lease: String,
}

impl Parameters for ActionStart {
    fn bound(&mut self, most: MaxHosts) -> Result<(), Refusal> {
        most.check(self.nodes.as_deref())?;
        most.check_targets(self.targets.as_deref())
    }

    fn request(self) -> Result<Request, Refusal> {
        let lease: Span = parse(&self.lease)?;
        let endless = || invalid("a lease without end: expected a duration that ends");
        let run = RunRequest {
            job: parse(&self.job)?,
            attempt: perhaps(self.attempt)?,
            action: parse(&self.action)?,
            nodes: perhaps(self.nodes)?,
            targets: perhaps(self.targets)?,
            userid: None,
            env: Default::default(),
            timeout_ms: None,
            known: false,
        };
        let resources = names(self.resources)?.unwrap_or_default();
        Ok(Request::ActionStart(Box::new(Start { run, resources, lease_ms: lease.as_millis().ok_or_else(endless)? })))
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ActionReport {
    job: String,
    attempt: Option<String>,
    action: String,
    outcome: Word,
    targets: Option<String>,
    resources: Option<Vec<String>>,
    check: Option<String>,
    message: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Word {
    Ok,
    Tolerable,
    Failed,
}

impl Parameters for ActionReport {
    fn bound(&mut self, most: MaxHosts) -> Result<(), Refusal> {
        most.check_targets(self.targets.as_deref())
    }

    fn request(self) -> Result<Request, Refusal> {
        let check = self.check.map(check_name).transpose()?;
        let message = text("message", self.message.unwrap_or_default())?;
        let kind = match self.outcome {
            Word::Ok if check.is_some() || !message.is_empty() => {
                return Err(invalid("what is ok has neither check nor message"));
            }
            Word::Ok => ReportKind::Ok,
            Word::Tolerable => ReportKind::Tolerable { check, message },
            Word::Failed => ReportKind::Failed { check, message },
        };
        Ok(Request::Report(Box::new(Report {
            job: parse(&self.job)?,
            attempt: perhaps(self.attempt)?,
            action: parse(&self.action)?,
            targets: perhaps(self.targets)?,
            resources: names(self.resources)?,
            kind,
        })))
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ActionRenew {
    job: String,
    attempt: Option<String>,
    action: String,
}

impl Parameters for ActionRenew {
    fn request(self) -> Result<Request, Refusal> {
        kind(&self.job, self.attempt, &self.action, None, ReportKind::Renew)
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ActionMilestone {
    job: String,
    attempt: Option<String>,
    action: String,
    milestone: String,
    targets: Option<String>,
}

impl Parameters for ActionMilestone {
    fn bound(&mut self, most: MaxHosts) -> Result<(), Refusal> {
        most.check_targets(self.targets.as_deref())
    }

    fn request(self) -> Result<Request, Refusal> {
        let milestone = ReportKind::Milestone(parse(&self.milestone)?);
        kind(&self.job, self.attempt, &self.action, self.targets, milestone)
    }
}

fn kind(
    job: &str,
    attempt: Option<String>,
    action: &str,
    targets: Option<String>,
    kind: ReportKind,
) -> Result<Request, Refusal> {
    let (job, attempt, action, targets) = (parse(job)?, perhaps(attempt)?, parse(action)?, perhaps(targets)?);
    Ok(Request::Report(Box::new(Report { job, attempt, action, targets, resources: None, kind })))
}

pub(super) fn names(list: Option<Vec<String>>) -> Result<Option<BTreeSet<ResourceName>>, Refusal> {
    list.map(|list| list.iter().map(|name| parse(name)).collect()).transpose()
}

/// Checks the name of a check as perilog-report does; the name appears in log lines.
fn check_name(name: String) -> Result<String, Refusal> {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    if name.is_empty() || name.len() > MAX_NAME || !name.chars().all(fits) || name.starts_with(['.', '-']) {
        let expected = format_args!("expected 1 to {MAX_NAME} of [A-Za-z0-9._-], not starting with `.` or `-`");
        return Err(invalid(format_args!("malformed check {name:?}: {expected}")));
    }
    Ok(name)
}
