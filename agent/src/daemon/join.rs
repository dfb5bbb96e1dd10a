//! Builds the machine's input `Joined` when the connection to the bus comes up: the units that systemd has loaded, and
//! the tasks' directories as the daemon reads them now. One input carries both, so the machine handles no other input
//! in between.

use std::collections::BTreeMap;

use perilog_core::agent::io::{Found, Input};

use super::Daemon;
use super::calls::runs;
use crate::spool::Traces;
use crate::systemd::{BusEvent, UnitFound};

impl Daemon {
    pub(super) fn on_bus(&mut self, event: BusEvent) {
        match event {
            BusEvent::Up { bus, units } => {
                self.calls.connected(bus);
                let input = self.joined(units);
                self.inputs.push_back(input);
            }
            BusEvent::Lost { .. } => {
                self.calls.lost();
                self.inputs.push_back(Input::BusLost);
            }
        }
    }

    fn joined(&mut self, units: Vec<UnitFound>) -> Input {
        let mut units: BTreeMap<String, UnitFound> = units.into_iter().map(|unit| (unit.stem.clone(), unit)).collect();
        let stems = self.spool.stems().unwrap_or_else(|error| {
            tracing::error!("{error}; tasks are known by their units only");
            Vec::new()
        });
        let mut found: Vec<Found> = Vec::with_capacity(stems.len());
        for stem in stems {
            self.watcher.watch(&stem);
            let unit = units.remove(&stem);
            found.push(self.found(stem, unit));
        }
        let alone = std::mem::take(&mut units);
        found.extend(alone.into_iter().map(|(stem, unit)| self.found(stem, Some(unit))));
        for one in &found {
            let task =
                one.intent.as_ref().map(|intent| intent.start.task).or(one.unit_ids.as_ref().map(|ids| ids.task));
            if let Some(task) = task {
                self.roll.enter(&one.stem, task);
            }
            // The agent before may have been killed between the outcome and this.
            let note = one.intent.as_ref().filter(|_| one.ended.is_some()).and_then(|intent| intent.hook.note.clone());
            if let Some(note) = note {
                self.notes.remove(note);
            }
        }
        // The daemon reports tombstones and epoch only once; later the machine knows more than the disk.
        let first = !std::mem::replace(&mut self.joined_once, true);
        let tombstones = if first { self.spool.tombstones() } else { Ok(Vec::new()) };
        let tombstones = tombstones.unwrap_or_else(|error| {
            tracing::error!("{error}; ended tasks are forgotten");
            Vec::new()
        });
        Input::Joined { found, tombstones, obeyed: self.obeyed.filter(|_| first) }
    }

    fn found(&self, stem: String, unit: Option<UnitFound>) -> Found {
        let running = unit.as_ref().is_some_and(|unit| runs(&unit.facts));
        let Traces { claim, result, steps, tails, stop_asked } = self.spool.traces(&stem, running);
        let (intent, ended) = (self.spool.intent(&stem), self.spool.outcome(&stem));
        let (unit, processes, unit_ids) = match unit {
            Some(unit) => (Some(unit.facts), unit.processes, unit.ids),
            None => (None, Vec::new(), None),
        };
        Found { stem, intent, claim, ended, result, steps, tails, stop_asked, unit, processes, unit_ids }
    }
}
