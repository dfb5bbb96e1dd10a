//! Table of all attempts and actions, and the index of those that are live. A controller keeps finished jobs for weeks,
//! so what every batch does walks only what is live.
//!
//! ```text
//!   insert, *_mut --> stale, and counted as live --refresh, at the end of the batch--> live | ended
//! ```
//!
//! The maps are private: [`Table::action_mut`] and [`Table::attempt_mut`] are the only ways to change an action or an
//! attempt, and both mark it as stale. So the sets of live actions and attempts never lack a live one. Within a batch
//! they may have others too, and each caller filters. After [`Table::refresh`] the index equals a walk over everything,
//! which debug builds assert.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use crate::controller::state::action::Action;
use crate::controller::state::attempt::JobAttempt;
use crate::controller::state::attempts::Job;
use crate::controller::state::away::Away;
use crate::defect;
use crate::ids::{ActionId, Attempt, JobId};

/// All attempts and actions, with the index of those that are live.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Table {
    jobs: BTreeMap<JobId, Job>,
    actions: BTreeMap<ActionId, Box<Action>>,
    live_actions: BTreeSet<ActionId>,
    live_attempts: BTreeSet<(JobId, Attempt)>,
    /// Live attempts that no resource manager will finish ([`JobAttempt::is_expected`]). Retention looks at these
    /// alone: a cluster may have many open jobs.
    unexpected: BTreeSet<(JobId, Attempt)>,
    /// Attempts that are not live, by the time (ms, wall clock) of their last change ([`JobAttempt::touched_ms`]).
    ended_attempts: BTreeSet<(u64, JobId, Attempt)>,
    /// Times (monotonic) at which the limits of live actions are checked; without the actions of suspended attempts.
    deadlines: BTreeSet<(u64, ActionId)>,
    /// Actions with a verdict: the time of the verdict, the begin (both wall clock), and the action.
    verdicts: BTreeSet<(u64, u64, ActionId)>,
    /// Jobs with an attempt that the list of an edge has named since this controller started.
    listed: BTreeSet<JobId>,
    stale_actions: Vec<ActionId>,
    stale_attempts: Vec<(JobId, Attempt)>,
    pub(crate) away: Away,
}

impl Action {
    /// Returns `true` if the action still has work left: it has no verdict, or one of its ranks or resources has not
    /// ended.
    fn is_live(&self) -> bool {
        self.row.is_live() || !self.expected.is_empty()
    }

    fn verdict_key(&self) -> Option<(u64, u64, ActionId)> {
        let row = &self.row;
        row.verdict.and(row.ended_ms).map(|ended_ms| (ended_ms, row.began_ms, row.id))
    }
}

impl Table {
    pub(crate) const fn jobs(&self) -> &BTreeMap<JobId, Job> {
        &self.jobs
    }

    pub(crate) fn action(&self, id: ActionId) -> Option<&Action> {
        self.actions.get(&id).map(|action| &**action)
    }

    /// Returns an action for a change.
    pub(crate) fn action_mut(&mut self, id: ActionId) -> Option<&mut Action> {
        let action = self.actions.get_mut(&id)?;
        if !std::mem::replace(&mut action.is_stale, true) {
            drop_from(&mut self.deadlines, action.check_ms.map(|at| (at, id)));
            drop_from(&mut self.verdicts, action.verdict_key());
            self.live_actions.insert(id);
            self.stale_actions.push(id);
        }
        Some(action)
    }

    /// Returns an attempt for a change.
    pub(crate) fn attempt_mut(&mut self, job: &JobId, number: Attempt) -> Option<&mut JobAttempt> {
        let attempt = self.jobs.get_mut(job)?.attempts.get_mut(&number)?;
        if !std::mem::replace(&mut attempt.is_stale, true) {
            self.ended_attempts.remove(&(attempt.touched_ms, job.clone(), number));
            self.live_attempts.insert((job.clone(), number));
            self.unexpected.insert((job.clone(), number));
            self.stale_attempts.push((job.clone(), number));
        }
        Some(attempt)
    }

    /// Adds an attempt to its job. The store has no attempt of this number.
    pub(crate) fn add_attempt(&mut self, job: &JobId, number: Attempt, mut attempt: JobAttempt) {
        attempt.is_stale = false;
        self.jobs.entry(job.clone()).or_default().attempts.insert(number, attempt);
        // Puts it into the index.
        self.attempt_mut(job, number);
    }

    /// Adds an action to its attempt. The table has no action of this id.
    pub(crate) fn add_action(&mut self, mut action: Action) {
        let id = action.row.id;
        if let Some(attempt) = self.attempt_mut(&action.row.job.clone(), action.row.attempt) {
            attempt.actions.push(id);
        }
        action.is_stale = false;
        self.actions.insert(id, Box::new(action));
        // Puts it into the index.
        self.action_mut(id);
    }

    /// Removes an attempt, and its job if it was the last one. Returns the attempt, and whether its job went too. The
    /// caller removes the attempt's actions.
    pub(crate) fn remove_attempt(&mut self, job: &JobId, number: Attempt) -> Option<(JobAttempt, bool)> {
        self.attempt_mut(job, number)?;
        self.live_attempts.remove(&(job.clone(), number));
        self.unexpected.remove(&(job.clone(), number));
        let entry = self.jobs.get_mut(job)?;
        let attempt = entry.attempts.remove(&number)?;
        let whole_job = entry.attempts.is_empty();
        if whole_job {
            self.jobs.remove(job);
            self.listed.remove(job);
        }
        Some((attempt, whole_job))
    }

    pub(crate) fn remove_action(&mut self, id: ActionId) -> Option<Action> {
        self.action_mut(id)?;
        self.live_actions.remove(&id);
        self.actions.remove(&id).map(|action| *action)
    }

    /// Counts an event in the job's log; returns its sequence number.
    pub(crate) fn count_event(&mut self, job: &JobId) -> u64 {
        let entry = match self.jobs.get_mut(job) {
            Some(entry) => entry,
            None => self.jobs.entry(job.clone()).or_default(),
        };
        entry.events_last += 1;
        entry.events_last
    }

    /// Sets the sequence number of the last event in the job's log, as the store has it.
    pub(crate) fn set_events_last(&mut self, job: JobId, last: u64) {
        self.jobs.entry(job).or_default().events_last = last;
    }

    /// Marks an attempt as named by list `number` of an edge: the list does not lack it, even if it is refused.
    pub(crate) fn mark_listed(&mut self, job: &JobId, attempt: Attempt, number: u64) {
        if let Some(attempt) = self.attempt_mut(job, attempt) {
            attempt.listed = number;
            self.listed.insert(job.clone());
        }
    }

    /// Forgets that jobs were listed, unless `is_newest` returns `true` for the number of a list that names them.
    pub(crate) fn keep_listed(&mut self, is_newest: impl Fn(u64) -> bool) {
        let jobs = &self.jobs;
        let is_listed = |entry: &Job| entry.attempts.values().any(|attempt| is_newest(attempt.listed));
        self.listed.retain(|job| jobs.get(job).is_some_and(is_listed));
    }

    /// Returns the jobs with an attempt that a list of an edge has named, from the job `from` on.
    pub(crate) fn listed_from<'a>(&'a self, from: Option<&JobId>) -> impl Iterator<Item = (&'a JobId, &'a Job)> {
        let from = from.map_or(Bound::Unbounded, Bound::Included);
        let jobs = self.listed.range::<JobId, _>((from, Bound::Unbounded));
        jobs.filter_map(|job| self.jobs.get_key_value(job))
    }

    /// Returns the live actions, and within a batch others too.
    pub(crate) fn live_actions(&self) -> impl Iterator<Item = &Action> {
        self.live_actions.iter().filter_map(|id| self.action(*id))
    }

    /// Returns the live attempts, and within a batch others too. An attempt is live while a rank or resource of it is
    /// not released, while it is suspended or abandoned, and while an action of it is live.
    pub(crate) fn live_attempts(&self) -> impl Iterator<Item = (&JobId, Attempt, &JobAttempt)> {
        self.live_attempts.iter().filter_map(|(job, number)| Some((job, *number, self.attempt(job, *number)?)))
    }

    /// Returns the live attempts that no resource manager will finish, and within a batch others too.
    pub(crate) fn unexpected_attempts(&self) -> impl Iterator<Item = (&JobId, Attempt, &JobAttempt)> {
        self.unexpected.iter().filter_map(|(job, number)| Some((job, *number, self.attempt(job, *number)?)))
    }

    /// Returns the live attempts from `from` on, that one included; `None`: all. Within a batch also returns attempts
    /// that the batch has touched and that are not live: the caller filters.
    pub(crate) fn live_from(
        &self,
        from: Option<&(JobId, Attempt)>,
    ) -> impl Iterator<Item = (&JobId, Attempt, &JobAttempt)> + use<'_> {
        let from = from.map_or(Bound::Unbounded, |from| Bound::Included(from.clone()));
        let live = self.live_attempts.range((from, Bound::Unbounded));
        live.filter_map(|(job, number)| Some((job, *number, self.attempt(job, *number)?)))
    }

    /// Returns the attempts that are not live, the longest unchanged first. Within a batch, the attempts that the batch
    /// has changed are missing.
    pub(crate) fn ended_attempts(&self) -> impl Iterator<Item = (u64, &JobId, Attempt)> {
        self.ended_attempts.iter().map(|(touched_ms, job, number)| (*touched_ms, job, *number))
    }

    /// Returns the numbers of live actions, live attempts and deadlines.
    pub(crate) fn count_live(&self) -> [usize; 3] {
        [self.live_actions.len(), self.live_attempts.len(), self.deadlines.len()]
    }

    /// Returns the number of attempts that the table has.
    pub(crate) fn count_held(&self) -> usize {
        // Each attempt is in one of the sets.
        self.live_attempts.len() + self.ended_attempts.len()
    }

    /// Returns the number of attempts of the store.
    pub(crate) fn count_attempts(&self) -> usize {
        self.count_held() + self.away.elsewhere.attempts
    }

    /// Returns the number of actions of the store.
    pub(crate) fn count_actions(&self) -> usize {
        self.actions.len() + self.away.elsewhere.actions
    }

    /// Returns the number of jobs of the store.
    pub(crate) fn count_jobs(&self) -> usize {
        self.jobs.len() + self.away.elsewhere.jobs
    }

    /// Counts jobs that were in the store alone as jobs of the table.
    pub(crate) fn came_back(&mut self, jobs: &BTreeSet<JobId>) {
        for entry in jobs.iter().filter_map(|job| self.jobs.get(job)) {
            let actions = entry.attempts.values().map(|attempt| attempt.actions.len()).sum();
            self.away.came_back(entry.attempts.len(), actions);
        }
    }

    /// Removes a job, which the store has, from the table. Returns `false`, and does nothing, if an attempt of it is
    /// live.
    pub(crate) fn evict(&mut self, job: &JobId) -> bool {
        let Some(entry) = self.jobs.get(job) else { return false };
        let ended = |(number, of): (&Attempt, &JobAttempt)| {
            !of.is_stale && self.ended_attempts.contains(&(of.touched_ms, job.clone(), *number))
        };
        if defect!(LiveEvicted) {
        } else if !entry.attempts.iter().all(ended) {
            return false;
        }
        let attempts: Vec<(Attempt, Vec<ActionId>)> =
            entry.attempts.iter().map(|(number, of)| (*number, of.actions.clone())).collect();
        self.away.left(attempts.len(), attempts.iter().map(|(_, actions)| actions.len()).sum());
        for (number, actions) in attempts {
            actions.into_iter().for_each(|id| drop(self.remove_action(id)));
            self.remove_attempt(job, number);
        }
        true
    }

    /// Returns every action in memory, open or ended. The walk is slow: only a start of the controller and tests may
    /// call this.
    pub(crate) fn all_actions(&self) -> impl Iterator<Item = &Action> {
        self.actions.values().map(|action| &**action)
    }

    /// Returns the actions with a verdict, the newest first. Within a batch, the actions that the batch has changed are
    /// missing.
    pub(crate) fn newest_verdicts(&self) -> impl Iterator<Item = &Action> {
        self.verdicts.iter().rev().filter_map(|(.., id)| self.action(*id))
    }

    /// Returns the live actions whose limits are to be checked now.
    pub(crate) fn due(&self, mono_ms: u64) -> Vec<ActionId> {
        let due = self.deadlines.range(..=(mono_ms, ActionId(uuid::Uuid::max()))).map(|(_, id)| *id);
        let stale = self.stale_actions.iter().filter_map(|id| self.action(*id));
        let stale = stale.filter(|action| self.deadline(action).is_some_and(|at| at <= mono_ms));
        let ids: BTreeSet<ActionId> = due.chain(stale.map(|action| action.row.id)).collect();
        ids.into_iter()
            .filter(|id| self.actions.get(id).is_some_and(|action| self.deadline(action).is_some()))
            .collect()
    }

    /// Returns the earliest time (monotonic) at which limits are to be checked, after a refresh. `None`: no limit is
    /// running.
    pub(crate) fn next_deadline(&self) -> Option<u64> {
        self.deadlines.first().map(|(at, _)| *at)
    }

    /// Returns the time of the action's next check. `None`: it has none, or has its verdict, or its attempt is
    /// suspended.
    fn deadline(&self, action: &Action) -> Option<u64> {
        let row = &action.row;
        let suspended = || self.attempt(&row.job, row.attempt).is_some_and(|attempt| attempt.suspended);
        action.check_ms.filter(|_| row.verdict.is_none() && !suspended())
    }

    fn attempt(&self, job: &JobId, number: Attempt) -> Option<&JobAttempt> {
        self.jobs.get(job)?.attempts.get(&number)
    }

    pub(crate) fn is_live(&self, attempt: &JobAttempt) -> bool {
        let mut actions = attempt.actions.iter().filter_map(|id| self.action(*id));
        !attempt.complete || attempt.suspended || attempt.abandoned || actions.any(Action::is_live)
    }

    /// Shares the memory of equal sets of ranks and of the job's id between an ended attempt and its actions. Most sets
    /// of an attempt that ended well are all of its ranks.
    fn share(&mut self, job: &JobId, number: Attempt) {
        let Some(attempt) = self.jobs.get_mut(job).and_then(|entry| entry.attempts.get_mut(&number)) else { return };
        let all = attempt.layout.ranks().clone();
        attempt.released.ranks.share(&all);
        for id in &attempt.actions {
            let Some(row) = self.actions.get_mut(id).map(|action| &mut action.row) else { continue };
            row.job = job.clone();
            [&mut row.ranks, &mut row.ok, &mut row.not_ok].into_iter().for_each(|ranks| ranks.share(&all));
            row.boots.values_mut().for_each(|ranks| ranks.share(&all));
        }
    }

    fn put_deadline(&mut self, id: ActionId) {
        let Some(action) = self.actions.get(&id) else { return };
        let (check_ms, deadline) = (action.check_ms, self.deadline(action));
        drop_from(&mut self.deadlines, check_ms.map(|at| (at, id)));
        self.deadlines.extend(deadline.map(|at| (at, id)));
    }

    /// Decides for everything that this batch has changed whether it is live, and when its limits are checked. The end
    /// of each batch calls this. `mono_ms`: the present time (monotonic).
    pub(crate) fn refresh(&mut self, mono_ms: u64) {
        let stale = std::mem::take(&mut self.stale_actions);
        for id in stale {
            let Some(action) = self.actions.get_mut(&id) else { continue };
            action.is_stale = false;
            if defect!(EndedStaysLive) {
            } else if !action.is_live() {
                self.live_actions.remove(&id);
            }
            self.verdicts.extend(action.verdict_key());
            let (job, number) = (action.row.job.clone(), action.row.attempt);
            self.put_deadline(id);
            // The action decides whether its attempt is live.
            self.attempt_mut(&job, number);
        }
        for (job, number) in std::mem::take(&mut self.stale_attempts) {
            let Some(attempt) = self.attempt(&job, number) else { continue };
            let (is_live, is_expected, touched_ms) = (self.is_live(attempt), attempt.is_expected(), attempt.touched_ms);
            // An action of a suspended attempt has no deadline.
            attempt.actions.clone().into_iter().for_each(|id| self.put_deadline(id));
            if !is_live || is_expected {
                self.unexpected.remove(&(job.clone(), number));
            }
            if defect!(EndedStaysLive) {
            } else if !is_live {
                if !defect!(EqualSetsApart) {
                    self.share(&job, number);
                }
                self.live_attempts.remove(&(job.clone(), number));
                self.ended_attempts.insert((touched_ms, job.clone(), number));
                self.away.add_idle(mono_ms, job.clone());
            }
            if let Some(attempt) = self.jobs.get_mut(&job).and_then(|entry| entry.attempts.get_mut(&number)) {
                attempt.is_stale = false;
            }
        }
        #[cfg(debug_assertions)]
        self.assert_exact();
    }

    /// Asserts that the index equals a walk over all attempts and actions.
    #[cfg(debug_assertions)]
    fn assert_exact(&self) {
        let (mut live, mut deadlines, mut verdicts) = (0, 0, 0);
        for (id, action) in &self.actions {
            assert_eq!(self.live_actions.contains(id), action.is_live(), "the index of live actions: {id}");
            live += usize::from(action.is_live());
            deadlines += usize::from(self.deadline(action).is_some_and(|at| self.deadlines.contains(&(at, *id))));
            verdicts += usize::from(action.verdict_key().is_some_and(|key| self.verdicts.contains(&key)));
        }
        let counts = (self.live_actions.len(), self.deadlines.len(), self.verdicts.len());
        assert_eq!(counts, (live, deadlines, verdicts), "the index of actions");
        let (mut live, mut ended) = (0, 0);
        for (job, entry) in &self.jobs {
            for (number, attempt) in &entry.attempts {
                let key = (job.clone(), *number);
                assert_eq!(self.live_attempts.contains(&key), self.is_live(attempt), "the index of attempts: {key:?}");
                let is_unexpected = self.is_live(attempt) && !attempt.is_expected();
                assert_eq!(self.unexpected.contains(&key), is_unexpected, "the index of unexpected attempts: {key:?}");
                live += usize::from(self.is_live(attempt));
                ended += usize::from(self.ended_attempts.contains(&(attempt.touched_ms, key.0, key.1)));
            }
        }
        assert_eq!((self.live_attempts.len(), self.ended_attempts.len()), (live, ended), "the index of attempts");
    }
}

fn drop_from<T: Ord>(set: &mut BTreeSet<T>, what: Option<T>) {
    if let Some(what) = what {
        set.remove(&what);
    }
}
