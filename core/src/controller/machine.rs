//! Machine of the controller: its state, the path of a batch through it, and its output.
//!
//! No code here does I/O or reads a clock. Collections are ordered, so that one history of inputs gives one history of
//! outputs.

use std::collections::{BTreeMap, BTreeSet};

use crate::agent::io::Level;
use crate::controller::action::Action;
use crate::controller::action::announced_reboot::Expected;
use crate::controller::giveback::outbox::{Outbox, first_sequence};
use crate::controller::io::{
    AttemptRow, Client, DrainRow, Effect, Input, NodeRow, Now, Output, Quiet, Record, Refusal, Reply, SessionId,
    Settings, Snapshot,
};
use crate::controller::job::Jobs;
use crate::controller::job::attempt::JobAttempt;
use crate::controller::job::milestones::Saying;
use crate::controller::node::session::Session;
use crate::controller::recovery::{Recovery, Unsettled};
use crate::defect;
use crate::eventlog::Event;
use crate::ids::{ActionId, ActionName, Attempt, BootId, Epoch, HostName, JobId, Rank, TaskId};
use crate::idset::IdSet;
use crate::job::Part;
use crate::mark::{Commit, History};
use crate::message::Phase;

/// Number of failed tasks that the machine remembers of each node, for `why`.
pub(in crate::controller) const FAILED_KEPT: usize = 8;

#[derive(Debug, Clone, PartialEq)]
pub struct Machine {
    pub(in crate::controller) settings: Settings,
    pub(in crate::controller) epoch: Epoch,
    pub(in crate::controller) history: History,
    /// Highest epoch that an agent reported when it refused this controller's, and the agent's host.
    pub(in crate::controller) highest_seen: Option<(HostName, Epoch)>,
    pub(in crate::controller) nodes: BTreeMap<HostName, Node>,
    pub(in crate::controller) sessions: BTreeMap<SessionId, Session>,
    /// Sessions that wait for an older session to answer a probe.
    pub(in crate::controller) probing: BTreeSet<SessionId>,
    pub(in crate::controller) jobs: Jobs,
    pub(in crate::controller) drains: BTreeMap<HostName, DrainRow>,
    /// Ranks without a hold that wait for the drain of their host.
    pub(in crate::controller) undrained: BTreeMap<HostName, BTreeSet<(JobId, Attempt, Rank)>>,
    /// Drains whose notice the hook failed to carry out: since when, and the reason. Not stored: a restarted controller
    /// sends each notice again.
    pub(in crate::controller) drain_failed: BTreeMap<HostName, (u64, String)>,
    pub(in crate::controller) outbox: Outbox,
    pub(in crate::controller) outbox_last: u64,
    pub(in crate::controller) questions: BTreeMap<u64, BTreeSet<HostName>>,
    pub(in crate::controller) question_last: u64,
    pub(in crate::controller) probe_last: u64,
    pub(in crate::controller) store_full: bool,
    pub(in crate::controller) recovery: Recovery,
    /// The quiesced state: nothing new begins.
    pub(in crate::controller) quiet: Option<Quiet>,
    /// Clients that get their answer when no action is open.
    pub(in crate::controller) quiet_waits: BTreeSet<Client>,
    /// Time (monotonic) until which an unknown node may still come: the store knew no node at its start, because the
    /// store is new or was lost.
    pub(in crate::controller) young_until_ms: u64,
    /// Time of the last search for closed attempts past their retention.
    pub(in crate::controller) pruned_ms: u64,
    pub(in crate::controller) batch: Batch,
}

/// A node with which the controller has had a session.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::controller) struct Node {
    pub(in crate::controller) row: NodeRow,
    pub(in crate::controller) session: Option<SessionId>,
    /// Counter of the last session. Messages from earlier sessions of the same boot do not count, even after the last
    /// session ended.
    pub(in crate::controller) link: Option<u64>,
    /// Address of the last session, without its port.
    pub(in crate::controller) address: String,
    /// Configured actions, from its last session; `None`: never reported.
    pub(in crate::controller) actions: Option<BTreeSet<ActionName>>,
    /// Boots of this machine before the one in `row`, the newest last.
    pub(in crate::controller) over: Vec<BootId>,
    /// CLOCK_MONOTONIC of the last change between session and no session.
    pub(in crate::controller) since_ms: u64,
    /// The node's tasks in actions without a verdict.
    pub(in crate::controller) tasks: BTreeSet<TaskId>,
    /// Reported phases of live tasks, and when each began (monotonic).
    pub(in crate::controller) live: BTreeMap<TaskId, (Phase, u64)>,
    /// The last few tasks that ended badly, oldest first.
    pub(in crate::controller) failed: Vec<TaskId>,
    pub(in crate::controller) note: Option<String>,
    /// The unfinished part of the node's last Hello, and the node's orphans.
    pub(in crate::controller) unsettled: Unsettled,
}

/// Output of one batch so far.
#[derive(Debug, Clone, Default, PartialEq)]
pub(in crate::controller) struct Batch {
    pub(in crate::controller) records: Vec<Record>,
    pub(in crate::controller) effects: Vec<Effect>,
    /// Actions to settle when the batch ends: their ends become events, a verdict is decided, records are stored.
    pub(in crate::controller) touched: BTreeSet<ActionId>,
    pub(in crate::controller) attempts: BTreeSet<(JobId, Attempt)>,
    /// Ranks with changed holds, for attempts that have no other change.
    pub(in crate::controller) given: BTreeMap<(JobId, Attempt), IdSet>,
    /// Parts whose hold was dropped: each is released if no other hold is left.
    pub(in crate::controller) let_go: BTreeMap<(JobId, Attempt), Part>,
    /// Reported milestones, by reporter.
    pub(in crate::controller) said: BTreeMap<Saying, IdSet>,
    /// Hosts whose drain has come into force, or was lifted.
    pub(in crate::controller) in_force: BTreeSet<HostName>,
    pub(in crate::controller) wake_ms: Option<u64>,
}

impl Machine {
    /// Rebuilds the machine from the store and begins a new epoch, which `output` commits before any other change. The
    /// edge makes `nonce` at random: the nonce distinguishes two controllers of one epoch.
    pub fn load(snapshot: Snapshot, settings: Settings, nonce: u64, now: Now) -> (Self, Output) {
        let newest = snapshot.history.newest().max(snapshot.anchor);
        let number = newest.map_or(1, |commit| commit.epoch.number.saturating_add(1));
        let epoch = Epoch { number, nonce };
        let history = snapshot.history;
        let mut machine = Self {
            jobs: Jobs::new(&settings),
            settings,
            epoch,
            history,
            highest_seen: None,
            nodes: BTreeMap::new(),
            sessions: BTreeMap::new(),
            probing: BTreeSet::new(),
            drains: snapshot.drains.into_iter().map(|drain| (drain.host.clone(), drain)).collect(),
            undrained: BTreeMap::new(),
            drain_failed: BTreeMap::new(),
            outbox: Outbox::of(snapshot.outbox),
            outbox_last: first_sequence(now.wall_ms, snapshot.outbox_last),
            questions: BTreeMap::new(),
            question_last: 0,
            probe_last: 0,
            store_full: false,
            recovery: Recovery::default(),
            quiet: snapshot.quiet,
            quiet_waits: BTreeSet::new(),
            pruned_ms: now.mono_ms,
            young_until_ms: 0,
            batch: Batch::default(),
        };
        if snapshot.nodes.is_empty() {
            machine.young_until_ms = now.mono_ms.saturating_add(machine.settings.start_grace_ms);
        }
        for row in snapshot.nodes {
            machine.nodes.insert(row.host.clone(), Node::new(row, now.mono_ms));
        }
        for row in snapshot.attempts {
            machine.load_attempt(row);
        }
        for row in snapshot.actions {
            machine.load_action(Action::stored(row, now.mono_ms));
        }
        for row in snapshot.ranks {
            let Some(action) = machine.jobs.action_mut(row.task.action) else { continue };
            if row.expects.is_some() {
                let expected = Expected::stored(row, now.mono_ms, machine.settings.unreachable_grace_ms);
                action.expected.insert(expected.row.task.rank, expected);
            } else {
                action.ended.insert(row.task.rank, row);
            }
        }
        for (job, last) in snapshot.events_last {
            machine.jobs.entry(job).or_default().events_last = if defect!(EventsRepeat) { 0 } else { last };
        }
        machine.index_failed();
        machine.batch.records.push(Record::Epoch(epoch));
        machine.recovery.row = snapshot.recovery;
        machine.judge_store(snapshot.stamp, snapshot.anchor, now);
        let first = machine.history.last + 1;
        machine.history.begin(epoch, first);
        machine.shut_gate(now);
        machine.let_go_again();
        machine.resolve_again();
        // Hooks may have disappeared from the configuration while the controller was down.
        machine.on_settings(machine.settings.clone());
        let ids: Vec<ActionId> =
            machine.jobs.actions.iter().filter(|(_, a)| a.row.verdict.is_none()).map(|(id, _)| *id).collect();
        for id in ids {
            machine.arm(id, now);
            // A crash cannot part the last end from the verdict, because both are in one commit. A store restored by
            // hand may contain an action without its verdict.
            machine.batch.touched.insert(id);
        }
        let output = machine.close_batch(now);
        (machine, output)
    }

    fn load_attempt(&mut self, row: AttemptRow) {
        if let Some((job, number, attempt)) = JobAttempt::stored(row) {
            self.jobs.entry(job).or_default().attempts.insert(number, attempt);
        }
    }

    /// Collects ranks without a hold that are not released yet: their drain was not in force, or their release policy
    /// waited. That wait starts anew with the process.
    fn let_go_again(&mut self) {
        for (job, entry) in self.jobs.iter() {
            for (number, attempt) in entry.attempts.iter().filter(|(_, attempt)| !attempt.complete) {
                let mut part = attempt.whole();
                part.subtract(&attempt.released);
                self.batch.let_go.insert((job.clone(), *number), part);
            }
        }
    }

    pub(in crate::controller) fn load_action(&mut self, action: Action) {
        let row = &action.row;
        let id = row.id;
        if let Some(attempt) = self.jobs.attempt_mut(&row.job, row.attempt) {
            attempt.actions.push(id);
        }
        let ranks = if row.verdict.is_none() { row.ranks.clone() } else { IdSet::new() };
        self.jobs.actions.insert(id, action);
        self.index(id, &ranks);
    }

    /// Adds `ranks` of an action to the task index of their nodes.
    pub(in crate::controller) fn index(&mut self, id: ActionId, ranks: &IdSet) {
        let Self { jobs, nodes, .. } = self;
        let Some(layout) = jobs.layout(id) else { return };
        for (rank, host) in layout.pairs(ranks) {
            if let Some(node) = nodes.get_mut(host) {
                node.tasks.insert(TaskId { action: id, rank });
            }
        }
    }

    /// Handles a batch: every input in order, then the consequences for the machine as a whole. The caller commits the
    /// records before the effects leave.
    pub fn handle(&mut self, inputs: Vec<Input>, now: Now) -> Output {
        for input in inputs {
            match input {
                Input::Message { session, names, peer, message } => {
                    self.on_message(session, names.as_deref(), &peer, message, now)
                }
                Input::Closed { session, why } => self.on_closed(session, &why, now),
                Input::Request { client, uid, request } => self.on_request(client, uid, request, now),
                Input::HungUp { clients } => self.hung_up(&clients),
                Input::Tick => self.on_tick(now),
                Input::Settings(settings) => {
                    let reorders = settings.after != self.settings.after;
                    self.on_settings(settings);
                    if reorders {
                        self.reordered(now);
                    }
                }
                Input::StoreFull(full) => self.store_full = full,
            }
        }
        self.close_batch(now)
    }

    /// Returns the size of every collection that can grow, by name. All but the sessions return to 0 when every job is
    /// past its retention.
    pub fn sizes(&self) -> [(&'static str, usize); 10] {
        let unsettled = self.nodes.values().map(|node| node.unsettled.len()).sum();
        let of_nodes = self.nodes.values().map(|node| node.tasks.len() + node.live.len() + node.failed.len()).sum();
        [
            ("sessions", self.sessions.len()),
            ("jobs", self.jobs.len()),
            ("actions", self.jobs.actions.len()),
            ("tasks by node", of_nodes),
            ("outbox entries", self.outbox.len()),
            ("questions", self.questions.len()),
            ("hosts whose drain is waited for", self.undrained.len() + self.drain_failed.len()),
            ("sessions that are asked whether they live", self.probing.len()),
            ("callers that wait for quiet", self.quiet_waits.len()),
            ("tasks that are not settled", unsettled),
        ]
    }

    fn close_batch(&mut self, now: Now) -> Output {
        // An end lets other ranks begin, a verdict drops holds, and a dropped hold may begin after-actions. The loop
        // repeats until no action changes.
        let mut changed = BTreeSet::new();
        self.tell_milestones(now);
        loop {
            self.settle_resolved(now);
            let Some(id) = self.batch.touched.pop_first() else {
                if defect!(ReleasedBeforeDrain) {
                    self.release_all(now);
                }
                self.leave_recovery(now);
                // Before the releases: a host drained in this batch keeps its ranks until the drain is in force.
                if self.clean_disowned(now) || self.release_all(now) {
                    continue;
                }
                break;
            };
            self.tell(id, now);
            self.settle_action(id, now);
            self.start_later(id, now);
            changed.insert(id);
        }
        for id in changed {
            if let Some(action) = self.jobs.action_mut(id) {
                action.take_records(&mut self.batch.records);
            }
        }
        self.record_attempts();
        self.tell_quiet();
        if let Some(mono_ms) = self.next_check(now).filter(|at| self.batch.wake_ms != Some(*at)) {
            self.batch.wake_ms = Some(mono_ms);
            self.batch.effects.push(Effect::WakeAt { mono_ms });
        }
        self.commit_batch();
        Output { records: std::mem::take(&mut self.batch.records), effects: std::mem::take(&mut self.batch.effects) }
    }

    /// Puts the records of changed attempts first, because other records refer to attempts, but after the pruning of
    /// attempts of the same job.
    fn record_attempts(&mut self) {
        let (given, whole) = (std::mem::take(&mut self.batch.given), std::mem::take(&mut self.batch.attempts));
        let parts = given.into_iter().filter(|(key, _)| !whole.contains(key)).filter_map(|((job, number), ranks)| {
            let holds = Box::new(self.jobs.attempt(&job, number)?.holds(&ranks));
            Some((job.clone(), Record::Given { job, attempt: number, holds }))
        });
        let rows = whole.iter().filter_map(|(job, number)| {
            Some((job.clone(), Record::Attempt(self.jobs.attempt(job, *number)?.row(job.clone(), *number))))
        });
        let mut first: BTreeMap<usize, Vec<Record>> = BTreeMap::new();
        let pruned = self.batch.pruned();
        for (job, record) in rows.chain(parts) {
            first.entry(pruned.get(&job).map_or(0, |at| at + 1)).or_default().push(record);
        }
        if first.is_empty() {
            return;
        }
        let others = std::mem::take(&mut self.batch.records);
        let mut records = Vec::with_capacity(others.len() + whole.len());
        records.extend(first.remove(&0).unwrap_or_default());
        for (at, record) in others.into_iter().enumerate() {
            records.push(record);
            records.extend(first.remove(&(at + 1)).unwrap_or_default());
        }
        self.batch.records = records;
    }

    /// Releases parts without a hold. Returns `true` if there was such a part.
    fn release_all(&mut self, now: Now) -> bool {
        let parts = std::mem::take(&mut self.batch.let_go);
        let any = parts.values().any(|part| !part.is_empty());
        for ((job, attempt), part) in parts {
            self.release(&job, attempt, part, now);
        }
        any
    }

    /// Returns the newest commit of the store.
    pub(in crate::controller) fn newest_commit(&self) -> Option<Commit> {
        self.history.newest()
    }

    /// Numbers the batch's commit, and stamps that number on every message to a node.
    fn commit_batch(&mut self) {
        if !self.batch.records.is_empty() {
            self.history.last += 1;
            self.batch.records.insert(0, Record::Commit(self.history.last));
        }
        let number = self.history.last;
        for effect in &mut self.batch.effects {
            match effect {
                Effect::Send { message, .. } => message.set_commit(number),
                Effect::Fan { start, .. } => start.commit = number,
                _ => {}
            }
        }
    }

    // Outputs of the machine; every folder uses these functions.

    pub(in crate::controller) fn reply(&mut self, client: Client, reply: Result<Reply, Refusal>) {
        self.batch.effects.push(Effect::Reply { client, reply });
    }

    pub(in crate::controller) fn note(
        &mut self,
        level: Level,
        job: Option<&JobId>,
        host: Option<&HostName>,
        text: impl Into<String>,
    ) {
        let (job, host) = (job.cloned(), host.cloned());
        self.batch.effects.push(Effect::Note { level, job, host, text: text.into(), by_node: false });
    }

    /// Adds a journal line about an act of a node. A node can cause any number of such lines: the edge bounds the lines
    /// of each host.
    pub(in crate::controller) fn note_of_node(&mut self, level: Level, host: &HostName, text: impl Into<String>) {
        let (host, text) = (Some(host.clone()), text.into());
        self.batch.effects.push(Effect::Note { level, job: None, host, text, by_node: true });
    }

    /// Appends an event to the job's log, and publishes the event to followers.
    pub(in crate::controller) fn event(&mut self, job: &JobId, now: Now, name: &str, context: serde_json::Value) {
        let entry = self.jobs.entry(job.clone()).or_default();
        entry.events_last += 1;
        let sequence = entry.events_last;
        let context = match context {
            serde_json::Value::Object(map) => Some(map),
            _ => None,
        };
        let event = Event::at_millis(now.wall_ms, name, context);
        self.batch.records.push(Record::Event { job: job.clone(), sequence, event: event.clone() });
        self.batch.effects.push(Effect::Publish { job: job.clone(), sequence, event });
    }

    /// Schedules a check of the action's limits at `at_ms`, unless an earlier check is scheduled.
    pub(in crate::controller) fn check_by(&mut self, id: ActionId, at_ms: u64) {
        if let Some(action) = self.jobs.action_mut(id) {
            action.check_ms = Some(action.check_ms.map_or(at_ms, |before| before.min(at_ms)));
        }
    }

    pub(in crate::controller) fn touch(&mut self, id: ActionId, now: Now) {
        self.batch.touched.insert(id);
        let Some(action) = self.jobs.action(id) else { return };
        let key = (action.row.job.clone(), action.row.attempt);
        if let Some(attempt) = self.jobs.attempt_mut(&key.0, key.1) {
            // Retention needs a precision of a minute; a stored row for every batch would cost too much.
            if now.wall_ms.abs_diff(attempt.touched_ms) > 60_000 {
                attempt.touched_ms = now.wall_ms;
                self.batch.attempts.insert(key);
            }
        }
    }

    fn index_failed(&mut self) {
        let mut failed: Vec<(u64, TaskId)> = Vec::new();
        for action in self.jobs.actions.values() {
            failed.extend(
                action
                    .ended
                    .values()
                    .filter(|row| !row.ended.outcome.is_ok())
                    .map(|row| (row.ended.ended_ms, row.task)),
            );
        }
        failed.sort_unstable();
        for (_, task) in failed {
            self.remember_failed(task);
        }
    }

    pub(in crate::controller) fn remember_failed(&mut self, task: TaskId) {
        let Some(node) = self.jobs.host_of(task).and_then(|host| self.nodes.get_mut(&host)) else {
            return;
        };
        // A reboot may have invalidated a tolerable task that is in the list already.
        node.failed.retain(|failed| *failed != task);
        if node.failed.len() >= FAILED_KEPT {
            node.failed.remove(0);
        }
        node.failed.push(task);
    }
}

impl Node {
    pub(in crate::controller) fn new(row: NodeRow, since_ms: u64) -> Self {
        Self {
            row,
            session: None,
            link: None,
            address: String::new(),
            actions: None,
            over: Vec::new(),
            since_ms,
            tasks: BTreeSet::new(),
            live: BTreeMap::new(),
            failed: Vec::new(),
            note: None,
            unsettled: Unsettled::default(),
        }
    }
}

#[cfg(test)]
impl Machine {
    /// Asserts that the rows in the store, with all deltas applied, equal the machine's rows.
    pub(in crate::controller) fn is_stored_in(&self, store: &Snapshot) {
        for action in self.jobs.actions.values() {
            let row = store.actions.iter().find(|row| row.id == action.row.id);
            assert_eq!(row, Some(&action.row), "the row of an action");
        }
        for (job, entry) in self.jobs.iter() {
            for (number, attempt) in &entry.attempts {
                let row = store.attempts.iter().find(|row| row.job == *job && row.attempt == *number);
                let touched_ms = row.map_or(0, |row| row.touched_ms);
                let held = AttemptRow { touched_ms, ..attempt.row(job.clone(), *number) };
                assert_eq!(row, Some(&held), "the row of an attempt");
            }
        }
    }
}
