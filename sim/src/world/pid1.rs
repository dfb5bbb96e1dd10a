//! PID 1 of a node: carries out the calls that arrive, and answers them, at times even if the caller is dead.

use perilog_core::agent::io::{Input, Seen, StartReply};
use perilog_core::task::Intent;

use super::World;
use super::event::{Act, AgentEvent, Call, Caller, Event};
use super::systemd::{Exit, UnitState};

impl World {
    pub(crate) fn pid1(&mut self, at: usize, boot: u64, from: Caller, call: Call) {
        let node = &self.nodes[at];
        if !node.on || node.boot != boot {
            return;
        }
        if self.t < node.stalled_until {
            let later = node.stalled_until - self.t + 1;
            return self.after(later, Event::Call { node: at, boot, from, call });
        }
        // The connection broke before or after PID 1 read the call.
        if !self.is_connected(at, from) && self.dice.one_in(2) {
            return;
        }
        self.log_line(|| format!("n{at} pid1: {}", call.shown()));
        let mut meant = true;
        if let Call::SignalRunner { stem, of, .. } | Call::KillAll { stem, of } | Call::Unload { stem, of } = &call
            && let Some(unit) = self.nodes[at].systemd.units.get(stem)
        {
            meant = of.is_none() || unit.invocation == *of;
            if meant && unit.foreign {
                let text = format!("an agent of n{at} lays hands on {stem}, which is a foreign unit");
                return self.violate("3 others", &text);
            }
        }
        match call {
            Call::Start { stem, intent, since_boot_ms } => self.start_unit(at, from, &stem, (intent, since_boot_ms)),
            Call::Watch { stem } => self.wake_now(at, from, &stem),
            Call::Inspect { stem, task } => {
                let node = &self.nodes[at];
                let mut seen = Seen::default();
                if let Some((unit, ids, processes)) = node.systemd.inspect(&stem) {
                    seen = Seen { unit: Some(unit), unit_ids: ids, processes, ..seen };
                }
                let (call, connection) = (from.call, from.connection);
                self.answer_event(at, from, AgentEvent::Files { call, connection, stem, task, seen: Box::new(seen) });
            }
            Call::SignalRunner { .. } | Call::KillAll { .. } if !meant => {}
            Call::SignalRunner { stem, signal, .. } => self.signal_runner(at, &stem, signal),
            Call::KillAll { stem, .. } => self.kill_all(at, &stem),
            Call::Unload { stem, .. } => {
                // A unit that is gone counts as unloaded.
                if meant {
                    self.unload(at, &stem);
                }
                let (call, connection) = (from.call, from.connection);
                let input = Input::Unloaded { stem, result: Ok(()) };
                self.answer_event(at, from, AgentEvent::Answer { call, connection, input });
            }
        }
    }

    fn is_connected(&self, at: usize, from: Caller) -> bool {
        let node = &self.nodes[at];
        node.incarnation == from.incarnation
            && node.agent.as_ref().is_some_and(|agent| agent.bus && agent.connection == from.connection)
    }

    fn start_unit(&mut self, at: usize, from: Caller, stem: &str, (intent, since_boot_ms): (Box<Intent>, u64)) {
        let task = intent.start.task;
        let reply = match self.nodes[at].systemd.start(stem, intent) {
            None => StartReply::Exists,
            Some(serial) => {
                if let Some(unit) = self.nodes[at].systemd.unit(stem, serial) {
                    unit.runner.since_boot_ms = since_boot_ms;
                }
                let delay = self.dice.skewed(0, 400);
                self.unit_after(delay, at, stem, serial, Act::JobRuns);
                StartReply::Queued
            }
        };
        let (call, connection) = (from.call, from.connection);
        let input = Input::Started { task, reply };
        self.answer_event(at, from, AgentEvent::Answer { call, connection, input });
    }

    pub(crate) fn unit_after(&mut self, ms: u64, at: usize, stem: &str, serial: u64, act: Act) {
        let boot = self.nodes[at].boot;
        self.after(ms, Event::Unit { node: at, boot, stem: stem.to_owned(), serial, act });
    }

    fn answer_event(&mut self, at: usize, from: Caller, event: AgentEvent) {
        if !from.mute {
            let delay = self.dice.skewed(0, 30);
            self.after(delay, Event::Agent { node: at, incarnation: from.incarnation, event });
        }
    }

    fn wake_now(&mut self, at: usize, from: Caller, stem: &str) {
        let delay = self.dice.skewed(0, 10);
        let event = AgentEvent::Wakeups { stem: stem.to_owned() };
        self.after(delay, Event::Agent { node: at, incarnation: from.incarnation, event });
    }

    /// Tells the node's agent that a unit has changed, if the agent asked for that.
    pub(crate) fn unit_changed(&mut self, at: usize, stem: &str) {
        let node = &self.nodes[at];
        let Some(agent) = node.agent.as_ref().filter(|agent| agent.bus && agent.interest.contains(stem)) else {
            return;
        };
        let incarnation = agent.incarnation;
        let delay = self.dice.skewed(0, 10);
        self.after(delay, Event::Agent { node: at, incarnation, event: AgentEvent::Wakeups { stem: stem.to_owned() } });
    }

    /// Ends every process of the unit, as KillUnit(all, SIGKILL) does.
    fn kill_all(&mut self, at: usize, stem: &str) {
        let Some(unit) = self.nodes[at].systemd.units.get_mut(stem) else { return };
        unit.leftovers.clear();
        if unit.state == UnitState::Running {
            self.kill_runner(at, stem);
        }
        self.emptied(at, stem);
    }

    /// Handles the end of the last process in a unit's cgroup.
    pub(crate) fn emptied(&mut self, at: usize, stem: &str) {
        self.truth.leftovers_ended(at, stem);
        let node = &mut self.nodes[at];
        if let Some(unit) = node.systemd.units.get_mut(stem)
            && let UnitState::Stopping(exit) = unit.state
        {
            unit.state = UnitState::Over(exit);
            self.unit_changed(at, stem);
        }
        let node = &mut self.nodes[at];
        let Some(agent) = node.agent.as_mut() else { return };
        if agent.watch_empty.contains(stem) {
            let incarnation = agent.incarnation;
            let delay = self.dice.skewed(0, 10);
            self.after(
                delay,
                Event::Agent { node: at, incarnation, event: AgentEvent::Wakeups { stem: stem.to_owned() } },
            );
        }
    }

    /// Ends the unit's processes and removes the unit, as StopUnit and then ResetFailedUnit do.
    pub(crate) fn unload(&mut self, at: usize, stem: &str) {
        let t = self.t;
        let Some(unit) = self.nodes[at].systemd.units.remove(stem) else { return };
        let keeps = unit.intent.plan.lingering == perilog_core::task::Lingering::Keep;
        self.truth.unit_stopped(at, stem, unit.runner.run, keeps, t);
        self.unit_changed(at, stem);
        self.emptied(at, stem);
    }
}

impl Exit {
    pub(crate) const fn is_success(self) -> bool {
        matches!(self, Self::Code(0))
    }
}

impl Call {
    pub(crate) fn shown(&self) -> String {
        match self {
            Self::Start { stem, .. } => format!("start {stem}"),
            Self::Watch { stem } => format!("watch {stem}"),
            Self::Inspect { stem, .. } => format!("look at {stem}"),
            Self::SignalRunner { stem, signal, .. } => format!("signal {signal} for the runner of {stem}"),
            Self::KillAll { stem, .. } => format!("kill all of {stem}"),
            Self::Unload { stem, .. } => format!("unload {stem}"),
        }
    }
}
