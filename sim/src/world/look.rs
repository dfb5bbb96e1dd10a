//! Collects what a store shows throughout a batch in which a client looks. The controller may reply at any point of the
//! batch, so the checks of a reply must hold at each.

use std::collections::BTreeSet;

use perilog_core::controller::io::{AttemptRow, OutboxEntry, Reader, Request};
use perilog_core::controller::{Input, Snapshot};
use perilog_core::message::FromAgent;
use perilog_core::{Outcome, Rank, TaskId};

use super::ps::Waits;

/// The contents of a store from the beginning of a batch through each record of its commit.
pub(crate) struct Look {
    /// What waits throughout the batch: a `ps` must show it.
    pub(crate) waits: Waits,
    /// Numbers of the notices that the resource manager can read throughout the batch: a reply must list them. Empty
    /// if the batch enters a recovery, which may hide each of them for a part of the batch.
    pub(crate) notices: BTreeSet<u64>,
    /// The tasks that are `ok` at some point of the batch, or that a message in the batch reports as `ok`: no other may
    /// be shown as `ok`. A later Hello in the same batch may report them as lost.
    pub(crate) ok: BTreeSet<TaskId>,
}

impl Look {
    /// Returns what the store shows before the batch of these inputs; `None`: no client looks.
    pub(crate) fn before(store: &Snapshot, inputs: &[Input]) -> Option<Self> {
        inputs.iter().any(is_look).then(|| Self {
            waits: Waits::of(store),
            notices: readable(store).collect(),
            ok: ok_tasks(store).chain(inputs.iter().filter_map(told_ok)).collect(),
        })
    }

    /// Takes in the store as it is after one more record of the batch.
    pub(crate) fn advance(&mut self, store: &Snapshot) {
        self.waits.keep(&Waits::of(store));
        let readable: BTreeSet<u64> = readable(store).collect();
        self.notices.retain(|sequence| readable.contains(sequence));
        self.ok.extend(ok_tasks(store));
    }
}

const fn is_look(input: &Input) -> bool {
    match input {
        Input::Request { request, .. } => {
            matches!(request, Request::Ps { .. } | Request::Show { .. } | Request::Outbox { .. })
        }
        _ => false,
    }
}

/// Returns the numbers of the notices that the resource manager can read now. A notice of an unvouched attempt holds
/// back all later notices.
fn readable(store: &Snapshot) -> impl Iterator<Item = u64> {
    let of_manager = store.outbox.iter().filter(|entry: &&OutboxEntry| entry.reader == Reader::Manager);
    of_manager.take_while(|entry| !is_frozen(store, entry)).map(|entry| entry.sequence)
}

/// Returns `true` if the entry's attempt is unvouched, so that the controller must not send the notice now.
fn is_frozen(store: &Snapshot, entry: &OutboxEntry) -> bool {
    let of = |row: &&AttemptRow| row.job == entry.job && row.attempt == entry.attempt;
    store.attempts.iter().find(of).is_some_and(|row| row.unvouched)
}

/// Returns the tasks that the store shows as `ok`.
fn ok_tasks(store: &Snapshot) -> impl Iterator<Item = TaskId> {
    store.actions.iter().flat_map(|row| row.ok.iter().map(|rank| TaskId { action: row.id, rank: Rank(rank) }))
}

fn told_ok(input: &Input) -> Option<TaskId> {
    match input {
        Input::Message { message: FromAgent::Finished { task, ended }, .. } => {
            (ended.outcome == Outcome::Ok).then_some(*task)
        }
        _ => None,
    }
}
