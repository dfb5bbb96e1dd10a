//! Notices: decides which notices about a job enter the outbox, for the resource manager and for the release hook, and
//! which are dropped or repeated after a restore, because a lost epoch of the controller may have sent them.

use serde_json::Value;

use crate::controller::interface::io::{Effect, OutboxEntry, Reader, Record};
use crate::controller::state::Jobs;
use crate::controller::state::attempt::JobAttempt;
use crate::controller::state::context::Context;
use crate::controller::state::outbox::{Outbox, first_sequence};
use crate::controller::stored::body::Body;
use crate::defect;
use crate::ids::{Attempt, JobId};
use crate::idset::IdSet;
use crate::job::Part;

impl Outbox {
    /// Prepares the outbox for a new epoch of the controller: new entries bear its epoch, and have higher numbers than
    /// all earlier entries.
    pub(crate) fn begin(&mut self, epoch: u64, wall_ms: u64) {
        (self.epoch, self.last) = (epoch, first_sequence(wall_ms, self.last));
    }
}

impl Context {
    /// Adds a notice for `reader` to the outbox.
    pub(super) fn send_notice(&mut self, reader: Reader, job: &JobId, attempt: Attempt, body: Body) {
        let entry = self.outbox.next(reader, job, attempt, body);
        self.records.push(Record::Outbox(entry));
        self.effects.push(Effect::OutboxGrew);
    }

    /// Removes a notice from the outbox, because its receiver has carried out the notice or must not get it.
    pub(crate) fn finish_notice(&mut self, sequence: u64) {
        self.outbox.done(sequence);
        self.records.push(Record::OutboxDone { sequence });
    }

    /// Drops the notices about an attempt that are still in the outbox; returns their sequence numbers. `of`: only the
    /// notices for this reader; `None`: all.
    pub(crate) fn drop_notices(&mut self, job: &JobId, number: Attempt, of: Option<Reader>) -> Vec<u64> {
        let pending = self.outbox.forget(job, number, of);
        self.records.extend(pending.iter().map(|sequence| Record::OutboxDone { sequence: *sequence }));
        if !pending.is_empty() {
            // Later notices about the job may go now.
            self.effects.push(Effect::OutboxGrew);
        }
        pending
    }

    /// Drops all notices to the resource manager.
    pub(crate) fn drop_manager_notices(&mut self) {
        if self.outbox.has_manager() {
            let through = self.outbox.last;
            self.outbox.applied(through);
            self.records.push(Record::OutboxApplied { through });
            self.effects.push(Effect::OutboxGrew);
        }
    }
}

impl Jobs {
    /// Adds a notice of an event to the outbox for the resource manager, unless the attempt is unlisted or abandoned.
    pub(crate) fn notify_manager(
        &self,
        job: &JobId,
        number: Attempt,
        event: &str,
        mut context: Value,
        cx: &mut Context,
    ) {
        // A notice of an abandoned attempt would keep all later notices back until the attempt is taken up.
        let is_notified = |attempt: &JobAttempt| {
            let abandoned = if defect!(AbandonedNoticed) { false } else { attempt.abandoned };
            !attempt.silent && !abandoned
        };
        if self.attempt(job, number).is_none_or(is_notified) {
            cx.send_notice(Reader::Manager, job, number, notice_body(&mut context, event, None));
        }
    }

    /// Sends release notices again for ranks that are released in the store and that the resource manager still lists
    /// as held (`listed`). Leaves out ranks of which a release notice to the resource manager is in the outbox.
    pub(crate) fn release_again(&mut self, job: &JobId, number: Attempt, listed: &IdSet, cx: &mut Context) {
        if defect!(ReleaseForgotten) {
            return;
        }
        let Some(attempt) = self.attempt(job, number) else { return };
        let mut ranks = attempt.released.ranks.intersection(listed);
        if !ranks.is_empty() {
            let of = cx.outbox.about(job, number).filter(|entry| entry.reader == Reader::Manager);
            of.filter_map(OutboxEntry::released).for_each(|under_way| ranks.subtract(&under_way.ranks));
        }
        let part = Part::of_ranks(ranks);
        if !part.is_empty() {
            let mut context = attempt.release_of(number, &part);
            cx.send_notice(Reader::Manager, job, number, notice_body(&mut context, "release", None));
        }
    }
}

/// Returns the body of a notice: the members of `context`, the event's name as `event`, and `at_ms` unless it is
/// `None`. `at_ms`: the time (ms since 1970) from which the age of the pending notice counts. `context` is unchanged
/// afterwards.
pub(super) fn notice_body(context: &mut Value, event: &str, at_ms: Option<u64>) -> Body {
    if let Some(object) = context.as_object_mut() {
        object.insert("event".to_owned(), event.into());
        object.extend(at_ms.map(|at_ms| ("at_ms".to_owned(), at_ms.into())));
    }
    let body = Body::from(&*context);
    if let Some(object) = context.as_object_mut() {
        object.remove("event");
        object.remove("at_ms");
    }
    body
}
