//! Tolerance: decides which failures a job forgives. A job forgives `tolerable` ranks up to its tolerance. A check may
//! have a lower tolerance of its own: for example 8 ranks in all, but at most 2 for the check `disk`. If the site
//! allows it, a job also forgives `lost` ranks and ranks past their limit. Every other failure is fatal: no user may
//! ignore a generic failure of a prolog (flux-core #6842).
//!
//! Within the tolerance, an action succeeds without its failed ranks. A non-fatal exception names the failed ranks,
//! with the message of each check. If the job asked for it (`shrink`, `keep`), the job hands the failed ranks over.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::controller::action::forgiveness::{Forgiveness, names};
use crate::controller::state::Action;
use crate::controller::state::Jobs;
use crate::controller::state::attempt::JobAttempt;
use crate::controller::state::context::Context;
use crate::defect;
use crate::ids::{ActionId, Attempt, CheckName, JobId};
use crate::idset::IdSet;
use crate::job::{Part, Tolerance};
use crate::outcome::Verdict;

/// Type of the exception that names ranks which failed within the tolerance (RFC 21: severity 1 is not fatal).
pub(crate) const EXCEPTION: &str = "node-failure";

impl Action {
    /// Returns the ranks on which the check failed.
    fn failed(&self, check: &CheckName) -> IdSet {
        let bad = self.bad();
        let failed = self.ended.iter().filter(|(rank, row)| bad.contains(rank.0) && names(&row.ended, check));
        failed.map(|(rank, _)| rank.0).collect()
    }
}

impl Jobs {
    /// Returns the ranks whose failure the attempt has forgiven: they failed in a setup action or external action whose
    /// verdict is `ok`.
    pub(crate) fn tolerated(&self, job: &JobId, attempt: Attempt) -> IdSet {
        let mut tolerated = IdSet::new();
        for action in self.attempt(job, attempt).into_iter().flat_map(|attempt| self.of(attempt)) {
            if action.row.verdict == Some(Verdict::Ok) && !self.after.contains(&action.row.name) {
                tolerated.extend_with(&action.bad().difference(&action.never_begun()));
            }
        }
        tolerated
    }

    /// Returns the failures of the action on `ranks`, each as `{check, message, hosts, ranks}`. If an end names no
    /// check, `check` is the word of the outcome, such as `lost`.
    pub(crate) fn failed_checks(&self, id: ActionId, ranks: &IdSet) -> Vec<Value> {
        let Some(action) = self.action(id) else { return Vec::new() };
        let mut by: BTreeMap<(String, String), IdSet> = BTreeMap::new();
        for (rank, row) in action.ended.iter().filter(|(rank, _)| ranks.contains(rank.0)) {
            if row.ended.checks.is_empty() {
                by.entry((row.ended.outcome.as_str().to_owned(), row.ended.outcome.to_string()))
                    .or_default()
                    .insert(rank.0);
            }
            for check in &row.ended.checks {
                by.entry((check.check.clone(), check.message.clone())).or_default().insert(rank.0);
            }
        }
        let layout = self.layout(id);
        let to_json = |((check, message), ranks): ((String, String), IdSet)| {
            let hosts = layout.map(|layout| layout.hosts_of(&ranks));
            json!({"check": check, "message": message, "hosts": hosts, "ranks": ranks})
        };
        by.into_iter().map(to_json).collect()
    }

    /// Reports the failed ranks of an action whose verdict is `ok`, with the reasons. If the job's terms say so, hands
    /// these ranks over. If the setting `keep-after` names this action, also hands over the good ranks beyond the
    /// number that the job needs (`keep`). Does nothing for an after-action.
    pub(crate) fn forgive(&mut self, id: ActionId, cx: &mut Context) {
        let Some(action) = self.action(id) else { return };
        let (job, number, name) = (action.row.job.clone(), action.row.attempt, action.row.name.clone());
        if cx.settings.after.contains(&name) {
            return;
        }
        // The job handed the never-begun ranks over before: they are no failures.
        let bad = action.bad().difference(&action.never_begun());
        let Some(attempt) = self.attempt(&job, number) else { return };
        let terms = &attempt.terms;
        let surplus: IdSet = match terms.keep {
            // Ranks are surplus only after the `keep-after` action, because further ranks may fail before.
            Some(keep) if name == cx.settings.keep_after => {
                // Ranks outside the action are not prepared: they do not count towards `keep`.
                let good = attempt.hold.ranks.intersection(&action.row.ranks).difference(&bad);
                let keep = if defect!(KeepsOneLess) { keep - 1 } else { keep };
                good.iter().skip(keep as usize).collect()
            }
            _ => IdSet::new(),
        };
        let mut back = if terms.sheds() { bad.union(&surplus) } else { IdSet::new() };
        // A job hands over only ranks that it holds and that the action covers.
        back = back.intersection(&attempt.hold.ranks).intersection(&action.row.ranks);
        let resources = action.bad_resources();
        if !bad.is_empty() || resources.is_some() {
            let hosts = attempt.layout.hosts_of(&bad);
            let checks = self.failed_checks(id, &bad);
            let mut context = json!({"type": EXCEPTION, "severity": 1, "note": hosts, "ranks": bad, "hosts": hosts,
                "checks": checks, "action": name, "attempt": number});
            if let (Some(resources), Some(context)) = (resources, context.as_object_mut()) {
                context.insert("resources".to_owned(), resources);
            }
            self.event(&job, "exception", context.clone(), cx);
            self.notify_manager(&job, number, "exception", context, cx);
            self.reach_milestones(&job, number, cx);
        }
        if !back.is_empty() {
            self.shrink_by(&job, number, &back, cx);
        }
    }

    /// Hands ranks over to the after-actions, and notifies the resource manager that the job goes on without them.
    fn shrink_by(&mut self, job: &JobId, number: Attempt, ranks: &IdSet, cx: &mut Context) {
        self.hand_over(job, number, &Part::of_ranks(ranks.clone()), cx);
        let Some(attempt) = self.attempt(job, number) else { return };
        let left = attempt.hold.ranks.clone();
        let r = attempt.terms.r.as_ref().map(|r| r.fragment(&left));
        let context = json!({"attempt": number, "ranks": ranks, "hosts": attempt.layout.hosts_of(ranks), "left": left,
            "left_hosts": attempt.layout.hosts_of(&left), "R": r});
        self.event(job, "shrink", context.clone(), cx);
        self.notify_manager(job, number, "shrink", context, cx);
    }

    /// Returns the limits on the failures that the job still forgives in this action.
    pub(crate) fn forgiveness(&self, id: ActionId, cx: &Context) -> Forgiveness {
        let shed = IdSet::new();
        let none = Forgiveness {
            ranks: 0,
            checks: BTreeMap::new(),
            others: true,
            enough: true,
            lost: cx.settings.tolerate_lost,
            timeout: cx.settings.tolerate_timeout,
            shed,
        };
        let Some(action) = self.action(id) else { return none };
        let row = &action.row;
        let Some(attempt) = self.attempt(&row.job, row.attempt) else { return none };
        // Tolerance does not apply to after-actions: the job has ended before.
        if cx.settings.after.contains(&row.name) {
            return none;
        }
        // Failures forgiven in other actions use up the tolerance. A rank that fails again counts once.
        let shed = action.shed(&attempt.hold.ranks);
        let bad = action.bad().difference(&shed);
        let others = self.of(attempt);
        let others = others.filter(|other| other.row.verdict == Some(Verdict::Ok) && other.row.id != id);
        let resources: usize = others.map(|other| other.row.external.iter().flat_map(|it| it.bad()).count()).sum();
        let before = self.tolerated(&row.job, row.attempt).difference(&bad).len() + resources as u64;
        let before = if defect!(ToleranceStartsAnew) { 0 } else { before };
        let ranks = attempt.terms.forgives(attempt.layout.ranks().len()).saturating_sub(before);
        // Only ranks that the job still holds count as left.
        let left = attempt.hold.ranks.difference(&bad).len();
        // A job that hands failed ranks over must keep at least one rank.
        let sheds = attempt.terms.sheds();
        let sheds = if defect!(NobodyLeft) { false } else { sheds };
        let least = attempt.terms.keep.map_or(0, u64::from).max(u64::from(sheds));
        let enough = attempt.hold.ranks.is_empty() || left >= least;
        let others = attempt.terms.forgives_others();
        let checks = self.checks_left(attempt, action, cx);
        let (lost, timeout) = (cx.settings.tolerate_lost, cx.settings.tolerate_timeout);
        Forgiveness { ranks, checks, others, enough, lost, timeout, shed }
    }

    /// Returns, for each check with a tolerance of its own, the number of failures that the job still forgives in this
    /// action. Failures forgiven in other actions are subtracted. A rank that fails a check in two actions counts once.
    fn checks_left(&self, attempt: &JobAttempt, action: &Action, cx: &Context) -> BTreeMap<CheckName, u64> {
        let others = self.of(attempt).filter(|other| {
            other.row.verdict == Some(Verdict::Ok)
                && other.row.id != action.row.id
                && !cx.settings.after.contains(&other.row.name)
        });
        let others: Vec<&Action> = others.collect();
        let of = attempt.layout.ranks().len();
        let left = |(check, most): (&CheckName, &Tolerance)| {
            let (mut ranks, mut resources) = (IdSet::new(), 0);
            for other in &others {
                ranks.extend_with(&other.failed(check));
                let ends = other.row.external.iter().flat_map(|it| it.bad());
                resources += ends.filter(|(_, ended)| names(ended, check)).count() as u64;
            }
            let used = ranks.difference(&action.failed(check)).len() + resources;
            (check.clone(), most.of(of).saturating_sub(used))
        };
        attempt.terms.checks.iter().map(left).collect()
    }
}
