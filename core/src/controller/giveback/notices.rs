//! Notices: decides which notices about a job enter the outbox, for the resource manager and for the release hook. In a
//! recovery, also decides which notices are dropped or repeated, because a lost life of the controller may have sent
//! them.

use serde_json::{Value, json};

use crate::controller::context::Context;
use crate::controller::giveback::outbox::{Outbox, first_sequence};
use crate::controller::io::{Effect, OutboxEntry, Reader, Record};
use crate::controller::job::Jobs;
use crate::controller::stored::body::Body;
use crate::defect;
use crate::ids::{Attempt, JobId};
use crate::idset::IdSet;
use crate::job::Part;

/// Parts of the release notices that [`Jobs::take_releases`] dropped from the outbox. `manager`: ranks and named
/// resources in dropped notices to the resource manager. `hook`: the same for the release hook.
#[derive(Debug, Default)]
pub(crate) struct Owed {
    pub(crate) manager: Part,
    hook: Part,
}

impl Outbox {
    /// Prepares the outbox for a new life of the controller: new entries bear its epoch, and have higher numbers than
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

    /// Drops all notices about an attempt that are still in the outbox; returns their sequence numbers.
    pub(crate) fn drop_notices(&mut self, job: &JobId, number: Attempt) -> Vec<u64> {
        let owed = self.outbox.forget(job, number);
        self.records.extend(owed.iter().map(|sequence| Record::OutboxDone { sequence: *sequence }));
        if !owed.is_empty() {
            // Later notices about the job may go now.
            self.effects.push(Effect::OutboxGrew);
        }
        owed
    }
}

impl Jobs {
    /// Adds a notice of an event to the outbox for the resource manager, unless all ranks of the attempt are disowned.
    pub(crate) fn tell_manager(&self, job: &JobId, number: Attempt, event: &str, mut context: Value, cx: &mut Context) {
        if self.attempt(job, number).is_none_or(|attempt| !attempt.owed().ranks.is_empty()) {
            cx.send_notice(Reader::Manager, job, number, told_as(&mut context, event, None));
        }
    }

    /// Drops release notices of an unvouched attempt from the outbox: each notice that names a rank outside `listed`,
    /// the ranks that the resource manager still holds for the attempt. A lost life has already sent such a notice, and
    /// another job may have that rank's host by now. Returns the ranks in `listed` and all named resources of the
    /// dropped notices, for [`Self::release_again`]. Drops nothing if the attempt is vouched for.
    pub(crate) fn take_releases(&mut self, job: &JobId, number: Attempt, listed: &IdSet, cx: &mut Context) -> Owed {
        let mut owed = Owed::default();
        if !self.is_unvouched(job, number) || defect!(OwedReleaseStays) {
            return owed;
        }
        let of = |entry: &&OutboxEntry| entry.job == *job && entry.attempt == number;
        let entries = cx.outbox.manager(0).chain(cx.outbox.releases()).filter(of);
        let releases = entries.filter_map(|entry| Some((entry.sequence, entry.reader, entry.released()?)));
        let releases: Vec<(u64, Reader, Part)> = releases.filter(|(.., part)| !part.ranks.is_subset(listed)).collect();
        if !releases.is_empty() {
            let sequences: Vec<u64> = releases.iter().map(|(sequence, ..)| *sequence).collect();
            let why = "its resource manager does not name all of their nodes any more";
            self.event(job, "release-forgotten", json!({"attempt": number, "sequences": sequences, "why": why}), cx);
        }
        for (sequence, reader, part) in releases {
            let of_reader = if reader == Reader::Manager { &mut owed.manager } else { &mut owed.hook };
            of_reader.extend_with(&Part { ranks: part.ranks.intersection(listed), resources: part.resources });
            cx.finish_notice(sequence);
            // Later notices about the job may go now.
            cx.effects.push(Effect::OutboxGrew);
        }
        owed
    }

    /// Sends release notices again for ranks that are released in the store and that the resource manager still lists
    /// as held (`listed`). Leaves out ranks of which a release notice to the resource manager is in the outbox. Also
    /// sends notices for `owed`, the parts of the notices that [`Self::take_releases`] dropped.
    pub(crate) fn release_again(&mut self, job: &JobId, number: Attempt, listed: &IdSet, owed: Owed, cx: &mut Context) {
        let Some(attempt) = self.attempt(job, number) else { return };
        let mut ranks = attempt.released.ranks.intersection(listed);
        if !ranks.is_empty() {
            let of = cx.outbox.manager(0).filter(|entry| entry.job == *job && entry.attempt == number);
            of.filter_map(OutboxEntry::released).for_each(|under_way| ranks.subtract(&under_way.ranks));
        }
        if defect!(ReleaseForgotten) {
            return;
        }
        let manager = Part { ranks, resources: owed.manager.resources };
        for (reader, part) in [(Reader::Manager, manager), (Reader::ReleaseHook, owed.hook)] {
            let Some(attempt) = self.attempt(job, number).filter(|_| !part.is_empty()) else { continue };
            let mut context = attempt.release_of(number, &part);
            let at_ms = (reader == Reader::ReleaseHook).then_some(cx.now.wall_ms);
            // Not by `tell_manager`, which sends no notice about an attempt with only disowned ranks.
            cx.send_notice(reader, job, number, told_as(&mut context, "release", at_ms));
        }
    }
}

/// Returns the body of a notice: the members of `context`, the event's name as `event`, and `at_ms` unless it is
/// `None`. `at_ms`: the time (ms since 1970) from which the age of the pending notice counts. `context` is unchanged
/// afterwards.
pub(super) fn told_as(context: &mut Value, event: &str, at_ms: Option<u64>) -> Body {
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
