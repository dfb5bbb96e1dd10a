//! Check of the dependency tree by cargo-deny and deny.toml: licences, sources, bans, and RustSec's advisories.
//!
//! cargo-deny is a prerequisite of one version, so that a check means the same everywhere. Licences, bans and sources
//! need only the fetched sources, and always pass or fail. Advisories need RustSec's database, which not every network
//! reaches: without it the check counts as skipped, and the stage says so.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use anyhow::{Context, Result, ensure};

use crate::cargo;
use crate::stages::print_line;
use crate::tally::Tally;

const VERSION: &str = "0.20.2";
/// Names of cargo-deny's checks that need only the dependencies' sources, which a build has fetched.
const AT_HAND: [&str; 3] = ["licenses", "bans", "sources"];
const FROM_OUTSIDE: &str = "advisories";

/// Builds cargo-deny below `target/`, unless this system has the wanted version. Unoptimised: the build takes one core
/// two and a half minutes, the four checks ten seconds.
///
/// # Errors
/// Names cargo-deny, its version and the command that would install it.
pub(crate) fn ensure_checker() -> Result<()> {
    if checker()?.is_some() {
        return Ok(());
    }
    let root = tools()?;
    print_line(&format!("this system lacks: cargo-deny {VERSION}; it is built into {}", root.display()))?;
    let install = ["install", "--locked", "--debug", "--quiet", "cargo-deny", "--version", VERSION, "--root"];
    let status = cargo::command().args(install).arg(&root).stdin(Stdio::null()).status().context("running cargo")?;
    ensure!(
        status.success() && checker()?.is_some(),
        "no cargo-deny {VERSION}, and cargo cannot install it: `cargo install --locked cargo-deny --version {VERSION}` \
         brings it"
    );
    Ok(())
}

pub(crate) fn check(tally: &mut Tally) -> Result<()> {
    let deny =
        Deny(checker()?.with_context(|| format!("no cargo-deny {VERSION}: nothing is known of the dependencies"))?);
    let mut wrong = Vec::new();
    for name in AT_HAND {
        deny.judge(name, tally, &mut wrong)?;
    }
    let fetched = deny.run(&["fetch", "db"])?;
    if fetched.status.success() {
        deny.judge(FROM_OUTSIDE, tally, &mut wrong)?;
    } else {
        tally.skipped += 1;
        let text = String::from_utf8_lossy(&fetched.stderr).into_owned();
        let why =
            text.lines().find(|line| line.contains("error") || line.contains("ERROR")).unwrap_or("no reason given");
        print_line(&format!("   NOT CHECKED: {FROM_OUTSIDE}, whose database cannot be fetched: {}", why.trim()))?;
    }
    ensure!(wrong.is_empty(), "failed: {}", wrong.join(", "));
    Ok(())
}

/// Returns the path of cargo-deny in the wanted version: the one on PATH, or else the one that [`ensure_checker`]
/// built. `None`: neither is there in that version.
fn checker() -> Result<Option<PathBuf>> {
    let built = tools()?.join("bin/cargo-deny");
    Ok([PathBuf::from("cargo-deny"), built].into_iter().find(|program| is_wanted(program)))
}

fn is_wanted(program: &Path) -> bool {
    let output = Command::new(program).arg("--version").stdin(Stdio::null()).output();
    output.is_ok_and(|output| output.status.success() && is_version(&String::from_utf8_lossy(&output.stdout)))
}

/// Returns `true` if the output of `--version`, such as `cargo-deny 0.20.2`, has the wanted version.
fn is_version(printed: &str) -> bool {
    printed.split_whitespace().nth(1) == Some(VERSION)
}

fn tools() -> Result<PathBuf> {
    Ok(cargo::target()?.join("tools"))
}

struct Deny(PathBuf);

impl Deny {
    fn judge(&self, name: &'static str, tally: &mut Tally, wrong: &mut Vec<&'static str>) -> Result<()> {
        let output = self.run(&["--log-level", "error", "check", "--hide-inclusion-graph", name])?;
        if output.status.success() {
            tally.passed += 1;
            return Ok(());
        }
        tally.failed += 1;
        wrong.push(name);
        print_line(&format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr)))
    }

    fn run(&self, arguments: &[impl AsRef<OsStr>]) -> Result<Output> {
        let mut command = Command::new(&self.0);
        command.args(arguments).current_dir(cargo::root()).stdin(Stdio::null());
        command.output().context("running cargo-deny")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_version_is_not_the_one_that_is_wanted() {
        assert!(is_version(&format!("cargo-deny {VERSION}\n")));
        assert!(!is_version("cargo-deny 0.1.0\n") && !is_version(""));
    }
}
