//! Stages, the named parts of a command such as `cargo xtask test`. Each is shown with its result and duration as it
//! ends. At the end the command fails if any of them failed.

use std::io::Write;

use anyhow::{Context, Result};

use crate::processors::Processors;
use crate::tally::Tally;

/// Prints a line. Fails if the reader of the output is gone (`| head`), so that the caller stops without a panic.
pub(crate) fn print_line(line: &str) -> Result<()> {
    writeln!(std::io::stdout(), "{line}").context("writing to standard output")
}

/// Results of the stages that have run so far. A stage is a named part of a command such as `cargo xtask test`.
#[derive(Debug)]
pub(crate) struct Stages {
    pub(crate) tally: Tally,
    ended: Vec<Stage>,
    processors: Processors,
}

/// A stage that has run.
#[derive(Debug)]
struct Stage {
    name: &'static str,
    passed: bool,
    seconds: f64,
    /// Number of processor cores of the machine that were busy in the mean.
    busy: f64,
}

impl Stages {
    pub(crate) fn new() -> Result<Self> {
        Ok(Self { tally: Tally::default(), ended: Vec::new(), processors: Processors::start()? })
    }

    /// Runs a stage; returns `true` if it passed. A failed stage makes the whole command fail, but later stages still
    /// run.
    pub(crate) fn run(&mut self, name: &'static str, stage: impl FnOnce(&mut Tally) -> Result<()>) -> Result<bool> {
        print_line(&format!("== {name}"))?;
        let processors = Processors::start()?;
        let mut tally = Tally::default();
        let result = stage(&mut tally);
        if let Err(error) = &result {
            print_line(&format!("{error:#}"))?;
        }
        self.tally += tally;
        let passed = result.is_ok();
        let (seconds, busy) = processors.elapsed()?;
        self.ended.push(Stage { name, passed, seconds, busy });
        let counts = if tally.is_empty() { String::new() } else { format!(" ({tally})") };
        let word = if passed { "ok" } else { "FAILED" };
        print_line(&format!("== {name}: {word}{counts}, {seconds:.1} s"))?;
        Ok(passed)
    }

    /// Prints the last lines of the output: a table of the stages and their times, the names of failed stages, and on
    /// the last line the counts of all tests. Returns `true` if all stages passed. A failed stage without a failed test
    /// also counts in the last line, so that line says `0 failed` only if everything passed.
    pub(crate) fn end(mut self) -> Result<bool> {
        let (seconds, busy) = self.processors.elapsed()?;
        print_line(&table(&self.ended, seconds, busy))?;
        let failed: Vec<&str> = self.ended.iter().filter(|stage| !stage.passed).map(|stage| stage.name).collect();
        if !failed.is_empty() {
            print_line(&format!("failed: {}", failed.join(", ")))?;
            self.tally.failed = self.tally.failed.max(failed.len());
        }
        print_line(&self.tally.to_string())?;
        Ok(failed.is_empty() && self.tally.failed == 0)
    }
}

/// Returns a table of the stages: seconds, share of the whole time, and busy processor cores.
fn table(stages: &[Stage], seconds: f64, busy: f64) -> String {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let mut text = format!("== seconds, share, busy cores of {cores}");
    for Stage { name, seconds: own, busy, .. } in stages {
        let share = own / seconds.max(0.001) * 100.0;
        text.push_str(&format!("\n{own:9.1} {share:3.0} % {busy:5.1}  {name}"));
    }
    text.push_str(&format!("\n{seconds:9.1} 100 % {busy:5.1}  everything"));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_says_where_the_time_went() {
        let stage = |name, seconds, busy| Stage { name, passed: true, seconds, busy };
        let text = table(&[stage("build", 75.0, 1.96), stage("tidy", 1.26, 1.0)], 100.0, 1.5);
        let rows: Vec<&str> = text.lines().skip(1).collect();
        let expected =
            ["     75.0  75 %   2.0  build", "      1.3   1 %   1.0  tidy", "    100.0 100 %   1.5  everything"];
        assert_eq!(rows, expected);
    }
}
