//! Inputs and outputs of the controller's machine.
//!
//! One writer handles inputs in batches. The writer commits the [`Record`]s of a batch in one transaction, and only
//! then lets the [`Effect`]s leave. A failed commit discards the machine; the writer rebuilds the machine from the
//! store.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

pub use crate::controller::request::{
    ActionStart, AskWhich, Assert, Asserted, AttemptsOf, Confirm, Hooked, JobAdd, Listed, ListedDrain,
    Phase as JobPhase, Recover, Refusal, Reply, Report, Request, RunRequest, Said, Which,
};
pub use crate::controller::stored::rows::{
    ActionRow, Again, AttemptRow, DrainRow, Expects, External, NodeRow, Passing, Quiet, RankRow, RecoveryRow,
    Resolving, ResourceEnd, Source,
};

use crate::controller::action::stands::{Holds, Stands};
use crate::controller::stored::body::Body;
use crate::eventlog::Event;
use crate::ids::{ActionId, ActionName, Attempt, BootId, ClusterId, Epoch, HostName, JobId, Rank, ResourceName};
use crate::idset::IdSet;
use crate::job::Part;
use crate::mark::{Commit, History};
use crate::message::{FromAgent, ToAgent};
use crate::task::Start;

/// The clocks at an input. `mono_ms` decides; `wall_ms` (since 1970) is for people and event logs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Now {
    pub mono_ms: u64,
    pub wall_ms: u64,
}

/// The part of the controller's configuration that the machine needs. All times are in milliseconds.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    pub cluster: ClusterId,
    /// Time within which a node must accept a Start; after that the task is `lost (offline)`.
    pub start_grace_ms: u64,
    /// Added to a task's limit before an absent node makes it `lost (unreachable)`.
    pub unreachable_grace_ms: u64,
    /// Start-grace: time that a task may wait on its node. No runner may claim the task later.
    pub not_after_ms: u64,
    /// Time that an older session of a host has to answer a liveness probe.
    pub probe_ms: u64,
    /// Number of agents that may redial in a second. The redial window is the number of agents divided by this rate,
    /// and at least a second.
    pub redial_per_second: u64,
    /// Default limits by action, for requests without one.
    pub timeouts: BTreeMap<ActionName, u64>,
    /// Age at which a finished attempt is closed and pruned. More than `keep_attempts` attempts are pruned earlier.
    pub retention_ms: u64,
    pub keep_attempts: usize,
    /// After-actions of a job in order, for example epilog and housekeeping. Each rank of a hand-over gets all of them.
    pub after: Vec<ActionName>,
    /// Action whose success makes a job with `keep` release its surplus ranks.
    pub keep_after: ActionName,
    /// Time at which each action drops its hold on ended ranks. An action without an entry follows the default policy.
    pub release: BTreeMap<ActionName, ReleasePolicy>,
    /// Counts `lost` ranks as failures that a job's tolerance forgives, like `tolerable` ranks.
    pub tolerate_lost: bool,
    /// Counts ranks with a script past its limit as failures that a job's tolerance forgives. A job that may go on
    /// without such a rank does not wait for the script's end.
    pub tolerate_timeout: bool,
    /// A drain hook is configured: a drain is in force once the hook has confirmed it.
    pub drain_hook: bool,
    /// Lifts the drain for a stuck script when the node reboots; no operator has to undrain the node.
    pub reboot_cleans: bool,
    /// A release hook is configured: the hook gets every release.
    pub release_hook: bool,
}

/// Policy that decides when an action drops its hold on ended ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ReleasePolicy {
    /// All ranks at once, when all ranks handed over so far have ended.
    #[default]
    Together,
    /// Each rank as soon as it has ended.
    Each,
    /// The ranks that ended within `first_ms` after the first rank; then further batches. Each batch waits twice as
    /// long as the batch before, at most `ceiling_ms`.
    Batches { first_ms: u64, ceiling_ms: u64 },
}

/// A session with an agent. The listener numbers sessions and never uses a number twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(pub u64);

/// A request on the local API. The edge numbers requests; each gets exactly one answer.
pub type Client = u64;

#[derive(Debug, Clone, PartialEq)]
pub enum Input {
    /// A frame from a session whose certificate may speak for `names` (`None`: TLS is switched off). The first frame is
    /// a Hello.
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
    /// Clients that have disconnected and no longer wait for an answer.
    HungUp {
        clients: Vec<Client>,
    },
    Tick,
    Settings(Settings),
    /// `true`: the store's disk is full, and the controller refuses new prologs.
    StoreFull(bool),
}

/// Receiver of outbox entries. Each receiver has its own entries, in its own order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Edge {
    /// A program on the local API, which reports the sequence number up to which it has applied entries.
    Manager,
    /// The release hook (`[release]`): the hook gets one entry at a time.
    ReleaseHook,
}

/// Notice for the resource manager: delivered at least once, in order per job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OutboxEntry {
    /// Number that grows over all jobs. An edge remembers the last number that it has applied.
    pub sequence: u64,
    pub epoch: u64,
    /// Receiver of the notice.
    pub edge: Edge,
    pub job: JobId,
    pub attempt: Attempt,
    /// Content, for example `{"event":"verdict","action":"prolog","verdict":"ok","status":0}`.
    pub body: Body,
}

impl OutboxEntry {
    /// Returns `true` if this entry announces released ranks.
    pub(crate) fn is_release(&self) -> bool {
        self.released().is_some()
    }

    /// Returns what a release gives back; `None` for any other entry.
    pub(crate) fn released(&self) -> Option<Part> {
        #[derive(Deserialize)]
        struct Told<'a> {
            event: &'a str,
            #[serde(default)]
            ranks: IdSet,
            #[serde(default)]
            resources: BTreeSet<ResourceName>,
        }
        let told = self.body.read::<Told>().filter(|told| told.event == "release")?;
        Some(Part { ranks: told.ranks, resources: told.resources })
    }
}

#[derive(Debug, Clone, PartialEq)]
pub enum Effect {
    Send {
        session: SessionId,
        message: ToAgent,
    },
    /// One Start for many ranks: the edge encodes `start` once and fills in the rank and boot of each receiver.
    Fan {
        start: Box<Start>,
        to: Vec<(SessionId, Rank, BootId)>,
    },
    /// Ends a session, with the reason.
    Close {
        session: SessionId,
        why: String,
    },
    Reply {
        client: Client,
        reply: Result<Reply, Refusal>,
    },
    /// Sends the event to followers of the job's event log.
    Publish {
        job: JobId,
        sequence: u64,
        event: Event,
    },
    /// Part of a node's answer to a question. `last` marks the end of a host's answer; `lost`: the node left before the
    /// end.
    Answer {
        question: u64,
        host: HostName,
        text: String,
        last: bool,
        lost: bool,
    },
    /// New notices exist for the resource manager, in the outbox or about drains.
    OutboxGrew,
    WakeAt {
        mono_ms: u64,
    },
    Note {
        level: crate::agent::io::Level,
        job: Option<JobId>,
        host: Option<HostName>,
        text: String,
        /// `host` can cause this line any number of times: the edge bounds the lines of each host.
        by_node: bool,
    },
}

/// A change of the durable state. The store does nothing but apply the records of each batch, in order and in one
/// transaction.
#[derive(Debug, Clone, PartialEq)]
pub enum Record {
    /// The number of this batch's commit; the first record of every batch.
    Commit(u64),
    /// A life of the controller that begins with this commit.
    Epoch(Epoch),
    /// The state of the recovery, begun or over. This record also clears a backup's stamp.
    Recovery(RecoveryRow),
    Node(NodeRow),
    /// An operator had the controller forget this node.
    NodeForgotten {
        host: HostName,
    },
    Attempt(AttemptRow),
    Action(Box<ActionRow>),
    /// Delta of an existing action: the new states of some ranks; every other field stays.
    Moved {
        action: ActionId,
        stands: Box<Stands>,
    },
    /// Delta of an existing attempt: the new holds of some ranks; every other field stays.
    Given {
        job: JobId,
        attempt: Attempt,
        holds: Box<Holds>,
    },
    /// A rank with details beyond a plain `ok` or a plain wait.
    Rank(Box<RankRow>),
    Drain(DrainRow),
    /// A drain that is lifted; no notice about it is outstanding.
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
    /// The quiesced state; `None`: the controller begins new work again.
    Quiet(Option<Quiet>),
    /// An outbox entry that a hook has carried out.
    OutboxDone {
        sequence: u64,
    },
    /// Removes a closed attempt with its outbox entries; the job's last attempt takes the event log along.
    Prune {
        job: JobId,
        attempt: Attempt,
        whole_job: bool,
    },
}

/// Output of a batch: commit `records`, in order and whole, before any of `effects` leaves.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Output {
    pub records: Vec<Record>,
    pub effects: Vec<Effect>,
}

/// Content of the store, for [`crate::controller::Machine::load`].
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Snapshot {
    /// The controller's lives, and the number of the last commit.
    pub history: History,
    /// Time at which `controller backup` made this copy, in milliseconds since 1970.
    pub stamp: Option<u64>,
    /// Newest commit in the anchor file beside the store.
    pub anchor: Option<Commit>,
    /// The last recovery, even if it is over.
    pub recovery: Option<RecoveryRow>,
    pub nodes: Vec<NodeRow>,
    pub attempts: Vec<AttemptRow>,
    pub actions: Vec<ActionRow>,
    pub ranks: Vec<RankRow>,
    pub drains: Vec<DrainRow>,
    pub quiet: Option<Quiet>,
    pub outbox: Vec<OutboxEntry>,
    /// The largest sequence number ever used: in the outbox, and in each job's event log.
    pub outbox_last: u64,
    pub events_last: BTreeMap<JobId, u64>,
}
