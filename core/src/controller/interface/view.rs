//! Views of the controller's state: the bodies of the local API's replies, shared with the CLI.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::controller::io::{DrainRow, External, Quiet, RecoveryRow};
use crate::hostlist::HostList;
use crate::ids::{ActionId, ActionName, Attempt, JobId, MilestoneName, Rank, ResourceName};
use crate::idset::IdSet;
use crate::job::Part;
use crate::message::Phase;
use crate::outcome::Verdict;
use crate::task::Ended;

/// A row of `perilog ps`: unfinished work, folded over ranks in the same state.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PsRow {
    /// The job of the row; `None`: the row shows a drain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<JobId>,
    pub attempt: Attempt,
    pub action: ActionName,
    pub ranks: IdSet,
    pub hosts: HostList,
    /// One of `waiting`, `sent`, `accepted`, `running`, `overdue`, `lingering`, `rebooting`, `resolving`, `unknown`,
    /// `external`, `telling`, `draining`, `held`.
    pub state: String,
    /// The reason for the wait, or the name of the running script.
    pub why: String,
    pub age_ms: u64,
    /// `true` for a local task of the host itself, listed for completeness.
    pub local: bool,
    /// The named resources of the row.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub resources: BTreeSet<ResourceName>,
    /// For an external action: the remaining time within which its service must report.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease_left_ms: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JobView {
    pub job: JobId,
    pub userid: Option<u32>,
    pub attempts: Vec<AttemptView>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AttemptView {
    pub attempt: Attempt,
    pub open: bool,
    pub hosts: HostList,
    /// The reason why recovery makes the attempt or a part of it wait, and the command to type.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits: Option<String>,
    /// The resources that jobs and actions hold, each with holder and reason.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub held: Vec<PsRow>,
    #[serde(default, skip_serializing_if = "Part::is_empty")]
    pub released: Part,
    pub actions: Vec<ActionView>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ActionView {
    pub id: ActionId,
    pub name: ActionName,
    pub ranks: IdSet,
    pub began_ms: u64,
    pub ended_ms: Option<u64>,
    pub timeout_ms: Option<u64>,
    pub verdict: Option<Verdict>,
    pub ok: IdSet,
    /// Remarks about `ok` ranks, by text: no script ran there, or the runner skipped a file.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub remarks: BTreeMap<String, IdSet>,
    /// Ranks that have not ended, folded.
    pub open: Vec<PsRow>,
    /// Ranks that ended other than `ok`, one row each; and `ok` ranks with further details.
    pub ended: Vec<RankView>,
    /// `Some` for an external action.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub external: Option<External>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RankView {
    pub rank: Rank,
    pub host: String,
    pub ended: Ended,
    pub late: Vec<Ended>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NodeView {
    pub host: String,
    /// One of `online`, `offline`, `probing`.
    pub state: String,
    pub since_ms: u64,
    pub machine: Option<String>,
    pub boot: Option<String>,
    pub boot_number: Option<u32>,
    pub version: Option<String>,
    pub peer: Option<String>,
    /// End of the certificate that the node has, as far as this controller knows: milliseconds since 1970. `None`: the
    /// node is not connected, or TLS is off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificate_until_ms: Option<u64>,
    /// Number of tasks on the node that have not ended.
    pub tasks: u64,
    /// A note for operators: a second machine that claims this name, or an agent that refused the epoch.
    pub note: Option<String>,
    /// The drain of the host, in force or not yet lifted by the hook.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drain: Option<DrainRow>,
    /// `true` if a job or an action holds a rank of the node.
    #[serde(default)]
    pub held: bool,
}

/// Explanation of a stuck node: the chain from the node to the script to blame.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WhyView {
    pub node: NodeView,
    /// Tasks on the node that have not ended.
    pub open: Vec<WhyTask>,
    /// The last few tasks that ended badly, newest first.
    pub failed: Vec<WhyTask>,
    /// Jobs and actions that hold ranks of the node, each with the end of its hold.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub held: Vec<PsRow>,
    /// Commands to type next about the node itself, most useful first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub next: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WhyTask {
    pub job: JobId,
    pub attempt: Attempt,
    pub action: ActionName,
    pub rank: Rank,
    pub unit: String,
    pub state: String,
    pub phase: Option<Phase>,
    pub age_ms: u64,
    pub why: String,
    pub ended: Option<Ended>,
    /// Commands to type next, most useful first.
    pub next: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StatusView {
    pub version: String,
    /// The cluster's id.
    pub cluster: String,
    /// The cluster's name in the configuration. The machine does not know it: the API adds it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    pub epoch: u64,
    pub nodes: u64,
    pub online: u64,
    /// Number of drained hosts, including drains that are not in force yet and hosts that are no known nodes.
    #[serde(default)]
    pub drained: u64,
    /// Number of hosts with a rank that is not released.
    #[serde(default)]
    pub held: u64,
    pub jobs: u64,
    pub actions_open: u64,
    pub tasks_open: u64,
    /// The quiesced state: the controller begins no new work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quiet: Option<Quiet>,
    /// The recovery, if the store may be behind what its nodes obeyed. Notices wait until every job is vouched for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recovery: Option<RecoveryRow>,
    /// Number of releases that the release hook has not carried out. Notices for a reader of the outbox do not count:
    /// no reader may exist.
    pub outbox: u64,
    /// Notes for operators: a full disk, or agents that obey another controller.
    pub notes: Vec<String>,
}

/// An attempt as shown to the edge that added it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EdgeAttempt {
    pub job: JobId,
    pub attempt: Attempt,
    /// The ranks that the job was given, and the host of each rank in rank order.
    pub ranks: IdSet,
    pub hosts: HostList,
    /// `true` for the newest attempt of its job. A closed attempt begins only its after-actions.
    pub open: bool,
    /// Ranks that the job itself still holds. Empty: the job has handed all its ranks over.
    pub hold: IdSet,
    /// Ranks that were released.
    pub released: IdSet,
    /// `true` if all ranks were released.
    pub complete: bool,
    /// `true` if recovery asks about this attempt: this view may be out of date.
    pub unvouched: bool,
    /// Actions in the order in which they began.
    pub actions: Vec<EdgeAction>,
    /// Milestones that the job has reached.
    pub milestones: Vec<MilestoneName>,
}

/// An action of an attempt, as shown to an edge.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EdgeAction {
    pub name: ActionName,
    /// The verdict; `None`: the action has not ended.
    pub verdict: Option<Verdict>,
    pub ended_ms: Option<u64>,
    /// Ranks that failed, and their hosts. With the verdict `ok`, the job's tolerance forgave the failures. Empty until
    /// the verdict.
    pub bad: IdSet,
    pub bad_hosts: HostList,
    /// Named resources that failed, each with its result and its service's message.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub bad_resources: BTreeMap<ResourceName, String>,
    /// Failures as in the reply of `Failed`: each is `{check, message, ranks, hosts}`. Where a script reported no
    /// check, the outcome takes the check's place.
    pub failures: Vec<serde_json::Value>,
}

/// Everything that a recovery waits for.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct RecoveryView {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recovery: Option<RecoveryRow>,
    pub epoch: u64,
    /// The highest epoch that a node has obeyed, if above this controller's epoch: only a take-over helps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub obeyed: Option<u64>,
    /// Attempts for which no edge and no operator has vouched.
    pub attempts: Vec<UnvouchedView>,
    /// Orphans: tasks that nodes hold and the store does not know.
    pub orphans: Vec<OrphanView>,
    /// Hosts that get no Welcome: each alone reports a commit that this store never made.
    pub suspects: Vec<String>,
}

/// An attempt for which no edge and no operator has vouched.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct UnvouchedView {
    pub job: JobId,
    pub attempt: Attempt,
    pub hosts: HostList,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// Actions that have not ended, by name.
    pub open: Vec<ActionName>,
    /// Vouched jobs that hold some of the same hosts, each with those hosts.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub beside: BTreeMap<JobId, HostList>,
}

/// An orphan: a task that a node holds and the store does not know.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OrphanView {
    pub host: String,
    pub job: JobId,
    pub attempt: Attempt,
    pub action: ActionName,
    pub rank: Rank,
    /// One of `unclaimed`, `live`, `ended`.
    pub state: String,
}
