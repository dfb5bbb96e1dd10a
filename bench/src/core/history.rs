//! A job beside a history: the same job, its requests included, on a controller whose store has thousands of finished
//! jobs, and on an empty one.

use std::alloc::System;
use std::collections::BTreeMap;

use anyhow::{Context, Result, bail};
use perilog_bench::report::{Table, progress};
use perilog_bench::stats::{Samples, figure};
use perilog_core::controller::Snapshot;
use perilog_core::controller::io::{ActionRow, AttemptRow, Recovered, ReleasePolicy, Reply, Request};
use perilog_core::ids::{ActionId, ClusterId};
use perilog_core::outcome::Verdict;
use perilog_core::{ActionName, Attempt, HostList, IdSet, JobId, Milestones, Part, Terms};
use stats_alloc::StatsAlloc;

use crate::cases::query;
use crate::site::{NOW_MS, Site, Spent};

/// Default number of finished jobs: as many attempts as a controller keeps by default.
pub(crate) const JOBS: usize = 50_000;
/// Number of ranks of the job that is measured.
const RANKS: u32 = 256;
/// Maximum ratio of the costs with a history to those without one.
const MOST: f64 = 1.2;

/// Measures a job without a history, with one, and without one again. Adds the rows to the table.
pub(crate) fn report(
    rounds: usize,
    jobs: usize,
    table: &mut Table,
    allocator: &'static StatsAlloc<System>,
) -> Result<()> {
    let mut measured: [(Samples, Samples); 3] = Default::default();
    for round in 0..rounds {
        for ((samples, slowest), jobs) in measured.iter_mut().zip([0, jobs, 0]) {
            progress(&format!("history, {jobs} finished jobs, round {} of {rounds}", round + 1));
            let (ms, slowest_us) = one(jobs, allocator)?;
            samples.push(ms);
            slowest.push(slowest_us);
        }
    }
    for ((of, slowest), (jobs, what)) in measured.iter().zip([(0, ""), (jobs, ""), (0, " (A/A)")]) {
        let each = figure(of.median() * 1000.0 / f64::from(RANKS));
        let cells = [of.count().to_string(), figure(of.median()), each, figure(slowest.median())];
        let none = [const { String::new() }; 3];
        table.row(&format!("a job of {RANKS} ranks, {jobs} finished ones{what}"), cells.into_iter().chain(none));
    }
    let [(empty, _), (long, _), (again, _)] = &measured;
    let text = format!("{} x (A/A {})", figure(long.over(empty)), figure(again.over(empty)));
    table.target(&format!("history: {jobs} finished jobs over none"), &text, "most 1.2 x", long.over(empty) <= MOST);
    Ok(())
}

/// Runs a whole job, and what operators ask meanwhile; returns the milliseconds of the machine's time, and the
/// microseconds of its slowest batch.
fn one(jobs: usize, allocator: &'static StatsAlloc<System>) -> Result<(f64, f64)> {
    let mut site = Site::on(finished(jobs)?, RANKS, 1, ReleasePolicy::Each, allocator)?;
    // The first attempt warms the caches and the allocator up.
    for attempt in 0..2 {
        site.spent = Spent::default();
        site.add(attempt, "10%")?;
        site.run("prolog")?;
        site.accepted_and_finished("prolog", attempt, 3)?;
        query(&mut site, RANKS)?;
        let Reply::Status(_) = site.ask(Request::Status {})? else { bail!("status") };
        site.finish()?;
        site.accepted_and_finished("epilog", attempt, 0)?;
        site.wait()?;
        site.released = IdSet::new();
    }
    Ok((site.spent.us / 1000.0, site.spent.slowest_us))
}

/// Returns a store with finished jobs of one rank each, whose prolog and epilog were ok.
fn finished(jobs: usize) -> Result<Snapshot> {
    let mut store = Snapshot::default();
    let (attempt, cluster) = (Attempt::FIRST, ClusterId::from_name("bench"));
    let rank = IdSet::from(0..=0);
    for n in 0..jobs {
        let job = JobId::new(&format!("h{n}"))?;
        let touched_ms = NOW_MS - 3_600_000 + n as u64;
        for name in ["prolog", "epilog"] {
            let name = ActionName::new(name)?;
            let id = ActionId::of(cluster, &job, attempt, &name);
            let row = ActionRow::new(id, job.clone(), attempt, name, rank.clone(), touched_ms);
            store.actions.push(ActionRow {
                waiting: IdSet::new(),
                ok: rank.clone(),
                boots: BTreeMap::from([(1, rank.clone())]),
                verdict: Some(Verdict::Ok),
                ended_ms: Some(touched_ms),
                held: Part::default(),
                ..row
            });
        }
        store.events_last.insert(job.clone(), 8);
        store.attempts.push(AttemptRow {
            job,
            attempt,
            ranks: rank.clone(),
            hosts: HostList::from_names([format!("h{}", n % 64)]).context("a host")?,
            userid: Some(1000),
            open: true,
            touched_ms,
            terms: Terms::default(),
            added: true,
            hold: Part::default(),
            released: Part::of_ranks(rank.clone()),
            complete: true,
            milestones: Milestones::default(),
            source: None,
            abandoned: false,
            silent: false,
            recovered: Recovered::No,
        });
    }
    Ok(store)
}
