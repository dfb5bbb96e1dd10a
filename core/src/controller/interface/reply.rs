//! Replies of the controller's machine to requests.

use serde::Serialize;

use crate::controller::interface::io::{DrainRow, OutboxEntry};
use crate::controller::interface::overview::OverviewReply;
use crate::controller::interface::view::{
    DrainView, EdgeAttempt, JobView, NodeView, PsRow, RecoveryView, StatusView, WhyView,
};
use crate::hostlist::HostList;
use crate::ids::{ActionId, Attempt, HostName, JobId};
use crate::idset::IdSet;
use crate::job::Part;

/// Reply of the controller to an accepted request.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub enum Reply {
    /// The action exists: it waits, runs or has ended. `attached`: the action existed before the request.
    /// `events_after`: a client that follows the job's event log after this sequence number sees every event of the
    /// action.
    Running {
        job: JobId,
        attempt: Attempt,
        id: ActionId,
        ranks: IdSet,
        hosts: HostList,
        attached: bool,
        events_after: u64,
        /// The reason why recovery makes the attempt wait; `None` if the attempt does not wait.
        waits: Option<String>,
    },
    /// Number of tasks that the request reached, at once or at the next session of their nodes. For a request about
    /// hosts, attempts or releases, `tasks` is the number of those instead.
    Reached {
        tasks: u64,
    },
    /// Number of hosts that the request drained (`tasks`), and the hosts that were drained before: their drains got the
    /// reason as a later one.
    Drained {
        tasks: u64,
        already: HostList,
    },
    /// Number of hosts whose drains the request lifted (`tasks`), the hosts without a drain (`already`), and the hosts
    /// whose drains were lifted before and whose lifts the drain hook has not carried out (`lifting`).
    Undrained {
        tasks: u64,
        already: HostList,
        lifting: HostList,
    },
    /// `tasks`: number of resolved tasks and named resources. `waiting`: number of tasks among them whose resolution
    /// waits for the drain of the node.
    Resolved {
        tasks: u64,
        waiting: u64,
    },
    /// The controller is quiesced. `actions` and `tasks`: the numbers of open actions and open tasks.
    Quiet {
        actions: u64,
        tasks: u64,
    },
    /// The controller is not quiesced. `was_quiet`: the request ended the quiesced state.
    Resumed {
        was_quiet: bool,
    },
    Ps {
        rows: Vec<PsRow>,
        /// Notes for the operator about the whole controller, such as a recovery or a full disk.
        notes: Vec<String>,
    },
    /// The reply to a report on an external action. `ended`: the part that the report ended. `late`: the part that had
    /// ended before with another outcome. `open`: the part still to be reported. `cancelling`: the open part on which
    /// the service should stop work.
    Reported {
        ended: Part,
        late: Part,
        open: Part,
        cancelling: Part,
    },
    Show(Box<JobView>),
    /// A page of nodes. `next`: the host after which the next page begins; `None`: this is the last page.
    Nodes {
        nodes: Vec<NodeView>,
        next: Option<HostName>,
    },
    Why(Box<WhyView>),
    /// The controller sent the question to the hosts in `asked`; the hosts in `unreachable` are not connected.
    /// `question`: the number that the answers bear.
    Asked {
        question: u64,
        asked: HostList,
        unreachable: HostList,
    },
    Status(Box<StatusView>),
    Overview(OverviewReply),
    Outbox(Vec<OutboxEntry>),
    Added {
        job: JobId,
        attempt: Attempt,
        hosts: HostList,
        /// `true` if the attempt existed before the request. `false` also if the request turned a bare run into a job
        /// of the resource manager.
        attached: bool,
        /// `true` if the job no longer holds any rank or resource of the attempt.
        over: bool,
        /// The hosts of the attempt whose agents have never connected to this controller.
        unknown: HostList,
        /// The known hosts that are most likely meant by `unknown`, such as `n0` by `n0.cluster`.
        meant: HostList,
    },
    /// The ranks and named resources that the request handed over to the after-actions.
    Finished(Part),
    /// The failed ranks and resources of a job. An entry of `resources` is `{resource, action, outcome, result,
    /// message, checks}`. An entry of `checks` is about ranks: `{check, message, ranks, hosts}`.
    Failed {
        ranks: IdSet,
        hosts: HostList,
        resources: Vec<serde_json::Value>,
        checks: Vec<serde_json::Value>,
    },
    /// Reply to a milestone that an operator reports. `ranks`: the ranks that had not reported the milestone before.
    /// `reached`: the job has reached the milestone.
    MilestoneReached {
        ranks: IdSet,
        reached: bool,
    },
    /// A page of drains; hosts with equal drains share a row, and the rows are in the order of their first hosts'
    /// names. `next`: the host after which the next page begins; `None`: this is the last page. `revision`: number of
    /// the list, which each change of a drain raises.
    Drains {
        drains: Vec<DrainView>,
        next: Option<HostName>,
        revision: u64,
    },
    PendingDrains(Vec<DrainRow>),
    Attempts(Vec<EdgeAttempt>),
    TakenOver {
        epoch: u64,
    },
    Synced(Synced),
    Recovery(Box<RecoveryView>),
    Done,
}

/// The result of a page of a list ([`SyncPage`](crate::controller::interface::request::SyncPage)).
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Synced {
    /// The number of the list, which the list's next page names.
    pub sync: u64,
    /// Number of listed attempts that the store had before. The list takes each up.
    pub known: u64,
    /// Number of listed attempts that the store lacked, and that were added.
    pub added: u64,
    /// After the last page, the unreleased attempts of this source that the store has and the list lacks.
    /// Each is over now, because its resource manager no longer lists it.
    pub over: Vec<(JobId, Attempt)>,
    /// Listed attempts that contradict the store, or that are unfit, each with the reason. The store's attempts stay
    /// unchanged.
    pub refused: Vec<(JobId, Attempt, String)>,
}
