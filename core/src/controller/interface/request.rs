//! Requests that people and programs make of the controller's machine.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::controller::io::Source;
use crate::controller::overview::Look;
use crate::hostlist::HostList;
use crate::ids::{ActionName, Attempt, HostName, JobId, MilestoneName, ResourceName};
use crate::idset::IdSet;
use crate::job::Terms;
use crate::message::Ask;
use crate::targets::Targets;

pub use crate::controller::interface::refusal::Refusal;
pub use crate::controller::interface::reply::{Asserted, Reply};

#[derive(Debug, Clone, PartialEq)]
pub enum Request {
    /// Starts an action, or attaches to the action if the attempt already has it.
    Run(RunRequest),
    /// Starts an external action, or attaches to it.
    ActionStart(Box<ActionStart>),
    /// A report or a sign of life from the service of an external action.
    Report(Box<Report>),
    /// Adds a job and its nodes; repeating the request changes nothing.
    JobAdd(Box<JobAdd>),
    /// Hands these ranks and resources of the job over to the after-actions, in one step. `targets` and `resources`
    /// both `None`: everything that the job holds.
    JobFinish {
        job: JobId,
        attempt: Option<Attempt>,
        targets: Option<Targets>,
        resources: Option<BTreeSet<ResourceName>>,
    },
    /// Cancels the job's actions, and hands everything that the job holds over to the after-actions.
    JobCancel {
        job: JobId,
        attempt: Option<Attempt>,
        why: String,
    },
    /// Drops the notices of the job that the release hook has not carried out. Refused unless `releases` is set.
    JobForget {
        job: JobId,
        attempt: Option<Attempt>,
        releases: bool,
        reason: String,
    },
    /// Records that ranks of a job have reached a milestone; `targets` `None`: all ranks of the job.
    Milestone {
        job: JobId,
        attempt: Option<Attempt>,
        name: MilestoneName,
        targets: Option<Targets>,
    },
    /// Asks which ranks failed in the setup actions of the job.
    Failed {
        job: JobId,
        attempt: Option<Attempt>,
    },
    /// Lists the drained hosts with time and reason.
    Drains,
    Drain {
        hosts: HostList,
        reason: String,
        /// Allows hosts that this controller has never heard of.
        force: bool,
    },
    Undrain {
        hosts: HostList,
        /// Deletes the drain at once, without a notice to the drain hook.
        forget: bool,
    },
    /// Confirms that the drain hook has carried out the notice with the number `telling` of the drain's row: the
    /// host is drained, or undrained if `lifted`. A newer notice stays owed.
    DrainDone {
        host: HostName,
        telling: u64,
        lifted: bool,
    },
    /// Returns the next notices for the release hook, the oldest of each job: first of the jobs in `first`, in that
    /// order, then of any job that is not in `except`.
    Releases {
        first: Vec<JobId>,
        except: BTreeSet<JobId>,
        limit: usize,
    },
    /// Confirms that the release hook has carried out this entry of the outbox.
    OutboxDone {
        sequence: u64,
    },
    /// Reports that a hook failed. The controller will send the notice again; `ps` shows the failure.
    HookFailed {
        what: Hooked,
        why: String,
    },
    /// Stops the tasks that `which` names.
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
    /// Lists unfinished work. `held` adds the resources that jobs and actions hold.
    Ps {
        older_than_ms: u64,
        held: bool,
    },
    Show {
        job: JobId,
    },
    Nodes {
        targets: Option<HostList>,
    },
    Why {
        host: HostName,
    },
    /// Removes dismantled nodes from the list of nodes: all of them, or none.
    NodeForget {
        hosts: HostList,
    },
    /// Asks the agents of some hosts, or of a job's ranks. Their answers come as `Effect::Answer`.
    Ask {
        which: AskWhich,
        ask: Ask,
    },
    /// Ends a question: the client that asked has gone.
    AskEnds {
        question: u64,
    },
    Status,
    /// A look at the cluster, a job or a node; the answer is bounded.
    Look(Look),
    /// Stops the controller from beginning new work. With `wait`, the reply comes when no action is open.
    Quiesce {
        reason: String,
        wait: bool,
    },
    Resume,
    /// Asserts an edge's list: the attempts that exist in its source, and the ranks that each attempt holds.
    Assert(Box<Assert>),
    /// Shows the open points of a recovery, or records an operator's decision about one.
    Recover(Recover),
    /// Returns the attempts of a source and their state, for the source's edge.
    Attempts(AttemptsOf),
    /// Returns the oldest `limit` entries of the outbox after sequence number `after`.
    Outbox {
        after: u64,
        limit: usize,
    },
    /// Confirms that an edge has applied every entry up to and including `through`.
    OutboxApplied {
        through: u64,
    },
}

#[derive(Debug, Clone, PartialEq)]
pub struct RunRequest {
    pub job: JobId,
    /// The attempt; `None`: the open attempt, or the first attempt of a new job.
    pub attempt: Option<Attempt>,
    pub action: ActionName,
    /// The job's hosts in rank order; `None`: the hosts that the attempt already has.
    pub nodes: Option<HostList>,
    /// The chosen hosts or ranks; `None`: all.
    pub targets: Option<Targets>,
    pub userid: Option<u32>,
    pub env: BTreeMap<String, String>,
    pub timeout_ms: Option<u64>,
    /// Refuses a new attempt on hosts that this controller has never heard of.
    pub known: bool,
}

/// A choice of a source's attempts. See `crate::controller::show::edge`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AttemptsOf {
    pub source: Source,
    /// `Some`: all attempts of these jobs; `None`: the attempts that hold ranks or resources, after `after`.
    pub jobs: Option<Vec<JobId>>,
    pub after: Option<(JobId, Attempt)>,
    pub limit: usize,
}

/// The start of an external action. `run` names the action; its `nodes` and `targets` choose the ranks. A request that
/// names only `resources` covers no ranks.
#[derive(Debug, Clone, PartialEq)]
pub struct ActionStart {
    pub run: RunRequest,
    pub resources: BTreeSet<ResourceName>,
    /// Lease: the longest time that the service may stay silent.
    pub lease_ms: u64,
}

/// A report from the service of an external action. Any report renews the lease.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    pub job: JobId,
    /// The attempt that the service works for; `None`: the open attempt, or the last.
    pub attempt: Option<Attempt>,
    pub action: ActionName,
    /// The ranks and resources of the report; if both are `None`, all that the action covers.
    pub targets: Option<Targets>,
    pub resources: Option<BTreeSet<ResourceName>>,
    pub said: Said,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Said {
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

/// Notice that a hook received.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Hooked {
    /// An entry of the outbox, by its sequence number.
    Release(u64),
    /// A notice about a drain or a lifted drain, by its number.
    Drain { host: HostName, telling: u64, lifted: bool },
}

/// All attempts of a source, as its resource manager lists them. The controller carries an assertion out in one step; a
/// repetition changes nothing.
#[derive(Debug, Clone, PartialEq)]
pub struct Assert {
    pub source: Source,
    pub attempts: Vec<Listed>,
    /// Hosts that the resource manager has drained, for perilog or for another reason.
    pub drains: Vec<ListedDrain>,
}

/// An attempt that exists in its source.
#[derive(Debug, Clone, PartialEq)]
pub struct Listed {
    pub job: JobId,
    pub attempt: Attempt,
    pub userid: Option<u32>,
    /// The ranks that the attempt still holds, and the host of each rank, in rank order.
    pub ranks: IdSet,
    pub hosts: HostList,
    pub terms: Terms,
    pub phase: Phase,
}

/// Phase of a job as its resource manager sees the job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    /// The setup actions of the attempt have not all ended.
    Preparing,
    Running,
    /// The job is over, as after `job finish`.
    Ended,
}

/// A host that the resource manager has drained.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedDrain {
    pub host: HostName,
    pub reason: String,
    /// `true` if an edge drained the host for perilog: the reason bears perilog's marker.
    pub ours: bool,
}

/// An operator's request about a recovery.
#[derive(Debug, Clone, PartialEq)]
pub enum Recover {
    /// Shows the open points of the recovery.
    List,
    /// Makes this controller the one that agents obey, whatever epoch the agents have obeyed before. The store enters
    /// recovery.
    TakeOver,
    /// Vouches for one job, or for all unvouched jobs.
    Confirm { job: Option<JobId>, attempt: Option<Attempt>, word: Confirm },
    /// Drops everything that this host reported and the store does not know. The host's session ends, and its agent
    /// reports again.
    Forget { host: HostName },
}

/// An operator's statement about a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Confirm {
    /// The job still has its nodes, and is over: the after-actions begin.
    Over,
    /// The job is still running.
    Running,
    /// The job is over, and its nodes were released before the store was restored. No action of the job begins, and the
    /// resource manager gets no notice.
    Gone,
}

#[derive(Debug, Clone, PartialEq)]
pub struct JobAdd {
    /// The edge that adds the job; `None`: a hook or an operator adds the job.
    pub source: Option<Source>,
    pub job: JobId,
    /// The attempt; `None`: the open attempt, or the first attempt of a new job.
    pub attempt: Option<Attempt>,
    /// The job's hosts in rank order; `None` where `terms.r` names the hosts.
    pub nodes: Option<HostList>,
    pub userid: Option<u32>,
    pub terms: Terms,
}

/// A choice of tasks. `attempt` `None`: the open attempt. `action` `None`: every action that has not ended. `targets`
/// and `resources` both `None`: all ranks and resources; else only the named ones.
#[derive(Debug, Clone, PartialEq)]
pub struct Which {
    pub job: JobId,
    pub attempt: Option<Attempt>,
    pub action: Option<ActionName>,
    pub targets: Option<Targets>,
    /// The named resources of external actions.
    pub resources: Option<BTreeSet<ResourceName>>,
}

#[derive(Debug, Clone, PartialEq)]
pub enum AskWhich {
    Hosts(HostList),
    Tasks(Which),
}
