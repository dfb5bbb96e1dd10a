//! The writer's step: inputs become a batch, the driver commits the batch to disk, and only then the driver carries out
//! its effects. The writer does no I/O, so the daemon and the simulator drive the same code.
//!
//! ```text
//!   begin(stored) ─┐
//!   handle(inputs) ┼─> Batch ── records ──> the driver's store ──┬─ committed(batch) ─> Left: the anchor, the effects
//!   disk(full) ────┘                                             └─ failed(batch) ────> no machine: begin() again
//! ```
//!
//! Effects stay inside the batch until [`Writer::committed`] returns them, so no driver can let an effect leave early.
//! If a commit fails, the writer discards the machine, because the machine contains changes that the disk lacks. The
//! driver then ends every session, answers all callers, and loads the store again when the disk has room.

use crate::controller::interface::io::{
    AttemptsOf, Effect, Fetched, Input, Now, Output, Record, Reply, Settings, Snapshot,
};
use crate::controller::machine::Machine;
use crate::controller::memory::Needs;
use crate::controller::state::away::Holding;
use crate::controller::state::quota::RANKS;
use crate::mark::Commit;

/// Interval (ms) at which a driver checks whether a full disk has room again.
pub const FULL_EVERY_MS: u64 = 5_000;
/// Number of jobs and actions in a question to the store from which on the other inputs wait for the next batch.
const MAX_FETCHED: usize = 500;

/// The only writer of a store: owns the machine, turns inputs into batches, and returns a batch's effects after the
/// commit.
#[derive(Debug, Clone)]
pub struct Writer {
    settings: Settings,
    /// The nonce of every epoch of this process. A machine that is rebuilt within the process gets the same nonce and a
    /// new epoch number.
    nonce: u64,
    /// The machine. `None`: before the first [`Writer::begin`], and from a failed commit to the next one.
    machine: Option<Machine>,
    /// `true` if the machine was last notified that the disk is full.
    full: bool,
    holding: Holding,
    quota: u64,
}

/// The machine's answer to inputs: records to commit, and effects that wait for the commit.
#[derive(Debug, Default)]
#[must_use = "commit its records, then say so"]
pub struct Batch {
    output: Output,
}

impl Batch {
    /// Returns the records to commit in one transaction. A batch without records counts as committed.
    pub fn records(&self) -> &[Record] {
        &self.output.records
    }

    /// Returns the records and effects of the batch before the commit, for inspection only. The driver must not carry
    /// these effects out: [`Writer::committed`] returns them.
    pub const fn output(&self) -> &Output {
        &self.output
    }

    /// Takes the effects out before the commit. Only deliberate defects that tests switch on call this function; a
    /// driver must wait for the commit.
    pub fn steal_effects(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.output.effects)
    }
}

/// The output of a committed batch, which the driver may now use. The driver writes the anchor before it carries out an
/// effect.
#[derive(Debug)]
pub struct Left {
    /// The newest commit, for the anchor file beside the store; `None` if the batch had no records.
    pub anchor: Option<Commit>,
    pub records: Vec<Record>,
    pub effects: Vec<Effect>,
}

impl Writer {
    /// Creates a writer without a machine; the caller draws `nonce` at random.
    pub fn new(settings: Settings, nonce: u64) -> Self {
        Self { settings, nonce, machine: None, full: false, holding: Holding::default(), quota: RANKS }
    }

    /// Sets which jobs stay in memory although they have ended, for tests.
    #[must_use]
    pub fn holding(self, holding: Holding) -> Self {
        Self { holding, ..self }
    }

    /// Sets how many ranks a batch starts or ends by itself, for tests.
    #[must_use]
    pub fn quota(self, quota: u64) -> Self {
        Self { quota, ..self }
    }

    /// Returns the machine. `None`: before the first `begin`, and from a failed commit to the next `begin`. Meanwhile
    /// the driver ends new sessions and refuses requests.
    pub const fn machine(&self) -> Option<&Machine> {
        self.machine.as_ref()
    }

    /// Returns the settings of the machine, and the nonce of its epochs.
    pub const fn begins_with(&self) -> (&Settings, u64) {
        (&self.settings, self.nonce)
    }

    /// Returns `true` if the machine was last notified that the disk is full.
    pub const fn is_full(&self) -> bool {
        self.full
    }

    /// Builds a machine from the store in place of the old one. The returned batch begins an epoch.
    pub fn begin(&mut self, stored: Snapshot, now: Now) -> Batch {
        let (mut machine, output) = Machine::load(stored, self.settings.clone(), self.nonce, now);
        machine.cx.quota.set(self.quota);
        self.machine = Some(machine);
        self.full = false;
        Batch { output }
    }

    /// Returns what the inputs need of the store, and how many of them it covers: the first ones, because a question to
    /// the store must not take long. The driver reads the rows, hands them over with [`Writer::take_in`], and then lets
    /// the machine handle these inputs.
    pub fn needs(&self, inputs: &[Input], now: Now) -> (Needs, usize) {
        let mut needs = Needs::default();
        let Some(machine) = &self.machine else { return (needs, inputs.len()) };
        for (at, input) in inputs.iter().enumerate() {
            needs.extend(machine.facts().needs(input, now));
            if needs.len() >= MAX_FETCHED {
                return (needs, at + 1);
            }
        }
        (needs, inputs.len())
    }

    /// Hands the machine what inputs need of the store.
    pub fn take_in(&mut self, fetched: Fetched, now: Now) {
        if let Some(machine) = &mut self.machine {
            machine.jobs.take_in(fetched, now, &mut machine.cx);
        }
    }

    /// Lets the machine handle inputs; the batch is empty if no machine is loaded.
    pub fn handle(&mut self, inputs: Vec<Input>, now: Now) -> Batch {
        for input in &inputs {
            if let Input::Settings(settings) = input {
                self.settings = settings.clone();
            }
        }
        let machine = self.machine.as_mut().filter(|_| !inputs.is_empty());
        Batch { output: machine.map(|machine| machine.handle(inputs, now)).unwrap_or_default() }
    }

    /// Records whether the disk under the store is full, and returns the input for the machine if that has changed.
    /// Without a machine, does nothing.
    pub fn disk(&mut self, full: bool) -> Option<Input> {
        let news = self.machine.is_some() && full != self.full;
        self.full = if self.machine.is_some() { full } else { self.full };
        news.then_some(Input::StoreFull(full))
    }

    /// Takes a batch that the driver has committed, and returns the effects that the driver may now carry out. A batch
    /// without records needs no commit.
    pub fn committed(&mut self, batch: Batch) -> Left {
        let Output { records, effects } = batch.output;
        if let Some(machine) = &mut self.machine
            && let Some(pinned) = machine.facts().pinned(self.holding)
        {
            machine.jobs.evict(&pinned, self.holding, &mut machine.cx);
        }
        let newest = self.machine.as_ref().and_then(|machine| machine.history.newest());
        Left { anchor: newest.filter(|_| !records.is_empty()), records, effects }
    }

    /// Returns the replies to `Attempts` and `Drains` of an edge after the last batch, which must be committed. The
    /// drains are empty if their list still has the number `known`. `None`: there is no machine, or a job of `of` is
    /// not in memory.
    pub fn replies_to_edge(&self, of: &AttemptsOf, known: Option<u64>) -> Option<[Reply; 2]> {
        self.machine.as_ref()?.facts().replies_to_edge(of, known)
    }

    /// Discards the machine, because the store lacks the records of `batch`.
    pub fn failed(&mut self, batch: Batch) {
        drop(batch);
        self.machine = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controller::tests::settings;

    const NOW: Now = Now { mono_ms: 1, wall_ms: 1 };

    fn commit(store: &mut Snapshot, writer: &mut Writer, batch: Batch) -> Left {
        batch.records().iter().for_each(|record| store.apply(record));
        let left = writer.committed(batch);
        store.anchor = left.anchor.or(store.anchor);
        left
    }

    #[test]
    fn each_epoch_continues_the_numbers_of_commits() {
        let (mut store, mut writer) = (Snapshot::default(), Writer::new(settings(), 7));
        assert!(writer.machine().is_none() && writer.disk(true).is_none());
        for number in 1..=3 {
            let batch = writer.begin(store.clone(), NOW);
            let left = commit(&mut store, &mut writer, batch);
            let newest = left.anchor.unwrap();
            assert_eq!((newest.epoch.number, newest.epoch.nonce, newest.number), (number, 7, number));
            assert_eq!(store.history.newest(), Some(newest));
        }
    }

    #[test]
    fn a_batch_that_fails_takes_the_machine_with_it() {
        let (mut store, mut writer) = (Snapshot::default(), Writer::new(settings(), 7));
        let batch = writer.begin(store.clone(), NOW);
        let _ = commit(&mut store, &mut writer, batch);
        assert_eq!(writer.disk(true), Some(Input::StoreFull(true)));
        assert_eq!((writer.disk(true), writer.is_full()), (None, true));
        let batch = writer.handle(vec![Input::Tick], NOW);
        writer.failed(batch);
        assert!(writer.machine().is_none());
        assert!(writer.handle(vec![Input::Tick], NOW).output().effects.is_empty());
        // The same process begins another epoch: the nonce stays, the epoch is new.
        let batch = writer.begin(store.clone(), NOW);
        let newest = commit(&mut store, &mut writer, batch).anchor.unwrap();
        assert_eq!((newest.epoch.number, newest.epoch.nonce), (2, 7));
        assert!(!writer.is_full(), "the new machine has no report of a full disk");
    }

    #[test]
    fn without_records_nothing_is_anchored() {
        let (mut store, mut writer) = (Snapshot::default(), Writer::new(settings(), 7));
        let batch = writer.begin(store.clone(), NOW);
        let _ = commit(&mut store, &mut writer, batch);
        let batch = writer.handle(vec![Input::Tick], NOW);
        assert!(batch.records().is_empty());
        assert_eq!(commit(&mut store, &mut writer, batch).anchor, None);
    }
}
