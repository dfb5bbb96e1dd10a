//! Milestones: decides which reports are new, and when a job has reached a milestone. Scripts report milestones while
//! they run, and the agent repeats them with the end of the task; services and operators report them too. The event log
//! gets each milestone once per rank, and once for the job when all ranks have reported it ([`crate::milestone`]). The
//! attempt's row contains the reports, so a crash repeats no log entry.

use serde_json::{Map, json};

use crate::agent::io::Level;
use crate::controller::interface::io::{Refusal, Reply};
use crate::controller::state::Jobs;
use crate::controller::state::RankState;
use crate::controller::state::context::Context;
use crate::controller::state::context::MilestoneEntry;
use crate::ids::{ActionId, Attempt, JobId, MilestoneName, TaskId};
use crate::idset::IdSet;
use crate::milestone::{EVENTS, MAX_NAMES, TooMany};
use crate::targets::Targets;

impl Jobs {
    /// Records that a script of the task reported the milestone `name`. The report counts even if the task has ended
    /// since.
    pub(crate) fn on_task_milestone(&mut self, task: TaskId, name: &str, cx: &mut Context) {
        let Some(action) = self.action(task.action).filter(|a| a.rank_state(task.rank) != RankState::NotInAction)
        else {
            return;
        };
        // The runner rejects an invalid name, so only a forged report ends here.
        let Ok(name) = MilestoneName::new(name) else { return };
        let (job, attempt, action) = (action.row.job.clone(), action.row.attempt, Some(action.row.name.clone()));
        let milestone = MilestoneEntry { job, attempt, name, action, by: None };
        // If the attempt has no room for the milestone, the event log says so already.
        let _ = self.record_milestone(milestone, &IdSet::from(task.rank.0..=task.rank.0), cx);
    }

    /// Records that the service of an external action reported a milestone for `ranks`. If the action covers no rank,
    /// the report counts for all ranks of the job.
    ///
    /// # Errors
    /// The name is reserved for an event, or the attempt has no room for another milestone.
    pub(crate) fn on_service_milestone(
        &mut self,
        id: ActionId,
        name: &MilestoneName,
        ranks: &IdSet,
        cx: &mut Context,
    ) -> Result<(), Refusal> {
        not_an_event(name)?;
        let (Some(action), Some(layout)) = (self.action(id), self.layout(id)) else { return Ok(()) };
        let (job, attempt) = (action.row.job.clone(), action.row.attempt);
        let ranks = if action.row.ranks.is_empty() { layout.ranks().clone() } else { ranks.clone() };
        let milestone =
            MilestoneEntry { job, attempt, name: name.clone(), action: Some(action.row.name.clone()), by: None };
        self.record_milestone(milestone.clone(), &ranks, cx)
            .map(drop)
            .map_err(|TooMany| too_many(&milestone.job, attempt))
    }

    /// Records that `ranks` have reported a milestone; the end of the batch adds the event to the job's log. Returns
    /// the ranks that had not reported the milestone before. `TooMany`: the attempt has no room for another milestone.
    fn record_milestone(
        &mut self,
        milestone: MilestoneEntry,
        ranks: &IdSet,
        cx: &mut Context,
    ) -> Result<IdSet, TooMany> {
        let Some(entry) = self.attempt_mut(&milestone.job, milestone.attempt) else {
            return Ok(IdSet::new());
        };
        match entry.milestones.record(&milestone.name, ranks) {
            Ok(news) => {
                if !news.is_empty() {
                    cx.milestones.entry(milestone).or_default().extend_with(&news);
                }
                Ok(news)
            }
            // The event log got `milestones-full` when the last free place was taken.
            Err(TooMany) => Err(TooMany),
        }
    }

    /// Records that an operator reported a milestone, and adds the event to the job's log at once.
    ///
    /// # Errors
    /// There is no such job or attempt, the attempt is closed, a target is outside it, the name is reserved, or the
    /// attempt has no room for another milestone.
    pub(crate) fn on_operator_milestone(
        &mut self,
        job: &JobId,
        attempt: Option<Attempt>,
        name: &MilestoneName,
        targets: Option<&Targets>,
        uid: u32,
        cx: &mut Context,
    ) -> Result<Reply, Refusal> {
        let (number, entry) = self.attempt_meant(job, attempt)?;
        if !entry.open {
            return Err(Refusal::AttemptClosed(format!("attempt {number} of job {job} is closed")));
        }
        let ranks = match targets {
            Some(targets) => entry.layout.choose(targets).map_err(Refusal::Invalid)?,
            None => entry.layout.ranks().clone(),
        };
        not_an_event(name)?;
        let milestone =
            MilestoneEntry { job: job.clone(), attempt: number, name: name.clone(), action: None, by: Some(uid) };
        let ranks = self.record_milestone(milestone, &ranks, cx).map_err(|TooMany| too_many(job, number))?;
        self.log_milestones(cx);
        let entry = self.attempt(job, number);
        Ok(Reply::MilestoneReached { ranks, reached: entry.is_some_and(|entry| entry.milestones.is_reached(name)) })
    }

    /// Adds the milestone reports of this batch to the jobs' logs, and then each milestone that a job has reached by
    /// these reports.
    pub(crate) fn log_milestones(&mut self, cx: &mut Context) {
        for (milestone, ranks) in std::mem::take(&mut cx.milestones) {
            let MilestoneEntry { job, attempt, name, action, by } = milestone;
            // The attempt was forgotten in this batch, with its log.
            let Some(entry) = self.attempt(&job, attempt) else { continue };
            let hosts = entry.layout.hosts_of(&ranks);
            let mut context = Map::new();
            context.extend(action.map(|action| ("action".to_owned(), json!(action))));
            context.extend([("attempt".to_owned(), json!(attempt)), ("name".to_owned(), json!(name))]);
            context.extend([("ranks".to_owned(), json!(ranks)), ("hosts".to_owned(), json!(hosts))]);
            context.extend(by.map(|by| ("by".to_owned(), json!(by))));
            self.event(&job, "milestone", context.into(), cx);
            cx.attempts.insert((job.clone(), attempt));
            self.reach_milestones(&job, attempt, cx);
            self.log_full(&job, attempt, cx);
        }
    }

    /// Adds the event `milestones-full` to the job's log if the attempt has its maximum number of milestones. Clients
    /// that wait for a further milestone then stop waiting. Each epoch of the controller adds the event only once.
    fn log_full(&mut self, job: &JobId, number: Attempt, cx: &mut Context) {
        let entry = self.attempt_mut(job, number);
        let Some(entry) = entry.filter(|entry| entry.milestones.is_full()) else { return };
        if !std::mem::replace(&mut entry.too_many_milestones, true) {
            let text = format!(
                "attempt {number} has {MAX_NAMES} milestones, as many as it may have: reports of others are dropped"
            );
            cx.note(Level::Warning, Some(job), None, text);
            self.event(job, "milestones-full", json!({"attempt": number, "most": MAX_NAMES}), cx);
        }
    }

    /// Adds each milestone that the job has newly reached to the job's log, and sends the resource manager a notice.
    /// The job reaches a milestone when every rank that must report the milestone has reported it. Two kinds of ranks
    /// need not report: forgiven ranks, and released ranks that the job handed over while it kept others.
    pub(crate) fn reach_milestones(&mut self, job: &JobId, number: Attempt, cx: &mut Context) {
        let entry = self.attempt(job, number);
        if !entry.is_some_and(|entry| entry.milestones.is_under_way()) {
            return;
        }
        let forgiven = self.tolerated(job, number);
        let Some(entry) = self.attempt_mut(job, number) else { return };
        for (name, without) in entry.milestones.reach(entry.layout.ranks(), &forgiven, &entry.released.ranks) {
            let mut context = json!({"attempt": number, "name": name});
            if !without.is_empty() {
                context["without"] = json!(without);
            }
            cx.attempt_changed(job, number);
            self.event(job, "milestone", context.clone(), cx);
            self.notify_manager(job, number, "milestone", context, cx);
        }
    }
}

fn not_an_event(name: &MilestoneName) -> Result<(), Refusal> {
    if EVENTS.contains(&name.as_str()) {
        return Err(Refusal::Invalid(format!(
            "{name} is the name of an event in the logs of jobs: give the milestone another name"
        )));
    }
    Ok(())
}

fn too_many(job: &JobId, attempt: Attempt) -> Refusal {
    Refusal::Conflict(format!("job {job} attempt {attempt} has {MAX_NAMES} milestones already, and can have no more"))
}
