//! A prolog's script announces a reboot of its node, waits until the controller knows of it, and reboots the node. The
//! test kills the controller while the node is away. The announced boot ends the task as `ok`. A second boot, before
//! the action has a verdict, makes the task lost.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use perilog_tests::{AT_GATE, Cluster};

const SOON: Duration = Duration::from_secs(90);

#[test]
fn the_boot_is_its_end_and_the_next_one_its_loss() -> Result<()> {
    let reboots = "perilog-report expect-reboot || exit 9\necho notified >> /root/notified\n\
         systemctl --no-block reboot\nsleep 1000";
    let body = format!("if [ \"$PERILOG_RANK\" = 1 ]; then\n{reboots}\nfi\n{AT_GATE}");
    let cluster = Cluster::builder(2).script("prolog", "10-firmware", &body).build()?;
    cluster.stay_down()?;
    cluster.boot()?;
    let mut run = cluster.start_perilog(&["run", "prolog", "--job", "j", "--nodes", "n[0-1]"])?;
    cluster.wait_begun("j", &[0, 1])?;
    let node = cluster.node(1)?;
    node.wait_off(SOON)?;
    let away = || {
        let ps = cluster.perilog(&["ps"])?.ok()?;
        Ok(ps.contains("rebooting") && ps.contains("n1"))
    };
    cluster.bed().wait_until("ps says why n1 is away", SOON, away)?;
    cluster.kill_controller()?;
    cluster.start_controller()?;
    cluster.bed().wait_until("ps says it still", SOON, away)?;
    node.boot()?;
    cluster.bed().wait_until("the boot is its end", SOON, || {
        let job = cluster.job("j")?;
        let action = &job.attempts.first().and_then(|attempt| attempt.actions.first()).context("an action")?;
        Ok(action.ok.contains(1))
    })?;
    let (word, text) = cluster.outcome("j", "prolog", 1)?;
    ensure!(word == "ok", "{text}");
    ensure!(
        node.read_file("/root/notified")? == "notified\n",
        "its script ran once, and learned that the controller knew"
    );
    let events = cluster.perilog(&["--json", "events", "j"])?.ok()?;
    ensure!(events.contains("\"expect-reboot\""), "{events}");
    ensure!(!cluster.perilog(&["drain"])?.ok()?.contains("n1"), "nothing is wrong with it");
    node.power_fail()?;
    node.boot()?;
    cluster.open_gates()?;
    cluster.wait_end(&mut run)?;
    let (_, text) = cluster.outcome("j", "prolog", 1)?;
    ensure!(text == "lost (the node rebooted)", "{text}");
    Ok(())
}
