//! What goes into the controller's machine and what comes out of it.
//!
//! One writer: inputs are handled in batches; the batch's [`Record`]s are committed in one transaction; only then do its [`Effect`]s
//! leave. A failed commit discards the machine, which is rebuilt from the store.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

pub use crate::controller::request::{
    ActionStart, AskWhich, Hooked, JobAdd, Refusal, Reply, Report, Request, RunRequest, Said, Which,
};

use crate::controller::body::Body;
use crate::controller::stands::{Holds, Stands};
use crate::eventlog::Event;
use crate::hostlist::HostList;
use crate::ids::{
    ActionId, ActionName, Attempt, BootId, ClusterId, Epoch, HostName, JobId, MachineId, Rank, ResourceName, TaskId,
};
use crate::idset::IdSet;
use crate::job::{Part, Terms};
use crate::message::{FromAgent, ToAgent};
use crate::milestone::Milestones;
use crate::outcome::Verdict;
use crate::task::{Ended, Start};

/// The clocks at an input. `mono_ms` decides; `wall_ms` (since the epoch) is for people and event logs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Now {
    pub mono_ms: u64,
    pub wall_ms: u64,
}

/// The controller's configuration as far as the machine decides by it. All times in milliseconds.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    pub cluster: ClusterId,
    /// Not accepted within: `lost (offline)`.
    pub start_grace_ms: u64,
    /// Added to a task's limit before a node that is away makes it `lost (unreachable)`.
    pub unreachable_grace_ms: u64,
    /// How long a Start may wait on its node before nothing may claim it.
    pub not_after_ms: u64,
    /// How long an older session of a host has to answer a probe.
    pub probe_ms: u64,
    /// Agents per second that may redial; the window is their number over this, at least a second.
    pub redial_per_second: u64,
    /// Default limits by action, for requests that name none.
    pub timeouts: BTreeMap<ActionName, u64>,
    /// An attempt whose actions have all ended is closed and pruned after this time, or when there are more than `keep_attempts`.
    pub retention_ms: u64,
    pub keep_attempts: usize,
    /// What follows a job on each rank that it lets go, one after the other: its epilog, its housekeeping.
    pub after: Vec<ActionName>,
    /// When an action lets go of ranks that it is done with; all at once where none is named.
    pub release: BTreeMap<ActionName, ReleasePolicy>,
    /// `lost` ranks are forgiven within a job's tolerance, as `tolerable` ones are.
    pub tolerate_lost: bool,
    /// A hook drains in the resource manager: a drain counts once it has confirmed.
    pub drain_hook: bool,
    /// A node that was drained for a stuck script and booted needs no undrain.
    pub reboot_cleans: bool,
    /// A hook is told of releases.
    pub release_hook: bool,
}

/// When an action lets go of the ranks that it is done with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ReleasePolicy {
    /// When all that the job has let go of so far is done.
    #[default]
    Together,
    /// Each rank as it comes.
    Each,
    /// What has come by `first_ms` after the first; then in batches, each waiting twice as long as the one before, at most `ceiling_ms`.
    Batches { first_ms: u64, ceiling_ms: u64 },
}

/// A session with an agent, numbered by the listener; never used twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(pub u64);

/// A request on the local API, numbered by the edge; answered once.
pub type Client = u64;

#[derive(Debug, Clone, PartialEq)]
pub enum Input {
    /// A frame from a session whose certificate may speak for `names` (`None`: TLS is switched off). The first is a Hello.
    Message {
        session: SessionId,
        names: Option<Vec<String>>,
        peer: String,
        message: FromAgent,
    },
    Closed {
        session: SessionId,
        why: String,
    },
    Request {
        client: Client,
        uid: u32,
        request: Request,
    },
    /// These are gone, and wait for no answer any more.
    HungUp {
        clients: Vec<Client>,
    },
    Tick,
    Settings(Settings),
    /// The store's disk is full, or no longer: new prologs are refused meanwhile.
    StoreFull(bool),
}

/// Who carries entries of the outbox on: each has its own, in its own order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Edge {
    /// A program on the local API, which says how far it has come.
    Manager,
    /// The command of `[release]`, entry by entry.
    ReleaseHook,
}

/// One thing the resource manager must be told, at least once, in order per job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OutboxEntry {
    /// Grows over all jobs; what an edge remembers.
    pub sequence: u64,
    pub epoch: u64,
    /// Who is told.
    pub edge: Edge,
    pub job: JobId,
    pub attempt: Attempt,
    /// For example `{"event":"verdict","action":"prolog","verdict":"ok","status":0}`.
    pub body: Body,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Effect {
    Send {
        session: SessionId,
        message: ToAgent,
    },
    /// One Start to many: `start` with the rank and boot of each. Encoded once.
    Fan {
        start: Box<Start>,
        to: Vec<(SessionId, Rank, BootId)>,
    },
    /// End a session. `refused`: say so in the log with the peer's address.
    Close {
        session: SessionId,
        why: String,
    },
    Reply {
        client: Client,
        reply: Result<Reply, Refusal>,
    },
    /// To those who follow the job's event log.
    Publish {
        job: JobId,
        sequence: u64,
        event: Event,
    },
    /// Part of an answer to a question; `last` once for each host. `lost`: the node left before it had answered.
    Answer {
        question: u64,
        host: HostName,
        text: String,
        last: bool,
        lost: bool,
    },
    /// There is something new for those who tell the resource manager: in the outbox, or of drains.
    OutboxGrew,
    WakeAt {
        mono_ms: u64,
    },
    Note {
        level: crate::agent::io::Level,
        job: Option<JobId>,
        host: Option<HostName>,
        text: String,
    },
}

/// A change of what is durable. Applying the records of a batch in order, in one transaction, is the whole of the store's writing.
#[derive(Debug, Clone, PartialEq)]
pub enum Record {
    Epoch(Epoch),
    Node(NodeRow),
    Attempt(AttemptRow),
    Action(Box<ActionRow>),
    /// Of an action that is there: these ranks stand so now, all else is as it was.
    Moved {
        action: ActionId,
        stands: Box<Stands>,
    },
    /// Of an attempt that is there: these ranks are held so now, all else is as it was.
    Given {
        job: JobId,
        attempt: Attempt,
        holds: Box<Holds>,
    },
    /// A rank that is not plainly `ok` or not plainly waiting.
    Rank(Box<RankRow>),
    Drain(DrainRow),
    /// Lifted, and nobody has to hear of it any more.
    Undrained {
        host: HostName,
    },
    Event {
        job: JobId,
        sequence: u64,
        event: Event,
    },
    Outbox(OutboxEntry),
    OutboxApplied {
        through: u64,
    },
    /// No new starts; `None`: again as usual.
    Quiet(Option<Quiet>),
    /// One entry that a hook has carried out.
    OutboxDone {
        sequence: u64,
    },
    /// Everything of a closed attempt, its outbox too; with the job's last one its event log goes as well.
    Prune {
        job: JobId,
        attempt: Attempt,
        whole_job: bool,
    },
}

/// A node that has been heard of. `boot_number` counts its boots as this controller saw them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeRow {
    pub host: HostName,
    pub machine: MachineId,
    pub boot: BootId,
    pub boot_number: u32,
    pub version: String,
    pub seen_ms: u64,
}

#[derive(Debug, Clone, PartialEq)]
pub struct AttemptRow {
    pub job: JobId,
    pub attempt: Attempt,
    /// The attempt's ranks, and the host of each in rank order.
    pub ranks: IdSet,
    pub hosts: HostList,
    pub userid: Option<u32>,
    pub open: bool,
    pub touched_ms: u64,
    pub terms: Terms,
    /// `job add` made it, and somebody will finish it: it is not closed for being idle.
    pub added: bool,
    /// What the job itself holds still.
    pub hold: Part,
    pub released: Part,
    /// `final` was said: everything is released, for good.
    pub complete: bool,
    pub milestones: Milestones,
    /// Known from what nodes told, to a store that knew nothing of it: it may have more ranks. `job add` says which.
    pub rebuilt: bool,
}

/// A host that the resource manager shall give no work to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DrainRow {
    pub host: HostName,
    pub since_ms: u64,
    pub reason: String,
    /// The user id of who asked for it; `None`: perilog, for what happened there.
    pub by: Option<u32>,
    /// In force: the hook has said so, or there is none.
    pub confirmed: bool,
    /// Lifted, and the hook has not confirmed that yet.
    pub lifted: bool,
    /// A hook has said that it drained the host: one that is configured later is told of those that stand.
    #[serde(default)]
    pub told: bool,
    /// Drained for a script that was stuck in this boot of it (its number), and for nothing else: another boot is rid of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stuck: Option<u32>,
}

/// An action, its ranks by state as idsets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ActionRow {
    pub id: ActionId,
    pub job: JobId,
    pub attempt: Attempt,
    pub name: ActionName,
    pub ranks: IdSet,
    pub userid: Option<u32>,
    pub env: BTreeMap<String, String>,
    pub timeout_ms: Option<u64>,
    pub began_ms: u64,
    /// No Start was committed yet.
    pub waiting: IdSet,
    /// Start committed, not accepted.
    pub sent: IdSet,
    /// Accepted, not ended.
    pub accepted: IdSet,
    pub ok: IdSet,
    /// Ended otherwise: a [`RankRow`] has the rest.
    pub ended: IdSet,
    /// A cancel was asked for and is to be told to whoever has not confirmed.
    pub cancelling: IdSet,
    pub cancel_why: Option<String>,
    /// Ranks by the boot number their Start was issued to.
    pub boots: BTreeMap<u32, IdSet>,
    pub verdict: Option<Verdict>,
    pub ended_ms: Option<u64>,
    /// Rebuilt from what agents told: ranks here have not been heard of yet.
    pub unknown: IdSet,
    /// The job's event log past here has everything of this action.
    pub events_from: u64,
    /// What it holds: all it covers, until it lets go of what it is done with.
    pub held: Part,
    /// It follows the job, which holds ranks still that are to come.
    pub growing: bool,
    /// An operator's word for tasks that may live: it is their outcome once the drain of their node is in force.
    pub resolving: Vec<Resolving>,
    /// A service outside runs it, no agent.
    pub external: Option<Box<External>>,
    /// Scripts that were told of as past their limit, and of which open ranks: the last of each rank.
    pub overdue: BTreeMap<String, IdSet>,
    /// Open ranks whose nodes were drained for what their scripts had left behind.
    pub lingering: IdSet,
}

/// An operator's word that waits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resolving {
    pub ranks: IdSet,
    pub ok: bool,
    pub reason: String,
    pub by: u32,
}

/// Nothing new is begun, until somebody says otherwise.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Quiet {
    pub since_ms: u64,
    pub by: u32,
    /// Perhaps empty.
    pub reason: String,
}

impl ActionRow {
    /// One that begins: every rank waits, and is held.
    pub fn new(id: ActionId, job: JobId, attempt: Attempt, name: ActionName, ranks: IdSet, began_ms: u64) -> Self {
        Self {
            id,
            job,
            attempt,
            name,
            userid: None,
            env: BTreeMap::new(),
            timeout_ms: None,
            began_ms,
            waiting: ranks.clone(),
            sent: IdSet::new(),
            accepted: IdSet::new(),
            ok: IdSet::new(),
            ended: IdSet::new(),
            cancelling: IdSet::new(),
            cancel_why: None,
            boots: BTreeMap::new(),
            verdict: None,
            ended_ms: None,
            unknown: IdSet::new(),
            events_from: 0,
            held: Part::of_ranks(ranks.clone()),
            growing: false,
            resolving: Vec::new(),
            external: None,
            overdue: BTreeMap::new(),
            lingering: IdSet::new(),
            ranks,
        }
    }

    /// Ranks that have not ended.
    pub fn open(&self) -> IdSet {
        let mut open = self.waiting.union(&self.sent);
        open.extend_with(&self.accepted);
        open.extend_with(&self.unknown);
        open
    }
}

/// What an external action has beside its ranks.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct External {
    /// How long its service may be silent.
    pub lease_ms: u64,
    /// When it was last heard of, by the clock on the wall: for people.
    pub heard_ms: u64,
    /// Resources that are no ranks, all that it covers; those that ended are in `ended` too.
    pub resources: BTreeSet<ResourceName>,
    pub ended: BTreeMap<ResourceName, ResourceEnd>,
    /// Its resources shall stop too; ranks are in `cancelling`.
    pub cancelling: bool,
}

/// How a resource ended, as [`RankRow`] for a rank.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResourceEnd {
    pub ended: Ended,
    pub late: Vec<Ended>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct RankRow {
    pub task: TaskId,
    pub ended: Ended,
    /// What came after the outcome was settled (a late result).
    pub late: Vec<Ended>,
    /// It is open, and `ended` is how a boot of its node ends it: a script said that it would boot.
    pub expects: Option<Expects>,
}

/// A boot that ends a task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Expects {
    /// Whose boot it is: another machine that takes this one's place is not it.
    pub machine: MachineId,
    /// What was left of the task's limit when it was told; `None`: it has none.
    pub within_ms: Option<u64>,
}

/// What handling a batch gave: commit `records`, in order and whole, before any of `effects` leaves.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Output {
    pub records: Vec<Record>,
    pub effects: Vec<Effect>,
}

/// All that the store holds, for [`crate::controller::Machine::load`].
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Snapshot {
    pub epoch: Option<Epoch>,
    pub nodes: Vec<NodeRow>,
    pub attempts: Vec<AttemptRow>,
    pub actions: Vec<ActionRow>,
    pub ranks: Vec<RankRow>,
    pub drains: Vec<DrainRow>,
    pub quiet: Option<Quiet>,
    pub outbox: Vec<OutboxEntry>,
    /// The largest sequence ever used in the outbox, and in each job's event log.
    pub outbox_last: u64,
    pub events_last: BTreeMap<JobId, u64>,
}
