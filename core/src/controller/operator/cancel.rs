//! `cancel` and `kill`: decides which tasks an operator cancels, and which get the operator's signal.

use serde_json::json;

use crate::controller::interface::io::{Refusal, Reply, Which};
use crate::controller::state::Jobs;
use crate::controller::state::Nodes;
use crate::controller::state::RankState;
use crate::controller::state::change::Change;
use crate::controller::state::context::Context;
use crate::defect;
use crate::ids::{ActionId, Rank, TaskId};
use crate::message::ToAgent;
use crate::outcome::Outcome;
use crate::task::Ended;

impl Jobs {
    /// Cancels the open tasks and named resources in `which`. A task ends at once if the controller has not sent its
    /// Start. Every other task normally stays open until its node or service reports the end. An after-action is
    /// cancelled only by name.
    ///
    /// # Errors
    /// `which` names no such job, attempt, action, rank or host. Or `which` names no action, and only after-actions are
    /// open.
    pub(crate) fn cancel(&mut self, which: &Which, why: &str, uid: u32, cx: &mut Context) -> Result<Reply, Refusal> {
        let mut count = 0;
        let mut tasks = self.tasks(which, true)?;
        if defect!(CancelTakesEpilog) {
        } else if which.action.is_none() {
            // After-actions clean up after the cancelled actions: a cancel reaches one only by its name.
            let follows = |id: &ActionId| self.action(*id).is_some_and(|action| self.follows(action));
            let (behind, before): (Vec<_>, Vec<_>) = tasks.into_iter().partition(|(id, _)| follows(id));
            let name = behind.first().and_then(|(id, _)| self.action(*id)).map(|action| &action.row.name);
            if let Some(name) = name.filter(|_| before.is_empty() && self.open_resources(which).is_empty()) {
                let job = &which.job;
                return Err(Refusal::Conflict(format!(
                    "only {name} of job {job} is open, and a cancel of the job leaves it alone. To stop it too, which \
                     drains its nodes: perilog cancel {job} {name}"
                )));
            }
            tasks = before;
        }
        count += self.cancel_resources(which, why, uid, cx);
        for (id, ranks) in tasks {
            count += ranks.len();
            for rank in ranks.iter().map(Rank) {
                let task = TaskId { action: id, rank };
                let Some(action) = self.action_mut(id) else {
                    continue;
                };
                if action.rank_state(rank) == RankState::Waiting {
                    // The controller has sent no Start, so no script can run.
                    self.end_task(task, Ended::bare(Outcome::Cancelled { status: None }, cx.now.wall_ms), cx);
                    continue;
                }
                action.cancelling(rank, why);
                cx.changes.push_back(Change::Cancelled(task, why.to_owned()));
            }
            self.touch(id, cx);
            self.action_event(id, "cancel", json!({"ranks": ranks, "why": why, "by": uid}), cx);
        }
        Ok(Reply::Reached { tasks: count })
    }
}

impl Nodes {
    /// Sends a signal to the tasks in `which` that their nodes have accepted, on connected nodes. Returns the number of
    /// these tasks.
    ///
    /// # Errors
    /// `which` names no such job, attempt, action, rank or host.
    pub(crate) fn signal(&self, jobs: &Jobs, which: &Which, signal: u8, cx: &mut Context) -> Result<Reply, Refusal> {
        let mut count = 0;
        for (id, ranks) in jobs.tasks(which, true)? {
            for rank in ranks.iter().map(Rank) {
                let task = TaskId { action: id, rank };
                let accepted = jobs.action(id).is_some_and(|a| a.rank_state(rank) == RankState::Accepted);
                if let Some(session) = self.session_of(jobs, task).filter(|_| accepted) {
                    count += 1;
                    cx.send(session, ToAgent::Signal { task, signal });
                }
            }
        }
        Ok(Reply::Reached { tasks: count })
    }
}
