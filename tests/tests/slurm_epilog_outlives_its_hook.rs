//! An epilog under Slurm whose hook was killed: it ends once, and the next boot does not run it again. An epilog that a
//! boot cut off is run again, once.

use std::time::Duration;

use anyhow::{Result, ensure};
use perilog_tests::slurm::BY_GATE;
use perilog_tests::{Cluster, Node, Running};

const SOON: Duration = Duration::from_secs(90);
const PENDING: &str = "/var/lib/perilog-hooks";

fn hook(node: &Node, kind: &str, job: &str) -> Result<Running> {
    let job = format!("SLURM_JOB_ID={job}");
    node.spawn(&["env", &job, "SLURM_JOB_UID=64001", "perilog", "hook", kind, "--pending", PENDING])
}

/// Begins the epilog of a job, and kills its hook.
fn orphan(cluster: &Cluster, job: &str) -> Result<()> {
    let node = cluster.node(0)?;
    node.sh("rm -f /run/gate-epilog")?;
    let mut hook = hook(node, "slurm-epilog", job)?;
    cluster.wait_action_begun(job, "epilog", &[0])?;
    ensure!(notes(node)?.contains(job), "no note of {job}");
    hook.kill()?;
    Ok(())
}

/// Returns the names of the notes and of their twins.
fn notes(node: &Node) -> Result<String> {
    node.sh(&format!("ls {PENDING} /run/perilog/pending"))
}

fn wait_forgotten(cluster: &Cluster, job: &str) -> Result<()> {
    let node = cluster.node(0)?;
    cluster.bed().wait_until(&format!("the note of {job} is gone"), SOON, || {
        Ok(!notes(node)?.contains(&format!("{job}-0.json")))
    })
}

/// Runs a prolog, as the next job on the node does.
fn next(cluster: &Cluster, job: &str) -> Result<()> {
    let mut prolog = hook(cluster.node(0)?, "slurm-prolog", job)?;
    let code = cluster.wait_end(&mut prolog)?;
    ensure!(code == 0, "{code}: {}", prolog.output()?);
    Ok(())
}

#[test]
fn the_next_boot_runs_only_what_was_cut_off() -> Result<()> {
    let cluster =
        Cluster::builder(1).script("prolog", "10-note", "true").script("epilog", "10-gate", BY_GATE).build()?;
    cluster.stay_down()?;
    cluster.boot()?;
    let node = cluster.node(0)?;
    orphan(&cluster, "5001")?;
    node.sh("echo 54 >/run/gate-epilog")?;
    wait_forgotten(&cluster, "5001")?;
    // The agent is away when the epilog ends.
    orphan(&cluster, "5002")?;
    cluster.kill_agent(0)?;
    node.sh("echo 0 >/run/gate-epilog")?;
    cluster.wait_scripts_ended("5002", &[0])?;
    ensure!(notes(node)?.contains("5002"), "who removed the note?");
    cluster.start_agent(0)?;
    wait_forgotten(&cluster, "5002")?;
    // A signal ends the epilog, as when the node goes down.
    orphan(&cluster, "5006")?;
    node.sh("systemctl kill --kill-who=main -s TERM 'perilog-task-epilog-5006-*'")?;
    cluster
        .bed()
        .wait_until("the epilog of 5006 has ended", SOON, || Ok(!node.sh("ls /run/perilog/tasks")?.contains("5006")))?;
    orphan(&cluster, "5003")?;
    node.power_fail()?;

    node.boot()?;
    cluster.start_agent(0)?;
    node.sh("echo 0 >/run/gate-epilog")?;
    next(&cluster, "5004")?;
    ensure!(node.sh(&format!("ls {PENDING}"))?.is_empty(), "{}", notes(node)?);
    node.reboot()?;
    cluster.start_agent(0)?;
    next(&cluster, "5005")?;
    let begun = |job: &str| -> Result<usize> {
        let ledger = cluster.ledger()?;
        Ok(ledger
            .runs
            .iter()
            .filter(|(key, _)| key.job == job && key.action == "epilog")
            .map(|(_, runs)| runs.len())
            .sum())
    };
    let begun = (begun("5001")?, begun("5002")?, begun("5003")?, begun("5006")?);
    ensure!(begun == (1, 1, 2, 2), "{begun:?}: {:?}", cluster.ledger()?);
    Ok(())
}
