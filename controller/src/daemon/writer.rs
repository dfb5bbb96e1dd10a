//! The one writer: takes queued entries as a batch, lets the machine handle the batch, commits the batch's records, and
//! only then releases the effects.
//!
//! ```text
//!   entries ──> batch ──> machine ──> records ──> store ──(durable)──> effects
//!                            ^                      │
//!                            └── built anew <── the commit failed
//! ```
//! Followers of attempts get the state of changed jobs with the first effects, without a request of their own (`feed`).
//! Beside the records, the store gets the scripts' durations, which the machine does not need (`observer`).
//!
//! A failed commit leaves nothing: the writer discards the machine and rebuilds it from the store, ends every session
//! (agents say Hello again and reconcile), and fails every caller. On a full disk the writer retries until the disk has
//! room. Any other error ends the process, because the content of the disk is uncertain. The writer has a thread of its
//! own, because a commit blocks.

use std::time::Duration;

use perilog_core::controller::io::Refusal;
use perilog_core::controller::{self as core, Batch, FULL_EVERY_MS, Holding, Input, Now, Record, Settings};
use perilog_core::defect;
use perilog_host::watchdog::Watchdog;
use perilog_host::{clock, fault};
use tokio::sync::{mpsc, watch};

use super::delivery::Delivery;
use super::inlet::Entry;
use super::trace::Trace;
use crate::metrics::Metrics;
use crate::store::{Durable, StoreError};
use observer::{Observer, Received};

mod observer;

/// Maximum number of entries in a batch. More would only delay the first entries.
const BATCH: usize = 1_024;
/// Shortest time between two changes of the line in `systemctl status`.
const STATUS_EVERY_MS: u64 = 1_000;

pub(crate) struct Writer<S> {
    store: S,
    /// The part of the writer that does no I/O: it owns the machine, and takes each batch from inputs to effects.
    /// This part has no machine while the disk has no room to begin an epoch.
    step: core::Writer,
    delivery: Delivery,
    observer: Observer,
    trace: Trace,
    /// When to wake the machine, on CLOCK_MONOTONIC (ms); `None`: the machine has requested no wake-up.
    wake_ms: Option<u64>,
    /// When to check whether the disk has room again, on CLOCK_MONOTONIC (ms); `None`: the disk is not full.
    disk_ms: Option<u64>,
    /// When to show the next status line, on CLOCK_MONOTONIC (ms); `None`: nothing has happened since the last one.
    status_ms: Option<u64>,
    /// When the writer last composed a status line that was due, on CLOCK_MONOTONIC (ms); 0 before the first time.
    shown_ms: u64,
    status: watch::Sender<String>,
    watchdog: Option<Watchdog>,
}

impl<S: Durable> Writer<S> {
    /// Loads the store and commits a new epoch. On a full disk, returns a writer without a machine: the writer begins
    /// the epoch once the disk has room.
    ///
    /// # Errors
    /// [`StoreError::Other`]: the store cannot be read or written, for another reason than a full disk.
    pub(crate) fn new(
        store: S,
        settings: Settings,
        nonce: u64,
        outbox: watch::Sender<()>,
        status: watch::Sender<String>,
        metrics: Option<Metrics>,
    ) -> Result<Self, StoreError> {
        let mut writer = Self {
            store,
            step: core::Writer::new(settings, nonce),
            delivery: Delivery::new(outbox),
            observer: Observer::new(metrics),
            trace: Trace::default(),
            wake_ms: None,
            disk_ms: None,
            status_ms: None,
            shown_ms: 0,
            status,
            watchdog: Watchdog::of_environment(),
        };
        writer.begin()?;
        writer.status.send_replace(writer.status_line());
        Ok(writer)
    }

    /// Returns a receiver that is notified when a commit has written events.
    pub(crate) fn logged(&self) -> watch::Receiver<()> {
        self.delivery.logged()
    }

    fn status_line(&self) -> String {
        match self.step.machine() {
            Some(machine) if self.step.is_full() => format!("{}; the store's disk is full", machine.status_line()),
            Some(machine) => machine.status_line(),
            None => {
                "the store's disk is full: the controller begins and accepts nothing until there is room".to_owned()
            }
        }
    }

    /// Runs the writer until [`Entry::Stop`], or until all senders are gone.
    ///
    /// # Errors
    /// [`StoreError::Other`]: the store cannot be read or written, for another reason than a full disk. The process has
    /// to end.
    pub(crate) async fn run(mut self, mut entries: mpsc::Receiver<Entry>) -> Result<(), StoreError> {
        let mut batch = Vec::with_capacity(BATCH);
        loop {
            tokio::select! {
                taken = entries.recv_many(&mut batch, BATCH) => if taken == 0 { break },
                () = sleep_until(self.next_timer()) => {}
            }
            let stop = self.turn(batch.drain(..))?;
            if let Some(watchdog) = &mut self.watchdog {
                watchdog.alive(clock::mono_ms());
            }
            if stop {
                break;
            }
        }
        self.delivery.end_all("the controller is stopping");
        Ok(())
    }

    /// Hands a batch of entries to the machine. Returns `true` if the batch contains [`Entry::Stop`].
    fn turn(&mut self, entries: impl Iterator<Item = Entry>) -> Result<bool, StoreError> {
        let mono_ms = clock::mono_ms();
        let mut inputs = Vec::new();
        let mut stop = false;
        if self.wake_ms.is_some_and(|at| at <= mono_ms) {
            self.wake_ms = None;
            inputs.push(Input::Tick);
        }
        for entry in entries {
            match entry {
                Entry::Stop => stop = true,
                Entry::Settings(settings) => inputs.push(Input::Settings(settings)),
                entry if self.step.machine().is_some() => inputs.extend(entry.into_input(&mut self.delivery)),
                entry => self.delivery.refuse(entry, &disk_full()),
            }
        }
        let active = !inputs.is_empty();
        self.handle(inputs)?;
        self.check_disk(mono_ms)?;
        self.show_status(mono_ms, active);
        Ok(stop)
    }

    /// Lets the machine handle inputs, in one batch, or in a few if the inputs need many ended jobs of the store.
    fn handle(&mut self, mut inputs: Vec<Input>) -> Result<(), StoreError> {
        loop {
            let (needs, count) = self.step.needs(&inputs, now());
            if !needs.is_empty() {
                let (fetched, now) = (self.store.fetch(&needs)?, now());
                self.trace.fetched(&fetched, now);
                self.step.take_in(fetched, now);
            }
            let mut later = inputs.split_off(count);
            if !self.handle_batch(inputs)? {
                // All callers and sessions have gone.
                later.retain(|input| matches!(input, Input::Settings(_)));
            }
            if later.is_empty() {
                return Ok(());
            }
            inputs = later;
        }
    }

    /// Lets the machine handle a batch. Returns `false` if the disk had no room for it: the machine is built anew.
    fn handle_batch(&mut self, inputs: Vec<Input>) -> Result<bool, StoreError> {
        let received = self.observer.listen(&inputs);
        let now = now();
        if !inputs.is_empty() {
            self.trace.inputs(&inputs, now);
        }
        let batch = self.step.handle(inputs, now);
        match self.carry_out(batch, received) {
            Ok(()) => Ok(true),
            Err(StoreError::Full) => {
                tracing::error!(
                    "the store's disk is full: the controller dropped the last requests, and loads its store again. \
                     Make room on the disk"
                );
                self.observer.forget();
                self.delivery.drop_all(&disk_full());
                self.begin().map(|()| false)
            }
            Err(error) => Err(error),
        }
    }

    fn carry_out(&mut self, mut batch: Batch, received: Vec<Received>) -> Result<(), StoreError> {
        self.trace.output(batch.output());
        let mut ran = self.observer.acknowledged(received, batch.output());
        if defect!(EffectsBeforeCommit) {
            self.delivery.deliver(batch.steal_effects());
        }
        let mut elapsed = None;
        if batch.records().is_empty() {
            // A batch without records contains no newly finished task.
            ran.clear();
        } else {
            fault::point("before-commit");
            let began_us = clock::mono_us();
            if let Err(error) = self.store.commit_with(batch.records(), &mut ran) {
                self.observer.not_committed();
                self.trace.failed();
                self.step.failed(batch);
                return Err(error);
            }
            elapsed = Some(Duration::from_micros(clock::mono_us().saturating_sub(began_us)));
            fault::point("after-commit");
        }
        let left = self.step.committed(batch);
        if let Some(newest) = left.anchor {
            self.store.anchor(newest);
        }
        self.observer.committed(elapsed, &ran, &left.effects);
        self.delivery.changed(&left.records, |of, drains| self.step.replies_to_edge(of, drains));
        self.delivery.forget(left.records.iter().filter_map(|record| match record {
            Record::Prune { job, whole_job: true, .. } => Some(job),
            _ => None,
        }));
        if let Some(at) = self.delivery.deliver(left.effects) {
            self.wake_ms = Some(at);
        }
        Ok(())
    }

    /// Builds a machine from the store, and commits the machine's epoch. If the disk has no room for that, the writer
    /// stays without a machine.
    fn begin(&mut self) -> Result<(), StoreError> {
        (self.wake_ms, self.disk_ms) = (None, None);
        let stored = self.store.load_open(Holding::default())?;
        self.observer.loaded(&stored);
        let now = now();
        self.trace.begin(&stored, self.step.begins_with(), now);
        let batch = self.step.begin(stored, now);
        match self.carry_out(batch, Vec::new()) {
            Ok(()) => self.check_disk(clock::mono_ms()),
            Err(StoreError::Full) => {
                self.disk_ms = Some(clock::mono_ms().saturating_add(FULL_EVERY_MS));
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// Notifies the machine when the disk becomes full, or has room again. A writer has no machine while the disk has
    /// no room for the machine's epoch: it then tries to begin the epoch again. A full disk is checked only every
    /// [`FULL_EVERY_MS`]; an earlier call does nothing.
    fn check_disk(&mut self, mono_ms: u64) -> Result<(), StoreError> {
        if self.disk_ms.is_some_and(|at| mono_ms < at) {
            return Ok(());
        }
        let full = self.store.is_full();
        let none = self.step.machine().is_none();
        self.observer.store_full(full || none);
        self.disk_ms = (full || none).then(|| mono_ms.saturating_add(FULL_EVERY_MS));
        if none {
            return self.begin();
        }
        let Some(input) = self.step.disk(full) else { return Ok(()) };
        if !full {
            tracing::info!("the store's disk has room again, and prologs begin again");
        }
        self.handle(vec![input])
    }

    /// Shows the status line if it is due: at once, or [`STATUS_EVERY_MS`] after the line shown before. `active`: the
    /// machine has got an input since the last call; otherwise the line is not made due.
    fn show_status(&mut self, mono_ms: u64, active: bool) {
        if active && self.status_ms.is_none() {
            self.status_ms = Some(self.shown_ms.saturating_add(STATUS_EVERY_MS).max(mono_ms));
        }
        if self.status_ms.is_none_or(|at| mono_ms < at) {
            return;
        }
        let status = self.status_line();
        self.status.send_if_modified(|shown| {
            let changed = *shown != status;
            *shown = status;
            changed
        });
        (self.shown_ms, self.status_ms) = (mono_ms, None);
    }

    fn next_timer(&self) -> Option<u64> {
        let watchdog_ms = self.watchdog.as_ref().map(Watchdog::next_ms);
        [self.wake_ms, self.disk_ms, self.status_ms, watchdog_ms].into_iter().flatten().min()
    }
}

fn now() -> Now {
    Now { mono_ms: clock::mono_ms(), wall_ms: clock::wall_ms() }
}

fn disk_full() -> Refusal {
    Refusal::Unavailable(
        "the disk of the controller's store is full, and the nodes keep their results. Make room on that disk"
            .to_owned(),
    )
}

async fn sleep_until(at: Option<u64>) {
    /// Maximum length of one sleep. If `at` is later than that, the function returns early, and the caller calls it
    /// again.
    const LONGEST: Duration = Duration::from_secs(24 * 3600);
    match at {
        Some(at) => tokio::time::sleep(clock::until(at).min(LONGEST)).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests;
