//! The jobs of a soak: a resource manager that adds jobs, has their prologs and epilogs run and waits for their
//! release, whichever host the controller is on. It repeats what was not acknowledged, as a site's hooks do.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Result;

use super::Failover;
use crate::clock::{Stopwatch, pause};
use crate::command::Running;
use crate::ledger;
use crate::manager::{FOUR, Received};

/// Script of prolog and epilog in a soak: work of random length, which ends well.
pub(super) const WORK: &str = "sleep $(draw 0 0.1 0.5 1 2 4)";
pub(super) const SCRIPT: &str = "10-work";
/// Lines of controller.toml with which each rank is released after its own epilog.
pub(super) const RELEASE: &str = "[action.epilog]\nrelease = \"0\"\n";
pub(super) const R: &str = "/root/R.json";

/// Number of jobs that are not complete at a time.
const AT_ONCE: usize = 5;
/// Time between two looks at the release notices, a growing file.
const NOTICES: Duration = Duration::from_secs(1);
/// Pause between two rounds over the jobs, which each start programs.
const ROUND: Duration = Duration::from_millis(100);
/// Time limit of a command that does not wait for scripts; a stopped controller answers nothing.
const ANSWER: &str = "5";

/// How far a job is, by what the controller has acknowledged.
#[derive(Debug)]
enum Stage {
    New,
    Added(Option<Running>),
    Ran,
    Finished,
}

/// Adds and drives jobs until `ends`, then until each job is complete; returns the names of all jobs. Gives up after
/// `limit` without a completed job.
pub(super) fn drive(failover: &Failover, ends: &AtomicBool, limit: Duration) -> Result<Vec<String>> {
    let (mut names, mut open) = (Vec::new(), BTreeMap::new());
    let (mut inspected, mut progress) = (Stopwatch::start(), Stopwatch::start());
    while !(ends.load(Ordering::SeqCst) && open.is_empty()) && progress.elapsed() < limit {
        while !ends.load(Ordering::SeqCst) && open.len() < AT_ONCE {
            let name = format!("j{}", names.len());
            open.insert(name.clone(), Stage::New);
            names.push(name);
        }
        for (name, stage) in &mut open {
            step(failover, name, stage);
        }
        if inspected.elapsed() > NOTICES {
            // The host with the notices may just lose its power.
            if let Ok(received) = failover.cluster().received() {
                let before = open.len();
                open.retain(|name, _| !received.complete(name, &FOUR).unwrap_or(false));
                if open.len() < before {
                    progress = Stopwatch::start();
                }
            }
            inspected = Stopwatch::start();
        }
        pause(ROUND);
    }
    Ok(names)
}

/// Takes a job's next step if the controller acknowledges it.
fn step(failover: &Failover, name: &str, stage: &mut Stage) {
    let succeeds = |arguments: &[&str]| {
        let command = [&["timeout", ANSWER, "perilog", "--quiet"], arguments].concat();
        failover.active().and_then(|host| host.run(&command)).is_ok_and(|output| output.success())
    };
    match stage {
        Stage::New if succeeds(&["job", "add", name, "--R", R]) => *stage = Stage::Added(None),
        Stage::Added(client) => {
            let run = || failover.cluster().start_perilog(&["--quiet", "run", "prolog", "--job", name]).ok();
            match client {
                None => *client = run(),
                Some(running) => match running.output() {
                    Ok(output) if output.success() => *stage = Stage::Ran,
                    Ok(output) if output.status.is_none() => {}
                    _ => *client = run(),
                },
            }
        }
        Stage::Ran if succeeds(&["job", "finish", name]) => *stage = Stage::Finished,
        _ => {}
    }
}

/// Compares the controller's view of the jobs with the ledgers of scripts and hooks. Returns the number of compared
/// tasks and the differences.
pub(super) fn judge(failover: &Failover, jobs: &[String], probes: &[String]) -> Result<(usize, Vec<String>)> {
    let cluster = failover.cluster();
    let (ledger, received): (_, Received) = (cluster.ledger()?, cluster.received()?);
    let (mut compared, mut differences) = (0, Vec::new());
    let both: &[(&str, &[&str])] = &[("prolog", &[SCRIPT]), ("epilog", &[SCRIPT])];
    let all = jobs.iter().map(|job| (job, both)).chain(probes.iter().map(|probe| (probe, &both[..1])));
    for (job, scripts) in all {
        let Some(view) = cluster.known_job(job)? else {
            differences.push(format!("job {job}: the controller has lost it"));
            continue;
        };
        let mut of_job = ledger.clone();
        of_job.runs.retain(|key, _| key.job == **job);
        let comparison = ledger::compare(&of_job, &ledger::known(&view), scripts);
        compared += comparison.len();
        differences.extend(comparison.faults());
    }
    for job in jobs {
        differences.extend(received.faults(job, &FOUR).into_iter().map(|fault| format!("job {job}: {fault}")));
        if !received.complete(job, &FOUR)? {
            differences.push(format!("job {job}: not all of it is released"));
        }
        for release in received.once(job) {
            let late = ledger.of_job(job).into_iter().filter(|(key, run)| {
                let ended = run.ended.map_or(f64::MAX, |(at, _)| at);
                release.ranks.contains(key.rank) && ended > release.at
            });
            differences.extend(late.map(|(key, _)| format!("{key}: freed early, at {}", release.at)));
        }
    }
    Ok((compared, differences))
}
