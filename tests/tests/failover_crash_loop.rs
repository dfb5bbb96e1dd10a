//! The controller cannot start on one of its two hosts, because its key there is damaged. After a crash it ends again
//! and again, until systemd leaves it failed; then Pacemaker starts it on the other host. A move to the damaged host
//! ends on the sound one. Scripts run meanwhile, each once.

use anyhow::{Result, ensure};
use perilog_tests::failover::Failover;
use perilog_tests::{AT_GATE, Cluster};

const KEY: &str = "/etc/perilog/tls/key.pem";

#[test]
fn a_controller_that_cannot_start_moves() -> Result<()> {
    let builder = Cluster::builder(2).script("prolog", "10-gate", AT_GATE).script("epilog", "10-gate", AT_GATE);
    let failover = Failover::boot(builder)?;
    let damaged = failover.active()?;
    let sound = failover.other(damaged)?;

    damaged.sh(&format!("cp -a {KEY} /root/key.pem && echo damaged >{KEY}"))?;
    let measured = failover.under_load("crash", |_| failover.kill())?;
    eprintln!("a crash, and a key that cannot be read: {measured}");
    failover.wait_answers(sound)?;
    ensure!(failover.fenced().is_empty(), "{:?}", failover.fenced());
    failover.wait_settled()?;

    // Pacemaker has banned the damaged host. An operator who cleans that up and moves it there gets it back.
    failover.clear()?;
    failover.wait_settled()?;
    let measured = failover.under_load("move", |active| failover.move_away(active))?;
    eprintln!("a move to the damaged host: {measured}");
    failover.wait_answers(sound)?;
    failover.wait_settled()?;

    damaged.sh(&format!("cp -a /root/key.pem {KEY} && systemctl reset-failed perilog-controller"))?;
    failover.clear()?;
    failover.wait_settled()?;
    failover.under_load("mended", |active| failover.move_away(active))?;
    failover.wait_answers(damaged)
}
