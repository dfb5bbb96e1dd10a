//! Figures for Prometheus, off unless `[metrics] listen` names an address; `http` serves them. The writer and the hooks
//! count; a scraper reads. Counters begin at zero with the process; no decision depends on the counters.
//!
//! | module | contents |
//! |---|---|
//! | `counts` | counters, each with a bound on its labels |
//! | `text` | Prometheus' text format 0.0.4 |
//! | `figures` | all figures: the counters, and the present state of machine and store |
//!
//! No label has the name of a job, a node or a rank. The site chooses the names of actions and scripts: past a bound
//! these count as `other`.

mod counts;
mod figures;
#[cfg(test)]
mod tests;
mod text;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use perilog_core::controller::Effect;

use crate::hooks::Kind;
use crate::store::Ran;

pub(crate) use figures::Source;

use counts::Counts;

/// The counters; cheap to clone.
#[derive(Debug, Clone, Default)]
pub(crate) struct Metrics(Arc<Mutex<Counts>>);

impl Metrics {
    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a committed batch: the duration of its commit (`None`: the batch had no records), the durations that the
    /// commit has stored in `ran`, and the effects.
    pub(crate) fn committed(&self, elapsed: Option<Duration>, ran: &[Ran], effects: &[Effect]) {
        let mut counts = self.counts();
        if let Some(elapsed) = elapsed {
            counts.commits.observe(elapsed.as_secs_f64());
        }
        ran.iter().for_each(|ran| counts.ran(ran));
        effects.iter().for_each(|effect| counts.effect(effect));
    }

    /// Creates the counters of actions that began before this process.
    pub(crate) fn open<'a>(&self, actions: impl Iterator<Item = &'a str>) {
        let mut counts = self.counts();
        actions.for_each(|action| drop(counts.action(action)));
    }

    /// Counts a commit that failed.
    pub(crate) fn not_committed(&self) {
        self.counts().commits_failed += 1;
    }

    /// Counts the end of a session whose agent had said Hello.
    pub(crate) fn disconnected(&self) {
        self.counts().disconnects += 1;
    }

    /// Records whether the store's disk is full.
    pub(crate) fn store_full(&self, full: bool) {
        self.counts().store_full = full;
    }

    pub(crate) fn is_store_full(&self) -> bool {
        self.counts().store_full
    }

    /// Counts the end of a hook's command.
    pub(crate) fn hook(&self, kind: Kind, ok: bool) {
        *self.counts().hooks.entry((kind.as_str(), ok)).or_default() += 1;
    }
}
