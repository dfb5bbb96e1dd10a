//! A script traps TERM and cleans up past its time limit. It gets one TERM and no KILL. perilog shows its activity
//! while it goes on, and its true status arrives at the end.
//!
//! The test may end before a KILL would come. So the test also checks the two places that decide about a KILL: the
//! policy in the runner's intent, and the time that systemd gives the unit to stop. `agent/src/runner/watchdog.rs`
//! tests the runner's policy.

use std::time::Duration;

use anyhow::{Context, Result};
use perilog_core::task::{Intent, OnTimeout};
use perilog_tests::{AT_GATE, Cluster, LIMIT, Node};

const SOON: Duration = Duration::from_secs(90);

/// Returns, for a node's only task, the runner's policy past the limit, and the time that systemd gives the unit to
/// stop.
fn policy(node: &Node) -> Result<(OnTimeout, String)> {
    let intent: Intent =
        serde_json::from_str(&node.sh("cat /run/perilog/tasks/*/intent.json")?).context("its intent")?;
    let unit = node.sh("basename /run/perilog/tasks/*")?;
    let stop = node.systemctl(&["show", "--property=TimeoutStopUSec", "--value", &format!("{unit}.service")])?;
    Ok((intent.plan.on_timeout, stop))
}

#[test]
fn it_is_shown_and_its_true_status_arrives() -> Result<()> {
    // The cleanup lasts until the gate opens, and counts each TERM.
    let body = format!("trap 'echo term >> /run/terms' TERM\n{AT_GATE}");
    let cluster = Cluster::builder(1).script("epilog", "10-gate", &body).build()?;
    let limit = format!("[action.epilog]\ntimeout = \"{LIMIT}\"\n");
    cluster.node(0)?.write_file("/etc/perilog/agent.d/epilog.toml", &limit)?;
    cluster.stay_down()?;
    cluster.boot()?;
    let mut run = cluster.start_perilog(&["run", "epilog", "--job", "j", "--nodes", "n0"])?;
    cluster.wait_begun("j", &[0])?;
    cluster.bed().wait_until("ps shows it overdue", SOON, || {
        let ps = cluster.perilog(&["ps"])?.ok()?;
        Ok(ps.contains("overdue") && ps.contains(&format!("10-gate is past its limit of {LIMIT}")))
    })?;
    let node = cluster.node(0)?;
    cluster.bed().wait_until("it was asked to end", SOON, || Ok(node.try_read_file("/run/terms")?.is_some()))?;
    assert_eq!(policy(node)?, (OnTimeout::Drain, "infinity".to_owned()));
    // The forensics at the limit are readable while the script goes on. The forensics name the script, or the sleep(1)
    // that the script waits for.
    let events = cluster.perilog(&["--json", "events", "j"])?.ok()?;
    let overdue = events.lines().find(|line| line.contains("\"overdue\"")).context("an event")?;
    let seen = |text: &str| text.contains(" 10-gate") || text.contains(" sleep");
    assert!(overdue.contains("\"doing\":\"") && seen(overdue), "{overdue}");
    let why = cluster.perilog(&["why", "n0"])?.ok()?;
    assert!(why.lines().any(|line| line.contains("doing ") && seen(line)), "{why}");
    // An operator who lifts the drain reads that the script still lives there.
    let undrain = cluster.perilog(&["undrain", "n0"])?;
    assert!(undrain.success() && undrain.stdout.contains("drain lifted"), "{undrain}");
    assert!(undrain.stderr.contains("n0: epilog of job j has been overdue there for "), "{undrain}");
    assert!(undrain.stderr.contains(&format!("10-gate is past its limit of {LIMIT}; see perilog why n0")), "{undrain}");
    // A restarted agent reads the task again; the script does not notice.
    cluster.kill_agent(0)?;
    cluster.start_agent(0)?;
    cluster.wait_online()?;
    cluster
        .bed()
        .wait_until("ps shows it overdue again", SOON, || Ok(cluster.perilog(&["ps"])?.ok()?.contains("overdue")))?;
    assert!(!run.has_ended()?, "ended while its script runs: {}", run.output()?);

    cluster.open_gates()?;
    cluster.wait_scripts_ended("j", &[0])?;
    cluster.wait_end(&mut run)?;
    let (_, run) = cluster.runs("j")?.pop().context("a run")?;
    let (_, code) = run.ended.context("its end: it was killed")?;
    let job = cluster.job("j")?;
    let [ended] = &job.attempts[0].actions[0].ended[..] else { panic!("{job:?}") };
    assert_eq!(ended.ended.outcome.as_str(), "timeout");
    let step = ended.ended.steps.last().context("a step")?;
    assert_eq!((step.status, step.timed_out), (Some(perilog_core::ExitStatus::Exit(u8::try_from(code)?)), true));
    assert!(ended.ended.forensics.as_deref().is_some_and(seen), "{:?}", ended.ended.forensics);
    assert_eq!(node.read_file("/run/terms")?.trim(), "term", "once");
    cluster.assert_true("j", &["epilog"])
}
