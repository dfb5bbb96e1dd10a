//! Settling the difference: what a node holds against what we think it holds, at once when its session stands; and then each
//! completion as it comes.
//!
//! | we think        | the node's Hello               | then |
//! |-----------------|--------------------------------|------|
//! | sent, accepted  | another boot                   | `lost (rebooted)` |
//! | ok or tolerable, of a prolog without verdict | another boot | `lost (rebooted)`: what it prepared is gone; so is one that is told only now, from a /run that outlived its boot |
//! | sent, accepted, and a boot was announced | another boot | its end, [`crate::controller::boot`] |
//! | waiting         | holds nothing                  | Start, unless an earlier action has not ended there; it has start-grace from now on |
//! | waiting, of an attempt that is over, on a node that nobody had heard of | holds nothing | cancelled: it never was there |
//! | sent            | same boot, holds nothing       | Start again, or Cancel as below |
//! | accepted        | same boot, holds nothing       | `lost (vanished)` |
//! | open            | unclaimed                      | accepted; Begin, or Cancel where that was asked, or an operator's word waits |
//! | open            | live, ended                    | accepted; `Finished` follows |
//! | open            | tombstone                      | its outcome |
//! | ended           | unclaimed                      | Cancel: fenced |
//! | ended           | waits for its turn, or starts  | Cancel: fenced; was it never begun here, it is taken for begun |
//! | ended           | live                           | goes on; its result comes late; was it never begun here, it is taken for begun |
//! | ended as lost   | live, begun                    | the same, and its node is drained for it, once |
//! | told of by others | tells of it | its own from now on, [`crate::controller::hearsay`]; then as open |
//! | told of by others | holds nothing, and its session lives ([`crate::controller::asked`]) | `lost (vanished)`, the node is not to blame; what follows the job is not over it |
//! | on another host | any but a tombstone            | shown; Cancel where it has not begun; its end is not believed |
//! | waiting, and prepares the rank | tells of what follows the job there | cancelled: nothing would follow it |
//! | never heard of  | any but a tombstone            | rebuilt from what the node tells |
//! | ended           | tombstone of another end       | late |
//! | never heard of, on another host | tombstone past the retention | Forget |
//! | never heard of, on another host | tombstone        | kept for the session: another node may tell of its action; and it answers, should its task be asked for again |

use std::collections::{BTreeMap, BTreeSet};

use crate::controller::action::{Action, Stand};
use crate::controller::io::{Effect, Now, SessionId};
use crate::controller::machine::Machine;
use crate::controller::resolve::is_before_its_begin;
use crate::defect;
use crate::ids::{ActionId, HostName, TaskId};
use crate::message::{Held, HeldState, ToAgent};
use crate::outcome::{Loss, Outcome};
use crate::task::{Ended, survives_reboot};

/// Has a script of it run, or may one yet? A runner may be faster than a cancel. A tombstone says so by its outcome.
const fn has_begun(state: &HeldState) -> bool {
    match state {
        HeldState::Ended | HeldState::Live { .. } => true,
        HeldState::Unclaimed | HeldState::Tombstone { .. } => false,
    }
}

impl Machine {
    /// `is_new`: nobody had heard of this node.
    pub(super) fn settle(&mut self, id: SessionId, host: &HostName, held: Vec<Held>, is_new: bool, now: Now) {
        // The host's own tasks are its own: nobody tells when they end, so they are not shown as if it were known.
        let held: Vec<Held> = held.into_iter().filter(|h| !h.local).collect();
        for held in &held {
            self.rebuild(host, held, now);
        }
        let Some(node) = self.nodes.get(host) else { return };
        let (boot, boot_number) = (node.row.boot.clone(), node.row.boot_number);
        // What a service outside runs is none of the node's business.
        let tasks: Vec<TaskId> = node.tasks.iter().filter(|task| !self.is_external(task.action)).copied().collect();
        let held: BTreeMap<TaskId, Held> = held.into_iter().map(|h| (h.task, h)).collect();
        for task in &tasks {
            if !self.booted(*task, boot_number, now) {
                self.undo(*task, boot_number, now);
            }
        }
        // All of them, before one of them is looked at: what follows another may come after it.
        self.keep_stones(host, &held);
        // What this store itself has begun there is what others wait for.
        let is_news = |of: &&TaskId| self.actions.get(&of.action).is_none_or(|action| action.boot(of.rank).is_none());
        let news: BTreeSet<TaskId> = held.keys().filter(is_news).copied().collect();
        let mut forget = Vec::new();
        for (task, held) in &held {
            if matches!(held.state, HeldState::Tombstone { .. }) {
                self.stone_tells(host, held, now);
            }
            if !self.settle_held(id, host, *task, &held.state, held.limit_ms, now) {
                forget.push(*task);
            }
        }
        for task in tasks.into_iter().filter(|task| !held.contains_key(task)) {
            if self.had_followed(task, |follower| news.contains(&follower)) {
                let mut ended = Ended::bare(Outcome::Cancelled { status: None }, now.wall_ms);
                ended.note =
                    Some("what follows the job had been there, as the node told: nothing would follow this".to_owned());
                self.end_task(task, ended, now);
                continue;
            }
            if is_new && self.is_superseded(task) {
                let mut ended = Ended::bare(Outcome::Cancelled { status: None }, now.wall_ms);
                ended.note =
                    Some("another attempt had taken its place when its node told that it was never there".to_owned());
                self.end_task(task, ended, now);
                continue;
            }
            self.settle_absent(id, task, boot_number, &boot, now);
        }
        if !forget.is_empty() {
            self.batch.effects.push(Effect::Send { session: id, message: ToAgent::Forget { tasks: forget } });
        }
        self.reboot_cleans(host);
    }

    /// What prepares a rank has yet to come to its node, and that has told of what follows the job there: a store that was lost had begun it.
    fn had_followed(&self, task: TaskId, told: impl Fn(TaskId) -> bool) -> bool {
        let is_to_come = |action: &Action| matches!(action.stand(task.rank), Stand::Waiting | Stand::Sent);
        let waits = |action: &&Action| is_to_come(action) && !self.follows(action);
        let Some(row) = self.actions.get(&task.action).filter(waits).map(|action| &action.row) else { return false };
        let follower = |name| ActionId::of(self.settings.cluster, &row.job, row.attempt, name);
        self.settings.after.iter().any(|name| told(TaskId { action: follower(name), rank: task.rank }))
    }

    /// A prolog that went well in a boot that is over, whether or not a /run that outlived it still tells so.
    fn undo(&mut self, task: TaskId, boot_number: u32, now: Now) {
        let Some(action) = self.actions.get(&task.action) else { return };
        let had_done = match action.stand(task.rank) {
            Stand::Ok => true,
            Stand::Ended => action.ended.get(&task.rank).is_some_and(|row| self.counts_on(action, &row.ended.outcome)),
            _ => false,
        };
        let undone = had_done && action.boot(task.rank) != Some(boot_number);
        if undone && !survives_reboot(&action.row.name) && !defect!(BootKeepsProlog) {
            self.lose(task, Loss::Rebooted, now);
        }
    }

    /// `false`: a tombstone of what is forgotten here.
    pub(super) fn settle_held(
        &mut self,
        id: SessionId,
        host: &HostName,
        task: TaskId,
        state: &HeldState,
        limit_ms: Option<u64>,
        now: Now,
    ) -> bool {
        self.limit_told(host, task, limit_ms);
        let is_stone = matches!(state, HeldState::Tombstone { .. });
        if !is_stone && self.is_anothers(host, task) {
            // It must not begin here; what runs goes on, and its end is acknowledged and not believed.
            if *state == HeldState::Unclaimed {
                self.send_cancel(id, task, "it is of another host");
            }
            return true;
        }
        let rank = task.rank;
        let anothers = self.is_external(task.action) || self.host_of(task).is_none_or(|of| of != *host);
        let mine = |action: &&mut Action| !is_stone || (!anothers && action.stand(rank) != Stand::NotMine);
        let Some(action) = self.actions.get_mut(&task.action).filter(mine) else {
            // Pruned while the node was away; of a store that was lost; or of an earlier life of this attempt, on other hosts. Then only the
            // tombstone knows that it ran, and must stay to say so when it is asked for again. What is older than anything that is kept here
            // was pruned.
            let is_old =
                matches!(state, HeldState::Tombstone { past_ms, .. } if *past_ms >= self.settings.retention_ms);
            if let Some(node) = self.nodes.get_mut(host).filter(|_| is_stone) {
                node.stones.keep(task, state, limit_ms);
            }
            return !is_old;
        };
        let open = matches!(action.stand(rank), Stand::Unknown | Stand::Waiting | Stand::Sent | Stand::Accepted);
        if open && action.boot(rank).is_none() {
            self.node_tells(host, task, now);
        }
        if !open && has_begun(state) {
            self.had_begun(host, task, now);
        }
        let Some(action) = self.actions.get_mut(&task.action) else { return true };
        match state {
            HeldState::Tombstone { outcome, reboot, .. } => {
                let mut ended = Ended::of_tombstone(outcome.clone(), *reboot, now.wall_ms);
                ended.note = Some("told by the node's tombstone; details were acknowledged before".to_owned());
                if open {
                    if let Some(ended) = self.end_or_boot(task, ended, now) {
                        self.end_task(task, ended, now);
                    }
                } else if outcome.is_of_scripts() {
                    // A store that was restored may not have what had come late.
                    self.on_late(host, task, ended, now);
                } else if outcome.may_have_begun() {
                    self.had_begun(host, task, now);
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
                    // It has not begun, and would when its turn comes, or when systemd gets round to it.
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
        true
    }

    /// What prepares a rank for an attempt that another one has taken the place of: on a node that nobody had heard of it was let be, for it might
    /// have begun already (`withdraw`).
    fn is_superseded(&self, task: TaskId) -> bool {
        let waits = |action: &&Action| action.stand(task.rank) == Stand::Waiting && !self.follows(action);
        let Some(action) = self.actions.get(&task.action).filter(waits) else { return false };
        let attempt = self.jobs.get(&action.row.job).and_then(|entry| entry.attempts.get(&action.row.attempt));
        attempt.is_some_and(|attempt| !attempt.open && !attempt.hold.ranks.contains(task.rank.0))
    }

    /// A task that we think is on the node, and that its Hello did not tell of.
    fn settle_absent(&mut self, id: SessionId, task: TaskId, boot_number: u32, boot: &crate::ids::BootId, now: Now) {
        let Some(action) = self.actions.get(&task.action) else {
            return;
        };
        let same_boot = action.boot(task.rank) == Some(boot_number);
        let stand = action.stand(task.rank);
        let cancel = action.must_not_begin(task.rank);
        match stand {
            Stand::Waiting if self.is_behind(task.action, task.rank) => {}
            Stand::Waiting => {
                self.arm_start(task, now);
                self.start_on(id, task, boot_number, boot, now);
            }
            Stand::Sent | Stand::Accepted if !same_boot => self.lose(task, Loss::Rebooted, now),
            Stand::Accepted if defect!(AcceptedSentAgain) => self.start_on(id, task, boot_number, boot, now),
            Stand::Accepted => self.lose(task, Loss::Vanished, now),
            // Its tombstone answers with Finished.
            Stand::Sent => match cancel {
                Some(why) => self.send_cancel(id, task, &why),
                None => self.start_on(id, task, boot_number, boot, now),
            },
            // Rebuilt, and this node never had it: whether it ran before a boot nobody knows.
            Stand::Unknown => self.not_known(task, now),
            Stand::Ok | Stand::Ended | Stand::NotMine => {}
        }
    }

    /// Commits a Start to a node's boot, then sends it.
    pub(super) fn start_on(
        &mut self,
        id: SessionId,
        task: TaskId,
        boot_number: u32,
        boot: &crate::ids::BootId,
        now: Now,
    ) {
        let not_after_ms = self.settings.not_after_ms;
        let Some(layout) = self.layout(task.action).cloned() else {
            return;
        };
        let Some(action) = self.actions.get_mut(&task.action) else {
            return;
        };
        action.send(task.rank, boot_number);
        let start = action.start(&layout, not_after_ms, task.rank, boot);
        self.touch(task.action, now);
        self.batch.effects.push(Effect::Send { session: id, message: ToAgent::Start(start) });
    }

    pub(super) fn send_cancel(&mut self, id: SessionId, task: TaskId, why: &str) {
        let Some(row) = self.actions.get(&task.action).map(|a| &a.row) else {
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
