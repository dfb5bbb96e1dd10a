//! The jobs of a soak: a resource manager that adds jobs, has their prologs and epilogs run and waits for their
//! release, whichever host the controller is on. It repeats what was not acknowledged, as a site's hooks do.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Result;

use crate::clock::{Stopwatch, pause};
use crate::cluster::Cluster;
use crate::command::Running;
use crate::ledger::{self, Known, Ledger};
use crate::manager::{FOUR, Received};

/// Script of prolog and epilog in a soak: work of random length, which ends well.
pub(crate) const WORK: &str = "sleep $(draw 0 0.1 0.5 1 2 4)";
pub(crate) const SCRIPT: &str = "10-work";
/// Lines of controller.toml with which each rank is released after its own epilog.
pub(crate) const RELEASE: &str = "[action.epilog]\nrelease = \"0\"\n";
pub(crate) const R: &str = "/root/R.json";

/// Time between two looks at the release notices, a growing file.
const NOTICES: Duration = Duration::from_secs(1);
/// Pause between two rounds over the jobs, which each start programs.
const ROUND: Duration = Duration::from_millis(100);
/// Exit statuses of `perilog run` that are a verdict of the prolog, and no failure to ask for one: a soak's faults end
/// prologs, and an operator cancels some.
const VERDICTS: [i32; 6] = [0, 1, 3, 4, 5, 6];
/// An outcome that says nothing of the scripts' ends (`ledger::compare`).
const UNJUDGED: &str = "resolved";
/// Time limit of a command that does not wait for scripts; a stopped controller answers nothing.
const ANSWER: &str = "5";

/// How far a job is, by what the controller has acknowledged.
#[derive(Debug)]
enum Stage {
    New,
    /// Added; with the client that waits for its prolog, and the name of the host of the client.
    Added(Option<(String, Running)>),
    Ran,
    Finished,
}

/// Adds and drives jobs, `at_once` at a time, until `ends`, then until each job is complete; returns the names of all
/// jobs. Gives up after `limit` without a completed job.
pub(crate) fn drive(cluster: &Cluster, at_once: usize, ends: &AtomicBool, limit: Duration) -> Vec<String> {
    let (mut names, mut open): (Vec<String>, BTreeMap<String, Stage>) = (Vec::new(), BTreeMap::new());
    let (mut inspected, mut progress) = (Stopwatch::start(), Stopwatch::start());
    while !(ends.load(Ordering::SeqCst) && open.is_empty()) && progress.elapsed() < limit {
        while !ends.load(Ordering::SeqCst) && open.len() < at_once {
            let name = format!("j{}", names.len());
            open.insert(name.clone(), Stage::New);
            names.push(name);
        }
        for (name, stage) in &mut open {
            step(cluster, name, stage);
        }
        if inspected.elapsed() > NOTICES {
            let names: BTreeSet<&str> = open.keys().map(String::as_str).collect();
            // The host with the notices may just lose its power.
            if let Ok(received) = cluster.received_of(&names) {
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
    names
}

/// Takes a job's next step if the controller acknowledges it.
fn step(cluster: &Cluster, name: &str, stage: &mut Stage) {
    let succeeds = |arguments: &[&str]| {
        let command = [&["timeout", ANSWER, "perilog", "--quiet"], arguments].concat();
        cluster.controller().and_then(|host| host.run(&command)).is_ok_and(|output| output.success())
    };
    match stage {
        Stage::New if succeeds(&["job", "add", name, "--R", R]) => *stage = Stage::Added(None),
        Stage::Added(client) => {
            let Ok(host) = cluster.controller().map(|host| host.name().to_owned()) else { return };
            // A client waits on its own host for the controller, which may have moved.
            if client.as_ref().is_some_and(|(of, _)| *of != host) {
                *client = None;
            }
            let run = || Some((host, cluster.start_perilog(&["--quiet", "run", "prolog", "--job", name]).ok()?));
            match client {
                None => *client = run(),
                Some((_, running)) => match running.output() {
                    Ok(output) if output.code().is_some_and(|code| VERDICTS.contains(&code)) => *stage = Stage::Ran,
                    Ok(output) if output.status.is_none() => {}
                    _ => *client = run(),
                },
            }
        }
        Stage::Ran if succeeds(&["job", "finish", name]) => *stage = Stage::Finished,
        _ => {}
    }
}

/// Compares the controller's view of the jobs with the ledgers of scripts and hooks. `probes` are jobs with a prolog
/// alone. Returns the number of compared tasks and the differences.
pub(crate) fn judge(cluster: &Cluster, jobs: &[String], probes: &[String]) -> Result<(usize, Vec<String>)> {
    let (ledger, received): (_, Received) = (cluster.ledger()?, cluster.received()?);
    let boots: BTreeSet<String> = cluster.nodes().iter().map(|node| node.boot_id()).collect::<Result<_>>()?;
    let mut by_job: BTreeMap<String, Ledger> = BTreeMap::new();
    for (key, runs) in ledger.runs {
        by_job.entry(key.job.clone()).or_default().runs.insert(key, runs);
    }
    let (mut compared, mut differences) = (0, Vec::new());
    let both: &[(&str, &[&str])] = &[("prolog", &[SCRIPT]), ("epilog", &[SCRIPT])];
    let all = jobs.iter().map(|job| (job, both)).chain(probes.iter().map(|probe| (probe, &both[..1])));
    for (job, scripts) in all {
        let Some(view) = cluster.known_job(job)? else {
            differences.push(format!("job {job}: the controller has lost it"));
            continue;
        };
        let of_job = by_job.entry(job.clone()).or_default();
        let mut known = ledger::known(&view);
        for known in known.iter_mut().filter(|known| fell(known, of_job, &boots)) {
            known.outcome = UNJUDGED.to_owned();
        }
        let comparison = ledger::compare(of_job, &known, scripts);
        compared += comparison.len();
        differences.extend(comparison.faults().into_iter().map(|fault| match fault.starts_with("job ") {
            true => fault,
            false => format!("job {job}: {fault}"),
        }));
    }
    for job in jobs {
        differences.extend(received.faults(job, &FOUR).into_iter().map(|fault| format!("job {job}: {fault}")));
        if !received.complete(job, &FOUR)? {
            differences.push(format!("job {job}: not all of it is released"));
        }
        let Some(of_job) = by_job.get(job) else { continue };
        for release in received.once(job) {
            let late = of_job.of_job(job).into_iter().filter(|(key, run)| {
                release.ranks.contains(key.rank) && run.ended.is_some_and(|(at, _)| at > release.at)
            });
            differences.extend(late.map(|(key, _)| format!("{key}: freed early, at {}", release.at)));
        }
    }
    Ok((compared, differences))
}

/// Returns `true` if the task is lost with a boot of its node that is over: whether its scripts had ended is then lost,
/// too. `boots` are the present boots of the nodes.
fn fell(known: &Known, ledger: &Ledger, boots: &BTreeSet<String>) -> bool {
    let of_task = ledger
        .runs
        .iter()
        .filter(|(key, _)| (&key.attempt, &key.action, key.rank) == (&known.attempt, &known.action, known.rank));
    known.outcome == "lost" && of_task.flat_map(|(_, runs)| runs).all(|run| !boots.contains(&run.boot))
}
