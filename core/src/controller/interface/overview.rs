//! The controller's state as a page for people shows it: folded and bounded, so that it stays small at ten thousand
//! nodes. Times of the past are ages in milliseconds, because a reader's clock may differ from the controller's.
//!
//! | view | of | bound |
//! |---|---|---|
//! | [`Overview`] | the cluster | [`MAX_NODES`] nodes by name, [`MAX_ROWS`] rows of each list |
//! | [`Timeline`] | a job | [`MAX_ATTEMPTS`] attempts, [`MAX_ACTIONS`] actions of each |
//! | [`WhyView`] | a node | [`MAX_ROWS`] tasks and holds; no output of scripts |
//!
//! A list that was cut says how much it left out.

use serde::{Deserialize, Serialize};

use crate::controller::view::{StatusView, WhyView};
use crate::hostlist::HostList;
use crate::ids::{ActionName, Attempt, HostName, JobId, MilestoneName, ResourceName};
use crate::outcome::Verdict;

/// Most nodes that an overview names; it counts all.
pub const MAX_NODES: usize = 1 << 15;
/// Most rows of a list.
pub const MAX_ROWS: usize = 100;
/// Most verdicts of an overview.
pub const MAX_VERDICTS: usize = 25;
/// Most attempts of a timeline, the newest; and most actions of each, the newest.
pub const MAX_ATTEMPTS: usize = 8;
pub const MAX_ACTIONS: usize = 32;
/// Most hosts that a row names; it counts all.
pub const MAX_HOSTS: usize = 64;
/// Most reasons of an action in a timeline.
pub const MAX_FAULTS: usize = 16;
/// Most characters of a reason.
pub const MAX_TEXT: usize = 500;

/// The questions of the controller's web page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Look {
    Cluster,
    Job(JobId),
    Node(HostName),
}

/// The answer to a [`Look`]; as JSON it is the view alone.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Looked {
    Cluster(Box<Overview>),
    Job(Box<Timeline>),
    Node(Box<WhyView>),
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Overview {
    pub status: StatusView,
    /// All nodes, by what they do.
    pub groups: Vec<NodeGroup>,
    /// Nodes that the groups count and do not name.
    pub nodes_left_out: u64,
    /// Drains that stand, by reason; the oldest first.
    pub drains: Vec<DrainGroup>,
    pub drains_left_out: u64,
    /// Rows of `perilog ps`: the stuck ones first, then the oldest.
    pub open: Vec<OpenRow>,
    pub open_left_out: u64,
    /// The last verdicts, the newest first.
    pub verdicts: Vec<VerdictRow>,
}

/// Nodes that do the same.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NodeGroup {
    /// The first of these that is true: `offline`, `drained`, `busy` (an action has not ended there), `held` (a job or
    /// an action holds it), `free`.
    pub state: String,
    /// The action that has not ended there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub action: Option<ActionName>,
    /// The action is an after-action, such as an epilog.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub after: bool,
    /// A script is past its limit there, or has left processes behind.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stuck: bool,
    /// Beside `state`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub drained: bool,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub held: bool,
    pub count: u64,
    /// In the order of their names, numbers by value.
    pub hosts: HostList,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DrainGroup {
    pub reason: String,
    /// The age of the oldest.
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
    /// As in [`crate::controller::view::PsRow`].
    pub state: String,
    /// Time alone will not end it, as far as the controller knows.
    pub stuck: bool,
    pub why: String,
    pub age_ms: u64,
    pub count: u64,
    pub hosts: HostList,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub resources: Vec<ResourceName>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct VerdictRow {
    pub job: JobId,
    pub attempt: Attempt,
    pub action: ActionName,
    pub verdict: Verdict,
    pub age_ms: u64,
    pub elapsed_ms: u64,
    /// Ranks of the action.
    pub count: u64,
    /// Ranks that failed; with the verdict `ok`, within the tolerance of the job.
    pub bad: u64,
    /// Why: the reason of the most ranks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault: Option<Fault>,
}

/// Ranks that failed alike.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Fault {
    pub result: String,
    /// The script to blame, and its last line of output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub script: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<String>,
    pub count: u64,
    pub hosts: HostList,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Timeline {
    pub job: JobId,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub userid: Option<u32>,
    /// The oldest first.
    pub attempts: Vec<AttemptLine>,
    pub attempts_left_out: u64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AttemptLine {
    pub attempt: Attempt,
    pub open: bool,
    /// Ranks of the attempt; those that the job still holds; those that were given back.
    pub count: u64,
    pub held: u64,
    pub released: u64,
    pub hosts: HostList,
    /// Why recovery keeps it waiting, and what to type.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub milestones: Vec<MilestoneName>,
    /// In the order of their begins.
    pub actions: Vec<ActionLine>,
    pub actions_left_out: u64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ActionLine {
    pub action: ActionName,
    pub after: bool,
    /// A service outside runs it.
    pub external: bool,
    pub began_age_ms: u64,
    /// `None`: it has not ended.
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
