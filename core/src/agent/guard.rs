//! Guard of the host: decides which queued task may begin. No task begins while a script of another attempt or action
//! of the same job lives here, or a script of a released attempt. On an exclusive host (`serialize = "host"`) tasks run
//! one at a time.
//!
//! The queue is first come, first served. A task waits for tasks that may live and for tasks before it, never for a
//! task behind it, so no circle can form. An unconfirmed task is not in the queue, but may live: an earlier agent may
//! have requested its start. The controller confirms or cancels its unconfirmed tasks after the Welcome. The machine
//! withdraws an unconfirmed local task (`Exec`) that keeps another task from beginning.

use std::collections::HashMap;

use crate::defect;
use crate::ids::{ActionName, Attempt, JobId, TaskId};
use crate::message::Phase;
use crate::outcome::{Loss, Outcome};
use crate::task::Claim;

use super::io::Effect;
use super::machine::{Cx, Machine};
use super::task::{State, Task};

/// The reason that operators see for a queued task that waits until systemd has unloaded an older unit of the same
/// name.
pub(super) const EARLIER_UNIT: &str = "systemd to unload an earlier unit of the same name";

/// The tasks that may keep a queued task from beginning: all tasks that may live, and the tasks before it in the queue.
#[derive(Default)]
struct Held<'a> {
    /// The first task that was added; `None`: no task was added. It blocks the queued task if the host runs one task at
    /// a time.
    first: Option<&'a Task>,
    /// The first added task of a released attempt; `None`: no such task was added. It blocks the queued task, whatever
    /// job that belongs to.
    released: Option<&'a Task>,
    /// The added tasks by job, but only one task of each step ([`step`]). A task of the queued task's job, but of
    /// another step, blocks the queued task.
    jobs: HashMap<&'a JobId, Vec<&'a Task>>,
}

impl<'a> Held<'a> {
    fn add(&mut self, task: &'a Task) {
        self.first = self.first.or(Some(task));
        if task.released {
            self.released = self.released.or(Some(task));
        }
        let of_job = self.jobs.entry(&task.intent.start.job).or_default();
        if !of_job.iter().any(|other| step(other) == step(task)) {
            of_job.push(task);
        }
    }

    fn against(&self, task: &Task, serialize: bool) -> Option<&'a Task> {
        if defect!(NoGuard) {
            return None;
        }
        let of_job = || self.jobs.get(&task.intent.start.job)?.iter().copied().find(|other| step(other) != step(task));
        let serialize = if defect!(SerializeIgnored) { false } else { serialize };
        let any = || self.first.filter(|_| serialize);
        self.released.or_else(of_job).or_else(any)
    }
}

/// Returns the text, after "waits for", of a queued task whose last start failed. `trouble`: the reason.
fn next_start(trouble: &str) -> String {
    if trouble == EARLIER_UNIT { trouble.to_owned() } else { format!("the next try to start its unit ({trouble})") }
}

/// Returns the step of a task: its attempt and action. Tasks of one step, on different ranks of this host, may run at
/// the same time, unless the host runs one task at a time.
fn step(task: &Task) -> (Attempt, &ActionName) {
    (task.intent.start.attempt, &task.intent.start.action)
}

impl Machine {
    /// Begins every queued task that may begin, and reports why the others wait.
    pub(super) fn begin_queued(&mut self, cx: &mut Cx) {
        if !self.tasks.values().any(|task| matches!(task.state, State::Queued)) {
            return;
        }
        let mut stale = Vec::new();
        for (id, holder, waits_for) in self.queue(cx) {
            stale.extend(holder.filter(|holder| self.is_stale(*holder)));
            match waits_for {
                None => self.begin(id, cx),
                Some(why) => self.move_to(id, Phase::Waiting { why }, cx),
            }
        }
        for id in stale {
            let why = "the task was not requested again after a restart of the agent, and another task waits for it"
                .to_owned();
            self.withdraw(id, Claim::Withdrawn(Outcome::Refused { why }), cx);
        }
    }

    /// Returns `true` for an unconfirmed local task (`Exec`): its caller has not come back, and no controller confirms
    /// or cancels it.
    fn is_stale(&self, id: TaskId) -> bool {
        self.tasks.get(&id).is_some_and(|task| task.intent.local && matches!(task.state, State::Unconfirmed))
    }

    /// Returns all queued tasks in queue order. Each entry also has the task that blocks the queued one (`None`: no
    /// task does), and the reason of the wait as text (`None`: the queued task may begin).
    fn queue(&mut self, cx: &Cx) -> Vec<(TaskId, Option<TaskId>, Option<String>)> {
        for task in self.tasks.values_mut() {
            if self.bus && matches!(task.state, State::Queued) {
                task.start_again.take_due(cx.now);
            }
        }
        let mut in_order: Vec<&Task> = self.tasks.values().collect();
        in_order.sort_by_key(|task| task.seq);
        let mut held = Held::default();
        for task in in_order.iter().filter(|task| task.may_live()) {
            if defect!(GuardForgetsFound) && task.starts == 0 {
                continue;
            }
            held.add(task);
        }
        let mut queue = Vec::new();
        for task in in_order {
            if !matches!(task.state, State::Queued) {
                continue;
            }
            let holder = held.against(task, self.node.policy.serialize_host);
            let unloads = self.unloading.contains_key(&task.stem);
            let unloads = if defect!(StartOverUnload) { false } else { unloads };
            let waits_for = holder
                .map(Task::name)
                .or_else(|| (!self.bus).then(|| "the system bus".to_owned()))
                // An older unit of the same name is still loaded. Unloading that unit now would stop the new one.
                .or_else(|| unloads.then(|| EARLIER_UNIT.to_owned()))
                .or_else(|| task.start_again.at().and(task.trouble.as_deref()).map(next_start));
            held.add(task);
            queue.push((task.id(), holder.map(Task::id), waits_for));
        }
        queue
    }

    fn begin(&mut self, id: TaskId, cx: &mut Cx) {
        let Some(task) = self.tasks.get_mut(&id) else { return };
        task.state = State::Starting;
        task.starts += 1;
        task.watch.named = false;
        task.trouble = None;
        let since_boot_ms = task.watch.asks(cx.now.boot_ms);
        let start = Effect::StartUnit { stem: task.stem.clone(), intent: task.intent.clone(), since_boot_ms };
        // `Accepted` implies the begin of the task. Only a task that has reported a wait reports the start.
        if task.phase.is_some() {
            self.move_to(id, Phase::Starting, cx);
        } else {
            task.phase = Some(Phase::Starting);
        }
        cx.push(start);
    }

    /// Withdraws tasks that must not begin: past their not-after, meant for another boot, or of a forgotten attempt.
    pub(super) fn expire(&mut self, cx: &mut Cx) {
        let mut given_up = Vec::new();
        for (id, task) in &self.tasks {
            if !task.expires() {
                continue;
            }
            if let Some(outcome) = self.given_up(task, cx.now.boot_ms) {
                given_up.push((*id, outcome));
            }
        }
        for (id, outcome) in given_up {
            self.withdraw(id, Claim::Withdrawn(outcome), cx);
        }
    }

    fn given_up(&self, task: &Task, boot_ms: u64) -> Option<Outcome> {
        if defect!(AnyBoot) {
        } else if task.intent.start.boot != self.node.boot {
            return Some(Outcome::Lost { why: Loss::Rebooted });
        }
        let refused = |why: String| Some(Outcome::Refused { why });
        if task.released {
            return refused("the attempt was closed before the task began".to_owned());
        }
        if boot_ms <= task.intent.not_after_boottime_ms {
            return None;
        }
        match &task.phase {
            Some(Phase::Waiting { why }) => refused(format!("the task did not begin in time: it waited for {why}")),
            _ if task.confirmed => refused("the task did not begin in time".to_owned()),
            _ => refused(
                "the task did not begin in time: it was not requested again after a restart of the agent".to_owned(),
            ),
        }
    }
}
