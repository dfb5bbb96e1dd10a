//! Nodes: the session that speaks for a host, and how the tasks in its Hello differ from the store.

pub(crate) mod configured;
mod dismantled;
pub(crate) mod duplicate_session;
mod forget;
mod hello;
mod known;
mod leave;
mod reconcile;
pub(crate) mod session;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Deref, DerefMut};

use crate::agent::io::Level;
use crate::controller::action::Action;
use crate::controller::context::Context;
use crate::controller::io::{NodeRow, SessionId};
use crate::controller::job::Jobs;
use crate::controller::node::session::Session;
use crate::controller::recovery::Unsettled;
use crate::ids::{ActionId, ActionName, BootId, HostName, TaskId};
use crate::idset::IdSet;
use crate::message::{MAX_TASKS, Phase};

/// Number of failed tasks that the machine remembers of each node, for `why`.
pub(crate) const FAILED_KEPT: usize = 8;

/// A node with which the controller has had a session.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Node {
    pub(crate) row: NodeRow,
    pub(crate) session: Option<SessionId>,
    /// Counter of the last session. Messages from earlier sessions of the same boot do not count, even after the last
    /// session ended.
    pub(crate) link: Option<u64>,
    /// Address of the last session, without its port.
    pub(crate) address: String,
    /// Configured actions, from its last session; `None`: never reported.
    pub(crate) actions: Option<BTreeSet<ActionName>>,
    /// Boots of this machine before the one in `row`, the newest last.
    pub(crate) over: Vec<BootId>,
    /// CLOCK_MONOTONIC of the last change between session and no session.
    pub(crate) since_ms: u64,
    /// The node's tasks in actions without a verdict.
    pub(crate) tasks: BTreeSet<TaskId>,
    /// Reported phases of live tasks, and when each began (monotonic).
    pub(crate) live: BTreeMap<TaskId, (Phase, u64)>,
    /// The last few tasks that ended badly, oldest first.
    pub(crate) failed: Vec<TaskId>,
    pub(crate) note: Option<String>,
    /// The unfinished part of the node's last Hello, and the node's orphans.
    pub(crate) unsettled: Unsettled,
}

impl Node {
    pub(crate) fn new(row: NodeRow, since_ms: u64) -> Self {
        Self {
            row,
            session: None,
            link: None,
            address: String::new(),
            actions: None,
            over: Vec::new(),
            since_ms,
            tasks: BTreeSet::new(),
            live: BTreeMap::new(),
            failed: Vec::new(),
            note: None,
            unsettled: Unsettled::default(),
        }
    }
}

/// The nodes by host, and the sessions of their agents.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Nodes {
    by_host: BTreeMap<HostName, Node>,
    pub(crate) sessions: BTreeMap<SessionId, Session>,
    /// Sessions that wait for an older session to answer a probe.
    pub(crate) probing: BTreeSet<SessionId>,
    probe_last: u64,
    /// Open questions of clients, with the hosts that have not answered.
    pub(crate) questions: BTreeMap<u64, BTreeSet<HostName>>,
    pub(crate) question_last: u64,
    pub(crate) orphan_hosts: BTreeSet<HostName>,
}

impl Deref for Nodes {
    type Target = BTreeMap<HostName, Node>;

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
    /// Records that the node has an unclaimed task that must not begin yet.
    pub(crate) fn leave_unclaimed(&mut self, jobs: &Jobs, task: TaskId) {
        if let Some(node) = self.of_mut(jobs, task) {
            node.unsettled.unclaimed.insert(task);
        }
    }

    /// Records that the node does not hold the task of a frozen attempt.
    pub(crate) fn leave_absent(&mut self, jobs: &Jobs, task: TaskId) {
        if let Some(node) = self.of_mut(jobs, task) {
            node.unsettled.absent.insert(task);
        }
    }

    /// Returns the node of a task's rank.
    pub(crate) fn of(&self, jobs: &Jobs, task: TaskId) -> Option<&Node> {
        self.get(&jobs.host_of(task)?)
    }

    pub(crate) fn of_mut(&mut self, jobs: &Jobs, task: TaskId) -> Option<&mut Node> {
        self.get_mut(&jobs.host_of(task)?)
    }

    /// Adds `ranks` of an action to the task index of their nodes.
    pub(crate) fn index(&mut self, jobs: &Jobs, id: ActionId, ranks: &IdSet) {
        let Some(layout) = jobs.layout(id) else { return };
        for (rank, host) in layout.pairs(ranks) {
            if let Some(node) = self.get_mut(host) {
                node.tasks.insert(TaskId { action: id, rank });
            }
        }
    }

    /// Removes a decided action from the task index: a reboot after the verdict changes no task.
    pub(crate) fn unindex(&mut self, jobs: &Jobs, action: &Action) {
        let Some(attempt) = jobs.attempt_of(action) else { return };
        for (rank, host) in attempt.layout.pairs(&action.row.ranks) {
            if let Some(node) = self.get_mut(host) {
                node.tasks.remove(&action.task(rank));
            }
        }
    }

    /// Collects the last tasks of each node that ended badly, after a start.
    pub(crate) fn index_failed(&mut self, jobs: &Jobs) {
        let ended = jobs.actions.values().flat_map(|action| action.ended.values());
        let failed = ended.filter(|row| !row.ended.outcome.is_ok()).map(|row| (row.ended.ended_ms, row.task));
        let mut failed: Vec<(u64, TaskId)> = failed.collect();
        failed.sort_unstable();
        for (_, task) in failed {
            self.remember_failed(jobs, task);
        }
    }

    pub(crate) fn remember_failed(&mut self, jobs: &Jobs, task: TaskId) {
        let Some(node) = self.of_mut(jobs, task) else { return };
        // A reboot may have invalidated a tolerable task that is in the list already.
        node.failed.retain(|failed| *failed != task);
        if node.failed.len() >= FAILED_KEPT {
            node.failed.remove(0);
        }
        node.failed.push(task);
    }

    /// Returns `true` if the store knows the task, with its rank on `host`. The node's note shows any other claim.
    pub(crate) fn speaks_for(&mut self, host: &HostName, task: TaskId, jobs: &Jobs, cx: &mut Context) -> bool {
        jobs.host_of(task).is_some() && !self.is_anothers(host, task, jobs, cx)
    }

    /// Returns `true` if the task belongs to another host. The controller then ignores the report and shows it in the
    /// node's note; the session stays open. Closing the session would be wrong: after a reused job number or a lost
    /// store, an attempt may return on other hosts. Its first hosts would be locked out for ever.
    pub(crate) fn is_anothers(&mut self, host: &HostName, task: TaskId, jobs: &Jobs, cx: &mut Context) -> bool {
        let external = jobs.is_external(task.action);
        let Some(of) = jobs.host_of(task).filter(|of| of != host || external) else { return false };
        let whose = if external { "run by a service outside".to_owned() } else { format!("of {of}") };
        let text = format!("spoke for task {task}, which is {whose}");
        let news = |node: &&mut Node| node.note.as_ref() != Some(&text);
        if let Some(node) = self.get_mut(host).filter(news) {
            node.note = Some(text.clone());
            cx.note_of_node(Level::Error, host, text);
        }
        true
    }

    /// Records the phase that a node reported for its task. A task's limit counts from the begin of its scripts.
    pub(crate) fn remember_phase(
        &mut self,
        jobs: &mut Jobs,
        host: &HostName,
        task: TaskId,
        phase: Phase,
        since_ms: u64,
    ) {
        let Some(node) = self.get_mut(host) else { return };
        let told = node.live.get(&task).map(|(phase, _)| phase);
        let begins = matches!(told, None | Some(Phase::Waiting { .. } | Phase::Starting));
        if begins && matches!(phase, Phase::Running { .. }) {
            jobs.begins(task, since_ms);
        }
        if node.live.len() < MAX_TASKS || node.live.contains_key(&task) {
            node.live.insert(task, (phase, since_ms));
        }
    }
}
