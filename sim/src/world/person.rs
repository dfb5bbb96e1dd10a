//! The operator after a restore: comes some time after a generation begins, and types what `perilog ps --abandoned`
//! prints, for jobs that are over.

use perilog_core::controller::Record;
use perilog_core::controller::io::{Refusal, Reply, Request};
use perilog_core::controller::view::RecoveryView;

use super::World;
use super::event::Event;
use super::site;
use crate::plan::{ENTERED, LEFT, Scheduler as Kind};
use crate::truth::recovery::is_on;

/// Time (ms) after which the operator looks again, until nothing is abandoned or the verdicts are due.
const AGAIN_MS: u64 = 15_000;
/// Time (ms) after the faults stop from which on the operator also finishes attempts that an edge should have taken up.
const PATIENCE_MS: u64 = 120_000;

#[derive(Debug, Default)]
pub(crate) struct Person {
    is_coming: bool,
    asked: Option<u64>,
}

impl World {
    /// Schedules a visit of the operator, unless one is scheduled already.
    pub(crate) fn call_person(&mut self) {
        if !std::mem::replace(&mut self.person.is_coming, true) {
            let delay = if self.quiet { self.dice.range(1, 5_000) } else { self.dice.skewed(1_000, 120_000) };
            self.after(delay, Event::Person);
        }
    }

    /// Counts each generation that a batch begins, and each grace that it ends, before the batch's commit. If the first
    /// controller begins one, schedules the operator's visit; a resource manager with an edge lists its attempts anew.
    pub(crate) fn note_recovery(&mut self, which: usize, records: &[Record]) {
        let rows = records.iter().filter_map(|record| match record {
            Record::Recovery(row) => Some(row.clone()),
            _ => None,
        });
        for row in rows.collect::<Vec<_>>() {
            self.log_line(|| format!("c{which} generation: {row:?}"));
            let what = if row.ended_ms.is_some() { LEFT } else { ENTERED };
            *self.memory.entry(what).or_default() += 1;
            if row.ended_ms.is_some() {
                continue;
            }
            if let Some(shown) = &mut self.controllers[which].shown {
                shown.notices.clear();
            }
            if which == 0 {
                self.call_person();
                // An edge follows its attempts, and a waiting hook the events of its job: they see that these are
                // abandoned, and ask again.
                self.scheduler_cut();
            }
        }
    }

    pub(crate) fn person_comes(&mut self) {
        self.person.is_coming = false;
        let store = &self.controllers[0].store;
        let is_left = is_on(store) || store.attempts.iter().any(|row| row.abandoned);
        if !is_left && !self.quiet {
            return;
        }
        if self.controllers[0].is_up() {
            self.person.asked = Some(self.controllers[0].clients + 1);
            self.ask(0, Request::Recover { take_over: false });
        }
        if (is_left || self.quiet) && self.t < self.verdicts_at {
            self.person.is_coming = true;
            self.after(AGAIN_MS, Event::Person);
        }
    }

    /// Hands a reply to the operator; returns `false` if the reply answers no request of the operator.
    pub(crate) fn person_receives(&mut self, client: u64, reply: &Result<Reply, Refusal>) -> bool {
        if self.person.asked != Some(client) {
            return false;
        }
        self.person.asked = None;
        if let Ok(Reply::Recovery(view)) = reply {
            self.type_all(view);
        }
        true
    }

    fn type_all(&mut self, view: &RecoveryView) {
        let has_rival = view.accepted_epoch.is_some();
        let is_suspect = !view.suspects.is_empty()
            && (0..self.nodes.len()).all(|at| !self.nodes[at].is_forged(self.t) || self.quiet);
        if has_rival || is_suspect {
            // The operator knows that the store was restored, that no other controller runs, and that no key was
            // stolen.
            self.truth.store_may_be_behind();
            return self.ask(0, Request::Recover { take_over: true });
        }
        let edge = self.plan.scheduler == Some(Kind::Edge);
        let is_late = self.quiet && self.t > self.plan.horizon_ms + PATIENCE_MS;
        for one in view.abandoned.iter().filter(|one| one.stored) {
            let of = (one.job.clone(), one.attempt);
            let is_over = if site::is_launched(&one.job) {
                // An edge lists what goes on. A hook asks for its job again when the job ends.
                (!edge || one.source.is_none() || is_late) && self.is_gone(&of, &one.hosts)
            } else {
                // All jobs are over when faults have stopped.
                self.quiet || self.dice.one_in(2)
            };
            if is_over {
                self.truth.asked_to_end(of.0.clone());
                self.log_line(|| format!("a person types: {}", one.command));
                let (job, attempt) = (of.0, Some(of.1));
                self.ask(0, Request::JobFinish { job, attempt, targets: None, resources: None });
            }
        }
        if self.quiet {
            for hosts in view.unknown.iter().map(|one| one.hosts.clone()) {
                let names = hosts.iter().filter_map(|host| perilog_core::HostName::new(host).ok());
                names.for_each(|host| self.truth.lifted(host, self.t));
                self.ask(0, Request::Undrain { hosts, forget: false, notice_id: None });
            }
        }
    }
}
