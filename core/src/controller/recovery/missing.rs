//! Missing clean-ups: judges, after the grace of a generation, on which hosts a clean-up may not have run, and decides
//! which after-actions must not begin beside another job.
//!
//! A host is *uncleaned* for an attempt that no request has taken up if the store (in the node's present boot), or a
//! task or tombstone of the node, shows a setup action of the attempt, and neither shows that each after-action went
//! well. The controller drains such a host. The drain is lifted when the attempt is taken up, when the node shows the
//! clean-up after all, or by an operator. It is not lifted because the traces are gone: a node forgets its tombstones.
//!
//! A request that takes up an attempt whose job has begun or ended may come too late: another job may have a host by
//! now. That is a job which was added since the generation, a newer attempt of the same job, or an unknown attempt.
//! Then the attempt gives the host up: no after-action begins there, the host is drained, and no notice says that it is
//! free. An edge's list counts more: the attempts that it names share the host.

use std::collections::{BTreeMap, BTreeSet};

use crate::controller::facts::Facts;
use crate::controller::interface::io::{Passing, Recovered, Resolving};
use crate::controller::machine::Machine;
use crate::controller::state::Jobs;
use crate::controller::state::Nodes;
use crate::controller::state::RankState;
use crate::controller::state::attempt::JobAttempt;
use crate::controller::state::change::Change;
use crate::controller::state::context::Context;
use crate::defect;
use crate::ids::{ActionName, Attempt, HostName, JobId, Rank, TaskId};
use crate::idset::IdSet;
use crate::task::Ended;

use super::held_back::HeldBack;

/// Traces of an attempt on a host: whether a setup action may have begun, and the after-actions that went well.
#[derive(Default)]
struct Traces {
    setup: bool,
    cleaned: BTreeSet<ActionName>,
}

impl Facts<'_> {
    /// Returns the hosts that abandoned attempts have in the store, each with these attempts. `only`: one host alone.
    fn abandoned_by_host(&self, only: Option<&HostName>) -> BTreeMap<HostName, Vec<(JobId, Attempt)>> {
        let mut by_host: BTreeMap<HostName, Vec<(JobId, Attempt)>> = BTreeMap::new();
        let abandoned =
            self.jobs.table.live_attempts().filter(|(_, _, attempt)| attempt.abandoned && !attempt.complete);
        for (job, number, attempt) in abandoned {
            let ranks = match only {
                Some(host) => attempt.layout.rank(host.as_str()).into_iter().collect(),
                None => attempt.layout.ranks().clone(),
            };
            let left = ranks.difference(&attempt.released.ranks);
            for host in left.iter().filter_map(|rank| attempt.layout.host(Rank(rank))) {
                by_host.entry(host).or_default().push((job.clone(), number));
            }
        }
        by_host
    }

    /// Returns the attempts for which the host is uncleaned. `abandoned`: the abandoned attempts that have the host.
    fn uncleaned(&self, host: &str, abandoned: &[(JobId, Attempt)]) -> BTreeSet<(JobId, Attempt)> {
        let traces = self.traces(host, abandoned).into_iter();
        let missing =
            traces.filter(|(of, traces)| traces.setup && !self.is_cleaned(traces) && !self.is_taken(host, of));
        missing.map(|(of, _)| of).collect()
    }

    /// Returns `true` if each after-action went well.
    fn is_cleaned(&self, traces: &Traces) -> bool {
        self.cx.settings.after.iter().all(|name| traces.cleaned.contains(name))
    }

    /// Returns `true` if the store has the attempt on the host, and the attempt was taken up.
    fn is_taken(&self, host: &str, of: &(JobId, Attempt)) -> bool {
        let has = |of: &JobAttempt| !of.abandoned && of.layout.rank(host).is_some();
        self.jobs.attempt(&of.0, of.1).is_some_and(has)
    }

    /// Returns the traces on the host, by attempt, of abandoned and unknown attempts. Empty while the node is away.
    /// `abandoned`: the abandoned attempts that have the host.
    fn traces(&self, host: &str, abandoned: &[(JobId, Attempt)]) -> BTreeMap<(JobId, Attempt), Traces> {
        let Some(node) = self.nodes.get(host).filter(|node| node.session.is_some()) else { return BTreeMap::new() };
        let mut traces: BTreeMap<(JobId, Attempt), Traces> = BTreeMap::new();
        for of in node.unsettled.unknown.values().filter(|of| !of.given_up) {
            let traces = traces.entry((of.job.clone(), of.attempt)).or_default();
            // For a task that is still there the host is drained anyway.
            if !of.is_tombstone() {
                continue;
            }
            if !self.cx.settings.after.contains(&of.action) {
                traces.setup = true;
            } else if of.went_well() {
                traces.cleaned.insert(of.action.clone());
            }
        }
        for (job, number) in abandoned {
            let Some(attempt) = self.jobs.attempt(job, *number) else { continue };
            let Some(rank) = attempt.layout.rank(host).map(Rank) else { continue };
            let traces = traces.entry((job.clone(), *number)).or_default();
            for action in self.jobs.of(attempt).filter(|action| action.row.external.is_none()) {
                if !self.jobs.follows(action) {
                    let begun = !matches!(action.rank_state(rank), RankState::Waiting | RankState::NotInAction);
                    traces.setup |= begun && action.boot(rank) == Some(node.row.boot_number);
                } else if action.went_well(rank) {
                    traces.cleaned.insert(action.row.name.clone());
                }
            }
        }
        traces
    }

    /// Returns `true` if any host is uncleaned.
    pub(super) fn has_uncleaned(&self) -> bool {
        !self.nodes.uncleaned_hosts.is_empty()
    }

    /// Returns the reason if setup actions of this job must wait on the host: a clean-up may be missing there, and the
    /// host's drain is not in force yet.
    pub(super) fn uncleaned_before(&self, job: &JobId, host: &HostName) -> Option<HeldBack> {
        let node = self.nodes.get(host).filter(|_| self.nodes.uncleaned_hosts.contains(host))?;
        let (of, _) = node.unsettled.uncleaned.iter().find(|(of, _)| of != job)?;
        let waits = self.drains.is_draining(host.as_str());
        let waits = if defect!(UncleanedIgnored) { false } else { waits };
        waits.then(|| HeldBack::Uncleaned(host.clone(), of.clone()))
    }

    /// Returns the attempts that may have got hosts of a taken-up attempt meanwhile, each with its job: those that were
    /// added since the generation, and newer attempts of its own job.
    fn others<'a>(&'a self, job: &'a JobId, number: Attempt) -> impl Iterator<Item = (&'a JobId, &'a JobAttempt)> {
        let others = self.jobs.table.live_attempts().filter(move |(of, n, other)| {
            let was_there = matches!(other.recovered, Recovered::TakenUp | Recovered::Begun);
            let is_newer = *of == job && *n > number;
            let is_itself = *of == job && *n == number;
            let has_none = other.abandoned || other.complete || other.silent;
            !is_itself && !has_none && (!was_there || is_newer)
        });
        others.map(|(of, _, other)| (of, other))
    }

    /// Returns an unknown attempt of another job that may have the host: a task of it is there, or a clean-up of it may
    /// be missing.
    fn unknown_on(&self, host: &str, job: &JobId) -> Option<JobId> {
        let node = self.nodes.get(host)?;
        let mut live = node.unsettled.unknown.values().filter(|of| !of.is_tombstone() && of.job != *job);
        let live = live.next().map(|of| of.job.clone());
        live.or_else(|| self.uncleaned(host, &[]).into_iter().map(|(of, _)| of).find(|of| of != job))
    }

    /// Returns `true` if other jobs may have hosts of the attempt: its edge's list lacks it, or it was taken up when
    /// its job had begun or ended, and no list names it.
    fn may_have_lost_hosts(&self, attempt: &JobAttempt) -> bool {
        let list = attempt.source.as_ref().and_then(|source| self.lists.whole(source));
        let is_listed = attempt.listed > 0 && list.is_none_or(|list| list == attempt.listed);
        let is_begun = attempt.recovered == Recovered::Begun && !is_listed;
        if defect!(CleanedBesideOthers) {
            return false;
        }
        attempt.silent || is_begun
    }

    /// Returns the change for each rank of a taken-up attempt that it must give up.
    pub(crate) fn given_to_others(&self, job: &JobId, number: Attempt) -> Vec<Change> {
        let Some(attempt) = self.jobs.attempt(job, number).filter(|of| self.may_have_lost_hosts(of)) else {
            return Vec::new();
        };
        let mut given = BTreeMap::new();
        for (to, other) in self.others(job, number) {
            let left = other.layout.ranks().difference(&other.released.ranks);
            let there = other.layout.pairs(&left).filter_map(|(_, host)| attempt.layout.rank(host));
            given.extend(there.map(|rank| (Rank(rank), to.clone())));
        }
        for (rank, host) in attempt.layout.pairs(&self.jobs.unreleased(job, number).ranks) {
            if let Some(to) = self.unknown_on(host, job) {
                given.insert(rank, to);
            }
        }
        let give_up = |(rank, to)| Change::GiveUp { job: job.clone(), attempt: number, rank, to };
        given.into_iter().map(give_up).collect()
    }

    /// Returns the change if this after-action, or any action of an unlisted attempt, must not begin, because another
    /// job may have the task's host by now. `None` also for a rank that was given up already.
    pub(crate) fn gives_up(&self, task: TaskId) -> Option<Change> {
        let action = self.jobs.action(task.action)?;
        let (job, number) = (&action.row.job, action.row.attempt);
        let attempt = self.jobs.attempt(job, number).filter(|attempt| self.may_have_lost_hosts(attempt))?;
        if !self.jobs.follows(action) && !attempt.silent {
            return None;
        }
        let host = attempt.layout.host(task.rank).filter(|_| !self.jobs.is_given_up(task))?;
        let has = |of: &JobAttempt| of.layout.rank(host.as_str()).is_some_and(|rank| !of.released.ranks.contains(rank));
        let other = self.others(job, number).find(|(_, other)| has(other)).map(|(to, _)| to.clone());
        let to = other.or_else(|| self.unknown_on(host.as_str(), job))?;
        Some(Change::GiveUp { job: job.clone(), attempt: number, rank: task.rank, to })
    }
}

impl Nodes {
    /// Drops the judgements about clean-ups that may be missing, because a grace begins: clients may ask for the
    /// attempts again, and the end of the grace judges anew. The drains stay.
    pub(super) fn unjudge(&mut self) {
        for host in std::mem::take(&mut self.uncleaned_hosts) {
            if defect!(JudgedBeforeGrace) {
            } else if let Some(node) = self.get_mut(&host) {
                node.unsettled.uncleaned.clear();
            }
        }
    }

    /// Removes the attempt from those for which the host is uncleaned. Returns `true` if it was one of them.
    fn forget_uncleaned(&mut self, host: &HostName, job: &JobId, number: Attempt) -> bool {
        let Some(node) = self.get_mut(host) else { return false };
        let was_there = node.unsettled.uncleaned.remove(&(job.clone(), number));
        if node.unsettled.uncleaned.is_empty() {
            self.uncleaned_hosts.remove(host);
        }
        was_there
    }
}

impl Jobs {
    /// Lifts the drains for missing clean-ups of an attempt, because it was taken up.
    pub(crate) fn cleaned_attempt(&mut self, job: &JobId, number: Attempt, nodes: &mut Nodes, cx: &mut Context) {
        let Some(attempt) = self.attempt(job, number) else { return };
        let hosts = attempt.layout.ranks().iter().filter_map(|rank| attempt.layout.host(Rank(rank)));
        let hosts: Vec<HostName> = hosts.collect();
        for host in &hosts {
            if nodes.forget_uncleaned(host, job, number) {
                self.reordered_on(host, cx);
            }
        }
        cx.changes.push_back(Change::Cleaned(hosts, Passing::Missing { job: job.clone(), attempt: number }));
    }
}

impl Machine {
    /// Judges hosts, unless a grace runs: drains each for clean-ups that may be missing, and for unknown tasks. `only`:
    /// the host whose node has said Hello; `None`: all hosts, because the grace is over.
    pub(crate) fn judge_hosts(&mut self, only: Option<&HostName>) {
        if self.recovery.is_on() {
            return;
        }
        let by_host = self.facts().abandoned_by_host(only);
        let hosts = only.map_or_else(|| self.nodes.keys().cloned().collect(), |host| vec![host.clone()]);
        for host in hosts {
            self.judge(&host, by_host.get(&host).map_or(&[], Vec::as_slice));
        }
    }

    fn judge(&mut self, host: &HostName, abandoned: &[(JobId, Attempt)]) {
        let facts = self.facts();
        let uncleaned = facts.uncleaned(host.as_str(), abandoned);
        let passing = self.drains.get(host).and_then(|drain| drain.passing.clone());
        if let Some(passing) = passing
            && let Passing::Missing { job, attempt } = &passing
        {
            let of = (job.clone(), *attempt);
            let traces = facts.traces(host.as_str(), abandoned);
            let is_shown =
                traces.get(&of).is_some_and(|traces| facts.is_cleaned(traces)) || facts.is_taken(host.as_str(), &of);
            let is_shown = if defect!(LiftedWithoutTraces) { is_shown || !uncleaned.contains(&of) } else { is_shown };
            if is_shown {
                self.drains.lift_passing(host, &passing, &mut self.cx);
            }
        }
        for (job, attempt) in &uncleaned {
            if defect!(MissingUndrained) {
                break;
            }
            let names: Vec<&str> = self.cx.settings.after.iter().map(ActionName::as_str).collect();
            let reason = format!("the {} of job {job} attempt {attempt} may not have run here", names.join(" or the "));
            let passing = Passing::Missing { job: job.clone(), attempt: *attempt };
            self.drains.drain_passing(host, reason, passing, &mut self.cx);
        }
        if uncleaned.is_empty() {
            if self.nodes.uncleaned_hosts.remove(host) {
                self.jobs.reordered_on(host, &mut self.cx);
            }
        } else {
            self.nodes.uncleaned_hosts.insert(host.clone());
        }
        if let Some(node) = self.nodes.get_mut(host) {
            node.unsettled.uncleaned = uncleaned;
        }
        if let Some(node) = self.nodes.get_mut(host) {
            self.drains.drain_unknown(node, &mut self.cx);
        }
    }

    /// Applies an operator's `undrain` of a host to the recovery: gives up the host's unknown tasks, and takes the
    /// clean-ups that may be missing there as done by the operator.
    pub(crate) fn undrained(&mut self, host: &HostName, uid: u32) {
        let uncleaned = self.nodes.get(host).map(|node| node.unsettled.uncleaned.clone()).unwrap_or_default();
        self.nodes.give_up_host(host, &mut self.cx);
        self.jobs.reordered_on(host, &mut self.cx);
        for (job, number) in uncleaned {
            let Some(attempt) = self.jobs.attempt(&job, number).filter(|attempt| attempt.abandoned) else { continue };
            let Some(rank) = attempt.layout.rank(host.as_str()) else { continue };
            let ranks = IdSet::from(rank..=rank);
            let waiting = self.jobs.of(attempt).filter(|action| action.row.waiting.contains(rank));
            let waiting: Vec<TaskId> = waiting.map(|action| action.task(Rank(rank))).collect();
            let outcome = Resolving::new(ranks.clone(), true, "its host was undrained", uid).outcome();
            for task in waiting {
                self.jobs.end_task(task, Ended::bare(outcome.clone(), self.cx.now.wall_ms), &mut self.cx);
            }
            self.jobs.release_silently(&job, number, &ranks, "its host was undrained", &mut self.cx);
        }
    }
}
