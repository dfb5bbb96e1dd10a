//! A controller's daemon: its writer, and a store with the committed records.

use std::collections::{BTreeMap, BTreeSet};

use perilog_core::controller::io::{Effect, Record, Request, RunRequest, SessionId};
use perilog_core::controller::{Batch, FULL_EVERY_MS, Input, Machine, Now, Snapshot, Writer};
use perilog_core::defect;
use perilog_core::message::{FromAgent, HeldState};
use perilog_core::{ActionId, Attempt, Commit, TaskId};

use super::World;
use super::event::Event;
use super::node::EPOCH_MS;
use super::shown::Shown;
use super::site;
use super::traps::{How, Sprung};
use super::whole::{self, Whole};
use crate::plan::Spring;

/// CLOCK_MONOTONIC of the controller's host when the world begins.
const MONO_MS: u64 = 1_000_000;
/// Every start with a multiple of this number is on another host than the start before.
const MOVE_EACH: u64 = 3;

#[derive(Default)]
pub(crate) struct Controller {
    /// The writer of the running process; `None`: no process runs.
    pub(super) writer: Option<Writer>,
    /// A machine that holds every job; `None` before the first process.
    pub(super) whole: Option<Whole>,
    /// Number of processes that have started.
    pub(crate) incarnation: u64,
    pub(crate) store: Snapshot,
    /// The newest commit that the anchor, a file beside the store, names.
    pub(crate) anchor: Option<Commit>,
    pub(crate) backups: Vec<Snapshot>,
    pub(crate) inbox: Vec<Input>,
    batch_due: bool,
    pub(crate) wake: Option<u64>,
    /// Milliseconds by which CLOCK_MONOTONIC of the controller's host lags behind the world, because the host stood
    /// still.
    pub(crate) mono_lag: u64,
    pub(crate) sessions: BTreeMap<SessionId, u64>,
    full_until: u64,
    wall_offset: i64,
    /// The smallest and the largest `wall_offset` so far: milliseconds by which the host's wall clock is ahead of world
    /// time.
    wall_offsets: (i64, i64),
    pub(crate) clients: u64,
    /// By client number: the attempt that the client's `Run` request named.
    pub(crate) asked: BTreeMap<u64, Attempt>,
    /// The clients whose `ps` also asked for held ranks.
    pub(crate) asked_held: BTreeSet<u64>,
    /// The contents of the store in the course of the current batch; `None`: no client looks in this batch.
    pub(crate) shown: Option<Shown>,
    /// World time (ms) at which the controller last built its machine from the store.
    pub(crate) loaded_at: u64,
    /// Tasks about which nodes sent a message in this batch.
    reported: BTreeSet<TaskId>,
    /// Tasks whose tombstones nodes have reported to this controller so far. The set stays after the batch: the
    /// controller may handle a Hello later, when it has the answer to a liveness probe.
    tombstones: BTreeSet<TaskId>,
    /// The requests of services in the current batch.
    served: Vec<Request>,
    /// The actions that the current batch begins.
    pub(crate) begun: BTreeSet<ActionId>,
    /// World time (ms) at which this controller last began an epoch, and so ended every session; `None`: it never did.
    pub(crate) epoch_begun_at: Option<u64>,
}

impl Controller {
    /// Returns the loaded machine, if any.
    pub(crate) fn machine(&self) -> Option<&Machine> {
        self.writer.as_ref().and_then(Writer::machine)
    }

    /// Returns `true` if the process has loaded a machine. Until then it sends nodes and clients away.
    pub(crate) fn is_up(&self) -> bool {
        self.machine().is_some()
    }

    const fn is_running(&self) -> bool {
        self.writer.is_some()
    }

    /// Returns by how many milliseconds the controller may show an age too large, because its wall clock was stepped
    /// forward.
    pub(super) const fn clock_gained(&self) -> u64 {
        self.wall_offset.abs_diff(self.wall_offsets.0)
    }

    pub(super) const fn clock_lost(&self) -> u64 {
        self.wall_offsets.1.abs_diff(self.wall_offset)
    }
}

impl World {
    fn controller_now(&self, which: usize) -> Now {
        let wall_ms = (EPOCH_MS + self.t).saturating_add_signed(self.controllers[which].wall_offset);
        Now { mono_ms: MONO_MS + self.t - self.controllers[which].mono_lag, wall_ms }
    }

    pub(crate) fn wall_of(&self, which: usize) -> u64 {
        self.controller_now(which).wall_ms
    }

    pub(crate) fn step_controller_clock(&mut self, by_ms: i64) {
        let controller = &mut self.controllers[0];
        let offset = controller.wall_offset.saturating_add(by_ms);
        let (least, most) = controller.wall_offsets;
        controller.wall_offset = offset;
        controller.wall_offsets = (least.min(offset), most.max(offset));
    }

    pub(crate) fn begin_controller(&mut self, which: usize, delay_ms: u64) {
        let incarnation = self.controllers[which].incarnation;
        self.after(delay_ms, Event::ControllerUp { which, incarnation });
    }

    pub(crate) fn controller_up(&mut self, which: usize, incarnation: u64) {
        let controller = &mut self.controllers[which];
        if controller.is_running() || controller.incarnation != incarnation {
            return;
        }
        controller.mono_lag = 0;
        controller.incarnation += 1;
        let incarnation = controller.incarnation;
        let (settings, nonce) = (site::settings(self.settings), incarnation + 1_000 * which as u64);
        controller.whole = Some(Whole::new(settings.clone(), nonce, whole::quota(incarnation)));
        controller.writer =
            Some(Writer::new(settings, nonce).holding(whole::holding(incarnation)).quota(whole::quota(incarnation)));
        self.log_line(|| format!("c{which} {incarnation} is up"));
        self.load(which);
    }

    /// Loads the machine from the store, and commits a new epoch.
    fn load(&mut self, which: usize) {
        let now = self.controller_now(which);
        let controller = &mut self.controllers[which];
        let incarnation = controller.incarnation;
        controller.wake = None;
        if self.t < controller.full_until {
            return self.after(FULL_EVERY_MS, Event::Batch { which, incarnation });
        }
        controller.loaded_at = self.t;
        controller.served.clear();
        if which == 0 {
            self.truth.controller_listens(self.t);
        }
        let controller = &mut self.controllers[which];
        let moved = incarnation.is_multiple_of(MOVE_EACH);
        let stored = Snapshot { anchor: controller.anchor, moved, ..controller.store.clone() };
        let Some(writer) = controller.writer.as_mut() else { return };
        let batch = writer.begin(stored.without_ended(whole::holding(incarnation)), now);
        let other = controller.whole.as_mut().and_then(|whole| whole.begin(stored, now, &batch));
        self.check_whole(other);
        self.carry(which, batch);
        // A new controller sends the hooks every notice that they have not carried out.
        self.hooks_poll(which);
        if which == 0 {
            self.schedule(100);
        }
    }

    /// Kills the controller's process: uncommitted changes and all connections are lost. `down_ms`: milliseconds until
    /// the next start; `None`: no start.
    pub(crate) fn kill_controller(&mut self, which: usize, down_ms: Option<u64>) {
        let controller = &mut self.controllers[which];
        if controller.writer.take().is_none() {
            return;
        }
        controller.inbox.clear();
        controller.batch_due = false;
        let conns: Vec<u64> = std::mem::take(&mut controller.sessions).into_values().collect();
        self.log_line(|| format!("c{which} is gone"));
        for conn in conns {
            self.controller_leaves(conn);
        }
        if let Some(down_ms) = down_ms {
            self.begin_controller(which, down_ms.max(1));
        }
    }

    pub(crate) fn controller_receives(&mut self, which: usize, incarnation: u64, input: Input) {
        let controller = &mut self.controllers[which];
        if controller.incarnation != incarnation || !controller.is_running() {
            return;
        }
        controller.inbox.push(input);
        if !std::mem::replace(&mut controller.batch_due, true) {
            let delay = self.dice.skewed(0, 15);
            self.after(delay, Event::Batch { which, incarnation });
        }
    }

    pub(crate) fn session_closed(&mut self, which: usize, incarnation: u64, session: SessionId, why: &str) {
        if self.controllers[which].sessions.contains_key(&session) {
            self.controller_receives(which, incarnation, Input::Closed { session, why: why.to_owned() });
        }
    }

    pub(crate) fn ask(&mut self, which: usize, request: Request) {
        let controller = &mut self.controllers[which];
        controller.clients += 1;
        let (client, incarnation) = (controller.clients, controller.incarnation);
        if let Request::Run(RunRequest { attempt: Some(attempt), .. }) = request.plain() {
            controller.asked.insert(client, *attempt);
        }
        if matches!(request, Request::Ps { held: true, .. }) {
            controller.asked_held.insert(client);
        }
        self.controller_receives(which, incarnation, Input::Request { client, uid: 0, request });
    }

    pub(crate) fn wake_controller(&mut self, which: usize, incarnation: u64, mono_ms: u64) {
        let controller = &mut self.controllers[which];
        if controller.incarnation == incarnation && controller.is_running() && controller.wake == Some(mono_ms) {
            controller.wake = None;
            self.controller_receives(which, incarnation, Input::Tick);
        }
    }

    pub(crate) fn wake_at(&mut self, which: usize, incarnation: u64, mono_ms: u64, lag: u64) {
        let delay = mono_ms.saturating_add(lag).saturating_sub(MONO_MS).saturating_sub(self.t);
        self.after(delay, Event::Wake { which, incarnation, mono_ms });
    }

    pub(crate) fn fill_store(&mut self, ms: u64) {
        self.controllers[0].full_until = self.t + ms;
    }

    pub(crate) fn empty_store_disk(&mut self) {
        for controller in &mut self.controllers {
            controller.full_until = 0;
        }
    }

    pub(crate) fn batch(&mut self, which: usize, incarnation: u64) {
        let now = self.controller_now(which);
        let controller = &mut self.controllers[which];
        if controller.incarnation != incarnation || !controller.is_running() {
            return;
        }
        controller.batch_due = false;
        controller.shown = None;
        controller.begun.clear();
        if !controller.is_up() {
            // Clients and nodes are sent away: clients end, and nodes come again.
            let mut inputs = std::mem::take(&mut controller.inbox);
            inputs.retain(|input| matches!(input, Input::Settings(_)));
            if let Some(writer) = controller.writer.as_mut() {
                let none = writer.handle(inputs.clone(), now);
                debug_assert!(none.records().is_empty(), "no machine, no records");
                controller.whole.iter_mut().for_each(|whole| drop(whole.handle(inputs.clone(), now, &none)));
            }
            return self.load(which);
        }
        let full = self.t < controller.full_until;
        let mut inputs = std::mem::take(&mut controller.inbox);
        let known = &mut controller.sessions;
        inputs.retain(|input| match input {
            Input::Message { session, .. } => known.contains_key(session),
            Input::Closed { session, .. } => known.remove(session).is_some(),
            _ => true,
        });
        inputs.extend(controller.writer.as_mut().and_then(|writer| writer.disk(full)));
        if full {
            self.after(FULL_EVERY_MS, Event::Batch { which, incarnation });
        }
        if inputs.is_empty() {
            return;
        }
        if self.trace.is_read() {
            for input in inputs.iter().filter(|input| is_news(input)) {
                let shown = format!("{input:?}");
                self.log_line(|| format!("c{which} <- {shown}"));
            }
        }
        let controller = &mut self.controllers[which];
        controller.shown = Shown::before(&controller.store, &inputs);
        controller.tombstones.extend(inputs.iter().flat_map(tombstones_of));
        controller.reported = inputs.iter().flat_map(tasks_of).chain(controller.tombstones.iter().copied()).collect();
        controller.served = inputs.iter().filter_map(of_a_service).collect();
        let Some(writer) = controller.writer.as_mut() else { return };
        let store = &controller.store;
        for input in &inputs {
            let (needs, _) = writer.needs(std::slice::from_ref(input), now);
            writer.take_in(store.fetch(&needs), now);
        }
        let batch = writer.handle(inputs.clone(), now);
        let other = controller.whole.as_mut().and_then(|whole| whole.handle(inputs, now, &batch));
        self.check_whole(other);
        self.carry(which, batch);
    }

    /// Checks that a machine that holds every job answered the batch in the same way.
    fn check_whole(&mut self, other: Option<String>) {
        if let Some(text) = other {
            self.violate("a machine that holds every job does the same", &text);
        }
    }

    /// Commits a batch, and only then carries out its effects.
    fn carry(&mut self, which: usize, mut batch: Batch) {
        if defect!(AckBeforeCommit) && !self.leave(which, batch.steal_effects()) {
            return;
        }
        let writes = !batch.records().is_empty();
        let sprung = if which == 0 && writes { self.traps.controller("commit") } else { Sprung::No };
        match sprung {
            Sprung::Before(Spring::CrashBefore { down_ms }) => return self.spring_controller(which, down_ms),
            Sprung::How(How::Fails) => {
                self.injected += 1;
                return self.commit_failed(which, batch);
            }
            _ => {}
        }
        if writes && self.t < self.controllers[which].full_until {
            return self.commit_failed(which, batch);
        }
        if writes {
            self.write(which, batch.records());
        }
        if let Sprung::After(Spring::CrashAfter { down_ms }) = sprung {
            return self.spring_controller(which, down_ms);
        }
        let controller = &mut self.controllers[which];
        let Some(left) = controller.writer.as_mut().map(|writer| writer.committed(batch)) else { return };
        controller.anchor = left.anchor.or(controller.anchor);
        self.leave(which, left.effects);
    }

    /// Checks the records of a batch against what really happened (`truth`), and then commits them.
    fn write(&mut self, which: usize, records: &[Record]) {
        if which == 0 {
            self.truth.note_starts(&self.controllers[0].store, records, self.t);
            self.truth.note_apart(records);
            self.truth.note_given_up(records);
        }
        let reported = std::mem::take(&mut self.controllers[which].reported);
        self.truth.check_abandoned(which, &self.controllers[which].store, records, &reported);
        self.check_losses(which, records);
        let served = std::mem::take(&mut self.controllers[which].served);
        if which == 0 {
            self.truth.served(&self.controllers[0].store, records, &served, self.t);
            self.truth.check_pruned(&self.controllers[0].store, records);
            self.note_forgotten_too_soon(records);
        }
        self.note_recovery(which, records);
        if records.iter().any(|record| matches!(record, Record::Epoch(_))) {
            self.controllers[which].epoch_begun_at = Some(self.t);
        }
        self.commit(which, records);
        self.note_free();
    }

    /// Carries out a controller's effects in order. Returns `false`, and skips the rest, if the process died at an
    /// effect.
    fn leave(&mut self, which: usize, effects: Vec<Effect>) -> bool {
        let incarnation = self.controllers[which].incarnation;
        effects.into_iter().all(|effect| {
            self.effect(which, effect);
            self.controllers[which].incarnation == incarnation && self.controllers[which].is_running()
        })
    }

    pub(crate) fn spring_controller(&mut self, which: usize, down_ms: u64) {
        self.injected += 1;
        self.log_line(|| format!("TRAP on c{which}, down for {down_ms} ms"));
        self.kill_controller(which, Some(down_ms));
    }

    /// Handles a failed commit: every session ends, and the machine is rebuilt from the store.
    fn commit_failed(&mut self, which: usize, mut batch: Batch) {
        self.log_line(|| format!("c{which} cannot commit"));
        if defect!(EffectsAfterFailedCommit) {
            self.leave(which, batch.steal_effects());
        }
        let controller = &mut self.controllers[which];
        if let Some(writer) = controller.writer.as_mut() {
            writer.failed(batch);
        }
        controller.whole.iter_mut().for_each(Whole::failed);
        controller.inbox.clear();
        let conns: Vec<u64> = std::mem::take(&mut controller.sessions).into_values().collect();
        for conn in conns {
            self.controller_leaves(conn);
        }
        let incarnation = self.controllers[which].incarnation;
        self.after(1, Event::Batch { which, incarnation });
    }

    /// Starts a second controller with its own store: a copy of the first store, or an empty one.
    pub(crate) fn second_begins(&mut self, empty: bool, ms: u64) {
        if self.controllers[1].is_running() {
            return;
        }
        let first = &self.controllers[0];
        let (store, anchor) = if empty { (Snapshot::default(), None) } else { (first.store.clone(), first.anchor) };
        self.truth.store_replaced(1, &self.controllers[0].store, &store, self.t);
        (self.controllers[1].store, self.controllers[1].anchor) = (store, anchor);
        self.begin_controller(1, 1);
        let incarnation = self.controllers[1].incarnation + 1;
        self.after(ms, Event::SecondEnds { incarnation });
    }

    pub(crate) fn second_ends(&mut self, incarnation: u64) {
        if self.controllers[1].incarnation == incarnation {
            self.kill_controller(1, None);
        }
    }

    /// Restarts the controller on a random backup of its store. With `empty`, or without any backup, the store is empty
    /// and the anchor is lost.
    pub(crate) fn restore_copy(&mut self, empty: bool) {
        let copies = &self.controllers[0].backups;
        let old = if empty { None } else { copies.get(self.dice.below(copies.len())).cloned() };
        let anchor = old.as_ref().and(self.controllers[0].anchor);
        if anchor.is_none() {
            self.truth.lost_unseen();
        }
        self.restore(old.unwrap_or_default(), anchor);
    }
}

fn of_a_service(input: &Input) -> Option<Request> {
    match input {
        Input::Request { request, .. } => {
            Some(request.plain()).filter(|of| matches!(of, Request::ActionStart(_) | Request::ActionReport(_))).cloned()
        }
        _ => None,
    }
}

/// Returns the tasks that a node reports in an input: a task that ended or expects a reboot, or all tasks of a Hello.
fn tasks_of(input: &Input) -> Vec<TaskId> {
    match input {
        Input::Message { message: FromAgent::Finished { task, .. } | FromAgent::ExpectsBoot { task, .. }, .. } => {
            vec![*task]
        }
        Input::Message { message: FromAgent::Hello(hello), .. } => hello.tasks.iter().map(|held| held.task).collect(),
        _ => Vec::new(),
    }
}

/// Returns the tasks whose tombstones are in an input, if it is a node's Hello.
fn tombstones_of(input: &Input) -> Vec<TaskId> {
    let Input::Message { message: FromAgent::Hello(hello), .. } = input else { return Vec::new() };
    let tombstones = hello.tasks.iter().filter(|held| matches!(held.state, HeldState::Tombstone { .. }));
    tombstones.map(|held| held.task).collect()
}

const fn is_news(input: &Input) -> bool {
    match input {
        Input::Request { request, .. } => {
            matches!(
                request.plain(),
                Request::Run(_)
                    | Request::ActionStart(_)
                    | Request::ActionReport(_)
                    | Request::Cancel { .. }
                    | Request::Resolve { .. }
                    | Request::Signal { .. }
                    | Request::Recover { take_over: true }
                    | Request::Undrain { .. }
                    | Request::JobAdd(_)
                    | Request::JobFinish { .. }
            )
        }
        _ => true,
    }
}
