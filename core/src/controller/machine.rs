//! The controller's machine: its parts, and the order in which the parts handle a batch.
//!
//! No code here does I/O or reads a clock. All collections are ordered, so equal inputs give equal outputs.

use std::collections::BTreeSet;

use crate::controller::interface::io::{Effect, Input, Now, Output, Passing};
use crate::controller::state::Jobs;
use crate::controller::state::Nodes;
use crate::controller::state::change::{Change, End};
use crate::controller::state::context::Context;
use crate::controller::state::drains::Drains;
use crate::controller::state::drains::Fault;
use crate::controller::state::lists::Lists;
use crate::controller::state::quiesce::Quiesce;
use crate::controller::state::recovery::Recovery;
use crate::defect;
use crate::ids::{Epoch, HostName};
use crate::idset::IdSet;
use crate::mark::History;
use crate::message::Phase;

/// The controller's machine: all state that decides about jobs, actions and ranks. It does no I/O, reads no clock and
/// draws no random number: equal calls give equal outputs.
///
/// [`Writer`](crate::controller::Writer) is its only caller, for the daemon and for the simulator, and keeps this
/// order:
///
/// 1. [`Self::load`] with what the store says is open. The output is the first batch, which begins an epoch.
/// 2. Commit the batch's records in one transaction. Only then carry out its effects, in their order. If the commit
///    fails, drop the machine with the effects: go on at 1 when the store can be written again.
/// 3. Before each batch read from the store what its inputs are about, and hand it over: attempts that are over are
///    in the store alone (`memory/`).
/// 4. [`Self::handle`] the inputs; go on at 2. The effect `WakeAt` names the time of the next `Tick`: the machine
///    checks no limit before that input comes.
///
/// Later calls have later times: `mono_ms` decides limits and waits; `wall_ms` dates events, and decides retention.
///
/// The machine guarantees: what is rebuilt from its records is what it was, so a crash after any commit loses nothing
/// that an effect has reported; each request gets one `Reply`, in this batch or a later one, unless its client hangs
/// up; no input makes it panic, and no collection grows without a bound ([`Self::sizes`]).
#[derive(Debug, Clone, PartialEq)]
pub struct Machine {
    pub(super) cx: Context,
    pub(super) epoch: Epoch,
    pub(super) history: History,
    /// The highest epoch for which an agent has refused this controller, with the agent's host. `None` if no agent has
    /// refused. An epoch that no take-over can reach does not count.
    pub(super) highest_seen: Option<(HostName, Epoch)>,
    pub(super) nodes: Nodes,
    pub(super) jobs: Jobs,
    pub(super) drains: Drains,
    pub(super) recovery: Recovery,
    /// The lists of the edges (`Sync`). A list says nothing about other instances of the same resource manager.
    pub(super) lists: Lists,
    pub(super) quiesce: Quiesce,
    /// Time (monotonic) until which tasks wait for nodes that the store does not know; later such tasks end as `lost`
    /// at once. 0 if the store knew a node when the controller started.
    pub(super) unknown_node_grace_until_ms: u64,
    /// Time (monotonic) of the last search for attempts past their retention.
    pub(super) pruned_ms: u64,
    /// `true` if that search left attempts that are past their retention, or if the settings keep fewer since: the next
    /// batch goes on at once.
    pub(super) prunes_on: bool,
}

impl Machine {
    /// Handles a batch: first what earlier batches left, then each input with the changes that it queues, last the
    /// verdicts, hand-overs and releases that follow. The caller must commit the records before it carries out an
    /// effect.
    pub fn handle(&mut self, inputs: Vec<Input>, now: Now) -> Output {
        self.cx.now = now;
        let later = self.cx.quota.begin();
        self.cx.changes.extend(later);
        self.react();
        for input in inputs {
            match input {
                Input::Message { session, names, peer, message } => {
                    self.on_message(session, names.as_deref(), &peer, message)
                }
                Input::Closed { session, why } => self.nodes.on_closed(session, &why, &mut self.cx),
                Input::Request { client, uid, request } => self.on_request(client, uid, request),
                Input::HungUp { clients } => self.quiesce.hung_up(&clients),
                Input::Tick => {
                    self.nodes.probes_due(&mut self.cx);
                    self.open_gate_if_due();
                    self.end_grace_if_due();
                    self.react();
                    self.on_tick();
                }
                Input::Settings(settings) => {
                    let reorders = settings.after != self.cx.settings.after;
                    self.on_settings(settings);
                    if reorders {
                        self.jobs.reordered(&mut self.cx);
                    }
                }
                Input::Redials { per_second } => self.nodes.measured_per_second = per_second,
                Input::StoreFull(full) => self.quiesce.store_full = full,
            }
            self.react();
        }
        self.close_batch()
    }

    /// Drops lists of edges whose further pages do not come, checks the limits of actions that are due, and at times
    /// forgets attempts that retention does not keep. [`Machine::handle`] has cared for probes, gate and grace before.
    pub(crate) fn on_tick(&mut self) {
        // The end of the batch asks for the next tick.
        self.cx.wake_ms = None;
        self.lists.drop_old(self.cx.now);
        for id in self.jobs.table.due(self.cx.now.mono_ms) {
            self.check(id);
        }
        self.prune();
    }

    /// Returns the sizes of collections that grow with the work, by name, for tests of leaks. A test expects small
    /// sizes once every job is past its retention.
    pub fn sizes(&self) -> [(&'static str, usize); 13] {
        let [live_actions, live_attempts, deadlines] = self.jobs.table.count_live();
        let unsettled = self.nodes.values().map(|node| node.unsettled.len()).sum();
        let of_nodes = self.nodes.values().map(|node| node.tasks.len() + node.live.len() + node.failed.len()).sum();
        [
            ("sessions", self.nodes.sessions.len()),
            ("jobs", self.jobs.table.count_jobs()),
            ("actions", self.jobs.table.count_actions()),
            ("tasks by node", of_nodes),
            ("outbox entries", self.cx.outbox.len()),
            ("questions", self.nodes.questions.len()),
            ("hosts whose drain is waited for", self.drains.waiting.len() + self.drains.failed.len()),
            ("sessions that are asked whether they live", self.nodes.probing.len()),
            ("callers that wait for quiet", self.quiesce.waits.len()),
            ("tasks that are not settled", unsettled),
            ("live actions", live_actions),
            ("live attempts", live_attempts),
            ("deadlines", deadlines),
        ]
    }

    pub(super) fn close_batch(&mut self) -> Output {
        // An end lets other ranks begin. A verdict may hand ranks over, and a dropped hold may release ranks; both may
        // change further actions. The loop repeats until no action changes.
        let mut changed = BTreeSet::new();
        self.react();
        self.jobs.log_milestones(&mut self.cx);
        loop {
            let mut in_force = std::mem::take(&mut self.cx.in_force);
            in_force.retain(|host| !self.drains.is_draining(host.as_str()));
            // A drain for a missing clean-up kept other jobs' setup actions waiting.
            for host in in_force.iter().filter(|host| self.nodes.uncleaned_hosts.contains(*host)) {
                self.jobs.reordered_on(host, &mut self.cx);
            }
            self.jobs.settle_resolved(&in_force, &mut self.cx);
            self.react();
            self.jobs.log_drains(&mut self.cx);
            if let Some(id) = self.cx.touched.pop_first() {
                self.jobs.log_ends(id, &mut self.cx);
                self.jobs.decide_verdict(id, &mut self.cx);
                self.jobs.settle_action(id, &mut self.cx);
                self.jobs.start_later(id, &mut self.cx);
                changed.insert(id);
                continue;
            }
            if defect!(ReleasedBeforeDrain) {
                self.release_all();
            }
            // `clean_unlisted` runs before the releases: if it drains a host, the host's ranks wait for that drain.
            if !(self.clean_unlisted() || self.release_all()) && self.cx.changes.is_empty() {
                break;
            }
        }
        self.jobs.log_drains(&mut self.cx);
        self.cx.log_notes();
        for id in changed {
            if let Some(action) = self.jobs.action_mut(id) {
                action.take_records(&mut self.cx.records);
            }
        }
        self.jobs.record_attempts(&mut self.cx);
        self.jobs.table.refresh(self.cx.now.mono_ms);
        self.quiesce.answer_quiet(&self.jobs, &mut self.cx);
        if let Some(mono_ms) = self.facts().next_check().filter(|at| self.cx.wake_ms != Some(*at)) {
            self.cx.wake_ms = Some(mono_ms);
            self.cx.effects.push(Effect::WakeAt { mono_ms });
        }
        self.cx.commit(&mut self.history);
        Output { records: std::mem::take(&mut self.cx.records), effects: std::mem::take(&mut self.cx.effects) }
    }

    /// Carries out the queued changes in order, including further changes that are queued meanwhile.
    pub(super) fn react(&mut self) {
        while let Some(change) = self.cx.changes.pop_front() {
            match change {
                Change::Greeted(session, hello, note) => self.open(session, *hello, note),
                Change::Away(host) => {
                    if let Some(node) = self.nodes.get(&host) {
                        // The node's accepted tasks may be `lost (unreachable)` from this time on: their limits are
                        // checked then.
                        let at = self.cx.now.mono_ms.saturating_add(self.cx.settings.unreachable_grace_ms);
                        self.jobs.check_all(&node.tasks, at);
                    }
                    if self.nodes.unknown_hosts.contains(&host) {
                        self.jobs.reordered_on(&host, &mut self.cx);
                    }
                }
                Change::Joined(action, ranks) => self.adopt(action, &ranks),
                Change::Ready(action, ranks) => {
                    self.start_ready(action, &ranks, self.cx.now.mono_ms);
                }
                Change::Continuing(action, ranks, since_ms) => {
                    self.start_ready(action, &ranks, since_ms);
                }
                Change::Ordered(mut order) => {
                    let (client, uid) = (order.client, order.uid);
                    for host in self.drains.carry_out(&mut order, &mut self.cx) {
                        self.undrained(&host, uid);
                    }
                    match order.is_done() {
                        true => self.cx.reply(client, Ok(order.reply())),
                        false => self.cx.quota.carry_out_later(*order),
                    }
                }
                Change::Cancelled(task, why) => {
                    let session = self.nodes.session_of(&self.jobs, task);
                    if let Some(session) = session.filter(|_| !self.facts().is_absent(task)) {
                        self.jobs.send_cancel(session, task, &why, &mut self.cx);
                    }
                }
                Change::Ended(end) => self.on_ended(end),
                Change::Drain { task, what, is_stuck } => {
                    let fault = if is_stuck { self.facts().stuck(task) } else { Fault::Other };
                    self.drain_task(task, &*format!(": {what}"), fault);
                }
                Change::TakenUp(job, number) => {
                    // The changes that the request has queued come last: an epilog waits for an adopted prolog.
                    let mut later = std::mem::take(&mut self.cx.changes);
                    for (action, ranks) in self.jobs.adopt_attempt(&job, number, &self.nodes, &mut self.cx) {
                        self.adopt(action, &ranks);
                    }
                    let given_up = self.facts().given_to_others(&job, number);
                    self.cx.changes.extend(given_up);
                    self.jobs.cleaned_attempt(&job, number, &mut self.nodes, &mut self.cx);
                    self.cx.changes.append(&mut later);
                    self.cx.effects.push(Effect::OutboxGrew);
                }
                Change::GiveUp { job, attempt, rank, to } => {
                    let why = format!("its host is job {to}'s");
                    self.jobs.give_up(&job, attempt, &IdSet::from(rank.0..=rank.0), &why, &mut self.cx);
                }
                Change::GivenUp(action, ranks) => self.jobs.given_up(action, &ranks, &self.nodes, &mut self.cx),
                Change::NoUnknown(host) => {
                    if !defect!(UnknownDrainStays) {
                        self.drains.lift_passing(&host, &Passing::Unknown, &mut self.cx);
                    }
                    self.jobs.reordered_on(&host, &mut self.cx);
                }
                Change::ScriptsEnded(host) => {
                    let cleans = self.cx.settings.reboot_cleans && !self.recovery.is_on();
                    if let Some(node) = self.nodes.get(&host).filter(|_| cleans) {
                        self.drains.reboot_cleans(node, &mut self.cx);
                    }
                }
                Change::Decided(action) => {
                    if let Some(action) = self.jobs.action(action) {
                        self.nodes.unindex(&self.jobs, action);
                    }
                }
                Change::Proceeds(action) => self.proceed_action(action),
                Change::Cleaned(hosts, passing) => {
                    hosts.iter().for_each(|host| self.drains.lift_passing(host, &passing, &mut self.cx));
                }
            }
        }
    }

    /// Updates the task lists of a node after a task's end. Drains the host if the end is the node's fault, or if the
    /// clean-up after the task was cancelled.
    fn on_ended(&mut self, end: End) {
        let task = end.task;
        if let Some(node) = self.nodes.of_mut(&self.jobs, task) {
            if end.rebooted {
                // The announced reboot is over: start-grace counts again for the node's other tasks.
                self.jobs.check_all(&node.tasks, self.cx.now.mono_ms);
            }
            let continues = |(phase, _): &(Phase, u64)| end.continues && !phase.is_before_its_begin();
            if defect!(ResolvedForgotten) {
                node.live.remove(&task);
            }
            if !node.live.get(&task).is_some_and(continues) {
                node.live.remove(&task);
            }
        }
        if !end.is_ok {
            self.nodes.remember_failed(&self.jobs, task);
        }
        if let Some((why, fault)) = end.blame.and_then(|ended| self.facts().fault_of(task, &ended)) {
            self.drain_task(task, why, fault);
        }
    }

    /// Releases the ranks and named resources whose last hold was dropped in this batch. Ranks on a host whose drain is
    /// not in force yet wait for the drain. Returns `true` if any hold was dropped.
    fn release_all(&mut self) -> bool {
        let parts = std::mem::take(&mut self.cx.dropped);
        let any = parts.values().any(|part| !part.is_empty());
        for ((job, number), part) in parts {
            let (free, waiting) = self.facts().free(&job, number, part);
            for (host, rank) in waiting {
                self.drains.waiting.entry(host).or_default().insert((job.clone(), number, rank));
            }
            self.jobs.give(&job, number, &free, &mut self.cx);
        }
        any
    }
}

#[cfg(test)]
impl Machine {
    /// Asserts that every action and attempt of the machine equals its row in the store, with all deltas applied. Only
    /// `touched_ms` of an attempt may differ.
    pub(super) fn is_stored_in(&self, store: &crate::controller::interface::io::Snapshot) {
        for action in self.jobs.table.all_actions() {
            let row = store.actions.iter().find(|row| row.id == action.row.id);
            assert_eq!(row, Some(&action.row), "the row of an action");
        }
        for (job, entry) in self.jobs.iter() {
            for (number, attempt) in &entry.attempts {
                let row = store.attempts.iter().find(|row| row.job == *job && row.attempt == *number);
                let touched_ms = row.map_or(0, |row| row.touched_ms);
                let held =
                    crate::controller::interface::io::AttemptRow { touched_ms, ..attempt.row(job.clone(), *number) };
                assert_eq!(row, Some(&held), "the row of an attempt");
            }
        }
    }
}
