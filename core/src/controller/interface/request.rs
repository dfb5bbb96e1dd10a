//! The requests that people and programs make of the controller's machine, and the replies.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::controller::io::{DrainRow, OutboxEntry, Source};
use crate::controller::overview::{Look, Looked};
use crate::controller::view::{EdgeAttempt, JobView, NodeView, PsRow, RecoveryView, StatusView, WhyView};
use crate::hostlist::HostList;
use crate::ids::{ActionId, ActionName, Attempt, HostName, JobId, MilestoneName, ResourceName};
use crate::idset::IdSet;
use crate::job::{Part, Terms};
use crate::message::Ask;
use crate::targets::Targets;

#[derive(Debug, Clone, PartialEq)]
pub enum Request {
    /// Starts an action, or attaches to the action if the attempt has it already.
    Run(RunRequest),
    /// Starts an external action, or attaches to it.
    ActionStart(Box<ActionStart>),
    /// A report or a sign of life from the service of an external action.
    Report(Box<Report>),
    /// Adds a job and its nodes; repeating the request changes nothing.
    JobAdd(Box<JobAdd>),
    /// The job lets go of these ranks and resources, and the after-actions take them over, in one step. All that the
    /// job holds if `targets` and `resources` are `None`.
    JobFinish {
        job: JobId,
        attempt: Option<Attempt>,
        targets: Option<Targets>,
        resources: Option<BTreeSet<ResourceName>>,
    },
    /// Stops the job's actions and lets go of everything, through the after-actions.
    JobCancel {
        job: JobId,
        attempt: Option<Attempt>,
        why: String,
    },
    /// With `releases`, drops the notices of the job that the release hook has not carried out; refused otherwise.
    JobForget {
        job: JobId,
        attempt: Option<Attempt>,
        releases: bool,
        reason: String,
    },
    /// Records that ranks of a job have reached a milestone; all ranks of the job if `targets` is `None`.
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
        /// Forgets the drain at once, without a word to the drain hook.
        forget: bool,
    },
    /// Confirms that the drain hook has drained this host, or lifted the drain, as of this telling
    /// ([`DrainRow::telling`]). A newer telling stays owed.
    DrainDone {
        host: HostName,
        telling: u64,
        lifted: bool,
    },
    /// Asks for the next notices for the release hook, the oldest one of each job: of the jobs in `first`, in that
    /// order, then of any job that is not in `except`.
    Releases {
        first: Vec<JobId>,
        except: BTreeSet<JobId>,
        limit: usize,
    },
    /// The release hook has carried out this entry of the outbox.
    OutboxDone {
        sequence: u64,
    },
    /// A hook did not carry something out, and will be asked again: shown in `ps`.
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
    /// Lists what has not ended. `held` adds the resources that jobs and actions hold, whatever becomes of them.
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
    /// A question to the agents of some hosts, or of a job's ranks; their answers come as `Effect::Answer`.
    Ask {
        which: AskWhich,
        ask: Ask,
    },
    /// The asker is gone.
    AskEnds {
        question: u64,
    },
    Status,
    /// A look at the cluster, a job or a node; the answer is bounded.
    Look(Look),
    /// Stops new work from beginning. With `wait`, the reply comes when nothing is open any more.
    Quiesce {
        reason: String,
        wait: bool,
    },
    Resume,
    /// The statement of an edge: the attempts that exist in its source, and what they hold.
    Assert(Box<Assert>),
    /// Shows what recovery waits for, or gives a person's word for it.
    Recover(Recover),
    /// Asks for the attempts of a source as they stand, for the source's edge.
    Attempts(AttemptsOf),
    /// The oldest `limit` entries of the outbox past `after`.
    Outbox {
        after: u64,
        limit: usize,
    },
    /// An edge has applied everything up to here.
    OutboxApplied {
        through: u64,
    },
}

#[derive(Debug, Clone, PartialEq)]
pub struct RunRequest {
    pub job: JobId,
    /// `None`: the open attempt, or the first.
    pub attempt: Option<Attempt>,
    pub action: ActionName,
    /// The job's nodes, in rank order. `None`: the nodes that the attempt already has.
    pub nodes: Option<HostList>,
    /// Which of them; `None`: all.
    pub targets: Option<Targets>,
    pub userid: Option<u32>,
    pub env: BTreeMap<String, String>,
    pub timeout_ms: Option<u64>,
}

/// Which attempts of a source. See `crate::controller::show::edge`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AttemptsOf {
    pub source: Source,
    /// All attempts of these jobs. `None`: the attempts that hold something, after `after`.
    pub jobs: Option<Vec<JobId>>,
    pub after: Option<(JobId, Attempt)>,
    pub limit: usize,
}

/// The start of an external action. `run` names the action, `nodes` and `targets` choose the ranks. A request that
/// names only `resources` covers no ranks.
#[derive(Debug, Clone, PartialEq)]
pub struct ActionStart {
    pub run: RunRequest,
    pub resources: BTreeSet<ResourceName>,
    /// How long its service may be silent.
    pub lease_ms: u64,
}

/// A report from the service of an external action. Any report renews the lease.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    pub job: JobId,
    /// The attempt that the service works for; `None`: the open one, or the last.
    pub attempt: Option<Attempt>,
    pub action: ActionName,
    /// The ranks and resources of the report; if both are `None`, all that the action covers.
    pub targets: Option<Targets>,
    pub resources: Option<BTreeSet<ResourceName>>,
    pub said: Said,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Said {
    /// A sign of life.
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
    /// A milestone that the ranks have reached; nothing ends.
    Milestone(MilestoneName),
}

/// Something that a hook was told.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Hooked {
    /// An entry of the outbox.
    Release(u64),
    /// The confirmation of one telling of a drain, or of a lifted drain.
    Drain { host: HostName, telling: u64, lifted: bool },
}

/// All attempts of a source, as its resource manager lists them. perilog carries an assertion out in one step;
/// repeating it changes nothing.
#[derive(Debug, Clone, PartialEq)]
pub struct Assert {
    pub source: Source,
    pub attempts: Vec<Listed>,
    /// Hosts that are drained in the resource manager, with perilog's marker or for another reason.
    pub drains: Vec<ListedDrain>,
}

/// An attempt that exists.
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

/// Where a job stands for its resource manager.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    /// The setup actions of the attempt are still to run or running.
    Preparing,
    Running,
    /// As after `job finish`.
    Ended,
}

/// A host that the resource manager has drained.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedDrain {
    pub host: HostName,
    pub reason: String,
    /// The reason bears our marker: an edge drained it for us.
    pub ours: bool,
}

/// The result of an [`Assert`].
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Asserted {
    /// Attempts that were known, or were added.
    pub vouched: u64,
    pub added: u64,
    /// Known of this source and not listed: over.
    pub over: Vec<(JobId, Attempt)>,
    /// Listed attempts that contradict the store, each with the reason. The assertion changed nothing about them.
    pub refused: Vec<(JobId, Attempt, String)>,
}

/// A person's part in a recovery.
#[derive(Debug, Clone, PartialEq)]
pub enum Recover {
    /// Shows what recovery waits for.
    List,
    /// Makes this controller the one that agents obey from now on, whatever agents have obeyed before. The store is in
    /// recovery then.
    TakeOver,
    /// Vouches for one job, or for all jobs that nobody has vouched for.
    Confirm { job: Option<JobId>, attempt: Option<Attempt>, word: Confirm },
    /// Drops all that this host told and that the store does not have. The host's session ends, and its agent tells
    /// anew.
    Forget { host: HostName },
}

/// A person's word about a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Confirm {
    /// The job still has its nodes, and is over: the after-actions begin.
    Over,
    /// The job is still running.
    Running,
    /// The job is over, and its nodes were released before the store was restored. No action of the job begins, and
    /// nobody is told.
    Gone,
}

#[derive(Debug, Clone, PartialEq)]
pub struct JobAdd {
    /// The edge that adds the job; `None`: a hook or a person adds it.
    pub source: Option<Source>,
    pub job: JobId,
    /// `None`: the open attempt, or the first.
    pub attempt: Option<Attempt>,
    /// The job's hosts, rank by rank; `None` where `terms.r` names them.
    pub nodes: Option<HostList>,
    pub userid: Option<u32>,
    pub terms: Terms,
}

/// A choice of tasks. `attempt`: the open one where `None`; `action`: every action that has not ended where `None`.
/// Ranks and resources: all where neither is named, or else just what is.
#[derive(Debug, Clone, PartialEq)]
pub struct Which {
    pub job: JobId,
    pub attempt: Option<Attempt>,
    pub action: Option<ActionName>,
    pub targets: Option<Targets>,
    /// The named resources, of external actions.
    pub resources: Option<BTreeSet<ResourceName>>,
}

#[derive(Debug, Clone, PartialEq)]
pub enum AskWhich {
    Hosts(HostList),
    Tasks(Which),
}

#[derive(Debug, Clone, PartialEq)]
pub enum Reply {
    /// The action runs, or has run. `events_after`: follow the job's event log from here to see everything of this
    /// action.
    Running {
        job: JobId,
        attempt: Attempt,
        id: ActionId,
        ranks: IdSet,
        hosts: HostList,
        attached: bool,
        events_after: u64,
        /// Recovery keeps something of its attempt waiting: why.
        waits: Option<String>,
    },
    /// Number of tasks that the request reached, at once or at their node's next session.
    Reached {
        tasks: u64,
    },
    /// The operator's word settled the tasks. `waiting` counts the tasks whose word waits for the drain of their node.
    Resolved {
        tasks: u64,
        waiting: u64,
    },
    /// No new starts; so many actions and tasks are open still.
    Quiet {
        actions: u64,
        tasks: u64,
    },
    /// The answer to Resume; `was_quiet`: until now.
    Resumed {
        was_quiet: bool,
    },
    Ps {
        rows: Vec<PsRow>,
        /// Notes for the operator about the whole request.
        notes: Vec<String>,
    },
    /// The reply to a report: the part that ended with this report, the part that had ended otherwise (late), the part
    /// that is still open, and the part that should stop.
    Reported {
        ended: Part,
        late: Part,
        open: Part,
        cancelling: Part,
    },
    Show(Box<JobView>),
    Nodes(Vec<NodeView>),
    Why(Box<WhyView>),
    /// The controller sent the question to these hosts; the other hosts are not connected.
    Asked {
        question: u64,
        asked: HostList,
        unreachable: HostList,
    },
    Status(Box<StatusView>),
    Looked(Looked),
    Outbox(Vec<OutboxEntry>),
    Added {
        job: JobId,
        attempt: Attempt,
        hosts: HostList,
        /// `true` if the attempt existed, exactly as asked for.
        attached: bool,
        /// `true` if the job holds nothing of the attempt any more.
        over: bool,
    },
    /// The part that the job has just let go of.
    Finished(Part),
    /// The failed part of a job. `resources`: what is no rank; each is `{resource, action, outcome, result, message,
    /// checks}`. `checks`, of ranks: each is `{check, message, ranks, hosts}`.
    Failed {
        ranks: IdSet,
        hosts: HostList,
        resources: Vec<serde_json::Value>,
        checks: Vec<serde_json::Value>,
    },
    /// Ranks that are new at this milestone, and whether the whole job has reached it.
    Said {
        ranks: IdSet,
        reached: bool,
    },
    Drains(Vec<DrainRow>),
    Attempts(Vec<EdgeAttempt>),
    TookOver {
        epoch: u64,
    },
    Asserted(Asserted),
    Recovery(Box<RecoveryView>),
    Done,
}

/// Why a request was not carried out. The first word of `code` is stable; `text` says what happened and what to do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "code", content = "text")]
pub enum Refusal {
    NoSuchJob(String),
    NoSuchAttempt(String),
    NoSuchAction(String),
    /// The attempt is closed, or older than the open attempt.
    AttemptClosed(String),
    NoSuchNode(String),
    /// The request contradicts what exists.
    Conflict(String),
    Invalid(String),
    /// The store is full, or the controller is quiet: no new starts.
    Unavailable(String),
}
