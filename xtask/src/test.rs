//! `cargo xtask test`: everything that passes or fails.

use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

use crate::cargo::{self, Built, TestProgram};
use crate::stages::{Stages, say};
use crate::tally::Tally;
use crate::{nodes, prerequisites, tidy};

/// A pure test program takes seconds; one that hangs shall not hang CI.
const PURE_LIMIT_SECONDS: &str = "600";

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
        cargo::run(&["clippy", "--quiet", "--workspace", "--all-targets", "--", "--deny", "warnings"])
    })?;
    stages.run("tidy", |_| tidy::check())?;
    if builds {
        let (on_nodes, pure): (Vec<_>, Vec<_>) = built.tests.iter().partition(|test| test.on_nodes);
        stages.run("pure tests", |tally| pure_tests(&pure, tally))?;
        stages.run("documentation tests", documentation_tests)?;
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
        let tally = judge(&text, output.status.success());
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
    command.args(["test", "--quiet", "--workspace", "--doc"]).stdin(Stdio::null());
    let output = command.output().context("running cargo")?;
    let text = String::from_utf8_lossy(&output.stdout);
    *total += judge(&text, output.status.success());
    if !output.status.success() {
        say(&text)?;
        bail!("{}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(())
}

/// What a test program that has ended counts for. One that failed without a failed test, for instance because it
/// crashed, is a failure of its own; so is one that ends well and says nothing.
pub(crate) fn judge(output: &str, success: bool) -> Tally {
    let mut tally = Tally::read(output).unwrap_or(Tally { passed: 0, failed: 1 });
    if !success {
        tally.failed = tally.failed.max(1);
    }
    tally
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_dies_is_a_failure() {
        let result = "test result: ok. 5 passed; 0 failed; 0 ignored";
        let cases = [
            (result, true, (5, 0)),
            (result, false, (5, 1)),
            ("", true, (0, 1)),
            ("test a ... ", false, (0, 1)),
            ("test result: FAILED. 5 passed; 2 failed", false, (5, 2)),
        ];
        for (output, success, (passed, failed)) in cases {
            assert_eq!(judge(output, success), Tally { passed, failed }, "{output}");
        }
    }
}
