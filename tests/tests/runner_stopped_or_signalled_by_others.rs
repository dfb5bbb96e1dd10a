//! Other processes of root disturb a runner and the runner's directory: the agent reports the true end, and neither the
//! agent nor an operator waits in vain.

use std::time::Duration;

use anyhow::{Result, ensure};
use perilog_tests::{AT_GATE, Cluster, Running};

const SOON: Duration = Duration::from_secs(90);
const UNIT: &str = "'perilog-task-epilog-j-0-*.service'";

/// Boots a node and starts an epilog there; returns when the controller knows that the script runs.
fn running_epilog(body: &str) -> Result<(Cluster, Running)> {
    running_epilog_with("", body)
}

/// Starts an epilog as [`running_epilog`] does. `configuration` is lines of the node's table `[action.epilog]`.
fn running_epilog_with(configuration: &str, body: &str) -> Result<(Cluster, Running)> {
    let agent = format!("[action.epilog]\n{configuration}");
    let cluster = Cluster::builder(1).agent(&agent).script("epilog", "10-gate", body).boot()?;
    let run = cluster.start_perilog(&["run", "epilog", "--job", "j", "--nodes", "n0"])?;
    cluster.wait_begun("j", &[0])?;
    let shown = || Ok(cluster.outcome("j", "epilog", 0)?.1.contains("10-gate"));
    cluster.bed().wait_until("the script is shown", SOON, shown)?;
    Ok((cluster, run))
}

/// Regression test: a TERM from outside turned `exit 37` into `cancelled (exit 37)`, and the node returned to service.
#[test]
fn a_term_that_nobody_asked_perilog_for_makes_no_cancel() -> Result<()> {
    let body = "trap '' TERM\nwhile [ ! -e /run/gate ]; do sleep 0.02; done\nexit $(draw 37)";
    let (cluster, mut run) = running_epilog(body)?;
    let node = cluster.node(0)?;
    node.sh(&format!("systemctl kill --kill-who=main --signal=TERM {UNIT}"))?;
    // A restarted agent has only the files on disk.
    cluster.renew_agent(0)?;
    cluster.open_gates()?;
    cluster.wait_end(&mut run)?;
    let (word, text) = cluster.outcome("j", "epilog", 0)?;
    ensure!((word.as_str(), text.as_str()) == ("failed", "failed (exit 37)"), "{word}: {text}");
    Ok(())
}

/// Regression test: the runner of a task was stopped. `perilog cancel`, and `perilog kill --signal KILL`, reported
/// success, but the script went on.
#[test]
fn a_kill_reaches_what_a_stopped_runner_does_not_pass_on() -> Result<()> {
    let (cluster, mut run) = running_epilog(AT_GATE)?;
    cluster.node(0)?.sh(&format!("systemctl kill --kill-who=main --signal=STOP {UNIT}"))?;
    cluster.perilog(&["cancel", "j", "epilog"])?.ok()?;
    cluster.bed().wait_until("ps says why nothing comes of it", SOON, || {
        Ok(cluster.perilog(&["ps"])?.ok()?.contains("its runner is stopped"))
    })?;
    ensure!(!run.has_ended()?, "it ended: {}", run.output()?);
    cluster.perilog(&["kill", "j", "epilog", "--signal", "KILL"])?.ok()?;
    cluster.wait_end(&mut run)?;
    let (word, text) = cluster.outcome("j", "epilog", 0)?;
    ensure!(word == "cancelled" && text.contains("signal KILL"), "{word}: {text}");
    Ok(())
}

/// Regression test: a script stopped its own runner, and 36 s later nothing had reported that its limit of
/// 2 s was over.
#[test]
fn a_stopped_runner_is_overdue_all_the_same() -> Result<()> {
    let (cluster, mut run) = running_epilog_with("timeout = \"15s\"\n", AT_GATE)?;
    let node = cluster.node(0)?;
    node.sh(&format!("systemctl kill --kill-who=main --signal=STOP {UNIT}"))?;
    cluster.bed().wait_until("ps says that it is overdue", SOON, || {
        Ok(cluster.perilog(&["ps"])?.ok()?.contains("past its limit of 15s"))
    })?;
    cluster.bed().wait_until("its node is drained", SOON, || {
        Ok(cluster.perilog(&["drain"])?.ok()?.contains("past its limit of 15s"))
    })?;
    // The runner sees that the limit has passed, and stops the script.
    node.sh(&format!("systemctl kill --kill-who=main --signal=CONT {UNIT}"))?;
    cluster.wait_end(&mut run)?;
    let (word, text) = cluster.outcome("j", "epilog", 0)?;
    ensure!(word == "timeout", "{word}: {text}");
    Ok(())
}

/// An administrator stops the unit with `systemctl stop`: a script that then fails counts as failed, not as cancelled.
#[test]
fn a_foreign_stop_of_the_unit_makes_no_cancel() -> Result<()> {
    let body = "trap '' TERM\nwhile [ ! -e /run/gate ]; do sleep 0.02; done\nexit $(draw 37)";
    let (cluster, mut run) = running_epilog(body)?;
    cluster.node(0)?.sh(&format!("systemctl stop --no-block {UNIT}"))?;
    cluster.bed().wait_until("systemd stops the unit", SOON, || {
        Ok(cluster
            .node(0)?
            .systemctl(&["show", "--property=ActiveState", "perilog-task-epilog-*"])?
            .contains("deactivating"))
    })?;
    cluster.open_gates()?;
    cluster.wait_end(&mut run)?;
    let (word, text) = cluster.outcome("j", "epilog", 0)?;
    ensure!((word.as_str(), text.as_str()) == ("failed", "failed (exit 37)"), "{word}: {text}");
    ensure!(cluster.perilog(&["drain"])?.ok()?.contains("failed (exit 37)"), "not drained");
    Ok(())
}

/// Regression test: the agent waited for ever for the other end of a FIFO in a task's directory, and the
/// restarted agent never became ready.
#[test]
fn a_fifo_in_its_directory_stops_no_agent() -> Result<()> {
    let (cluster, mut run) = running_epilog(AT_GATE)?;
    let node = cluster.node(0)?;
    node.sh("cd /run/perilog/tasks/perilog-task-epilog-j-0-* && rm -f steps.jsonl && mkfifo steps.jsonl")?;
    cluster.renew_agent(0)?;
    cluster.open_gates()?;
    cluster.wait_end(&mut run)?;
    let mut next = cluster.start_perilog(&["run", "epilog", "--job", "k", "--nodes", "n0"])?;
    cluster.wait_end(&mut next)?;
    Ok(())
}
