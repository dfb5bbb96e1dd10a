//! Epilogs as Flux's housekeeping: for Flux, a job ends when the user's processes have ended. Each node is released
//! when its own epilog has ended, while other nodes still clean up.

use anyhow::{Result, ensure};
use perilog_tests::flux::{self, Flux};

const ALL: &[u32] = &[0, 1, 2, 3];

/// Waits until exactly these nodes of the cluster are free in Flux.
fn wait_free(flux: &Flux<'_>, nodes: &str) -> Result<()> {
    flux.wait(&format!("{nodes} are free"), |flux| {
        Ok(flux.ask(&["resource", "list", "--states=free", "-no", "{nodelist}"])?.trim() == nodes)
    })
}

/// An epilog hangs on n2 (flux-core #4312). After two seconds Flux takes back the other nodes, and the next job gets
/// them.
#[test]
fn a_hung_epilog_holds_its_own_node() -> Result<()> {
    let cluster = flux::edge_cluster(4).boot()?;
    let flux = Flux::with_housekeeping(&cluster, "2s")?;
    flux.hold_on(2, "epilog")?;
    let job = flux.submit(4, &[], &["true"])?;
    flux.wait_clean(&job)?;
    flux.wait_begun(&job, "epilog", &[2])?;
    wait_free(&flux, "n[0-1,3]")?;
    let next = flux.submit(3, &[], &["true"])?;
    flux.wait_clean(&next)?;
    ensure!(flux.nodes_of(&next)? == "n[0-1,3]", "{}", flux.nodes_of(&next)?);
    flux.release_scripts("epilog")?;
    wait_free(&flux, "n[0-3]")?;
    flux.assert_once(&job, &[("prolog", ALL, &[]), ("epilog", ALL, &[])])?;
    flux.assert_once(&next, &[("prolog", &[0, 1, 3], &[]), ("epilog", &[0, 1, 3], &[])])?;
    flux.assert_idle()
}

/// An epilog fails on n1, and another job's prolog fails on n2: both jobs are cleaned up on every node, and the bad
/// nodes are drained.
#[test]
fn a_node_that_is_not_clean_is_drained() -> Result<()> {
    let cluster = flux::edge_cluster(4).boot()?;
    let flux = Flux::with_housekeeping(&cluster, "0")?;
    flux.ends_with(1, "epilog", 4)?;
    let job = flux.submit(4, &[], &["true"])?;
    flux.wait_clean(&job)?;
    flux.wait("n1 is drained", |flux| Ok(flux.drained()?.contains_key("n1")))?;
    wait_free(&flux, "n[0,2-3]")?;
    ensure!(flux.drained()?.len() == 1, "{:?}", flux.drained()?);
    flux.assert_once(&job, &[("prolog", ALL, &[]), ("epilog", ALL, &[0, 4, 0, 0])])?;
    flux.ends_with(1, "epilog", 0)?;
    flux.wait("perilog's own reason is there", |flux| Ok(flux.drained()?["n1"].contains("exit 4")))?;
    cluster.perilog(&["undrain", "n1"])?.ok()?;
    flux.wait_undrained()?;
    flux.ends_with(2, "prolog", 3)?;
    let job = flux.submit(4, &[], &["true"])?;
    flux.wait_clean(&job)?;
    ensure!(flux.result(&job)? == "FAILED", "{:?}", flux.story(&job)?);
    wait_free(&flux, "n[0-1,3]")?;
    flux.assert_once(&job, &[("prolog", ALL, &[0, 0, 3, 0]), ("epilog", ALL, &[])])
}

/// The edge and rank 0 die. The brokers of the nodes end with rank 0, and Flux forgets the housekeeping. No prolog
/// begins on a node before the node's epilog has ended.
#[test]
fn no_prolog_begins_beside_an_epilog_after_a_kill_of_rank_0() -> Result<()> {
    let cluster = flux::edge_cluster(4).boot()?;
    let flux = Flux::with_housekeeping(&cluster, "0")?;
    flux.hold("epilog")?;
    let job = flux.submit(4, &[], &["true"])?;
    flux.wait_clean(&job)?;
    flux.wait_begun(&job, "epilog", ALL)?;
    flux.kill_edge()?;
    flux.wait_edge()?;
    flux.restart_rank_0()?;
    flux.wait_edge()?;
    let next = flux.submit(4, &[], &["true"])?;
    // Waits until the edge works again: it has added the next job.
    flux.wait("perilog has the next job", |_| Ok(cluster.perilog(&["show", &flux::plain(&next)])?.code() == Some(0)))?;
    ensure!(cluster.runs(&flux::plain(&next))?.is_empty(), "{:?}", cluster.runs(&flux::plain(&next))?);
    flux.release_scripts("epilog")?;
    flux.wait_clean(&next)?;
    flux.wait("every node is free", |flux| {
        Ok(flux.ask(&["resource", "list", "--states=free", "-no", "{nnodes}"])?.trim() == "4")
    })?;
    flux.assert_once(&job, &[("prolog", ALL, &[]), ("epilog", ALL, &[])])?;
    flux.assert_once(&next, &[("prolog", ALL, &[]), ("epilog", ALL, &[])])?;
    flux.wait_undrained()?;
    flux.assert_idle()
}

/// The broker of n1 ends while n1 cleans up. The epilog goes on, and no job's prolog begins on n1 before the epilog has
/// ended.
#[test]
fn an_epilog_outlives_the_broker_of_its_node() -> Result<()> {
    let cluster = flux::edge_cluster(2).boot()?;
    let flux = Flux::with_housekeeping(&cluster, "0")?;
    flux.hold_on(1, "epilog")?;
    let job = flux.submit(2, &[], &["true"])?;
    flux.wait_begun(&job, "epilog", &[1])?;
    flux.stop_broker(cluster.node(1)?)?;
    cluster.node(1)?.systemctl(&["start", "flux"])?;
    flux.wait_up()?;
    let next = flux.submit(2, &[], &["true"])?;
    flux.wait("n1 is the next job's", |flux| Ok(flux.nodes_of(&next)? == "n[0-1]"))?;
    ensure!(cluster.runs(&flux::plain(&next))?.is_empty(), "{:?}", cluster.runs(&flux::plain(&next))?);
    flux.release_scripts("epilog")?;
    flux.wait_clean(&next)?;
    flux.assert_once(&job, &[("prolog", &[0, 1], &[]), ("epilog", &[0, 1], &[])])?;
    flux.wait("each node is free", |flux| {
        Ok(flux.ask(&["resource", "list", "--states=free", "-no", "{nnodes}"])?.trim() == "2")
    })?;
    flux.assert_once(&next, &[("prolog", &[0, 1], &[]), ("epilog", &[0, 1], &[])])?;
    flux.wait_undrained()
}

/// The edge requests the epilog. The job holds its nodes meanwhile, so the epilog's time is billed to the job. The
/// site's own script runs after the job, as Flux's housekeeping through perilog's hook. Each node is released when its
/// script has ended.
#[test]
fn a_script_of_its_own_follows_the_billed_epilog() -> Result<()> {
    const HOUSEKEEPING: &str = include_str!("../../docs/examples/flux/housekeeping");
    let held = "while [ -e /run/hold-housekeeping ]; do sleep 0.02; done";
    let cluster = flux::edge_cluster(2).script("housekeeping", "10-site", held).boot()?;
    let libexec = cluster.controller()?.sh("flux config builtin libexecdir")?;
    let command = format!("command = [\"{libexec}/flux-imp\", \"run\", \"housekeeping\"]");
    let flux = Flux::with_edge(&cluster, &format!("[job-manager.housekeeping]\n{command}\nrelease-after = \"0\"\n"))?;
    for node in cluster.nodes() {
        // The program that the IMP runs as housekeeping.
        node.write_script("/usr/libexec/perilog/flux/wait", HOUSEKEEPING)?;
    }
    flux.hold_on(1, "housekeeping")?;
    flux.hold("epilog")?;
    let job = flux.submit(2, &[], &["true"])?;
    flux.wait_begun(&job, "epilog", &[0, 1])?;
    ensure!(!flux.story(&job)?.contains(&"free".to_owned()), "{:?}", flux.story(&job)?);
    flux.release_scripts("epilog")?;
    flux.wait_clean(&job)?;
    wait_free(&flux, "n0")?;
    let began = |action: &str| -> Result<usize> {
        let ledger = cluster.ledger()?;
        Ok(ledger.runs.iter().filter(|(key, _)| key.action == action).map(|(_, runs)| runs.len()).sum())
    };
    flux.wait("the site's script has begun on both nodes", |_| Ok(began("housekeeping")? == 2))?;
    flux.release_scripts("housekeeping")?;
    wait_free(&flux, "n[0-1]")?;
    ensure!((began("prolog")?, began("epilog")?, began("housekeeping")?) == (2, 2, 2), "{:?}", cluster.ledger()?);
    flux.wait_undrained()
}
