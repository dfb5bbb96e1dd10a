//! Measures what a job waits for its prologs under a real Slurm, from the allocation until slurmctld knows that all
//! prologs are done. The script does nothing, and is run in three ways, which take turns job by job; the first way
//! comes twice in each turn, and the difference is noise.
//!
//! | way | what slurmd executes |
//! |---|---|
//! | plain | the script |
//! | systemd-run | `systemd-run --wait --quiet` with the script: a transient unit of systemd, and nothing of perilog |
//! | perilog | the hook, which has the agent run the script |
//!
//! In all ways slurmd's Prolog is one shell script, which reads the way and executes the rest. The times are those of
//! slurmctld's log, in whole milliseconds.

use anyhow::{Context, Result, ensure};
use perilog_bench::options::Options;
use perilog_bench::report::{Table, progress};
use perilog_bench::stats::{Samples, figure};
use perilog_tests::slurm::Slurm;
use perilog_tests::{Cluster, Layer};
use serde_json::{Value, json};

use crate::noise::{Noise, machine};

const NODES: usize = 4;
const SIZES: [usize; 2] = [1, NODES];
const WAYS: [&str; 4] = ["plain", "systemd-run", "perilog", "plain again"];
/// Number of turns at the begin that the bench does not count.
const WARM_UP: usize = 2;
/// The no-op script on each node.
const SCRIPT: &str = "/etc/slurm/noop";
/// Slurm's Prolog on each node.
const PROLOG: &str = "#!/bin/sh
read -r way </etc/slurm/way
case $way in
plain*) exec /etc/slurm/noop ;;
systemd-run) exec /usr/bin/systemd-run --wait --quiet /etc/slurm/noop ;;
*) exec /usr/libexec/perilog/slurm/prolog ;;
esac
";
/// Lines of slurm.conf: the prolog, and a log of slurmctld that names each allocation and each end of a prolog.
const LINES: &str = "Prolog=/etc/slurm/prolog\nSlurmctldLogFile=/var/log/slurmctld.log\nDebugFlags=\n";

pub(crate) fn run(options: &Options) -> Result<Value> {
    let samples = options.number("samples", 40);
    let program = std::env::current_exe().context("the path of this program")?;
    let layer = Layer::Built(program.parent().context("a directory of programs")?.to_owned());
    let agent =
        "env-allow = [\"SLURM_JOB_ID\", \"SLURM_JOB_USER\", \"SLURM_JOB_RESTART_COUNT\", \"SLURMD_NODENAME\"]\n";
    let cluster = Cluster::builder(NODES).layer(layer).agent(agent).build()?;
    let nothing = std::fs::read("/bin/true").context("reading /bin/true")?;
    for node in cluster.nodes() {
        node.write_file("/etc/perilog/agent.d/prolog.toml", "[action.prolog]\n")?;
        node.write_script("/etc/perilog/prolog.d/10-noop", &nothing)?;
        node.write_script(SCRIPT, &nothing)?;
        node.write_script("/etc/slurm/prolog", PROLOG)?;
    }
    cluster.bed().boot()?;
    cluster.wait_online()?;
    let slurm = Slurm::start(&cluster, LINES)?;
    let mut taken: [[Samples; WAYS.len()]; SIZES.len()] = Default::default();
    let mut noise = Noise::begin()?;
    for (size, taken) in SIZES.into_iter().zip(&mut taken) {
        progress(&format!("{size} nodes, {samples} jobs in each way"));
        for turn in 0..WARM_UP + samples {
            // Each way comes as often in each place.
            for way in (0..WAYS.len()).map(|place| (turn + place) % WAYS.len()) {
                noise.calibrate();
                let elapsed_ms = one(&cluster, &slurm, WAYS[way], size)?;
                if turn >= WARM_UP {
                    taken[way].push(elapsed_ms);
                }
            }
        }
    }
    report(&taken, noise)
}

/// Runs one job on `size` nodes with its prologs run in this way. Returns the milliseconds from its allocation until
/// all of its prologs are done.
fn one(cluster: &Cluster, slurm: &Slurm<'_>, way: &str, size: usize) -> Result<f64> {
    cluster.nodes().iter().try_for_each(|node| node.write_file("/etc/slurm/way", format!("{way}\n")))?;
    let job = slurm.submit(size, "true")?;
    slurm.wait_job(&job, "COMPLETED")?;
    (0..NODES).try_for_each(|rank| slurm.wait_node(rank, "IDLE"))?;
    let log = slurm.control()?.read_file("/var/log/slurmctld.log")?;
    let of = |words: &str| {
        let job = [format!("JobId={job} "), format!("JobId={job}:")];
        let lines = log.lines().filter(|line| line.contains(words) && job.iter().any(|job| line.contains(job)));
        lines.filter_map(at_ms).collect::<Vec<_>>()
    };
    let (began, ended) = (of("Allocate"), of("_slurm_rpc_complete_prolog"));
    ensure!(began.len() == 1 && ended.len() == size, "job {job}: {began:?}, {ended:?} in\n{log}");
    let last = ended.into_iter().max().unwrap_or_default();
    Ok((last + DAY_MS - began[0]).rem_euclid(DAY_MS) as f64)
}

const DAY_MS: i64 = 86_400_000;

/// Returns the time of day in milliseconds at the begin of a line, such as `[2026-01-02T03:04:05.678] sched: ...`.
fn at_ms(line: &str) -> Option<i64> {
    let (time, _) = line.strip_prefix('[')?.split_once(']')?;
    let (_, clock) = time.split_once('T')?;
    let mut parts = clock.split([':', '.']).map(|part| part.parse::<i64>().ok());
    let mut next = || parts.next().flatten();
    Some(((next()? * 60 + next()?) * 60 + next()?) * 1000 + next()?)
}

fn report(taken: &[[Samples; WAYS.len()]], noise: Noise) -> Result<Value> {
    let mut table = Table::new(&["", "n", "p50", "p90", "p99"]);
    let mut sizes = Vec::new();
    for (ranks, ways) in SIZES.iter().zip(taken) {
        for (name, samples) in WAYS.iter().zip(ways) {
            table.row(&format!("{ranks} nodes, {name}, ms"), samples.cells());
        }
        let [plain, unit, perilog, again] = ways;
        let (all, of_systemd) = (perilog.median() - plain.median(), unit.median() - plain.median());
        table.note(&format!(
            "{ranks} nodes: perilog is {} x plain, and {} x a bare systemd-run; of the {} ms beyond plain, systemd-run \
             takes {} (A/A {})",
            figure(perilog.over(plain)),
            figure(perilog.over(unit)),
            figure(all),
            figure(of_systemd),
            figure(again.over(plain))
        ));
        let raw = WAYS.iter().zip(ways).map(|(name, samples)| json!({"way": name, "ms": samples.json()}));
        sizes.push(json!({"nodes": ranks, "ways": raw.collect::<Vec<_>>()}));
    }
    let noise = noise.end(&mut table)?;
    Ok(json!({"bench": "slurm", "machine": machine(), "sizes": sizes, "noise": noise, "table": table.text()}))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_slurmctlds_log_are_read() {
        let line = "[2026-01-02T03:04:05.678] sched: Allocate JobId=2 NodeList=n0 #CPUs=1 Partition=all";
        assert_eq!((at_ms(line), at_ms("sched: Allocate")), (Some(11_045_678), None));
    }
}
