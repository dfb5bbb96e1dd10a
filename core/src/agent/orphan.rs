//! Orphaned hooks: decides when the agent runs the program that a task's hook named in
//! [`Hook::orphan_program`](crate::task::Hook). A hook, such as Slurm's prolog, is a program that the resource
//! manager's daemon runs on the host. It calls the agent, waits for the task, and passes the end on as its own exit
//! status. If the hook or that daemon dies, the status is lost, and the resource manager assumes one. The agent then
//! runs the named program: with the argument `begun` while the task goes on, and with `ended` when the task has ended.
//!
//! ```text
//!   a caller waits --the last caller hangs up, or the agent came up--> alone --GONE_AFTER_MS--> gone: `begun`
//!        ^                                                               |                        |
//!        +---------------------------- a caller attaches ----------------+------------------------+
//!        |
//!        +--the hook reports that its daemon died--> `begun`, even while a caller waits. A hook that calls again
//!           reports this with the call, because the task may have ended while the agent was away
//!
//!   ended, its daemon lives, a caller has received the end, the program has never run: replaced by its tombstone
//!   ended, and the daemon died, or gone without the end, or the program may have run: `ended`, again and again until
//!           the program has exited with 0; then replaced by its tombstone
//! ```
//! The intent on disk names the program, and the agent removes the intent only after the program knows the end or need
//! not run. So a restarted agent still runs the program.

use std::collections::BTreeMap;

use crate::duration::elapsed;
use crate::ids::TaskId;
use crate::outcome::Outcome;
use crate::task::Ended;

use super::backoff::Backoff;
use super::io::{Caller, Effect, ExecReply, HookCall, HookEvent, Level, Now};
use super::machine::{Cx, Machine};
use super::task::{State, Task};

/// Time in milliseconds without a caller after which the resource manager's hook counts as gone. A live hook calls
/// again within two seconds of a lost connection; a host under load may need longer.
pub(super) const GONE_AFTER_MS: u64 = 10_000;
/// Minimum time in milliseconds between two log lines about one task whose program in `Hook::orphan_program` keeps
/// failing.
const NOTE_EVERY_MS: u64 = 60 * 60 * 1000;

/// State of one task's hook: when the hook counts as gone, and whether a caller and the program in
/// `Hook::orphan_program` know of the begin and the end.
#[derive(Debug, Default)]
pub(super) struct Orphan {
    /// CLOCK_BOOTTIME (ms) from which the hook counts as gone; `None` while a caller waits.
    gone_at_ms: Option<u64>,
    /// Whether the hook has reported that the daemon of the resource manager on this host died.
    daemon_died: bool,
    /// Whether a caller of Exec has received the task's end, even one that called only after the end.
    end_received: bool,
    /// Whether the program in `Hook::orphan_program` may have run for this task already, perhaps started by an earlier
    /// agent.
    known: bool,
    begun: bool,
    /// Whether the program in `Hook::orphan_program` is running now.
    running: bool,
    again: Backoff,
    noted_ms: Option<u64>,
}

enum Due {
    Nothing,
    Call(HookEvent),
    WriteTombstone,
}

impl Machine {
    /// For every task found when the agent started, sets the time from which the task's hook counts as gone. A hook
    /// that calls again clears this time.
    pub(super) fn wait_for_hooks(&mut self, cx: &Cx) {
        for task in self.tasks.values_mut() {
            task.orphan = Orphan { known: true, ..Orphan::default() };
            task.left_alone(cx.now);
        }
    }

    /// Checks each task with a program in `Hook::orphan_program`. Runs the program if the hook can no longer pass on
    /// the task's end. Replaces the ended task by its tombstone if the program need not run.
    pub(super) fn call_orphaned_hooks(&mut self, cx: &mut Cx) {
        let due: Vec<(TaskId, Due)> = self.tasks.iter().map(|(id, task)| (*id, task.due(cx.now))).collect();
        for (id, due) in due {
            match due {
                Due::Nothing => {}
                Due::WriteTombstone => self.write_tombstone(id, cx),
                Due::Call(event) => {
                    let Some(task) = self.tasks.get_mut(&id) else { continue };
                    // An accepted task runs even without its hook: an epilog must run.
                    task.confirm();
                    task.call_hook(event, cx);
                }
            }
        }
    }

    pub(super) fn on_hook_called(&mut self, id: TaskId, event: HookEvent, result: Result<(), String>, cx: &mut Cx) {
        let Some(task) = self.tasks.get_mut(&id) else { return };
        let orphan = &mut task.orphan;
        (orphan.running, orphan.known) = (false, true);
        match (event, result) {
            (_, Err(text)) => task.hook_failed(event, &text, cx),
            (HookEvent::Begun, Ok(())) => {
                orphan.begun = true;
                task.hook_recovered();
            }
            (HookEvent::Ended, Ok(())) => {
                task.hook_recovered();
                self.write_tombstone(id, cx);
            }
        }
    }

    /// Handles a hook's report that the resource manager's daemon, which would read the hook's exit status, has died.
    pub(super) fn on_daemon_died(&mut self, caller: Caller, id: TaskId, cx: &mut Cx) {
        let reply = match self.tasks.get_mut(&id) {
            Some(task) => {
                task.set_daemon_died(true);
                ExecReply::Noted
            }
            None => ExecReply::Refused("there is no such task on this host".to_owned()),
        };
        cx.push(Effect::ExecReply { caller, reply });
    }
}

impl Task {
    /// Adds a caller that waits for the task's end; the task's hook then no longer counts as gone.
    pub(super) fn listen(&mut self, caller: Caller) {
        self.orphan.gone_at_ms = None;
        self.callers.push(caller);
    }

    /// If `daemon_died`, records that the resource manager's daemon, which would read the hook's exit status, has died.
    /// A later call does not take that back.
    pub(super) const fn set_daemon_died(&mut self, daemon_died: bool) {
        self.orphan.daemon_died |= daemon_died;
    }

    /// If no caller waits for the task, sets the time from which the resource manager's hook counts as gone:
    /// [`GONE_AFTER_MS`] from now.
    pub(super) fn left_alone(&mut self, now: Now) {
        if self.callers.is_empty() {
            self.orphan.gone_at_ms = Some(now.boot_ms.saturating_add(GONE_AFTER_MS));
        }
    }

    /// Records that at least one caller has received the task's end.
    pub(super) const fn end_received(&mut self) {
        self.orphan.end_received = true;
    }

    /// Returns `true` if the task is local and has a program in `Hook::orphan_program`.
    pub(super) const fn has_program(&self) -> bool {
        self.intent.local && self.intent.hook.orphan_program.is_some()
    }

    /// Returns the time (CLOCK_BOOTTIME in milliseconds) when the machine next decides whether to run the task's
    /// program in `Hook::orphan_program`. `None`: the task has no such program, the program is running, or the decision
    /// waits for no time.
    pub(super) fn orphan_due_ms(&self, now: Now) -> Option<u64> {
        if !self.has_program() || self.orphan.running {
            return None;
        }
        let gone = self.orphan.gone_at_ms.filter(|at| *at > now.boot_ms);
        self.orphan.again.at().or(gone)
    }

    fn due(&self, now: Now) -> Due {
        let orphan = &self.orphan;
        let waits = orphan.running || orphan.again.at().is_some_and(|at| at > now.boot_ms);
        if !self.has_program() || waits {
            return Due::Nothing;
        }
        let is_gone = orphan.gone_at_ms.is_some_and(|at| at <= now.boot_ms);
        match &self.state {
            State::Recording | State::Concluding { .. } | State::WritingTombstone { .. } => Due::Nothing,
            State::Ended { .. } if orphan.daemon_died || (is_gone && !orphan.end_received) => {
                Due::Call(HookEvent::Ended)
            }
            // The program has run for `begun`, and still has to undo that work.
            State::Ended { .. } if orphan.end_received && orphan.known => Due::Call(HookEvent::Ended),
            State::Ended { .. } if orphan.end_received => Due::WriteTombstone,
            State::Ended { .. } => Due::Nothing,
            _ if (orphan.daemon_died || is_gone) && !orphan.begun => Due::Call(HookEvent::Begun),
            _ => Due::Nothing,
        }
    }

    fn call_hook(&mut self, event: HookEvent, cx: &mut Cx) {
        let Some(program) = self.intent.hook.orphan_program.clone() else { return };
        let start = &self.intent.start;
        let name = format!("{} of {}", start.action, start.job);
        let ended = match &self.state {
            State::Ended { ended } => Some(ended),
            _ => None,
        };
        let reason = match ended {
            Some(ended) => format!("{name}: {}", headline(ended)),
            None => {
                format!(
                    "{name} still runs, and no hook waits for its end (perilog: job {} {})",
                    start.job, start.action
                )
            }
        };
        let is_end_received = self.orphan.end_received && !self.orphan.daemon_died;
        let own = [
            ("PERILOG_JOB", start.job.to_string()),
            ("PERILOG_ATTEMPT", start.attempt.to_string()),
            ("PERILOG_ACTION", start.action.to_string()),
            ("PERILOG_OUTCOME", ended.map_or_else(String::new, |ended| ended.outcome.as_str().to_owned())),
            ("PERILOG_END_RECEIVED", if is_end_received { "yes" } else { "" }.to_owned()),
            ("PERILOG_REASON", reason),
        ];
        let mut env: BTreeMap<String, String> = start.env.clone();
        env.extend(own.map(|(name, value)| (name.to_owned(), value)));
        let outcome: Option<Outcome> = ended.map(|ended| ended.outcome.clone());
        let call = HookCall { task: start.task, stem: self.stem.clone(), program, event, env, outcome };
        self.orphan.running = true;
        cx.push(Effect::CallHook(Box::new(call)));
    }

    fn hook_recovered(&mut self) {
        self.orphan.again.succeeded();
        self.orphan.noted_ms = None;
        self.trouble = None;
    }

    fn hook_failed(&mut self, event: HookEvent, text: &str, cx: &mut Cx) {
        let program = self.intent.hook.orphan_program.as_deref().unwrap_or_default();
        let text = format!("`{program} {event}` failed for {}, will retry: {text}", self.name());
        let is_news = self.orphan.noted_ms.is_none_or(|at| cx.now.boot_ms.saturating_sub(at) >= NOTE_EVERY_MS);
        if is_news {
            self.orphan.noted_ms = Some(cx.now.boot_ms);
            cx.note(Level::Error, Some(self.id()), Some(&self.intent.start.job), text.clone());
        }
        self.trouble = Some(text);
        self.orphan.again.failed(cx.now);
    }
}

/// Summarizes an end in one line: `failed (exit 37) after 31ms: 20-gpu: GPU 2 has fallen off the bus`.
fn headline(ended: &Ended) -> String {
    let elapsed = ended.elapsed_ms.map(|ms| format!(" after {}", elapsed(ms))).unwrap_or_default();
    let check = ended.checks.first().map(|check| format!(": {}: {}", check.check, check.message));
    let last = || {
        let tail = ended.tails.iter().find(|tail| !tail.text.trim().is_empty())?;
        let line = tail.text.lines().rev().find(|line| !line.trim().is_empty())?;
        let script = tail.script.rsplit('/').next().unwrap_or_default();
        Some(format!(": {script}: {}", line.trim()))
    };
    format!("{}{elapsed}{}", ended.outcome, check.or_else(last).unwrap_or_default())
}
