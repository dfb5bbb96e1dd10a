//! A soak of a cluster: jobs in flight, and one fault after the other. Faults meet daemons, runners, the bus, systemd,
//! the network, clocks and whole nodes; an operator cancels and drains. Afterwards the ledgers of scripts and hooks
//! show what happened.

pub(crate) mod jobs;
mod pieces;
mod strike;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, anyhow};

use crate::clock::{Stopwatch, pause};
use crate::cluster::Cluster;
use crate::draws::Draws;
use crate::layer::Layer;
use crate::manager;
pub use pieces::{Piece, Pieces};
use strike::{Did, FAULTS};

const NODES: usize = 4;
/// Number of jobs that are not complete at a time.
const AT_ONCE: usize = 12;
/// Script of prolog and epilog: work of random length, which mostly ends well.
const WORK: &str = "sleep $(draw 0 0 0.1 0.3 1 3); exit $(draw 0 0 0 0 0 0 0 0 0 7)";
/// Time without the completion of a job after which the soak gives up.
const STUCK: Duration = Duration::from_secs(300);
const SOON: Duration = Duration::from_secs(150);
/// Most texts of differences that a piece keeps.
const TEXTS: usize = 20;

/// Result of a soak: counts of jobs and faults, and the violations of the soak's rules.
#[derive(Debug, Default)]
pub struct Report {
    pub jobs: usize,
    /// Time within which faults struck.
    pub length: Duration,
    /// Number of faults of each kind that struck something.
    pub faults: BTreeMap<&'static str, usize>,
    /// Number of faults that killed processes with SIGKILL.
    pub kills: usize,
    /// Number of faults that found nothing to strike.
    pub misses: usize,
    /// Number of compared tasks (action, job, attempt, node).
    pub compared: usize,
    pub differences: Vec<String>,
}

impl Report {
    /// Returns the counts of this soak as a piece of a longer one.
    pub fn piece(&self, seed: u64) -> Piece {
        let (faults, differences) = (self.faults.values().sum(), self.differences.len());
        let texts = self.differences.iter().take(TEXTS).cloned().collect();
        let Self { jobs, kills, compared, .. } = *self;
        Piece { seed, seconds: self.length.as_secs(), jobs, faults, kills, compared, differences, texts }
    }

    /// Adds the error with which the soak ended early, if it did, to the differences.
    fn ended(mut self, ended: Result<()>) -> Self {
        self.differences.extend(ended.err().map(|error| format!("the soak ended early: {error:#}")));
        self
    }

    fn count(&mut self, fault: &'static str, did: Did) {
        match did {
            Did::Nothing => self.misses += 1,
            Did::Killed | Did::Struck => *self.faults.entry(fault).or_default() += 1,
        }
        self.kills += usize::from(did == Did::Killed);
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let faults: usize = self.faults.values().sum();
        writeln!(f, "{} jobs, {faults} faults, of which {} kill processes:", self.jobs, self.kills)?;
        self.faults.iter().try_for_each(|(fault, times)| writeln!(f, "  {times:>6}  {fault}"))?;
        writeln!(f, "  {:>6}  found nothing to strike", self.misses)?;
        write!(f, "{} tasks compared, {} differences", self.compared, self.differences.len())?;
        self.differences.iter().try_for_each(|difference| write!(f, "\n  {difference}"))
    }
}

/// Runs jobs and faults for `length`, waits until all work has ended, and compares the ledgers. Equal seeds give equal
/// faults, but timing decides what they meet. `progress` gets a line of progress about once a minute. A soak that ends
/// early, as the cluster does not start or does not come back after a fault, has that as a difference.
pub fn soak(layer: Layer, length: Duration, seed: u64, progress: &mut dyn FnMut(&str)) -> Report {
    let mut report = Report::default();
    let ended = run(layer, length, seed, &mut report, progress);
    report.ended(ended)
}

fn run(layer: Layer, length: Duration, seed: u64, report: &mut Report, progress: &mut dyn FnMut(&str)) -> Result<()> {
    let builder = Cluster::builder(NODES).layer(layer).controller(manager::CONFIGURATION).controller(jobs::RELEASE);
    let builder = builder.script("prolog", jobs::SCRIPT, WORK).script("epilog", jobs::SCRIPT, WORK);
    let cluster = builder.build()?;
    cluster.manage("")?;
    cluster.controller()?.write_file(jobs::R, manager::FOUR.r)?;
    cluster.bed().boot()?;
    cluster.wait_online()?;
    let ends = AtomicBool::new(false);
    let names = std::thread::scope(|scope| -> Result<_> {
        let driver = scope.spawn(|| jobs::drive(&cluster, AT_ONCE, &ends, STUCK));
        let struck = strikes(&cluster, length, seed, report, progress);
        ends.store(true, Ordering::SeqCst);
        let names = driver.join().map_err(|_| anyhow!("the driver of the jobs panicked"))?;
        report.jobs = names.len();
        struck.map(|()| names)
    })?;
    cluster.wait_online()?;
    cluster.bed().wait_until("no task is open", SOON, || {
        Ok(cluster.perilog(&["--json", "ps"]).is_ok_and(|ps| ps.success() && !ps.stdout.contains("\"job\"")))
    })?;
    (report.compared, report.differences) = jobs::judge(&cluster, &names, &[])?;
    Ok(())
}

/// Strikes one time after the other.
fn strikes(
    cluster: &Cluster,
    length: Duration,
    seed: u64,
    report: &mut Report,
    progress: &mut dyn FnMut(&str),
) -> Result<()> {
    let mut draws = Draws(seed);
    let (watch, mut reported) = (Stopwatch::start(), Stopwatch::start());
    while watch.elapsed() < length {
        // Faults meet jobs at every stage.
        pause(Duration::from_millis(draws.below(1_500)));
        let name = *draws.one_of(&FAULTS);
        let number = report.faults.values().sum::<usize>() + report.misses;
        let did = strike::strike(cluster, name, &mut draws).with_context(|| format!("fault {number}: {name}"))?;
        report.count(name, did);
        report.length = watch.elapsed().min(length);
        if reported.elapsed() > Duration::from_secs(60) {
            let held = cluster.perilog(&["drain", "--quiet"]).map(|output| output.stdout).unwrap_or_default();
            progress(&format!(
                "{number} faults, {} kills; drained: {}",
                report.kills,
                held.split_whitespace().collect::<Vec<_>>().join(",")
            ));
            reported = Stopwatch::start();
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_strikes_nothing_is_no_fault() {
        let mut report = Report::default();
        for did in [Did::Killed, Did::Nothing, Did::Struck, Did::Nothing] {
            report.count("kill a runner", did);
        }
        assert_eq!((report.faults["kill a runner"], report.kills, report.misses), (2, 1, 2));
    }

    #[test]
    fn an_early_end_is_a_difference_beside_what_was_counted() {
        let mut report = Report { length: Duration::from_secs(90), jobs: 5, ..Report::default() };
        report.count("reboot a node", Did::Struck);
        let error = anyhow!("n2 did not boot").context("fault 1: reboot a node");
        let piece = report.ended(Err(error)).piece(7);
        assert_eq!((piece.seed, piece.seconds, piece.jobs, piece.faults, piece.differences), (7, 90, 5, 1, 1));
        assert_eq!(piece.texts, ["the soak ended early: fault 1: reboot a node: n2 did not boot"]);
        assert_eq!(Report::default().ended(Ok(())).piece(7).differences, 0);
    }
}
