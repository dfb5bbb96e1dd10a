//! Acceptance: decides whether the agent accepts a task, before it writes any file, and makes the intent.

use crate::defect;
use crate::environment;
use crate::ids::{self, ActionId, ClusterId, TaskId};
use crate::message::FromAgent;
use crate::outcome::{Loss, Outcome};
use crate::task::{Claim, Ended, Hook, Intent, Plan, Reboot, Start};

use super::io::{Effect, ExecReply, Level, Now};
use super::machine::{Cx, Machine};
use super::task::{State, Task};

/// Maximum not-after in milliseconds after a Start; the agent cuts a longer one to this. No runner may claim the task
/// after its not-after, and the task's tombstone normally stays until then.
const MAX_NOT_AFTER_MS: u64 = 24 * 60 * 60 * 1000;

impl Machine {
    pub(super) fn on_start(&mut self, start: Start, cx: &mut Cx) {
        let task = start.task;
        // The id must be derived from the parts of the Start: a message must not mean one task and name another.
        let cluster = self.session.cluster.unwrap_or(ClusterId::LOCAL);
        if task.action != ActionId::of(cluster, &start.job, start.attempt, &start.action) || cluster == ClusterId::LOCAL
        {
            let why = "the task's id does not fit its job, attempt and action in the controller's cluster".to_owned();
            return self.send_bare_end(cx, task, Outcome::Refused { why });
        }
        if self.answer_known(task, cx) {
            return;
        }
        self.make_room(cx);
        let commit = self.commit(start.commit);
        match self.admit(start, None, false, cx.now) {
            Ok(intent) => self.record(Intent { commit, ..intent }, cx),
            Err(ended) => self.send(cx, FromAgent::Finished { task, ended }),
        }
    }

    /// Answers a repeated Start with what the agent knows of the task: its state, or its tombstone. While the daemon
    /// writes the task's intent or tombstone, the answer follows that write. Returns `false` for an unknown task.
    fn answer_known(&mut self, id: TaskId, cx: &mut Cx) -> bool {
        if let Some(task) = self.tasks.get_mut(&id) {
            match &task.state {
                State::Recording => {}
                State::Ended { ended } | State::WritingTombstone { ended } => {
                    let ended = Box::new(task.reported_end(ended, &self.node.boot));
                    self.send_last_boot(id, &ended, cx);
                    self.send(cx, FromAgent::Finished { task: id, ended });
                }
                _ => {
                    task.confirm();
                    let limit_ms = task.intent.limit_ms();
                    self.send(cx, FromAgent::Accepted { task: id, limit_ms });
                }
            }
            return true;
        }
        if let Some(entry) = self.tombstones.get(id) {
            let tombstone = &entry.tombstone;
            if tombstone.reboot(&self.node.boot) == Reboot::Expected {
                // A controller that repeats a Start does not know the remaining limit for the reboot.
                let (within_ms, ended) = (tombstone.limit_ms, Box::new(self.end_by_tombstone(tombstone, cx.now)));
                self.send(cx, FromAgent::ExpectsBoot { task: id, within_ms, ended });
            }
            self.send_tombstone(cx, tombstone);
            return true;
        }
        self.tombstones.is_writing(id)
    }

    /// Checks a new task and returns its intent. `plan`: a plan in place of the configured one. `local`: whether the
    /// task is local (`Exec`).
    ///
    /// # Errors
    /// The end to report for a task that the agent does not accept: refused, or lost if the Start was meant for another
    /// boot.
    pub(super) fn admit(&self, start: Start, plan: Option<Plan>, local: bool, now: Now) -> Result<Intent, Box<Ended>> {
        let bare = |outcome| Box::new(Ended::bare(outcome, now.wall_ms));
        let refused = |why: String| bare(Outcome::Refused { why });
        let excused = |why: String| Box::new(Ended { excused: true, ..*refused(why) });
        if defect!(AnyBoot) {
        } else if start.boot != self.node.boot {
            return Err(bare(Outcome::Lost { why: Loss::Rebooted }));
        }
        if !local
            && !start.after
            && let Some(after) = self.after_of(&start)
        {
            return Err(refused(format!(
                "{after} of job {} attempt {} has already cleaned up this node: nothing would clean up after {}",
                start.job, start.attempt, start.action
            )));
        }
        let policy = &self.node.policy;
        let open = self.tasks.values().filter(|task| task.is_open()).count();
        if open >= policy.max_tasks {
            return Err(excused(format!("{open} tasks have not ended on this host, which is the limit (max-tasks)")));
        }
        let held = self.tasks.len() + self.tombstones.len();
        // Only after-actions may use the spare room: a node that refuses an epilog is not cleaned up.
        let spare = if start.after { policy.max_tasks } else { 0 };
        if held >= policy.max_tombstones.saturating_add(spare) {
            return Err(excused(format!(
                "this host keeps {held} tasks and records of ended tasks, which is the limit (max-tombstones); a \
                 record goes when the controller has stored the end of its task"
            )));
        }
        let stem = ids::stem(&start.action, &start.job, start.task);
        if self.stems.contains_key(&stem) || self.unknown_units.get(&stem) == Some(&true) {
            return Err(refused(not_ours(&stem)));
        }
        let configured = policy.actions.get(&start.action);
        let Some(mut plan) = plan.or_else(|| configured.cloned()) else {
            let known: Vec<&str> = policy.actions.keys().map(|name| name.as_str()).collect();
            let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
            return Err(excused(format!(
                "action {} is not configured on this node; configured: {known}",
                start.action
            )));
        };
        let (env, dropped_env) = environment::admit(&start.env, &policy.env_allow).map_err(refused)?;
        plan.timeout_ms = [start.timeout_ms, plan.timeout_ms].into_iter().flatten().min();
        // A restarted agent orders the queue by the time of acceptance, so no two tasks get the same millisecond.
        let last = self.tasks.values().map(|task| task.intent.accepted_boottime_ms).max();
        Ok(Intent {
            not_after_boottime_ms: now.boot_ms.saturating_add(start.not_after_ms.min(MAX_NOT_AFTER_MS)),
            accepted_boottime_ms: last.map_or(now.boot_ms, |last| now.boot_ms.max(last.saturating_add(1))),
            start,
            plan,
            env,
            dropped_env,
            local,
            commit: None,
            hook: Hook::default(),
        })
    }

    /// Adds a task and asks the daemon to write the task's intent. The agent reports `Accepted` when the intent is on
    /// disk.
    pub(super) fn record(&mut self, intent: Intent, cx: &mut Cx) {
        let start = &intent.start;
        let (id, stem) = (start.task, ids::stem(&start.action, &start.job, start.task));
        let intent = Box::new(intent);
        cx.push(Effect::WriteIntent { stem: stem.clone(), intent: intent.clone() });
        let task = self.add(id, stem, intent, State::Recording);
        task.confirmed = true;
        if defect!(AcceptBeforeIntent) {
            let limit_ms = task.intent.limit_ms();
            self.notify(id, FromAgent::Accepted { task: id, limit_ms }, cx);
        }
    }

    pub(super) fn add(&mut self, id: TaskId, stem: String, intent: Box<Intent>, state: State) -> &mut Task {
        self.next_seq += 1;
        self.stems.insert(stem.clone(), id);
        let task = Task::new(stem, intent, self.next_seq, state);
        self.tasks.entry(id).or_insert(task)
    }

    pub(super) fn on_intent_written(&mut self, id: TaskId, result: Result<(), String>, cx: &mut Cx) {
        let Some(task) = self.tasks.get_mut(&id) else { return };
        if !matches!(task.state, State::Recording) {
            // The write was of a rebuilt intent. The task goes on without it: `WriteOutcome` writes the intent again if
            // needed.
            if let Err(text) = result {
                let text = format!("cannot write the rebuilt record (intent) of {}: {text}", task.name());
                cx.note(Level::Error, Some(id), Some(&task.intent.start.job.clone()), text);
            }
            return;
        }
        if let Err(text) = result {
            let why = format!("this host cannot record the task: {text}");
            return self.not_recorded(id, why, cx);
        }
        task.state = State::Queued;
        for (i, caller) in task.callers.iter().enumerate() {
            let reply = ExecReply::Attached { task: id, stem: task.stem.clone(), attached: i > 0 };
            cx.push(Effect::ExecReply { caller: *caller, reply });
        }
        let (cancelled, limit_ms) = (task.cancelled, task.intent.limit_ms());
        self.notify(id, FromAgent::Accepted { task: id, limit_ms }, cx);
        if cancelled {
            self.withdraw(id, Claim::Cancelled, cx);
        }
    }

    /// Forgets a task whose intent could not be written, and reports it as refused with the reason `why`. A repeated
    /// Start tries again.
    fn not_recorded(&mut self, id: TaskId, why: String, cx: &mut Cx) {
        let Some(task) = self.tasks.remove(&id) else { return };
        self.stems.remove(&task.stem);
        for caller in task.callers {
            let reply = ExecReply::Refused(why.clone());
            cx.push(Effect::ExecReply { caller, reply });
        }
        if task.intent.local {
            return;
        }
        let ended = Box::new(Ended::bare(Outcome::Refused { why }, cx.now.wall_ms));
        self.send(cx, FromAgent::Finished { task: id, ended });
    }

    /// Sends a message about a task to the controller. Before the session is open, marks the task instead: the agent
    /// reports the change in the Hello or after the Welcome. Sends nothing about local tasks (`Exec`).
    pub(super) fn notify(&mut self, id: TaskId, message: FromAgent, cx: &mut Cx) {
        let Some(task) = self.tasks.get_mut(&id).filter(|task| !task.intent.local) else {
            return;
        };
        if self.session.is_open() {
            cx.push(Effect::Send(message));
        } else {
            task.changed_since_hello = true;
        }
    }
}

impl Task {
    /// Records that the task is wanted, normally by a controller or a caller. A task that was unconfirmed joins the
    /// queue.
    pub(super) fn confirm(&mut self) {
        self.confirmed = true;
        if matches!(self.state, State::Unconfirmed) {
            self.state = State::Queued;
        }
    }
}

/// Returns the text for operators that refuses a task because another unit or task uses its name.
pub(super) fn not_ours(stem: &str) -> String {
    format!(
        "another unit or directory on this host has the name {stem}: see `systemctl status {stem}.service`, stop that \
         unit, and ask again"
    )
}
