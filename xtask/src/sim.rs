//! `cargo xtask sim`: runs the simulator, built with full optimisation and with every assertion on.

use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::{Usage, cargo};

/// Runs the simulator with these arguments. Returns `false` if a history violated an invariant; the simulator has
/// printed which.
pub(crate) fn run(arguments: &[&str]) -> Result<bool> {
    let root = cargo::root();
    // Not from the root, because file names are relative to the caller's directory.
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(["run", "--quiet", "--profile", "sim", "--package", "perilog-sim", "--manifest-path"]);
    command.arg(root.join("Cargo.toml")).arg("--");
    // Before the caller's arguments: an option without a value must not take this word as the value.
    if arguments.iter().any(|word| ["--for", "--count"].contains(word)) && !arguments.contains(&"--keep") {
        command.arg("--keep").arg(root.join("sim/regressions"));
    }
    let status = command.args(arguments).status().context("running cargo")?;
    match status.code() {
        Some(0) => Ok(true),
        Some(1) => Ok(false),
        Some(2) => Err(Usage("sim: not understood".to_owned()).into()),
        _ => bail!("the simulator: {status}"),
    }
}
