//! Stalled start: decides what the agent reports of a task whose unit was asked for, and whose first script does not
//! begin. The task's limit counts from the start call, also while systemd does not answer, the unit is frozen, or the
//! runner hangs over a directory or a user.
//!
//! ```text
//!   start call --NAMED_MS, no script--> waiting, for the reason --the limit passes--> overdue: the node is drained
//! ```
//!
//! The agent inspects the unit at both times. If systemd does not answer within some seconds, that is the reason.

use crate::defect;
use crate::ids::TaskId;
use crate::message::{ITS_START, Phase};
use crate::task::{Claim, Run, UnitFacts};

use super::io::{Level, Seen};
use super::machine::{Cx, Machine};
use super::task::{State, Task};

/// Time in milliseconds after the start call from which the agent says why no script has begun. On a working node the
/// first script begins within a tenth of a second.
const NAMED_MS: u64 = 5_000;

impl Machine {
    /// Reports why the first script of a task does not begin: as waiting, and as overdue once the limit has passed.
    /// `seen`: the result of an inspection; `None`: systemd has not answered, or the unit cannot be inspected.
    pub(super) fn watch_start(&mut self, id: TaskId, seen: Option<&Seen>, cx: &mut Cx) {
        let (now, bus) = (cx.now.boot_ms, self.bus);
        let Some(task) = self.tasks.get_mut(&id).filter(|task| task.awaits_script()) else { return };
        let asked = *task.watch.asked_ms.get_or_insert(now);
        let passed = task.start_limit().filter(|(at, _)| *at <= now);
        if passed.is_none() && now < asked.saturating_add(NAMED_MS) {
            return;
        }
        task.watch.named = true;
        let why = task.stalls_for(seen, bus);
        let Some((_, limit_ms)) = passed else { return self.move_to(id, Phase::Waiting { why }, cx) };
        if !task.is_overdue() {
            let text = format!("{} is past its limit, and waits for {why}", task.name());
            cx.note(Level::Warning, Some(id), Some(&task.intent.start.job), text);
        }
        let doing = format!("it waits for {why}");
        self.move_to(id, Phase::Overdue { script: ITS_START.to_owned(), limit_ms, doing }, cx);
    }
}

impl Task {
    /// Returns `true` from the start call until a script begins or the task ends.
    pub(super) fn awaits_script(&self) -> bool {
        let before = match &self.phase {
            None | Some(Phase::Waiting { .. } | Phase::Starting) => true,
            Some(Phase::Overdue { .. }) => self.is_overdue(),
            Some(Phase::Running { .. } | Phase::Lingering { .. }) => false,
        };
        let asked = match self.state {
            State::Starting | State::Doubt { .. } | State::Live => true,
            // The claim cannot be written.
            State::Withdrawing => self.trouble.is_some(),
            _ => false,
        };
        if defect!(StallUnseen) {
            return false;
        }
        before && asked
    }

    /// Returns `true` if the agent has reported that the limit passed before a script began.
    fn is_overdue(&self) -> bool {
        matches!(&self.phase, Some(Phase::Overdue { script, .. }) if script == ITS_START)
    }

    /// Returns CLOCK_BOOTTIME (ms) at which to look next why no script has begun; `None`: the agent has looked, and has
    /// reported the passed limit or there is none.
    pub(super) fn start_due(&self) -> Option<u64> {
        let named_at = self.watch.asked_ms.filter(|_| !self.watch.named).map(|at| at.saturating_add(NAMED_MS));
        let limit_at = self.start_limit().filter(|_| !self.is_overdue()).map(|(at, _)| at);
        named_at.into_iter().chain(limit_at).min()
    }

    /// Returns the limit that passes first, with the CLOCK_BOOTTIME (ms) at which it passes: the task's, which counts
    /// from the start call, or that of scripts, which counts from the runner's claim. `None`: there is no limit, or the
    /// agent has the claim, so that no script will begin.
    fn start_limit(&self) -> Option<(u64, u64)> {
        if matches!(self.claim, Some(Claim::Cancelled | Claim::Withdrawn(_))) {
            return None;
        }
        let of_task = self.watch.asked_ms.zip(self.intent.limit_ms());
        let of_script = self.watch.claimed_ms.zip(self.intent.plan.script_timeout_ms);
        of_task.into_iter().chain(of_script).map(|(since, limit)| (since.saturating_add(limit), limit)).min()
    }

    /// Returns the reason why no script begins, as a text that follows "waits for". `seen`: the result of an
    /// inspection; `None`: systemd has not answered, or the unit cannot be inspected.
    fn stalls_for(&self, seen: Option<&Seen>, bus: bool) -> String {
        let unit = seen.and_then(|seen| seen.unit.as_ref().filter(|unit| unit.loaded).map(|unit| (unit, seen)));
        let trouble = self.trouble.as_deref().unwrap_or_default();
        let mut why = match (unit, &self.state) {
            (Some((unit, seen)), _) => self.stalls_in(unit, seen),
            (None, State::Withdrawing) => match self.claiming.as_ref().map(|claiming| &claiming.claim) {
                Some(Claim::Withdrawn(outcome)) => format!("its outcome, {outcome}, to be recorded: {trouble}"),
                _ => format!("its outcome to be recorded: {trouble}"),
            },
            (None, _) if seen.is_some() => "systemd to load its unit".to_owned(),
            (None, _) => unanswered(bus).to_owned(),
        };
        if matches!(self.claim, Some(Claim::Cancelled | Claim::Withdrawn(_))) {
            why.push_str("; no script of it will begin");
        } else if self.term || self.signal.is_some() {
            why.push_str("; the signal that was sent to the task waits, too");
        }
        why
    }

    fn stalls_in(&self, unit: &UnitFacts, seen: &Seen) -> String {
        if unit.main_pid == 0 {
            return "systemd to start its unit (see systemctl list-jobs)".to_owned();
        }
        let plan = &self.intent.plan;
        let deaf = seen.deaf.as_ref().map(|deaf| format!(": {deaf}")).unwrap_or_default();
        let runner = format!("its first script; its runner ({}) has not begun it{deaf}", seen.runner());
        if !self.has_runner() {
            return runner;
        }
        // Before the first script the runner looks at each of these.
        let files = match &plan.run {
            Run::Directories(directories) => directories.join(", "),
            Run::Command(command) => command.first().cloned().unwrap_or_default(),
        };
        format!("{runner}; before that the runner reads {files} and {}, and looks up user {}", plan.cwd, plan.user)
    }
}

/// Returns the text, after "waits for" or "without", for a systemd that does not answer. `bus`: whether the agent has a
/// connection to the system bus.
pub(super) const fn unanswered(bus: bool) -> &'static str {
    match bus {
        true => "systemd, which does not answer on the system bus",
        false => "a connection to the system bus",
    }
}
