//! `cancel` and `kill`: an operator stops the tasks of a job, or sends them a signal.

use serde_json::json;

use crate::controller::action::Stand;
use crate::controller::io::{Refusal, Reply, Which};
use crate::controller::machine::Machine;
use crate::defect;
use crate::ids::{ActionId, Rank, TaskId};
use crate::message::ToAgent;
use crate::outcome::Outcome;
use crate::task::Ended;

impl Machine {
    pub(crate) fn cancel(&mut self, which: &Which, why: &str, uid: u32) -> Result<Reply, Refusal> {
        let mut count = 0;
        let mut tasks = self.facts().tasks(which, true)?;
        if which.action.is_none() && !defect!(CancelTakesEpilog) {
            // An after-action cleans up after the cancelled actions: only a request that names it cancels it.
            let follows = |id: &ActionId| self.jobs.action(*id).is_some_and(|action| self.jobs.follows(action));
            let (behind, before): (Vec<_>, Vec<_>) = tasks.into_iter().partition(|(id, _)| follows(id));
            let name = behind.first().and_then(|(id, _)| self.jobs.action(*id)).map(|action| &action.row.name);
            if let Some(name) = name.filter(|_| before.is_empty() && self.facts().open_resources(which).is_empty()) {
                let job = &which.job;
                return Err(Refusal::Conflict(format!(
                    "only {name} of job {job} is open, and a cancel of the job leaves it alone. To stop it too, which drains its nodes: perilog cancel {job} {name}"
                )));
            }
            tasks = before;
        }
        count += self.cancel_resources(which, why, uid);
        for (id, ranks) in tasks {
            count += ranks.len();
            for rank in ranks.iter().map(Rank) {
                let task = TaskId { action: id, rank };
                let Some(action) = self.jobs.action_mut(id) else {
                    continue;
                };
                if action.stand(rank) == Stand::Waiting {
                    // No Start was ever committed, so no script can run.
                    self.end_task(task, Ended::bare(Outcome::Cancelled { status: None }, self.cx.now.wall_ms));
                    continue;
                }
                action.cancelling(rank, why);
                if let Some(session) = self.facts().session_of(task).filter(|_| !self.facts().is_absent(task)) {
                    self.cx.send_cancel(session, &self.jobs, task, why);
                }
            }
            self.jobs.touch(id, &mut self.cx);
            if let Some(row) = self.jobs.action(id).map(|a| a.row.clone()) {
                let context =
                    json!({"action": row.name, "attempt": row.attempt, "ranks": ranks, "why": why, "by": uid});
                self.jobs.event(&row.job, "cancel", context, &mut self.cx);
            }
        }
        Ok(Reply::Reached { tasks: count })
    }

    pub(crate) fn signal(&mut self, which: &Which, signal: u8) -> Result<Reply, Refusal> {
        let mut count = 0;
        for (id, ranks) in self.facts().tasks(which, true)? {
            for rank in ranks.iter().map(Rank) {
                let task = TaskId { action: id, rank };
                let accepted = self.jobs.action(id).is_some_and(|a| a.stand(rank) == Stand::Accepted);
                if let Some(session) = self.facts().session_of(task).filter(|_| accepted) {
                    count += 1;
                    self.cx.send(session, ToAgent::Signal { task, signal });
                }
            }
        }
        Ok(Reply::Reached { tasks: count })
    }
}
