//! Writes the inputs and effects of the machine to the log, at the level `trace`, as lines of [`perilog_core::trace`].
//! With the level off, each costs a read of a flag.

use perilog_core::agent::io::{Effect, Input, Now};
use perilog_core::trace::Line;
use serde::Serialize;

/// Numbers the lines of the trace.
#[derive(Debug, Default)]
pub(super) struct Trace {
    next: u64,
}

#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
enum Entry<'a> {
    Now(Now),
    Input(&'a Input),
    Effect(&'a Effect),
}

impl Trace {
    pub(super) fn input(&mut self, input: &Input, now: Now) {
        self.line(&Entry::Now(now));
        self.line(&Entry::Input(input));
    }

    pub(super) fn effect(&mut self, effect: &Effect) {
        self.line(&Entry::Effect(effect));
    }

    fn line(&mut self, entry: &Entry) {
        if !tracing::enabled!(tracing::Level::TRACE) {
            return;
        }
        let Line { text, job, task, .. } = Line::new(self.next, entry);
        let (rank, action_id) = (task.map(|task| task.rank.0), task.map(|task| tracing::field::display(task.action)));
        tracing::trace!(job, rank, action_id, "{text}");
        self.next += 1;
    }
}
