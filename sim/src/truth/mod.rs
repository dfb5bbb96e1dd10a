//! The truth: which script was alive where, and how each script ended. The machines never see the truth; the truth
//! checks every statement of the machines.
//!
//! `runs` records events on nodes; `told` and `store` record statements of the machines; `doubt` records unknowable
//! facts. Each further file checks one promise: `agree` (an outcome is true), `given` (releases), `cleaned` (clean-up
//! after each run), `guard` (no tasks beside each other), `stopped` (cancels), and so on.

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

use perilog_core::{ActionId, Attempt, BootId, JobId, TaskId};

use runs::Run;
use stopped::Stops;
use store::Shown;

#[derive(Debug, Default)]
pub(crate) struct Truth {
    runs: Vec<Run>,
    by_task: BTreeMap<TaskId, Vec<usize>>,
    /// For each of the two stores: the outcomes, verdicts and accepted tasks that its commits have shown so far.
    shown: [Shown; 2],
    /// Actions of a lost store, or of two controllers: some facts about these actions are unknowable.
    doubtful: BTreeSet<ActionId>,
    /// Machines that share a name: on which of these machines a script ran is unknowable.
    doubtful_nodes: BTreeSet<usize>,
    /// Tasks whose directory a fault removed, with their stems: the contents of such a directory are unknowable.
    cleared: BTreeMap<TaskId, String>,
    /// Tasks whose tombstone the agent removed after the controller's Forget.
    forgotten: BTreeSet<TaskId>,
    /// Number of runs at the time when a task's tombstone was last removed from its node.
    runs_before: BTreeMap<(usize, TaskId), usize>,
    /// Outcomes that callers on a host's local socket got, by machine, boot and task; as the word of the outcome.
    told: BTreeMap<(usize, u64, TaskId), &'static str>,
    /// Tasks that were reported as cancelled before their begin, by machine, boot and task.
    told_cancelled: BTreeSet<(usize, u64, TaskId)>,
    /// By task and machine that recorded the task; `true`: the controller acknowledged the end, and the machine has
    /// buried the task.
    at_rest: BTreeMap<(TaskId, usize), bool>,
    /// Tasks that every machine had buried when their attempt was pruned.
    told_and_pruned: BTreeSet<TaskId>,
    /// Tasks whose runner died before its claim, with the number of the signal that killed the runner.
    died_unclaimed: BTreeSet<(TaskId, u8)>,
    given: given::Given,
    books: books::Books,
    attempts: attempts::Attempts,
    cleaned: cleaned::Cleaned,
    /// Attempts that the resource manager still had when the controller pruned them.
    coming_again: BTreeSet<(JobId, Attempt)>,
    services: services::Services,
    /// Nodes on which all tasks queue.
    exclusive: BTreeSet<usize>,
    stops: Stops,
    milestones: milestones::Book,
    quiet: quiet::Book,
    hosts: hosts::Hosts,
    recovery: recovery::Recovery,
    /// The boot of its node in which each task's `ok` was first shown.
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

/// Joins a small set of ids for a text.
pub(super) fn some<T: std::fmt::Display>(ids: &BTreeSet<T>) -> String {
    ids.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}
