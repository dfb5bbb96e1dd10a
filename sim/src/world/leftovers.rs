//! Processes that outlive the scripts of a task, in its unit or outside, and what the runner does with them, as
//! `agent/src/runner/leftovers.rs` does.

use perilog_core::task::{self, StepRecord, Treatment};

use super::World;
use super::event::Act;
use super::systemd::Leftover;
use crate::rng::Rng;

/// Longest time (ms) in which a process ends that got TERM or KILL.
const ENDS_MS: u64 = 5_000;
/// Time (ms) after which the runner sends KILL, past a limit.
const GRACE_MS: u64 = 10_000;

impl World {
    pub(super) fn scripts_ended(&mut self, at: usize, stem: &str, serial: u64) {
        let t = self.t;
        let Some(unit) = self.nodes[at].systemd.unit(stem, serial) else { return };
        if unit.runner.cancelled
            && let Some(result) = &mut unit.runner.result
        {
            result.cancelled = true;
        }
        let begun = unit.runner.next > 0;
        let ms = unit.runner.behaviour.as_ref().map(|b| b.leftovers.clone()).unwrap_or_default();
        // A separate stream of numbers, so that the dice of kept plans stay unchanged.
        let mut places = Rng::named(self.plan.seed, &format!("outside {stem}"));
        let left = ms.into_iter().enumerate().filter(|_| begun);
        unit.leftovers =
            left.map(|(i, ms)| Leftover { pid: 500 + i as u32, until_ms: t + ms, outside: places.one_in(2) }).collect();
        if unit.leftovers.is_empty() {
            return self.seen_off(at, stem, serial);
        }
        if let Some(run) = unit.runner.run {
            self.truth.left_behind(run);
        }
        let Some(unit) = self.nodes[at].systemd.unit(stem, serial) else { return };
        let (failed, timed_out) =
            unit.runner.result.as_ref().map_or((true, false), |result| (result.status != 0, result.timed_out));
        let treatment = unit.intent.plan.treatment(failed, timed_out);
        self.record_left(at, stem, serial, treatment);
        match treatment {
            Treatment::Keep => {
                self.end_leftovers_within(at, stem, serial, u64::MAX);
                return self.seen_off(at, stem, serial);
            }
            Treatment::Hold { term: false, .. } => self.end_leftovers_within(at, stem, serial, u64::MAX),
            Treatment::Hold { term: true, .. } | Treatment::Kill => self.end_leftovers_soon(at, stem, serial),
        }
        if matches!(treatment, Treatment::Hold { kill: true, .. }) {
            self.end_leftovers_within(at, stem, serial, GRACE_MS);
        }
        if let Some(unit) = self.nodes[at].systemd.unit(stem, serial) {
            unit.runner.waits = true;
        }
    }

    /// Sends a signal to the processes for which the unit's runner waits: TERM, or KILL by the signal 43.
    pub(super) fn signal_leftovers(&mut self, at: usize, stem: &str, serial: u64, signal: u8) {
        if signal == 43 {
            self.record_left(at, stem, serial, Treatment::Kill);
        }
        if matches!(signal, 15 | 43) {
            self.end_leftovers_soon(at, stem, serial);
        }
    }

    fn record_left(&mut self, at: usize, stem: &str, serial: u64, treatment: Treatment) {
        let at_ms = self.nodes[at].now(self.t).wall_ms;
        let Some(unit) = self.nodes[at].systemd.unit(stem, serial) else { return };
        let named = |left: &Leftover| task::Leftover {
            pid: left.pid,
            start: 1,
            command: "sleep".to_owned(),
            uid: 0,
            cgroup: left.outside.then(|| "/user.slice".to_owned()),
        };
        let processes = unit.leftovers.iter().map(named).collect();
        self.record(at, stem, serial, StepRecord::Left { at_ms, treatment, processes });
    }

    fn end_leftovers_soon(&mut self, at: usize, stem: &str, serial: u64) {
        let within = self.dice.skewed(0, ENDS_MS);
        self.end_leftovers_within(at, stem, serial, within);
    }

    /// Schedules the ends of the unit's leftovers: each at its own time, or within `ms`.
    fn end_leftovers_within(&mut self, at: usize, stem: &str, serial: u64, ms: u64) {
        let t = self.t;
        let Some(unit) = self.nodes[at].systemd.unit(stem, serial) else { return };
        for left in &mut unit.leftovers {
            left.until_ms = left.until_ms.min(t.saturating_add(ms));
        }
        let ends: Vec<u64> = unit.leftovers.iter().map(|left| left.until_ms.saturating_sub(t)).collect();
        for ms in ends {
            self.unit_after(ms, at, stem, serial, Act::LeftoverEnds);
        }
    }

    pub(super) fn leftover_ends(&mut self, at: usize, stem: &str) {
        let t = self.t;
        let Some(unit) = self.nodes[at].systemd.units.get_mut(stem) else { return };
        let before = unit.leftovers.len();
        unit.leftovers.retain(|left| left.until_ms > t);
        if before > 0 && unit.leftovers.is_empty() {
            let (serial, waits) = (unit.serial, std::mem::take(&mut unit.runner.waits));
            self.emptied(at, stem);
            if waits {
                self.seen_off(at, stem, serial);
            }
        }
    }

    /// Has the runner write its result: no process of the scripts is left, or they may live on.
    fn seen_off(&mut self, at: usize, stem: &str, serial: u64) {
        let delay = self.dice.skewed(0, 10);
        self.unit_after(delay, at, stem, serial, Act::WritesResult);
    }
}
