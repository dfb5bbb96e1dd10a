//! Estimated size of a record in the store: the bytes of the texts that the store writes for the record
//! (`controller/src/store/write.rs`), without the overhead of SQLite's pages.

use std::fmt::{self, Display, Write};

use perilog_core::controller::Record;
use perilog_core::controller::io::{ActionRow, AttemptRow};
use serde::Serialize;

/// Estimated number of bytes that the numbers, flags and short names of one stored record take.
const FIXED: usize = 64;

pub(crate) fn of(record: &Record) -> usize {
    FIXED
        + match record {
            Record::Commit(_)
            | Record::Epoch(_)
            | Record::Recovery(_)
            | Record::Quiet(_)
            | Record::OutboxApplied { .. }
            | Record::OutboxDone { .. }
            | Record::Prune { .. } => 0,
            Record::Node(row) => {
                row.host.as_str().len() + row.machine.as_str().len() + row.boot.as_str().len() + row.version.len()
            }
            Record::Attempt(row) => attempt(row),
            Record::Action(row) => action(row),
            Record::ActionDelta { delta, .. } => json(delta),
            Record::AttemptDelta { holds, .. } => json(holds),
            Record::Rank(row) => json(&row.ended) + json(&row.late),
            Record::Drain(row) => row.host.as_str().len() + row.reason.len(),
            Record::Undrained { host } | Record::NodeForgotten { host } => host.as_str().len(),
            Record::Event { event, .. } => event.name().len() + event.context().map_or(0, |context| json(&context)),
            Record::Outbox(entry) => entry.body.as_str().len(),
        }
}

fn attempt(row: &AttemptRow) -> usize {
    text(&row.ranks) + text(&row.hosts) + json(&row.terms) + json(&row.hold) + json(&row.released)
}

fn action(row: &ActionRow) -> usize {
    let sets = [&row.ranks, &row.waiting, &row.sent, &row.accepted, &row.ok, &row.not_ok, &row.cancelling];
    let sets: usize = sets.into_iter().map(text).sum();
    sets + json(&row.env) + json(&row.boots) + json(&row.held)
}

/// A writer that only counts the bytes written.
struct Count(usize);

impl Write for Count {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0 += text.len();
        Ok(())
    }
}

impl std::io::Write for Count {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn text(value: &impl Display) -> usize {
    let mut count = Count(0);
    // Counting does not fail.
    let _ = write!(count, "{value}");
    count.0
}

fn json(value: &impl Serialize) -> usize {
    let mut count = Count(0);
    let _ = serde_json::to_writer(&mut count, value);
    count.0
}
