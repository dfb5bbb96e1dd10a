//! The rc1 script under a real Flux: the own instance of a batch job begins with the nodes drained that failed in the
//! job's prolog.

use anyhow::{Result, ensure};
use perilog_tests::flux::{self, Flux};
use serde_json::json;

/// Batch script: lists the drains of the instance, lifts the drains, and lists again.
const BATCH: &str = "#!/bin/sh
flux resource drain -no '{nodelist} {reason}' > /tmp/drained
flux run -N1 hostname > /tmp/ran
flux resource undrain 1
flux resource drain -no '{nodelist}' > /tmp/after
";

/// Submits a batch script for both nodes, with further arguments of the test.
fn submit(flux: &Flux<'_>, more: &[&str]) -> Result<String> {
    flux.install_rc1()?;
    flux.rank_0()?.write_script("/tmp/batch.sh", BATCH)?;
    let batch = ["batch", "--conf=resource.noverify=true", "-N2", "-n2", "--exclusive", "--cwd=/tmp"];
    flux.run_as("alice", &[&batch[..], more, &["--output=/tmp/output", "/tmp/batch.sh"]].concat())?.ok()
}

/// The whole path: a check fails on n1, the edge posts the failure to the job, and the job's own instance drains the
/// node.
#[test]
fn a_batch_job_drains_the_node_that_its_prolog_found() -> Result<()> {
    let cluster = flux::edge_cluster(2).boot()?;
    let flux = Flux::with_edge(&cluster, "[perilog]\nmax-tolerate = 1\n")?;
    flux.lustre_fails(1)?;
    let job = submit(&flux, &["--setattr=perilog.tolerate=1"])?;
    flux.wait_clean(&job)?;
    let said = |file: &str| cluster.node(0)?.read_file(file);
    let output = said("/tmp/output").unwrap_or_default();
    ensure!(flux.result(&job)? == "COMPLETED", "{output}{:#?}", flux.events(&job)?);
    ensure!(said("/tmp/drained")?.trim() == "n1 perilog: lustre: /p/lustre1 is not mounted", "{output}");
    ensure!(said("/tmp/ran")?.trim() == "n0", "{output}");
    ensure!(said("/tmp/after")?.trim().is_empty(), "its user may undrain: {output}");
    flux.assert_once(&job, &[("prolog", &[0, 1], &[]), ("epilog", &[0, 1], &[])])
}

/// The test posts the exception as the edge does.
#[test]
fn a_batch_job_begins_with_its_failed_nodes_drained() -> Result<()> {
    let cluster = flux::cluster(2).boot()?;
    let flux = Flux::start(&cluster, "")?;
    let job = submit(&flux, &[])?;
    flux.wait_event(&job, "prolog-start")?;
    // An exception that the user raises has no mark, and drains no node.
    flux.run_as("alice", &["job", "raise", "--type=node-failure", "--severity=1", &job, "n0"])?.ok()?;
    let check = json!({"check": "lustre", "hosts": "n1", "ranks": "2", "message": "/p/lustre1 is not mounted"});
    let context = json!({
        "type": "node-failure", "severity": 1, "note": "n1", "hosts": "n1", "ranks": "2", "action": "prolog",
        "checks": [check], "perilog": {"attempt": "1", "sequence": 1},
    });
    let posted = flux.post(&job, "exception", &context)?;
    ensure!(posted.errnum == 0, "{posted:?}");
    ensure!(flux.finish(&job, "prolog", 0)?.errnum == 0, "the prolog is open");
    flux.wait_event(&job, "finish")?;
    let said = |file: &str| cluster.node(0)?.read_file(file);
    let output = said("/tmp/output").unwrap_or_default();
    ensure!(said("/tmp/drained")?.trim() == "n1 perilog: lustre: /p/lustre1 is not mounted", "{output}");
    ensure!(said("/tmp/ran")?.trim() == "n0", "{output}");
    ensure!(said("/tmp/after")?.trim().is_empty(), "its user may undrain: {output}");
    Ok(())
}
