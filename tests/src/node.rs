//! Node: a machine that a test can switch on, query, cut off from the network, and cut off from power.

mod commands;
mod files;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail, ensure};
use rustix::process::Signal;

use crate::base::Base;
use crate::bed::{Reaper, remove_cgroup};
use crate::command::{self, Running, children, signal};
use crate::wait_until;

/// Time limit for a boot on a busy machine; a boot takes a quarter of a second.
const BOOT: Duration = Duration::from_secs(120);
/// Time limit for a shutdown. By default, systemd stops a service within 10 s here (`bed.conf`); a task's own limits
/// may be longer.
const SHUTDOWN: Duration = Duration::from_secs(120);
/// Time limit for a command that a test runs on a node; such a command ends at once or is broken.
const COMMAND: Duration = Duration::from_secs(60);
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// A node of a [`Bed`](crate::Bed). Threads of a test may share it.
#[derive(Debug)]
pub struct Node {
    name: String,
    index: usize,
    address: String,
    bed: PathBuf,
    bed_name: String,
    layer: PathBuf,
    base: Base,
    cgroup: PathBuf,
    hub: u32,
    power: Mutex<Option<Power>>,
}

/// Processes of a node that is on.
#[derive(Debug)]
struct Power {
    /// nsenter(1), which ends when the node's PID 1 has ended.
    supervisor: Running,
    booted: bool,
}

impl Power {
    /// Returns the pid of the node's PID 1 on this machine: nsenter(1) has forked unshare(1), and unshare(1) has forked
    /// PID 1. `None` before that, and after the end of PID 1.
    fn leader(&self) -> Option<u32> {
        children(*children(self.supervisor.pid()).first()?).first().copied()
    }
}

impl Drop for Power {
    fn drop(&mut self) {
        if let Some(leader) = self.leader() {
            signal(leader, Signal::KILL); // and every other process in the pid namespace of PID 1
        }
    }
}

impl Node {
    pub(crate) fn new(reaper: &Reaper, index: usize, name: &str, address: &str, base: Base) -> Result<Self> {
        let node = Self {
            name: name.to_owned(),
            index,
            address: address.to_owned(),
            bed: reaper.directory().to_owned(),
            bed_name: reaper.name().to_owned(),
            // Packages have installed the product there: no layer lies over it.
            layer: if base.has_product() { reaper.empty() } else { reaper.layer().to_owned() },
            base,
            cgroup: reaper.cgroup().join(name),
            hub: reaper.hub(),
            power: Mutex::new(None),
        };
        node.make_directories()?;
        Ok(node)
    }

    fn make_directories(&self) -> Result<()> {
        for part in ["upper/usr", "work", "work-usr", "root"] {
            let path = self.own_directory().join(part);
            std::fs::create_dir_all(&path).with_context(|| format!("making {}", path.display()))?;
        }
        Ok(())
    }

    /// Removes all files of the node, which is off.
    pub(crate) fn erase(&self) -> Result<()> {
        ensure!(!self.is_up(), "{} is on", self.name);
        let path = self.own_directory();
        std::fs::remove_dir_all(&path).with_context(|| format!("removing {}", path.display()))?;
        self.make_directories()
    }

    /// Returns the node's host name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the node's distribution.
    pub(crate) fn base(&self) -> &Base {
        &self.base
    }

    pub(crate) fn bed_name(&self) -> &str {
        &self.bed_name
    }

    /// Returns the IPv4 address in the bed's own network.
    pub fn address(&self) -> &str {
        &self.address
    }

    // Power

    /// Switches the node on and waits until the node has booted.
    pub fn boot(&self) -> Result<()> {
        self.power_on()?;
        self.wait_booted()
    }

    /// Makes the node a container of one kernel, for all its boots from the next: each has the same boot id.
    /// `keeps_run`: /run is no tmpfs, and outlives each of them. Call this while the node is off.
    pub fn is_container(&self, keeps_run: bool) -> Result<()> {
        let id = std::fs::read_to_string("/proc/sys/kernel/random/uuid")?;
        std::fs::write(self.own_directory().join("kernel"), id)?;
        if keeps_run {
            std::fs::create_dir(self.own_directory().join("run"))?;
        }
        Ok(())
    }

    /// Returns `true` if the node is on, whether or not it has booted; `false` after the node shut itself down.
    pub fn is_up(&self) -> bool {
        self.power().is_some()
    }

    /// Starts the node's processes and returns before the node has booted.
    pub(crate) fn power_on(&self) -> Result<()> {
        let mut power = self.power();
        ensure!(power.is_none(), "{} is on already", self.name);
        std::fs::create_dir(&self.cgroup).with_context(|| format!("making {}", self.cgroup.display()))?;
        let mut command = enter(self.hub, &["-m", "-n", "-p"]);
        command
            .args(["/bin/sh", "-c", r#"echo 0 >"$0/cgroup.procs" && exec unshare "$@""#])
            .arg(&self.cgroup)
            .args(["--mount", "--uts", "--ipc", "--net", "--pid", "--cgroup", "--propagation", "private"])
            .args(["--fork", "--kill-child", "/bin/sh"])
            .arg(self.bed.join("node-init.sh"))
            .arg(&self.bed)
            .arg(&self.name)
            .arg(self.index.to_string())
            .arg(&self.layer)
            .arg(self.base.root());
        let supervisor = Running::start(format!("node {}", self.name), &mut command)?;
        *power = Some(Power { supervisor, booted: false });
        Ok(())
    }

    /// Waits until a switched-on node has reached the default target.
    pub(crate) fn wait_booted(&self) -> Result<()> {
        let booted = wait_until(&format!("{} booted", self.name), BOOT, || {
            let mut power = self.lock();
            let Some(power) = power.as_mut() else { bail!("{} is off", self.name) };
            if power.supervisor.has_ended()? {
                bail!("{} did not boot: {}", self.name, power.supervisor.output()?);
            }
            let Some(leader) = power.leader() else { return Ok(false) };
            power.booted = Path::new(&format!("/proc/{leader}/root{}", booted_marker(&self.bed_name))).exists();
            Ok(power.booted)
        });
        booted.map_err(|error| anyhow!("{error:#}\n{}", self.diagnosis()))
    }

    /// Cuts the node's power: processes and network end without a message; files stay.
    pub fn power_fail(&self) -> Result<()> {
        // The network goes first. Otherwise the kernel would close the sockets of killed processes and so notify the
        // peers.
        self.cut()?;
        let leader = self.leader()?;
        signal(leader, Signal::KILL);
        self.wait_off(SHUTDOWN)
    }

    /// Shuts the node down as an operator would; returns when the node is off.
    pub fn shutdown(&self) -> Result<()> {
        self.systemctl(&["--no-block", "poweroff"])?;
        self.wait_off(SHUTDOWN)
    }

    /// Reboots the node as an operator would; returns when the node has booted again.
    pub fn reboot(&self) -> Result<()> {
        self.systemctl(&["--no-block", "reboot"])?;
        self.wait_off(SHUTDOWN)?;
        self.boot()
    }

    /// Waits until the node is off. A node of a bed is off after a reboot, too, until the test switches it on.
    pub fn wait_off(&self, limit: Duration) -> Result<()> {
        wait_until(&format!("{} switched off", self.name), limit, || Ok(!self.is_up()))
    }

    /// Returns the node's PID 1 in this machine's numbering; an error while the node is off.
    pub fn leader(&self) -> Result<u32> {
        let leader = self.power().as_ref().and_then(Power::leader);
        leader.with_context(|| format!("{} is off", self.name))
    }

    /// Returns the boot id of the node's present boot, as the node's own programs read it.
    pub fn boot_id(&self) -> Result<String> {
        self.read_file("/proc/sys/kernel/random/boot_id").map(|id| id.trim().to_owned())
    }

    fn lock(&self) -> MutexGuard<'_, Option<Power>> {
        self.power.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks and returns the node's power, which is `None` if the node is off. First cleans up after a node that
    /// switched itself off.
    fn power(&self) -> MutexGuard<'_, Option<Power>> {
        let mut power = self.lock();
        if power.as_mut().is_some_and(|power| matches!(power.supervisor.has_ended(), Ok(true))) {
            *power = None;
            remove_cgroup(&self.cgroup);
            // The link would disappear with the node's network namespace, but at a time of the kernel's choice.
            let _ = self.ip(&["link", "del"]);
        }
        power
    }

    // Network

    /// Cuts the node off from the bed's network, without a message to its peers.
    pub fn cut(&self) -> Result<()> {
        self.ip(&["link", "set", "down"])
    }

    /// Connects the node to the bed's network again, after [`cut`](Self::cut).
    pub fn heal(&self) -> Result<()> {
        self.ip(&["link", "set", "up"])
    }

    /// Keeps the node from reaching other separated nodes, and no others: neither the hub nor nodes that are not
    /// separated. A node that was switched off and on is no longer separated.
    pub fn separate(&self, separated: bool) -> Result<()> {
        let state = if separated { "on" } else { "off" };
        let mut command = enter(self.hub, &["-n"]);
        command.args(["ip", "link", "set", "dev", &format!("v{}", self.index), "type", "bridge_slave"]);
        command.args(["isolated", state]);
        command::run(format!("{}: isolated {state}", self.name), &mut command, COMMAND)?.ok().map(drop)
    }

    /// Runs `ip ACTION dev LINK` (ip(8)) in the network namespace of the hub, PID 1 of the bed, where one end of the
    /// node's network link is.
    fn ip(&self, action: &[&str]) -> Result<()> {
        let mut command = enter(self.hub, &["-n"]);
        command.arg("ip").args(action).args(["dev", &format!("v{}", self.index)]);
        command::run(format!("{}: ip {}", self.name, action.join(" ")), &mut command, COMMAND)?.ok().map(drop)
    }
}

/// Returns the path of a file that exists once a node has reached the default target. The bed's name is part of the
/// path, because a bed may run on a node of another bed.
pub(crate) fn booted_marker(bed: &str) -> String {
    format!("/run/{bed}.booted")
}

/// Returns an nsenter(1) command that enters some namespaces of a process, without this process's environment.
fn enter(pid: u32, namespaces: &[&str]) -> Command {
    let mut command = Command::new("nsenter");
    command.env_clear().envs([("PATH", PATH), ("LANG", "C.UTF-8"), ("HOME", "/root"), ("TERM", "dumb")]);
    command.args(["-t", &pid.to_string()]).args(namespaces).arg("--");
    command
}
