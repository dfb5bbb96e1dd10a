//! Applies records to a snapshot. Every store must give the same result as this code. The simulator and the tests use a
//! snapshot as the store.

mod part;

use crate::controller::interface::io::{Reader, Record, Snapshot};

impl Snapshot {
    /// Applies one record, as the store does in its transaction. Unlike the store, a snapshot keeps only the last
    /// sequence number of each event log.
    pub fn apply(&mut self, record: &Record) {
        match record {
            Record::Commit(number) => self.history.last = *number,
            Record::Epoch(epoch) => self.history.begin(*epoch, self.history.last),
            Record::Recovery(recovery) => {
                self.recovery = Some(recovery.clone());
                self.stamp = None;
            }
            Record::Node(row) => put(&mut self.nodes, row.clone(), |a, b| a.host == b.host),
            Record::NodeForgotten { host } => self.nodes.retain(|node| node.host != *host),
            Record::Attempt(row) => {
                put(&mut self.attempts, row.clone(), |a, b| a.job == b.job && a.attempt == b.attempt)
            }
            Record::Action(row) => put(&mut self.actions, (**row).clone(), |a, b| a.id == b.id),
            Record::ActionDelta { action, delta } => {
                if let Some(row) = self.actions.iter_mut().find(|row| row.id == *action) {
                    row.put(delta);
                }
            }
            Record::AttemptDelta { job, attempt, holds } => {
                if let Some(row) = self.attempts.iter_mut().find(|row| row.job == *job && row.attempt == *attempt) {
                    row.put(holds);
                }
            }
            Record::Rank(row) => put(&mut self.ranks, (**row).clone(), |a, b| a.task == b.task),
            Record::Drain(row) => put(&mut self.drains, row.clone(), |a, b| a.host == b.host),
            Record::Undrained { host } => self.drains.retain(|drain| drain.host != *host),
            Record::Quiet(quiet) => self.quiet.clone_from(quiet),
            Record::OutboxDone { sequence } => self.outbox.retain(|entry| entry.sequence != *sequence),
            Record::Event { job, sequence, .. } => {
                self.events_last.insert(job.clone(), *sequence);
            }
            Record::Outbox(entry) => {
                self.outbox_last = entry.sequence;
                self.outbox.push(entry.clone());
            }
            Record::OutboxApplied { through } => {
                self.outbox.retain(|entry| entry.reader != Reader::Manager || entry.sequence > *through);
            }
            Record::Prune { job, attempt, whole_job } => {
                let gone: Vec<_> =
                    self.actions.iter().filter(|a| a.job == *job && a.attempt == *attempt).map(|a| a.id).collect();
                self.actions.retain(|a| !gone.contains(&a.id));
                self.ranks.retain(|r| !gone.contains(&r.task.action));
                self.attempts.retain(|a| !(a.job == *job && a.attempt == *attempt));
                self.outbox.retain(|e| !(e.job == *job && e.attempt == *attempt));
                if *whole_job {
                    self.events_last.remove(job);
                }
            }
        }
    }
}

fn put<T>(rows: &mut Vec<T>, row: T, same: impl Fn(&T, &T) -> bool) {
    match rows.iter_mut().find(|r| same(r, &row)) {
        Some(old) => *old = row,
        None => rows.push(row),
    }
}
