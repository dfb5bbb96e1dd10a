//! Superseding: a newer attempt of a job takes the place of the open one. No resource manager finishes the older
//! attempt any more, so superseding is its finish:
//!
//! * tasks that no node was sent never begin;
//! * running tasks continue;
//! * on each rank where a setup action had begun, the after-actions run, and hold the rank until they end.
//!
//! ```text
//!   held by the job --no setup action began--------------------> released
//!                  \-> held by its after-actions --all ended---> released      only then the new attempt begins there
//! ```
//! [`crate::controller::action::order`] makes the new attempt wait, host by host.

use serde_json::json;

use crate::controller::action::Action;
use crate::controller::io::Now;
use crate::controller::job::Jobs;
use crate::controller::machine::Machine;
use crate::defect;
use crate::ids::{ActionId, Attempt, JobId, Rank};
use crate::idset::IdSet;
use crate::job::Part;
use crate::outcome::Outcome;
use crate::task::Ended;

impl Jobs {
    /// Returns the setup actions of this attempt: all actions except the after-actions.
    fn preparing(&self, job: &JobId, number: Attempt) -> impl Iterator<Item = &Action> {
        let attempt = self.attempt(job, number);
        let actions = attempt.into_iter().flat_map(|attempt| &attempt.actions).filter_map(|id| self.action(*id));
        actions.filter(|action| !self.follows(action))
    }

    /// Returns the ranks on which a setup action may have begun, as far as the store knows.
    pub(in crate::controller) fn begun(&self, job: &JobId, number: Attempt) -> IdSet {
        if let Some(attempt) =
            self.attempt(job, number).filter(|attempt| attempt.recovered && !defect!(RecoveredUnbegun))
        {
            return attempt.layout.ranks().clone();
        }
        let mut begun = IdSet::new();
        for action in self.preparing(job, number) {
            begun.extend_with(&action.begun());
        }
        begun
    }
}

impl Machine {
    /// Closes the older attempts of a job, because `by` is opened.
    pub(in crate::controller) fn supersede(&mut self, job: &JobId, older: Vec<Attempt>, by: Attempt, now: Now) {
        let why = format!("attempt {by} was opened");
        for older in older {
            self.disown_superseded(job, older, now);
            self.close_attempt(job, older, &why, now);
        }
    }

    /// Closes an attempt: hands its ranks to the after-actions, or releases the ranks; `why`: for the event log.
    pub(in crate::controller) fn close_attempt(&mut self, job: &JobId, number: Attempt, why: &str, now: Now) {
        let Some(entry) = self.jobs.attempt_mut(job, number) else { return };
        let was_open = std::mem::replace(&mut entry.open, false);
        entry.touched_ms = now.wall_ms;
        let part = entry.let_go(&entry.whole());
        self.batch.attempts.insert((job.clone(), number));
        let all = entry.layout.ranks().clone();
        self.withdraw(job, number, &all, why, now);
        self.stop_services(job, number, why, now);
        let begun = self.jobs.begun(job, number).intersection(&part.ranks);
        for name in self.settings.after.clone() {
            if !defect!(SupersededUnfollowed) {
                self.follow(job, number, &name, &begun, true, now);
            }
        }
        self.nothing_more(job, number);
        self.batch.let_go.entry((job.clone(), number)).or_default().extend_with(&part);
        if was_open {
            self.event(job, now, "attempt-closed", json!({"attempt": number, "why": why}));
        }
    }

    /// Withdraws the setup tasks on ranks `of` that the controller never sent to the node.
    pub(in crate::controller) fn withdraw(&mut self, job: &JobId, number: Attempt, of: &IdSet, why: &str, now: Now) {
        let waiting = |action: &Action| action.row.waiting.intersection(of);
        let unbegun = self.jobs.preparing(job, number).map(|action| (action.row.id, waiting(action)));
        let unbegun: Vec<(ActionId, IdSet)> = unbegun.filter(|(_, ranks)| !ranks.is_empty()).collect();
        for (id, ranks) in unbegun {
            let Some(action) = self.jobs.action(id) else { continue };
            let (name, tasks): (_, Vec<_>) =
                (action.row.name.clone(), ranks.iter().map(|rank| action.task(Rank(rank))).collect());
            let context = json!({"action": name, "attempt": number, "ranks": ranks, "why": why});
            self.event(job, now, "cancel", context);
            for task in tasks {
                self.end_task(task, Ended::bare(Outcome::Cancelled { status: None }, now.wall_ms), now);
            }
        }
    }

    /// Asks external services to stop, as `job cancel` does. A service learns of the cancel from the answer to its next
    /// report, and from the job's events.
    pub(in crate::controller) fn stop_services(&mut self, job: &JobId, number: Attempt, why: &str, now: Now) {
        let at_work = self.jobs.preparing(job, number).filter(|action| action.row.external.is_some());
        let parts: Vec<(ActionId, Part)> = at_work
            .map(|action| (action.row.id, action.not_cancelling()))
            .filter(|(_, part)| !part.is_empty())
            .collect();
        for (id, part) in parts {
            let Some(action) = self.jobs.action_mut(id).filter(|_| !defect!(SupersededServiceUntold)) else {
                continue;
            };
            let name = action.row.name.clone();
            action.stop_service(&part, why);
            let context = json!({"action": name, "attempt": number, "ranks": part.ranks, "resources": part.resources,
                "why": why});
            self.event(job, now, "cancel", context);
            self.touch(id, now);
        }
    }
}

impl Action {
    /// Returns all ranks that the action covers, except ranks that ended without a Start. All ranks of an external
    /// action count as begun: the controller cannot see when a service begins.
    fn begun(&self) -> IdSet {
        let mut never = self.row.ended.clone();
        self.row.boots.values().for_each(|sent| never.subtract(sent));
        if self.row.external.is_some() { self.row.ranks.clone() } else { self.row.ranks.difference(&never) }
    }
}
