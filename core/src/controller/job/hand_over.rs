//! Hand-over: in one step a job drops its hold on ranks and its after-actions take the ranks over, so no rank is free
//! in between. Also begins setup actions and external actions, in the same way as after-actions.

use std::collections::BTreeMap;

use serde_json::json;

use crate::agent::io::Level;
use crate::controller::interface::io::ActionRow;
use crate::controller::state::Action;
use crate::controller::state::Jobs;
use crate::controller::state::change::Change;
use crate::controller::state::context::Context;
use crate::defect;
use crate::ids::{ActionId, ActionName, Attempt, JobId, Rank, TaskId};
use crate::idset::IdSet;
use crate::job::Part;

impl Jobs {
    /// Seals all actions of an attempt: no rank joins them, because the job holds no rank.
    pub(crate) fn seal(&mut self, job: &JobId, number: Attempt, cx: &mut Context) {
        let ids = self.attempt(job, number).map(|attempt| attempt.actions.clone());
        for id in ids.into_iter().flatten() {
            self.action_mut(id).into_iter().for_each(Action::grown);
            cx.touched.insert(id);
        }
    }

    /// Hands over to the after-actions, in one step, the part of `asked` that the job holds. Returns the part.
    pub(crate) fn hand_over(&mut self, job: &JobId, number: Attempt, asked: &Part, cx: &mut Context) -> Part {
        let Some(entry) = self.attempt_mut(job, number) else {
            return Part::default();
        };
        let part = entry.drop_hold(asked);
        if part.is_empty() {
            return part;
        }
        let last = entry.hold.ranks.is_empty();
        if !last {
            entry.milestones.leave(&part.ranks);
        }
        let hosts = entry.layout.hosts_of(&part.ranks);
        if last || !part.resources.is_empty() {
            entry.touched_ms = cx.now.wall_ms;
            cx.attempt_changed(job, number);
        }
        cx.dirty_holds.entry((job.clone(), number)).or_default().extend_with(&part.ranks);
        let context = json!({"attempt": number, "ranks": part.ranks, "hosts": hosts, "resources": part.resources});
        self.event(job, if last { "job-finish" } else { "job-hand-over" }, context, cx);
        // With the job's last ranks, waiting setup tasks are not withdrawn: they still begin, and the after-actions
        // wait for them.
        if defect!(BeginsWhereDropped) {
        } else if !last {
            self.withdraw(job, number, &part.ranks, "the job dropped its hold on the rank", cx);
        }
        for name in cx.settings.after.clone() {
            self.follow(job, number, &name, &part.ranks, last, cx);
        }
        if last {
            // Includes actions that were after-actions under earlier settings.
            self.seal(job, number, cx);
        }
        cx.hold_dropped(job, number, &part);
        part
    }

    /// Begins the after-action `name` on `ranks`, or adds to the existing after-action the ranks that it lacks. `last`:
    /// no further ranks will join it.
    ///
    /// The ranks are not added if the existing after-action has its verdict already, or if a service carries it out.
    /// Instead the controller drains the hosts of those new ranks on which a setup action may have begun. Nothing
    /// happens on the other new ranks.
    pub(crate) fn follow(
        &mut self,
        job: &JobId,
        number: Attempt,
        name: &ActionName,
        ranks: &IdSet,
        last: bool,
        cx: &mut Context,
    ) {
        let id = ActionId::of(cx.settings.cluster, job, number, name);
        if ranks.is_empty() && self.action(id).is_none() {
            return;
        }
        if let Some(action) = self.action(id) {
            // If an operator began the after-action manually, it covers some of the ranks already.
            let new = ranks.difference(&action.row.ranks);
            let is_external = action.row.external.is_some();
            let is_external = if defect!(ServiceFollows) { false } else { is_external };
            if action.row.verdict.is_none() && action.row.external.is_none() {
                self.grow(id, &new, cx);
            } else if (action.row.verdict.is_some() || is_external) && !new.is_empty() {
                let why = if is_external { "is carried out by a service" } else { "had ended before" };
                let text = format!("{name} {why}, so it does not run on ranks {new}, which the job hands over now");
                cx.note(Level::Warning, Some(job), None, text);
                let begun = self.begun(job, number);
                for rank in begun.intersection(&new).iter().map(Rank) {
                    let what = format!("{why}, so it does not clean up this node");
                    let task = TaskId { action: id, rank };
                    cx.changes.push_back(Change::Drain { task, what, is_stuck: false });
                }
            }
            return;
        }
        let userid = self.attempt(job, number).and_then(|a| a.userid);
        let mut row = ActionRow::new(id, job.clone(), number, name.clone(), ranks.clone(), cx.now.wall_ms);
        row.userid = userid;
        row.env = self.environment_of(job, number);
        row.timeout_ms = cx.settings.timeouts.get(name).copied();
        row.growing = !last;
        if defect!(HoldDropped) {
            row.held = Part::default();
        }
        self.begin_action(row, cx);
    }

    /// Returns the environment for an after-action that a hand-over begins, and no request: that of the attempt's
    /// newest action that has one, such as its prolog.
    fn environment_of(&self, job: &JobId, number: Attempt) -> BTreeMap<String, String> {
        if defect!(FollowsWithoutEnvironment) {
            return BTreeMap::new();
        }
        let actions = self.attempt(job, number).into_iter().flat_map(|attempt| self.of(attempt));
        let with = actions.filter(|action| !action.row.env.is_empty());
        with.max_by_key(|action| action.row.began_ms).map(|action| action.row.env.clone()).unwrap_or_default()
    }

    /// Adds ranks to an action. On each new rank the action begins when the actions that go first have ended there
    /// (`action/order.rs`).
    pub(crate) fn grow(&mut self, id: ActionId, new: &IdSet, cx: &mut Context) {
        if let Some(action) = self.action_mut(id) {
            action.grow(new);
            cx.changes.push_back(Change::Joined(id, new.clone()));
            self.touch(id, cx);
            self.ready(id, new.clone(), cx);
        }
    }
}
