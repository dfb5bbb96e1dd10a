//! A script ends with 0 and leaves a process behind: the task has not ended, and perilog names the process.

use anyhow::Result;
use perilog_tests::{Cluster, LIMIT};

/// Script body: it ends when the child it leaves is `sleep`, and no longer the shell or `setsid` on its way to it.
const LEAVES_A_CHILD: &str =
    "setsid sleep 987654 >/dev/null 2>&1 </dev/null &\nuntil [ \"$(cat /proc/$!/comm)\" = sleep ]; do :; done\nexit 0";

#[test]
fn a_task_with_a_live_process_is_held_and_the_process_named() -> Result<()> {
    let cluster = Cluster::builder(1).script("epilog", "10-gate", LEAVES_A_CHILD).boot()?;
    let mut run = cluster.start_perilog(&["run", "epilog", "--job", "j", "--nodes", "n0"])?;
    cluster.wait_scripts_ended("j", &[0])?;
    cluster.bed().wait_until("ps names the process", std::time::Duration::from_secs(60), || {
        let ps = cluster.perilog(&["ps"])?.ok()?;
        Ok(ps.contains("lingering") && ps.contains("sleep 987654"))
    })?;
    assert!(!run.has_ended()?, "finished with a live process");
    let why = cluster.perilog(&["why", "n0"])?.ok()?;
    assert!(why.contains("sleep 987654") && why.contains("perilog kill"), "{why}");
    cluster.node(0)?.sh("pkill -f '^sleep 987654$'")?;
    assert_eq!(cluster.wait_end(&mut run)?, 0);
    cluster.assert_ran("j", &["epilog"])
}

#[test]
fn a_process_that_outlives_its_scripts_drains_its_node() -> Result<()> {
    let cluster = Cluster::builder(1).script("epilog", "10-gate", LEAVES_A_CHILD).build()?;
    // Only the node has a limit; neither the request nor the controller names a limit.
    let limit = format!("[action.epilog]\ntimeout = \"{LIMIT}\"\n");
    cluster.node(0)?.write_file("/etc/perilog/agent.d/epilog.toml", &limit)?;
    cluster.boot()?;
    let mut run = cluster.start_perilog(&["run", "epilog", "--job", "j", "--nodes", "n0"])?;
    cluster.bed().wait_until("n0 is drained", std::time::Duration::from_secs(60), || {
        let drained = cluster.perilog(&["drain"])?.ok()?;
        Ok(drained.contains(&format!("its scripts ended, but their processes did not within {LIMIT}"))
            && drained.contains("sleep 987654"))
    })?;
    assert!(!run.has_ended()?, "finished with a live process");
    cluster.node(0)?.sh("pkill -f '^sleep 987654$'")?;
    assert_eq!(cluster.wait_end(&mut run)?, 0);
    Ok(())
}

#[test]
fn an_action_that_kills_lingering_processes_names_them() -> Result<()> {
    let cluster = Cluster::builder(1).script("epilog", "10-gate", LEAVES_A_CHILD).build()?;
    cluster.node(0)?.write_file("/etc/perilog/agent.d/epilog.toml", "[action.epilog]\nlingering = \"kill\"\n")?;
    cluster.boot()?;
    let run = cluster.perilog(&["run", "epilog", "--job", "j", "--nodes", "n0"])?;
    assert_eq!(run.code(), Some(0), "{run}");
    assert!(cluster.node(0)?.run(&["pgrep", "-f", "^sleep 987654$"])?.code() == Some(1), "it lives");
    let job = cluster.job("j")?;
    let ended = &job.attempts[0].actions[0].ended;
    assert!(ended.iter().any(|rank| rank.ended.lingering.iter().any(|p| p.command.contains("sleep"))), "{ended:?}");
    Ok(())
}
