//! Requests of edges, which list the attempts of their resource manager and follow them.

use serde::{Deserialize, Serialize};

use crate::controller::interface::io::Source;
use crate::controller::parameters::text;
use crate::hostlist::HostList;
use crate::ids::{Attempt, HostName, JobId};
use crate::idset::IdSet;
use crate::job::Terms;

/// Selection of attempts by which an edge asks for the attempts of its source.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttemptsOf {
    pub source: Source,
    /// `Some`: all attempts of the listed jobs, whatever `after` and `limit` are. `None`: the first `limit` attempts
    /// after `after` that are not fully released or are abandoned.
    pub jobs: Option<Vec<JobId>>,
    pub after: Option<(JobId, Attempt)>,
    pub limit: usize,
}

/// A page of the list of all attempts of a source, as its resource manager has them. The controller applies each page
/// when it comes. It concludes from the last page which attempts the list lacks. A repeated list changes nothing.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SyncPage {
    pub source: Source,
    /// The number of the list that the page continues, from the reply to the list's first page; `None`: the page is
    /// the first of a new list.
    pub sync: Option<u64>,
    /// `true` if further pages of the list follow.
    pub continues: bool,
    pub attempts: Vec<Listed>,
    pub unfit: Vec<Unfit>,
    /// Hosts drained in the resource manager, by perilog or by an operator.
    pub drains: Vec<ListedDrain>,
}

/// An attempt in the list of a source.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Listed {
    pub job: JobId,
    pub attempt: Attempt,
    pub userid: Option<u32>,
    /// The ranks that the attempt still holds.
    pub ranks: IdSet,
    /// The host of each rank, in rank order.
    pub hosts: HostList,
    #[serde(flatten)]
    pub terms: Terms,
    pub phase: Phase,
}

/// Phase of a job in the resource manager.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    /// The job waits for its setup actions.
    Preparing,
    Running,
    /// The job is over, as after `job finish`.
    Ended,
}

/// An attempt in the list of a source that the controller cannot take, for example because of its number of hosts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unfit {
    pub job: JobId,
    pub attempt: Attempt,
    pub why: String,
}

/// A host that the resource manager has drained.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ListedDrain {
    pub host: HostName,
    #[serde(deserialize_with = "text")]
    pub reason: String,
}

impl ListedDrain {
    /// Returns `true` if an edge or `perilog hook flux-wait` drained the host for perilog.
    pub fn is_ours(&self) -> bool {
        self.reason.contains("[perilog:")
    }
}
