//! Progress of tasks, as a node's session reports it: accepted, moved, finished. Only [`Machine::end_task`] gives a
//! task its outcome.

use serde_json::json;

use crate::agent::io::Level;
use crate::controller::action::limits::script_name;
use crate::controller::action::{Action, Stand};
use crate::controller::facts::Facts;
use crate::controller::io::{Effect, Now, SessionId};
use crate::controller::job::Jobs;
use crate::controller::machine::Machine;
use crate::controller::node::Node;
use crate::controller::operator::resolve::is_before_its_begin;
use crate::defect;
use crate::ids::{ActionName, HostName, TaskId};
use crate::message::{Phase, ToAgent};
use crate::outcome::{Loss, Outcome};
use crate::task::{Ended, survives_reboot};

impl Jobs {
    /// Returns `true` if the job goes on with ranks of this outcome. A job that sheds failed ranks goes on only with
    /// `ok`.
    pub(in crate::controller) fn counts_on(&self, action: &Action, outcome: &Outcome) -> bool {
        let row = &action.row;
        let sheds = || {
            let attempt = self.attempt(&row.job, row.attempt);
            attempt.is_some_and(|attempt| attempt.terms.sheds())
        };
        outcome.went_well() && (*outcome == Outcome::Ok || !sheds())
    }

    /// Returns the after-action that should have cleaned up after the end, but was cancelled before the node got its
    /// Start. The operator who undrained the node after the cancel could not know the task, or how the task would end.
    pub(in crate::controller) fn unfollowed(&self, task: TaskId, ended: &Ended) -> Option<&ActionName> {
        let action = self.action(task.action).filter(|action| !self.follows(action))?;
        // A cancelled service reports no work, although it may have worked.
        let by_service = action.row.external.is_some() && matches!(ended.outcome, Outcome::Cancelled { .. });
        if !(ended.has_run() || by_service) {
            return None;
        }
        let attempt = self.attempt(&action.row.job, action.row.attempt)?;
        let was_cancelled = |other: &&Action| {
            let ended = other.ended.get(&task.rank).map(|row| &row.ended.outcome);
            let was_sent = || other.boot(task.rank).is_some();
            matches!(ended, Some(Outcome::Cancelled { .. })) && !was_sent()
        };
        let follower = self.of(attempt).filter(|other| self.follows(other)).find(was_cancelled)?;
        Some(&follower.row.name)
    }
}

impl Machine {
    pub(in crate::controller) fn lose(&mut self, task: TaskId, why: Loss, now: Now) {
        self.end_task(task, self.facts().lost(task, why, now), now);
    }

    /// Gives a task its outcome; no other function does. Drains the node if the node is at fault for the outcome.
    pub(in crate::controller) fn end_task(&mut self, task: TaskId, ended: Ended, now: Now) {
        let Some(ended) = self.facts().weigh(task, ended, now) else { return };
        let ended = if self.facts().is_undone(task, &ended) {
            Ended::bare(Outcome::Lost { why: Loss::Rebooted }, now.wall_ms)
        } else {
            ended
        };
        let ok = ended.outcome.is_ok();
        let is_unfollowed = self.jobs.unfollowed(task, &ended).is_some();
        let milestones = ended.milestones.clone();
        let Some(action) = self.jobs.action_mut(task.action) else {
            return;
        };
        // The controller drained the node when the script became overdue: the drain covers the end.
        let told = action.was_overdue(task.rank) && matches!(ended.outcome, Outcome::Timeout { .. });
        let blame = (!ok && !told || is_unfollowed).then(|| ended.clone());
        let expected = action.expected.contains_key(&task.rank);
        action.end(task.rank, ended);
        if let Some(host) = self.jobs.host_of(task).filter(|_| expected) {
            self.boot_over(&host, now);
        }
        if let Some(node) = self.jobs.host_of(task).and_then(|host| self.nodes.get_mut(&host)) {
            node.live.remove(&task);
        }
        if !ok {
            self.remember_failed(task);
        }
        if let Some(ended) = blame {
            self.drain_for(task, &ended, now);
        }
        for name in milestones {
            self.task_says(task, &name);
        }
        self.touch(task.action, now);
    }

    pub(in crate::controller) fn on_accepted(
        &mut self,
        id: SessionId,
        host: &HostName,
        task: TaskId,
        limit_ms: Option<u64>,
        now: Now,
    ) {
        if !self.speaks_for(host, task) {
            return;
        }
        let Some(action) = self.jobs.action_mut(task.action) else {
            return;
        };
        let stand = action.stand(task.rank);
        match stand {
            Stand::Sent | Stand::Waiting => {
                action.accept(task.rank);
                action.limited(task.rank, limit_ms);
                self.touch(task.action, now);
            }
            // The task has ended for the controller and must not begin. If the task has begun, the Cancel stops the
            // scripts.
            Stand::Ended => {
                self.send_cancel(id, task, "it has ended for the controller");
            }
            Stand::Accepted | Stand::Ok | Stand::NotMine => {}
        }
    }

    pub(in crate::controller) fn on_moved(
        &mut self,
        host: &HostName,
        task: TaskId,
        phase: Phase,
        age_ms: u64,
        now: Now,
    ) {
        let Some(action) = self.jobs.action_mut(task.action) else {
            return;
        };
        let (job, name, attempt) = (action.row.job.clone(), action.row.name.clone(), action.row.attempt);
        let told = self.nodes.get(host).and_then(|n| n.live.get(&task)).map(|(phase, _)| phase.clone());
        let repeated = |kind: fn(&Phase) -> bool| told.as_ref().is_some_and(kind);
        match &phase {
            Phase::Milestone { name } => {
                self.task_says(task, name);
                return;
            }
            Phase::Overdue { .. } => self.past_its_limit(host, task, &phase, now),
            Phase::Lingering { processes }
                if !repeated(|p| matches!(p, Phase::Lingering { .. })) && action.may_tell(task.rank) =>
            {
                let context = json!({"action": name, "attempt": attempt, "ranks": task.rank.0.to_string(),
                    "hosts": host, "processes": processes});
                self.event(&job, now, "lingering", context);
            }
            _ => {}
        }
        self.lives_after_all(task, &phase, now);
        self.watch_lingering(task, &phase, now);
        self.remember_phase(host, task, phase, now.mono_ms.saturating_sub(age_ms));
    }

    /// Handles an overdue script: logs the script once, and drains the node once. The operator who lifts the drain has
    /// seen the script, even if a later controller hears of the script again.
    pub(in crate::controller) fn past_its_limit(&mut self, host: &HostName, task: TaskId, phase: &Phase, now: Now) {
        let Phase::Overdue { script, limit_ms, doing } = phase else { return };
        let script = script_name(script);
        let Some(action) = self.jobs.action_mut(task.action) else { return };
        if !action.is_overdue_now(task.rank, script) {
            return;
        }
        let row = &action.row;
        let ended = row.ended.contains(task.rank.0);
        let context = json!({"action": row.name, "attempt": row.attempt, "ranks": task.rank.0.to_string(),
            "hosts": host, "script": script, "limit_ms": limit_ms, "doing": doing});
        let job = row.job.clone();
        self.event(&job, now, "overdue", context);
        self.touch(task.action, now);
        if ended {
            // An operator resolved the task, and may have lifted the drain of its node.
            return;
        }
        let what = format!("{script} is past its limit of {}", crate::duration::Span::from_millis(*limit_ms));
        self.drain_stuck(task, &what, now);
        self.give_up_overdue(task, &what, now);
    }

    /// Drains the host of a live task that ended as `lost`. The operator who lifted the drain for the loss could not
    /// know that the task lives. The new drain comes only once: the operator who lifts the new drain has seen the
    /// task.
    pub(in crate::controller) fn lives_after_all(&mut self, task: TaskId, phase: &Phase, now: Now) {
        let Some(action) = self.jobs.action_mut(task.action).filter(|_| !is_before_its_begin(phase)) else { return };
        if action.lives_after_all(task.rank) && !defect!(LostMayLive) {
            self.touch(task.action, now);
            self.drain_stuck(task, "lives, and had been given up as lost", now);
        }
    }

    pub(in crate::controller) fn on_finished(
        &mut self,
        id: SessionId,
        host: &HostName,
        task: TaskId,
        ended: Ended,
        now: Now,
    ) {
        let ack = Effect::Send { session: id, message: ToAgent::Ack { task, commit: 0 } };
        let is_orphan = self.nodes.get(host).is_some_and(|node| node.unsettled.orphans.contains_key(&task));
        let Some(action) = self.jobs.action(task.action).filter(|_| !is_orphan) else {
            // The task is an orphan, or belongs to a pruned attempt.
            if self.unknown_ended(host, task, now) {
                self.batch.effects.push(ack);
            }
            return;
        };
        let stand = action.stand(task.rank);
        // If a resolution becomes the outcome, the scripts' own result is recorded as late.
        let by_hand = action.resolving(task.rank).is_some() && !ended.steps.is_empty();
        if stand != Stand::NotMine && self.is_anothers(host, task) {
            self.batch.effects.push(ack);
            return;
        }
        match stand {
            Stand::Waiting | Stand::Sent | Stand::Accepted => {
                let own = by_hand.then(|| ended.clone());
                if let Some(ended) = self.end_or_boot(task, ended, now) {
                    self.end_task(task, ended, now);
                }
                let is_open = self.jobs.action(task.action).is_none_or(|action| action.is_open_on(task.rank));
                if let Some(own) = own.filter(|_| !is_open) {
                    self.on_late(host, task, own, now);
                }
            }
            Stand::Ok | Stand::Ended if defect!(LateOverwrites) => self.end_task(task, ended, now),
            Stand::Ok | Stand::Ended => self.on_late(host, task, ended, now),
            Stand::NotMine => {}
        }
        self.batch.effects.push(ack);
        // The ended script may have been the last on a host that a reboot cleans.
        self.reboot_cleans(host);
    }

    pub(in crate::controller) fn on_late(&mut self, host: &HostName, task: TaskId, ended: Ended, now: Now) {
        for name in &ended.milestones {
            self.task_says(task, name);
        }
        let (outcome, has_run) = (ended.outcome.clone(), ended.has_run());
        let Some(action) = self.jobs.action_mut(task.action) else {
            return;
        };
        if defect!(LateDropped) || !action.late(task.rank, ended, now.wall_ms) {
            return;
        }
        let context = json!({"action": action.row.name, "attempt": action.row.attempt, "rank": task.rank, "host": host,
            "outcome": outcome.word(), "result": outcome.to_string()});
        let (job, found) = (action.row.job.clone(), action.late_of_lost(task.rank));
        if let Some(node) = self.nodes.get_mut(host) {
            node.live.remove(&task);
        }
        // A result that a reboot has invalidated does not blame the node.
        let undone = |ended: &Ended| ended.outcome.went_well() && ended.reboot().is_past();
        if let Some(ended) = found.filter(|ended| has_run && !undone(ended)) {
            // Drains the node again: the operator who undrained the node knew that the task was lost or alive, but not
            // how the task ended. `reboot-cleans` does not apply to a failure.
            self.drain_for(task, &ended, now);
        }
        self.event(&job, now, "late", context);
        self.touch(task.action, now);
        self.note(
            Level::Warning,
            Some(&job),
            Some(host),
            format!("task {task} had ended for the controller; its own result came late: {outcome}"),
        );
    }
}

impl Facts<'_> {
    /// Returns `true` for the good end of a setup task in an earlier boot. A soft reboot ends all processes, but
    /// leaves /run with the records of their ends.
    fn is_undone(&self, task: TaskId, ended: &Ended) -> bool {
        let Some(action) = self.jobs.action(task.action) else { return false };
        let node = self.jobs.host_of(task).and_then(|host| self.nodes.get(&host));
        if self.is_frozen_action(task.action) {
            // The reboot counts when the attempt is vouched for.
            return false;
        }
        let other = |node: &Node| action.boot(task.rank).is_some_and(|boot| boot != node.row.boot_number);
        self.jobs.counts_on(action, &ended.outcome)
            && !survives_reboot(&action.row.name)
            && node.is_some_and(other)
            && !defect!(BootKeepsProlog)
    }
}
