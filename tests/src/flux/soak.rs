//! A soak under a real Flux with the edge: jobs of one to four nodes, with a fault every few seconds. Afterwards the
//! scripts' ledgers show what happened.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use anyhow::Result;

use super::{Flux, SDEXEC, edge_cluster, watched_by_sdmon};
use crate::clock::{Stopwatch, pause};
use crate::cluster::Cluster;
use crate::draws::Draws;
use crate::layer::Layer;
use crate::ledger::{Ledger, Run};

const NODES: u64 = 4;
/// Maximum number of jobs that wait or run at a time.
const AT_ONCE: usize = 6;
/// Faults that a soak draws from. "leaf" kills the broker of a node, "cancel" cancels a job, and the others kill the
/// named daemons.
const FAULTS: [&str; 9] = [
    "edge",
    "controller",
    "rank 0",
    "rank 0 and edge",
    "rank 0 and leaf",
    "leaf",
    "cancel and leaf",
    "agent",
    "cancel",
];
/// Beginning of a job's task: a process that writes the time, by the ledger's clock, to a file of its own as long as it
/// lives; the time in seconds until its end follows.
const TASK: &str = "mkdir -p -m 1777 /tmp/tasks; mine=/tmp/tasks/$(hostname).$$.$FLUX_JOB_ID
beat() { read now rest </proc/uptime; echo $now >>$mine; sleep 0.1; }
read from rest </proc/uptime; from=${from%.*}; beat; now=$from
while [ $((${now%.*} - from)) -lt $length ]; do beat; done";
/// Reasons of drains by Flux or by the edge that an operator lifts when the node is back.
const PASSING: [&str; 3] = ["before first barrier", "its broker is not online", "tasks of job"];

/// Result of a soak: counts of jobs and faults, and the violations of the soak's rules.
#[derive(Debug, Default)]
pub struct Report {
    pub jobs: usize,
    /// Number of jobs by their result in Flux, such as `COMPLETED`.
    pub results: BTreeMap<String, usize>,
    pub faults: BTreeMap<&'static str, usize>,
    /// Number of compared triples (job, attempt, node) on which a prolog or an epilog ran.
    pub compared: usize,
    /// Number of compared processes of jobs.
    pub tasks: usize,
    pub differences: Vec<String>,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} jobs, {:?}; faults: {:?}", self.jobs, self.results, self.faults)?;
        let (nodes, tasks) = (self.compared, self.tasks);
        write!(f, "{nodes} nodes and {tasks} tasks of jobs compared, {} differences", self.differences.len())?;
        self.differences.iter().try_for_each(|difference| write!(f, "\n  {difference}"))
    }
}

/// Runs jobs and faults for `length`, waits until all work has ended, and checks the scripts' ledgers. Equal seeds give
/// equal random numbers, but timing decides how jobs and faults share them. `sdexec`: Flux runs jobs as units of
/// systemd. `progress` gets a line of progress about once a minute.
///
/// # Errors
/// The cluster does not start, or some work never ended.
pub fn soak(layer: Layer, length: Duration, seed: u64, sdexec: bool, progress: &mut dyn FnMut(&str)) -> Result<Report> {
    let cluster = edge_cluster(usize::try_from(NODES)?).layer(layer).boot()?;
    if sdexec {
        watched_by_sdmon(&cluster)?;
    }
    let flux = Flux::with_edge(&cluster, if sdexec { SDEXEC } else { "" })?;
    for node in cluster.nodes() {
        node.write_file("/run/soak", "")?;
    }
    let (mut report, mut draws) = (Report::default(), Draws(seed));
    let (watch, mut reported) = (Stopwatch::start(), Stopwatch::start());
    while watch.elapsed() < length {
        submit(&flux, &mut draws, &mut report);
        let fault = FAULTS[usize::try_from(draws.below(FAULTS.len() as u64))?];
        *report.faults.entry(fault).or_default() += 1;
        strike(&flux, &cluster, fault, &mut draws)?;
        lift_drains(&flux, &cluster)?;
        if reported.elapsed() > Duration::from_secs(60) {
            progress(&format!("{} jobs, {:?}", report.jobs, report.faults));
            reported = Stopwatch::start();
        }
        // The time between faults is random, too: faults meet jobs at every stage.
        pause(Duration::from_millis(500 + draws.below(4_000)));
    }
    settle(&flux, &cluster)?;
    for result in flux.ask(&["jobs", "-aA", "-no", "{result}", "--count=0"])?.lines() {
        *report.results.entry(result.trim().to_owned()).or_default() += 1;
    }
    let ledger = cluster.ledger()?;
    judge(&ledger, &mut report);
    judge_tasks(&ledger, &tasks(&cluster)?, &mut report);
    let names: std::collections::BTreeSet<&str> = ledger.runs.keys().map(|key| key.job.as_str()).collect();
    for job in names {
        let compared = cluster.compare(job, &[]);
        report.differences.extend(match compared {
            Ok(compared) => compared.faults(),
            Err(error) => vec![format!("{job}: {error:#}")],
        });
    }
    if let Err(error) = flux.assert_idle() {
        report.differences.push(format!("{error:#}"));
    }
    Ok(report)
}

/// Submits jobs until [`AT_ONCE`] jobs wait or run. Does nothing if Flux does not answer.
fn submit(flux: &Flux<'_>, draws: &mut Draws, report: &mut Report) {
    let Ok(active) = flux.ask(&["jobs", "-A", "-no", "{id.f58plain}"]) else { return };
    for _ in active.lines().count()..AT_ONCE {
        let nodes = 1 + draws.below(NODES);
        // Some tasks ignore the signals by which Flux, or the end of their shell, asks them to end.
        let task = match draws.below(3) {
            0 => format!("trap '' TERM HUP PIPE; length={}; {TASK}", 4 + draws.below(12)),
            _ => format!("length={}; {TASK}", draws.below(4)),
        };
        let urgency = format!("--urgency={}", 1 + draws.below(30));
        if flux.submit(usize::try_from(nodes).unwrap_or(1), &[&urgency], &["sh", "-c", &task]).is_ok() {
            report.jobs += 1;
        }
    }
}

fn strike(flux: &Flux<'_>, cluster: &Cluster, fault: &str, draws: &mut Draws) -> Result<()> {
    let any = usize::try_from(draws.below(NODES))?;
    let synced = draws.below(2) == 0;
    match fault {
        "edge" => flux.kill_edge(),
        "controller" => Cluster::kill_unit(cluster.controller()?, "perilog-controller.service"),
        "rank 0" | "rank 0 and edge" | "rank 0 and leaf" => {
            if fault == "rank 0 and edge" {
                flux.kill_edge()?;
            }
            if synced {
                flux.ask(&["kvs", "sync"])?;
            }
            if fault == "rank 0 and leaf" {
                Cluster::kill_unit(cluster.node(any)?, "flux.service")?;
            }
            flux.kill_rank_0()?;
            wait_up(flux, cluster)
        }
        "leaf" | "cancel and leaf" => {
            if fault != "leaf" {
                cancel(flux, draws)?;
            }
            Cluster::kill_unit(cluster.node(any)?, "flux.service")?;
            // Returns at once if Flux still counts the killed broker as online: nothing shows that Flux has yet to
            // notice a loss.
            wait_up(flux, cluster)
        }
        "agent" => Cluster::kill_unit(cluster.node(any)?, "perilog-agent.service"),
        _ => cancel(flux, draws),
    }
}

fn cancel(flux: &Flux<'_>, draws: &mut Draws) -> Result<()> {
    let active = flux.ask(&["jobs", "-A", "-no", "{id.f58plain}"])?;
    let jobs: Vec<&str> = active.lines().map(str::trim).collect();
    if let Some(job) = jobs.get(usize::try_from(draws.below(jobs.len().max(1) as u64))?) {
        // The job may have ended by now.
        flux.run_as("flux", &["cancel", job])?;
    }
    Ok(())
}

/// Waits until every broker has joined. As an operator would, starts a broker that ended for good: one whose start
/// failed because rank 0 died meanwhile (`RestartPreventExitStatus` of flux.service).
fn wait_up(flux: &Flux<'_>, cluster: &Cluster) -> Result<()> {
    const START: &str = "state=$(systemctl is-active flux); [ $state = active ] || [ $state = activating ] || \
                         systemctl start flux";
    let all = cluster.bed().nodes().len().to_string();
    flux.wait("every broker is online", |flux| {
        for node in cluster.bed().nodes() {
            node.sh(START)?;
        }
        Ok(flux.online()? == all)
    })
}

/// Lifts drains whose reason is a script's failure, as an operator would.
fn lift_drains(flux: &Flux<'_>, cluster: &Cluster) -> Result<()> {
    for (node, reason) in flux.drained().unwrap_or_default() {
        if reason.contains("exit ") {
            // The controller may not answer yet.
            cluster.perilog(&["undrain", &node])?;
        } else if PASSING.iter().any(|passing| reason.contains(passing)) {
            flux.run_as("flux", &["resource", "undrain", &node])?;
        }
    }
    Ok(())
}

/// Lets scripts end at once; waits until all killed daemons are back, no job is active and no node is drained.
fn settle(flux: &Flux<'_>, cluster: &Cluster) -> Result<()> {
    for node in cluster.nodes() {
        node.sh("rm -f /run/soak")?;
    }
    wait_up(flux, cluster)?;
    cluster.wait_online()?;
    flux.wait_edge()?;
    flux.wait("no job is active", |flux| {
        lift_drains(flux, cluster)?;
        Ok(flux.ask(&["jobs", "-A", "-no", "{id.f58plain}"])?.trim().is_empty())
    })?;
    flux.wait("no node is drained", |flux| {
        lift_drains(flux, cluster)?;
        Ok(flux.drained()?.is_empty())
    })
}

/// Adds to `report` each violation of three rules that the ledgers show. Each script ran once and ended. Each prolog
/// has an epilog. No job began on a node before the epilog of the previous job had ended there.
fn judge(ledger: &Ledger, report: &mut Report) {
    let mut by_node: BTreeMap<(String, String, u32), Vec<(&str, &Run)>> = BTreeMap::new();
    for (key, runs) in &ledger.runs {
        if runs.len() > 1 {
            report.differences.push(format!("{key}: ran {} times", runs.len()));
        }
        for run in runs {
            if run.ended.is_none() {
                report.differences.push(format!("{key}: began and never ended"));
            }
            let of_node = (key.job.clone(), key.attempt.clone(), key.rank);
            by_node.entry(of_node).or_default().push((&key.action, run));
        }
    }
    report.compared = by_node.len();
    // Node -> (begin, end, owner).
    let mut spans: BTreeMap<&str, Vec<(f64, f64, String)>> = BTreeMap::new();
    for ((job, attempt, rank), runs) in &by_node {
        let has = |action: &str| runs.iter().any(|(of, _)| *of == action);
        if has("prolog") && !has("epilog") {
            report.differences.push(format!("job {job} attempt {attempt} rank {rank}: a prolog and no epilog"));
        }
        let begin = runs.iter().map(|(_, run)| run.started).fold(f64::MAX, f64::min);
        let end = runs.iter().map(|(_, run)| run.ended.map_or(run.started, |(at, _)| at)).fold(0.0, f64::max);
        let node = runs.first().map_or("", |(_, run)| run.node.as_str());
        spans.entry(node).or_default().push((begin, end, format!("job {job} attempt {attempt}")));
    }
    for (node, mut spans) in spans {
        spans.sort_by(|(a, ..), (b, ..)| a.total_cmp(b));
        for pair in spans.windows(2) {
            let [(_, end, first), (begin, _, second)] = pair else { continue };
            if begin < end {
                report.differences.push(format!("{node}: {second} began at {begin}, before {first} ended at {end}"));
            }
        }
    }
}

/// Span in which a process of a job lived on a node.
#[derive(Debug)]
struct Task {
    node: String,
    job: String,
    first: f64,
    last: f64,
}

/// Reads the spans of all processes of jobs from the nodes.
fn tasks(cluster: &Cluster) -> Result<Vec<Task>> {
    let mut tasks = Vec::new();
    for node in cluster.nodes() {
        // SIGKILL may have cut the last line of a file, so the line before it counts then.
        let lines = node.sh("cd /tmp/tasks 2>/dev/null || exit 0; for file in *; do \
             echo $file $(head -n 1 $file) $(grep -x '[0-9]*[.][0-9][0-9]' $file | tail -n 1); done")?;
        for line in lines.lines() {
            let mut words = line.split_whitespace();
            let (Some(file), Some(first), Some(last)) = (words.next(), words.next(), words.next()) else { continue };
            let job = super::plain(file.rsplit('.').next().unwrap_or_default());
            tasks.push(Task { node: node.name().to_owned(), job, first: first.parse()?, last: last.parse()? });
        }
    }
    Ok(tasks)
}

/// Adds to `report` each script that ran on a node beside a process of a job: jobs have whole nodes.
fn judge_tasks(ledger: &Ledger, tasks: &[Task], report: &mut Report) {
    report.tasks = tasks.len();
    for (key, run) in ledger.runs.iter().flat_map(|(key, runs)| runs.iter().map(move |run| (key, run))) {
        let end = run.ended.map_or(f64::MAX, |(at, _)| at);
        let beside = |task: &&Task| task.node == run.node && task.first < end && run.started < task.last;
        for task in tasks.iter().filter(beside) {
            report.differences.push(format!(
                "{}: {key} ran from {} to {end}, beside a task of job {} that lived from {} to {}",
                run.node, run.started, task.job, task.first, task.last
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_beside_a_script_is_found() {
        let mut ledger = Ledger::default();
        ledger.add("n0", "start 5 boot a 1 epilog 1 10-held 7 -\nend 8 boot a 1 epilog 1 10-held 7 0\n").unwrap();
        for (node, first, last, expect) in
            [("n0", 1.0, 5.0, 0), ("n0", 1.0, 5.1, 1), ("n0", 6.0, 7.0, 1), ("n0", 8.0, 9.0, 0), ("n1", 6.0, 7.0, 0)]
        {
            let mut report = Report::default();
            let task = Task { node: node.to_owned(), job: "a".to_owned(), first, last };
            judge_tasks(&ledger, &[task], &mut report);
            assert_eq!(report.differences.len(), expect, "{node} {first} {last} {report}");
        }
    }

    #[test]
    fn each_kind_of_difference_is_found() {
        let line = |kind: &str, at: u32, job: &str, action: &str, pid: u32| {
            format!("{kind} {at} boot {job} 1 {action} 1 10-held {pid} {}\n", if kind == "end" { "0" } else { "-" })
        };
        let run = |from: u32, to: u32, job: &str, action: &str, pid: u32| {
            line("start", from, job, action, pid) + &line("end", to, job, action, pid)
        };
        for (text, expect) in [
            (run(1, 2, "a", "prolog", 1) + &run(3, 4, "a", "epilog", 2), ""),
            (run(1, 2, "a", "prolog", 1), "a prolog and no epilog"),
            (run(1, 2, "a", "epilog", 1) + &run(3, 4, "a", "epilog", 2), "ran 2 times"),
            (line("start", 1, "a", "epilog", 1), "never ended"),
            (
                run(1, 2, "a", "prolog", 1) + &run(5, 9, "a", "epilog", 2) + &run(8, 9, "b", "epilog", 3),
                "job b attempt 1 began at 8",
            ),
        ] {
            let (mut ledger, mut report) = (Ledger::default(), Report::default());
            ledger.add("n0", &text).unwrap();
            judge(&ledger, &mut report);
            assert_eq!(report.differences.is_empty(), expect.is_empty(), "{text}: {report}");
            assert!(report.differences.iter().all(|found| found.contains(expect)), "{text}: {report}");
        }
    }
}
