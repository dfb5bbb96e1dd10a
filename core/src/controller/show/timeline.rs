//! Timeline of a job, for the web page: its attempts and actions with their ends. Every list has a bound.

use crate::controller::facts::Facts;
use crate::controller::interface::io::Refusal;
use crate::controller::interface::overview::{
    ActionLine, AttemptLine, MAX_ACTIONS, MAX_ATTEMPTS, MAX_FAULTS, MAX_HOSTS, MAX_ROWS, Timeline,
};
use crate::controller::job::no_job;
use crate::controller::show::overview::{first, open_row};
use crate::controller::state::Action;
use crate::controller::state::attempt::JobAttempt;
use crate::ids::{Attempt, JobId};

impl Facts<'_> {
    pub(super) fn timeline(&self, job: &JobId) -> Result<Timeline, Refusal> {
        let entry = self.jobs.get(job).ok_or_else(|| no_job(job))?;
        let left_out = entry.attempts.len().saturating_sub(MAX_ATTEMPTS);
        let newest = entry.attempts.iter().skip(left_out);
        let userid = entry.attempts.values().next_back().and_then(|attempt| attempt.userid);
        Ok(Timeline {
            job: job.clone(),
            userid,
            attempts: newest.map(|(number, attempt)| self.attempt_line(job, *number, attempt)).collect(),
            attempts_left_out: left_out as u64,
        })
    }

    fn attempt_line(&self, job: &JobId, number: Attempt, attempt: &JobAttempt) -> AttemptLine {
        let left_out = attempt.actions.len().saturating_sub(MAX_ACTIONS);
        let actions = self.jobs.of(attempt).skip(left_out);
        AttemptLine {
            attempt: number,
            open: attempt.open,
            count: attempt.layout.ranks().len(),
            held: attempt.hold.ranks.len(),
            released: attempt.released.ranks.len(),
            hosts: attempt.layout.hosts_of(&first(attempt.layout.ranks())),
            waits: self.waits_for(job, number).map(|why| why.to_string()),
            milestones: attempt.milestones.reached().take(MAX_HOSTS).cloned().collect(),
            actions: actions.map(|action| self.action_line(action)).collect(),
            actions_left_out: left_out as u64,
        }
    }

    fn action_line(&self, action: &Action) -> ActionLine {
        let row = &action.row;
        let age = |at_ms: u64| self.cx.now.wall_ms.saturating_sub(at_ms);
        let (mut open, mut faults) = (self.open_rows(action), self.faults(action));
        let left_out = |len: usize, most: usize| len.saturating_sub(most) as u64;
        let (open_left_out, faults_left_out) = (left_out(open.len(), MAX_ROWS), left_out(faults.len(), MAX_FAULTS));
        open.truncate(MAX_ROWS);
        faults.truncate(MAX_FAULTS);
        ActionLine {
            action: row.name.clone(),
            after: self.is_after(action),
            external: row.external.is_some(),
            began_age_ms: age(row.began_ms),
            ended_age_ms: row.ended_ms.map(age),
            verdict: row.verdict,
            count: row.ranks.len(),
            ok: row.ok.len(),
            bad: action.bad().len(),
            open: open.into_iter().map(open_row).collect(),
            open_left_out,
            faults,
            faults_left_out,
        }
    }
}
