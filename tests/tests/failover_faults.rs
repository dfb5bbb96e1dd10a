//! Two hosts for the controller under the real Pacemaker, with one fault after the other while prologs and epilogs run.
//! Each script runs once, and the controller has the outcome that the ledger has.

use anyhow::{Result, bail, ensure};
use perilog_tests::failover::Failover;
use perilog_tests::{AT_GATE, Cluster};

#[test]
fn no_fault_of_a_host_loses_or_doubles_anything() -> Result<()> {
    let builder = Cluster::builder(4).script("prolog", "10-gate", AT_GATE).script("epilog", "10-gate", AT_GATE);
    let failover = Failover::boot(builder)?;
    let name = |failover: &Failover| -> Result<String> { Ok(failover.active()?.name().to_owned()) };
    let say = |what: &str, measured| eprintln!("{what}: {measured}");

    // systemd starts a dead controller again, where it was.
    let before = name(&failover)?;
    say("kill -9", failover.under_load("kill", |_| failover.kill())?);
    ensure!(name(&failover)? == before, "a kill moved the controller");
    say("SIGSTOP", failover.under_load("freeze", |_| failover.freeze())?);
    ensure!(name(&failover)? == before, "the watchdog moved the controller");

    // Without the disk, the controller does not run, and makes no store in the mount point.
    let passive = failover.other(failover.active()?)?;
    passive.systemctl(&["--no-block", "start", "perilog-controller"])?;
    failover.cluster().wait_logged(
        passive,
        "perilog-controller",
        &["no file system is mounted on /var/lib/perilog"],
    )?;
    passive.systemctl(&["stop", "perilog-controller"])?;
    ensure!(passive.sh("ls -A /var/lib/perilog")?.is_empty(), "the passive host has a store");

    for round in ["move", "move-back"] {
        let to = failover.other(failover.active()?)?;
        say(round, failover.under_load(round, |active| failover.move_away(active))?);
        failover.wait_answers(to)?;
        failover.clear()?;
        failover.wait_settled()?;
    }
    ensure!(failover.fenced().is_empty(), "{:?}", failover.fenced());

    let (active, other) = (failover.active()?, failover.other(failover.active()?)?);
    say("power cut", failover.under_load("power", |active| failover.power_cut(active))?);
    failover.wait_answers(other)?;
    // The BMC has no power when its host has none, so the power strip fenced it.
    ensure!(failover.refused().contains(&format!("reboot {}-bmc", active.name())), "{:?}", failover.refused());
    ensure!(failover.fenced() == [format!("reboot {}", active.name())], "{:?}", failover.fenced());
    failover.wait_settled()?;

    // ctl0 wins the race of two hosts that fence each other: the switch waits before it cuts ctl0's power
    // (pcmk_delay_base). So the test has ctl1 active.
    let [ctl0, ctl1] = failover.cluster().hosts() else { bail!("not two hosts") };
    if failover.active()?.name() == ctl0.name() {
        failover.move_away(ctl0)?;
        failover.wait_answers(ctl1)?;
        failover.clear()?;
        failover.wait_settled()?;
    }
    let fenced = failover.fenced().len();
    say("cut from the other host", failover.under_load("peer", |_| failover.cut_between_hosts())?);
    failover.wait_answers(ctl0)?;
    ensure!(failover.fenced()[fenced..] == ["reboot ctl1-bmc"], "{:?}", failover.fenced());
    failover.join();
    failover.wait_settled()?;

    // The active host still reaches the other one, so nothing is fenced.
    say("cut from the nodes", failover.under_load("nodes", |active| failover.cut_from_nodes(active))?);
    failover.wait_answers(ctl1)?;
    ensure!(failover.fenced().len() == fenced + 1, "{:?}", failover.fenced());
    failover.join();
    failover.wait_settled()?;

    say("cut from both", failover.under_load("both", |active| failover.cut_from_all(active))?);
    failover.wait_answers(ctl0)?;
    ensure!(failover.fenced()[fenced..] == ["reboot ctl1-bmc", "reboot ctl1-bmc"], "{:?}", failover.fenced());
    failover.wait_settled()
}
