//! Giving up: decides what happens to a rank whose host the resource manager has given to another job, or may have. The
//! store counts the rank as released, and no notice is sent that it is free. Running tasks go on, and no other task of
//! the rank begins.

use std::collections::BTreeSet;

use serde_json::json;

use crate::controller::action::order::GIVEN_UP;
use crate::controller::interface::io::Recovered;
use crate::controller::state::Jobs;
use crate::controller::state::Nodes;
use crate::controller::state::RankState;
use crate::controller::state::change::Change;
use crate::controller::state::context::Context;
use crate::defect;
use crate::ids::{ActionId, Attempt, JobId, Rank, ResourceName, TaskId};
use crate::idset::IdSet;
use crate::job::Part;

use super::generation::BEGUN_BEFORE;

impl Jobs {
    /// Returns the reason if the task, which has not begun on its node, never may: its rank was given up, or it is a
    /// setup task that got its Start before its attempt was taken up, and the job had begun.
    pub(crate) fn must_not_start(&self, task: TaskId) -> Option<&'static str> {
        let action = self.action(task.action)?;
        let begun = self.attempt_of(action).is_some_and(|attempt| attempt.recovered == Recovered::Begun);
        let was_sent = matches!(action.rank_state(task.rank), RankState::Sent | RankState::Accepted);
        if defect!(StaleSetupBegins) {
        } else if begun && was_sent && !self.follows(action) {
            return Some(BEGUN_BEFORE);
        }
        self.is_given_up(task).then_some(GIVEN_UP)
    }

    /// Gives up ranks that the resource manager has given to another job, or may have. The store counts them as
    /// released, and sends no notice. Where a setup action may have begun, the after-actions follow, but none of them
    /// begins ([`Jobs::is_given_up`]): it ends `cancelled` unless the node knows its end, and the host is drained.
    /// Running tasks go on. `why`: the reason, for the event log.
    pub(crate) fn give_up(&mut self, job: &JobId, number: Attempt, ranks: &IdSet, why: &str, cx: &mut Context) {
        let ranks = self.unreleased(job, number).ranks.intersection(ranks);
        if ranks.is_empty() {
            return;
        }
        let begun = self.begun(job, number).intersection(&ranks);
        self.hand_over(job, number, &Part::of_ranks(begun), cx);
        self.release_silently(job, number, &ranks, why, cx);
        if self.attempt(job, number).is_some_and(|attempt| attempt.hold.ranks.is_empty()) {
            self.seal(job, number, cx);
        }
    }

    /// Counts ranks as released without a notice, and drops all holds on them. With the last ranks that the job holds,
    /// this includes its named resources: no request would name them later. `why`: the reason, for the event log.
    pub(super) fn release_silently(
        &mut self,
        job: &JobId,
        number: Attempt,
        ranks: &IdSet,
        why: &str,
        cx: &mut Context,
    ) {
        let Some(attempt) = self.attempt(job, number) else { return };
        let held: BTreeSet<ResourceName> =
            self.of(attempt).flat_map(|action| action.row.held.resources.iter().cloned()).collect();
        let Some(attempt) = self.attempt_mut(job, number) else { return };
        let dropped = attempt.drop_hold(&Part::of_ranks(ranks.clone()));
        attempt.released.ranks.extend_with(ranks);
        attempt.released.resources.extend(dropped.resources.difference(&held).cloned());
        attempt.complete = attempt.released == attempt.whole();
        attempt.touched_ms = cx.now.wall_ms;
        let (complete, actions) = (attempt.complete, attempt.actions.clone());
        let hosts = attempt.layout.hosts_of(ranks);
        cx.attempt_changed(job, number);
        let context = json!({"attempt": number, "ranks": ranks, "hosts": hosts, "final": complete, "why": why});
        self.event(job, "given-up", context, cx);
        for id in actions {
            self.action_mut(id).into_iter().for_each(|action| action.give_up(ranks));
            self.ready(id, ranks.clone(), cx);
            cx.touched.insert(id);
            cx.changes.push_back(Change::GivenUp(id, ranks.clone()));
        }
    }

    /// Returns `true` if the task's rank was given up or released: the task must not begin.
    pub(crate) fn is_given_up(&self, task: TaskId) -> bool {
        if defect!(GivenUpBegins) {
            return false;
        }
        let attempt = self.action(task.action).and_then(|action| self.attempt_of(action));
        attempt.is_some_and(|attempt| attempt.released.ranks.contains(task.rank.0))
    }

    /// Cancels, on ranks that were given up, the tasks that their nodes have not begun. Running tasks go on.
    pub(crate) fn given_up(&self, id: ActionId, ranks: &IdSet, nodes: &Nodes, cx: &mut Context) {
        let is_ours = !self.is_suspended_action(id) && !self.is_external(id);
        let Some(action) = self.action(id).filter(|_| is_ours) else { return };
        let mut open = action.row.sent.union(&action.row.accepted).intersection(ranks);
        open.subtract(&action.row.cancelling);
        for task in open.iter().map(|rank| TaskId { action: id, rank: Rank(rank) }) {
            let Some(node) = nodes.of(self, task) else { continue };
            let is_begun = node.live.get(&task).is_some_and(|(phase, _)| !phase.may_still_begin());
            let is_begun = if defect!(GivenUpBegins) { true } else { is_begun };
            if let Some(session) = node.session.filter(|_| !is_begun) {
                self.send_cancel(session, task, GIVEN_UP, cx);
            }
        }
    }
}
