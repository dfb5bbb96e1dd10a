//! `cargo xtask demo [tolerance | release]`: the product on real nodes, with faults, for people to watch. The exit
//! status says whether all checks of the demo held.

mod narrator;
mod release;
mod scenario;
mod stage;
mod tolerance;

use std::path::Path;

use anyhow::{Context, Result};
use perilog_tests::Layer;

use crate::{cargo, nodes, prerequisites};

/// Function that plays a demo on nodes that it boots, whose perilog programs come from this [`Layer`]. Returns `true`
/// if all checks of the demo held.
type Story = fn(Layer) -> Result<bool>;

/// The demos, each by the word after `cargo xtask demo`.
const STORIES: [(&str, Story); 3] =
    [("kills", scenario::play), ("tolerance", tolerance::play), ("release", release::play)];
/// Name of the default demo.
pub(crate) const FIRST: &str = "kills";

/// Returns `true` if a demo has this name.
pub(crate) fn is_there(name: &str) -> bool {
    STORIES.iter().any(|(story, _)| *story == name)
}

/// Runs the demo `name`: installs what is missing, builds, and starts [`on_nodes`] as root. Returns `true` if all
/// checks held.
pub(crate) fn run(name: &str) -> Result<bool> {
    prerequisites::ensure_nodes()?;
    let built = cargo::build_programs()?;
    let mut command = nodes::as_root(nodes::DEMO, &built.binaries)?;
    let status = command.arg(name).status().context("running the demo as root")?;
    Ok(status.success())
}

/// Plays the demo `name` with the programs in `binaries`; needs root. Returns `true` if all checks held.
pub(crate) fn on_nodes(binaries: &str, name: &str) -> Result<bool> {
    let (_, story) = STORIES.iter().find(|(story, _)| *story == name).with_context(|| format!("no demo {name}"))?;
    story(Layer::Built(Path::new(binaries).to_owned()))
}
