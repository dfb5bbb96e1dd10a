//! Injects the faults of the plan into the world.

use super::World;
use super::event::Event;
use super::node::Node;
use super::systemd::UnitState;
use crate::plan::Fault;

impl World {
    pub(crate) fn fault(&mut self, fault: Fault) {
        match fault {
            Fault::Drop { node, side } => self.drop_conn(node, side),
            Fault::Partition { node, ms } => self.partition(node, ms),
            Fault::KillAgent { node, down_ms } => self.kill_agent(node, down_ms),
            Fault::StopAgent { node, ms } => self.stop_agent(node, ms),
            Fault::PowerFail { node, down_ms } => self.power_fail(node, down_ms),
            Fault::Burn { node } => {
                self.power_off(node);
                self.nodes[node].burnt = true;
            }
            Fault::SoftReboot { node, down_ms } => self.soft_reboot(node, down_ms),
            Fault::Restart { node, keeps_run, down_ms } => self.restart(node, keeps_run, down_ms),
            Fault::LoseBus { node, ms } => self.lose_bus(node, ms),
            Fault::Reexec { node, ms } => {
                let stalled = &mut self.nodes[node].stalled_until;
                *stalled = (*stalled).max(self.t + ms);
                self.lose_bus(node, 1);
            }
            Fault::Suspend { node, ms } => self.suspend(node, ms),
            Fault::OomKill { node } => {
                if let Some(stem) = self.some_unit(node, |state| state == UnitState::Running) {
                    self.oom_kill(node, &stem);
                }
            }
            Fault::StallSystemd { node, ms } => self.nodes[node].stalled_until = self.t + ms,
            Fault::HangRunners { node, ms } => self.nodes[node].hung_until = self.t + ms,
            Fault::FullRun { node, ms } => self.nodes[node].full_until = self.t + ms,
            Fault::KillRunner { node } => {
                if let Some(stem) = self.some_unit(node, |state| state == UnitState::Running) {
                    self.kill_runner(node, &stem);
                }
            }
            Fault::StopUnit { node } => {
                if let Some(stem) = self.some_unit(node, |_| true) {
                    self.truth.meddled(node, &stem);
                    self.unload(node, &stem);
                }
            }
            Fault::TakeName { node, ms } => self.take_name(node, ms),
            Fault::RemoveSpool { node } => self.remove_spool(node),
            Fault::ClockStep { node, by_ms } => self.nodes[node].step_clock(by_ms),
            Fault::Clone { node, ms } => self.clone_node(node, ms),
            Fault::KillController { which, down_ms } => self.kill_controller(which, Some(down_ms)),
            Fault::ControllerClockStep { by_ms } => self.step_controller_clock(by_ms),
            Fault::FullStore { ms } => self.fill_store(ms),
            Fault::HangHooks { ms } => self.hang_hooks(ms),
            Fault::Restore { empty } => self.restore_copy(empty),
            Fault::CopyRestored { raw, ms } => self.copy_restored(raw, ms),
            Fault::DirectoryRolledBack { ms } => self.directory_rolled_back(ms),
            Fault::MemoryRolledBack { ms } => self.memory_rolled_back(ms),
            Fault::ForgedMark { node, far, ms } => self.forge_mark(node, far, ms),
            Fault::SchedulerRolledBack { ms } => self.scheduler_rolled_back(ms),
            Fault::SchedulerDown { ms } => self.scheduler_down(ms),
            Fault::SecondController { empty, ms } => self.second_begins(empty, ms),
        }
    }

    fn suspend(&mut self, at: usize, ms: u64) {
        let node = &mut self.nodes[at];
        if !node.on {
            return;
        }
        let until = self.t + ms;
        node.asleep_until = node.asleep_until.max(until);
        node.stalled_until = node.stalled_until.max(until);
        self.stop_agent(at, ms);
        self.partition(at, ms);
    }

    fn some_unit(&mut self, at: usize, fits: impl Fn(UnitState) -> bool) -> Option<String> {
        let units = &self.nodes[at].systemd.units;
        let stems: Vec<&String> =
            units.iter().filter(|(_, unit)| !unit.foreign && fits(unit.state)).map(|(stem, _)| stem).collect();
        self.dice.pick(&stems).map(|stem| (*stem).clone())
    }

    /// Starts another program's unit with the name of a task's unit that does not exist yet; the other unit ends well
    /// after `ms` milliseconds.
    fn take_name(&mut self, at: usize, ms: u64) {
        let node = &self.nodes[at];
        let free = |(stem, dir): (&String, &super::spool::Dir)| {
            let intent = dir.intent.clone().filter(|_| dir.claim.is_none() && dir.ended.is_none())?;
            (!node.systemd.units.contains_key(stem)).then(|| (stem.clone(), intent))
        };
        let Some((stem, intent)) = node.spool.tasks.iter().find_map(free).filter(|_| node.on) else { return };
        let Some(serial) = self.nodes[at].systemd.start(&stem, Box::new(intent)) else { return };
        self.invocations += 1;
        let invocation = super::site::invocation(self.invocations);
        if let Some(unit) = self.nodes[at].systemd.unit(&stem, serial) {
            (unit.foreign, unit.state) = (true, UnitState::Running);
            unit.runner.result = Some(super::runner::empty(Some(invocation.clone()), 0));
            unit.invocation = Some(invocation);
        }
        self.unit_after(ms, at, &stem, serial, super::event::Act::Exits);
    }

    /// Removes the directories of all tasks. Runners keep their open directory, and can create no more files in it.
    fn remove_spool(&mut self, at: usize) {
        let node = &mut self.nodes[at];
        if !node.on {
            return;
        }
        for (stem, dir) in std::mem::take(&mut node.spool.tasks) {
            if let Some(agent) = node.agent.as_mut() {
                agent.watched.remove(&stem);
                agent.cleared += 1;
            }
            self.truth.cleared(at, &stem, dir.intent.map(|intent| intent.start.task), dir.ended.is_some());
        }
    }

    /// Adds a second machine from the image of node `of`: the same name and certificate, another machine id, its own
    /// /run.
    fn clone_node(&mut self, of: usize, ms: u64) {
        let machine = self.nodes.len();
        self.nodes.push(Node::new(machine, of, false));
        self.truth.cloned(of, machine);
        self.boot(machine);
        let boot = self.nodes[machine].boot;
        self.after(ms, Event::CloneEnds { node: machine, boot });
    }

    pub(crate) fn clone_ends(&mut self, at: usize, boot: u64) {
        if self.nodes[at].boot == boot {
            self.power_off(at);
            self.nodes[at].burnt = true;
        }
    }
}
