//! Deadlines: decides which limits have passed, and then ends tasks or drains nodes. [`super::limits`] keeps the times.

use crate::controller::facts::Facts;
use crate::controller::machine::Machine;
use crate::defect;
use crate::duration::Span;
use crate::ids::{ActionId, Rank, TaskId};
use crate::message::Phase;
use crate::outcome::{Loss, Outcome};
use crate::task::Ended;
use crate::task::Process;

/// Sorts items by their limits, each of which is a time. Returns the earliest limit after `now_ms` (`None`: there is
/// none), and the items whose limit has passed.
fn split<T>(limits: impl Iterator<Item = (u64, T)>, now_ms: u64) -> (Option<u64>, Vec<T>) {
    split_some(limits, now_ms, u64::MAX, |_| true)
}

/// Sorts items by their limits, as [`split`] does, but stops once more than `most` items have passed their limit: the
/// next time is then `now_ms`. `ends`: returns `true` for an item that the caller will end. Only such items count
/// towards `most`: another item stays, and would use up the number again at each check.
fn split_some<T>(
    limits: impl Iterator<Item = (u64, T)>,
    now_ms: u64,
    most: u64,
    ends: impl Fn(&T) -> bool,
) -> (Option<u64>, Vec<T>) {
    let (mut next, mut due, mut left) = (None::<u64>, Vec::new(), most);
    for (at, what) in limits {
        if at <= now_ms {
            let counts = ends(&what);
            if counts && left == 0 {
                return (Some(now_ms), due);
            }
            left -= u64::from(counts);
            due.push(what);
        } else {
            next = Some(next.map_or(at, |next| next.min(at)));
        }
    }
    (next, due)
}

impl Machine {
    /// Checks the limits of an action: ends tasks and drains nodes whose limit has passed, and schedules the next
    /// check. Tasks past the quota of the batch end in the next one, which comes at once.
    pub(crate) fn check(&mut self, id: ActionId) {
        self.jobs.action_mut(id).into_iter().for_each(|action| action.check_ms = None);
        let (start_at, late) = self.facts().late_starts(id);
        self.cx.quota.spend(late.len() as u64);
        for task in late {
            let (node, session) = (self.nodes.of(&self.jobs, task), self.nodes.session_of(&self.jobs, task));
            let why = if node.is_some() { Loss::Offline } else { Loss::UnknownNode };
            self.jobs.mark_lost(task, why, &mut self.cx);
            // The Cancel keeps the task from beginning later: an absent node gets one in answer to its Hello.
            if defect!(OfflineUnfenced) {
            } else if let Some(session) = session {
                self.jobs.send_cancel(session, task, "not accepted within start-grace", &mut self.cx);
            }
        }
        let (absent_at, lost) = self.facts().unreachable(id);
        self.cx.quota.spend(lost.len() as u64);
        lost.into_iter().for_each(|task| self.jobs.mark_lost(task, Loss::Unreachable, &mut self.cx));
        let (lingering_at, lingering) = self.facts().lingering_too_long(id);
        for (task, what) in lingering {
            // A restarted controller does not drain again: the operator who undrains the node has seen the processes.
            self.jobs.action_mut(id).into_iter().for_each(|action| action.lingers_too_long(task.rank));
            self.drain_task(task, &*what, self.facts().stuck(task));
        }
        let lease_at = self.jobs.check_lease(id, &mut self.cx);
        let (boot_at, unbooted) = self.facts().unbooted(id);
        unbooted.into_iter().for_each(|(task, ended)| self.jobs.end_task(task, ended, &mut self.cx));
        for at in [start_at, absent_at, lingering_at, lease_at, boot_at].into_iter().flatten() {
            self.jobs.check_by(id, at);
        }
        // The action may be due to drop holds, by its release policy.
        self.cx.touched.insert(id);
    }
}

impl Facts<'_> {
    /// Returns the tasks whose node has not accepted the Start within start-grace, and the time (monotonic) at which
    /// start-grace next ends for another task; `None`: for no other task. Leaves out a rank that an earlier action,
    /// recovery or an announced reboot keeps waiting.
    fn late_starts(&self, id: ActionId) -> (Option<u64>, Vec<TaskId>) {
        let Some(action) = self.jobs.action(id) else { return (None, Vec::new()) };
        let (grace, now) = (self.cx.settings.start_grace_ms, self.cx.now);
        // The task that announced a reboot of its node ends by the reboot or by its limit. Until then, start-grace does
        // not count on that node.
        let to_boot = self.jobs.to_boot(id);
        let held = self.may_be_held_by_recovery(id);
        let is_kept =
            |rank: &Rank| self.jobs.is_behind(id, *rank) || (held && self.held_by_recovery(id, *rank).is_some());
        let waiting = action.row.waiting.iter().map(Rank).filter(|rank| !is_kept(rank));
        let unaccepted = waiting.chain(action.row.sent.iter().map(Rank)).filter(|rank| !to_boot.contains(rank.0));
        let at = |rank: Rank| {
            if defect!(LimitsOnWallClock) {
                return now
                    .mono_ms
                    .saturating_add(action.row.began_ms.saturating_add(grace).saturating_sub(now.wall_ms));
            }
            action.armed(rank).saturating_add(grace)
        };
        // A waiting resolution keeps a task open.
        let ends = |task: &TaskId| action.resolving(task.rank).is_none();
        split_some(unaccepted.map(|rank| (at(rank), action.task(rank))), now.mono_ms, self.cx.quota.left(), ends)
    }

    /// Returns the accepted tasks of absent nodes that are to end as `lost (unreachable)` now, and the time (monotonic)
    /// at which the next such task may follow; `None`: none can. A task is given up when all of this holds:
    /// start-grace, then its time limit, then unreachable-grace have passed; its not-after has passed; its node has
    /// been away for unreachable-grace. A task without a limit is never given up. Leaves out tasks that announced a
    /// reboot.
    fn unreachable(&self, id: ActionId) -> (Option<u64>, Vec<TaskId>) {
        let Some(action) = self.jobs.action(id).filter(|action| action.has_limits()) else { return (None, Vec::new()) };
        let (settings, now) = (&self.cx.settings, self.cx.now);
        let grace = settings.unreachable_grace_ms;
        let after =
            |limit: u64| settings.start_grace_ms.saturating_add(limit).saturating_add(grace).max(settings.not_after_ms);
        let accepted = action.row.accepted.iter().map(Rank).filter(|rank| !action.expected.contains_key(rank));
        let limits = accepted.filter_map(|rank| {
            let task = action.task(rank);
            let at = action.armed(rank).saturating_add(after(action.limit(rank)?));
            if now.mono_ms < at {
                return Some((at, task));
            }
            // The node may come back until then.
            let away = self.nodes.of(&self.jobs, task).filter(|node| node.session.is_none())?;
            Some((away.since_ms.saturating_add(grace), task))
        });
        let ends = |task: &TaskId| action.resolving(task.rank).is_none();
        split_some(limits, now.mono_ms, self.cx.quota.left(), ends)
    }

    /// Returns the tasks whose processes linger longer than the task's time limit, each with the reason to drain its
    /// node, for [`Machine::drain_task`]. Also returns the time (monotonic) at which the next task may follow; `None`:
    /// none can. Tasks without a limit are left out.
    fn lingering_too_long(&self, id: ActionId) -> (Option<u64>, Vec<(TaskId, String)>) {
        let Some(action) = self.jobs.action(id) else { return (None, Vec::new()) };
        let limits = action.lingering.iter().filter_map(|(rank, since)| {
            let limit = action.limit(*rank)?;
            Some((since.saturating_add(limit), (action.task(*rank), limit)))
        });
        let (next, due) = split(limits, self.cx.now.mono_ms);
        let what = |(task, limit): (TaskId, u64)| {
            let node = self.nodes.of(&self.jobs, task);
            let left = match node.and_then(|node| node.live.get(&task)) {
                Some((Phase::Lingering { processes }, _)) => format!(": {}", Process::commands(processes)),
                _ => String::new(),
            };
            let limit = Span::from_millis(limit);
            (task, format!(": its scripts ended, but their processes did not within {limit}{left}"))
        };
        (next, due.into_iter().map(what).collect())
    }

    /// Returns the tasks whose announced reboot did not come in time, each with its end, and the time (monotonic) at
    /// which the next such task may follow; `None`: none can. Leaves out a task whose scripts still run on a connected
    /// node: the runner's own limit applies to the scripts.
    fn unbooted(&self, id: ActionId) -> (Option<u64>, Vec<(TaskId, Ended)>) {
        let Some(action) = self.jobs.action(id) else { return (None, Vec::new()) };
        let (grace, now) = (self.cx.settings.unreachable_grace_ms, self.cx.now);
        let limits = action.expected.iter().filter_map(|(rank, expected)| {
            let (task, until) = (action.task(*rank), expected.until_ms?);
            // A node that left a moment ago may be rebooting: it gets the grace of an absent node.
            let away = self.nodes.of(&self.jobs, task).filter(|node| node.session.is_none());
            let at = away.map_or(until, |node| until.max(node.since_ms.saturating_add(grace)));
            Some((at, (task, expected, away.is_some())))
        });
        let (next, due) = split(limits, now.mono_ms);
        let ends = due.into_iter().filter_map(|(task, expected, is_away)| {
            let (outcome, note) = match (is_away, expected.is_over) {
                (true, _) => {
                    let note = "the node did not come back from its announced reboot in time";
                    (Outcome::Lost { why: Loss::Unreachable }, note)
                }
                (false, true) => {
                    (Outcome::Timeout { status: None }, "the node announced a reboot, and did not reboot in time")
                }
                (false, false) => return None,
            };
            Some((task, expected.but(outcome, note, now)))
        });
        (next, ends.collect())
    }

    /// Returns the earliest time (monotonic) at which the machine needs a tick: for a limit, a probe, the recovery, a
    /// half list, retention, or work that the quota has left for the next batch. `None`: nothing waits for a time.
    pub(crate) fn next_check(&self) -> Option<u64> {
        let limits = self.jobs.table.next_deadline();
        let rest = self.cx.quota.continues().then_some(self.cx.now.mono_ms);
        let others = [self.nodes.next_probe(), self.recovery.next_check(), self.lists.next_drop(), self.next_prune()];
        others.into_iter().chain([limits, rest]).flatten().min()
    }
}
