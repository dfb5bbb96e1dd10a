//! The edge under a Flux that runs jobs as units of systemd (`[exec] service = "sdexec"`). Such a unit outlives the
//! broker of its node. No epilog runs while a unit of its job lives.

use anyhow::{Context, Result};
use perilog_tests::flux::{self, Flux};
use perilog_tests::{Cluster, Node};

const BOTH: &[u32] = &[0, 1];
const ONCE: [(&str, &[u32], &[i32]); 2] = [("prolog", BOTH, &[]), ("epilog", BOTH, &[])];
/// Script of a user's process that ignores SIGTERM and SIGHUP, until the file /tmp/end exists. As a sign of life it
/// keeps writing the time, by the ledger's clock, to /tmp/alive.
const STUBBORN: &str = "trap '' TERM HUP\nwhile [ ! -e /tmp/end ]; do cut -d' ' -f1 /proc/uptime >>/tmp/alive; sleep \
                        0.05; done";

/// Runs a job of two nodes as units; on `n1` its processes outlive the faults that `strike` makes. The epilog waits for
/// the end of the processes, the edge says so, and the epilog runs once.
fn epilog_waits(strike: impl Fn(&Flux<'_>, &Node, &str) -> Result<()>) -> Result<()> {
    let cluster = flux::edge_cluster(2).boot()?;
    flux::watched_by_sdmon(&cluster)?;
    let flux = Flux::with_edge(&cluster, flux::SDEXEC)?;
    let n1 = cluster.node(1)?;
    let job = flux.submit(2, &[], &["sh", "-c", STUBBORN])?;
    flux.wait_alive()?;
    strike(&flux, n1, &job)?;
    let output = || n1.sh("journalctl --no-pager -o cat -u flux");
    // An edge that waits for brokers alone goes on from here.
    flux.wait("Flux says that a unit of the job lives", |_| Ok(output()?.contains("needs cleanup")))?;
    let unit = format!("-{}.service", flux::plain(&job));
    let status = || flux.edge_status();
    flux.wait("the edge says what it waits for", |_| Ok(status()?.contains(&unit) && status()?.contains("n1")))
        .with_context(|| format!("{}\n{}", status().unwrap_or_default(), flux.edge_log().unwrap_or_default()))?;
    cluster.nodes().iter().try_for_each(|node| node.write_file("/tmp/end", ""))?;
    flux.wait_clean(&job)?;
    flux.assert_epilog_after_tasks(&job)?;
    flux.assert_once(&job, &ONCE)?;
    flux.wait_up()?;
    flux.wait_undrained()?;
    flux.assert_idle()
}

/// kill -9 of the broker of one node: Flux ends the job at once, and the unit lives on.
#[test]
fn an_epilog_waits_for_tasks_that_outlive_their_broker() -> Result<()> {
    epilog_waits(|flux, node, _| flux.kill_broker(node))
}

/// A cancelled job's tasks ignore SIGTERM, and the broker dies before Flux kills them: no event tells of the loss.
#[test]
fn an_epilog_waits_for_tasks_of_a_cancelled_job_that_outlive_their_broker() -> Result<()> {
    epilog_waits(|flux, node, job| {
        flux.ask(&["cancel", job])?;
        flux.kill_broker(node)
    })
}

/// kill -9 of rank 0 and of the broker of a node: the restarted rank 0 ends the job, and the unit lives on.
#[test]
fn an_epilog_waits_for_tasks_that_outlive_all_brokers() -> Result<()> {
    epilog_waits(|flux, node, _| {
        flux.ask(&["kvs", "sync"])?;
        Cluster::kill_unit(node, "flux.service")?;
        flux.kill_rank_0()?;
        flux.wait_joined()
    })
}
