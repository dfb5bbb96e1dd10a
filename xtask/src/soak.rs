//! `cargo xtask soak [--for 10m] [--seed S]`: jobs on a cluster, and a fault every second. `soak flux [--sdexec]`: jobs
//! under a real Flux with the edge. `soak failover`: jobs under a controller with two hosts.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use perilog_core::Span;
use perilog_tests::soak::{Piece, Pieces};
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
/// Beginning of the line of output in which the soak as root reports its piece, as JSON.
const PIECE: &str = "piece of a soak: ";
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
    let number = seed.parse::<u64>().map_err(|error| Usage(format!("soak: --seed {seed}: {error}")))?;
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
    if kind == CLUSTER {
        let pieces = Pieces::open(&cargo::target()?.join(PIECES), number)?;
        return next_piece(pieces, &built.binaries, &seconds);
    }
    let mut command = nodes::as_root(nodes::SOAK, &built.binaries)?;
    let status = command.args([kind, &seconds, seed]).status().context("running the soak as root")?;
    Ok(status.success())
}

/// Runs the next piece of the soak of a cluster as root, adds it to the pieces, and prints the sum of all. Returns
/// `true` if the piece found no difference.
fn next_piece(mut pieces: Pieces, binaries: &Path, seconds: &str) -> Result<bool> {
    let mut command = nodes::as_root(nodes::SOAK, binaries)?;
    command.args([CLUSTER, seconds, &pieces.next_seed().to_string()]);
    let mut child = command.stdout(Stdio::piped()).spawn().context("running the soak as root")?;
    let output = BufReader::new(child.stdout.take().context("the output of the soak")?);
    let reported = reported(output, print_line);
    let status = child.wait().context("waiting for the soak")?;
    let piece = counted(reported, status);
    let is_good = piece.differences == 0;
    pieces.push(piece)?;
    print_line(&pieces.to_string())?;
    Ok(is_good)
}

/// Passes each line of the soak's output to `show`, except that with the piece, which it returns; `None`: there is no
/// such line.
fn reported(output: impl BufRead, show: impl Fn(&str) -> Result<()>) -> Result<Option<Piece>> {
    let mut piece = None;
    for line in output.lines() {
        let line = line.context("reading the soak's output")?;
        match line.strip_prefix(PIECE) {
            Some(json) => piece = Some(serde_json::from_str(json).context("the piece of the soak")?),
            None => show(&line)?,
        }
    }
    Ok(piece)
}

/// Returns the piece that counts: the reported one, or a difference that says why there is none. `status`: that with
/// which the soak ended.
fn counted(reported: Result<Option<Piece>>, status: ExitStatus) -> Piece {
    match reported {
        Ok(Some(piece)) if piece.differences == 0 && !status.success() => {
            Piece { differences: 1, texts: vec![format!("the soak ended badly after its report: {status}")], ..piece }
        }
        Ok(Some(piece)) => piece,
        Ok(None) => Piece::without_report(format!("the soak ended without a report: {status}")),
        Err(error) => Piece::without_report(format!("the soak's report was not read: {error:#} ({status})")),
    }
}

/// Runs the soak on nodes with the programs in `binaries`, for `seconds`, with the faults that follow from `seed`;
/// needs root. Returns `true` if the soak found no difference between the scripts' ledgers and what perilog promises.
pub(crate) fn on_nodes(binaries: &str, kind: &str, seconds: &str, seed: &str) -> Result<bool> {
    let length = Duration::from_secs(seconds.parse().context("seconds")?);
    let seed = seed.parse().context("a seed")?;
    let (layer, mut progress) = (Layer::Built(binaries.into()), |line: &str| drop(print_line(line)));
    if kind == CLUSTER {
        let report = soak::soak(layer, length, seed, &mut progress);
        print_line(&report.to_string())?;
        print_line(&format!("{PIECE}{}", serde_json::to_string(&report.piece(seed))?))?;
        return Ok(report.differences.is_empty());
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

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;

    use super::*;

    #[test]
    fn the_piece_is_taken_out_of_the_output() {
        let piece = Piece { jobs: 7, ..Piece::default() };
        let output = format!("5 jobs\n{PIECE}{}\n", serde_json::to_string(&piece).unwrap());
        let shown = std::cell::RefCell::new(Vec::new());
        let show = |line: &str| {
            shown.borrow_mut().push(line.to_owned());
            Ok(())
        };
        assert_eq!(reported(output.as_bytes(), show).unwrap(), Some(piece));
        assert_eq!(*shown.borrow(), ["5 jobs"]);
    }

    #[test]
    fn a_soak_without_a_report_is_a_difference() {
        let (good, killed) = (ExitStatus::from_raw(0), ExitStatus::from_raw(9));
        let reported = |output: &str| reported(output.as_bytes(), |_| Ok(()));
        let whole = format!("{PIECE}{}", serde_json::to_string(&Piece::default()).unwrap());
        for (output, status, differences) in [
            (whole.as_str(), good, 0),
            (whole.as_str(), killed, 1),
            ("5 jobs\n", killed, 1),
            ("", good, 1),
            ("piece of a soak: {", good, 1),
        ] {
            let piece = counted(reported(output), status);
            assert_eq!((piece.differences, piece.texts.len()), (differences, differences), "{output:?} {piece:?}");
        }
        let piece = counted(reported(""), killed);
        assert_eq!(piece.texts, ["the soak ended without a report: signal: 9 (SIGKILL)"]);
    }
}
