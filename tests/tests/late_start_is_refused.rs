//! An agent, or the agent's bus, stands still for longer than a start is valid, and goes on: no script runs late.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use perilog_tests::{AT_GATE, Cluster, Order};

const LONG: Duration = Duration::from_secs(90);
/// Lines of controller.toml: no process may claim a task later than one second after its Start. The controller waits
/// for agents longer than that.
const BRIEF: &str = "not-after = \"1s\"\n";
/// Lines of controller.toml: a task is `lost` if its node has not accepted the Start within two seconds.
const IMPATIENT: &str = "start-grace = \"2s\"\n";

fn cluster(controller: &str) -> Result<Cluster> {
    Cluster::builder(1).script("prolog", "10-gate", AT_GATE).controller(controller).boot()
}

fn signal(cluster: &Cluster, unit: &str, signal: &str) -> Result<()> {
    cluster.node(0)?.systemctl(&["kill", "--kill-who=main", "--signal", signal, unit]).map(drop)
}

/// Waits until the node has written the intent of job `late`, and then until its not-after time has passed.
fn wait_too_late(cluster: &Cluster) -> Result<()> {
    let node = cluster.node(0)?;
    cluster.bed().wait_until("too late for it to begin", LONG, || {
        let text = node.run(&["sh", "-c", "cat /run/perilog/tasks/perilog-task-prolog-late-0-*/intent.json"])?;
        if !text.success() {
            return Ok(false);
        }
        let intent: serde_json::Value = serde_json::from_str(&text.stdout).context("an intent")?;
        let not_after = intent["not_after_boottime_ms"].as_f64().context("its not-after")?;
        let uptime = node.read_file("/proc/uptime")?;
        let now: f64 = uptime.split(' ').next().context("a time")?.parse().context("a time")?;
        Ok(now * 1e3 > not_after)
    })
}

/// Asserts that no script of job `late` has begun or will begin: the node serves another job, and holds no task of
/// `late`.
fn assert_nothing_ran(cluster: &Cluster) -> Result<()> {
    let other = cluster.perilog(&["run", "prolog", "--job", "next", "--nodes", "n0"])?;
    ensure!(matches!(other.code(), Some(0 | 1)), "{other}");
    cluster.assert_exact("next", &["prolog"])?;
    let units = ["--no-legend", "--plain", "list-units", "--state=active,activating", "perilog-task-*-late-*"];
    assert_eq!(cluster.node(0)?.systemctl(&units)?, "");
    let runs = cluster.runs("late")?;
    assert!(runs.is_empty(), "it ran: {runs:?}");
    cluster.assert_true("late", &["prolog"])
}

#[test]
fn by_the_agent_that_was_stopped_over_it() -> Result<()> {
    let cluster = cluster(BRIEF)?;
    let stopped = cluster.arm(cluster.node(0)?, "after-intent", Order::Stop)?;
    let mut run = cluster.start_perilog(&["run", "prolog", "--job", "late", "--nodes", "n0"])?;
    stopped.wait_sprung()?;
    wait_too_late(&cluster)?;
    signal(&cluster, "perilog-agent", "CONT")?;
    cluster.open_gates()?;
    cluster.wait_end(&mut run)?;
    assert_eq!(cluster.outcome("late", "prolog", 0)?.1, "refused (the task did not begin in time)");
    assert_nothing_ran(&cluster)
}

/// The bus is stopped: the agent's call to systemd waits there, and PID 1 gets it too late. The runner refuses to run
/// the script.
#[test]
fn by_the_runner_whose_start_was_on_the_way_for_long() -> Result<()> {
    let cluster = cluster(BRIEF)?;
    signal(&cluster, "dbus", "STOP")?;
    let mut run = cluster.start_perilog(&["run", "prolog", "--job", "late", "--nodes", "n0"])?;
    wait_too_late(&cluster)?;
    signal(&cluster, "dbus", "CONT")?;
    cluster.open_gates()?;
    cluster.wait_end(&mut run)?;
    assert_eq!(cluster.outcome("late", "prolog", 0)?.1, "refused (the task did not begin in time)");
    // The runner noticed the late start.
    let output = "journalctl --sync; journalctl --no-pager -o cat --unit='perilog-task-prolog-late-0-*'";
    let output = cluster.node(0)?.sh(output)?;
    ensure!(output.contains("the time in which the task may begin has passed"), "{output}");
    assert_nothing_ran(&cluster)
}

/// The agent is stopped, and a Start waits in the agent's socket, where it does not expire. The controller gives the
/// task up, and sends a message behind the Start that withdraws it.
#[test]
fn by_the_agent_that_finds_it_given_up() -> Result<()> {
    let cluster = cluster(IMPATIENT)?;
    signal(&cluster, "perilog-agent", "STOP")?;
    let mut run = cluster.start_perilog(&["run", "prolog", "--job", "late", "--nodes", "n0"])?;
    cluster.wait_end(&mut run)?;
    assert_eq!(cluster.outcome("late", "prolog", 0)?.1, "lost (the node is offline)");
    signal(&cluster, "perilog-agent", "CONT")?;
    cluster.open_gates()?;
    assert_nothing_ran(&cluster)
}
