//! An epilog hangs on one node of four. The controller releases each other node, with its own part of R, as soon as the
//! node's epilog has ended. Between two of these releases the controller is killed with kill -9. The hung node is held,
//! is drained when the script passes its limit, and is released after an operator's resolution. The release hook gets
//! every release, and no release under two sequence numbers.

use std::time::Duration;

use anyhow::{Result, ensure};
use perilog_tests::manager::{self, FOUR};
use perilog_tests::{AT_GATE, Cluster, LIMIT};

const SOON: Duration = Duration::from_secs(90);

#[test]
fn three_release_at_once_and_the_fourth_after_its_resolution() -> Result<()> {
    let deaf = format!("trap '' TERM\n{AT_GATE}");
    let agent = format!("[action.epilog]\ntimeout = \"{LIMIT}\"\n");
    let cluster =
        Cluster::builder(4).script("epilog", "10-gate", &deaf).agent(&agent).controller(manager::CONFIGURATION);
    let cluster = cluster.controller("[action.epilog]\nrelease = \"0\"\n").build()?;
    cluster.stay_down()?;
    cluster.manage(manager::BUSY)?;
    cluster.controller()?.write_file("/root/R.json", FOUR.r)?;
    cluster.boot()?;
    cluster.perilog(&["job", "add", "j", "--R", "/root/R.json"])?.ok()?;
    cluster.perilog(&["job", "finish", "j"])?.ok()?;
    cluster.wait_begun("j", &[4, 5, 6, 7])?;
    let wait_released = |count: u64| {
        let free = || Ok(cluster.received()?.once("j").iter().map(|release| release.ranks.len()).sum::<u64>() >= count);
        cluster.bed().wait_until(&format!("{count} ranks are reported free"), SOON, free)
    };
    cluster.open_gate(0)?;
    wait_released(1)?;
    cluster.kill_controller()?;
    cluster.open_gate(2)?;
    cluster.open_gate(3)?;
    cluster.wait_scripts_ended("j", &[6, 7])?;
    cluster.start_controller()?;
    cluster.wait_online()?;
    wait_released(3)?;
    cluster.bed().wait_until("n1 is drained", SOON, || Ok(cluster.received()?.drained("n1").is_some()))?;
    let shown = cluster.perilog(&["drain"])?.ok()?;
    ensure!(shown.contains("10-gate is past its limit"), "{shown}");
    let held = cluster.perilog(&["ps"])?.ok()?;
    ensure!(held.contains("overdue") && held.contains("n1"), "{held}");
    cluster.perilog(&["resolve", "j", "epilog", "--ranks", "n1", "--reason", "power-cycled"])?.ok()?;
    wait_released(4)?;
    let received = cluster.received()?;
    let ranks: Vec<String> = received.once("j").iter().map(|release| release.ranks.to_string()).collect();
    // Ranks 6 and 7 end while the controller is down: one release may cover both.
    ensure!(
        ranks.first().is_some_and(|first| first == "4") && ranks.last().is_some_and(|last| last == "5"),
        "{ranks:?}"
    );
    let faults = received.faults("j", &FOUR);
    ensure!(faults.is_empty() && received.complete("j", &FOUR)?, "{faults:?} {:?}", received.releases);
    let (drain, last) = (received.drain_of("n1"), received.once("j").pop());
    ensure!(
        drain.zip(last).is_some_and(|(drain, last)| drain.at <= last.at),
        "{:?} {:?}",
        received.drains,
        received.releases
    );
    cluster.open_gate(1)?;
    Ok(())
}
