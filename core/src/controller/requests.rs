//! Requests: passes each client's request to the part of the machine that decides, and explains refusals.

use std::collections::BTreeSet;

use crate::controller::facts::Facts;
use crate::controller::interface::io::{
    AskWhich, Client, FailedNotice, OutboxEntry, Record, Refusal, Reply, Request, Which,
};
use crate::controller::machine::Machine;
use crate::controller::state::Jobs;
use crate::controller::state::Nodes;
use crate::controller::state::change::Change;
use crate::controller::state::context::Context;
use crate::hostlist::HostList;
use crate::ids::{ActionId, ActionName, Attempt, HostName, JobId, Rank, TaskId};
use crate::idset::IdSet;
use crate::message::{Ask, ToAgent};
use crate::{defect, utc};

/// Maximum number of open questions to nodes. An operator waits for each answer, so few questions are open at a time.
const MAX_QUESTIONS: usize = 1_024;

impl Jobs {
    /// Returns the tasks in `which`, as the ranks of each action. With `only_open`, returns only ranks that have not
    /// ended.
    ///
    /// # Errors
    /// No such job, attempt or action, or a target outside the attempt's layout.
    pub(super) fn tasks(&self, which: &Which, only_open: bool) -> Result<Vec<(ActionId, IdSet)>, Refusal> {
        let (number, attempt) = self.attempt_meant(&which.job, which.attempt)?;
        let chosen = which.targets.as_ref().map(|t| attempt.layout.choose(t)).transpose().map_err(Refusal::Invalid)?;
        // A choice that names resources and no ranks means no ranks.
        let chosen = chosen.or_else(|| which.resources.as_ref().map(|_| IdSet::new()));
        let named = self.of(attempt).filter(|a| which.action.as_ref().is_none_or(|n| a.row.name == *n));
        let mut found = false;
        let mut tasks = Vec::new();
        for action in named {
            found = true;
            let mut ranks = if only_open { action.open_ranks() } else { action.row.ranks.clone() };
            if let Some(chosen) = &chosen {
                ranks = ranks.intersection(chosen);
            }
            if !ranks.is_empty() {
                tasks.push((action.row.id, ranks));
            }
        }
        if !found && let Some(name) = &which.action {
            let text = format!("job {} attempt {number} has no action {name}", which.job);
            let elsewhere = self.attempt_with(&which.job, name);
            let elsewhere = elsewhere.map(|other| format!("; attempt {other} has one: --attempt {other}"));
            return Err(Refusal::NoSuchAction(text + &elsewhere.unwrap_or_default()));
        }
        Ok(tasks)
    }

    /// Returns the hosts of the tasks in `which`, ended tasks included.
    fn hosts_of_tasks(&self, which: &Which) -> Result<HostList, Refusal> {
        let mut hosts: BTreeSet<HostName> = BTreeSet::new();
        for (id, ranks) in self.tasks(which, false)? {
            hosts.extend(ranks.iter().filter_map(|rank| self.host_of(TaskId { action: id, rank: Rank(rank) })));
        }
        Ok(HostList::from_names(hosts.iter().map(HostName::as_str)).unwrap_or_default())
    }

    /// Returns the newest attempt of a job with an action of this name; `None`: there is none.
    fn attempt_with(&self, job: &JobId, name: &ActionName) -> Option<Attempt> {
        let mut attempts = self.get(job)?.attempts.iter().rev();
        attempts.find(|(_, attempt)| self.of(attempt).any(|action| action.row.name == *name)).map(|(number, _)| *number)
    }
}

impl Machine {
    pub(super) fn on_request(&mut self, client: Client, uid: u32, request: Request) {
        let reply = match self.with_attempt(request) {
            Request::OfEdge(request) if defect!(EdgeAsksForAll) => return self.on_request(client, uid, *request),
            Request::OfEdge(request) => match self.check_edge(&request) {
                Err(refusal) => Err(refusal),
                Ok(()) => return self.on_request(client, uid, *request),
            },
            Request::Run(run) => self.begin_or_attach(run, None),
            Request::ActionStart(start) => self.action_start(*start),
            Request::ActionReport(report) | Request::ActionRenew(report) | Request::ActionMilestone(report) => {
                self.jobs.report(&report, &mut self.cx)
            }
            Request::JobAdd(add) => {
                let of_r = add.terms.r.as_ref().map(|r| r.hosts());
                let spelt = add.nodes.as_ref().or(of_r).map_or(Ok(()), |hosts| self.nodes.check_spelling(hosts));
                let recovered = self.facts().how_added(&add.job);
                let added = spelt.and_then(|()| self.jobs.job_add(*add, uid, recovered, &mut self.cx));
                added.map(|reply| self.nodes.with_unknown(reply))
            }
            Request::JobFinish { job, attempt, targets, resources } => {
                self.jobs.job_finish(&Which { job, attempt, action: None, targets, resources }, &mut self.cx)
            }
            Request::JobCancel { job, attempt, why } => self.jobs.job_cancel(&job, attempt, &why, uid, &mut self.cx),
            Request::JobForget { job, attempt, releases, reason } => {
                self.jobs.job_forget(&job, attempt, releases, &reason, uid, &mut self.cx)
            }
            Request::Milestone { job, attempt, name, targets } => {
                self.jobs.on_operator_milestone(&job, attempt, &name, targets.as_ref(), uid, &mut self.cx)
            }
            Request::Failed { job, attempt } => self.facts().failed(&job, attempt),
            Request::Drains { targets, after, known } => {
                Ok(self.facts().drains_page(targets.as_ref(), after.as_ref(), known))
            }
            Request::PendingDrains => Ok(Reply::PendingDrains(self.drains.pending().cloned().collect())),
            Request::Drain { hosts, reason, force } => {
                match self.drains.drain_for_operator((client, uid), &hosts, &reason, force, &self.nodes, self.cx.now) {
                    Ok(order) => return self.cx.changes.push_back(Change::Ordered(Box::new(order))),
                    Err(refusal) => Err(refusal),
                }
            }
            Request::Undrain { hosts, forget, notice_id } => {
                match self.drains.undrain((client, uid), &hosts, forget, notice_id, &self.nodes, self.cx.now) {
                    Ok(order) => return self.cx.changes.push_back(Change::Ordered(Box::new(order))),
                    Err(refusal) => Err(refusal),
                }
            }
            Request::DrainDone { host, notice_id, lifted, failed: None } => {
                self.drains.hook_done(&host, notice_id, lifted, &mut self.cx);
                Ok(Reply::Done)
            }
            Request::DrainDone { host, notice_id, lifted, failed: Some(why) } => {
                let what = vec![FailedNotice::Drain { host, notice_id, lifted }];
                return self.on_request(client, uid, Request::HookFailed { what, why });
            }
            Request::DrainsDone { drains, lifted } => {
                for (host, notice_id) in drains {
                    self.drains.hook_done(&host, notice_id, lifted, &mut self.cx);
                }
                Ok(Reply::Done)
            }
            Request::Cancel { which, why } => self.jobs.cancel(&which, &why, uid, &mut self.cx),
            Request::Signal { which, signal } => self.nodes.signal(&self.jobs, &which, signal, &mut self.cx),
            Request::Resolve { which, ok, reason } => self.resolve(&which, ok, &reason, uid),
            Request::Ps { older_than_ms, held } => {
                let show = self.facts();
                let notes = show.current_notes().into_iter().chain(show.full_of_milestones());
                Ok(Reply::Ps { notes: notes.collect(), rows: show.ps(older_than_ms, held) })
            }
            Request::Show { job, targets } => {
                self.facts().job(&job, targets.as_ref()).map(|view| Reply::Show(Box::new(view)))
            }
            Request::Nodes { targets, after } => self.facts().nodes_page(targets.as_ref(), after.as_ref()),
            Request::Why { host } => self.facts().why(&host).map(|view| Reply::Why(Box::new(view))),
            Request::NodeForget { hosts, reports: false } => self.node_forget(&hosts, uid),
            Request::NodeForget { hosts, reports: true } => self.forget_reports(&hosts, uid),
            Request::Ask { which, ask } => self.nodes.ask(which, ask, &self.jobs, &mut self.cx),
            Request::AskEnds { question } => {
                self.nodes.questions.remove(&question);
                Ok(Reply::Done)
            }
            Request::Status {} => Ok(Reply::Status(Box::new(self.facts().status()))),
            Request::Overview(overview) => self.facts().overview_reply(&overview).map(Reply::Overview),
            Request::Quiesce { reason, wait } => {
                match self.quiesce.quiesce(client, reason, wait, uid, &self.jobs, &mut self.cx) {
                    Some(reply) => reply,
                    None => return,
                }
            }
            Request::Resume {} => Ok(self.quiesce.resume(uid, &mut self.cx)),
            Request::Sync(page) => self.sync(*page),
            Request::Recover { take_over: false } => Ok(Reply::Recovery(Box::new(self.facts().show_recovery()))),
            Request::Recover { take_over: true } => {
                // An epoch above every reported epoch: the agents accept this controller. The reported epochs prove a
                // lost epoch, so a generation begins.
                self.raise_epoch(self.facts().highest_reported());
                self.begin_generation(format!(
                    "uid {uid} ordered a take-over (perilog controller recover --take-over)"
                ));
                Ok(Reply::TakenOver { epoch: self.epoch.number })
            }
            Request::Attempts(of) => Ok(self.facts().edge_attempts(&of)),
            Request::Outbox { after, limit } => {
                // An entry that is kept back keeps all later entries back: a reader confirms entries by one
                // sequence number, up to which it has applied all.
                let entries = self.cx.outbox.manager(after).take_while(|entry| !self.facts().is_kept_back(entry));
                Ok(Reply::Outbox(entries.take(limit).cloned().collect()))
            }
            Request::OutboxApplied { through } => {
                self.cx.outbox.applied(through);
                self.cx.records.push(Record::OutboxApplied { through });
                Ok(Reply::Done)
            }
            Request::Releases { first, except, limit } => {
                let reported = |entry: &OutboxEntry| {
                    if defect!(SuspendedNoticed) {
                        return true;
                    }
                    !self.jobs.is_suspended(&entry.job, entry.attempt)
                };
                Ok(Reply::Outbox(self.cx.outbox.oldest_releases(&first, &except, limit, reported)))
            }
            Request::HookFailed { what, why } => {
                for what in what {
                    match what {
                        FailedNotice::Release(sequence) if defect!(HookNotifiedOnce) => {
                            self.cx.finish_notice(sequence);
                        }
                        FailedNotice::Release(sequence) => self.cx.outbox.fail(sequence, why.clone()),
                        FailedNotice::Drain { host, notice_id, lifted } => {
                            self.drains.hook_failed(host, notice_id, lifted, why.clone(), self.cx.now)
                        }
                    }
                }
                Ok(Reply::Done)
            }
            Request::OutboxDone { sequence } => {
                self.cx.finish_notice(sequence);
                Ok(Reply::Done)
            }
        };
        self.cx.reply(client, reply.map_err(|refusal| self.facts().explain(refusal)));
    }
}

impl Machine {
    /// Names the attempt in a request that names none, if a node holds tasks of a newer attempt than the store knows: a
    /// lost epoch added it, and the request is about it.
    fn with_attempt(&self, mut request: Request) -> Request {
        if defect!(UnknownAttemptIgnored) {
            return request;
        }
        let of = match &mut request {
            Request::Run(run) => Some((&run.job, &mut run.attempt)),
            Request::ActionStart(start) => Some((&start.run.job, &mut start.run.attempt)),
            Request::JobAdd(add) => Some((&add.job, &mut add.attempt)),
            Request::JobFinish { job, attempt, .. } | Request::JobCancel { job, attempt, .. } => Some((&*job, attempt)),
            _ => None,
        };
        if let Some((job, attempt)) = of.filter(|(_, attempt)| attempt.is_none()) {
            *attempt = self.facts().newest_unknown(job);
        }
        request
    }
}

impl Facts<'_> {
    /// Adds a hint to the refusal `NoSuchJob` if the name of the unknown job is the name of a node: the command
    /// `perilog why`. Returns every other refusal unchanged.
    fn explain(&self, refusal: Refusal) -> Refusal {
        match &refusal {
            Refusal::NoSuchJob(text) => {
                match text.strip_prefix("no job ").filter(|name| self.nodes.contains_key(*name)) {
                    Some(node) => Refusal::NoSuchJob(format!("{text}; {node} is a node: perilog why {node}")),
                    None => match self.may_lack_jobs_before() {
                        Some(ms) => {
                            let before = utc::second(ms);
                            Refusal::NoSuchJob(format!(
                                "{text}. The store was restored or lost, and may lack jobs from before {before}: see \
                                 perilog ps --abandoned"
                            ))
                        }
                        None => refusal,
                    },
                }
            }
            _ => refusal,
        }
    }
}

impl Nodes {
    /// Passes a client's question to the nodes that `which` names. The reply lists hosts without a session as
    /// unreachable.
    ///
    /// # Errors
    /// Too many questions are open, or `AskWhich::Tasks` names no such job, attempt, action, rank or host.
    fn ask(&mut self, which: AskWhich, mut ask: Ask, jobs: &Jobs, cx: &mut Context) -> Result<Reply, Refusal> {
        if self.questions.len() >= MAX_QUESTIONS {
            let text = "too many questions to nodes are open: repeat the command later";
            return Err(Refusal::Unavailable(text.to_owned()));
        }
        let hosts = match which {
            AskWhich::Hosts(hosts) => hosts,
            AskWhich::Tasks(which) => {
                // A node keeps the output of every attempt, so the question must name the attempt.
                if let Ask::Logs { job, attempt, .. } = &mut ask {
                    *attempt = Some(jobs.attempt_meant(job, *attempt)?.0);
                }
                jobs.hosts_of_tasks(&which)?
            }
        };
        let mut asked = Vec::new();
        let mut unreachable = Vec::new();
        for host in hosts.iter() {
            match self.get(host).and_then(|node| Some((node.session?, node.row.host.clone()))) {
                Some(there) => asked.push(there),
                None => unreachable.push(host),
            }
        }
        self.question_last += 1;
        let question = self.question_last;
        let list = |names: &mut dyn Iterator<Item = &str>| HostList::from_names(names).unwrap_or_default();
        let unreachable = list(&mut unreachable.iter().copied());
        let asked_hosts = list(&mut asked.iter().map(|(_, host)| host.as_str()));
        if !asked.is_empty() {
            self.questions.insert(question, asked.iter().map(|(_, host)| host.clone()).collect());
        }
        for (session, _) in asked {
            cx.send(session, ToAgent::Ask { question, ask: ask.clone() });
        }
        Ok(Reply::Asked { question, asked: asked_hosts, unreachable })
    }
}
