//! Carries out the machine's effects, one after the other.

use perilog_core::agent::io::{Effect, Input, Level};
use perilog_core::ids::{JobId, TaskId};
use perilog_core::message::FromAgent;
use perilog_host::fault;
use tokio::sync::mpsc::error::TrySendError;

use super::Daemon;
use crate::local::NodeStatus;
use crate::spool::SpoolError;

const TERM: u8 = 15;

impl Daemon {
    pub(super) fn carry_out(&mut self, effect: Effect) {
        match effect {
            Effect::WriteIntent { stem, intent } => {
                let task = intent.start.task;
                let result = with_text(self.spool.write_intent(&stem, &intent));
                if result.is_ok() {
                    self.task_index.enter(&stem, task);
                    fault::point("after-intent");
                }
                self.inputs.push_back(Input::IntentWritten { task, result });
            }
            Effect::StartUnit { stem, intent, since_boot_ms } => {
                self.task_index.enter(&stem, intent.start.task);
                self.watcher.watch(&stem);
                self.inputs.extend(self.calls.start(stem, intent, since_boot_ms));
            }
            Effect::Watch { stem, task } => {
                self.task_index.enter(&stem, task);
                self.watcher.watch(&stem);
                self.calls.watch(stem);
            }
            Effect::WatchEmpty { task, cgroup } => {
                if let Some(stem) = self.task_index.stem(task) {
                    self.emptiness.watch(stem, cgroup.as_deref());
                }
            }
            Effect::Inspect { stem, task } => {
                self.task_index.enter(&stem, task);
                if self.watcher.runner_is_gone(&stem) {
                    // PID 1 may still run the start job; it reports the end only after the unit's processes are gone.
                    self.calls.watch(stem.clone());
                }
                self.inputs.extend(self.calls.inspect(self.spool.clone(), stem, task));
            }
            Effect::TakeClaim { stem, task, claim } => {
                let result = with_text(self.spool.take_claim(&stem, &claim));
                self.inputs.push_back(Input::ClaimTaken { task, result });
            }
            Effect::SignalRunner { stem, signal } => {
                if signal == TERM
                    && let Err(error) = self.spool.mark_stop_asked(&stem)
                {
                    tracing::warn!(
                        "{error}; if the agent restarts before the task ends, the task counts as failed, not as \
                         cancelled"
                    );
                }
                self.calls.signal(stem, signal);
            }
            Effect::MarkBootExpected { stem } => {
                if let Err(error) = self.spool.mark_boot_expected(&stem) {
                    tracing::warn!(
                        "{error}; the script is not notified that the controller knows of the reboot that it announced"
                    );
                }
            }
            Effect::KillLingering { stem } => self.calls.kill_all(stem),
            Effect::WriteOutcome { stem, task, ended, rebuilt } => {
                let result = with_text(self.spool.write_outcome(&stem, &ended, &rebuilt));
                fault::point_if("after-outcome", || result.is_ok());
                if let Some(note) = rebuilt.hook.note.filter(|_| result.is_ok() && !ended.outcome.may_be_cut_off()) {
                    self.notes.remove(note);
                }
                self.inputs.push_back(Input::OutcomeWritten { task, result });
            }
            Effect::Unload { stem } => {
                self.emptiness.forget(&stem);
                self.inputs.extend(self.calls.unload(stem));
            }
            Effect::WriteTombstone { stem, tombstone } => {
                let task = tombstone.task;
                let result = with_text(self.spool.write_tombstone(&stem, &tombstone));
                if result.is_ok() {
                    self.task_index.leave(&stem);
                    self.calls.forget(&stem);
                    self.emptiness.forget(&stem);
                    self.tombstone_written.send_modify(|count| *count += 1);
                }
                self.inputs.push_back(Input::TombstoneWritten { task, result });
            }
            Effect::RemoveTombstone { stem, .. } => {
                self.calls.forget_unit(&stem);
                if let Err(error) = self.spool.remove_tombstone(&stem) {
                    tracing::warn!("{error}; the record of the ended task (tombstone) stays until the next boot");
                }
            }
            Effect::WriteEpoch { accepted } => {
                let result = with_text(self.spool.write_accepted_epoch(accepted));
                if result.is_ok() {
                    self.accepted = Some(accepted);
                }
                self.inputs.push_back(Input::EpochWritten { epoch: accepted.epoch, result });
            }
            Effect::Send(message) => self.send(message),
            Effect::Hang { why } => {
                if self.log_dedup.is_news(&why) {
                    tracing::warn!("the agent ends its session with the controller: {why}");
                }
                self.disconnect();
            }
            Effect::RedialWindow { ms } => {
                self.window.set(ms);
                self.log_dedup.clear();
                if let Some(connected) = &self.connected {
                    tracing::info!("connected to the controller {}", connected.peer);
                }
            }
            Effect::WakeAt { boot_ms } => self.wake_ms = Some(boot_ms),
            Effect::ExecReply { caller, reply } => self.callers.reply(caller, reply),
            Effect::StatusReply { caller, tasks } => {
                let controller = self.connected.as_ref().map(|connected| connected.peer.clone());
                let connected = controller.is_some();
                let epoch = self.accepted.map(|accepted| accepted.epoch.number);
                let session = self.machine.session_state();
                self.callers.reply_status(caller, NodeStatus { controller, connected, session, epoch, tasks });
            }
            Effect::Answer { question, ask, tasks } => {
                let Some(connected) = &self.connected else { return };
                if let Err(error) = self.logs.answer(question, ask, tasks, connected.session.outbox.clone()) {
                    tracing::warn!("the agent ends its session with the controller {}: {error}", connected.peer);
                    self.disconnect();
                }
            }
            Effect::CallHook(call) => self.calls.call_hook(call),
            Effect::Note { level, task: None, job: None, text } => {
                if self.log_dedup.is_news(&text) {
                    note(level, None, None, &text);
                }
            }
            Effect::Note { level, task, job, text } => note(level, task, job.as_ref(), &text),
        }
    }

    /// Sends a message to the controller. If the queue is full, because the controller reads too slowly, ends the
    /// session; the next session's Hello carries the missed state. Drops the message if the link is lost: the machine
    /// learns that by an input of its own.
    fn send(&mut self, message: FromAgent) {
        if let Some(connected) = &self.connected
            && let Err(TrySendError::Full(_)) = connected.session.outbox.try_send(message)
        {
            tracing::warn!(
                "the controller {} reads messages too slowly: the agent ends the session and connects again",
                connected.peer
            );
            self.disconnect();
        }
    }
}

/// Converts a spool error to the text that the machine keeps.
fn with_text<T>(result: Result<T, SpoolError>) -> Result<T, String> {
    result.map_err(|error| error.to_string())
}

fn note(level: Level, task: Option<TaskId>, job: Option<&JobId>, text: &str) {
    let job = job.map(tracing::field::display);
    let (rank, action_id) = (task.map(|task| task.rank.0), task.map(|task| tracing::field::display(task.action)));
    match level {
        Level::Info => tracing::info!(job, rank, action_id, "{text}"),
        Level::Warning => tracing::warn!(job, rank, action_id, "{text}"),
        Level::Error => tracing::error!(job, rank, action_id, "{text}"),
    }
}
