//! The release hook has carried out a release, and the controller is killed before it learns so: it notifies the hook
//! of the release again, under the same sequence number. The same happens after a busy resource manager refused a
//! release. Counted once by (job, attempt, sequence), the releases come in order, and their fragments add up to R.

use std::time::Duration;

use anyhow::{Result, ensure};
use perilog_tests::Cluster;
use perilog_tests::manager::{self, Handed, Share};

const SOON: Duration = Duration::from_secs(90);
const THREE: Handed = Handed {
    r: concat!(
        r#"{"version":1,"execution":{"R_lite":[{"rank":"4,6","children":{"core":"0-3"}},{"rank":"5","#,
        r#""children":{"core":"0-1"}}],"starttime":0.0,"expiration":0.0,"nodelist":["n[0-2]"],"#,
        r#""properties":{"himem":"5-6"}}}"#,
    ),
    shares: &[
        Share { rank: 4, host: "n0", children: &[("core", "0-3")], properties: &[] },
        Share { rank: 5, host: "n1", children: &[("core", "0-1")], properties: &["himem"] },
        Share { rank: 6, host: "n2", children: &[("core", "0-3")], properties: &["himem"] },
    ],
};

/// Script body: waits until the test creates /run/gate, and exits with 0. After a failure, the release would have to
/// wait for a drain, which the same hook carries out.
const AT_GATE: &str = "while [ ! -e /run/gate ]; do sleep 0.02; done";

#[test]
fn an_unconfirmed_release_is_sent_again_unchanged() -> Result<()> {
    let builder = Cluster::builder(3).script("epilog", "10-gate", AT_GATE).controller(manager::CONFIGURATION);
    let cluster = builder.controller("[action.epilog]\nrelease = \"0\"\n").build()?;
    cluster.stay_down()?;
    cluster.manage(manager::BUSY)?;
    cluster.controller()?.write_file("/root/R.json", THREE.r)?;
    cluster.boot()?;
    let wait_notified = |what: &str, is_so: &dyn Fn(&manager::Received) -> bool| {
        cluster.bed().wait_until(what, SOON, || Ok(is_so(&cluster.received()?)))
    };
    cluster.perilog(&["job", "add", "j", "--R", "/root/R.json"])?.ok()?;
    cluster.perilog(&["job", "finish", "j"])?.ok()?;
    cluster.wait_begun("j", &[4, 5, 6])?;
    // The hook has done the first release without a confirmation; the test kills the controller in the middle.
    cluster.controller()?.write_file(manager::HOLD, "")?;
    cluster.open_gate(1)?;
    wait_notified("n1 is released", &|received| received.once("j").len() == 1)?;
    // The second release waits behind the first: the controller does not notify the hook before the first confirmation.
    cluster.open_gate(0)?;
    cluster.wait_scripts_ended("j", &[4])?;
    cluster.bed().wait_until("n0 is released", SOON, || {
        Ok(cluster.perilog(&["events", "j"])?.ok()?.matches("released:").count() == 2)
    })?;
    cluster.kill_controller()?;
    cluster.controller()?.sh(&format!("rm {}", manager::HOLD))?;
    cluster.start_controller()?;
    wait_notified("n1 is reported again, then n0", &|received| {
        received.again("j") >= 1 && received.once("j").len() == 2
    })?;
    // The test kills the controller between two releases: another controller makes the next release.
    cluster.kill_controller()?;
    cluster.open_gate(2)?;
    cluster.wait_scripts_ended("j", &[6])?;
    cluster.start_controller()?;
    wait_notified("n2 is released", &|received| received.once("j").len() == 3)?;
    let received = cluster.received()?;
    let ranks: Vec<String> = received.once("j").iter().map(|release| release.ranks.to_string()).collect();
    ensure!(ranks == ["5", "4", "6"], "{ranks:?}");
    let faults = received.faults("j", &THREE);
    ensure!(faults.is_empty() && received.complete("j", &THREE)?, "{faults:?} {:?}", received.releases);
    cluster
        .bed()
        .wait_until("nothing waits for the hook", SOON, || Ok(!cluster.perilog(&["ps"])?.ok()?.contains("release")))
}
