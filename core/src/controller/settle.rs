//! Settling the difference: what a node holds against what we think it holds, at once when its session stands; and then each
//! completion as it comes.
//!
//! | we think        | the node's Hello               | then |
//! |-----------------|--------------------------------|------|
//! | sent, accepted  | another boot                   | `lost (rebooted)` |
//! | ok of a prolog without verdict | another boot    | `lost (rebooted)`: what it prepared is gone |
//! | sent            | same boot, holds nothing       | Start again |
//! | accepted        | same boot, holds nothing       | `lost (vanished)` |
//! | open            | unclaimed                      | accepted; Begin, or Cancel where that was asked |
//! | open            | live, ended                    | accepted; `Finished` follows |
//! | open            | tombstone                      | its outcome |
//! | ended           | unclaimed                      | Cancel: fenced |
//! | ended           | live                           | goes on; its result comes late |
//! | never heard of  | any but a tombstone            | rebuilt from what the node tells |
//! | never heard of  | tombstone                      | Forget |

use std::collections::BTreeMap;

use serde_json::json;

use crate::agent::io::Level;
use crate::controller::action::{Action, Stand};
use crate::controller::io::{ActionRow, Effect, Now, SessionId};
use crate::controller::layout::Layout;
use crate::controller::machine::{JobAttempt, Machine};
use crate::ids::{ActionName, HostName, Rank, TaskId};
use crate::idset::IdSet;
use crate::message::{Held, HeldState, Phase, ToAgent};
use crate::outcome::{Loss, Outcome};
use crate::task::Ended;

/// Does what an action did to a node outlive its reboot? A prolog's preparations do not.
fn survives_reboot(action: &ActionName) -> bool {
    action.as_str() != "prolog"
}

impl Machine {
    pub(super) fn settle(&mut self, id: SessionId, host: &HostName, held: Vec<Held>, now: Now) {
        let (local, held): (Vec<Held>, Vec<Held>) = held.into_iter().partition(|h| h.local);
        for held in &held {
            self.rebuild(host, held, now);
        }
        let Some(node) = self.nodes.get_mut(host) else { return };
        node.local = local;
        let (boot, boot_number) = (node.row.boot.clone(), node.row.boot_number);
        let tasks: Vec<TaskId> = node.tasks.iter().copied().collect();
        let held: BTreeMap<TaskId, Held> = held.into_iter().map(|h| (h.task, h)).collect();
        let mut forget = Vec::new();
        for (task, held) in &held {
            if !self.settle_held(id, host, *task, held, boot_number, now) {
                forget.push(*task);
            }
        }
        for task in tasks.into_iter().filter(|task| !held.contains_key(task)) {
            self.settle_absent(id, task, boot_number, &boot, now);
        }
        if !forget.is_empty() {
            self.batch.effects.push(Effect::Send {
                session: id,
                message: ToAgent::Forget { tasks: forget },
            });
        }
    }

    /// `false`: a tombstone of what is forgotten here.
    fn settle_held(
        &mut self,
        id: SessionId,
        host: &HostName,
        task: TaskId,
        held: &Held,
        boot_number: u32,
        now: Now,
    ) -> bool {
        if self.host_of(task).is_some_and(|of| of != *host) {
            self.speaks_for(id, host, task, now);
            return true;
        }
        let Some(action) = self.actions.get_mut(&task.action) else {
            return !matches!(held.state, HeldState::Tombstone { .. });
        };
        let rank = task.rank;
        let open = matches!(
            action.stand(rank),
            Stand::Unknown | Stand::Waiting | Stand::Sent | Stand::Accepted
        );
        if open {
            action.seen_in(rank, boot_number);
        }
        match &held.state {
            HeldState::Tombstone { outcome } => {
                if open {
                    let mut ended = Ended::bare(outcome.clone(), now.wall_ms);
                    ended.note = Some("told by the node's tombstone; details were acknowledged before".to_owned());
                    self.end_task(task, ended, now);
                }
            }
            HeldState::Unclaimed if !open => self.send_cancel(id, task, "it has ended for the controller"),
            HeldState::Unclaimed => {
                let cancel = action
                    .row
                    .cancelling
                    .contains(rank.0)
                    .then(|| action.row.cancel_why.clone().unwrap_or_default());
                action.accept(rank);
                self.touch(task.action, now);
                match cancel {
                    Some(why) => self.send_cancel(id, task, &why),
                    None => self.batch.effects.push(Effect::Send {
                        session: id,
                        message: ToAgent::Begin { task },
                    }),
                }
            }
            HeldState::Live { phase, age_ms } => {
                if open {
                    let cancel = action
                        .row
                        .cancelling
                        .contains(rank.0)
                        .then(|| action.row.cancel_why.clone().unwrap_or_default());
                    action.accept(rank);
                    self.touch(task.action, now);
                    if let Some(why) = cancel {
                        self.send_cancel(id, task, &why);
                    }
                }
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

    /// A task that we think is on the node, and that its Hello did not tell of.
    fn settle_absent(&mut self, id: SessionId, task: TaskId, boot_number: u32, boot: &crate::ids::BootId, now: Now) {
        let Some(action) = self.actions.get(&task.action) else {
            return;
        };
        let same_boot = action.boot(task.rank) == Some(boot_number);
        let stand = action.stand(task.rank);
        let cancelling = action.row.cancelling.contains(task.rank.0);
        match stand {
            Stand::Waiting => self.start_on(id, task, boot_number, boot, now),
            Stand::Sent | Stand::Accepted if !same_boot => self.lose(task, Loss::Rebooted, now),
            Stand::Ok if !same_boot && !survives_reboot(&action.row.name) => {
                self.lose(task, Loss::Rebooted, now);
            }
            Stand::Accepted => self.lose(task, Loss::Vanished, now),
            // Its tombstone answers with Finished.
            Stand::Sent if cancelling => {
                let why = action.row.cancel_why.clone().unwrap_or_default();
                self.send_cancel(id, task, &why);
            }
            Stand::Sent => self.start_on(id, task, boot_number, boot, now),
            // Rebuilt, and this node never had it: whether it ran before a boot nobody knows.
            Stand::Unknown => self.lose(task, Loss::Vanished, now),
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
        self.batch.effects.push(Effect::Send {
            session: id,
            message: ToAgent::Start(start),
        });
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
        };
        self.batch.effects.push(Effect::Send { session: id, message });
    }

    pub(super) fn lose(&mut self, task: TaskId, why: Loss, now: Now) {
        self.end_task(task, Ended::bare(Outcome::Lost { why }, now.wall_ms), now);
    }

    /// The one place where a task gets its outcome.
    pub(super) fn end_task(&mut self, task: TaskId, ended: Ended, now: Now) {
        let ok = ended.outcome.is_ok();
        let milestones = ended.milestones.clone();
        let Some(action) = self.actions.get_mut(&task.action) else {
            return;
        };
        action.end(task.rank, ended);
        if let Some(node) = self.host_of(task).and_then(|host| self.nodes.get_mut(&host)) {
            node.live.remove(&task);
        }
        if !ok {
            self.remember_failed(task);
        }
        for name in milestones {
            self.milestone(task, &name, now);
        }
        self.touch(task.action, now);
    }

    pub(super) fn on_accepted(&mut self, id: SessionId, host: &HostName, task: TaskId, now: Now) {
        if !self.speaks_for(id, host, task, now) {
            return;
        }
        let Some(action) = self.actions.get_mut(&task.action) else {
            return;
        };
        match action.stand(task.rank) {
            Stand::Sent | Stand::Waiting | Stand::Unknown => {
                action.accept(task.rank);
                self.touch(task.action, now);
            }
            // Too late for us: it must not begin. If it has begun, Cancel stops it.
            Stand::Ended => self.send_cancel(id, task, "it has ended for the controller"),
            Stand::Accepted | Stand::Ok | Stand::NotMine => {}
        }
    }

    pub(super) fn on_moved(&mut self, host: &HostName, task: TaskId, phase: Phase, age_ms: u64, now: Now) {
        let Some(action) = self.actions.get(&task.action) else {
            return;
        };
        let (job, name, attempt) = (action.row.job.clone(), action.row.name.clone(), action.row.attempt);
        let told = self
            .nodes
            .get(host)
            .and_then(|n| n.live.get(&task))
            .map(|(phase, _)| phase.clone());
        let repeated = |kind: fn(&Phase) -> bool| told.as_ref().is_some_and(kind);
        match &phase {
            Phase::Milestone { name } => {
                self.milestone(task, name, now);
                return;
            }
            Phase::Overdue { script, limit_ms } if !repeated(|p| matches!(p, Phase::Overdue { .. })) => {
                let context = json!({"action": name, "attempt": attempt, "ranks": task.rank.0.to_string(), "hosts": host,
                    "script": script, "limit_ms": limit_ms});
                self.event(&job, now, "overdue", context);
            }
            Phase::Lingering { processes } if !repeated(|p| matches!(p, Phase::Lingering { .. })) => {
                let context = json!({"action": name, "attempt": attempt, "ranks": task.rank.0.to_string(), "hosts": host,
                    "processes": processes});
                self.event(&job, now, "lingering", context);
            }
            _ => {}
        }
        self.remember_phase(host, task, phase, now.mono_ms.saturating_sub(age_ms));
    }

    fn milestone(&mut self, task: TaskId, milestone: &str, now: Now) {
        let Some(action) = self.actions.get_mut(&task.action) else {
            return;
        };
        // Told while it runs and again with its end: an event once.
        if !action.first_milestone(task.rank, milestone) {
            return;
        }
        let (job, name, attempt) = (action.row.job.clone(), action.row.name.clone(), action.row.attempt);
        let host = self.host_of(task);
        let context = json!({"action": name, "attempt": attempt, "name": milestone, "ranks": task.rank.0.to_string(), "hosts": host});
        self.event(&job, now, "milestone", context);
    }

    pub(super) fn on_finished(&mut self, id: SessionId, host: &HostName, task: TaskId, ended: Ended, now: Now) {
        let ack = Effect::Send {
            session: id,
            message: ToAgent::Ack { task },
        };
        let Some(action) = self.actions.get_mut(&task.action) else {
            // Of an attempt that is closed and pruned.
            self.batch.effects.push(ack);
            return;
        };
        let stand = action.stand(task.rank);
        if stand != Stand::NotMine && !self.speaks_for(id, host, task, now) {
            return;
        }
        match stand {
            Stand::Waiting | Stand::Sent | Stand::Accepted | Stand::Unknown => self.end_task(task, ended, now),
            Stand::Ok | Stand::Ended => self.on_late(host, task, ended, now),
            Stand::NotMine => {}
        }
        self.batch.effects.push(ack);
    }

    fn on_late(&mut self, host: &HostName, task: TaskId, ended: Ended, now: Now) {
        let Some(action) = self.actions.get_mut(&task.action) else {
            return;
        };
        let outcome = ended.outcome.clone();
        if !action.late(task.rank, ended, now.wall_ms) {
            return;
        }
        let context = json!({"action": action.row.name, "attempt": action.row.attempt, "rank": task.rank, "host": host,
            "outcome": outcome.word(), "result": outcome.to_string()});
        let job = action.row.job.clone();
        if let Some(node) = self.nodes.get_mut(host) {
            node.live.remove(&task);
        }
        self.event(&job, now, "late", context);
        self.touch(task.action, now);
        self.note(
            Level::Warning,
            Some(&job),
            Some(host),
            format!("task {task} had ended for the controller; its own result came late: {outcome}"),
        );
    }

    /// A task that this store has never heard of: it was lost, or restored from an old copy. Equal ids meet.
    fn rebuild(&mut self, host: &HostName, held: &Held, now: Now) {
        if self.actions.contains_key(&held.task.action) || matches!(held.state, HeldState::Tombstone { .. }) {
            return;
        }
        let expected = crate::ids::ActionId::of(self.settings.cluster, &held.job, held.attempt, &held.action);
        let layout = match Layout::new(held.ranks.clone(), held.hosts.clone()) {
            Ok(layout) if expected == held.task.action && layout.host(held.task.rank).as_ref() == Some(host) => layout,
            _ => {
                self.note(
                    Level::Warning,
                    Some(&held.job),
                    Some(host),
                    format!("holds task {} which does not make sense here", held.task),
                );
                return;
            }
        };
        let job = self.jobs.entry(held.job.clone()).or_default();
        let merged = match job.attempts.get(&held.attempt) {
            Some(attempt) => attempt.layout.merge(&layout),
            None => Ok(layout),
        };
        let Ok(layout) = merged else {
            self.note(
                Level::Warning,
                Some(&held.job),
                Some(host),
                format!("holds task {} whose hosts contradict the attempt's", held.task),
            );
            return;
        };
        let newest = job.last_attempt().is_none_or(|last| held.attempt >= last);
        if newest {
            for (number, attempt) in job
                .attempts
                .iter_mut()
                .filter(|(number, a)| a.open && **number < held.attempt)
            {
                attempt.open = false;
                self.batch.attempts.insert((held.job.clone(), *number));
            }
        }
        let attempt = job.attempts.entry(held.attempt).or_insert_with(|| JobAttempt {
            layout: layout.clone(),
            userid: held.userid,
            open: newest,
            touched_ms: now.wall_ms,
            actions: Vec::new(),
        });
        attempt.layout = layout;
        self.batch.attempts.insert((held.job.clone(), held.attempt));
        let row = ActionRow {
            id: held.task.action,
            job: held.job.clone(),
            attempt: held.attempt,
            name: held.action.clone(),
            ranks: held.ranks.clone(),
            userid: held.userid,
            env: BTreeMap::new(),
            timeout_ms: None,
            began_ms: now.wall_ms,
            waiting: IdSet::new(),
            sent: IdSet::new(),
            accepted: IdSet::new(),
            ok: IdSet::new(),
            ended: IdSet::new(),
            cancelling: IdSet::new(),
            cancel_why: None,
            boots: BTreeMap::new(),
            verdict: None,
            ended_ms: None,
            unknown: held.ranks.clone(),
            events_from: self.jobs.get(&held.job).map_or(0, |j| j.events_last),
        };
        self.load_action(Action::new(row, now.mono_ms));
        let context = json!({"action": held.action, "attempt": held.attempt, "id": held.task.action, "ranks": held.ranks,
            "hosts": held.hosts, "rebuilt": true});
        self.event(&held.job, now, "action-start", context);
        self.touch(held.task.action, now);
        self.note(
            Level::Warning,
            Some(&held.job),
            Some(host),
            format!("rebuilt action {} from what its nodes hold", held.action),
        );
        self.settle_rebuilt(held.task.action, host, now);
    }

    /// Nodes that have said Hello in this controller's time, and did not tell of the action, hold nothing of it.
    fn settle_rebuilt(&mut self, id: crate::ids::ActionId, teller: &HostName, now: Now) {
        let Some(layout) = self.layout(id).cloned() else { return };
        let Some(action) = self.actions.get(&id) else { return };
        let ranks: Vec<Rank> = action.row.unknown.iter().map(Rank).collect();
        for rank in ranks {
            let answered = layout
                .host(rank)
                .filter(|host| host != teller)
                .is_some_and(|host| self.nodes.get(&host).is_some_and(|node| node.session.is_some()));
            if answered {
                self.lose(TaskId { action: id, rank }, Loss::Vanished, now);
            }
        }
    }
}
