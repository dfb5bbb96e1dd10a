//! Part that needs root: this program starts itself again, through sudo(8) where necessary, and runs test programs.
//!
//! Built files belong to the user who built them. As root, this program builds nothing and writes nothing below
//! `target/`.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use perilog_tests::{Bed, LAYER_VARIABLE, Layer, PACKAGES_VARIABLE};

use crate::cargo::TestProgram;
use crate::dist;
use crate::privilege;
use crate::stages::say;
use crate::tally::Tally;

/// Command with which xtask starts itself again as root, to run tests: `xtask on-nodes-tests BINARIES PROGRAM...`
pub(crate) const TESTS: &str = "on-nodes-tests";
/// Command with which xtask starts itself again as root, to play a demo: `xtask on-nodes-demo BINARIES STORY`
pub(crate) const DEMO: &str = "on-nodes-demo";

/// Command with which xtask starts itself again as root, for a soak:
/// `xtask on-nodes-soak BINARIES SECONDS SEED [--sdexec]`
pub(crate) const SOAK: &str = "on-nodes-soak";

/// Time limit in seconds for one test program. A program on nodes takes a minute or two; a hanging one must not hang
/// CI.
const LIMIT_SECONDS: &str = "1800";
/// Least and greatest number of tests that run at once; between these, as many as the machine has processor cores.
const THREADS: std::ops::RangeInclusive<usize> = 2..=8;

/// Returns a command that starts xtask as root, with the first arguments `command` (such as [`TESTS`]) and `binaries`.
/// Uses the copy of xtask in `binaries`, because the build may just have replaced the running file.
pub(crate) fn as_root(command: &str, binaries: &Path) -> Result<Command> {
    let mut root = privilege::command(&binaries.join("xtask"))?;
    root.arg(command).arg(binaries);
    Ok(root)
}

/// Runs test programs as root, shows their output line by line, and adds their results to `total`.
pub(crate) fn run_tests(binaries: &Path, programs: &[&TestProgram], total: &mut Tally) -> Result<()> {
    ensure!(!programs.is_empty(), "there are no tests on real nodes");
    let mut command = as_root(TESTS, binaries)?;
    command.args(programs.iter().map(|program| &program.path)).stdout(Stdio::piped());
    let mut child = command.spawn().context("running tests as root")?;
    let mut outputs: Vec<String> = Vec::new();
    if let Some(stdout) = child.stdout.take() {
        for line in BufReader::new(stdout).lines() {
            let line = line.context("reading what tests say")?;
            say(&line)?;
            // A failed test prints what was said on its nodes, in which other lines may look like a headline.
            let next = programs.get(outputs.len()).map(|program| headline(&program.path));
            match outputs.last_mut() {
                Some(output) if next.as_ref() != Some(&line) => output.extend([line.as_str(), "\n"]),
                _ => outputs.push(line + "\n"),
            }
        }
    }
    let success = child.wait().context("waiting for tests")?.success();
    let mut tally = Tally::default();
    outputs.iter().for_each(|output| tally += Tally::judge(output, true));
    ensure!(outputs.len() == programs.len() || !success, "{} of {} programs ran", outputs.len(), programs.len());
    tally.failed = tally.failed.max(usize::from(!success));
    *total += tally;
    ensure!(tally.failed == 0, "tests on real nodes failed");
    Ok(())
}

/// Returns the line that stands before the output of this test program.
fn headline(program: &Path) -> String {
    let name = program.file_name().unwrap_or_default().to_string_lossy();
    // cargo appends a hash to the name.
    format!("-- {}", name.rsplit_once('-').map_or(&*name, |(name, _)| name))
}

/// Runs the test programs one after the other; needs root. Installs the programs in `binaries` once, for the nodes of
/// all tests. Returns `true` if all passed.
pub(crate) fn tests(binaries: &str, programs: &[&str]) -> Result<bool> {
    // A bed without nodes holds the layer, and removes the layer even if this process is killed.
    let holder = Bed::builder().layer(Layer::Built(binaries.into())).build()?;
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = cores.clamp(*THREADS.start(), *THREADS.end()).to_string();
    let mut all = true;
    for program in programs {
        say(&headline(Path::new(program)))?;
        let mut command = Command::new("timeout");
        command.args(["--foreground", "-k", "10", LIMIT_SECONDS, program, "--test-threads", &threads]);
        command.env(LAYER_VARIABLE, holder.layer()).env(PACKAGES_VARIABLE, dist::of_tests(Path::new(binaries)));
        command.env("RUST_LIB_BACKTRACE", "0").stdin(Stdio::null());
        all &= command.status().with_context(|| format!("running {program}"))?.success();
    }
    Ok(all)
}
