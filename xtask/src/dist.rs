//! `cargo xtask dist [--portable] [deb] [rpm]`: packages for sites, in `target/dist`.
//!
//! It builds the programs in release, and the distribution's own tools lay them out from `packaging/`:
//! dpkg-buildpackage and rpmbuild. Distributions that build everything themselves use `packaging/` without this command
//! (docs/building.md).
//!
//! `cargo xtask test` also makes packages, of the programs built for its tests ([`for_tests`]): the same layout,
//! scripts and units, with unoptimised programs that have fault points.

mod cut;
mod deb;
pub(crate) mod earlier;
mod flags;
pub(crate) mod lint;
pub(crate) mod portable;
mod rpm;
pub(crate) mod static_runner;
mod symbols;
mod tree;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use self::portable::Portable;
use crate::stages::print_line;
use crate::{Usage, cargo, nodes, pages, prerequisites};

/// Arguments of cargo that select the product's programs, by the packages of the workspace.
const PROGRAMS: [&str; 10] =
    ["-p", "perilog", "-p", "perilog-agent", "-p", "perilog-controller", "-p", "perilog-flux", "-p", "perilog-hold"];

/// Files that cargo makes of [`PROGRAMS`] for packages.
const BUILT: [&str; 7] = [
    "perilog",
    "perilog-agent",
    "perilog-controller",
    "perilog-flux",
    "perilog-report",
    "perilog-runner",
    "libperilog_hold.so",
];

/// Option of the command: packages that only some of the systems can use are an error. A release has it.
pub(crate) const PORTABLE: &str = "--portable";

/// Name of the packages' directory, below the directory of the programs under test.
const FOR_TESTS: &str = "packages";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Deb,
    Rpm,
}

/// Content of the packages to make, and how tightly to compress it.
struct Contents<'a> {
    /// Directory with the programs.
    binaries: &'a Path,
    /// Directory with the manual pages and completions.
    pages: &'a Path,
    /// Directory of the C library that the programs were linked against; `None`: it is this machine's.
    libraries: Option<&'a Path>,
    /// Whether to compress fast instead of tightly: a test installs its packages only once, and tight compression takes
    /// longer than all other steps.
    loosely: bool,
}

/// Builds the programs and packs them as the kinds that are named: `deb`, `rpm`, or both if none is. Runs as a user,
/// not as root. Never returns `false`: failures are errors.
pub(crate) fn run(arguments: &[&str]) -> Result<bool> {
    let (kinds, is_portable) = wanted(arguments)?;
    prerequisites::ensure_packagers(&kinds)?;
    let portable = demand(is_portable, Portable::find()?, LACKS_LIBRARY)?;
    let musl = demand(is_portable, static_runner::triple()?, &lacks_runner())?;
    let binaries = portable::build(portable.as_ref(), true)?;
    if portable.is_some() {
        symbols::check(&binaries)?;
    }
    let target = cargo::target()?;
    static_runner::build(musl.as_deref(), &target, &binaries)?;
    let pages = target.join("pages");
    pages::make(&pages)?;
    let libraries = portable.as_ref().map(Portable::system);
    let contents = Contents { binaries: &binaries, pages: &pages, libraries, loosely: false };
    let made = pack(&kinds, &contents, &target.join("dist"))?;
    lint::check(&made)?;
    for package in &made {
        let size = package.metadata().with_context(|| format!("asking for {}", package.display()))?.len();
        print_line(&format!("{:8.1} KiB  {}", size as f64 / 1024.0, package.display()))?;
    }
    Ok(true)
}

/// Returns the kinds of packages that a command line names, and whether it has [`PORTABLE`].
fn wanted(arguments: &[&str]) -> Result<(Vec<Kind>, bool)> {
    let named = arguments.iter().filter(|argument| **argument != PORTABLE).map(|kind| Kind::named(kind));
    let kinds = named.collect::<Result<Vec<_>>>()?;
    let kinds = if kinds.is_empty() { vec![Kind::Deb, Kind::Rpm] } else { kinds };
    Ok((kinds, arguments.contains(&PORTABLE)))
}

/// Error of [`PORTABLE`] where [`Portable::find`] finds nothing; the function has printed why.
const LACKS_LIBRARY: &str = "the packages would be for this machine's glibc alone. Make them where there is apt and a \
    mirror of Debian answers (PERILOG_MIRROR names one)";

/// Returns the error of [`PORTABLE`] where the toolchain has no standard library for musl.
fn lacks_runner() -> String {
    format!("the packages would lack the static runner: rustup target add {}", static_runner::name())
}

/// Returns what was found.
///
/// # Errors
/// Nothing was found, and [`PORTABLE`] demands it: the packages would be worse, and nobody would notice.
fn demand<T>(is_portable: bool, found: Option<T>, lack: &str) -> Result<Option<T>> {
    ensure!(found.is_some() || !is_portable, "{PORTABLE}: {lack}");
    Ok(found)
}

/// Makes all packages for tests on real nodes; returns their paths. Builds their programs, with code for tests.
/// `binaries` is the directory of the programs of this machine, below which the packages are.
pub(crate) fn for_tests(binaries: &Path, portable: Option<&Portable>) -> Result<Vec<PathBuf>> {
    let directory = binaries.join(FOR_TESTS);
    let pages = cargo::target()?.join("pages");
    pages::write(&binaries.join("perilog-pages"), &pages)?;
    let stripped = binaries.join("stripped");
    // The build has already linked the programs against this machine's C library.
    let programs = portable.map_or_else(|| Ok(binaries.to_owned()), |_| portable::build(portable, false))?;
    if portable.is_some() {
        symbols::check(&programs)?;
    }
    strip(&programs, &stripped)?;
    let libraries = portable.map(Portable::system);
    let contents = Contents { binaries: &stripped, pages: &pages, libraries, loosely: true };
    pack(&[Kind::Deb, Kind::Rpm], &contents, &directory)
}

/// Makes packages of an earlier commit, from which a test upgrades.
pub(crate) fn of_earlier(binaries: &Path, portable: Option<&Portable>) -> Result<()> {
    earlier::pack(&binaries.join(FOR_TESTS).join("earlier"), portable)
}

/// Returns the directory in which [`for_tests`] puts packages.
pub(crate) fn of_tests(binaries: &Path) -> PathBuf {
    binaries.join(FOR_TESTS)
}

/// Modules of the tests on nodes that install packages.
pub(crate) const OF_PACKAGES: [&str; 3] = ["packages_come_and_go", "rpms_install_by_dnf", "rpms_install_into_a_root"];

/// Returns `true` if the test installs packages on its nodes.
pub(crate) fn installs_packages(test: &str) -> bool {
    OF_PACKAGES.contains(&nodes::module(test))
}

/// Copies the programs without debugging information; keeps the names of functions.
fn strip(from: &Path, to: &Path) -> Result<()> {
    std::fs::create_dir_all(to).with_context(|| format!("making {}", to.display()))?;
    for program in BUILT {
        succeed(Command::new("strip").arg("--strip-debug").arg("-o").arg(to.join(program)).arg(from.join(program)))?;
    }
    Ok(())
}

fn pack(kinds: &[Kind], contents: &Contents<'_>, directory: &Path) -> Result<Vec<PathBuf>> {
    if directory.exists() {
        std::fs::remove_dir_all(directory).with_context(|| format!("removing {}", directory.display()))?;
    }
    let mut made = Vec::new();
    for kind in kinds {
        made.extend(match kind {
            Kind::Deb => deb::pack(contents, directory)?,
            Kind::Rpm => rpm::pack(contents, directory)?,
        });
    }
    Ok(made)
}

impl Kind {
    fn named(name: &str) -> Result<Self> {
        match name {
            "deb" => Ok(Self::Deb),
            "rpm" => Ok(Self::Rpm),
            other => Err(Usage(format!("dist makes deb and rpm, not {other}")).into()),
        }
    }
}

/// Returns the product's version.
fn version() -> &'static str {
    env!("CARGO_PKG_VERSION")
}

/// Runs a packager; returns its output. An error has the output of a failed packager.
pub(crate) fn succeed(command: &mut Command) -> Result<String> {
    let output =
        command.stdin(Stdio::null()).output().with_context(|| format!("running {:?}", command.get_program()))?;
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    ensure!(output.status.success(), "{command:?}: {}\n{out}{err}", output.status);
    Ok(out.into_owned())
}

/// Moves a packager's results, files of this extension, to the directory `to`; returns their paths, sorted.
fn collect(from: &Path, extension: &str, to: &Path) -> Result<Vec<PathBuf>> {
    let mut made = Vec::new();
    for entry in std::fs::read_dir(from).with_context(|| format!("reading {}", from.display()))? {
        let path = entry.with_context(|| format!("reading {}", from.display()))?.path();
        if let Some(name) = path.file_name().filter(|_| path.extension().is_some_and(|found| found == extension)) {
            let target = to.join(name);
            std::fs::rename(&path, &target).with_context(|| format!("moving {}", path.display()))?;
            made.push(target);
        }
    }
    made.sort();
    ensure!(!made.is_empty(), "no .{extension} in {}", from.display());
    Ok(made)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_release_has_no_packages_for_some_systems_alone() {
        for (is_portable, found, expect) in [
            (false, None, Ok(None)),
            (false, Some(1), Ok(Some(1))),
            (true, Some(1), Ok(Some(1))),
            (true, None, Err(())),
        ] {
            for lack in [LACKS_LIBRARY, &lacks_runner()] {
                let result = demand(is_portable, found, lack).map_err(|error| {
                    assert_eq!(error.to_string(), format!("--portable: {lack}"));
                });
                assert_eq!(result, expect, "{is_portable} {found:?}");
            }
        }
    }

    #[test]
    fn the_command_line_names_kinds_and_the_option() {
        let of = |line: &str| wanted(&line.split_whitespace().collect::<Vec<_>>()).ok();
        for (line, expect) in [
            ("", Some((vec![Kind::Deb, Kind::Rpm], false))),
            ("--portable", Some((vec![Kind::Deb, Kind::Rpm], true))),
            ("rpm --portable", Some((vec![Kind::Rpm], true))),
            ("deb", Some((vec![Kind::Deb], false))),
            ("--release", None),
        ] {
            assert_eq!(of(line), expect, "{line}");
        }
    }
}
