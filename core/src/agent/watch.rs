//! Watch over the runner: decides what the agent does if the runner enforces no limit or handles no signal. A runner
//! that is stopped (SIGSTOP) or hangs in the kernel is deaf: it enforces no limit, and acts on neither a cancel nor a
//! KILL for its script.
//!
//! ```text
//!   the limit passed BEHIND_MS ago without a report of the runner --inspect
//!       |-- deaf: overdue, reported by the agent; KILL to the unit if the policy is to kill
//!       `-- not deaf: the runner will report; the agent inspects again later
//!   a signal was sent HEARD_MS ago --inspect
//!       `-- deaf: KILL reaches the whole unit; the agent reports TERM as useless
//! ```

use crate::ids::TaskId;
use crate::message::Phase;
use crate::task::OnTimeout;

use super::claim::KILL_SCRIPT;
use super::io::{Effect, Level, Seen};
use super::machine::{Cx, Machine};
use super::task::{State, Task};

/// Time in milliseconds that a runner has to report a passed limit. A working runner needs about two seconds, because
/// it gathers forensics before it reports.
const BEHIND_MS: u64 = 30_000;
/// Time in milliseconds that a runner has to handle a signal. The first inspection after that time checks whether the
/// runner is deaf (stopped, or hanging in the kernel). The daemon causes that inspection two seconds after the signal,
/// by a `Stirred`.
const HEARD_MS: u64 = 1_500;
/// Time in milliseconds that a deaf runner (stopped, or hanging in the kernel) gets before the agent kills its unit. It
/// counts from when the agent first found the runner deaf past a limit. A working runner waits equally long between
/// TERM and KILL.
const KILL_GRACE_MS: u64 = 10_000;

/// Observations of a task whose runner has the claim; all times are CLOCK_BOOTTIME (ms), as this agent saw them.
#[derive(Debug, Default)]
pub(super) struct Watch {
    claimed_ms: Option<u64>,
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

impl Machine {
    /// Checks after an inspection whether a deaf runner (stopped, or hanging in the kernel) has missed a passed limit
    /// or a signal. If so, reports the task as overdue or the signal as useless, and may kill the whole unit.
    pub(super) fn watch(&mut self, id: TaskId, seen: &Seen, cx: &mut Cx) {
        let Some(task) = self.tasks.get_mut(&id).filter(|task| task.has_runner()) else { return };
        let now = cx.now.boot_ms;
        // Once the scripts have ended, the controller watches the limit.
        let passed = if task.runner_waits { None } else { task.passed_limit(now) };
        if let (Some((script, limit_ms)), Some(why)) = (passed, &seen.deaf) {
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
                cx.note(Level::Warning, Some(id), Some(&job), format!("{stem}: killed, as its action's policy says"));
                cx.push(Effect::KillLingering { stem });
            }
            self.move_to(id, Phase::Overdue { script, limit_ms, doing: why.clone() }, cx);
        } else if seen.deaf.is_none() {
            task.watch.behind = None;
        }
        self.watch_signal(id, seen, cx);
    }

    /// Checks whether the runner has handled the last signal. If the runner is deaf (stopped, or hanging in the
    /// kernel), a KILL goes to all processes of the unit instead, and any other signal is reported as useless.
    fn watch_signal(&mut self, id: TaskId, seen: &Seen, cx: &mut Cx) {
        let Some(task) = self.tasks.get_mut(&id) else { return };
        let due = |(_, at): &mut (u8, u64)| cx.now.boot_ms >= at.saturating_add(HEARD_MS);
        let Some((signal, _)) = task.watch.sent.take_if(due) else { return };
        let Some(why) = &seen.deaf else { return };
        let (stem, job) = (task.stem.clone(), task.intent.start.job.clone());
        if signal == KILL_SCRIPT {
            let text = format!("{why}: KILL goes to all processes of {stem}");
            cx.note(Level::Warning, Some(id), Some(&job), text);
            return cx.push(Effect::KillLingering { stem });
        }
        cx.note(Level::Warning, Some(id), Some(&job), format!("{} was asked to stop, but {why}", task.name()));
        if task.watch.behind.is_none() {
            let told = format!("asked to stop, but {why}: perilog kill -s KILL {job} ends it with its unit");
            let phase = task.told_as_running(told);
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

    /// Returns CLOCK_BOOTTIME (ms) of the next check of the runner. `None`: an inspection is under way or planned, or
    /// the task needs no check.
    pub(super) fn watch_at(&self) -> Option<u64> {
        let lingers = matches!(self.phase, Some(Phase::Lingering { .. }));
        let looked_at = self.look.asked || self.look.backoff.at().is_some();
        if !matches!(self.state, State::Live) || lingers || looked_at {
            return None;
        }
        let kills = self.intent.plan.on_timeout == OnTimeout::Kill && !self.watch.killed;
        let kill_at = self.watch.behind.filter(|_| kills).map(|since| since.saturating_add(KILL_GRACE_MS));
        self.watch.limit_at.into_iter().chain(kill_at).min()
    }

    /// Returns the current script and the limit (ms) that passed at least [`BEHIND_MS`] ago without a report of the
    /// runner: the script's or the task's, whichever passed first. `None`: there is no such limit. Also sets the time
    /// of the next check.
    fn passed_limit(&mut self, now_ms: u64) -> Option<(String, u64)> {
        let claimed = *self.watch.claimed_ms.get_or_insert(now_ms);
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
        let of_task = self.intent.limit_ms().map(|limit| (limit, claimed));
        let passes = |(limit, since): (u64, u64)| (since.saturating_add(limit), limit);
        let (at, limit_ms) = of_script.into_iter().chain(of_task).map(passes).min()?;
        let due = at.saturating_add(BEHIND_MS);
        if due <= now_ms {
            // A runner that is not deaf reports the limit itself; the agent checks that later.
            self.watch.limit_at = Some(now_ms.saturating_add(BEHIND_MS)).filter(|_| self.watch.behind.is_none());
            return Some((script, limit_ms));
        }
        self.watch.limit_at = Some(due);
        None
    }

    /// Returns the phase `Running` with the text `told` for operators in the place of the script's progress. The phase
    /// names the current script, or "its runner" if none is known.
    pub(super) fn told_as_running(&self, told: String) -> Phase {
        let (script, index, of) = match &self.phase {
            Some(Phase::Running { script, index, of, .. }) => (script.clone(), *index, *of),
            _ => ("its runner".to_owned(), 1, 1),
        };
        Phase::Running { script, index, of, progress: Some(told) }
    }
}
