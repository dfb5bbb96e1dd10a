//! Inputs and outputs of the controller's machine.
//!
//! One writer handles inputs in batches: it commits the batch's [`Record`]s in one transaction, and only then releases
//! its [`Effect`]s. A failed commit discards the machine, which is rebuilt from the store.

use std::collections::BTreeMap;

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
use crate::ids::{ActionId, ActionName, Attempt, BootId, ClusterId, Epoch, HostName, JobId, Rank};
use crate::idset::IdSet;
use crate::mark::{Commit, History};
use crate::message::{FromAgent, ToAgent};
use crate::task::Start;

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
    /// The time in which a node accepts a Start; then the task is `lost (offline)`.
    pub start_grace_ms: u64,
    /// Added to a task's limit before an absent node makes it `lost (unreachable)`.
    pub unreachable_grace_ms: u64,
    /// How long a Start may wait on its node; later no runner may claim it.
    pub not_after_ms: u64,
    /// How long an older session of a host has to answer a probe.
    pub probe_ms: u64,
    /// Agents per second that may redial; the window is their number divided by this, at least a second.
    pub redial_per_second: u64,
    /// Default limits by action, for requests without one.
    pub timeouts: BTreeMap<ActionName, u64>,
    /// A finished attempt is closed and pruned after this time, or when there are more than `keep_attempts`.
    pub retention_ms: u64,
    pub keep_attempts: usize,
    /// After-actions of a job on each rank of a hand-over, in order: its epilog, its housekeeping.
    pub after: Vec<ActionName>,
    /// Action after whose success a job with `keep` releases its surplus ranks.
    pub keep_after: ActionName,
    /// When an action drops its hold on finished ranks; together if absent.
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

/// When an action drops its hold on finished ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ReleasePolicy {
    /// When all ranks handed over so far have ended.
    #[default]
    Together,
    /// Each rank as it comes.
    Each,
    /// Ranks that ended within `first_ms` after the first; then in batches, each waiting twice as long as the one
    /// before, at most `ceiling_ms`.
    Batches { first_ms: u64, ceiling_ms: u64 },
}

/// A session with an agent, numbered by the listener; never used twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(pub u64);

/// A request on the local API, numbered by the edge; answered once.
pub type Client = u64;

#[derive(Debug, Clone, PartialEq)]
pub enum Input {
    /// A frame from a session whose certificate may speak for `names` (`None`: TLS is switched off). The first is a
    /// Hello.
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
    /// Clients that have disconnected, and wait for no answer.
    HungUp {
        clients: Vec<Client>,
    },
    Tick,
    Settings(Settings),
    /// The store's disk is full, or no longer: new prologs are refused meanwhile.
    StoreFull(bool),
}

/// Receiver of outbox entries: each has its own entries, in its own order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Edge {
    /// A program on the local API, which says how far it has come.
    Manager,
    /// The command of `[release]`, entry by entry.
    ReleaseHook,
}

/// Notice for the resource manager, told at least once, in order per job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OutboxEntry {
    /// Grows over all jobs; what an edge remembers.
    pub sequence: u64,
    pub epoch: u64,
    /// Receiver of the notice.
    pub edge: Edge,
    pub job: JobId,
    pub attempt: Attempt,
    /// For example `{"event":"verdict","action":"prolog","verdict":"ok","status":0}`.
    pub body: Body,
}

impl OutboxEntry {
    /// Returns `true` if this entry tells of released ranks.
    pub(in crate::controller) fn is_release(&self) -> bool {
        self.released().is_some()
    }

    /// Returns the ranks of a release.
    pub(in crate::controller) fn released(&self) -> Option<IdSet> {
        #[derive(Deserialize)]
        struct Told<'a> {
            event: &'a str,
            #[serde(default)]
            ranks: IdSet,
        }
        self.body.read::<Told>().filter(|told| told.event == "release").map(|told| told.ranks)
    }
}

#[derive(Debug, Clone, PartialEq)]
pub enum Effect {
    Send {
        session: SessionId,
        message: ToAgent,
    },
    /// Start for many ranks: `start` with the rank and boot of each. Encoded once.
    Fan {
        start: Box<Start>,
        to: Vec<(SessionId, Rank, BootId)>,
    },
    /// Ends a session, for this reason.
    Close {
        session: SessionId,
        why: String,
    },
    Reply {
        client: Client,
        reply: Result<Reply, Refusal>,
    },
    /// Publish to followers of the job's event log.
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
    /// There are new notices for the resource manager: in the outbox, or of drains.
    OutboxGrew,
    WakeAt {
        mono_ms: u64,
    },
    Note {
        level: crate::agent::io::Level,
        job: Option<JobId>,
        host: Option<HostName>,
        text: String,
        /// Did `host` cause it, as often as it likes? Such lines are bounded by host.
        by_node: bool,
    },
}

/// A change of what is durable. Applying the records of a batch in order, in one transaction, is the whole of the
/// store's writing.
#[derive(Debug, Clone, PartialEq)]
pub enum Record {
    /// The number of this batch's commit: the first record of each.
    Commit(u64),
    /// A life of the controller begins with this commit.
    Epoch(Epoch),
    /// The store is in recovery, or no longer. It also clears a backup's stamp.
    Recovery(RecoveryRow),
    Node(NodeRow),
    Attempt(AttemptRow),
    Action(Box<ActionRow>),
    /// Delta of an existing action: the new states of these ranks; everything else is unchanged.
    Moved {
        action: ActionId,
        stands: Box<Stands>,
    },
    /// Delta of an existing attempt: the new holds of these ranks; everything else is unchanged.
    Given {
        job: JobId,
        attempt: Attempt,
        holds: Box<Holds>,
    },
    /// A rank that is not plainly `ok` or not plainly waiting.
    Rank(Box<RankRow>),
    Drain(DrainRow),
    /// The drain is lifted, and no notice is outstanding.
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
    /// A hook has carried out one entry.
    OutboxDone {
        sequence: u64,
    },
    /// Removes a closed attempt, with its outbox; with the job's last attempt also its event log.
    Prune {
        job: JobId,
        attempt: Attempt,
        whole_job: bool,
    },
}

/// Output of a batch: commit `records`, in order and whole, before releasing any of `effects`.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Output {
    pub records: Vec<Record>,
    pub effects: Vec<Effect>,
}

/// All that the store holds, for [`crate::controller::Machine::load`].
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Snapshot {
    /// The controller's lives, and the number of the last commit.
    pub history: History,
    /// Time at which `controller backup` made this copy, in milliseconds since 1970.
    pub stamp: Option<u64>,
    /// Newest commit in the anchor file beside the store: the newest that this directory has seen.
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
    /// The largest sequence ever used in the outbox, and in each job's event log.
    pub outbox_last: u64,
    pub events_last: BTreeMap<JobId, u64>,
}
