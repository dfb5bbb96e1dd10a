//! `systemctl reboot` in the middle of an epilog: the node goes down when the scripts have ended and the controller has
//! the statuses, or past a limit. A switch to another target leaves the scripts alone.

use std::time::Duration;

use anyhow::{Result, ensure};
use perilog_tests::{AT_GATE, Cluster, Node};

const SOON: Duration = Duration::from_secs(90);

fn epilog(body: &str) -> Result<Cluster> {
    let cluster = Cluster::builder(1).script("epilog", "10-gate", body).boot()?;
    cluster.bed().wait_until("the node would wait", SOON, || {
        let state = cluster.node(0)?.systemctl(&["show", "--value", "--property=ActiveState", "perilog-shutdown"])?;
        Ok(state == "active")
    })?;
    Ok(cluster)
}

/// Waits until the node is shutting down: systemd is stopping `perilog-shutdown`, the unit that delays a shutdown until
/// the scripts have ended.
fn wait_going(cluster: &Cluster, node: &Node) -> Result<()> {
    cluster.bed().wait_until("the node is going down", SOON, || {
        let state = node.systemctl(&["show", "--value", "--property=ActiveState", "perilog-shutdown"])?;
        Ok(state == "deactivating")
    })
}

#[test]
fn the_script_ends_first_and_its_status_arrives() -> Result<()> {
    let cluster = epilog(AT_GATE)?;
    let node = cluster.node(0)?;
    let mut run = cluster.start_perilog(&["run", "epilog", "--job", "j", "--nodes", "n0"])?;
    cluster.wait_begun("j", &[0])?;
    node.systemctl(&["--no-block", "reboot"])?;
    wait_going(&cluster, node)?;
    let agent = node.systemctl(&["show", "--value", "--property=ActiveState", "perilog-agent"])?;
    assert_eq!(agent, "active", "who else would tell");
    cluster.bed().wait_until("the shutdown says what it waits for", SOON, || {
        let status = node.systemctl(&["show", "--value", "--property=StatusText", "perilog-shutdown"])?;
        Ok(status.contains("waiting for 1 task to end: perilog-task-epilog-j-0-"))
    })?;
    ensure!(cluster.runs("j")?.iter().all(|(_, run)| run.ended.is_none()), "the script was ended");
    cluster.open_gate(0)?;
    // The run ends before the node is back: the node reported the end before the node went down.
    cluster.wait_end(&mut run)?;
    node.wait_off(SOON)?;
    let (_, text) = cluster.outcome("j", "epilog", 0)?;
    ensure!(!text.contains("lost"), "{text}");
    node.boot()?;
    cluster.wait_online()?;
    cluster.assert_exact("j", &["epilog"])
}

#[test]
fn past_the_limit_it_goes_down_and_says_how_the_script_ended() -> Result<()> {
    let cluster = epilog(AT_GATE)?;
    let node = cluster.node(0)?;
    node.write_file("/etc/systemd/system/perilog-shutdown.service.d/limit.conf", "[Service]\nEnvironment=LIMIT=1s\n")?;
    node.systemctl(&["daemon-reload"])?;
    let mut run = cluster.start_perilog(&["run", "epilog", "--job", "j", "--nodes", "n0"])?;
    cluster.wait_begun("j", &[0])?;
    node.systemctl(&["--no-block", "reboot"])?;
    node.wait_off(SOON)?;
    cluster.wait_end(&mut run)?;
    let (word, text) = cluster.outcome("j", "epilog", 0)?;
    // systemd, not perilog, stopped the script: the epilog has not done its work, so the epilog failed.
    ensure!(word == "failed" && text.contains("signal TERM"), "{word}: {text}");
    Ok(())
}

#[test]
fn another_target_is_no_end() -> Result<()> {
    let cluster = epilog(AT_GATE)?;
    let node = cluster.node(0)?;
    let mut run = cluster.start_perilog(&["run", "epilog", "--job", "j", "--nodes", "n0"])?;
    cluster.wait_begun("j", &[0])?;
    // A target that does not want perilog's units: systemd stops the agent, and the next target starts the agent again.
    node.write_file("/etc/systemd/system/bare.target", "[Unit]\nRequires=basic.target\nAllowIsolate=yes\n")?;
    node.systemctl(&["daemon-reload"])?;
    node.systemctl(&["isolate", "bare.target"])?;
    assert_eq!(node.run(&["systemctl", "is-active", "--quiet", "perilog-agent"])?.code(), Some(3));
    ensure!(cluster.runs("j")?.iter().all(|(_, run)| run.ended.is_none()), "the script was ended");
    cluster.open_gate(0)?;
    cluster.wait_scripts_ended("j", &[0])?;
    node.systemctl(&["start", "perilog-agent"])?;
    cluster.wait_end(&mut run)?;
    cluster.assert_exact("j", &["epilog"])
}
