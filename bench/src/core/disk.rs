//! The store behind the machine: times of large batches, the commit included, beside bare durable writes on the same
//! disk.
//!
//! Syncs of some hundred thousand small batches would take an hour. So batches that are small for the machine and for
//! the store are gathered, and committed untimed.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write as _;

use anyhow::{Context as _, Result};
use perilog_bench::stats::Samples;
use perilog_controller::store::{Durable as _, Store};
use perilog_core::controller::io::Request;
use perilog_core::controller::{Input, Record};
use perilog_host::clock;
use tempfile::TempDir;

/// A batch with fewer records and less time of the machine than this is small.
const SMALL_RECORDS: usize = 64;
const SMALL_US: f64 = 1_000.0;
/// Number of small batches after which they are committed.
const GATHERED: usize = 1_024;
/// A bare durable write: one page, and fdatasync(2).
const PAGE: [u8; 4096] = [7; 4096];

/// Time of a large batch.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Large {
    pub(crate) machine_ms: f64,
    pub(crate) commit_ms: f64,
    pub(crate) records: usize,
}

impl Large {
    pub(crate) fn ms(&self) -> f64 {
        self.machine_ms + self.commit_ms
    }
}

/// A store in a directory of its own.
pub(crate) struct Disk {
    store: Store,
    bare: File,
    gathered: Vec<Record>,
    batches: usize,
    /// Times of the bare writes.
    pub(crate) bare_ms: Samples,
    /// The slowest batch of each kind of input.
    pub(crate) slowest: BTreeMap<&'static str, Large>,
    _directory: TempDir,
}

impl Disk {
    pub(crate) fn new() -> Result<Self> {
        // The directory of temporary files may be in memory, that of the program is not.
        let program = std::env::current_exe()?;
        let directory = tempfile::tempdir_in(program.parent().context("a directory of the program")?)?;
        Ok(Self {
            store: Store::open(&directory.path().join("store"))?,
            bare: File::create(directory.path().join("bare"))?,
            gathered: Vec::new(),
            batches: 0,
            bare_ms: Samples::default(),
            slowest: BTreeMap::new(),
            _directory: directory,
        })
    }

    /// Commits a batch for which the machine took `machine_us` (microseconds); `kind`: its input.
    pub(crate) fn commit(&mut self, kind: &'static str, records: Vec<Record>, machine_us: f64) -> Result<()> {
        if records.len() < SMALL_RECORDS && machine_us < SMALL_US {
            self.gathered.extend(records);
            self.batches += 1;
            return if self.batches < GATHERED { Ok(()) } else { self.flush() };
        }
        self.flush()?;
        let began_us = clock::mono_us();
        self.store.commit(&records)?;
        let commit_ms = ms_since(began_us);
        let large = Large { machine_ms: machine_us / 1000.0, commit_ms, records: records.len() };
        let slowest = self.slowest.entry(kind).or_default();
        if large.ms() > slowest.ms() {
            *slowest = large;
        }
        Ok(())
    }

    /// Commits the small batches, and measures a bare write.
    fn flush(&mut self) -> Result<()> {
        self.batches = 0;
        self.store.commit(&std::mem::take(&mut self.gathered))?;
        let began_us = clock::mono_us();
        self.bare.write_all(&PAGE)?;
        self.bare.sync_data()?;
        self.bare_ms.push(ms_since(began_us));
        Ok(())
    }
}

fn ms_since(began_us: u64) -> f64 {
    (clock::mono_us() - began_us) as f64 / 1000.0
}

/// Returns the kind of a batch, by its first input.
pub(crate) fn kind(inputs: &[Input]) -> &'static str {
    match inputs.first() {
        Some(Input::Message { .. }) => "a message",
        Some(Input::Request { request, .. }) => match request {
            Request::JobAdd(_) => "JobAdd",
            Request::Run(_) => "Run",
            Request::JobFinish { .. } => "JobFinish",
            Request::Cancel { .. } => "Cancel",
            Request::Drain { .. } => "Drain",
            Request::Undrain { .. } => "Undrain",
            Request::Outbox { .. } | Request::OutboxApplied { .. } => "a page of the outbox",
            Request::Releases { .. } | Request::OutboxDone { .. } | Request::HookFailed { .. } => "the release hook",
            Request::Show { .. } | Request::Ps { .. } | Request::Failed { .. } => "an operator looks",
            _ => "a request",
        },
        Some(_) | None => "a tick",
    }
}
