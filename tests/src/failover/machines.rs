//! Two hosts without a configuration, as the page about two hosts begins: a shared disk, a power switch, ssh between
//! the hosts, and nodes.

use std::sync::Arc;

use anyhow::{Context, Result};

use super::disk::Disk;
use super::site;
use super::switch::{Power, Switch};
use crate::bed::{Bed, Builder};
use crate::cluster::{ADDRESS, CONTROLLER, HOSTS, own_boot_id};
use crate::layer::Layer;

/// Configuration of controller and agent as the packages install it.
const CONTROLLER_TOML: &str = include_str!("../../../packaging/controller.toml");
const AGENT_TOML: &str = include_str!("../../../packaging/agent.toml");

/// Lets root of each host log in to the other by a real sshd.
const SSH: &str = "set -e
mkdir -p /run/sshd /root/.ssh && chmod 700 /root/.ssh
ssh-keygen -A >/dev/null
install -m 600 /root/pair /root/.ssh/id_ed25519 && install -m 600 /root/pair.pub /root/.ssh/authorized_keys
printf 'StrictHostKeyChecking accept-new\\nLogLevel ERROR\\n' >/root/.ssh/config
systemd-run --quiet --unit=bed-sshd --property=Type=exec /usr/sbin/sshd -D -o UsePAM=no";

/// Machines with perilog, Pacemaker and Corosync installed, and nothing configured: the hosts `ctl0` and `ctl1`, which
/// see one disk as /dev/perilog, and nodes.
#[derive(Debug)]
pub struct Machines {
    // Fields drop in order: the switch waits for a host's boot in progress before the bed goes.
    _switch: Switch,
    power: Arc<Power>,
    bed: Arc<Bed>,
}

impl Machines {
    pub fn boot(nodes: usize) -> Result<Self> {
        let bed = Bed::builder().layer(Layer::find()?).alias(ADDRESS, CONTROLLER);
        let bed = HOSTS.into_iter().fold(bed, Builder::node).nodes(nodes).build()?;
        let disk = Disk::new(&super::image(&bed))?;
        for name in HOSTS {
            site::furnish_machine(bed.node(name)?, disk.number()?)?;
            bed.node(name)?.write_file("/etc/perilog/controller.toml", CONTROLLER_TOML)?;
        }
        for node in &bed.nodes()[HOSTS.len()..] {
            own_boot_id(node)?;
            node.write_file("/etc/perilog/agent.toml", AGENT_TOML)?;
            node.enable("perilog-agent.service", "multi-user.target")?;
        }
        bed.boot()?;
        let bed = Arc::new(bed);
        let power = Arc::new(Power::new(bed.clone(), disk));
        let machines = Self { _switch: Switch::start(power.clone())?, power, bed };
        machines.join_by_ssh()?;
        Ok(machines)
    }

    pub fn bed(&self) -> &Bed {
        &self.bed
    }

    /// Returns the requests that the power switch has carried out so far, such as `reboot ctl0`.
    pub fn fenced(&self) -> Vec<String> {
        self.power.done()
    }

    /// Cuts a host's power. Pacemaker, when it fences the host, switches it on again.
    pub fn power_cut(&self, host: &str) -> Result<()> {
        self.power.off(self.bed.node(host)?)
    }

    /// Configures the fence devices of the bed, in place of those of a site.
    pub fn fence(&self) -> Result<()> {
        let host = self.bed.node(HOSTS[0])?;
        host.write_file("/root/fencing.crm", site::FENCING)?;
        host.run(&["crm", "configure", "load", "update", "/root/fencing.crm"])?.ok().map(drop)
    }

    fn join_by_ssh(&self) -> Result<()> {
        let [first, second] = HOSTS.map(|name| self.bed.node(name));
        let (first, second) = (first?, second?);
        first.sh("ssh-keygen -q -t ed25519 -N '' -f /root/pair")?;
        for (name, mode) in [("/root/pair", 0o600), ("/root/pair.pub", 0o644)] {
            second.write_with_mode(name, first.read_file(name)?, mode)?;
        }
        for host in [first, second] {
            host.sh(SSH).with_context(|| format!("sshd on {}", host.name()))?;
        }
        Ok(())
    }
}
