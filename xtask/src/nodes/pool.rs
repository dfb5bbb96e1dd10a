//! Pool that runs tests on nodes beside each other, each in a process of its own.
//!
//! A test on nodes waits most of its time: for a boot, a daemon, a script. So more tests run at once than the machine
//! has processor cores. The output of a test goes to a file, and is shown whole when the last test of its module has
//! ended; of a test that passed, only its result is shown.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};
use perilog_tests::{BASE_VARIABLE, BASES_VARIABLE, LAYER_VARIABLE, PACKAGES_VARIABLE, Stopwatch};

use super::bases::Prepared;
use super::module;
use crate::beside::beside;
use crate::dist;
use crate::stages::print_line;
use crate::tally::Tally;

/// Time limit in seconds for one test. A test on nodes takes seconds, the longest some minutes; a hanging one must not
/// hang CI.
const LIMIT_SECONDS: &str = "1800";
/// Modules whose tests take minutes. They begin first, so that none of them is the last to end, alone.
pub(crate) const FIRST: [&str; 5] = [
    "packages_come_and_go",
    "ansible_sets_up_a_cluster",
    "slurm_end_of_an_orphan",
    "json_is_as_its_schema_says",
    "stalled_start_is_overdue",
];
/// Beginning of the names of modules whose nodes are two hosts with Pacemaker besides: some of them at once leave the
/// others no processor, and crm(8) takes minutes.
const TWO_HOSTS: &str = "failover_";
/// Number of tests that the table of the slowest has.
const SLOWEST: usize = 15;

/// What all tests of a run share.
pub(super) struct Pool<'a> {
    /// Greatest number of tests that run at once.
    pub(super) at_once: usize,
    /// Program of the tests.
    pub(super) program: &'a Path,
    /// The installed product, for the nodes of all tests.
    pub(super) layer: &'a Path,
    pub(super) packages: &'a Path,
    pub(super) bases: &'a Prepared,
    /// Time after which no test begins.
    pub(super) begin_within: Option<Duration>,
    /// Number of tests that are named as skipped already.
    pub(super) skipped: usize,
    /// Directory for the output of the tests that run.
    pub(super) outputs: &'a Path,
}

/// Test that has ended.
#[derive(Debug)]
struct Ended<'a> {
    test: &'a str,
    seconds: f64,
    tally: Tally,
    output: String,
}

/// Tests of a run, by module.
#[derive(Debug)]
struct Modules<'a>(BTreeMap<&'a str, Module<'a>>);

#[derive(Debug, Default)]
struct Module<'a> {
    ended: Vec<Ended<'a>>,
    /// Number of tests that have not ended.
    open: usize,
}

impl Pool<'_> {
    /// Runs the tests, and shows their results. Returns `true` if all passed.
    pub(super) fn run(&self, tests: &[&str]) -> Result<bool> {
        print_line(&format!("{} tests, at most {} at once", tests.len(), self.at_once))?;
        let watch = Stopwatch::start();
        let mut modules = Modules::new(tests);
        let work = |thread, test| match self.begin_within {
            Some(limit) if watch.elapsed() > limit => Ok(Ended::skipped(test)),
            _ => self.run_one(thread, test),
        };
        beside(in_order(tests), self.at_once, work, |ended| match modules.end(ended) {
            Some(text) => print_line(text.trim_end()),
            None => Ok(()),
        })?;
        let ended: Vec<&Ended> = modules.0.values().flat_map(|module| &module.ended).collect();
        let (text, all) = summary(&ended, self.skipped, watch.elapsed().as_secs_f64());
        print_line(&text)?;
        Ok(all)
    }

    fn run_one<'t>(&self, thread: usize, test: &'t str) -> Result<Ended<'t>> {
        let path = self.outputs.join(format!("output-{thread}"));
        let file = File::create(&path).with_context(|| format!("making {}", path.display()))?;
        let other = file.try_clone().context("a second descriptor")?;
        let watch = Stopwatch::start();
        let mut command = Command::new("timeout");
        command.args(["--foreground", "-k", "10", LIMIT_SECONDS]).arg(self.program).args(["--exact", test]);
        command.env(LAYER_VARIABLE, self.layer).env(PACKAGES_VARIABLE, self.packages).env("RUST_LIB_BACKTRACE", "0");
        let bases = self.bases;
        let base = if dist::installs_packages(test) { &bases.bare } else { &bases.installed };
        command.envs(base.as_ref().map(|base| (BASE_VARIABLE, base)));
        command.env(BASES_VARIABLE, std::env::join_paths(&bases.several).context("paths without a colon")?);
        // A file, not a pipe: a process that a test leaves behind could keep a pipe open.
        let status = command.stdin(Stdio::null()).stdout(file).stderr(other).status();
        let status = status.with_context(|| format!("running {}", self.program.display()))?;
        let seconds = watch.elapsed().as_secs_f64();
        let output = std::fs::read(&path).with_context(|| format!("reading {}", path.display()))?;
        let output = String::from_utf8_lossy(&output).into_owned();
        let mut tally = Tally::judge(&output, status.success());
        if tally.is_empty() {
            tally.failed = 1; // the program knows no such test
        }
        Ok(Ended { test, seconds, tally, output })
    }
}

impl<'a> Ended<'a> {
    /// Returns the result of a test that did not begin.
    fn skipped(test: &'a str) -> Self {
        Self { test, seconds: 0.0, tally: Tally { skipped: 1, ..Tally::default() }, output: String::new() }
    }
}

impl<'a> Modules<'a> {
    fn new(tests: &[&'a str]) -> Self {
        let mut modules = BTreeMap::<_, Module>::new();
        for test in tests {
            modules.entry(module(test)).or_default().open += 1;
        }
        Self(modules)
    }

    /// Records an ended test. Returns the results of its module if that was the module's last test.
    fn end(&mut self, ended: Ended<'a>) -> Option<String> {
        let name = module(ended.test);
        let module = self.0.get_mut(name)?;
        module.ended.push(ended);
        module.open -= 1;
        (module.open == 0).then(|| shown(name, &module.ended))
    }
}

/// Returns the tests in the order in which they begin. Those with [`TWO_HOSTS`] are apart from each other, and the last
/// of them begins at three quarters of the others.
fn in_order<'a>(tests: &[&'a str]) -> Vec<&'a str> {
    let (mut order, then): (Vec<&str>, Vec<&str>) = tests.iter().partition(|test| FIRST.contains(&module(test)));
    let (heavy, light): (Vec<&str>, Vec<&str>) = then.iter().partition(|test| test.starts_with(TWO_HOSTS));
    let apart = (light.len() * 3 / 4 / heavy.len().max(1)).max(1);
    let mut heavy = heavy.into_iter();
    for (number, test) in light.into_iter().enumerate() {
        if number % apart == 0 {
            order.extend(heavy.next());
        }
        order.push(test);
    }
    order.extend(heavy);
    order
}

/// Returns the results of a module's tests: a headline, a line for each test, and the output of each that failed.
fn shown(name: &str, ended: &[Ended]) -> String {
    let mut tally = Tally::default();
    ended.iter().for_each(|ended| tally += ended.tally);
    let mut text = format!("-- {name}: {tally}\n");
    for Ended { test, seconds, tally, output } in ended {
        let word = match tally {
            Tally { failed: 1.., .. } => "FAILED",
            Tally { skipped: 1.., .. } => "NOT BEGUN within the time for all",
            _ => "ok",
        };
        let _ = writeln!(text, "test {test} ... {word}\n   {seconds:.1} s");
        if tally.failed > 0 {
            text.push_str(output);
        }
    }
    text
}

/// Returns the end of the output, and `true` if all tests passed: the slowest tests, how many ran at once, the names of
/// those that failed, and on the last line the counts in the words of a test program.
fn summary(ended: &[&Ended], skipped: usize, seconds: f64) -> (String, bool) {
    let mut by_time = ended.to_vec();
    by_time.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
    let mut text = String::from("slowest tests on nodes:\n");
    for Ended { test, seconds, .. } in by_time.iter().take(SLOWEST) {
        let _ = writeln!(text, "{seconds:7.1} s  {test}");
    }
    let all: f64 = ended.iter().map(|ended| ended.seconds).sum();
    let _ = writeln!(text, "{all:.0} s of tests in {seconds:.0} s, {:.1} at once", all / seconds.max(0.001));
    let mut tally = Tally { skipped, ..Tally::default() };
    for Ended { test, tally: own, .. } in ended {
        tally += *own;
        if own.failed > 0 {
            let _ = writeln!(text, "failed: {test}");
        }
    }
    let word = if tally.failed == 0 { "ok" } else { "FAILED" };
    let Tally { passed, failed, skipped } = tally;
    let _ = write!(text, "test result: {word}. {passed} passed; {failed} failed; {skipped} skipped");
    (text, tally.failed == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(test: &str, failed: usize) -> Ended<'_> {
        let tally = Tally { passed: 1 - failed, failed, skipped: 0 };
        Ended { test, seconds: 1.0, tally, output: format!("said by {test}\n") }
    }

    #[test]
    fn a_module_is_shown_whole_when_its_last_test_has_ended() {
        let mut modules = Modules::new(&["a_cut::once", "a_kill::once", "a_kill::twice"]);
        assert_eq!(modules.end(ended("a_kill::twice", 1)), None);
        assert!(
            modules.end(ended("a_cut::once", 0)).is_some_and(|text| text.starts_with("-- a_cut: 1 passed, 0 failed\n"))
        );
        let text = modules.end(ended("a_kill::once", 0)).unwrap();
        assert!(text.starts_with("-- a_kill: 1 passed, 1 failed\n"), "{text}");
        assert!(text.contains("test a_kill::twice ... FAILED\n") && text.contains("said by a_kill::twice"), "{text}");
        assert!(text.contains("test a_kill::once ... ok\n") && !text.contains("said by a_kill::once"), "{text}");
    }

    #[test]
    fn what_takes_long_begins_first() {
        let long = format!("{}::once", FIRST[1]);
        assert_eq!(in_order(&["a_cut::once", &long, "b::once"]), [long.as_str(), "a_cut::once", "b::once"]);
    }

    #[test]
    fn tests_of_two_hosts_begin_apart() {
        let light: Vec<String> = (0..8).map(|number| format!("a{number}::once")).collect();
        let tests = ["failover_x::a", "failover_x::b", "failover_y::c"].into_iter();
        let order = in_order(&tests.chain(light.iter().map(String::as_str)).collect::<Vec<_>>());
        let places: Vec<usize> = (0..order.len()).filter(|place| order[*place].starts_with(TWO_HOSTS)).collect();
        assert_eq!((places, order.len()), (vec![0, 3, 6], 11));
        assert_eq!(in_order(&["failover_x::a", "failover_x::b"]), ["failover_x::a", "failover_x::b"]);
    }

    #[test]
    fn the_last_line_has_the_counts_and_a_line_before_each_failed_test() {
        let (good, bad) = (ended("a::x", 0), ended("b::y", 1));
        let (text, passed) = summary(&[&good, &bad, &Ended::skipped("c::z")], 1, 1.0);
        assert!(!passed && text.contains("\nfailed: b::y\n"), "{text}");
        assert_eq!(Tally::read(&text), Some(Tally { passed: 1, failed: 1, skipped: 2 }));
        let (text, passed) = summary(&[&good], 0, 1.0);
        assert!(passed && !text.contains("failed: "), "{text}");
    }
}
