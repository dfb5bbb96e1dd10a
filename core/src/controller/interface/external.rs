//! Requests of external services, which start and report their own actions.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::controller::interface::request::RunRequest;
use crate::controller::parameters::{optional_text, wrong};
use crate::duration::Span;
use crate::hostlist::HostList;
use crate::ids::{ActionName, Attempt, CheckName, JobId, MilestoneName, ResourceName};
use crate::parse::or_default;
use crate::targets::Targets;

/// The request for an external action. `run` names the action, and its `nodes` and `targets` choose the ranks. A
/// request that names only `resources` covers no ranks.
#[derive(Debug, Clone, PartialEq)]
pub struct ActionStart {
    pub run: RunRequest,
    pub resources: BTreeSet<ResourceName>,
    /// Lease: the longest time that the service may stay silent.
    pub lease_ms: u64,
}

/// A report from the service of an external action. Every report renews the lease.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    pub job: JobId,
    /// The attempt that the service works for; `None`: the open attempt, or the last. If that attempt lacks the action,
    /// `None` means the only attempt in which the action is open.
    pub attempt: Option<Attempt>,
    pub action: ActionName,
    /// Ranks that the report is about. If `targets` and `resources` are both `None`, the report is about everything
    /// that the action covers.
    pub targets: Option<Targets>,
    /// Named resources that the report is about; `None` together with `targets`: everything that the action covers.
    pub resources: Option<BTreeSet<ResourceName>>,
    pub kind: ReportKind,
}

/// The content of a service's report.
#[derive(Debug, Clone, PartialEq)]
pub enum ReportKind {
    /// The service is alive; no rank ends.
    Renew,
    Ok,
    Tolerable {
        check: Option<CheckName>,
        message: String,
    },
    Failed {
        check: Option<CheckName>,
        message: String,
    },
    /// The ranks have reached a milestone; no rank ends.
    Milestone(MilestoneName),
}

fn lease<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    let lease = Span::deserialize(deserializer)?;
    lease.as_millis().ok_or_else(|| wrong("the lease is infinite: expected a finite duration"))
}

/// Reads the parameters of `ActionStart`.
pub(super) fn action_start<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Box<ActionStart>, D::Error> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Named {
        job: JobId,
        attempt: Option<Attempt>,
        action: ActionName,
        nodes: Option<HostList>,
        targets: Option<Targets>,
        #[serde(default, deserialize_with = "or_default")]
        resources: BTreeSet<ResourceName>,
        #[serde(deserialize_with = "lease")]
        lease: u64,
    }
    let Named { job, attempt, action, nodes, targets, resources, lease: lease_ms } = Named::deserialize(deserializer)?;
    let env = BTreeMap::new();
    let run = RunRequest { job, attempt, action, nodes, targets, userid: None, env, timeout_ms: None, known: false };
    Ok(Box::new(ActionStart { run, resources, lease_ms }))
}

/// Reads the parameters of `ActionReport`.
pub(super) fn action_report<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Box<Report>, D::Error> {
    #[derive(Deserialize)]
    #[serde(rename_all = "kebab-case")]
    enum Outcome {
        Ok,
        Tolerable,
        Failed,
    }
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Named {
        job: JobId,
        attempt: Option<Attempt>,
        action: ActionName,
        outcome: Outcome,
        targets: Option<Targets>,
        resources: Option<BTreeSet<ResourceName>>,
        check: Option<CheckName>,
        #[serde(default, deserialize_with = "optional_text")]
        message: String,
    }
    let Named { job, attempt, action, outcome, targets, resources, check, message } = Named::deserialize(deserializer)?;
    let kind = match outcome {
        Outcome::Ok if check.is_some() || !message.is_empty() => {
            return Err(wrong("outcome ok takes neither a check nor a message"));
        }
        Outcome::Ok => ReportKind::Ok,
        Outcome::Tolerable => ReportKind::Tolerable { check, message },
        Outcome::Failed => ReportKind::Failed { check, message },
    };
    Ok(Box::new(Report { job, attempt, action, targets, resources, kind }))
}

/// Reads the parameters of `ActionRenew`.
pub(super) fn action_renew<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Box<Report>, D::Error> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Named {
        job: JobId,
        attempt: Option<Attempt>,
        action: ActionName,
    }
    let Named { job, attempt, action } = Named::deserialize(deserializer)?;
    Ok(Box::new(Report { job, attempt, action, targets: None, resources: None, kind: ReportKind::Renew }))
}

/// Reads the parameters of `ActionMilestone`.
pub(super) fn action_milestone<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Box<Report>, D::Error> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Named {
        job: JobId,
        attempt: Option<Attempt>,
        action: ActionName,
        milestone: MilestoneName,
        targets: Option<Targets>,
    }
    let Named { job, attempt, action, milestone, targets } = Named::deserialize(deserializer)?;
    let kind = ReportKind::Milestone(milestone);
    Ok(Box::new(Report { job, attempt, action, targets, resources: None, kind }))
}

/// Writes the parameters of `ActionStart`.
pub(super) fn write_start<S: Serializer>(start: &ActionStart, serializer: S) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    struct Named<'a> {
        job: &'a JobId,
        attempt: Option<Attempt>,
        action: &'a ActionName,
        nodes: &'a Option<HostList>,
        targets: &'a Option<Targets>,
        resources: &'a BTreeSet<ResourceName>,
        lease: Span,
    }
    let ActionStart { run, resources, lease_ms } = start;
    let RunRequest { job, attempt, action, nodes, targets, .. } = run;
    let lease = Span::from_millis(*lease_ms);
    Named { job, attempt: *attempt, action, nodes, targets, resources, lease }.serialize(serializer)
}

/// Writes the parameters of `ActionReport`, `ActionRenew` or `ActionMilestone`.
pub(super) fn write_report<S: Serializer>(report: &Report, serializer: S) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    struct Named<'a> {
        job: &'a JobId,
        attempt: Option<Attempt>,
        action: &'a ActionName,
        #[serde(skip_serializing_if = "Option::is_none")]
        outcome: Option<&'static str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        targets: Option<&'a Targets>,
        #[serde(skip_serializing_if = "Option::is_none")]
        resources: Option<&'a BTreeSet<ResourceName>>,
        #[serde(skip_serializing_if = "Option::is_none")]
        check: Option<&'a CheckName>,
        #[serde(skip_serializing_if = "Option::is_none")]
        message: Option<&'a str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        milestone: Option<&'a MilestoneName>,
    }
    let Report { job, attempt, action, targets, resources, kind } = report;
    let (targets, resources) = (targets.as_ref(), resources.as_ref());
    let named = |outcome, check, message, milestone| Named {
        job,
        attempt: *attempt,
        action,
        outcome,
        targets,
        resources,
        check,
        message,
        milestone,
    };
    match kind {
        ReportKind::Renew => named(None, None, None, None),
        ReportKind::Ok => named(Some("ok"), None, None, None),
        ReportKind::Tolerable { check, message } => named(Some("tolerable"), check.as_ref(), Some(message), None),
        ReportKind::Failed { check, message } => named(Some("failed"), check.as_ref(), Some(message), None),
        ReportKind::Milestone(milestone) => named(None, None, None, Some(milestone)),
    }
    .serialize(serializer)
}
