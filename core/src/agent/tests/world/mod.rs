//! Simulated world around the machine: files, systemd, a runner per unit, and the controller's end of the connection.
//! The world answers effects in any order, fails them, answers late or never, and loses the bus and the agent. The
//! world knows what really ran, and compares every report of the machine with that.

mod systemd;
mod truth;

use std::collections::{BTreeMap, BTreeSet};

use crate::agent::io::{Effect, Found, HookEvent, Input, Now, Seen};
use crate::agent::machine::Machine;
use crate::agent::tombstones::brief;
use crate::ids::TaskId;
use crate::mark::AcceptedEpoch;
use crate::message::ToAgent;
use crate::outcome::Outcome;
use crate::task::{Claim, Ended, Intent, RunResult, Tombstone};

use super::values::*;
use systemd::{Unit, UnitState};

#[derive(Debug, Default, Clone)]
pub(super) struct Dir {
    pub(super) intent: Option<Intent>,
    pub(super) claim: Option<Claim>,
    result: Option<RunResult>,
    pub(super) outcome: Option<Ended>,
    pub(super) stop_asked: bool,
}

/// The way in which the world carries out an effect of the machine.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Fate {
    Done,
    Failed,
    /// For a start of a unit: the unit starts, but the machine gets no answer.
    Unanswered,
    /// For a start of a unit: the machine gets no answer, and the unit starts later.
    Late,
    /// For a start of a unit: the machine gets no answer, and the unit never starts.
    Swallowed,
}

#[derive(Debug, PartialEq, Clone, Copy)]
enum Link {
    Down,
    Greeted,
    Open,
}

pub(super) struct World {
    machine: Machine,
    now: Now,
    pub(super) joined: bool,
    pub(super) bus: bool,
    link: Link,
    counter: u64,

    pub(super) dirs: BTreeMap<String, Dir>,
    pub(super) tombstones: BTreeMap<String, Tombstone>,
    epoch_file: Option<AcceptedEpoch>,
    pub(super) units: BTreeMap<String, Unit>,
    /// Intents of the tasks whose start PID 1 has not handled yet.
    pub(super) late: Vec<Intent>,
    invocations: u8,

    pub(super) outstanding: Vec<Effect>,
    /// Stems of the units whose changes the simulated systemd reports to the agent, each with its task; empty after the
    /// bus is lost.
    interest: BTreeMap<String, TaskId>,
    watch_empty: BTreeSet<String>,
    /// Stems of the units with a change that the simulated systemd has still to report.
    pub(super) changes: BTreeSet<String>,

    /// How often the scripts of each task really ran.
    ran: BTreeMap<TaskId, u32>,
    /// The exit status of each task, and whether the task was cancelled.
    ends: BTreeMap<TaskId, (u8, bool)>,
    /// Tasks whose tombstones are gone. If systemd starts the unit of such a task late, that unit is the task's only
    /// trace.
    forgotten: BTreeSet<TaskId>,
    /// Whether any unit has started, or may still start, without systemd's answer to the machine. From then on the
    /// machine cannot know all live units, and the world does not require it to.
    pub(super) ever_late: bool,
    pub(super) accepted: BTreeSet<TaskId>,
    pub(super) finished: BTreeMap<TaskId, Outcome>,
    /// The controller's answers that are still to be sent: Begin for unclaimed tasks of a Hello, Ack for a Finished.
    pub(super) replies: Vec<ToAgent>,
}

impl World {
    pub(super) fn new() -> Self {
        Self {
            machine: Machine::new(node()),
            now: Now::default(),
            joined: false,
            bus: false,
            link: Link::Down,
            counter: 0,
            dirs: BTreeMap::new(),
            tombstones: BTreeMap::new(),
            epoch_file: None,
            units: BTreeMap::new(),
            late: Vec::new(),
            invocations: 0,
            outstanding: Vec::new(),
            interest: BTreeMap::new(),
            watch_empty: BTreeSet::new(),
            changes: BTreeSet::new(),
            ran: BTreeMap::new(),
            ends: BTreeMap::new(),
            forgotten: BTreeSet::new(),
            ever_late: false,
            accepted: BTreeSet::new(),
            finished: BTreeMap::new(),
            replies: Vec::new(),
        }
    }

    pub(super) fn feed(&mut self, input: Input) {
        let shown = format!("{input:?}");
        for effect in self.machine.handle(input, self.now) {
            self.absorb(effect, &shown);
        }
    }

    pub(super) fn pass(&mut self, ms: u64) {
        self.now.boot_ms += ms;
        self.feed(Input::Tick);
    }

    fn absorb(&mut self, effect: Effect, input: &str) {
        match &effect {
            Effect::Send(message) => return self.receive(message.clone(), input),
            Effect::Hang { .. } => self.link = Link::Down,
            Effect::RedialWindow { .. } => {
                assert!(self.epoch_file.is_some(), "accepted before the epoch was on disk: {input}");
                self.link = Link::Open;
            }
            Effect::StartUnit { stem, intent, .. } => self.check_start(stem, intent, input),
            Effect::ExecReply { .. } | Effect::StatusReply { .. } | Effect::Answer { .. } => {}
            Effect::WakeAt { .. } | Effect::Note { .. } => {}
            _ => {}
        }
        if is_for_the_bus(&effect) {
            assert!(self.bus, "{effect:?} without a bus: {input}");
        }
        if is_carried_out(&effect) {
            self.outstanding.push(effect);
        }
    }

    /// Carries out one of the waiting effects, which `at` chooses, as `fate` says. The machine gets the answer if its
    /// agent still lives.
    pub(super) fn carry_out(&mut self, at: usize, fate: Fate) {
        if self.outstanding.is_empty() {
            return;
        }
        let mut at = at % self.outstanding.len();
        if !is_for_the_bus(&self.outstanding[at]) {
            // The daemon writes files in the order of the effects.
            at = self.outstanding.iter().position(|effect| !is_for_the_bus(effect)).unwrap_or(at);
        }
        let effect = self.outstanding.remove(at);
        for answer in self.apply(effect, fate) {
            self.feed(answer);
        }
    }

    fn apply(&mut self, effect: Effect, fate: Fate) -> Vec<Input> {
        let failed = fate == Fate::Failed;
        let result = if failed { Err("it failed".to_owned()) } else { Ok(()) };
        match effect {
            Effect::WriteIntent { stem, intent } => {
                let task = intent.start.task;
                if !failed {
                    if !intent.is_rebuilt() {
                        self.tombstones.remove(&stem);
                    }
                    let dir = self.dirs.entry(stem).or_default();
                    if !intent.is_rebuilt() {
                        dir.outcome = None;
                    }
                    dir.intent = Some(*intent);
                }
                vec![Input::IntentWritten { task, result }]
            }
            Effect::StartUnit { stem, intent, .. } => {
                vec![Input::Started { task: intent.start.task, reply: self.start(stem, *intent, fate) }]
            }
            Effect::Watch { stem, task } => {
                self.interest.insert(stem, task);
                vec![Input::TaskChanged { task }]
            }
            Effect::WatchEmpty { task, .. } => {
                let stem = self.units.iter().find(|(_, u)| u.intent.start.task == task);
                match stem {
                    Some((stem, unit)) if unit.left_behind => {
                        self.watch_empty.insert(stem.clone());
                        vec![]
                    }
                    _ => vec![Input::TaskChanged { task }],
                }
            }
            Effect::Inspect { stem, task } => {
                let seen = if failed { Err("it failed".to_owned()) } else { Ok(self.look(&stem)) };
                vec![Input::Inspected { task, seen }]
            }
            Effect::TakeClaim { stem, task, claim } => {
                let dir = self.dirs.entry(stem).or_default();
                let ours = dir.claim.is_none() || !matches!(dir.claim, Some(Claim::Runner(_)));
                if !failed {
                    dir.claim.get_or_insert(claim);
                }
                vec![Input::ClaimTaken { task, result: result.map(|()| ours) }]
            }
            Effect::SignalRunner { stem, signal } => {
                if let Some(dir) = self.dirs.get_mut(&stem).filter(|_| signal == 15) {
                    dir.stop_asked = true;
                }
                if !failed && matches!(signal, 15 | 43) {
                    self.end_script(&stem, if signal == 15 { 143 } else { 137 }, signal == 15, false);
                }
                vec![]
            }
            Effect::KillLingering { stem } => {
                self.empty(&stem);
                vec![]
            }
            Effect::WriteOutcome { stem, task, ended, rebuilt } => {
                if !failed {
                    let dir = self.dirs.entry(stem).or_default();
                    dir.intent.get_or_insert(*rebuilt);
                    dir.outcome = Some(*ended);
                }
                vec![Input::OutcomeWritten { task, result }]
            }
            Effect::Unload { stem } => {
                if let Some(unit) = self.units.get(&stem) {
                    // A late unit that has not ended cannot claim.
                    assert!(unit.state != UnitState::Running && !unit.left_behind, "{stem} is unloaded while it lives");
                }
                self.units.remove(&stem);
                vec![Input::Unloaded { stem, result: Ok(()) }]
            }
            Effect::WriteTombstone { stem, tombstone } => {
                let task = tombstone.task;
                if !failed {
                    self.tombstones.insert(stem.clone(), *tombstone);
                    self.dirs.remove(&stem);
                }
                vec![Input::TombstoneWritten { task, result }]
            }
            Effect::RemoveTombstone { stem, task } => {
                self.forgotten.insert(task);
                self.tombstones.remove(&stem);
                vec![]
            }
            Effect::WriteEpoch { accepted: epoch } => {
                if !failed {
                    self.epoch_file = Some(epoch);
                }
                vec![Input::EpochWritten { epoch: epoch.epoch, result }]
            }
            Effect::CallHook(notifying) => {
                if notifying.event == HookEvent::Ended {
                    let known = self.dirs.get(&notifying.stem).is_some_and(|dir| dir.outcome.is_some());
                    assert!(known, "the end of {} was reported before it was on disk", notifying.stem);
                }
                vec![Input::HookCalled { task: notifying.task, event: notifying.event, result }]
            }
            other => panic!("{other:?} is not carried out"),
        }
    }

    /// Kills the agent. `done`: whether the pending effects were carried out; their answers are lost in any case.
    pub(super) fn kill_agent(&mut self, done: bool) {
        self.forget_bus(done);
        for effect in std::mem::take(&mut self.outstanding) {
            if done {
                self.apply(effect, Fate::Done);
            }
        }
        (self.joined, self.bus, self.link) = (false, false, Link::Down);
        self.replies.clear();
        self.machine = Machine::new(node());
    }

    /// Connects to the bus anew, and reports all units and directories to the machine in a `Joined`.
    pub(super) fn join(&mut self) {
        // The bus is a new connection: calls of the old connection get no answer.
        self.forget_bus(true);
        let stems: BTreeSet<String> = self.dirs.keys().chain(self.units.keys()).cloned().collect();
        let found = stems.into_iter().map(|stem| {
            let dir = self.dirs.get(&stem).cloned().unwrap_or_default();
            let Seen { unit, unit_ids, processes, claim, result, steps, tails, stop_asked, .. } = self.look(&stem);
            Found {
                stem,
                intent: dir.intent,
                claim,
                ended: dir.outcome,
                result,
                steps,
                tails,
                stop_asked,
                unit,
                processes,
                unit_ids,
            }
        });
        let found: Vec<Found> = found.collect();
        let first = !self.joined;
        (self.joined, self.bus) = (true, true);
        let tombstones = if first { self.tombstones.values().cloned().collect() } else { vec![] };
        let accepted = self.epoch_file.filter(|_| first);
        self.feed(Input::Joined { found, tombstones, accepted });
    }

    pub(super) fn link_up(&mut self) {
        self.counter += 1;
        self.link = Link::Greeted;
        self.replies.clear();
        self.feed(Input::LinkUp { counter: self.counter });
    }

    pub(super) fn link_down(&mut self) {
        self.link = Link::Down;
        self.feed(Input::LinkDown);
    }

    pub(super) fn welcome(&mut self, number: u64) {
        if self.link == Link::Greeted {
            self.feed(welcome(number));
        }
    }

    /// Sends a message of the controller to the machine, if the session is open.
    pub(super) fn order(&mut self, message: ToAgent) {
        if self.link == Link::Open {
            self.feed(Input::Message(message));
        }
    }

    /// Ends the random history: runs the world until nothing is left to do, and asserts that each accepted task has
    /// ended. Meanwhile no effect fails, all scripts end, and the controller answers.
    pub(super) fn settle(&mut self) {
        self.link_down();
        for round in 0..200 {
            if !self.bus {
                self.join();
            }
            if self.link == Link::Down {
                self.link_up();
                self.welcome(9);
            }
            let (mut idle, busy) =
                (true, !self.outstanding.is_empty() || !self.replies.is_empty() || !self.late.is_empty());
            idle &= !busy && self.changes.is_empty();
            while !self.late.is_empty() {
                self.late_start(0);
            }
            while !self.outstanding.is_empty() {
                self.carry_out(0, Fate::Done);
            }
            for at in 0..self.units.len() {
                self.step(at, 0, false);
            }
            while !self.changes.is_empty() {
                self.deliver(0);
            }
            for reply in std::mem::take(&mut self.replies) {
                self.order(reply);
            }
            // Passes every backoff; passes every not-after when nothing else helps.
            self.pass(if idle { 4_000_000 } else { 2_000 });
            if idle && round > 20 && self.outstanding.is_empty() {
                break;
            }
        }
        let held: Vec<&String> = self.dirs.keys().collect();
        assert!(held.is_empty(), "{held:?} did not come to an end: {}", self.machine.status_line());
        for task in &self.accepted {
            let local = self.tombstones.values().any(|entry| entry.task == *task && entry.local);
            assert!(local || self.finished.contains_key(task), "{task} was accepted and its end was never reported");
        }
        let loaded = self.units.values().filter(|unit| unit.state != UnitState::Over(75)).count();
        assert!(loaded <= node().policy.keep_failed + self.late_units(), "{loaded} units stay loaded");
        assert_eq!(self.machine.status_line(), "connected; idle");
    }

    /// Returns the number of units whose tasks ran no script: normally, systemd started such a unit after the end of
    /// its task.
    fn late_units(&self) -> usize {
        self.units.values().filter(|unit| !self.ran.contains_key(&unit.intent.start.task)).count()
    }
}

fn is_for_the_bus(effect: &Effect) -> bool {
    matches!(
        effect,
        Effect::StartUnit { .. }
            | Effect::Watch { .. }
            | Effect::WatchEmpty { .. }
            | Effect::Inspect { .. }
            | Effect::SignalRunner { .. }
            | Effect::KillLingering { .. }
            | Effect::Unload { .. }
    )
}

fn is_carried_out(effect: &Effect) -> bool {
    is_for_the_bus(effect)
        || matches!(
            effect,
            Effect::WriteIntent { .. }
                | Effect::TakeClaim { .. }
                | Effect::WriteOutcome { .. }
                | Effect::WriteTombstone { .. }
                | Effect::RemoveTombstone { .. }
                | Effect::WriteEpoch { .. }
                | Effect::CallHook(_)
        )
}
