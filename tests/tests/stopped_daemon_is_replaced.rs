//! A daemon that stands still, here by SIGSTOP, is ended by systemd's watchdog and started again. Scripts go on.

use std::time::Duration;

use anyhow::Result;
use perilog_tests::{AT_GATE, Cluster, Node};

/// Shorter than in the units, so that the test is; still long enough for a loaded machine.
const WATCHDOG: &str = "[Service]\nWatchdogSec=5s\n";

const CONTROLLER: &str = "perilog-controller.service";
const AGENT: &str = "perilog-agent.service";

/// How long to wait for another process of a daemon.
const LIMIT: Duration = Duration::from_secs(90);

fn main_pid(node: &Node, unit: &str) -> Result<String> {
    Ok(node.systemctl(&["show", "--property=MainPID", "--value", unit])?.trim().to_owned())
}

#[test]
fn daemons_that_hang_are_started_again_and_scripts_go_on() -> Result<()> {
    let cluster = Cluster::builder(1).script("epilog", "10-gate", AT_GATE).build()?;
    let daemons = [(cluster.controller()?, CONTROLLER), (cluster.node(0)?, AGENT)];
    for (node, unit) in daemons {
        node.write_file(&format!("/etc/systemd/system/{unit}.d/watchdog.conf"), WATCHDOG)?;
    }
    cluster.boot()?;
    let mut run = cluster.start_perilog(&["run", "epilog", "--job", "j", "--nodes", "n0"])?;
    cluster.wait_begun("j", &[0])?;
    for (node, unit) in daemons {
        let before = main_pid(node, unit)?;
        node.systemctl(&["kill", "--kill-who=main", "--signal=STOP", unit])?;
        cluster.bed().wait_until(&format!("{unit} has another process"), LIMIT, || {
            let now = main_pid(node, unit)?;
            Ok(now != before && now != "0")
        })?;
        cluster.wait_logged(node, unit, &["Watchdog timeout"])?;
    }
    assert!(!run.has_ended()?, "ended while its script runs: {}", run.output()?);
    cluster.open_gates()?;
    cluster.wait_scripts_ended("j", &[0])?;
    cluster.wait_end(&mut run)?;
    cluster.assert_ran("j", &["epilog"])
}
