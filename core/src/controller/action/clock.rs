//! Clock: decides which limits have passed, and then ends tasks or drains nodes. [`super::limits`] keeps the times.

use crate::controller::facts::Facts;
use crate::controller::machine::Machine;
use crate::controller::show::list;
use crate::defect;
use crate::duration::Span;
use crate::ids::{ActionId, Rank, TaskId};
use crate::message::Phase;
use crate::outcome::Loss;

impl Machine {
    /// Drains the nodes on which processes linger longer than the task's time limit. Returns the time of the next
    /// check. Without a limit, no node is drained.
    fn check_lingering(&mut self, id: ActionId) -> Option<u64> {
        let action = self.jobs.action_mut(id)?;
        let (mut next, mut due) = (None::<u64>, Vec::new());
        for (rank, since) in &action.lingering {
            let Some(limit) = action.limit(*rank) else { continue };
            let at = since.saturating_add(limit);
            if at <= self.cx.now.mono_ms {
                due.push((TaskId { action: id, rank: *rank }, limit));
            } else {
                next = Some(next.map_or(at, |next| next.min(at)));
            }
        }
        // A restarted controller does not drain again: the operator who undrains the node has seen the processes.
        due.iter().for_each(|(task, _)| action.lingers_too_long(task.rank));
        for (task, limit) in due {
            let node = self.nodes.of(&self.jobs, task);
            let left = match node.and_then(|node| node.live.get(&task)) {
                Some((Phase::Lingering { processes }, _)) => format!(": {}", list(processes)),
                _ => String::new(),
            };
            let what = format!("its scripts ended, processes did not within {}{left}", Span::from_millis(limit));
            self.drain_alive(task, &what, self.facts().stuck(task));
        }
        next
    }

    /// Carries out everything that is due.
    pub(crate) fn on_tick(&mut self) {
        // The end of the batch asks for the next tick.
        self.cx.wake_ms = None;
        self.drain_orphans();
        let due = |check: Option<u64>| check.is_some_and(|at| at <= self.cx.now.mono_ms);
        let ids: Vec<ActionId> = self
            .jobs
            .actions
            .iter()
            .filter(|(_, a)| a.row.verdict.is_none() && due(a.check_ms))
            .map(|(id, _)| *id)
            .collect();
        for id in ids.into_iter().filter(|id| !self.jobs.is_frozen_action(*id)).collect::<Vec<_>>() {
            self.check(id);
        }
        self.prune();
    }

    /// Checks all limits of an action, and schedules the next check.
    fn check(&mut self, id: ActionId) {
        let Some(action) = self.jobs.action_mut(id) else {
            return;
        };
        action.check_ms = None;
        let grace_at = self.check_starts(id);
        if let Some(at) = grace_at {
            self.jobs.check_by(id, at);
        }
        if let Some(at) = self.check_absent(id) {
            self.jobs.check_by(id, at);
        }
        if let Some(at) = self.check_lingering(id) {
            self.jobs.check_by(id, at);
        }
        if let Some(at) = self.jobs.check_lease(id, &mut self.cx) {
            self.jobs.check_by(id, at);
        }
        if let Some(at) = self.check_boots(id) {
            self.jobs.check_by(id, at);
        }
        // The action may be due to drop holds, by its release policy.
        self.cx.touched.insert(id);
    }

    /// Gives up the Starts that nodes did not accept within start-grace. Returns the time of the next check.
    /// Start-grace does not count for a rank that an earlier action or recovery keeps waiting.
    fn check_starts(&mut self, id: ActionId) -> Option<u64> {
        let grace = self.cx.settings.start_grace_ms;
        let action = self.jobs.action(id)?;
        let (mut next, mut late) = (None::<u64>, Vec::new());
        // The task that announced a reboot of its node ends by the reboot or by its limit. Until then, start-grace does
        // not count on that node.
        let to_boot = self.jobs.to_boot(id);
        let held = self.facts().may_be_held_back(id);
        let is_kept =
            |rank: &Rank| self.jobs.is_behind(id, *rank) || (held && self.facts().held_back(id, *rank).is_some());
        let waiting = action.row.waiting.iter().map(Rank).filter(|rank| !is_kept(rank));
        let unaccepted = waiting.chain(action.row.sent.iter().map(Rank));
        for rank in unaccepted.filter(|rank| !to_boot.contains(rank.0)) {
            let at = action.armed(rank).saturating_add(grace);
            let early = if defect!(LimitsOnWallClock) {
                self.cx.now.wall_ms < action.row.began_ms.saturating_add(grace)
            } else {
                self.cx.now.mono_ms < at
            };
            match early {
                true => next = Some(next.map_or(at, |next| next.min(at))),
                false => late.push(rank),
            }
        }
        for rank in late {
            self.give_up_start(TaskId { action: id, rank });
        }
        next
    }

    /// Gives up a Start past start-grace: the task is lost. A Cancel keeps the task from beginning later: a connected
    /// node gets it now, an absent node in answer to its Hello.
    fn give_up_start(&mut self, task: TaskId) {
        let node = self.nodes.of(&self.jobs, task);
        let (session, known) = (node.and_then(|node| node.session), node.is_some());
        self.jobs.lose(task, if known { Loss::Offline } else { Loss::UnknownNode }, &mut self.cx);
        if let Some(session) = session.filter(|_| !defect!(OfflineUnfenced)) {
            self.cx.send_cancel(session, &self.jobs, task, "not accepted within start-grace");
        }
    }

    /// Gives up the accepted tasks of absent nodes as `lost (unreachable)`. Such a task must be past its limit, the
    /// grace, and its not-after, and its node away for the grace. Returns the time of the next check. A task without a
    /// limit stays open until an operator resolves it.
    fn check_absent(&mut self, id: ActionId) -> Option<u64> {
        let grace = self.cx.settings.unreachable_grace_ms;
        let action = self.jobs.action(id)?;
        if !action.has_limits() {
            return None;
        }
        let after = |limit: u64| {
            self.cx
                .settings
                .start_grace_ms
                .saturating_add(limit)
                .saturating_add(grace)
                .max(self.cx.settings.not_after_ms)
        };
        let (mut next, mut lost) = (None::<u64>, Vec::new());
        let accepted = action.row.accepted.iter().map(Rank);
        for rank in accepted.filter(|rank| !action.expected.contains_key(rank)) {
            let task = TaskId { action: id, rank };
            let Some(limit) = action.limit(rank) else { continue };
            let limit_at = action.armed(rank).saturating_add(after(limit));
            // The node may come back until then.
            let at = if self.cx.now.mono_ms < limit_at {
                limit_at
            } else {
                let away = self.nodes.of(&self.jobs, task).filter(|node| node.session.is_none());
                let Some(node) = away else { continue };
                node.since_ms.saturating_add(grace)
            };
            if at <= self.cx.now.mono_ms {
                lost.push(task);
            } else {
                next = Some(next.map_or(at, |next| next.min(at)));
            }
        }
        for task in lost {
            self.jobs.lose(task, Loss::Unreachable, &mut self.cx);
        }
        next
    }
}

impl Facts<'_> {
    /// Returns the time (monotonic) of the next tick that the machine needs; `None`: nothing is running.
    pub(crate) fn next_check(&self) -> Option<u64> {
        let open = self
            .jobs
            .actions
            .values()
            .filter(|a| a.row.verdict.is_none() && !self.jobs.is_frozen(&a.row.job, a.row.attempt));
        let limits = open.filter_map(|a| a.check_ms);
        limits
            .chain(self.nodes.next_probe())
            .chain(self.recovery.next_gate())
            .chain(self.recovery.next_orphans())
            .chain(self.next_prune())
            .min()
    }
}
