//! `cargo xtask test`: everything that passes or fails.

use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

use crate::cargo::{self, Built, TestProgram};
use crate::stages::{Stages, say};
use crate::tally::Tally;
use crate::{dist, nodes, prerequisites, tidy};

/// A pure test program takes seconds; one that hangs shall not hang CI.
const PURE_LIMIT_SECONDS: &str = "600";

pub(crate) fn run() -> Result<bool> {
    let mut stages = Stages::new();
    if !stages.run("prerequisites", |_| {
        prerequisites::ensure_all()?;
        prerequisites::ensure_packagers()
    })? {
        return stages.end();
    }
    let mut built = Built::default();
    let builds = stages.run("build", |_| {
        built = cargo::build_everything()?;
        Ok(())
    })?;
    stages.run("format", |_| cargo::run(&["fmt", "--all", "--check"]))?;
    stages.run("clippy", |_| {
        let all = ["clippy", "--quiet", "--workspace", "--all-targets"];
        cargo::run(&[&all[..], &cargo::TEST_FEATURES, &["--", "--deny", "warnings"]].concat())
    })?;
    stages.run("tidy", |_| tidy::check())?;
    if builds {
        let (on_nodes, pure): (Vec<_>, Vec<_>) = built.tests.iter().partition(|test| test.on_nodes);
        stages.run("pure tests", |tally| pure_tests(&pure, tally))?;
        stages.run("documentation tests", documentation_tests)?;
        // Tests that install them fail by themselves where there are none.
        stages.run("packages", |_| dist::for_tests(&built.binaries))?;
        stages.run("tests on real nodes", |tally| nodes::run_tests(&built.binaries, &on_nodes, tally))?;
    }
    stages.end()
}

fn pure_tests(programs: &[&TestProgram], total: &mut Tally) -> Result<()> {
    let mut bad = Vec::new();
    for program in programs {
        let mut command = Command::new("timeout");
        command.args(["--foreground", "-k", "10", PURE_LIMIT_SECONDS]).arg(&program.path);
        command.current_dir(&program.directory).env("CARGO_MANIFEST_DIR", &program.directory);
        let output = command.stdin(Stdio::null()).output().with_context(|| format!("running {}", program.name))?;
        let text = String::from_utf8_lossy(&output.stdout);
        let tally = Tally::judge(&text, output.status.success());
        *total += tally;
        if tally.failed > 0 {
            say(&format!("{text}{}", String::from_utf8_lossy(&output.stderr)))?;
            bad.push(program.name.as_str());
        }
        if !tally.is_empty() {
            say(&format!("   {}: {tally}", program.name))?;
        }
    }
    ensure!(bad.is_empty(), "failed: {}", bad.join(", "));
    Ok(())
}

fn documentation_tests(total: &mut Tally) -> Result<()> {
    let mut command = cargo::command();
    command.args(["test", "--workspace", "--doc"]).args(cargo::TEST_FEATURES).stdin(Stdio::null());
    let output = command.output().context("running cargo")?;
    let text = String::from_utf8_lossy(&output.stdout);
    // One result for each library, each under a headline of its own.
    let results = text.split("\nrunning ").filter_map(Tally::read);
    results.for_each(|tally| *total += tally);
    if !output.status.success() {
        say(&text)?;
        bail!("{}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(())
}
