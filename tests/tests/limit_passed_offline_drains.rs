//! A script passes its time limit while the controller is dead. The restarted controller still drains the script's
//! node, and notifies the drain hook once.

use std::time::Duration;

use anyhow::{Result, ensure};
use perilog_tests::{Cluster, LIMIT, manager};

const SOON: Duration = Duration::from_secs(90);
const DEAF: &str = "trap '' TERM\nwhile [ ! -e /run/gate ]; do sleep 0.02; done";

#[test]
fn a_limit_that_passed_without_a_controller_drains_its_node() -> Result<()> {
    let limit = format!("[action.epilog]\ntimeout = \"{LIMIT}\"\n");
    let builder = Cluster::builder(1).script("epilog", "10-gate", DEAF).agent(&limit);
    let cluster = builder.controller(manager::CONFIGURATION).build()?;
    cluster.stay_down()?;
    cluster.manage("")?;
    cluster.boot()?;
    cluster.perilog(&["job", "add", "j", "--nodes", "n0"])?.ok()?;
    cluster.perilog(&["job", "finish", "j"])?.ok()?;
    cluster.wait_begun("j", &[0])?;
    cluster.kill_controller()?;
    cluster.bed().wait_until("the limit has passed", SOON, || {
        Ok(cluster.node(0)?.sh("cat /run/perilog/tasks/*/steps.jsonl")?.contains("overdue"))
    })?;
    ensure!(cluster.received()?.drains.is_empty(), "drained before: the kill came too late to show anything");
    for _ in 0..2 {
        cluster.start_controller()?;
        cluster.wait_online()?;
        cluster.bed().wait_until("n0 is drained", SOON, || Ok(cluster.received()?.drained("n0").is_some()))?;
        cluster.kill_controller()?;
    }
    cluster.start_controller()?;
    cluster.wait_online()?;
    let events = cluster.perilog(&["--json", "events", "j"])?.ok()?;
    ensure!(events.matches("\"name\":\"overdue\"").count() == 1, "{events}");
    cluster.open_gate(0)?;
    cluster.bed().wait_until("n0 is released", SOON, || Ok(cluster.received()?.once("j").len() == 1))
}
