//! Requests that people and programs send to the controller.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::controller::interface::external::{
    action_milestone, action_renew, action_report, action_start, write_report, write_start,
};
use crate::controller::interface::io::Source;
use crate::controller::interface::overview::OverviewRequest;
use crate::controller::parameters::{
    age, environment, optional_text, reason, signal, text, timeout, write_age, write_signal, write_timeout,
};
use crate::hostlist::HostList;
use crate::ids::{ActionName, Attempt, HostName, JobId, MilestoneName, ResourceName};
use crate::job::Terms;
use crate::message::Ask;
use crate::parse::or_default;
use crate::targets::Targets;

pub use crate::controller::interface::external::{ActionStart, Report, ReportKind};
pub use crate::controller::interface::refusal::Refusal;
pub use crate::controller::interface::reply::{Reply, Synced};
pub use crate::controller::interface::sync::{AttemptsOf, Listed, ListedDrain, Phase, SyncPage, Unfit};

/// A request to the controller. In JSON, an object with one member: the key is the name of a method of the local API
/// (`io.perilog.Controller.varlink`), the value has the method's parameters. Other requests come from inside the
/// daemon: their names have a dot, so no call can name them. A trace has both kinds in this form.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub enum Request {
    /// Begins an action, or attaches to the action if the attempt already has it.
    Run(RunRequest),
    /// Begins an external action, or attaches a restarted service to the external action that it works for.
    ActionStart(#[serde(deserialize_with = "action_start", serialize_with = "write_start")] Box<ActionStart>),
    /// Reports ends of an external action.
    ActionReport(#[serde(deserialize_with = "action_report", serialize_with = "write_report")] Box<Report>),
    /// Reports that the service of an external action is alive.
    ActionRenew(#[serde(deserialize_with = "action_renew", serialize_with = "write_report")] Box<Report>),
    /// Reports that ranks of an external action have reached a milestone.
    ActionMilestone(#[serde(deserialize_with = "action_milestone", serialize_with = "write_report")] Box<Report>),
    /// Adds an attempt of a job with its nodes, or takes up an attempt that exists. A repeated request changes
    /// nothing.
    JobAdd(Box<JobAdd>),
    /// Hands ranks and named resources of the job over to the after-actions, in one step. If `targets` and `resources`
    /// are both `None`, hands over everything that the job holds.
    JobFinish {
        job: JobId,
        attempt: Option<Attempt>,
        targets: Option<Targets>,
        resources: Option<BTreeSet<ResourceName>>,
    },
    /// Cancels the job's setup actions and external actions, and hands everything that the job holds over to the
    /// after-actions.
    JobCancel {
        job: JobId,
        attempt: Option<Attempt>,
        #[serde(default, deserialize_with = "optional_text")]
        why: String,
    },
    /// Drops the notices of the job's releases that the release hook has not carried out. The controller refuses the
    /// request unless `releases` is set.
    JobForget {
        job: JobId,
        attempt: Option<Attempt>,
        #[serde(default, deserialize_with = "or_default")]
        releases: bool,
        #[serde(deserialize_with = "text")]
        reason: String,
    },
    /// Reports for an operator or a resource manager that ranks of a job have reached a milestone; `targets` `None`:
    /// all ranks of the job.
    Milestone {
        job: JobId,
        attempt: Option<Attempt>,
        name: MilestoneName,
        targets: Option<Targets>,
    },
    /// Lists the ranks and resources that failed in the job's setup actions and external actions.
    Failed {
        job: JobId,
        attempt: Option<Attempt>,
    },
    /// Returns a page of the drained hosts, each with the time and the reason: those of `targets`, or all.
    Drains {
        #[serde(rename = "nodes")]
        targets: Option<HostList>,
        /// Begins the page after this host; `None`: at the first.
        #[serde(default, rename = "internal.after", skip_serializing_if = "Option::is_none")]
        after: Option<HostName>,
        /// The page is empty if nothing has changed since the list with this number, see [`Reply::Drains`].
        #[serde(default, rename = "internal.known", skip_serializing_if = "Option::is_none")]
        known: Option<u64>,
    },
    /// Returns the drains, and the lifts of drains, that the drain hook has not carried out.
    #[serde(rename = "internal.PendingDrains")]
    PendingDrains,
    Drain {
        #[serde(rename = "nodes")]
        hosts: HostList,
        #[serde(deserialize_with = "text")]
        reason: String,
        /// Allows hosts whose agents have never connected to this controller.
        #[serde(default, deserialize_with = "or_default")]
        force: bool,
    },
    Undrain {
        #[serde(rename = "nodes")]
        hosts: HostList,
        /// Removes the drain at once, without a notice to the drain hook.
        #[serde(default, deserialize_with = "or_default")]
        forget: bool,
        /// Lifts only a drain whose newest notice has this number: an edge lifts the drain that its resource manager
        /// showed. `None`: whichever drain the host has.
        notice_id: Option<u64>,
    },
    /// Confirms that an edge has carried out the notice with this number: the host is drained, or undrained if
    /// `lifted`. `failed`: the edge could not carry the notice out, for this reason. The controller ignores the
    /// confirmation of a drain that has a newer notice.
    DrainDone {
        host: HostName,
        notice_id: u64,
        lifted: bool,
        #[serde(default, deserialize_with = "reason")]
        failed: Option<String>,
    },
    /// Confirms what [`Self::DrainDone`] confirms, for the drain hook and many notices, each with its host and its
    /// number.
    #[serde(rename = "internal.DrainsDone")]
    DrainsDone {
        drains: Vec<(HostName, u64)>,
        lifted: bool,
    },
    /// Returns the next notices for the release hook, the oldest of each job. The jobs in `first` come first, in that
    /// order; then every job that is not in `except`.
    #[serde(rename = "internal.Releases")]
    Releases {
        first: Vec<JobId>,
        except: BTreeSet<JobId>,
        limit: usize,
    },
    /// Confirms that the release hook has carried out the notice with this sequence number.
    #[serde(rename = "internal.OutboxDone")]
    OutboxDone {
        sequence: u64,
    },
    /// Reports that a hook failed to carry out these notices. The controller sends them to the hook again, and `ps`
    /// shows the failure.
    #[serde(rename = "internal.HookFailed")]
    HookFailed {
        what: Vec<FailedNotice>,
        why: String,
    },
    /// Cancels the tasks in `which`. Cancels an after-action only if `which` names the action.
    Cancel {
        #[serde(flatten)]
        which: Which,
        #[serde(default, deserialize_with = "optional_text")]
        why: String,
    },
    Signal {
        #[serde(flatten)]
        which: Which,
        #[serde(deserialize_with = "signal", serialize_with = "write_signal")]
        signal: u8,
    },
    Resolve {
        #[serde(flatten, with = "with_resources")]
        which: Which,
        ok: bool,
        #[serde(deserialize_with = "text")]
        reason: String,
    },
    /// Lists unfinished work that is at least `older_than_ms` old. With `held`, also lists each hold of a job, and each
    /// hold of an action on ended ranks.
    Ps {
        #[serde(rename = "older_than", default, deserialize_with = "age", serialize_with = "write_age")]
        older_than_ms: u64,
        #[serde(default, deserialize_with = "or_default")]
        held: bool,
    },
    /// Shows a job. Ranks that ended alike share a row. `targets`: shows only the ends of these ranks, a row for each.
    Show {
        job: JobId,
        targets: Option<Targets>,
    },
    /// Returns a page of the nodes: those of `targets`, or all.
    Nodes {
        #[serde(rename = "nodes")]
        targets: Option<HostList>,
        /// Begins the page after this host; `None`: at the first.
        #[serde(default, rename = "internal.after", skip_serializing_if = "Option::is_none")]
        after: Option<HostName>,
    },
    Why {
        #[serde(rename = "node")]
        host: HostName,
    },
    /// Removes dismantled nodes from the list of nodes: all of `hosts`, or none. With `reports`, removes no node, but
    /// drops everything that these hosts reported and the store does not know, and ends their sessions.
    NodeForget {
        #[serde(rename = "nodes")]
        hosts: HostList,
        #[serde(default, deserialize_with = "or_default")]
        reports: bool,
    },
    /// Puts a question to the agents of some hosts, or of a job's ranks. The answers come as `Effect::Answer`.
    #[serde(rename = "internal.Ask")]
    Ask {
        which: AskWhich,
        ask: Ask,
    },
    /// Ends a question to agents, because the client that asked has disconnected.
    #[serde(rename = "internal.AskEnds")]
    AskEnds {
        question: u64,
    },
    Status {},
    /// Returns a view of the cluster, a job or a node, for the web page. Most lists in the view have a bound.
    #[serde(rename = "internal.Overview")]
    Overview(OverviewRequest),
    /// Quiesces the controller. With `wait`, the reply comes when no action is open.
    Quiesce {
        #[serde(default, deserialize_with = "optional_text")]
        reason: String,
        #[serde(default, deserialize_with = "or_default")]
        wait: bool,
    },
    Resume {},
    /// Applies a page of an edge's list of all attempts of its source, with the ranks that each attempt holds.
    #[serde(rename = "internal.Sync")]
    Sync(Box<SyncPage>),
    /// Shows the abandoned attempts, the unknown tasks and the hosts without a Welcome. With `take_over`, begins an
    /// epoch above every epoch that agents have reported, and a new generation; then all agents accept this controller.
    Recover {
        #[serde(default, deserialize_with = "or_default")]
        take_over: bool,
    },
    /// Returns the attempts of a source and their state, to the source's edge.
    #[serde(rename = "internal.Attempts")]
    Attempts(AttemptsOf),
    /// Returns the oldest `limit` notices to the resource manager after sequence number `after`.
    #[serde(rename = "internal.Outbox")]
    Outbox {
        after: u64,
        limit: usize,
    },
    /// Confirms that the resource manager's reader has applied every notice up to and including `through`.
    OutboxApplied {
        through: u64,
    },
    /// A request of an edge's user, who has no other permission: the machine checks that the request is about a job or
    /// a drain of an edge, and carries it out.
    #[serde(rename = "internal.OfEdge")]
    OfEdge(Box<Request>),
}

impl Request {
    /// Returns the request itself, without the note of who makes it ([`Self::OfEdge`]).
    pub const fn plain(&self) -> &Self {
        match self {
            Self::OfEdge(request) => request.plain(),
            request => request,
        }
    }
}

/// The request to begin an action on ranks of an attempt, or to attach to the action.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunRequest {
    pub job: JobId,
    /// The attempt; `None`: the open attempt, or a new attempt if none is open.
    pub attempt: Option<Attempt>,
    pub action: ActionName,
    /// For a new attempt, its hosts in rank order; for an existing attempt, the hosts on which the action begins.
    /// `None`: all hosts of the attempt; a new attempt takes the hosts of the attempt before.
    pub nodes: Option<HostList>,
    /// The hosts or ranks on which the action begins; `None`: all of `nodes`, as far as the job still holds them.
    pub targets: Option<Targets>,
    pub userid: Option<u32>,
    #[serde(default, deserialize_with = "environment")]
    pub env: BTreeMap<String, String>,
    #[serde(rename = "timeout", default, deserialize_with = "timeout", serialize_with = "write_timeout")]
    pub timeout_ms: Option<u64>,
    /// `true`: the controller refuses to open a new attempt on unknown hosts. A host is unknown if its agent has never
    /// connected and the host has no drain.
    #[serde(default, deserialize_with = "or_default")]
    pub known: bool,
}

/// The notice on which a hook failed.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum FailedNotice {
    /// A release notice, by its sequence number in the outbox.
    Release(u64),
    /// The drain hook's notice of a drain with the number `notice_id`; `lifted`: the notice was about the lift of the
    /// drain.
    Drain { host: HostName, notice_id: u64, lifted: bool },
}

/// The request to add an attempt of a job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JobAdd {
    /// The edge that adds the job; `None`: a hook or an operator adds the job.
    pub source: Option<Source>,
    pub job: JobId,
    /// The attempt; `None`: the open attempt, or a new attempt if none is open.
    pub attempt: Option<Attempt>,
    /// The job's hosts in rank order; `None` where `terms.r` names the hosts.
    pub nodes: Option<HostList>,
    pub userid: Option<u32>,
    #[serde(flatten)]
    pub terms: Terms,
}

/// A choice of tasks. `attempt` `None`: the open attempt, or the last. `action` `None`: every action of the attempt.
/// `targets` and `resources` both `None`: all ranks and resources; otherwise only the named ranks and resources.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Which {
    pub job: JobId,
    pub attempt: Option<Attempt>,
    pub action: Option<ActionName>,
    pub targets: Option<Targets>,
    /// The named resources of the choice. Only external actions cover named resources. `None`: see [`Which`]. Only
    /// [`Request::Resolve`] reads them from a call.
    #[serde(skip)]
    pub resources: Option<BTreeSet<ResourceName>>,
}

/// The choice of [`Request::Resolve`], which may name resources.
mod with_resources {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use super::*;

    #[derive(Serialize, Deserialize)]
    struct Named {
        job: JobId,
        attempt: Option<Attempt>,
        action: Option<ActionName>,
        targets: Option<Targets>,
        resources: Option<BTreeSet<ResourceName>>,
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Which, D::Error> {
        let Named { job, attempt, action, targets, resources } = Named::deserialize(deserializer)?;
        Ok(Which { job, attempt, action, targets, resources })
    }

    pub(super) fn serialize<S: Serializer>(which: &Which, serializer: S) -> Result<S::Ok, S::Error> {
        let Which { job, attempt, action, targets, resources } = which.clone();
        Named { job, attempt, action, targets, resources }.serialize(serializer)
    }
}

/// The receivers of a question.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum AskWhich {
    Hosts(HostList),
    Tasks(Which),
}
