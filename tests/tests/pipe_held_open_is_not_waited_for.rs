//! A script ends and leaves a child that holds the script's stdout. The runner does not wait for the child, and goes on
//! to the next script. The setting `lingering` decides what happens to the child.

use std::time::Duration;

use anyhow::Result;
use perilog_tests::Cluster;

const SOON: Duration = Duration::from_secs(90);
/// Script body: the child has a session of its own, with this script's stdout and stderr.
const HOLDS: &str = "echo said; setsid sleep 876543 &\nexit 0";

/// Runs an epilog of two scripts with this value of `lingering`, and waits until both scripts have ended. Leaves
/// `perilog run` running.
///
/// `code` is the exit status of the second script. systemd itself kills the processes left in a failed unit's cgroup,
/// so normally only a successful task has a lingering process.
fn begin(lingering: &str, code: u8) -> Result<(Cluster, perilog_tests::Running)> {
    let cluster = Cluster::builder(1)
        .script("epilog", "10-gate", HOLDS)
        .script("epilog", "20-next", &format!("exit {code}"))
        .build()?;
    let toml = format!("[action.epilog]\nlingering = \"{lingering}\"\n");
    cluster.node(0)?.write_file("/etc/perilog/agent.d/epilog.toml", toml)?;
    cluster.boot()?;
    let run = cluster.start_perilog(&["run", "epilog", "--job", "j", "--nodes", "n0"])?;
    cluster.bed().wait_until("the next script has ended", SOON, || {
        let ledger = cluster.ledger()?;
        Ok(ledger.runs.iter().any(|(key, runs)| key.script == "20-next" && runs[0].ended.is_some()))
    })?;
    Ok((cluster, run))
}

fn assert_true(cluster: &Cluster, outcome: &str) -> Result<()> {
    let comparison = cluster.compare("j", &[("epilog", &["10-gate", "20-next"])])?;
    assert!(comparison.holds(), "{comparison}");
    assert_eq!(cluster.outcome("j", "epilog", 0)?.1, outcome);
    Ok(())
}

#[test]
fn killed_where_what_lingers_is_killed() -> Result<()> {
    let (cluster, mut run) = begin("kill", 3)?;
    cluster.wait_end(&mut run)?;
    assert_true(&cluster, "failed (exit 3)")?;
    assert_eq!(cluster.node(0)?.run(&["pgrep", "-f", "^sleep 876543$"])?.code(), Some(1), "it lives");
    Ok(())
}

#[test]
fn held_where_what_lingers_holds() -> Result<()> {
    let (cluster, mut run) = begin("hold", 0)?;
    cluster.bed().wait_until("ps names the process", SOON, || {
        let ps = cluster.perilog(&["ps"])?.ok()?;
        Ok(ps.contains("lingering") && ps.contains("sleep 876543"))
    })?;
    assert!(!run.has_ended()?, "finished with a live process");
    cluster.node(0)?.sh("pkill -f '^sleep 876543$'")?;
    cluster.wait_end(&mut run)?;
    assert_true(&cluster, "ok")
}
