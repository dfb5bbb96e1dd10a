//! Figures for Prometheus (`http` serves them), off unless `[metrics] listen` names an address. The writer and the hooks count; a scraper
//! reads. Counters begin at zero with the process; no decision depends on them.
//!
//! | room | |
//! |---|---|
//! | `counts` | counters, each with a bound on its labels |
//! | `text` | Prometheus' text format 0.0.4 |
//! | `page` | the page, with the present state of machine and store |
//!
//! No label has the name of a job, a node or a rank. The site chooses the names of actions and scripts: past a bound
//! they count as `other`.

mod counts;
mod page;
#[cfg(test)]
mod tests;
mod text;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use perilog_core::controller::Effect;

use crate::hooks::Kind;
use crate::store::Ran;

pub(crate) use page::Source;

use counts::Counts;

/// Cheap to clone.
#[derive(Debug, Clone, Default)]
pub(crate) struct Metrics(Arc<Mutex<Counts>>);

impl Metrics {
    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a committed batch: its duration, tasks that ended in it for the first time, and its effects.
    pub(crate) fn committed(&self, took: Option<Duration>, ran: &[Ran], effects: &[Effect]) {
        let mut counts = self.counts();
        if let Some(took) = took {
            counts.commits.observe(took.as_secs_f64());
        }
        ran.iter().for_each(|ran| counts.ran(ran));
        effects.iter().for_each(|effect| counts.effect(effect));
    }

    /// Creates the counters of actions that began before this process.
    pub(crate) fn open<'a>(&self, actions: impl Iterator<Item = &'a str>) {
        let mut counts = self.counts();
        actions.for_each(|action| drop(counts.action(action)));
    }

    /// A commit failed.
    pub(crate) fn not_committed(&self) {
        self.counts().commits_failed += 1;
    }

    /// The session of an agent ended that had said Hello.
    pub(crate) fn disconnected(&self) {
        self.counts().disconnects += 1;
    }

    /// The store's disk is full, or no longer.
    pub(crate) fn store_full(&self, full: bool) {
        self.counts().store_full = full;
    }

    pub(crate) fn is_store_full(&self) -> bool {
        self.counts().store_full
    }

    /// A hook's command came to an end.
    pub(crate) fn hook(&self, kind: Kind, ok: bool) {
        *self.counts().hooks.entry((kind.word(), ok)).or_default() += 1;
    }
}
