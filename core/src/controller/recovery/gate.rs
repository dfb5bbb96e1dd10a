//! Gate: decides when the controller freezes attempts and when it thaws them.
//!
//! After a start the gate is shut until every node that the store knows has said Hello, or until [`shut_ms`] have
//! passed. Then all attempts thaw, except the unvouched attempts of a recovery. A request thaws its attempt earlier.

use std::collections::BTreeSet;

use serde_json::json;

use crate::controller::action::Action;
use crate::controller::context::{Change, Context};
use crate::controller::facts::Facts;
use crate::controller::io::{Effect, NodeRow};
use crate::controller::job::Jobs;
use crate::controller::machine::Machine;
use crate::controller::node::session::redial_window_ms;
use crate::defect;
use crate::ids::{ActionId, Attempt, HostName, JobId, TaskId};
use crate::idset::IdSet;

use super::{Gate, Recovery};

/// Minimum (ms) of [`shut_ms`], which a small cluster gets, because its redial windows are short.
const SHUT_MS: u64 = 5_000;
/// Number of redial windows after which the gate opens in any case ([`shut_ms`]). Each agent dials once in a window, so
/// every agent has dialled by then, with some windows to spare.
const SHUT_WINDOWS: u64 = 3;
/// Reason for which a setup task of a restored store never begins: no request named its action again before the job was
/// over.
pub(crate) const NOT_ASKED_AGAIN: &str =
    "the store was put back, and nobody asked for this again before the job was over";

/// Returns the time (ms) after a start of the controller at which the gate opens even if nodes are missing. `nodes`:
/// the number of nodes in the store. `redial_per_second`: the number of agents that may redial in a second.
pub(super) fn shut_ms(nodes: usize, redial_per_second: u64) -> u64 {
    redial_window_ms(nodes as u64, redial_per_second).saturating_mul(SHUT_WINDOWS).max(SHUT_MS)
}

impl Recovery {
    /// Returns the time (monotonic) at which the gate opens even if nodes are missing; `None` if the gate is open.
    pub(crate) fn next_gate(&self) -> Option<u64> {
        self.gate.as_ref().map(|gate| gate.until_ms)
    }

    /// Records that a node has said Hello. If no other node is missing, the gate is now due to open
    /// ([`Machine::open_gate_if_due`]).
    pub(crate) fn heard(&mut self, host: &HostName) {
        if let Some(gate) = &mut self.gate {
            gate.missing.remove(host);
        }
    }
}

impl Jobs {
    /// Decides about every attempt when a recovery begins:
    ///
    /// * An attempt that is released whole, without a notice that waits for the release hook: drops the attempt's
    ///   notices to the resource manager, because a lost life may have sent them. A resource manager that still waits
    ///   for a release asks for it again.
    /// * A spent attempt (an open bare run whose actions have all ended), without a notice that waits for the release
    ///   hook: disowns all its ranks.
    /// * Any other attempt: freezes it and marks it as unvouched. Unless it was unvouched before, logs the event
    ///   `attempt-unvouched`, so that clients that follow the job send their requests again.
    pub(super) fn freeze_all(&mut self, why: &str, cx: &mut Context) {
        let (mut owing, mut released, mut spent) = (Vec::new(), BTreeSet::new(), Vec::new());
        let unread: BTreeSet<(&JobId, Attempt)> =
            cx.outbox.manager(0).map(|entry| (&entry.job, entry.attempt)).collect();
        for (job, entry) in self.iter() {
            for (number, attempt) in &entry.attempts {
                let hooked = cx.outbox.is_hooked(job, *number);
                if hooked || !(attempt.complete || self.is_spent(attempt)) {
                    owing.push((job.clone(), *number));
                } else if attempt.complete && unread.contains(&(job, *number)) {
                    released.insert((job.clone(), *number));
                } else if !attempt.complete {
                    spent.push((job.clone(), *number, attempt.layout.ranks().clone()));
                }
            }
        }
        for (job, number) in released {
            cx.drop_notices(&job, number);
        }
        // No edge vouches for a bare `run`, and the resource manager may have given its hosts to other jobs.
        for (job, number, ranks) in spent.into_iter().filter(|_| !defect!(SpentStaysOwner)) {
            self.disown(&job, number, &ranks, cx);
        }
        for (job, number) in owing.into_iter().filter(|_| !defect!(NothingFrozen)) {
            let Some(attempt) = self.attempt_mut(&job, number) else { continue };
            let is_new = !std::mem::replace(&mut attempt.unvouched, true);
            (attempt.asserted, attempt.by_hand) = (false, false);
            let actions = attempt.actions.clone();
            if is_new {
                self.event(&job, "attempt-unvouched", json!({"attempt": number, "why": why}), cx);
            }
            cx.attempts.insert((job, number));
            for id in actions {
                if let Some(action) = self.action_mut(id).filter(|action| action.row.verdict.is_none()) {
                    action.row.unvouched = true;
                    action.changed = true;
                    cx.touched.insert(id);
                }
            }
        }
    }

    /// Asserts an attempt, because an edge, a request or an operator states that the attempt exists and holds its
    /// ranks. The attempt thaws, and is no longer unvouched.
    pub(crate) fn assert_attempt(&mut self, job: &JobId, number: Attempt, cx: &mut Context) {
        let Some(attempt) = self.attempt_mut(job, number).filter(|attempt| !attempt.asserted) else { return };
        if std::mem::replace(&mut attempt.unvouched, false) {
            attempt.recovered = true;
            cx.attempt_changed(job, number);
            self.event(job, "attempt-vouched", json!({"attempt": number}), cx);
        }
        self.thaw(job, number, cx);
    }

    /// Lets the setup action of a recovered attempt go on, because a request names it again.
    pub(crate) fn assert_action(&mut self, id: ActionId, cx: &mut Context) {
        let Some(action) = self.action_mut(id).filter(|action| action.row.unvouched) else { return };
        action.row.unvouched = false;
        action.changed = true;
        cx.changes.push_back(Change::Thawed(id));
    }

    /// Thaws an attempt: its waiting tasks may begin, its limits count from now, and its ranks without a hold are
    /// released.
    fn thaw(&mut self, job: &JobId, number: Attempt, cx: &mut Context) {
        let Some(attempt) = self.attempt_mut(job, number) else { return };
        attempt.asserted = true;
        let actions = attempt.actions.clone();
        let mut left = attempt.whole();
        left.subtract(&attempt.released);
        let complete = attempt.complete;
        for id in actions {
            cx.changes.push_back(Change::Thawed(id));
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
        if !self.recovery.is_on() {
            self.jobs.values_mut().flat_map(|job| job.attempts.values_mut()).for_each(|of| of.unvouched = false);
        }
        self.jobs.cleaning = self.jobs.disowned_attempts();
        self.open_gate_if_due();
    }

    /// Opens the gate if no node is missing or its time is over. Then thaws every frozen attempt that is not unvouched.
    pub(crate) fn open_gate_if_due(&mut self) {
        let due = |gate: &Gate| gate.missing.is_empty() || gate.until_ms <= self.cx.now.mono_ms || defect!(GateOpen);
        if !self.recovery.gate.as_ref().is_some_and(due) {
            return;
        }
        self.recovery.gate = None;
        self.recovery.drop_tombstones(&self.jobs, &mut self.nodes);
        let frozen = self.jobs.attempts().filter(|(_, _, attempt)| !attempt.asserted && !attempt.unvouched);
        let frozen: Vec<(JobId, Attempt)> = frozen.map(|(job, number, _)| (job.clone(), number)).collect();
        for (job, number) in frozen {
            self.jobs.thaw(&job, number, &mut self.cx);
        }
    }

    /// Carries on with an action after its attempt thawed: starts its limits anew, decides about its tasks on each
    /// connected node, and starts the ranks that may begin.
    pub(crate) fn thaw_action(&mut self, id: ActionId) {
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
        self.start_ready(id, &ranks);
    }

    /// Ends the recovery once all of this holds: the gate is open, no list is half, no attempt waits for an operator,
    /// operators have given up every orphan that is left, and no agent refuses this controller's epoch.
    pub(crate) fn leave_recovery(&mut self) {
        let waits = || self.jobs.attempts().any(|(_, _, attempt)| attempt.waits_for_a_word());
        let obeyed_another = self.highest_seen.as_ref().is_some_and(|(_, seen)| !seen.admits(self.epoch));
        if !self.recovery.is_on()
            || (self.recovery.is_settling() && !defect!(LeftUnheard))
            || obeyed_another
            || self.recovery.lists.has_half() && !defect!(RecoveryEndsHalfListed)
            || self.facts().orphans().next().is_some()
            || waits()
        {
            return;
        }
        let Some(row) = &mut self.recovery.row else { return };
        row.ended_ms = Some(self.cx.now.wall_ms);
        let row = row.clone();
        self.cx.records.push(crate::controller::io::Record::Recovery(row));
        self.recovery.judged.clear();
        self.drains.tell_doubted(&mut self.cx);
        self.recovery.drop_tombstones(&self.jobs, &mut self.nodes);
        self.cx.note(
            crate::agent::io::Level::Info,
            None,
            None,
            "the recovery is over: nothing waits for a word any more",
        );
    }
}

impl Facts<'_> {
    /// Returns `true` if the task's node reported, while the attempt was frozen, that the node does not hold the task.
    /// The thaw of the attempt decides about such a task.
    pub(crate) fn is_absent(&self, task: TaskId) -> bool {
        let node = self.nodes.of(&self.jobs, task);
        node.is_some_and(|node| node.unsettled.absent.contains(&task))
    }
}

fn action_ranks(action: Option<&Action>) -> IdSet {
    action.map(|action| action.row.ranks.clone()).unwrap_or_default()
}
