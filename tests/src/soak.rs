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
use strike::{FAULTS, Fault};

const NODES: usize = 4;
/// Number of jobs that are not complete at a time.
const AT_ONCE: usize = 12;
/// Script of prolog and epilog: work of random length, which mostly ends well.
const WORK: &str = "sleep $(draw 0 0 0.1 0.3 1 3); exit $(draw 0 0 0 0 0 0 0 0 0 7)";
/// Time without the completion of a job after which the soak gives up.
const STUCK: Duration = Duration::from_secs(300);
const SOON: Duration = Duration::from_secs(150);

/// Result of a soak: counts of jobs and faults, and the violations of the soak's rules.
#[derive(Debug, Default)]
pub struct Report {
    pub jobs: usize,
    /// Number of faults of each kind.
    pub faults: BTreeMap<&'static str, usize>,
    /// Number of faults that killed processes with SIGKILL.
    pub kills: usize,
    /// Number of compared tasks (action, job, attempt, node).
    pub compared: usize,
    pub differences: Vec<String>,
}

impl Report {
    /// Returns the counts of this soak as a piece of a longer one.
    pub fn piece(&self, seed: u64, length: Duration) -> Piece {
        let (faults, differences) = (self.faults.values().sum(), self.differences.len());
        let Self { jobs, kills, compared, .. } = *self;
        Piece { seed, seconds: length.as_secs(), jobs, faults, kills, compared, differences }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let faults: usize = self.faults.values().sum();
        writeln!(f, "{} jobs, {faults} faults, of which {} kill processes:", self.jobs, self.kills)?;
        self.faults.iter().try_for_each(|(fault, times)| writeln!(f, "  {times:>6}  {fault}"))?;
        write!(f, "{} tasks compared, {} differences", self.compared, self.differences.len())?;
        self.differences.iter().try_for_each(|difference| write!(f, "\n  {difference}"))
    }
}

/// Runs jobs and faults for `length`, waits until all work has ended, and compares the ledgers. Equal seeds give equal
/// faults, but timing decides what they meet. `progress` gets a line of progress about once a minute.
///
/// # Errors
/// The cluster does not start, or does not come back after a fault.
pub fn soak(layer: Layer, length: Duration, seed: u64, progress: &mut dyn FnMut(&str)) -> Result<Report> {
    let builder = Cluster::builder(NODES).layer(layer).controller(manager::CONFIGURATION).controller(jobs::RELEASE);
    let builder = builder.script("prolog", jobs::SCRIPT, WORK).script("epilog", jobs::SCRIPT, WORK);
    let cluster = builder.build()?;
    cluster.manage("")?;
    cluster.controller()?.write_file(jobs::R, manager::FOUR.r)?;
    cluster.bed().boot()?;
    cluster.wait_online()?;
    let (mut report, ends) = (Report::default(), AtomicBool::new(false));
    let names = std::thread::scope(|scope| -> Result<_> {
        let driver = scope.spawn(|| jobs::drive(&cluster, AT_ONCE, &ends, STUCK));
        let struck = strikes(&cluster, length, seed, &mut report, progress);
        ends.store(true, Ordering::SeqCst);
        let names = driver.join().map_err(|_| anyhow!("the driver of the jobs panicked"))?;
        struck.map(|()| names)
    })?;
    report.jobs = names.len();
    cluster.wait_online()?;
    cluster.bed().wait_until("no task is open", SOON, || {
        Ok(cluster.perilog(&["--json", "ps"]).is_ok_and(|ps| ps.success() && !ps.stdout.contains("\"job\"")))
    })?;
    (report.compared, report.differences) = jobs::judge(&cluster, &names, &[])?;
    Ok(report)
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
        let Fault { name, kills, .. } = *draws.one_of(&FAULTS);
        let number = report.faults.values().sum::<usize>();
        strike::strike(cluster, name, &mut draws).with_context(|| format!("fault {number}: {name}"))?;
        *report.faults.entry(name).or_default() += 1;
        report.kills += usize::from(kills);
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
