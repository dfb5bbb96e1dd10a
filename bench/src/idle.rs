//! Cost of a connected idle agent: TLS is up, one task was run and acknowledged. Measured from outside only, through
//! /proc, which wakes no process.

use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::noise::{Noise, machine};
use crate::process::{Memory, switched, voluntary_switches};
use crate::unit::NodeBed;
use crate::unit::node::{agent, run_systemctl};
use perilog_bench::options::Options;
use perilog_bench::report::{Table, progress};

/// Target (docs/performance.md): maximum number of an idle agent's voluntary context switches in 120 s.
const MOST_SWITCHES: u64 = 2;
/// Target: maximum memory of an idle agent, in KiB.
const MOST_KIB: u64 = 8 * 1024;
/// Rest after the task, until its effects have ended: the status line for systemctl, and a worker thread that ends
/// after 10 s without work.
const REST: Duration = Duration::from_secs(15);

pub(crate) fn run(options: &Options) -> Result<Value> {
    NodeBed::boot()?.run("node-idle", options)
}

pub(crate) fn on_node(options: &Options) -> Result<Value> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(measure(options.number("seconds", 120)))
}

async fn measure(seconds: usize) -> Result<Value> {
    let agent = agent().await?;
    agent.task(1).await?;
    agent.forget(1..2).await?;
    tokio::time::sleep(REST).await;
    let pid: u32 = run_systemctl(&["show", "--property=MainPID", "--value", "perilog-agent.service"]).await?.parse()?;
    progress(&format!("{seconds} s"));
    let mut table = Table::new(&["connected agent, nothing to do", ""]);
    let noise = Noise::begin()?;
    let before = voluntary_switches(pid)?;
    tokio::time::sleep(Duration::from_secs(seconds.try_into().context("seconds")?)).await;
    let after = voluntary_switches(pid)?;
    let (threads, switches) = (after.len(), switched(&before, &after));
    let memory = Memory::of(pid)?;
    for (name, value) in [
        ("threads", threads as u64),
        ("seconds", seconds as u64),
        ("voluntary switches, all threads", switches),
        ("VmRSS, KiB", memory.rss),
        ("of it anonymous, KiB", memory.anonymous),
        ("of it files, KiB", memory.rss.saturating_sub(memory.anonymous)),
        ("PSS, KiB", memory.pss),
    ] {
        table.row(name, [value.to_string()]);
    }
    // A shorter run has no more switches than the whole.
    table.target(
        "voluntary switches",
        &format!("{switches} in {seconds} s"),
        "most 2 in 120 s",
        switches <= MOST_SWITCHES,
    );
    table.target("RSS", &format!("{} KiB", memory.rss), "most 8192 KiB", memory.rss <= MOST_KIB);
    let noise = noise.end(&mut table)?;
    Ok(json!({
        "bench": "idle", "machine": machine(), "seconds": seconds, "threads": threads, "voluntary_switches": switches,
        "memory": memory.json(), "noise": noise, "table": table.text(),
    }))
}
