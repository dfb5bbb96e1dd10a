//! Needs of a batch: the jobs that its inputs name and the machine does not hold.

use std::collections::BTreeSet;

use crate::controller::facts::Facts;
use crate::controller::interface::io::{AskWhich, Input, Now, Request};
use crate::controller::interface::overview::OverviewRequest;
use crate::controller::state::Jobs;
use crate::controller::state::away::Oldest;
use crate::controller::state::session::Stage;
use crate::defect;
use crate::ids::{ActionId, JobId, TaskId};
use crate::message::{FromAgent, Held};

/// Jobs that a batch needs and the machine does not hold.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Needs {
    pub jobs: BTreeSet<JobId>,
    /// Actions whose jobs are needed.
    pub actions: BTreeSet<ActionId>,
    /// The attempts whose jobs retention needs; `None`: no retention in this batch.
    pub oldest: Option<Oldest>,
    /// The page of the outbox that a reader asks for: notices to the resource manager with a higher sequence number,
    /// and their maximum number. `None`: no page, or it is in memory.
    pub page: Option<(u64, usize)>,
}

impl Needs {
    pub fn is_empty(&self) -> bool {
        self.jobs.is_empty() && self.actions.is_empty() && self.oldest.is_none() && self.page.is_none()
    }

    /// Returns the number of jobs and actions that are asked for by name.
    pub fn len(&self) -> usize {
        self.jobs.len() + self.actions.len()
    }

    /// Adds what another input needs.
    pub(crate) fn extend(&mut self, other: Self) {
        self.jobs.extend(other.jobs);
        self.actions.extend(other.actions);
        self.oldest = self.oldest.or(other.oldest);
        // Two readers in one batch: a page from the lower number on, with room for both.
        self.page = match (self.page, other.page) {
            (Some((a, n)), Some((b, m))) => Some((a.min(b), n.saturating_add(m))),
            (one, other) => one.or(other),
        };
    }

    fn job(&mut self, jobs: &Jobs, job: &JobId) {
        if !jobs.contains_key(job) {
            self.jobs.insert(job.clone());
        }
    }

    fn task(&mut self, jobs: &Jobs, task: TaskId) {
        if jobs.action(task.action).is_none() {
            self.actions.insert(task.action);
        }
    }

    fn held(&mut self, jobs: &Jobs, held: &Held) {
        self.job(jobs, &held.job);
        self.task(jobs, held.task);
    }
}

impl Facts<'_> {
    /// Returns what a batch with this input needs of the store.
    pub(crate) fn needs(&self, input: &Input, now: Now) -> Needs {
        let mut needs = Needs::default();
        if defect!(NeedsIgnored) {
            return needs;
        }
        if self.jobs.table.away.elsewhere.attempts == 0 {
            return needs;
        }
        match input {
            Input::Message { session, message, .. } => {
                // The last page of a Hello settles the tasks of all its pages.
                let stage = self.nodes.sessions.get(session).map(|session| &session.stage);
                if let (FromAgent::Hello(_), Some(Stage::Greeting(Some(hello)))) = (message, stage) {
                    hello.tasks.iter().for_each(|held| needs.held(&self.jobs, held));
                }
                self.add_message(message, &mut needs);
            }
            Input::Request { request, .. } => self.add_request(request, &mut needs),
            Input::Tick => needs.oldest = self.oldest(now),
            Input::Closed { .. }
            | Input::HungUp { .. }
            | Input::Settings(_)
            | Input::StoreFull(_)
            | Input::Redials { .. } => {}
        }
        // A Hello that waits for the answer to a probe may be settled in any batch.
        for id in &self.nodes.probing {
            let stage = self.nodes.sessions.get(id).map(|session| &session.stage);
            if let Some(Stage::Probing { hello, .. }) = stage {
                hello.tasks.iter().for_each(|held| needs.held(&self.jobs, held));
            }
        }
        needs
    }

    fn add_message(&self, message: &FromAgent, needs: &mut Needs) {
        match message {
            FromAgent::Hello(page) => page.tasks.iter().for_each(|held| needs.held(&self.jobs, held)),
            FromAgent::Accepted { task, .. }
            | FromAgent::PhaseChanged { task, .. }
            | FromAgent::Milestone { task, .. }
            | FromAgent::Finished { task, .. }
            | FromAgent::ExpectsBoot { task, .. } => needs.task(&self.jobs, *task),
            FromAgent::EpochRefused { .. }
            | FromAgent::Probed { .. }
            | FromAgent::Answer { .. }
            | FromAgent::Unsupported { .. } => {}
        }
    }

    fn add_request(&self, request: &Request, needs: &mut Needs) {
        let jobs = &self.jobs;
        match request {
            Request::OfEdge(request) => self.add_request(request, needs),
            Request::Run(run) => needs.job(jobs, &run.job),
            Request::ActionStart(start) => needs.job(jobs, &start.run.job),
            Request::ActionReport(report) | Request::ActionRenew(report) | Request::ActionMilestone(report) => {
                needs.job(jobs, &report.job)
            }
            Request::JobAdd(add) => needs.job(jobs, &add.job),
            Request::JobFinish { job, .. }
            | Request::JobCancel { job, .. }
            | Request::JobForget { job, .. }
            | Request::Milestone { job, .. }
            | Request::Failed { job, .. }
            | Request::Show { job, .. }
            | Request::Overview(OverviewRequest::Job(job)) => needs.job(jobs, job),
            Request::Cancel { which, .. }
            | Request::Signal { which, .. }
            | Request::Resolve { which, .. }
            | Request::Ask { which: AskWhich::Tasks(which), .. } => needs.job(jobs, &which.job),
            // A hint says that an unknown host is the name of a job.
            Request::Why { host } | Request::Overview(OverviewRequest::Node(host)) => {
                self.add_name(host.as_str(), needs)
            }
            Request::Nodes { targets: Some(targets), .. } => targets.iter().for_each(|host| self.add_name(host, needs)),
            Request::Sync(page) => {
                page.attempts.iter().for_each(|listed| needs.job(jobs, &listed.job));
                page.unfit.iter().for_each(|unfit| needs.job(jobs, &unfit.job));
            }
            Request::Outbox { after, limit } => {
                needs.page = Some((*after, *limit)).filter(|_| self.cx.outbox.lacks(*after));
            }
            Request::Attempts(of) => of.jobs.iter().flatten().for_each(|job| needs.job(jobs, job)),
            Request::Drains { .. }
            | Request::PendingDrains
            | Request::Drain { .. }
            | Request::Undrain { .. }
            | Request::DrainDone { .. }
            | Request::DrainsDone { .. }
            | Request::Releases { .. }
            | Request::OutboxDone { .. }
            | Request::HookFailed { .. }
            | Request::Ps { .. }
            | Request::Nodes { targets: None, .. }
            | Request::NodeForget { .. }
            | Request::Ask { which: AskWhich::Hosts(_), .. }
            | Request::AskEnds { .. }
            | Request::Status {}
            | Request::Overview(OverviewRequest::Cluster)
            | Request::Quiesce { .. }
            | Request::Resume {}
            | Request::Recover { .. }
            | Request::OutboxApplied { .. } => {}
        }
    }

    fn add_name(&self, host: &str, needs: &mut Needs) {
        if let Ok(job) = JobId::new(host)
            && !self.nodes.contains_key(host)
        {
            needs.job(&self.jobs, &job);
        }
    }
}
