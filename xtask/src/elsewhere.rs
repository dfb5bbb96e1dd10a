//! `cargo xtask test nodes` and `cargo xtask test tour`: tests on nodes that have another distribution than this
//! machine, with the product installed from its packages by that distribution's own apt.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::cargo::Built;
use crate::nodes::{self, Bases};
use crate::roots::{self, Release};
use crate::stages::{Stages, print_line};
use crate::tally::Tally;
use crate::{Usage, prerequisites, test};

/// Word for the tests of [`TOUR`], as a name of tests.
const OF_TOUR: &str = "tour";
/// Tests that show in minutes what is different between distributions: packages, systemd's and the bus's restarts,
/// kills of each daemon, boots, units' settings, Slurm's hooks.
const TOUR: [&str; 13] = [
    "packages_come_and_go::a_cluster_of_packages_runs_a_job",
    "packages_come_and_go::an_upgrade_under_prologs_and_epilogs_loses_nothing",
    "packages_come_and_go::init_sets_up_a_cluster_of_packages",
    "packages_come_and_go::removal_leaves_scripts_alone_and_purge_leaves_nothing",
    "slurmd_killed_in_a_prolog::a_job_begins_again_though_its_agent_was_killed_with_slurmd",
    "slurm_page_sets_up_a_node::",
    "prolog_outlives_agent_kill::",
    "prolog_outlives_both_kills::",
    "prolog_outlives_controller_kill::",
    "power_failure_is_lost::",
    "script_outlives_reexec_and_bus_restart::",
    "drop_ins_for_all_services::",
    "what_left_the_unit_holds::",
];
/// Module of the test whose nodes have several distributions.
pub(crate) const MIXED: &str = "mixed_distributions";
/// Time within which tests of a tour begin.
const TOUR_LIMIT: Duration = Duration::from_secs(300);
/// Beginnings of the names of tests that need more than a root has, and what they need.
const NOT_THERE: [(&str, &str); 3] = [(MIXED, "other roots"), ("rpms_", "rpm"), ("page_shows_the_cluster", "Chromium")];

/// A command line of `cargo xtask test nodes`.
#[derive(Debug, PartialEq, Eq)]
struct Arguments<'a> {
    root: Root<'a>,
    names: Vec<&'a str>,
}

#[derive(Debug, PartialEq, Eq)]
enum Root<'a> {
    Here,
    Directory(&'a str),
    Of(Release),
}

fn parse<'a>(words: &[&'a str]) -> Result<Arguments<'a>> {
    let usage = |why: String| anyhow::Error::from(Usage(format!("test nodes: {why}")));
    let (root, names) = match words {
        ["--root", directory, names @ ..] => (Root::Directory(directory), names),
        ["--release", name, names @ ..] => {
            let all = Release::ALL.map(Release::name).join(", ");
            let release = Release::named(name).ok_or_else(|| usage(format!("no release {name}; there are {all}")))?;
            (Root::Of(release), names)
        }
        names => (Root::Here, names),
    };
    if let Some(option) = names.iter().find(|name| name.starts_with('-')) {
        return Err(usage(format!("not understood: {option}")));
    }
    Ok(Arguments { root, names: names.to_vec() })
}

/// Runs tests on nodes of the named distribution. Returns `true` if all passed.
pub(crate) fn run(words: &[&str]) -> Result<bool> {
    let arguments = parse(words)?;
    let release = match arguments.root {
        Root::Here if arguments.names.is_empty() => return Err(Usage("test nodes: which tests?".to_owned()).into()),
        Root::Here => return test::named(&arguments.names),
        Root::Directory(_) => None,
        Root::Of(release) => Some(release),
    };
    let mut stages = Stages::new()?;
    let Some(built) = prepare(&mut stages)? else { return stages.end() };
    stages.run("tests on nodes of another distribution", |tally| {
        let root = match (&arguments.root, release) {
            (Root::Directory(directory), _) => {
                std::fs::canonicalize(directory).with_context(|| (*directory).to_owned())?
            }
            (_, Some(release)) => roots::archive(release)?.context("there is no root to boot nodes from")?,
            _ => return Ok(()),
        };
        let all = nodes::list(built.on_nodes()?)?;
        let names = &arguments.names[..];
        let limit = if names == [OF_TOUR] { Some(TOUR_LIMIT) } else { None };
        run_tests(&built, root, &select(&all, names, tally)?, limit, tally)
    })?;
    stages.end()
}

/// Runs the tour on the newest and the oldest distribution. Returns `true` if all passed.
pub(crate) fn tour() -> Result<bool> {
    let mut stages = Stages::new()?;
    if let Some(built) = prepare(&mut stages)? {
        tours(&mut stages, &built)?;
    }
    stages.end()
}

/// Runs the tour on the newest and the oldest distribution, as stages.
pub(crate) fn tours(stages: &mut Stages, built: &Built) -> Result<()> {
    for (name, release) in [("tour on the newest", Release::NEWEST), ("tour on the oldest", Release::OLDEST)] {
        stages.run(name, |tally| {
            let all = nodes::list(built.on_nodes()?)?;
            let tests = select(&all, &[OF_TOUR], tally)?;
            let Some(root) = roots::archive(release)? else {
                tally.skipped += tests.len();
                return print_line(&format!("NOT RUN, for there is no root of {release}: {} tests", tests.len()));
            };
            run_tests(built, root, &tests, Some(TOUR_LIMIT), tally)
        })?;
    }
    Ok(())
}

/// Runs the test whose nodes have several distributions, with all of them. Returns `true` if it passed.
pub(crate) fn mixed() -> Result<bool> {
    let mut stages = Stages::new()?;
    if let Some(built) = prepare(&mut stages)? {
        mixed_of(&mut stages, &built, &Release::ALL)?;
    }
    stages.end()
}

/// Runs the test whose nodes have several distributions, with these and this machine's, as a stage.
pub(crate) fn mixed_of(stages: &mut Stages, built: &Built, releases: &[Release]) -> Result<()> {
    stages.run("several distributions under one controller", |tally| {
        let mut archives = Vec::new();
        for release in releases {
            let Some(root) = roots::archive(*release)? else {
                tally.skipped += 1;
                return print_line(&format!("NOT RUN, for there is no root of {release}: {MIXED}"));
            };
            archives.push(root);
        }
        let all = nodes::list(built.on_nodes()?)?;
        let tests = nodes::named(&all, &[MIXED])?;
        nodes::run_tests_on(&Bases::Several(archives), None, &built.binaries, built.on_nodes()?, &tests, tally)
    })?;
    Ok(())
}

/// Runs the stages before tests on another distribution: prerequisites, build, and packages. `None`: one of them
/// failed.
fn prepare(stages: &mut Stages) -> Result<Option<Built>> {
    let there = stages.run("prerequisites", |_| {
        ensure!(prerequisites::packages_are_tested(), "roots are made, and packages installed, where there is apt");
        prerequisites::ensure_tests()
    })?;
    let built = if there && test::history(stages)? { test::build(stages)? } else { None };
    match built {
        Some(built) if test::pack(stages, &built)? => Ok(Some(built)),
        _ => Ok(None),
    }
}

fn run_tests(built: &Built, root: PathBuf, tests: &[&str], limit: Option<Duration>, tally: &mut Tally) -> Result<()> {
    nodes::run_tests_on(&Bases::Of(root), limit, &built.binaries, built.on_nodes()?, tests, tally)
}

/// Returns the tests with these names; without a name, all that a root has what they need for. Names the others, and
/// counts them as skipped.
fn select<'a>(all: &'a [String], names: &[&str], tally: &mut Tally) -> Result<Vec<&'a str>> {
    match names {
        [OF_TOUR] => nodes::named(all, &TOUR),
        [] => {
            let lacking = |test: &str| NOT_THERE.iter().find(|(begins, _)| test.starts_with(begins));
            let mut can = Vec::new();
            for test in all {
                match lacking(test) {
                    Some((_, needs)) => {
                        tally.skipped += 1;
                        print_line(&format!("not run, for a root has no {needs}: {test}"))?;
                    }
                    None => can.push(test.as_str()),
                }
            }
            Ok(can)
        }
        names => nodes::named(all, names),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cargo;

    #[test]
    fn a_root_comes_before_names() {
        for (words, expected) in [
            (&["a", "b"][..], Some((Root::Here, vec!["a", "b"]))),
            (&["--release", "sid"], Some((Root::Of(Release::Sid), vec![]))),
            (&["--root", "/r", "a"], Some((Root::Directory("/r"), vec!["a"]))),
            (&["--release", "buster"], None),
            (&["a", "--root", "/r"], None),
            (&["--root"], None),
        ] {
            let found = parse(words).ok().map(|arguments| (arguments.root, arguments.names));
            assert_eq!(found, expected, "{words:?}");
        }
    }

    /// A name that leads nowhere would show only when a tour runs.
    #[test]
    fn tests_that_are_named_here_exist() {
        let tests = cargo::root().join("tests/tests");
        for name in TOUR.iter().copied().chain([MIXED]) {
            let (module, test) = name.split_once("::").unwrap_or((name, ""));
            let text = std::fs::read_to_string(tests.join(format!("{module}.rs"))).unwrap_or_default();
            let is_there = text.contains("#[test]") && (test.is_empty() || text.contains(&format!("\nfn {test}()")));
            assert!(is_there, "{name}");
        }
        let entries = std::fs::read_dir(tests).unwrap();
        let files: Vec<String> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        for (begins, _) in NOT_THERE {
            assert!(files.iter().any(|file| file.starts_with(begins)), "{begins}");
        }
    }
}
