//! Collects what a store shows in the course of a batch in which a client looks. The controller may reply at any point
//! of the batch: its reply must have what the store shows throughout the batch, and nothing that the store shows at no
//! point.

use std::collections::{BTreeMap, BTreeSet};

use perilog_core::controller::io::{AttemptRow, OutboxEntry, Reader, Request};
use perilog_core::controller::{Input, Snapshot};
use perilog_core::message::{FromAgent, Held, HeldState};
use perilog_core::{ActionId, Outcome, Rank, TaskId, Verdict};

use super::ps::Waits;

/// The contents of a store from the beginning of a batch through each record of its commit. Changes of an action or
/// attempt within the batch are not seen one by one, because a batch records these rows once, at its end.
pub(crate) struct Shown {
    /// The tasks, held ranks and drains that wait throughout the batch: a `ps` must show them.
    pub(crate) waits: Waits,
    /// Numbers of the notices that the resource manager can read throughout the batch: a reply must list them. Empty
    /// if the batch enters a recovery, which may hide each of them for a part of the batch.
    pub(crate) notices: BTreeSet<u64>,
    /// The tasks that the store shows as `ok` at some point of the batch, or that a node reports as `ok` in the batch:
    /// a reply may show no other task as `ok`. After such a report, a later Hello in the same batch may report the task
    /// as lost.
    pub(crate) ok: BTreeSet<TaskId>,
    /// The verdicts that the store shows at some point of the batch: a reply may show no other.
    pub(crate) verdicts: BTreeMap<ActionId, Verdict>,
}

impl Shown {
    /// Returns what the store shows before the batch of these inputs; `None`: no client looks.
    pub(crate) fn before(store: &Snapshot, inputs: &[Input]) -> Option<Self> {
        inputs.iter().any(is_overview).then(|| Self {
            waits: Waits::of(store),
            notices: readable(store).collect(),
            ok: ok_tasks(store).chain(inputs.iter().flat_map(reported_ok)).collect(),
            verdicts: verdicts(store).collect(),
        })
    }

    /// Takes in the store as it is after one more record of the batch.
    pub(crate) fn advance(&mut self, store: &Snapshot) {
        self.waits.keep(&Waits::of(store));
        let readable: BTreeSet<u64> = readable(store).collect();
        self.notices.retain(|sequence| readable.contains(sequence));
        self.ok.extend(ok_tasks(store));
        self.verdicts.extend(verdicts(store));
    }
}

/// Returns `true` if the checks of the reply to this input use a `Shown`. The hooks' requests get no such
/// check.
const fn is_overview(input: &Input) -> bool {
    match input {
        Input::Request { request, .. } => {
            matches!(request.plain(), Request::Ps { .. } | Request::Show { .. } | Request::Outbox { .. })
        }
        _ => false,
    }
}

/// Returns the numbers of the notices that the resource manager can read now. A notice of an abandoned attempt holds
/// back all later notices.
fn readable(store: &Snapshot) -> impl Iterator<Item = u64> {
    let of_manager = store.outbox.iter().filter(|entry: &&OutboxEntry| entry.reader == Reader::Manager);
    of_manager.take_while(|entry| !is_abandoned(store, entry)).map(|entry| entry.sequence)
}

/// Returns `true` if the entry's attempt is abandoned, so that the controller must not send the notice now.
fn is_abandoned(store: &Snapshot, entry: &OutboxEntry) -> bool {
    let of = |row: &&AttemptRow| row.job == entry.job && row.attempt == entry.attempt;
    store.attempts.iter().find(of).is_some_and(|row| row.abandoned)
}

/// Returns the tasks that the store shows as `ok`.
fn ok_tasks(store: &Snapshot) -> impl Iterator<Item = TaskId> {
    store.actions.iter().flat_map(|row| row.ok.iter().map(|rank| TaskId { action: row.id, rank: Rank(rank) }))
}

fn verdicts(store: &Snapshot) -> impl Iterator<Item = (ActionId, Verdict)> {
    store.actions.iter().filter_map(|row| Some((row.id, row.verdict?)))
}

/// Returns the tasks that a node reports as `ok` in an input: as their end, or as tombstones of its Hello.
fn reported_ok(input: &Input) -> Vec<TaskId> {
    match input {
        Input::Message { message: FromAgent::Finished { task, ended }, .. } if ended.outcome.is_ok() => vec![*task],
        Input::Message { message: FromAgent::Hello(hello), .. } => {
            let is_ok = |held: &&Held| matches!(held.state, HeldState::Tombstone { outcome: Outcome::Ok, .. });
            hello.tasks.iter().filter(is_ok).map(|held| held.task).collect()
        }
        _ => Vec::new(),
    }
}
