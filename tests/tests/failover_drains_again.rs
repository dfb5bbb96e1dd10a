//! A command of the first host may still end after the controller has moved, and undo what the second has done. So the
//! controller sends each drain in force once more from its new host, by the real hook; a restart on one host does not.

use std::time::Duration;

use anyhow::{Result, ensure};
use perilog_tests::Cluster;
use perilog_tests::failover::Failover;
use perilog_tests::manager::{CONFIGURATION, NOTICES};

const LIMIT: Duration = Duration::from_secs(90);

/// Returns the number of notices to the hook that drain the node.
fn drains(failover: &Failover) -> Result<usize> {
    let notices = failover.active()?.try_read_file(NOTICES)?.unwrap_or_default();
    Ok(notices.lines().filter(|line| line.contains("\"event\":\"drain\"") && line.contains("\"n0\"")).count())
}

#[test]
fn a_drain_in_force_is_sent_again_after_a_move() -> Result<()> {
    let builder = Cluster::builder(2).controller(CONFIGURATION).script("prolog", "10-fails", "exit 1");
    let failover = Failover::boot_with(builder, |cluster| cluster.manage(""))?;
    let cluster = failover.cluster();
    let failed = cluster.perilog(&["run", "prolog", "--job", "j", "--nodes", "n0"])?;
    ensure!(!failed.success(), "{failed}");
    failover.wait("the hook has drained the node", || Ok(drains(&failover)? == 1))?;

    failover.restart()?;
    failover.wait_settled()?;
    // The restarted controller would send a drain in force before this new one.
    let failed = cluster.perilog(&["run", "prolog", "--job", "k", "--nodes", "n1"])?;
    ensure!(!failed.success(), "{failed}");
    cluster.bed().wait_until("the hook has drained the other node", LIMIT, || {
        Ok(failover.active()?.read_file(NOTICES)?.contains("\"n1\""))
    })?;
    ensure!(drains(&failover)? == 1, "{}", failover.active()?.read_file(NOTICES)?);

    let (first, second) = (failover.active()?, failover.other(failover.active()?)?);
    failover.move_away(first)?;
    failover.wait_answers(second)?;
    failover.wait("the hook has drained the node from the second host, too", || Ok(drains(&failover)? == 2))
}
