//! Two hosts without a configuration, as the page about two hosts begins: a shared disk, a power switch, ssh between
//! the hosts and to the nodes, and the cluster of one node with which Debian's packages begin.

use std::sync::Arc;

use anyhow::{Context, Result};

use super::disk::Disk;
use super::switch::{Power, Switch};
use super::{SOON, site};
use crate::bed::{Bed, Builder};
use crate::cluster::{ADDRESS, CONTROLLER, HOSTS, own_boot_id};
use crate::layer::Layer;
use crate::node::Node;

/// Configuration of controller and agent as the packages install it.
const CONTROLLER_TOML: &str = include_str!("../../../packaging/controller.toml");
const AGENT_TOML: &str = include_str!("../../../packaging/agent.toml");

/// Unit of a real sshd, which a machine starts at each boot.
const SSHD: &str = "[Service]\nType=exec\nExecStartPre=/bin/mkdir -p /run/sshd\n\
                    ExecStart=/usr/sbin/sshd -D -o UsePAM=no\n[Install]\nWantedBy=multi-user.target\n";
/// Paths of the two halves of the key pair that all machines have.
const PAIR: [&str; 2] = ["/root/pair", "/root/pair.pub"];
/// Lets root log in to the machine from the others, and to the others. A machine has a host key of its own, so another
/// machine of the same name has another.
const SSH: &str = "rm -f /etc/ssh/ssh_host_*
ssh-keygen -q -t ed25519 -N '' -f /etc/ssh/ssh_host_ed25519_key
mkdir -p /root/.ssh && chmod 700 /root/.ssh
install -m 600 /root/pair /root/.ssh/id_ed25519 && install -m 600 /root/pair.pub /root/.ssh/authorized_keys
printf 'StrictHostKeyChecking accept-new\\nLogLevel ERROR\\n' >/root/.ssh/config
systemctl daemon-reload && systemctl enable --quiet --now bed-sshd";

/// Machines with perilog, Pacemaker and Corosync installed, and nothing configured: the hosts `ctl0` and `ctl1`, which
/// see one disk as /dev/perilog, and nodes.
#[derive(Debug)]
pub struct Machines {
    // Fields drop in order: the switch waits for a host's boot in progress before the bed goes.
    _switch: Switch,
    power: Arc<Power>,
    /// The two halves of the key pair, as [`PAIR`] has their paths.
    pair: [String; 2],
    bed: Arc<Bed>,
}

impl Machines {
    pub fn boot(nodes: usize) -> Result<Self> {
        let bed = Bed::builder().layer(Layer::find()?).alias(ADDRESS, CONTROLLER);
        let bed = HOSTS.into_iter().fold(bed, Builder::node).nodes(nodes).build()?;
        let disk = Disk::new(&super::image(&bed))?;
        for name in HOSTS {
            furnish(bed.node(name)?, &disk)?;
        }
        for node in &bed.nodes()[HOSTS.len()..] {
            own_boot_id(node)?;
            node.write_file("/etc/perilog/agent.toml", AGENT_TOML)?;
            node.enable("perilog-agent.service", "multi-user.target")?;
        }
        bed.boot()?;
        let first = bed.node(HOSTS[0])?;
        first.sh(&format!("ssh-keygen -q -t ed25519 -N '' -f {}", PAIR[0]))?;
        let pair = [first.read_file(PAIR[0])?, first.read_file(PAIR[1])?];
        let bed = Arc::new(bed);
        let power = Arc::new(Power::new(bed.clone(), disk));
        let machines = Self { _switch: Switch::start(power.clone())?, power, pair, bed };
        machines.bed().nodes().iter().try_for_each(|node| machines.join_by_ssh(node))?;
        Ok(machines)
    }

    pub fn bed(&self) -> &Bed {
        &self.bed
    }

    /// Returns the requests that the power switch has carried out so far: `reboot ctl0-bmc` by the BMC of a host that
    /// has power, otherwise `reboot ctl0` by the power strip.
    pub fn fenced(&self) -> Vec<String> {
        self.power.done()
    }

    /// Cuts a host's power. Pacemaker, when it fences the host, switches it on again.
    pub fn power_cut(&self, host: &str) -> Result<()> {
        self.power.off(self.bed.node(host)?)
    }

    /// Cuts a host's power for good: none of its fence devices acts either.
    pub fn burn(&self, host: &str) -> Result<()> {
        let host = self.bed.node(host)?;
        self.power.set_broken(host, true);
        self.power.off(host)
    }

    /// Boots another machine with the name, the address and the place of a host that is off, as [`boot`](Self::boot)
    /// leaves it.
    pub fn replace(&self, host: &str) -> Result<()> {
        self.bed.replace(host)?;
        let host = self.bed.node(host)?;
        furnish(host, &self.power.disk)?;
        self.power.set_broken(host, false);
        host.boot()?;
        self.join_by_ssh(host)
    }

    /// Starts Corosync and Pacemaker on a host as Debian's packages do when they are installed, with the configuration
    /// that these bring: a cluster of the one node `node1`. Returns when Pacemaker has written that into its own.
    pub fn begin_as_installed(&self, host: &str) -> Result<()> {
        let host = self.bed.node(host)?;
        if host.try_read_file(site::COROSYNC)?.is_none() {
            return Ok(()); // Fedora's package brings none, and starts nothing.
        }
        host.sh("systemctl enable --quiet --now corosync pacemaker")?;
        self.bed.wait_until(&format!("{} has a cluster of one node", host.name()), SOON, || {
            let first = host.try_read_file("/var/lib/pacemaker/cib/cib.xml")?;
            Ok(first.is_some_and(|first| first.contains("uname=\"node1\"")))
        })
    }

    /// Configures the fence devices of the bed instead of those of a site.
    pub fn fence(&self) -> Result<()> {
        let host = self.bed.node(HOSTS[0])?;
        host.write_file("/root/fencing.crm", site::fencing()?)?;
        host.run_within(site::CRM, &["crm", "configure", "load", "update", "/root/fencing.crm"])?.ok().map(drop)
    }

    fn join_by_ssh(&self, node: &Node) -> Result<()> {
        for ((path, half), mode) in PAIR.into_iter().zip(&self.pair).zip([0o600, 0o644]) {
            node.write_with_mode(path, half, mode)?;
        }
        node.write_file("/etc/systemd/system/bed-sshd.service", SSHD)?;
        node.sh(SSH).map(drop).with_context(|| format!("sshd on {}", node.name()))
    }
}

/// Writes the files of a host's machine: those of the packages, its disk and its fence agent. The host is off.
fn furnish(host: &Node, disk: &Disk) -> Result<()> {
    site::furnish_machine(host, disk.number()?)?;
    host.write_file("/etc/perilog/controller.toml", CONTROLLER_TOML)
}
