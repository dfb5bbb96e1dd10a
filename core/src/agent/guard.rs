//! The host guards itself: no task begins while a script of another attempt or action of its job lives here, nor while one of an attempt
//! that was released does; where the host is exclusive (`serialize = "host"`) all queue.
//!
//! First come, first served: a task waits for those that may live and for those before it in the queue, never for one behind it, and what
//! may live waits for nobody; so nobody waits for ever in a circle. A task that nobody has confirmed is not in the queue, but may live: the
//! agent before us may have sent its start. The controller's Welcome settles it; the host's own is withdrawn when it is in the way.

use std::collections::HashMap;

use crate::defect;
use crate::ids::{ActionName, Attempt, JobId, TaskId};
use crate::message::Phase;
use crate::outcome::{Loss, Outcome};
use crate::task::Claim;

use super::io::Effect;
use super::machine::{Cx, Machine};
use super::task::{State, Task};

/// What a task waits for whose name a unit has that ran nothing for it.
pub(super) const EARLIER_UNIT: &str = "an earlier unit of its name to go";

/// Who holds the host, as seen by the next in the queue.
#[derive(Default)]
struct Held<'a> {
    first: Option<&'a Task>,
    released: Option<&'a Task>,
    /// One of each attempt and action of a job.
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
        let any = || self.first.filter(|_| serialize && !defect!(SerializeIgnored));
        self.released.or_else(of_job).or_else(any)
    }
}

/// Ranks of one step may run beside each other.
fn step(task: &Task) -> (Attempt, &ActionName) {
    (task.intent.start.attempt, &task.intent.start.action)
}

impl Machine {
    /// Begins whatever may begin, and says of the others what they wait for.
    pub(super) fn begin_queued(&mut self, cx: &mut Cx) {
        if !self.tasks.values().any(|task| matches!(task.state, State::Queued)) {
            return;
        }
        let mut forsaken = Vec::new();
        for (id, holder, waits_for) in self.queue(cx) {
            forsaken.extend(holder.filter(|holder| self.is_forsaken(*holder)));
            match waits_for {
                None => self.begin(id, cx),
                Some(why) => self.move_to(id, Phase::Waiting { why }, cx),
            }
        }
        for id in forsaken {
            let why = "since the agent was restarted nobody has asked for it, and another waits".to_owned();
            self.withdraw(id, Claim::Withdrawn(Outcome::Refused { why }), cx);
        }
    }

    /// The host's own, and nobody came back for it: there is no controller that will say so. The controller's says with its Welcome.
    fn is_forsaken(&self, id: TaskId) -> bool {
        self.tasks.get(&id).is_some_and(|task| task.intent.local && matches!(task.state, State::Unconfirmed))
    }

    /// The queue in its order, who holds the host against each, and what it waits for.
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
            let waits_for = holder
                .map(Task::name)
                .or_else(|| (!self.bus).then(|| "the system bus".to_owned()))
                // Nobody's, or of an end that is on disk: to stop it would stop this one.
                .or_else(|| {
                    (self.unloading.contains_key(&task.stem) && !defect!(StartOverUnload))
                        .then(|| EARLIER_UNIT.to_owned())
                })
                .or_else(|| task.start_again.at().and(task.trouble.clone()));
            held.add(task);
            queue.push((task.id(), holder.map(Task::id), waits_for));
        }
        queue
    }

    fn begin(&mut self, id: TaskId, cx: &mut Cx) {
        let Some(task) = self.tasks.get_mut(&id) else { return };
        task.state = State::Starting;
        task.starts += 1;
        task.trouble = None;
        let start = Effect::StartUnit { stem: task.stem.clone(), intent: task.intent.clone() };
        // One that begins at once says so by being accepted; one that waited is not waiting any more.
        if task.phase.is_some() {
            self.move_to(id, Phase::Starting, cx);
        } else {
            task.phase = Some(Phase::Starting);
        }
        cx.push(start);
    }

    /// Gives up what was not begun and must not be any more: past its not-after, of another boot, of an attempt that was forgotten.
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
        if task.intent.start.boot != self.node.boot && !defect!(AnyBoot) {
            return Some(Outcome::Lost { why: Loss::Rebooted });
        }
        let refused = |why: String| Some(Outcome::Refused { why });
        if task.released {
            return refused("its attempt was closed before it began".to_owned());
        }
        if boot_ms <= task.intent.not_after_boottime_ms {
            return None;
        }
        match &task.phase {
            Some(Phase::Waiting { why }) => refused(format!("it is too late to begin: it waited for {why}")),
            _ if task.confirmed => refused("it is too late to begin".to_owned()),
            _ => refused("it is too late to begin: since the agent was restarted nobody has asked for it".to_owned()),
        }
    }
}
