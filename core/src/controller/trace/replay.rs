//! Plays a trace through a machine, and compares what the machine makes of it with the trace.

use std::collections::VecDeque;

use serde::Deserialize;
use serde_json::Value;

use super::{Begin, Entry, VERSION};
use crate::controller::interface::io::{Input, Now};
use crate::controller::writer::{Batch, Writer};
use crate::trace::{concealed, read};

/// Result of a replay.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Replayed {
    /// Number of lines before the first `begin`: the machine's state is not known there, so they were not played.
    pub skipped: u64,
    pub batches: u64,
    pub inputs: u64,
    /// Number of records and effects that were compared.
    pub compared: u64,
    /// Number of records and effects in which the machine and the trace differ.
    pub differences: u64,
}

/// Plays the lines of a log, and passes each step to `print`: the lines of the trace, and below a line the difference,
/// if there is one.
///
/// # Errors
/// A text: no line is a `begin` of a trace, lines are missing after the `begin`, a line is malformed, or an input
/// stands outside of a batch.
pub fn replay<'t>(log: impl IntoIterator<Item = &'t str>, print: &mut dyn FnMut(&str)) -> Result<Replayed, String> {
    let mut player =
        Player { print, done: Replayed::default(), writer: None, batch: None, due: None, left: VecDeque::new() };
    let mut last = None;
    for (number, entry) in log.into_iter().filter_map(read) {
        let begins = entry.get("begin").is_some();
        if player.writer.is_none() && !begins {
            player.done.skipped += 1;
            continue;
        }
        if let Some(last) = last.filter(|last| !begins && *last + 1 != number) {
            return Err(format!("line {number} follows line {last}: the log has lost the lines between them"));
        }
        last = Some(number);
        let entry = Entry::deserialize(entry).map_err(|error| format!("line {number}: {error}"))?;
        player.step(number, entry)?;
    }
    player.run();
    // The last batch may be cut off, so outputs that the trace lacks are no difference there.
    match player.done {
        Replayed { batches: 0, skipped: 0, .. } => Err("no line of a trace".to_owned()),
        Replayed { batches: 0, skipped, .. } => Err(format!(
            "none of the {skipped} lines of the trace is a \"begin\": the trace was switched on while the controller \
             ran"
        )),
        done => Ok(done),
    }
}

struct Player<'a> {
    print: &'a mut dyn FnMut(&str),
    done: Replayed,
    /// `None` before the first `begin`.
    writer: Option<Writer>,
    /// The batch whose outputs the next lines are; it is not committed yet.
    batch: Option<Batch>,
    /// The time and the inputs of the batch that has not run yet.
    due: Option<(Now, Vec<Input>)>,
    /// Outputs of the batch that the trace has not shown yet: the name of the kind, and the value.
    left: VecDeque<(&'static str, Value)>,
}

impl Player<'_> {
    fn step(&mut self, number: u64, entry: Entry) -> Result<(), String> {
        match entry {
            Entry::Begin(begin) => self.begin(begin),
            Entry::Fetched { now, rows } => {
                self.settle();
                (self.print)(&format!("fetched the rows of {} jobs", rows.attempts.len()));
                if let Some(writer) = &mut self.writer {
                    writer.take_in(rows.into_owned(), now);
                }
            }
            Entry::Batch(now) => {
                self.settle();
                (self.print)(&format!("batch at {} ms, {} ms since 1970", now.mono_ms, now.wall_ms));
                self.due = Some((now, Vec::new()));
            }
            Entry::Input(input) => {
                let (_, inputs) =
                    self.due.as_mut().ok_or_else(|| format!("line {number}: an input outside of a batch"))?;
                (self.print)(&format!("  input {}", concealed(&input)));
                inputs.push(input.into_owned());
            }
            Entry::Record(value) => self.compare("record", &value),
            Entry::Effect(value) => self.compare("effect", &value),
            Entry::Failed {} => {
                self.run();
                if let Some((writer, batch)) = self.writer.as_mut().zip(self.batch.take()) {
                    writer.failed(batch);
                }
                self.left.clear();
                (self.print)("the commit failed");
            }
        }
        Ok(())
    }

    fn begin(&mut self, begin: Begin) {
        self.settle();
        let Begin { version, now, nonce, settings, stored } = begin;
        (self.print)(&format!("begin at {} ms, {} ms since 1970", now.mono_ms, now.wall_ms));
        if version != VERSION {
            (self.print)(&format!("  written by version {version}; this is {}", VERSION));
        }
        let mut writer = Writer::new(settings.into_owned(), nonce);
        let batch = writer.begin(stored.into_owned(), now);
        self.writer = Some(writer);
        self.ran(batch);
    }

    /// Lets the machine handle the inputs of the batch, unless it has done so.
    fn run(&mut self) {
        if let Some((now, inputs)) = self.due.take()
            && let Some(writer) = &mut self.writer
        {
            self.done.inputs += inputs.len() as u64;
            let batch = writer.handle(inputs, now);
            self.ran(batch);
        }
    }

    fn ran(&mut self, batch: Batch) {
        self.done.batches += 1;
        let records = batch.records().iter().map(|record| ("record", concealed(record)));
        let effects = batch.output().effects.iter().map(|effect| ("effect", concealed(effect)));
        self.left = records.chain(effects).collect();
        self.batch = Some(batch);
    }

    fn compare(&mut self, kind: &'static str, traced: &Value) {
        self.run();
        (self.print)(&format!("  {kind} {traced}"));
        self.done.compared += 1;
        let made = self.left.pop_front();
        if made.as_ref().is_some_and(|(of, value)| *of == kind && value == traced) {
            return;
        }
        self.done.differences += 1;
        let made = made.map_or_else(|| "nothing".to_owned(), |(kind, value)| format!("{kind} {value}"));
        (self.print)(&format!("    DIFFERS: the machine made {made}"));
    }

    /// Ends the batch as if its records were committed.
    fn settle(&mut self) {
        self.run();
        for (kind, value) in std::mem::take(&mut self.left) {
            self.done.differences += 1;
            (self.print)(&format!("    DIFFERS: the trace lacks {kind} {value}"));
        }
        if let Some((writer, batch)) = self.writer.as_mut().zip(self.batch.take()) {
            let _ = writer.committed(batch);
        }
    }
}
