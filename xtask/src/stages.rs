//! Stages, the named parts of a command such as `cargo xtask test`. Each is shown with its result and duration as it
//! ends. At the end the command fails if any of them failed.

use std::io::Write;

use anyhow::{Context, Result};
use perilog_tests::Stopwatch;

use crate::tally::Tally;

/// Prints a line. Fails if the reader of the output is gone (`| head`), so that the caller stops without a panic.
pub(crate) fn say(line: &str) -> Result<()> {
    writeln!(std::io::stdout(), "{line}").context("writing to standard output")
}

/// Results of the stages that have run so far. A stage is a named part of a command such as `cargo xtask test`.
#[derive(Debug)]
pub(crate) struct Stages {
    pub(crate) tally: Tally,
    failed: Vec<&'static str>,
    watch: Stopwatch,
}

impl Stages {
    pub(crate) fn new() -> Self {
        Self { tally: Tally::default(), failed: Vec::new(), watch: Stopwatch::start() }
    }

    /// Runs a stage; returns `true` if it passed. A failed stage makes the whole command fail, but later stages still
    /// run.
    pub(crate) fn run(&mut self, name: &'static str, stage: impl FnOnce(&mut Tally) -> Result<()>) -> Result<bool> {
        say(&format!("== {name}"))?;
        let watch = Stopwatch::start();
        let mut tally = Tally::default();
        let result = stage(&mut tally);
        if let Err(error) = &result {
            say(&format!("{error:#}"))?;
        }
        self.tally += tally;
        let passed = result.is_ok();
        if !passed {
            self.failed.push(name);
        }
        let counts = if tally.is_empty() { String::new() } else { format!(" ({tally})") };
        let word = if passed { "ok" } else { "FAILED" };
        say(&format!("== {name}: {word}{counts}, {:.1} s", watch.elapsed().as_secs_f64()))?;
        Ok(passed)
    }

    /// Prints the last lines of the output: the total time, the names of failed stages, and on the last line the counts
    /// of all tests. Returns `true` if all stages passed. A failed stage without a failed test also counts in the last
    /// line, so that line says `0 failed` only if everything passed.
    pub(crate) fn end(mut self) -> Result<bool> {
        say(&format!("== everything: {:.1} s", self.watch.elapsed().as_secs_f64()))?;
        if !self.failed.is_empty() {
            say(&format!("failed: {}", self.failed.join(", ")))?;
            self.tally.failed = self.tally.failed.max(self.failed.len());
        }
        say(&self.tally.to_string())?;
        Ok(self.failed.is_empty() && self.tally.failed == 0)
    }
}
