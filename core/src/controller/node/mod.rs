//! Nodes: the session that speaks for a host, and how the tasks in its Hello differ from the store.

pub(in crate::controller) mod configured;
mod dismantled;
pub(in crate::controller) mod duplicate_session;
mod forget;
mod hello;
mod leave;
mod reconcile;
pub(in crate::controller) mod session;

use std::collections::{BTreeMap, BTreeSet};

use crate::controller::io::{NodeRow, SessionId};
use crate::controller::machine::Machine;
use crate::controller::recovery::Unsettled;
use crate::ids::{ActionName, BootId, TaskId};
use crate::message::Phase;

/// Number of failed tasks that the machine remembers of each node, for `why`.
pub(in crate::controller) const FAILED_KEPT: usize = 8;

/// A node with which the controller has had a session.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::controller) struct Node {
    pub(in crate::controller) row: NodeRow,
    pub(in crate::controller) session: Option<SessionId>,
    /// Counter of the last session. Messages from earlier sessions of the same boot do not count, even after the last
    /// session ended.
    pub(in crate::controller) link: Option<u64>,
    /// Address of the last session, without its port.
    pub(in crate::controller) address: String,
    /// Configured actions, from its last session; `None`: never reported.
    pub(in crate::controller) actions: Option<BTreeSet<ActionName>>,
    /// Boots of this machine before the one in `row`, the newest last.
    pub(in crate::controller) over: Vec<BootId>,
    /// CLOCK_MONOTONIC of the last change between session and no session.
    pub(in crate::controller) since_ms: u64,
    /// The node's tasks in actions without a verdict.
    pub(in crate::controller) tasks: BTreeSet<TaskId>,
    /// Reported phases of live tasks, and when each began (monotonic).
    pub(in crate::controller) live: BTreeMap<TaskId, (Phase, u64)>,
    /// The last few tasks that ended badly, oldest first.
    pub(in crate::controller) failed: Vec<TaskId>,
    pub(in crate::controller) note: Option<String>,
    /// The unfinished part of the node's last Hello, and the node's orphans.
    pub(in crate::controller) unsettled: Unsettled,
}

impl Node {
    pub(in crate::controller) fn new(row: NodeRow, since_ms: u64) -> Self {
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

impl Machine {
    pub(in crate::controller) fn index_failed(&mut self) {
        let mut failed: Vec<(u64, TaskId)> = Vec::new();
        for action in self.jobs.actions.values() {
            failed.extend(
                action
                    .ended
                    .values()
                    .filter(|row| !row.ended.outcome.is_ok())
                    .map(|row| (row.ended.ended_ms, row.task)),
            );
        }
        failed.sort_unstable();
        for (_, task) in failed {
            self.remember_failed(task);
        }
    }

    pub(in crate::controller) fn remember_failed(&mut self, task: TaskId) {
        let Some(node) = self.jobs.host_of(task).and_then(|host| self.nodes.get_mut(&host)) else {
            return;
        };
        // A reboot may have invalidated a tolerable task that is in the list already.
        node.failed.retain(|failed| *failed != task);
        if node.failed.len() >= FAILED_KEPT {
            node.failed.remove(0);
        }
        node.failed.push(task);
    }
}
