//! Resolution (`perilog resolve`): decides when a task gets the outcome that an operator states, because its own
//! outcome will not come. A script of the task may be alive, so the resource manager must not get the node before the
//! node's drain is in force. Until then the resolution waits, because the verdict that it completes lets work begin on
//! other nodes.
//!
//! ```text
//!   no Start was sent -----------------------------------------------> resolved
//!   sent, accepted --no drain hook-----------------------------------> resolved
//!                 \-> the resolution waits --drain confirmed---------> resolved
//!                                         \--the scripts end earlier-> the scripts' own outcome
//! ```
//! A task that has not begun never begins: its node gets a Cancel. A running task goes on, and its result is recorded
//! as late.

use std::collections::BTreeSet;

use serde_json::json;

use crate::controller::interface::io::{Refusal, Reply, Resolving, Which};
use crate::controller::machine::Machine;
use crate::controller::state::Jobs;
use crate::controller::state::action::before_its_begin;
use crate::controller::state::context::Context;
use crate::controller::state::drains::Fault;
use crate::controller::state::{Action, RankState};
use crate::defect;
use crate::ids::{HostName, Rank, TaskId};
use crate::idset::IdSet;
use crate::outcome::{Loss, Outcome};
use crate::task::Ended;

impl Jobs {
    /// Returns the tasks whose resolution waits for a drain, each with the outcome that the resolution will give.
    pub(crate) fn resolving(&self) -> Vec<(TaskId, Outcome)> {
        let resolutions = self
            .table
            .live_actions()
            .flat_map(|action| action.row.resolving.iter().map(move |resolution| (action, resolution)));
        let tasks = resolutions.flat_map(|(action, resolution)| {
            resolution.ranks.iter().map(move |rank| (action.task(Rank(rank)), resolution))
        });
        tasks.map(|(task, resolution)| (task, resolution.outcome())).collect()
    }

    /// Returns the end to record for a task that would end with `ended`. If a resolution of the task waits and no
    /// script caused `ended`, the resolution normally becomes the outcome. `None`: the task may be alive, so the task
    /// stays open and its resolution keeps waiting.
    pub(crate) fn apply_resolution(&self, task: TaskId, ended: Ended, cx: &Context) -> Option<Ended> {
        let Some(resolution) = self.action(task.action).and_then(|action| action.resolving(task.rank)) else {
            return Some(ended);
        };
        match &ended.outcome {
            // The script may be alive, and the operator resolved the task for this very case: the resolution waits on.
            Outcome::Lost { why: Loss::Unreachable | Loss::Offline | Loss::UnknownNode | Loss::Lease } => None,
            Outcome::Resolved { .. } => Some(ended),
            outcome if outcome.is_of_scripts() || resolution.overdue => Some(ended),
            // No process of the task is alive, and none will begin.
            _ => Some(Ended::bare(resolution.outcome(), cx.now.wall_ms)),
        }
    }

    /// Ends the tasks whose resolution waited for the drain of one of `hosts`. The drains of `hosts` have come into
    /// force in this batch, or were lifted.
    pub(crate) fn settle_resolved(&mut self, hosts: &BTreeSet<HostName>, cx: &mut Context) {
        if hosts.is_empty() {
            return;
        }
        for (task, outcome) in self.resolving() {
            if self.host_of(task).is_some_and(|host| hosts.contains(&host)) {
                self.end_task(task, Ended::bare(outcome, cx.now.wall_ms), cx);
            }
        }
    }
}

impl Machine {
    /// Resolves the open tasks and named resources in `which`: as a success if `ok`, else as a failure. A task that may
    /// be alive gets the outcome once the drain of its host is in force. All others get the outcome at once.
    ///
    /// # Errors
    /// The reason is empty, or `which` names an unknown part or contains no open task or named resource.
    pub(crate) fn resolve(&mut self, which: &Which, ok: bool, reason: &str, uid: u32) -> Result<Reply, Refusal> {
        if reason.trim().is_empty() {
            return Err(Refusal::Invalid("resolve needs a reason".to_owned()));
        }
        self.jobs.check_named(which)?;
        let (tasks, resources) = (self.jobs.tasks(which, true)?, self.jobs.open_resources(which));
        if tasks.is_empty() && resources.is_empty() {
            return Err(Refusal::Conflict(format!(
                "the named tasks and resources of job {} have all ended: nothing is left to resolve",
                which.job
            )));
        }
        let (mut count, mut waiting) = (0, 0);
        for (id, names) in resources {
            count += names.len() as u64;
            let outcome = Outcome::Resolved { ok, reason: reason.to_owned(), by: uid };
            self.jobs.end_resources(id, names, &Ended::bare(outcome, self.cx.now.wall_ms), &mut self.cx);
        }
        for (id, ranks) in tasks {
            let mut later = IdSet::new();
            for rank in ranks.iter().map(Rank) {
                count += 1;
                let task = TaskId { action: id, rank };
                if self.begin_resolve(task, reason) {
                    later.insert(rank.0);
                } else {
                    let outcome = Outcome::Resolved { ok, reason: reason.to_owned(), by: uid };
                    self.jobs.end_task(task, Ended::bare(outcome, self.cx.now.wall_ms), &mut self.cx);
                }
            }
            if later.is_empty() {
                continue;
            }
            waiting += later.len();
            let hosts = self.jobs.layout(id).map(|layout| layout.hosts_of(&later));
            let Some(action) = self.jobs.action_mut(id) else { continue };
            action.resolve_later(Resolving::new(later.clone(), ok, reason, uid));
            let context = json!({"ranks": later, "hosts": hosts, "ok": ok, "reason": reason, "by": uid});
            self.jobs.action_event(id, "resolve", context, &mut self.cx);
            self.jobs.touch(id, &mut self.cx);
        }
        Ok(Reply::Resolved { tasks: count, waiting })
    }

    /// Prepares the resolution of a task. If the controller has sent the task's Start, drains the host, and cancels the
    /// task unless the node has reported that its scripts began. Returns `true` if the resolution must wait for the
    /// drain; `false` if no Start was sent, or the drain is in force.
    fn begin_resolve(&mut self, task: TaskId, reason: &str) -> bool {
        let state = self.jobs.action(task.action).map_or(RankState::NotInAction, |action| action.rank_state(task.rank));
        if state == RankState::Waiting {
            return false;
        }
        let what = format!(": an operator resolved it while it may still run: {}", reason.trim());
        self.drain_task(task, &*what, Fault::Other);
        let host = self.jobs.host_of(task);
        let node = host.as_ref().and_then(|host| self.nodes.get(host));
        // The last report may be old: a task that has begun since gets a TERM by this Cancel.
        let begun = match node.and_then(|node| node.live.get(&task)) {
            Some((phase, _)) => !phase.may_still_begin(),
            None => false,
        };
        let begun = if defect!(ResolvedBegins) { true } else { begun };
        if let Some(session) = self.nodes.session_of(&self.jobs, task).filter(|_| !begun) {
            self.jobs.send_cancel(session, task, &before_its_begin(reason), &mut self.cx);
        }
        if defect!(ResolveBeforeDrain) {
            return false;
        }
        host.is_some_and(|host| self.drains.is_draining(host.as_str()))
    }
}

impl Resolving {
    /// Returns the outcome that the resolution gives to its ranks: `timeout` for a script past its limit, else
    /// `resolved`.
    pub(crate) fn outcome(&self) -> Outcome {
        match self.overdue {
            true => Outcome::Timeout { status: None },
            false => Outcome::Resolved { ok: self.ok, reason: self.reason.clone(), by: self.by },
        }
    }
}

impl Action {
    /// Returns the waiting resolution of a rank, if any.
    pub(crate) fn resolving(&self, rank: Rank) -> Option<&Resolving> {
        self.row.resolving.iter().find(|resolution| resolution.ranks.contains(rank.0))
    }

    /// Stores a waiting resolution, which replaces earlier resolutions of its ranks.
    pub(crate) fn resolve_later(&mut self, resolution: Resolving) {
        self.forget_resolutions(&resolution.ranks);
        self.row.resolving.push(resolution);
        self.changed = true;
    }

    /// Drops the resolutions that wait on `ranks`.
    pub(crate) fn forget_resolutions(&mut self, ranks: &IdSet) {
        for resolution in &mut self.row.resolving {
            resolution.ranks.subtract(ranks);
        }
        self.row.resolving.retain(|resolution| !resolution.ranks.is_empty());
        // Deltas contain no resolutions, so the whole row is stored.
        self.changed = true;
    }
}
