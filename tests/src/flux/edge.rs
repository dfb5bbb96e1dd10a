//! perilog-flux, the edge, beside rank 0 of a real Flux; and scripts that a test can hold, continue or make fail, node
//! by node.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};

use super::{Event, Flux, cluster};
use crate::cluster::{Cluster, ClusterBuilder};

/// File name of the one script that each action has.
const SCRIPT: &str = "10-held";
/// Script body: waits while the test holds the action on this node ([`Flux::hold`]), then exits with the status that
/// the test has set. In a soak, duration and status are random.
const BODY: &str = "\
echo \"$PERILOG_ACTION $PERILOG_JOB $FLUX_JOB_ID $FLUX_JOB_USERID $FLUX_JOB_RANKS\" >>/var/lib/ledger/flux
trap 'exit 143' TERM
[ ! -e /run/deaf ] || trap '' TERM
[ ! -e /run/soak ] || { sleep $(draw 0 0.1 0.5 2) && exit $(draw 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 3); }
for name in $(cat /run/milestones-$PERILOG_ACTION 2>/dev/null); do perilog-report milestone $name || exit 8; done
while [ -e /run/hold-$PERILOG_ACTION ]; do sleep 0.02; done
[ ! -e /run/lustre-$PERILOG_ACTION ] || perilog-report tolerable --check lustre '/p/lustre1 is not mounted' || exit 9
[ ! -e /run/gpu-$PERILOG_ACTION ] || perilog-report tolerable --check gpu 'gpu0 is gone' || exit 9
exit $(cat /run/exit-$PERILOG_ACTION 2>/dev/null || echo 0)";
const ACTIONS: [&str; 2] = ["prolog", "epilog"];
const UNIT: &str = "perilog-flux.service";
/// Lines of controller.toml for the edge, as in docs/flux.md.
const CONTROLLER: &str = "[edge]\ngroup = \"flux\"\ndrains = true\n";
/// Lines of controller.toml for a site that runs epilogs as Flux's housekeeping.
const PER_NODE: &str = "[action.epilog]\nrelease = \"0\"\n";
const AGENT: &str = "env-allow = [\"FLUX_JOB_ID\", \"FLUX_JOB_RANKS\", \"FLUX_JOB_USERID\"]\n";

/// Returns the builder of a cluster with a prolog and an epilog that [`Flux::hold`] can hold.
pub fn edge_cluster(nodes: usize) -> ClusterBuilder {
    ACTIONS.iter().fold(cluster(nodes).agent(AGENT), |builder, action| builder.script(action, SCRIPT, BODY))
}

/// Returns perilog's id of a job that `flux submit` has printed: `ƒ` becomes `f`.
pub fn plain(job: &str) -> String {
    job.replace('ƒ', "f")
}

impl<'a> Flux<'a> {
    /// Starts Flux and then the edge, as docs/flux.md says. `more` is further lines of Flux's configuration.
    pub fn with_edge(cluster: &'a Cluster, more: &str) -> Result<Self> {
        Self::with_controller(cluster, more, CONTROLLER)
    }

    /// Starts Flux and then the edge, for a site that runs epilogs as Flux's housekeeping. `after` is the site's
    /// `release-after`.
    pub fn with_housekeeping(cluster: &'a Cluster, after: &str) -> Result<Self> {
        let libexec = cluster.controller()?.sh("flux config builtin libexecdir")?;
        let flux = format!(
            "[perilog]\nepilog = \"housekeeping\"\n\
             [job-manager.housekeeping]\ncommand = [\"{libexec}/flux-imp\", \"run\", \"housekeeping\"]\n\
             release-after = \"{after}\"\n"
        );
        Self::with_controller(cluster, &flux, &format!("{CONTROLLER}{PER_NODE}"))
    }

    fn with_controller(cluster: &'a Cluster, more: &str, controller: &str) -> Result<Self> {
        let flux = Self::start(cluster, more)?;
        let node = flux.rank_0()?;
        node.write_file("/etc/perilog/controller.d/edge.toml", controller)?;
        node.systemctl(&["restart", "perilog-controller"])?;
        node.systemctl(&["start", UNIT])?;
        cluster.wait_online()?;
        flux.wait_edge()?;
        Ok(flux)
    }

    /// Waits until the edge's unit status says that the edge follows both Flux and the controller.
    pub fn wait_edge(&self) -> Result<()> {
        let status = || self.edge_status();
        self.wait("the edge follows both", |_| Ok(status()?.contains("jobs of Flux")))
            .with_context(|| format!("{}\n{}", status().unwrap_or_default(), self.edge_log().unwrap_or_default()))
    }

    /// Returns the status line of the edge's unit.
    pub fn edge_status(&self) -> Result<String> {
        self.rank_0()?.systemctl(&["show", "--property=StatusText", "--value", UNIT])
    }

    /// Returns the edge's log from the journal.
    pub fn edge_log(&self) -> Result<String> {
        self.rank_0()?.sh(&format!("journalctl --no-pager -o cat -u {UNIT}"))
    }

    /// Kills the edge with kill -9; systemd starts the edge again.
    pub fn kill_edge(&self) -> Result<()> {
        Cluster::kill_unit(self.rank_0()?, UNIT)
    }

    pub fn stop_edge(&self) -> Result<()> {
        self.rank_0()?.systemctl(&["stop", UNIT]).map(drop)
    }

    pub fn start_edge(&self) -> Result<()> {
        self.rank_0()?.systemctl(&["start", UNIT]).map(drop)
    }

    /// Makes the scripts of an action wait on every node, until [`Flux::release_scripts`].
    pub fn hold(&self, action: &str) -> Result<()> {
        self.cluster.nodes().iter().try_for_each(|node| node.write_file(&format!("/run/hold-{action}"), ""))
    }

    /// Makes the scripts of an action wait on node `n{index}` alone, until [`Flux::release_scripts`].
    pub fn hold_on(&self, index: usize, action: &str) -> Result<()> {
        self.cluster.node(index)?.write_file(&format!("/run/hold-{action}"), "")
    }

    pub fn release_scripts(&self, action: &str) -> Result<()> {
        let nodes = self.cluster.nodes();
        nodes.iter().try_for_each(|node| node.sh(&format!("rm -f /run/hold-{action}")).map(drop))
    }

    /// Makes the scripts of this action exit with this status on node `n{index}` from now on.
    pub fn ends_with(&self, index: usize, action: &str, status: i32) -> Result<()> {
        self.cluster.node(index)?.write_file(&format!("/run/exit-{action}"), status.to_string())
    }

    /// Makes the prolog's check `lustre` fail on node `n{index}` from now on, in a way that a job may tolerate.
    pub fn lustre_fails(&self, index: usize) -> Result<()> {
        self.cluster.node(index)?.write_file("/run/lustre-prolog", "")
    }

    /// Makes the prolog's check `gpu` fail on node `n{index}` from now on, in a way that a job may tolerate.
    pub fn gpu_fails(&self, index: usize) -> Result<()> {
        self.cluster.node(index)?.write_file("/run/gpu-prolog", "")
    }

    /// Makes the scripts of this action report these milestones (separated by blanks) from now on, before they wait.
    pub fn reach(&self, action: &str, milestones: &str) -> Result<()> {
        let nodes = self.cluster.nodes();
        nodes.iter().try_for_each(|node| node.write_file(&format!("/run/milestones-{action}"), milestones))
    }

    /// Waits until a script of the action has begun on each of these nodes.
    pub fn wait_begun(&self, job: &str, action: &str, nodes: &[u32]) -> Result<()> {
        // Rank 0 is on `ctl`.
        let ranks: Vec<u32> = nodes.iter().map(|node| node + 1).collect();
        let begun = self.cluster.wait_action_begun(&plain(job), action, &ranks);
        begun.with_context(|| format!("{:?}\n{}", self.story(job), self.edge_log().unwrap_or_default()))
    }

    /// Waits until Flux has ended the job (event `clean`).
    pub fn wait_clean(&self, job: &str) -> Result<()> {
        let clean = self.wait_event(job, "clean").map(drop);
        clean.with_context(|| self.edge_log().unwrap_or_default())
    }

    /// Asserts that each script of the job ran once: `actions` lists (action, nodes, exit status on each node); a
    /// missing status is 0. Asserts that the controller's view agrees.
    pub fn assert_once(&self, job: &str, actions: &[(&str, &[u32], &[i32])]) -> Result<()> {
        let name = plain(job);
        let ledger = self.cluster.ledger()?;
        let mut found: BTreeMap<(String, u32), Vec<Option<i32>>> = BTreeMap::new();
        for (key, run) in ledger.of_job(&name) {
            let ended = run.ended.map(|(_, code)| code);
            found.entry((key.action.clone(), key.rank - 1)).or_default().push(ended);
        }
        let mut expected = BTreeMap::new();
        for (action, nodes, codes) in actions {
            for (at, node) in nodes.iter().enumerate() {
                let code = codes.get(at).copied().unwrap_or(0);
                expected.insert(((*action).to_owned(), *node), vec![Some(code)]);
            }
        }
        ensure!(found == expected, "{job}: {found:?}, and not {expected:?}\n{}", self.edge_log()?);
        let scripts: Vec<(&str, &[&str])> = actions.iter().map(|(action, ..)| (*action, &[SCRIPT][..])).collect();
        let comparison = self.cluster.compare(&name, &scripts)?;
        ensure!(comparison.holds(), "{job}: the controller and the ledgers differ:\n{comparison}");
        Ok(())
    }

    /// Waits until Flux shows every node as free and perilog shows every node as online. Asserts that no node is
    /// drained in Flux or in perilog.
    pub fn assert_idle(&self) -> Result<()> {
        let all = self.cluster.nodes().len().to_string();
        self.wait("every node is free", |flux| {
            let free = flux.ask(&["resource", "list", "--states=free", "-no", "{nnodes}"])?;
            Ok(free.trim() == all)
        })?;
        let drained = self.drained()?;
        ensure!(drained.is_empty(), "drained in Flux: {drained:?}");
        let drained = self.cluster.perilog(&["--json", "drain"])?.ok()?;
        ensure!(!drained.contains("\"hosts\""), "drained in perilog: {drained}");
        self.cluster.bed().wait_until("perilog holds nothing", super::SOON, || {
            let views = self.cluster.node_views()?;
            Ok(views.iter().all(|view| view.state == "online"))
        })
    }

    /// Returns the nodes that are drained in Flux, with the reasons.
    pub fn drained(&self) -> Result<BTreeMap<String, String>> {
        let rows = self.ask(&["resource", "drain", "-no", "{nodelist} {reason}"])?;
        let row = |row: &str| row.trim().split_once(' ').map(|(node, why)| (node.to_owned(), why.to_owned()));
        Ok(rows.lines().filter_map(row).collect())
    }

    /// Waits until no node is drained in Flux.
    pub fn wait_undrained(&self) -> Result<()> {
        self.wait("no node is drained", |flux| Ok(flux.drained()?.is_empty()))
    }

    /// Returns the time of Flux's last drain of this node, in seconds since 1970.
    pub fn drained_at(&self, node: &str) -> Result<f64> {
        let log = self.ask(&["kvs", "eventlog", "get", "--unformatted", "resource.eventlog"])?;
        let events: Vec<Event> = log.lines().map(serde_json::from_str).collect::<Result<_, _>>()?;
        let of_node = |event: &&Event| event.name == "drain" && event.context["nodelist"] == *node;
        events.iter().rfind(of_node).map(|event| event.timestamp).with_context(|| format!("no drain of {node}: {log}"))
    }

    /// Returns the nodes of a job as a host list, for example `n[0-1]`.
    pub fn nodes_of(&self, job: &str) -> Result<String> {
        Ok(self.ask(&["jobs", "-no", "{nodelist}", job])?.trim().to_owned())
    }

    /// Returns the job's exception of this type, with severity and note.
    pub fn exception(&self, job: &str, kind: &str) -> Result<Event> {
        let of_kind = |event: &Event| event.name == "exception" && event.context["type"] == *kind;
        let events = self.events(job)?;
        let found = events.iter().find(|event| of_kind(event)).cloned();
        found.with_context(|| format!("{job} has no exception of type {kind}: {events:?}"))
    }

    /// Returns the result of an ended job in the words of `flux jobs`: `COMPLETED`, `FAILED`, `CANCELED`.
    pub fn result(&self, job: &str) -> Result<String> {
        Ok(self.ask(&["jobs", "-no", "{result}", job])?.trim().to_owned())
    }
}
