//! View of nodes: whether each is online, drained or held. For `perilog why`, also explains which script is stuck on a
//! node.

use std::collections::BTreeSet;

use crate::controller::facts::Facts;
use crate::controller::interface::io::{DrainRow, Passing, Refusal};
use crate::controller::interface::view::{NodeView, PsRow, WhyTask, WhyView};
use crate::controller::show::continuing::Continuing;
use crate::controller::state::Node;
use crate::controller::state::attempt::JobAttempt;
use crate::controller::state::{Action, RankState};
use crate::ids::{HostName, JobId, Rank, TaskId, stem, unit_of};
use crate::idset::IdSet;
use crate::message::Phase;
use crate::task::KILLED_IN_VAIN;

impl Facts<'_> {
    /// Returns the node with this name.
    ///
    /// # Errors
    /// `NoSuchNode`. The text has a hint if a job holds the host, the host is drained, the name is the id of a job, or
    /// a known host has a similar name.
    pub(super) fn node_named(&self, host: &str) -> Result<&Node, Refusal> {
        let unknown = || {
            let is_job = JobId::new(host).is_ok_and(|job| self.jobs.contains_key(&job));
            let held = self.attempts_on(host).next().map(|(job, attempt)| (job, attempt.layout.hosts().len()));
            let mut hint = String::new();
            if let Some((job, hosts)) = held {
                let of = if hosts == 1 { "its only host".to_owned() } else { format!("one of its {hosts} hosts") };
                hint = format!(
                    "; job {job} holds it as {of} (perilog show {job}; to end the job: perilog job cancel {job})"
                );
            }
            if self.drains.contains_key(host) {
                hint.push_str("; it is drained: perilog drain");
            }
            if hint.is_empty() {
                let job = format!("; {host} is a job: perilog show {host}");
                hint = if is_job { job } else { self.nodes.did_you_mean(host) };
            }
            Refusal::NoSuchNode(format!("no node {host} has ever connected to this controller{hint}"))
        };
        self.nodes.get(host).ok_or_else(unknown)
    }

    /// Returns the view of a node. `held`: a job or an action holds a rank of it.
    pub(super) fn show_node(&self, node: &Node, held: bool) -> NodeView {
        let probing = self.nodes.is_probed(node);
        let state = match node.session {
            Some(_) if probing => "probing",
            Some(_) => "online",
            None => "offline",
        };
        NodeView {
            host: node.row.host.to_string(),
            state: state.to_owned(),
            since_ms: self.cx.now.wall_ms.saturating_sub(self.cx.now.mono_ms.saturating_sub(node.since_ms)),
            machine: Some(node.row.machine.to_string()),
            boot: Some(node.row.boot.to_string()),
            boot_number: Some(node.row.boot_number),
            version: Some(node.row.version.clone()),
            peer: node.session.and_then(|id| self.nodes.sessions.get(&id)).map(|s| s.peer.clone()),
            // The machine does not know the certificate; the API adds its end.
            certificate_until_ms: None,
            tasks: self.open_on(node).count() as u64,
            note: node.note.clone(),
            drain: self.drains.get(&node.row.host).cloned(),
            held,
        }
    }

    /// Returns the actions that have not ended on this node, each with the rank state of the node's rank.
    pub(super) fn open_on(&self, node: &Node) -> impl Iterator<Item = (&Action, RankState)> {
        let tasks = node.tasks.iter().filter_map(|task| {
            let action = self.jobs.action(task.action)?;
            Some((action, action.rank_state(task.rank)))
        });
        tasks.filter(|(_, state)| matches!(state, RankState::Waiting | RankState::Sent | RankState::Accepted))
    }

    /// Returns the hosts of ranks that a job or an action holds.
    pub(crate) fn held_hosts(&self) -> BTreeSet<&str> {
        let attempts = self.jobs.table.live_attempts().map(|(.., attempt)| attempt);
        let mut hosts = BTreeSet::new();
        for attempt in attempts.filter(|attempt| !attempt.complete) {
            hosts.extend(attempt.layout.pairs(&self.held_ranks(attempt)).map(|(_, host)| host));
        }
        hosts
    }

    /// Returns the ranks that an attempt or its actions hold.
    fn held_ranks(&self, attempt: &JobAttempt) -> IdSet {
        let mut ranks = attempt.hold.ranks.clone();
        self.jobs.of(attempt).for_each(|action| ranks.extend_with(&action.row.held.ranks));
        ranks
    }

    /// Returns the attempts that hold the rank of this host themselves or through an action.
    fn attempts_on(&self, host: &str) -> impl Iterator<Item = (&JobId, &JobAttempt)> {
        let attempts = self.jobs.table.live_attempts().map(|(job, _, attempt)| (job, attempt));
        attempts.filter(move |(_, attempt)| self.is_held_by(host, attempt))
    }

    /// Returns those of `hosts` of which a job or an action holds a rank.
    pub(super) fn held_among<'h>(&self, hosts: &BTreeSet<&'h str>) -> BTreeSet<&'h str> {
        let mut held = BTreeSet::new();
        for (.., attempt) in self.jobs.table.live_attempts().filter(|(.., attempt)| !attempt.complete) {
            let of = attempt.layout.hosts();
            // Whatever is shorter is walked: the page, or the hosts of the attempt.
            if of.len() < hosts.len() {
                held.extend(of.iter().filter_map(|host| hosts.get(host)).filter(|host| self.is_held_by(host, attempt)));
            } else {
                held.extend(hosts.iter().filter(|host| self.is_held_by(host, attempt)));
            }
        }
        held
    }

    /// Returns `true` if the attempt or an action of it holds the rank of this host.
    fn is_held_by(&self, host: &str, attempt: &JobAttempt) -> bool {
        let holds = |rank: u32| {
            let mut actions = self.jobs.of(attempt);
            attempt.hold.ranks.contains(rank) || actions.any(|action| action.row.held.ranks.contains(rank))
        };
        !attempt.complete && attempt.layout.rank(host).is_some_and(holds)
    }

    /// Returns a row for each hold on the host's rank, with the reason: that of a job, and that of an action whose task
    /// there has ended but which has not released the rank yet.
    fn held_on(&self, host: &HostName) -> Vec<PsRow> {
        let mut rows = Vec::new();
        for (job, number, attempt) in self.jobs.table.live_attempts().filter(|(.., attempt)| !attempt.complete) {
            let Some(rank) = attempt.layout.rank(host.as_str()) else { continue };
            let held = self.held_of(job, number, attempt, true);
            rows.extend(held.into_iter().filter(|row| row.ranks.contains(rank)));
        }
        rows
    }

    /// Returns the commands that an operator should type next about the node itself. Empty while a task is open on a
    /// connected node, because the task has commands of its own.
    fn next_of_node(&self, node: &Node, is_open: bool) -> Vec<String> {
        let host = &node.row.host;
        let drain = self.drains.get(host);
        match (&node.session, drain) {
            (None, _) => {
                vec![format!("ssh {host} perilog doctor"), format!("ssh {host} systemctl status perilog-agent")]
            }
            // The open task comes first.
            _ if is_open => Vec::new(),
            (Some(_), Some(drain)) if drain.lifted => vec![format!("perilog undrain {host} --forget")],
            (Some(_), Some(DrainRow { passing: Some(Passing::Missing { .. } | Passing::Unknown), .. })) => {
                vec!["perilog ps --abandoned".to_owned()]
            }
            (Some(_), Some(_)) => vec![format!("perilog undrain {host}")],
            (Some(_), None) => Vec::new(),
        }
    }

    /// Returns the explanation of a node for `perilog why`: its open and failed tasks, the holds on its ranks, and the
    /// commands to type next.
    ///
    /// # Errors
    /// `NoSuchNode`.
    pub(crate) fn why(&self, host: &HostName) -> Result<WhyView, Refusal> {
        let node = self.node_named(host.as_str())?;
        let phase = |task: &TaskId| node.live.get(task).map(|(phase, _)| phase.clone());
        let of_task = |task: &TaskId| {
            let action = self.jobs.action(task.action)?;
            if matches!(action.rank_state(task.rank), RankState::Ok | RankState::NotOk | RankState::NotInAction) {
                return None;
            }
            let (state, why, age_ms) = self.state_of_rank(action, task.rank);
            Some(self.why_task(action, task.rank, state, phase(task), age_ms, why))
        };
        let over = |Continuing { task, why, age_ms, .. }: Continuing| {
            let mut shown =
                self.why_task(self.jobs.action(task.action)?, task.rank, "running", phase(&task), age_ms, why);
            let systemctl = |verb: &str| format!("ssh {host} systemctl {verb} '{}'", shown.unit);
            shown.next = vec![systemctl("status"), systemctl("kill --signal=KILL")];
            Some(shown)
        };
        let mut open: Vec<WhyTask> =
            node.tasks.iter().filter_map(of_task).chain(self.continues(node).filter_map(over)).collect();
        open.sort_by_key(|task| std::cmp::Reverse(task.age_ms));
        let failed = node
            .failed
            .iter()
            .rev()
            .filter_map(|task| {
                let action = self.jobs.action(task.action)?;
                let ended = &action.ended.get(&task.rank)?.ended;
                let age_ms = self.cx.now.wall_ms.saturating_sub(ended.ended_ms);
                let mut shown = self.why_task(action, task.rank, "ended", None, age_ms, ended.outcome.to_string());
                shown.ended = Some(ended.clone());
                Some(shown)
            })
            .collect();
        let (held, next) = (self.held_on(host), self.next_of_node(node, !open.is_empty()));
        let is_held = self.attempts_on(host.as_str()).next().is_some();
        Ok(WhyView { node: self.show_node(node, is_held), open, failed, held, next })
    }

    fn why_task(
        &self,
        action: &Action,
        rank: Rank,
        state: &str,
        phase: Option<Phase>,
        age_ms: u64,
        why: String,
    ) -> WhyTask {
        let row = &action.row;
        let external = row.external.is_some();
        let unsent = action.rank_state(rank) == RankState::Waiting;
        let abandoned = self.jobs.is_abandoned(&row.job, row.attempt);
        // Only a task whose Start was sent to an agent has a unit.
        let unit =
            if external || unsent { String::new() } else { unit_of(&stem(&row.name, &row.job, action.task(rank))) };
        let host = self.jobs.host_of(action.task(rank)).map(|h| h.to_string()).unwrap_or_default();
        let (job, name) = (&row.job, &row.name);
        let online = self.nodes.get(host.as_str()).is_some_and(|n| n.session.is_some());
        let at = self.jobs.attempt_option(job, row.attempt);
        let resolve = format!("perilog resolve {job} {name}{at} --ranks {rank} --reason TEXT");
        let cancel = format!("perilog cancel {job} {name}{at} --ranks {rank}");
        let logs = format!("perilog logs {job}{at} --rank {rank}");
        let kill = format!("perilog kill {job} {name}{at} --ranks {rank} --signal KILL");
        let status = |unit: &str| format!("ssh {host} systemctl status {unit}");
        let next = match (state, online) {
            ("ended", _) if external => vec![format!("perilog show {job}")],
            _ if external => vec![format!("perilog show {job}"), resolve],
            ("ended", _) => vec![logs],
            (_, false) => vec![status("perilog-agent"), resolve],
            _ if unsent && abandoned => vec!["perilog ps --abandoned".to_owned(), format!("perilog show {job}")],
            _ if unsent => vec![format!("perilog show {job}"), cancel],
            ("lingering", true) => {
                vec![status(&format!("'{unit}'")), kill]
            }
            // No `cancel` here: past its limit, the script was asked to stop already.
            ("overdue", true) if is_killed_in_vain(phase.as_ref()) => vec![logs, status(&format!("'{unit}'")), resolve],
            ("overdue", true) => vec![logs, status(&format!("'{unit}'")), kill, resolve],
            _ => vec![logs, status(&format!("'{unit}'")), cancel],
        };
        WhyTask {
            job: job.clone(),
            attempt: row.attempt,
            action: name.clone(),
            rank,
            unit,
            state: state.to_owned(),
            phase,
            age_ms,
            why,
            ended: None,
            next,
        }
    }
}

/// Returns `true` if SIGKILL did not end the script: another one would not either.
fn is_killed_in_vain(phase: Option<&Phase>) -> bool {
    matches!(phase, Some(Phase::Overdue { doing, .. }) if doing.starts_with(KILLED_IN_VAIN))
}
