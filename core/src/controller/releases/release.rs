//! Release: decides which ranks and named resources the controller releases now. Each is released once, when neither
//! the job nor an action holds it. The fragments add up to the whole R; the last release bears `final`.
//!
//! The job holds its ranks and resources until `job finish`. An action holds its ranks and resources until its release
//! policy ([`ReleasePolicy`]) allows it to drop ended ones. If the host of a rank is being drained, the rank is
//! released only once the drain is in force: otherwise the resource manager could give the faulty node to another job.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::controller::facts::Facts;
use crate::controller::interface::io::{Reader, ReleasePolicy};
use crate::controller::releases::notices::notice_body;
use crate::controller::state::Action;
use crate::controller::state::Jobs;
use crate::controller::state::attempt::JobAttempt;
use crate::controller::state::batches::Batches;
use crate::controller::state::context::Context;
use crate::defect;
use crate::ids::{ActionId, Attempt, HostName, JobId, Rank, ResourceName};
use crate::idset::IdSet;
use crate::job::Part;

impl Action {
    /// Drops the action's hold on ranks that were given up.
    pub(crate) fn give_up(&mut self, ranks: &IdSet) {
        self.done.subtract(ranks);
        self.row.held.ranks.subtract(ranks);
        self.dirty.extend_with(ranks);
    }

    /// Drops the action's hold on ended ranks and named resources, as far as `policy` allows now, and returns the part
    /// that it dropped. Once the action has its verdict, drops everything.
    pub(crate) fn drop_hold(&mut self, policy: ReleasePolicy, mono_ms: u64) -> Part {
        if !matches!(policy, ReleasePolicy::Batches { .. }) {
            // The policy has changed since the clock was started.
            self.batches = Batches::default();
        }
        let part = match policy {
            _ if self.row.verdict.is_some() => self.row.held.clone(),
            ReleasePolicy::Together if self.is_open() => return Part::default(),
            // If ranks may still join the action, later ranks form a further batch.
            ReleasePolicy::Together | ReleasePolicy::Each => self.done_part(),
            ReleasePolicy::Batches { first_ms, ceiling_ms } => {
                // The second condition walks all resources, and is needed only if no ended rank is held.
                let waits = !self.done.is_empty() || !self.done_resources().is_empty();
                if !self.batches.due(waits, first_ms, ceiling_ms, mono_ms) {
                    return Part::default();
                }
                self.done_part()
            }
        };
        if !part.is_empty() {
            self.done.subtract(&part.ranks);
            self.row.held.subtract(&part);
            self.changed |= !part.resources.is_empty();
            self.dirty.extend_with(&part.ranks);
        }
        part
    }

    /// Returns the ended ranks and named resources that the action still holds.
    fn done_part(&self) -> Part {
        if defect!(ReleaseAtFirst) && !self.done.is_empty() {
            return self.row.held.clone();
        }
        Part { ranks: self.done.clone(), resources: self.done_resources() }
    }

    fn done_resources(&self) -> BTreeSet<ResourceName> {
        let mut resources = self.row.held.resources.clone();
        if defect!(ResourceReleasedEarly) {
            return resources;
        }
        if let Some(external) = &self.row.external {
            let open = external.open_resources();
            resources.retain(|name| !open.contains(name));
        }
        resources
    }
}

impl JobAttempt {
    /// Returns the content of the event `release` for `part`: its ranks, hosts, resources and fragment of R. The event
    /// log and the notices use it.
    pub(super) fn release_of(&self, number: Attempt, part: &Part) -> Value {
        let is_final = self.whole().is_subset(&self.released);
        let is_final = if defect!(FinalTwice) {
            is_final || self.released.ranks.len() + 1 >= self.layout.ranks().len()
        } else {
            is_final
        };
        let of = if defect!(FragmentOfAll) { &self.released.ranks } else { &part.ranks };
        json!({"attempt": number, "ranks": part.ranks, "hosts": self.layout.hosts_of(&part.ranks),
            "resources": part.resources, "final": is_final, "R": self.terms.r.as_ref().map(|r| r.fragment(of))})
    }
}

impl Jobs {
    /// Drops the action's hold on the ended ranks and resources that its release policy allows now. The end of the
    /// batch then releases those that nothing else holds.
    pub(crate) fn settle_action(&mut self, id: ActionId, cx: &mut Context) {
        if self.is_suspended_action(id) {
            return;
        }
        let Some(action) = self.action_mut(id) else { return };
        let policy = cx.settings.release.get(&action.row.name).copied().unwrap_or_default();
        let part = action.drop_hold(policy, cx.now.mono_ms);
        let (job, attempt, at) = (action.row.job.clone(), action.row.attempt, action.batches.at_ms);
        if let Some(at) = at {
            self.check_by(id, at);
        }
        cx.dropped.entry((job, attempt)).or_default().extend_with(&part);
    }

    /// Releases a part: marks it as released, logs the event, and adds the notices to the outbox. No notice is sent
    /// about an unlisted attempt.
    pub(crate) fn give(&mut self, job: &JobId, number: Attempt, free: &Part, cx: &mut Context) {
        let Some(attempt) = self.attempt_mut(job, number) else { return };
        if attempt.complete || free.is_empty() {
            return;
        }
        attempt.released.extend_with(free);
        let all = attempt.released == attempt.whole();
        attempt.complete = all;
        let silent = attempt.silent;
        let left = !attempt.milestones.left().is_disjoint(&free.ranks);
        if all {
            attempt.touched_ms = cx.now.wall_ms;
        }
        let mut context = attempt.release_of(number, free);
        if all || !free.resources.is_empty() {
            cx.attempt_changed(job, number);
        }
        cx.dirty_holds.entry((job.clone(), number)).or_default().extend_with(&free.ranks);
        if silent {
            let hosts = &context["hosts"];
            let closed = json!({"attempt": number, "ranks": free.ranks, "hosts": hosts, "final": all});
            self.event(job, "closed", closed, cx);
            self.cleaned(job, number, &free.ranks, cx);
        } else {
            let to_manager = notice_body(&mut context, "release", None);
            let to_hook = cx.settings.release_hook.then(|| notice_body(&mut context, "release", Some(cx.now.wall_ms)));
            self.event(job, "release", context, cx);
            cx.send_notice(Reader::Manager, job, number, to_manager);
            if let Some(body) = to_hook {
                cx.send_notice(Reader::ReleaseHook, job, number, body);
            }
        }
        if left {
            self.reach_milestones(job, number, cx);
        }
    }
}

impl Facts<'_> {
    /// Returns the ranks and resources of `part` that neither the job nor an action holds. The first value: those that
    /// can be released now. The second: the ranks that wait for the drain of their host. Both are empty for a suspended
    /// attempt.
    pub(crate) fn free(&self, job: &JobId, number: Attempt, part: Part) -> (Part, Vec<(HostName, Rank)>) {
        let (mut free, mut waiting) = (Part::default(), Vec::new());
        let Some(attempt) = self.jobs.attempt(job, number) else { return (free, waiting) };
        if defect!(SuspendedReleased) {
        } else if attempt.suspended {
            return (free, waiting);
        }
        let actions: Vec<&Action> = self.jobs.of(attempt).collect();
        let held =
            |rank: u32| attempt.hold.ranks.contains(rank) || actions.iter().any(|a| a.row.held.ranks.contains(rank));
        for rank in part.ranks.iter().filter(|rank| !held(*rank) && !attempt.released.ranks.contains(*rank)) {
            let draining = |host: &&str| {
                if defect!(ReleaseUndrained) {
                    return false;
                }
                self.drains.is_draining(host)
            };
            match attempt.layout.name(Rank(rank)).filter(draining).and_then(|host| HostName::new(host).ok()) {
                None => drop(free.ranks.insert(rank)),
                Some(host) => waiting.push((host, Rank(rank))),
            }
        }
        for name in part.resources {
            let held =
                attempt.hold.resources.contains(&name) || actions.iter().any(|a| a.row.held.resources.contains(&name));
            if !held && !attempt.released.resources.contains(&name) {
                free.resources.insert(name);
            }
        }
        (free, waiting)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_wait_twice_as_long_each_time() {
        let mut batches = Batches::default();
        let mut due = |at, waits| batches.due(waits, 100, 300, at);
        // (moment, something waits) -> due
        for (at, waits, expect) in [
            (0, false, false),
            (10, true, false),
            (109, true, false),
            (110, true, true),
            (111, false, false),
            (500, true, false),
            (699, true, false),
            (700, true, true),
            (700, true, false),
            (999, true, false),
            (1_000, true, true),
            (1_000, true, false),
            (1_300, true, true),
        ] {
            assert_eq!(due(at, waits), expect, "at {at}");
        }
    }
}
