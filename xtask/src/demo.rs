//! `cargo xtask demo`: the product on real nodes, with faults, for people to watch. Its exit status is the comparison's.

mod narrator;
mod scenario;

use std::path::Path;

use anyhow::{Context, Result};
use perilog_tests::Layer;

use crate::{cargo, nodes, prerequisites};

/// As the user: what is needed, the build, and then the rest as root.
pub(crate) fn run() -> Result<bool> {
    prerequisites::ensure_all()?;
    let built = cargo::build_programs()?;
    let status = nodes::as_root(nodes::DEMO, &built.binaries)?.status().context("running the demo as root")?;
    Ok(status.success())
}

/// As root.
pub(crate) fn on_nodes(binaries: &str) -> Result<bool> {
    scenario::play(Layer::Built(Path::new(binaries).to_owned()))
}
