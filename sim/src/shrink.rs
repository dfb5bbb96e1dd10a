//! Shrinks a plan to the parts that its violation needs.

use crate::history::Trace;
use crate::plan::{Op, Plan, Step, What};

/// Maximum number of runs of one shrinking: a plan has some fifty parts, and shrinking goes through them a few times.
const MAX_RUNS: usize = 1_000;

/// Returns the smallest plan found that still violates the same invariant as `plan`.
pub fn shrink(plan: &Plan) -> Plan {
    let Some(invariant) = violated(plan) else { return plan.clone() };
    shrink_while(plan, |candidate| violated(candidate).as_ref() == Some(&invariant))
}

/// Returns the smallest plan found for which `holds` returns `true`.
fn shrink_while(plan: &Plan, holds: impl Fn(&Plan) -> bool) -> Plan {
    let mut best = plan.clone();
    let mut runs = 0;
    loop {
        let before = best.clone();
        for candidate in smaller(&before) {
            // Each candidate leaves one part out of the best plan so far.
            let Some(candidate) = candidate(&best) else { continue };
            runs += 1;
            if runs > MAX_RUNS {
                return best;
            }
            if holds(&candidate) {
                best = candidate;
            }
        }
        if best == before {
            return best;
        }
    }
}

type Change = Box<dyn Fn(&Plan) -> Option<Plan>>;

/// Returns the changes to try, large ones first. Each change leaves out a part of `of`, if the plan still has the part.
fn smaller(of: &Plan) -> Vec<Change> {
    let mut changes: Vec<Change> = vec![Box::new(|plan| without(plan, |plan| plan.traps.clear()))];
    for step in of.steps.clone() {
        changes.push(Box::new(move |plan| without(plan, |plan| plan.steps.retain(|other| *other != step))));
    }
    for trap in of.traps.clone() {
        changes.push(Box::new(move |plan| without(plan, |plan| plan.traps.retain(|other| *other != trap))));
    }
    changes.push(Box::new(|plan| without(plan, |plan| plan.exclusive.clear())));
    for nodes in [1, of.nodes / 2, of.nodes.saturating_sub(1)] {
        changes.push(Box::new(move |plan| (nodes < plan.nodes).then(|| with_nodes(plan, nodes)).flatten()));
    }
    // First the faults stop sooner. Then the steps come sooner, from the last step on.
    let last = of.steps.iter().map(|step| step.at_ms).max().unwrap_or_default();
    for horizon_ms in [last + 1, last / 2 + of.horizon_ms / 2] {
        let sooner = move |plan: &mut Plan| plan.horizon_ms = plan.horizon_ms.min(horizon_ms);
        changes.push(Box::new(move |plan| without(plan, sooner)));
    }
    for at in (0..of.steps.len()).rev() {
        changes.push(Box::new(move |plan| without(plan, |plan| from(plan, at, |ms| ms / 2))));
        changes.push(Box::new(move |plan| without(plan, |plan| from(plan, at, |ms| ms - ms / 10))));
    }
    changes
}

fn without(plan: &Plan, change: impl FnOnce(&mut Plan)) -> Option<Plan> {
    let mut smaller = plan.clone();
    change(&mut smaller);
    (smaller != *plan).then_some(smaller)
}

/// Returns the plan with `nodes` nodes, without events on other nodes; `None` for 0 nodes.
fn with_nodes(plan: &Plan, nodes: usize) -> Option<Plan> {
    (nodes > 0).then(|| {
        let mut smaller = plan.clone();
        smaller.nodes = nodes;
        smaller.exclusive.retain(|node| *node < nodes);
        smaller.steps.retain_mut(|step| match &mut step.what {
            What::Do(op) => fits(op, nodes),
            What::Fault(fault) => fault.node().is_none_or(|node| node < nodes),
        });
        smaller.traps.retain(|trap| trap.node.is_none_or(|node| node < nodes));
        smaller
    })
}

/// Returns `true` if the request is possible in a world of `nodes` nodes: the node to which it goes, or the first node
/// of a `Run`, exists. Shortens the range of a `Run` that ends beyond the world.
fn fits(op: &mut Op, nodes: usize) -> bool {
    match op {
        Op::Run { nodes: Some((first, count)), .. } => {
            *count = (*count).min(nodes.saturating_sub(*first));
            *count > 0
        }
        Op::Exec { node, .. }
        | Op::Hangup { node }
        | Op::CancelLocal { node, .. }
        | Op::Status { node }
        | Op::Reload { node, .. } => *node < nodes,
        _ => true,
    }
}

/// Shortens the pause before the step with index `at` from `pause` to `shorter(pause)` milliseconds. This step, all
/// later steps and the end of the faults (`horizon_ms`) come earlier by the same time.
fn from(plan: &mut Plan, at: usize, shorter: impl Fn(u64) -> u64) {
    let before = at.checked_sub(1).and_then(|at| plan.steps.get(at)).map_or(0, |step| step.at_ms);
    let Some(pause) = plan.steps.get(at).map(|step| step.at_ms.saturating_sub(before)) else { return };
    let sooner = pause - shorter(pause).min(pause);
    for Step { at_ms, .. } in plan.steps.iter_mut().skip(at) {
        *at_ms = at_ms.saturating_sub(sooner);
    }
    plan.horizon_ms = plan.horizon_ms.saturating_sub(sooner);
}

/// Returns what the plan violates: the invariant, and the violation's text up to its first `:`, because one invariant
/// has several checks. `None`: the plan violates no invariant.
fn violated(plan: &Plan) -> Option<String> {
    crate::campaign::survive(plan, Trace::unread())
        .violation
        .map(|violation| format!("{} {}", violation.invariant, violation.text.split(':').next().unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Fault;

    fn power_failures(plan: &Plan) -> usize {
        plan.steps.iter().filter(|step| matches!(step.what, What::Fault(Fault::PowerFail { .. }))).count()
    }

    #[test]
    fn what_is_left_is_few_early_and_on_few_nodes() {
        let power = |at_ms, node| Step { at_ms, what: What::Fault(Fault::PowerFail { node, down_ms: 7 }) };
        let run = |first, count| Op::Run {
            to: 0,
            job: 0,
            action: "prolog".to_owned(),
            attempt: None,
            nodes: Some((first, count)),
        };
        let mut plan = crate::plan::depth(3);
        plan.nodes = 6;
        plan.exclusive = vec![0, 5];
        plan.horizon_ms = 200_000;
        plan.steps = vec![
            Step { at_ms: 40_000, what: What::Do(run(0, 6)) },
            power(60_000, 1),
            Step { at_ms: 80_000, what: What::Do(run(4, 2)) },
            power(120_000, 5),
        ];
        let runs = |plan: &Plan| plan.steps.iter().filter(|step| matches!(step.what, What::Do(_))).count();
        let small = shrink_while(&plan, |plan| power_failures(plan) >= 1 && runs(plan) >= 1);
        // Of two sufficient steps the last one remains. The run covers node 4, so five nodes remain.
        assert_eq!((small.steps.len(), small.traps.len(), small.exclusive.len()), (2, 0, 0), "{small:?}");
        assert!(small.steps.iter().all(|step| step.at_ms < 100) && small.horizon_ms < 1_000, "{small:?}");
        let small = shrink_while(&plan, |plan| runs(plan) >= 1);
        assert_eq!(small.nodes, 5, "{small:?}");
        assert_eq!(small.steps[0].what, What::Do(run(4, 1)));
    }

    #[test]
    fn a_world_of_fewer_nodes_names_no_others() {
        for seed in 1..200 {
            let plan = crate::plan::depth(seed);
            for nodes in 1..plan.nodes {
                let small = with_nodes(&plan, nodes).expect("there is a node");
                let history = crate::campaign::survive(&small, Trace::unread());
                assert!(history.violation.is_none(), "seed {seed} with {nodes} nodes: {:?}", history.violation);
            }
        }
    }
}
