//! The active host loses its power, and no fence device acts: Pacemaker cannot know that the host is dead, and starts
//! nothing. When an operator has looked and confirms it, the controller starts on the other host. Scripts run on
//! meanwhile, each once.

use anyhow::{Result, ensure};
use perilog_tests::failover::Failover;
use perilog_tests::{AT_GATE, Cluster};

#[test]
fn nothing_starts_until_an_operator_confirms() -> Result<()> {
    let builder = Cluster::builder(2).script("prolog", "10-gate", AT_GATE).script("epilog", "10-gate", AT_GATE);
    let failover = Failover::boot(builder)?;
    let (dead, other) = (failover.active()?, failover.other(failover.active()?)?);
    failover.break_fencing(dead, true);
    let [bmc, strip] = [format!("reboot {}-bmc", dead.name()), format!("reboot {}", dead.name())];

    let measured = failover.under_load("confirmed", |active| {
        failover.power_cut(active)?;
        // Pacemaker asks the BMC and then the strip, each at most twice (pcmk_reboot_retries), and begins again: at the
        // third time it has drawn its conclusions from the first round.
        failover.wait("Pacemaker has asked both fence devices, and begun again", || {
            let refused = failover.refused();
            Ok([&bmc, &strip].iter().all(|device| refused.iter().filter(|other| other == device).count() > 2))
        })?;
        ensure!(failover.is_unclean(other)?, "Pacemaker believes that {} is dead", active.name());
        other.sh("! systemctl is-active --quiet perilog-controller && ! mountpoint -q /var/lib/perilog")?;
        failover.confirm(other)
    })?;
    eprintln!("a power cut, and an operator who confirms it: {measured}");
    failover.wait_answers(other)?;
    ensure!(failover.fenced().is_empty(), "{:?}", failover.fenced());

    failover.break_fencing(dead, false);
    dead.boot()?;
    failover.wait_settled()?;
    ensure!(failover.active()?.name() == other.name(), "the controller moved to the host that came back");
    Ok(())
}
