//! kill -9 of the controller in the middle of a script, and no controller until the script has ended. Waiting clients
//! keep waiting.

use anyhow::Result;
use perilog_tests::{AT_GATE, Cluster};

#[test]
fn a_status_from_a_time_without_a_controller_arrives() -> Result<()> {
    let cluster = Cluster::builder(2).script("prolog", "10-gate", AT_GATE).build()?;
    cluster.stay_down()?;
    cluster.boot()?;
    let mut run = cluster.start_perilog(&["run", "prolog", "--job", "j", "--nodes", "n[0-1]"])?;
    cluster.wait_begun("j", &[0, 1])?;
    cluster.kill_controller()?;
    cluster.open_gates()?;
    cluster.wait_scripts_ended("j", &[0, 1])?;
    cluster.start_controller()?;
    // `run` began before the kill, and has attached again by itself.
    cluster.wait_end(&mut run)?;
    cluster.assert_ran("j", &["prolog"])
}

#[test]
fn what_was_shown_before_the_kill_is_shown_after_it() -> Result<()> {
    let cluster = Cluster::builder(2).script("prolog", "10-gate", AT_GATE).build()?;
    cluster.stay_down()?;
    cluster.boot()?;
    let mut run = cluster.start_perilog(&["run", "prolog", "--job", "j", "--nodes", "n[0-1]"])?;
    cluster.wait_begun("j", &[0, 1])?;
    cluster.open_gate(0)?;
    cluster.bed().wait_until("rank 0 is shown", std::time::Duration::from_secs(60), || {
        Ok(run.output()?.stdout.contains("n0:"))
    })?;
    let before = cluster.outcome("j", "prolog", 0)?;
    let events = cluster.perilog(&["--json", "events", "j"])?.ok()?;
    cluster.kill_controller()?;
    cluster.start_controller()?;
    cluster.wait_online()?;
    assert_eq!(cluster.outcome("j", "prolog", 0)?, before);
    // The job's log is in the store, so it continues at the same place.
    let after = cluster.perilog(&["--json", "events", "j"])?.ok()?;
    assert!(after.starts_with(&events), "the job's log was:\n{events}\nand is:\n{after}");
    cluster.open_gate(1)?;
    cluster.wait_end(&mut run)?;
    cluster.assert_ran("j", &["prolog"])
}
