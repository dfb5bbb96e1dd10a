//! Unlisted attempts: decides where the after-actions of an unlisted attempt may clean up. The list of its edge lacks
//! the attempt, because the resource manager freed the hosts while its rank 0 was down, or was rolled back. Other jobs
//! may have the hosts. An after-action of such an attempt begins on a host only if all of these conditions hold:
//!
//! * no grace runs;
//! * the host's drain is in force, so no further job comes there;
//! * the edge has listed all its attempts since this controller started, and none of them was refused;
//! * no unlisted attempt of another job cleans up there.
//!
//! A rank whose host another attempt has is given up ([`crate::controller::recovery::missing`]): its host stays
//! drained. The controller drains the hosts itself, and lifts each drain when the host's rank is released. The resource
//! manager gets no notice of an unlisted attempt. An attempt that a later list names again is as any other.

use std::collections::BTreeSet;

use serde_json::json;

use crate::controller::facts::Facts;
use crate::controller::interface::io::{Passing, Source};
use crate::controller::machine::Machine;
use crate::controller::state::Jobs;
use crate::controller::state::attempt::JobAttempt;
use crate::controller::state::change::Change;
use crate::controller::state::context::Context;
use crate::defect;
use crate::ids::{ActionId, Attempt, HostName, JobId, Rank, TaskId};
use crate::idset::IdSet;

/// Reason for which an unlisted attempt is closed.
const GONE: &str = "its resource manager no longer lists it";

impl Jobs {
    /// Returns the unlisted attempts that are not fully released.
    pub(crate) fn all_unlisted(&self) -> BTreeSet<(JobId, Attempt)> {
        let of = self.table.live_attempts().filter(|(_, _, attempt)| attempt.silent && !attempt.complete);
        of.map(|(job, number, _)| (job.clone(), number)).collect()
    }

    /// Closes an attempt that its resource manager no longer lists. Drops its notices; no later notice is sent.
    pub(super) fn unlist(&mut self, job: &JobId, number: Attempt, cx: &mut Context) {
        let dropped = cx.drop_notices(job, number, None);
        self.take_up_begun(job, number, cx);
        if let Some(attempt) = self.attempt_mut(job, number) {
            attempt.silent = true;
            if defect!(UnlistedNoticed) {
                attempt.silent = false;
            }
        }
        self.unlisted.insert((job.clone(), number));
        self.event(job, "attempt-over", json!({"attempt": number, "why": GONE, "dropped": dropped}), cx);
        self.close_attempt(job, number, GONE, cx);
    }

    /// Ends the silence about an attempt, because its resource manager lists it again. Actions that waited for that may
    /// begin.
    pub(super) fn list_again(&mut self, job: &JobId, number: Attempt, cx: &mut Context) {
        let Some(attempt) = self.attempt_mut(job, number).filter(|attempt| attempt.silent) else { return };
        attempt.silent = false;
        let (all, actions) = (attempt.layout.ranks().clone(), attempt.actions.clone());
        cx.attempt_changed(job, number);
        self.cleaned(job, number, &all, cx);
        if defect!(ListedAgainWaits) {
            return;
        }
        for id in actions {
            self.ready(id, all.clone(), cx);
        }
    }

    /// Lifts the drains for the clean-up of `ranks` of this attempt, because the ranks were released or are listed
    /// again. A drain that has another reason too stays.
    pub(crate) fn cleaned(&mut self, job: &JobId, number: Attempt, ranks: &IdSet, cx: &mut Context) {
        let Some(attempt) = self.attempt(job, number) else { return };
        let hosts: Vec<HostName> = ranks.iter().filter_map(|rank| attempt.layout.host(Rank(rank))).collect();
        cx.changes.push_back(Change::Cleaned(hosts, Passing::Cleaning { job: job.clone(), attempt: number }));
    }
}

impl Facts<'_> {
    /// Returns `true` if a task of the attempt must not begin on a host yet, because the attempt is unlisted. `false`
    /// also for any other attempt.
    pub(crate) fn must_not_clean(&self, job: &JobId, attempt: &JobAttempt, host: &HostName) -> bool {
        if defect!(UnlistedCleaned) {
            return false;
        }
        let source = attempt.source.as_ref().filter(|_| attempt.silent);
        let Some(source) = source else { return false };
        let is_same = |of: &Source| {
            if defect!(ListOfAnyInstance) {
                return of.name == source.name;
            }
            of == source
        };
        let listed = self.lists.has_all(is_same);
        let listed = if defect!(CleanedBeforeList) { true } else { listed };
        self.recovery.is_on() || !self.drains.is_drained(host) || !listed || self.is_cleaned_for_another(job, host)
    }

    /// Returns `true` if a task of another unlisted job runs on the host.
    fn is_cleaned_for_another(&self, job: &JobId, host: &HostName) -> bool {
        if defect!(UnlistedRunIgnored) {
            return false;
        }
        let others = self.jobs.unlisted.iter().filter(|(of, _)| of != job);
        let others = others.filter_map(|(of, number)| self.jobs.attempt(of, *number));
        others.filter_map(|other| Some((other, other.layout.rank(host.as_str())?))).any(|(other, rank)| {
            let mut actions = self.jobs.of(other).map(|action| &action.row);
            actions.any(|row| row.sent.contains(rank) || row.accepted.contains(rank))
        })
    }

    /// Returns the ranks of an unlisted attempt on which an action waits for its Start, or for a Begin of the task that
    /// its node holds unclaimed, by action.
    fn unbegun(&self, attempt: &JobAttempt) -> Vec<(ActionId, IdSet)> {
        let of = self.jobs.of(attempt).map(|action| {
            let id = action.row.id;
            let is_unclaimed = |rank: &u32| {
                let host = attempt.layout.host(Rank(*rank));
                let node = host.and_then(|host| self.nodes.get(&host));
                node.is_some_and(|node| node.unsettled.unclaimed.contains(&TaskId { action: id, rank: Rank(*rank) }))
            };
            let unclaimed: IdSet = action.row.accepted.iter().filter(is_unclaimed).collect();
            (id, action.row.waiting.union(&unclaimed))
        });
        of.filter(|(_, ranks)| !ranks.is_empty()).collect()
    }
}

impl Machine {
    /// Lets the after-actions of unlisted attempts begin where they may, and drains the hosts where they may not yet.
    /// Returns `true` if a drain or a rank changed. Does nothing while the gate is shut or a grace runs.
    pub(crate) fn clean_unlisted(&mut self) -> bool {
        if self.jobs.unlisted.is_empty() || self.recovery.is_on() || self.recovery.is_settling() {
            return false;
        }
        self.jobs.unlisted = self.jobs.all_unlisted();
        let mut changed = false;
        for (job, number) in self.jobs.unlisted.clone() {
            let Some(attempt) = self.jobs.attempt(&job, number).cloned() else { continue };
            for (id, ranks) in self.facts().unbegun(&attempt) {
                let mut ready = IdSet::new();
                for (rank, host) in ranks.iter().filter_map(|rank| Some((rank, attempt.layout.host(Rank(rank))?))) {
                    if !self.drains.is_drained_or_draining(&host) {
                        let reason = format!("cleaning up after job {job} attempt {number}");
                        let passing = Passing::Cleaning { job: job.clone(), attempt: number };
                        self.drains.drain_passing(&host, reason, passing, &mut self.cx);
                        changed = true;
                    } else if !self.facts().must_not_clean(&job, &attempt, &host) {
                        ready.insert(rank);
                    }
                }
                changed |= self.start_ready(id, &ready, self.cx.now.mono_ms);
            }
        }
        changed
    }
}
