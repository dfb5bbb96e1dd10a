//! Orphans: decides about tasks that a node holds and the store does not know, because a lost life of the controller
//! began them. An orphan is the only record of its run, so the controller never acknowledges, forgets or cancels an
//! orphan on its own.
//!
//! | the task's commit | the task | then |
//! |---|---|---|
//! | past | unclaimed | its attempt was pruned: Cancel |
//! | past | live, ended | its attempt was pruned: the controller acknowledges the end |
//! | past | tombstone | Forget |
//! | foreign, or not reported | unclaimed, live, ended | an orphan |
//! | foreign, or not reported | tombstone | kept if a clean-up may need it (1); past its retention: Forget (2) |
//!
//! 1. While attempts can be frozen, or a disowned rank is still to be cleaned up.
//! 2. Not while attempts can be frozen.
//!
//! No setup action of another job begins on the host of an orphan. A request for the orphan's task on its host adopts
//! the orphan: the node's task becomes the request's. If no request does so in time, the controller drains the host
//! until the orphan is gone. An operator can also decide ([`super::confirm`]).

use crate::controller::context::{Change, Context};
use crate::controller::facts::Facts;
use crate::controller::giveback::drain::Drains;
use crate::controller::io::{Effect, Now, Passing, SessionId};
use crate::controller::job::Jobs;
use crate::controller::machine::Machine;
use crate::controller::node::Nodes;
use crate::defect;
use crate::ids::{ActionId, ActionName, Attempt, HostName, JobId, Rank, TaskId};
use crate::idset::IdSet;
use crate::mark::Place;
use crate::message::{Held, HeldState, Phase, ToAgent};

use super::gate::shut_ms;
use super::held_back::HeldBack;
use super::{Recovery, Unsettled};

/// Maximum number of tombstones of unknown tasks kept for one node.
const MAX_TOMBSTONES: usize = 4_096;

/// A task that a node holds and the store does not know.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Orphan {
    pub(crate) job: JobId,
    pub(crate) attempt: Attempt,
    pub(crate) action: ActionName,
    pub(super) userid: Option<u32>,
    /// The task's state in the node's last report.
    state: HeldState,
    /// Time (monotonic) of the node's last report about the task.
    told_ms: u64,
    /// The task's time limit; `None`: no limit, or none reported.
    limit_ms: Option<u64>,
    /// `true` if an operator has given the orphan up. The controller then acknowledges the orphan's end.
    pub(super) given_up: bool,
}

impl Orphan {
    pub(super) fn is_unclaimed(&self) -> bool {
        self.state == HeldState::Unclaimed
    }

    /// Returns the name of the orphan's state, for people.
    pub(crate) const fn word(&self) -> &'static str {
        match self.state {
            HeldState::Unclaimed => "unclaimed",
            HeldState::Live { .. } => "live",
            HeldState::Ended | HeldState::Tombstone { .. } => "ended",
        }
    }
}

impl Recovery {
    /// Returns the time (ms, monotonic) at which the controller drains the hosts of orphans; `None`: no such drain is
    /// scheduled.
    pub(crate) const fn next_orphans(&self) -> Option<u64> {
        self.orphans_ms
    }

    /// Returns `true` if the scheduled drain of the hosts of orphans is due now. A due drain is removed from the
    /// schedule.
    pub(crate) fn orphans_due(&mut self, now: Now) -> bool {
        self.orphans_ms.take_if(|at| *at <= now.mono_ms).is_some()
    }

    /// Forgets the tombstones of unknown tasks that were kept for clean-ups. Keeps them while attempts can be frozen,
    /// or while a disowned rank is still to be cleaned up.
    pub(super) fn drop_tombstones(&self, jobs: &Jobs, nodes: &mut Nodes) {
        if !self.freezes() && jobs.cleaning.is_empty() {
            nodes.values_mut().for_each(|node| node.unsettled.tombstones.clear());
        }
    }

    /// Schedules the drain of the hosts of orphans. A host whose orphans are adopted before that is not drained.
    pub(super) fn watch_orphans(&mut self, nodes: &Nodes, cx: &Context) {
        if self.orphans_ms.is_none() && !nodes.orphan_hosts.is_empty() {
            let wait = shut_ms(nodes.len(), cx.settings.redial_per_second);
            self.orphans_ms = Some(cx.now.mono_ms.saturating_add(wait));
        }
    }
}

impl Drains {
    /// Drains the hosts of orphans that no request has adopted in time, and that no operator has given up.
    pub(crate) fn drain_orphans(&mut self, nodes: &Nodes, cx: &mut Context) {
        for host in nodes.orphan_hosts.iter().filter(|_| !defect!(OrphansUndrained)) {
            let Some(node) = nodes.get(host) else { continue };
            let Some(orphan) = node.unsettled.orphans.values().find(|orphan| !orphan.given_up) else { continue };
            let reason = format!(
                "{} of job {} attempt {} is there, and the controller's store does not know it",
                orphan.action, orphan.job, orphan.attempt
            );
            self.drain_passing(host, reason, Passing::Orphan, cx);
        }
    }
}

impl Nodes {
    /// Records the phase that the node reports of an orphan. Returns `false` if the task is no orphan of the host.
    /// [`Phase::Milestone`] changes nothing.
    pub(crate) fn orphan_moved(&mut self, host: &HostName, task: TaskId, phase: &Phase, now: Now) -> bool {
        let node = self.get_mut(host);
        let Some(orphan) = node.and_then(|node| node.unsettled.orphans.get_mut(&task)) else { return false };
        if !matches!(phase, Phase::Milestone { .. }) {
            orphan.state = HeldState::Live { phase: phase.clone(), age_ms: 0 };
            orphan.told_ms = now.mono_ms;
        }
        true
    }
}

impl Context {
    fn cancel_held(&mut self, session: SessionId, held: &Held, why: &str) {
        let (job, action) = (held.job.clone(), held.action.clone());
        let message =
            ToAgent::Cancel { task: held.task, job, attempt: held.attempt, action, why: why.to_owned(), commit: 0 };
        self.effects.push(Effect::Send { session, message });
    }
}

impl Nodes {
    /// Carries operators' decisions about orphans over to a new Hello of the node. Gives up again each orphan that an
    /// operator had given up before. If the node holds no orphan any more, removes the host from the hosts with
    /// orphans. `before`: the node's unsettled tasks as of the earlier Hello.
    pub(crate) fn orphans_told(&mut self, host: &HostName, before: Unsettled, cx: &mut Context) {
        let given_up = before.orphans.into_iter().filter(|(_, orphan)| orphan.given_up);
        for (task, _) in given_up {
            self.give_up_orphan(host, task, cx);
        }
        if self.get(host).is_some_and(|node| node.unsettled.orphans.is_empty()) {
            self.orphan_hosts.remove(host);
        }
    }

    /// Records that a task which the store does not know has ended on its node. Returns `true` if the controller may
    /// acknowledge the end: the task is no orphan, or an operator gave the orphan up.
    pub(crate) fn unknown_ended(&mut self, host: &HostName, task: TaskId, cx: &mut Context) -> bool {
        let Some(node) = self.get_mut(host) else { return true };
        let Some(orphan) = node.unsettled.orphans.get_mut(&task) else { return true };
        orphan.state = HeldState::Ended;
        let given_up = orphan.given_up;
        if given_up {
            self.drop_orphan(host, task, cx);
        }
        given_up || defect!(OrphanAcknowledged)
    }

    /// Removes an orphan of the host. If it was the host's last one, lifts the drain for orphans, and actions that
    /// waited for it may begin.
    pub(super) fn drop_orphan(&mut self, host: &HostName, task: TaskId, cx: &mut Context) {
        let Some(node) = self.get_mut(host) else { return };
        node.unsettled.orphans.remove(&task);
        if node.unsettled.orphans.is_empty() {
            self.orphan_hosts.remove(host);
            cx.changes.push_back(Change::Unorphaned(host.clone()));
        }
    }

    /// Gives up an orphan, as an operator decided. An unclaimed orphan never begins; a running orphan gets a SIGTERM.
    /// The controller acknowledges the orphan's end. An absent node gets the Cancel when the node comes back, and the
    /// recovery does not wait for the node.
    pub(super) fn give_up_orphan(&mut self, host: &HostName, task: TaskId, cx: &mut Context) {
        let Some(node) = self.get_mut(host) else { return };
        let session = node.session;
        let Some(orphan) = node.unsettled.orphans.get_mut(&task) else { return };
        orphan.given_up = true;
        let has_ended = orphan.state == HeldState::Ended;
        let (job, attempt, action) = (orphan.job.clone(), orphan.attempt, orphan.action.clone());
        if let Some(session) = session {
            let why = "given up by a person after the store was put back".to_owned();
            let message = ToAgent::Cancel { task, job, attempt, action, why, commit: 0 };
            cx.effects.push(Effect::Send { session, message });
            if has_ended {
                cx.send(session, ToAgent::Ack { task, commit: 0 });
            }
        }
        if has_ended {
            self.drop_orphan(host, task, cx);
        }
    }
}

impl Machine {
    /// Decides about a task that a node lists in its Hello and that the store does not know: the task becomes an
    /// orphan, gets a Cancel, or is kept as a tombstone. The table at the top of this file has all cases. Returns
    /// `true` if the task is a tombstone that the node may forget.
    pub(crate) fn on_unknown(&mut self, id: SessionId, host: &HostName, held: &Held) -> bool {
        let is_past = held.commit.is_some_and(|commit| self.history.place(commit) == Place::Past);
        match &held.state {
            HeldState::Tombstone { .. } if is_past => return true,
            HeldState::Tombstone { past_ms, .. } => {
                let is_old = *past_ms >= self.cx.settings.retention_ms && !self.recovery.freezes();
                let wanted = self.recovery.freezes() || !self.jobs.cleaning.is_empty();
                if let Some(node) = self.nodes.get_mut(host).filter(|_| wanted && !is_old) {
                    let tombstones = &mut node.unsettled.tombstones;
                    if tombstones.len() < MAX_TOMBSTONES {
                        tombstones.insert(held.task, held.state.clone());
                    }
                }
                return is_old;
            }
            HeldState::Unclaimed if is_past => {
                self.cx.cancel_held(id, held, "its attempt was forgotten here");
                return false;
            }
            _ if is_past => return false,
            HeldState::Unclaimed | HeldState::Live { .. } | HeldState::Ended => {}
        }
        let orphan = Orphan {
            job: held.job.clone(),
            attempt: held.attempt,
            action: held.action.clone(),
            userid: held.userid,
            state: held.state.clone(),
            told_ms: self.cx.now.mono_ms,
            limit_ms: held.limit_ms,
            given_up: false,
        };
        if let Some(node) = self.nodes.get_mut(host).filter(|_| !defect!(OrphansOverlooked)) {
            node.unsettled.orphans.insert(held.task, orphan);
            self.nodes.orphan_hosts.insert(host.clone());
            self.recovery.watch_orphans(&self.nodes, &self.cx);
        }
        false
    }

    /// Adopts the orphans of an action on `ranks`: each becomes the action's task, as if the node had just reported the
    /// task. Does not wait for earlier actions on the rank. Sends a Start for an orphan that has ended, because the
    /// node answers such a Start with the end.
    pub(crate) fn adopt(&mut self, id: ActionId, ranks: &IdSet) {
        let Some(layout) = self.jobs.layout(id).cloned().filter(|_| self.facts().has_orphans()) else { return };
        for rank in ranks.iter().map(Rank) {
            let task = TaskId { action: id, rank };
            let is_open = self.jobs.action(id).is_some_and(|action| action.is_open_on(rank));
            let Some(host) = layout.host(rank).filter(|_| is_open) else { continue };
            let Some(node) = self.nodes.get_mut(&host) else { continue };
            let Some(Orphan { mut state, told_ms, limit_ms, .. }) = node.unsettled.orphans.get(&task).cloned() else {
                continue;
            };
            let (session, boot, boot_number) = (node.session, node.row.boot.clone(), node.row.boot_number);
            if !defect!(AdoptedBesideSetup) {
                self.jobs.withdraw_before(task, &mut self.cx);
            }
            if let Some(session) = session.filter(|_| state == HeldState::Ended) {
                self.jobs.start_on(session, task, boot_number, &boot, &mut self.cx);
            }
            if let HeldState::Live { age_ms, .. } = &mut state {
                *age_ms = age_ms.saturating_add(self.cx.now.mono_ms.saturating_sub(told_ms));
            }
            match session {
                Some(session) => self.settle_held(session, &host, task, &state, limit_ms),
                None => {
                    if let Some(action) = self.jobs.action_mut(id) {
                        action.seen_in(rank, boot_number);
                        action.accept(rank);
                    }
                }
            }
            self.nodes.drop_orphan(&host, task, &mut self.cx);
        }
    }
}

impl<'a> Facts<'a> {
    /// Returns `true` if a lost life began the task on this host, while the store has the task on another host.
    pub(crate) fn is_of_a_lost_life(&self, host: &HostName, held: &Held) -> bool {
        let foreign = held.commit.is_some_and(|commit| self.history.place(commit) == Place::Foreign);
        foreign && self.jobs.host_of(held.task).is_some_and(|of| of != *host)
    }

    /// Returns `true` if any node now has an orphan, as far as the nodes have reported. Counts given-up orphans too.
    pub(crate) fn has_orphans(&self) -> bool {
        !self.nodes.orphan_hosts.is_empty()
    }

    /// Returns the reason if an orphan of another job keeps setup actions of this job from beginning on the host.
    /// `None` also for a host that is not connected, because its next Hello reports the orphans anew.
    pub(super) fn orphan_before(&self, job: &JobId, host: &HostName) -> Option<HeldBack> {
        let node = self.nodes.get(host).filter(|node| node.session.is_some())?;
        let orphan = node.unsettled.orphans.values().find(|orphan| orphan.job != *job)?;
        (!defect!(OrphanIgnored)).then(|| HeldBack::Orphan(orphan.action.clone(), orphan.job.clone()))
    }

    /// Returns the orphans that no operator has given up, with their hosts.
    pub(crate) fn orphans(&self) -> impl Iterator<Item = (&'a HostName, TaskId, &'a Orphan)> + use<'a> {
        let Facts(machine) = *self;
        let hosts = machine.nodes.orphan_hosts.iter();
        let nodes = hosts.filter_map(|host| Some((host, machine.nodes.get(host)?)));
        let all = nodes.flat_map(|(host, node)| node.unsettled.orphans.iter().map(move |(task, of)| (host, *task, of)));
        all.filter(|(_, _, orphan)| !orphan.given_up)
    }
}
