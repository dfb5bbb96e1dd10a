//! Ending: decides the order from a task's end to its tombstone. First the outcome goes to disk. Then the agent unloads
//! the unit (a failed unit may stay for a post-mortem), and reports the end until the controller acknowledges it. Last
//! the agent writes the tombstone and removes the directory.

use std::collections::{BTreeMap, VecDeque};

use crate::defect;
use crate::ids::{BootId, TaskId};
use crate::judge::{Evidence, judge};
use crate::message::FromAgent;
use crate::outcome::{Loss, Outcome};
use crate::task::{Ended, Intent, Process, Reboot, Tombstone, UnitFacts};

use super::backoff::Backoff;
use super::io::{Effect, ExecReply, Level, Now, Seen};
use super::machine::{Cx, Machine};
use super::task::{State, Task};
use super::tombstones::{KeptTombstone, brief};

impl Machine {
    pub(super) fn conclude(&mut self, id: TaskId, ended: Ended, cx: &mut Cx) {
        let Some(task) = self.tasks.get_mut(&id) else { return };
        // The task has ended, so a failed try to take the claim is not repeated.
        task.claiming = None;
        task.state = State::Concluding { ended: Box::new(ended) };
        if defect!(UnloadBeforeOutcome) && task.loaded.is_some() {
            cx.push(Effect::Unload { stem: task.stem.clone() });
        }
        task.write_ending(cx);
    }

    pub(super) fn on_outcome_written(&mut self, id: TaskId, result: Result<(), String>, cx: &mut Cx) {
        let Some(task) = self.tasks.get_mut(&id) else { return };
        let State::Concluding { ended } = &task.state else { return };
        if let Err(text) = result {
            task.not_written("outcome", &text, cx);
            // `perilog ps` then shows why an ended task is still open.
            let phase = task.as_running(format!("the task has ended, but its outcome cannot be written: {text}"));
            return self.move_to(id, phase, cx);
        }
        let ended = ended.clone();
        task.write_again.succeeded();
        task.trouble = None;
        task.state = State::Ended { ended: ended.clone() };
        let (stem, loaded) = (task.stem.clone(), task.loaded);
        if let Some(failed) = loaded {
            self.retire_unit(stem, failed && is_worth_inspecting(&ended.outcome), cx);
        }
        self.send_end(id, cx);
    }

    /// Reports the end of a task to the callers that wait for it, and to the controller unless the task is local
    /// (`Exec`). Replaces a local task at once by its tombstone. Exception: if the task has a program in
    /// `Hook::orphan_program`, `call_orphaned_hooks` does so later.
    pub(super) fn send_end(&mut self, id: TaskId, cx: &mut Cx) {
        let Some(task) = self.tasks.get_mut(&id) else { return };
        let State::Ended { ended } = &task.state else { return };
        let ended = Box::new(task.reported_end(ended, &self.node.boot));
        let callers = std::mem::take(&mut task.callers);
        if !callers.is_empty() {
            task.end_received();
        }
        for caller in callers {
            let reply = ExecReply::Ended(ended.clone());
            cx.push(Effect::ExecReply { caller, reply });
        }
        if task.has_program() {
            // `call_orphaned_hooks` writes the task's tombstone once its program knows the end.
            return;
        }
        if task.intent.local {
            return self.write_tombstone(id, cx);
        }
        self.send_last_boot(id, &ended, cx);
        self.send(cx, FromAgent::Finished { task: id, ended });
    }

    /// Handles an Ack: the controller has stored the task's end, in its commit `commit`. So the agent replaces the task
    /// by its tombstone, or marks the tombstone as acknowledged. Does nothing to a local task (`Exec`).
    pub(super) fn on_ack(&mut self, id: TaskId, commit: u64, cx: &mut Cx) {
        let commit = self.commit(commit);
        match self.tasks.get_mut(&id) {
            Some(task) if task.intent.local => {}
            Some(task) => {
                // The mark of the task is now the commit that stored its end.
                task.intent.commit = commit.or(task.intent.commit);
                self.write_tombstone(id, cx);
            }
            None => self.tombstones.acknowledge(id),
        }
    }

    pub(super) fn write_tombstone(&mut self, id: TaskId, cx: &mut Cx) {
        let Some(task) = self.tasks.get_mut(&id) else { return };
        if let State::Ended { ended } = &task.state {
            task.state = State::WritingTombstone { ended: ended.clone() };
            task.write_ending(cx);
        }
    }

    pub(super) fn on_tombstone_written(&mut self, id: TaskId, result: Result<(), String>, cx: &mut Cx) {
        let Some(task) = self.tasks.get_mut(&id) else {
            return self.on_refusal_written(id, result, cx);
        };
        let State::WritingTombstone { ended } = &task.state else { return };
        if let Err(text) = result {
            return task.not_written("tombstone", &text, cx);
        }
        let entry = KeptTombstone {
            tombstone: task.tombstone(ended),
            stem: task.stem.clone(),
            acked: true,
            forgotten: task.released,
        };
        self.tasks.remove(&id);
        if defect!(NoTombstone) {
            return self.remove_tombstone(entry, cx);
        }
        self.tombstones.keep(entry);
        // Callers of Exec may have waited for this tombstone: their task ran before a soft reboot.
        self.take_early(cx);
    }

    /// Handles the result of writing a tombstone for an unknown task that was cancelled.
    fn on_refusal_written(&mut self, id: TaskId, result: Result<(), String>, cx: &mut Cx) {
        match result {
            Ok(()) => {
                if let Some(outcome) = self.tombstones.written(id) {
                    self.send_bare_end(cx, id, outcome);
                }
            }
            Err(text) => {
                let Some(entry) = self.tombstones.get_or_writing(id) else { return };
                let (of, job) = (&entry.tombstone, entry.tombstone.job.clone());
                let text = format!(
                    "cannot write the tombstone of {} of job {job}, attempt {}, rank {}, trying again: {text}",
                    of.action, of.attempt, id.rank
                );
                if self.tombstones.not_written(id, cx.now) {
                    cx.note(Level::Error, Some(id), Some(&job), text);
                }
            }
        }
    }

    pub(super) fn on_forget(&mut self, tasks: &[TaskId]) {
        for id in tasks {
            match self.tasks.get_mut(id) {
                Some(task) if !task.intent.local => task.released = true,
                Some(_) => {}
                None => self.tombstones.forget(*id),
            }
        }
    }

    /// Removes the tombstones whose not-after has passed and for which the controller has sent Forget. Keeps tombstones
    /// whose unit is loaded.
    pub(super) fn sweep_tombstones(&mut self, cx: &mut Cx) {
        let (kept, unloading) = (&self.kept_failed, &self.unloading);
        let gone = self.tombstones.sweep(cx.now, |entry| has_unit(kept, unloading, entry));
        self.keep_newest(&gone, cx);
        for entry in gone {
            self.remove_tombstone(entry, cx);
        }
    }

    /// Removes and returns the oldest tombstone of a local task (`Exec`), if the host has at least `most` of them.
    /// Keeps tombstones whose unit is loaded. `None`: removed none.
    pub(super) fn evict_local(&mut self, most: usize) -> Option<KeptTombstone> {
        let (kept, unloading) = (&self.kept_failed, &self.unloading);
        self.tombstones.evict_local(most, |entry| has_unit(kept, unloading, entry))
    }

    /// Makes room for one more task: if the host has `max-tombstones` tasks and tombstones or more, removes the oldest
    /// acknowledged tombstones of the controller's tasks. Keeps a tombstone if its unit is loaded or its announced
    /// reboot has not come. A host might otherwise fill up: after the loss of the controller's store, no controller
    /// sends Forget for old tasks.
    pub(super) fn make_room(&mut self, cx: &mut Cx) {
        let surplus = (self.tasks.len() + self.tombstones.len() + 1).saturating_sub(self.node.policy.max_tombstones);
        if surplus == 0 {
            return;
        }
        let (kept, unloading, boot) = (&self.kept_failed, &self.unloading, &self.node.boot);
        let stays = |entry: &KeptTombstone| {
            has_unit(kept, unloading, entry) || entry.tombstone.reboot(boot) == Reboot::Expected
        };
        let gone = self.tombstones.evict_acknowledged(surplus, stays);
        self.keep_newest(&gone, cx);
        for entry in gone {
            self.remove_tombstone(entry, cx);
        }
    }

    pub(super) fn remove_tombstone(&mut self, entry: KeptTombstone, cx: &mut Cx) {
        self.stems.remove(&entry.stem);
        cx.push(Effect::RemoveTombstone { task: entry.tombstone.task, stem: entry.stem });
    }

    /// Unloads the unit of an ended task, or a unit that ran nothing. `keep`: leaves the unit loaded for a post-mortem
    /// instead, and unloads the oldest such unit if they are too many.
    pub(super) fn retire_unit(&mut self, stem: String, keep: bool, cx: &mut Cx) {
        if !keep {
            self.unload(stem, cx);
        } else if !self.kept_failed.contains(&stem) {
            self.kept_failed.push_back(stem);
            self.trim_kept_failed(cx);
        }
    }

    pub(super) fn trim_kept_failed(&mut self, cx: &mut Cx) {
        while self.kept_failed.len() > self.node.policy.keep_failed {
            if let Some(stem) = self.kept_failed.pop_front() {
                self.unload(stem, cx);
            }
        }
    }

    /// Asks the daemon to unload a unit. While the system bus is lost, asks for nothing: the `Joined` after the loss
    /// reports whether the unit is still loaded, and the machine then asks if so.
    fn unload(&mut self, stem: String, cx: &mut Cx) {
        self.unloading.insert(stem.clone(), Backoff::default());
        if self.bus {
            cx.push(Effect::Unload { stem });
        }
    }

    pub(super) fn on_unloaded(&mut self, stem: String, result: Result<(), String>, cx: &mut Cx) {
        let Some(again) = self.unloading.get_mut(&stem) else { return };
        match result {
            Ok(()) => {
                self.unloading.remove(&stem);
            }
            Err(text) => {
                if again.tries == 0 {
                    cx.note(Level::Warning, None, None, format!("cannot unload {stem}, trying again: {text}"));
                }
                again.failed(cx.now);
            }
        }
    }
}

impl Task {
    pub(super) fn judge(
        &self,
        unit: Option<&UnitFacts>,
        seen: &Seen,
        left: &[Process],
        boot: &BootId,
        now: Now,
    ) -> Ended {
        let evidence = Evidence {
            unit,
            claim: self.claim.as_ref(),
            result: seen.result.as_ref(),
            steps: &seen.steps,
            tails: &seen.tails,
            lingering: left,
            cancelled: self.cancelled || seen.stop_asked,
        };
        let ended = judge(&evidence, &self.intent, now.wall_ms);
        if self.intent.start.boot != *boot && ended.outcome == (Outcome::Lost { why: Loss::Vanished }) {
            // A soft reboot keeps /run: the files there show whether a script announced the boot. A container's /run
            // may keep the file of the unit as well: systemd then loads the unit, which never ran in this boot.
            return self.if_it_boots(seen, now);
        }
        ended
    }

    /// Asks the daemon to write the file that the task's state waits for: the outcome or the tombstone.
    pub(super) fn write_ending(&self, cx: &mut Cx) {
        match &self.state {
            State::Concluding { ended } => {
                let (stem, rebuilt) = (self.stem.clone(), Box::new(Intent::clone(&self.intent).rebuilt()));
                cx.push(Effect::WriteOutcome { stem, task: self.id(), ended: ended.clone(), rebuilt });
            }
            State::WritingTombstone { ended } => {
                cx.push(Effect::WriteTombstone { stem: self.stem.clone(), tombstone: Box::new(self.tombstone(ended)) })
            }
            _ => {}
        }
    }

    fn not_written(&mut self, what: &str, text: &str, cx: &mut Cx) {
        // Only the first failure is logged; the status shows the trouble while it lasts.
        if self.write_again.tries == 0 {
            let text = format!("cannot write the {what} of {}, trying again: {text}", self.name());
            cx.note(Level::Error, Some(self.id()), Some(&self.intent.start.job), text);
        }
        self.trouble = Some(format!("cannot write its {what}: {text}"));
        self.write_again.failed(cx.now);
    }

    /// Returns the task's end as the agent reports it in the boot `boot`. Sets `expect_reboot` and `booted` by
    /// [`Reboot::since`]. If the task did not succeed, a reboot that no script announced does not count.
    pub(super) fn reported_end(&self, ended: &Ended, boot: &BootId) -> Ended {
        let well = ended.outcome.went_well();
        let reboot = Reboot::since(&self.intent.start.boot, ended.expect_reboot, boot);
        ended.clone().in_boot(if well || reboot.is_announced() { reboot } else { Reboot::None })
    }

    fn tombstone(&self, ended: &Ended) -> Tombstone {
        let start = &self.intent.start;
        let well = ended.outcome.went_well();
        let waits = well && ended.expect_reboot;
        Tombstone {
            task: start.task,
            job: start.job.clone(),
            attempt: start.attempt,
            action: start.action.clone(),
            outcome: brief(&ended.outcome),
            not_after_boottime_ms: self.intent.kept_until_boottime_ms(),
            local: self.intent.local,
            boot: well.then(|| start.boot.clone()),
            expects_boot: waits,
            limit_ms: self.intent.limit_ms().filter(|_| waits),
            after: start.after,
            commit: self.intent.commit,
            instance: self.intent.hook.instance.clone(),
        }
    }
}

/// Returns `true` if the unit of the tombstone's task is still loaded: `kept` or `unloading` has the unit's stem. The
/// agent keeps such a tombstone: without it, the next `Joined` would make the machine take the unit for a live task's.
fn has_unit(kept: &VecDeque<String>, unloading: &BTreeMap<String, Backoff>, entry: &KeptTombstone) -> bool {
    kept.contains(&entry.stem) || unloading.contains_key(&entry.stem)
}

/// Returns `true` for `failed` and `timeout`: the unit of such a task may stay loaded for a post-mortem.
pub(super) const fn is_worth_inspecting(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Failed { .. } | Outcome::Timeout { .. })
}
