//! The edge under a real Flux, and a node that loses its power before its prolog begins: the job ends, and the drain's
//! reason says what happened.

use anyhow::{Context, Result, ensure};
use perilog_tests::flux::{self, Flux};

/// flux-core #7287, #5391: a node loses power before its prolog begins. The job does not stay in CLEANUP for a prolog
/// that never began, and the drain's reason says that the node was away, not that a script failed.
#[test]
fn a_node_without_power_ends_its_job_and_is_named() -> Result<()> {
    let cluster = flux::edge_cluster(2).controller("start-grace = \"3s\"\n").boot()?;
    let flux = Flux::with_edge(&cluster, "")?;
    let n1 = cluster.node(1)?;
    n1.systemctl(&["stop", "perilog-agent"])?;
    let job = flux.submit(2, &[], &["true"])?;
    flux.wait_begun(&job, "prolog", &[0])?;
    n1.power_fail()?;
    flux.wait_clean(&job)?;
    ensure!(flux.result(&job)? == "FAILED", "{:#?}", flux.events(&job)?);
    let drained = flux.drained()?;
    let reason = drained.get("n1").with_context(|| format!("n1 is not drained: {drained:?}"))?;
    ensure!(reason.contains("lost (the node is offline)") && drained.len() == 1, "{drained:?}");
    flux.assert_once(&job, &[("prolog", &[0], &[]), ("epilog", &[0], &[])])
}
