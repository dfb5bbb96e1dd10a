//! Checks once a second that undisturbed nodes carry out cancels. Checks each committed loss of a task: its node was
//! really away, or had rebooted.

use std::collections::BTreeMap;

use perilog_core::agent::Input;
use perilog_core::controller::Record;
use perilog_core::controller::io::{ActionRow, AttemptRow, Settings};
use perilog_core::message::ToAgent;
use perilog_core::{ActionId, Loss, Outcome, TaskId};

use super::World;
use super::agent::Pending;
use super::site;
use crate::plan::{Op, Step, What};

const EVERY_MS: u64 = 1_000;
/// Time (ms) by which a task may be recorded as lost before its grace is over by world time: the controller's machine
/// may see a session end a little earlier than the world records the end.
const SLACK_MS: u64 = 1_000;

#[derive(Default)]
pub(crate) struct Watch {
    next: u64,
    /// By node: the agent's process, bus connection and session (as numbers), and the world time (ms) since when all
    /// three are undisturbed.
    calm: BTreeMap<usize, ((u64, u64, u64), u64)>,
    /// By node: the agent's process and session (as numbers), and the world time (ms) since when both are undisturbed.
    pub(super) steady: BTreeMap<usize, ((u64, u64), u64)>,
    /// World time (ms) at which each node's session with the controller was last open.
    stood: BTreeMap<usize, u64>,
    /// World time (ms) of each action's first commit by the first controller.
    begun: BTreeMap<ActionId, u64>,
    /// World time (ms) of each action's first commit by any controller.
    begun_anywhere: BTreeMap<ActionId, u64>,
    /// World time (ms) at which each action was last written to a store that lacked it.
    written: BTreeMap<ActionId, u64>,
}

impl Watch {
    pub(super) fn begun_at(&self, action: ActionId) -> Option<u64> {
        self.begun_anywhere.get(&action).copied()
    }

    pub(super) fn written_at(&self, action: ActionId) -> Option<u64> {
        self.written.get(&action).copied()
    }
}

impl World {
    pub(crate) fn watch(&mut self) {
        if self.t < self.watch.next {
            return;
        }
        self.watch.next = self.t + EVERY_MS;
        for at in 0..self.nodes.len() {
            self.watch_node(at);
            self.check_stalled(at);
        }
        let mut to_stop = BTreeMap::new();
        // When faults stop, a sleep ends early, and delayed events come as if the sleep had continued.
        let cancels = !self.quiet && self.controllers[0].store.actions.iter().any(|row| !row.cancelling.is_empty());
        let untouched = if cancels { self.truth.untouched() } else { Vec::new() };
        // A runner that waits for leftovers has no scripts to stop.
        let waits = |at: usize, task| {
            self.nodes[at].systemd.units.values().any(|u| u.intent.start.task == task && u.runner.waits)
        };
        for (run, at, task) in untouched.into_iter().filter(|(_, at, task)| !waits(*at, *task)) {
            let Some((_, since)) = self.watch.calm.get(&at) else { continue };
            if self.is_cancelled(task) && !self.is_inspecting(at, task) {
                to_stop.insert(run, *since);
            }
        }
        self.truth.must_stop(&to_stop, self.t);
    }

    fn watch_node(&mut self, at: usize) {
        if self.open_connection(at).is_some() {
            self.watch.stood.insert(at, self.t);
        }
        match self.calm_now(at) {
            None => drop(self.watch.calm.remove(&at)),
            Some(now) => {
                let entry = self.watch.calm.entry(at).or_insert((now, self.t));
                if entry.0 != now {
                    *entry = (now, self.t);
                }
            }
        }
    }

    /// Returns the number of node `at`'s connection to the first controller, if both sides consider it open and the
    /// agent is welcomed; otherwise `None`.
    fn open_connection(&self, at: usize) -> Option<u64> {
        let agent = self.nodes[at].agent.as_ref().filter(|agent| agent.welcomed)?;
        let conn = agent.conn?;
        let c = self.conns.get(&conn).filter(|c| c.which == 0)?;
        self.controllers[0].sessions.contains_key(&c.session).then_some(conn)
    }

    /// Returns the numbers of the agent's process and of its session with the first controller, if the agent runs and
    /// nothing but systemd disturbs it.
    pub(super) fn session_now(&self, at: usize) -> Option<(u64, u64)> {
        let (t, node) = (self.t, &self.nodes[at]);
        let until = node.cut_until.max(node.full_until).max(node.asleep_until);
        let agent = node.agent.as_ref().filter(|agent| node.on && t > until && !agent.stopped)?;
        Some((agent.incarnation, self.open_connection(at)?))
    }

    fn calm_now(&self, at: usize) -> Option<(u64, u64, u64)> {
        let (t, node) = (self.t, &self.nodes[at]);
        let until = node.cut_until.max(node.full_until).max(node.stalled_until).max(node.asleep_until);
        let agent = node.agent.as_ref().filter(|agent| node.on && t > until && agent.bus && !agent.stopped)?;
        Some((agent.incarnation, agent.connection, self.open_connection(at)?))
    }

    /// Returns `true` if the first controller's store wants the task to stop. `false` while the task's attempt is
    /// abandoned.
    fn is_cancelled(&self, task: TaskId) -> bool {
        let store = &self.controllers[0].store;
        let row = store.actions.iter().find(|row| row.id == task.action && row.cancelling.contains(task.rank.0));
        let is_abandoned = |row: &ActionRow| {
            let of = |attempt: &&AttemptRow| (&attempt.job, attempt.attempt) == (&row.job, row.attempt);
            store.attempts.iter().find(of).is_some_and(|attempt| attempt.abandoned)
        };
        row.is_some_and(|row| !is_abandoned(row))
    }

    /// Returns `true` if the node's agent waits for systemd's answer about the task: to a start or an inspection of its
    /// unit.
    fn is_inspecting(&self, at: usize, task: TaskId) -> bool {
        let agent = self.nodes[at].agent.as_ref();
        let about =
            |pending: &Pending| matches!(pending, Pending::Start(of) | Pending::OverviewRequest(of) if *of == task);
        agent.is_some_and(|agent| agent.pending.values().any(about))
    }

    /// Records that a fault disturbs node `at`: the time without disturbance begins anew.
    pub(crate) fn disturb(&mut self, at: usize) {
        self.watch.calm.remove(&at);
        self.truth.disturbed(at, self.t);
    }

    /// Records an input that an agent is about to read and handle.
    pub(crate) fn reads(&mut self, at: usize, input: &Input) {
        let node = &self.nodes[at];
        let (t, incarnation, full) = (self.t, node.incarnation, self.t < node.full_until);
        match input {
            Input::Message(ToAgent::Cancel { task, .. } | ToAgent::Signal { task, signal: 15 })
            | Input::CancelLocal { task, .. } => self.truth.asked_to_stop(*task),
            _ => {}
        }
        let Input::Message(message) = input else { return };
        if node.agent.as_ref().is_none_or(|agent| !agent.welcomed) {
            return;
        }
        match message {
            ToAgent::Start(start) => self.truth.read_start(at, start.task, t),
            // An agent with a full file system cannot take the claim.
            ToAgent::Cancel { task, .. } if !full => self.truth.read_cancel(at, incarnation, *task, t),
            ToAgent::Forget { tasks } => self.truth.read_forget(at, incarnation, tasks),
            _ => {}
        }
    }

    /// Checks that this task may begin now on node `at`; returns the reason if not.
    pub(crate) fn check_begin(&self, at: usize, task: TaskId) -> Option<String> {
        let session = self.watch.calm.get(&at).map(|((_, _, conn), since)| (*conn, *since));
        let same = session.filter(|(conn, _)| self.open_connection(at) == Some(*conn));
        // When faults stop, a cut ends early, and held-back frames arrive one by one.
        let fences = same.filter(|_| !self.quiet).map(|(conn, _)| conn);
        self.truth.may_begin((at, self.nodes[at].incarnation), task, fences, same.map(|(_, since)| since), self.t)
    }

    /// Checks each task that a batch of the first controller records as lost, before the commit: the node was away long
    /// enough, or the task began in another boot.
    pub(crate) fn check_losses(&mut self, which: usize, records: &[Record]) {
        for record in records {
            if let Record::Action(row) = record {
                self.watch.begun_anywhere.entry(row.id).or_insert(self.t);
            }
        }
        if which != 0 {
            return;
        }
        for record in records {
            match record {
                Record::Action(row) => {
                    self.watch.begun.entry(row.id).or_insert(self.t);
                    if !self.controllers[0].store.actions.iter().any(|known| known.id == row.id) {
                        self.watch.written.insert(row.id, self.t);
                    }
                }
                Record::Rank(row) if matches!(row.ended.outcome, Outcome::Resolved { .. }) => {
                    self.check_resolved(row.task);
                }
                Record::Rank(row) if row.expects.is_none() => {
                    if let Outcome::Lost { why } = row.ended.outcome {
                        self.check_loss(row.task, why);
                    }
                }
                _ => {}
            }
        }
    }

    fn check_resolved(&mut self, task: TaskId) {
        let Some(at) = self.node_of(task) else { return };
        let known = self.controllers[0].store.ranks.iter().any(|row| row.task == task);
        if let Some(conn) = self.open_connection(at).filter(|_| !known && self.truth.is_sure(task, at)) {
            self.truth.resolved(task, conn, self.t);
        }
    }

    fn check_loss(&mut self, task: TaskId, why: Loss) {
        let Some(at) = self.node_of(task) else { return };
        let store = &self.controllers[0].store;
        let known = store.ranks.iter().any(|row| row.task == task && row.ended.outcome == Outcome::Lost { why });
        if known || !self.truth.is_sure(task, at) {
            return;
        }
        let (t, node, controller) = (self.t, &self.nodes[at], &self.controllers[0]);
        let grace = self.shortest_graces();
        let wrong = match why {
            Loss::Rebooted if self.truth.was_awaited(task, at) => {
                Some("its script had announced that boot, and learned that the controller knew".to_owned())
            }
            Loss::Rebooted => (node.boot < 2 || self.truth.began_in(task, at, node.boot))
                .then(|| "that boot of its node goes on".to_owned()),
            // A restored process counts from times of a lost epoch.
            Loss::Offline | Loss::Unreachable if !self.truth.reports_lost_tasks() => None,
            Loss::Offline => {
                let begun = self.watch.begun.get(&task.action).copied().unwrap_or(t);
                let since = begun.max(controller.loaded_at);
                // A task may also become lost at once, if its node had been away long enough.
                let stood = self.watch.stood.get(&at).copied().unwrap_or_default().max(controller.loaded_at);
                let is_down = t + SLACK_MS >= stood + grace.start_grace_ms;
                if t < since + grace.start_grace_ms && !is_down {
                    Some(format!("it could have been accepted only since {since}"))
                } else {
                    self.truth.was_accepted(task).then(|| "it had been accepted".to_owned())
                }
            }
            Loss::Unreachable => {
                let stood = self.watch.stood.get(&at).copied().unwrap_or_default().max(controller.loaded_at);
                (t + SLACK_MS < stood + grace.unreachable_grace_ms).then(|| format!("its node was there at {stood}"))
            }
            _ => None,
        };
        if let Some(text) = wrong {
            let text = format!("{task} on n{at} is said at {t} to be lost ({why:?}), and {text}");
            return self.violate("3 true", &text);
        }
        if let Some(conn) = self.open_connection(at).filter(|_| why == Loss::Offline) {
            self.truth.fenced(task, conn, t);
        }
    }

    /// Returns, among all settings that the controller gets in this world, those with the shortest graces.
    fn shortest_graces(&self) -> Settings {
        let hurried = |step: &Step| matches!(step.what, What::Do(Op::Configure { settings: 1 }));
        site::settings(u8::from(self.plan.steps.iter().any(hurried)))
    }

    /// Returns the machine of a task's rank, by the first controller's store.
    fn node_of(&self, task: TaskId) -> Option<usize> {
        let store = &self.controllers[0].store;
        let row = store.actions.iter().find(|row| row.id == task.action)?;
        let attempt = store.attempts.iter().find(|a| a.job == row.job && a.attempt == row.attempt)?;
        let (_, host) = attempt.ranks.iter().zip(attempt.hosts.iter()).find(|(rank, _)| *rank == task.rank.0)?;
        self.nodes.iter().position(|node| node.host.as_str() == host)
    }
}
