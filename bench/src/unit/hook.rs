//! Measures `perilog hook slurm-prolog`, the program for which slurmd waits before a job, in turns with
//! `systemd-run --wait`. The hook runs an action with one no-op script; the unit of systemd-run executes `/bin/true`.
//! There is no controller, because a hook needs none.

use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use perilog_host::clock;
use serde_json::{Value, json};
use tokio::process::Command;

use crate::noise::{Noise, machine};
use perilog_bench::options::Options;
use perilog_bench::report::{Table, progress};
use perilog_bench::stats::Samples;

/// Target for a hook (docs/performance.md): maximum ratio of its time to that of `systemd-run --wait`.
const MOST_OVER_SYSTEMD_RUN: f64 = 1.1;
/// Number of turns at the begin that the bench does not count. In a turn, each of [`WAYS`] runs once.
const WARM_UP: usize = 5;
const WAYS: [&str; 3] =
    ["perilog hook slurm-prolog", "systemd-run --wait /bin/true", "systemd-run --wait /bin/true again"];

pub(crate) fn run(options: &Options) -> Result<Value> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(measure(options.number("samples", 300)))
}

async fn measure(samples: usize) -> Result<Value> {
    let mut table = Table::new(&["", "n", "p50", "p90", "p99"]);
    for job in 0..WARM_UP {
        for which in 0..WAYS.len() {
            one(which, job).await?;
        }
    }
    progress(&format!("{samples} turns"));
    let mut noise = Noise::begin()?;
    let mut taken: [Samples; WAYS.len()] = Default::default();
    for turn in 0..samples {
        // Each way comes as often in each place.
        for place in 0..WAYS.len() {
            let which = (turn + place) % WAYS.len();
            noise.calibrate();
            taken[which].push(one(which, WARM_UP + turn).await?);
        }
    }
    for (name, samples) in WAYS.iter().zip(&taken) {
        table.row(&format!("{name}, ms"), samples.cells());
    }
    let [hook, systemd_run, again] = &taken;
    let ratio = hook.over(systemd_run);
    table.target(
        "a hook's p50",
        &hook.beside(systemd_run, again, "systemd-run --wait"),
        "most 1.1 x",
        ratio <= MOST_OVER_SYSTEMD_RUN,
    );
    let noise = noise.end(&mut table)?;
    let raw: Vec<Value> =
        WAYS.iter().zip(&taken).map(|(name, samples)| json!({"way": name, "ms": samples.json()})).collect();
    Ok(json!({
        "bench": "hook", "machine": machine(), "ways": raw, "hook_over_systemd_run": ratio,
        "again_over_systemd_run": again.over(systemd_run), "noise": noise, "table": table.text(),
    }))
}

/// Runs the program of [`WAYS`] with the index `which` once: the hook for the job `job`, or `systemd-run`. Returns the
/// duration in milliseconds.
async fn one(which: usize, job: usize) -> Result<f64> {
    let mut command = Command::new(if which == 0 { "perilog" } else { "systemd-run" });
    match which {
        0 => command
            .args(["hook", "slurm-prolog"])
            .envs([("SLURM_JOB_ID", (job + 1).to_string()), ("SLURM_JOB_UID", "0".to_owned())]),
        _ => command.args(["--wait", "--quiet", "/bin/true"]),
    };
    command.stdin(Stdio::null()).stdout(Stdio::null());
    let began = clock::mono_us();
    let status = command.status().await.with_context(|| format!("running {}", WAYS[which]))?;
    let elapsed = clock::mono_us() - began;
    ensure!(status.success(), "{} ended with {status}", WAYS[which]);
    Ok(elapsed as f64 / 1000.0)
}
