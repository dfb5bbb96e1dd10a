//! `Run`: an action begins, or is attached to. The same thing asked twice is the same action.

use serde_json::json;

use crate::controller::action::Action;
use crate::controller::io::{ActionRow, Effect, Now, Refusal, Reply, RunRequest, SessionId};
use crate::controller::layout::Layout;
use crate::controller::machine::{JobAttempt, Machine};
use crate::defect;
use crate::ids::{ActionId, Attempt, BootId, Rank, TaskId};
use crate::idset::IdSet;
use crate::outcome::Loss;
use crate::targets::Targets;

impl Machine {
    pub(super) fn run(&mut self, run: RunRequest, now: Now) -> Result<Reply, Refusal> {
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
        let exists =
            |attempt| self.actions.contains_key(&ActionId::of(self.settings.cluster, &run.job, attempt, &run.action));
        if defect!(ReopenOlderAttempt) || Some(asked) == open || last.is_none_or(|last| asked > last) || exists(asked) {
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
            return Err(Refusal::NoSuchAction(format!("no action {} of job {}", run.action, run.job)));
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
            let ranks = layout.ranks_of(nodes).map_err(|host| conflict(&format!("host {host}")))?;
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
                (None, Some(nodes)) => layout.choose(&Targets::Hosts(nodes.clone())).map_err(Refusal::Conflict)?,
                (None, None) => layout.ranks().clone(),
            };
            return Ok((layout.clone(), ranks));
        }
        let layout = match (&run.nodes, job.and_then(|j| j.attempts.values().next_back())) {
            (Some(nodes), _) => Layout::counted(nodes.clone()).map_err(Refusal::Invalid)?,
            // A requeue that names no nodes has those of the attempt before.
            (None, Some(before)) => before.layout.clone(),
            (None, None) => {
                return Err(Refusal::NoSuchJob(format!("no job {}: name its nodes to begin it (--nodes)", run.job)));
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
        let closed: Vec<Attempt> = job.attempts.iter().filter(|(_, a)| a.open).map(|(number, _)| *number).collect();
        for number in &closed {
            if let Some(older) = job.attempts.get_mut(number) {
                older.open = false;
                older.touched_ms = now.wall_ms;
            }
            self.batch.attempts.insert((run.job.clone(), *number));
        }
        let context = json!({"attempt": attempt, "hosts": layout.hosts(), "userid": run.userid});
        let entry = JobAttempt { layout, userid: run.userid, open: true, touched_ms: now.wall_ms, actions: Vec::new() };
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
        let timeout_ms = run.timeout_ms.or_else(|| self.settings.timeouts.get(&run.action).copied());
        let userid = run
            .userid
            .or_else(|| self.jobs.get(&run.job).and_then(|j| j.attempts.get(&attempt)).and_then(|a| a.userid));
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

    /// Starts on every node that is there; nodes that nobody has heard of are named at once, unless none has had the time to be heard of.
    fn fan(&mut self, id: ActionId, ranks: &IdSet, now: Now) {
        let Some(layout) = self.layout(id).cloned() else { return };
        let mut to: Vec<(SessionId, Rank, BootId)> = Vec::new();
        let mut unknown = Vec::new();
        // Every rank of the layout in one walk: `Layout::host` per rank would be quadratic in scattered ranks.
        for (rank, host) in layout.ranks().iter().zip(layout.hosts().iter()).filter(|(rank, _)| ranks.contains(*rank)) {
            let rank = Rank(rank);
            match self.nodes.get(host) {
                // What is asked for may run there already, begun by the store that was lost.
                None if now.mono_ms < self.young_until_ms => {}
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
            self.batch.effects.push(Effect::Fan { start: Box::new(start), to });
        }
    }
}
