//! Nodes: the known hosts, and for each its tasks and the session of its agent.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::{Deref, DerefMut};

use crate::agent::io::Level;
use crate::controller::interface::io::SessionId;
use crate::controller::state::action::Action;
use crate::controller::state::by_host::ByHost;
use crate::controller::state::context::Context;
use crate::controller::state::jobs::Jobs;
use crate::controller::state::node::Node;
use crate::controller::state::session::Session;
use crate::controller::state::spelling::Spellings;
use crate::ids::{ActionId, HostName, TaskId};
use crate::idset::IdSet;
use crate::message::{MAX_TASKS, Phase};

/// Number of failed tasks that the machine remembers for each node, for `perilog why`.
pub const FAILED_KEPT: usize = 8;

/// All nodes by host, and the sessions of their agents.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Nodes {
    by_host: ByHost,
    pub(crate) spellings: Spellings,
    pub(crate) sessions: HashMap<SessionId, Session>,
    /// Sessions that wait for the result of a liveness probe of their host's older session.
    pub(crate) probing: BTreeSet<SessionId>,
    pub(crate) probe_last: u64,
    /// Open questions of clients to nodes. Key: the number of the question. Value: the hosts whose answer is not
    /// complete.
    pub(crate) questions: BTreeMap<u64, BTreeSet<HostName>>,
    pub(crate) question_last: u64,
    /// Hosts whose node holds unknown tasks, other than tombstones.
    pub(crate) unknown_hosts: BTreeSet<HostName>,
    /// Hosts on which a clean-up may be missing.
    pub(crate) uncleaned_hosts: BTreeSet<HostName>,
    /// Number of agents that the controller can welcome in a second, as the daemon has measured it; 0: not measured.
    pub(crate) measured_per_second: u64,
}

impl Deref for Nodes {
    type Target = ByHost;

    fn deref(&self) -> &Self::Target {
        &self.by_host
    }
}

impl DerefMut for Nodes {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.by_host
    }
}

impl Nodes {
    /// Returns the node of a host. The host becomes known if it is not.
    pub(crate) fn learn(&mut self, host: &HostName, new: impl FnOnce() -> Node) -> &mut Node {
        self.spellings.learn(host);
        self.by_host.get_or_insert_with(host, new)
    }

    /// Removes a host from the known hosts, and returns its node.
    pub(crate) fn unlearn(&mut self, host: &HostName) -> Option<Node> {
        self.spellings.forget(host);
        self.by_host.remove(host)
    }

    /// Records that the node holds the task unclaimed although the task must not begin yet, so that a later Begin can
    /// follow.
    pub(crate) fn leave_unclaimed(&mut self, jobs: &Jobs, task: TaskId) {
        if let Some(node) = self.of_mut(jobs, task) {
            node.unsettled.unclaimed.insert(task);
        }
    }

    /// Records that the node does not hold this task of a suspended attempt. The controller decides about the task when
    /// the attempt proceeds.
    pub(crate) fn leave_absent(&mut self, jobs: &Jobs, task: TaskId) {
        if let Some(node) = self.of_mut(jobs, task) {
            node.unsettled.absent.insert(task);
        }
    }

    /// Returns the node of a task; `None`: the store does not know the task, or its node.
    pub(crate) fn of(&self, jobs: &Jobs, task: TaskId) -> Option<&Node> {
        self.get(jobs.name_of(task)?)
    }

    /// Returns the session of the task's node; `None`: the node is not connected, or the action is external and runs on
    /// no node.
    pub(crate) fn session_of(&self, jobs: &Jobs, task: TaskId) -> Option<SessionId> {
        self.of(jobs, task).filter(|_| !jobs.is_external(task.action))?.session
    }

    pub(crate) fn of_mut(&mut self, jobs: &Jobs, task: TaskId) -> Option<&mut Node> {
        self.get_mut(jobs.name_of(task)?)
    }

    /// Adds `ranks` of an action to the task lists of the ranks' nodes.
    pub(crate) fn index(&mut self, jobs: &Jobs, id: ActionId, ranks: &IdSet) {
        let Some(layout) = jobs.layout(id) else { return };
        for (rank, host) in layout.pairs(ranks) {
            if let Some(node) = self.get_mut(host) {
                node.tasks.insert(TaskId { action: id, rank });
            }
        }
    }

    /// Removes the tasks of an action that has its verdict from the task lists of their nodes. A later reboot no longer
    /// changes how such a task ended.
    pub(crate) fn unindex(&mut self, jobs: &Jobs, action: &Action) {
        let Some(attempt) = jobs.attempt_of(action) else { return };
        for (rank, host) in attempt.layout.pairs(&action.row.ranks) {
            if let Some(node) = self.get_mut(host) {
                node.tasks.remove(&action.task(rank));
            }
        }
    }

    /// Fills the list of failed tasks of each node, after a start of the controller.
    pub(crate) fn index_failed(&mut self, jobs: &Jobs) {
        let ended = jobs.table.all_actions().flat_map(|action| action.ended.values());
        let failed = ended.filter(|row| !row.ended.outcome.is_ok()).map(|row| (row.ended.ended_ms, row.task));
        let mut failed: Vec<(u64, TaskId)> = failed.collect();
        failed.sort_unstable();
        for (_, task) in failed {
            self.remember_failed(jobs, task);
        }
    }

    /// Adds a task to the list of failed tasks of its node.
    pub(crate) fn remember_failed(&mut self, jobs: &Jobs, task: TaskId) {
        let Some(node) = self.of_mut(jobs, task) else { return };
        // The task is in the list already if a reboot has invalidated its `tolerable` end.
        node.failed.retain(|failed| *failed != task);
        if node.failed.len() >= FAILED_KEPT {
            node.failed.remove(0);
        }
        node.failed.push(task);
    }

    /// Returns `true` if `host` may report about the task: the store has the task on `host`, and no service carries it
    /// out. A report of `host` about any other known task goes into the node's note.
    pub(crate) fn speaks_for(&mut self, host: &HostName, task: TaskId, jobs: &Jobs, cx: &mut Context) -> bool {
        jobs.name_of(task).is_some() && !self.is_anothers(host, task, jobs, cx)
    }

    /// Returns `true` if the task is not this host's: the store has the task on another host, or a service carries it
    /// out. The caller must then ignore what `host` reports about the task. Also writes the false report into the
    /// node's note, for operators. The session stays open, because an honest node may do this too: after a lost store
    /// or a reused job number, the attempt can have other hosts.
    pub(crate) fn is_anothers(&mut self, host: &HostName, task: TaskId, jobs: &Jobs, cx: &mut Context) -> bool {
        let external = jobs.is_external(task.action);
        let Some(of) = jobs.name_of(task).filter(|of| *of != host.as_str() || external) else { return false };
        let whose = if external { "a service outside of perilog runs".to_owned() } else { format!("{of} has") };
        let text = format!("this node reported on task {task}, which {whose}: the report was ignored");
        let news = |node: &&mut Node| node.note.as_ref() != Some(&text);
        if let Some(node) = self.get_mut(host).filter(news) {
            node.note = Some(text.clone());
            cx.note_of_node(Level::Error, host, text);
        }
        true
    }

    /// Records the phase of a task, which began at `since_ms` (monotonic). If the task's first script begins with this
    /// phase, the task's time limit counts from `since_ms`.
    pub(crate) fn remember_phase(
        &mut self,
        jobs: &mut Jobs,
        host: &HostName,
        task: TaskId,
        phase: Phase,
        since_ms: u64,
    ) {
        let Some(node) = self.get_mut(host) else { return };
        let reported = node.live.get(&task).map(|(phase, _)| phase);
        let begins = matches!(reported, None | Some(Phase::Waiting { .. } | Phase::Starting));
        if begins && matches!(phase, Phase::Running { .. }) {
            jobs.begins(task, since_ms);
        }
        if node.live.len() < MAX_TASKS || node.live.contains_key(&task) {
            node.live.insert(task, (phase, since_ms));
        }
    }
}
