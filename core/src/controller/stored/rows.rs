//! Rows of the store: nodes, attempts, actions with their ranks, drains. A `Record` writes a row; a `Snapshot`
//! contains all rows. Times are in milliseconds; moments count from 1970.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

pub use crate::controller::stored::source::Source;
use crate::hostlist::HostList;
use crate::ids::{ActionId, ActionName, Attempt, BootId, HostName, JobId, MachineId, ResourceName, TaskId};
use crate::idset::IdSet;
use crate::job::{Part, Terms};
use crate::milestone::Milestones;
use crate::outcome::Verdict;
use crate::task::Ended;

/// A node with which the controller has had a session. `boot_number` grows with each boot of the node that the
/// controller learns of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeRow {
    pub host: HostName,
    pub machine: MachineId,
    pub boot: BootId,
    pub boot_number: u32,
    pub version: String,
    pub seen_ms: u64,
}

/// An attempt of a job: its ranks, its holds, and its state in a recovery.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AttemptRow {
    pub job: JobId,
    pub attempt: Attempt,
    /// The attempt's ranks.
    pub ranks: IdSet,
    /// The host of each rank, in rank order.
    pub hosts: HostList,
    pub userid: Option<u32>,
    pub open: bool,
    pub touched_ms: u64,
    pub terms: Terms,
    /// `true` if a resource manager will finish the attempt: `job add`, an edge or an operator added it. Retention
    /// keeps such an attempt until it is fully released.
    pub added: bool,
    /// The part that the job itself still holds.
    pub hold: Part,
    pub released: Part,
    /// `true` if all ranks and named resources of the attempt are released.
    pub complete: bool,
    pub milestones: Milestones,
    /// The source whose edge added or listed the attempt; `None`: a hook, a request or an operator added it.
    pub source: Option<Source>,
    /// `true` if a generation abandoned the attempt, and it was not taken up since. The controller begins, sends and
    /// releases nothing of it.
    pub abandoned: bool,
    /// `true` if the list of the attempt's edge lacks it: the resource manager gets no notice, and after-actions begin
    /// only on drained hosts that no other attempt has.
    pub silent: bool,
    /// Whether recovery from an old store touched the attempt: the cases of [`Recovered`].
    pub recovered: Recovered,
}

impl AttemptRow {
    /// Returns `true` if the attempt may be in the store alone: it is fully released, and not abandoned.
    pub const fn is_over(&self) -> bool {
        self.complete && !self.abandoned
    }
}

/// Whether recovery from an old store touched an attempt. Unless `No`, the store may lack tasks that had begun, so a
/// setup action counts as begun on every rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Recovered {
    /// Recovery did not touch the attempt.
    #[default]
    No,
    /// Added in the grace of a generation, while a node held unknown tasks of its job, or from an edge's list.
    Added,
    /// Abandoned, and taken up by a request that begins or goes on with its setup actions.
    TakenUp,
    /// It was abandoned, and taken up when its job had begun or ended: no setup task of the store begins.
    Begun,
}

/// The last generation of a store. The row stays when the grace is over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecoveryRow {
    pub since_ms: u64,
    /// The evidence that the store was behind, as a text for people.
    pub why: String,
    /// Epoch of the controller when the generation began. A commit that this store never made and that bears a lower
    /// epoch is known to be lost: it causes no further generation.
    pub epoch: u64,
    /// Time at which the grace ended; `None`: it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_ms: Option<u64>,
}

/// The drain of a host. The resource manager must give a drained host no new job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DrainRow {
    pub host: HostName,
    pub since_ms: u64,
    pub reason: String,
    /// The user id of the operator who drained the host; `None` for a drain by the controller.
    pub by: Option<u32>,
    /// `true` if the drain hook has confirmed the drain, the resource manager has listed it, or no drain hook is
    /// configured. The drain is then in force, unless it is `lifted`.
    pub confirmed: bool,
    /// `true` if an operator or the controller has lifted the drain, and the drain hook has not confirmed the lift yet.
    pub lifted: bool,
    /// `true` if a drain hook has carried out this drain. A drain hook that the site configures later gets a notice of
    /// each drain for which this is `false`.
    #[serde(default)]
    pub notified: bool,
    /// The boot number of the host when a script was stuck there. A later boot has ended the script. `None`: a reboot
    /// does not lift the drain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stuck: Option<u32>,
    /// The newest reason to drain the host, if it came after the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub again: Option<Again>,
    /// Number of the drain's newest notice to the drain hook. The number grows with each notice, and is at least the
    /// notice's time in milliseconds since 1970. The hook confirms a notice by its number, so the controller recognizes
    /// an answer to an earlier notice.
    #[serde(default)]
    pub notice_id: u64,
    /// Time of the first notice of this drain that the drain hook has not carried out, in milliseconds since 1970.
    #[serde(default)]
    pub asked_ms: u64,
    /// `true` if the drain comes from a restored store, and in this grace the resource manager has not listed it yet.
    /// An operator may have lifted such a drain after the backup.
    #[serde(default, alias = "unvouched", skip_serializing_if = "std::ops::Not::not")]
    pub doubtful: bool,
    /// Recovery's cause for the drain; `None` if recovery did not drain the host, or another reason came later. The
    /// controller lifts the drain when the cause has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub passing: Option<Passing>,
}

/// Cause for which recovery drains a host. The controller lifts the drain when the cause has ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Passing {
    /// An unknown task is on the host. The cause ends when the host has none.
    #[serde(alias = "orphan")]
    Unknown,
    /// The after-actions of this attempt may not have run on the host. The cause ends when the attempt is taken up, or
    /// the node shows that they ran.
    Missing { job: JobId, attempt: Attempt },
    /// After-actions of this unlisted attempt clean up on the host. The cause ends when the rank is released or the
    /// attempt is listed again. If an after-action fails, the drain gets a further reason and stays.
    Cleaning { job: JobId, attempt: Attempt },
}

impl Passing {
    /// Returns the job that the cause names; `None`: it names none.
    pub const fn job(&self) -> Option<&JobId> {
        match self {
            Self::Missing { job, .. } | Self::Cleaning { job, .. } => Some(job),
            Self::Unknown => None,
        }
    }
}

/// A later reason to drain a host that is drained already.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Again {
    pub at_ms: u64,
    pub reason: String,
    /// The user id of the operator who gave the reason; `None`: the controller gave it.
    pub by: Option<u32>,
}

impl DrainRow {
    /// Returns `true` if the drain hook has not carried out the newest notice of this drain or its lift. `false` for a
    /// doubtful drain, which causes no notice.
    pub const fn is_pending(&self) -> bool {
        (self.lifted || !self.confirmed) && !self.doubtful
    }

    /// Creates a drain that begins at `since_ms`; `by`: the operator, or `None` for a drain by the controller.
    pub fn new(host: HostName, reason: String, by: Option<u32>, since_ms: u64) -> Self {
        Self {
            host,
            since_ms,
            reason,
            by,
            confirmed: false,
            lifted: false,
            notified: false,
            stuck: None,
            again: None,
            notice_id: since_ms,
            asked_ms: since_ms,
            doubtful: false,
            passing: None,
        }
    }

    /// Returns the newest reason of the drain, with its time and operator: the later reason if there is one, else the
    /// first. The notice to the drain hook contains this reason.
    #[must_use]
    pub fn newest(&self) -> Again {
        let first = || Again { at_ms: self.since_ms, reason: self.reason.clone(), by: self.by };
        self.again.clone().unwrap_or_else(first)
    }
}

/// An action of an attempt. Each of its ranks is in exactly one of `waiting`, `sent`, `accepted`, `ok` and `not_ok`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActionRow {
    pub id: ActionId,
    pub job: JobId,
    pub attempt: Attempt,
    pub name: ActionName,
    pub ranks: IdSet,
    pub userid: Option<u32>,
    pub env: BTreeMap<String, String>,
    /// The time limit for the action's tasks: the limit that the request named, or the configured default for the
    /// action. `None`: neither exists, and only the nodes' own limits apply.
    pub timeout_ms: Option<u64>,
    pub began_ms: u64,
    /// Ranks that wait for their Start.
    pub waiting: IdSet,
    /// Ranks with a Start that the node has not accepted.
    pub sent: IdSet,
    /// Ranks whose Start the node has accepted, and which have not ended.
    pub accepted: IdSet,
    pub ok: IdSet,
    /// Ranks that ended, but not as `ok`. A [`RankRow`] has the details of each.
    #[serde(rename = "ended")]
    pub not_ok: IdSet,
    /// Open ranks to cancel. The controller repeats the Cancel at each new session of a rank's node, until the rank has
    /// ended.
    pub cancelling: IdSet,
    pub cancel_why: Option<String>,
    /// Key: number of a node's boot. Value: the ranks whose node got the Start, or holds the task, in that boot.
    pub boots: BTreeMap<u32, IdSet>,
    pub verdict: Option<Verdict>,
    pub ended_ms: Option<u64>,
    /// Last sequence number of the job's event log before the action began: all events of the action have higher
    /// numbers.
    pub events_from: u64,
    /// The ranks and resources that the action holds. At the start the action holds all of them; its release policy
    /// decides when it drops the ended ones.
    pub held: Part,
    /// `true` if further ranks will join the action: it is an after-action, and the job still holds ranks that it will
    /// hand over.
    pub growing: bool,
    /// Resolutions that wait: each becomes the outcome of its ranks once the drain of the rank's node is in force.
    pub resolving: Vec<Resolving>,
    /// The lease and the named resources of an external action; `None` for any other action.
    pub external: Option<Box<External>>,
    /// Key: name of a script past its limit. Value: the script's ranks. A rank has only the script that its node
    /// reported last.
    pub overdue: BTreeMap<String, IdSet>,
    /// Ranks whose node the controller has drained because processes live. Either the rank is open and processes
    /// outlived its scripts beyond the limit, or the rank is `lost` and its scripts turned out to live.
    pub lingering: IdSet,
    /// Key: a time limit (ms) that nodes reported and that differs from `timeout_ms`. Value: the ranks of these nodes.
    pub limits: BTreeMap<u64, IdSet>,
    /// Key: a remark, which says that no script ran or that the runner skipped a file. Value: the `ok` ranks with the
    /// remark.
    pub remarks: BTreeMap<String, IdSet>,
}

/// A resolution that waits for a drain. Made by an operator for a task, or by the controller for a script past its
/// limit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resolving {
    pub ranks: IdSet,
    pub ok: bool,
    pub reason: String,
    pub by: u32,
    /// `true`: the controller gave the ranks up, because a script is past its limit and the job goes on without them.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub overdue: bool,
}

impl Resolving {
    /// Creates a resolution that waits for a drain. `ok`: the ranks are to count as a success; `by`: the operator's
    /// user id.
    pub fn new(ranks: IdSet, ok: bool, reason: &str, by: u32) -> Self {
        Self { ranks, ok, reason: reason.to_owned(), by, overdue: false }
    }
}

/// The quiesced state: the controller begins nothing new until an operator resumes it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Quiet {
    pub since_ms: u64,
    pub by: u32,
    /// Reason that the operator gave for quiescing the controller; may be empty.
    pub reason: String,
}

impl ActionRow {
    /// Creates the row of an action that begins now: every rank waits, and the action holds every rank.
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
            not_ok: IdSet::new(),
            cancelling: IdSet::new(),
            cancel_why: None,
            boots: BTreeMap::new(),
            verdict: None,
            ended_ms: None,
            events_from: 0,
            held: Part::of_ranks(ranks.clone()),
            growing: false,
            resolving: Vec::new(),
            external: None,
            overdue: BTreeMap::new(),
            lingering: IdSet::new(),
            limits: BTreeMap::new(),
            remarks: BTreeMap::new(),
            ranks,
        }
    }

    /// Returns the ranks that have not ended.
    pub fn open_ranks(&self) -> IdSet {
        let mut open = self.waiting.union(&self.sent);
        open.extend_with(&self.accepted);
        open
    }
}

/// The state that only an external action has: its lease and its named resources.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct External {
    /// Lease: the longest time that the service may stay silent.
    pub lease_ms: u64,
    /// Time of the last report from the service, for people; up to half a lease too old.
    #[serde(alias = "heard_ms")]
    pub last_report_ms: u64,
    /// All named resources that the action covers.
    pub resources: BTreeSet<ResourceName>,
    pub ended: BTreeMap<ResourceName, ResourceEnd>,
    /// `true` if the service should stop work on the resources that have not ended. For ranks, see
    /// [`ActionRow::cancelling`].
    pub cancelling: bool,
}

/// How an external action ended on a named resource: its end (`ended`), and the reports that came later (`late`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResourceEnd {
    pub ended: Ended,
    pub late: Vec<Ended>,
}

/// The details of a rank: either how the rank ended, or how it will end after an announced reboot.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RankRow {
    pub task: TaskId,
    pub ended: Ended,
    /// Results that the node or the service reported after the rank had ended.
    pub late: Vec<Ended>,
    /// `Some`: a script announced a reboot of the node. The rank is open, and `ended` becomes its outcome when the node
    /// has rebooted.
    pub expects: Option<Expects>,
}

/// A reboot that a script has announced, and that will end the script's task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Expects {
    /// The machine that is to reboot. The boot of a replacement machine does not count.
    pub machine: MachineId,
    /// The rest of the task's time limit when the script announced the reboot; `None`: no limit.
    pub within_ms: Option<u64>,
}

impl AttemptRow {
    /// Returns `true` if the attempt has pending work of its own.
    pub const fn is_live(&self) -> bool {
        !self.complete || self.abandoned
    }
}

impl ActionRow {
    /// Returns `true` if the action has work left: it has no verdict, or one of its ranks or resources has not ended,
    /// or a resolution waits. Ranks that wait for an announced reboot are open.
    pub fn is_live(&self) -> bool {
        let is_open = !(self.waiting.is_empty() && self.sent.is_empty() && self.accepted.is_empty());
        let external = self.external.as_ref().is_some_and(|external| external.is_open());
        self.verdict.is_none() || is_open || external || !self.resolving.is_empty()
    }
}
