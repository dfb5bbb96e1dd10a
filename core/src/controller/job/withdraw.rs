//! Withdrawal: decides which setup tasks never begin, because the job hands their ranks over or ends. Withdrawn tasks
//! end as `cancelled`. The services of external actions are asked to stop.

use serde_json::json;

use crate::controller::interface::io::Recovered;
use crate::controller::state::Jobs;
use crate::controller::state::context::Context;
use crate::controller::state::{Action, RankState};
use crate::defect;
use crate::ids::{ActionId, Attempt, JobId, Rank, TaskId};
use crate::idset::IdSet;
use crate::job::Part;
use crate::outcome::Outcome;
use crate::task::Ended;

impl Jobs {
    /// Ends each setup task that still waits for its Start on one of the ranks `of`, with the outcome `cancelled`.
    /// `why`: the reason, for the event log.
    pub(crate) fn withdraw(&mut self, job: &JobId, number: Attempt, of: &IdSet, why: &str, cx: &mut Context) {
        let waiting = |action: &Action| action.row.waiting.intersection(of);
        let unbegun = self.preparing(job, number).map(|action| (action.row.id, waiting(action)));
        let unbegun: Vec<(ActionId, IdSet)> = unbegun.filter(|(_, ranks)| !ranks.is_empty()).collect();
        for (id, ranks) in unbegun {
            let Some(action) = self.action(id) else { continue };
            let tasks: Vec<TaskId> = ranks.iter().map(|rank| action.task(Rank(rank))).collect();
            self.action_event(id, "cancel", json!({"ranks": ranks, "why": why}), cx);
            for task in tasks {
                self.end_task(task, Ended::bare(Outcome::Cancelled { status: None }, cx.now.wall_ms), cx);
            }
        }
    }

    /// Ends the setup tasks that still wait on the rank of `task` as `cancelled`, if `task` is an after-action's: no
    /// setup action may begin on a rank after an after-action. Called when a node turns out to hold `task`, which a
    /// lost epoch of the controller may have begun.
    pub(crate) fn withdraw_before(&mut self, task: TaskId, cx: &mut Context) {
        let Some(action) = self.action(task.action).filter(|action| self.follows(action)) else { return };
        let Some(attempt) = self.attempt(&action.row.job, action.row.attempt) else { return };
        let setup = |other: &&Action| !self.follows(other) && other.row.external.is_none();
        let late = self.of(attempt).filter(setup).filter(|other| other.rank_state(task.rank) == RankState::Waiting);
        let late: Vec<TaskId> = late.map(|other| other.task(task.rank)).collect();
        for task in late {
            self.withdraw_task(task, "the rank was cleaned up before the task could begin", cx);
        }
    }

    /// Asks the services of the attempt's external actions to stop. A service learns of the cancel from the reply to
    /// its next report, and from the job's event log.
    pub(crate) fn stop_services(&mut self, job: &JobId, number: Attempt, why: &str, cx: &mut Context) {
        if defect!(SupersededServiceUnnotified) {
            return;
        }
        let at_work = self.preparing(job, number).filter(|action| action.row.external.is_some());
        let parts: Vec<(ActionId, Part)> = at_work
            .map(|action| (action.row.id, action.not_cancelling()))
            .filter(|(_, part)| !part.is_empty())
            .collect();
        for (id, part) in parts {
            let Some(action) = self.action_mut(id) else { continue };
            action.stop_service(&part, why);
            let context = json!({"ranks": part.ranks, "resources": part.resources, "why": why});
            self.action_event(id, "cancel", context, cx);
            self.touch(id, cx);
        }
    }

    /// Returns all actions of an attempt except its after-actions: the setup actions and the external actions.
    pub(crate) fn preparing(&self, job: &JobId, number: Attempt) -> impl Iterator<Item = &Action> {
        let actions = self.attempt(job, number).into_iter().flat_map(|attempt| self.of(attempt));
        actions.filter(|action| !self.follows(action))
    }

    /// Returns the ranks on which a setup action may have begun, as far as the store knows. Returns all ranks if
    /// recovery touched the attempt ([`Recovered`]): the store may then lack tasks that a lost epoch began.
    pub(crate) fn begun(&self, job: &JobId, number: Attempt) -> IdSet {
        let recovered = self.attempt(job, number).filter(|attempt| attempt.recovered != Recovered::No);
        if defect!(RecoveredUnbegun) {
        } else if let Some(attempt) = recovered {
            return attempt.layout.ranks().clone();
        }
        let mut begun = IdSet::new();
        for action in self.preparing(job, number) {
            begun.extend_with(&action.begun());
        }
        begun
    }
}

impl Action {
    /// Returns the ranks on which the action has begun or may yet begin, so waiting ranks too: all ranks but those that
    /// ended badly before a Start was sent. All ranks of an external action count, because the controller cannot see
    /// when its service begins.
    fn begun(&self) -> IdSet {
        let mut never = self.row.not_ok.clone();
        self.row.boots.values().for_each(|sent| never.subtract(sent));
        if self.row.external.is_some() { self.row.ranks.clone() } else { self.row.ranks.difference(&never) }
    }
}
