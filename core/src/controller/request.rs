//! What people and programs ask of the controller's machine, and what they are answered.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::controller::io::{DrainRow, OutboxEntry, Source};
use crate::controller::view::{EdgeAttempt, JobView, NodeView, PsRow, RecoveryView, StatusView, WhyView};
use crate::hostlist::HostList;
use crate::ids::{ActionId, ActionName, Attempt, HostName, JobId, MilestoneName, ResourceName};
use crate::idset::IdSet;
use crate::job::{Part, Terms};
use crate::message::Ask;
use crate::targets::Targets;

#[derive(Debug, Clone, PartialEq)]
pub enum Request {
    /// Start an action, or attach to it if that action of that attempt exists.
    Run(RunRequest),
    /// Start an action that a service outside runs, or attach to it.
    ActionStart(Box<ActionStart>),
    /// That service reports, or says that it lives.
    Report(Box<Report>),
    /// A job and what it holds; again the same is the same.
    JobAdd(Box<JobAdd>),
    /// The job lets go of these, and what follows it takes them over, in one step. All that it holds where `targets`
    /// and `resources` are `None`.
    JobFinish {
        job: JobId,
        attempt: Option<Attempt>,
        targets: Option<Targets>,
        resources: Option<BTreeSet<ResourceName>>,
    },
    /// Stops what runs for the job and lets go of all of it, through what follows it.
    JobCancel {
        job: JobId,
        attempt: Option<Attempt>,
        why: String,
    },
    /// An attempt never was, of which only nodes tell; or, with `releases`, the release hook is not to be told any more
    /// of what it is owed of the job.
    JobForget {
        job: JobId,
        attempt: Option<Attempt>,
        releases: bool,
        reason: String,
    },
    /// Ranks of a job have reached this point; all that it has where `targets` is `None`.
    Milestone {
        job: JobId,
        attempt: Option<Attempt>,
        name: MilestoneName,
        targets: Option<Targets>,
    },
    /// Who failed in what ran for the job before it.
    Failed {
        job: JobId,
        attempt: Option<Attempt>,
    },
    /// Who is drained, since when, why.
    Drains,
    Drain {
        hosts: HostList,
        reason: String,
        /// Also hosts that this controller has never heard of.
        force: bool,
    },
    Undrain {
        hosts: HostList,
        /// At once, whatever the drain hook makes of it: it is not told.
        forget: bool,
    },
    /// The drain hook has drained this host, or lifted its drain, as it was told by that telling
    /// ([`DrainRow::telling`]): a newer one is still owed.
    DrainDone {
        host: HostName,
        telling: u64,
        lifted: bool,
    },
    /// What the release hook is to be told next, of each job its oldest: of those in `first`, in that order, then of
    /// any that are not in `except`.
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
    /// Which of an action's ranks: all where `targets` is `None`.
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
    /// `held`: what jobs and actions hold, too, whatever becomes of it.
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
    /// Begin nothing new from now on. `wait`: answered when nothing is open any more.
    Quiesce {
        reason: String,
        wait: bool,
    },
    Resume,
    /// An edge says which attempts of its source exist, and what they hold.
    Assert(Box<Assert>),
    /// What recovery waits for; and a person's word for it.
    Recover(Recover),
    /// The attempts of a source as they stand, for its edge.
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
    /// The job's nodes, rank by rank. `None`: those that the attempt has.
    pub nodes: Option<HostList>,
    /// Which of them; `None`: all.
    pub targets: Option<Targets>,
    pub userid: Option<u32>,
    pub env: BTreeMap<String, String>,
    pub timeout_ms: Option<u64>,
}

/// Which attempts of a source. See [`crate::controller::edges`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AttemptsOf {
    pub source: Source,
    /// All attempts of these jobs; `None`: those that hold something, past `after`.
    pub jobs: Option<Vec<JobId>>,
    pub after: Option<(JobId, Attempt)>,
    pub limit: usize,
}

/// An external action: `run` says of what, `nodes` and `targets` which ranks; with `resources` none where none are
/// named.
#[derive(Debug, Clone, PartialEq)]
pub struct ActionStart {
    pub run: RunRequest,
    pub resources: BTreeSet<ResourceName>,
    /// How long its service may be silent.
    pub lease_ms: u64,
}

/// What the service of an external action says. Any of it renews the lease.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    pub job: JobId,
    /// `None`: the open one, or the last.
    pub attempt: Option<Attempt>,
    pub action: ActionName,
    /// Of these; where neither is named, of all that the action covers.
    pub targets: Option<Targets>,
    pub resources: Option<BTreeSet<ResourceName>>,
    pub said: Said,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Said {
    /// That it lives.
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
    /// A point that it has come to; an end of nothing.
    Milestone(MilestoneName),
}

/// Something that a hook was told.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Hooked {
    /// An entry of the outbox.
    Release(u64),
    /// The drain of this moment, or that it is lifted.
    Drain { host: HostName, telling: u64, lifted: bool },
}

/// What a resource manager has of a source's attempts, all of them. Carried out in one step; the same again changes
/// nothing.
#[derive(Debug, Clone, PartialEq)]
pub struct Assert {
    pub source: Source,
    pub attempts: Vec<Listed>,
    /// Hosts that are drained there with our marker, or for anything else.
    pub drains: Vec<ListedDrain>,
}

/// An attempt that exists.
#[derive(Debug, Clone, PartialEq)]
pub struct Listed {
    pub job: JobId,
    pub attempt: Attempt,
    pub userid: Option<u32>,
    /// The ranks that it holds still, and the host of each in rank order.
    pub ranks: IdSet,
    pub hosts: HostList,
    pub terms: Terms,
    pub phase: Phase,
}

/// Where a job stands for its resource manager.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    /// Its setup actions go on.
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

/// What was made of an [`Assert`].
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Asserted {
    /// Attempts that were known, or were added.
    pub vouched: u64,
    pub added: u64,
    /// Known of this source and not listed: over.
    pub over: Vec<(JobId, Attempt)>,
    /// Listed, and they contradict what is known: why. Nothing was changed by them.
    pub refused: Vec<(JobId, Attempt, String)>,
}

/// A person's part in a recovery.
#[derive(Debug, Clone, PartialEq)]
pub enum Recover {
    /// Shows what it waits for.
    List,
    /// Be the controller that agents obey from now on, whatever they have obeyed before; the store is in recovery then.
    TakeOver,
    /// Vouches for one job, or for all that nobody has vouched for.
    Confirm { job: Option<JobId>, attempt: Option<Attempt>, word: Confirm },
}

/// What a person knows of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Confirm {
    /// Its nodes are still its own, and it is over: its after-actions begin.
    Over,
    /// It goes on.
    Running,
    /// It is over, and its nodes were given back before the store was put back: nothing of it begins, and nobody is
    /// told.
    Gone,
}

#[derive(Debug, Clone, PartialEq)]
pub struct JobAdd {
    /// The edge that adds it; `None`: a hook, or a person.
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
    /// What is no rank, of external actions.
    pub resources: Option<BTreeSet<ResourceName>>,
}

#[derive(Debug, Clone, PartialEq)]
pub enum AskWhich {
    Hosts(HostList),
    Tasks(Which),
}

#[derive(Debug, Clone, PartialEq)]
pub enum Reply {
    /// `events_after`: follow the job's event log from here to see everything of this action.
    Running {
        job: JobId,
        attempt: Attempt,
        id: ActionId,
        ranks: IdSet,
        hosts: HostList,
        attached: bool,
        events_after: u64,
    },
    /// How many tasks it reached, at once or on their next session.
    Reached {
        tasks: u64,
    },
    /// Settled by an operator's word; `waiting`: so many of them once the drains of their nodes are in force.
    Resolved {
        tasks: u64,
        waiting: u64,
    },
    /// No new starts; so many actions and tasks are open still.
    Quiet {
        actions: u64,
        tasks: u64,
    },
    /// `was_quiet`: until now.
    Resumed {
        was_quiet: bool,
    },
    Ps {
        rows: Vec<PsRow>,
        /// What an operator should know of all of it.
        notes: Vec<String>,
    },
    /// What ended with this report; what it said of things that had ended otherwise; what has not ended; and what of
    /// that is to stop.
    Reported {
        ended: Part,
        late: Part,
        open: Part,
        cancelling: Part,
    },
    Show(Box<JobView>),
    Nodes(Vec<NodeView>),
    Why(Box<WhyView>),
    /// The question was sent to these hosts; the others are not connected.
    Asked {
        question: u64,
        asked: HostList,
        unreachable: HostList,
    },
    Status(Box<StatusView>),
    Outbox(Vec<OutboxEntry>),
    Added {
        job: JobId,
        attempt: Attempt,
        hosts: HostList,
        /// It was there, as asked for.
        attached: bool,
        /// It was there, and holds nothing any more.
        over: bool,
    },
    /// What was let go of just now.
    Finished(Part),
    /// `resources`: what is no rank; each is `{resource, action, outcome, result, message, checks}`. `checks`, of
    /// ranks: each is `{check, message, ranks, hosts}`.
    Failed {
        ranks: IdSet,
        hosts: HostList,
        resources: Vec<serde_json::Value>,
        checks: Vec<serde_json::Value>,
    },
    /// Ranks of which it is news, and whether the job has reached it.
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
    /// An attempt that is closed or older than the open one.
    AttemptClosed(String),
    NoSuchNode(String),
    /// The request contradicts what exists.
    Conflict(String),
    Invalid(String),
    /// The store is full, or the controller is quiet: no new starts.
    Unavailable(String),
}
