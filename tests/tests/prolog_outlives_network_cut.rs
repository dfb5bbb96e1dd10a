//! The test cuts the network of a node in the middle of a script, and heals the network after the script's end. Then
//! the script's exact status arrives.

use anyhow::Result;
use perilog_tests::{AT_GATE, Cluster};

#[test]
fn a_status_behind_a_cut_arrives_when_the_cut_heals() -> Result<()> {
    let cluster = Cluster::builder(2).script("prolog", "10-gate", AT_GATE).boot()?;
    let mut run = cluster.start_perilog(&["run", "prolog", "--job", "j", "--nodes", "n[0-1]"])?;
    cluster.wait_begun("j", &[0, 1])?;
    cluster.node(1)?.cut()?;
    cluster.open_gates()?;
    cluster.wait_scripts_ended("j", &[0, 1])?;
    cluster.bed().wait_until("rank 0 is shown", std::time::Duration::from_secs(60), || {
        Ok(run.output()?.stdout.contains("n0:"))
    })?;
    assert!(!run.has_ended()?, "ended without rank 1");
    cluster.node(1)?.heal()?;
    cluster.wait_end(&mut run)?;
    cluster.assert_ran("j", &["prolog"])
}

/// The cut lasts longer than the kernels keep a silent connection (60 s): the session ends, and messages on the way are
/// lost.
#[test]
fn the_status_arrives_after_a_cut_that_outlasted_the_session() -> Result<()> {
    let cluster = Cluster::builder(2).script("prolog", "10-gate", AT_GATE).boot()?;
    let mut run = cluster.start_perilog(&["run", "prolog", "--job", "j", "--nodes", "n[0-1]"])?;
    cluster.wait_begun("j", &[0, 1])?;
    cluster.node(1)?.cut()?;
    cluster.open_gates()?;
    cluster.wait_scripts_ended("j", &[0, 1])?;
    let offline = |view: &perilog_core::controller::view::NodeView| view.host == *"n1" && view.state != "online";
    cluster.bed().wait_until("the controller misses n1", std::time::Duration::from_secs(150), || {
        Ok(cluster.node_views()?.iter().any(offline))
    })?;
    cluster.bed().wait_until("n1 misses the controller", std::time::Duration::from_secs(150), || {
        let journal = cluster.node(1)?.sh("journalctl --no-pager -o cat -u perilog-agent")?;
        let ended = ["no session", "the session", "its session"].map(|which| format!("{which} with the controller"));
        Ok(ended.iter().any(|line| journal.contains(line)))
    })?;
    assert!(!run.has_ended()?, "ended without rank 1: {}", run.output()?);
    cluster.node(1)?.heal()?;
    cluster.wait_end(&mut run)?;
    cluster.assert_ran("j", &["prolog"])
}
