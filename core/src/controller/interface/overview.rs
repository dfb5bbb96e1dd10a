//! Views for the controller's web page. Most lists group equal entries and have a bound, so a view stays small with ten
//! thousand nodes. Most past times are ages in milliseconds, because the clocks of reader and controller may
//! differ.
//!
//! | view | of | bound |
//! |---|---|---|
//! | [`Overview`] | the cluster | [`MAX_NODES`] names, [`MAX_ROWS`] rows of each list, [`MAX_VERDICTS`] verdicts |
//! | [`Timeline`] | a job | [`MAX_ATTEMPTS`] attempts, [`MAX_ACTIONS`] actions of each |
//! | [`WhyView`] | a node | [`MAX_ROWS`] tasks and holds; no output of scripts |
//!
//! If a list of rows is cut, a field beside it has the number of rows left out. Only [`Overview::verdicts`] and the
//! lists of a [`WhyView`] have no such field. Beside a list of hosts, `count` is the number of all hosts.

use serde::{Deserialize, Serialize};

use crate::controller::interface::view::{StatusView, WhyView};
use crate::hostlist::HostList;
use crate::ids::{ActionName, Attempt, HostName, JobId, MilestoneName, ResourceName};
use crate::outcome::Verdict;

/// Maximum number of nodes that an overview names. Its counts include all nodes.
pub const MAX_NODES: usize = 1 << 15;
/// Maximum number of rows in most lists of a view.
pub const MAX_ROWS: usize = 100;
/// Maximum number of verdicts in an overview.
pub const MAX_VERDICTS: usize = 25;
/// Maximum number of attempts in a timeline. The newest are shown.
pub const MAX_ATTEMPTS: usize = 8;
/// Maximum number of actions of an attempt in a timeline. The newest are shown.
pub const MAX_ACTIONS: usize = 32;
/// Maximum number of hosts that one row of a view names. The row's field `count` includes all hosts.
pub const MAX_HOSTS: usize = 64;
/// Maximum number of faults that a timeline lists for an action; a fault is a group of ranks that failed alike. The
/// field `faults_left_out` has the number of the others.
pub const MAX_FAULTS: usize = 16;
/// Maximum number of characters in a text that a view cuts, such as a reason or a script's last line.
pub const MAX_TEXT: usize = 500;

/// A question of the controller's web page: which view the page asks for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum OverviewRequest {
    Cluster,
    Job(JobId),
    Node(HostName),
}

/// The answer to a [`OverviewRequest`]. Its JSON is the view alone, without the variant's name.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub enum OverviewReply {
    Cluster(Box<Overview>),
    Job(Box<Timeline>),
    Node(Box<WhyView>),
}

/// The state of the whole cluster: its nodes, drains, open work and last verdicts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Overview {
    pub status: StatusView,
    /// All nodes, grouped by state and action.
    pub groups: Vec<NodeGroup>,
    /// Number of nodes that the groups count, but do not name.
    pub nodes_left_out: u64,
    /// Drained hosts in groups with the same reason, the oldest group first.
    pub drains: Vec<DrainGroup>,
    pub drains_left_out: u64,
    /// Rows of `perilog ps`: stuck rows first, then the oldest.
    pub open: Vec<OpenRow>,
    pub open_left_out: u64,
    /// The last verdicts, newest first.
    pub verdicts: Vec<VerdictRow>,
}

/// Nodes in the same state, with the same action.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NodeGroup {
    /// State of the nodes, the first of these that is true: `offline`, `drained`, `busy` (an action is open on the
    /// node), `held` (a job or an action holds a rank on the node), `free`.
    pub state: String,
    /// The action that is open on the nodes. If several are open, the one whose rank state is the furthest: `accepted`
    /// before `sent`, `sent` before `waiting`. `None`: no action is open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub action: Option<ActionName>,
    /// `true` if `action` is an after-action, such as an epilog.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub after: bool,
    /// `true` if on each of the nodes a script is past its limit, or has left processes behind.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stuck: bool,
    /// `true` if the nodes are drained, and `state` is not `drained`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub drained: bool,
    /// `true` if a job or an action holds a rank on each of the nodes, and `state` is not `held`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub held: bool,
    pub count: u64,
    /// Hosts in the order of their names; `n2` comes before `n10`.
    pub hosts: HostList,
}

/// Hosts that are drained for the same reason.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DrainGroup {
    pub reason: String,
    /// Age of the group's oldest drain.
    pub age_ms: u64,
    pub count: u64,
    pub hosts: HostList,
}

/// A row of `perilog ps`, with at most [`MAX_HOSTS`] hosts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OpenRow {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<JobId>,
    pub attempt: Attempt,
    pub action: ActionName,
    /// The state of the work: a word of [`crate::controller::interface::view::PsRow::state`], such as `overdue`.
    pub state: String,
    /// `true` if the work does not end by itself, as far as the controller knows.
    pub stuck: bool,
    pub why: String,
    pub age_ms: u64,
    pub count: u64,
    pub hosts: HostList,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub resources: Vec<ResourceName>,
}

/// The verdict of an action.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct VerdictRow {
    pub job: JobId,
    pub attempt: Attempt,
    pub action: ActionName,
    pub verdict: Verdict,
    pub age_ms: u64,
    pub elapsed_ms: u64,
    /// Number of the action's ranks.
    pub count: u64,
    /// Number of ranks that failed. With the verdict `ok`, the job's tolerance forgave the failures.
    pub bad: u64,
    /// The fault that the most failed ranks share; `None`: nothing failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault: Option<Fault>,
}

/// Ranks that failed with the same result, script and last line; or one named resource, with `count` 0.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Fault {
    pub result: String,
    /// The script to blame; `None`: there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub script: Option<String>,
    /// The last line of output of the script to blame. If there is no script to blame, the last line of output of the
    /// last failed script whose output was kept. `None`: no such line was kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<String>,
    pub count: u64,
    pub hosts: HostList,
}

/// A job over time: its attempts, and the actions of each attempt.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Timeline {
    pub job: JobId,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub userid: Option<u32>,
    /// The newest attempts of the job, at most [`MAX_ATTEMPTS`], oldest first.
    pub attempts: Vec<AttemptLine>,
    pub attempts_left_out: u64,
}

/// An attempt in a timeline.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AttemptLine {
    pub attempt: Attempt,
    pub open: bool,
    /// Number of the attempt's ranks.
    pub count: u64,
    /// Number of ranks that the job itself holds.
    pub held: u64,
    /// Number of released ranks.
    pub released: u64,
    pub hosts: HostList,
    /// The reason why recovery makes the attempt wait, with the command to type; `None` if the attempt does not wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub milestones: Vec<MilestoneName>,
    /// The newest actions of the attempt, at most [`MAX_ACTIONS`], in the order in which they began.
    pub actions: Vec<ActionLine>,
    pub actions_left_out: u64,
}

/// An action in a timeline.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ActionLine {
    pub action: ActionName,
    pub after: bool,
    /// `true` for an external action.
    pub external: bool,
    pub began_age_ms: u64,
    /// Age of the verdict; `None`: the action has no verdict.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_age_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verdict: Option<Verdict>,
    pub count: u64,
    pub ok: u64,
    pub bad: u64,
    pub open: Vec<OpenRow>,
    pub open_left_out: u64,
    pub faults: Vec<Fault>,
    pub faults_left_out: u64,
}
