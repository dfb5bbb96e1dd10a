//! The spool of a node: its files under /run/perilog, which outlive the agent but not the boot.

use std::collections::BTreeMap;

use perilog_core::agent::io::Seen;
use perilog_core::task::{Claim, Ended, Intent, RunResult, StepRecord, Tombstone};
use perilog_core::{AcceptedEpoch, BootRecord, Commit};

#[derive(Debug, Default)]
pub(crate) struct Spool {
    pub(crate) record: Option<BootRecord>,
    pub(crate) tasks: BTreeMap<String, Dir>,
    pub(crate) tombstones: BTreeMap<String, Tombstone>,
    pub(crate) accepted: Option<AcceptedEpoch>,
    /// Number of task directories made so far: each gets the next number as its serial number. A runner keeps writing
    /// into the directory that it opened, even if a newer directory has taken the name.
    made: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Dir {
    pub(crate) serial: u64,
    pub(crate) intent: Option<Intent>,
    pub(crate) claim: Option<Claim>,
    pub(crate) steps: Vec<StepRecord>,
    pub(crate) result: Option<RunResult>,
    pub(crate) ended: Option<Ended>,
    /// Whether the runner may tell its script that the controller knows of the announced reboot.
    pub(crate) boot_expected: bool,
    /// Whether the agent was asked to stop the task.
    pub(crate) stop_asked: bool,
}

impl Spool {
    pub(crate) fn dir(&mut self, stem: &str) -> &mut Dir {
        let made = &mut self.made;
        self.tasks.entry(stem.to_owned()).or_insert_with(|| {
            *made += 1;
            Dir { serial: *made, ..Dir::default() }
        })
    }

    /// Writes the intent of a task into its directory. A new intent removes the outcome and the tombstone of an earlier
    /// run. An intent that the agent rebuilds for a begun task removes neither.
    pub(crate) fn record(&mut self, stem: &str, intent: Intent) {
        let is_rebuilt = intent.is_rebuilt();
        let dir = self.dir(stem);
        dir.intent = Some(intent);
        if !is_rebuilt {
            (dir.ended, dir.boot_expected, dir.stop_asked) = (None, false, false);
            self.tombstones.remove(stem);
        }
    }

    /// Returns the task directory with this serial number, which a runner opened, if the directory still has its name.
    pub(crate) fn opened(&mut self, stem: &str, serial: u64) -> Option<&mut Dir> {
        self.tasks.get_mut(stem).filter(|dir| dir.serial == serial)
    }

    /// Takes the claim of a task for the agent, with O_EXCL. Returns `true` if the claim is the agent's, new or old;
    /// `false`: a runner has it, or there is no directory.
    pub(crate) fn take_claim(&mut self, stem: &str, claim: &Claim) -> bool {
        self.tasks.get_mut(stem).is_some_and(|dir| dir.claim.get_or_insert_with(|| claim.clone()) == claim)
    }

    pub(crate) fn write_tombstone(&mut self, stem: &str, tombstone: Tombstone, also_directory: bool) {
        self.tombstones.insert(stem.to_owned(), tombstone);
        if also_directory {
            self.tasks.remove(stem);
        }
    }

    /// Completes burials that a crash cut short, as an agent does at its start: removes each directory that has a
    /// tombstone.
    pub(crate) fn tidy(&mut self) {
        let tombstones = &self.tombstones;
        self.tasks.retain(|stem, _| !tombstones.contains_key(stem));
    }

    /// Returns the newest commit that the node's disk names, in intents, tombstones and the accepted epoch; local tasks
    /// do not count. `None`: the disk names no commit.
    pub(crate) fn newest(&self) -> Option<Commit> {
        let intents = self.tasks.values().filter_map(|dir| dir.intent.as_ref()).filter(|intent| !intent.local);
        let tombstones = self.tombstones.values().filter(|tombstone| !tombstone.local);
        let commits =
            intents.filter_map(|intent| intent.commit).chain(tombstones.filter_map(|tombstone| tombstone.commit));
        commits
            .chain(self.accepted.map(|accepted| accepted.newest()))
            .max_by_key(|commit| (commit.epoch.number, commit.number))
    }

    /// Adds the contents of the task's directory to `seen`, the inspection of its unit, and returns `seen`.
    pub(crate) fn inspect(&self, stem: &str, mut seen: Seen) -> Seen {
        if let Some(dir) = self.tasks.get(stem) {
            seen.claim.clone_from(&dir.claim);
            seen.steps.clone_from(&dir.steps);
            seen.result.clone_from(&dir.result);
            seen.stop_asked = dir.stop_asked;
        }
        seen.gone = !self.tasks.contains_key(stem);
        seen
    }
}
