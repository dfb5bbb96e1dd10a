//! Cases of the core bench: one action over few ranks and over many.
//!
//! Each case runs a job with R over N nodes: its prolog, and after `job finish` its epilog. The nodes report Accepted
//! and Finished for one rank per batch, in random order, until everything is released. The case takes turns between few
//! ranks, more, many, and few again; the two measurements with few ranks show the noise. `yardstick` takes turns with
//! the cases: it shows what the memory of this computer costs as the number of ranks grows.
//!
//! `history` is a job beside thousands of finished ones. `slowest` plays the cases again with a store behind the
//! machine.
//!
//! The case `bad` adds trouble: the job has only every second rank, some ranks fail within the tolerance, and the job
//! is requeued before the epilog ends. Operators make requests after the prolog and after the epilog.

use std::alloc::System;

use anyhow::{Context, Result, ensure};
use perilog_bench::options::Options;
use perilog_bench::report::{Table, progress};
use perilog_bench::stats::{Samples, figure};
use perilog_core::controller::io::{ReleasePolicy, Reply, Request};
use perilog_core::controller::overview::OverviewRequest;
use serde_json::{Value, json};
use stats_alloc::StatsAlloc;

use crate::site::{Site, Spent};
use crate::{history, slowest, yardstick};

type Allocator = &'static StatsAlloc<System>;

/// Maximum exponent: the costs may grow at most as the number of ranks to this power.
const MOST: f64 = 1.05;
/// Maximum ratio of costs: of one Hello with eight times the tasks, or of one page in the browser with eight times the
/// nodes. Linear cost would be a ratio of 8, quadratic cost 64. The bound is above 8, because 20,000 tasks do not fit
/// into the processor's caches, and the page sorts the names of its nodes.
const MOST_OF_ONE: f64 = 24.0;

pub(crate) const CASES: [(&str, ReleasePolicy); 4] = [
    ("each", ReleasePolicy::Each),
    ("batches", ReleasePolicy::Batches { first_ms: 1_000, ceiling_ms: 60_000 }),
    ("together", ReleasePolicy::Together),
    ("bad", ReleasePolicy::Each),
];

/// Measured values of one case with one number of ranks: the times of all rounds, and the other values of the last.
#[derive(Default)]
struct Measured {
    ms: Samples,
    last: Option<(Spent, isize, isize)>,
}

pub(crate) fn run(options: &Options, allocator: Allocator) -> Result<Value> {
    let sizes = options.list("ranks", &[4_096, 16_384, 65_536]);
    let (few, many) = (*sizes.first().context("--ranks FEW,MANY")?, *sizes.last().context("--ranks FEW,MANY")?);
    let turns: Vec<usize> = sizes.iter().copied().chain([few]).collect();
    let rounds = options.number("rounds", 3);
    let mut table = Table::new(&[
        "case, ranks",
        "n",
        "ms p50",
        "us per completion",
        "slowest batch, us",
        "memory, bytes per rank: at the end",
        "most",
        "records, bytes per rank",
    ]);
    let mut cases = Vec::new();
    let mut growth = Vec::new();
    let mut bare = vec![Samples::default(); turns.len()];
    for (name, policy) in CASES {
        let mut measured: Vec<Measured> = turns.iter().map(|_| Measured::default()).collect();
        for round in 0..rounds {
            for (at, ranks) in turns.iter().copied().enumerate() {
                progress(&format!("{name}, {ranks} ranks, round {} of {rounds}", round + 1));
                one(name, policy, u32::try_from(ranks)?, allocator, &mut measured[at])?;
                bare[at].push(yardstick::ms(u32::try_from(ranks)?));
            }
        }
        let documents: Result<Vec<Value>> = turns.iter().zip(&measured).map(|(ranks, of)| of.json(*ranks)).collect();
        for (at, (ranks, of)) in turns.iter().zip(&measured).enumerate() {
            table.row(&format!("{name}, {ranks}{}", if at == sizes.len() { " (A/A)" } else { "" }), of.cells(*ranks)?);
        }
        growth.push((name, measured.into_iter().map(|of| of.ms).collect::<Vec<_>>()));
        cases.push(json!({"case": name, "sizes": documents?}));
    }
    for (at, (ranks, of)) in turns.iter().zip(&bare).enumerate() {
        let cells = [of.count().to_string(), figure(of.median()), figure(of.median() * 1000.0 / *ranks as f64)];
        let name = format!("bare look-ups, {ranks}{}", if at == sizes.len() { " (A/A)" } else { "" });
        table.row(&name, cells.into_iter().chain([const { String::new() }; 4]));
    }
    let hello = hello(rounds, allocator)?;
    for (tasks, what, of) in [(FEW_TASKS, "", &hello[0]), (MANY_TASKS, "", &hello[1]), (FEW_TASKS, " (A/A)", &hello[2])]
    {
        let each = figure(of.median() * 1000.0 / f64::from(tasks));
        let cells = [of.count().to_string(), figure(of.median()), each];
        let none = [const { String::new() }; 4];
        table.row(&format!("a node's Hello, {tasks} tasks{what}"), cells.into_iter().chain(none));
    }
    history::report(rounds, options.number("jobs", history::JOBS), &mut table, allocator)?;
    let page = page(rounds, allocator)?;
    for (nodes, what, of) in [(FEW_NODES, "", &page[0]), (MANY_NODES, "", &page[1]), (FEW_NODES, " (A/A)", &page[2])] {
        let cells = [of.count().to_string(), figure(of.median()), String::new(), figure(of.median() * 1000.0)];
        let none = [const { String::new() }; 3];
        table.row(&format!("the page, {nodes} nodes in a prolog{what}"), cells.into_iter().chain(none));
    }
    let (ratio, noise) = (page[1].over(&page[0]), page[2].over(&page[0]));
    let text = format!("{} x (A/A {})", figure(ratio), figure(noise));
    table.target(&format!("page: {MANY_NODES} nodes over {FEW_NODES}"), &text, "most 24 x", ratio <= MOST_OF_ONE);
    let (ratio, noise) = (hello[1].over(&hello[0]), hello[2].over(&hello[0]));
    let text = format!("{} x (A/A {})", figure(ratio), figure(noise));
    table.target(&format!("hello: {MANY_TASKS} tasks over {FEW_TASKS}"), &text, "most 24 x", ratio <= MOST_OF_ONE);
    for (at, ranks) in sizes.iter().copied().enumerate().skip(1) {
        let exponent = |of: &[Samples]| of[at].over(&of[0]).ln() / (ranks as f64 / few as f64).ln();
        for (name, of) in &growth {
            let (ratio, noise) = (figure(of[at].over(&of[0])), figure(of[sizes.len()].over(&of[0])));
            let exponent = exponent(of);
            let text = format!("{ratio} x, exponent {exponent:.3} (A/A {noise} x)");
            table.target(&format!("{name}: {ranks} ranks over {few}"), &text, "most exponent 1.05", exponent <= MOST);
        }
        let noise = figure(bare[sizes.len()].over(&bare[0]));
        table.note(&format!("bare look-ups: {ranks} over {few}: exponent {:.3} (A/A {noise} x)", exponent(&bare)));
    }
    let slowest = slowest::report(u32::try_from(many)?, rounds, &mut table, allocator)?;
    let text = table.text();
    let bare: Vec<Value> = bare.iter().map(Samples::json).collect();
    Ok(json!({"bench": "core", "sizes": turns, "cases": cases, "bare": bare, "slowest": slowest, "table": text}))
}

/// Number of tasks in a large Hello, as many as a controller reads. `FEW_TASKS`: the number in a small Hello, an
/// eighth.
const MANY_TASKS: u32 = 20_000;
const FEW_TASKS: u32 = 2_500;

/// Measures one Hello whose tasks the store does not know, in milliseconds of the machine's time: with few tasks, with
/// many, and with few again.
fn hello(rounds: usize, allocator: Allocator) -> Result<[Samples; 3]> {
    let mut measured = [Samples::default(), Samples::default(), Samples::default()];
    for round in 0..rounds {
        for (samples, tasks) in measured.iter_mut().zip([FEW_TASKS, MANY_TASKS, FEW_TASKS]) {
            progress(&format!("hello, {tasks} tasks, round {} of {rounds}", round + 1));
            let mut site = Site::new(64, 1, ReleasePolicy::Each, allocator)?;
            site.greet(tasks)?;
            samples.push(site.spent.us / 1000.0);
        }
    }
    Ok(measured)
}

/// Number of nodes of a large cluster, whose page an operator opens in a browser. `FEW_NODES`: the number of a small
/// cluster, an eighth.
const MANY_NODES: u32 = 10_240;
const FEW_NODES: u32 = 1_280;

/// Measures how many milliseconds the machine takes for the overview that the browser page shows: with few nodes, with
/// many, and with few again. All nodes run a prolog.
fn page(rounds: usize, allocator: Allocator) -> Result<[Samples; 3]> {
    let mut measured = [Samples::default(), Samples::default(), Samples::default()];
    for round in 0..rounds {
        for (samples, nodes) in measured.iter_mut().zip([FEW_NODES, MANY_NODES, FEW_NODES]) {
            progress(&format!("page, {nodes} nodes, round {} of {rounds}", round + 1));
            let mut site = Site::new(nodes, 1, ReleasePolicy::Each, allocator)?;
            site.add(0, "10%")?;
            site.run("prolog")?;
            site.accepted("prolog", 0)?;
            let before = site.spent.us;
            let Reply::Overview(_) = site.ask(Request::Overview(OverviewRequest::Cluster))? else {
                anyhow::bail!("look")
            };
            samples.push((site.spent.us - before) / 1000.0);
        }
    }
    Ok(measured)
}

impl Measured {
    fn last(&self) -> Result<(Spent, isize, isize)> {
        self.last.context("no round")
    }

    fn cells(&self, ranks: usize) -> Result<Vec<String>> {
        let (spent, end, most) = self.last()?;
        let per_rank = |bytes: f64| figure(bytes / ranks as f64);
        Ok(vec![
            self.ms.count().to_string(),
            figure(self.ms.median()),
            figure(self.ms.median() * 1000.0 / completions(&spent)),
            figure(spent.slowest_us),
            per_rank(end as f64),
            per_rank(most as f64),
            per_rank(spent.bytes as f64),
        ])
    }

    fn json(&self, ranks: usize) -> Result<Value> {
        let (spent, end, most) = self.last()?;
        Ok(json!({"ranks": ranks, "ms": self.ms.json(), "batches": spent.batches, "record_bytes": spent.bytes,
            "memory_end": end, "memory_most": most, "slowest_us": spent.slowest_us}))
    }
}

/// Returns the number of completed tasks: each takes two batches (Accepted, Finished).
fn completions(spent: &Spent) -> f64 {
    spent.batches as f64 / 2.0
}

fn one(name: &str, policy: ReleasePolicy, ranks: u32, allocator: Allocator, measured: &mut Measured) -> Result<()> {
    let mut site = site(name, policy, ranks, allocator)?;
    play(name, policy, ranks, &mut site)?;
    let (end, most) = site.memory();
    measured.ms.push(site.spent.us / 1000.0);
    measured.last = Some((site.spent, end, most));
    Ok(())
}

/// Builds the site of a case.
pub(crate) fn site(name: &str, policy: ReleasePolicy, ranks: u32, allocator: Allocator) -> Result<Site<'static>> {
    Site::new(ranks, if name == "bad" { 2 } else { 1 }, policy, allocator)
}

/// Plays a case.
pub(crate) fn play(name: &str, policy: ReleasePolicy, ranks: u32, site: &mut Site<'_>) -> Result<()> {
    let bad = name == "bad";
    site.add(0, if bad { "10%" } else { "0" })?;
    site.run("prolog")?;
    site.accepted_and_finished("prolog", 0, if bad { 3 } else { 0 })?;
    if bad {
        query(site, ranks)?;
    }
    site.finish()?;
    if bad {
        // A requeue: the epilog of the first attempt goes on.
        site.add(1, "10%")?;
        site.run("prolog")?;
    }
    site.accepted_and_finished("epilog", 0, 0)?;
    site.wait()?;
    ensure!(site.finals == 1, "final was said {} times", site.finals);
    ensure!(site.released.len() == u64::from(ranks), "{} of {ranks} ranks were released", site.released.len());
    if bad {
        query(site, ranks)?;
    }
    let reported = site.hook()?;
    ensure!(
        reported > 0 && (policy != ReleasePolicy::Each || reported == u64::from(ranks)),
        "the hook got notices of {reported} releases"
    );
    Ok(())
}

/// Makes requests as operators do while a job runs: `ps`, `show`, `failed`.
pub(crate) fn query(site: &mut Site<'_>, ranks: u32) -> Result<()> {
    let job = site.job();
    let Reply::Ps { .. } = site.ask(Request::Ps { older_than_ms: 0, held: false })? else { anyhow::bail!("ps") };
    let Reply::Show(_) = site.ask(Request::Show { job: job.clone(), targets: None })? else { anyhow::bail!("show") };
    let failed = site.ask(Request::Failed { job, attempt: Some(perilog_core::Attempt::FIRST) })?;
    let Reply::Failed { ranks: failed, .. } = failed else { anyhow::bail!("failed") };
    ensure!(failed.len() < u64::from(ranks) / 10, "{} failed", failed.len());
    Ok(())
}
