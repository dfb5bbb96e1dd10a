//! What people and the resource manager ask for, and why it is sometimes refused.

use serde_json::json;

use crate::controller::action::{Action, Stand};
use crate::controller::io::{
    ActionRow, AskWhich, Client, Effect, Now, Record, Refusal, Reply, Request, RunRequest, SessionId, Which,
};
use crate::controller::layout::Layout;
use crate::controller::machine::{JobAttempt, Machine};
use crate::hostlist::HostList;
use crate::ids::{ActionId, Attempt, BootId, HostName, Rank, TaskId};
use crate::idset::IdSet;
use crate::message::{Ask, ToAgent};
use crate::outcome::{Loss, Outcome};
use crate::targets::Targets;
use crate::task::Ended;

/// Questions that may be open at once; each is a person who waits.
const MAX_QUESTIONS: usize = 1_024;

impl Machine {
    pub(super) fn on_request(&mut self, client: Client, uid: u32, request: Request, now: Now) {
        let reply = match request {
            Request::Run(run) => self.run(run, now),
            Request::Cancel { which, why } => self.cancel(&which, &why, uid, now),
            Request::Signal { which, signal } => self.signal(&which, signal),
            Request::Resolve { which, ok, reason } => self.resolve(&which, ok, &reason, uid, now),
            Request::Ps { older_than_ms } => Ok(Reply::Ps(self.ps(older_than_ms, now))),
            Request::Show { job } => self.show(&job, now).map(|view| Reply::Show(Box::new(view))),
            Request::Nodes { targets } => self.list_nodes(targets.as_ref(), now).map(Reply::Nodes),
            Request::Why { host } => self.why(&host, now).map(|view| Reply::Why(Box::new(view))),
            Request::Ask { which, ask } => self.ask(which, ask),
            Request::AskEnds { question } => {
                self.questions.remove(&question);
                Ok(Reply::Done)
            }
            Request::Status => Ok(Reply::Status(Box::new(self.status()))),
            Request::TakeOver => Ok(self.take_over(now)),
            Request::Outbox { after, limit } => Ok(Reply::Outbox(
                self.outbox
                    .iter()
                    .filter(|e| e.sequence > after)
                    .take(limit)
                    .cloned()
                    .collect(),
            )),
            Request::OutboxApplied { through } => {
                self.outbox.retain(|e| e.sequence > through);
                self.batch.records.push(Record::OutboxApplied { through });
                Ok(Reply::Done)
            }
        };
        self.reply(client, reply);
    }

    fn run(&mut self, run: RunRequest, now: Now) -> Result<Reply, Refusal> {
        let attempt = self.choose_attempt(&run)?;
        let id = ActionId::of(self.settings.cluster, &run.job, attempt, &run.action);
        if self.actions.contains_key(&id) {
            return self.attach(id, &run);
        }
        if self.store_full && run.action.as_str() == "prolog" {
            let text = "the controller's disk is full: no new prolog is begun; epilogs and completions go on";
            return Err(Refusal::Unavailable(text.to_owned()));
        }
        let (layout, ranks) = self.choose_ranks(&run, attempt)?;
        self.open_attempt(&run, attempt, layout, now);
        Ok(self.begin(id, run, attempt, ranks, now))
    }

    /// The attempt that a request means. A request without one means the open attempt; one for a closed or older attempt is refused,
    /// unless it only attaches.
    fn choose_attempt(&self, run: &RunRequest) -> Result<Attempt, Refusal> {
        let job = self.jobs.get(&run.job);
        let (open, last) = (job.and_then(|j| j.open_attempt()), job.and_then(|j| j.last_attempt()));
        let Some(asked) = run.attempt else {
            return Ok(open.unwrap_or_else(|| last.map_or(Attempt::FIRST, Attempt::next)));
        };
        let exists = |attempt| {
            self.actions
                .contains_key(&ActionId::of(self.settings.cluster, &run.job, attempt, &run.action))
        };
        if Some(asked) == open || last.is_none_or(|last| asked > last) || exists(asked) {
            return Ok(asked);
        }
        let text = match open {
            Some(open) => format!("attempt {asked} of job {} is closed; the open one is {open}", run.job),
            None => format!("attempt {asked} of job {} is closed", run.job),
        };
        Err(Refusal::AttemptClosed(text))
    }

    fn attach(&self, id: ActionId, run: &RunRequest) -> Result<Reply, Refusal> {
        let (Some(action), Some(layout)) = (self.actions.get(&id), self.layout(id)) else {
            return Err(Refusal::NoSuchAction(format!(
                "no action {} of job {}",
                run.action, run.job
            )));
        };
        let row = &action.row;
        let conflict = |asked: &dyn std::fmt::Display| {
            let text = format!(
                "{} of job {} attempt {} exists over ranks {}; asked for {asked}",
                row.name, row.job, row.attempt, row.ranks
            );
            Refusal::Conflict(text)
        };
        if let Some(targets) = &run.targets {
            let ranks = layout.choose(targets).map_err(Refusal::Conflict)?;
            if ranks != row.ranks {
                return Err(conflict(&ranks));
            }
        } else if let Some(nodes) = &run.nodes {
            let ranks = layout
                .ranks_of(nodes)
                .map_err(|host| conflict(&format!("host {host}")))?;
            if ranks != row.ranks {
                return Err(conflict(nodes));
            }
        }
        Ok(self.running(id, row, layout, true))
    }

    fn running(&self, id: ActionId, row: &ActionRow, layout: &Layout, attached: bool) -> Reply {
        Reply::Running {
            job: row.job.clone(),
            attempt: row.attempt,
            id,
            ranks: row.ranks.clone(),
            hosts: layout.hosts_of(&row.ranks),
            attached,
            events_after: row.events_from,
        }
    }

    /// The attempt's layout and the action's ranks in it.
    fn choose_ranks(&self, run: &RunRequest, attempt: Attempt) -> Result<(Layout, IdSet), Refusal> {
        let job = self.jobs.get(&run.job);
        let existing = job.and_then(|j| j.attempts.get(&attempt)).map(|a| &a.layout);
        if let Some(layout) = existing {
            let ranks = match (&run.targets, &run.nodes) {
                (Some(targets), _) => layout.choose(targets).map_err(Refusal::Conflict)?,
                (None, Some(nodes)) => layout
                    .choose(&Targets::Hosts(nodes.clone()))
                    .map_err(Refusal::Conflict)?,
                (None, None) => layout.ranks().clone(),
            };
            return Ok((layout.clone(), ranks));
        }
        let layout = match (&run.nodes, job.and_then(|j| j.attempts.values().next_back())) {
            (Some(nodes), _) => Layout::counted(nodes.clone()).map_err(Refusal::Invalid)?,
            // A requeue that names no nodes has those of the attempt before.
            (None, Some(before)) => before.layout.clone(),
            (None, None) => {
                return Err(Refusal::NoSuchJob(format!(
                    "no job {}: name its nodes to begin it (--nodes)",
                    run.job
                )));
            }
        };
        let ranks = match &run.targets {
            Some(targets) => layout.choose(targets).map_err(Refusal::Invalid)?,
            None => layout.ranks().clone(),
        };
        Ok((layout, ranks))
    }

    fn open_attempt(&mut self, run: &RunRequest, attempt: Attempt, layout: Layout, now: Now) {
        let job = self.jobs.entry(run.job.clone()).or_default();
        if job.attempts.contains_key(&attempt) {
            return;
        }
        let closed: Vec<Attempt> = job
            .attempts
            .iter()
            .filter(|(_, a)| a.open)
            .map(|(number, _)| *number)
            .collect();
        for number in &closed {
            if let Some(older) = job.attempts.get_mut(number) {
                older.open = false;
                older.touched_ms = now.wall_ms;
            }
            self.batch.attempts.insert((run.job.clone(), *number));
        }
        let context = json!({"attempt": attempt, "hosts": layout.hosts(), "userid": run.userid});
        let entry = JobAttempt {
            layout,
            userid: run.userid,
            open: true,
            touched_ms: now.wall_ms,
            actions: Vec::new(),
        };
        job.attempts.insert(attempt, entry);
        self.batch.attempts.insert((run.job.clone(), attempt));
        for number in closed {
            let why = format!("attempt {attempt} was opened");
            self.event(&run.job, now, "attempt-closed", json!({"attempt": number, "why": why}));
        }
        self.event(&run.job, now, "attempt", context);
    }

    fn begin(&mut self, id: ActionId, run: RunRequest, attempt: Attempt, ranks: IdSet, now: Now) -> Reply {
        let events_from = self.jobs.get(&run.job).map_or(0, |j| j.events_last);
        let timeout_ms = run
            .timeout_ms
            .or_else(|| self.settings.timeouts.get(&run.action).copied());
        let userid = run.userid.or_else(|| {
            self.jobs
                .get(&run.job)
                .and_then(|j| j.attempts.get(&attempt))
                .and_then(|a| a.userid)
        });
        let row = ActionRow {
            id,
            job: run.job.clone(),
            attempt,
            name: run.action.clone(),
            ranks: ranks.clone(),
            userid,
            env: run.env,
            timeout_ms,
            began_ms: now.wall_ms,
            waiting: ranks.clone(),
            sent: IdSet::new(),
            accepted: IdSet::new(),
            ok: IdSet::new(),
            ended: IdSet::new(),
            cancelling: IdSet::new(),
            cancel_why: None,
            boots: std::collections::BTreeMap::new(),
            verdict: None,
            ended_ms: None,
            unknown: IdSet::new(),
            events_from,
        };
        self.load_action(Action::new(row, now.mono_ms));
        self.arm(id, now);
        self.touch(id, now);
        let layout = self.layout(id).cloned();
        let hosts = layout.as_ref().map(|l| l.hosts_of(&ranks));
        let context = json!({"action": run.action, "attempt": attempt, "id": id, "ranks": ranks, "hosts": hosts});
        self.event(&run.job, now, "action-start", context);
        self.fan(id, &ranks, now);
        Reply::Running {
            job: run.job,
            attempt,
            id,
            ranks,
            hosts: hosts.unwrap_or_default(),
            attached: false,
            events_after: events_from,
        }
    }

    /// Starts on every node that is there; nodes that nobody has heard of are named at once.
    fn fan(&mut self, id: ActionId, ranks: &IdSet, now: Now) {
        let Some(layout) = self.layout(id).cloned() else { return };
        let mut to: Vec<(SessionId, Rank, BootId)> = Vec::new();
        let mut unknown = Vec::new();
        // Every rank of the layout in one walk: `Layout::host` per rank would be quadratic in scattered ranks.
        for (rank, host) in layout
            .ranks()
            .iter()
            .zip(layout.hosts().iter())
            .filter(|(rank, _)| ranks.contains(*rank))
        {
            let rank = Rank(rank);
            match self.nodes.get(host) {
                None => unknown.push(rank),
                Some(node) => {
                    if let (Some(session), Some(action)) = (node.session, self.actions.get_mut(&id)) {
                        action.send(rank, node.row.boot_number);
                        to.push((session, rank, node.row.boot.clone()));
                    }
                }
            }
        }
        for rank in unknown {
            self.lose(TaskId { action: id, rank }, Loss::UnknownNode, now);
        }
        if let (Some(action), Some((_, rank, boot))) = (self.actions.get(&id), to.first()) {
            let start = action.start(&layout, self.settings.not_after_ms, *rank, boot);
            self.batch.effects.push(Effect::Fan {
                start: Box::new(start),
                to,
            });
        }
    }

    /// The tasks that a choice means: of its actions, and of each the ranks.
    fn tasks(&self, which: &Which, only_open: bool) -> Result<Vec<(ActionId, IdSet)>, Refusal> {
        let job = self
            .jobs
            .get(&which.job)
            .ok_or_else(|| Refusal::NoSuchJob(format!("no job {}", which.job)))?;
        let number = which
            .attempt
            .or_else(|| job.open_attempt())
            .or_else(|| job.last_attempt());
        let attempt = number.and_then(|n| job.attempts.get(&n)).ok_or_else(|| {
            let known: Vec<String> = job.attempts.keys().map(ToString::to_string).collect();
            Refusal::NoSuchAttempt(format!(
                "no such attempt of job {}; it has {}",
                which.job,
                known.join(", ")
            ))
        })?;
        let chosen = which
            .targets
            .as_ref()
            .map(|t| attempt.layout.choose(t))
            .transpose()
            .map_err(Refusal::Invalid)?;
        let named = attempt
            .actions
            .iter()
            .filter_map(|id| self.actions.get(id))
            .filter(|a| which.action.as_ref().is_none_or(|n| a.row.name == *n));
        let mut found = false;
        let mut tasks = Vec::new();
        for action in named {
            found = true;
            let mut ranks = if only_open {
                action.open()
            } else {
                action.row.ranks.clone()
            };
            if let Some(chosen) = &chosen {
                ranks = ranks.intersection(chosen);
            }
            if !ranks.is_empty() {
                tasks.push((action.row.id, ranks));
            }
        }
        if !found && let Some(name) = &which.action {
            return Err(Refusal::NoSuchAction(format!(
                "job {} attempt {} has no action {name}",
                which.job,
                number.unwrap_or_default()
            )));
        }
        Ok(tasks)
    }

    fn session_of(&self, task: TaskId) -> Option<SessionId> {
        self.host_of(task)
            .and_then(|host| self.nodes.get(&host))
            .and_then(|node| node.session)
    }

    fn cancel(&mut self, which: &Which, why: &str, uid: u32, now: Now) -> Result<Reply, Refusal> {
        let mut count = 0;
        for (id, ranks) in self.tasks(which, true)? {
            count += ranks.len();
            for rank in ranks.iter().map(Rank) {
                let task = TaskId { action: id, rank };
                let Some(action) = self.actions.get_mut(&id) else {
                    continue;
                };
                if action.stand(rank) == Stand::Waiting {
                    // No Start was ever committed: nothing can run.
                    self.end_task(task, Ended::bare(Outcome::Cancelled { status: None }, now.wall_ms), now);
                    continue;
                }
                action.cancelling(rank, why);
                if let Some(session) = self.session_of(task) {
                    self.send_cancel(session, task, why);
                }
            }
            self.touch(id, now);
            if let Some(row) = self.actions.get(&id).map(|a| a.row.clone()) {
                let context =
                    json!({"action": row.name, "attempt": row.attempt, "ranks": ranks, "why": why, "by": uid});
                self.event(&row.job, now, "cancel", context);
            }
        }
        Ok(Reply::Reached { tasks: count })
    }

    fn signal(&mut self, which: &Which, signal: u8) -> Result<Reply, Refusal> {
        let mut count = 0;
        for (id, ranks) in self.tasks(which, true)? {
            for rank in ranks.iter().map(Rank) {
                let task = TaskId { action: id, rank };
                let accepted = self.actions.get(&id).is_some_and(|a| a.stand(rank) == Stand::Accepted);
                if let Some(session) = self.session_of(task).filter(|_| accepted) {
                    count += 1;
                    self.batch.effects.push(Effect::Send {
                        session,
                        message: ToAgent::Signal { task, signal },
                    });
                }
            }
        }
        Ok(Reply::Reached { tasks: count })
    }

    fn resolve(&mut self, which: &Which, ok: bool, reason: &str, uid: u32, now: Now) -> Result<Reply, Refusal> {
        if reason.trim().is_empty() {
            return Err(Refusal::Invalid("resolve needs a reason".to_owned()));
        }
        let tasks = self.tasks(which, true)?;
        if tasks.is_empty() {
            return Err(Refusal::Conflict(format!(
                "nothing of job {} that was named is open: it has ended, for good",
                which.job
            )));
        }
        let mut count = 0;
        for (id, ranks) in tasks {
            for rank in ranks.iter().map(Rank) {
                let task = TaskId { action: id, rank };
                let unclaimed = self.actions.get(&id).is_some_and(|a| a.stand(rank) == Stand::Sent);
                let outcome = Outcome::Resolved {
                    ok,
                    reason: reason.to_owned(),
                    by: uid,
                };
                self.end_task(task, Ended::bare(outcome, now.wall_ms), now);
                if let Some(session) = self.session_of(task).filter(|_| unclaimed) {
                    self.send_cancel(session, task, "resolved by hand");
                }
                count += 1;
            }
        }
        Ok(Reply::Reached { tasks: count })
    }

    fn ask(&mut self, which: AskWhich, ask: Ask) -> Result<Reply, Refusal> {
        if self.questions.len() >= MAX_QUESTIONS {
            return Err(Refusal::Unavailable("too many questions to nodes are open".to_owned()));
        }
        let hosts = match which {
            AskWhich::Hosts(hosts) => hosts,
            AskWhich::Tasks(which) => self.hosts_of_tasks(&which)?,
        };
        let mut asked = Vec::new();
        let mut unreachable = Vec::new();
        for host in hosts.iter() {
            match self
                .nodes
                .get(host)
                .and_then(|node| Some((node.session?, node.row.host.clone())))
            {
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
            self.questions
                .insert(question, asked.iter().map(|(_, host)| host.clone()).collect());
        }
        for (session, _) in asked {
            self.batch.effects.push(Effect::Send {
                session,
                message: ToAgent::Ask {
                    question,
                    ask: ask.clone(),
                },
            });
        }
        Ok(Reply::Asked {
            question,
            asked: asked_hosts,
            unreachable,
        })
    }

    fn hosts_of_tasks(&self, which: &Which) -> Result<HostList, Refusal> {
        let mut hosts: std::collections::BTreeSet<HostName> = std::collections::BTreeSet::new();
        for (id, ranks) in self.tasks(which, false)? {
            hosts.extend(ranks.iter().filter_map(|rank| {
                self.host_of(TaskId {
                    action: id,
                    rank: Rank(rank),
                })
            }));
        }
        Ok(HostList::from_names(hosts.iter().map(HostName::as_str)).unwrap_or_default())
    }

    /// A new epoch above every one that an agent has told of; every session begins anew under it.
    fn take_over(&mut self, now: Now) -> Reply {
        let seen = self.highest_seen.map_or(0, |epoch| epoch.number);
        self.epoch.number = self.epoch.number.max(seen).saturating_add(1);
        self.batch.records.push(Record::Epoch(self.epoch));
        let sessions: Vec<SessionId> = self.sessions.keys().copied().collect();
        for id in sessions {
            self.end_session(id, "this controller takes over: a new epoch", now);
        }
        Reply::TookOver {
            epoch: self.epoch.number,
        }
    }
}
