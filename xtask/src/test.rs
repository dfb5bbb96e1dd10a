//! `cargo xtask test`: everything that passes or fails, but for packages; `cargo xtask test packages`: those.

use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

use crate::cargo::{self, Built, TestProgram};
use crate::stages::{Stages, say};
use crate::tally::Tally;
use crate::{dependencies, dist, nodes, prerequisites, tidy};

/// A pure test program takes seconds; one that hangs shall not hang CI.
const PURE_LIMIT_SECONDS: &str = "600";
/// Programs of tests that install packages.
const OF_PACKAGES: [&str; 2] = ["packages_come_and_go", "rpms_install_into_a_root"];

pub(crate) fn run() -> Result<bool> {
    let mut stages = Stages::new();
    if !stages.run("prerequisites", |_| prerequisites::ensure_all())? {
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
    stages.run("dependencies", dependencies::check)?;
    if builds {
        let (on_nodes, pure): (Vec<_>, Vec<_>) = built.tests.iter().partition(|test| test.on_nodes);
        stages.run("pure tests", |tally| pure_tests(&pure, tally))?;
        stages.run("documentation tests", documentation_tests)?;
        let on_nodes: Vec<_> = on_nodes.into_iter().filter(|test| !of_packages(test)).collect();
        stages.run("tests on real nodes", |tally| nodes::run_tests(&built.binaries, &on_nodes, tally))?;
        say("not among them: packages, which `cargo xtask test packages` makes, installs, upgrades and removes")?;
    }
    stages.end()
}

/// Makes packages of what it has built for tests, and runs the tests that install them.
pub(crate) fn packages() -> Result<bool> {
    let mut stages = Stages::new();
    if !stages.run("prerequisites", |_| {
        prerequisites::ensure_all()?;
        prerequisites::ensure_packagers()
    })? {
        return stages.end();
    }
    let mut built = Built::default();
    let made = stages.run("build", |_| {
        built = cargo::build_everything()?;
        Ok(())
    })? && stages.run("packages", |_| dist::for_tests(&built.binaries))?;
    if made {
        let tests: Vec<_> = built.tests.iter().filter(|test| of_packages(test)).collect();
        stages.run("packages on real nodes", |tally| nodes::run_tests(&built.binaries, &tests, tally))?;
    }
    stages.end()
}

fn of_packages(test: &TestProgram) -> bool {
    test.on_nodes && OF_PACKAGES.iter().any(|name| test.name.ends_with(name))
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
