//! Bench of the history. Each controller has a store with a number of finished jobs, one node each: few, many, and few
//! again, which shows the difference between equal measurements. The controllers take turns; each turn makes every
//! request a few times.
//!
//! The figure of a request is CPU time of the controller, all threads, from the scheduler's own count in nanoseconds.
//! The bench also measures the time until a killed controller answers again, and its memory.
//!
//! No node is connected: external actions, which a service outside reports, need none.

mod beside;
mod seed;

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use perilog_host::clock;
use perilog_host::varlink::Client;
use perilog_tests::wait_until;
use serde_json::{Value, json};

use beside::Beside;

use crate::authority;
use crate::controller::Controller;
use crate::noise::{Noise, machine};
use crate::process::{Memory, cpu_ns};
use perilog_bench::options::Options;
use perilog_bench::report::{Table, progress};
use perilog_bench::stats::{Samples, figure};

/// Target (docs/performance.md): maximum ratio of the costs with the longest history to those with the shortest.
const MOST: f64 = 1.1;
/// Kinds of requests that a turn makes, each with the number of times.
const REQUESTS: [(&str, usize); 7] =
    [("write", 20), ("Show", 20), ("Ps", 20), ("Status", 20), ("Why", 20), ("Stats", 1), ("Skew", 1)];
/// Number of kinds, from the first, whose cost the history must not change; the others read the history.
const FLAT: usize = 5;
/// Number of measured restarts of each controller.
const RESTARTS: usize = 3;
/// Time limit for a controller to begin without its nodes, of which none comes, after a start.
const SETTLE: Duration = Duration::from_secs(60);

struct Bench {
    jobs: usize,
    controller: Controller,
    directory: tempfile::TempDir,
    client: Client,
    /// Number of jobs that the bench has added.
    added: usize,
    /// CPU time of each kind of request, microseconds each.
    us: [Samples; REQUESTS.len()],
    /// Time from a kill, and from a signal to end, until the next controller answers.
    restart_ms: [Samples; 2],
    memory: Memory,
}

pub(crate) fn run(options: &Options) -> Result<Value> {
    let sizes = options.list("jobs", &[100, 10_000, 50_000]);
    let few = *sizes.first().context("--jobs FEW,MANY")?;
    let rounds = options.number("rounds", 20);
    let mut noise = Noise::begin()?;
    let mut benches = Vec::new();
    for jobs in sizes.iter().copied().chain([few]) {
        progress(&format!("{jobs} finished jobs"));
        benches.push(Bench::new(jobs)?);
    }
    for bench in &mut benches {
        bench.settle()?;
    }
    for round in 0..rounds {
        progress(&format!("round {} of {rounds}", round + 1));
        noise.calibrate();
        // The order changes with each turn.
        let count = benches.len();
        for at in 0..count {
            benches[(at + round) % count].turn()?;
        }
    }
    let mut table = report(&benches);
    let most = benches.iter_mut().max_by_key(|bench| bench.jobs).context("no controller")?;
    progress(&format!("writes beside others, {} jobs", most.jobs));
    let beside = Beside::measure(most)?;
    beside.report(&mut table);
    let noise = noise.end(&mut table)?;
    let sizes: Vec<Value> = benches.iter().map(Bench::json).collect();
    Ok(json!({"bench": "history", "machine": machine(), "sizes": sizes, "beside": beside.json(), "noise": noise,
               "table": table.text()}))
}

fn report(benches: &[Bench]) -> Table {
    let mut table = Table::new(&["controller CPU of one, us p50"]);
    let (Some(first), Some((again, [.., last]))) = (benches.first(), benches.split_last()) else { return table };
    let heads = benches.iter().map(|of| format!("{} jobs", of.jobs));
    table.row("", heads.chain([format!("{} over {}", last.jobs, first.jobs), "A/A".to_owned()]));
    let mut line = |name: &str, of: &dyn Fn(&Bench) -> &Samples| {
        let cells = benches.iter().map(|bench| figure(of(bench).median()));
        let ratios = [of(last).over(of(first)), of(again).over(of(first))].map(figure);
        table.row(name, cells.chain(ratios));
    };
    for (at, (name, _)) in REQUESTS.iter().enumerate() {
        line(name, &|bench| &bench.us[at]);
    }
    line("kill -9 until the next answers, ms", &|bench| &bench.restart_ms[0]);
    line("SIGTERM until the next answers, ms", &|bench| &bench.restart_ms[1]);
    let rss = benches.iter().map(|of| of.memory.rss.to_string());
    table.row("VmRSS after a restart, KiB", rss);
    for (at, (name, _)) in REQUESTS.iter().enumerate().take(FLAT) {
        let (ratio, noise) = (last.us[at].over(&first.us[at]), again.us[at].over(&first.us[at]));
        let text = format!("{} x (A/A {})", figure(ratio), figure(noise));
        let what = format!("{name}: {} jobs over {}", last.jobs, first.jobs);
        table.target(&what, &text, "most 1.1 x", ratio <= MOST);
    }
    table.note(&format!("memory: {} KiB a finished job", figure(last.kib_a_job(first))));
    table
}

impl Bench {
    fn new(jobs: usize) -> Result<Self> {
        // On a disk, as a store is: /tmp may be memory.
        let directory = tempfile::Builder::new().prefix("perilog-bench-").tempdir_in("/var/tmp")?;
        authority::make(directory.path(), std::iter::empty())?;
        // The first start makes the tables.
        drop(Controller::start(directory.path())?);
        seed::fill(&directory.path().join("controller.db"), jobs)?;
        let mut controller = Controller::start(directory.path())?;
        let mut restart_ms: [Samples; 2] = Default::default();
        for (samples, is_killed) in restart_ms.iter_mut().zip([true, false]) {
            for _ in 0..RESTARTS {
                let began = clock::mono_us();
                if is_killed {
                    controller.kill_and_restart()?
                } else {
                    controller.end_and_restart()?
                }
                ask(&mut controller.client()?, "Status", json!({}))?;
                samples.push((clock::mono_us() - began) as f64 / 1000.0);
            }
        }
        let (client, memory) = (controller.client()?, Memory::of(controller.pid())?);
        let us = Default::default();
        Ok(Self { jobs, controller, directory, client, added: 0, us, restart_ms, memory })
    }

    /// Waits until the controller waits for its nodes no longer: then it lets an operator forget a node.
    fn settle(&mut self) -> Result<()> {
        let client = &mut self.client;
        let forget = json!({"nodes": seed::SPARE});
        wait_until("the start is over", SETTLE, || Ok(ask(client, "NodeForget", forget.clone()).is_ok()))
    }

    fn turn(&mut self) -> Result<()> {
        for (at, (name, times)) in REQUESTS.into_iter().enumerate() {
            let before = cpu_ns(self.controller.pid())?;
            let mut requests = 0;
            while requests < times {
                requests += self.request(name)?;
            }
            let spent = cpu_ns(self.controller.pid())?.saturating_sub(before);
            self.us[at].push(spent as f64 / 1000.0 / requests as f64);
        }
        Ok(())
    }

    /// Makes a request of this kind, or the requests of a whole job; returns how many.
    fn request(&mut self, name: &str) -> Result<usize> {
        let client = &mut self.client;
        match name {
            "write" => {
                let job = self.add_job()?;
                let client = &mut self.client;
                ask(client, "ActionStart", json!({"job": job, "action": "stage", "lease": "1h"}))?;
                ask(client, "ActionReport", json!({"job": job, "action": "stage", "outcome": "ok"}))?;
                let given = ask(client, "JobFinish", json!({"job": job}))?;
                ensure!(given["ranks"] == "0", "a job of one rank dropped, of {given}");
                return Ok(4);
            }
            "Show" => {
                let shown = ask(client, name, json!({"job": seed::job(self.jobs / 2)}))?;
                ensure!(shown["job"]["attempts"][0]["actions"].as_array().is_some_and(|all| all.len() == 2), "{shown}");
            }
            "Ps" | "Status" => drop(ask(client, name, json!({}))?),
            "Why" => drop(ask(client, name, json!({"node": seed::host(1)}))?),
            _ => {
                let sums = ask(client, name, json!({}))?;
                ensure!(sums["truncated"] == false && (name == "Skew" || sums["tasks"] == self.jobs * 2), "{sums}");
            }
        }
        Ok(1)
    }

    /// Adds a job; returns its id.
    fn add_job(&mut self) -> Result<String> {
        self.added += 1;
        let job = format!("w{}", self.added);
        ask(&mut self.client, "JobAdd", json!({"job": job, "nodes": seed::host(self.added)}))?;
        Ok(job)
    }

    /// Returns `true` while the store has the newest of the seeded jobs.
    fn has_seeded(&mut self) -> bool {
        ask(&mut self.client, "Show", json!({"job": seed::job(self.jobs - 1)})).is_ok()
    }

    fn new_client(&self) -> Result<Client> {
        self.controller.client()
    }

    fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Returns the memory (KiB) of a finished job: that which this controller has beyond `few`.
    fn kib_a_job(&self, few: &Self) -> f64 {
        let more = self.memory.rss as f64 - few.memory.rss as f64;
        more / (self.jobs.saturating_sub(few.jobs)).max(1) as f64
    }

    fn json(&self) -> Value {
        let us: serde_json::Map<String, Value> =
            REQUESTS.iter().zip(&self.us).map(|((name, _), of)| ((*name).to_owned(), of.json())).collect();
        json!({"jobs": self.jobs, "cpu_us": us, "restart_ms": self.restart_ms[0].json(),
               "clean_restart_ms": self.restart_ms[1].json(), "memory": self.memory.json()})
    }
}

fn ask(client: &mut Client, method: &str, parameters: Value) -> Result<Value> {
    client.call(&format!("io.perilog.Controller.{method}"), parameters).with_context(|| method.to_owned())
}
