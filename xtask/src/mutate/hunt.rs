//! Hunt for a deliberate defect: looks for a seed of the simulator, or a test, that fails with the defect and passes
//! without it.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use perilog_tests::Stopwatch;
use serde_json::Value;

use super::report::{Alarm, Found};
use super::{LIMIT, cargo};
use crate::cargo::{Built, TestProgram};
use crate::nodes;
use crate::stages::print_line;
use crate::tally::Tally;

/// Environment variable with the name of a defect, which `perilog_host::defect` reads. The test bed passes it to its
/// nodes.
const VARIABLE: &str = "PERILOG_DEFECT";

pub(super) struct Simulator {
    program: PathBuf,
}

impl Simulator {
    pub(super) fn build() -> Result<Self> {
        let arguments = ["build", "--profile", "sim", "--package", "perilog-sim", "--features", "defects"];
        Ok(Self { program: cargo::build_program(&arguments, "perilog-sim")? })
    }

    /// Returns the simulator's table of all defects, as JSON.
    pub(super) fn table(&self) -> Result<String> {
        let output = Command::new(&self.program).arg("--defects").output().context("running the simulator")?;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr).trim());
        String::from_utf8(output.stdout).context("the simulator's table of defects")
    }

    /// Plays fresh seeds, or seeds from `from` on, until one fails with the defect and passes without. A seed that also
    /// fails without the defect is recorded as an alarm and proves nothing about the defect: the hunt goes on.
    pub(super) fn hunt(&self, defect: &str, from: Option<&str>, alarms: &mut Vec<Alarm>) -> Result<Found> {
        let mut from = from.map(str::to_owned);
        let (mut histories, mut seconds) = (0, 0.0);
        while histories < LIMIT {
            let reported = self.search(defect, from.as_deref(), LIMIT - histories)?;
            let of_search = reported["histories"].as_u64().context("a report without its number of histories")?;
            histories += of_search;
            seconds += reported["seconds"].as_f64().context("a report without its seconds")?;
            let failed: Vec<(u64, &str)> =
                reported["failed"].as_array().into_iter().flatten().filter_map(read_failed).collect();
            for (seed, violation) in &failed {
                let Some(alarm) = self.play(*seed)? else {
                    return Ok(Found::Seed { seed: *seed, violation: (*violation).to_owned(), histories, seconds });
                };
                print_line(&format!("VIOLATED without any defect by seed {seed}: {alarm}"))?;
                alarms.push(Alarm { seed: *seed, violation: alarm });
            }
            if failed.is_empty() {
                break;
            }
            let first = reported["first_seed"].as_u64().context("a report without its first seed")?;
            from = Some(first.saturating_add(of_search).to_string());
        }
        Ok(Found::Nothing { seconds, why: format!("{histories} histories tell nothing of it") })
    }

    /// Plays at most `count` seeds with this defect, until one violates an invariant; returns the simulator's report.
    fn search(&self, defect: &str, from: Option<&str>, count: u64) -> Result<Value> {
        let report = std::env::temp_dir().join(format!("perilog-mutate-{}.json", std::process::id()));
        let mut command = Command::new(&self.program);
        command.args(["--defect", defect, "--count", &count.to_string(), "--first", "--json"]).arg(&report);
        command.args(from.iter().flat_map(|seed| ["--from", seed])).stdin(Stdio::null());
        let output = command.output().context("running the simulator")?;
        let text = std::fs::read_to_string(&report)
            .with_context(|| format!("no report: {}", String::from_utf8_lossy(&output.stderr).trim()))?;
        std::fs::remove_file(&report).with_context(|| format!("removing {}", report.display()))?;
        serde_json::from_str(&text)
            .with_context(|| format!("the simulator's report: {}", String::from_utf8_lossy(&output.stderr).trim()))
    }

    /// Plays the history of this seed without a defect; returns its violation, if any.
    fn play(&self, seed: u64) -> Result<Option<String>> {
        let mut command = Command::new(&self.program);
        let output = command.args(["--seed", &seed.to_string()]).output().context("running the simulator")?;
        if output.status.success() {
            return Ok(None);
        }
        let text = String::from_utf8_lossy(&output.stdout);
        let violated = text.lines().rev().find_map(|line| line.strip_prefix("violated: "));
        Ok(Some(violated.unwrap_or("the simulator died of it").to_owned()))
    }
}

/// Returns the seed in a row of the report's `failed`, and that seed's violation.
fn read_failed(row: &Value) -> Option<(u64, &str)> {
    row["seed"].as_u64().zip(row["violation"].as_str())
}

/// Test programs that may notice a defect, and perilog's programs for the nodes of tests, built with support for
/// deliberate defects.
pub(super) struct Tests {
    built: Built,
}

impl Tests {
    /// Returns the programs in `slot`, built with support for deliberate defects. If `slot` is empty, builds them
    /// first.
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

    /// Runs the tests of a module on nodes as root, with the defect and then without it. Returns whether they found the
    /// defect.
    pub(super) fn on_nodes(&self, defect: &str, module: &str) -> Result<Found> {
        let program = self.built.on_nodes()?;
        let tests = nodes::list(program)?;
        let tests: Vec<&str> = tests.iter().map(String::as_str).filter(|test| nodes::module(test) == module).collect();
        ensure!(!tests.is_empty(), "there are no tests {module} on nodes");
        let mut programs = Vec::new();
        for on in [true, false] {
            let mut command = nodes::command(&self.built.binaries, program, &tests)?;
            command.env_remove(VARIABLE).envs(on.then_some((VARIABLE, defect)));
            programs.push((on, command));
        }
        let mut programs = programs.into_iter();
        self.both_ways(module, |_| programs.next().map_or_else(|| Command::new("false"), |(_, command)| command))
    }

    /// Runs a test command with the defect, then without it. The defect is found if the first run fails and the second
    /// passes. `command` makes the command; its argument says whether the defect is on.
    fn both_ways(&self, name: &str, mut command: impl FnMut(bool) -> Command) -> Result<Found> {
        let watch = Stopwatch::start();
        let mut runs = Vec::new();
        for on in [true, false] {
            let output = command(on).stdin(Stdio::null()).output().with_context(|| format!("running {name}"))?;
            runs.push((Tally::judge(&String::from_utf8_lossy(&output.stdout), output.status.success()), output));
        }
        let seconds = watch.elapsed().as_secs_f64();
        let [(with, output), (without, alone)] = runs.as_slice() else { return Ok(Found::nothing(seconds, "not run")) };
        if without.failed > 0 || without.passed == 0 {
            let printed = String::from_utf8_lossy(&alone.stderr);
            let last = printed.lines().rfind(|line| !line.is_empty()).unwrap_or("it said nothing of it");
            return Ok(Found::nothing(seconds, &format!("without the defect {name}: {without}: {last}")));
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
