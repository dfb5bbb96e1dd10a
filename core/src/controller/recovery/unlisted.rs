//! Unlisted attempts: decides where the after-actions of an attempt may clean up that its edge's list lacks. Its
//! resource manager freed the hosts while its own rank 0 was down, or was rolled back; other jobs may have the hosts.
//! So an after-action of such an attempt begins on a host only if all of this holds:
//!
//! * no grace runs;
//! * the host's drain is in force, so no further job comes there;
//! * the edge has listed all its attempts since this controller started;
//! * neither another attempt nor a refused entry of the list has the host.
//!
//! The controller drains these hosts itself, and lifts each drain when the host's rank is released. The resource
//! manager gets no notice of an unlisted attempt. An attempt that a later list names again is as any other.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::json;

use crate::controller::context::{Change, Context};
use crate::controller::facts::Facts;
use crate::controller::io::{Passing, Source};
use crate::controller::job::Jobs;
use crate::controller::job::attempt::JobAttempt;
use crate::controller::machine::Machine;
use crate::defect;
use crate::ids::{ActionId, Attempt, HostName, JobId, Rank, TaskId};
use crate::idset::IdSet;

use super::held_back::Doubt;

/// Reason for which an unlisted attempt is closed.
const GONE: &str = "its resource manager has it no more";

impl Jobs {
    /// Returns the unlisted attempts that are not released whole.
    pub(crate) fn all_unlisted(&self) -> BTreeSet<(JobId, Attempt)> {
        let of = self.attempts().filter(|(_, _, attempt)| attempt.silent && !attempt.complete);
        of.map(|(job, number, _)| (job.clone(), number)).collect()
    }

    /// Closes an attempt that its resource manager no longer lists. Drops its notices; no later notice is sent.
    pub(super) fn unlist(&mut self, job: &JobId, number: Attempt, cx: &mut Context) {
        let dropped = cx.drop_notices(job, number, None);
        self.take_up_begun(job, number, cx);
        if let Some(attempt) = self.attempt_mut(job, number) {
            attempt.silent = !defect!(UnlistedIsTold);
        }
        self.unlisted.insert((job.clone(), number));
        self.event(job, "attempt-over", json!({"attempt": number, "why": GONE, "untold": dropped}), cx);
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
        for id in actions.into_iter().filter(|_| !defect!(ListedAgainWaits)) {
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

    /// Returns `true` if the attempt is spent: `perilog run` opened it, no resource manager will finish it, it is open,
    /// and all its actions have their verdicts.
    pub(crate) fn is_spent(&self, attempt: &JobAttempt) -> bool {
        !attempt.added && attempt.open && self.of(attempt).all(|action| action.row.verdict.is_some())
    }
}

impl Facts<'_> {
    /// Returns the reason why an after-action of the attempt must not begin on a host yet; `None`: it may, and always
    /// for an attempt that is not unlisted. `holder`: the job of another attempt that has the host.
    fn must_not_clean(
        &self,
        attempt: &JobAttempt,
        host: &HostName,
        holder: impl FnOnce() -> Option<JobId>,
    ) -> Option<Doubt> {
        let source = attempt.source.as_ref().filter(|_| attempt.silent && !defect!(UnlistedCleaned))?;
        if self.recovery.is_on() {
            return Some(Doubt::InGrace);
        }
        if !self.drains.is_drained(host) {
            return Some(Doubt::Undrained);
        }
        let listed = |of: &Source| of == source || of.name == source.name && defect!(ListOfAnyInstance);
        if !self.recovery.lists.has_all(listed) && !defect!(CleanedBeforeList) {
            return Some(Doubt::Unlisted(source.clone()));
        }
        let refused = self.recovery.lists.refused_on(host);
        if let Some((of, attempt)) = refused.filter(|_| !defect!(CleanedBesideRefused)) {
            return Some(Doubt::Refused(of.clone(), *attempt));
        }
        holder().filter(|_| !defect!(CleanedBesideOthers)).map(Doubt::Holder)
    }

    /// Returns the reason why an after-action of an unlisted attempt must not begin on a host yet, as
    /// [`Self::must_not_clean`]. Walks all attempts.
    pub(super) fn unlisted_waits(
        &self,
        job: &JobId,
        number: Attempt,
        attempt: &JobAttempt,
        host: &HostName,
    ) -> Option<Doubt> {
        self.must_not_clean(attempt, host, || {
            let mut others = self.jobs.attempts().filter(|(of, n, _)| (*of, *n) != (job, number));
            let has = |of: &JobAttempt| of.layout.rank(host.as_str()).is_some_and(|rank| self.has(of, rank));
            others.find(|(_, _, of)| has(of)).map(|(of, ..)| of.clone())
        })
    }

    /// Returns `true` if the attempt keeps unlisted attempts from cleaning up on the host of its rank: it has the rank,
    /// or it is unlisted too and a task of it runs there.
    fn has(&self, attempt: &JobAttempt, rank: u32) -> bool {
        if attempt.complete || attempt.abandoned || attempt.released.ranks.contains(rank) {
            return false;
        }
        if !attempt.silent || defect!(UnlistedRunIgnored) {
            return !attempt.silent && !self.jobs.is_spent(attempt);
        }
        let mut actions = self.jobs.of(attempt).map(|action| &action.row);
        actions.any(|row| row.sent.contains(rank) || row.accepted.contains(rank))
    }

    /// Returns the holder of each of `hosts`. Walks all attempts once: for a large job, one walk for each rank would
    /// cost too much.
    fn holders(&self, hosts: &BTreeSet<HostName>) -> BTreeMap<HostName, Vec<(JobId, Attempt)>> {
        let mut holders: BTreeMap<HostName, Vec<(JobId, Attempt)>> = BTreeMap::new();
        for (job, number, attempt) in self.jobs.attempts().filter(|(_, _, attempt)| !attempt.complete) {
            for (rank, host) in attempt.layout.pairs(attempt.layout.ranks()) {
                if let Some(host) = hosts.get(host).filter(|_| self.has(attempt, rank.0)) {
                    holders.entry(host.clone()).or_default().push((job.clone(), number));
                }
            }
        }
        holders
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
        let mut waiting: Vec<((JobId, Attempt), ActionId, IdSet)> = Vec::new();
        for of in &self.jobs.unlisted {
            let Some(attempt) = self.jobs.attempt(&of.0, of.1) else { continue };
            waiting.extend(self.facts().unbegun(attempt).into_iter().map(|(id, ranks)| (of.clone(), id, ranks)));
        }
        let hosts_of = |(of, _, ranks): &((JobId, Attempt), ActionId, IdSet)| -> Vec<HostName> {
            let layout = self.jobs.attempt(&of.0, of.1).map(|attempt| &attempt.layout);
            layout.into_iter().flat_map(|layout| ranks.iter().filter_map(|rank| layout.host(Rank(rank)))).collect()
        };
        let hosts: BTreeSet<HostName> = waiting.iter().flat_map(hosts_of).collect();
        let mut holders = self.facts().holders(&hosts);
        let mut changed = false;
        for (of, id, ranks) in waiting {
            let Some(attempt) = self.jobs.attempt(&of.0, of.1).cloned() else { continue };
            let mut ready = IdSet::new();
            for rank in ranks.iter() {
                let Some(host) = attempt.layout.host(Rank(rank)) else { continue };
                let holder = || holders.get(&host)?.iter().find(|other| **other != of).map(|(job, _)| job.clone());
                match self.facts().must_not_clean(&attempt, &host, holder) {
                    None => {
                        ready.insert(rank);
                        holders.entry(host).or_default().push(of.clone());
                    }
                    Some(_) if !self.drains.is_drained_or_draining(&host) => {
                        let reason = format!("cleaning up after job {} attempt {}", of.0, of.1);
                        let passing = Passing::Cleaning { job: of.0.clone(), attempt: of.1 };
                        self.drains.drain_passing(&host, reason, passing, &mut self.cx);
                        changed = true;
                    }
                    Some(_) => {}
                }
            }
            changed |= self.start_ready(id, &ready);
        }
        changed
    }
}
