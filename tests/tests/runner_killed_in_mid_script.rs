//! kill -9 of a task's runner in the middle of a script: the unit's status is the outcome, no other script begins, and
//! the task has not ended while a process of the script lives.

use std::time::Duration;

use anyhow::Result;
use perilog_tests::{AT_GATE, Cluster, Running};

const SOON: Duration = Duration::from_secs(90);
/// Script body: ignores TERM, which systemd sends to the processes that a killed runner leaves, and waits until the
/// test creates /run/gate.
const DEAF: &str = "trap '' TERM\nwhile [ ! -e /run/gate ]; do sleep 0.02; done\nexit $(draw 0 0 3 37)";

/// Runs an epilog of two scripts on two ranks. Kills the runner of rank 1 while both ranks are in the first script.
fn killed(body: &str) -> Result<(Cluster, Running)> {
    let cluster = Cluster::builder(2).script("epilog", "10-gate", body).script("epilog", "20-next", "exit 0").boot()?;
    let run = cluster.start_perilog(&["run", "epilog", "--job", "j", "--nodes", "n[0-1]"])?;
    cluster.wait_begun("j", &[0, 1])?;
    // From here on the agent expects nothing but an end.
    let at_work = || Ok(cluster.outcome("j", "epilog", 1)?.1.contains("10-gate"));
    cluster.bed().wait_until("the script is shown", SOON, at_work)?;
    cluster.node(1)?.sh("systemctl kill --kill-who=main --signal=KILL 'perilog-task-epilog-j-1-*.service'")?;
    Ok((cluster, run))
}

/// Asserts the outcomes: rank 0 ran both scripts; rank 1 failed by the signal KILL, before its second script.
fn reported(cluster: &Cluster) -> Result<()> {
    assert_eq!(cluster.outcome("j", "epilog", 1)?.1, "failed (its runner was killed: signal KILL)");
    assert!(!is_alive(cluster)?, "its script lives");
    let ledger = cluster.ledger()?;
    let began = |rank: u32| {
        let of_rank = ledger.of_job("j").into_iter().filter(move |(key, _)| key.rank == rank);
        of_rank.map(|(key, _)| key.script.clone()).collect::<Vec<_>>()
    };
    assert_eq!((began(0), began(1)), (vec!["10-gate".into(), "20-next".into()], vec!["10-gate".to_owned()]));
    let comparison = cluster.compare("j", &[("epilog", &["10-gate", "20-next"])])?;
    assert!(comparison.holds(), "{comparison}");
    Ok(())
}

/// Returns `true` if a process of the first script still lives on rank 1's node.
fn is_alive(cluster: &Cluster) -> Result<bool> {
    Ok(cluster.node(1)?.run(&["pgrep", "-f", "epilog[.]d/10-gate"])?.success())
}

fn wait_lingering(cluster: &Cluster) -> Result<()> {
    cluster.bed().wait_until("ps names what is left", SOON, || {
        let ps = cluster.perilog(&["ps"])?.ok()?;
        Ok(ps.contains("lingering") && ps.contains("epilog.d/10-gate"))
    })
}

#[test]
fn its_script_ends_with_it_and_the_unit_shows_it() -> Result<()> {
    let (cluster, mut run) = killed(AT_GATE)?;
    cluster.bed().wait_until("rank 1 has ended", SOON, || Ok(cluster.outcome("j", "epilog", 1)?.0 == "failed"))?;
    assert!(!run.has_ended()?, "rank 0 is at work: {}", run.output()?);
    cluster.open_gates()?;
    assert_eq!(cluster.wait_end(&mut run)?, 1);
    reported(&cluster)
}

#[test]
fn a_script_that_does_not_go_with_it_holds_the_rank() -> Result<()> {
    let (cluster, mut run) = killed(DEAF)?;
    wait_lingering(&cluster)?;
    cluster.open_gate(0)?;
    cluster.bed().wait_until("rank 0 is shown", SOON, || Ok(run.output()?.stdout.contains("n0:")))?;
    // The next agent finds the same state.
    cluster.renew_agent(1)?;
    wait_lingering(&cluster)?;
    assert!(!run.has_ended()?, "freed with a live script: {}", run.output()?);
    cluster.open_gate(1)?;
    assert_eq!(cluster.wait_end(&mut run)?, 1);
    reported(&cluster)
}

#[test]
fn an_operator_can_end_what_it_left() -> Result<()> {
    let (cluster, mut run) = killed(DEAF)?;
    wait_lingering(&cluster)?;
    cluster.open_gate(0)?;
    cluster.perilog(&["kill", "j", "--ranks", "1", "--signal", "KILL"])?.ok()?;
    assert_eq!(cluster.wait_end(&mut run)?, 1);
    reported(&cluster)
}
