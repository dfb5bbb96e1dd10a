//! `perilog events --all --follow` over kill -9 of the controller. Each event of each job comes once and in one order:
//! for a reader that stays, and for a killed reader that starts again after the last event that it printed.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use perilog_tests::{AT_GATE, Cluster, Running};
use serde_json::Value;

const SOON: Duration = Duration::from_secs(90);
const FOLLOW: [&str; 4] = ["--json", "events", "--all", "--follow"];

/// Parses the printed lines, one event (JSON) each; omits a last line that was cut off.
fn events(printed: &str) -> Result<Vec<Value>> {
    let whole = printed.rfind('\n').map_or("", |end| &printed[..end]);
    whole.lines().map(|line| serde_json::from_str(line).with_context(|| line.to_owned())).collect()
}

/// Returns the events that `perilog events WHAT` prints; `what` is a job or an option.
fn ask(cluster: &Cluster, what: &str) -> Result<Vec<Value>> {
    // `ok` cuts the end of the last line off.
    events(&format!("{}\n", cluster.perilog(&["--json", "events", what])?.ok()?))
}

fn spot(event: &Value) -> String {
    event["spot"].as_str().unwrap_or_default().to_owned()
}

fn wait_verdict(cluster: &Cluster, of: &mut Running, job: &str) -> Result<()> {
    cluster.bed().wait_until(&format!("the verdict of {job} is read"), SOON, || {
        let all = events(&of.output()?.stdout)?;
        Ok(all.iter().any(|event| event["job"] == job && event["name"] == "verdict"))
    })
}

#[test]
fn no_gap_and_no_double_over_kills() -> Result<()> {
    let cluster = Cluster::builder(2).script("prolog", "10-gate", AT_GATE).build()?;
    cluster.stay_down()?;
    cluster.boot()?;
    let mut stays = cluster.start_perilog(&FOLLOW)?;
    let mut killed = cluster.start_perilog(&FOLLOW)?;
    let mut runs = Vec::new();
    for (job, nodes) in [("a", "n0"), ("b", "n[0-1]")] {
        runs.push(cluster.start_perilog(&["run", "prolog", "--job", job, "--nodes", nodes])?);
    }
    cluster.wait_begun("a", &[0])?;
    cluster.wait_begun("b", &[0, 1])?;
    cluster.bed().wait_until("some of it is read", SOON, || Ok(!events(&killed.output()?.stdout)?.is_empty()))?;
    let before = events(&killed.kill()?.stdout)?;
    cluster.kill_controller()?;
    cluster.open_gates()?;
    cluster.wait_scripts_ended("b", &[0, 1])?;
    cluster.start_controller()?;
    for run in &mut runs {
        cluster.wait_end(run)?;
    }
    let last = before.last().map(spot).context("it had read something")?;
    let mut again = cluster.start_perilog(&[&FOLLOW[..], &["--after", &last]].concat())?;
    let mut from_now = cluster.start_perilog(&[&FOLLOW[..], &["--after", "now"]].concat())?;
    cluster.kill_controller()?;
    cluster.start_controller()?;
    cluster.wait_online()?;
    let run = cluster.perilog(&["run", "prolog", "--job", "c", "--nodes", "n1"])?;
    ensure!(run.code().is_some_and(|code| code < 2), "{run}");
    for follower in [&mut stays, &mut again, &mut from_now] {
        wait_verdict(&cluster, follower, "c")?;
    }

    let all = ask(&cluster, "--all")?;
    let read = |of: &mut Running| -> Result<Vec<Value>> { events(&of.output()?.stdout) };
    let rest = [before, read(&mut again)?].concat();
    for (who, read) in [("stays", read(&mut stays)?), ("killed", rest)] {
        ensure!(read == all, "{who}: read {} events, there are {}\n{read:?}\n{all:?}", read.len(), all.len());
    }
    let new = read(&mut from_now)?;
    ensure!(all.ends_with(&new) && new.iter().all(|event| event["job"] == "c"), "from now on: {new:?}");
    let mut logs: BTreeMap<&str, Vec<Value>> = BTreeMap::new();
    for event in &all {
        logs.entry(event["job"].as_str().unwrap_or_default()).or_default().push(event["sequence"].clone());
    }
    for job in ["a", "b", "c"] {
        let own = ask(&cluster, job)?;
        let own: Vec<Value> = own.iter().map(|event| event["sequence"].clone()).collect();
        ensure!(logs[job] == own, "{job}: {:?} and {own:?}", logs[job]);
    }
    let text = cluster.perilog(&["events", "--all"])?.ok()?;
    ensure!(text.lines().any(|line| line.starts_with("b ") && line.contains("verdict")), "{text}");
    let lost = cluster.perilog(&["events", "--all", "--after", "1-0:1"])?;
    ensure!(
        lost.code() == Some(10) && lost.to_string().contains("the store was restored from an older copy"),
        "{lost}"
    );
    Ok(())
}
