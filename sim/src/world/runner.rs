//! The runner in a task's unit: takes the claim, runs the scripts in order, writes the result and exits, as
//! `agent/src/runner` does.

use perilog_core::ExitStatus;
use perilog_core::task::{Claim, NO_CLAIM, NO_TASK, NOT_OURS, OnError, RAN_NOTHING, RunResult, StepRecord};

use super::World;
use super::event::Act;
use super::site::{self, Behaviour};
use super::systemd::{Exit, UnitState};
use crate::rng::Rng;

/// Exit status of a runner whose script ended with a status that would mean that no script ran.
const FAILED: u8 = 1;
/// Exit status of a runner that could not write its result. This status and the three below it come from the runner
/// itself, not from a script (`agent/src/runner/exit.rs`).
const NO_RESULT: u8 = 74;
const CONFIGURATION: u8 = 78;
const TIMEOUT: u8 = 124;
const CANCELLED: u8 = 143;
/// Longest time in milliseconds from the runner's fork to its signal handlers.
const EXEC_MS: u64 = 30;

#[derive(Debug, Default)]
pub(crate) struct Runner {
    /// Index of the run in `Truth::runs`; `None`: the runner has not claimed the task.
    pub(crate) run: Option<usize>,
    /// Serial number of the task directory that the runner opened. A newer directory of the same name has another
    /// number.
    dir: u64,
    began_at: u64,
    /// CLOCK_BOOTTIME (ms) from which the task's limit counts.
    pub(super) since_boot_ms: u64,
    /// World time (ms) at which the runner installs its signal handlers, before its claim. From then on only KILL ends
    /// the runner.
    pub(super) handles_from: u64,
    pub(super) behaviour: Option<Behaviour>,
    /// Index of the next script.
    pub(super) next: usize,
    /// Number of tries begun so far. The scheduled end of a script carries this number, so that the end of an earlier
    /// try is ignored.
    turn: u64,
    /// Number of failed tries so far of the script that runs now, or that begins next.
    tries: u32,
    pub(super) alive: bool,
    pub(super) limit_passed: bool,
    pub(super) cancelled: bool,
    /// Whether all scripts have ended, and the runner waits for processes that outlive them.
    pub(super) waits: bool,
    /// Whether the agent has notified the runner that the controller knows of the announced reboot.
    pub(super) boot_known: bool,
    pub(crate) result: Option<RunResult>,
}

impl Runner {
    /// Returns the number, from 0, that the latest try has in the runner's records (steps.jsonl).
    pub(super) fn seq(&self) -> u32 {
        self.turn.saturating_sub(1) as u32
    }
}

impl World {
    pub(crate) fn unit_acts(&mut self, at: usize, boot: u64, stem: String, serial: u64, act: Act) {
        let node = &mut self.nodes[at];
        if !node.on || node.boot != boot {
            return;
        }
        let stalled_until = node.stalled_until;
        let (asleep_until, hung_until) = (node.asleep_until, node.hung_until);
        if self.t < asleep_until {
            let later = asleep_until - self.t;
            return self.unit_after(later, at, &stem, serial, act);
        }
        let Some(unit) = node.systemd.unit(&stem, serial) else { return };
        match (act, unit.state) {
            (Act::JobRuns, UnitState::Queued) if self.t < stalled_until => {
                let later = stalled_until - self.t + 1;
                self.unit_after(later, at, &stem, serial, act);
            }
            (Act::JobRuns, UnitState::Queued) => {
                self.invocations += 1;
                unit.invocation = Some(site::invocation(self.invocations));
                unit.state = UnitState::Running;
                self.unit_changed(at, &stem);
                let delay = self.dice.skewed(0, 300);
                // A separate stream of numbers, so that the dice of kept plans stay unchanged.
                let execs = Rng::named(self.plan.seed, &format!("exec {}", self.invocations)).skewed(0, EXEC_MS);
                let handles_from = self.t + execs.min(delay);
                if let Some(unit) = self.nodes[at].systemd.unit(&stem, serial) {
                    unit.runner.handles_from = handles_from;
                }
                self.unit_after(delay, at, &stem, serial, Act::Claims);
            }
            (Act::LeftoverEnds, _) => self.leftover_ends(at, &stem),
            (_, UnitState::Queued | UnitState::Stopping(_) | UnitState::Over(_)) => {}
            // The runner waits for a directory or the name service, before its claim or before a script.
            (Act::Claims | Act::NextScript, _) if self.t < hung_until => {
                self.unit_after(hung_until - self.t, at, &stem, serial, act);
            }
            (Act::Claims, _) => self.claim(at, &stem, serial),
            (Act::NextScript, _) => self.next_script(at, &stem, serial),
            (Act::ScriptEnds { turn }, _) => {
                if unit.runner.turn == turn && unit.runner.alive {
                    self.script_ends(at, &stem, serial, None);
                }
            }
            (Act::Limit, _) => self.limit(at, &stem, serial),
            (Act::Boots, _) => self.reboots(at, &stem, serial),
            (Act::Grace, _) => {
                if unit.runner.alive {
                    self.script_ends(at, &stem, serial, Some(ExitStatus::Signal(9)));
                }
            }
            (Act::WritesResult, _) => self.write_result(at, &stem, serial),
            (Act::Exits, _) => {
                let code = unit.runner.result.as_ref().map_or(NO_RESULT, |result| result.status);
                self.runner_exits(at, &stem, Exit::Code(code));
            }
            (Act::JobRuns, UnitState::Running) => {}
        }
    }

    /// Takes the claim for the runner, if directory, intent, not-after and O_EXCL allow it. Otherwise the runner exits
    /// without a script.
    fn claim(&mut self, at: usize, stem: &str, serial: u64) {
        let t = self.t;
        let node = &mut self.nodes[at];
        let (boottime, full, boot) = (node.boottime(t), t < node.full_until, node.boot);
        let Some(unit) = node.systemd.unit(stem, serial) else { return };
        let Some(invocation) = unit.invocation.clone() else { return };
        let refused = match node.spool.tasks.get_mut(stem) {
            None => Some(NO_TASK),
            Some(dir) => match &dir.intent {
                None => Some(NO_TASK),
                Some(_) if full => Some(NO_CLAIM),
                Some(intent) if boottime > intent.not_after_boottime_ms => Some(NOT_OURS),
                Some(_) if dir.claim.is_some() => Some(NOT_OURS),
                Some(intent) => {
                    unit.runner.behaviour =
                        Some(site::behaviour(self.plan.seed, &intent.start.task, &intent.start.action));
                    let run = self.truth.claimed(at, node.machine, boot, stem, intent, &invocation, t);
                    dir.claim = Some(Claim::Runner(invocation));
                    unit.runner.run = Some(run);
                    unit.runner.dir = dir.serial;
                    unit.runner.began_at = t;
                    None
                }
            },
        };
        if let Some(code) = refused {
            return self.runner_exits(at, stem, Exit::Code(code));
        }
        self.log_line(|| format!("n{at} {stem} is claimed"));
        if let Some(intent) = self.nodes[at].spool.tasks.get(stem).and_then(|dir| dir.intent.clone()) {
            self.check_claim(at, stem, &intent);
        }
        let early = self.nodes[at]
            .systemd
            .unit(stem, serial)
            .and_then(|unit| unit.runner.run.filter(|_| unit.runner.cancelled));
        if let Some(run) = early {
            let at_ms = self.nodes[at].now(t).wall_ms;
            self.truth.cancelled(run);
            self.record(at, stem, serial, StepRecord::Cancelled { at_ms });
        }
        let limit = self.nodes[at].systemd.unit(stem, serial).and_then(|unit| unit.intent.limit_ms());
        let since = self.nodes[at].systemd.unit(stem, serial).map_or(boottime, |unit| unit.runner.since_boot_ms);
        if let Some(limit) = limit {
            self.unit_after((since + limit).saturating_sub(boottime), at, stem, serial, Act::Limit);
        }
        self.directory_changed(at, stem);
        let delay = self.dice.skewed(0, 20);
        self.unit_after(delay, at, stem, serial, Act::NextScript);
    }

    /// Writes a line of steps.jsonl; returns `false` if the line cannot be written.
    pub(super) fn record(&mut self, at: usize, stem: &str, serial: u64, step: StepRecord) -> bool {
        let node = &mut self.nodes[at];
        let Some(opened) = node.systemd.unit(stem, serial).map(|unit| unit.runner.dir) else { return false };
        if self.t < node.full_until {
            return false;
        }
        // The directory may have no name: the write works, and no process reads it.
        if let Some(dir) = node.spool.opened(stem, opened) {
            dir.steps.push(step);
            self.directory_changed(at, stem);
        }
        true
    }

    fn next_script(&mut self, at: usize, stem: &str, serial: u64) {
        let at_ms = self.nodes[at].now(self.t).wall_ms;
        let Some(unit) = self.nodes[at].systemd.unit(stem, serial) else { return };
        let runner = &mut unit.runner;
        let Some(behaviour) = runner.behaviour.clone() else { return };
        let result = runner.result.get_or_insert_with(|| empty(unit.invocation.clone(), behaviour.scripts.len()));
        let Some(script) = behaviour.scripts.get(runner.next) else { return self.scripts_ended(at, stem, serial) };
        if runner.cancelled {
            result.cancelled = true;
            result.status = result.status.max(CANCELLED);
            return self.scripts_ended(at, stem, serial);
        }
        if runner.limit_passed {
            result.timed_out = true;
            result.status = result.status.max(TIMEOUT);
            return self.scripts_ended(at, stem, serial);
        }
        let (index, of) = (runner.next, behaviour.scripts.len() as u32);
        // The runner numbers tries, not scripts.
        let seq = runner.turn as u32;
        let name = format!("{index}0-script");
        let (digest, user) = ("00".to_owned(), "root".to_owned());
        let begin = StepRecord::Begin { seq, script: name.clone(), digest, user, attempt: runner.tries + 1, at_ms, of };
        if !self.record(at, stem, serial, begin) {
            self.misconfigured(at, stem, serial);
            return self.scripts_ended(at, stem, serial);
        }
        let Some(unit) = self.nodes[at].systemd.unit(stem, serial) else { return };
        unit.runner.next += 1;
        unit.runner.turn += 1;
        unit.runner.alive = true;
        let (turn, run) = (unit.runner.turn, unit.runner.run);
        if let Some(run) = run {
            self.truth.script_starts(run, index, index + 1 == of as usize, self.t);
        }
        self.log_line(|| format!("n{at} {stem}: script {index} begins, for {} ms", script.ms));
        let boot = self.announce(at, stem, serial);
        for report in script.reports.clone().into_iter().chain(boot) {
            let step = StepRecord::Report { seq, script: name.clone(), at_ms, report: report.clone() };
            if self.record(at, stem, serial, step)
                && let Some(run) = run
            {
                self.truth.reported(run, &report);
            }
        }
        self.unit_after(script.ms, at, stem, serial, Act::ScriptEnds { turn });
    }

    fn misconfigured(&mut self, at: usize, stem: &str, serial: u64) {
        let Some(unit) = self.nodes[at].systemd.unit(stem, serial) else { return };
        if let Some(result) = &mut unit.runner.result {
            result.status = result.status.max(CONFIGURATION);
            result.configuration =
                Some("steps.jsonl: no space; the runner runs no script that it cannot record".to_owned());
        }
    }

    /// Ends a script. `by`: the signal that ended the script; `None`: the script ended by itself.
    pub(super) fn script_ends(&mut self, at: usize, stem: &str, serial: u64, by: Option<ExitStatus>) {
        let at_ms = self.nodes[at].now(self.t).wall_ms;
        let Some(unit) = self.nodes[at].systemd.unit(stem, serial) else { return };
        let stops = unit.intent.plan.on_error == OnError::Stop;
        let runner = &mut unit.runner;
        runner.alive = false;
        let index = runner.next.saturating_sub(1);
        let script = runner.behaviour.as_ref().and_then(|b| b.scripts.get(index));
        let own = script.map(|script| if runner.tries > 0 { script.again } else { script.status });
        let status = by.or(own).unwrap_or(ExitStatus::Exit(0));
        let timed_out = runner.limit_passed;
        let retries = unit.intent.plan.retries;
        let again = !status.is_success() && !timed_out && !runner.cancelled && runner.tries < retries.count;
        let seq = runner.seq();
        let name = format!("{index}0-script");
        let end = StepRecord::End { seq, script: name, at_ms, elapsed_ms: 1, status, tolerable: false, timed_out };
        if again {
            (runner.tries, runner.next) = (runner.tries + 1, index);
            if let Some(run) = runner.run {
                self.truth.script_tried(run, status);
            }
            self.log_line(|| format!("n{at} {stem}: script {index} ended, {status}, and is tried again"));
            if !self.record(at, stem, serial, end) {
                self.misconfigured(at, stem, serial);
                return self.scripts_ended(at, stem, serial);
            }
            return self.unit_after(retries.backoff_ms, at, stem, serial, Act::NextScript);
        }
        runner.tries = 0;
        let Some(result) = &mut runner.result else { return };
        result.ran += 1;
        result.timed_out |= timed_out;
        if !status.is_success() && result.worst.is_none_or(|worst| status.shell() > worst.shell()) {
            result.worst = Some(status);
        }
        result.status = result.status.max(status.shell());
        let run = runner.run;
        if let Some(run) = run {
            self.truth.script_ended(run, status, self.t);
        }
        self.log_line(|| format!("n{at} {stem}: script {index} ended, {status}"));
        if !self.record(at, stem, serial, end) {
            self.misconfigured(at, stem, serial);
            return self.scripts_ended(at, stem, serial);
        }
        if stops && (timed_out || !status.is_success()) {
            return self.scripts_ended(at, stem, serial);
        }
        let delay = self.dice.skewed(0, 10);
        self.unit_after(delay, at, stem, serial, Act::NextScript);
    }

    fn write_result(&mut self, at: usize, stem: &str, serial: u64) {
        let at_ms = self.nodes[at].now(self.t).wall_ms;
        let node = &mut self.nodes[at];
        let Some(unit) = node.systemd.unit(stem, serial) else { return };
        let (opened, run) = (unit.runner.dir, unit.runner.run);
        // No file can be made in a removed directory.
        let dir = node.spool.opened(stem, opened).filter(|_| self.t >= node.full_until);
        let is_written = dir.is_some();
        let elapsed = self.t.saturating_sub(unit.runner.began_at);
        let Some(result) = &mut unit.runner.result else { return };
        (result.ended_ms, result.elapsed_ms) = (at_ms, elapsed);
        if RAN_NOTHING.contains(&result.status) {
            result.status = FAILED;
        }
        let written = result.clone();
        if !is_written && result.status == 0 {
            result.status = NO_RESULT;
        }
        if let Some(dir) = dir {
            dir.result = Some(written.clone());
        }
        if let Some(run) = run {
            self.truth.result(run, written, is_written);
        }
        self.directory_changed(at, stem);
        let delay = self.dice.skewed(0, 10);
        self.unit_after(delay, at, stem, serial, Act::Exits);
    }

    /// Ends the unit's main process, the runner. Lingering processes of a failed unit get TERM.
    pub(crate) fn runner_exits(&mut self, at: usize, stem: &str, exit: Exit) {
        let Some(unit) = self.nodes[at].systemd.units.get_mut(stem) else { return };
        if unit.state != UnitState::Running {
            return;
        }
        if exit.is_success() || unit.leftovers.is_empty() {
            unit.state = UnitState::Over(exit);
        } else {
            unit.state = UnitState::Stopping(exit);
            let serial = unit.serial;
            // Some lingering processes take their time over a TERM.
            let delay = self.dice.skewed(0, 5_000);
            for left in &mut unit.leftovers {
                left.until_ms = left.until_ms.min(self.t + delay);
            }
            self.unit_after(delay, at, stem, serial, Act::LeftoverEnds);
        }
        self.log_line(|| format!("n{at} {stem}: its runner is gone, {exit:?}"));
        self.unit_changed(at, stem);
    }

    /// Tells the agent of a change in a task's directory that it watches, at once or a little later.
    fn directory_changed(&mut self, at: usize, stem: &str) {
        let Some(agent) = self.nodes[at].agent.as_ref().filter(|agent| agent.watched.contains(stem)) else { return };
        let incarnation = agent.incarnation;
        let delay = self.dice.skewed(0, 400);
        let event = super::event::AgentEvent::Wakeups { stem: stem.to_owned() };
        self.after(delay, super::event::Event::Agent { node: at, incarnation, event });
    }
}

pub(super) fn empty(invocation: Option<perilog_core::InvocationId>, of: usize) -> RunResult {
    RunResult {
        invocation: invocation.unwrap_or_else(|| site::invocation(0)),
        began_ms: 0,
        ended_ms: 0,
        elapsed_ms: 0,
        ran: 0,
        of: of as u32,
        status: 0,
        worst: None,
        timed_out: false,
        cancelled: false,
        configuration: None,
        exec: None,
        skipped: Vec::new(),
    }
}
