//! kill -9 of the agents and of the controller in the middle of a script. All daemons stay down until the script has
//! ended; its exact status arrives when they are back.

use anyhow::Result;
use perilog_tests::{AT_GATE, Cluster};

#[test]
fn the_status_of_a_script_that_ended_with_nobody_there_arrives() -> Result<()> {
    let cluster = Cluster::builder(2).script("epilog", "10-gate", AT_GATE).build()?;
    cluster.stay_down()?;
    cluster.boot()?;
    let mut run = cluster.start_perilog(&["run", "epilog", "--job", "j", "--nodes", "n[0-1]"])?;
    cluster.wait_begun("j", &[0, 1])?;
    cluster.kill_controller()?;
    cluster.kill_agent(0)?;
    cluster.kill_agent(1)?;
    cluster.open_gates()?;
    cluster.wait_scripts_ended("j", &[0, 1])?;
    cluster.start_agent(0)?;
    cluster.start_agent(1)?;
    cluster.start_controller()?;
    cluster.wait_end(&mut run)?;
    cluster.assert_ran("j", &["epilog"])
}
