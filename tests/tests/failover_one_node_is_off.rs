//! A node that Pacemaker pings loses its power, or cannot be reached by the active host alone: the controller stays
//! where it is, and is not started again. (`failover_faults` cuts the active host off from all of them.)

use anyhow::{Result, ensure};
use perilog_tests::Cluster;
use perilog_tests::failover::Failover;

#[test]
fn the_controller_stays_while_its_host_reaches_another_node() -> Result<()> {
    let failover = Failover::boot(Cluster::builder(2))?;
    let cluster = failover.cluster();
    let (active, passive, node) = (failover.active()?, failover.other(failover.active()?)?, cluster.node(0)?);
    // Each start of a unit has another id, so a move and a move back are seen, too.
    let id = || active.systemctl(&["show", "--property", "InvocationID", "--value", "perilog-controller"]);
    let before = id()?;
    failover.wait_reaches(active, 2)?;
    failover.wait_reaches(passive, 2)?;

    node.power_fail()?;
    failover.wait_reaches(active, 1)?;
    failover.wait_reaches(passive, 1)?;
    ensure!(id()? == before, "a node without power moved the controller");
    node.boot()?;
    failover.wait_reaches(active, 2)?;
    failover.wait_reaches(passive, 2)?;

    failover.cut_from_node(active, node)?;
    failover.wait_reaches(active, 1)?;
    failover.wait_reaches(passive, 2)?;
    ensure!(id()? == before, "one node that the active host does not reach moved the controller");
    failover.join();
    failover.wait_reaches(active, 2)?;
    ensure!(failover.fenced().is_empty(), "{:?}", failover.fenced());
    failover.wait_settled()
}
