//! Two hosts for the controller under the real Pacemaker, with one fault after the other while prologs and epilogs run.
//! Whatever moves the controller or not, each script runs once, and the controller says of each what its ledger says.

use anyhow::{Result, ensure};
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

    for round in ["move", "move-back"] {
        let to = failover.other(failover.active()?)?;
        say(round, failover.under_load(round, |_| failover.move_to(to))?);
        failover.wait_answers(to)?;
        failover.clear()?;
        failover.wait_settled()?;
    }
    ensure!(failover.fenced().is_empty(), "{:?}", failover.fenced());

    let (active, other) = (failover.active()?, failover.other(failover.active()?)?);
    say("power cut", failover.under_load("power", |active| failover.power_cut(active))?);
    failover.wait_answers(other)?;
    ensure!(failover.fenced() == [format!("reboot {}", active.name())], "{:?}", failover.fenced());
    failover.wait_settled()?;
    Ok(())
}
