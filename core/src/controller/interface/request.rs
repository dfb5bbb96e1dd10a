//! Requests that people and programs send to the controller.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::controller::io::Source;
use crate::controller::overview::OverviewRequest;
use crate::hostlist::HostList;
use crate::ids::{ActionName, Attempt, HostName, JobId, MilestoneName, ResourceName};
use crate::idset::IdSet;
use crate::job::Terms;
use crate::message::Ask;
use crate::targets::Targets;

pub use crate::controller::interface::refusal::Refusal;
pub use crate::controller::interface::reply::{Reply, Synced};

/// A request to the controller, on its local API.
#[derive(Debug, Clone, PartialEq)]
pub enum Request {
    /// Begins an action, or attaches to the action if the attempt already has it.
    Run(RunRequest),
    /// Begins an external action, or attaches a restarted service to the external action that it works for.
    ActionStart(Box<ActionStart>),
    /// Reports ends or milestones of an external action, or only a sign of life from its service.
    Report(Box<Report>),
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
        why: String,
    },
    /// Drops the notices of the job's releases that the release hook has not carried out. The controller refuses the
    /// request unless `releases` is set.
    JobForget {
        job: JobId,
        attempt: Option<Attempt>,
        releases: bool,
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
        targets: Option<HostList>,
        /// Begins the page after this host; `None`: at the first.
        after: Option<HostName>,
        /// The page is empty if nothing has changed since the list with this number, see [`Reply::Drains`].
        known: Option<u64>,
    },
    /// Returns the drains, and the lifts of drains, that the drain hook has not carried out.
    PendingDrains,
    Drain {
        hosts: HostList,
        reason: String,
        /// Allows hosts whose agents have never connected to this controller.
        force: bool,
    },
    Undrain {
        hosts: HostList,
        /// Removes the drain at once, without a notice to the drain hook.
        forget: bool,
        /// Lifts only a drain whose newest notice has this number: an edge lifts the drain that its resource manager
        /// showed. `None`: whichever drain the host has.
        notice_id: Option<u64>,
    },
    /// Confirms that the drain hook has carried out these notices, each with its host and its number: the hosts are
    /// drained, or undrained if `lifted`. The controller ignores the confirmation of a drain that has a newer notice.
    DrainDone {
        drains: Vec<(HostName, u64)>,
        lifted: bool,
    },
    /// Returns the next notices for the release hook, the oldest of each job. The jobs in `first` come first, in that
    /// order; then every job that is not in `except`.
    Releases {
        first: Vec<JobId>,
        except: BTreeSet<JobId>,
        limit: usize,
    },
    /// Confirms that the release hook has carried out the notice with this sequence number.
    OutboxDone {
        sequence: u64,
    },
    /// Reports that a hook failed to carry out these notices. The controller sends them to the hook again, and `ps`
    /// shows the failure.
    HookFailed {
        what: Vec<FailedNotice>,
        why: String,
    },
    /// Cancels the tasks in `which`. Cancels an after-action only if `which` names the action.
    Cancel {
        which: Which,
        why: String,
    },
    Signal {
        which: Which,
        signal: u8,
    },
    Resolve {
        which: Which,
        ok: bool,
        reason: String,
    },
    /// Lists unfinished work that is at least `older_than_ms` old. With `held`, also lists each hold of a job, and each
    /// hold of an action on ended ranks.
    Ps {
        older_than_ms: u64,
        held: bool,
    },
    /// Shows a job. Ranks that ended alike share a row. `targets`: shows only the ends of these ranks, a row for each.
    Show {
        job: JobId,
        targets: Option<Targets>,
    },
    /// Returns a page of the nodes: those of `targets`, or all.
    Nodes {
        targets: Option<HostList>,
        /// Begins the page after this host; `None`: at the first.
        after: Option<HostName>,
    },
    Why {
        host: HostName,
    },
    /// Removes dismantled nodes from the list of nodes: all of `hosts`, or none. With `reports`, removes no node, but
    /// drops everything that these hosts reported and the store does not know, and ends their sessions.
    NodeForget {
        hosts: HostList,
        reports: bool,
    },
    /// Puts a question to the agents of some hosts, or of a job's ranks. The answers come as `Effect::Answer`.
    Ask {
        which: AskWhich,
        ask: Ask,
    },
    /// Ends a question to agents, because the client that asked has disconnected.
    AskEnds {
        question: u64,
    },
    Status,
    /// Returns a view of the cluster, a job or a node, for the web page. Most lists in the view have a bound.
    Overview(OverviewRequest),
    /// Quiesces the controller. With `wait`, the reply comes when no action is open.
    Quiesce {
        reason: String,
        wait: bool,
    },
    Resume,
    /// Applies a page of an edge's list of all attempts of its source, with the ranks that each attempt holds.
    Sync(Box<SyncPage>),
    /// Shows what a restore has left, or carries out an operator's decision about it.
    Recover(Recover),
    /// Returns the attempts of a source and their state, to the source's edge.
    Attempts(AttemptsOf),
    /// Returns the oldest `limit` notices to the resource manager after sequence number `after`.
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
#[derive(Debug, Clone, PartialEq)]
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
    pub env: BTreeMap<String, String>,
    pub timeout_ms: Option<u64>,
    /// `true`: the controller refuses to open a new attempt on unknown hosts. A host is unknown if its agent has never
    /// connected and the host has no drain.
    pub known: bool,
}

/// Selection of attempts by which an edge asks for the attempts of its source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AttemptsOf {
    pub source: Source,
    /// `Some`: all attempts of the listed jobs, whatever `after` and `limit` are. `None`: the first `limit` attempts
    /// after `after` that are not released whole or are abandoned.
    pub jobs: Option<Vec<JobId>>,
    pub after: Option<(JobId, Attempt)>,
    pub limit: usize,
}

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
        check: Option<String>,
        message: String,
    },
    Failed {
        check: Option<String>,
        message: String,
    },
    /// The ranks have reached a milestone; no rank ends.
    Milestone(MilestoneName),
}

/// The notice on which a hook failed.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum FailedNotice {
    /// A release notice, by its sequence number in the outbox.
    Release(u64),
    /// The drain hook's notice of a drain with the number `notice_id`; `lifted`: the notice was about the lift of the
    /// drain.
    Drain { host: HostName, notice_id: u64, lifted: bool },
}

/// A page of the list of all attempts of a source, as its resource manager has them. The controller applies each page
/// when it comes. It concludes from the last page which attempts the list lacks. A repeated list changes nothing.
#[derive(Debug, Clone, PartialEq)]
pub struct SyncPage {
    pub source: Source,
    /// The number of the list that the page continues, from the reply to the list's first page; `None`: the page is
    /// the first of a new list.
    pub sync: Option<u64>,
    /// `true` if further pages of the list follow.
    pub continues: bool,
    pub attempts: Vec<Listed>,
    pub unfit: Vec<Unfit>,
    /// Hosts drained in the resource manager, by perilog or by an operator.
    pub drains: Vec<ListedDrain>,
}

/// An attempt in the list of a source.
#[derive(Debug, Clone, PartialEq)]
pub struct Listed {
    pub job: JobId,
    pub attempt: Attempt,
    pub userid: Option<u32>,
    /// The ranks that the attempt still holds.
    pub ranks: IdSet,
    /// The host of each rank, in rank order.
    pub hosts: HostList,
    pub terms: Terms,
    pub phase: Phase,
}

/// Phase of a job in the resource manager.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    /// The job waits for its setup actions.
    Preparing,
    Running,
    /// The job is over, as after `job finish`.
    Ended,
}

/// An attempt in the list of a source that the controller cannot take, for example because of its number of hosts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unfit {
    pub job: JobId,
    pub attempt: Attempt,
    pub why: String,
}

/// A host that the resource manager has drained.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedDrain {
    pub host: HostName,
    pub reason: String,
    /// `true` if an edge or `perilog hook flux-wait` drained the host for perilog: the reason contains `[perilog:`.
    pub ours: bool,
}

/// An operator's request after a restore.
#[derive(Debug, Clone, PartialEq)]
pub enum Recover {
    /// Shows the abandoned attempts, the unknown tasks and the hosts without a Welcome.
    List,
    /// Begins an epoch above every epoch that agents have reported, and a new generation. Then all agents accept this
    /// controller.
    TakeOver,
}

/// The request to add an attempt of a job.
#[derive(Debug, Clone, PartialEq)]
pub struct JobAdd {
    /// The edge that adds the job; `None`: a hook or an operator adds the job.
    pub source: Option<Source>,
    pub job: JobId,
    /// The attempt; `None`: the open attempt, or a new attempt if none is open.
    pub attempt: Option<Attempt>,
    /// The job's hosts in rank order; `None` where `terms.r` names the hosts.
    pub nodes: Option<HostList>,
    pub userid: Option<u32>,
    pub terms: Terms,
}

/// A choice of tasks. `attempt` `None`: the open attempt, or the last. `action` `None`: every action of the attempt.
/// `targets` and `resources` both `None`: all ranks and resources; otherwise only the named ranks and resources.
#[derive(Debug, Clone, PartialEq)]
pub struct Which {
    pub job: JobId,
    pub attempt: Option<Attempt>,
    pub action: Option<ActionName>,
    pub targets: Option<Targets>,
    /// The named resources of the choice. Only external actions cover named resources. `None`: see [`Which`].
    pub resources: Option<BTreeSet<ResourceName>>,
}

/// The receivers of a question.
#[derive(Debug, Clone, PartialEq)]
pub enum AskWhich {
    Hosts(HostList),
    Tasks(Which),
}
