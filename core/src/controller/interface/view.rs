//! Views of the controller's state: the bodies of the local API's replies, shared with the CLI.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

pub use crate::controller::interface::drain_view::{DrainView, PAGE_BYTES};

use crate::controller::interface::io::{DrainRow, External, Quiet, RecoveryRow};
use crate::hostlist::HostList;
use crate::ids::{ActionId, ActionName, Attempt, JobId, MilestoneName, Rank, ResourceName};
use crate::idset::IdSet;
use crate::job::Part;
use crate::message::Phase;
use crate::outcome::Verdict;
use crate::task::Ended;

/// A row of `perilog ps`: unfinished work of ranks that are in the same state for the same reason.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PsRow {
    /// The job of the row; `None`: the row shows a drain, or a lifted drain, that the drain hook has not carried out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<JobId>,
    pub attempt: Attempt,
    pub action: ActionName,
    pub ranks: IdSet,
    pub hosts: HostList,
    /// State of the work. Tasks are `waiting`, `sent`, `accepted`, `running`, `overdue`, `lingering`, `rebooting`
    /// (until an announced reboot) or `resolving`; an external action is `external`. `notifying`: a hook has not
    /// carried out a notice. `draining`: a release waits for a drain. `held`: a job or an action holds the ranks.
    pub state: String,
    /// The reason why the work is unfinished, or the name of the running script, as a text for people.
    pub why: String,
    pub age_ms: u64,
    /// `true` for a task that the host runs for itself. Such rows come from the host's agent, not from the controller.
    pub local: bool,
    /// The named resources of the row.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub resources: BTreeSet<ResourceName>,
    /// The rest of the lease, in a row for open ranks or resources of an external action; `None` in every other row.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease_left_ms: Option<u64>,
}

impl PsRow {
    /// Creates a row without ranks, hosts and resources; `age_ms`: the time for which the work has waited.
    pub(crate) fn new(
        job: Option<JobId>,
        attempt: Attempt,
        action: ActionName,
        state: &str,
        why: String,
        age_ms: u64,
    ) -> Self {
        Self {
            job,
            attempt,
            action,
            ranks: IdSet::new(),
            hosts: HostList::new(),
            state: state.to_owned(),
            why,
            age_ms,
            local: false,
            resources: BTreeSet::new(),
            lease_left_ms: None,
        }
    }
}

/// A job, as `perilog show` shows it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JobView {
    pub job: JobId,
    pub userid: Option<u32>,
    pub attempts: Vec<AttemptView>,
}

/// An attempt of a job, as `perilog show` shows it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AttemptView {
    pub attempt: Attempt,
    pub open: bool,
    pub hosts: HostList,
    /// The reason why recovery makes the attempt or a part of it wait, with the command to type; `None` if nothing
    /// waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits: Option<String>,
    /// Ranks and named resources that the job holds, and ended ones that its actions still hold, each with the reason.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub held: Vec<PsRow>,
    #[serde(default, skip_serializing_if = "Part::is_empty")]
    pub released: Part,
    pub actions: Vec<ActionView>,
}

/// An action of an attempt, as `perilog show` shows it.
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
    /// Key: a remark, which says that no script ran or that the runner skipped a file. Value: the `ok` ranks with the
    /// remark.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub remarks: BTreeMap<String, IdSet>,
    /// Ranks and resources that have not ended; ranks in the same state share a row.
    pub open: Vec<PsRow>,
    /// Ranks that ended with another outcome than `ok`, and `ok` ranks with details. Equal ends share a row.
    pub ended: Vec<EndView>,
    /// Ranks whose ends are not in `ended`, because the reply would be too long. A request for these ranks gets them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub more: Option<MoreEnds>,
    /// The lease and the named resources of an external action; `None` for any other action.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub external: Option<External>,
}

/// Ranks that ended alike. `rank`, `host`, `ended` and `late` are those of the lowest rank: which rank it is, how it
/// ended, and the results that its node or service reported later.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EndView {
    pub ranks: IdSet,
    pub hosts: HostList,
    pub rank: Rank,
    pub host: String,
    pub ended: Ended,
    pub late: Vec<Ended>,
}

/// Ranks whose ends a reply leaves out.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MoreEnds {
    pub ranks: IdSet,
    pub hosts: HostList,
}

/// A node, as `perilog nodes` shows it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NodeView {
    pub host: String,
    /// One of `online`, `offline`, `probing`.
    pub state: String,
    /// Begin of the agent's state, in milliseconds since 1970.
    pub since_ms: u64,
    pub machine: Option<String>,
    pub boot: Option<String>,
    pub boot_number: Option<u32>,
    pub version: Option<String>,
    pub peer: Option<String>,
    /// End of the node's certificate, in milliseconds since 1970. `None`: the node is not connected, or TLS is off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificate_until_ms: Option<u64>,
    /// Number of the node's tasks that have not ended, including tasks that wait for their Start.
    pub tasks: u64,
    /// A note for operators, for example about a second machine that claims this name.
    pub note: Option<String>,
    /// The host's drain, in force or not. A lifted drain stays until the drain hook has confirmed the lift.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drain: Option<DrainRow>,
    /// `true` if a job or an action holds a rank of the node.
    #[serde(default)]
    pub held: bool,
}

/// Explanation of a node, as `perilog why` shows it: its tasks, the scripts that are stuck, and the commands to type
/// next.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WhyView {
    pub node: NodeView,
    /// Tasks on the node, oldest first: open tasks, and tasks that have ended for the controller while their scripts
    /// still run.
    pub open: Vec<WhyTask>,
    /// The node's last few failed tasks, newest first.
    pub failed: Vec<WhyTask>,
    /// Jobs and actions that hold a rank of the node, each with the reason.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub held: Vec<PsRow>,
    /// Commands to type next about the node itself, most useful first. A connected node has such commands only if it
    /// has a drain and no open task.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub next: Vec<String>,
}

/// A task on a node, open or ended, as `perilog why` shows it with its reason and the commands to type next.
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

/// The controller's state in numbers, as `perilog status` shows it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StatusView {
    pub version: String,
    /// The cluster's id.
    pub cluster: String,
    /// The cluster's name in the configuration. The machine leaves it empty, and the API adds it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    pub epoch: u64,
    pub nodes: u64,
    pub online: u64,
    /// Number of drained hosts, including hosts whose drain is not in force yet, and hosts that are no known nodes.
    #[serde(default)]
    pub drained: u64,
    /// Number of hosts with a rank that a job or an action holds.
    #[serde(default)]
    pub held: u64,
    pub jobs: u64,
    pub actions_open: u64,
    pub tasks_open: u64,
    /// The quiesced state; `None`: the controller begins new work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quiet: Option<Quiet>,
    /// The recovery that is under way; `None`: the controller is in no recovery.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recovery: Option<RecoveryRow>,
    /// Number of releases that the release hook has not carried out. Notices to the resource manager do not count,
    /// because a site may have no reader for them.
    pub outbox: u64,
    /// Notes for operators, for example about a full disk.
    pub notes: Vec<String>,
    /// Sources with attempts that are not fully released.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sources: Vec<SourceView>,
}

/// A source with attempts that are not fully released.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceView {
    /// The source as text, such as `flux (instance system)`.
    pub source: String,
    /// Number of the source's attempts that are not fully released.
    pub unreleased: u64,
    /// `true` if an edge follows the source's attempts now. The machine leaves `false`; the API, which knows its
    /// clients, sets the field.
    pub followed: bool,
}

/// An attempt, as the controller shows it to the edge of the attempt's source.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EdgeAttempt {
    pub job: JobId,
    pub attempt: Attempt,
    /// All ranks of the attempt.
    pub ranks: IdSet,
    /// The host of each rank, in rank order.
    pub hosts: HostList,
    /// `true` until a newer attempt, or a list of the edge that lacks the attempt, closes it. A closed attempt begins
    /// only its after-actions.
    pub open: bool,
    /// Ranks that the job itself still holds; empty once the job has handed all ranks over.
    pub hold: IdSet,
    /// Ranks that were released.
    pub released: IdSet,
    /// `true` if all ranks and named resources were released.
    pub complete: bool,
    /// `true` if a generation abandoned the attempt, and it was not taken up: the view may be out of date.
    pub abandoned: bool,
    /// Actions in the order in which they began.
    pub actions: Vec<EdgeAction>,
    /// Milestones that the job has reached.
    pub milestones: Vec<MilestoneName>,
}

/// An action of an attempt, as the controller shows it to the edge of the attempt's source.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EdgeAction {
    pub name: ActionName,
    /// The verdict; `None`: the action has not ended.
    pub verdict: Option<Verdict>,
    pub ended_ms: Option<u64>,
    /// Ranks that failed. If the verdict is `ok`, the job's tolerance forgave the failures. Empty before the verdict.
    pub bad: IdSet,
    /// Hosts of the ranks in `bad`.
    pub bad_hosts: HostList,
    /// Failed named resources, each with its outcome and the failed checks. Empty before the verdict.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub bad_resources: BTreeMap<ResourceName, String>,
    /// Failures as in the reply `Failed`: each is `{check, message, ranks, hosts}`. If a script reported no check,
    /// `check` is the outcome's word. Empty before the verdict.
    pub failures: Vec<serde_json::Value>,
}

/// The attempts and tasks that a restore has left, for `perilog ps --abandoned` and `perilog controller recover`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct RecoveryView {
    /// The last generation, if there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recovery: Option<RecoveryRow>,
    pub epoch: u64,
    /// The highest epoch of another controller that a node has accepted, if the node refuses this controller. Only a
    /// take-over helps then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accepted_epoch: Option<u64>,
    /// Abandoned attempts.
    pub abandoned: Vec<AbandonedView>,
    /// Unknown tasks, without tombstones.
    pub unknown: Vec<UnknownView>,
    /// Hosts that get no Welcome: this store never made the host's newest commit, and no second host reports a commit
    /// that this store lacks.
    pub suspects: HostList,
}

/// An attempt that a generation abandoned, and that no request has taken up.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AbandonedView {
    pub job: JobId,
    pub attempt: Attempt,
    /// Hosts that the store has not released.
    pub hosts: HostList,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// Actions that have not ended, by name.
    pub open: Vec<ActionName>,
    /// `false`: the store lacks the attempt, and these hosts say that it had them.
    pub stored: bool,
    /// Command for an operator, if the job is over. A running job needs none: its edge or hook asks for it again.
    pub command: String,
}

/// Tasks that nodes hold in the same state, and that the store does not know.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct UnknownView {
    pub hosts: HostList,
    pub job: JobId,
    pub attempt: Attempt,
    pub action: ActionName,
    pub ranks: IdSet,
    /// One of `unclaimed`, `live`, `ended`.
    pub state: String,
}
