//! What really happened: which script was alive where, how it ended. The machines never see this; everything they say
//! is held against it.
//!
//! `runs` is what happened on nodes, `told` and `store` what was said of it and by whom, `doubt` what nobody can know;
//! each of the other rooms is one promise: `agree` (an outcome is what happened), `given` (releases), `cleaned` (what
//! follows what ran), `guard` (never beside each other), `stopped` (cancels), and so on.

mod agree;
mod attempts;
mod books;
mod cleaned;
mod doubt;
mod given;
mod guard;
mod hosts;
mod milestones;
mod quiet;
pub(crate) mod recovery;
mod runs;
mod services;
mod stopped;
mod store;
mod told;
mod tries;

use std::collections::{BTreeMap, BTreeSet};

use perilog_core::{ActionId, BootId, TaskId};

use runs::Run;
use stopped::Stops;
use store::Shown;

#[derive(Debug, Default)]
pub(crate) struct Truth {
    runs: Vec<Run>,
    by_task: BTreeMap<TaskId, Vec<usize>>,
    /// What each store has shown.
    shown: [Shown; 2],
    /// Actions of which a store was lost, or that two controllers had in hand: nobody can know some things of them.
    doubtful: BTreeSet<ActionId>,
    /// Machines that share a name: nobody can know on which of them something ran.
    doubtful_nodes: BTreeSet<usize>,
    /// Tasks whose directory somebody removed, and their names: what only that said nobody can know.
    cleared: BTreeMap<TaskId, String>,
    /// Tasks whose tombstone went when it might.
    forgotten: BTreeSet<TaskId>,
    /// How much had run when a task's tombstone went from its node, last.
    runs_before: BTreeMap<(usize, TaskId), usize>,
    /// What callers on a host's local socket were told: (machine, its boot, task) and the word of the outcome.
    told: BTreeMap<(usize, u64, TaskId), &'static str>,
    /// (machine, boot, task) of which it was said that it was cancelled before it began.
    told_cancelled: BTreeSet<(usize, u64, TaskId)>,
    /// Which machine wrote a task down; `true`: and has buried it, for its end was acknowledged there.
    at_rest: BTreeMap<(TaskId, usize), bool>,
    /// All that had them had buried them when their attempt was pruned.
    told_and_pruned: BTreeSet<TaskId>,
    /// Tasks whose runner died before it claimed, and of which signal.
    died_unclaimed: BTreeSet<(TaskId, u8)>,
    given: given::Given,
    books: books::Books,
    attempts: attempts::Attempts,
    cleaned: cleaned::Cleaned,
    services: services::Services,
    /// Nodes on which all tasks queue.
    exclusive: BTreeSet<usize>,
    stops: Stops,
    milestones: milestones::Book,
    quiet: quiet::Book,
    hosts: hosts::Hosts,
    recovery: recovery::Recovery,
    /// In which boot of its node a task was first shown as ok.
    ok_in: BTreeMap<TaskId, BootId>,
    broken: Option<String>,
    pub(crate) scripts: u64,
    pub(crate) outcomes: u64,
}

impl Truth {
    pub(crate) fn take_broken(&mut self) -> Option<String> {
        self.broken.take()
    }

    fn broken(&mut self, text: impl FnOnce() -> String) {
        self.broken.get_or_insert_with(text);
    }
}

/// Small sets of ids in texts.
pub(super) fn some<T: std::fmt::Display>(ids: &BTreeSet<T>) -> String {
    ids.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}
