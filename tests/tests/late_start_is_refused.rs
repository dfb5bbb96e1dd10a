//! An agent stands still for longer than a start is good for, and goes on: nothing runs late.

use std::time::Duration;

use anyhow::Result;
use perilog_tests::{AT_GATE, Cluster, Order};

const BRIEF: &str = "start-grace = \"2s\"\nnot-after = \"1s\"\n";
const LONG: Duration = Duration::from_secs(90);

/// The agent is stopped, the start given up, the agent goes on and serves another job: no script of the first has begun, nor does one later.
fn nothing_runs_late(cluster: &Cluster, stop: impl FnOnce() -> Result<()>) -> Result<()> {
    let mut run = cluster.start_perilog(&["run", "prolog", "--job", "late", "--nodes", "n0"])?;
    stop()?;
    cluster.wait_end(&mut run)?;
    assert_eq!(cluster.outcome("late", "prolog", 0)?.1, "lost (the node is offline)", "{}", run.output()?);
    cluster.node(0)?.systemctl(&["kill", "--kill-whom=main", "--signal=CONT", "perilog-agent"])?;
    cluster.open_gates()?;
    let other = cluster.perilog(&["run", "prolog", "--job", "next", "--nodes", "n0"])?;
    assert!(matches!(other.code(), Some(0 | 1)), "{other}");
    cluster.assert_true("next", &["prolog"])?;
    cluster.bed().wait_until("the node holds nothing of it", LONG, || {
        Ok(cluster.node(0)?.sh("ls /run/perilog/tasks")?.is_empty())
    })?;
    let units = cluster
        .node(0)?
        .sh("systemctl --no-legend --plain list-units 'perilog-task-*-late-*' --state=active,activating")?;
    assert_eq!(units, "");
    assert!(cluster.runs("late")?.is_empty(), "it ran: {:?}", cluster.runs("late")?);
    cluster.assert_true("late", &["prolog"])
}

#[test]
fn by_the_runner_when_its_moment_has_passed() -> Result<()> {
    let cluster = Cluster::builder(1).script("prolog", "10-gate", AT_GATE).controller(BRIEF).boot()?;
    // The call is made by an agent that does not know how late it is, before it can hear that nobody wants it any more.
    let stopped = cluster.arm(cluster.node(0)?, "after-intent", Order::Stop)?;
    nothing_runs_late(&cluster, || stopped.wait_sprung())
}

/// A start in the socket of an agent that stands still does not grow old by itself: what is behind it there undoes it.
#[test]
fn by_the_agent_that_finds_it_given_up() -> Result<()> {
    let cluster = Cluster::builder(1).script("prolog", "10-gate", AT_GATE).controller(BRIEF).boot()?;
    cluster.node(0)?.systemctl(&["kill", "--kill-whom=main", "--signal=STOP", "perilog-agent"])?;
    nothing_runs_late(&cluster, || Ok(()))
}
