//! `cargo xtask soak [--for 10m] [--seed S]`: jobs on a cluster, and a fault every second. `soak flux [--sdexec]`: jobs
//! under a real Flux with the edge. `soak failover`: jobs under a controller with two hosts.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use perilog_core::Span;
use perilog_tests::{Layer, failover, flux, soak};

use crate::stages::print_line;
use crate::{Usage, cargo, nodes, prerequisites};

const FOR: &str = "10m";
const SEED: &str = "1";
/// Kinds of soak; the first is that of `cargo xtask soak` without a kind.
pub(crate) const ALL: [&str; 3] = [CLUSTER, FLUX, FAILOVER];
pub(crate) const CLUSTER: &str = "cluster";
const FLUX: &str = "flux";
const FAILOVER: &str = "failover";
/// File below the target directory with a line for each piece of a soak of a cluster.
const PIECES: &str = "soak.jsonl";
/// Option: Flux runs jobs as units of systemd.
const SDEXEC: &str = "--sdexec";

/// Runs `cargo xtask soak KIND`: installs what is missing, builds, and starts [`on_nodes`] as root. Returns `true` if
/// the soak found no difference.
pub(crate) fn run(kind: &str, arguments: &[&str]) -> Result<bool> {
    let (mut length, mut seed) = (FOR, SEED);
    let (switches, pairs): (Vec<&str>, Vec<&str>) = arguments.iter().partition(|argument| **argument == SDEXEC);
    if kind != FLUX && !switches.is_empty() {
        return Err(Usage(format!("soak {kind}: not understood: {SDEXEC}")).into());
    }
    // A soak of Flux with jobs as units is a kind of its own to this program as root.
    let kind = if switches.is_empty() { kind } else { SDEXEC };
    for pair in pairs.chunks(2) {
        match pair {
            ["--for", value] => length = value,
            ["--seed", value] => seed = value,
            other => return Err(Usage(format!("soak: not understood: {}", other.join(" "))).into()),
        }
    }
    let millis = length.parse::<Span>().ok().and_then(Span::as_millis);
    let millis = millis.ok_or_else(|| Usage(format!("soak: --for {length} is no length of time that ends")))?;
    seed.parse::<u64>().map_err(|error| Usage(format!("soak: --seed {seed}: {error}")))?;
    if kind == FAILOVER {
        prerequisites::ensure_tests()?;
    } else if kind == CLUSTER {
        prerequisites::ensure_nodes()?;
    } else {
        ensure!(flux::is_here(), "no Flux {}.{} or newer is on PATH", flux::OLDEST.0, flux::OLDEST.1);
        prerequisites::ensure_nodes()?;
    }
    let built = cargo::build_everything()?;
    let seconds = (millis / 1000).to_string();
    let mut command = nodes::as_root(nodes::SOAK, &built.binaries)?;
    let status = command.args([kind, &seconds, seed]).status().context("running the soak as root")?;
    Ok(status.success())
}

/// Runs the soak on nodes with the programs in `binaries`, for `seconds`, with the faults that follow from `seed`;
/// needs root. Returns `true` if the soak found no difference between the scripts' ledgers and what perilog promises.
pub(crate) fn on_nodes(binaries: &str, kind: &str, seconds: &str, seed: &str) -> Result<bool> {
    let length = Duration::from_secs(seconds.parse().context("seconds")?);
    let seed = seed.parse().context("a seed")?;
    let (layer, mut progress) = (Layer::Built(binaries.into()), |line: &str| drop(print_line(line)));
    if kind == CLUSTER {
        return of_cluster(&Path::new(binaries).with_file_name(PIECES), layer, length, seed, &mut progress);
    }
    if kind == FAILOVER {
        let report = failover::soak(layer, length, seed, &mut progress)?;
        print_line(&report.to_string())?;
        return Ok(report.differences.is_empty());
    }
    let report = flux::soak(layer, length, seed, kind == SDEXEC, &mut progress)?;
    print_line(&report.to_string())?;
    Ok(report.differences.is_empty())
}

/// Runs the next piece of the soak with this seed, adds it to `file`, and prints the sum of all its pieces.
fn of_cluster(file: &Path, layer: Layer, length: Duration, seed: u64, progress: &mut dyn FnMut(&str)) -> Result<bool> {
    let mut pieces = soak::Pieces::read(file, seed)?;
    // Each piece has faults of its own, which follow from the seed and the piece's number.
    let of_piece = seed.wrapping_add(pieces.count() << 32);
    let report = soak::soak(layer, length, of_piece, progress)?;
    print_line(&report.to_string())?;
    pieces.push(file, report.piece(seed, length))?;
    print_line(&pieces.to_string())?;
    Ok(report.differences.is_empty())
}
