//! perilog reports how long each script took on each node, over a kill -9 of the controller. These times agree with the
//! nodes' own ledgers. `perilog skew` names a script whose text differs on one node.

use anyhow::{Context, Result, ensure};
use perilog_tests::{Cluster, ledger};
use serde_json::Value;

const QUICK: &str = "exit 0";
const SLOW_ON_N2: &str = "if [ \"$(hostname)\" = n2 ]; then sleep 0.4; fi\nexit 0";

#[test]
fn timeline_stats_and_skew_say_what_ran() -> Result<()> {
    let cluster =
        Cluster::builder(3).script("prolog", "10-quick", QUICK).script("prolog", "20-slow", SLOW_ON_N2).build()?;
    cluster.stay_down()?;
    cluster.boot()?;
    let run = |job: &str| cluster.perilog(&["run", "prolog", "--job", job, "--nodes", "n[0-2]"])?.ok();
    run("first")?;
    cluster.kill_controller()?;
    cluster.start_controller()?;
    cluster.wait_online()?;

    let timeline = cluster.perilog(&["--json", "timeline", "first"])?.ok()?;
    let reported: Value = serde_json::from_str(&timeline).context(timeline.clone())?;
    let tasks = reported["tasks"].as_array().context("no tasks")?;
    ensure!(tasks.len() == 3, "{timeline}");
    for (task, (rank, host)) in tasks.iter().zip([(0, "n0"), (1, "n1"), (2, "n2")]) {
        let steps: Vec<&str> =
            task["steps"].as_array().into_iter().flatten().filter_map(|s| s["script"].as_str()).collect();
        ensure!(task["rank"] == rank && task["host"] == host && steps == ["10-quick", "20-slow"], "{task}");
        let slow = task["steps"][1]["elapsed_ms"].as_u64().context("no time")?;
        ensure!(host != "n2" || slow >= 400, "{task}");
        ensure!(task["elapsed_ms"].as_u64() >= Some(slow), "{task}");
    }
    let table = cluster.perilog(&["timeline", "first", "prolog"])?.ok()?;
    ensure!(table.contains("10-quick") && table.contains("n2"), "{table}");
    let svg = cluster.perilog(&["timeline", "first", "--svg", "-"])?.ok()?;
    ensure!(svg.starts_with("<svg ") && svg.matches(": 20-slow ").count() == 3, "{svg}");

    let same = cluster.perilog(&["skew"])?;
    ensure!(same.code() == Some(0) && same.stdout.contains("2 scripts on 3 nodes: all the same"), "{same:?}");
    // An administrator repairs one node manually, and forgets the others.
    cluster.node(1)?.write_script("/etc/perilog/prolog.d/10-quick", ledger::script("exit 0 # repaired"))?;
    run("second")?;
    let differs = cluster.perilog(&["skew"])?;
    ensure!(differs.code() == Some(1), "{differs:?}");
    let odd = differs.stdout.lines().find(|line| line.ends_with("n1")).context(differs.stdout.clone())?;
    ensure!(!odd.contains("20-slow") && differs.stdout.contains("n[0,2]"), "{differs:?}");

    let stats = cluster.perilog(&["--json", "stats", "prolog"])?.ok()?;
    let stats: Value = serde_json::from_str(&stats)?;
    for (row, script) in [(0, Value::Null), (1, "10-quick".into()), (2, "20-slow".into())] {
        let row = &stats["rows"][row];
        ensure!(row["script"] == script && row["count"] == 6 && row["failed"] == 0, "{stats}");
    }
    ensure!(stats["rows"][2]["max_ms"].as_u64() >= Some(400), "{stats}");
    Ok(())
}
