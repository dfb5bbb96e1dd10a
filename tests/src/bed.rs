//! Test bed: named nodes, the network between the nodes, and a cleanup that follows even a kill of the test.
//!
//! ```text
//!  this process ── pipe ──> reaper ──> hub: PID 1 of the bed's mount, network and pid namespace; br0, 10.77.0.1/16
//!                                       ├─ ctl  10.77.0.2   systemd as PID 1 in namespaces of its own,
//!                                       ├─ n0   10.77.0.3   overlay root: own files : layer : /
//!                                       └─ n1   10.77.0.4
//! ```
//!
//! * The host's namespaces stay unchanged: the bed adds no mount, no link and no named network namespace. The host sees
//!   one directory, one cgroup and processes, all named after the bed.
//! * A bed ends with the test's process, even after SIGKILL: the reaper waits until the pipe closes (see
//!   `bed/reaper.sh`).
//! * Beds run side by side. Each bed has a network of its own, so all beds use the same addresses.
//!
//! A node's power failure ends the node's processes and network. Written data survives, because the page cache belongs
//! to the machine. The tests therefore cannot find a missing fsync(2).

mod place;
mod reaper;
mod upper;

use std::path::Path;
use std::time::Duration;

use anyhow::{Result, anyhow, ensure};

use crate::base::Base;
use crate::layer::Layer;
use crate::node::Node;
pub(crate) use reaper::{Reaper, remove_cgroup};

/// Returns the IPv4 address of the node with this index, counted from 0. The first is 10.77.0.2, because the bridge is
/// 10.77.0.1. Each value of the third byte has 250 nodes. `node-init.sh` computes the same address.
fn address(index: usize) -> String {
    format!("10.77.{}.{}", index / 250, index % 250 + 2)
}

/// Configuration of a test bed.
#[derive(Debug, Default)]
pub struct Builder {
    /// Names of the nodes, each with its distribution; `None`: the common one ([`Base::common`]).
    nodes: Vec<(String, Option<Base>)>,
    layer: Option<Layer>,
    aliases: Vec<(String, String)>,
}

impl Builder {
    /// Adds a node with this host name.
    pub fn node(mut self, name: impl Into<String>) -> Self {
        self.nodes.push((name.into(), None));
        self
    }

    /// Adds a node with this host name and distribution.
    pub fn node_of(mut self, name: impl Into<String>, base: Base) -> Self {
        self.nodes.push((name.into(), Some(base)));
        self
    }

    /// Adds nodes `n0`, `n1` and so on.
    pub fn nodes(self, count: usize) -> Self {
        (0..count).fold(self, |builder, index| builder.node(format!("n{index}")))
    }

    /// Adds a line to the nodes' /etc/hosts: a name for an address of the bed's network that belongs to no node from
    /// the start.
    pub fn alias(mut self, address: impl Into<String>, name: impl Into<String>) -> Self {
        self.aliases.push((address.into(), name.into()));
        self
    }

    /// Installs the product on every node, as a layer of the overlay at the node's `/usr`.
    pub fn layer(mut self, layer: Layer) -> Self {
        self.layer = Some(layer);
        self
    }

    /// Makes the test bed with all nodes switched off, so that a test can first put files on the nodes. Needs root.
    pub fn build(self) -> Result<Bed> {
        ensure!(rustix::process::geteuid().is_root(), "a bed of nodes needs root: run it through `cargo xtask test`");
        for (index, (name, _)) in self.nodes.iter().enumerate() {
            let plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
            ensure!(plain && (1..=40).contains(&name.len()), "not a name for a node: {name:?}");
            ensure!(self.nodes[..index].iter().all(|(other, _)| other != name), "two nodes named {name}");
        }
        reaper::sweep();
        let reaper = Reaper::start(self.layer.as_ref())?;
        let hosts: Vec<(String, String)> =
            self.nodes.iter().enumerate().map(|(index, (name, _))| (address(index), name.clone())).collect();
        let mut nodes = Vec::with_capacity(hosts.len());
        for (index, ((address, name), (_, base))) in hosts.iter().zip(self.nodes).enumerate() {
            let base = base.unwrap_or_else(Base::common);
            let node = Node::new(&reaper, index, name, address, base)?;
            nodes.push(node);
        }
        let hosts = [&hosts[..], &self.aliases].concat();
        for node in &nodes {
            upper::furnish(node, &hosts)?;
        }
        Ok(Bed { nodes, hosts, reaper })
    }

    /// Makes the bed, boots every node and waits until the nodes have booted.
    pub fn boot(self) -> Result<Bed> {
        let bed = self.build()?;
        bed.boot()?;
        Ok(bed)
    }
}

/// A test bed: a set of nodes on this machine. Dropping the bed removes everything.
#[derive(Debug)]
pub struct Bed {
    // Fields drop in order: first the nodes' own processes, then the reaper and the directory.
    nodes: Vec<Node>,
    /// Lines of the nodes' /etc/hosts: address and name.
    hosts: Vec<(String, String)>,
    reaper: Reaper,
}

impl Bed {
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// Boots all nodes that are off, at the same time, and waits until they have booted.
    pub fn boot(&self) -> Result<()> {
        let off: Vec<&Node> = self.nodes.iter().filter(|node| !node.is_up()).collect();
        for node in &off {
            node.power_on()?;
        }
        for node in &off {
            node.wait_booted()?;
        }
        Ok(())
    }

    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// Returns the node of that name.
    pub fn node(&self, name: &str) -> Result<&Node> {
        let node = self.nodes.iter().find(|node| node.name() == name);
        node.ok_or_else(|| anyhow!("this bed has no node {name}: {:?}", self.names()))
    }

    /// Makes a node, which is off, another machine with the same name and address: no file of the first is left.
    pub(crate) fn replace(&self, name: &str) -> Result<()> {
        let node = self.node(name)?;
        node.erase()?;
        upper::furnish(node, &self.hosts)
    }

    fn names(&self) -> Vec<&str> {
        self.nodes.iter().map(Node::name).collect()
    }

    /// Returns the bed's name on this machine, which the bed's directory, cgroup and processes carry.
    pub fn name(&self) -> &str {
        self.reaper.name()
    }

    /// Returns the pid, on this machine, of the hub: the first process in the bed's namespaces.
    pub(crate) fn hub(&self) -> u32 {
        self.reaper.hub()
    }

    /// Returns the bed's directory on this machine. Mounts below it may exist only in the bed's own mount namespace.
    pub fn directory(&self) -> &Path {
        self.reaper.directory()
    }

    /// Returns the directory of the installed product, whose `usr` is a layer of every node's `/usr`. Without a
    /// product, this `usr` is empty. If the bed made the directory, dropping the bed removes it.
    pub fn layer(&self) -> &Path {
        self.reaper.layer()
    }

    /// Waits as [`wait_until`](crate::wait_until) does; an error also shows the state of all nodes.
    pub fn wait_until(&self, what: &str, limit: Duration, condition: impl FnMut() -> Result<bool>) -> Result<()> {
        crate::wait_until(what, limit, condition).map_err(|error| anyhow!("{error:#}\n{}", self.diagnosis()))
    }

    /// Returns a text for error messages: the state, failed units and last journal lines of every node.
    pub fn diagnosis(&self) -> String {
        self.nodes.iter().map(Node::diagnosis).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_stay_inside_the_network() {
        for (index, expected) in [(0, "10.77.0.2"), (249, "10.77.0.251"), (250, "10.77.1.2")] {
            assert_eq!(address(index), expected);
        }
    }

    #[test]
    fn names_that_are_no_host_names_are_refused() {
        if !rustix::process::geteuid().is_root() {
            return; // refused for another reason
        }
        for names in [vec![""], vec!["a/b"], vec!["a", "a"]] {
            let builder = names.into_iter().fold(Bed::builder(), Builder::node);
            assert!(builder.build().is_err());
        }
    }
}
