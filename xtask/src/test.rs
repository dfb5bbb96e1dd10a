//! `cargo xtask test`: all tests and checks; `test packages`, `test quick` and `test NAME`: a part of them.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use perilog_tests::{Stopwatch, flux, slurm};

use crate::beside::beside;
use crate::cargo::{self, Built, TestProgram};
use crate::dist::portable::Portable;
use crate::stages::{Stages, print_line};
use crate::tally::Tally;
use crate::{dependencies, dist, elsewhere, nodes, prerequisites, tidy};

/// Time limit in seconds for a pure test program, which takes seconds: a hanging program must not hang CI.
const PURE_LIMIT_SECONDS: &str = "600";
/// Test program of the runner.
const OF_RUNNER: &str = "agent: runner";
/// Module of the test on nodes that is among the quick ones: four nodes, an epilog that hangs, and a kill -9 of the
/// controller.
const QUICK: &str = "hung_epilog_holds_its_own_node";
/// Beginning of the names of modules that need a real Flux.
const OF_FLUX: &str = "flux_";
/// Module that needs no Flux, although its name begins with [`OF_FLUX`]: it has a stand-in.
const WITHOUT_FLUX: &str = "flux_hooks";
/// Modules that need a newer Slurm than the oldest that perilog supports, each with the name that such a Slurm knows.
const OF_NEWER_SLURM: [(&str, &str); 2] =
    [("slurm_power_saving", "SuspendExcStates"), ("slurm_run_in_job", "RunInJob")];

pub(crate) fn run() -> Result<bool> {
    let mut stages = Stages::new()?;
    let there = stages.run("prerequisites", |_| {
        prerequisites::ensure_tests()?;
        // Last: a C compiler is among what was just installed.
        dependencies::ensure_checker()
    })?;
    if !there {
        return stages.end();
    }
    let apt = prerequisites::packages_are_tested();
    let history = apt && history(&mut stages)?;
    let built = build(&mut stages)?;
    stages.run("format", |_| cargo::run(&["fmt", "--all", "--check"]))?;
    stages.run("clippy", |_| {
        let all = ["clippy", "--quiet", "--workspace", "--all-targets"];
        cargo::run(&[&all[..], &cargo::TEST_FEATURES, &["--", "--deny", "warnings"]].concat())
    })?;
    stages.run("tidy", |_| tidy::check())?;
    stages.run("dependencies", dependencies::check)?;
    if let Some(built) = built {
        stages.run("pure tests", |tally| pure_tests(pure(&built), tally))?;
        stages.run("static runner", |tally| static_runner(&built, tally))?;
        stages.run("documentation tests", documentation_tests)?;
        let packed = history && pack(&mut stages, &built)?;
        stages.run("tests on real nodes", |tally| on_nodes(&built, packed, tally))?;
    }
    if !apt {
        stages.run("packages", |tally| {
            tally.skipped += dist::OF_PACKAGES.len();
            print_line(
                "not made, installed, upgraded and removed: that is done where there is apt, on Debian or Ubuntu",
            )
        })?;
    }
    stages.end()
}

/// Makes packages of the programs built for tests, and runs the tests that install packages. Returns `true` if all
/// passed.
pub(crate) fn packages() -> Result<bool> {
    let mut stages = Stages::new()?;
    let there = stages.run("prerequisites", |_| {
        ensure!(prerequisites::packages_are_tested(), "packages are tested where there is apt: on Debian or Ubuntu");
        prerequisites::ensure_tests()
    })?;
    let built = if there && history(&mut stages)? { build(&mut stages)? } else { None };
    if let Some(built) = built
        && pack(&mut stages, &built)?
    {
        stages.run("packages on real nodes", |tally| {
            let tests = nodes::list(built.on_nodes()?)?;
            let tests: Vec<&str> =
                tests.iter().map(String::as_str).filter(|test| dist::installs_packages(test)).collect();
            nodes::run_tests(&built.binaries, built.on_nodes()?, &tests, tally)
        })?;
    }
    stages.end()
}

/// Runs what finds most faults within minutes: format, house rules, pure tests, and one test on nodes ([`QUICK`]).
/// Returns `true` if all passed.
pub(crate) fn quick() -> Result<bool> {
    let mut stages = Stages::new()?;
    let there = stages.run("prerequisites", |_| prerequisites::ensure_tests())?;
    let built = if there { build(&mut stages)? } else { None };
    stages.run("format", |_| cargo::run(&["fmt", "--all", "--check"]))?;
    stages.run("tidy", |_| tidy::check())?;
    if let Some(built) = built {
        stages.run("pure tests", |tally| pure_tests(pure(&built), tally))?;
        stages.run("a test on real nodes", |tally| {
            let all = nodes::list(built.on_nodes()?)?;
            let tests: Vec<&str> = all.iter().map(String::as_str).filter(|test| nodes::module(test) == QUICK).collect();
            nodes::run_tests(&built.binaries, built.on_nodes()?, &tests, tally)
        })?;
    }
    stages.end()
}

/// Runs the tests on real nodes whose path (`module::test`) contains one of these names. Returns `true` if all passed.
pub(crate) fn named(names: &[&str]) -> Result<bool> {
    let mut stages = Stages::new()?;
    let there = stages.run("prerequisites", |_| prerequisites::ensure_tests())?;
    let built = if there { build(&mut stages)? } else { None };
    if let Some(built) = built {
        stages.run("tests on real nodes", |tally| {
            let all = nodes::list(built.on_nodes()?)?;
            let tests = can_run(nodes::named(&all, names)?, tally)?;
            nodes::run_tests(&built.binaries, built.on_nodes()?, &tests, tally)
        })?;
    }
    stages.end()
}

/// Runs the stage that checks, before the build, that git has the commit from which tests upgrade. Returns `true` if
/// so.
pub(crate) fn history(stages: &mut Stages) -> Result<bool> {
    stages.run("history", |_| dist::earlier::is_known())
}

pub(crate) fn build(stages: &mut Stages) -> Result<Option<Built>> {
    let mut built = None;
    stages.run("build", |_| {
        built = Some(cargo::build_everything()?);
        Ok(())
    })?;
    Ok(built)
}

/// Makes packages of the built programs, and packages of an earlier commit ([`dist::of_earlier`]), from which tests
/// upgrade. Returns `true` if both are made.
pub(crate) fn pack(stages: &mut Stages, built: &Built) -> Result<bool> {
    let mut made = Vec::new();
    let mut portable = None;
    let packed = stages.run("packages", |_| {
        portable = Portable::find()?;
        made = dist::for_tests(&built.binaries, portable.as_ref())?;
        Ok(())
    })?;
    if packed {
        // Runs after a failed lint, too: the tests may show another fault.
        stages.run("lintian and rpmlint", |_| dist::lint::check(&made))?;
    }
    Ok(packed
        && stages.run("packages of an earlier commit", |_| dist::of_earlier(&built.binaries, portable.as_ref()))?)
}

/// Runs all tests on real nodes. `packed`: there are packages to install.
fn on_nodes(built: &Built, packed: bool, tally: &mut Tally) -> Result<()> {
    let all = nodes::list(built.on_nodes()?)?;
    let tests = all.iter().map(String::as_str).filter(|test| packed || !dist::installs_packages(test)).collect();
    nodes::run_tests(&built.binaries, built.on_nodes()?, &can_run(tests, tally)?, tally)
}

/// Returns those of these tests on nodes that this machine has all for. Says of the others what they lack, and counts
/// them as skipped.
fn can_run<'a>(tests: Vec<&'a str>, tally: &mut Tally) -> Result<Vec<&'a str>> {
    let flux = flux::is_here();
    let (mut can, mut of_flux) = (Vec::new(), 0);
    for test in tests {
        if let Some(needs) = of_newer_slurm(Path::new("/"), test) {
            tally.skipped += 1;
            print_line(&format!("not run, for this Slurm has no {needs}: {test}"))?;
        } else if nodes::module(test) == elsewhere::MIXED {
            // That command makes the roots that it needs.
            tally.skipped += 1;
            print_line(&format!("`cargo xtask test mixed` runs: {test}"))?;
        } else if is_of_flux(test) && !flux {
            of_flux += 1;
        } else {
            can.push(test);
        }
    }
    if of_flux > 0 {
        tally.skipped += of_flux;
        let (major, minor) = flux::OLDEST;
        print_line(&format!("not run, for no Flux {major}.{minor} or newer is on PATH: {of_flux} tests"))?;
    }
    Ok(can)
}

/// Returns what the Slurm below this root would have to know for the test, and does not.
pub(crate) fn of_newer_slurm(root: &Path, test: &str) -> Option<&'static str> {
    let (_, needs) = OF_NEWER_SLURM.into_iter().find(|(module, _)| nodes::module(test) == *module)?;
    (!slurm::is_known(root, needs)).then_some(needs)
}

fn is_of_flux(test: &str) -> bool {
    let module = nodes::module(test);
    module.starts_with(OF_FLUX) && module != WITHOUT_FLUX
}

fn pure(built: &Built) -> Vec<&TestProgram> {
    built.tests.iter().filter(|test| !test.on_nodes).collect()
}

/// Runs test programs without nodes, as many at once as the machine has processor cores: many of these tests wait, too.
fn pure_tests(programs: Vec<&TestProgram>, total: &mut Tally) -> Result<()> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let mut bad = Vec::new();
    beside(
        programs,
        cores,
        |_, program| Ok((program, pure_test(program, None)?)),
        |(program, (tally, text, seconds))| {
            *total += tally;
            if tally.failed > 0 {
                print_line(&text)?;
                bad.push(program.name.as_str());
            }
            if tally.is_empty() { Ok(()) } else { print_line(&format!("   {}: {tally}, {seconds:.1} s", program.name)) }
        },
    )?;
    ensure!(bad.is_empty(), "failed: {}", bad.join(", "));
    Ok(())
}

/// Runs the tests of the runner with the two builds that packages have where the toolchain has musl.
fn static_runner(built: &Built, total: &mut Tally) -> Result<()> {
    let Some(runner) = dist::static_runner::build_for_tests(&cargo::target()?, &built.binaries)? else {
        total.skipped += 1;
        return Ok(());
    };
    let program = built.tests.iter().find(|program| program.name == OF_RUNNER);
    let program = program.with_context(|| format!("no test program {OF_RUNNER}"))?;
    let (tally, text, _) = pure_test(program, Some(&runner))?;
    *total += tally;
    if tally.failed > 0 {
        print_line(&text)?;
    }
    ensure!(tally.failed == 0, "failed with {}", runner.display());
    Ok(())
}

/// Runs a test program; returns its counts, its output, and how many seconds it took. `runner`: the runner that the
/// tests of the runner execute, other than the one built with them.
fn pure_test(program: &TestProgram, runner: Option<&Path>) -> Result<(Tally, String, f64)> {
    let watch = Stopwatch::start();
    let mut command = Command::new("timeout");
    command.args(["--foreground", "-k", "10", PURE_LIMIT_SECONDS]).arg(&program.path);
    command.current_dir(&program.directory).env("CARGO_MANIFEST_DIR", &program.directory);
    command.envs(runner.map(|runner| ("PERILOG_RUNNER", runner)));
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("running {}", program.name))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let tally = Tally::judge(&text, output.status.success());
    Ok((tally, format!("{text}{}", String::from_utf8_lossy(&output.stderr)), watch.elapsed().as_secs_f64()))
}

fn documentation_tests(total: &mut Tally) -> Result<()> {
    let mut command = cargo::command();
    command.args(["test", "--workspace", "--doc"]).args(cargo::TEST_FEATURES).stdin(Stdio::null());
    let output = command.output().context("running cargo")?;
    let text = String::from_utf8_lossy(&output.stdout);
    // Counts each library's tests; cargo prints them one after the other, each below its own headline.
    let results = text.split("\nrunning ").filter_map(Tally::read);
    results.for_each(|tally| *total += tally);
    if !output.status.success() {
        print_line(&text)?;
        bail!("{}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_that_are_named_here_exist() {
        let named =
            dist::OF_PACKAGES.into_iter().chain([QUICK, WITHOUT_FLUX]).chain(OF_NEWER_SLURM.map(|(module, _)| module));
        for module in named.chain(nodes::FIRST) {
            assert!(cargo::root().join(format!("tests/tests/{module}.rs")).is_file(), "{module}");
        }
    }
}
