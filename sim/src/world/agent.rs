//! The agent's loop, as in the daemon: an event becomes an input, the machine handles the input, and the loop carries
//! out the effects in order. If an effect gives a new input at once, the machine handles that input before any other
//! event.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use perilog_core::agent::io::{Effect, Found, Seen, StartReply};
use perilog_core::agent::{Input, Machine, Policy};
use perilog_core::task::UnitFacts;
use perilog_core::{InvocationId, TaskId};
use perilog_proto::{Decoded, decode_to_agent};

use super::World;
use super::event::{AgentEvent, Call, Caller, Event};
use super::systemd::UnitView;
use super::traps::Sprung;

/// Time (ms) after which the agent gives up a call to systemd without an answer (`agent/src/systemd/bus.rs`).
const CALL_LIMIT_MS: u64 = 60_000;

pub(crate) struct Agent {
    pub(crate) incarnation: u64,
    /// World time (ms) at which the agent's process began.
    pub(crate) came_up: u64,
    pub(crate) machine: Machine,
    /// The configuration that the agent last read.
    pub(super) releases: Policy,
    pub(crate) inputs: VecDeque<Input>,
    /// Whether a SIGSTOP holds the process; `parked` keeps the events that arrive meanwhile.
    pub(crate) stopped: bool,
    /// Number of task directories that a fault removed while the agent ran. Their tasks still count against the agent's
    /// limit.
    pub(crate) cleared: usize,
    /// Tasks whose tombstone or rebuilt intent could not be written. Like a task with a file, each counts against the
    /// agent's limit.
    pub(crate) unwritten: BTreeSet<TaskId>,
    parked: Vec<AgentEvent>,
    /// World time (ms) of the first start call of each task.
    pub(crate) asked: BTreeMap<TaskId, u64>,
    pub(crate) bus: bool,
    pub(crate) connection: u64,
    joined_once: bool,
    /// Calls to systemd without an answer yet, by call number.
    pub(crate) pending: BTreeMap<u64, Pending>,
    calls: u64,
    /// Stems of the units whose changes PID 1 reports on this connection.
    pub(crate) interest: BTreeSet<String>,
    /// Stems of the task directories that the agent watches.
    pub(crate) watched: BTreeSet<String>,
    /// Stems of the units whose cgroups the agent watches until they are empty.
    pub(crate) watch_empty: BTreeSet<String>,
    /// The invocation that the last inspection on this connection found in each unit.
    pub(crate) inspected_units: BTreeMap<String, InvocationId>,
    task_index: BTreeMap<String, TaskId>,
    pub(crate) conn: Option<u64>,
    pub(crate) last_counter: u64,
    /// The time (ms) over which the agent spreads its redials. The time grows until a controller welcomes the agent.
    pub(crate) window_ms: u64,
    pub(crate) welcomed: bool,
    pub(crate) wake: Option<u64>,
    /// World time (ms) at which the agent last woke for a timer alone.
    pub(crate) ticked_at: u64,
}

#[derive(Debug, Clone)]
pub(crate) enum Pending {
    Start(TaskId),
    OverviewRequest(TaskId),
    Unload(String),
    Ignored,
}

impl Agent {
    fn note_inspection(&mut self, stem: &str, unit: Option<&UnitFacts>) {
        match unit.and_then(|unit| unit.invocation.clone()) {
            Some(invocation) => self.inspected_units.insert(stem.to_owned(), invocation),
            None => self.inspected_units.remove(stem),
        };
    }
}

impl World {
    pub(crate) fn agent_up(&mut self, at: usize, boot: u64) {
        let node = &mut self.nodes[at];
        if !node.on || node.boot != boot || node.agent.is_some() {
            return;
        }
        if self.t < node.asleep_until {
            let later = node.asleep_until - self.t;
            return self.after(later, Event::AgentUp { node: at, boot });
        }
        node.incarnation += 1;
        node.spool.tidy();
        let (incarnation, identity) = (node.incarnation, node.identity());
        node.agent = Some(Agent {
            incarnation,
            came_up: self.t,
            releases: identity.policy.clone(),
            machine: Machine::new(identity),
            inputs: VecDeque::new(),
            cleared: 0,
            unwritten: BTreeSet::new(),
            stopped: false,
            parked: Vec::new(),
            asked: BTreeMap::new(),
            bus: false,
            connection: 0,
            joined_once: false,
            pending: BTreeMap::new(),
            calls: 0,
            interest: BTreeSet::new(),
            watched: BTreeSet::new(),
            watch_empty: BTreeSet::new(),
            inspected_units: BTreeMap::new(),
            task_index: BTreeMap::new(),
            conn: None,
            last_counter: 0,
            window_ms: 1_000,
            welcomed: false,
            wake: None,
            ticked_at: 0,
        });
        self.log_line(|| format!("n{at} agent {incarnation} is up"));
        let delay = self.dice.skewed(1, 500);
        self.after(delay, Event::Agent { node: at, incarnation, event: AgentEvent::InspectAll });
    }

    /// Ends the agent's process. `peers_receive`: whether the node's kernel lives on and closes the connections.
    pub(crate) fn end_agent(&mut self, at: usize, peers_receive: bool) {
        let Some(agent) = self.nodes[at].agent.take() else { return };
        let incarnation = agent.incarnation;
        self.log_line(|| format!("n{at} agent {incarnation} is gone"));
        if let Some(conn) = agent.conn {
            self.agent_leaves(conn, peers_receive);
        }
    }

    pub(crate) fn kill_agent(&mut self, at: usize, down_ms: u64) {
        if self.nodes[at].agent.is_none() {
            return;
        }
        self.end_agent(at, true);
        let boot = self.nodes[at].boot;
        self.after(down_ms.max(1), Event::AgentUp { node: at, boot });
    }

    pub(crate) fn stop_agent(&mut self, at: usize, ms: u64) {
        let Some(agent) = self.nodes[at].agent.as_mut() else { return };
        if !agent.stopped {
            agent.stopped = true;
            let incarnation = agent.incarnation;
            self.after(ms, Event::Continue { node: at, incarnation });
        }
    }

    pub(crate) fn continue_agent(&mut self, at: usize, incarnation: u64) {
        let asleep_until = self.nodes[at].asleep_until;
        if self.t < asleep_until {
            return self.after(asleep_until - self.t, Event::Continue { node: at, incarnation });
        }
        let Some(agent) =
            self.nodes[at].agent.as_mut().filter(|agent| agent.incarnation == incarnation && agent.stopped)
        else {
            return;
        };
        agent.stopped = false;
        let parked = std::mem::take(&mut agent.parked);
        self.log_line(|| format!("n{at} agent {incarnation} goes on"));
        for event in parked {
            self.agent_event(at, incarnation, event);
        }
    }

    pub(crate) fn agent_event(&mut self, at: usize, incarnation: u64, event: AgentEvent) {
        let Some(agent) = self.nodes[at].agent.as_mut().filter(|agent| agent.incarnation == incarnation) else {
            return;
        };
        if agent.stopped {
            agent.parked.push(event);
            return;
        }
        if let Some(input) = self.input_of(at, event) {
            self.feed(at, input);
        }
    }

    /// Turns an event into an input for the agent's machine. `None`: the event gives no input, for example because it
    /// belongs to a connection or session that has ended.
    fn input_of(&mut self, at: usize, event: AgentEvent) -> Option<Input> {
        let node = &mut self.nodes[at];
        let boottime = node.boottime(self.t);
        let agent = node.agent.as_mut()?;
        match event {
            AgentEvent::InspectAll => {
                if self.t < node.stalled_until {
                    // The agent's question waits in the same queue as all other questions.
                    let (incarnation, later) = (agent.incarnation, node.stalled_until - self.t + 1);
                    self.after(later, Event::Agent { node: at, incarnation, event: AgentEvent::InspectAll });
                } else if !agent.bus {
                    let units = node.systemd.inspect_all();
                    let incarnation = agent.incarnation;
                    let delay = self.dice.skewed(1, 100);
                    self.after(delay, Event::Agent { node: at, incarnation, event: AgentEvent::BusUp { units } });
                }
                None
            }
            AgentEvent::BusUp { units } if !agent.bus => Some(self.join(at, units)),
            AgentEvent::BusUp { .. } => None,
            AgentEvent::Answer { call, connection, input } => {
                agent.pending.remove(&call)?;
                (connection == agent.connection).then_some(input)
            }
            AgentEvent::Files { call, connection, stem, task, seen } => {
                if connection == agent.connection {
                    agent.note_inspection(&stem, seen.unit.as_ref());
                }
                agent.pending.remove(&call)?;
                let seen = node.spool.inspect(&stem, *seen);
                (connection == agent.connection).then_some(Input::Inspected { task, seen: Ok(seen) })
            }
            AgentEvent::Unanswered { call, connection } => {
                let why = "no answer for a minute".to_owned();
                let pending = agent.pending.remove(&call)?;
                if connection == agent.connection { pending.unknown(why) } else { None }
            }
            AgentEvent::Wakeups { stem } => agent.task_index.get(&stem).map(|task| Input::TaskChanged { task: *task }),
            AgentEvent::LinkUp { conn } if agent.conn == Some(conn) => {
                let counter = boottime.max(agent.last_counter + 1);
                agent.last_counter = counter;
                Some(Input::LinkUp { counter })
            }
            AgentEvent::Message { conn, frame } if agent.conn == Some(conn) => match decode_to_agent(&frame) {
                Ok(Decoded::Known(message)) => Some(Input::Message(message)),
                other => {
                    let text = format!("a controller's frame cannot be read: {other:?}");
                    self.violate("wire", &text);
                    None
                }
            },
            AgentEvent::LinkDown { conn } if agent.conn == Some(conn) => self.hang_up(at).then_some(Input::LinkDown),
            // The event belongs to a closed session.
            AgentEvent::LinkUp { .. } | AgentEvent::Message { .. } | AgentEvent::LinkDown { .. } => None,
            AgentEvent::Tick { boot_ms } if agent.wake == Some(boot_ms) => {
                agent.wake = None;
                agent.ticked_at = self.t;
                Some(Input::Tick)
            }
            AgentEvent::Tick { .. } => None,
            AgentEvent::Reload => Some(Input::Policy(node.identity().policy)),
            AgentEvent::Local(input) => agent.joined_once.then_some(*input),
        }
    }

    /// Builds the input of an agent that has connected to systemd: each task's unit, as systemd listed it a moment ago,
    /// with the task's directory as it is now.
    fn join(&mut self, at: usize, units: Vec<(String, UnitView)>) -> Input {
        let node = &mut self.nodes[at];
        let mut units: BTreeMap<String, UnitView> = units.into_iter().collect();
        let stems: BTreeSet<String> = node.spool.tasks.keys().chain(units.keys()).cloned().collect();
        let mut found = Vec::new();
        for stem in stems {
            let unit = units.remove(&stem);
            let dir = node.spool.tasks.get(&stem);
            let (intent, ended) = dir.map_or((None, None), |dir| (dir.intent.clone(), dir.ended.clone()));
            let Seen { claim, result, steps, tails, stop_asked, .. } = node.spool.inspect(&stem, Seen::default());
            let (unit, unit_ids, processes) = match unit {
                Some((facts, ids, processes)) => (Some(facts), ids, processes),
                None => (None, None, Vec::new()),
            };
            found.push(Found {
                stem,
                intent,
                claim,
                ended,
                result,
                steps,
                tails,
                stop_asked,
                unit,
                processes,
                unit_ids,
            });
        }
        let (tombstones, accepted) = (node.spool.tombstones.values().cloned().collect(), node.spool.accepted);
        let incarnation = node.incarnation;
        let Some(agent) = node.agent.as_mut() else { return Input::Tick };
        agent.bus = true;
        agent.connection += 1;
        agent.inspected_units.clear();
        for one in &found {
            agent.note_inspection(&one.stem, one.unit.as_ref());
            let task = one.intent.as_ref().map(|i| i.start.task).or(one.unit_ids.as_ref().map(|ids| ids.task));
            if let Some(task) = task {
                agent.task_index.insert(one.stem.clone(), task);
            }
            agent.watched.insert(one.stem.clone());
        }
        let first = !std::mem::replace(&mut agent.joined_once, true);
        if first {
            let delay = self.dice.range(0, 500);
            self.after(delay, Event::Dial { node: at, incarnation });
        }
        self.log_line(|| format!("n{at} agent {incarnation} has a bus"));
        Input::Joined {
            found,
            tombstones: if first { tombstones } else { Vec::new() },
            accepted: accepted.filter(|_| first),
        }
    }

    /// Ends the connection to the bus: calls without an answer fail, and the agent opens another connection.
    pub(crate) fn lose_bus(&mut self, at: usize, ms: u64) {
        let Some(agent) = self.nodes[at].agent.as_mut().filter(|agent| agent.bus) else { return };
        let (incarnation, connection) = (agent.incarnation, agent.connection);
        agent.bus = false;
        agent.interest.clear();
        let calls: Vec<u64> = agent.pending.keys().copied().collect();
        if agent.stopped {
            // The stopped agent learns of the loss when it continues.
            agent.parked.push(AgentEvent::Local(Box::new(Input::BusLost)));
        } else {
            self.feed(at, Input::BusLost);
        }
        for call in calls {
            let delay = self.dice.range(0, 2);
            self.after(
                delay,
                Event::Agent { node: at, incarnation, event: AgentEvent::Unanswered { call, connection } },
            );
        }
        self.after(ms.max(1), Event::Agent { node: at, incarnation, event: AgentEvent::InspectAll });
    }

    /// Hands an input to the agent's machine and carries out the effects. Does the same with each input that those
    /// effects give at once, until none is left or the agent dies.
    pub(crate) fn feed(&mut self, at: usize, input: Input) {
        let Some(agent) = self.nodes[at].agent.as_mut() else { return };
        agent.inputs.push_back(input);
        let incarnation = agent.incarnation;
        loop {
            let now = self.nodes[at].now(self.t);
            let Some(agent) = self.nodes[at].agent.as_mut().filter(|agent| agent.incarnation == incarnation) else {
                return;
            };
            let Some(input) = agent.inputs.pop_front() else { return };
            let shown = if self.trace.is_read() { format!("{input:?}") } else { String::new() };
            self.reads(at, &input);
            let Some(agent) = self.nodes[at].agent.as_mut() else { return };
            if let Input::Policy(policy) = &input {
                agent.releases.clone_from(policy);
            }
            let effects = agent.machine.handle(input, now);
            self.log_line(|| format!("n{at} <- {shown}"));
            if !effects.into_iter().all(|effect| self.does(at, incarnation, effect)) {
                return;
            }
        }
    }

    /// Carries out an effect of the agent with process number `incarnation`. If the plan has a trap at this effect, its
    /// fault strikes before, after or in place of the effect. Returns `false` if the agent died.
    pub(super) fn does(&mut self, at: usize, incarnation: u64, effect: Effect) -> bool {
        match self.traps.agent(at, &effect) {
            Sprung::Before(fault) => {
                self.spring(at, fault);
                return false;
            }
            Sprung::No => self.carry_out(at, effect, None),
            Sprung::How(how) => {
                self.injected += 1;
                self.carry_out(at, effect, Some(how));
            }
            Sprung::After(fault) => {
                self.carry_out(at, effect, None);
                self.spring(at, fault);
                return false;
            }
        }
        self.nodes[at].agent.as_ref().is_some_and(|agent| agent.incarnation == incarnation)
    }

    /// Sends a call to PID 1, at least `delay_ms` milliseconds from now. The agent waits at most a minute for the
    /// answer; with `mute` the answer is lost. `pending`: what the agent waits for.
    pub(crate) fn call(&mut self, at: usize, pending: Pending, call: Call, delay_ms: u64, mute: bool) {
        let boot = self.nodes[at].boot;
        let Some(agent) = self.nodes[at].agent.as_mut() else { return };
        if !agent.bus {
            agent.inputs.extend(pending.unknown("there is no connection to the system bus".to_owned()));
            return;
        }
        agent.calls += 1;
        let from = Caller { incarnation: agent.incarnation, connection: agent.connection, call: agent.calls, mute };
        if !matches!(pending, Pending::Ignored) {
            agent.pending.insert(from.call, pending);
            let event = AgentEvent::Unanswered { call: from.call, connection: from.connection };
            self.after(CALL_LIMIT_MS, Event::Agent { node: at, incarnation: from.incarnation, event });
        }
        let delay = self.dice.skewed(0, 20) + delay_ms;
        self.after(delay, Event::Call { node: at, boot, from, call });
    }

    /// Returns the invocation that the agent's last inspection found in a unit; `None`: no inspection found one, or
    /// no agent runs.
    pub(crate) fn last_invocation(&self, at: usize, stem: &str) -> Option<InvocationId> {
        self.nodes[at].agent.as_ref()?.inspected_units.get(stem).cloned()
    }

    pub(crate) fn enter(&mut self, at: usize, stem: &str, task: TaskId) {
        if let Some(agent) = self.nodes[at].agent.as_mut() {
            agent.task_index.insert(stem.to_owned(), task);
        }
    }

    pub(crate) fn stem_of(&self, at: usize, task: TaskId) -> Option<String> {
        let agent = self.nodes[at].agent.as_ref()?;
        agent.task_index.iter().find(|(_, of)| **of == task).map(|(stem, _)| stem.clone())
    }

    pub(crate) fn leave_index(&mut self, at: usize, stem: &str) {
        if let Some(agent) = self.nodes[at].agent.as_mut() {
            agent.task_index.remove(stem);
            agent.watched.remove(stem);
            agent.watch_empty.remove(stem);
        }
    }
}

impl Pending {
    fn unknown(self, why: String) -> Option<Input> {
        match self {
            Self::Start(task) => Some(Input::Started { task, reply: StartReply::Unknown(why) }),
            Self::OverviewRequest(task) => Some(Input::Inspected { task, seen: Err(why) }),
            Self::Unload(stem) => Some(Input::Unloaded { stem, result: Err(why) }),
            Self::Ignored => None,
        }
    }
}
