//! A node that is a container restarts, and keeps the kernel's boot id: what its prolog had done is gone. The task is
//! lost, and no script starts twice. An agent of an earlier version is upgraded under a live task: that is no reboot.

use std::time::Duration;

use anyhow::Result;
use perilog_tests::{AT_GATE, Cluster};

const SOON: Duration = Duration::from_secs(90);

const FIRST_IS_SLOW: &str = "[ $PERILOG_RANK = 1 ] || while [ ! -e /run/gate ]; do sleep 0.02; done\nexit 0";

/// Two prologs, one of which is over when its node restarts. `keeps_run`: /run stays, as that of a container does which
/// is no tmpfs.
fn ok_before_the_verdict_is_lost(keeps_run: bool) -> Result<()> {
    let cluster = Cluster::builder(2).script("prolog", "10-gate", FIRST_IS_SLOW).build()?;
    let node = cluster.node(1)?;
    node.is_container(keeps_run)?;
    cluster.boot()?;
    let mut run = cluster.start_perilog(&["run", "prolog", "--job", "j", "--nodes", "n[0-1]"])?;
    cluster.wait_begun("j", &[0, 1])?;
    cluster.wait_shown_ended("j", "prolog", 1)?;
    let boot = node.boot_id()?;
    node.power_fail()?;
    node.boot()?;
    assert_eq!(node.boot_id()?, boot);
    // Until then the controller may take the old session for alive.
    cluster.bed().wait_until("the controller counts the restart as a boot", SOON, || {
        Ok(cluster.node_views()?.iter().any(|view| view.host == "n1" && view.boot_number == Some(2)))
    })?;
    cluster.open_gates()?;
    assert_eq!(cluster.wait_end(&mut run)?, 4, "{}", run.output()?);
    let (word, text) = cluster.outcome("j", "prolog", 1)?;
    assert_eq!((word.as_str(), text.as_str()), ("lost", "lost (the node rebooted)"));
    assert_eq!(cluster.runs("j")?.len(), 2, "each script once");
    Ok(())
}

#[test]
fn a_prolog_that_was_ok_is_lost_with_a_fresh_run() -> Result<()> {
    ok_before_the_verdict_is_lost(false)
}

#[test]
fn a_prolog_that_was_ok_is_lost_with_the_same_run_and_another_pid_1() -> Result<()> {
    ok_before_the_verdict_is_lost(true)
}

#[test]
fn a_script_that_worked_is_lost_and_starts_once() -> Result<()> {
    for keeps_run in [false, true] {
        let cluster = Cluster::builder(2).script("prolog", "10-gate", AT_GATE).build()?;
        cluster.node(1)?.is_container(keeps_run)?;
        cluster.boot()?;
        let mut run = cluster.start_perilog(&["run", "prolog", "--job", "j", "--nodes", "n[0-1]"])?;
        cluster.wait_begun("j", &[0, 1])?;
        cluster.node(1)?.power_fail()?;
        cluster.node(1)?.boot()?;
        cluster.open_gates()?;
        cluster.wait_end(&mut run)?;
        let (word, text) = cluster.outcome("j", "prolog", 1)?;
        assert_eq!((word.as_str(), text.as_str()), ("lost", "lost (the node rebooted)"), "keeps /run: {keeps_run}");
        cluster.assert_true("j", &["prolog"])?;
    }
    Ok(())
}

/// An agent before the records leaves no `boot.json`. The new agent finds the task of the old one alive.
#[test]
fn an_upgrade_under_a_live_task_is_no_reboot() -> Result<()> {
    let cluster =
        Cluster::builder(2).script("prolog", "10-gate", "while [ ! -e /run/gate ]; do sleep 0.02; done").build()?;
    cluster.boot()?;
    let node = cluster.node(1)?;
    // The boot of an earlier version: its lock, and no record.
    node.sh("systemctl stop perilog-agent; rm /run/perilog/boot.json; systemctl start perilog-agent")?;
    cluster.wait_online()?;
    let mut run = cluster.start_perilog(&["run", "prolog", "--job", "j", "--nodes", "n[0-1]"])?;
    cluster.wait_begun("j", &[0, 1])?;
    let intent = node.sh("cat /run/perilog/tasks/*/intent.json")?;
    assert!(intent.contains(&format!("\"boot\":\"{}\"", node.boot_id()?)), "the id of earlier versions: {intent}");
    node.sh("systemctl stop perilog-agent; rm /run/perilog/boot.json; systemctl start perilog-agent")?;
    cluster.wait_online()?;
    cluster.open_gates()?;
    assert_eq!(cluster.wait_end(&mut run)?, 0, "{}", run.output()?);
    cluster.assert_exact("j", &["prolog"])
}
