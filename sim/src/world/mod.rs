//! The simulated world: nodes with systemd, spool and agent, a network, controllers with their stores, operators. The
//! same plan always gives the same history, byte for byte.
//!
//! The machines are the machines of the daemons; every other part here models what surrounds the daemons. The files:
//!
//! * time: `event`, `queue`, `ending` (the last hours of a world)
//! * a node: `node`, `spool`, `systemd` and `pid1` (units, and the calls about them), `runner`, `signals`, `reboot`
//! * the daemons: `agent` and `carry` (the agent's loop, and its effects), `controller` and `deliver` (the writer, and
//!   its effects), `network`
//! * the site: `site` (names, configuration, scripts), `operator`, `person`, `scheduler`, `services`, `hooks`
//! * faults: `faults`, `rollback`, `traps`
//! * checks beside `truth`: `promises`, `orphans`, `watch`, `ps`

mod agent;
mod carry;
mod controller;
mod deliver;
mod ending;
pub(crate) mod event;
mod faults;
mod hooks;
mod leftovers;
mod network;
mod node;
mod operator;
mod orphans;
mod person;
mod pid1;
mod promises;
mod ps;
mod queue;
mod reboot;
mod rollback;
mod runner;
mod scheduler;
mod services;
mod shown;
mod signals;
pub(crate) mod site;
mod spool;
mod stalled;
mod systemd;
mod traps;
mod watch;
mod whole;

use std::collections::BTreeMap;

use perilog_core::TaskId;

use crate::history::{Trace, Violation};
use crate::plan::{Plan, What};
use crate::rng::Rng;
use crate::truth::Truth;

use controller::Controller;
use event::Event;
use network::Conn;
use node::Node;
use queue::Queue;
use traps::Traps;
use watch::Watch;

/// Maximum number of events in one history; a longer history is a loop.
const MAX_STEPS: u64 = 3_000_000;

pub(crate) struct World {
    pub(crate) plan: Plan,
    /// Milliseconds since the world began.
    pub(crate) t: u64,
    queue: Queue,
    dice: Rng,
    pub(crate) nodes: Vec<Node>,
    pub(crate) controllers: Vec<Controller>,
    conns: BTreeMap<u64, Conn>,
    conns_ever: u64,
    invocations: u64,
    /// Callers on the local sockets of nodes, by number: the node's index, and the requested task.
    callers: BTreeMap<u64, (usize, TaskId)>,
    /// The argument of `site::settings` that gives the settings that the controllers have now.
    settings: u8,
    /// The services that run external actions.
    services: Vec<services::Service>,
    /// The hooks of the resource manager.
    manager: hooks::Manager,
    scheduler: scheduler::Scheduler,
    person: person::Person,
    /// Earlier states of the controller or of the resource manager, for later rollbacks; `None`: the rollback has used
    /// up the copy.
    copies: Vec<Option<rollback::Copy>>,
    /// Number of times that each fault of memory struck, by its name, such as `store lost`: a fault of memory loses or
    /// restores an earlier state ([`crate::plan::Fault::of_memory`]). Also the number of recoveries that controllers
    /// entered and left ([`crate::plan::RECOVERIES`]).
    pub(crate) memory: BTreeMap<&'static str, u64>,
    pub(crate) truth: Truth,
    watch: Watch,
    pub(crate) traps: Traps,
    pub(crate) trace: Trace,
    pub(crate) violation: Option<Violation>,
    /// Number of faults that have struck so far.
    pub(crate) injected: u64,
    /// Whether faults have stopped.
    quiet: bool,
    /// World time (ms) by which every action must have its verdict; `u64::MAX` until the faults stop.
    verdicts_at: u64,
    over: bool,
}

impl World {
    pub(crate) fn new(plan: Plan, trace: Trace) -> Self {
        let dice = Rng::named(plan.seed, "latency");
        let nodes = (0..plan.nodes).map(|index| Node::new(index, index, plan.exclusive.contains(&index))).collect();
        let mut world = Self {
            t: 0,
            queue: Queue::default(),
            dice,
            nodes,
            controllers: vec![Controller::default(), Controller::default()],
            conns: BTreeMap::new(),
            conns_ever: 0,
            invocations: 0,
            callers: BTreeMap::new(),
            settings: 0,
            services: Vec::new(),
            manager: hooks::Manager::default(),
            scheduler: scheduler::Scheduler::default(),
            person: person::Person::default(),
            copies: Vec::new(),
            memory: BTreeMap::new(),
            truth: Truth::default(),
            watch: Watch::default(),
            traps: Traps::new(&plan.traps),
            trace,
            violation: None,
            injected: 0,
            quiet: false,
            verdicts_at: u64::MAX,
            over: false,
            plan,
        };
        world.truth.exclusive(&world.plan.exclusive);
        for (index, step) in world.plan.steps.iter().enumerate() {
            world.queue.push(step.at_ms, Event::Step(index));
        }
        world.queue.push(world.plan.horizon_ms, Event::Quiet);
        world.begin_controller(0, 1);
        for node in 0..world.nodes.len() {
            let delay = world.dice.range(1, 1_000);
            world.after(delay, Event::Boot { node });
        }
        world
    }

    /// Runs the world until its last event, or until an invariant is violated.
    pub(crate) fn run(&mut self) {
        while !self.over && self.violation.is_none() {
            let Some((at_ms, event)) = self.queue.pop() else { break };
            self.t = self.t.max(at_ms);
            self.trace.steps += 1;
            if self.trace.steps > MAX_STEPS {
                return self.violate("rest", "it goes on and on");
            }
            self.watch();
            self.happens(event);
            if let Some(text) = self.truth.take_broken() {
                self.violate("truth", &text);
            }
        }
    }

    fn happens(&mut self, event: Event) {
        match event {
            Event::Step(index) => self.step(index),
            Event::Quiet => self.quiet(),
            Event::TidyUp => self.tidy_up(),
            Event::Verdicts => self.check_verdicts(),
            Event::Reconnect => self.reconnect(),
            Event::Rest => self.check_rest(),
            Event::Boot { node } => self.boot(node),
            Event::Goes { node, boot, down_ms, soft } => self.goes(node, boot, down_ms, soft),
            Event::AgentUp { node, boot } => self.agent_up(node, boot),
            Event::Continue { node, incarnation } => self.continue_agent(node, incarnation),
            Event::Agent { node, incarnation, event } => self.agent_event(node, incarnation, event),
            Event::Dial { node, incarnation } => self.dial(node, incarnation),
            Event::Answered { node, incarnation, conn, question } => self.answered(node, incarnation, conn, question),
            Event::Call { node, boot, from, call } => self.pid1(node, boot, from, call),
            Event::Unit { node, boot, stem, serial, act } => self.unit_acts(node, boot, stem, serial, act),
            Event::Deliver { conn, to } => self.deliver(conn, to),
            Event::Silence { conn, side } => self.silence(conn, side),
            Event::ControllerUp { which, incarnation } => self.controller_up(which, incarnation),
            Event::Batch { which, incarnation } => self.batch(which, incarnation),
            Event::Service { index } => self.service_turn(index),
            Event::FailedNotice { incarnation, host, notice_id, lifted } => {
                self.hooked(incarnation, host, notice_id, lifted)
            }
            Event::Hooks { incarnation } => self.request_notices(incarnation),
            Event::Wake { which, incarnation, mono_ms } => self.wake_controller(which, incarnation, mono_ms),
            Event::SecondEnds { incarnation } => self.second_ends(incarnation),
            Event::Restored { copy } => self.restored(copy),
            Event::Scheduler => self.scheduler_turn(),
            Event::Person => self.person_comes(),
            Event::CloneEnds { node, boot } => self.clone_ends(node, boot),
        }
    }

    fn step(&mut self, index: usize) {
        let Some(step) = self.plan.steps.get(index).cloned() else { return };
        match step.what {
            What::Do(op) => self.operate(op),
            What::Fault(fault) if !self.quiet => {
                self.injected += 1;
                self.log_line(|| format!("FAULT {fault:?}"));
                if let Some(what) = fault.of_memory() {
                    *self.memory.entry(what).or_default() += 1;
                }
                self.fault(fault);
            }
            What::Fault(_) => {}
        }
    }

    pub(crate) fn after(&mut self, ms: u64, event: Event) {
        self.queue.push(self.t + ms, event);
    }

    /// Adds a line to the history; `line` runs only if the history is read.
    pub(crate) fn log_line(&mut self, line: impl FnOnce() -> String) {
        let t = self.t;
        self.trace.log_line(t, line);
    }

    pub(crate) fn violate(&mut self, invariant: &str, text: &str) {
        let t = self.t;
        self.trace.log_line(t, || format!("VIOLATED {invariant}: {text}"));
        self.violation.get_or_insert_with(|| Violation {
            invariant: invariant.to_owned(),
            text: text.to_owned(),
            at_ms: t,
        });
    }
}
