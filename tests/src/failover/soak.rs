//! A soak of two hosts: jobs in flight, and one fault after the other. Afterwards the ledgers of scripts and hooks show
//! what happened.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, anyhow};

use super::{CONTROLLER, Failover, Measured, now};
use crate::clock::{Stopwatch, pause};
use crate::cluster::Cluster;
use crate::draws::Draws;
use crate::layer::Layer;
use crate::manager;
use crate::soak::jobs;

const NODES: usize = 4;
/// Faults that a soak draws from. Those that move the controller are more than half.
const FAULTS: [&str; 10] = [
    "kill -9",
    "SIGSTOP",
    "restart",
    "move",
    "move",
    "power cut",
    "power cut",
    "cut from nodes",
    "cut from the other host",
    "cut from both",
];
/// Seconds to the next Start from which on a soak shows what the hosts logged: a move takes some fifteen.
const SLOW: f64 = 45.0;
/// Number of jobs that are not complete at a time.
const AT_ONCE: usize = 5;
/// Time without the completion of a job after which a soak gives up.
const STUCK: Duration = Duration::from_secs(300);

/// Result of a soak: counts of faults and moves, times until the next Start, and the violations of the soak's rules.
#[derive(Debug, Default)]
pub struct Report {
    pub jobs: usize,
    /// Number of moves of the controller from one host to the other.
    pub moves: usize,
    /// Number of requests that the power switch carried out.
    pub fenced: usize,
    /// Number of compared tasks (action, job, attempt, node).
    pub compared: usize,
    /// Times until the next Start by fault, and whether the fault moved the controller.
    pub times: BTreeMap<(&'static str, bool), Vec<Measured>>,
    pub differences: Vec<String>,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let faults: usize = self.times.values().map(Vec::len).sum();
        let Self { jobs, moves, fenced, compared, differences, .. } = self;
        writeln!(f, "{jobs} jobs, {faults} faults, {moves} moves, {fenced} times fenced")?;
        writeln!(f, "seconds from the fault to the next Start (on the last node):")?;
        writeln!(f, "  {:34} {:>5}  {:>14} {:>14} {:>14}", "fault", "times", "least", "median", "most")?;
        for ((fault, moved), times) in &self.times {
            let column = |of: fn(&Measured) -> f64| {
                let mut column: Vec<f64> = times.iter().map(of).collect();
                column.sort_by(f64::total_cmp);
                column
            };
            let (first, all) = (column(|time| time.first), column(|time| time.all));
            let cell = |index: usize| match (first.get(index), all.get(index)) {
                (Some(first), Some(all)) => format!("{first:.2} ({all:.2})"),
                _ => String::new(),
            };
            let (middle, last) = (times.len() / 2, times.len().saturating_sub(1));
            let name = format!("{fault}{}", if *moved { ", moved" } else { "" });
            writeln!(f, "  {name:34} {:>5}  {:>14} {:>14} {:>14}", times.len(), cell(0), cell(middle), cell(last))?;
        }
        write!(f, "{compared} tasks compared, {} differences", differences.len())?;
        differences.iter().try_for_each(|difference| write!(f, "\n  {difference}"))
    }
}

/// Runs jobs and faults for `length`, waits until all work has ended, and compares the ledgers. Equal seeds give equal
/// faults, but timing decides what they meet. `progress` gets a line of progress about once a minute.
///
/// # Errors
/// The cluster does not start, or does not come back after a fault.
pub fn soak(layer: Layer, length: Duration, seed: u64, progress: &mut dyn FnMut(&str)) -> Result<Report> {
    let builder = Cluster::builder(NODES).layer(layer).controller(manager::CONFIGURATION).controller(jobs::RELEASE);
    let builder = builder.script("prolog", jobs::SCRIPT, jobs::WORK).script("epilog", jobs::SCRIPT, jobs::WORK);
    let failover = Failover::boot_with(builder, |cluster| {
        cluster.manage("")?;
        cluster.hosts().iter().try_for_each(|host| host.write_file(jobs::R, manager::FOUR.r))
    })?;
    let (mut report, ends) = (Report::default(), AtomicBool::new(false));
    let (names, probes) = std::thread::scope(|scope| -> Result<_> {
        let driver = scope.spawn(|| jobs::drive(failover.cluster(), AT_ONCE, &ends, STUCK));
        let probes = strikes(&failover, length, seed, &mut report, progress);
        ends.store(true, Ordering::SeqCst);
        let names = driver.join().map_err(|_| anyhow!("the driver of the jobs panicked"))?;
        Ok((names, probes?))
    })?;
    report.jobs = names.len();
    report.fenced = failover.fenced().len();
    failover.wait("no task is open", || {
        Ok(failover.cluster().perilog(&["--json", "ps"]).is_ok_and(|ps| ps.success() && !ps.stdout.contains("\"job\"")))
    })?;
    // The consequences of the last fault may still be to come.
    failover.settled()?;
    (report.compared, report.differences) = jobs::judge(failover.cluster(), &names, &probes)?;
    Ok(report)
}

/// Strikes one time after the other; returns the jobs with which it measured.
fn strikes(
    failover: &Failover,
    length: Duration,
    seed: u64,
    report: &mut Report,
    progress: &mut dyn FnMut(&str),
) -> Result<Vec<String>> {
    let (mut draws, mut probes) = (Draws(seed), Vec::new());
    let (watch, mut reported) = (Stopwatch::start(), Stopwatch::start());
    while watch.elapsed() < length {
        // Faults meet jobs at every stage.
        pause(Duration::from_millis(200 + draws.below(2_000)));
        let fault = FAULTS[usize::try_from(draws.below(FAULTS.len() as u64))?];
        let probe = format!("m{}", probes.len());
        let active = failover.settled()?;
        // An operator has looked at the fault before: its starts do not count for systemd's limit.
        active.systemctl(&["reset-failed", CONTROLLER])?;
        let before = active.name().to_owned();
        let from = now()?;
        strike(failover, fault).with_context(|| format!("fault {}: {fault}", probes.len()))?;
        let measured = failover.measure(from, &probe).with_context(|| format!("after {fault} of {before}"))?;
        probes.push(probe);
        failover.join();
        if measured.first > SLOW {
            let (cut, log) = (failover.power.last(), logged(failover, now()? - from));
            progress(&format!("slow, {fault} of {before}: {measured}; the last power cut took {cut:.1?}\n{log}"));
        }
        if fault == "move" {
            failover.wait_settled()?;
            failover.clear()?;
        }
        let active = failover.settled().with_context(|| format!("after {fault} of {before}"))?;
        let moved = active.name() != before;
        report.moves += usize::from(moved);
        report.times.entry((fault, moved)).or_default().push(measured);
        if reported.elapsed() > Duration::from_secs(60) {
            progress(&format!("{} faults, {} moves; {fault}: {measured}", probes.len(), report.moves));
            reported = Stopwatch::start();
        }
    }
    Ok(probes)
}

/// Returns what the cluster manager and the controller logged on both hosts within the last seconds.
fn logged(failover: &Failover, seconds: f64) -> String {
    let command = format!(
        "journalctl --no-pager -o short-precise --since '{} seconds ago' -u pacemaker -u corosync \
         -u perilog-controller",
        seconds.ceil()
    );
    let hosts = failover.cluster().hosts().iter();
    hosts
        .map(|host| format!("== {}\n{}", host.name(), host.sh(&command).unwrap_or_else(|why| why.to_string())))
        .collect()
}

fn strike(failover: &Failover, fault: &str) -> Result<()> {
    let active = failover.active()?;
    match fault {
        "kill -9" => failover.kill(),
        "SIGSTOP" => failover.freeze(),
        "restart" => failover.restart(),
        "move" => failover.move_away(active),
        "power cut" => failover.power_cut(active),
        "cut from nodes" => failover.cut_from_nodes(active),
        "cut from the other host" => failover.cut_between_hosts(),
        _ => failover.cut_from_all(active),
    }
}
