//! The Python module `perilog` (`python/`) calls the real daemons: it reads and changes state, and names what is
//! refused. It follows a script over a kill -9 of the controller, to the status that the script's own ledger has.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use perilog_tests::{AT_GATE, Cluster, Node};
use serde_json::Value;

const STEPS: &str = include_str!("../../python/tests/on_a_node.py");
const SOON: Duration = Duration::from_secs(60);
/// Python of the distribution, which finds modules in the directory where packages install them.
const PYTHON: &str = "/usr/bin/python3";

fn step(node: &Node, name: &str) -> Result<String> {
    node.run(&[PYTHON, "/run/steps.py", name])?.ok()
}

#[test]
fn the_module_and_its_test_are_strictly_typed() -> Result<()> {
    let python = Path::new(env!("CARGO_MANIFEST_DIR")).join("../python");
    // No cache of earlier runs, which could go stale.
    let strict = ["--strict", "--python-version=3.9", "--cache-dir=/dev/null", "perilog", "tests/on_a_node.py"];
    let output = Command::new("mypy").args(strict).current_dir(python).output();
    let output = output.context("mypy: apt-get install mypy")?;
    ensure!(
        output.status.success(),
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(())
}

#[test]
fn it_asks_follows_and_names_what_is_refused() -> Result<()> {
    let cluster = Cluster::builder(1)
        .controller("[api]\nread = \"anyone\"\n")
        .script("prolog", "10-gate", AT_GATE)
        .script("epilog", "10-status", "exit 37")
        .build()?;
    cluster.stay_down()?;
    cluster.boot()?;
    let (controller, node) = (cluster.controller()?, cluster.node(0)?);
    for node in [controller, node] {
        node.write_file("/run/steps.py", STEPS)?;
    }
    step(controller, "looks")?;
    let mut run = controller.spawn(&[PYTHON, "/run/steps.py", "runs"])?;
    cluster.wait_begun("j", &[0])?;
    let mut follows = controller.spawn(&[PYTHON, "/run/steps.py", "follows"])?;
    cluster.bed().wait_until("it has read an event", SOON, || Ok(!follows.output()?.stdout.is_empty()))?;
    cluster.kill_controller()?;
    step(controller, "away")?;
    cluster.start_controller()?;
    cluster.open_gates()?;
    ensure!(cluster.wait_end(&mut run)? == 0, "{}", run.output()?);
    ensure!(cluster.wait_end(&mut follows)? == 0, "{}", follows.output()?);
    cluster.assert_exact("j", &["prolog"])?;
    let end: Value = serde_json::from_str(&run.output()?.stdout)?;
    let runs = cluster.runs("j")?;
    let status = runs.first().and_then(|(_, run)| run.ended).context("the script's end")?.1;
    let verdict = if status == 0 { "ok" } else { "failed" };
    ensure!(end["verdict"] == verdict && end["status"].as_i64().unwrap_or(0) == i64::from(status), "{status}: {end}");
    step(controller, "changes")?;
    let stranger = ["setpriv", "--reuid=1500", "--clear-groups", PYTHON, "/run/steps.py", "stranger"];
    controller.run(&stranger)?.ok()?;
    assert_eq!(step(node, "agent")?, "37");
    cluster.bed().wait_until("the node is online", SOON, || cluster.is_online("n0"))
}
