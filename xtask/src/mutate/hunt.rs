//! The two hunters: fresh seeds of the simulator, and tests.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use perilog_tests::Stopwatch;
use serde_json::Value;

use super::report::Found;
use super::{LIMIT, cargo};
use crate::cargo::{Built, TestProgram};
use crate::nodes;
use crate::tally::Tally;

/// Read by `perilog_host::defect`, and by the test bed, which hands it to its nodes.
const VARIABLE: &str = "PERILOG_DEFECT";

pub(super) struct Simulator {
    program: PathBuf,
}

impl Simulator {
    pub(super) fn build() -> Result<Self> {
        let arguments = ["build", "--profile", "sim", "--package", "perilog-sim", "--features", "defects"];
        Ok(Self { program: cargo::build_program(&arguments, "perilog-sim")? })
    }

    /// All defects, as JSON.
    pub(super) fn table(&self) -> Result<String> {
        let output = Command::new(&self.program).arg("--defects").output().context("running the simulator")?;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr).trim());
        String::from_utf8(output.stdout).context("the simulator's table of defects")
    }

    /// Fresh seeds, or those from `from` on, until the first that does not hold; it has to hold without the defect.
    pub(super) fn hunt(&self, defect: &str, from: Option<&str>) -> Result<Found> {
        let report = std::env::temp_dir().join(format!("perilog-mutate-{}.json", std::process::id()));
        let mut command = Command::new(&self.program);
        command.args(["--defect", defect, "--for", LIMIT, "--first", "--json"]).arg(&report);
        command.args(from.iter().flat_map(|seed| ["--from", seed])).stdin(Stdio::null());
        let output = command.output().context("running the simulator")?;
        let text = std::fs::read_to_string(&report)
            .with_context(|| format!("no report: {}", String::from_utf8_lossy(&output.stderr).trim()))?;
        std::fs::remove_file(&report).with_context(|| format!("removing {}", report.display()))?;
        let told: Value = serde_json::from_str(&text).context("the simulator's report")?;
        let histories = told["histories"].as_u64().unwrap_or_default();
        let seconds = told["seconds"].as_f64().unwrap_or_default();
        let failed = &told["failed"][0];
        let Some((seed, violation)) = failed["seed"].as_u64().zip(failed["violation"].as_str()) else {
            return Ok(Found::Nothing { seconds, why: format!("{histories} histories held") });
        };
        let alone = Command::new(&self.program).args(["--seed", &seed.to_string()]).stdout(Stdio::null()).status();
        if !alone.context("running the simulator")?.success() {
            return Ok(Found::Nothing { seconds, why: format!("seed {seed} does not hold without the defect either") });
        }
        Ok(Found::Seed { seed, violation: violation.to_owned(), histories, seconds })
    }
}

/// Test programs, and the product for nodes, built so that they can have a defect.
pub(super) struct Tests {
    built: Built,
}

impl Tests {
    /// Builds them when the first is needed.
    pub(super) fn once(slot: &mut Option<Self>) -> Result<&Self> {
        if slot.is_none() {
            *slot = Some(Self { built: cargo::build_with_defects()? });
        }
        slot.as_ref().context("they were just built")
    }

    fn program(&self, name: &str) -> Result<&TestProgram> {
        self.built.tests.iter().find(|test| test.name == name).with_context(|| format!("no test program {name}"))
    }

    pub(super) fn unit(&self, defect: &str, program: &str, filter: &str) -> Result<Found> {
        let test = self.program(program)?;
        self.both_ways(&format!("{program}: {filter}"), |on| {
            let mut command = Command::new(&test.path);
            command.arg(filter).current_dir(&test.directory).env("CARGO_MANIFEST_DIR", &test.directory);
            command.env_remove(VARIABLE).envs(on.then_some((VARIABLE, defect)));
            command
        })
    }

    /// As root: this program starts itself again, which runs the test program.
    pub(super) fn on_nodes(&self, defect: &str, program: &str) -> Result<Found> {
        let test = self.program(&format!("tests: {program}"))?;
        let mut programs = Vec::new();
        for on in [true, false] {
            let mut command = nodes::as_root(nodes::TESTS, &self.built.binaries)?;
            command.arg(&test.path).env_remove(VARIABLE).envs(on.then_some((VARIABLE, defect)));
            programs.push((on, command));
        }
        let mut programs = programs.into_iter();
        self.both_ways(program, |_| programs.next().map_or_else(|| Command::new("false"), |(_, command)| command))
    }

    /// With the defect, then without it.
    fn both_ways(&self, name: &str, mut command: impl FnMut(bool) -> Command) -> Result<Found> {
        let watch = Stopwatch::start();
        let mut runs = Vec::new();
        for on in [true, false] {
            let output = command(on).stdin(Stdio::null()).output().with_context(|| format!("running {name}"))?;
            runs.push((Tally::judge(&String::from_utf8_lossy(&output.stdout), output.status.success()), output));
        }
        let seconds = watch.elapsed().as_secs_f64();
        let [(with, output), (without, _)] = runs.as_slice() else { return Ok(Found::nothing(seconds, "not run")) };
        if without.failed > 0 || without.passed == 0 {
            return Ok(Found::nothing(seconds, &format!("without the defect {name}: {without}")));
        }
        if with.failed == 0 {
            return Ok(Found::nothing(seconds, &format!("{name}: {with}")));
        }
        let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        let red =
            out.lines().chain(err.lines()).find_map(|line| line.strip_prefix("test ")?.strip_suffix(" ... FAILED"));
        Ok(Found::Test { name: format!("{name}: {}", red.unwrap_or("failed")), seconds })
    }
}
