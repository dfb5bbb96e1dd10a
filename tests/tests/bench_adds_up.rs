//! `perilog-bench unit`, the benchmark of a task's unit, with three samples. It runs on a real node and reports on each
//! method to make a unit; the test does not judge the times.

use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

#[test]
fn every_way_to_make_a_unit_is_measured() -> Result<()> {
    let own = std::env::current_exe()?;
    // target/<profile>/deps/<this>
    let program = own.ancestors().nth(2).context("a directory of programs")?.join("perilog-bench");
    let mut command = Command::new(&program);
    command.args(["unit", "--samples", "3", "--bursts", "1"]);
    let output = command.output().with_context(|| format!("running {}", program.display()))?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let document: Value = serde_json::from_slice(&output.stdout)?;
    let ways = document["ways"].as_array().context("no ways")?;
    ensure!(ways.len() == 5 && ways.iter().all(|way| way["ms"]["n"] == 3), "{document}");
    ensure!(document["in_flight"]["agent_per_s"]["n"] == 1, "{document}");
    Ok(())
}
