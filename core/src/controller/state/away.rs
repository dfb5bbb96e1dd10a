//! Counts the jobs that are in the store alone, and knows which jobs are to leave memory next.

use std::collections::{BTreeSet, VecDeque};

use crate::controller::interface::io::Elsewhere;
use crate::controller::interface::overview::MAX_VERDICTS;
use crate::ids::JobId;

/// Number of parts into which [`Holding::ms`] is divided: jobs leave memory at most once in each part.
const PASSES: u64 = 10;

/// The jobs that have left memory, and those that will.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Away {
    /// Counts of what the store has and the memory does not.
    pub(crate) elsewhere: Elsewhere,
    /// Jobs with an attempt that has ended, each with the time (monotonic) of that, in this order. A job may be there
    /// more than once, and may live again.
    idle: VecDeque<(u64, JobId)>,
    /// Time (monotonic) at which jobs last left memory.
    left_ms: u64,
}

impl Away {
    /// Records that an attempt of the job has ended, or that the job had to stay when others left.
    pub(crate) fn add_idle(&mut self, mono_ms: u64, job: JobId) {
        self.idle.push_back((mono_ms, job));
    }

    /// Returns `true` if jobs are to leave memory at `mono_ms` (monotonic). To find out which of them stay is a walk
    /// over all nodes, so many leave together.
    pub(crate) fn is_due(&self, mono_ms: u64, holding: Holding) -> bool {
        let is_idle = |at: u64| at.saturating_add(holding.ms) <= mono_ms;
        let is_first = mono_ms >= self.left_ms.saturating_add(holding.ms / PASSES);
        is_first && self.idle.front().is_some_and(|(at, _)| is_idle(*at))
    }

    /// Takes out the jobs that are to leave memory at `mono_ms` (monotonic), at most `limit`, the first ones first.
    pub(crate) fn take_idle(&mut self, mono_ms: u64, holding: Holding, limit: usize) -> BTreeSet<JobId> {
        let until_ms = mono_ms.saturating_sub(holding.ms);
        self.left_ms = mono_ms;
        let due = self.idle.iter().take(limit).take_while(|(at, _)| *at <= until_ms).count();
        self.idle.drain(..due).map(|(_, job)| job).collect()
    }

    /// Counts a job that has left memory, with its attempts and actions.
    pub(crate) const fn left(&mut self, attempts: usize, actions: usize) {
        self.elsewhere.jobs += 1;
        self.elsewhere.attempts += attempts;
        self.elsewhere.actions += actions;
    }

    /// Counts a job that has come back.
    pub(crate) const fn came_back(&mut self, attempts: usize, actions: usize) {
        let all = &mut self.elsewhere;
        all.jobs = all.jobs.saturating_sub(1);
        all.attempts = all.attempts.saturating_sub(attempts);
        all.actions = all.actions.saturating_sub(actions);
    }
}

/// Which jobs stay in memory although they have ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Holding {
    /// Time (ms) after the job has ended, or after a batch has needed it. Nodes that connect again name the same job
    /// within seconds of each other.
    pub ms: u64,
    /// Number of the newest verdicts whose jobs stay: the overview shows them.
    pub verdicts: usize,
}

impl Default for Holding {
    fn default() -> Self {
        Self { ms: 60_000, verdicts: MAX_VERDICTS }
    }
}

impl Holding {
    /// For tests: jobs leave memory at the end of the batch in which they end, and the overview lacks their verdicts.
    pub const NONE: Self = Self { ms: 0, verdicts: 0 };
}

/// The attempts of the store that are over and have been unchanged for the longest time. Those that are not over are in
/// memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Oldest {
    /// Only attempts that have not changed after this time (milliseconds since 1970).
    pub until_ms: u64,
    /// Number of attempts.
    pub limit: usize,
}
