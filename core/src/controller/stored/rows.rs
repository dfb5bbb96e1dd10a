//! The rows of the store: nodes, attempts, actions with their ranks, drains. A
//! [`Record`](crate::controller::io::Record) writes rows, a [`Snapshot`](crate::controller::io::Snapshot) returns all
//! of them.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::hostlist::HostList;
use crate::ids::{ActionId, ActionName, Attempt, BootId, HostName, JobId, MachineId, ResourceName, TaskId};
use crate::idset::IdSet;
use crate::job::{Part, Terms};
use crate::milestone::Milestones;
use crate::outcome::Verdict;
use crate::task::Ended;

/// A node that the controller has heard of. `boot_number` counts the boots that this controller saw.
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
    /// `job add` created the attempt, and somebody will finish it: perilog does not close the attempt for being idle.
    pub added: bool,
    /// The part that the job itself still holds.
    pub hold: Part,
    pub released: Part,
    /// `final` was said: everything is released, for good.
    pub complete: bool,
    pub milestones: Milestones,
    /// The source whose edge added the attempt; `None`: a hook or a person added it.
    pub source: Option<Source>,
    /// No source and no operator has vouched for the attempt in this recovery: perilog begins, tells and releases
    /// nothing of it.
    pub unvouched: bool,
    /// The attempt was added or vouched for in recovery. The store does not know what had begun, so each rank that the
    /// attempt held counts as begun.
    pub recovered: bool,
    /// Ranks that the resource manager no longer holds for the attempt, as its edge said. An after-action begins on
    /// such a rank only if the host is drained and no other attempt holds the host. perilog releases such ranks without
    /// telling the resource manager.
    pub disowned: IdSet,
    /// A person has vouched for the hosts of the disowned ranks: the after-actions clean up there.
    pub by_hand: bool,
}

/// The source of attempts: an edge to a resource manager adds attempts and says which exist. One source is one instance
/// of that resource manager.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Source {
    /// Such as `flux`.
    pub name: String,
    /// Distinguishes instances of one resource manager: a test instance says nothing about the jobs of another
    /// instance.
    pub instance: String,
}

/// The last recovery of a store: why, and since when. The row stays when the recovery is over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecoveryRow {
    pub since_ms: u64,
    /// Evidence, for people.
    pub why: String,
    /// The epoch that entered recovery. Foreign commits of earlier epochs are known to be lost.
    pub epoch: u64,
    /// When everything had been vouched for; `None`: the store is in recovery.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_ms: Option<u64>,
}

/// A host that the resource manager shall give no work to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DrainRow {
    pub host: HostName,
    pub since_ms: u64,
    pub reason: String,
    /// The user id of the person who asked for the drain; `None`: perilog drained the host for something that happened
    /// there.
    pub by: Option<u32>,
    /// The drain is in force: the hook has said so, or no hook is configured.
    pub confirmed: bool,
    /// Lifted, and the hook has not confirmed that yet.
    pub lifted: bool,
    /// A hook has confirmed the drain. A hook that the site configures later is told of the drains that stand.
    #[serde(default)]
    pub told: bool,
    /// The drain has one reason: a script was stuck in this boot of the host (the boot's number). A later boot is free
    /// of the script.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stuck: Option<u32>,
    /// The newest problem found on the host since the drain began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub again: Option<Again>,
    /// Identifies the current telling to the hook: milliseconds since 1970, larger with each telling. The hook returns
    /// the telling that it has carried out.
    #[serde(default)]
    pub telling: u64,
    /// When the hook was first asked for what it has not carried out: milliseconds since 1970.
    #[serde(default)]
    pub asked_ms: u64,
    /// The drain comes from a restored store, and the resource manager has not listed it again: it may have been lifted
    /// since.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unvouched: bool,
    /// The drain was made by recovery for this cause only, and ends with the cause.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub passing: Option<Passing>,
}

/// Why recovery drained a host. The drain is lifted when that has passed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Passing {
    /// An orphan is on the host. The cause ends when somebody adopts or confirms the orphan.
    Orphan,
    /// After-actions of this attempt clean up on the host. The cause ends when they have ended well.
    Cleaning { job: JobId, attempt: Attempt },
}

/// Another reason to drain a host that is already drained.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Again {
    pub at_ms: u64,
    pub reason: String,
    /// The person who asked, as in [`DrainRow::by`].
    pub by: Option<u32>,
}

impl DrainRow {
    /// Returns `true` if the hook is to be told: it has not carried out the newest telling. A drain of a restored store
    /// is not told before somebody has vouched for it.
    pub const fn is_owed(&self) -> bool {
        (self.lifted || !self.confirmed) && !self.unvouched
    }

    /// Creates a drain of this moment, by a person or by perilog.
    pub fn new(host: HostName, reason: String, by: Option<u32>, since_ms: u64) -> Self {
        Self {
            host,
            since_ms,
            reason,
            by,
            confirmed: false,
            lifted: false,
            told: false,
            stuck: None,
            again: None,
            telling: since_ms,
            asked_ms: since_ms,
            unvouched: false,
            passing: None,
        }
    }

    /// Returns the newest problem on the host, for the hook. If the first reason still stands in the resource manager,
    /// the resource manager keeps it.
    #[must_use]
    pub fn newest(&self) -> Again {
        let first = || Again { at_ms: self.since_ms, reason: self.reason.clone(), by: self.by };
        self.again.clone().unwrap_or_else(first)
    }
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
    /// The limit that the request named, or this controller's default for such actions.
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
    /// The job's event log past here has everything of this action.
    pub events_from: u64,
    /// The part that the action holds: all that it covers, until the action lets go of finished ranks and resources.
    pub held: Part,
    /// The action is an after-action of a job that still holds ranks; those ranks are still to join.
    pub growing: bool,
    /// The operator's words for tasks that may be alive. A word becomes the outcome once the drain of the node is in
    /// force.
    pub resolving: Vec<Resolving>,
    /// A service outside runs it, no agent.
    pub external: Option<Box<External>>,
    /// Scripts that were told of as past their limit, and of which open ranks: the last of each rank.
    pub overdue: BTreeMap<String, IdSet>,
    /// Ranks with leftover processes on a drained node: open ranks whose scripts left processes behind, and ranks given
    /// up as lost, or released as never begun, that turned out to be alive.
    pub lingering: IdSet,
    /// Limits in milliseconds that nodes reported and that differ from the action's own limit, with their ranks.
    pub limits: BTreeMap<u64, IdSet>,
    /// In recovery, not asked for again yet: as a setup action it begins on no rank.
    pub unvouched: bool,
    /// Remarks about `ok` ranks, by text: no script ran there, or the runner skipped a file.
    pub remarks: BTreeMap<String, IdSet>,
}

/// An operator's word that waits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resolving {
    pub ranks: IdSet,
    pub ok: bool,
    pub reason: String,
    pub by: u32,
}

/// The quiesced state: nothing new begins until somebody says otherwise.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Quiet {
    pub since_ms: u64,
    pub by: u32,
    /// Perhaps empty.
    pub reason: String,
}

impl ActionRow {
    /// Creates the row of an action that begins: every rank waits, and the action holds every rank.
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
            events_from: 0,
            held: Part::of_ranks(ranks.clone()),
            growing: false,
            resolving: Vec::new(),
            external: None,
            overdue: BTreeMap::new(),
            lingering: IdSet::new(),
            limits: BTreeMap::new(),
            unvouched: false,
            remarks: BTreeMap::new(),
            ranks,
        }
    }

    /// Returns the ranks that have not ended.
    pub fn open(&self) -> IdSet {
        let mut open = self.waiting.union(&self.sent);
        open.extend_with(&self.accepted);
        open
    }
}

/// The additional columns of an external action.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct External {
    /// How long its service may be silent.
    pub lease_ms: u64,
    /// When it was last heard of, by the clock on the wall: for people.
    pub heard_ms: u64,
    /// The named resources that the action covers; those that ended are in `ended` as well.
    pub resources: BTreeSet<ResourceName>,
    pub ended: BTreeMap<ResourceName, ResourceEnd>,
    /// The resources should stop as well; the ranks that should stop are in `cancelling`.
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
    /// Late results: those that arrived after the outcome was settled.
    pub late: Vec<Ended>,
    /// The rank is open, and `ended` is the outcome if its node boots: a script announced a boot.
    pub expects: Option<Expects>,
}

/// A boot that ends a task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Expects {
    /// The machine that is expected to boot; a replacement machine does not count.
    pub machine: MachineId,
    /// The remaining part of the task's limit at the announcement; `None`: no limit.
    pub within_ms: Option<u64>,
}
