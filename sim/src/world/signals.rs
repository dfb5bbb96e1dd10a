//! Signals to a runner and its scripts: when the run's limit has passed, from the agent, and from outside of perilog.

use perilog_core::ExitStatus;
use perilog_core::task::{OnTimeout, StepRecord};

use super::World;
use super::event::Act;
use super::systemd::{Exit, Leftover, UnitState};

/// Time (ms) between TERM and KILL past a limit, under `on-timeout = "kill"`.
const GRACE_MS: u64 = 5_000;

impl World {
    pub(crate) fn limit(&mut self, at: usize, stem: &str, serial: u64) {
        let at_ms = self.nodes[at].now(self.t).wall_ms;
        let Some(unit) = self.nodes[at].systemd.unit(stem, serial) else { return };
        unit.runner.limit_passed = true;
        if !unit.runner.alive {
            return;
        }
        let run = unit.runner.run;
        if let Some(run) = run {
            self.truth.overdue(run);
        }
        let Some(unit) = self.nodes[at].systemd.unit(stem, serial) else { return };
        let kills = unit.intent.plan.on_timeout == OnTimeout::Kill;
        let (seq, index) = (unit.runner.seq(), unit.runner.next.saturating_sub(1));
        let (script, forensics) = (format!("{index}0-script"), "0 sleep".to_owned());
        let overdue = StepRecord::Overdue { seq, script, at_ms, limit_ms: 1, forensics, doing: String::new() };
        self.record(at, stem, serial, overdue);
        if kills {
            self.unit_after(GRACE_MS, at, stem, serial, Act::Grace);
        }
        self.signal_script(at, stem, serial, 15);
    }

    /// Records, for the checks (`truth`), that the unit's task gets a TERM from outside of perilog.
    pub(super) fn stopped_by_another(&mut self, at: usize, stem: &str) {
        let intent = self.nodes[at].systemd.units.get(stem).map(|unit| unit.intent.start.task);
        intent.into_iter().for_each(|task| self.truth.asked_to_stop(task));
    }

    /// Sends a signal to the unit's main process, the runner, as KillUnit(main) does.
    pub(crate) fn signal_runner(&mut self, at: usize, stem: &str, signal: u8) {
        let at_ms = self.nodes[at].now(self.t).wall_ms;
        let Some(unit) = self.nodes[at].systemd.units.get_mut(stem) else { return };
        if unit.state != UnitState::Running {
            return;
        }
        if unit.runner.run.is_none() {
            if self.t < unit.runner.handles_from {
                self.end_runner(at, stem, signal);
            } else {
                // The runner keeps a TERM until after its claim. Other signals are for scripts, and none runs.
                unit.runner.cancelled |= signal == 15;
            }
            return;
        }
        let serial = unit.serial;
        if unit.runner.waits {
            return self.signal_leftovers(at, stem, serial, signal);
        }
        if signal == 15 && !unit.runner.cancelled {
            unit.runner.cancelled = true;
            if let Some(run) = unit.runner.run {
                self.truth.cancelled(run);
            }
            self.record(at, stem, serial, StepRecord::Cancelled { at_ms });
        }
        self.signal_script(at, stem, serial, if signal == 43 { 9 } else { signal });
    }

    fn signal_script(&mut self, at: usize, stem: &str, serial: u64, signal: u8) {
        let Some(unit) = self.nodes[at].systemd.unit(stem, serial) else { return };
        let runner = &unit.runner;
        let script = runner.behaviour.as_ref().and_then(|b| b.scripts.get(runner.next.saturating_sub(1)));
        let traps = signal != 9 && script.is_some_and(|script| script.traps_term);
        if runner.alive && !traps {
            self.script_ends(at, stem, serial, Some(ExitStatus::Signal(signal)));
        }
    }

    /// Kills the unit's script for its memory and sends TERM to the rest of the unit, as `OOMPolicy=stop` does.
    pub(crate) fn oom_kill(&mut self, at: usize, stem: &str) {
        let Some(unit) = self.nodes[at].systemd.units.get_mut(stem).filter(|unit| unit.runner.alive) else { return };
        unit.oom = true;
        let (serial, run) = (unit.serial, unit.runner.run);
        if let Some(run) = run {
            self.truth.oom(run);
        }
        self.stopped_by_another(at, stem);
        self.signal_runner(at, stem, 15);
        if self.nodes[at].systemd.unit(stem, serial).is_some_and(|unit| unit.runner.alive) {
            self.script_ends(at, stem, serial, Some(ExitStatus::Signal(9)));
        }
    }

    /// Kills the runner itself with SIGKILL; systemd then stops the rest of the unit.
    pub(crate) fn kill_runner(&mut self, at: usize, stem: &str) {
        self.end_runner(at, stem, 9);
    }

    /// Ends a runner by a signal for which it has no handler.
    fn end_runner(&mut self, at: usize, stem: &str, signal: u8) {
        let t = self.t;
        let Some(unit) = self.nodes[at].systemd.units.get_mut(stem) else { return };
        if unit.state != UnitState::Running {
            return;
        }
        if unit.runner.alive {
            unit.runner.alive = false;
            let takes = self.dice.skewed(0, 3_000);
            unit.leftovers.push(Leftover { pid: 400, until_ms: t + takes, outside: false });
        }
        // What a killed runner leaves outside of its unit, no part of perilog can know: the task has failed, and its
        // host is drained.
        unit.runner.waits = false;
        unit.leftovers.retain(|left| !left.outside);
        if unit.leftovers.is_empty() {
            self.truth.leftovers_ended(at, stem);
        }
        let Some(unit) = self.nodes[at].systemd.units.get_mut(stem) else { return };
        if let Some(run) = unit.runner.run {
            self.truth.runner_killed(run, !unit.leftovers.is_empty(), t);
        } else {
            self.truth.died_unclaimed(unit.intent.start.task, signal);
        }
        self.runner_exits(at, stem, Exit::Signal(signal));
    }
}
