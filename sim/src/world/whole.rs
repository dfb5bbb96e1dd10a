//! A second machine beside a controller's: it handles the same batches, and holds every job in memory. Whatever it does
//! otherwise, the controller's machine did because a job was not in its memory.

use perilog_core::controller::{Batch, Effect, Holding, Input, Now, Record, Settings, Snapshot, Writer};

/// A machine that holds every job. It commits nothing.
#[derive(Clone)]
pub(crate) struct Whole(Writer);

/// Returns which jobs the machine of this epoch holds although they have ended: none, or as many as that
/// of the daemon.
pub(crate) fn holding(incarnation: u64) -> Holding {
    if incarnation.is_multiple_of(3) {
        Holding::default()
    } else {
        Holding { verdicts: Holding::default().verdicts, ..Holding::NONE }
    }
}

/// Returns how many ranks a batch of the machine of this epoch starts or ends by itself: one, two, or as many as the
/// daemon's.
pub(crate) fn quota(incarnation: u64) -> u64 {
    match incarnation % 4 {
        rest @ (1 | 2) => rest,
        _ => 1_024,
    }
}

impl Whole {
    pub(crate) fn new(settings: Settings, nonce: u64, quota: u64) -> Self {
        Self(Writer::new(settings, nonce).quota(quota))
    }

    /// Begins with a store; `batch` is what the controller's machine answered.
    pub(crate) fn begin(&mut self, stored: Snapshot, now: Now, batch: &Batch) -> Option<String> {
        let own = self.0.begin(stored, now);
        difference(&own, batch)
    }

    /// Discards the machine, because a commit failed.
    pub(crate) fn failed(&mut self) {
        self.0.failed(Batch::default());
    }

    /// Handles the inputs; `batch` is what the controller's machine answered. Returns how the two answers differ.
    pub(crate) fn handle(&mut self, inputs: Vec<Input>, now: Now, batch: &Batch) -> Option<String> {
        for input in &inputs {
            if let Input::StoreFull(full) = input {
                let _ = self.0.disk(*full);
            }
        }
        let own = self.0.handle(inputs, now);
        difference(&own, batch)
    }
}

fn difference(whole: &Batch, batch: &Batch) -> Option<String> {
    let (left, right) = (&whole.output().effects, &batch.output().effects);
    let differ = |(left, right): &(&Effect, &Effect)| left != right;
    if let Some((left, right)) = left.iter().zip(right).find(differ) {
        return Some(format!("it does {left:?}, and this machine {right:?}"));
    }
    if left.len() != right.len() {
        let more = if left.len() > right.len() { &left[right.len()..] } else { &right[left.len()..] };
        return Some(format!("it has {} effects, and this machine {}: {more:?}", left.len(), right.len()));
    }
    // A whole row may stand for a delta: which of them depends on how long the job has been in memory.
    let is_row = |record: &&Record| {
        !matches!(
            record,
            Record::Action(_) | Record::ActionDelta { .. } | Record::Attempt(_) | Record::AttemptDelta { .. }
        )
    };
    let (left, right) = (whole.records().iter().filter(is_row), batch.records().iter().filter(is_row));
    match left.eq(right.clone()) {
        true => None,
        false => {
            let left: Vec<&Record> = whole.records().iter().filter(is_row).collect();
            let right: Vec<&Record> = right.collect();
            Some(format!("it writes {left:?}, and this machine {right:?}"))
        }
    }
}
