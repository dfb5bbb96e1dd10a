//! kill -9 of slurmd in an epilog. The next slurmd tells Slurm that this epilog ended well; with stock Slurm, the next
//! job gets the node under the running script, and the script's status is lost. Here the hook outlives slurmd. The
//! epilog holds the node while it lives. After a failure the node is drained, with the true status in the reason.

use anyhow::{Result, ensure};
use perilog_tests::Cluster;
use perilog_tests::slurm::{ON_NODES, Slurm, gated};

/// Kills slurmd in a job's epilog, and starts it again: Slurm believes that the running epilog has ended. Returns that
/// job and the next job, which waits.
fn killed(cluster: &Cluster, slurm: &Slurm<'_>) -> Result<(String, String)> {
    slurm.open_all("prolog")?;
    let job = slurm.submit(1, "true")?;
    cluster.wait_action_begun(&job, "epilog", &[0])?;
    slurm.kill_slurmd(0)?;
    slurm.wait_held(0, &job, "epilog")?;
    slurm.start_slurmd(0)?;
    let next = slurm.submit(1, "true")?;
    slurm.wait_job(&job, "COMPLETED")?;
    ensure!(slurm.ends(&job)?.iter().any(|end| end.1 == "epilog" && end.3.is_none()), "{:?}", slurm.ends(&job)?);
    slurm.wait_kept_waiting(&next)?;
    Ok((job, next))
}

#[test]
fn the_node_is_nobodys_until_the_epilog_has_ended() -> Result<()> {
    let cluster = gated(1).boot()?;
    let slurm = Slurm::start(&cluster, ON_NODES)?;
    let (job, next) = killed(&cluster, &slurm)?;
    // The controller drains the node meanwhile: that drain stays after the epilog's end.
    let reported = |event: &str| slurm.control()?.sh(&format!("echo '{event}' | /usr/libexec/perilog/slurm/drain"));
    reported(r#"{"event": "drain", "hosts": "n0", "reason": "fan"}"#)?;
    slurm.open(0, "epilog", 0)?;
    slurm.wait_unheld(0)?;
    let seen = slurm.seen(0)?;
    ensure!(seen.state.contains("DRAIN") && seen.reason.starts_with("perilog: fan ["), "{seen:?}");
    reported(r#"{"event": "undrain", "hosts": "n0"}"#)?;
    slurm.wait_job(&next, "COMPLETED")?;
    slurm.wait_node(0, "IDLE")?;
    slurm.ensure_ran(&job, &[(0, "prolog", "0", 0), (0, "epilog", "0", 0)])?;
    let ledger = cluster.ledger()?;
    let (ended, begun) = (ledger.of_job(&job).last().and_then(|(_, run)| run.ended), ledger.of_job(&next)[0].1.started);
    ensure!(
        ended.is_some_and(|(at, _)| at <= begun),
        "the next prolog began at {begun}, the epilog ended at {ended:?}"
    );
    Ok(())
}

#[test]
fn a_status_that_no_live_slurmd_received_drains() -> Result<()> {
    let cluster = gated(1).boot()?;
    let slurm = Slurm::start(&cluster, ON_NODES)?;
    let (job, next) = killed(&cluster, &slurm)?;
    slurm.open(0, "epilog", 9)?;
    slurm.wait("the reason says how it ended", |slurm| Ok(slurm.seen(0)?.reason.contains("failed (exit 9)")))?;
    slurm.ensure_ran(&job, &[(0, "prolog", "0", 0), (0, "epilog", "0", 9)])?;
    slurm.wait_unheld(0)?;
    slurm.wait_kept_waiting(&next)?;
    ensure!(slurm.ends(&next)?.is_empty(), "{:?}", slurm.ends(&next)?);
    Ok(())
}

/// `systemctl kill -s KILL slurmd` kills every process of the unit by default, so no hook is left to report the
/// epilog's status. The test kills the agent, too. The node is drained all the same, and the reason names the status.
#[test]
fn a_status_that_no_live_hook_received_drains() -> Result<()> {
    let cluster = gated(1).boot()?;
    let slurm = Slurm::start(&cluster, ON_NODES)?;
    slurm.open_all("prolog")?;
    let job = slurm.submit(1, "true")?;
    cluster.wait_action_begun(&job, "epilog", &[0])?;
    let node = cluster.node(0)?;
    node.systemctl(&["kill", "--kill-who=all", "--signal=KILL", "slurmd.service", "perilog-agent.service"])?;
    let next = slurm.submit(1, "true")?;
    slurm.wait_held(0, &job, "epilog")?;
    slurm.start_slurmd(0)?;
    slurm.wait_job(&job, "COMPLETED")?;
    slurm.open(0, "epilog", 9)?;
    slurm.wait("the reason says how it ended", |slurm| Ok(slurm.seen(0)?.reason.contains("failed (exit 9)")))?;
    slurm.wait_unheld(0)?;
    slurm.wait_kept_waiting(&next)?;
    slurm.ensure_ran(&job, &[(0, "prolog", "0", 0), (0, "epilog", "0", 9)])
}

/// No agent runs when the epilog ends. The hook gets the status from the restarted agent, but slurmd is dead and cannot
/// get it from the hook. So the node is drained, and the reason names the status.
#[test]
fn a_status_that_no_agent_saw_drains() -> Result<()> {
    let cluster = gated(1).build()?;
    cluster.stay_down()?;
    cluster.boot()?;
    let slurm = Slurm::start(&cluster, ON_NODES)?;
    slurm.open_all("prolog")?;
    let job = slurm.submit(1, "true")?;
    cluster.wait_action_begun(&job, "epilog", &[0])?;
    cluster.kill_agent(0)?;
    slurm.kill_slurmd(0)?;
    slurm.open(0, "epilog", 9)?;
    cluster.wait_scripts_ended(&job, &[0])?;
    cluster.start_agent(0)?;
    slurm.wait("the reason says how it ended", |slurm| Ok(slurm.seen(0)?.reason.contains("failed (exit 9)")))?;
    slurm.start_slurmd(0)?;
    slurm.wait_node(0, "IDLE+DRAIN")?;
    slurm.ensure_ran(&job, &[(0, "prolog", "0", 0), (0, "epilog", "0", 9)])
}

/// n0 loses its power in an epilog and boots again: the epilog runs a second time, before the prolog of the next job.
#[test]
fn an_epilog_cut_off_by_power_runs_again_before_a_prolog() -> Result<()> {
    let cluster = gated(1).agent("serialize = \"host\"\n").boot()?;
    let slurm = Slurm::start(&cluster, ON_NODES)?;
    slurm.open_all("prolog")?;
    let job = slurm.submit(1, "true")?;
    cluster.wait_action_begun(&job, "epilog", &[0])?;
    let node = cluster.node(0)?;
    node.power_fail()?;
    node.boot()?;
    node.systemctl(&["start", "munge", "perilog-agent"])?;
    slurm.open_all("prolog")?;
    slurm.start_slurmd(0)?;
    let next = slurm.submit(1, "true")?;
    slurm.wait("the epilog runs again", |slurm| {
        Ok(slurm.ends(&job)?.iter().filter(|end| end.1 == "epilog" && end.3.is_none()).count() == 2)
    })?;
    ensure!(slurm.ends(&next)?.is_empty(), "the next job's prolog began before: {:?}", slurm.ends(&next)?);
    slurm.open(0, "epilog", 0)?;
    slurm.wait_job(&next, "COMPLETED")?;
    slurm.wait_node(0, "IDLE")?;
    slurm.ensure_ran(&next, &[(0, "prolog", "0", 0), (0, "epilog", "0", 0)])
}
