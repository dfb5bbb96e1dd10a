//! `systemctl stop perilog-agent` in the middle of a script: the script goes on, and the script's status arrives when
//! the agent is back.

use anyhow::Result;
use perilog_tests::{AT_GATE, Cluster};

#[test]
fn a_script_goes_on_without_its_agent() -> Result<()> {
    let cluster = Cluster::builder(1).script("epilog", "10-gate", AT_GATE).boot()?;
    let mut run = cluster.start_perilog(&["run", "epilog", "--job", "j", "--nodes", "n0"])?;
    cluster.wait_begun("j", &[0])?;
    cluster.node(0)?.systemctl(&["stop", "perilog-agent"])?;
    let units = cluster.node(0)?.systemctl(&["list-units", "--plain", "--no-legend", "perilog-task-*"])?;
    assert!(units.contains("perilog-task-epilog-j-0-"), "{units:?}");
    assert!(cluster.runs("j")?.iter().all(|(_, run)| run.ended.is_none()), "the script was ended");
    cluster.open_gates()?;
    cluster.wait_scripts_ended("j", &[0])?;
    cluster.start_agent(0)?;
    cluster.wait_end(&mut run)?;
    cluster.assert_ran("j", &["epilog"])
}
