//! Local tasks (`Exec`): decides whether a caller on the local socket starts a task or attaches to the task with the
//! same key. The agent then sends the task's phases to the caller. No controller orders these tasks; Hello lists them,
//! and the controller ignores them. The agent replaces such a task by its tombstone once all callers, if any, know its
//! end. If the task has a program in `Hook::orphan_program`, the module `orphan` decides when the agent does so.

use std::collections::BTreeSet;

use crate::hostlist::HostList;
use crate::ids::{self, ActionId, ClusterId, TaskId};
use crate::idset::IdSet;
use crate::outcome::Outcome;
use crate::task::Start;

use super::io::{Caller, Effect, Exec, ExecReply};
use super::machine::{Cx, Machine};
use super::task::State;

/// Maximum number of callers that wait for one task. Also the maximum number of callers whose requests the machine
/// cannot handle yet (`Machine::early`).
const MAX_CALLERS: usize = 64;
/// Not-after of a local task (`Exec`), in milliseconds after the request: no job still waits for its prolog after an
/// hour.
const NOT_AFTER_MS: u64 = 60 * 60 * 1000;

impl Machine {
    pub(super) fn on_exec(&mut self, caller: Caller, exec: Exec, cx: &mut Cx) {
        if !self.joined {
            return self.wait_early(caller, exec, cx);
        }
        let id =
            TaskId { action: ActionId::of(ClusterId::LOCAL, &exec.job, exec.attempt, &exec.action), rank: exec.rank };
        if let Some(other) = self.known_instance(id).filter(|known| exec.hook.is_of_another(known)) {
            return refuse(caller, another_job(&exec, &other), cx);
        }
        if let Some(task) = self.tasks.get(&id) {
            // The task is of a boot before a soft reboot, which may have undone its work. The caller waits until the
            // agent has written the task's tombstone.
            return match task.intent.start.boot == self.node.boot {
                true => self.attach(caller, id, exec.daemon_died, cx),
                false => self.wait_early(caller, exec, cx),
            };
        }
        if let Some(entry) = self.tombstones.get(id)
            && !entry.tombstone.is_invalidated(&self.node.boot)
        {
            let reply = ExecReply::EndedBefore(entry.tombstone.outcome.clone());
            return cx.push(Effect::ExecReply { caller, reply });
        }
        // `WriteIntent` removes the file of the tombstone.
        let invalidated = self.tombstones.take(id);
        if let Some(entry) = &invalidated {
            self.stems.remove(&entry.stem);
        }
        if let Err(why) = self.begin_local(caller, id, exec, cx) {
            if let Some(entry) = invalidated {
                self.stems.insert(entry.stem.clone(), id);
                self.tombstones.keep(entry);
            }
            refuse(caller, why, cx);
        }
    }

    /// Returns [`Hook::instance`](crate::task::Hook) of this task or tombstone: the job instance for which the task
    /// ran. `None`: the task is unknown, or its request named no instance.
    fn known_instance(&self, id: TaskId) -> Option<String> {
        let task = self.tasks.get(&id).and_then(|task| task.intent.hook.instance.clone());
        task.or_else(|| self.tombstones.get(id)?.tombstone.instance.clone())
    }

    fn wait_early(&mut self, caller: Caller, exec: Exec, cx: &mut Cx) {
        if self.early.len() < MAX_CALLERS {
            self.early.push_back((caller, exec));
        } else {
            refuse(
                caller,
                "the agent cannot take this task yet, and too many callers wait already: ask again later",
                cx,
            );
        }
    }

    pub(super) fn take_early(&mut self, cx: &mut Cx) {
        for (caller, exec) in std::mem::take(&mut self.early) {
            self.on_exec(caller, exec, cx);
        }
    }

    fn begin_local(&mut self, caller: Caller, id: TaskId, exec: Exec, cx: &mut Cx) -> Result<(), String> {
        if let Some(newer) = self.newer_attempt(&exec) {
            return Err(format!(
                "attempt {} of {} of job {} is refused: this host has already seen the newer attempt {newer}",
                exec.attempt, exec.action, exec.job
            ));
        }
        // No controller sends Forget for tombstones of local tasks. So the agent removes the oldest of them, to leave
        // room for the controller's.
        while let Some(entry) = self.evict_local((self.node.policy.max_tombstones / 2).max(1)) {
            self.remove_tombstone(entry, cx);
        }
        self.make_room(cx);
        let start = Start {
            task: id,
            job: exec.job,
            attempt: exec.attempt,
            action: exec.action,
            boot: self.node.boot.clone(),
            not_after_ms: NOT_AFTER_MS,
            milestones: BTreeSet::new(),
            ranks: one(exec.rank.0),
            hosts: HostList::from_names([self.node.host.as_str()]).map_err(|e| e.to_string())?,
            userid: exec.userid,
            env: exec.env,
            timeout_ms: exec.timeout_ms,
            after: false,
            commit: 0,
        };
        let mut intent = self.admit(start, exec.plan, true, cx.now).map_err(|ended| match ended.outcome {
            Outcome::Refused { why } => why,
            other => other.to_string(),
        })?;
        intent.hook = exec.hook;
        self.record(intent, cx);
        if let Some(task) = self.tasks.get_mut(&id) {
            task.set_daemon_died(exec.daemon_died);
            task.listen(caller);
        }
        Ok(())
    }

    fn attach(&mut self, caller: Caller, id: TaskId, daemon_died: bool, cx: &mut Cx) {
        let Some(task) = self.tasks.get_mut(&id) else { return };
        // Recorded first: a caller whose daemon died cannot pass on an end, so the program in `Hook::orphan_program`
        // must get the end.
        task.set_daemon_died(daemon_died);
        if task.callers.len() >= MAX_CALLERS {
            return refuse(caller, format!("{MAX_CALLERS} callers wait for this task"), cx);
        }
        task.confirm();
        if matches!(task.state, State::Recording) {
            // `on_intent_written` answers the caller.
            return task.listen(caller);
        }
        let mut reply = |reply| cx.push(Effect::ExecReply { caller, reply });
        reply(ExecReply::Attached { task: id, stem: task.stem.clone(), attached: true });
        match &task.state {
            State::Ended { ended } | State::WritingTombstone { ended } => {
                reply(ExecReply::Ended(ended.clone()));
                task.end_received();
            }
            _ => {
                if let Some(phase) = &task.phase {
                    reply(ExecReply::Phase(phase.clone()));
                }
                task.listen(caller);
            }
        }
    }

    /// Returns the newest attempt above the one in `exec` for which this host has a local task of the same job and
    /// action, or the tombstone of one. `None`: there is none.
    fn newer_attempt(&self, exec: &Exec) -> Option<ids::Attempt> {
        let tasks = self.tasks.values().filter(|task| task.intent.local).map(|task| {
            let start = &task.intent.start;
            (&start.job, &start.action, start.attempt)
        });
        let tombstones = self.tombstones.iter().map(|entry| &entry.tombstone).filter(|entry| entry.local);
        tasks
            .chain(tombstones.map(|entry| (&entry.job, &entry.action, entry.attempt)))
            .filter(|(job, action, attempt)| **job == exec.job && **action == exec.action && *attempt > exec.attempt)
            .map(|(_, _, attempt)| attempt)
            .max()
    }

    pub(super) fn on_hangup(&mut self, caller: Caller, cx: &Cx) {
        self.early.retain(|(early, _)| *early != caller);
        for task in self.tasks.values_mut().filter(|task| task.callers.contains(&caller)) {
            task.callers.retain(|waiting| *waiting != caller);
            task.left_alone(cx.now);
        }
    }

    pub(super) fn on_cancel_local(&mut self, caller: Caller, id: TaskId, cx: &mut Cx) {
        let Some(task) = self.tasks.get(&id) else {
            return match self.tombstones.get(id).map(|entry| entry.tombstone.outcome.clone()) {
                Some(outcome) => cx.push(Effect::ExecReply { caller, reply: ExecReply::EndedBefore(outcome) }),
                None => refuse(caller, "there is no such task on this host", cx),
            };
        };
        if !task.intent.local {
            let start = &task.intent.start;
            let (job, action, attempt, rank) = (&start.job, &start.action, start.attempt, id.rank);
            let why = format!(
                "the controller began this task; to cancel it, run on the controller's host: `perilog cancel {job} \
                 {action} --attempt {attempt} --ranks {rank}`"
            );
            return refuse(caller, why, cx);
        }
        let reply = match &task.state {
            State::Concluding { ended } | State::Ended { ended } | State::WritingTombstone { ended } => {
                ExecReply::EndedBefore(ended.outcome.clone())
            }
            _ => ExecReply::Cancelling,
        };
        cx.push(Effect::ExecReply { caller, reply });
        self.cancel(id, cx);
    }
}

/// Returns the text for operators that refuses a task: this host has a task or tombstone of the same name from an
/// earlier job with the same number, and that run did not prepare this job. `known`: the instance of the earlier job.
fn another_job(exec: &Exec, known: &str) -> String {
    let (action, job, own) = (&exec.action, &exec.job, exec.hook.instance.as_deref().unwrap_or_default());
    format!(
        "{action} has already run on this node for another job with the number {job}, which began at {known}; this job \
         began at {own}. The resource manager has begun to number its jobs anew: set its first number above the last \
         one (Slurm: FirstJobId), and reboot this node"
    )
}

fn refuse(caller: Caller, why: impl Into<String>, cx: &mut Cx) {
    let reply = ExecReply::Refused(why.into());
    cx.push(Effect::ExecReply { caller, reply });
}

fn one(rank: u32) -> IdSet {
    let mut ranks = IdSet::new();
    ranks.insert(rank);
    ranks
}
