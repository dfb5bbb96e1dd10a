//! Progress: decides what a report of a node (accepted, phase changed, finished) changes for a task. [`super::end`]
//! gives the task its outcome.

use serde_json::json;

use crate::controller::interface::io::{Effect, SessionId};
use crate::controller::machine::Machine;
use crate::controller::state::RankState;
use crate::controller::state::change::Change;
use crate::defect;
use crate::ids::{HostName, TaskId};
use crate::message::{Phase, ToAgent};
use crate::task::Ended;

impl Machine {
    /// Records a node's report that it has accepted the task; `limit_ms`: the task's time limit on the node. A task
    /// that has ended for the controller otherwise than as `ok` gets a Cancel.
    pub(crate) fn on_accepted(&mut self, id: SessionId, host: &HostName, task: TaskId, limit_ms: Option<u64>) {
        if !self.nodes.speaks_for(host, task, &self.jobs, &mut self.cx) {
            return;
        }
        let Some(action) = self.jobs.action_mut(task.action) else {
            return;
        };
        let state = action.rank_state(task.rank);
        match state {
            RankState::Sent | RankState::Waiting => {
                action.accept(task.rank);
                action.limited(task.rank, limit_ms);
                self.jobs.touch(task.action, &mut self.cx);
            }
            // The task has ended for the controller and must not begin. If its scripts run, the Cancel stops them.
            RankState::NotOk => {
                self.jobs.send_cancel(id, task, "it has ended for the controller", &mut self.cx);
            }
            RankState::Accepted | RankState::Ok | RankState::NotInAction => {}
        }
    }

    /// Records a node's report of a task's new phase, which began `age_ms` ago.
    pub(crate) fn on_phase_changed(&mut self, host: &HostName, task: TaskId, phase: Phase, age_ms: u64) {
        let Some(action) = self.jobs.action_mut(task.action) else {
            return;
        };
        let reported = self.nodes.get(host).and_then(|node| node.live.get(&task));
        let lingered = matches!(reported, Some((Phase::Lingering { .. }, _)));
        match &phase {
            Phase::Overdue { .. } => {
                if let Some(what) = self.jobs.past_its_limit(host, task, &phase, &mut self.cx) {
                    self.on_overdue(task, &what);
                }
            }
            Phase::Lingering { processes } if !lingered && action.may_log(task.rank) => {
                let context = json!({"ranks": task.rank.0.to_string(), "hosts": host, "processes": processes});
                self.jobs.action_event(task.action, "lingering", context, &mut self.cx);
            }
            _ => {}
        }
        self.jobs.mark_alive_after_loss(task, &phase, &mut self.cx);
        self.jobs.watch_lingering(task, &phase, self.cx.now);
        self.nodes.remember_phase(&mut self.jobs, host, task, phase, self.cx.now.mono_ms.saturating_sub(age_ms));
    }

    /// Records the end that a node reports, and acknowledges it. Does not acknowledge the end of an unknown task,
    /// unless an operator gave the task up.
    pub(crate) fn on_finished(&mut self, id: SessionId, host: &HostName, task: TaskId, ended: Ended) {
        let ack = Effect::Send { session: id, message: ToAgent::Ack { task, commit: 0 } };
        let unknown = self.nodes.get(host).and_then(|node| node.unsettled.unknown.get(&task));
        let is_unknown = unknown.is_some_and(|of| !of.is_tombstone());
        let Some(action) = self.jobs.action(task.action).filter(|_| !is_unknown) else {
            // The task is unknown, or its attempt was forgotten.
            if self.nodes.unknown_ended(host, task, &mut self.cx) {
                self.cx.effects.push(ack);
                if is_unknown {
                    // Else the tombstone would show a clean-up that may be missing.
                    self.cx.send(id, ToAgent::Forget { tasks: vec![task] });
                }
            }
            return;
        };
        let state = action.rank_state(task.rank);
        // The scripts have run, but a resolution may become the outcome: then their own result is recorded as late.
        let by_operator = action.resolving(task.rank).is_some() && !ended.steps.is_empty();
        if state != RankState::NotInAction && self.nodes.is_anothers(host, task, &self.jobs, &mut self.cx) {
            self.cx.effects.push(ack);
            return;
        }
        match state {
            RankState::Waiting | RankState::Sent | RankState::Accepted => {
                let own = by_operator.then(|| ended.clone());
                self.end_reported(task, ended);
                let is_open = self.jobs.action(task.action).is_none_or(|action| action.is_open_on(task.rank));
                if let Some(own) = own.filter(|_| !is_open) {
                    self.jobs.on_late(host, task, own, &mut self.cx);
                }
            }
            RankState::Ok | RankState::NotOk if defect!(LateOverwrites) => {
                self.jobs.end_task(task, ended, &mut self.cx)
            }
            RankState::Ok | RankState::NotOk => {
                if let Some(node) = self.nodes.get_mut(host) {
                    node.live.remove(&task);
                }
                self.jobs.on_late(host, task, ended, &mut self.cx);
            }
            RankState::NotInAction => {}
        }
        self.cx.effects.push(ack);
        self.cx.changes.push_back(Change::ScriptsEnded(host.clone()));
    }
}
