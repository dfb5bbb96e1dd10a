//! Inputs and outputs of the controller's machine, as values; the daemon and the simulator carry them in and out.
//!
//! The writer hands inputs to the machine in batches. The writer commits the [`Record`]s of a batch in one transaction,
//! and only then lets the [`Effect`]s leave. A failed commit discards the machine; the writer rebuilds the machine from
//! the store.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

pub use crate::controller::interface::request::{
    ActionStart, AskWhich, AttemptsOf, FailedNotice, JobAdd, Listed, ListedDrain, Phase as JobPhase, Refusal, Reply,
    Report, ReportKind, Request, RunRequest, SyncPage, Synced, Unfit, Which,
};
pub use crate::controller::stored::rows::{
    ActionRow, Again, AttemptRow, DrainRow, Expects, External, NodeRow, Passing, Quiet, RankRow, Recovered,
    RecoveryRow, Resolving, ResourceEnd, Source,
};

use crate::controller::stored::body::Body;
use crate::controller::stored::delta::{ActionDelta, AttemptDelta};
use crate::eventlog::Event;
use crate::ids::{ActionId, ActionName, Attempt, BootId, ClusterId, Epoch, HostName, JobId, Rank, ResourceName};
use crate::idset::IdSet;
use crate::job::Part;
use crate::mark::{Commit, History};
use crate::message::{FromAgent, ToAgent};
use crate::task::Start;

/// The clocks at a batch, in milliseconds. `mono_ms` (CLOCK_MONOTONIC) decides limits and waits. `wall_ms` (since 1970)
/// dates events, and decides retention.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Now {
    pub mono_ms: u64,
    pub wall_ms: u64,
}

/// The part of the controller's configuration that the machine needs. All times are in milliseconds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    pub cluster: ClusterId,
    /// Start-grace: time within which a node must accept a Start. After that the task is `lost (offline)`.
    pub start_grace_ms: u64,
    /// Unreachable-grace: an accepted task is `lost (unreachable)` once its time limit and then this grace have passed,
    /// and its node has been away for this grace.
    pub unreachable_grace_ms: u64,
    /// Not-after: time after a Start within which scripts may begin on the node. No process may claim the task later.
    pub not_after_ms: u64,
    /// Time within which the older session of a host must answer a liveness probe.
    pub probe_ms: u64,
    /// Number of agents that may redial in a second, until the daemon has measured more ([`Input::Redials`]). Example:
    /// with 100, the redials of 1,000 agents are spread over 10 seconds; the window is never shorter than a second.
    pub redial_per_second: u64,
    /// Default time limits (ms) by action, for requests without a limit.
    pub timeouts: BTreeMap<ActionName, u64>,
    /// Age at which the controller forgets a finished attempt.
    pub retention_ms: u64,
    /// Maximum number of attempts in the store. Above it, the controller forgets the oldest finished attempts even if
    /// they are younger than `retention_ms`.
    pub keep_attempts: usize,
    /// Names of the after-actions in order, for example epilog and housekeeping. Each rank of a hand-over gets all of
    /// them.
    pub after: Vec<ActionName>,
    /// Name of an action, for example `prolog`. Once the action has succeeded, a job with the term `keep` hands over
    /// the ranks that it does not need.
    pub keep_after: ActionName,
    /// Release policy by action. An action without an entry has the default policy.
    pub release: BTreeMap<ActionName, ReleasePolicy>,
    /// Lets a job's tolerance forgive `lost` ranks, like `tolerable` ranks.
    pub tolerate_lost: bool,
    /// Lets a job's tolerance forgive ranks with a script past its limit. A job that may go on without such a rank does
    /// not wait for the script's end.
    pub tolerate_timeout: bool,
    /// `true` if a drain hook is configured: a drain is in force only once the hook has confirmed it.
    pub drain_hook: bool,
    /// Lets a reboot of the node lift the drain for a stuck script. Without it, an operator must undrain the node.
    pub reboot_cleans: bool,
    /// `true` if a release hook is configured: the hook gets a notice of every release.
    pub release_hook: bool,
}

/// Release policy: decides when an action drops its hold on ended ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum ReleasePolicy {
    /// Drops the hold on all ended ranks at once, when no rank of the action is open. Ranks that join the action later
    /// form a further batch.
    #[default]
    Together,
    /// Drops the hold on each rank as soon as the rank has ended.
    Each,
    /// Drops the hold on ended ranks in batches. The first batch comes `first_ms` after the first rank has ended. Each
    /// further batch waits twice as long as the batch before, at most `ceiling_ms`.
    Batches { first_ms: u64, ceiling_ms: u64 },
}

/// Number of a connection to the agents' listener, also before its Hello. The listener counts from 1 after each start
/// of the controller, and uses no number twice until the next start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SessionId(pub u64);

/// Number of a request on the local API. The API numbers the requests; each gets exactly one reply.
pub type Client = u64;

/// An input of the machine: a message, a request, a change of the settings or the disk, or the passing of time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Input {
    /// A frame of a session. The peer's certificate may speak for `names`; `None`: TLS is off. The first frame must be
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
    /// These clients have disconnected, so they get no reply.
    HungUp {
        clients: Vec<Client>,
    },
    /// Time has passed: the machine acts on limits, leases and waits that are over.
    Tick,
    Settings(Settings),
    /// Number of agents that this controller can welcome in a second, as the daemon has measured it.
    Redials {
        per_second: u64,
    },
    /// `true`: the store's disk is full, so the controller refuses new prologs. `false`: the disk has room again.
    StoreFull(bool),
}

/// Receiver of notices in the outbox. Each notice is for one receiver, and each receiver gets the notices of a job in
/// order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reader {
    /// The resource manager: a program on the local API reads the entries. The program confirms a sequence number, and
    /// so all entries up to that number.
    Manager,
    /// The release hook (`[release]` in controller.toml), which gets the entries of a job one at a time.
    ReleaseHook,
}

/// A notice to one reader, delivered at least once and in order per job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OutboxEntry {
    /// Sequence number, which grows with each entry over all jobs. A reader remembers the number of the last applied
    /// entry.
    pub sequence: u64,
    pub epoch: u64,
    pub reader: Reader,
    pub job: JobId,
    pub attempt: Attempt,
    /// Content of the notice as JSON, for example `{"event":"verdict","action":"prolog","verdict":"ok","status":0}`.
    pub body: Body,
}

impl OutboxEntry {
    /// Returns the ranks and resources of a release; `None` if the entry is not a release, or its body has another
    /// form.
    pub(crate) fn released(&self) -> Option<Part> {
        #[derive(Deserialize)]
        struct NoticeBody<'a> {
            event: &'a str,
            #[serde(default)]
            ranks: IdSet,
            #[serde(default)]
            resources: BTreeSet<ResourceName>,
        }
        let reported = self.body.read::<NoticeBody>().filter(|reported| reported.event == "release")?;
        Some(Part { ranks: reported.ranks, resources: reported.resources })
    }
}

/// An act that the daemon carries out for the machine, after the commit of the batch that caused the act.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub enum Effect {
    Send {
        session: SessionId,
        message: ToAgent,
    },
    /// Sends one Start to many nodes. The daemon encodes `start` once, and fills in the rank and boot of each receiver.
    Fan {
        start: Box<Start>,
        to: Vec<(SessionId, Rank, BootId)>,
    },
    /// Closes a session; `why`: the reason, for people.
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
    /// Passes a part of a host's answer to the client that asked the question. `last`: no further part comes. `lost`:
    /// the node went away before the end of its answer.
    Answer {
        question: u64,
        host: HostName,
        text: String,
        last: bool,
        lost: bool,
    },
    /// Wakes the hooks and the readers of the outbox, because a notice may have come.
    OutboxGrew,
    /// Asks for a `Tick` at this time (CLOCK_MONOTONIC, ms), in place of any earlier `WakeAt`.
    WakeAt {
        mono_ms: u64,
    },
    /// Writes a line to the journal; `job` and `host` say what the line is about.
    Note {
        level: crate::agent::io::Level,
        job: Option<JobId>,
        host: Option<HostName>,
        text: String,
        /// `true` if `host` can cause this line any number of times: the daemon bounds the lines of each host.
        by_node: bool,
    },
}

/// A change of the store. The store applies the records of each batch in order, in one transaction, and decides
/// nothing.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub enum Record {
    /// The number of the batch's commit. It is the first record of every batch that has records.
    Commit(u64),
    /// A new epoch of the controller, which begins with this commit.
    Epoch(Epoch),
    /// The row of a recovery that begins or is over. The record also clears the stamp of a copied store.
    Recovery(RecoveryRow),
    Node(NodeRow),
    /// Removes the row of a node, because an operator ordered the controller to forget the node.
    NodeForgotten {
        host: HostName,
    },
    Attempt(AttemptRow),
    Action(Box<ActionRow>),
    /// Changes some ranks of a stored action: `delta` has the new rank states and details of these ranks. All other
    /// ranks and fields of the row stay.
    ActionDelta {
        action: ActionId,
        delta: Box<ActionDelta>,
    },
    /// Delta of a stored attempt: replaces the fields in `holds` for some ranks. Every other rank and field stays.
    AttemptDelta {
        job: JobId,
        attempt: Attempt,
        holds: Box<AttemptDelta>,
    },
    /// Details of a rank: it ended other than `ok`, or as `ok` with a note, a user message or a lingering process; it
    /// has a late result; or its script announced a reboot.
    Rank(Box<RankRow>),
    Drain(DrainRow),
    /// Removes the drain of a host from the store.
    Undrained {
        host: HostName,
    },
    Event {
        job: JobId,
        sequence: u64,
        event: Event,
    },
    Outbox(OutboxEntry),
    /// Removes the resource manager's outbox entries up to and including `through`.
    OutboxApplied {
        through: u64,
    },
    /// The quiesced state; `None`: an operator has resumed the controller.
    Quiet(Option<Quiet>),
    /// Removes an outbox entry that the receiver has carried out, or must not get.
    OutboxDone {
        sequence: u64,
    },
    /// Removes an attempt with its actions and outbox entries; with `whole_job`, also the job's event log.
    Prune {
        job: JobId,
        attempt: Attempt,
        whole_job: bool,
    },
}

/// Output of a batch. The writer commits all `records` in order, before any of `effects` leaves.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Output {
    pub records: Vec<Record>,
    pub effects: Vec<Effect>,
}

/// Content of a store, from which [`crate::controller::Machine::load`] rebuilds the machine.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Snapshot {
    /// The controller's epochs, and the number of the last commit.
    pub history: History,
    /// Time at which `perilog controller backup` or `restore` made this copy, in milliseconds since 1970; `None`: the
    /// store is no copy, or its recovery has begun.
    pub stamp: Option<u64>,
    /// The commit in the anchor file beside the store; `None`: the file is new or unreadable.
    pub anchor: Option<Commit>,
    /// Whether a controller on another host used this store last.
    pub moved: bool,
    /// The last recovery, even if it is over.
    pub recovery: Option<RecoveryRow>,
    pub nodes: Vec<NodeRow>,
    pub attempts: Vec<AttemptRow>,
    pub actions: Vec<ActionRow>,
    pub ranks: Vec<RankRow>,
    pub drains: Vec<DrainRow>,
    pub quiet: Option<Quiet>,
    pub outbox: Vec<OutboxEntry>,
    /// Largest sequence number that the outbox has ever used.
    pub outbox_last: u64,
    /// Largest sequence number that each job's event log has ever used.
    pub events_last: BTreeMap<JobId, u64>,
    /// Counts of the jobs that have ended, which the store has and the snapshot does not.
    pub elsewhere: Elsewhere,
}

/// The rows of the jobs that a batch needs.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Fetched {
    pub attempts: Vec<AttemptRow>,
    /// In the order in which the actions began.
    pub actions: Vec<ActionRow>,
    pub ranks: Vec<RankRow>,
    /// Largest sequence number that each of these jobs' event logs has ever used.
    pub events_last: BTreeMap<JobId, u64>,
    /// Notices to the resource manager: those about these jobs, and the page that the batch needs. In order, each once.
    pub outbox: Vec<OutboxEntry>,
}

/// Number of jobs, attempts and actions that the store has and the machine does not hold.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Elsewhere {
    pub jobs: usize,
    pub attempts: usize,
    pub actions: usize,
    /// The lowest and the highest sequence number of the notices to the resource manager about these jobs; `None`:
    /// there are none.
    pub notices: Option<(u64, u64)>,
}
