//! `cargo xtask demo`: the product on real nodes, with faults, for people to watch.

use std::path::Path;

use anyhow::{Context, Result};
use perilog_tests::{Bed, Layer, Stopwatch};

use crate::stages::say;
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
    let watch = Stopwatch::start();
    let bed = Bed::builder().node("ctl").nodes(4).layer(Layer::Built(Path::new(binaries).to_owned())).boot()?;
    say(&format!("a controller and four nodes booted in {:.1} s", watch.elapsed().as_secs_f64()))?;
    drop(bed);
    Ok(true)
}
