//! External actions: a service outside of perilog carries them out, and this file decides how they end. The service
//! starts an action over ranks, named resources, or both, and reports each end. The action holds its ranks and
//! resources, as every action does. The controller sends no message about the action to a node.
//!
//! ```text
//!   open --reported--> ended: ok, tolerable, failed      a failure after a `cancel` is `cancelled`
//!    |---- lease ran out ----> ended: lost               its hosts are drained: their state is unknown
//!    '---- resolve ----------> ended: resolved           as for every action
//! ```
//! Every `report` of the service renews the action's lease, and so does a repeated `action start`. The lease counts on
//! the monotonic clock, and starts anew with each controller: only the service's own silence ends it.
//!
//! The ranks of an external action are `accepted` from the start. An external action waits for no other action of its
//! attempt. Later setup actions and every after-action wait, rank by rank, for the end of the external action. While an
//! older attempt is at work on one of the hosts or resources, the controller refuses to start the action. The service
//! asks again later.

use std::collections::BTreeSet;

use serde_json::json;

use crate::controller::action::verdict::last_line;
use crate::controller::interface::io::{ActionRow, External, Refusal, ResourceEnd, RunRequest, Which};
use crate::controller::state::Action;
use crate::controller::state::Jobs;
use crate::controller::state::attempt::JobAttempt;
use crate::controller::state::context::Context;
use crate::controller::state::layout::Layout;
use crate::defect;
use crate::duration::Span;
use crate::ids::{ActionId, Attempt, Rank, ResourceName, TaskId};
use crate::idset::IdSet;
use crate::job::Part;
use crate::outcome::{Loss, Outcome};
use crate::task::{Ended, Tail};

impl External {
    pub(crate) fn open_resources(&self) -> BTreeSet<ResourceName> {
        self.resources.iter().filter(|name| !self.ended.contains_key(*name)).cloned().collect()
    }

    pub(crate) fn is_open(&self) -> bool {
        self.ended.len() < self.resources.len()
    }

    /// Returns the resources that have ended, but not well.
    pub(crate) fn bad(&self) -> impl Iterator<Item = (&ResourceName, &Ended)> {
        self.ended.iter().map(|(name, end)| (name, &end.ended)).filter(|(_, ended)| !ended.outcome.is_ok())
    }
}

/// Returns the row of a new external action, made from the row `row` of an ordinary action. The action holds its ranks
/// and resources, and its ranks are `accepted` from the start.
pub(crate) fn row(row: ActionRow, external: External) -> ActionRow {
    let held = Part { ranks: row.ranks.clone(), resources: external.resources.clone() };
    let (accepted, external) = (row.ranks.clone(), Some(Box::new(external)));
    ActionRow { waiting: IdSet::new(), accepted, timeout_ms: None, held, external, ..row }
}

/// Checks that the attempt `entry` has the requested resources, and that none of them was released. `None`: the attempt
/// would be new, and counts as one without resources.
///
/// # Errors
/// `Conflict`, with the first resource that the attempt lacks or has released.
pub(crate) fn check_resources(entry: Option<&JobAttempt>, run: &RunRequest, asked: &External) -> Result<(), Refusal> {
    let none = BTreeSet::new();
    let (has, released) = entry.map_or((&none, &none), |entry| (&entry.terms.resources, &entry.released.resources));
    if let Some(name) = asked.resources.iter().find(|name| !has.contains(*name)) {
        let has = Part { resources: has.clone(), ..Part::default() };
        return Err(Refusal::Conflict(format!("job {} has no resource {name}: it has {has}", run.job)));
    }
    match asked.resources.iter().find(|name| released.contains(*name)) {
        Some(name) => Err(Refusal::Conflict(format!(
            "resource {name} of job {} was released: no action can begin there",
            run.job
        ))),
        None => Ok(()),
    }
}

impl Jobs {
    /// Checks that no older attempt of the job is in the way of a new external action on `ranks` and the requested
    /// resources. The controller cannot make a service wait, so it refuses the start until the older attempt is done.
    ///
    /// # Errors
    /// `Unavailable` for each of these older attempts:
    ///
    /// * an attempt with an open action on one of the hosts or resources;
    /// * an attempt that is open and not fully released;
    /// * if the request's attempt would be new: any attempt that is not fully released.
    pub(crate) fn check_alone(
        &self,
        run: &RunRequest,
        asked: &External,
        number: Attempt,
        layout: &Layout,
        ranks: &IdSet,
    ) -> Result<(), Refusal> {
        if defect!(ServiceOverlaps) {
            return Ok(());
        }
        let Some(entry) = self.get(&run.job) else { return Ok(()) };
        let RunRequest { job, action, .. } = run;
        let is_new = !entry.attempts.contains_key(&number);
        for (older, before) in entry.attempts.range(..number) {
            if (is_new || before.open) && !before.complete {
                let text = format!(
                    "attempt {older} of job {job} has not been released: {action} of attempt {number} can start once \
                     attempt {number} has begun (perilog job add, or perilog run)"
                );
                return Err(Refusal::Unavailable(text));
            }
            for there in self.of(before) {
                let at = |(_, host): &(Rank, &str)| {
                    before.layout.rank(host).is_some_and(|rank| there.is_open_on(Rank(rank)))
                };
                let host = layout.pairs(ranks).find(at).map(|(_, host)| host.to_owned());
                let shared = |name: &ResourceName| asked.resources.contains(name);
                let open = there.open_part().resources;
                let resource = open.into_iter().find(shared).map(|name| name.to_string());
                if let Some(at) = host.or(resource) {
                    let name = &there.row.name;
                    let text = format!(
                        "{name} of attempt {older} of job {job} has not ended on {at}: {action} of attempt {number} \
                         can start when {name} has ended"
                    );
                    return Err(Refusal::Unavailable(text));
                }
            }
        }
        Ok(())
    }

    /// Ends the resources `names` of an external action, all with the end `ended`.
    pub(crate) fn end_resources(
        &mut self,
        id: ActionId,
        names: impl IntoIterator<Item = ResourceName>,
        ended: &Ended,
        cx: &mut Context,
    ) {
        let names: BTreeSet<ResourceName> = names.into_iter().collect();
        let Some(action) = self.action_mut(id).filter(|_| !names.is_empty()) else { return };
        let (job, name, attempt) = (action.row.job.clone(), action.row.name.clone(), action.row.attempt);
        let Some(external) = action.external_mut() else { return };
        for resource in &names {
            external.ended.insert(resource.clone(), ResourceEnd { ended: ended.clone(), late: Vec::new() });
        }
        let context = json!({"action": name, "attempt": attempt, "ranks": "", "resources": names,
            "outcome": ended.outcome.as_str(),
            "result": ended.outcome.to_string(), "message": last_line(ended), "checks": ended.checks});
        self.event(&job, "finish", context, cx);
        self.touch(id, cx);
    }

    /// Renews the lease of the action, because the service has just sent a message.
    pub(crate) fn renew_lease(&mut self, id: ActionId, cx: &mut Context) {
        let Some(action) = self.action_mut(id).filter(|action| action.row.verdict.is_none()) else { return };
        (action.armed_ms, action.last_report_ms) = (cx.now.mono_ms, cx.now.wall_ms);
        let Some(external) = &action.row.external else { return };
        let (lease_ms, stored_ms) = (external.lease_ms, external.last_report_ms);
        // Operators read the stored time, so half a lease is exact enough.
        if cx.now.wall_ms.abs_diff(stored_ms) >= lease_ms / 2
            && let Some(external) = action.external_mut()
        {
            external.last_report_ms = cx.now.wall_ms;
        }
        let at = cx.now.mono_ms.saturating_add(lease_ms);
        self.check_by(id, at);
        self.touch(id, cx);
    }

    /// Ends the action's open ranks and resources as `lost` if the action's lease has run out, except ranks with a
    /// resolution that waits. Returns the time (monotonic) at which the lease runs out; `None`: the lease has run out,
    /// or no lease is running.
    pub(crate) fn check_lease(&mut self, id: ActionId, cx: &mut Context) -> Option<u64> {
        let action = self.action(id).filter(|action| action.is_open())?;
        let external = action.row.external.as_ref()?;
        let at = if defect!(LeaseOnWallClock) {
            let left = action.last_report_ms.saturating_add(external.lease_ms).saturating_sub(cx.now.wall_ms);
            cx.now.mono_ms.saturating_add(left)
        } else {
            action.armed_ms.saturating_add(external.lease_ms)
        };
        if at > cx.now.mono_ms {
            return Some(at);
        }
        let (row, mut open) = (action.row.clone(), action.open_part());
        // A rank with a resolution waits for its drain, and does not end with the lease.
        row.resolving.iter().for_each(|of| open.ranks.subtract(&of.ranks));
        if open.is_empty() {
            return None;
        }
        let (lease, last) = (Span::from_millis(external.lease_ms), crate::utc::second(action.last_report_ms));
        let text = format!("the service did not report within its lease of {lease}; its last report came at {last}");
        let tail = Tail { script: row.name.to_string(), text };
        let lost = Ended { tails: vec![tail], ..Ended::bare(Outcome::Lost { why: Loss::Lease }, cx.now.wall_ms) };
        let hosts = self.layout(id).map(|layout| layout.hosts_of(&open.ranks));
        let context = json!({"action": row.name, "attempt": row.attempt, "ranks": open.ranks, "hosts": hosts,
            "resources": open.resources, "lease": lease, "last_report_ms": action.last_report_ms});
        self.event(&row.job, "lease-expired", context, cx);
        for rank in open.ranks.iter().map(Rank) {
            self.end_task(TaskId { action: id, rank }, lost.clone(), cx);
        }
        self.end_resources(id, open.resources, &lost, cx);
        None
    }

    /// Asks the services of the open resources that `which` names to stop; returns the number of these resources. Each
    /// service is asked to stop work on all open resources of its action. The service learns of the cancel from the
    /// reply to its next report, and from the job's event log.
    pub(crate) fn cancel_resources(&mut self, which: &Which, why: &str, uid: u32, cx: &mut Context) -> u64 {
        let mut count = 0;
        for (id, names) in self.open_resources(which) {
            let Some(action) = self.action_mut(id) else { continue };
            let (job, name, attempt) = (action.row.job.clone(), action.row.name.clone(), action.row.attempt);
            if let Some(external) = action.external_mut() {
                external.cancelling = true;
            }
            count += names.len() as u64;
            let context = json!({"action": name, "attempt": attempt, "resources": names, "why": why, "by": uid});
            self.event(&job, "cancel", context, cx);
            self.touch(id, cx);
        }
        count
    }

    /// Returns the open resources that `which` names, by external action. Empty if `which` names only ranks.
    pub(crate) fn open_resources(&self, which: &Which) -> Vec<(ActionId, BTreeSet<ResourceName>)> {
        let Ok((_, attempt)) = self.attempt_meant(&which.job, which.attempt) else { return Vec::new() };
        let is_meant = |name: &ResourceName| match &which.resources {
            Some(names) => names.contains(name),
            None => which.targets.is_none(),
        };
        let actions = attempt.actions.iter().filter_map(|id| self.action(*id));
        let named = actions.filter(|action| which.action.as_ref().is_none_or(|name| action.row.name == *name));
        let open = named.map(|action| (action.row.id, action.open_part().resources));
        let meant = open.map(|(id, names)| (id, names.into_iter().filter(is_meant).collect::<BTreeSet<_>>()));
        meant.filter(|(_, names)| !names.is_empty()).collect()
    }

    /// Checks that the attempt that `which` names has each resource in `which`.
    ///
    /// # Errors
    /// `Invalid`, with the first named resource that the attempt does not have; `NoSuchJob` or `NoSuchAttempt`.
    pub(crate) fn check_named(&self, which: &Which) -> Result<(), Refusal> {
        let (number, attempt) = self.attempt_meant(&which.job, which.attempt)?;
        let has = &attempt.terms.resources;
        match which.resources.iter().flatten().find(|name| !has.contains(*name)) {
            Some(name) => {
                let (job, has) = (&which.job, Part { resources: has.clone(), ..Part::default() });
                let text = format!("job {job} attempt {number} has no resource {name}: it has {has}");
                Err(Refusal::Invalid(text))
            }
            None => Ok(()),
        }
    }

    /// Checks that the service of an existing external action names the resources that the action covers, if it names
    /// any resource.
    ///
    /// # Errors
    /// `Conflict`: the request names other resources, or no nodes and ranks although the action covers ranks.
    pub(crate) fn check_covers(&self, id: ActionId, run: &RunRequest, asked: &External) -> Result<(), Refusal> {
        let Some(action) = self.action(id).filter(|_| !asked.resources.is_empty()) else { return Ok(()) };
        let covers = action.covers();
        let only_resources = run.nodes.is_none() && run.targets.is_none();
        if asked.resources != covers.resources || only_resources && !covers.ranks.is_empty() {
            let asked = Part { resources: asked.resources.clone(), ..Part::default() };
            let text = format!("{}; the request names {asked}", action.is_over(&covers));
            return Err(Refusal::Conflict(text));
        }
        Ok(())
    }

    /// Renews the lease of an external action whose service repeats its `action start`. `lease_ms`: the lease that the
    /// request names, which replaces the earlier one.
    pub(crate) fn renew(&mut self, id: ActionId, lease_ms: u64, cx: &mut Context) {
        let Some(action) = self.action_mut(id) else { return };
        // An action with a verdict has no lease.
        if action.row.verdict.is_none()
            && let Some(external) = action.external_mut()
        {
            external.lease_ms = lease_ms;
        }
        self.renew_lease(id, cx);
    }
}

impl Action {
    pub(crate) fn covers(&self) -> Part {
        let resources = self.row.external.as_ref().map(|external| external.resources.clone()).unwrap_or_default();
        Part { ranks: self.row.ranks.clone(), resources }
    }

    /// Returns the ranks and resources that have not ended.
    pub(crate) fn open_part(&self) -> Part {
        let resources = self.row.external.as_ref().map(|external| external.open_resources()).unwrap_or_default();
        Part { ranks: self.open_ranks(), resources }
    }

    /// Returns the resources that have ended, but not well, as `{name: outcome}`. `None`: each resource is open or
    /// ended well, or the action has none.
    pub(crate) fn bad_resources(&self) -> Option<serde_json::Value> {
        let bad = self.row.external.iter().flat_map(|external| external.bad());
        let bad: serde_json::Map<_, _> =
            bad.map(|(name, ended)| (name.to_string(), json!(ended.outcome.to_string()))).collect();
        (!bad.is_empty()).then_some(serde_json::Value::Object(bad))
    }

    /// Returns the open ranks and resources that are not to be cancelled.
    pub(crate) fn not_cancelling(&self) -> Part {
        let mut part = self.open_part();
        part.subtract(&self.cancelling_part());
        part
    }

    /// Marks `part` as to be cancelled. The reply to the service's next report asks the service to stop work on the
    /// part.
    pub(crate) fn stop_service(&mut self, part: &Part, why: &str) {
        part.ranks.iter().for_each(|rank| self.cancelling(Rank(rank), why));
        if let Some(external) = self.external_mut().filter(|_| !part.resources.is_empty()) {
            external.cancelling = true;
        }
    }

    /// Returns the open part on which the service should stop work.
    pub(crate) fn cancelling_part(&self) -> Part {
        let open = self.open_part();
        let all = self.row.external.as_ref().is_some_and(|external| external.cancelling);
        let resources = if all { open.resources } else { BTreeSet::new() };
        Part { ranks: self.row.cancelling.intersection(&open.ranks), resources }
    }

    pub(crate) fn is_over(&self, covers: &Part) -> String {
        format!("{} of job {} attempt {} covers {covers}", self.row.name, self.row.job, self.row.attempt)
    }
}
