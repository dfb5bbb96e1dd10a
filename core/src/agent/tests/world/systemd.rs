//! Simulated systemd: units with a runner in each, and the bus, which the world can lose and restore.

use crate::agent::io::{Effect, Input, Seen, StartReply};
use crate::task::{Claim, Intent, RunResult, UnitFacts};

use super::super::values::*;
use super::{Fate, World, is_for_the_bus};

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum UnitState {
    Queued,
    Running,
    Over(u8),
}

#[derive(Debug, Clone)]
pub(in crate::agent::tests) struct Unit {
    pub(super) intent: Intent,
    pub(super) invocation: u8,
    pub(super) state: UnitState,
    pub(super) left_behind: bool,
}

impl World {
    pub(super) fn start(&mut self, stem: String, intent: Intent, fate: Fate) -> StartReply {
        let unknown = StartReply::Unknown("no answer".to_owned());
        match fate {
            Fate::Failed => return StartReply::Rejected("no".to_owned()),
            Fate::Swallowed => return unknown,
            Fate::Late => {
                self.ever_late = true;
                self.interest.insert(stem, intent.start.task);
                self.late.push(intent);
                return unknown;
            }
            Fate::Done | Fate::Unanswered => {}
        }
        let exists = self.units.contains_key(&stem);
        if !exists {
            self.interest.insert(stem, intent.start.task);
            self.load(intent);
        }
        match (fate, exists) {
            (Fate::Done, false) => StartReply::Queued,
            (Fate::Done, true) => StartReply::Exists,
            _ => unknown,
        }
    }

    pub(super) fn load(&mut self, intent: Intent) {
        let stem = stem_of(&intent);
        if !self.units.contains_key(&stem) {
            self.invocations = self.invocations.wrapping_add(1);
            let unit = Unit { intent, invocation: self.invocations, state: UnitState::Queued, left_behind: false };
            self.units.insert(stem, unit);
        }
    }

    /// Lets PID 1 handle one of the starts that it has not handled yet; `at` chooses the start.
    pub(in crate::agent::tests) fn late_start(&mut self, at: usize) {
        if !self.late.is_empty() {
            let intent = self.late.remove(at % self.late.len());
            self.load(intent);
        }
    }

    /// Advances one unit, which `at` chooses, by one step: its runner takes the claim, its scripts end with exit status
    /// `code`, or the remaining processes end. `leaves`: whether the scripts leave processes behind.
    pub(in crate::agent::tests) fn step(&mut self, at: usize, code: u8, leaves: bool) {
        if self.units.is_empty() {
            return;
        }
        let Some(stem) = self.units.keys().nth(at % self.units.len()).cloned() else { return };
        match self.units[&stem].state {
            UnitState::Queued => self.run(&stem),
            UnitState::Running => self.end_script(&stem, code, false, leaves),
            UnitState::Over(_) => self.empty(&stem),
        }
    }

    /// Lets the runner of a unit take the claim, its first act.
    pub(super) fn run(&mut self, stem: &str) {
        let Some(unit) = self.units.get_mut(stem) else { return };
        let dir = self.dirs.get_mut(stem).filter(|dir| dir.intent.as_ref() == Some(&unit.intent));
        let free = dir.filter(|dir| dir.claim.is_none() && self.now.boot_ms <= unit.intent.not_after_boottime_ms);
        match free {
            Some(dir) => {
                dir.claim = Some(Claim::Runner(invocation(unit.invocation)));
                unit.state = UnitState::Running;
                let ran = self.ran.entry(unit.intent.start.task).or_default();
                *ran += 1;
                assert_eq!(*ran, 1, "scripts of one task ran twice");
            }
            None => unit.state = UnitState::Over(75),
        }
        self.change(stem);
    }

    pub(super) fn end_script(&mut self, stem: &str, code: u8, cancelled: bool, leaves: bool) {
        let Some(unit) = self.units.get_mut(stem).filter(|unit| unit.state == UnitState::Running) else { return };
        unit.state = UnitState::Over(code);
        // systemd kills the processes left by a failed unit.
        unit.left_behind = leaves && code == 0;
        self.ends.insert(unit.intent.start.task, (code, cancelled));
        let result = RunResult { cancelled, ..result(unit.invocation, code) };
        self.dirs.entry(stem.to_owned()).or_default().result = Some(result);
        self.change(stem);
    }

    pub(super) fn empty(&mut self, stem: &str) {
        if let Some(unit) = self.units.get_mut(stem) {
            unit.left_behind = false;
        }
        if self.watch_empty.remove(stem) {
            self.changes.insert(stem.to_owned());
        }
    }

    /// Stops or resets one unit, which `at` chooses, as a program other than perilog would.
    pub(in crate::agent::tests) fn take_away(&mut self, at: usize) {
        if self.units.is_empty() {
            return;
        }
        let Some(stem) = self.units.keys().nth(at % self.units.len()).cloned() else { return };
        self.empty(&stem);
        self.units.remove(&stem);
        self.change(&stem);
    }

    pub(super) fn change(&mut self, stem: &str) {
        if self.bus && self.interest.contains_key(stem) {
            self.changes.insert(stem.to_owned());
        }
    }

    /// Reports one of the pending changes to the agent; `at` chooses the change.
    pub(in crate::agent::tests) fn deliver(&mut self, at: usize) {
        let at = at % self.changes.len().max(1);
        let Some(stem) = self.changes.iter().nth(at).cloned() else { return };
        self.changes.remove(&stem);
        // Includes a task whose directory could not be written.
        let in_dir = || self.dirs.get(&stem).and_then(|dir| dir.intent.as_ref()).map(|intent| intent.start.task);
        let task = self.interest.get(&stem).copied().or_else(in_dir);
        if let Some(task) = task.filter(|_| self.bus) {
            self.feed(Input::TaskChanged { task });
        }
    }

    pub(super) fn look(&self, stem: &str) -> Seen {
        let unit = self.units.get(stem);
        let dir = self.dirs.get(stem).cloned().unwrap_or_default();
        let left_behind = unit.is_some_and(|unit| unit.left_behind);
        Seen {
            runner: None,
            unit: unit.map(facts),
            unit_ids: unit.map(|unit| unit_ids(&unit.intent)),
            processes: processes(if left_behind { &[7] } else { &[] }),
            claim: dir.claim,
            result: dir.result,
            steps: vec![],
            tails: vec![],
            stop_asked: dir.stop_asked,
            deaf: None,
            gone: false,
        }
    }

    /// Loses the bus: calls under way get no answer. `starts_happen`: whether systemd still carries out the starts
    /// among these calls.
    pub(in crate::agent::tests) fn lose_bus(&mut self, starts_happen: bool) {
        if !self.bus {
            return;
        }
        self.bus = false;
        self.forget_bus(starts_happen);
        self.feed(Input::BusLost);
    }

    pub(super) fn forget_bus(&mut self, starts_happen: bool) {
        self.interest.clear();
        self.watch_empty.clear();
        self.changes.clear();
        for effect in std::mem::take(&mut self.outstanding) {
            match effect {
                Effect::StartUnit { intent, .. } if starts_happen => {
                    self.ever_late = true;
                    self.late.push(*intent);
                }
                effect if is_for_the_bus(&effect) => {}
                effect => self.outstanding.push(effect),
            }
        }
    }
}

fn facts(unit: &Unit) -> UnitFacts {
    match unit.state {
        UnitState::Queued => UnitFacts {
            loaded: true,
            job_pending: true,
            active: "inactive".to_owned(),
            result: "success".to_owned(),
            ..UnitFacts::default()
        },
        UnitState::Running => running(unit.invocation),
        UnitState::Over(code) => exited(unit.invocation, code),
    }
}
