//! kill -9 of an agent in the middle of a script, and no agent until the script has ended: the exact status still
//! arrives.

use anyhow::Result;
use perilog_tests::{AT_GATE, Cluster};

#[test]
fn the_status_of_a_script_that_ended_without_an_agent_arrives() -> Result<()> {
    let cluster = Cluster::builder(2).script("prolog", "10-gate", AT_GATE).build()?;
    cluster.stay_down()?;
    cluster.boot()?;
    let mut run = cluster.start_perilog(&["run", "prolog", "--job", "j", "--nodes", "n[0-1]"])?;
    cluster.wait_begun("j", &[0, 1])?;
    cluster.kill_agent(1)?;
    cluster.open_gates()?;
    cluster.wait_scripts_ended("j", &[0, 1])?;
    cluster.start_agent(1)?;
    cluster.wait_end(&mut run)?;
    cluster.assert_ran("j", &["prolog"])
}

#[test]
fn systemd_brings_a_killed_agent_back_and_it_takes_its_task_up() -> Result<()> {
    let cluster = Cluster::builder(1).script("epilog", "10-gate", AT_GATE).boot()?;
    let mut run = cluster.start_perilog(&["run", "epilog", "--job", "j", "--nodes", "n0"])?;
    cluster.wait_begun("j", &[0])?;
    for _ in 0..5 {
        cluster.renew_agent(0)?;
    }
    assert!(!run.has_ended()?, "ended while its script runs: {}", run.output()?);
    cluster.open_gates()?;
    // A loss would be a true report while the script runs; only after the script's end, a loss is wrong.
    cluster.wait_scripts_ended("j", &[0])?;
    cluster.wait_end(&mut run)?;
    cluster.assert_ran("j", &["epilog"])
}
