//! An operator resolves a live script while the drain hook has not ended. The resolution waits, over a kill -9 of the
//! controller, and becomes the outcome when the hook has drained the node. The script's own result is recorded as late.

use std::time::Duration;

use anyhow::{Result, ensure};
use perilog_tests::{Cluster, manager};

const SOON: Duration = Duration::from_secs(60);
const AT_GATE: &str = "while [ ! -e /run/gate ]; do sleep 0.02; done\nexit 7";

#[test]
fn a_live_task_is_settled_when_its_node_is_drained() -> Result<()> {
    let cluster =
        Cluster::builder(1).script("prolog", "10-gate", AT_GATE).controller(manager::CONFIGURATION).build()?;
    cluster.stay_down()?;
    cluster.manage("")?;
    cluster.boot()?;
    cluster.controller()?.sh(&format!("touch {}", manager::HOLD))?;
    let mut run = cluster.start_perilog(&["run", "prolog", "--job", "j", "--nodes", "n0"])?;
    // Waits until the controller knows that the script began; otherwise a resolution would keep the script from
    // beginning.
    cluster
        .bed()
        .wait_until("ps shows that it runs", SOON, || Ok(cluster.perilog(&["ps"])?.ok()?.contains("running")))?;
    let resolve = ["resolve", "j", "prolog", "--ranks", "0", "--ok", "--reason", "looks fine"];
    let output = cluster.perilog(&resolve)?.ok()?;
    ensure!(output.contains("when the drain of the nodes is in force"), "{output}");
    cluster.bed().wait_until("the hook is notified", SOON, || Ok(cluster.received()?.drained("n0").is_some()))?;
    for kill in [true, false] {
        let ps = cluster.perilog(&["ps"])?.ok()?;
        ensure!(ps.contains("resolving") && ps.contains("looks fine"), "{ps}");
        ensure!(cluster.job("j")?.attempts[0].actions[0].verdict.is_none(), "it was settled before the drain");
        if kill {
            cluster.kill_controller()?;
            cluster.start_controller()?;
            cluster.wait_online()?;
        }
    }
    cluster.controller()?.sh(&format!("rm {}", manager::HOLD))?;
    ensure!(cluster.wait_end(&mut run)? == 0, "it is ok by the operator's word");
    cluster.open_gate(0)?;
    cluster.bed().wait_until("its own result is reported late", SOON, || {
        let job = cluster.job("j")?;
        let late = job.attempts[0].actions[0].ended.iter().flat_map(|rank| &rank.late);
        Ok(late.into_iter().any(|late| late.outcome.to_string() == "failed (exit 7)"))
    })
}
