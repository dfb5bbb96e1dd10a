//! The truth: decides whether a machine of the simulated world has said something false. The truth knows which script
//! was alive where, and how each script ended. The machines never see the truth.
//!
//! `runs` records events on nodes. `reported` and `store` record statements of the machines. `doubt` records what no
//! machine can know. Each further file checks one promise: `agree` (an outcome is true), `releases` (releases),
//! `cleaned` (clean-up after each run), `guard` (no tasks beside each other), `stopped` (cancels), and so on.

mod agree;
mod attempts;
mod books;
mod cleaned;
mod doubt;
mod guard;
mod hosts;
mod milestones;
mod quiet;
pub(crate) mod recovery;
mod releases;
mod reported;
mod runs;
mod services;
mod stopped;
mod store;
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
    /// For the store of each of the two controllers: the outcomes, verdicts and accepted tasks that its commits have
    /// shown so far.
    shown: [Shown; 2],
    /// Actions of, for example, a lost store, two controllers or a pruned attempt: no controller can know all facts
    /// about them.
    doubtful: BTreeSet<ActionId>,
    /// Nodes with one host name, because one node is a clone of the other: a controller cannot know on which node a
    /// script ran.
    doubtful_nodes: BTreeSet<usize>,
    /// Tasks whose directory a fault has removed, with their stems: the agent cannot know what the directory contained.
    cleared: BTreeMap<TaskId, String>,
    /// Tasks whose tombstone an agent has removed, after a Forget or for lack of room.
    forgotten: BTreeSet<TaskId>,
    /// By node and task: the number of runs when the node last removed the task's tombstone.
    runs_before: BTreeMap<(usize, TaskId), usize>,
    /// By node, boot and task: the word of the outcome that callers on the host's local socket got.
    answers: BTreeMap<(usize, u64, TaskId), &'static str>,
    /// Tasks that an agent reported as cancelled before their begin, by machine, boot and task.
    cancel_reported: BTreeSet<(usize, u64, TaskId)>,
    /// By task and node that has accepted the task: whether the node has its tombstone in place of the directory,
    /// because the controller or the callers on the node's local socket know its end.
    at_rest: BTreeMap<(TaskId, usize), bool>,
    /// Tasks whose tombstone every node had in place of the directory, when the first controller pruned their attempt.
    reported_and_pruned: BTreeSet<TaskId>,
    /// Tasks with a runner that died before the claim, each with the number of the killing signal.
    died_unclaimed: BTreeSet<(TaskId, u8)>,
    releases: releases::Releases,
    books: books::Books,
    attempts: attempts::Attempts,
    cleaned: cleaned::Cleaned,
    /// Attempts that the resource manager still had when the controller pruned them.
    coming_again: BTreeSet<(JobId, Attempt)>,
    services: services::Services,
    /// Nodes, by index, on which all tasks run one at a time.
    exclusive: BTreeSet<usize>,
    stops: Stops,
    milestones: milestones::Book,
    quiet: quiet::Book,
    hosts: hosts::Hosts,
    recovery: recovery::Recovery,
    /// For tasks with an announced reboot: the node's boot in which the store first showed `ok`.
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

/// Joins ids with commas, for a text.
pub(super) fn some<T: std::fmt::Display>(ids: &BTreeSet<T>) -> String {
    ids.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}
