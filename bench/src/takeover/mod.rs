//! Measures what a fault of the controller's host costs, with two hosts under the real Pacemaker and a swarm of
//! simulated agents beside two real nodes: the time until the next Start on a real node, and until every agent is
//! welcomed again. A plain restart comes beside the takeover, and slurmctld's own takeover beside a power cut
//! ([`slurm`]).
//!
//! ```text
//!   ctl0 ─┬─ ctl1      Pacemaker, one disk, fencing; perilog's controller on one of them at 10.77.0.200
//!   n0, n1             real nodes: scripts run on them while the fault strikes
//!   n100, n101, ...    the swarm, one process in the network namespace of n0
//! ```

mod slurm;

use std::path::Path;

use anyhow::{Context, Result, anyhow};
use perilog_bench::options::Options;
use perilog_bench::report::{Table, progress};
use perilog_bench::stats::figure;
use perilog_tests::failover::{Failover, Measured};
use perilog_tests::{AT_GATE, Cluster, Layer, Node};
use serde_json::{Value, json};

use crate::authority;
use crate::fan::swarm;
use crate::fan::swarms::Swarm;
use crate::noise::{Noise, machine};
use crate::part;

use slurm::Slurm;

const NODES: usize = 2;
/// Rank of the first simulated agent, higher than those of the real nodes.
const FIRST: usize = 100;
/// Name and address at which agents dial the controller, on either host (`tests/src/cluster.rs`).
const CONTROLLER: (&str, &str) = ("ctl", "10.77.0.200:5115");
/// Certificate of the authority, on each host.
const CA: &str = "/etc/perilog/tls/ca.pem";

/// The cost of a fault, from the fault on.
struct Cost {
    fault: String,
    start: Measured,
    agents_s: f64,
    /// Until slurmctld began the next job, where Slurm was part of it.
    slurmctld_s: Option<f64>,
}

pub(crate) fn run(options: &Options) -> Result<Value> {
    part::raise_nofile()?;
    let agents = options.number("agents", 10_000).max(1);
    let rounds = options.number("rounds", 2);
    let directory = tempfile::Builder::new().prefix("perilog-bench-").tempdir_in("/var/tmp")?;
    let program = std::env::current_exe().context("the path of this program")?;
    let layer = Layer::Built(program.parent().context("a directory of programs")?.to_owned());
    let builder = Cluster::builder(NODES).layer(layer);
    let builder = builder.script("prolog", "10-gate", AT_GATE).script("epilog", "10-gate", AT_GATE);
    progress(&format!("two hosts, two nodes and {agents} agents"));
    authority::make(directory.path(), (FIRST..FIRST + agents).map(swarm::host))?;
    let failover = Failover::boot_with(builder, |cluster| trust_each_other(cluster, directory.path()))?;
    let mut swarm = Swarm::start_in(failover.cluster().node(0)?.leader()?, directory.path(), agents)?;
    swarm.join_at(CONTROLLER.0, CONTROLLER.1, FIRST)?;

    let noise = Noise::begin()?;
    let mut costs = Vec::new();
    for round in 0..rounds {
        for fault in ["restart", "kill -9", "move", "power cut"] {
            progress(&format!("round {} of {rounds}: {fault}", round + 1));
            costs.push(strike(&failover, &mut swarm, fault, &format!("f{}", costs.len()), None)?);
        }
    }
    let slurm = Slurm::new(&failover)?;
    for timeout in slurm::TIMEOUTS.repeat(rounds) {
        let fault = format!("power cut, SlurmctldTimeout={timeout}");
        progress(&fault);
        slurm.start(timeout)?;
        to_primary(&failover)?;
        costs.push(strike(&failover, &mut swarm, &fault, &format!("f{}", costs.len()), Some(&slurm))?);
        slurm.heal()?;
    }
    report(agents, &costs, noise)
}

/// Makes the controller's hosts accept the agents of the swarm, and the swarm accept the controller.
fn trust_each_other(cluster: &Cluster, directory: &Path) -> Result<()> {
    let of_agents = authority::agent(directory, "").ca;
    let of_swarm = std::fs::read_to_string(&of_agents).context("reading the swarm's authority")?;
    let mut of_hosts = String::new();
    for host in cluster.hosts() {
        of_hosts = host.read_file(CA)?;
        host.write_file(CA, format!("{of_hosts}{of_swarm}"))?;
    }
    std::fs::write(of_agents, of_hosts).context("writing the controller's authority")
}

/// Moves the controller to the host of the primary slurmctld.
fn to_primary(failover: &Failover) -> Result<()> {
    let (primary, backup) = slurm::hosts(failover)?;
    if failover.active()?.name() == primary.name() {
        return Ok(());
    }
    failover.move_away(backup)?;
    failover.wait_answers(primary)?;
    failover.clear()?;
    failover.wait_settled()
}

/// Strikes the controller's host under running scripts.
fn strike(failover: &Failover, swarm: &mut Swarm, fault: &str, name: &str, slurm: Option<&Slurm<'_>>) -> Result<Cost> {
    let before = swarm.counts("welcomes")?;
    std::thread::scope(|scope| {
        let (mut agents, mut job) = (None, None);
        let start = failover.under_load(name, |active| {
            let from = perilog_tests::failover::now()?;
            let since = move || anyhow::Ok(perilog_tests::failover::now()? - from);
            carry_out(failover, active, fault)?;
            agents = Some(scope.spawn(move || {
                swarm.await_welcomes(&before)?;
                since()
            }));
            job = slurm.map(|slurm| scope.spawn(move || anyhow::Ok(slurm.job(&format!("after-{name}"))? - from)));
            Ok(())
        })?;
        let panicked = |_| anyhow!("a panic");
        let agents_s = agents.context("no fault")?.join().map_err(panicked)??;
        let slurmctld_s = job.map(|job| job.join().map_err(panicked)?).transpose()?;
        failover.wait_settled()?;
        if fault == "move" {
            failover.clear()?;
            failover.wait_settled()?;
        }
        Ok(Cost { fault: fault.to_owned(), start, agents_s, slurmctld_s })
    })
}

fn carry_out(failover: &Failover, active: &Node, fault: &str) -> Result<()> {
    match fault {
        "restart" => failover.restart(),
        "kill -9" => failover.kill(),
        "move" => failover.move_away(active),
        _ => failover.power_cut(active),
    }
}

fn report(agents: usize, costs: &[Cost], noise: Noise) -> Result<Value> {
    let mut table =
        Table::new(&["seconds from the fault", "next Start", "last node", "all agents", "slurmctld: next job"]);
    let mut rows: Vec<&Cost> = costs.iter().collect();
    rows.sort_by_key(|cost| costs.iter().position(|first| first.fault == cost.fault));
    for cost in rows {
        let times = [cost.start.first, cost.start.all, cost.agents_s].into_iter().chain(cost.slurmctld_s);
        table.row(&cost.fault, times.map(figure));
    }
    let raw = costs.iter().map(|cost| {
        json!({
            "fault": cost.fault, "first_s": cost.start.first, "all_s": cost.start.all, "agents_s": cost.agents_s,
            "slurmctld_s": cost.slurmctld_s,
        })
    });
    let raw: Vec<Value> = raw.collect();
    let noise = noise.end(&mut table)?;
    let table = table.text();
    Ok(json!({
        "bench": "takeover", "machine": machine(), "agents": agents, "costs": raw, "noise": noise, "table": table
    }))
}
