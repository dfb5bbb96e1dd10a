//! Gate: decides how long the attempts of the store are suspended after a start.
//!
//! After a start the gate is shut until every node that the store knows has said Hello, or until [`shut_ms`] have
//! passed. Then every suspended attempt proceeds, except abandoned ones. A request lets its attempt proceed earlier.
//!
//! Only an attempt that is live, or has a pending notice for the release hook, is suspended: a store has weeks of
//! attempts that have ended. Their notices to the resource manager wait for the gate as well ([`Facts::is_kept_back`]).

use std::collections::BTreeSet;

use crate::controller::facts::Facts;
use crate::controller::interface::io::{Effect, NodeRow, OutboxEntry};
use crate::controller::machine::Machine;
use crate::controller::node::session::redial_window_ms;
use crate::controller::state::Action;
use crate::controller::state::Jobs;
use crate::controller::state::attempt::JobAttempt;
use crate::controller::state::change::Change;
use crate::controller::state::context::Context;
use crate::controller::state::recovery::{Gate, Recovery};
use crate::defect;
use crate::ids::{ActionId, Attempt, HostName, JobId, TaskId};
use crate::idset::IdSet;

/// Minimum (ms) of [`shut_ms`], which a small cluster gets, because its redial windows are short.
const SHUT_MS: u64 = 5_000;
/// Number of redial windows after which the gate opens in any case ([`shut_ms`]). Each agent dials once in a window, so
/// every agent has dialled by then, with some windows to spare.
const SHUT_WINDOWS: u64 = 3;

/// Returns the time (ms) after a start of the controller at which the gate opens even if nodes are missing. `nodes`:
/// the number of nodes in the store. `redial_per_second`: the number of agents that may redial in a second.
pub(super) fn shut_ms(nodes: usize, redial_per_second: u64) -> u64 {
    redial_window_ms(nodes as u64, redial_per_second).saturating_mul(SHUT_WINDOWS).max(SHUT_MS)
}

impl Recovery {
    /// Records that a node has said Hello. If no other node is missing, the gate is now due to open
    /// ([`Machine::open_gate_if_due`]).
    pub(crate) fn on_hello(&mut self, host: &HostName) {
        if let Some(gate) = &mut self.gate {
            gate.missing.remove(host);
        }
    }
}

impl Jobs {
    /// Suspends every attempt of the store that has pending work, at a start of the controller.
    pub(crate) fn suspend_live(&mut self, cx: &Context) {
        let has_pending = |job: &JobId, number, attempt: &JobAttempt| {
            if defect!(OverIsSuspended) {
                return true;
            }
            self.table.is_live(attempt) || cx.outbox.is_hooked(job, number)
        };
        let all = self.all_attempts().filter(|(job, number, attempt)| has_pending(job, *number, attempt));
        let all: Vec<(JobId, Attempt)> = all.map(|(job, number, _)| (job.clone(), number)).collect();
        for (job, number) in all {
            self.attempt_mut(&job, number).into_iter().for_each(|attempt| attempt.suspended = true);
        }
    }

    /// Lets a suspended attempt proceed: its waiting tasks may begin, its limits and leases count from now, and its
    /// ranks without a hold are released.
    pub(super) fn proceed(&mut self, job: &JobId, number: Attempt, cx: &mut Context) {
        let Some(attempt) = self.attempt_mut(job, number) else { return };
        attempt.suspended = false;
        let actions = attempt.actions.clone();
        let mut left = attempt.whole();
        left.subtract(&attempt.released);
        let complete = attempt.complete;
        for id in actions {
            cx.changes.push_back(Change::Proceeds(id));
        }
        if !complete {
            cx.hold_dropped(job, number, &left);
        }
        if cx.outbox.is_hooked(job, number) {
            cx.effects.push(Effect::OutboxGrew);
        }
    }
}

impl Machine {
    /// Shuts the gate at a start of the controller. If the store knows no node, the gate opens at once.
    pub(crate) fn shut_gate(&mut self) {
        let missing: BTreeSet<HostName> = self.nodes.keys().cloned().collect();
        let until_ms = self.cx.now.mono_ms.saturating_add(shut_ms(missing.len(), self.cx.settings.redial_per_second));
        self.recovery.gate = Some(Gate { until_ms, missing });
        self.open_gate_if_due();
    }

    /// Opens the gate if no node is missing or its time is over. Then lets every suspended attempt proceed, except
    /// abandoned ones.
    pub(crate) fn open_gate_if_due(&mut self) {
        let due = |gate: &Gate| {
            if defect!(GateOpen) {
                return true;
            }
            gate.missing.is_empty() || gate.until_ms <= self.cx.now.mono_ms
        };
        if !self.recovery.gate.as_ref().is_some_and(due) {
            return;
        }
        self.recovery.gate = None;
        let waiting = self.jobs.table.live_attempts().filter(|(_, _, attempt)| attempt.suspended && !attempt.abandoned);
        let waiting: Vec<(JobId, Attempt)> = waiting.map(|(job, number, _)| (job.clone(), number)).collect();
        for (job, number) in waiting {
            self.jobs.proceed(&job, number, &mut self.cx);
        }
        if !self.cx.outbox.is_empty() {
            self.cx.effects.push(Effect::OutboxGrew);
        }
    }

    /// Carries on with an action whose attempt proceeds: starts its limits anew, decides about its tasks on each
    /// connected node, and starts the ranks that may begin.
    pub(crate) fn proceed_action(&mut self, id: ActionId) {
        let Some(action) = self.jobs.action(id) else { return };
        if action.row.verdict.is_some() {
            self.cx.touched.insert(id);
            return;
        }
        self.jobs.arm(id, &self.cx);
        self.jobs.arm_boots(id, &self.cx);
        self.jobs.touch(id, &mut self.cx);
        let ranks = action_ranks(self.jobs.action(id));
        let Some(layout) = self.jobs.layout(id).cloned() else { return };
        if !self.jobs.is_external(id) {
            for (rank, host) in layout.pairs(&ranks) {
                let Some(node) = self.nodes.get(host) else { continue };
                let (session, NodeRow { host, machine, boot, boot_number, .. }) = (node.session, node.row.clone());
                let task = TaskId { action: id, rank };
                if !self.jobs.booted(task, boot_number, &machine, &mut self.cx) {
                    self.jobs.undo(task, boot_number, &mut self.cx);
                }
                let Some((session, node)) = session.zip(self.nodes.get_mut(&host)) else { continue };
                if node.unsettled.absent.remove(&task) {
                    self.settle_absent(session, task, boot_number, &boot);
                }
            }
        }
        self.start_ready(id, &ranks, self.cx.now.mono_ms);
    }
}

impl Facts<'_> {
    /// Returns `true` if the resource manager must not get the notice yet: its attempt is suspended, or has ended and
    /// the gate of the start is shut. The store may turn out to be behind, and its notices are then dropped.
    pub(crate) fn is_kept_back(&self, entry: &OutboxEntry) -> bool {
        let attempt = self.jobs.attempt(&entry.job, entry.attempt);
        let is_old = self.recovery.is_settling() && entry.epoch != self.epoch.number;
        let is_old = if defect!(EndedNoticed) { false } else { is_old };
        // An attempt that is not in memory is complete.
        attempt.map_or(is_old, |attempt| attempt.suspended || attempt.complete && is_old)
    }

    /// Returns `true` if the task's node reported, while the attempt was suspended, that the node does not hold the
    /// task. The controller decides about such a task when the attempt proceeds.
    pub(crate) fn is_absent(&self, task: TaskId) -> bool {
        let node = self.nodes.of(&self.jobs, task);
        node.is_some_and(|node| node.unsettled.absent.contains(&task))
    }
}

fn action_ranks(action: Option<&Action>) -> IdSet {
    action.map(|action| action.row.ranks.clone()).unwrap_or_default()
}
