//! Retention: decides which attempts the controller forgets, so that neither the store nor the machine grows without
//! end. The controller keeps an attempt that still has pending work. The first row that fits decides:
//!
//! | an attempt                                                  | is forgotten |
//! |-------------------------------------------------------------|--------------|
//! | that is suspended, and every attempt during a grace         | never |
//! | with an action that has not ended                           | never |
//! | that a resource manager will finish                         | never |
//! | with a notice that the release hook has not carried out     | never |
//! | that is fully released                                      | past retention, or above `keep-attempts` |
//! | with a host whose drain is not in force yet                 | never |
//! | of an open bare `run`, all cleaned up (1)                   | past retention, or above `keep-attempts` |
//! | of an open bare `run` whose job still holds a part          | past retention |
//! | any other                                                   | never |
//!
//! 1. The job still holds ranks, its after-actions cover all of them and have ended, and it holds no named resource.
//!
//! A bare `run` is an attempt that `perilog run` opened without `job add`. No resource manager gave its ranks to the
//! job, so the controller sends no release when the attempt is forgotten. Above `keep-attempts`, the oldest attempts go
//! first. An attempt never goes before an older attempt of its job.
//!
//! Notices that no reader of the outbox has confirmed go with their attempt: without a reader, the outbox must not grow
//! for ever (docs/decisions/0005-idle-attempts-are-closed.md).

use std::collections::{BTreeMap, BTreeSet};

use crate::agent::io::Level;
use crate::controller::facts::Facts;
use crate::controller::interface::io::{Now, Record, Settings};
use crate::controller::machine::Machine;
use crate::controller::state::Jobs;
use crate::controller::state::attempt::JobAttempt;
use crate::controller::state::away::Oldest;
use crate::controller::state::context::Context;
use crate::controller::state::layout::Layout;
use crate::defect;
use crate::ids::{ActionName, Attempt, HostName, JobId, Rank, TaskId};
use crate::message::ToAgent;

/// Interval (ms) at which the controller looks for attempts to forget.
const PRUNE_EVERY_MS: u64 = 3_600_000;
/// Maximum number of attempts that a batch forgets: the store removes their rows in one transaction, and no request is
/// answered meanwhile. If more are past their retention, the next batch goes on at once, with the requests that came
/// since.
const MAX_PRUNED: usize = 20;

/// Condition under which the controller may forget an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum May {
    Never,
    /// The controller may forget the attempt once its retention time is over.
    Old,
    /// The controller may forget the attempt once its retention time is over, or while the store has more than
    /// `keep-attempts` attempts.
    Any,
}

/// Drains that are not in force yet, and the attempts that wait for them. Unless an attempt is fully released, the
/// controller does not forget it while such a drain concerns it.
struct DrainsOfJobs<'a> {
    /// Attempts with a rank whose release waits until the drain of its host is in force.
    undrained: BTreeSet<(&'a JobId, Attempt)>,
    draining: BTreeSet<&'a str>,
}

impl DrainsOfJobs<'_> {
    /// Returns `true` if a drain of one of the hosts is not in force yet.
    fn is_draining(&self, layout: &Layout) -> bool {
        let hosts = layout.hosts();
        match hosts.len() < self.draining.len() {
            true => hosts.iter().any(|host| self.draining.contains(host)),
            false => self.draining.iter().any(|host| layout.rank(host).is_some()),
        }
    }
}

/// Attempts that are forgotten now.
#[derive(Default)]
struct Going<'a> {
    all: Vec<(JobId, Attempt)>,
    /// Key: a job of these attempts. Value: its newest such attempt, and the strictest condition of them all.
    newest: BTreeMap<&'a JobId, (Attempt, May)>,
}

impl<'a> Going<'a> {
    /// Returns the strictest condition of the older attempts of a job, of which `older` is the newest (`None`: there is
    /// none). `None`: one of them stays.
    fn after(&self, job: &JobId, older: Option<Attempt>) -> Option<May> {
        match (older, self.newest.get(job)) {
            (None, _) => Some(May::Any),
            (Some(older), Some((newest, when))) if *newest == older => Some(*when),
            _ => None,
        }
    }

    fn add(&mut self, job: &'a JobId, number: Attempt, when: May) {
        self.all.push((job.clone(), number));
        self.newest.insert(job, (number, when));
    }
}

impl Jobs {
    /// Returns `true` if the after-actions cover all ranks that the job holds, and the job holds no named resource.
    /// Once the after-actions have ended, the attempt is over, even if no resource manager finishes the job.
    fn is_followed(&self, attempt: &JobAttempt) -> bool {
        let after = &self.after;
        let actions = || self.of(attempt).map(|action| &action.row);
        let covered =
            |name: &ActionName| actions().any(|row| row.name == *name && attempt.hold.ranks.is_subset(&row.ranks));
        !after.is_empty() && after.iter().all(covered) && attempt.hold.resources.is_empty()
    }
}

impl Machine {
    /// Forgets an attempt with its actions, and has the nodes forget its tasks; `why` goes into the journal.
    pub(crate) fn forget(&mut self, job: &JobId, number: Attempt, why: &str) {
        let Some((attempt, whole_job)) = self.jobs.table.remove_attempt(job, number) else { return };
        let mut by_session: BTreeMap<_, Vec<TaskId>> = BTreeMap::new();
        for id in &attempt.actions {
            let Some(action) = self.jobs.table.remove_action(*id) else {
                continue;
            };
            let external = action.row.external.is_some();
            for rank in action.row.ranks.iter().map(Rank) {
                let task = TaskId { action: *id, rank };
                let Some(node) = attempt.layout.host(rank).and_then(|host| self.nodes.get_mut(&host)) else {
                    continue;
                };
                node.failed.retain(|failed| *failed != task);
                node.tasks.remove(&task);
                node.live.remove(&task);
                node.unsettled.forget(task);
                if let Some(session) = node.session.filter(|_| !external) {
                    by_session.entry(session).or_default().push(task);
                }
            }
        }
        for (session, tasks) in by_session {
            self.cx.send(session, ToAgent::Forget { tasks });
        }
        self.cx.outbox.forget(job, number, None);
        self.drains.forget(job, number);
        self.cx.attempts.remove(&(job.clone(), number));
        self.cx.dirty_holds.remove(&(job.clone(), number));
        self.cx.records.push(Record::Prune { job: job.clone(), attempt: number, whole_job });
        self.cx.note(Level::Info, Some(job), None, format!("attempt {number} is forgotten: {why}"));
    }

    /// Forgets attempts that retention no longer keeps, at most [`MAX_PRUNED`]. Looks for them once an hour, or at once
    /// if the batch before has left some or new settings keep fewer; never in a grace.
    pub(crate) fn prune(&mut self) {
        if self.facts().prune_ms() > self.cx.now.mono_ms {
            return;
        }
        self.pruned_ms = self.cx.now.mono_ms;
        self.prunes_on = false;
        if defect!(PrunedInGrace) {
        } else if self.recovery.is_on() {
            return;
        }
        let going = self.facts().past_retention();
        self.prunes_on = going.len() >= MAX_PRUNED;
        for (job, number) in going {
            let touched_ms = self.jobs.attempt(&job, number).map_or(0, |attempt| attempt.touched_ms);
            let is_old = self.cx.now.wall_ms.saturating_sub(touched_ms) >= self.cx.settings.retention_ms;
            let why = match is_old {
                true => "it is past its retention",
                false => "the store has more attempts than keep-attempts",
            };
            self.forget(&job, number, why);
        }
    }
}

/// Returns `true` if these settings keep fewer attempts than those `before`: an operator may need the room at once.
pub(crate) fn keeps_less(settings: &Settings, before: &Settings) -> bool {
    settings.retention_ms < before.retention_ms || settings.keep_attempts < before.keep_attempts
}

impl<'a> Facts<'a> {
    /// Returns the time (monotonic) of the next search for attempts to forget. `None`: no attempt has an action or is
    /// completely released, so a search would find none.
    pub(crate) fn next_prune(&self) -> Option<u64> {
        let ends = |attempt: &JobAttempt| !attempt.actions.is_empty() || attempt.complete;
        let table = &self.jobs.table;
        let any = table.ended_attempts().next().is_some()
            || table.away.elsewhere.attempts > 0
            || table.live_attempts().any(|(.., of)| ends(of));
        any.then(|| self.cx.now.mono_ms.saturating_add(PRUNE_EVERY_MS).min(self.prune_ms()))
    }

    fn prune_ms(&self) -> u64 {
        self.pruned_ms.saturating_add(if self.prunes_on { 0 } else { PRUNE_EVERY_MS })
    }

    /// Returns which attempts of the store a tick needs now, because it looks among them for attempts to forget.
    /// `None`: the tick looks for none.
    pub(crate) fn oldest(&self, now: Now) -> Option<Oldest> {
        if self.prune_ms() > now.mono_ms || self.recovery.is_on() {
            return None;
        }
        let table = &self.jobs.table;
        let until_ms = match table.count_attempts() > self.cx.settings.keep_attempts {
            true => u64::MAX,
            false => now.wall_ms.saturating_sub(self.cx.settings.retention_ms),
        };
        // Those of them that are in memory may be the oldest ones, and may have to stay.
        let live = table.unexpected_attempts().filter(|(.., attempt)| attempt.is_over()).count();
        let held = live + table.ended_attempts().count();
        Some(Oldest { until_ms, limit: MAX_PRUNED.saturating_add(held) })
    }

    fn drains(&self) -> DrainsOfJobs<'a> {
        let waiting = self.0.drains.waiting.values().flatten();
        let draining = self.0.drains.keys().map(HostName::as_str).filter(|host| self.drains.is_draining(host));
        DrainsOfJobs {
            undrained: waiting.map(|(job, attempt, _)| (job, *attempt)).collect(),
            draining: draining.collect(),
        }
    }

    /// Returns the attempts to forget now, at most [`MAX_PRUNED`] or a few more, in the order in which to forget them:
    /// the longest unchanged first, and no attempt before an older attempt of its job. A forgotten number, and the ids
    /// made from the number, would become free for a new attempt.
    fn past_retention(&self) -> Vec<(JobId, Attempt)> {
        let (drains, now_ms) = (self.drains(), self.cx.now.wall_ms);
        let mut surplus = usize::saturating_sub(self.jobs.table.count_attempts(), self.cx.settings.keep_attempts);
        let live = self.jobs.table.unexpected_attempts();
        let live = live.filter(|(job, number, attempt)| self.may_go(job, *number, attempt, &drains) != May::Never);
        let mut live: Vec<_> = live.map(|(job, number, attempt)| (attempt.touched_ms, job, number)).collect();
        live.sort_unstable();
        let ended = self.jobs.table.ended_attempts();
        let (mut live, mut ended) = (live.into_iter().peekable(), ended.peekable());
        let mut going = Going::default();
        loop {
            let is_live_first = match (live.peek(), ended.peek()) {
                (Some(live), Some(ended)) => live < ended,
                (live, _) => live.is_some(),
            };
            let next = if is_live_first { live.next() } else { ended.next() };
            let Some((touched_ms, job, number)) = next else { break };
            let is_old = now_ms.saturating_sub(touched_ms) >= self.cx.settings.retention_ms;
            let is_enough = going.all.len() >= MAX_PRUNED;
            let is_enough = if defect!(PrunedAtOnce) { false } else { is_enough };
            if is_enough || !is_old && surplus == 0 {
                break;
            }
            let Some(entry) = self.jobs.get(job) else { continue };
            // The newer attempts of the job may wait for this one, and may have been unchanged for longer.
            for (number, attempt) in entry.attempts.range(number..).take_while(|(_, of)| of.touched_ms <= touched_ms) {
                let older = entry.attempts.range(..number).next_back().map(|(number, _)| *number);
                let Some(when) = going.after(job, older) else { break };
                let when = self.may_go(job, *number, attempt, &drains).min(when);
                if when == May::Never || !(is_old || surplus > 0 && when == May::Any) {
                    break;
                }
                surplus = surplus.saturating_sub(1);
                going.add(job, *number, when);
            }
        }
        going.all
    }

    fn may_go(&self, job: &JobId, number: Attempt, attempt: &JobAttempt, drains: &DrainsOfJobs) -> May {
        if attempt.suspended
            || attempt.is_expected()
            || self.jobs.of(attempt).any(|action| action.row.verdict.is_none())
        {
            return May::Never;
        }
        if defect!(PruneUnnotified) {
        } else if self.cx.outbox.is_hooked(job, number) {
            return May::Never;
        }
        if defect!(PruneUnreleased) {
            return May::Any;
        }
        if attempt.complete {
            return May::Any;
        }
        let drained = !drains.undrained.contains(&(job, number)) && !drains.is_draining(&attempt.layout);
        let is_left = attempt.open && !attempt.added && !attempt.hold.is_empty();
        match drained && is_left {
            true if self.jobs.is_followed(attempt) => May::Any,
            true => May::Old,
            false => May::Never,
        }
    }
}

impl Context {
    /// Returns, for each job that the batch prunes, the index of the job's last `Prune` record among the records of the
    /// batch.
    pub(crate) fn pruned(&self) -> BTreeMap<JobId, usize> {
        let job = |record: &Record| match record {
            Record::Prune { job, .. } => Some(job.clone()),
            _ => None,
        };
        self.records.iter().enumerate().filter_map(|(at, record)| Some((job(record)?, at))).collect()
    }
}
