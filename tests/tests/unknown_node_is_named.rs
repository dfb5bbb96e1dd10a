//! The controller names at once a node that the controller has never heard of; the other nodes run.

use anyhow::Result;
use perilog_tests::Cluster;

#[test]
fn an_unknown_node_does_not_hang_a_run() -> Result<()> {
    let cluster = Cluster::builder(1).script("prolog", "10-gate", "exit 0").boot()?;
    // A restarted controller gives unknown nodes time to come.
    cluster.controller()?.systemctl(&["restart", "perilog-controller"])?;
    cluster.wait_online()?;
    let run = cluster.perilog(&["run", "prolog", "--job", "j", "--nodes", "n0,ghost7"])?;
    assert_eq!(run.code(), Some(4), "{run}");
    assert!(run.stdout.contains("ghost7: lost (the controller knows no such node)"), "{run}");
    assert_eq!(cluster.outcome("j", "prolog", 0)?.0, "ok");
    let why = cluster.perilog(&["why", "ghost7"])?;
    assert_eq!(why.code(), Some(2), "{why}");
    assert!(why.stderr.contains("no node ghost7"), "{why}");
    Ok(())
}
