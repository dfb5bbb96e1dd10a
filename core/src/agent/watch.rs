//! Watch over the runner: decides what the agent does if the runner enforces no limit or handles no signal. A runner
//! that is stopped (SIGSTOP) or hangs in the kernel is deaf: it enforces no limit, and acts on neither a cancel nor a
//! KILL for its script.
//!
//! ```text
//!   the limit passed REPORT_MS ago without a report of the runner --inspect
//!       |-- deaf: overdue, reported by the agent; KILL to the unit if the policy is to kill
//!       |-- not deaf: the runner will report; the agent inspects again after BEHIND_MS
//!       `-- systemd does not answer: overdue, reported by the agent
//!   a signal was sent HEARD_MS ago --inspect
//!       `-- deaf: KILL reaches the whole unit; the agent reports TERM as useless
//! ```
//!
//! [`super::stall`] watches a task until its first script begins.

use crate::ids::TaskId;
use crate::message::Phase;
use crate::task::OnTimeout;

use super::claim::KILL_SCRIPT;
use super::io::{Effect, Level, Seen};
use super::machine::{Cx, Machine};
use super::phase;
use super::stall::unanswered;
use super::task::{State, Task};

/// Time in milliseconds after a passed limit at which the agent first checks whether the runner is deaf. A working
/// runner reports within about two seconds, because it gathers forensics before.
const REPORT_MS: u64 = 5_000;
/// Time in milliseconds after which the agent checks again a runner that is not deaf and has not reported the limit. If
/// no script runs then, the agent reports the limit itself.
const BEHIND_MS: u64 = 30_000;
/// Time in milliseconds that systemd has to answer a call before the agent decides without the answer.
const SILENT_MS: u64 = 5_000;
/// Time in milliseconds that a runner has to handle a signal. The first inspection after that time checks whether the
/// runner is deaf (stopped, or hanging in the kernel). The daemon causes that inspection two seconds after the signal,
/// by a `TaskChanged`.
const SIGNAL_HANDLED_MS: u64 = 1_500;
/// Time in milliseconds that a deaf runner (stopped, or hanging in the kernel) gets before the agent kills its unit. It
/// counts from when the agent first found the runner deaf past a limit. A working runner waits equally long between
/// TERM and KILL.
const KILL_GRACE_MS: u64 = 10_000;

/// Observations of a task since its start call; all times are CLOCK_BOOTTIME (ms), as this agent saw them.
#[derive(Debug, Default)]
pub(super) struct Watch {
    /// Time of the first start call, from which the task's limit counts. For a task of an earlier agent: the time when
    /// this agent first looked at it.
    pub(super) asked_ms: Option<u64>,
    /// Time of the first call about this task that systemd has not answered, or of the loss of the bus. `None`: systemd
    /// has answered the last call.
    silent_ms: Option<u64>,
    /// Time when this agent first saw the claim of the task's runner.
    pub(super) claimed_ms: Option<u64>,
    /// Whether the agent has looked why the first script does not begin ([`super::stall`]).
    pub(super) named: bool,
    /// Name of the current script, its number among the task's scripts (from 1), and CLOCK_BOOTTIME (ms) when this
    /// agent first saw it. An empty name: no script is known to run.
    script: Option<(String, u32, u64)>,
    /// Time of the next check whether the runner has reported a passed limit; `None`: no check is planned.
    limit_at: Option<u64>,
    /// Time at which this agent first found the runner deaf while a limit had passed. `None`: the runner is not deaf,
    /// or no limit has passed, as far as the agent knows.
    pub(super) behind: Option<u64>,
    killed: bool,
    /// The last sent signal whose effect the agent has not checked yet, and the time of sending.
    sent: Option<(u8, u64)>,
}

impl Watch {
    /// Records a call to systemd about the task. Returns the time from which the task's limit counts.
    pub(super) fn asks(&mut self, now_ms: u64) -> u64 {
        self.unanswered(now_ms);
        *self.asked_ms.get_or_insert(now_ms)
    }

    pub(super) fn unanswered(&mut self, now_ms: u64) {
        self.silent_ms.get_or_insert(now_ms);
    }

    pub(super) const fn answered(&mut self) {
        self.silent_ms = None;
    }
}

impl Machine {
    /// Decides about a task that is due for a check while systemd does not answer, or while the bus is away.
    pub(super) fn watch_blindly(&mut self, id: TaskId, cx: &mut Cx) {
        let Some(task) = self.tasks.get_mut(&id) else { return };
        if task.awaits_script() {
            return self.watch_start(id, None, cx);
        }
        let Some((script, limit_ms, _)) = task.passed_limit(cx.now.boot_ms) else { return };
        task.watch.behind.get_or_insert(cx.now.boot_ms);
        task.watch.limit_at = None;
        let why = unanswered(self.bus);
        let Some(task) = self.tasks.get(&id) else { return };
        let text = format!("{} is past its limit, and its state is unknown without {why}", task.name());
        cx.note(Level::Warning, Some(id), Some(&task.intent.start.job), text);
        self.move_to(id, Phase::Overdue { script, limit_ms, doing: format!("unknown without {why}") }, cx);
    }

    /// Checks after an inspection whether a deaf runner (stopped, or hanging in the kernel) has missed a passed limit
    /// or a signal. If so, reports the task as overdue or the signal as useless, and may kill the whole unit.
    pub(super) fn watch(&mut self, id: TaskId, seen: &Seen, cx: &mut Cx) {
        let Some(task) = self.tasks.get_mut(&id).filter(|task| task.has_runner()) else { return };
        let now = cx.now.boot_ms;
        task.watch.claimed_ms.get_or_insert(now);
        // Once the scripts have ended, the controller watches the limit.
        let passed = if task.runner_waits || task.awaits_script() { None } else { task.passed_limit(now) };
        let is_late = |at: u64| now >= at.saturating_add(BEHIND_MS);
        let idle = passed.as_ref().is_some_and(|(.., at)| is_late(*at)) && !phase::is_script_running(&seen.steps);
        let deaf = seen
            .deaf
            .clone()
            .or_else(|| idle.then(|| format!("its runner ({}) begins no further script", seen.runner())));
        if let (Some((script, limit_ms, _)), Some(why)) = (passed, &deaf) {
            task.watch.behind.get_or_insert(now);
            let (stem, job) = (task.stem.clone(), task.intent.start.job.clone());
            let text = format!("{} is past its limit, and {why}", task.name());
            let kills = task.intent.plan.on_timeout == OnTimeout::Kill;
            let due = task.watch.behind.is_some_and(|since| now >= since.saturating_add(KILL_GRACE_MS));
            if task.watch.limit_at.is_some() {
                cx.note(Level::Warning, Some(id), Some(&job), text);
            }
            task.watch.limit_at = None;
            if kills && due && !std::mem::replace(&mut task.watch.killed, true) {
                cx.note(
                    Level::Warning,
                    Some(id),
                    Some(&job),
                    format!("{stem}: the agent kills its unit, past its limit (on-timeout = \"kill\")"),
                );
                cx.push(Effect::KillLingering { stem });
            }
            self.move_to(id, Phase::Overdue { script, limit_ms, doing: why.clone() }, cx);
        } else if deaf.is_none() {
            task.watch.behind = None;
        }
        self.watch_signal(id, seen, cx);
    }

    /// Checks whether the runner has handled the last signal. If the runner is deaf (stopped, or hanging in the
    /// kernel), a KILL goes to all processes of the unit instead, and any other signal is reported as useless.
    fn watch_signal(&mut self, id: TaskId, seen: &Seen, cx: &mut Cx) {
        let Some(task) = self.tasks.get_mut(&id) else { return };
        let due = |(_, at): &mut (u8, u64)| cx.now.boot_ms >= at.saturating_add(SIGNAL_HANDLED_MS);
        let Some((signal, _)) = task.watch.sent.take_if(due) else { return };
        let Some(why) = &seen.deaf else { return };
        let (stem, job) = (task.stem.clone(), task.intent.start.job.clone());
        if signal == KILL_SCRIPT {
            let text = format!("{stem}: {why}, so KILL is sent to all processes of the unit");
            cx.note(Level::Warning, Some(id), Some(&job), text);
            return cx.push(Effect::KillLingering { stem });
        }
        cx.note(Level::Warning, Some(id), Some(&job), format!("{} was asked to stop, but {why}", task.name()));
        if task.watch.behind.is_none() {
            let shown = format!("asked to stop, but {why}; to kill the task with its unit: perilog kill -s KILL {job}");
            let phase = task.as_running(shown);
            self.move_to(id, phase, cx);
        }
    }
}

impl Task {
    /// Records a signal that the agent has sent, to check its effect later. If a KILL_SCRIPT is recorded already, keeps
    /// that one.
    pub(super) fn sent(&mut self, signal: u8, now_ms: u64) {
        if !matches!(self.watch.sent, Some((KILL_SCRIPT, _))) {
            self.watch.sent = Some((signal, now_ms));
        }
    }

    /// Returns CLOCK_BOOTTIME (ms) of the next check of the runner. While an answer of systemd is pending, that is at
    /// least [`SILENT_MS`] after the call. `None`: an inspection is planned, or the task needs no check.
    pub(super) fn watch_at(&self) -> Option<u64> {
        let lingers = matches!(self.phase, Some(Phase::Lingering { .. }));
        let silent_ms = self.watch.silent_ms;
        if lingers || silent_ms.is_none() && self.inspection.backoff.at().is_some() {
            return None;
        }
        let at = if self.awaits_script() {
            self.start_due()?
        } else if matches!(self.state, State::Live) {
            // A silent systemd kills nothing.
            let kills = self.intent.plan.on_timeout == OnTimeout::Kill && !self.watch.killed && silent_ms.is_none();
            let kill_at = self.watch.behind.filter(|_| kills).map(|since| since.saturating_add(KILL_GRACE_MS));
            self.watch.limit_at.into_iter().chain(kill_at).min()?
        } else {
            return None;
        };
        Some(silent_ms.map_or(at, |silent| at.max(silent.saturating_add(SILENT_MS))))
    }

    /// Returns `true` if an inspection of the unit can be asked for: none is under way, and the unit may exist.
    pub(super) const fn can_be_inspected(&self) -> bool {
        matches!(self.state, State::Live | State::Doubt { .. }) && self.watch.silent_ms.is_none()
    }

    /// Returns the current script, the limit (ms) that passed at least [`REPORT_MS`] ago without a report of the
    /// runner, and when it passed: the script's or the task's, whichever passed first. `None`: there is no such limit.
    /// Also sets the time of the next check.
    fn passed_limit(&mut self, now_ms: u64) -> Option<(String, u64, u64)> {
        let asked = *self.watch.asked_ms.get_or_insert(now_ms);
        let (script, index) = match &self.phase {
            Some(Phase::Running { script, index, .. }) => (script.clone(), *index),
            // The phase is the agent's own report about the runner, so the agent checks the runner again.
            Some(Phase::Overdue { script, .. }) if self.watch.behind.is_some() => (script.clone(), 0),
            Some(Phase::Overdue { .. }) => {
                self.watch.limit_at = None;
                return None;
            }
            _ => (String::new(), 0),
        };
        let known = self.watch.script.as_ref().is_some_and(|(of, at, _)| *of == script && (*at == index || index == 0));
        if !known {
            self.watch.script = Some((script.clone(), index, now_ms));
        }
        let plan = &self.intent.plan;
        let of_script = plan.scripts.get(&script).and_then(|own| own.timeout_ms).or(plan.script_timeout_ms);
        let of_script =
            of_script.filter(|_| !script.is_empty()).zip(self.watch.script.as_ref().map(|(.., since)| *since));
        let of_task = self.intent.limit_ms().map(|limit| (limit, asked));
        let passes = |(limit, since): (u64, u64)| (since.saturating_add(limit), limit);
        let (at, limit_ms) = of_script.into_iter().chain(of_task).map(passes).min()?;
        let due = at.saturating_add(REPORT_MS);
        if due <= now_ms {
            // A runner that is not deaf reports the limit itself; the agent checks that later.
            self.watch.limit_at = Some(now_ms.saturating_add(BEHIND_MS)).filter(|_| self.watch.behind.is_none());
            return Some((script, limit_ms, at));
        }
        self.watch.limit_at = Some(due);
        None
    }

    /// Returns the phase `Running` with the text `shown` for operators instead of the script's progress. The phase
    /// names the current script, or "its runner" if none is known.
    pub(super) fn as_running(&self, shown: String) -> Phase {
        let (script, index, of) = match &self.phase {
            Some(Phase::Running { script, index, of, .. }) => (script.clone(), *index, *of),
            _ => ("its runner".to_owned(), 1, 1),
        };
        Phase::Running { script, index, of, progress: Some(shown) }
    }
}
