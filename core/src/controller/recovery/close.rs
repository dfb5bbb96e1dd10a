//! Closing: decides how the controller closes an attempt, or ranks of an attempt, that a lost life of the controller
//! had released. No waiting task begins, and no notice is sent.

use serde_json::json;

use crate::controller::context::{Change, Context};
use crate::controller::io::Resolving;
use crate::controller::job::Jobs;
use crate::controller::machine::Machine;
use crate::defect;
use crate::ids::{Attempt, HostName, JobId, Rank, TaskId};
use crate::idset::IdSet;
use crate::job::Part;
use crate::task::Ended;

/// Reason for which a task never begins: a lost life had released its host, as an operator or a request says.
const GIVEN_BACK: &str = "given back before the store was put back";

impl Jobs {
    /// Closes an attempt that its resource manager no longer lists: drops its notices, and disowns its unreleased
    /// ranks. After-actions begin only where no other job can be harmed ([`super::disowned`]).
    pub(crate) fn over_untold(&mut self, job: &JobId, number: Attempt, cx: &mut Context) {
        let owed = cx.drop_notices(job, number);
        let left = self.unreleased(job, number);
        self.disown(job, number, &left.ranks, cx);
        let context = json!({"attempt": number, "why": "its resource manager has it no more", "untold": owed});
        self.event(job, "attempt-over", context, cx);
        self.assert_attempt(job, number, cx);
        self.close_attempt(job, number, "its resource manager has it no more", cx);
    }

    /// Closes the ranks and resources `part` of an attempt, which a lost life had released already. Waiting tasks never
    /// begin, running tasks go on, and no notice is sent. A task that may have been sent to its node stays open until
    /// the node reports the end, or reports that the task never began.
    pub(crate) fn close_part(&mut self, job: &JobId, number: Attempt, part: &Part, uid: u32, cx: &mut Context) {
        self.disown(job, number, &part.ranks, cx);
        let Some(attempt) = self.attempt(job, number) else { return };
        for id in attempt.actions.clone() {
            let Some(action) = self.action_mut(id) else { continue };
            let waiting = action.row.waiting.intersection(&part.ranks);
            let sent = action.row.sent.intersection(&part.ranks);
            let word = |ranks| Resolving { unbegun: true, ..Resolving::new(ranks, true, GIVEN_BACK, uid) };
            if !sent.is_empty() && !defect!(GoneWhileUnderWay) {
                action.resolve_later(word(sent.clone()));
            }
            for task in sent.iter().map(|rank| TaskId { action: id, rank: Rank(rank) }) {
                cx.changes.push_back(Change::Cancelled(task, GIVEN_BACK.to_owned()));
            }
            let ends = if defect!(GoneWhileUnderWay) { waiting.union(&sent) } else { waiting };
            let outcome = word(IdSet::new()).outcome();
            for task in ends.iter().map(|rank| TaskId { action: id, rank: Rank(rank) }) {
                self.end_task(task, Ended::bare(outcome.clone(), cx.now.wall_ms), cx);
            }
            self.touch(id, cx);
        }
        let Some(attempt) = self.attempt_mut(job, number) else { return };
        attempt.by_hand = true;
        let part = attempt.let_go(part);
        let last = attempt.hold.ranks.is_empty();
        cx.attempt_changed(job, number);
        if last {
            self.seal(job, number, cx);
        }
        cx.hold_dropped(job, number, &part);
    }

    /// Reduces an attempt to `ranks`, which a request in a recovery names as not released yet. Disowns all other
    /// unreleased ranks, and drops the job's hold on them. If the attempt has no source, also closes these ranks as a
    /// part that a lost life had released.
    pub(crate) fn shrink_to(&mut self, job: &JobId, number: Attempt, ranks: &IdSet, uid: u32, cx: &mut Context) {
        let gone = self.unreleased(job, number).ranks.difference(ranks);
        let gone = Part::of_ranks(gone);
        self.disown(job, number, &gone.ranks, cx);
        self.let_go(job, number, &gone, cx);
        if self.attempt(job, number).is_some_and(|attempt| attempt.source.is_none()) {
            self.close_part(job, number, &gone, uid, cx);
        }
    }
}

impl Machine {
    /// Closes an attempt whose nodes a lost life had released and cleaned up, as an operator says. None of its tasks
    /// begins, and no notice is sent. Running tasks go on, services are asked to stop, and orphans are given up. If the
    /// attempt is vouched for, only its disowned ranks are closed.
    pub(crate) fn close_untold(&mut self, job: &JobId, number: Attempt, uid: u32) {
        let orphans = self.facts().orphans().filter(|(_, _, orphan)| orphan.job == *job && orphan.attempt == number);
        let orphans: Vec<(HostName, TaskId)> = orphans.map(|(host, task, _)| (host.clone(), task)).collect();
        for (host, task) in orphans {
            self.nodes.give_up_orphan(&host, task, &mut self.cx);
        }
        let Some(attempt) = self.jobs.attempt(job, number) else { return };
        if attempt.is_vouched() {
            let part = Part::of_ranks(attempt.in_doubt());
            return self.jobs.close_part(job, number, &part, uid, &mut self.cx);
        }
        self.cx.drop_notices(job, number);
        let left = self.jobs.unreleased(job, number);
        self.jobs.close_part(job, number, &left, uid, &mut self.cx);
        if let Some(attempt) = self.jobs.attempt_mut(job, number) {
            attempt.open = false;
            if !defect!(GoneIsTold) {
                // Named resources that are released later cause no notice either.
                attempt.disowned.extend_with(attempt.layout.ranks());
            }
        }
        self.jobs.stop_services(job, number, GIVEN_BACK, &mut self.cx);
        self.jobs.event(job, "attempt-closed", json!({"attempt": number, "why": GIVEN_BACK, "by": uid}), &mut self.cx);
        self.jobs.assert_attempt(job, number, &mut self.cx);
    }
}
