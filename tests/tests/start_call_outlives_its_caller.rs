//! The test stops an agent that has asked systemd to start a task's unit, before the agent reads the reply. The started
//! script ends, and the test kills the agent. The next agent finds a task whose start was never confirmed.

use anyhow::Result;
use perilog_tests::{AT_GATE, Cluster, Order};

#[test]
fn a_script_with_an_unanswered_start_keeps_its_exact_status() -> Result<()> {
    let cluster = Cluster::builder(2).script("prolog", "10-gate", AT_GATE).boot()?;
    let stopped = cluster.arm(cluster.node(1)?, "after-start-call", Order::Stop)?;
    let mut run = cluster.start_perilog(&["run", "prolog", "--job", "j", "--nodes", "n[0-1]"])?;
    stopped.wait_sprung()?;
    cluster.open_gates()?;
    cluster.wait_scripts_ended("j", &[0, 1])?;
    assert!(!run.has_ended()?, "ended without rank 1: {}", run.output()?);
    Cluster::kill_unit(cluster.node(1)?, "perilog-agent.service")?;
    cluster.wait_end(&mut run)?;
    cluster.assert_exact("j", &["prolog"])
}
