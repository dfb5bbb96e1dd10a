//! Reconciling: when a node's session opens, decides about each difference between the tasks on the node and the tasks
//! that the store expects on the node.
//!
//! | the store        | the node's Hello              | then |
//! |------------------|-------------------------------|------|
//! | sent, accepted   | another boot                  | `lost (rebooted)` |
//! | prolog `ok`, `tolerable` | another boot              | `lost (rebooted)`, (1) |
//! | reboot announced | another boot                  | the announced end, (4) |
//! | waiting          | holds nothing                 | Start, (2) |
//! | sent             | same boot, holds nothing      | Start again, or waits if held back; Cancel if cancelling |
//! | accepted         | same boot, holds nothing      | `lost (vanished)` |
//! | open             | unclaimed                     | accepted; Cancel if cancelling, else Begin, (3) |
//! | open             | live, ended                   | accepted; `Finished` follows |
//! | open             | tombstone                     | the tombstone's outcome |
//! | ended            | unclaimed, waiting, starting  | Cancel: the task never begins |
//! | ended            | live                          | goes on; its result is recorded as late |
//! | ended as `lost`  | live, begun                   | as in the row before; the host is drained, once |
//! | on another host  | any but a tombstone           | shown; Cancel if unclaimed; its end is ignored |
//! | ended            | tombstone with another end    | recorded as late |
//! | unknown task     | any                           | unknown, or its attempt was pruned: `recovery/unknown.rs` |
//! | open, given up   | unclaimed                     | accepted; Cancel |
//! | open, another job may have the host | not begun, or sent and not held | given up, (5) |
//! | open, suspended  | holds nothing, or another boot | unchanged until the attempt proceeds |
//!
//! 1. The reboot has undone the work of the prolog. The row is only for the action named `prolog`, and only until that
//!    action has its verdict. The row also holds for an `ok` that the node reports only now, from a /run that outlived
//!    a soft reboot. Where the job hands failed ranks over, `tolerable` does not count.
//! 2. Unless an earlier action has not ended on the host, or recovery holds the task back. Start-grace counts from now.
//! 3. A task that recovery holds back stays unclaimed until recovery lets it begin.
//! 4. See [`crate::controller::action::announced_reboot`].
//! 5. See [`crate::controller::recovery::missing`]. The Cancel follows.

use crate::controller::interface::io::SessionId;
use crate::controller::machine::Machine;
use crate::controller::state::Jobs;
use crate::controller::state::RankState;
use crate::controller::state::context::Context;
use crate::defect;
use crate::ids::{ActionId, HostName, TaskId};
use crate::idset::IdSet;
use crate::message::{HeldState, ToAgent};
use crate::outcome::Loss;
use crate::task::{Ended, Start, survives_reboot};

impl Jobs {
    /// Ends a prolog's task as `lost (rebooted)` if the task ended in an earlier boot with an outcome with which the
    /// job goes on: the reboot has undone the task's work. `boot_number`: the node's present boot.
    pub(crate) fn undo(&mut self, task: TaskId, boot_number: u32, cx: &mut Context) {
        let Some(action) = self.action(task.action) else { return };
        let had_done = match action.rank_state(task.rank) {
            RankState::Ok => true,
            RankState::NotOk => {
                action.ended.get(&task.rank).is_some_and(|row| self.counts_on(action, &row.ended.outcome))
            }
            _ => false,
        };
        let invalidated = had_done && action.boot(task.rank) != Some(boot_number);
        if defect!(BootKeepsProlog) {
        } else if invalidated && !survives_reboot(&action.row.name) {
            self.mark_lost(task, Loss::Rebooted, cx);
        }
    }

    /// Sends a Start of the task for the node's present boot. The batch commits the Start before the Start leaves.
    pub(crate) fn start_on(
        &mut self,
        id: SessionId,
        task: TaskId,
        boot_number: u32,
        boot: &crate::ids::BootId,
        cx: &mut Context,
    ) {
        let not_after_ms = cx.settings.not_after_ms;
        let Some(layout) = self.layout(task.action).cloned() else {
            return;
        };
        let Some(action) = self.action(task.action) else { return };
        let (after, milestones) = (self.follows(action), self.milestones_of(action));
        let Some(action) = self.action_mut(task.action) else { return };
        action.send(task.rank, boot_number);
        let start = Start { after, milestones, ..action.start(&layout, not_after_ms, task.rank, boot) };
        self.touch(task.action, cx);
        cx.send(id, ToAgent::Start(start));
    }
}

impl Machine {
    /// Decides about a task that the store knows and that the node reports in its Hello. For example, sends a Begin or
    /// a Cancel, or records an end. The table at the top of this file has all cases.
    pub(crate) fn settle_held(
        &mut self,
        id: SessionId,
        host: &HostName,
        task: TaskId,
        state: &HeldState,
        limit_ms: Option<u64>,
    ) {
        self.jobs.limit_reported(host, task, limit_ms);
        let is_tombstone = matches!(state, HeldState::Tombstone { .. });
        let rank = task.rank;
        if !is_tombstone && self.nodes.is_anothers(host, task, &self.jobs, &mut self.cx) {
            // The task must not begin on this host. A running task goes on: the controller acknowledges the end, and
            // ignores the outcome.
            if *state == HeldState::Unclaimed {
                self.jobs.send_cancel(id, task, "it is of another host", &mut self.cx);
            }
            return;
        }
        let Some(boot_number) = self.nodes.get(host).map(|node| node.row.boot_number) else { return };
        let Some(action) = self.jobs.action_mut(task.action) else { return };
        let open = action.is_open_on(rank);
        if open && action.boot(rank).is_none() {
            // The restored store lacks the Start of this task: the controller takes the present boot for the task's
            // boot.
            action.seen_in(rank, boot_number);
        }
        if defect!(SetupAfterEpilog) {
        } else if action.rank_state(rank) == RankState::Waiting {
            self.jobs.withdraw_before(task, &mut self.cx);
        }
        let held_back =
            open && *state == HeldState::Unclaimed && self.facts().held_by_recovery(task.action, rank).is_some();
        let suspended = self.jobs.is_suspended_action(task.action);
        let gives_up = self.facts().gives_up(task).filter(|_| open && !suspended);
        let Some(action) = self.jobs.action_mut(task.action) else { return };
        match state {
            HeldState::Tombstone { outcome, reboot, .. } => {
                let mut ended = Ended::of_tombstone(outcome.clone(), *reboot, self.cx.now.wall_ms);
                ended.note =
                    Some("the node has kept only the outcome: its details were acknowledged earlier".to_owned());
                if open {
                    self.end_reported(task, ended);
                } else if outcome.is_of_scripts() {
                    // The restored store may lack this result, which was late once already.
                    self.jobs.on_late(host, task, ended, &mut self.cx);
                }
            }
            HeldState::Unclaimed if defect!(BeginEnded) && !open => {
                self.cx.send(id, ToAgent::Begin { task });
            }
            HeldState::Unclaimed if !open => {
                self.jobs.send_cancel(id, task, "it has ended for the controller", &mut self.cx)
            }
            HeldState::Unclaimed => {
                let cancel = action.must_not_begin(rank);
                action.accept(rank);
                self.jobs.touch(task.action, &mut self.cx);
                let cancel = cancel.or_else(|| self.jobs.must_not_start(task).map(str::to_owned));
                let cancel = if defect!(CancelledBegins) { None } else { cancel };
                let gives_up = if defect!(UnclaimedBegins) { None } else { gives_up };
                match cancel {
                    // The Cancel goes out even if the task is held back: systemd may start the unit at any time, and
                    // the scripts would run without a Begin.
                    Some(why) if !suspended => self.jobs.send_cancel(id, task, &why, &mut self.cx),
                    _ if held_back => self.nodes.leave_unclaimed(&self.jobs, task),
                    Some(why) => self.jobs.send_cancel(id, task, &why, &mut self.cx),
                    None => match gives_up {
                        Some(change) => self.cx.changes.push_back(change),
                        None => self.cx.send(id, ToAgent::Begin { task }),
                    },
                }
            }
            HeldState::Live { phase, age_ms } => {
                if open {
                    let may_begin = phase.may_still_begin();
                    let cancel = if may_begin { action.must_not_begin(rank) } else { action.cancel_of(rank) };
                    action.accept(rank);
                    self.jobs.touch(task.action, &mut self.cx);
                    let why = self.jobs.must_not_start(task).filter(|_| may_begin && !suspended);
                    let cancel = cancel.or_else(|| why.map(str::to_owned));
                    let cancel = if defect!(CancelSentOnce) { None } else { cancel };
                    if let Some(why) = cancel {
                        self.jobs.send_cancel(id, task, &why, &mut self.cx);
                    } else if may_begin {
                        self.cx.changes.extend(gives_up);
                    }
                } else if phase.may_still_begin() {
                    // The task has not begun, and would begin when its turn comes or systemd starts its unit.
                    self.jobs.send_cancel(id, task, "it has ended for the controller", &mut self.cx);
                }
                if open && let Some(what) = self.jobs.past_its_limit(host, task, phase, &mut self.cx) {
                    self.on_overdue(task, &what);
                }
                self.jobs.mark_alive_after_loss(task, phase, &mut self.cx);
                self.jobs.watch_lingering(task, phase, self.cx.now);
                self.nodes.remember_phase(
                    &mut self.jobs,
                    host,
                    task,
                    phase.clone(),
                    self.cx.now.mono_ms.saturating_sub(*age_ms),
                );
            }
            HeldState::Ended => {
                if open {
                    action.accept(rank);
                    self.jobs.touch(task.action, &mut self.cx);
                }
            }
        }
    }

    /// Decides about a task that the store expects on the node and that the node does not hold. For example, sends its
    /// Start, or ends the task as `lost`. The table at the top of this file has all cases.
    pub(crate) fn settle_absent(&mut self, id: SessionId, task: TaskId, boot_number: u32, boot: &crate::ids::BootId) {
        let Some(action) = self.jobs.action(task.action) else {
            return;
        };
        let same_boot = action.boot(task.rank) == Some(boot_number);
        let state = action.rank_state(task.rank);
        let cancel = action.must_not_begin(task.rank);
        match state {
            RankState::Sent | RankState::Accepted if !same_boot => {
                self.jobs.mark_lost(task, Loss::Rebooted, &mut self.cx)
            }
            RankState::Waiting | RankState::Sent if let Some(why) = self.jobs.must_not_start(task) => {
                self.jobs.withdraw_task(task, why, &mut self.cx)
            }
            RankState::Waiting if let Some(change) = self.facts().gives_up(task) => self.cx.changes.push_back(change),
            RankState::Waiting if self.facts().held_by_recovery(task.action, task.rank).is_some() => {}
            RankState::Waiting if self.jobs.is_behind(task.action, task.rank) => {}
            RankState::Waiting => {
                self.jobs.arm_start(task, &self.cx);
                self.jobs.start_on(id, task, boot_number, boot, &mut self.cx);
            }
            RankState::Accepted if defect!(AcceptedSentAgain) => {
                self.jobs.start_on(id, task, boot_number, boot, &mut self.cx)
            }
            RankState::Accepted => self.jobs.mark_lost(task, Loss::Vanished, &mut self.cx),
            // The node never got the Start, so the task can wait again.
            RankState::Sent if cancel.is_none() && self.facts().held_by_recovery(task.action, task.rank).is_some() => {
                if let Some(action) = self.jobs.action_mut(task.action) {
                    action.unsend(task.rank);
                    self.jobs.touch(task.action, &mut self.cx);
                }
            }
            // The node answers the Cancel with a tombstone, and reports the end with `Finished`.
            RankState::Sent if let Some(why) = cancel => self.jobs.send_cancel(id, task, &why, &mut self.cx),
            RankState::Sent if let Some(change) = self.facts().gives_up(task) => self.cx.changes.push_back(change),
            RankState::Sent => self.jobs.start_on(id, task, boot_number, boot, &mut self.cx),
            RankState::Ok | RankState::NotOk | RankState::NotInAction => {}
        }
    }

    /// Sends a Begin for each task of `ranks` that its node holds unclaimed, unless recovery still holds the task back.
    /// A cancelled task gets a Cancel in any case, and a task whose host another job may have is given up. Returns
    /// `true` if any of this happened.
    pub(crate) fn begin_unclaimed(&mut self, id: ActionId, ranks: &IdSet) -> bool {
        let Some(action) = self.jobs.action(id).filter(|_| !self.jobs.is_suspended_action(id)) else { return false };
        let accepted = action.row.accepted.intersection(ranks);
        let Some(layout) = self.jobs.layout(id).cloned().filter(|_| !accepted.is_empty()) else { return false };
        let mut sent = false;
        for (rank, host) in layout.pairs(&accepted) {
            let task = TaskId { action: id, rank };
            let Some(node) = self.nodes.get(host).filter(|node| node.unsettled.unclaimed.contains(&task)) else {
                continue;
            };
            let cancel = self.jobs.action(id).and_then(|action| action.must_not_begin(rank));
            let cancel = cancel.or_else(|| self.jobs.must_not_start(task).map(str::to_owned));
            let cancel = if defect!(CancelledBegins) { None } else { cancel };
            let is_held = cancel.is_none() && self.facts().held_by_recovery(id, rank).is_some();
            let Some(session) = node.session.filter(|_| !is_held) else { continue };
            match (cancel, self.facts().gives_up(task)) {
                (Some(why), _) => self.jobs.send_cancel(session, task, &why, &mut self.cx),
                (None, _) if defect!(UnclaimedBegins) => self.cx.send(session, ToAgent::Begin { task }),
                (None, Some(change)) => self.cx.changes.push_back(change),
                (None, None) => self.cx.send(session, ToAgent::Begin { task }),
            }
            if let Some(node) = self.nodes.get_mut(host) {
                node.unsettled.unclaimed.remove(&task);
            }
            sent = true;
        }
        sent
    }
}
