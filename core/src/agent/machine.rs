//! State of the machine, and the dispatch of each input to the file that handles it. Each such file is an `impl
//! Machine`.

use std::collections::{BTreeMap, VecDeque};

use crate::ids::{JobId, TaskId};
use crate::message::FromAgent;
use crate::outcome::Outcome;
use crate::task::{Ended, Tombstone};

use super::backoff::Backoff;
use super::io::{Caller, Effect, Exec, Input, Level, Node, Now};
use super::session::Session;
use super::task::{State, Task};
use super::tombstones::Tombstones;

/// The agent's machine: the tasks of a node, their tombstones, and the session with the controller. It does no I/O
/// and reads no clock. [`super`] shows the states of a task.
///
/// The caller, which is the daemon's loop or the simulator, keeps this order:
///
/// 1. [`Self::new`]; then [`Input::Joined`] with what the directories, the units and the results on the host show.
///    Before `Joined`, the machine touches no task and sends no Hello. `Joined` comes again after a lost bus and a
///    daemon-reexec.
/// 2. [`Self::handle`] one input, and carry out its effects in their order, before the next input. An effect that
///    reports back (a write, a start, an inspection) does so with the input of its name, once, even if it failed.
/// 3. [`Effect::WakeAt`] names the time (CLOCK_BOOTTIME) of the next [`Input::Tick`]. Without it the machine waits
///    for nothing, and an idle agent does not wake.
///
/// The machine guarantees: a file that a later report rests on is written before that report (the intent before
/// `Accepted`, the outcome before `Finished`), so a restarted agent finds all that was reported (step 1); a unit is
/// started once for a claim; an end is reported until it is acknowledged; no input makes it panic, and no collection
/// grows without a bound ([`Self::sizes`]).
#[derive(Debug)]
pub struct Machine {
    pub(super) node: Node,
    /// Tasks with a directory, or with an intent under way to disk.
    pub(super) tasks: BTreeMap<TaskId, Task>,
    pub(super) tombstones: Tombstones,
    /// The task of each stem, for tasks and for tombstones.
    pub(super) stems: BTreeMap<String, TaskId>,
    /// Stems that belong to no task: `true` for a loaded unit, `false` for a directory. The machine logs each stem
    /// once, and again if that value changes.
    pub(super) unknown_units: BTreeMap<String, bool>,
    /// Stems of failed units that stay loaded for a post-mortem, the oldest first.
    pub(super) kept_failed: VecDeque<String>,
    /// Stems of units that the machine is unloading: the daemon has not confirmed yet that the unit is gone.
    pub(super) unloading: BTreeMap<String, Backoff>,
    pub(super) session: Session,
    /// Whether the first `Joined` has come. Before the join, the machine does not know the host's tasks.
    pub(super) joined: bool,
    /// Whether the daemon has a connection to the system bus, and so to systemd.
    pub(super) bus: bool,
    /// Callers of Exec whose request the machine cannot handle yet. A request waits for the first `Joined`. If the same
    /// task ran before a soft reboot, the request waits until the agent has written that task's tombstone.
    pub(super) early: VecDeque<(Caller, Exec)>,
    pub(super) next_seq: u64,
    /// CLOCK_BOOTTIME (ms) of the tick that the machine has requested; `None`: it has requested no tick.
    armed: Option<u64>,
}

/// Context in which the machine handles one input: the time, and the effects collected so far.
pub(super) struct Cx {
    pub(super) now: Now,
    effects: Vec<Effect>,
}

impl Cx {
    pub(super) fn push(&mut self, effect: Effect) {
        self.effects.push(effect);
    }

    pub(super) fn note(&mut self, level: Level, task: Option<TaskId>, job: Option<&JobId>, text: impl Into<String>) {
        self.push(Effect::Note { level, task, job: job.cloned(), text: text.into() });
    }
}

impl Machine {
    pub fn new(node: Node) -> Self {
        Self {
            node,
            tasks: BTreeMap::new(),
            tombstones: Tombstones::default(),
            stems: BTreeMap::new(),
            unknown_units: BTreeMap::new(),
            kept_failed: VecDeque::new(),
            unloading: BTreeMap::new(),
            session: Session::default(),
            joined: false,
            bus: false,
            early: VecDeque::new(),
            next_seq: 0,
            armed: None,
        }
    }

    /// Returns the name and size of each collection that has no bound of its own, for tests. A tombstone goes after its
    /// Forget and its not-after. Once every task has ended and has become a tombstone, all other sizes are 0.
    pub fn sizes(&self) -> [(&'static str, usize); 5] {
        [
            ("tasks", self.tasks.len()),
            ("tombstones", self.tombstones.len()),
            ("stems without a task", self.stems.len().saturating_sub(self.tasks.len() + self.tombstones.len())),
            ("units to unload", self.unloading.len()),
            ("callers of Exec that wait", self.early.len()),
        ]
    }

    /// Handles one input that arrives at the time `now`. Returns the effects in the order in which the daemon must
    /// carry them out.
    pub fn handle(&mut self, input: Input, now: Now) -> Vec<Effect> {
        let mut cx = Cx { now, effects: Vec::new() };
        let cx = &mut cx;
        self.take(input, cx);
        if self.joined {
            self.retry_due(cx);
            self.call_orphaned_hooks(cx);
            self.expire(cx);
            self.sweep_tombstones(cx);
            self.begin_queued(cx);
        }
        self.arm(cx);
        std::mem::take(&mut cx.effects)
    }

    fn take(&mut self, input: Input, cx: &mut Cx) {
        match input {
            Input::Joined { found, tombstones, accepted } => self.on_joined(found, tombstones, accepted, cx),
            Input::BusLost => self.on_bus_lost(cx),
            Input::LinkUp { counter } => self.on_link_up(counter, cx),
            Input::LinkDown => self.on_link_down(),
            Input::Message(message) => self.on_message(message, cx),
            Input::EpochWritten { epoch, result } => self.on_epoch_written(epoch, result, cx),
            Input::Unloaded { stem, result } => self.on_unloaded(stem, result, cx),
            Input::IntentWritten { task, result } => self.on_intent_written(task, result, cx),
            Input::Started { task, reply } => self.on_started(task, reply, cx),
            Input::TaskChanged { task } => self.on_task_changed(task, cx),
            Input::Inspected { task, seen } => self.on_inspected(task, seen, cx),
            Input::ClaimTaken { task, result } => self.on_claim_taken(task, result, cx),
            Input::OutcomeWritten { task, result } => self.on_outcome_written(task, result, cx),
            Input::TombstoneWritten { task, result } => self.on_tombstone_written(task, result, cx),
            // If nothing is due yet, `arm` requests another tick.
            Input::Tick => self.armed = None,
            Input::Policy(policy) => {
                let others = !policy.actions.keys().eq(self.node.policy.actions.keys());
                self.node.policy = policy;
                self.trim_kept_failed(cx);
                if others {
                    self.greet_anew(cx);
                }
            }
            Input::Exec { caller, exec } => self.on_exec(caller, exec, cx),
            Input::Hangup { caller } => self.on_hangup(caller, cx),
            Input::DaemonDied { caller, task } => self.on_daemon_died(caller, task, cx),
            Input::HookCalled { task, event, result } => self.on_hook_called(task, event, result, cx),
            Input::CancelLocal { caller, task } => self.on_cancel_local(caller, task, cx),
            Input::Status { caller } => {
                let tasks = self.statuses(cx.now, |_| true);
                cx.push(Effect::StatusReply { caller, tasks });
            }
        }
    }

    /// Returns the ids of all tasks, in the order in which this agent learned of them.
    pub(super) fn in_order(&self) -> Vec<TaskId> {
        let mut ids: Vec<TaskId> = self.tasks.keys().copied().collect();
        ids.sort_by_key(|id| self.tasks.get(id).map(|task| task.seq));
        ids
    }

    /// Sends a message to the controller, if a session is open; otherwise drops the message.
    pub(super) fn send(&self, cx: &mut Cx, message: FromAgent) {
        if self.session.is_open() {
            cx.push(Effect::Send(message));
        }
    }

    pub(super) fn send_tombstone(&self, cx: &mut Cx, tombstone: &Tombstone) {
        let ended = Box::new(self.end_by_tombstone(tombstone, cx.now));
        self.send(cx, FromAgent::Finished { task: tombstone.task, ended });
    }

    pub(super) fn end_by_tombstone(&self, tombstone: &Tombstone, now: Now) -> Ended {
        Ended::of_tombstone(tombstone.outcome.clone(), tombstone.reboot(&self.node.boot), now.wall_ms)
    }

    /// Reports to the controller the outcome of a task that the agent did not accept. The reported end has no details.
    pub(super) fn send_bare_end(&self, cx: &mut Cx, task: TaskId, outcome: Outcome) {
        let ended = Box::new(Ended::bare(outcome, cx.now.wall_ms));
        self.send(cx, FromAgent::Finished { task, ended });
    }

    /// Asks the daemon once more for failed operations whose backoff is over, and for the inspections that are due.
    /// Other functions try starts and the programs of orphaned hooks again. Operations on the bus wait for the bus.
    fn retry_due(&mut self, cx: &mut Cx) {
        let now = cx.now;
        let (mut inspections, mut silent) = (Vec::new(), Vec::new());
        for (id, task) in &mut self.tasks {
            if let Some(claiming) = &mut task.claiming
                && claiming.again.take_due(now)
            {
                cx.push(Effect::TakeClaim { stem: task.stem.clone(), task: *id, claim: claiming.claim.clone() });
            }
            let watch_due = task.watch_at().is_some_and(|at| at <= now.boot_ms);
            if watch_due && !(self.bus && task.can_be_inspected()) {
                silent.push(*id);
            } else if self.bus && (task.inspection.backoff.take_due(now) || watch_due) {
                inspections.push(*id);
            }
            if task.write_again.take_due(now) {
                task.write_ending(cx);
            }
        }
        for id in inspections {
            self.inspect(id, cx);
        }
        for id in silent {
            self.watch_blindly(id, cx);
        }
        let unload = self.unloading.iter_mut().filter(|_| self.bus);
        for (stem, _) in unload.filter_map(|(stem, again)| again.take_due(now).then_some((stem, again))) {
            cx.push(Effect::Unload { stem: stem.clone() });
        }
        for (stem, tombstone) in self.tombstones.take_due(now) {
            cx.push(Effect::WriteTombstone { stem, tombstone: Box::new(tombstone) });
        }
    }

    /// Requests a tick for the next due operation, unless an earlier tick is requested already. Requests none if no
    /// operation waits for a time, so that an idle agent does not wake.
    fn arm(&mut self, cx: &mut Cx) {
        if self.armed.is_some_and(|at| at <= cx.now.boot_ms) {
            self.armed = None;
        }
        let Some(due) = self.next_due(cx.now) else { return };
        let due = due.max(cx.now.boot_ms.saturating_add(1));
        if self.armed.is_none_or(|at| due < at) {
            self.armed = Some(due);
            cx.push(Effect::WakeAt { boot_ms: due });
        }
    }

    fn next_due(&self, now: Now) -> Option<u64> {
        let of_task = |task: &Task| {
            let claim = task.claiming.as_ref().and_then(|c| c.again.at());
            let inspect = task.inspection.backoff.at().filter(|_| self.bus);
            let start = task.start_again.at().filter(|_| self.bus && matches!(task.state, State::Queued));
            let expiry = task.expires().then(|| task.intent.not_after_boottime_ms.saturating_add(1));
            let watch = task.watch_at();
            [claim, inspect, start, task.write_again.at(), expiry, task.orphan_due_ms(now), watch]
        };
        let tasks = self.tasks.values().flat_map(of_task).flatten().min();
        let unload = self.unloading.values().filter(|_| self.bus).filter_map(Backoff::at).min();
        tasks.into_iter().chain(self.tombstones.next_due()).chain(unload).min()
    }
}
