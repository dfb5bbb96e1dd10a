//! What a job forgives: `tolerable` ranks up to its tolerance, `lost` ones where the site says so. Everything else is
//! fatal, whatever a user asks for: a generic failure of a prolog is nobody's to ignore (flux-core #6842).
//!
//! Within the tolerance an action succeeds without the ranks that failed. They are told in a non-fatal exception, with
//! what each check said, and go back where the job asked for that (`shrink`, `keep`).

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::controller::io::Now;
use crate::controller::machine::Machine;
use crate::defect;
use crate::ids::{ActionId, Attempt, JobId};
use crate::idset::IdSet;
use crate::job::Part;
use crate::outcome::{Outcome, Verdict};

/// The type of the exception that names ranks which failed within a job's tolerance (RFC 21: severity 1 is not fatal).
pub(super) const EXCEPTION: &str = "node-failure";

/// What an action of a job may be forgiven.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Forgiveness {
    /// At most so many ranks.
    pub(super) ranks: u64,
    /// Are as many good as the job is to keep?
    pub(super) enough: bool,
    /// `lost` ones too.
    pub(super) lost: bool,
    /// The job let go of these before anything began there, and goes on without them: they count for nothing.
    pub(super) shed: IdSet,
}

impl Forgiveness {
    pub(super) fn forgives(&self, outcome: &Outcome) -> bool {
        match outcome {
            Outcome::Tolerable => true,
            Outcome::Lost { .. } => self.lost,
            Outcome::Failed { .. } => defect!(UnmarkedForgiven),
            _ => false,
        }
    }
}

impl Machine {
    pub(super) fn forgiveness(&self, id: ActionId) -> Forgiveness {
        let shed = IdSet::new();
        let none = Forgiveness { ranks: 0, enough: true, lost: self.settings.tolerate_lost, shed };
        let Some(action) = self.actions.get(&id) else { return none };
        let row = &action.row;
        let Some(attempt) = self.jobs.get(&row.job).and_then(|job| job.attempts.get(&row.attempt)) else { return none };
        // What follows the job is not what it waits for: there is nobody left to be spared.
        if self.settings.after.contains(&row.name) {
            return none;
        }
        // What other actions were forgiven is used up, but for ranks that are bad again here.
        let shed = action.shed(&attempt.hold.ranks);
        let bad = action.bad().difference(&shed);
        let others = attempt.actions.iter().filter_map(|id| self.actions.get(id));
        let others = others.filter(|other| other.row.verdict == Some(Verdict::Ok) && other.row.id != id);
        let resources: usize = others.map(|other| other.row.external.iter().flat_map(|it| it.bad()).count()).sum();
        let before = self.tolerated(&row.job, row.attempt).difference(&bad).len() + resources as u64;
        let ranks = attempt
            .terms
            .forgives(attempt.layout.ranks().len())
            .saturating_sub(if defect!(ToleranceStartsAnew) { 0 } else { before });
        // Of what the job has still: others may have gone back before.
        let left = attempt.hold.ranks.difference(&bad).len();
        // A job that sheds its last rank does not go on.
        let sheds = attempt.terms.sheds();
        let least = attempt.terms.keep.map_or(0, u64::from).max(u64::from(sheds && !defect!(NobodyLeft)));
        let enough = attempt.hold.ranks.is_empty() || left >= least;
        Forgiveness { ranks, enough, lost: self.settings.tolerate_lost, shed }
    }

    /// Ranks that failed in an action of this attempt which succeeded without them.
    pub(super) fn tolerated(&self, job: &JobId, attempt: Attempt) -> IdSet {
        let mut tolerated = IdSet::new();
        let ids = self.jobs.get(job).and_then(|job| job.attempts.get(&attempt)).map(|attempt| attempt.actions.clone());
        for action in ids.into_iter().flatten().filter_map(|id| self.actions.get(&id)) {
            if action.row.verdict == Some(Verdict::Ok) && !self.settings.after.contains(&action.row.name) {
                tolerated.extend_with(&action.bad().difference(&action.never_begun()));
            }
        }
        tolerated
    }

    /// An action succeeded without some of its ranks: who, and why, and what goes back.
    pub(super) fn forgive(&mut self, id: ActionId, now: Now) {
        let Some(action) = self.actions.get(&id) else { return };
        let (job, number, name) = (action.row.job.clone(), action.row.attempt, action.row.name.clone());
        if self.settings.after.contains(&name) {
            return;
        }
        // Its verdict is `ok`: what was never begun was let go of before.
        let bad = action.bad().difference(&action.never_begun());
        let Some(attempt) = self.jobs.get(&job).and_then(|job| job.attempts.get(&number)) else { return };
        let terms = &attempt.terms;
        let surplus: IdSet = match terms.keep {
            // Before that others may fail yet.
            Some(keep) if name == self.settings.keep_after => {
                // What it was not over is not prepared, and counts for none of those that are kept.
                let good = attempt.hold.ranks.intersection(&action.row.ranks).difference(&bad);
                good.iter().skip(keep as usize - usize::from(defect!(KeepsOneLess))).collect()
            }
            _ => IdSet::new(),
        };
        let mut back = if terms.sheds() { bad.union(&surplus) } else { IdSet::new() };
        // Where others have still to begin they are not asked for theirs.
        back = back.intersection(&attempt.hold.ranks).intersection(&action.row.ranks);
        let resources = action.bad_resources();
        if !bad.is_empty() || resources.is_some() {
            let hosts = attempt.layout.hosts_of(&bad);
            let checks = self.failed_checks(id, &bad);
            let mut context = json!({"type": EXCEPTION, "severity": 1, "note": hosts, "ranks": bad, "hosts": hosts, "checks": checks,
                "action": name, "attempt": number});
            if let (Some(resources), Some(context)) = (resources, context.as_object_mut()) {
                context.insert("resources".to_owned(), resources);
            }
            self.event(&job, now, "exception", context.clone());
            self.tell_manager(&job, number, "exception", context);
            self.reach_milestones(&job, number, now);
        }
        if !back.is_empty() {
            self.give_back(&job, number, &back, now);
        }
    }

    /// What failed on these ranks: each check with its ranks and messages, each other outcome likewise.
    pub(super) fn failed_checks(&self, id: ActionId, ranks: &IdSet) -> Vec<Value> {
        let Some(action) = self.actions.get(&id) else { return Vec::new() };
        let mut by: BTreeMap<(String, String), IdSet> = BTreeMap::new();
        for (rank, row) in action.ended.iter().filter(|(rank, _)| ranks.contains(rank.0)) {
            if row.ended.checks.is_empty() {
                by.entry((row.ended.outcome.word().to_owned(), row.ended.outcome.to_string()))
                    .or_default()
                    .insert(rank.0);
            }
            for check in &row.ended.checks {
                by.entry((check.check.clone(), check.message.clone())).or_default().insert(rank.0);
            }
        }
        let layout = self.layout(id);
        let tell = |((check, message), ranks): ((String, String), IdSet)| {
            let hosts = layout.map(|layout| layout.hosts_of(&ranks));
            json!({"check": check, "message": message, "hosts": hosts, "ranks": ranks})
        };
        by.into_iter().map(tell).collect()
    }

    /// The job goes on without these: what follows it has them from now on.
    fn give_back(&mut self, job: &JobId, number: Attempt, ranks: &IdSet, now: Now) {
        self.let_go(job, number, &Part::of_ranks(ranks.clone()), now);
        let Some(attempt) = self.jobs.get(job).and_then(|job| job.attempts.get(&number)) else { return };
        let left = attempt.hold.ranks.clone();
        let r = attempt.terms.r.as_ref().map(|r| r.fragment(&left));
        let context = json!({"attempt": number, "ranks": ranks, "hosts": attempt.layout.hosts_of(ranks), "left": left,
            "left_hosts": attempt.layout.hosts_of(&left), "R": r});
        self.event(job, now, "shrink", context.clone());
        self.tell_manager(job, number, "shrink", context);
    }
}
