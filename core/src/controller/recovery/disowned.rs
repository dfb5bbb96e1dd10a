//! Disowned ranks: decides where after-actions may clean up although the resource manager no longer holds the rank for
//! the attempt. Another job may have the host. So an after-action begins there only in these cases:
//!
//! | the host | then |
//! |---|---|
//! | has a tombstone of that after-action | the tombstone is the outcome |
//! | has a drain in force, and no other attempt holds it (1, 3) | the after-action begins; success lifts the drain |
//! | an operator said that the job is over or goes on (2) | the after-action begins |
//! | otherwise | the after-action waits, and `ps` shows the reason |
//!
//! 1. Also, the recovery must be over, and the attempt's edge must have listed all its jobs since this controller
//!    started.
//!    No edge may have listed the host for an attempt that was refused.
//! 2. Unless a newer attempt of the job holds the host.
//! 3. An attempt holds the host until its rank is released, and as long as its edge has a notice of a release of the
//!    attempt to read. Attempts that wait to clean up there do so one after the other, by job name and number.
//!
//! The controller releases disowned ranks without a notice: the resource manager does not wait for them.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound::{Excluded, Unbounded};

use crate::controller::context::{Change, Context};
use crate::controller::facts::Facts;
use crate::controller::io::{OutboxEntry, Passing, Source};
use crate::controller::job::Jobs;
use crate::controller::job::attempt::JobAttempt;
use crate::controller::machine::Machine;
use crate::controller::recovery::held_back::Doubt;
use crate::defect;
use crate::ids::{ActionId, Attempt, HostName, JobId, Rank, TaskId};
use crate::idset::IdSet;

impl Jobs {
    /// Returns the attempts that have disowned ranks and that are not released whole.
    pub(super) fn disowned_attempts(&self) -> BTreeSet<(JobId, Attempt)> {
        let disowned = self.attempts().filter(|(_, _, attempt)| !attempt.complete && !attempt.disowned.is_empty());
        disowned.map(|(job, number, _)| (job.clone(), number)).collect()
    }

    /// Returns `true` if the attempt is spent: `perilog run` opened it, no resource manager will finish it, it is open,
    /// and all its actions have their verdicts.
    pub(crate) fn is_spent(&self, attempt: &JobAttempt) -> bool {
        !attempt.added && attempt.open && self.of(attempt).all(|action| action.row.verdict.is_some())
    }

    /// Records an operator's decision that after-actions may clean up on the hosts of the attempt's disowned ranks.
    /// `named`: the operator named this job, instead of all jobs. Unless `named`, does nothing for an attempt with a
    /// source, because the source's edge decides there.
    pub(super) fn clean_by_hand(&mut self, job: &JobId, number: Attempt, named: bool, cx: &mut Context) {
        let wants = |attempt: &&mut JobAttempt| attempt.wants_a_word_on_hosts() || named && attempt.has_disowned();
        if let Some(attempt) = self.attempt_mut(job, number).filter(wants) {
            attempt.by_hand = true;
            cx.attempt_changed(job, number);
        }
    }
}

/// An attempt that may keep others from cleaning up on a host.
struct Holder {
    job: JobId,
    number: Attempt,
    state: HolderState,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum HolderState {
    /// The resource manager holds the rank for the attempt, or a task of the attempt runs there.
    Holds,
    /// The attempt's rank is disowned and no task runs there: the attempt itself waits to clean up.
    Waits,
    /// The attempt's rank was released, and its edge has not read a notice of a release of the attempt.
    Unread,
}

impl Holder {
    /// Returns `true` if attempt `number` of `job` must not clean up on the host before this holder has let go of it. A
    /// holder that itself waits to clean up there comes first only if its job and number are lower.
    fn is_before(&self, job: &JobId, number: Attempt) -> bool {
        self.state != HolderState::Waits || (&self.job, self.number) < (job, number)
    }
}

impl Jobs {
    /// Marks unreleased ranks as disowned, because the resource manager no longer holds them for this attempt. An
    /// operator's earlier decision about the hosts of disowned ranks (`by_hand`) is void if ranks are new.
    pub(crate) fn disown(&mut self, job: &JobId, number: Attempt, ranks: &IdSet, cx: &mut Context) {
        let Some(attempt) = self.attempt_mut(job, number) else { return };
        let new = ranks.difference(&attempt.released.ranks).difference(&attempt.disowned);
        if new.is_empty() || defect!(NothingDisowned) {
            return;
        }
        attempt.disowned.extend_with(&new);
        // An operator's earlier statement did not cover the new ranks.
        attempt.by_hand = false;
        cx.attempt_changed(job, number);
        self.cleaning.insert((job.clone(), number));
    }

    /// Ends the disowning of ranks, because the resource manager holds them for this attempt after all. Actions that
    /// waited on the ranks may begin.
    pub(crate) fn own(&mut self, job: &JobId, number: Attempt, ranks: &IdSet, cx: &mut Context) {
        let Some(attempt) = self.attempt_mut(job, number) else { return };
        let back = attempt.disowned.intersection(ranks).difference(&attempt.released.ranks);
        if back.is_empty() {
            return;
        }
        attempt.disowned.subtract(&back);
        let actions = attempt.actions.clone();
        cx.attempt_changed(job, number);
        self.cleaned(job, number, &back, cx);
        for id in actions.into_iter().filter(|_| !defect!(OwnedWaitsOn)) {
            self.ready(id, back.clone(), cx);
        }
    }

    /// Ends the disowning of all ranks of a bare `run` that still holds ranks, because a request names the attempt
    /// again.
    pub(crate) fn own_again(&mut self, job: &JobId, number: Attempt, cx: &mut Context) {
        let bare = |attempt: &&JobAttempt| attempt.open && !attempt.added && !attempt.hold.is_empty();
        let bare = self.attempt(job, number).filter(bare);
        if let Some(ranks) = bare.map(|attempt| attempt.disowned.clone()) {
            self.own(job, number, &ranks, cx);
        }
    }

    /// Lifts the drains that recovery made for the clean-up of `ranks` of this attempt, because the ranks were released
    /// or are disowned no more. A drain that has another reason too stays.
    pub(crate) fn cleaned(&mut self, job: &JobId, number: Attempt, ranks: &IdSet, cx: &mut Context) {
        let Some(attempt) = self.attempt(job, number) else { return };
        let hosts: Vec<HostName> = ranks.iter().filter_map(|rank| attempt.layout.host(Rank(rank))).collect();
        cx.changes.push_back(Change::Cleaned(hosts, Passing::Cleaning { job: job.clone(), attempt: number }));
    }
}

impl Facts<'_> {
    /// Returns the reason why an after-action must not begin yet on a disowned rank. `None` if the after-action may
    /// begin, and for every rank that is not disowned.
    pub(super) fn must_not_clean(
        &self,
        number: Attempt,
        job: &JobId,
        attempt: &JobAttempt,
        rank: Rank,
        host: &HostName,
    ) -> Option<Doubt> {
        if !attempt.disowned.contains(rank.0) || defect!(DisownedCleaned) {
            return None;
        }
        if attempt.by_hand {
            return self.newer_on(host, job, number).filter(|_| !defect!(WordBesideNewer)).map(Doubt::Newer);
        }
        let Some(source) = &attempt.source else { return Some(Doubt::NoEdge) };
        if self.recovery.is_on() {
            return Some(Doubt::InRecovery);
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
        let holder = self.holder_but(host, job, number).filter(|_| !defect!(CleanedBesideOthers))?;
        let is_unread = holder.state == HolderState::Unread;
        Some(if is_unread { Doubt::Unread(holder.job) } else { Doubt::Holder(holder.job) })
    }

    /// Returns `true` if the attempt's edge learns of releases from notices. As long as the edge has one to read, the
    /// resource manager may count the attempt's job as the holder of all the attempt's hosts. `false`: the attempt has
    /// no edge, or one that has asked for the attempts themselves since its last list and reads no notices.
    fn has_reader(&self, attempt: &JobAttempt) -> bool {
        attempt.source.as_ref().is_some_and(|source| !self.recovery.followed.contains(source))
    }

    /// Returns `true` if the outbox has a notice of a release of the attempt for its edge. Scans the outbox.
    fn is_unread(&self, job: &JobId, number: Attempt) -> bool {
        let of = |entry: &OutboxEntry| entry.job == *job && entry.attempt == number && entry.is_release();
        self.cx.outbox.manager(0).any(of)
    }

    /// Returns the oldest newer attempt of the job that holds the host.
    fn newer_on(&self, host: &HostName, job: &JobId, number: Attempt) -> Option<Attempt> {
        let newer = self.jobs.get(job)?.attempts.range((Excluded(number), Unbounded));
        newer.filter(|(_, attempt)| self.holds(attempt, host)).map(|(number, _)| *number).next()
    }

    /// Returns `true` if the attempt still has an unreleased rank on this host. `false` for a spent attempt: a bare run
    /// whose actions have all ended.
    fn holds(&self, attempt: &JobAttempt, host: &HostName) -> bool {
        let rank = attempt.layout.rank(host.as_str()).filter(|_| !attempt.complete);
        rank.is_some_and(|rank| !attempt.released.ranks.contains(rank)) && !self.jobs.is_spent(attempt)
    }

    /// Returns `true` if a task of the attempt runs on the rank, or its Start is on its way to the node. An external
    /// action counts, because the controller cannot see when its service works. An unclaimed task on the node does not
    /// count.
    fn is_running(&self, attempt: &JobAttempt, rank: Rank, host: &HostName) -> bool {
        let unclaimed = |action| {
            let node = self.nodes.get(host);
            node.is_some_and(|node| node.unsettled.unclaimed.contains(&TaskId { action, rank }))
        };
        let mut actions = self.jobs.of(attempt).map(|action| &action.row);
        actions.any(|row| (row.sent.contains(rank.0) || row.accepted.contains(rank.0)) && !unclaimed(row.id))
    }

    /// Returns another attempt that must let go of the host before attempt `number` of `job` cleans up there; `None`:
    /// the clean-up waits for no other attempt.
    fn holder_but(&self, host: &HostName, job: &JobId, number: Attempt) -> Option<Holder> {
        let others = self.jobs.attempts().filter(|(of, n, _)| (*of, *n) != (job, number));
        let mut holders =
            others.filter_map(|(of, n, attempt)| self.holder(of, n, attempt, host, || self.is_unread(of, n)));
        holders.find(|holder| holder.is_before(job, number))
    }

    /// Returns the attempt as a [`Holder`] of the host; `None` if the attempt keeps no other from cleaning up there.
    /// `is_unread` returns `true` if the outbox has a notice of a release of the attempt.
    fn holder(
        &self,
        job: &JobId,
        number: Attempt,
        attempt: &JobAttempt,
        host: &HostName,
        is_unread: impl Fn() -> bool,
    ) -> Option<Holder> {
        let rank = attempt.layout.rank(host.as_str())?;
        let is_disowned = attempt.disowned.contains(rank);
        let runs = || self.is_running(attempt, Rank(rank), host) && !defect!(RunningHolderWaits);
        let state = if self.holds(attempt, host) {
            if is_disowned && !runs() { HolderState::Waits } else { HolderState::Holds }
        } else if self.has_reader(attempt) && is_unread() {
            // The edge is waited for even if the released rank was disowned.
            if is_disowned && defect!(ReleasedHolderWaits) { HolderState::Waits } else { HolderState::Unread }
        } else {
            return None;
        };
        Some(Holder { job: job.clone(), number, state })
    }

    /// Returns the holders of each of `hosts`. Walks all attempts and the outbox once: for a large job, one walk for
    /// each rank would cost too much.
    fn holders_of(&self, hosts: &BTreeSet<HostName>) -> BTreeMap<HostName, Vec<Holder>> {
        let releases = self.cx.outbox.manager(0).filter(|entry| entry.is_release());
        let unread: BTreeSet<(&JobId, Attempt)> = releases.map(|entry| (&entry.job, entry.attempt)).collect();
        let mut holders: BTreeMap<HostName, Vec<Holder>> = BTreeMap::new();
        for (job, number, attempt) in self.jobs.attempts() {
            let is_unread = unread.contains(&(job, number));
            if attempt.complete && !is_unread {
                continue;
            }
            for (_, host) in attempt.layout.pairs(attempt.layout.ranks()) {
                let Some(host) = hosts.get(host) else { continue };
                if let Some(holder) = self.holder(job, number, attempt, host, || is_unread) {
                    holders.entry(host.clone()).or_default().push(holder);
                }
            }
        }
        holders
    }

    /// Returns the ranks of all unclaimed tasks that wait on their nodes, by action.
    fn unclaimed(&self) -> BTreeMap<ActionId, IdSet> {
        let mut unclaimed: BTreeMap<ActionId, IdSet> = BTreeMap::new();
        for task in self.nodes.values().flat_map(|node| &node.unsettled.unclaimed) {
            unclaimed.entry(task.action).or_default().insert(task.rank.0);
        }
        unclaimed
    }

    /// Returns the disowned ranks of the attempt on which an action has not begun, by action. On such a rank the task
    /// either waits for its Start, or the node holds it unclaimed. `unclaimed`: by action, the ranks whose node holds
    /// the task unclaimed.
    fn waiting_to_clean<'a>(
        &'a self,
        attempt: &'a JobAttempt,
        unclaimed: &'a BTreeMap<ActionId, IdSet>,
    ) -> impl Iterator<Item = (ActionId, IdSet)> + 'a {
        let waiting = self.jobs.of(attempt).map(move |action| {
            let mut waiting = action.row.waiting.clone();
            if let Some(ranks) = unclaimed.get(&action.row.id).filter(|_| !defect!(UnclaimedNotCleaned)) {
                waiting.extend_with(&ranks.intersection(&action.row.accepted));
            }
            (action.row.id, waiting.intersection(&attempt.disowned))
        });
        waiting.filter(|(_, ranks)| !ranks.is_empty())
    }

    /// Returns the hosts of all disowned ranks on which an action has not begun: the action waits to clean up there.
    /// `unclaimed`: by action, the ranks whose node holds the task unclaimed.
    fn hosts_to_clean(&self, unclaimed: &BTreeMap<ActionId, IdSet>) -> BTreeSet<HostName> {
        let attempts = self.jobs.cleaning.iter().filter_map(|(job, number)| self.jobs.attempt(job, *number));
        let mut hosts = BTreeSet::new();
        for attempt in attempts {
            for (_, ranks) in self.waiting_to_clean(attempt, unclaimed) {
                hosts.extend(ranks.iter().filter_map(|rank| attempt.layout.host(Rank(rank))));
            }
        }
        hosts
    }
}

impl Machine {
    /// Lets after-actions clean up on disowned ranks where they may. On each such rank that an action waits for: takes
    /// the outcome from the node's tombstone of the task, begins the action if nothing keeps it waiting, or else may
    /// drain the host. Returns `true` if a drain or a rank changed. Does nothing while the gate is shut or a recovery
    /// is under way.
    pub(crate) fn clean_disowned(&mut self) -> bool {
        if self.jobs.cleaning.is_empty() || self.recovery.is_on() || self.recovery.is_settling() {
            return false;
        }
        let mut changed = false;
        let unclaimed = self.facts().unclaimed();
        let holders = self.facts().holders_of(&self.facts().hosts_to_clean(&unclaimed));
        for (job, number) in self.jobs.cleaning.clone() {
            let Some(attempt) = self.jobs.attempt(&job, number).filter(|attempt| !attempt.complete) else {
                self.jobs.cleaning.remove(&(job, number));
                self.recovery.drop_tombstones(&self.jobs, &mut self.nodes);
                continue;
            };
            let by_hand = attempt.by_hand;
            if attempt.source.is_none() && !by_hand {
                continue;
            }
            let waiting: Vec<(ActionId, IdSet)> = self.facts().waiting_to_clean(attempt, &unclaimed).collect();
            let layout = attempt.layout.clone();
            let is_held = |host: &HostName| {
                let of_host = holders.get(host).into_iter().flatten().filter(|_| !by_hand);
                let mut others = of_host.filter(|of| (&of.job, of.number) != (&job, number));
                others.any(|other| other.is_before(&job, number)) && !defect!(CleanedBesideOthers)
            };
            for (id, ranks) in waiting {
                let mut ready = IdSet::new();
                for rank in ranks.iter().map(Rank) {
                    let Some(host) = layout.host(rank) else { continue };
                    let task = TaskId { action: id, rank };
                    let node = self.nodes.get_mut(&host);
                    let tombstone =
                        node.and_then(|node| Some((node.session?, node.unsettled.tombstones.remove(&task)?)));
                    if let Some((session, state)) = tombstone {
                        self.settle_held(session, &host, task, &state, None);
                        changed = true;
                    } else if !is_held(&host) && self.facts().held_back(id, rank).is_none() {
                        ready.insert(rank.0);
                    } else if !by_hand && !self.drains.is_drained_or_draining(&host) {
                        let reason = format!("cleaning up after job {job} attempt {number}");
                        let passing = Passing::Cleaning { job: job.clone(), attempt: number };
                        self.drains.drain_passing(&host, reason, passing, &mut self.cx);
                        changed = true;
                    }
                }
                changed |= self.start_ready(id, &ready);
            }
        }
        changed
    }
}
