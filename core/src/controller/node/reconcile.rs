//! Settles the difference between the tasks that a node holds and the tasks that the store expects there. The
//! controller settles all of them when the node's session opens, and then each completion as it arrives.
//!
//! | the store       | the node's Hello               | then |
//! |-----------------|--------------------------------|------|
//! | sent, accepted  | another boot                   | `lost (rebooted)` |
//! | ok or tolerable, of a prolog without verdict | another boot | `lost (rebooted)`: what it prepared is gone; so is one that is told only now, from a /run that outlived its boot |
//! | sent, accepted, and a boot was announced | another boot | its end, [`crate::controller::action::announced_reboot`] |
//! | waiting         | holds nothing                  | Start, unless an earlier action has not ended there; it has start-grace from now on |
//! | sent            | same boot, holds nothing       | Start again, or Cancel as below |
//! | accepted        | same boot, holds nothing       | `lost (vanished)` |
//! | open            | unclaimed                      | accepted; Cancel where that was asked; else Begin, or it waits |
//! | open            | live, ended                    | accepted; `Finished` follows |
//! | open            | tombstone                      | its outcome |
//! | ended           | unclaimed                      | Cancel: fenced |
//! | ended           | waits for its turn, or starts  | Cancel: fenced; was it never begun here, it is taken for begun |
//! | ended           | live                           | goes on; its result comes late; was it never begun here, it is taken for begun |
//! | ended as lost   | live, begun                    | the same, and its node is drained for it, once |
//! | on another host | any but a tombstone            | shown; Cancel where it has not begun; its end is not believed |
//! | ended           | tombstone of another end       | late |
//! | never heard of  | any                            | [`crate::controller::recovery`] |
//! | open, and its attempt is unasserted | holds nothing, or another boot | left until somebody vouches for the attempt |

use std::collections::BTreeMap;

use crate::controller::action::{Action, Stand};
use crate::controller::io::{Effect, Now, SessionId};
use crate::controller::machine::Machine;
use crate::controller::operator::resolve::is_before_its_begin;
use crate::controller::recovery::{NOT_ASKED_AGAIN, Unsettled};
use crate::defect;
use crate::ids::{HostName, TaskId};
use crate::message::{Held, HeldState, ToAgent};
use crate::outcome::Loss;
use crate::task::{Ended, Start, survives_reboot};

impl Machine {
    /// Settles one Hello. `before` is what an earlier Hello of the node had left open.
    pub(in crate::controller) fn settle(
        &mut self,
        id: SessionId,
        host: &HostName,
        held: Vec<Held>,
        before: Unsettled,
        now: Now,
    ) {
        let Some(node) = self.nodes.get(host) else { return };
        let (boot, boot_number) = (node.row.boot.clone(), node.row.boot_number);
        // A node has no part in external actions.
        let tasks: Vec<TaskId> =
            node.tasks.iter().filter(|task| !self.jobs.is_external(task.action)).copied().collect();
        // The controller leaves the host's own tasks alone: nobody reports their end, so the controller does not show
        // them.
        let held: BTreeMap<TaskId, Held> = held.into_iter().filter(|h| !h.local).map(|h| (h.task, h)).collect();
        for task in &tasks {
            let frozen = self.is_frozen_action(task.action);
            if !frozen && !self.booted(*task, boot_number, now) {
                self.undo(*task, boot_number, now);
            }
        }
        let mut forget = Vec::new();
        // Orphans come first: an orphan keeps later tasks from beginning.
        let (known, unknown): (Vec<&Held>, Vec<&Held>) =
            held.values().partition(|held| self.is_known(host, held) && !self.is_of_a_lost_life(host, held));
        for held in unknown {
            if self.on_unknown(id, host, held, now) {
                forget.push(held.task);
            }
        }
        for held in known {
            self.settle_held(id, host, held.task, &held.state, held.limit_ms, now);
        }
        for task in tasks.into_iter().filter(|task| !held.contains_key(task)) {
            if self.is_frozen_action(task.action) {
                self.leave_absent(task);
            } else {
                self.settle_absent(id, task, boot_number, &boot, now);
            }
        }
        if !forget.is_empty() {
            self.batch.effects.push(Effect::Send { session: id, message: ToAgent::Forget { tasks: forget } });
        }
        self.orphans_told(host, before, now);
        self.reboot_cleans(host);
    }

    /// Undoes a prolog that ended well in a boot that is over, even if a /run that outlived the boot still reports
    /// success.
    pub(in crate::controller) fn undo(&mut self, task: TaskId, boot_number: u32, now: Now) {
        let Some(action) = self.jobs.action(task.action) else { return };
        let had_done = match action.stand(task.rank) {
            Stand::Ok => true,
            Stand::Ended => {
                action.ended.get(&task.rank).is_some_and(|row| self.jobs.counts_on(action, &row.ended.outcome))
            }
            _ => false,
        };
        let undone = had_done && action.boot(task.rank) != Some(boot_number);
        if undone && !survives_reboot(&action.row.name) && !defect!(BootKeepsProlog) {
            self.lose(task, Loss::Rebooted, now);
        }
    }

    /// Withdraws setup actions that wait on the rank of this after-action: a lost life has begun it there, and nothing
    /// prepares a rank that is cleaned up.
    pub(in crate::controller) fn withdraw_before(&mut self, task: TaskId, now: Now) {
        let Some(action) = self.jobs.action(task.action).filter(|action| self.jobs.follows(action)) else { return };
        let Some(attempt) = self.jobs.attempt(&action.row.job, action.row.attempt) else { return };
        let setup = |other: &&Action| !self.jobs.follows(other) && other.row.external.is_none();
        let late = self.jobs.of(attempt).filter(setup).filter(|other| other.stand(task.rank) == Stand::Waiting);
        let late: Vec<TaskId> = late.map(|other| other.task(task.rank)).collect();
        for task in late {
            self.withdraw_task(task, "its rank was cleaned up before it could begin", now);
        }
    }

    /// Returns `true` if this store has the task on this host. A tombstone counts only on this host; any other state
    /// also counts if the store has the task on another host.
    fn is_known(&self, host: &HostName, held: &Held) -> bool {
        let task = held.task;
        let is_stone = matches!(held.state, HeldState::Tombstone { .. });
        let anothers = self.jobs.is_external(task.action) || self.jobs.host_of(task).is_none_or(|of| of != *host);
        let action = self.jobs.action(task.action);
        action.is_some_and(|action| action.stand(task.rank) != Stand::NotMine) && !(is_stone && anothers)
    }

    /// Settles a task that this store knows.
    pub(in crate::controller) fn settle_held(
        &mut self,
        id: SessionId,
        host: &HostName,
        task: TaskId,
        state: &HeldState,
        limit_ms: Option<u64>,
        now: Now,
    ) {
        self.limit_told(host, task, limit_ms);
        let is_stone = matches!(state, HeldState::Tombstone { .. });
        let rank = task.rank;
        if !is_stone && self.is_anothers(host, task) {
            // The task must not begin here. A running task continues; the controller acknowledges its end and ignores
            // the outcome.
            if *state == HeldState::Unclaimed {
                self.send_cancel(id, task, "it is of another host");
            }
            return;
        }
        let Some(boot_number) = self.nodes.get(host).map(|node| node.row.boot_number) else { return };
        let Some(action) = self.jobs.action_mut(task.action) else { return };
        let open = action.is_open_on(rank);
        if open && action.boot(rank).is_none() {
            // A restored store has no Start of the task: as far as the controller knows, the node began the task in
            // this boot.
            action.seen_in(rank, boot_number);
        }
        if action.stand(rank) == Stand::Waiting && !defect!(SetupAfterEpilog) {
            self.withdraw_before(task, now);
        }
        let held_back = open && *state == HeldState::Unclaimed && self.is_held_back(task.action, rank).is_some();
        let frozen = self.is_frozen_action(task.action);
        let Some(action) = self.jobs.action_mut(task.action) else { return };
        match state {
            HeldState::Tombstone { outcome, reboot, .. } => {
                let mut ended = Ended::of_tombstone(outcome.clone(), *reboot, now.wall_ms);
                ended.note = Some("told by the node's tombstone; details were acknowledged before".to_owned());
                if open {
                    if let Some(ended) = self.end_or_boot(task, ended, now) {
                        self.end_task(task, ended, now);
                    }
                } else if outcome.is_of_scripts() {
                    // A restored store may lack a late result.
                    self.on_late(host, task, ended, now);
                }
            }
            HeldState::Unclaimed if !open && defect!(BeginEnded) => {
                self.batch.effects.push(Effect::Send { session: id, message: ToAgent::Begin { task } });
            }
            HeldState::Unclaimed if !open => self.send_cancel(id, task, "it has ended for the controller"),
            HeldState::Unclaimed => {
                let cancel = action.must_not_begin(rank);
                action.accept(rank);
                self.touch(task.action, now);
                match cancel {
                    // A start that systemd has not carried out yet could begin it without a Begin.
                    Some(why) if !frozen && !defect!(CancelledBegins) => self.send_cancel(id, task, &why),
                    _ if held_back => self.leave_unclaimed(task),
                    Some(why) if !defect!(CancelledBegins) => self.send_cancel(id, task, &why),
                    _ => self.batch.effects.push(Effect::Send { session: id, message: ToAgent::Begin { task } }),
                }
            }
            HeldState::Live { phase, age_ms } => {
                if open {
                    let cancel = match is_before_its_begin(phase) {
                        true => action.must_not_begin(rank),
                        false => action.cancel_of(rank),
                    };
                    action.accept(rank);
                    self.touch(task.action, now);
                    if let Some(why) = cancel.filter(|_| !defect!(CancelSaidOnce)) {
                        self.send_cancel(id, task, &why);
                    }
                } else if is_before_its_begin(phase) {
                    // The task has not begun. It would begin when its turn comes, or when systemd starts it.
                    self.send_cancel(id, task, "it has ended for the controller");
                }
                if open {
                    self.past_its_limit(host, task, phase, now);
                }
                self.lives_after_all(task, phase, now);
                self.watch_lingering(task, phase, now);
                self.remember_phase(host, task, phase.clone(), now.mono_ms.saturating_sub(*age_ms));
            }
            HeldState::Ended => {
                if open {
                    action.accept(rank);
                    self.touch(task.action, now);
                }
            }
        }
    }

    /// Settles a task that the store expects on the node and the Hello did not contain.
    pub(in crate::controller) fn settle_absent(
        &mut self,
        id: SessionId,
        task: TaskId,
        boot_number: u32,
        boot: &crate::ids::BootId,
        now: Now,
    ) {
        let Some(action) = self.jobs.action(task.action) else {
            return;
        };
        let same_boot = action.boot(task.rank) == Some(boot_number);
        let stand = action.stand(task.rank);
        let cancel = action.must_not_begin(task.rank);
        match stand {
            Stand::Sent | Stand::Accepted if !same_boot => self.lose(task, Loss::Rebooted, now),
            Stand::Waiting | Stand::Sent if self.jobs.is_stale(task) => self.withdraw_task(task, NOT_ASKED_AGAIN, now),
            Stand::Waiting if self.is_held_back(task.action, task.rank).is_some() => {}
            Stand::Waiting if self.jobs.is_behind(task.action, task.rank) => {}
            Stand::Waiting => {
                self.arm_start(task, now);
                self.start_on(id, task, boot_number, boot, now);
            }
            Stand::Accepted if defect!(AcceptedSentAgain) => self.start_on(id, task, boot_number, boot, now),
            Stand::Accepted => self.lose(task, Loss::Vanished, now),
            // The node never had the task: the task again waits for whatever holds it back.
            Stand::Sent if cancel.is_none() && self.is_held_back(task.action, task.rank).is_some() => {
                if let Some(action) = self.jobs.action_mut(task.action) {
                    action.unsend(task.rank);
                    self.touch(task.action, now);
                }
            }
            // The tombstone of the Cancel answers with Finished.
            Stand::Sent => match cancel {
                Some(why) => self.send_cancel(id, task, &why),
                None => self.start_on(id, task, boot_number, boot, now),
            },
            Stand::Ok | Stand::Ended | Stand::NotMine => {}
        }
    }

    /// Commits a Start to a node's boot, then sends it.
    pub(in crate::controller) fn start_on(
        &mut self,
        id: SessionId,
        task: TaskId,
        boot_number: u32,
        boot: &crate::ids::BootId,
        now: Now,
    ) {
        let not_after_ms = self.settings.not_after_ms;
        let Some(layout) = self.jobs.layout(task.action).cloned() else {
            return;
        };
        let Some(action) = self.jobs.action(task.action) else { return };
        let (after, milestones) = (self.jobs.follows(action), self.jobs.milestones_of(action));
        let Some(action) = self.jobs.action_mut(task.action) else { return };
        action.send(task.rank, boot_number);
        let start = Start { after, milestones, ..action.start(&layout, not_after_ms, task.rank, boot) };
        self.touch(task.action, now);
        self.batch.effects.push(Effect::Send { session: id, message: ToAgent::Start(start) });
    }

    pub(in crate::controller) fn send_cancel(&mut self, id: SessionId, task: TaskId, why: &str) {
        let Some(row) = self.jobs.action(task.action).map(|a| &a.row) else {
            return;
        };
        let message = ToAgent::Cancel {
            task,
            job: row.job.clone(),
            attempt: row.attempt,
            action: row.name.clone(),
            why: why.to_owned(),
            commit: 0,
        };
        self.batch.effects.push(Effect::Send { session: id, message });
    }
}
