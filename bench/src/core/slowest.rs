//! Slowest batch: how long the one writer is busy with one batch, the commit included, while a job of many ranks runs.
//! Plays each case again, with a store behind the machine.
//!
//! The case `at once` has the batches that no other case has. No node accepts its Start, so all ranks are lost in the
//! same moment, and their hosts are drained. An operator cancels the epilog, drains all hosts again, and lifts all
//! drains.

use std::alloc::System;
use std::collections::BTreeMap;

use anyhow::{Result, bail, ensure};
use perilog_bench::report::{Table, progress};
use perilog_bench::stats::{Samples, figure};
use perilog_core::ActionName;
use perilog_core::controller::io::{ReleasePolicy, Reply, Request, Which};
use serde_json::{Value, json};
use stats_alloc::StatsAlloc;

use crate::cases;
use crate::disk::{Disk, Large};
use crate::site::{START_GRACE_MS, Site};

/// Maximum time of a batch, over a bare durable write.
const MOST: f64 = 20.0;

pub(crate) fn report(
    ranks: u32,
    rounds: usize,
    table: &mut Table,
    allocator: &'static StatsAlloc<System>,
) -> Result<Value> {
    let mut all = Vec::new();
    let head = ["slowest batch, ms", "of it the machine", "commit", "records", "over a bare write"].map(str::to_owned);
    table.row(&format!("{ranks} ranks with a store"), head);
    let of_cases = cases::CASES.into_iter().chain([("at once", ReleasePolicy::Together)]);
    for (name, policy) in of_cases {
        let (mut bare_ms, mut slowest) = (Samples::default(), BTreeMap::<_, Vec<Large>>::new());
        for round in 0..rounds {
            progress(&format!("{name} with a store, {ranks} ranks, round {} of {rounds}", round + 1));
            let mut site = cases::site(name, policy, ranks, allocator)?;
            site.disk = Some(Disk::new()?);
            match name {
                "at once" => at_once(&mut site, ranks)?,
                _ => cases::play(name, policy, ranks, &mut site)?,
            }
            let Some(disk) = site.disk.take() else { bail!("no disk") };
            bare_ms.extend(&disk.bare_ms);
            disk.slowest.into_iter().for_each(|(kind, large)| slowest.entry(kind).or_default().push(large));
        }
        let base = bare_ms.median();
        // The median of the rounds: one sync may meet other work of this computer.
        let mut of: Vec<(&str, Large)> =
            slowest.into_iter().filter_map(|(kind, of)| Some((kind, median(of)?))).collect();
        of.sort_by(|(_, a), (_, b)| b.ms().total_cmp(&a.ms()));
        for (kind, large) in &of {
            let Large { machine_ms, commit_ms, records } = *large;
            let [ms, machine, commit, over] = [large.ms(), machine_ms, commit_ms, large.ms() / base].map(figure);
            table.row(&format!("{name}: {kind}"), [ms, machine, commit, records.to_string(), over]);
        }
        let Some((kind, large)) = of.first() else { bail!("no large batch") };
        let over = large.ms() / base;
        let text = format!(
            "{kind}, {} ms, {} x a bare durable write of {} ms",
            figure(large.ms()),
            figure(over),
            figure(base)
        );
        table.target(&format!("slowest batch of {name}, {ranks} ranks:"), &text, "most 20 x", over <= MOST);
        let row = |(kind, of): &(&str, Large)| {
            let Large { machine_ms, commit_ms, records } = of;
            json!({"batch": kind, "machine_ms": machine_ms, "commit_ms": commit_ms, "records": records})
        };
        let rows: Vec<Value> = of.iter().map(row).collect();
        all.push(json!({"case": name, "bare_ms": bare_ms.json(), "slowest": rows}));
    }
    Ok(Value::Array(all))
}

/// Returns the batch of the median time.
fn median(mut of: Vec<Large>) -> Option<Large> {
    of.sort_by(|a, b| a.ms().total_cmp(&b.ms()));
    of.get(of.len().saturating_sub(1) / 2).copied()
}

fn at_once(site: &mut Site<'_>, ranks: u32) -> Result<()> {
    site.add(0, "0")?;
    site.run("prolog")?;
    site.wait_for(START_GRACE_MS + 1)?;
    site.finish()?;
    let which = Which {
        job: site.job(),
        attempt: None,
        action: Some(ActionName::new("epilog")?),
        targets: None,
        resources: None,
    };
    let Reply::Reached { tasks } = site.ask(Request::Cancel { which, why: "bench".to_owned() })? else {
        bail!("cancel")
    };
    ensure!(tasks == u64::from(ranks), "{tasks} were cancelled");
    site.wait_for(START_GRACE_MS + 1)?;
    ensure!(site.released.len() == u64::from(ranks), "{} of {ranks} ranks were released", site.released.len());
    let hosts = site.hosts();
    let Reply::Drained { .. } =
        site.ask(Request::Drain { hosts: hosts.clone(), reason: "bench".to_owned(), force: false })?
    else {
        bail!("drain")
    };
    let Reply::Undrained { tasks, .. } = site.ask(Request::Undrain { hosts, forget: false, notice_id: None })? else {
        bail!("undrain")
    };
    ensure!(tasks == u64::from(ranks), "{tasks} drains were lifted");
    Ok(())
}
