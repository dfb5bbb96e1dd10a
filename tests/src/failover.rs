//! Two hosts for the controller of a [`Cluster`], under the real Pacemaker and Corosync.
//!
//! ```text
//!   ctl0 10.77.0.2 ── corosync, pacemaker ── ctl1 10.77.0.3        n0..n3: agents, which dial `ctl`, 10.77.0.200
//!     │                                        │
//!     └── group perilog: /dev/perilog on /var/lib/perilog, 10.77.0.200, perilog-controller.service ── on one of them
//!     └── fence_bed asks the power switch, 10.77.0.1:5199, in this process (`failover/switch.rs`): a BMC, then a strip
//! ```
//!
//! * The shared disk is a loop device over a file (`failover/disk.rs`). A power cut stops its file system without a
//!   flush, so what a daemon has not synced is lost.
//! * What an administrator writes and types is that of docs/failover.md, by `failover/site.rs`.
//! * [`Failover::under_load`] strikes while prologs and epilogs run, and compares the ledgers afterwards.

mod disk;
mod load;
mod machines;
mod site;
mod soak;
mod switch;

use std::path::PathBuf;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};

use crate::bed::Bed;
use crate::cluster::{Cluster, ClusterBuilder};
use crate::node::Node;
use disk::Disk;
use switch::{Power, Switch};

pub use load::Measured;
pub use machines::Machines;
pub use soak::{Report, soak};

/// Time limit of what Pacemaker decides, on a loaded machine; a fence with what follows takes some ten seconds.
const SOON: Duration = Duration::from_secs(150);

const CONTROLLER: &str = "perilog-controller.service";

/// Two hosts of a controller, booted, with the group of the controller on one of them.
#[derive(Debug)]
pub struct Failover {
    // Fields drop in order: the switch waits for a host's boot in progress before the bed goes.
    _switch: Switch,
    power: Arc<Power>,
    cluster: Arc<Cluster>,
}

impl Failover {
    /// Boots the cluster of `builder` with two hosts for the controller, sets Pacemaker up, and waits until each agent
    /// is online.
    pub fn boot(builder: ClusterBuilder) -> Result<Self> {
        Self::boot_with(builder, |_| Ok(()))
    }

    /// Boots as [`boot`](Self::boot) does; `before` writes further files while all nodes are off.
    pub fn boot_with(builder: ClusterBuilder, before: impl FnOnce(&Cluster) -> Result<()>) -> Result<Self> {
        let failover = Self::build(builder)?;
        before(failover.cluster())?;
        failover.cluster().bed().boot()?;
        let [first, _] = failover.cluster().hosts() else { anyhow::bail!("not two hosts") };
        failover.wait("Pacemaker has elected its coordinator", || {
            let state = state(first);
            Ok(state.contains("Current DC: ctl") && state.contains("Online: [ ctl0 ctl1 ]"))
        })?;
        first.sh(site::EMPTY_STORE)?;
        first.run_within(site::CRM, &site::LOAD)?.ok()?;
        failover.wait_settled()?;
        Ok(failover)
    }

    fn build(builder: ClusterBuilder) -> Result<Self> {
        let cluster = builder.two_hosts().build()?;
        let disk = Disk::new(&image(cluster.bed()))?;
        let mut key = [0; 128];
        std::io::Read::read_exact(&mut std::fs::File::open("/dev/urandom")?, &mut key).context("a key")?;
        let names: Vec<&str> = cluster.nodes().iter().map(Node::name).collect();
        for host in cluster.hosts() {
            site::furnish(host, disk.number()?, &key, &names)?;
        }
        let cluster = Arc::new(cluster);
        let power = Arc::new(Power::new(cluster.clone(), disk));
        Ok(Self { _switch: Switch::start(Arc::clone(&power))?, power, cluster })
    }

    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// Returns the host that runs the controller.
    pub fn active(&self) -> Result<&Node> {
        self.cluster().controller()
    }

    /// Returns the host that is not `host`.
    pub fn other(&self, host: &Node) -> Result<&Node> {
        let other = self.cluster().hosts().iter().find(|other| other.name() != host.name());
        other.context("no other host")
    }

    /// Returns the requests that the power switch has carried out so far: `reboot ctl0-bmc` by the BMC of a host that
    /// has power, otherwise `reboot ctl0` by the power strip.
    pub fn fenced(&self) -> Vec<String> {
        self.power.done()
    }

    /// Returns the requests so far for a fence device that had no power or was broken.
    pub fn refused(&self) -> Vec<String> {
        self.power.refused()
    }

    /// Waits until a condition holds. The error shows Pacemaker's state and the nodes.
    pub fn wait(&self, what: &str, condition: impl FnMut() -> Result<bool>) -> Result<()> {
        self.cluster().bed().wait_until(what, SOON, condition).with_context(|| {
            let states: String = self.cluster().hosts().iter().map(state).collect();
            format!("the switch has done {:?}\n{states}", self.fenced())
        })
    }

    /// Waits until both hosts are members, one of them runs the whole group, and each agent is online.
    pub fn wait_settled(&self) -> Result<()> {
        self.settled().map(drop)
    }

    /// Waits as [`wait_settled`](Self::wait_settled) does; returns the host that runs the controller.
    pub fn settled(&self) -> Result<&Node> {
        let mut settled = None;
        self.wait("both hosts are members, and one runs the controller", || {
            settled = self.active().ok().filter(|active| runs_on(active));
            Ok(settled.is_some())
        })?;
        self.cluster().wait_online()?;
        settled.context("no host")
    }

    /// Waits until Pacemaker has this number of nodes that the host reaches, and has drawn its conclusions.
    pub fn wait_reaches(&self, host: &Node, count: usize) -> Result<()> {
        self.wait(&format!("Pacemaker has {count} nodes that {} reaches", host.name()), || {
            // The controller may just move.
            let Ok(active) = self.active() else { return Ok(false) };
            Ok(active.run(&site::reached(host.name()))?.stdout.trim() == count.to_string())
        })?;
        self.active()?.run(&site::WAIT)?.ok().map(drop)
    }

    /// Waits until the controller answers on this host.
    pub fn wait_answers(&self, host: &Node) -> Result<()> {
        self.wait(&format!("the controller answers on {}", host.name()), || {
            let is_there = self.active().is_ok_and(|active| active.name() == host.name());
            Ok(is_there && self.cluster().perilog(&["status"]).is_ok_and(|status| status.success()))
        })
    }

    // Faults

    /// Kills the controller with kill -9.
    pub fn kill(&self) -> Result<()> {
        Cluster::kill_unit(self.active()?, CONTROLLER)
    }

    /// Stops the controller by SIGSTOP.
    pub fn freeze(&self) -> Result<()> {
        self.active()?.systemctl(&["kill", "--kill-who=main", "--signal=STOP", CONTROLLER]).map(drop)
    }

    /// Cuts a host's power. Pacemaker, when it fences the host, switches it on again.
    pub fn power_cut(&self, host: &Node) -> Result<()> {
        self.power.off(host)
    }

    /// Has the fence devices of a host no longer act, or act again.
    pub fn break_fencing(&self, host: &Node, is_broken: bool) {
        self.power.set_broken(host, is_broken);
    }

    /// Returns `true` if Pacemaker does not know whether the other host is dead, as `host` shows it.
    pub fn is_unclean(&self, host: &Node) -> Result<bool> {
        Ok(state(host).contains(&format!("{}: UNCLEAN (offline)", self.other(host)?.name())))
    }

    /// Has Pacemaker believe that the other host is dead, as an operator on `host` does who has looked.
    pub fn confirm(&self, host: &Node) -> Result<()> {
        host.run(&site::confirm(self.other(host)?.name()))?.ok().map(drop)
    }

    /// Cuts the two hosts off from each other. Each still reaches the power switch and the nodes.
    pub fn cut_between_hosts(&self) -> Result<()> {
        self.cluster().hosts().iter().try_for_each(|host| host.separate(true))
    }

    /// Cuts a host off from one node. It still reaches the others.
    pub fn cut_from_node(&self, host: &Node, node: &Node) -> Result<()> {
        [host, node].into_iter().try_for_each(|node| node.separate(true))
    }

    /// Cuts a host off from the nodes. It still reaches the other host and the power switch.
    pub fn cut_from_nodes(&self, host: &Node) -> Result<()> {
        self.cluster().nodes().iter().chain([host]).try_for_each(|node| node.separate(true))
    }

    /// Cuts a host off from everything, the power switch included.
    pub fn cut_from_all(&self, host: &Node) -> Result<()> {
        host.cut()
    }

    /// Ends the cuts of hosts from each other and from nodes. A host that was fenced meanwhile has a new link.
    pub fn join(&self) {
        for node in self.cluster().bed().nodes() {
            // A host that just boots has no link yet.
            let _ = node.separate(false);
        }
    }

    /// Restarts the controller where it is, as an operator does; returns when the new one is ready.
    pub fn restart(&self) -> Result<()> {
        self.active()?.systemctl(&["restart", CONTROLLER]).map(drop)
    }

    /// Moves the group from `host` to the other, as an operator does; returns when the controller on `host` has ended.
    pub fn move_away(&self, host: &Node) -> Result<()> {
        host.run(&site::move_to(self.other(host)?.name()))?.ok()?;
        self.wait("the controller leaves its host", || {
            Ok(!self.active().is_ok_and(|active| active.name() == host.name()))
        })
    }

    /// Removes what [`move_to`](Self::move_to) has left, so that the group may run on either host; forgets failures.
    pub fn clear(&self) -> Result<()> {
        let active = self.active()?;
        active.run(&site::STAY)?.ok()?;
        active.run(&site::CLEAN_UP)?.ok().map(drop)
    }

    /// Gives the passive host a copy of the disk, as a mirror that has lost its link (DRBD's split brain), and switches
    /// fencing off: [`cut_between_hosts`](Self::cut_between_hosts) then has both active.
    pub fn split_disk(&self) -> Result<()> {
        let (active, passive) = (self.active()?, self.other(self.active()?)?);
        active.run(&site::NO_FENCING)?.ok()?;
        let copy = self.cluster().bed().directory().join("copy.img");
        active.sh(&format!("fsfreeze --freeze {}", site::STORE))?;
        let copied = std::fs::copy(image(self.cluster().bed()), &copy).context("copying the disk");
        active.sh(&format!("fsfreeze --unfreeze {}", site::STORE))?;
        copied?;
        let disk = Disk::attach(&copy)?;
        let (major, minor) = disk.number()?;
        passive.sh(&format!("rm /dev/perilog && mknod /dev/perilog b {major} {minor}"))?;
        self.power.copies.lock().unwrap_or_else(PoisonError::into_inner).push(disk);
        Ok(())
    }

    /// Mounts a second disk on this directory of both hosts at once, as a stand-in for a shared directory: one kernel
    /// has one file system of it. A host that was switched off and on needs [`mount_directory`](Self::mount_directory).
    pub fn share_directory(&self, directory: &str) -> Result<()> {
        let disk = Disk::new(&self.cluster().bed().directory().join("directory.img"))?;
        self.power.copies.lock().unwrap_or_else(PoisonError::into_inner).push(disk);
        self.cluster().hosts().iter().try_for_each(|host| self.mount_directory(host, directory))
    }

    /// Mounts the disk of [`share_directory`](Self::share_directory) on one host.
    pub fn mount_directory(&self, host: &Node, directory: &str) -> Result<()> {
        let disks = self.power.copies.lock().unwrap_or_else(PoisonError::into_inner);
        let (major, minor) = disks.first().context("no shared directory")?.number()?;
        host.sh(&format!("mknod /dev/directory b {major} {minor} && mount /dev/directory {directory}")).map(drop)
    }

    /// Fills the shared disk, also again; returns when it has no room left.
    pub fn fill_disk(&self) -> Result<()> {
        self.active()?.sh(&format!("cat /dev/zero >>{0}/filler 2>/dev/null || sync {0}/filler", site::STORE)).map(drop)
    }

    /// Makes room again, after [`fill_disk`](Self::fill_disk).
    pub fn empty_disk(&self) -> Result<()> {
        self.active()?.sh(&format!("rm {}/filler", site::STORE)).map(drop)
    }
}

/// Returns the path of the shared disk's file on this machine.
fn image(bed: &Bed) -> PathBuf {
    bed.directory().join("shared.img")
}

/// Returns `true` if both hosts are members, and Pacemaker runs the controller on this one.
fn runs_on(active: &Node) -> bool {
    let state = state(active);
    let runs = format!("(systemd:perilog-controller):\t Started {}", active.name());
    state.contains("Online: [ ctl0 ctl1 ]") && state.contains(&runs)
}

/// Returns Pacemaker's state as this host shows it; the reason if it shows none.
fn state(host: &Node) -> String {
    host.run(&site::STATE)
        .map_or_else(|error| format!("{error:#}\n"), |output| format!("{}{}", output.stdout, output.stderr))
}

/// Returns the seconds since this machine's boot, the clock of the ledgers.
///
/// # Errors
/// /proc is not there.
pub fn now() -> Result<f64> {
    let text = std::fs::read_to_string("/proc/uptime").context("/proc/uptime")?;
    text.split(' ').next().context("a time")?.parse().context("a time")
}
