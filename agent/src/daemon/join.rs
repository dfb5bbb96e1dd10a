//! Builds the machine's input `Joined` when the connection to the bus comes up: the units that systemd has loaded, and
//! the tasks' directories as the daemon reads them now. One input carries both, so the machine handles no other input
//! in between.

use std::collections::{BTreeMap, BTreeSet};

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
            tracing::error!("{error}; the agent finds its tasks only by their units");
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
                self.task_index.enter(&one.stem, task);
            }
        }
        self.remove_notes(&found);
        // The daemon reports tombstones and epoch only once; later the machine knows more than the disk.
        let first = !std::mem::replace(&mut self.joined_once, true);
        let tombstones = if first { self.spool.tombstones() } else { Ok(Vec::new()) };
        let tombstones = tombstones.unwrap_or_else(|error| {
            tracing::error!("{error}; the agent does not know the tasks that have ended on this node (tombstones)");
            Vec::new()
        });
        Input::Joined { found, tombstones, accepted: self.accepted.filter(|_| first) }
    }

    /// Removes the notes of tasks that have ended: an earlier agent may have been killed after it wrote an outcome,
    /// before it removed the note. The epilog of a job's next attempt has the same note, which stays until that epilog
    /// ends, too.
    fn remove_notes(&self, found: &[Found]) {
        let note_of = |one: &Found| one.intent.as_ref().and_then(|intent| intent.hook.note.clone());
        let is_over = |one: &&Found| one.ended.as_ref().is_some_and(|ended| !ended.outcome.may_be_cut_off());
        let open: BTreeSet<String> = found.iter().filter(|one| !is_over(one)).filter_map(note_of).collect();
        let over: BTreeSet<String> = found.iter().filter(is_over).filter_map(note_of).collect();
        over.difference(&open).for_each(|note| self.notes.remove(note.clone()));
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
