//! Part that needs root: this program starts itself again, through sudo(8) where necessary, and runs tests.
//!
//! Built files belong to the user who built them. As root, this program builds nothing and writes nothing below
//! `target/`.

mod bases;
mod limits;
mod pool;

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use perilog_tests::{Bed, Layer};

use crate::cargo::TestProgram;
use crate::dist;
use crate::privilege;
use crate::stages::print_line;
use crate::tally::Tally;
use crate::test;

pub(crate) use bases::Bases;
#[cfg(test)]
pub(crate) use pool::FIRST;

/// Command with which xtask starts itself again as root, to run tests:
/// `xtask on-nodes-tests BINARIES PROGRAM AT-ONCE SECONDS BASES TEST...`
pub(crate) const TESTS: &str = "on-nodes-tests";
/// Command with which xtask starts itself again as root, to play a demo: `xtask on-nodes-demo BINARIES STORY`
pub(crate) const DEMO: &str = "on-nodes-demo";

/// Command with which xtask starts itself again as root, for a soak:
/// `xtask on-nodes-soak BINARIES KIND SECONDS SEED`
pub(crate) const SOAK: &str = "on-nodes-soak";

/// Returns a command that starts xtask as root, with the first arguments `command` (such as [`TESTS`]) and `binaries`.
/// Uses the copy of xtask in `binaries`, because the build may just have replaced the running file.
pub(crate) fn as_root(command: &str, binaries: &Path) -> Result<Command> {
    let mut root = privilege::command(&binaries.join("xtask"))?;
    root.arg(command).arg(binaries);
    Ok(root)
}

/// Returns the paths (`module::test`) of all tests of a program, without ignored ones, which other tests start.
pub(crate) fn list(program: &TestProgram) -> Result<Vec<String>> {
    let list = |more: &[&str]| -> Result<Vec<String>> {
        let mut command = Command::new(&program.path);
        let output = command.args(["--list", "--format", "terse"]).args(more).stderr(Stdio::inherit()).output();
        let output = output.with_context(|| format!("running {}", program.path.display()))?;
        ensure!(output.status.success(), "{} lists no tests", program.path.display());
        let text = String::from_utf8(output.stdout).context("a list of tests")?;
        Ok(text.lines().filter_map(|line| line.strip_suffix(": test")).map(str::to_owned).collect())
    };
    let ignored = list(&["--ignored"])?;
    let mut tests = list(&[])?;
    tests.retain(|test| !ignored.contains(test));
    ensure!(!tests.is_empty(), "{} has no tests", program.path.display());
    Ok(tests)
}

/// Returns the module of a test, from the test's path.
pub(crate) fn module(test: &str) -> &str {
    test.split("::").next().unwrap_or(test)
}

/// Returns the command that runs these tests of a program as root, on nodes with this machine's distribution.
pub(crate) fn command(binaries: &Path, program: &TestProgram, tests: &[&str]) -> Result<Command> {
    command_on(&Bases::Here, None, binaries, program, tests)
}

fn command_on(
    bases: &Bases,
    limit: Option<Duration>,
    binaries: &Path,
    program: &TestProgram,
    tests: &[&str],
) -> Result<Command> {
    let mut command = as_root(TESTS, binaries)?;
    command.arg(&program.path).arg(limits::at_once()?.to_string());
    command.arg(limit.map_or(0, |limit| limit.as_secs()).to_string()).arg(bases.word()?).args(tests);
    Ok(command)
}

/// Runs these tests of a program as root, shows their output line by line, and adds their results to `total`.
pub(crate) fn run_tests(binaries: &Path, program: &TestProgram, tests: &[&str], total: &mut Tally) -> Result<()> {
    run_tests_on(&Bases::Here, None, binaries, program, tests, total)
}

/// Runs tests as [`run_tests`] does, on nodes with these distributions. Tests that have not begun within the limit are
/// named, and count as skipped.
pub(crate) fn run_tests_on(
    bases: &Bases,
    limit: Option<Duration>,
    binaries: &Path,
    program: &TestProgram,
    tests: &[&str],
    total: &mut Tally,
) -> Result<()> {
    ensure!(!tests.is_empty(), "there are no tests on real nodes");
    let mut command = command_on(bases, limit, binaries, program, tests)?;
    let mut child = command.stdout(Stdio::piped()).spawn().context("running tests as root")?;
    let mut output = String::new();
    if let Some(stdout) = child.stdout.take() {
        for line in BufReader::new(stdout).lines() {
            let line = line.context("reading what tests say")?;
            print_line(&line)?;
            output.extend([line.as_str(), "\n"]);
        }
    }
    let success = child.wait().context("waiting for tests")?.success();
    let tally = Tally::judge(&output, success);
    *total += tally;
    ensure!(tally.failed == 0, "tests on real nodes failed");
    let known = tally.passed + tally.skipped;
    ensure!(known == tests.len(), "{known} of {} tests ran", tests.len());
    Ok(())
}

/// Runs tests of a program beside each other; needs root. Installs the programs in `binaries` once, for the nodes of
/// all tests. Returns `true` if all passed.
pub(crate) fn tests(
    binaries: &str,
    program: &str,
    at_once: &str,
    seconds: &str,
    bases: &str,
    tests: &[&str],
) -> Result<bool> {
    // A bed without nodes holds the layer and the roots, and removes both even if this process is killed.
    let holder = Bed::builder().layer(Layer::Built(binaries.into())).build()?;
    let seconds: u64 = seconds.parse().context("the seconds within which tests begin")?;
    let packages = dist::of_tests(Path::new(binaries));
    let prepared = Bases::read(bases)?.prepare(holder.directory(), &packages)?;
    let mut skipped = 0;
    let mut can = Vec::new();
    for test in tests {
        match prepared.installed.as_ref().and_then(|root| test::of_newer_slurm(root, test)) {
            Some(needs) => {
                skipped += 1;
                print_line(&format!("not run, for this Slurm has no {needs}: {test}"))?;
            }
            None => can.push(*test),
        }
    }
    pool::Pool {
        skipped,
        bases: &prepared,
        begin_within: (seconds > 0).then(|| Duration::from_secs(seconds)),
        at_once: limits::raise(at_once.parse().context("the number of tests that run at once")?)?,
        program: Path::new(program),
        layer: holder.layer(),
        packages: &packages,
        outputs: holder.directory(),
    }
    .run(&can)
}

/// Returns those of `tests` whose path contains one of `names`.
///
/// # Errors
/// A name that no test contains.
pub(crate) fn named<'a>(tests: &'a [String], names: &[&str]) -> Result<Vec<&'a str>> {
    if let Some(name) = names.iter().find(|name| !tests.iter().any(|test| test.contains(**name))) {
        bail!("no test on nodes is called {name}");
    }
    let is_named = |test: &&str| names.iter().any(|name| test.contains(name));
    Ok(tests.iter().map(String::as_str).filter(is_named).collect())
}

#[cfg(test)]
mod tests_of_names {
    use super::*;

    #[test]
    fn a_name_selects_a_module_or_a_test_and_an_unknown_one_is_refused() {
        let tests = ["a_kill::once", "a_kill::twice", "a_cut::once"].map(str::to_owned);
        for (names, expected) in [
            (&["a_kill"][..], Some(vec!["a_kill::once", "a_kill::twice"])),
            (&["::once"], Some(vec!["a_kill::once", "a_cut::once"])),
            (&["a_cut", "twice"], Some(vec!["a_kill::twice", "a_cut::once"])),
            (&["a_cut", "thrice"], None),
        ] {
            assert_eq!(named(&tests, names).ok(), expected, "{names:?}");
        }
        assert_eq!(module("a_kill::once"), "a_kill");
    }
}
