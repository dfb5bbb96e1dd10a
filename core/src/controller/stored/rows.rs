//! The rows of the store: nodes, attempts, actions with their ranks, drains. A
//! [`Record`](crate::controller::io::Record) writes rows; a [`Snapshot`](crate::controller::io::Snapshot) contains all
//! of them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::hostlist::HostList;
use crate::ids::{ActionId, ActionName, Attempt, BootId, HostName, JobId, MachineId, ResourceName, TaskId};
use crate::idset::IdSet;
use crate::job::{Part, Terms};
use crate::milestone::Milestones;
use crate::outcome::Verdict;
use crate::task::Ended;

/// A node with which the controller has had a session. `boot_number` counts the boots that this controller saw.
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
    /// The attempt's ranks, and the host of each rank in rank order.
    pub ranks: IdSet,
    pub hosts: HostList,
    pub userid: Option<u32>,
    pub open: bool,
    pub touched_ms: u64,
    pub terms: Terms,
    /// `job add` created the attempt: the resource manager will finish it, so idleness does not close it.
    pub added: bool,
    /// The part that the job itself still holds.
    pub hold: Part,
    pub released: Part,
    /// Everything is released, for good: the last release bore `final`.
    pub complete: bool,
    pub milestones: Milestones,
    /// The source whose edge added the attempt; `None`: a hook or an operator added it.
    pub source: Option<Source>,
    /// No source and no operator has vouched for the attempt in this recovery: the controller begins nothing of the
    /// attempt, sends no notice about it and releases none of its ranks.
    pub unvouched: bool,
    /// The attempt was added or vouched for in recovery. The store may lack the tasks that had begun, so every rank
    /// that the attempt held counts as begun.
    pub recovered: bool,
    /// Ranks that the resource manager no longer holds for the attempt, as its edge reported. An after-action begins on
    /// a disowned rank only if the host is drained and no other attempt holds the host. The controller releases
    /// disowned ranks without a notice.
    pub disowned: IdSet,
    /// An operator has vouched for the hosts of the disowned ranks: the after-actions clean up there.
    pub by_hand: bool,
}

/// The source of attempts: one instance of a resource manager. Its edge adds attempts and reports which attempts exist.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Source {
    /// Name of the kind of resource manager, such as `flux`.
    pub name: String,
    /// Distinguishes instances of one resource manager: the edge of a test instance reports nothing about the jobs of
    /// another instance.
    pub instance: String,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (instance {})", self.name, self.instance)
    }
}

/// The last recovery of a store, with its reason and start. The row stays when the recovery is over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecoveryRow {
    pub since_ms: u64,
    /// The evidence, as a text for people.
    pub why: String,
    /// The epoch that entered recovery. This store has lost every foreign commit of an earlier epoch.
    pub epoch: u64,
    /// Time at which everything was vouched for; `None`: the store is in recovery.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_ms: Option<u64>,
}

/// A drained host: the resource manager must give it no new job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DrainRow {
    pub host: HostName,
    pub since_ms: u64,
    pub reason: String,
    /// The user id of the person who asked for the drain; `None`: the controller drained the host for an event on it.
    pub by: Option<u32>,
    /// The drain is in force: the hook has confirmed it, or no hook is configured.
    pub confirmed: bool,
    /// An operator has lifted the drain, and the hook has not confirmed the lift yet.
    pub lifted: bool,
    /// A hook has confirmed the drain. A hook that the site configures later gets a notice of every drain that has no
    /// such confirmation.
    #[serde(default)]
    pub told: bool,
    /// Set if the drain's only reason is a stuck script: the number of the host's boot in which the script was stuck. A
    /// later boot has ended the script.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stuck: Option<u32>,
    /// The newest problem found on the host since the drain began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub again: Option<Again>,
    /// Number of the current notice to the hook: milliseconds since 1970, larger with each notice. The hook returns the
    /// number of the notice that it has carried out.
    #[serde(default)]
    pub telling: u64,
    /// Time of the first notice that the hook has not carried out, in milliseconds since 1970.
    #[serde(default)]
    pub asked_ms: u64,
    /// The drain comes from a restored store, and the resource manager has not listed it since. An operator may have
    /// lifted the drain after the backup.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unvouched: bool,
    /// The cause, if recovery made the drain for that cause only: the drain ends with the cause.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub passing: Option<Passing>,
}

/// Cause for which recovery drained a host. The controller lifts the drain when the cause has ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Passing {
    /// An orphan is on the host. The cause ends when a request adopts the orphan or an operator confirms it.
    Orphan,
    /// After-actions of this attempt clean up on the host. The cause ends when all of them have ended `ok`.
    Cleaning { job: JobId, attempt: Attempt },
}

/// Another reason to drain a host that is already drained.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Again {
    pub at_ms: u64,
    pub reason: String,
    /// The user id of the person who asked, as in [`DrainRow::by`].
    pub by: Option<u32>,
}

impl DrainRow {
    /// Returns `true` if the hook is owed a notice: it has not carried out the newest one. The drain of a restored
    /// store causes no notice before it is vouched for.
    pub const fn is_owed(&self) -> bool {
        (self.lifted || !self.confirmed) && !self.unvouched
    }

    /// Creates a drain that begins at `since_ms`, asked for by a person (`by`) or by the controller.
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

    /// Returns the newest problem on the host, for the hook. A resource manager in which the first reason still stands
    /// keeps the first reason.
    #[must_use]
    pub fn newest(&self) -> Again {
        let first = || Again { at_ms: self.since_ms, reason: self.reason.clone(), by: self.by };
        self.again.clone().unwrap_or_else(first)
    }
}

/// An action, with its ranks in one idset for each rank state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ActionRow {
    pub id: ActionId,
    pub job: JobId,
    pub attempt: Attempt,
    pub name: ActionName,
    pub ranks: IdSet,
    pub userid: Option<u32>,
    pub env: BTreeMap<String, String>,
    /// The limit that the request named, or the configured default for the action.
    pub timeout_ms: Option<u64>,
    pub began_ms: u64,
    /// Ranks without a committed Start.
    pub waiting: IdSet,
    /// Ranks with a committed Start that the node has not accepted.
    pub sent: IdSet,
    /// Ranks that the node has accepted and that have not ended.
    pub accepted: IdSet,
    pub ok: IdSet,
    /// Ranks that ended with another outcome than `ok`; a [`RankRow`] has the details of each.
    pub ended: IdSet,
    /// Ranks to cancel: the controller sends the cancel to each node that has not confirmed it.
    pub cancelling: IdSet,
    pub cancel_why: Option<String>,
    /// Ranks by the number of the boot to which their Start was addressed.
    pub boots: BTreeMap<u32, IdSet>,
    pub verdict: Option<Verdict>,
    pub ended_ms: Option<u64>,
    /// Position in the job's event log: every event of this action comes after this position.
    pub events_from: u64,
    /// The part that the action holds: at first all that the action covers; later, ended ranks and resources leave the
    /// hold.
    pub held: Part,
    /// The action is an after-action of a job that still holds ranks; those ranks join the action later.
    pub growing: bool,
    /// Resolutions of tasks that may be alive. A resolution becomes the outcome once the drain of the node is in force.
    pub resolving: Vec<Resolving>,
    /// `Some` for an external action.
    pub external: Option<Box<External>>,
    /// Scripts that nodes reported as overdue, with the open ranks of each; the last script of each rank counts.
    pub overdue: BTreeMap<String, IdSet>,
    /// Ranks with lingering processes on a drained node. Either the rank is open and its scripts left processes. Or
    /// the rank was `lost` or was released as never begun, and turned out to be alive.
    pub lingering: IdSet,
    /// Limits in milliseconds that nodes reported and that differ from the action's own limit, with their ranks.
    pub limits: BTreeMap<u64, IdSet>,
    /// Recovery set this mark, and no request has named the action since: a marked setup action begins on no rank.
    pub unvouched: bool,
    /// Remarks about `ok` ranks, by text: no script ran there, or the runner skipped a file.
    pub remarks: BTreeMap<String, IdSet>,
}

/// A resolution that waits for a drain or for its node: an operator's, or the site's about a script past its limit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resolving {
    pub ranks: IdSet,
    pub ok: bool,
    pub reason: String,
    pub by: u32,
    /// Nobody's word: the ranks are past their limit, and the job goes on without them.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub overdue: bool,
    /// The resolution waits until each node says that its task never began, and not for a drain.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unbegun: bool,
}

/// The quiesced state: the controller begins nothing new until an operator resumes it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Quiet {
    pub since_ms: u64,
    pub by: u32,
    /// The operator's reason; may be empty.
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
    /// Lease: the longest time that the service may stay silent.
    pub lease_ms: u64,
    /// Time (wall clock) of the last report from the service, for people.
    pub heard_ms: u64,
    /// The named resources that the action covers, ended or not.
    pub resources: BTreeSet<ResourceName>,
    pub ended: BTreeMap<ResourceName, ResourceEnd>,
    /// The service should stop work on the resources too; the ranks on which it should stop are in `cancelling`.
    pub cancelling: bool,
}

/// The end of a named resource, as [`RankRow`] is the end of a rank.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResourceEnd {
    pub ended: Ended,
    pub late: Vec<Ended>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct RankRow {
    pub task: TaskId,
    pub ended: Ended,
    /// Results that arrived after the outcome was settled.
    pub late: Vec<Ended>,
    /// `Some`: the rank is open, and `ended` becomes its outcome when the node boots, because a script announced a
    /// reboot.
    pub expects: Option<Expects>,
}

/// An announced reboot that ends a task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Expects {
    /// The machine that is expected to boot; a replacement machine does not count.
    pub machine: MachineId,
    /// The remaining part of the task's limit when the script announced the reboot; `None`: no limit.
    pub within_ms: Option<u64>,
}
