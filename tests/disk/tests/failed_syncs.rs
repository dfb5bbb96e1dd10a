//! An fsync fails, the program restarts, and later the power is cut. Every acknowledged batch is in the store, and the
//! store is whole.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

use std::path::{Path, PathBuf};
use std::process::Command;

use fastrand::Rng;
use perilog_controller::store::{Durable, EventReader, Store};
use perilog_core::JobId;
use perilog_disk::disk::Disk;
use perilog_disk::image::Image;
use perilog_disk::power;
use perilog_disk::record::{self, Entry};
use perilog_disk::run::Recorded;
use rusqlite::Connection;
use tempfile::TempDir;

/// Number of histories, each of so many runs of the program, with so many power cuts.
const HISTORIES: u64 = 6;
const RUNS: u64 = 12;
const CUTS: usize = 60;
/// The power is cut within so many calls after a failed sync: later, a checkpoint has copied what was lost.
const SOON: usize = 4_000;
/// Number of jobs of which every batch has an event.
const JOBS: u64 = 8;
/// Maximum number of batches in a run: more than fit into the log between two checkpoints.
const COMMITS: u64 = 130;
/// The program's exit status after an error of the store.
const STORE_FAILED: i32 = 3;

/// A directory with a store, and the record of all that was done to it.
struct Place {
    dir: TempDir,
    store: PathBuf,
}

/// A run of the program (`src/main.rs`).
struct Run {
    fails: u64,
    of: &'static str,
    commits: u64,
    reads: u64,
    closes: bool,
}

impl Place {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let store = dir.path().canonicalize().unwrap().join("store/controller.db");
        std::fs::create_dir(store.parent().unwrap()).unwrap();
        Self { dir, store }
    }

    fn run(&self, run: &Run) {
        let mut program = Command::new(env!("CARGO_BIN_EXE_perilog-disk"));
        let directory = self.store.parent().unwrap().to_owned();
        Recorded { directory, record: self.record() }.preload(&mut program).unwrap();
        program.env("PERILOG_SHIM_FAILS", format!("{} {}", run.fails, run.of));
        let numbers = [run.commits, run.reads].map(|number| number.to_string());
        program.arg(&self.store).arg(self.record()).args(numbers);
        let output = program.arg(run.closes.to_string()).output().unwrap();
        let failed = run.fails > 0 && output.status.code() == Some(STORE_FAILED);
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() || failed, "{}: {text}", output.status);
    }

    fn record(&self) -> PathBuf {
        self.dir.path().join("record")
    }
}

/// Runs the program again and again in one directory, with a failed fsync in most runs. Returns the record.
fn history(seed: u64) -> Vec<u8> {
    let mut random = Rng::with_seed(seed);
    let place = Place::new();
    for _ in 0..RUNS {
        let fails = match random.u8(..8) {
            0 => 0,
            // Most syncs of a start are among the first.
            1..=3 => random.u64(1..8),
            _ => random.u64(1..COMMITS),
        };
        let (commits, reads) = (random.u64(1..=COMMITS), random.u64(..COMMITS));
        place.run(&Run { fails, of: "any", commits, reads, closes: random.u8(..4) == 0 });
    }
    std::fs::read(place.record()).unwrap()
}

/// Returns what is wrong with an image of the disk, on which `acknowledged` batches have to be.
fn problem(image: &Image, acknowledged: u64) -> Option<String> {
    let dir = tempfile::tempdir().unwrap();
    image.write(dir.path()).unwrap();
    examine(&dir.path().join("controller.db"), acknowledged).err()
}

fn examine(path: &Path, acknowledged: u64) -> Result<(), String> {
    let mut store = Store::open(path).map_err(|error| error.to_string())?;
    let last = store.load().map_err(|error| error.to_string())?.events_last;
    drop(store);
    let found = last.values().copied().min().unwrap_or(0);
    if found < acknowledged {
        return Err(format!("{acknowledged} acknowledged, {found} found"));
    }
    let reader = EventReader::open(path).map_err(|error| error.to_string())?;
    for job in (0..JOBS).map(|n| JobId::new(&format!("f{n}")).unwrap()) {
        let mut last = 0;
        // Page by page.
        loop {
            let events = reader.events(&job, last, usize::MAX).map_err(|error| error.to_string())?;
            if events.is_empty() {
                break;
            }
            for (number, _) in events {
                if number != last + 1 {
                    return Err(format!("{job} has the event {number} behind the event {last}"));
                }
                last = number;
            }
        }
        if last != found {
            return Err(format!("{job} has the events 1 to {last} instead of 1 to {found}"));
        }
    }
    let db = Connection::open(path).map_err(|error| error.to_string())?;
    let verdict: String =
        db.query_row("PRAGMA integrity_check", [], |row| row.get(0)).map_err(|error| error.to_string())?;
    if verdict == "ok" { Ok(()) } else { Err(verdict) }
}

/// Replays a record, and cuts the power at random moments after failed syncs. Returns the number of failed
/// syncs, and what is wrong with each bad image.
fn cuts(seed: u64, entries: &[Entry<'_>]) -> (usize, Vec<String>) {
    let mut random = Rng::with_seed(seed);
    let has_failed = |entry: &Entry<'_>| matches!(entry, Entry::Sync { failed: true, .. });
    let failures: Vec<usize> = (1..=entries.len()).filter(|after| has_failed(&entries[after - 1])).collect();
    let moment = |_| (failures[random.usize(..failures.len())] + random.usize(..SOON)).min(entries.len());
    let mut moments: Vec<usize> = (0..CUTS).map(moment).collect();
    moments.sort_unstable();
    let mut bad = Vec::new();
    power::cuts(Disk::new(seed), seed, entries, &moments, |cut| {
        let last = cut.acknowledged.last().and_then(|what| what.strip_prefix("batch ")?.parse().ok());
        let wrong = problem(&cut.image, last.unwrap_or(0));
        bad.extend(wrong.map(|wrong| format!("seed {seed}, entry {} of {}: {wrong}", cut.moment, entries.len())));
    });
    (failures.len(), bad)
}

/// Cuts the power after the failed syncs of each record, which has a seed as its name.
fn survives(records: impl Iterator<Item = (u64, Vec<u8>)>) {
    let (mut failed, mut images, mut bad) = (0, 0, Vec::new());
    for (seed, record) in records {
        let (syncs, wrong) = cuts(seed, &record::read(&record).unwrap());
        failed += syncs;
        images += CUTS;
        bad.extend(wrong);
    }
    eprintln!("{failed} failed syncs, {images} images, {} bad", bad.len());
    assert!(bad.is_empty(), "{} of {images} images are bad:\n{}", bad.len(), bad.join("\n"));
}

/// The log that a killed controller left was only in the page cache after a failed fsync. The next start appended to
/// it, and a power cut lost the log from there on, with acknowledged batches.
#[test]
fn acknowledged_batches_survive_power_cuts_after_failed_syncs() {
    perilog_core::switch_on_defect!(perilog_host::defect::chosen());
    survives((1..=HISTORIES).map(|seed| (seed, history(seed))));
}

/// A checkpoint copied a part of the log without a sync, because another connection read the store. The sync of the
/// next checkpoint failed, SQLite said nothing, and the checkpoint after that began behind the part.
#[test]
fn no_checkpoint_begins_behind_one_that_failed() {
    perilog_core::switch_on_defect!(perilog_host::defect::chosen());
    let place = |seed: u64| {
        let place = Place::new();
        // The first two syncs of the file are those of a new store, and a third one comes before the other connection.
        place.run(&Run { fails: 4, of: "controller.db", commits: 3 * COMMITS, reads: 70, closes: seed == 2 });
        place.run(&Run { fails: 0, of: "any", commits: COMMITS, reads: 0, closes: false });
        std::fs::read(place.record()).unwrap()
    };
    survives((1..=2).map(|seed| (seed, place(seed))));
}
