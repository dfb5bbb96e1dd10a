//! An operator who mistypes a host reads so at once, and no script begins. With `--force` the controller waits for the
//! host and names it, and the scripts run on the other nodes.

use anyhow::Result;
use perilog_tests::Cluster;

#[test]
fn an_unknown_node_is_refused_and_by_force_does_not_hang_a_run() -> Result<()> {
    let cluster = Cluster::builder(1).script("prolog", "10-gate", "exit 0").boot()?;
    let typed = ["run", "prolog", "--job", "j", "--nodes", "n0,ghost7"];
    let refused = cluster.perilog(&typed)?;
    assert_eq!(refused.code(), Some(9), "{refused}");
    assert!(refused.stderr.contains("no node ghost7 has ever connected to this controller"), "{refused}");
    assert!(refused.stderr.contains("--force"), "{refused}");
    assert_eq!(cluster.perilog(&["show", "j"])?.code(), Some(9), "a refused job exists");
    assert_eq!(cluster.perilog(&["drain", "--quiet"])?.stdout, "");

    // A restarted controller gives unknown nodes time to come.
    cluster.controller()?.systemctl(&["restart", "perilog-controller"])?;
    cluster.wait_online()?;
    let run = cluster.perilog(&[&typed[..], &["--force"]].concat())?;
    assert_eq!(run.code(), Some(4), "{run}");
    assert!(run.stdout.contains("ghost7: lost (the controller knows no such node)"), "{run}");
    assert_eq!(cluster.outcome("j", "prolog", 0)?.0, "ok");
    let why = cluster.perilog(&["why", "ghost7"])?;
    assert_eq!(why.code(), Some(9), "{why}");
    assert!(why.stderr.contains("no node ghost7") && why.stderr.contains("job j holds it"), "{why}");
    Ok(())
}
