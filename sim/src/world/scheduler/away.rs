//! Faults of the resource manager: an outage, a rollback to an earlier state of its jobs, a cut connection.

use super::{Kind, Link, Of, PendingRequest};
use crate::world::World;

impl World {
    pub(crate) fn scheduler_down(&mut self, ms: u64) {
        self.scheduler.down_until = self.scheduler.down_until.max(self.t + ms);
        self.scheduler.link = Link::Down;
        // The answers are lost: after the outage, the resource manager makes these requests again.
        for asked in std::mem::take(&mut self.scheduler.asked).into_values() {
            if let PendingRequest::Add(of) | PendingRequest::Other(of) = asked
                && let Some(job) = self.scheduler.book.jobs.get_mut(&of)
            {
                job.asked_in = None;
            }
        }
    }

    /// Copies the state of the resource manager; returns the number of the copy, for `scheduler_restored`.
    pub(crate) fn scheduler_copied(&mut self) -> usize {
        self.scheduler.copies.push(self.scheduler.book.clone());
        self.scheduler.copies.len() - 1
    }

    pub(crate) fn scheduler_restored(&mut self, copy: usize) {
        if self.quiet || self.plan.scheduler != Some(Kind::Edge) {
            return;
        }
        let Some(book) = self.scheduler.copies.get(copy).cloned() else { return };
        self.log_line(|| "the resource manager is rolled back".to_owned());
        let before = std::mem::replace(&mut self.scheduler.book, book);
        let reported = self.controllers[0].store.outbox.iter().map(|entry| (entry.epoch, entry.sequence));
        self.scheduler.notified_before.extend(reported);
        let gone = before.jobs.into_keys().filter(|of| !self.scheduler.book.jobs.contains_key(of));
        self.scheduler.forgotten.extend(gone.collect::<Vec<_>>());
        for job in self.scheduler.book.jobs.values_mut() {
            job.asked_in = None;
        }
        let rows = &self.controllers[0].store.attempts;
        for (job, attempt) in self.scheduler.book.jobs.keys() {
            if !rows.iter().any(|row| (&row.job, row.attempt) == (job, *attempt)) {
                self.truth.held_after_prune(job, *attempt);
            }
        }
        let book = self.scheduler.book.jobs.iter();
        // Releases of attempts that the controller has released whole are sent again: their hosts are free.
        let rows = &self.controllers[0].store.attempts;
        let is_over = |of: &Of| rows.iter().any(|row| (&row.job, row.attempt) == (&of.0, of.1) && row.complete);
        let held = book.filter(|(of, job)| job.added && !is_over(of)).flat_map(|(of, job)| {
            job.held.iter().filter_map(|rank| Some((*job.hosts.get(rank as usize)?, of.clone())))
        });
        let held: Vec<_> = held.collect();
        self.truth.hosts_restored(held, self.t);
        self.scheduler.link = Link::Down;
        self.scheduler.asked.clear();
        self.schedule(1);
    }

    /// Cuts the resource manager's connection to the controller; an edge then connects and asserts anew.
    pub(crate) fn scheduler_cut(&mut self) {
        self.forget_asked();
        self.schedule(100);
    }

    /// Ends the edge's connection, and has the resource manager forget its unanswered requests.
    pub(super) fn forget_asked(&mut self) {
        self.scheduler.link = Link::Down;
        self.scheduler.asked.clear();
        for job in self.scheduler.book.jobs.values_mut() {
            job.asked_in = None;
        }
    }
}
