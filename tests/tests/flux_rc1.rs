//! perilog's rc1 script under a real Flux. A batch job is a Flux instance of its own: it begins with those nodes
//! drained that failed in the job's prolog, and drains nodes that fail later.

use anyhow::{Result, ensure};
use perilog_tests::flux::{self, Flux};
use serde_json::json;

/// Batch script: lists the drains with which the batch job's own Flux instance begins, and runs a job on the other
/// node. Then lifts the drains, and lists again.
const BATCH: &str = "#!/bin/sh
flux resource drain -no '{nodelist} {reason}' > /tmp/drained
flux run -N1 hostname > /tmp/ran
flux resource undrain 1
flux resource drain -no '{nodelist}' > /tmp/after
";

/// Batch script: lifts the drains with which the batch job's own Flux instance begins, and waits for another drain.
/// Then runs a job on the other node, and keeps the log of all drains.
const LATER: &str = "#!/bin/sh
flux resource drain -no '{nodelist}' > /tmp/before
flux resource undrain 1
touch /tmp/begun
until grep . /tmp/drained; do flux resource drain -no '{nodelist} {reason}' > /tmp/drained; done
flux run -N1 hostname > /tmp/ran
flux kvs eventlog get --unformatted resource.eventlog > /tmp/log
";

/// Installs perilog's rc1 script, and submits a batch script for both nodes. `more` is further arguments of `flux
/// batch`. Returns the job's id.
fn submit(flux: &Flux<'_>, script: &str, more: &[&str]) -> Result<String> {
    flux.install_rc1()?;
    flux.rank_0()?.write_script("/tmp/batch.sh", script)?;
    let batch = ["batch", "--conf=resource.noverify=true", "-N2", "-n2", "--exclusive", "--cwd=/tmp"];
    flux.run_as("alice", &[&batch[..], more, &["--output=/tmp/output", "/tmp/batch.sh"]].concat())?.ok()
}

/// A check fails on n1 in the prolog, and the edge posts the failure to the batch job. The batch job's own Flux
/// instance drains the node.
#[test]
fn a_batch_job_drains_the_node_that_its_prolog_found() -> Result<()> {
    let cluster = flux::edge_cluster(2).boot()?;
    let flux = Flux::with_edge(&cluster, "[perilog]\nmax-tolerate = 1\n")?;
    flux.lustre_fails(1)?;
    let job = submit(&flux, BATCH, &["--setattr=perilog.tolerate=1"])?;
    flux.wait_clean(&job)?;
    let text = |file: &str| cluster.node(0)?.read_file(file);
    let output = text("/tmp/output").unwrap_or_default();
    ensure!(flux.result(&job)? == "COMPLETED", "{output}{:#?}", flux.events(&job)?);
    ensure!(text("/tmp/drained")?.trim() == "n1 perilog: lustre: /p/lustre1 is not mounted", "{output}");
    ensure!(text("/tmp/ran")?.trim() == "n0", "{output}");
    ensure!(text("/tmp/after")?.trim().is_empty(), "its user may undrain: {output}");
    flux.assert_once(&job, &[("prolog", &[0, 1], &[]), ("epilog", &[0, 1], &[])])
}

/// A batch job is a Flux instance of its own. A node passes the job's prolog, and a check of the site finds the node
/// bad later, while the job runs. The job's own instance drains the node, and runs its jobs on the others.
#[test]
fn a_running_batch_job_drains_a_node_that_goes_bad() -> Result<()> {
    let check = "[ ! -e /run/gone ] || perilog-report tolerable --check gpu 'gpu0 is gone'";
    let cluster = flux::edge_cluster(2).script("check", "10-gpu", check).boot()?;
    let flux = Flux::with_edge(&cluster, "[perilog]\nmax-tolerate = 2\n")?;
    flux.lustre_fails(1)?;
    let job = submit(&flux, LATER, &["--setattr=perilog.tolerate=2"])?;
    let begun = || Ok(cluster.node(0)?.try_read_file("/tmp/begun")?.is_some());
    flux.wait("the batch script runs", |_| begun())?;
    cluster.node(0)?.write_file("/run/gone", "")?;
    cluster.perilog(&["run", "check", "--job", &flux::plain(&job)])?.ok()?;
    flux.wait_clean(&job)?;
    let text = |file: &str| cluster.node(0)?.read_file(file);
    let output = text("/tmp/output").unwrap_or_default();
    ensure!(flux.result(&job)? == "COMPLETED", "{output}{:#?}", flux.events(&job)?);
    ensure!(text("/tmp/before")?.trim() == "n1", "{output}");
    ensure!(text("/tmp/drained")?.trim() == "n0 perilog: gpu: gpu0 is gone", "{output}");
    ensure!(text("/tmp/ran")?.trim() == "n1", "{output}");
    // The follower skips what the script drained at the start: else n1 has a second drain, before that of n0.
    let log = text("/tmp/log")?;
    let events: Vec<flux::Event> = log.lines().map(serde_json::from_str).collect::<Result<_, _>>()?;
    let drains = events.iter().filter(|event| event.name == "drain");
    let drains: Vec<_> = drains.map(|event| event.context["nodelist"].as_str().unwrap_or_default()).collect();
    ensure!(drains == ["n1", "n0"], "{drains:?}: {log}");
    Ok(())
}

/// A batch job's own Flux instance begins with the node drained that failed the job's prolog. No edge runs: the test
/// posts the job's exception as the edge would.
#[test]
fn a_batch_job_begins_with_its_failed_nodes_drained() -> Result<()> {
    let cluster = flux::cluster(2).boot()?;
    let flux = Flux::start(&cluster, "")?;
    let job = submit(&flux, BATCH, &[])?;
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
    let text = |file: &str| cluster.node(0)?.read_file(file);
    let output = text("/tmp/output").unwrap_or_default();
    ensure!(text("/tmp/drained")?.trim() == "n1 perilog: lustre: /p/lustre1 is not mounted", "{output}");
    ensure!(text("/tmp/ran")?.trim() == "n0", "{output}");
    ensure!(text("/tmp/after")?.trim().is_empty(), "its user may undrain: {output}");
    Ok(())
}
