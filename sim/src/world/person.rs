//! The operator in a recovery: comes some time after it begins, and states the truth about each job.

use perilog_core::controller::io::{Confirm, Recover, Refusal, Reply, Request};
use std::collections::BTreeSet;

use perilog_core::controller::Record;
use perilog_core::controller::view::RecoveryView;

use perilog_core::{Attempt, JobId};

use super::World;
use super::event::Event;
use super::scheduler::{Of, Word};
use super::site;
use crate::plan::{ENTERED, LEFT, Scheduler as Kind};
use crate::truth::recovery::is_on;

/// Time (ms) after which the operator looks again, until the recovery is over or the verdicts are due.
const AGAIN_MS: u64 = 15_000;
/// Time (ms) after the faults stop from which on the operator also vouches for attempts that an edge should have
/// asserted.
const PATIENCE_MS: u64 = 120_000;

#[derive(Debug, Default)]
pub(crate) struct Person {
    is_coming: bool,
    asked: Option<u64>,
    spoken_for: BTreeSet<Of>,
}

impl Person {
    pub(super) fn has_spoken_for(&self, job: &JobId, attempt: Attempt) -> bool {
        self.spoken_for.contains(&(job.clone(), attempt))
    }
}

impl World {
    /// Schedules a visit of the operator, unless one is scheduled already.
    pub(crate) fn call_person(&mut self) {
        if !std::mem::replace(&mut self.person.is_coming, true) {
            let delay = if self.quiet { self.dice.range(1, 5_000) } else { self.dice.skewed(1_000, 120_000) };
            self.after(delay, Event::Person);
        }
    }

    /// Counts each recovery that a batch enters or leaves, before the batch's commit. If the first controller enters
    /// one, schedules the operator's visit; a resource manager with an edge asserts its attempts anew.
    pub(crate) fn note_recovery(&mut self, which: usize, records: &[Record]) {
        let rows = records.iter().filter_map(|record| match record {
            Record::Recovery(row) => Some(row.clone()),
            _ => None,
        });
        for row in rows.collect::<Vec<_>>() {
            self.say(|| format!("c{which} recovery: {row:?}"));
            let what = if row.ended_ms.is_some() { LEFT } else { ENTERED };
            *self.memory.entry(what).or_default() += 1;
            if row.ended_ms.is_some() {
                continue;
            }
            if let Some(look) = &mut self.controllers[which].look {
                look.notices.clear();
            }
            if which == 0 {
                self.call_person();
                // An edge follows its attempts, so it sees that they are unvouched, and asserts them again.
                if self.plan.scheduler == Some(Kind::Edge) {
                    self.scheduler_cut();
                }
            }
        }
    }

    pub(crate) fn person_comes(&mut self) {
        self.person.is_coming = false;
        if !is_on(&self.controllers[0].store) && !self.quiet {
            return;
        }
        if self.controllers[0].is_up() {
            self.person.asked = Some(self.controllers[0].clients + 1);
            self.ask(0, Request::Recover(Recover::List));
        }
        if is_on(&self.controllers[0].store) && self.t < self.verdicts_at {
            self.person.is_coming = true;
            self.after(AGAIN_MS, Event::Person);
        }
    }

    /// Hands a reply to the operator; returns `false` if the reply answers no request of the operator.
    pub(crate) fn person_hears(&mut self, client: u64, reply: &Result<Reply, Refusal>) -> bool {
        if self.person.asked != Some(client) {
            return false;
        }
        self.person.asked = None;
        if let Ok(Reply::Recovery(view)) = reply {
            self.confirm_all(view);
        }
        true
    }

    fn confirm_all(&mut self, view: &RecoveryView) {
        if view.obeyed.is_some() {
            // The rest becomes visible when agents obey again.
            self.truth.store_may_be_behind();
            return self.ask(0, Request::Recover(Recover::TakeOver));
        }
        if !view.suspects.is_empty() && (0..self.nodes.len()).all(|at| !self.nodes[at].is_forged(self.t) || self.quiet)
        {
            // The operator knows that the store was restored, and that no key was stolen.
            self.truth.store_may_be_behind();
            return self.ask(0, Request::Recover(Recover::TakeOver));
        }
        let edge = self.plan.scheduler == Some(Kind::Edge);
        let is_late = self.quiet && self.t > self.plan.horizon_ms + PATIENCE_MS;
        for one in &view.attempts {
            let of = (one.job.clone(), one.attempt);
            if !site::is_launched(&one.job) {
                let word = self.word_of_others(&of);
                self.confirm(&of, word);
                continue;
            }
            if edge && one.source.is_some() && !is_late {
                continue;
            }
            match self.word_for(&of, &one.hosts) {
                Word::Is(word) => self.confirm(&of, word),
                Word::Gone => self.confirm(&of, Confirm::Gone),
                Word::Holds(add) => self.ask(0, Request::JobAdd(add)),
            }
        }
        let mut last = None;
        for orphan in &view.orphans {
            let of = (orphan.job.clone(), orphan.attempt);
            let known = view.attempts.iter().any(|one| (&one.job, &one.attempt) == (&of.0, &of.1));
            if known || last.as_ref() == Some(&of) {
                continue;
            }
            last = Some(of.clone());
            let word = if site::is_launched(&of.0) {
                match self.word_for(&of, &perilog_core::HostList::new()) {
                    _ if edge && !is_late => continue,
                    Word::Is(word) => word,
                    Word::Holds(add) => {
                        self.ask(0, Request::JobAdd(add));
                        continue;
                    }
                    Word::Gone => Confirm::Gone,
                }
            } else {
                match self.word_of_others(&of) {
                    Confirm::Gone => Confirm::Gone,
                    // The operator does not know on which other nodes the orphan's attempt runs.
                    Confirm::Over | Confirm::Running => Confirm::Over,
                }
            };
            self.confirm(&of, word);
        }
    }

    fn confirm(&mut self, of: &Of, word: Confirm) {
        self.person.spoken_for.insert(of.clone());
        if word == Confirm::Gone {
            self.truth.said_gone(of);
        }
        // After this statement the controller may withdraw waiting tasks of the attempt.
        self.truth.asked_to_end(of.0.clone());
        let (job, attempt) = (Some(of.0.clone()), Some(of.1));
        self.say(|| format!("a person says of {} attempt {}: {word:?}", of.0, of.1));
        self.ask(0, Request::Recover(Recover::Confirm { job, attempt, word }));
    }

    /// Returns what the operator states about a job that this world's resource manager did not launch. It is gone if a
    /// release of the attempt was committed. Otherwise it is over; while faults go on, it is running in half of the
    /// cases.
    fn word_of_others(&mut self, of: &Of) -> Confirm {
        if self.truth.was_given_back(of) {
            return Confirm::Gone;
        }
        // All jobs are over when faults have stopped.
        if self.quiet || self.dice.one_in(2) { Confirm::Over } else { Confirm::Running }
    }
}
