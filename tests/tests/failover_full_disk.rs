//! The disk under the store is full when the controller moves to the other host, and when its host loses power. It
//! starts on the other host, refuses prologs, and keeps the ends of what runs. The watchdog ends none of that. With
//! free space again, everything continues by itself.

use anyhow::{Result, ensure};
use perilog_tests::failover::Failover;
use perilog_tests::{AT_GATE, Cluster, Node};

const FULL: &str = "the store's disk is full";

/// Asserts that systemd has not started the controller again by itself: neither a watchdog nor a disk has ended it.
fn was_not_restarted(host: &Node) -> Result<()> {
    let restarts = host.systemctl(&["show", "--value", "--property=NRestarts", "perilog-controller"])?;
    ensure!(restarts == "0", "{restarts} restarts on {}: {}", host.name(), host.diagnosis());
    Ok(())
}

#[test]
fn a_controller_moves_with_a_full_disk_and_keeps_ends() -> Result<()> {
    let builder = Cluster::builder(2).script("prolog", "10-gate", AT_GATE).script("epilog", "10-gate", "exit 0");
    let failover = Failover::boot(builder)?;
    let cluster = failover.cluster();
    let says_full = || Ok(cluster.perilog(&["status"])?.ok()?.contains(FULL));
    let _run = cluster.start_perilog(&["run", "prolog", "--job", "j", "--nodes", "n[0-1]"])?;
    cluster.wait_begun("j", &[0, 1])?;

    failover.fill_disk()?;
    let (from, to) = (failover.active()?, failover.other(failover.active()?)?);
    failover.move_away(from)?;
    failover.wait_answers(to)?;
    was_not_restarted(from)?;
    cluster.wait_online()?;
    // The controller's end in good order has made room: SQLite removed its write-ahead log.
    failover.fill_disk()?;
    cluster.open_gates()?;
    cluster.wait_scripts_ended("j", &[0, 1])?;
    cluster.wait_verdicts("j")?;
    cluster.assert_ran("j", &["prolog"])?;
    failover.wait("the controller says that the disk is full", says_full)?;
    let refused = cluster.perilog(&["run", "prolog", "--job", "k", "--nodes", "n[0-1]"])?;
    ensure!(!refused.success() && refused.stderr.contains("disk"), "{refused}");
    failover.clear()?;
    failover.wait_settled()?;

    was_not_restarted(to)?;
    failover.power_cut(to)?;
    failover.wait_answers(from)?;
    cluster.wait_online()?;
    cluster.perilog(&["run", "epilog", "--job", "j", "--nodes", "n[0-1]"])?;
    cluster.assert_ran("j", &["prolog", "epilog"])?;
    failover.empty_disk()?;
    failover.wait("there is room again", || says_full().map(|full| !full))?;
    cluster.perilog(&["run", "prolog", "--job", "k", "--nodes", "n[0-1]"])?;
    cluster.assert_ran("k", &["prolog"])?;
    ensure!(cluster.runs("k")?.len() == 2, "once, and not for the refused one");
    was_not_restarted(from)?;
    failover.wait_settled()
}
