//! A service in Python (docs/examples/external-action.py) runs an external action. The controller releases reported
//! ranks at once, also over a kill -9 of the controller. After a kill of the service, the unreported ranks are lost at
//! the end of the service's lease, and their nodes are drained.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use perilog_tests::Cluster;
use serde_json::Value;

const SERVICE: &str = include_str!("../../docs/examples/external-action.py");
const SOON: Duration = Duration::from_secs(120);
/// Lease of the external action in seconds, long enough for a service on a busy machine.
const LEASE: &str = "20";
/// Work of the service for one host: waits for the host's gate, and exits with the status in the gate's file.
const WORK: &str = "while [ ! -s /root/gate-$0 ]; do sleep 0.05; done; exit $(cat /root/gate-$0)";
const CONTROLLER: &str = "after = []\n[action.stage]\nrelease = \"0\"\n";

/// Returns the contexts of all events with this name in the log of job `j`.
fn reported(cluster: &Cluster, name: &str) -> Result<Vec<Value>> {
    let text = cluster.perilog(&["--json", "events", "j"])?.ok()?;
    let events: Vec<Value> =
        text.lines().map(serde_json::from_str).collect::<serde_json::Result<_>>().context(text.clone())?;
    Ok(events.into_iter().filter(|event| event["name"] == name).map(|event| event["context"].clone()).collect())
}

fn released(cluster: &Cluster) -> Result<Vec<String>> {
    let released = reported(cluster, "release")?.into_iter();
    Ok(released.map(|release| format!("{} {} {}", release["ranks"], release["resources"], release["final"])).collect())
}

#[test]
fn unreported_parts_are_lost_with_the_services_lease() -> Result<()> {
    let cluster = Cluster::builder(3).controller(CONTROLLER).build()?;
    cluster.stay_down()?;
    cluster.boot()?;
    let controller = cluster.controller()?;
    controller.write_script("/root/service", SERVICE)?;
    let open = |host: &str, status: &str| controller.write_file(&format!("/root/gate-{host}"), status);
    let wait_released = |count: usize| {
        let enough = || Ok(released(&cluster).is_ok_and(|released| released.len() >= count));
        cluster.bed().wait_until(&format!("{count} releases are sent"), SOON, enough)
    };
    cluster.perilog(&["job", "add", "j", "--nodes", "n[0-2]", "--resource", "rabbit1"])?.ok()?;
    cluster
        .perilog(&["action", "start", "j", "copy", "--external", "--resources", "rabbit1", "--lease", "1h"])?
        .ok()?;
    let service = format!("echo $$ >/root/pid; exec /root/service j stage {LEASE} n0,n1,n2 sh -c '{WORK}'");
    let mut running = controller.spawn(&["sh", "-c", &service])?;
    let begun = || Ok(reported(&cluster, "action-start")?.len() == 2);
    cluster.bed().wait_until("the service has started its action", SOON, begun)?;
    cluster.perilog(&["job", "finish", "j"])?.ok()?;
    let shown = cluster.perilog(&["ps"])?.ok()?;
    ensure!(shown.contains("n[0-2]") && shown.contains("its service must report within"), "{shown}");
    ensure!(released(&cluster)?.is_empty(), "what is held was released");
    // The ranks end part by part.
    open("n1", "0")?;
    wait_released(1)?;
    cluster.perilog(&["action", "report", "j", "copy", "ok", "--resources", "rabbit1"])?.ok()?;
    wait_released(2)?;
    // The controller dies between two reports, and the service sends one report meanwhile.
    cluster.kill_controller()?;
    open("n0", "0")?;
    cluster.start_controller()?;
    wait_released(3)?;
    ensure!(!running.has_ended()?, "the service ended: {}", running.output()?);
    // The service dies, and the unreported ranks are lost.
    controller.sh("kill -KILL $(cat /root/pid)")?;
    wait_released(4)?;
    let part = |ranks: &str, resources: &str, last: bool| format!("{ranks:?} {resources} {last}");
    let expect =
        [part("1", "[]", false), part("", "[\"rabbit1\"]", false), part("0", "[]", false), part("2", "[]", true)];
    ensure!(released(&cluster)? == expect, "{:?}", released(&cluster)?);
    let drains = cluster.perilog(&["drain"])?.ok()?;
    let reason = format!(
        "stage: lost (the lease of its service expired): the service did not report within its lease of {LEASE}s; its \
         last report came at"
    );
    ensure!(drains.contains("n2") && drains.contains(&reason), "{drains}");
    ensure!(!drains.contains("n0") && !drains.contains("n1"), "{drains}");
    let verdicts = reported(&cluster, "verdict")?;
    ensure!(verdicts.len() == 2 && verdicts[1]["verdict"] == "lost" && verdicts[1]["ok"] == "0-1", "{verdicts:?}");
    // A later report is recorded and changes nothing.
    let late = cluster.perilog(&["action", "report", "j", "stage", "ok", "--ranks", "n2"])?.ok()?;
    ensure!(late.contains("recorded as late") && reported(&cluster, "late")?.len() == 1, "{late}");
    ensure!(reported(&cluster, "verdict")?.len() == 2 && released(&cluster)?.len() == 4, "something ended twice");
    open("n2", "0")
}

#[test]
fn a_failing_service_is_believed_and_a_stopped_one_drains_none() -> Result<()> {
    let cluster = Cluster::builder(2).controller(CONTROLLER).boot()?;
    let controller = cluster.controller()?;
    controller.write_script("/root/service", SERVICE)?;
    controller.write_file("/root/gate-n0", "3")?;
    cluster.perilog(&["job", "add", "j", "--nodes", "n[0-1]"])?.ok()?;
    let mut running = controller.spawn(&["/root/service", "j", "stage", LEASE, "n0,n1", "sh", "-c", WORK])?;
    let drained = || Ok(cluster.perilog(&["drain"])?.ok()?.contains("n0"));
    cluster.bed().wait_until("n0 is drained", SOON, drained)?;
    let reason = cluster.perilog(&["drain"])?.ok()?;
    ensure!(reason.contains("stage: failed (reported by its service)"), "{reason}");
    ensure!(reason.contains("sh ended with 3 (job j attempt 0)"), "{reason}");
    cluster.perilog(&["job", "cancel", "j"])?.ok()?;
    ensure!(cluster.wait_end(&mut running)? == 0, "{}", running.output()?);
    ensure!(cluster.outcome("j", "stage", 1)?.0 == "cancelled", "{:?}", cluster.outcome("j", "stage", 1)?);
    let drains = cluster.perilog(&["drain"])?.ok()?;
    ensure!(!drains.contains("n1"), "{drains}");
    ensure!(released(&cluster)?.len() == 2, "{:?}", released(&cluster)?);
    Ok(())
}
