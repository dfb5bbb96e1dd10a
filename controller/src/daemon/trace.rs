//! Writes the trace of the machine to the log, at the level `trace`: what a replay needs, and what it compares. The
//! lines are those of [`perilog_core::controller::trace`]. With the level off, a batch costs two reads of a flag.

use std::borrow::Cow;

use perilog_core::controller::io::Fetched;
use perilog_core::controller::trace::{Begin, Entry};
use perilog_core::controller::{Input, Now, Output, Settings, Snapshot};
use perilog_core::defect;
use perilog_core::trace::{Line, concealed};

/// Numbers the lines of the trace. Each call takes a number, even if the level is off: a trace with a pause has a gap.
#[derive(Debug, Default)]
pub(super) struct Trace {
    next: u64,
}

impl Trace {
    pub(super) fn begin(&mut self, stored: &Snapshot, (settings, nonce): (&Settings, u64), now: Now) {
        self.lines(|| [Entry::Begin(Begin::new(stored, settings, nonce, now))]);
    }

    pub(super) fn fetched(&mut self, rows: &Fetched, now: Now) {
        if defect!(FetchedUntraced) {
            return;
        }
        self.lines(|| [Entry::Fetched { now, rows: Cow::Borrowed(rows) }]);
    }

    pub(super) fn inputs(&mut self, inputs: &[Input], now: Now) {
        let inputs = inputs.iter().map(|input| Entry::Input(Cow::Borrowed(input)));
        self.lines(|| std::iter::once(Entry::Batch(now)).chain(inputs));
    }

    pub(super) fn output(&mut self, output: &Output) {
        let records = output.records.iter().map(|record| Entry::Record(concealed(record)));
        let effects = output.effects.iter().map(|effect| Entry::Effect(concealed(effect)));
        self.lines(|| records.chain(effects));
    }

    pub(super) fn failed(&mut self) {
        self.lines(|| [Entry::Failed {}]);
    }

    fn lines<'a, I: IntoIterator<Item = Entry<'a>>>(&mut self, entries: impl FnOnce() -> I) {
        if !tracing::enabled!(tracing::Level::TRACE) {
            self.next += 1;
            return;
        }
        for entry in entries() {
            let Line { text, session, job, task } = Line::new(self.next, &entry);
            let (rank, action_id) =
                (task.map(|task| task.rank.0), task.map(|task| tracing::field::display(task.action)));
            tracing::trace!(session, job, rank, action_id, "{text}");
            self.next += 1;
        }
    }
}
