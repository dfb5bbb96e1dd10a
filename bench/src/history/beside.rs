//! Slowest commit: how long a request that writes waits beside one that reads much, and beside the retention that
//! forgets. The one writer answers both, or the reader has a connection of its own and shares the disk.
//!
//! The base is a bare durable write on the same disk: one page appended to a file, and fdatasync(2).

use std::fs::File;
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use anyhow::{Result, anyhow, ensure};
use perilog_bench::report::Table;
use perilog_bench::stats::{Samples, figure};
use perilog_host::clock;
use perilog_host::varlink::Client;
use serde_json::{Value, json};

use super::{Bench, ask, seed};

/// Requests that go on beside the writes; "nothing" comes first and last. After that the controller forgets all
/// finished jobs.
const BESIDE: [&str; 7] = ["nothing", "Show", "Stats", "Skew", "Backup", "nothing", FORGETTING];
const FORGETTING: &str = "forgetting";
/// Shortest time of the writes beside each of these.
const EACH_MS: u64 = 4_000;
/// Time limit for the controller to forget all finished jobs.
const FORGOTTEN_MS: u64 = 120_000;
/// Time between two looks at whether it has.
const POLL_MS: u64 = 250;
/// Target (docs/performance.md): the slowest write, over the median of the bare ones.
const MOST: f64 = 10.0;
const PAGE: [u8; 4096] = [7; 4096];

pub(super) struct Beside {
    bare_ms: Samples,
    /// Times of the writes, by what goes on beside them.
    ms: Vec<Samples>,
}

impl Beside {
    pub(super) fn measure(bench: &mut Bench) -> Result<Self> {
        let mut bare = File::create(bench.directory().join("bare"))?;
        let (mut bare_ms, mut ms) = (Samples::default(), Vec::new());
        for what in BESIDE {
            for _ in 0..100 {
                let began = clock::mono_us();
                bare.write_all(&PAGE)?;
                bare.sync_data()?;
                bare_ms.push((clock::mono_us() - began) as f64 / 1000.0);
            }
            ms.push(writes_beside(bench, what)?);
        }
        Ok(Self { bare_ms, ms })
    }

    pub(super) fn report(&self, table: &mut Table) {
        let base = self.bare_ms.median();
        let head = ["p50", "p99", "slowest", "slowest over a bare write"].map(str::to_owned);
        table.row("a write beside, ms", head);
        for (what, ms) in BESIDE.iter().zip(&self.ms) {
            let slowest = ms.quantile(1.0);
            table.row(what, [ms.median(), ms.quantile(0.99), slowest, slowest / base].map(figure));
            let text = format!("{} x a bare write of {} ms", figure(slowest / base), figure(base));
            let name = format!("slowest write beside {what}");
            table.target(&name, &text, "most 10 x", slowest / base <= MOST);
        }
    }

    pub(super) fn json(&self) -> Value {
        let of: Vec<Value> =
            BESIDE.iter().zip(&self.ms).map(|(what, ms)| json!({"beside": what, "ms": ms.json()})).collect();
        json!({"bare_ms": self.bare_ms.json(), "writes": of})
    }
}

fn writes_beside(bench: &mut Bench, what: &str) -> Result<Samples> {
    let (mut other, over) = (bench.new_client()?, AtomicBool::new(false));
    thread::scope(|scope| {
        let reading = scope.spawn(|| -> Result<()> {
            while !over.load(Ordering::Relaxed) && !matches!(what, "nothing" | FORGETTING) {
                read(&mut other, what)?;
            }
            Ok(())
        });
        let mut ms = Samples::default();
        let mut write = || -> Result<()> {
            if what == FORGETTING {
                bench.controller.reload_with("keep-attempts = 1")?;
            }
            let began_ms = clock::mono_ms();
            let (mut forgets, mut poll_ms) = (what == FORGETTING, began_ms + POLL_MS);
            while forgets || clock::mono_ms() - began_ms < EACH_MS {
                let at = clock::mono_us();
                bench.add_job()?;
                ms.push((clock::mono_us() - at) as f64 / 1000.0);
                if forgets && clock::mono_ms() >= poll_ms {
                    forgets = bench.has_seeded();
                    poll_ms = clock::mono_ms() + POLL_MS;
                    ensure!(!forgets || clock::mono_ms() - began_ms < FORGOTTEN_MS, "finished jobs are not forgotten");
                }
            }
            Ok(())
        };
        let written = write();
        over.store(true, Ordering::Relaxed);
        reading.join().map_err(|_| anyhow!("the reader beside the writes panicked"))??;
        written.map(|()| ms)
    })
}

fn read(client: &mut Client, what: &str) -> Result<()> {
    match what {
        "Backup" => {
            let mut pieces = client.call_more("io.perilog.Controller.Backup", json!({}))?;
            for piece in &mut pieces {
                piece?;
            }
        }
        "Show" => drop(ask(client, what, json!({"job": seed::job(1)}))?),
        _ => drop(ask(client, what, json!({}))?),
    }
    Ok(())
}
