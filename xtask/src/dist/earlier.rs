//! Packages of an earlier commit, for the test of upgrades: that commit's programs, tables, messages and units.
//!
//! They are built from git's history, so no stored binary needs trust. The earlier commit had no packaging, so these
//! packages are plain: files and configuration, no scripts.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::portable::Portable;
use super::succeed;
use crate::{cargo, git};

/// This file, for those who are to change it: after a release, [`COMMIT`] is that of its tag, and [`VERSION`] its
/// version (docs/building.md).
pub(crate) const FILE: &str = "xtask/src/dist/earlier.rs";
/// The commit from which tests upgrade: before the first release, the last one whose store has version 1 of its tables,
/// which do not record the ranks that jobs hold.
pub(crate) const COMMIT: &str = "4671af0317252e94bab5560c397aa7732b127b0a";
/// Version of the earlier packages: before the first release, below every version that is ever released.
pub(crate) const VERSION: &str = "0.0.1";

/// A package: its name, its programs with their directories, its units, and its configuration file (the example in the
/// sources, and the installed path).
type Package = (
    &'static str,
    &'static [(&'static str, &'static str)],
    &'static [&'static str],
    Option<(&'static str, &'static str)>,
);

const PACKAGES: [Package; 3] = [
    (
        "perilog-agent",
        &[("perilog-agent", "usr/sbin"), ("perilog-runner", "usr/libexec/perilog"), ("perilog-report", "usr/bin")],
        &["perilog-agent.service", "perilog.slice"],
        Some(("agent/agent.toml.example", "etc/perilog/agent.toml")),
    ),
    (
        "perilog-controller",
        &[("perilog-controller", "usr/sbin")],
        &["perilog-controller.service", "perilog-controller.socket"],
        Some(("controller/controller.toml.example", "etc/perilog/controller.toml")),
    ),
    ("perilog", &[("perilog", "usr/bin")], &[], None),
];

/// Checks that git has the commit [`COMMIT`], before anything is built.
pub(crate) fn is_known() -> Result<()> {
    succeed(git::command().args(["cat-file", "-e", &format!("{COMMIT}^{{commit}}")])).map(drop).context(
        "the test of upgrades builds an earlier commit: it needs a clone with its history (git fetch --unshallow)",
    )
}

/// Builds the programs of [`COMMIT`] and packs them into `directory`.
pub(crate) fn pack(directory: &Path, portable: Option<&Portable>) -> Result<()> {
    let (source, binaries) = build(portable)?;
    std::fs::create_dir_all(directory).with_context(|| format!("making {}", directory.display()))?;
    for (package, programs, units, configuration) in PACKAGES {
        let root = directory.join(package);
        let install = |from: &Path, to: PathBuf, mode: &str| {
            succeed(Command::new("install").args(["-D", "-m", mode]).arg(from).arg(to)).map(drop)
        };
        for (program, place) in programs {
            install(&binaries.join(program), root.join(place).join(program), "755")?;
        }
        for unit in units {
            install(&source.join("units").join(unit), root.join("usr/lib/systemd/system").join(unit), "644")?;
        }
        if let Some((example, name)) = configuration {
            install(&source.join(example), root.join(name), "644")?;
            let listed = root.join("DEBIAN/conffiles");
            install(Path::new("/dev/null"), listed.clone(), "644")?;
            std::fs::write(&listed, format!("/{name}\n")).context("writing conffiles")?;
        }
        let control = format!(
            "Package: {package}\nVersion: {VERSION}\nArchitecture: {}\nMaintainer: nobody <nobody@localhost>\n\
             Description: {package} of commit {COMMIT}\n",
            succeed(Command::new("dpkg").arg("--print-architecture"))?.trim()
        );
        let debian = root.join("DEBIAN");
        std::fs::create_dir_all(&debian).with_context(|| format!("making {}", debian.display()))?;
        std::fs::write(debian.join("control"), control).context("writing a control file")?;
        succeed(
            Command::new("dpkg-deb").args(["--root-owner-group", "-Zgzip", "-z1", "--build"]).arg(&root).arg(directory),
        )?;
    }
    Ok(())
}

/// Arguments of cargo that select the workspace's packages with programs in [`COMMIT`].
const EARLIER: [&str; 6] = ["-p", "perilog", "-p", "perilog-agent", "-p", "perilog-controller"];

/// Builds [`COMMIT`]; returns the directory of its sources and the directory of its programs.
fn build(portable: Option<&Portable>) -> Result<(PathBuf, PathBuf)> {
    let target = cargo::target()?;
    let (source, own) = (target.join("earlier/source"), target.join("earlier/built"));
    std::fs::create_dir_all(&source).with_context(|| format!("making {}", source.display()))?;
    let archive = target.join("earlier/source.tar");
    let mut archived = git::command();
    succeed(archived.args(["archive", "--format=tar", "--output"]).arg(&archive).arg(COMMIT))?;
    // Files get the time of the commit, so that cargo does not build a built program again.
    succeed(Command::new("tar").arg("-xf").arg(&archive).arg("-C").arg(&source))?;
    let mut cargo = cargo::command();
    cargo.current_dir(&source).args(["build", "--quiet", "--locked", "--bins"]).args(EARLIER);
    // Libraries in common with this tree are built once for both, if cargo can (1.91). No debug information is needed.
    cargo.env("CARGO_TARGET_DIR", &own).env("CARGO_BUILD_BUILD_DIR", &target);
    cargo.env("CARGO_PROFILE_DEV_DEBUG", "0").env("CARGO_INCREMENTAL", "0");
    if let Some(portable) = portable {
        portable.apply(&mut cargo, &source, Vec::new());
    }
    let status = cargo.status().context("running cargo")?;
    ensure!(status.success(), "commit {COMMIT} cannot be built");
    Ok((source, portable.map_or_else(|| own.join("debug"), |portable| portable.programs(&own, "debug"))))
}
