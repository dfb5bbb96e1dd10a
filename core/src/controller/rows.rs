//! What the store keeps: nodes, attempts, actions with their ranks, drains. A [`Record`](crate::controller::io::Record)
//! puts them there, a [`Snapshot`](crate::controller::io::Snapshot) gives all of them back.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::hostlist::HostList;
use crate::ids::{ActionId, ActionName, Attempt, BootId, HostName, JobId, MachineId, ResourceName, TaskId};
use crate::idset::IdSet;
use crate::job::{Part, Terms};
use crate::milestone::Milestones;
use crate::outcome::Verdict;
use crate::task::Ended;

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
    /// The resource manager's edge that added it; `None`: a hook, or a person.
    pub source: Option<Source>,
    /// In recovery, not vouched for yet: nothing that it was owed is begun, told or given back.
    pub unvouched: bool,
    /// Added or vouched for in recovery: what had begun of it is not known, so each rank that it held counts as begun.
    pub recovered: bool,
    /// Ranks that the resource manager does not hold for it any more, as it said: an after-action begins there only on
    /// a host that is drained and held by no other attempt, and they are given back without telling.
    pub disowned: IdSet,
    /// A person has vouched for the hosts of its disowned ranks: they are cleaned up after.
    pub by_hand: bool,
}

/// Who adds attempts, and says which of them exist: an edge to a resource manager, and the instance of that which it
/// speaks for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Source {
    /// Such as `flux`.
    pub name: String,
    /// Tells instances of one resource manager apart: a test instance says nothing of the jobs of another.
    pub instance: String,
}

/// The last recovery of a store: why, and since when. The row stays when the recovery is over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecoveryRow {
    pub since_ms: u64,
    /// Evidence, for people.
    pub why: String,
    /// The epoch that entered it: foreign commits of epochs before this one are known to be lost.
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
    /// The user id of who asked for it; `None`: perilog, for what happened there.
    pub by: Option<u32>,
    /// In force: the hook has said so, or there is none.
    pub confirmed: bool,
    /// Lifted, and the hook has not confirmed that yet.
    pub lifted: bool,
    /// A hook has said that it drained the host: one that is configured later is told of those that stand.
    #[serde(default)]
    pub told: bool,
    /// Drained for a script that was stuck in this boot of it (its number), and for nothing else: another boot is rid
    /// of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stuck: Option<u32>,
    /// What was found wrong there last, since it was drained.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub again: Option<Again>,
    /// Names what the hook is told of it now: milliseconds since 1970, with each telling more. It says which one it has
    /// carried out.
    #[serde(default)]
    pub telling: u64,
    /// Since when the hook is asked for what it has not carried out: milliseconds since 1970.
    #[serde(default)]
    pub asked_ms: u64,
    /// Of a store that was put back, and not told again: the drain may have been lifted since.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unvouched: bool,
    /// Drained by recovery and for nothing else: it ends with its cause.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub passing: Option<Passing>,
}

/// Why recovery drained a host. The drain is lifted when that has passed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Passing {
    /// An orphan is there: until it is adopted or confirmed.
    Orphan,
    /// After-actions of this attempt clean up there: until they ended well.
    Cleaning { job: JobId, attempt: Attempt },
}

/// Another reason to drain a host that is drained.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Again {
    pub at_ms: u64,
    pub reason: String,
    /// As of the drain.
    pub by: Option<u32>,
}

impl DrainRow {
    /// A drain of this moment, by a person or by perilog.
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

    /// What was found wrong there last: what the hook is told. Where the first reason still stands in the resource
    /// manager it leaves that alone.
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
    /// The limit that was asked for, or that this controller has for such actions.
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
    /// Open ranks whose nodes were drained for what their scripts had left behind; and ranks given up as lost, or given
    /// back as never begun, whose nodes were drained because they lived.
    pub lingering: IdSet,
    /// Limits in milliseconds that nodes have told of, other than the action's own, and of which ranks.
    pub limits: BTreeMap<u64, IdSet>,
    /// In recovery, not asked for again yet: as a setup action it begins on no rank.
    pub unvouched: bool,
    /// Remarks about ranks that are `ok`, by their text: no script ran there, the runner skipped a file.
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

    /// Ranks that have not ended.
    pub fn open(&self) -> IdSet {
        let mut open = self.waiting.union(&self.sent);
        open.extend_with(&self.accepted);
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
