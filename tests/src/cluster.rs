//! Cluster: a controller and nodes, configured as a site would, on a [`Bed`].
//!
//! `ctl` runs perilog-controller; `n0`, `n1`, ... run perilog-agent. Certificates come from `perilog ca`, and TLS is
//! on. The daemons are enabled units: systemd starts the daemons at every boot of the node, also after a power failure.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use perilog_core::controller::view::{JobView, NodeView};
use serde::Deserialize;

use crate::authority::Authority;
use crate::base::Base;
use crate::bed::{Bed, Builder};
use crate::command::{Output, Running};
use crate::layer::Layer;
use crate::ledger::{self, Comparison, Ledger};
use crate::node::Node;

/// Name of the controller's node.
pub const CONTROLLER: &str = "ctl";
/// Names of the controller's hosts in a cluster with two of them, where [`CONTROLLER`] is the name of [`ADDRESS`].
pub(crate) const HOSTS: [&str; 2] = ["ctl0", "ctl1"];
/// Address that moves between [`HOSTS`] with the controller.
pub(crate) const ADDRESS: &str = "10.77.0.200";

/// Exit status of `perilog` for a job that the controller does not know
const NOT_FOUND: i32 = 9;
/// Time limit until every agent is online, on a loaded machine; normally tens of milliseconds.
const ONLINE: Duration = Duration::from_secs(60);
/// Time limit until a line is in a journal, on a loaded machine.
const LOGGED: Duration = Duration::from_secs(90);
/// Environment variable with the name of a deliberate defect, which every daemon of the cluster gets. Only builds with
/// defects read it (`perilog_host::defect`, `cargo xtask mutate`).
const DEFECT_VARIABLE: &str = "PERILOG_DEFECT";
/// Socket of the controller's API, at its real path.
const SOCKET: &str = "/run/perilog/controller/controller.sock";
const DEFECT_FILE: &str = "/etc/perilog/defect";
/// Drop-in that lets a unit see its node's own boot id, which is a bind mount in the node's /proc. With either
/// protection, systemd gives the unit a fresh /proc with the machine's boot id.
const OWN_BOOT_ID: &str = "[Service]\nProtectKernelTunables=no\nProtectControlGroups=no\n";

/// Drop-in for the controller's unit that lets the controller write below /run, where the files of fault points are. A
/// daemon removes a point's file when it dies or stops there. The controller is not root, and may otherwise write only
/// to its own directory below /run.
const MAY_SPRING: &str = "[Service]\nReadWritePaths=/run\n";

/// Builder of a test cluster: the number of nodes, scripts, and configuration of the daemons.
#[derive(Debug)]
pub struct ClusterBuilder {
    nodes: usize,
    layer: Option<Layer>,
    /// `true`: the nodes have no product, because the test installs packages on them.
    bare: bool,
    /// `true`: the controller has two hosts, between which Pacemaker moves it.
    two_hosts: bool,
    /// Distributions of the first nodes; the others have the common one.
    bases: Vec<Base>,
    scripts: BTreeMap<(String, String), String>,
    agent: String,
    controller: String,
}

impl ClusterBuilder {
    /// Leaves perilog off the nodes, which still get certificates and configuration. The test installs perilog itself.
    pub fn bare(mut self) -> Self {
        self.bare = true;
        self
    }

    /// Gives the controller two hosts, [`HOSTS`]. Neither starts it at boot; agents dial [`ADDRESS`].
    pub(crate) fn two_hosts(mut self) -> Self {
        self.two_hosts = true;
        self
    }

    /// Gives the first nodes these distributions, one each.
    pub fn bases(mut self, bases: Vec<Base>) -> Self {
        self.bases = bases;
        self
    }

    /// Adds a script to an action on every agent's node, and configures the action. `name` is the file name; `body` is
    /// sh(1) as for [`ledger::script`].
    pub fn script(mut self, action: &str, name: &str, body: &str) -> Self {
        self.scripts.insert((action.to_owned(), name.to_owned()), ledger::script(body));
        self
    }

    /// Adds lines to every agent's configuration, beside the lines that name the controller.
    pub fn agent(mut self, toml: &str) -> Self {
        self.agent.push_str(toml);
        self
    }

    /// Adds lines to the controller's configuration, beside the cluster's name.
    pub fn controller(mut self, toml: &str) -> Self {
        self.controller.push_str(toml);
        self
    }

    /// Uses this product instead of the product that [`Layer::find`] finds.
    pub fn layer(mut self, layer: Layer) -> Self {
        self.layer = Some(layer);
        self
    }

    /// Makes the cluster with all nodes switched off.
    pub fn build(self) -> Result<Cluster> {
        let layer = self.layer.clone().map_or_else(Layer::find, Ok)?;
        let bed = match self.two_hosts {
            true => HOSTS.into_iter().fold(Bed::builder().alias(ADDRESS, CONTROLLER), Builder::node),
            false => Bed::builder().node(CONTROLLER),
        };
        let mut bases = self.bases.iter().cloned();
        let bed = (0..self.nodes).fold(bed, |bed, rank| match bases.next() {
            Some(base) => bed.node_of(format!("n{rank}"), base),
            None => bed.node(format!("n{rank}")),
        });
        let bed = if self.bare { bed } else { bed.layer(layer.clone()) }.build()?;
        if let Ok(defect) = std::env::var(DEFECT_VARIABLE) {
            for node in bed.nodes() {
                node.write_file(DEFECT_FILE, &defect)?;
            }
        }
        let authority = Authority::new(&bed, &layer)?;
        let hosts = if self.two_hosts { HOSTS.len() } else { 1 };
        let cluster = Cluster { bed, authority, hosts };
        let authority = &cluster.authority;
        // On a bare node, packages bring agent.toml and controller.toml later, so the configuration goes to drop-ins.
        let main = |daemon: &str| format!("/etc/perilog/{daemon}.{}", if self.bare { "d/site.toml" } else { "toml" });
        for controller in cluster.hosts() {
            authority.issue_as("controller", controller, if self.two_hosts { &[CONTROLLER, ADDRESS] } else { &[] })?;
            controller.write_file(&main("controller"), "cluster = \"bed\"\n")?;
            controller.write_file("/etc/perilog/controller.d/test.toml", &self.controller)?;
            controller.write_file("/etc/systemd/system/perilog-controller.service.d/points.conf", MAY_SPRING)?;
            if !self.bare && !self.two_hosts {
                controller.enable("perilog-controller.socket", "sockets.target")?;
                controller.enable("perilog-controller.service", "multi-user.target")?;
            }
        }
        for node in cluster.nodes() {
            authority.issue("node", node)?;
            node.write_file(&main("agent"), format!("controller = [\"{CONTROLLER}:5115\"]\n"))?;
            node.write_file("/etc/perilog/agent.d/test.toml", &self.agent)?;
            if !self.bare {
                node.enable("perilog-agent.service", "multi-user.target")?;
            }
            own_boot_id(node)?;
            Ledger::prepare(node)?;
            for ((action, name), text) in &self.scripts {
                node.write_file(&format!("/etc/perilog/agent.d/{action}.toml"), format!("[action.{action}]\n"))?;
                node.write_script(&format!("/etc/perilog/{action}.d/{name}"), text)?;
            }
        }
        Ok(cluster)
    }

    /// Makes and boots the cluster, and waits until the controller shows every node as online.
    pub fn boot(self) -> Result<Cluster> {
        let cluster = self.build()?;
        cluster.bed.boot()?;
        cluster.wait_online()?;
        Ok(cluster)
    }
}

/// Test cluster: a controller on node `ctl`, and agents on the nodes `n0`, `n1` and so on.
#[derive(Debug)]
pub struct Cluster {
    bed: Bed,
    pub(crate) authority: Authority,
    /// Number of the controller's hosts, which are the first nodes of the bed.
    hosts: usize,
}

impl Cluster {
    /// Returns the builder of a cluster of `nodes` nodes beside the controller's node.
    pub fn builder(nodes: usize) -> ClusterBuilder {
        let (agent, controller) = (String::new(), String::new());
        let (bare, two_hosts, scripts) = (false, false, BTreeMap::new());
        ClusterBuilder { nodes, layer: None, bare, two_hosts, bases: Vec::new(), scripts, agent, controller }
    }

    pub fn bed(&self) -> &Bed {
        &self.bed
    }

    /// Returns the controller's host; of two hosts, the one that runs the controller now.
    ///
    /// # Errors
    /// None of two hosts runs the controller.
    pub fn controller(&self) -> Result<&Node> {
        match self.hosts() {
            [host] => Ok(host),
            hosts => hosts.iter().find(|host| has_socket(host)).context("no host runs the controller"),
        }
    }

    /// Returns the controller's hosts, of which one runs the controller.
    pub fn hosts(&self) -> &[Node] {
        self.bed.nodes().get(..self.hosts).unwrap_or_default()
    }

    /// Returns the nodes that run agents, in the order of their ranks.
    pub fn nodes(&self) -> &[Node] {
        self.bed.nodes().get(self.hosts..).unwrap_or_default()
    }

    /// Returns the node of this rank.
    pub fn node(&self, rank: usize) -> Result<&Node> {
        self.nodes().get(rank).with_context(|| format!("this cluster has no node n{rank}"))
    }

    /// Runs `perilog ARGUMENTS` on the controller's node and waits for its end.
    pub fn perilog(&self, arguments: &[&str]) -> Result<Output> {
        self.controller()?.run(&with_perilog(arguments))
    }

    /// Starts `perilog ARGUMENTS` on the controller's node and leaves it running.
    pub fn start_perilog(&self, arguments: &[&str]) -> Result<Running> {
        self.controller()?.spawn(&with_perilog(arguments))
    }

    /// Returns the controller's view of the nodes, as `perilog nodes` shows them.
    pub fn node_views(&self) -> Result<Vec<NodeView>> {
        #[derive(Deserialize)]
        struct Nodes {
            nodes: Vec<NodeView>,
        }
        let text = self.perilog(&["--json", "nodes"])?.ok()?;
        let nodes: Nodes = serde_json::from_str(&text).with_context(|| format!("what `perilog nodes` says: {text}"))?;
        Ok(nodes.nodes)
    }

    /// Returns the controller's view of a job, as `perilog show JOB` shows it.
    pub fn job(&self, job: &str) -> Result<JobView> {
        shown(&self.perilog(&["--json", "show", job])?.ok()?)
    }

    /// Returns the controller's view of a job, with a row for the end of each of these ranks.
    pub fn job_by_rank(&self, job: &str, ranks: &str) -> Result<JobView> {
        shown(&self.perilog(&["--json", "show", job, "--rank", ranks])?.ok()?)
    }

    /// Returns the controller's view of a job; `None` if the controller does not know the job, or not yet.
    pub fn known_job(&self, job: &str) -> Result<Option<JobView>> {
        let output = self.perilog(&["--json", "show", job])?;
        if output.code() == Some(NOT_FOUND) { Ok(None) } else { shown(&output.ok()?).map(Some) }
    }

    /// Waits until the controller shows every node that is on as online.
    pub fn wait_online(&self) -> Result<()> {
        let expected: Vec<&str> = self.nodes().iter().filter(|node| node.is_up()).map(Node::name).collect();
        self.bed.wait_until("the controller sees every node", ONLINE, || {
            // The controller may not answer yet.
            let Ok(views) = self.node_views() else { return Ok(false) };
            let online = |name: &&str| views.iter().any(|view| view.host == **name && view.state == "online");
            Ok(expected.iter().all(online))
        })
    }

    /// Returns `true` if the controller shows the node as online.
    pub fn is_online(&self, host: &str) -> Result<bool> {
        Ok(self.node_views()?.iter().any(|view| view.host == *host && view.state == "online"))
    }

    /// Waits until the journal of this unit on that node has a line with all of these words.
    pub fn wait_logged(&self, node: &Node, unit: &str, words: &[&str]) -> Result<()> {
        self.bed.wait_until(&format!("{unit} of {} logs {words:?}", node.name()), LOGGED, || {
            let journal = node.sh(&format!("journalctl --no-pager -o cat -u {unit}"))?;
            Ok(journal.lines().any(|line| words.iter().all(|word| line.contains(word))))
        })
    }

    /// Reads the ledgers of all nodes, in which the scripts recorded their runs.
    pub fn ledger(&self) -> Result<Ledger> {
        Ledger::read(self.nodes())
    }

    /// Compares the controller's view of a job with the scripts' own ledgers. `scripts` lists the scripts of each
    /// action, as for [`ledger::compare`].
    pub fn compare(&self, job: &str, scripts: &[(&str, &[&str])]) -> Result<Comparison> {
        self.compare_to(job, &self.job(job)?, scripts)
    }

    pub(crate) fn compare_to(&self, job: &str, view: &JobView, scripts: &[(&str, &[&str])]) -> Result<Comparison> {
        let mut ledger = self.ledger()?;
        ledger.runs.retain(|key, _| key.job == job);
        Ok(ledger::compare(&ledger, &ledger::known(view), scripts))
    }

    /// Kills the main process of a unit with kill -9; does not wait for its end.
    pub fn kill_unit(node: &Node, unit: &str) -> Result<()> {
        node.systemctl(&["kill", "--kill-who=main", "--signal=KILL", unit]).map(drop)
    }
}

/// Parses the output of `perilog --json show JOB`.
pub(crate) fn shown(text: &str) -> Result<JobView> {
    #[derive(Deserialize)]
    struct Show {
        job: JobView,
    }
    let show: Show = serde_json::from_str(text).with_context(|| format!("what `perilog show` says: {text}"))?;
    Ok(show.job)
}

/// Returns `true` if a controller's socket is on the host: systemd makes its directory at the start and removes it at
/// the end of the controller.
fn has_socket(host: &Node) -> bool {
    matches!(host.leader(), Ok(leader) if Path::new(&format!("/proc/{leader}/root{SOCKET}")).exists())
}

/// Makes a node's agent see the node's own boot id instead of that of the machine.
pub(crate) fn own_boot_id(node: &Node) -> Result<()> {
    node.write_file("/etc/systemd/system/perilog-agent.service.d/boot-id.conf", OWN_BOOT_ID)
}

fn with_perilog<'a>(arguments: &[&'a str]) -> Vec<&'a str> {
    [&["perilog"], arguments].concat()
}
