//! Replies of the controller's machine to requests.

use crate::controller::io::{DrainRow, OutboxEntry};
use crate::controller::overview::Looked;
use crate::controller::view::{EdgeAttempt, JobView, NodeView, PsRow, RecoveryView, StatusView, WhyView};
use crate::hostlist::HostList;
use crate::ids::{ActionId, Attempt, JobId};
use crate::idset::IdSet;
use crate::job::Part;

#[derive(Debug, Clone, PartialEq)]
pub enum Reply {
    /// The action runs, or has run. A client that follows the job's event log from `events_after` sees every event of
    /// this action.
    Running {
        job: JobId,
        attempt: Attempt,
        id: ActionId,
        ranks: IdSet,
        hosts: HostList,
        attached: bool,
        events_after: u64,
        /// The reason why recovery makes the attempt wait.
        waits: Option<String>,
    },
    /// Number of tasks that the request reached, at once or at the next session of their nodes.
    Reached {
        tasks: u64,
    },
    /// Number of settled tasks; `waiting` counts tasks whose resolution waits for the drain of their node.
    Resolved {
        tasks: u64,
        waiting: u64,
    },
    /// The controller is quiesced; counts of the actions and tasks that are still open.
    Quiet {
        actions: u64,
        tasks: u64,
    },
    /// The controller is not quiesced. `was_quiet`: the controller was quiesced until this request.
    Resumed {
        was_quiet: bool,
    },
    Ps {
        rows: Vec<PsRow>,
        /// Notes for the operator about the whole list.
        notes: Vec<String>,
    },
    /// The reply to a report. `ended`: ended with this report. `late`: had ended before with another outcome. `open`:
    /// has not ended. `cancelling`: the service should stop.
    Reported {
        ended: Part,
        late: Part,
        open: Part,
        cancelling: Part,
    },
    Show(Box<JobView>),
    Nodes(Vec<NodeView>),
    Why(Box<WhyView>),
    /// The controller sent the question to these hosts; the other hosts are not connected.
    Asked {
        question: u64,
        asked: HostList,
        unreachable: HostList,
    },
    Status(Box<StatusView>),
    Looked(Looked),
    Outbox(Vec<OutboxEntry>),
    Added {
        job: JobId,
        attempt: Attempt,
        hosts: HostList,
        /// `true` if the attempt existed exactly as requested.
        attached: bool,
        /// `true` if the job no longer holds anything of the attempt.
        over: bool,
    },
    /// The part that the job has just handed over.
    Finished(Part),
    /// The failed part of a job. Each of `resources` is `{resource, action, outcome, result, message, checks}`. Each of
    /// `checks`, which concern ranks, is `{check, message, ranks, hosts}`.
    Failed {
        ranks: IdSet,
        hosts: HostList,
        resources: Vec<serde_json::Value>,
        checks: Vec<serde_json::Value>,
    },
    /// Ranks that newly reached the milestone; `reached`: the whole job has reached it.
    Said {
        ranks: IdSet,
        reached: bool,
    },
    Drains(Vec<DrainRow>),
    Attempts(Vec<EdgeAttempt>),
    TookOver {
        epoch: u64,
    },
    Asserted(Asserted),
    Recovery(Box<RecoveryView>),
    Done,
}

/// The result of an [`Assert`](crate::controller::request::Assert).
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Asserted {
    /// Number of listed attempts that the store knew. The assertion vouches for them.
    pub vouched: u64,
    pub added: u64,
    /// Attempts of this source that the store knows and the list lacks: their jobs are over.
    pub over: Vec<(JobId, Attempt)>,
    /// Listed attempts that contradict the store, each with the reason. The assertion left these attempts unchanged.
    pub refused: Vec<(JobId, Attempt, String)>,
}
