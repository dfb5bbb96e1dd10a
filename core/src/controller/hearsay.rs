//! Whose word counts for what, where a store knows less than the nodes do. A node speaks for itself: of its own rank of an attempt what it tells is
//! believed. Of others it may have heard; that is shown, and nobody is drained, nothing is begun and nothing given back by it.
//!
//! ```text
//!   told by another node --its own node tells of it--> its own: held, followed by the epilog, given back
//!                       \--a request names it-------/
//!                        \-its own node does not know it: that action has ended there as lost (vanished), its node is not to blame
//! ```
//! Attempts that no request has meant give way to newer ones rank by rank, each by the word of its own node; to one that was asked for all of them.

use std::ops::Bound::{Excluded, Unbounded};

use serde_json::json;

use crate::controller::action::Action;
use crate::controller::attempt::JobAttempt;
use crate::controller::io::Now;
use crate::controller::machine::Machine;
use crate::ids::{Attempt, HostName, JobId, TaskId};
use crate::idset::IdSet;
use crate::job::Part;

impl Machine {
    /// Its own node tells of a task that this store did not know, or had heard of from others.
    pub(super) fn node_tells(&mut self, host: &HostName, task: TaskId, now: Now) {
        let Some(row) = self.actions.get(&task.action).map(|action| &action.row) else { return };
        let (job, number) = (row.job.clone(), row.attempt);
        self.own(&job, number, &IdSet::from(task.rank.0..=task.rank.0), now);
        self.give_way(&job, host, now);
    }

    /// A request has meant this attempt, and these ranks of it by name.
    pub(super) fn asked_for(&mut self, job: &JobId, number: Attempt, ranks: &IdSet, now: Now) {
        let Some(attempt) = self.jobs.get_mut(job).and_then(|entry| entry.attempts.get_mut(&number)) else { return };
        if !std::mem::replace(&mut attempt.asked, true) {
            let context = json!({"attempt": number, "hosts": attempt.layout.hosts(), "userid": attempt.userid});
            self.batch.attempts.insert((job.clone(), number));
            self.event(job, now, "attempt", context);
        }
        self.own(job, number, ranks, now);
    }

    /// Somebody who may has spoken for these ranks: what is open there holds them, and so does the job.
    fn own(&mut self, job: &JobId, number: Attempt, ranks: &IdSet, now: Now) {
        let Some(attempt) = self.jobs.get_mut(job).and_then(|entry| entry.attempts.get_mut(&number)) else { return };
        let own = attempt.own(ranks);
        if own.is_empty() {
            return;
        }
        let actions = if attempt.complete { Vec::new() } else { attempt.actions.clone() };
        self.batch.given.entry((job.clone(), number)).or_default().extend_with(&own);
        for id in actions {
            if let Some(action) = self.actions.get_mut(&id) {
                action.holds_too(&own);
                self.touch(id, now);
            }
        }
    }

    /// What this host has of attempts that are over, or that nobody has asked for, goes the way of what is superseded, where it tells of a newer one, or one was
    /// asked for.
    fn give_way(&mut self, job: &JobId, host: &HostName, now: Now) {
        let Some(entry) = self.jobs.get(job) else { return };
        let rank = |attempt: &JobAttempt| attempt.layout.rank(host.as_str());
        let tells = |attempt: &JobAttempt| rank(attempt).is_some_and(|rank| !attempt.told.contains(rank));
        let mut older = Vec::new();
        for (number, attempt) in entry.attempts.iter().filter(|(_, attempt)| !attempt.asked || !attempt.open) {
            let newer = || entry.attempts.range((Excluded(number), Unbounded)).rev();
            let by = newer().find(|(_, newer)| newer.asked || tells(newer)).map(|(by, _)| *by);
            // One that is over holds nothing, whoever ended it.
            let by = by.or((!attempt.open).then_some(*number));
            let held = rank(attempt).filter(|rank| attempt.hold.ranks.contains(*rank));
            older.extend(by.zip(held).map(|(by, rank)| (*number, rank, by, attempt.hold.ranks.len() == 1)));
        }
        for (number, rank, by, last) in older {
            if last {
                self.close_attempt(job, number, by, now);
            } else {
                self.let_go(job, number, &Part::of_ranks(IdSet::from(rank..=rank)), now);
            }
        }
    }

    /// Is what is open of this action there nothing but another node's word?
    pub(super) fn is_hearsay(&self, attempt: &JobAttempt, action: &Action, rank: u32) -> bool {
        attempt.told.contains(rank) && action.row.unknown.contains(rank)
    }
}
