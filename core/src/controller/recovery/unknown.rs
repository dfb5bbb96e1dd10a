//! Unknown tasks: decides about tasks that a node holds and the store does not know, because a lost epoch of the
//! controller began them. An unknown task is the only record of its run, so the controller never acknowledges, forgets
//! or cancels it on its own.
//!
//! | the task's commit | the task | then |
//! |---|---|---|
//! | past | unclaimed | its attempt was pruned: Cancel |
//! | past | live, ended | its attempt was pruned: the controller acknowledges the end |
//! | past | tombstone | Forget |
//! | foreign, or not reported | unclaimed, live, ended | unknown |
//! | foreign, or not reported | tombstone | unknown until the host is judged; past retention, no grace: Forget |
//!
//! No setup action of another job begins on the host of an unknown task. A request that takes up the task's attempt
//! adopts the task: the node's task becomes a task of the attempt. If no request does so within the grace, the
//! controller drains the host, and names the tasks. An operator's `undrain` acknowledges them.

use std::collections::{BTreeMap, BTreeSet};

use crate::controller::facts::Facts;
use crate::controller::interface::io::{ActionRow, Effect, Now, Passing, Recovered, SessionId};
use crate::controller::machine::Machine;
use crate::controller::state::Jobs;
use crate::controller::state::attempt::JobAttempt;
use crate::controller::state::change::Change;
use crate::controller::state::context::Context;
use crate::controller::state::drains::Drains;
use crate::controller::state::recovery::{Unknown, Unsettled};
use crate::controller::state::{Node, Nodes};
use crate::defect;
use crate::ids::{ActionId, ActionName, Attempt, HostName, JobId, Rank, TaskId};
use crate::idset::IdSet;
use crate::mark::Place;
use crate::message::{Held, HeldState, Phase, ToAgent};

use super::held_back::HeldBack;

/// Maximum number of tombstones of unknown tasks kept for one node.
const MAX_TOMBSTONES: usize = 4_096;
/// Maximum number of unknown tasks that the reason of a drain names.
const NAMED: usize = 2;

impl Nodes {
    /// Records the phase that the node reports of an unknown task. Returns `false` if the host has no such unknown
    /// task.
    pub(crate) fn unknown_phase_changed(&mut self, host: &HostName, task: TaskId, phase: &Phase, now: Now) -> bool {
        let node = self.get_mut(host);
        let Some(unknown) = node.and_then(|node| node.unsettled.unknown.get_mut(&task)) else { return false };
        unknown.state = HeldState::Live { phase: phase.clone(), age_ms: 0 };
        unknown.reported_ms = now.mono_ms;
        true
    }

    /// Carries an operator's decisions about unknown tasks over to a new Hello of the node. If the node holds no
    /// unknown task, removes the host from the hosts with unknown tasks. `before`: the node's unsettled tasks as of the
    /// earlier Hello.
    pub(crate) fn unknown_reported(&mut self, host: &HostName, before: Unsettled, cx: &mut Context) {
        let given_up = before.unknown.into_iter().filter(|(_, unknown)| unknown.given_up);
        for (task, _) in given_up {
            self.give_up_unknown(host, task, cx);
        }
        if self.get(host).is_some_and(|node| !node.unsettled.has_tasks()) {
            self.unknown_hosts.remove(host);
        }
    }

    /// Records that a task which the store does not know has ended on its node. Returns `true` if the controller may
    /// acknowledge the end: the task is not unknown, or an operator gave it up.
    pub(crate) fn unknown_ended(&mut self, host: &HostName, task: TaskId, cx: &mut Context) -> bool {
        let Some(node) = self.get_mut(host) else { return true };
        let Some(unknown) = node.unsettled.unknown.get_mut(&task).filter(|of| !of.is_tombstone()) else { return true };
        unknown.state = HeldState::Ended;
        let given_up = unknown.given_up;
        if given_up {
            self.drop_unknown(host, task, cx);
        }
        if defect!(UnknownAcknowledged) { true } else { given_up }
    }

    /// Removes an unknown task of the host. If it was the host's last one, lifts the drain for unknown tasks, and
    /// actions that waited for it may begin.
    fn drop_unknown(&mut self, host: &HostName, task: TaskId, cx: &mut Context) {
        let Some(node) = self.get_mut(host) else { return };
        node.unsettled.unknown.remove(&task);
        if !node.unsettled.has_tasks() && self.unknown_hosts.remove(host) {
            cx.changes.push_back(Change::NoUnknown(host.clone()));
        }
    }

    /// Gives up an unknown task, because an operator lifted the host's drain. An unclaimed task never begins, a running
    /// one goes on, and the controller acknowledges the end. An absent node gets the message when it comes back.
    fn give_up_unknown(&mut self, host: &HostName, task: TaskId, cx: &mut Context) {
        let Some(node) = self.get_mut(host) else { return };
        let session = node.session;
        let Some(unknown) = node.unsettled.unknown.get_mut(&task).filter(|of| !of.is_tombstone()) else { return };
        unknown.given_up = true;
        let (job, attempt, action) = (unknown.job.clone(), unknown.attempt, unknown.action.clone());
        match (&unknown.state, session) {
            (HeldState::Unclaimed, Some(session)) => {
                let why = "an operator gave up the task after the store was restored".to_owned();
                let message = ToAgent::Cancel { task, job, attempt, action, why, commit: 0 };
                cx.effects.push(Effect::Send { session, message });
            }
            (HeldState::Ended, Some(session)) => {
                cx.send(session, ToAgent::Ack { task, commit: 0 });
                cx.send(session, ToAgent::Forget { tasks: vec![task] });
            }
            _ => {}
        }
        if unknown.state == HeldState::Ended {
            self.drop_unknown(host, task, cx);
        }
    }

    /// Gives up all unknown tasks of a host whose drain an operator has lifted, and drops the evidence of clean-ups
    /// that may not have run there: the node forgets the tombstones of these attempts.
    pub(super) fn give_up_host(&mut self, host: &HostName, cx: &mut Context) {
        self.uncleaned_hosts.remove(host);
        let Some(node) = self.get_mut(host) else { return };
        let session = node.session;
        let uncleaned = std::mem::take(&mut node.unsettled.uncleaned);
        let is_uncleaned = |of: &Unknown| uncleaned.contains(&(of.job.clone(), of.attempt));
        let tombstones = node.unsettled.unknown.iter().filter(|(_, of)| of.is_tombstone() && is_uncleaned(of));
        let tombstones: Vec<TaskId> = tombstones.map(|(task, _)| *task).collect();
        node.unsettled.unknown.retain(|task, _| !tombstones.contains(task));
        let tasks: Vec<TaskId> = node.unsettled.unknown.keys().copied().collect();
        if let Some(session) = session.filter(|_| !tombstones.is_empty()) {
            cx.send(session, ToAgent::Forget { tasks: tombstones });
        }
        for task in tasks {
            self.give_up_unknown(host, task, cx);
        }
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
    /// Decides about a task that a node lists in its Hello and that the store does not know: the task becomes unknown,
    /// or gets a Cancel. The table at the top of this file has all cases. `is_past`: the task's commit is of this
    /// store's own past. `is_on`: a grace runs. Returns `true` if the task is a tombstone that the node may forget.
    pub(crate) fn on_unknown(
        &mut self,
        id: SessionId,
        host: &HostName,
        held: &Held,
        (is_past, is_on): (bool, bool),
        cx: &mut Context,
    ) -> bool {
        match &held.state {
            HeldState::Tombstone { .. } if is_past => return true,
            HeldState::Tombstone { past_ms, .. } if *past_ms >= cx.settings.retention_ms && !is_on => return true,
            HeldState::Unclaimed if is_past => {
                cx.cancel_held(id, held, "its attempt was forgotten here");
                return false;
            }
            _ if is_past => return false,
            _ => {}
        }
        let unknown = Unknown {
            job: held.job.clone(),
            attempt: held.attempt,
            action: held.action.clone(),
            userid: held.userid,
            state: held.state.clone(),
            reported_ms: cx.now.mono_ms,
            limit_ms: held.limit_ms,
            given_up: false,
        };
        let is_tombstone = unknown.is_tombstone();
        if defect!(UnknownOverlooked) {
        } else if let Some(node) = self.get_mut(host)
            && (!is_tombstone || node.unsettled.unknown.len() < MAX_TOMBSTONES)
        {
            node.unsettled.unknown.insert(held.task, unknown);
            if !is_tombstone {
                self.unknown_hosts.insert(host.clone());
            }
        }
        false
    }
}

impl Drains {
    /// Drains a host with unknown tasks that no operator has given up, and drops the tombstones that a later request
    /// does not need: the node itself answers a Start of their tasks.
    pub(super) fn drain_unknown(&mut self, node: &mut Node, cx: &mut Context) {
        let uncleaned = &node.unsettled.uncleaned;
        node.unsettled.unknown.retain(|_, of| !of.is_tombstone() || uncleaned.contains(&(of.job.clone(), of.attempt)));
        let left = node.unsettled.unknown.iter().filter(|(_, of)| !of.is_tombstone() && !of.given_up);
        let left: Vec<String> =
            left.map(|(task, of)| format!("{} of job {} attempt {} ({task})", of.action, of.job, of.attempt)).collect();
        let left = if defect!(UnknownUndrained) { Vec::new() } else { left };
        if left.is_empty() {
            return;
        }
        let more = if left.len() > NAMED { format!(", and {} more", left.len() - NAMED) } else { String::new() };
        let names = left.iter().take(NAMED).cloned().collect::<Vec<_>>().join(", ");
        let reason = format!("the node has tasks that the controller's store does not know: {names}{more}");
        self.drain_passing(&node.row.host, reason, Passing::Unknown, cx);
    }
}

impl Jobs {
    /// Begins the actions of an attempt's unknown setup tasks, because the attempt was taken up. Returns each action
    /// with the ranks for [`Machine::adopt`]. Tasks of after-actions are adopted when the job hands their ranks over.
    pub(crate) fn adopt_attempt(
        &mut self,
        job: &JobId,
        number: Attempt,
        nodes: &Nodes,
        cx: &mut Context,
    ) -> Vec<(ActionId, IdSet)> {
        let left = self.unreleased(job, number).ranks;
        let Some(attempt) = self.attempt(job, number) else { return Vec::new() };
        let mut setup: BTreeMap<ActionName, IdSet> = BTreeMap::new();
        for (rank, host) in attempt.layout.pairs(&left) {
            let Some(node) = nodes.get(host) else { continue };
            for (task, of) in &node.unsettled.unknown {
                let fits = of.job == *job && of.attempt == number && task.rank == rank;
                if fits && !cx.settings.after.contains(&of.action) {
                    setup.entry(of.action.clone()).or_default().insert(rank.0);
                }
            }
        }
        let (userid, mut adopted) = (attempt.userid, Vec::new());
        let setup = if defect!(UnknownSetupStays) { BTreeMap::new() } else { setup };
        for (name, ranks) in setup {
            let id = ActionId::of(cx.settings.cluster, job, number, &name);
            match self.action(id).map(|action| (action.row.verdict, ranks.difference(&action.row.ranks))) {
                // A verdict is final: a task that comes later stays unknown.
                Some((Some(_), _)) => continue,
                Some((None, new)) => self.grow(id, &new, cx),
                None => {
                    let timeout_ms = cx.settings.timeouts.get(&name).copied();
                    let row = ActionRow::new(id, job.clone(), number, name, ranks.clone(), cx.now.wall_ms);
                    self.begin_action(ActionRow { userid, timeout_ms, ..row }, cx);
                }
            }
            adopted.push((id, ranks));
        }
        adopted
    }

    /// Applies [`Self::adopt_attempt`] to each attempt in a node's Hello that was taken up before.
    pub(crate) fn adopt_reported(
        &mut self,
        host: &HostName,
        nodes: &Nodes,
        cx: &mut Context,
    ) -> Vec<(ActionId, IdSet)> {
        let Some(node) = nodes.get(host) else { return Vec::new() };
        let unknown = node.unsettled.unknown.values();
        let of: BTreeSet<(JobId, Attempt)> = unknown.map(|of| (of.job.clone(), of.attempt)).collect();
        let is_taken = |of: &JobAttempt| !of.abandoned && of.recovered != Recovered::No;
        let taken: Vec<_> = of.into_iter().filter(|(job, n)| self.attempt(job, *n).is_some_and(is_taken)).collect();
        taken.into_iter().flat_map(|(job, number)| self.adopt_attempt(&job, number, nodes, cx)).collect()
    }
}

impl Machine {
    /// Lists the tasks of an action on `ranks` with their nodes, and adopts those that a node holds as unknown: each
    /// becomes the action's task, as if the node had just reported it. Does not wait for earlier actions on the rank.
    /// Sends a Start for a task that has ended, because the node answers such a Start with the end.
    pub(crate) fn adopt(&mut self, id: ActionId, ranks: &IdSet) {
        self.nodes.index(&self.jobs, id, ranks);
        let Some(layout) = self.jobs.layout(id).cloned() else { return };
        for rank in ranks.iter().map(Rank) {
            let task = TaskId { action: id, rank };
            let is_open = self.jobs.action(id).is_some_and(|action| action.is_open_on(rank));
            let Some(host) = layout.host(rank).filter(|_| is_open) else { continue };
            let Some(node) = self.nodes.get_mut(&host) else { continue };
            let unknown = node.unsettled.unknown.get(&task).cloned();
            let Some(Unknown { mut state, reported_ms, limit_ms, .. }) = unknown else { continue };
            let (session, boot, boot_number) = (node.session, node.row.boot.clone(), node.row.boot_number);
            if !defect!(AdoptedBesideSetup) {
                self.jobs.withdraw_before(task, &mut self.cx);
            }
            if let Some(session) = session.filter(|_| state == HeldState::Ended) {
                self.jobs.start_on(session, task, boot_number, &boot, &mut self.cx);
            }
            if let HeldState::Live { age_ms, .. } = &mut state {
                *age_ms = age_ms.saturating_add(self.cx.now.mono_ms.saturating_sub(reported_ms));
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
            self.nodes.drop_unknown(&host, task, &mut self.cx);
        }
    }
}

impl<'a> Facts<'a> {
    /// Returns `true` if a lost epoch began the task on this host, while the store has the task on another host.
    pub(crate) fn is_of_lost_epoch(&self, host: &HostName, held: &Held) -> bool {
        let foreign = held.commit.is_some_and(|commit| self.history.place(commit) == Place::Foreign);
        foreign && self.jobs.host_of(held.task).is_some_and(|of| of != *host)
    }

    /// Returns `true` if any node now holds an unknown task, as far as the nodes have reported. Counts given-up tasks
    /// too, and no tombstones.
    pub(crate) fn has_unknown(&self) -> bool {
        !self.nodes.unknown_hosts.is_empty()
    }

    /// Returns the reason if an unknown task of another job keeps setup actions of this job from beginning on the host.
    /// `None` also for a host that is not connected, because its next Hello reports its tasks anew.
    pub(super) fn unknown_before(&self, job: &JobId, host: &HostName) -> Option<HeldBack> {
        let node = self.nodes.get(host).filter(|node| node.session.is_some())?;
        let of = node.unsettled.unknown.values().find(|of| of.job != *job && !of.is_tombstone());
        let of = if defect!(UnknownIgnored) { None } else { of };
        of.map(|of| HeldBack::Unknown(of.action.clone(), of.job.clone()))
    }

    /// Returns the unknown tasks that no operator has given up, with their hosts, without tombstones.
    pub(crate) fn unknown(&self) -> impl Iterator<Item = (&'a HostName, TaskId, &'a Unknown)> + use<'a> {
        let Facts(machine) = *self;
        let hosts = machine.nodes.unknown_hosts.iter();
        let nodes = hosts.filter_map(|host| Some((host, machine.nodes.get(host)?)));
        let all = nodes.flat_map(|(host, node)| node.unsettled.unknown.iter().map(move |(task, of)| (host, *task, of)));
        all.filter(|(_, _, of)| !of.given_up && !of.is_tombstone())
    }

    /// Returns the attempts of the job that unknown tasks of nodes name, tombstones included.
    fn unknown_attempts(&self, job: &JobId) -> impl Iterator<Item = Attempt> {
        let listed = self.nodes.unknown_hosts.union(&self.nodes.uncleaned_hosts);
        let listed = listed.filter(|_| !self.recovery.is_on()).filter_map(|host| self.nodes.get(host));
        let all = self.nodes.values().filter(|_| self.recovery.is_on());
        all.chain(listed).flat_map(move |node| {
            let tasks = node.unsettled.unknown.values().filter(move |of| of.job == *job).map(|of| of.attempt);
            let uncleaned = node.unsettled.uncleaned.iter().filter(move |(of, _)| of == job);
            tasks.chain(uncleaned.map(|(_, number)| *number))
        })
    }

    /// Returns the highest attempt of the job that a node's unknown task names, if it is above the store's last
    /// attempt. A request that names no attempt means this one.
    pub(crate) fn newest_unknown(&self, job: &JobId) -> Option<Attempt> {
        let last = self.jobs.get(job).and_then(|entry| entry.last_attempt());
        self.unknown_attempts(job).max().filter(|newest| last.is_none_or(|last| *newest > last))
    }

    /// Returns [`Recovered::Added`] if a lost epoch may have begun an attempt of the job that is added now: a grace
    /// runs, or a node reports an unknown attempt of the job. Else returns [`Recovered::No`].
    pub(crate) fn how_added(&self, job: &JobId) -> Recovered {
        let known = self.recovery.is_on() || self.unknown_attempts(job).next().is_some();
        let known = if defect!(AddedAnew) { false } else { known };
        if known { Recovered::Added } else { Recovered::No }
    }
}
