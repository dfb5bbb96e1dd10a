//! A second controller of the same cluster, on a copy of the first one's store, while the first one lives: whom nodes obey is one, and the
//! other one is told so. No script runs twice, whoever asks for it.

use anyhow::Result;
use perilog_tests::{AT_GATE, Cluster};

const FIRST: &str = "ctl:5115";
const SECOND: &str = "ctl:5116";

#[test]
fn nodes_obey_one_and_the_other_is_told() -> Result<()> {
    let cluster = Cluster::builder(2).script("prolog", "10-gate", AT_GATE).boot()?;
    // The same epoch with another nonce: both count on from the copy.
    cluster.copy_store("/root/copy")?;
    cluster.start_second("/root/copy")?;
    let mut first = cluster.start_perilog(&["run", "prolog", "--job", "j", "--nodes", "n[0-1]"])?;
    cluster.wait_begun("j", &[0, 1])?;

    // One node comes to the second, refuses it, and goes on to the first.
    cluster.dial(1, &[SECOND, FIRST])?;
    cluster.wait_journal("n1", "perilog-agent", &["the controller is not obeyed", "take-over"])?;
    cluster.wait_journal("ctl", "second", &["obeys a controller of epoch", "take-over"])?;
    cluster.wait_online()?;
    // What the second is asked for begins nowhere, were it the same job or another.
    let mut asked = cluster.controller()?.spawn(&[
        "perilog",
        "--socket",
        "/run/perilog/second.sock",
        "run",
        "prolog",
        "--job",
        "k",
        "--nodes",
        "n[0-1]",
    ])?;
    cluster.bed().wait_until("the second has been asked", std::time::Duration::from_secs(90), || {
        Ok(cluster.second(&["ps"])?.ok()?.contains(" k "))
    })?;

    // The second is told to stand: now the node that meets it obeys it, and the first is refused.
    cluster.second(&["controller", "take-over"])?.ok()?;
    cluster.dial(1, &[SECOND])?;
    cluster.bed().wait_until("the second has n1", std::time::Duration::from_secs(90), || {
        let nodes = cluster.second(&["nodes"])?.ok()?;
        Ok(nodes.lines().any(|line| line.contains("n1") && line.contains("online")))
    })?;
    cluster.dial(1, &[FIRST, SECOND])?;
    cluster.wait_journal("ctl", "perilog-controller", &["obeys a controller of epoch", "take-over"])?;
    cluster.wait_refused("n1")?;

    // Both are asked for the same job, and its scripts run once: j on n0 by the first, on n1 its end is told to the second.
    cluster.open_gates()?;
    cluster.wait_scripts_ended("j", &[0, 1])?;
    cluster.dial(0, &[SECOND])?;
    cluster.bed().wait_until("the second knows the ends of j and k", std::time::Duration::from_secs(90), || {
        let ps = cluster.second(&["ps"])?.ok()?;
        // What the nodes told of j is held until somebody finishes it, and shown as that.
        Ok(!ps.contains(" prolog "))
    })?;
    cluster.wait_end(&mut asked)?;
    let truth = cluster.ledger()?;
    for job in ["j", "k"] {
        let runs = truth.of_job(job);
        assert_eq!(runs.len(), 2, "once on each node: {runs:?}");
        cluster.assert_second_true(job, "prolog")?;
    }
    // Behind its age; the attempt is shown where there is more than one.
    let ps = cluster.perilog(&["ps"])?.ok()?;
    let waits = |line: &str| line.split_whitespace().nth(1) == Some("j") && line.contains(" prolog ");
    assert!(!first.has_ended()? && ps.lines().any(waits), "the first makes up no end: {ps}");
    Ok(())
}
