//! Whose word counts for what, where a store knows less than the nodes do. A node speaks for itself: of its own rank of an attempt what it tells is
//! believed. Of others it may have heard; that is shown, and nobody is drained, nothing is begun and nothing given back by it.
//!
//! ```text
//!   told by another node --its own node tells of it--> its own: held, followed by the epilog, given back
//!                       \--a request names it-------/
//!                        \-its own node does not know it--> what prepares it is lost there (vanished), its node is not to blame
//!                                                       \-> what follows the job is not over it: it is begun there when the job lets go of it
//! ```
//! Until each node of which others tell has told itself, or was spoken for, an attempt does not end: nothing is the last of it to be given back, and
//! no `job finish` ends it. Attempts that no request has meant give way to newer ones rank by rank, each by the word of its own node; to one that
//! was asked for all of them.

use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Unbounded};

use serde_json::json;

use crate::controller::action::{Action, Stand};
use crate::controller::attempt::JobAttempt;
use crate::controller::io::Now;
use crate::controller::machine::Machine;
use crate::defect;
use crate::ids::{Attempt, HostName, JobId, Rank, TaskId};
use crate::idset::IdSet;
use crate::job::Part;
use crate::message::{Held, HeldState};
use crate::outcome::Outcome;
use crate::task::Ended;

impl Machine {
    /// Its own node tells of a task that this store did not know, or had heard of from others.
    pub(super) fn node_tells(&mut self, host: &HostName, task: TaskId, now: Now) {
        let boot_number = self.nodes.get(host).map(|node| node.row.boot_number);
        let Some(action) = self.actions.get_mut(&task.action) else { return };
        if let Some(boot_number) = boot_number.filter(|_| action.boot(task.rank).is_none()) {
            // The one that it was meant for is not known.
            action.seen_in(task.rank, boot_number);
        }
        let (job, number) = (action.row.job.clone(), action.row.attempt);
        self.own(&job, number, &IdSet::from(task.rank.0..=task.rank.0), now);
        self.give_way(&job, host, now);
        // The job may have let go of the rank as of one where nothing was begun.
        self.follow_late(task, now);
    }

    /// Was it finished, as far as is known, before anybody told of this rank?
    pub(super) fn is_over_without(&self, attempt: &JobAttempt, rank: Rank) -> bool {
        let followed = || !attempt.released.is_empty() || self.of(attempt).any(|of| self.follows(of));
        let is_new = !attempt.layout.ranks().contains(rank.0);
        is_new && attempt.hold.ranks.is_empty() && self.unheard(attempt).is_empty() && followed()
    }

    /// A tombstone of a task that this store does not know speaks for its rank, too.
    pub(super) fn stone_tells(&mut self, host: &HostName, held: &Held, now: Now) {
        if self.knows(held.task) {
            return;
        }
        if let Some(node) = self.nodes.get_mut(host) {
            node.stones.spoke(&held.job, held.attempt);
        }
        let attempt = self.jobs.get(&held.job).and_then(|entry| entry.attempts.get(&held.attempt));
        if let Some(rank) = attempt.and_then(|attempt| attempt.layout.rank(host.as_str())) {
            self.own(&held.job, held.attempt, &IdSet::from(rank..=rank), now);
            if matches!(&held.state, HeldState::Tombstone { outcome, .. } if outcome.may_have_begun()) {
                self.follow_told(&held.job, held.attempt, Rank(rank), now);
            }
        }
    }

    fn knows(&self, task: TaskId) -> bool {
        self.actions.get(&task.action).is_some_and(|action| action.stand(task.rank) != Stand::NotMine)
    }

    /// What a node tells by its tombstones of tasks that this store does not know.
    pub(super) fn keep_stones(&mut self, host: &HostName, told: &BTreeMap<TaskId, Held>) {
        let is_stone = |held: &&Held| matches!(held.state, HeldState::Tombstone { .. });
        let unknown: Vec<&Held> = told.values().filter(is_stone).filter(|held| !self.knows(held.task)).collect();
        if let Some(node) = self.nodes.get_mut(host) {
            unknown.iter().for_each(|held| node.stones.keep(held.task, &held.state, held.limit_ms));
        }
    }

    /// Ranks of which other nodes told, and whose nodes had told by their tombstones that they are of this attempt.
    pub(super) fn stones_told(&mut self, job: &JobId, number: Attempt, now: Now) {
        let attempt = self.jobs.get(job).and_then(|entry| entry.attempts.get(&number));
        let told = attempt.map(|attempt| attempt.told.clone()).unwrap_or_default();
        self.own(job, number, &self.spoken(job, number, &told), now);
    }

    /// Of these ranks those whose nodes have tombstones of this attempt that this store does not know.
    pub(super) fn spoken(&self, job: &JobId, number: Attempt, of: &IdSet) -> IdSet {
        let attempt = self.jobs.get(job).and_then(|entry| entry.attempts.get(&number));
        let spoke = |host: &str| self.nodes.get(host).is_some_and(|node| node.stones.has_spoken(job, number));
        let pairs = attempt.into_iter().flat_map(|attempt| attempt.layout.pairs(of));
        pairs.filter(|(_, host)| spoke(host)).map(|(rank, _)| rank.0).collect()
    }

    /// Ranks of which only other nodes have told, and whose own have not said anything yet.
    pub(super) fn unheard(&self, attempt: &JobAttempt) -> IdSet {
        let mut unheard = IdSet::new();
        if !attempt.told.is_empty() {
            self.of(attempt).for_each(|action| unheard.extend_with(&action.row.unknown.intersection(&attempt.told)));
        }
        unheard
    }

    /// The node of this task says nothing of it: another one had told of it, or this one would have it by now.
    pub(super) fn not_known(&mut self, task: TaskId, now: Now) {
        let Some(action) = self.actions.get(&task.action) else { return };
        let (job, number, rank) = (action.row.job.clone(), action.row.attempt, task.rank);
        let Some(attempt) = self.jobs.get(&job).and_then(|entry| entry.attempts.get(&number)) else { return };
        if action.must_not_begin(rank).is_some() {
            // Cancelled, or an operator's word waits for it: it never begins, and that is its end.
            self.end_task(task, Ended::bare(Outcome::Cancelled { status: None }, now.wall_ms), now);
        } else if !self.follows(action) {
            self.lose_hearsay(task, now);
        } else {
            // The job has let go of it and counts on this, or who began this by hand has named it.
            let gone = [&attempt.told, &attempt.released.ranks].iter().any(|ranks| ranks.contains(rank.0));
            let later = action.row.growing && attempt.hold.ranks.contains(rank.0);
            let to_begin = !gone && !later;
            let host = attempt.layout.host(rank);
            let Some(action) = self.actions.get_mut(&task.action) else { return };
            if to_begin {
                action.begin_on(rank);
                self.start_ready(task.action, &IdSet::from(rank.0..=rank.0), now);
            } else {
                action.uncover(rank);
                if let Some(node) = host.and_then(|host| self.nodes.get_mut(&host)) {
                    node.tasks.remove(&task);
                }
            }
            self.touch(task.action, now);
        }
        self.all_heard(&job, number);
    }

    /// All have told, and the job has let go of all: what follows it grows no more.
    fn all_heard(&mut self, job: &JobId, number: Attempt) {
        let attempt = self.jobs.get(job).and_then(|entry| entry.attempts.get(&number));
        if attempt.is_some_and(|attempt| attempt.hold.ranks.is_empty() && self.unheard(attempt).is_empty()) {
            self.nothing_more(job, number);
        }
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
        self.all_heard(job, number);
    }

    /// Somebody who may has spoken for these ranks: what is open there holds them, and so does the job. Of an attempt that was closed they go at once: those are
    /// returned.
    pub(super) fn own(&mut self, job: &JobId, number: Attempt, ranks: &IdSet, now: Now) -> Part {
        let Some(attempt) = self.jobs.get_mut(job).and_then(|entry| entry.attempts.get_mut(&number)) else {
            return Part::default();
        };
        let was_complete = attempt.complete;
        let own = attempt.own(ranks);
        if own.is_empty() {
            return Part::default();
        }
        let (actions, open) = (attempt.actions.clone(), attempt.open);
        self.batch.given.entry((job.clone(), number)).or_default().extend_with(&own);
        if was_complete {
            self.batch.attempts.insert((job.clone(), number));
        }
        for id in actions {
            if let Some(action) = self.actions.get_mut(&id) {
                action.holds_too(&own);
                self.touch(id, now);
            }
        }
        if open { Part::default() } else { self.let_go(job, number, &Part::of_ranks(own), now) }
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
            let newer = by.map(|by| format!("attempt {by} was opened"));
            // One that is over holds nothing, whoever ended it.
            let why = newer.or_else(|| (!attempt.open).then(|| "the attempt is over".to_owned()));
            let held = rank(attempt).filter(|rank| attempt.hold.ranks.contains(*rank));
            let last = attempt.hold.ranks.len() == 1 && self.unheard(attempt).is_empty();
            older.extend(why.zip(held).map(|(why, rank)| (*number, rank, why, last)));
        }
        for (number, rank, why, last) in older {
            if last {
                self.close_attempt(job, number, &why, now);
            } else {
                self.let_go(job, number, &Part::of_ranks(IdSet::from(rank..=rank)), now);
            }
        }
    }

    /// Is what is open of this action there nothing but another node's word?
    pub(super) fn is_hearsay(&self, attempt: &JobAttempt, action: &Action, rank: u32) -> bool {
        attempt.told.contains(rank) && action.row.unknown.contains(rank) && !defect!(HearsayKeepsWaiting)
    }
}
