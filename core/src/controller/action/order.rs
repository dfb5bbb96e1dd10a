//! Order: decides whether a rank of an action may begin now, and starts the ranks that may. On each rank:
//!
//! * a setup action (prolog, check) begins when the earlier setup actions and external actions have ended on the rank,
//!   and no after-action that was sent is open there;
//! * an after-action (epilog) begins when all setup actions, all external actions and the earlier after-actions have
//!   ended on the rank. A setup action goes first even if a request began it later, because the epilog may grow by the
//!   ranks of such an action.
//!
//! So an epilog runs after its prolog and never beside it. An attempt begins no action on a host where an older
//! attempt of the job has not ended.
//!
//! An action waits only for actions of older attempts, for actions before it in this order, or for tasks that were
//! sent. So no two actions wait for each other. `ps` names the action for which a rank waits.
//!
//! The node keeps the same order among its tasks, but does not know later tasks. The controller keeps the order too: a
//! Start that waits on its node may pass its not-after.

use std::collections::BTreeSet;
use std::ops::Bound::{Excluded, Unbounded};

use crate::controller::facts::Facts;
use crate::controller::interface::io::{ActionRow, Effect, SessionId};
use crate::controller::machine::Machine;
use crate::controller::state::Jobs;
use crate::controller::state::Node;
use crate::controller::state::attempt::JobAttempt;
use crate::controller::state::change::Change;
use crate::controller::state::context::Context;
use crate::controller::state::layout::Layout;
use crate::controller::state::{Action, RankState};
use crate::defect;
use crate::ids::{ActionId, Attempt, BootId, HostName, JobId, MilestoneName, Rank, TaskId};
use crate::idset::IdSet;
use crate::outcome::Loss;

/// Reason for which an after-action never begins on a rank that was given up.
pub(crate) const GIVEN_UP: &str = "another job may have its host";

impl Jobs {
    /// Returns `true` if another action must end on the rank before the action `id` may begin there.
    pub(crate) fn is_behind(&self, id: ActionId, rank: Rank) -> bool {
        self.before(id, rank).is_some()
    }

    /// Returns the action that keeps the action `id` waiting on a rank: an action of the same or an older attempt that
    /// has not ended on the rank's host. `None`: no action does.
    pub(crate) fn before(&self, id: ActionId, rank: Rank) -> Option<&Action> {
        let action = self.action(id)?;
        let row = &action.row;
        let entry = self.get(&row.job)?;
        let attempt = entry.attempts.get(&row.attempt)?;
        let older = entry.attempts.range(..row.attempt).map(|(_, older)| older);
        // The store may not know whether an abandoned attempt still has a task there: the node keeps the order.
        let at_work = |older: &&JobAttempt| {
            if defect!(AttemptsOverlap) {
                return false;
            }
            !older.abandoned && self.has_open_actions(older)
        };
        for older in older.filter(at_work) {
            let there = attempt.layout.host(rank).and_then(|host| older.layout.rank(host.as_str())).map(Rank);
            // An unlisted attempt's action itself waits until the newer attempt has released the host.
            let waits = |action: &Action, there: Rank| older.silent && action.rank_state(there) == RankState::Waiting;
            let open =
                there.and_then(|there| self.of(older).find(|action| action.is_open_on(there) && !waits(action, there)));
            if open.is_some() {
                return open;
            }
        }
        let follows = self.follows(action);
        let mut earlier = true;
        self.of(attempt).find(|other| {
            earlier &= other.row.id != id;
            let waits = match (follows, self.follows(other)) {
                (true, false) if defect!(EpilogInTurn) => earlier,
                (true, false) if defect!(EpilogBesideService) => other.row.external.is_none(),
                (true, false) => true,
                // A sent after-action waits for no action: the setup action waits for the after-action.
                (false, true) => other.rank_state(rank) != RankState::Waiting,
                (true, true) | (false, false) => earlier,
            };
            waits && other.row.id != id && other.is_open_on(rank)
        })
    }

    /// Returns the names of the milestones that ranks of the action's attempt have reported.
    pub(crate) fn milestones_of(&self, action: &Action) -> BTreeSet<MilestoneName> {
        let attempt = self.attempt(&action.row.job, action.row.attempt);
        attempt.map(|attempt| attempt.milestones.names()).unwrap_or_default()
    }

    /// Returns `true` if an action of the attempt has not ended.
    fn has_open_actions(&self, attempt: &JobAttempt) -> bool {
        self.of(attempt).any(|action| action.is_open())
    }

    /// Returns the actions of newer attempts of the job that may have waited for an end on the ranks `freed` of attempt
    /// `number`, which has the layout `layout`. With each action come its own attempt's ranks on the hosts of `freed`.
    fn of_newer(&self, job: &JobId, number: Attempt, layout: &Layout, freed: &IdSet) -> Vec<(ActionId, IdSet)> {
        let newer = self.get(job).into_iter().flat_map(|job| job.attempts.range((Excluded(number), Unbounded)));
        let mut found = Vec::new();
        for (_, newer) in newer {
            let waiting = || self.of(newer).filter(|action| !action.row.waiting.is_empty());
            if waiting().next().is_none() {
                continue;
            }
            let ranks: IdSet = layout.pairs(freed).filter_map(|(_, host)| newer.layout.rank(host)).collect();
            found.extend(waiting().map(|action| (action.row.id, ranks.clone())));
        }
        found
    }

    /// Queues a check of `ranks` ([`Change::Ready`]), which starts the tasks that may begin. Does nothing for a
    /// suspended attempt: all its ranks are checked when it proceeds.
    pub(crate) fn ready(&self, action: ActionId, ranks: IdSet, cx: &mut Context) {
        if !self.is_suspended_action(action) {
            cx.changes.push_back(Change::Ready(action, ranks));
        }
    }

    /// Queues a check of the actions that may have waited for the action `id`, on the ranks where `id` has ended in
    /// this batch. The check starts the tasks that may begin now.
    pub(crate) fn start_later(&mut self, id: ActionId, cx: &mut Context) {
        let Some(action) = self.action_mut(id) else { return };
        let freed = std::mem::take(&mut action.freed);
        if freed.is_empty() {
            return;
        }
        let (job, number) = (action.row.job.clone(), action.row.attempt);
        let attempt = self.attempt(&job, number);
        let others = attempt.into_iter().flat_map(|attempt| self.of(attempt));
        let waiting = others.filter(|other| !other.row.waiting.is_empty());
        let mut later: Vec<(ActionId, IdSet)> = waiting.map(|other| (other.row.id, freed.clone())).collect();
        later.extend(attempt.into_iter().flat_map(|attempt| self.of_newer(&job, number, &attempt.layout, &freed)));
        for (later, ranks) in later {
            self.ready(later, ranks, cx);
        }
    }

    /// Queues a check of all waiting ranks of all attempts that are not suspended, for example after the settings
    /// changed the list of after-actions.
    pub(crate) fn reordered(&mut self, cx: &mut Context) {
        let waiting = self.table.live_actions().filter(|action| !action.row.waiting.is_empty());
        let waiting: Vec<(ActionId, IdSet)> =
            waiting.map(|action| (action.row.id, action.row.waiting.clone())).collect();
        for (id, ranks) in waiting {
            self.ready(id, ranks, cx);
        }
    }

    /// Queues a check of every task on the host that may not have begun: the task waits for its Start, or its node has
    /// accepted it and may hold it unclaimed. The caller has ended a cause that kept such tasks from beginning.
    pub(crate) fn reordered_on(&mut self, host: &HostName, cx: &mut Context) {
        let unbegun = |row: &ActionRow| !row.waiting.is_empty() || !row.accepted.is_empty();
        let unbegun = self.table.live_actions().filter(|action| unbegun(&action.row));
        let there =
            unbegun.map(|action| action.row.id).filter_map(|id| Some((id, self.layout(id)?.rank(host.as_str())?)));
        for (id, rank) in there.collect::<Vec<_>>() {
            self.ready(id, IdSet::from(rank..=rank), cx);
        }
    }
}

impl Machine {
    /// Sends a Start for each waiting rank of `ranks` whose task may begin and whose node is connected. A rank ends as
    /// `lost` if its node is down or unknown to the store. A rank keeps waiting if its node left less than start-grace
    /// ago, announced a reboot, has just come back and is not settled, or is unknown shortly after a start with a store
    /// that knows no node. Also sends a Begin for unclaimed tasks of `ranks` ([`Self::begin_unclaimed`]). Returns
    /// `true` if [`Self::begin_unclaimed`] does, or if a rank waits no longer.
    ///
    /// The limits of the ranks count from `since_ms` (monotonic). Ranks past the quota of the batch are left for the
    /// next one.
    pub(crate) fn start_ready(&mut self, id: ActionId, ranks: &IdSet, since_ms: u64) -> bool {
        let begun = self.begin_unclaimed(id, ranks);
        let Some(action) = self.jobs.action(id) else { return begun };
        let waiting = action.row.waiting.intersection(ranks);
        let held = self.facts().may_be_held_by_recovery(id);
        let is_held = |rank| held && self.facts().held_by_recovery(id, rank).is_some();
        let may = |rank: &u32| !self.jobs.is_behind(id, Rank(*rank)) && !is_held(Rank(*rank));
        let (mut ready, mut later, mut left) = (IdSet::new(), waiting.clone(), self.cx.quota.left());
        for rank in waiting.iter() {
            if left == 0 {
                break;
            }
            later.remove_range(0, rank);
            if may(&rank) {
                ready.insert(rank);
                left -= 1;
            }
        }
        self.cx.quota.spend(ready.len());
        self.cx.quota.start_later(id, &later, since_ms);
        for task in ready.clone().iter().map(|rank| TaskId { action: id, rank: Rank(rank) }) {
            // Without a session the node may still know how the task of a given-up rank ended, until it counts as down.
            let is_known = || self.nodes.session_of(&self.jobs, task).is_some() && !self.facts().is_absent(task);
            if self.jobs.is_given_up(task) && is_known() {
                self.jobs.withdraw_task(task, GIVEN_UP, &mut self.cx);
            } else if let Some(change) = self.facts().gives_up(task) {
                self.cx.changes.push_back(change);
            } else {
                continue;
            }
            ready.remove(task.rank.0);
        }
        let Some(layout) = self.jobs.layout(id).cloned().filter(|_| !ready.is_empty()) else { return begun };
        if let Some(action) = self.jobs.action_mut(id) {
            action.ready(&ready, since_ms);
        }
        // The batch commits the Start before the Start leaves.
        self.jobs.touch(id, &mut self.cx);
        self.jobs.check_by(id, since_ms.saturating_add(self.cx.settings.start_grace_ms));
        let mut to: Vec<(SessionId, Rank, BootId)> = Vec::new();
        let (mut unknown, mut down) = (Vec::new(), Vec::new());
        for (rank, host) in layout.pairs(&ready) {
            match self.nodes.get(host) {
                // A lost epoch of the controller may have sent the Start: the node's Hello will tell.
                None if self.cx.now.mono_ms < self.unknown_node_grace_until_ms => {}
                None => unknown.push(rank),
                Some(node) if self.facts().is_down(node) => down.push(rank),
                // The attempt proceeds, and has not come to this task yet: that sends the Start.
                Some(node) if node.unsettled.absent.contains(&TaskId { action: id, rank }) => {}
                Some(node) => {
                    if let (Some(session), Some(action)) = (node.session, self.jobs.action_mut(id)) {
                        action.send(rank, node.row.boot_number);
                        to.push((session, rank, node.row.boot.clone()));
                    }
                }
            }
        }
        for rank in unknown {
            self.jobs.mark_lost(TaskId { action: id, rank }, Loss::UnknownNode, &mut self.cx);
        }
        for rank in down {
            self.jobs.mark_lost(TaskId { action: id, rank }, Loss::Offline, &mut self.cx);
        }
        if let (Some(action), Some((_, rank, boot))) = (self.jobs.action(id), to.first()) {
            let mut start = action.start(&layout, self.cx.settings.not_after_ms, *rank, boot);
            start.after = self.jobs.follows(action);
            start.milestones = self.jobs.milestones_of(action);
            self.cx.effects.push(Effect::Fan { start: Box::new(start), to });
        }
        begun || self.jobs.action(id).is_some_and(|action| !ready.is_subset(&action.row.waiting))
    }
}

impl Facts<'_> {
    /// Returns `true` if the controller counts the node as down, so that waiting tasks end as `lost`. The node has had
    /// no session for start-grace while this controller ran, and no script has announced a reboot of it.
    fn is_down(&self, node: &Node) -> bool {
        let away = node.session.is_none()
            && self.cx.now.mono_ms >= node.since_ms.saturating_add(self.cx.settings.start_grace_ms);
        away && !self.is_to_boot(&node.row.host)
    }
}
