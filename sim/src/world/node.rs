//! A node: a machine that boots and dies, with its spool, its systemd and its agent.

use perilog_core::agent::io::{Node as Identity, Now};
use perilog_core::{BootId, BootRecord, HostName};

use super::World;
use super::agent::Agent;
use super::event::Event;
use super::rollback::Forged;
use super::site;
use super::spool::Spool;
use super::systemd::Systemd;

/// Wall time (ms since 1970) at which all wall clocks begin.
pub(crate) const EPOCH_MS: u64 = 1_700_000_000_000;

pub(crate) struct Node {
    /// Number of the machine, which a clone does not share.
    pub(crate) machine: usize,
    /// Host name, which a clone shares with another machine.
    pub(crate) host: HostName,
    exclusive: bool,
    pub(crate) on: bool,
    /// Whether the machine never comes up again.
    pub(crate) burnt: bool,
    /// Number of boots, soft reboots and restarts of this machine so far. An event for the node names the boot to
    /// which it belongs, and has no effect in another boot.
    pub(crate) boot: u64,
    power_ons: u64,
    /// Start time of PID 1: the number of the boot or restart that began it.
    pid1: u64,
    soft: u32,
    booted_at: u64,
    wall_offset: i64,
    pub(crate) spool: Spool,
    pub(crate) systemd: Systemd,
    pub(crate) agent: Option<Agent>,
    /// Number of agents that were started here.
    pub(crate) incarnation: u64,
    /// World time (ms) until which the network carries nothing to or from the node.
    pub(crate) cut_until: u64,
    /// World time (ms) until which writes to /run fail.
    pub(crate) full_until: u64,
    /// World time (ms) until which PID 1 does nothing.
    pub(crate) stalled_until: u64,
    /// World time (ms) until which no runner begins anything: what it looks at before does not answer.
    pub(crate) hung_until: u64,
    /// World time (ms) until which the whole machine sleeps.
    pub(crate) asleep_until: u64,
    /// The argument of `site::policy` that gives the node's present configuration.
    pub(crate) policy: u8,
    /// The mark that a thief of the node's key forges in the node's Hello; `None`: there is no thief.
    pub(crate) forged: Option<Forged>,
}

impl Node {
    pub(crate) fn new(machine: usize, name: usize, exclusive: bool) -> Self {
        Self {
            machine,
            host: site::host(name),
            exclusive,
            on: false,
            burnt: false,
            boot: 0,
            power_ons: 0,
            pid1: 0,
            soft: 0,
            booted_at: 0,
            wall_offset: 0,
            spool: Spool::default(),
            systemd: Systemd::default(),
            agent: None,
            incarnation: 0,
            cut_until: 0,
            full_until: 0,
            stalled_until: 0,
            hung_until: 0,
            asleep_until: 0,
            policy: 0,
            forged: None,
        }
    }

    pub(crate) fn boot_id(&self) -> BootId {
        let record = self.spool.record.clone().unwrap_or_else(|| self.new_record());
        site::boot_id(&record, self.soft)
    }

    fn new_record(&self) -> BootRecord {
        let kernel = site::kernel(self.machine, self.power_ons);
        BootRecord { kernel, pid1: Some(self.pid1), nonce: Some(format!("r{}", self.pid1)) }
    }

    /// Does to the record in /run what the first agent of a boot does.
    fn record_boot(&mut self) {
        let kernel = site::kernel(self.machine, self.power_ons);
        let known = self.spool.record.take().filter(|record| record.is_of(&kernel, Some(self.pid1)));
        self.spool.record = Some(known.unwrap_or_else(|| self.new_record()));
    }

    pub(crate) fn identity(&self) -> Identity {
        Identity {
            host: self.host.clone(),
            machine: site::machine(self.machine),
            boot: self.boot_id(),
            // Names the boot for the judge: a boot id may be wrong, and then two boots have the same.
            version: format!("sim.{}", self.boot),
            policy: site::policy(self.exclusive, self.policy),
        }
    }

    pub(crate) fn now(&self, t: u64) -> Now {
        let wall_ms = (EPOCH_MS + t).saturating_add_signed(self.wall_offset);
        Now { boot_ms: t - self.booted_at.min(t), wall_ms }
    }

    pub(crate) const fn boottime(&self, t: u64) -> u64 {
        t.saturating_sub(self.booted_at)
    }

    /// Returns the world time (ms) at which the node's CLOCK_BOOTTIME is `boot_ms`.
    pub(crate) const fn at_boottime(&self, boot_ms: u64) -> u64 {
        self.booted_at.saturating_add(boot_ms)
    }

    /// Returns `true` if the node's Hello names a forged commit at the world time `t` (ms).
    pub(crate) fn is_forged(&self, t: u64) -> bool {
        self.forged.is_some_and(|forged| forged.is_on(t))
    }

    /// Returns `true` if the agent counts as many tasks and tombstones as its configuration permits.
    pub(crate) fn is_crowded(&self) -> bool {
        let (more, most) = match &self.agent {
            Some(agent) => (agent.cleared + agent.unwritten.len(), agent.releases.max_tombstones),
            None => (0, self.identity().policy.max_tombstones),
        };
        self.spool.tasks.len() + self.spool.tombstones.len() + more >= most
    }

    pub(crate) const fn step_clock(&mut self, by_ms: i64) {
        self.wall_offset = self.wall_offset.saturating_add(by_ms);
    }
}

impl World {
    pub(crate) fn boot(&mut self, at: usize) {
        let node = &mut self.nodes[at];
        if node.on || node.burnt {
            return;
        }
        node.on = true;
        node.boot += 1;
        node.power_ons += 1;
        node.pid1 = node.boot;
        node.soft = 0;
        node.booted_at = self.t;
        node.spool = Spool::default();
        node.record_boot();
        self.up(at);
    }

    fn up(&mut self, at: usize) {
        let node = &self.nodes[at];
        let (boot, id) = (node.boot, node.boot_id());
        self.log_line(|| format!("n{at} is up, {id}"));
        let delay = self.dice.range(10, 2_000);
        self.after(delay, Event::AgentUp { node: at, boot });
    }

    /// Turns the power off: everything on the node is gone at once, and the peers get no FIN.
    pub(crate) fn power_off(&mut self, at: usize) {
        if !self.nodes[at].on {
            return;
        }
        self.log_line(|| format!("n{at} loses its power"));
        self.end_agent(at, false);
        self.end_processes(at);
        let node = &mut self.nodes[at];
        node.on = false;
        node.asleep_until = 0;
        node.systemd = Systemd::default();
    }

    pub(crate) fn power_fail(&mut self, at: usize, down_ms: u64) {
        self.power_off(at);
        self.after(down_ms.max(1), Event::Boot { node: at });
    }

    /// Restarts the user space; the kernel and /run stay.
    pub(crate) fn soft_reboot(&mut self, at: usize, down_ms: u64) {
        self.renew_user_space(at, down_ms, "begins its user space anew", |node| node.soft += 1);
    }

    /// Restarts the node as a container: PID 1 is another, and the kernel stays. `keeps_run`: /run stays, too.
    pub(crate) fn restart(&mut self, at: usize, keeps_run: bool, down_ms: u64) {
        self.renew_user_space(at, down_ms, "restarts as a container", |node| {
            node.pid1 = node.boot;
            node.soft = 0;
            if !keeps_run {
                node.spool = Spool::default();
            }
            node.record_boot();
        });
        if keeps_run {
            self.truth.restarts_uncounted(at);
        }
    }

    /// Ends all processes of a node whose kernel stays, and plans the begin of its next user space. `change`: the other
    /// changes of the node. Does nothing while the node is off.
    fn renew_user_space(&mut self, at: usize, down_ms: u64, what: &str, change: impl FnOnce(&mut Node)) {
        if !self.nodes[at].on {
            return;
        }
        self.end_agent(at, true);
        self.end_processes(at);
        let node = &mut self.nodes[at];
        node.systemd = Systemd::default();
        node.boot += 1;
        change(node);
        let (boot, id) = (node.boot, node.boot_id());
        self.log_line(|| format!("n{at} {what}, {id}"));
        self.after(down_ms.max(1), Event::AgentUp { node: at, boot });
    }

    fn end_processes(&mut self, at: usize) {
        self.truth.machine_down(at, self.t);
    }
}
