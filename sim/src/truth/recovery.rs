//! Checks that a generation begins only on evidence, and abandons attempts. The controller begins, sends, releases,
//! judges and prunes nothing of an abandoned attempt.

use std::collections::BTreeSet;

use perilog_core::controller::io::{ActionRow, AttemptRow, OutboxEntry, Reader};
use perilog_core::controller::{Record, Snapshot};
use perilog_core::{Attempt, IdSet, JobId, Loss, Outcome, TaskId};

use super::Truth;

#[derive(Debug, Default)]
pub(super) struct Recovery {
    /// Whether a controller's store may be behind what the nodes know: for example, a store was rolled back, a second
    /// controller ran, or an operator made a controller take over.
    may_be_behind: bool,
    /// Whether the first controller has lost an epoch, has no evidence of it on its own host, and has entered no
    /// recovery since. The controller then does not know what it did in the lost epoch.
    unseen: bool,
    /// The controller that last entered a recovery, and the number of the commit that entered it. The notices in that
    /// same commit were decided before the recovery.
    entered: Option<(usize, u64)>,
    /// Whether a controller's process was restored with its memory: two of its epochs have then made commits with the
    /// same numbers.
    numbers_repeat: bool,
    /// Nodes that reported a commit which no controller made.
    forgers: BTreeSet<usize>,
}

/// With fewer nodes than this number in its store, a controller may enter a recovery on the evidence of one node alone
/// (docs/semantics.md, B1).
const WITNESSES: usize = 3;

impl Truth {
    /// Returns `true` if a controller's store may be behind the knowledge of the nodes.
    pub(super) const fn may_be_behind(&self) -> bool {
        self.recovery.may_be_behind
    }

    pub(crate) fn store_may_be_behind(&mut self) {
        self.recovery.may_be_behind = true;
    }

    pub(crate) fn lost_unseen(&mut self) {
        self.recovery.unseen = true;
    }

    pub(crate) fn numbers_repeat(&mut self) {
        self.recovery.numbers_repeat = true;
    }

    /// Returns `true` if a controller can distinguish a task of a lost epoch from a pruned task, because no two epochs
    /// have commits with the same numbers.
    pub(crate) const fn reports_lost_tasks(&self) -> bool {
        !self.recovery.numbers_repeat
    }

    /// Returns `true` if the first controller cannot know what it did in a lost epoch.
    pub(crate) const fn is_unseen(&self) -> bool {
        self.recovery.unseen
    }

    pub(crate) fn forged(&mut self, at: usize) {
        self.recovery.forgers.insert(at);
    }

    /// Returns `true` if the resource manager itself shows the host as drained.
    pub(crate) fn is_drained_in_its_book(&self, host: &str) -> bool {
        self.releases.is_drained(host)
    }

    /// Checks a batch that controller `which` is about to commit. A batch that begins a generation needs evidence. The
    /// batch begins, sends, releases, judges and prunes nothing of an abandoned attempt. `reported`: tasks whose
    /// ends may be recorded all the same, because their own nodes have reported them.
    pub(crate) fn check_abandoned(
        &mut self,
        which: usize,
        store: &Snapshot,
        records: &[Record],
        reported: &BTreeSet<TaskId>,
    ) {
        let enters = records.iter().any(|record| matches!(record, Record::Recovery(row) if row.ended_ms.is_none()));
        let few = store.nodes.len() < WITNESSES || store.attempts.is_empty();
        let alone = self.recovery.forgers.len() < 2 && (!few || self.recovery.forgers.is_empty());
        if enters && !is_on(store) && !self.recovery.may_be_behind && alone {
            let forgers = self.recovery.forgers.len();
            self.broken(|| {
                format!("recovery: c{which} enters it, no store is behind, and {forgers} hosts forge marks")
            });
        }
        if enters && which == 0 {
            self.recovery.unseen = false;
        }
        if enters {
            // The controller drops unread notices, and repeats them to a resource manager that asks.
            self.notices_may_repeat();
            let commit = records.iter().find_map(|record| match record {
                Record::Commit(number) => Some(*number),
                _ => None,
            });
            self.recovery.entered = commit.map(|number| (which, number));
        }
        if enters {
            store.attempts.iter().for_each(|row| self.asked_to_end(row.job.clone()));
        }
        if enters && is_on(store) {
            // A take-over during a recovery: the same batch may have Starts of attempts that an edge asserted just
            // before.
            return;
        }
        if store.attempts.iter().all(|row| !row.abandoned) {
            return;
        }
        let stays = |of: &AttemptRow| {
            records.iter().all(|record| match record {
                Record::Attempt(row) if row.job == of.job && row.attempt == of.attempt => row.abandoned,
                _ => true,
            })
        };
        let abandoned: BTreeSet<(&JobId, Attempt)> = store
            .attempts
            .iter()
            .filter(|row| row.abandoned && stays(row))
            .map(|row| (&row.job, row.attempt))
            .collect();
        let given_up = |job: &JobId, attempt| self.releases.given_up(job, attempt);
        let wrong = records.iter().find_map(|record| goes_on(store, record, reported, &abandoned, given_up));
        if let Some(what) = wrong {
            self.broken(|| format!("recovery: c{which} {what}, and no request for it has arrived"));
        }
    }

    /// Checks a notice that the controller sends to a hook or an edge: the notice's attempt is not abandoned.
    pub(crate) fn check_notice(&mut self, which: usize, store: &Snapshot, entry: &OutboxEntry) {
        let of = |row: &&AttemptRow| row.job == entry.job && row.attempt == entry.attempt;
        if self.recovery.entered == Some((which, store.history.last)) {
            return;
        }
        if store.attempts.iter().find(of).is_some_and(|row| row.abandoned) {
            let (sequence, job, attempt) = (entry.sequence, &entry.job, entry.attempt);
            self.broken(|| {
                format!(
                    "recovery: c{which} sends entry {sequence} of {job} attempt {attempt}, and no request for it has \
                     arrived"
                )
            });
        }
    }
}

pub(crate) fn is_on(store: &Snapshot) -> bool {
    store.recovery.as_ref().is_some_and(|row| row.ended_ms.is_none())
}

/// Describes what a record does to an abandoned attempt against the rules; `None`: it breaks no rule. An end that the
/// rank's own node reported is allowed.
fn goes_on(
    store: &Snapshot,
    record: &Record,
    reported: &BTreeSet<TaskId>,
    abandoned: &BTreeSet<(&JobId, Attempt)>,
    given_up: impl Fn(&JobId, Attempt) -> IdSet,
) -> Option<String> {
    let is_abandoned = |job: &JobId, attempt: Attempt| abandoned.contains(&(job, attempt));
    match record {
        Record::Prune { job, attempt, .. } if is_abandoned(job, *attempt) => {
            Some(format!("prunes {job} attempt {attempt}"))
        }
        // A milestone of a node's script is stored in a recovery, and sent after it.
        Record::Outbox(entry)
            if is_abandoned(&entry.job, entry.attempt)
                && entry.reader == Reader::Manager
                && entry.body.value()["event"] != "milestone" =>
        {
            Some(format!("has {} of {} attempt {} sent", entry.body.value(), entry.job, entry.attempt))
        }
        Record::Attempt(row) if is_abandoned(&row.job, row.attempt) => {
            let before = store.attempts.iter().find(|of| of.job == row.job && of.attempt == row.attempt)?;
            (!row.released.ranks.difference(&before.released.ranks).is_subset(&given_up(&row.job, row.attempt)))
                .then(|| format!("gives {} of {} attempt {} back", row.released, row.job, row.attempt))
        }
        Record::AttemptDelta { job, attempt, holds } if is_abandoned(job, *attempt) => {
            let before = store.attempts.iter().find(|of| of.job == *job && of.attempt == *attempt)?;
            let mut after = before.clone();
            after.put(holds);
            (!after.released.ranks.difference(&before.released.ranks).is_subset(&given_up(job, *attempt)))
                .then(|| format!("gives {} of {job} attempt {attempt} back", after.released))
        }
        Record::Action(row) if is_abandoned(&row.job, row.attempt) => {
            let before = store.actions.iter().find(|of| of.id == row.id)?;
            begun(before, row)
        }
        Record::ActionDelta { action, delta } => {
            let before =
                store.actions.iter().find(|of| of.id == *action).filter(|of| is_abandoned(&of.job, of.attempt))?;
            let mut after = before.clone();
            after.put(delta);
            begun(before, &after)
        }
        Record::Rank(row) => {
            let action = store.actions.iter().find(|of| of.id == row.task.action)?;
            let known = store.ranks.iter().any(|of| of.task == row.task);
            let is_judged = matches!(
                row.ended.outcome,
                Outcome::Lost {
                    why: Loss::Offline | Loss::Unreachable | Loss::Rebooted | Loss::Vanished | Loss::Lease
                }
            );
            // The rank's own node may have reported this end, perhaps from another boot.
            let is_reported = reported.contains(&row.task);
            (is_judged && !is_reported && !known && is_abandoned(&action.job, action.attempt)).then(|| {
                format!("says rank {} of {} of {} is {}", row.task.rank, action.name, action.job, row.ended.outcome)
            })
        }
        _ => None,
    }
}

fn begun(before: &ActionRow, after: &ActionRow) -> Option<String> {
    let (name, job) = (&after.name, &after.job);
    let new = after.sent.difference(&before.sent);
    if !new.is_empty() {
        return Some(format!("begins {name} of {job} on ranks {new}"));
    }
    (before.verdict.is_none() && after.verdict.is_some()).then(|| format!("judges {name} of {job}"))
}
