//! What the dependency tree holds, by cargo-deny and deny.toml: licences, sources, what is banned, and what RustSec knows against it.
//!
//! cargo-deny is optional, and so is the way to the database of advisories (cargo-audit would read the same one): what cannot be checked is said, and counted as
//! skipped.

use std::process::{Output, Stdio};

use anyhow::{Context, Result, ensure};

use crate::cargo;
use crate::stages::say;
use crate::tally::Tally;

/// Checks that need nothing but the sources of the dependencies, which a build has fetched.
const AT_HAND: [&str; 3] = ["licenses", "bans", "sources"];
const FROM_OUTSIDE: &str = "advisories";

pub(crate) fn check(tally: &mut Tally) -> Result<()> {
    if !deny(&["--version"])?.status.success() {
        tally.skipped += AT_HAND.len() + 1;
        return say("   skipped: no cargo-deny (`cargo install --locked cargo-deny` brings it)");
    }
    let mut wrong = Vec::new();
    for name in AT_HAND {
        judge(name, tally, &mut wrong)?;
    }
    let fetched = deny(&["fetch", "db"])?;
    if fetched.status.success() {
        judge(FROM_OUTSIDE, tally, &mut wrong)?;
    } else {
        tally.skipped += 1;
        let text = String::from_utf8_lossy(&fetched.stderr).into_owned();
        let why =
            text.lines().find(|line| line.contains("error") || line.contains("ERROR")).unwrap_or("no reason given");
        say(&format!("   skipped: {FROM_OUTSIDE}, whose database cannot be fetched: {}", why.trim()))?;
    }
    ensure!(wrong.is_empty(), "failed: {}", wrong.join(", "));
    Ok(())
}

fn judge(name: &'static str, tally: &mut Tally, wrong: &mut Vec<&'static str>) -> Result<()> {
    let output = deny(&["--log-level", "error", "check", "--hide-inclusion-graph", name])?;
    if output.status.success() {
        tally.passed += 1;
        return Ok(());
    }
    tally.failed += 1;
    wrong.push(name);
    say(&format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr)))
}

fn deny(arguments: &[&str]) -> Result<Output> {
    cargo::command().arg("deny").args(arguments).stdin(Stdio::null()).output().context("running cargo deny")
}
