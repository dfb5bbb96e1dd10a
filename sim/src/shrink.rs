//! Leaves out of a plan whatever its violation does not need.

use crate::history::Trace;
use crate::plan::Plan;

/// Runs that shrinking may take; a plan has some fifty parts, and is gone through a few times.
const MAX_RUNS: usize = 600;

/// The smallest plan found that still violates the same invariant.
pub fn shrink(plan: &Plan) -> Plan {
    let mut best = plan.clone();
    let Some(invariant) = violated(&best) else { return best };
    let mut runs = 0;
    loop {
        let before = best.clone();
        for candidate in smaller(&before) {
            // Candidates are made from the best so far, one part at a time.
            let Some(candidate) = candidate(&best) else { continue };
            runs += 1;
            if runs > MAX_RUNS {
                return best;
            }
            if violated(&candidate).as_ref() == Some(&invariant) {
                best = candidate;
            }
        }
        if best == before {
            return best;
        }
    }
}

type Change = Box<dyn Fn(&Plan) -> Option<Plan>>;

/// Changes to try, the large ones first. Each leaves out what was in `of`, if it is still there.
fn smaller(of: &Plan) -> Vec<Change> {
    let mut changes: Vec<Change> = vec![Box::new(|plan| without(plan, |plan| plan.traps.clear()))];
    for step in of.steps.clone() {
        changes.push(Box::new(move |plan| without(plan, |plan| plan.steps.retain(|other| *other != step))));
    }
    for trap in of.traps.clone() {
        changes.push(Box::new(move |plan| without(plan, |plan| plan.traps.retain(|other| *other != trap))));
    }
    changes.push(Box::new(|plan| without(plan, |plan| plan.exclusive.clear())));
    changes
}

fn without(plan: &Plan, change: impl FnOnce(&mut Plan)) -> Option<Plan> {
    let mut smaller = plan.clone();
    change(&mut smaller);
    (smaller != *plan).then_some(smaller)
}

/// The invariant that a plan violates; of several sentences of the truth, which.
fn violated(plan: &Plan) -> Option<String> {
    crate::campaign::survive(plan, Trace::unread())
        .violation
        .map(|violation| format!("{} {}", violation.invariant, violation.text.split(':').next().unwrap_or_default()))
}
