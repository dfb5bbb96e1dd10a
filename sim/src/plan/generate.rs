//! Plans from seeds.

use super::spring::CAN_FAIL;
use super::{ACTIONS, AGENT_EFFECTS, CONTROLLER_EFFECTS, Fault, Op, Plan, Side, Spring, Step, Trap, What};
use crate::rng::Rng;

/// Jobs of a small world; few, so that attempts and actions meet.
const JOBS: usize = 3;

/// A world of 1-8 nodes, with much going on.
pub fn depth(seed: u64) -> Plan {
    let mut dice = Rng::named(seed, "depth");
    let nodes = dice.skewed(1, 8) as usize;
    let horizon_ms = dice.range(5_000, 240_000);
    let mut steps = Vec::new();
    let (ops, faults) = (dice.range(2, 30), dice.skewed(0, 32));
    let mut runs = Runs::default();
    for _ in 0..ops {
        let what = What::Do(op(&mut dice, nodes, &mut runs));
        steps.push(Step { at_ms: dice.range(0, horizon_ms), what });
    }
    // Controllers that come and go change what may be expected of the others; most worlds have the one.
    let strange = dice.one_in(4);
    for _ in 0..faults {
        let what = What::Fault(fault(&mut dice, nodes, strange));
        steps.push(Step { at_ms: dice.range(0, horizon_ms), what });
    }
    // Something must run for anything to happen.
    let nodes_of_all = Some((0, nodes));
    let first = Op::Run { to: 0, job: 0, action: "prolog".to_owned(), attempt: None, nodes: nodes_of_all };
    steps.push(Step { at_ms: dice.range(0, 3_000), what: What::Do(first) });
    steps.sort_by_key(|step| step.at_ms);
    let traps = (0..dice.skewed(0, 40)).map(|_| trap(&mut dice, nodes)).collect();
    let exclusive = (0..nodes).filter(|_| dice.one_in(6)).collect();
    Plan { story: String::new(), seed, nodes, exclusive, horizon_ms, steps, traps }
}

/// A thousand nodes, a few jobs over all of them, and faults here and there.
pub fn breadth(seed: u64) -> Plan {
    let mut dice = Rng::named(seed, "breadth");
    let nodes = 1_000;
    let horizon_ms = 90_000;
    let mut steps = Vec::new();
    for (at_ms, action) in [(3_000, "prolog"), (30_000, "epilog")] {
        let run = Op::Run { to: 0, job: 0, action: action.to_owned(), attempt: None, nodes: Some((0, nodes)) };
        steps.push(Step { at_ms, what: What::Do(run) });
    }
    for _ in 0..60 {
        steps.push(Step { at_ms: dice.range(0, horizon_ms), what: What::Fault(node_fault(&mut dice, nodes)) });
    }
    for _ in 0..2 {
        let kill = Fault::KillController { which: 0, down_ms: dice.range(1, 8_000) };
        steps.push(Step { at_ms: dice.range(0, horizon_ms), what: What::Fault(kill) });
    }
    steps.sort_by_key(|step| step.at_ms);
    let traps = (0..60).map(|_| trap(&mut dice, nodes)).collect();
    Plan { story: String::new(), seed, nodes, exclusive: Vec::new(), horizon_ms, steps, traps }
}

/// How far attempts have come, so that requeues are ones.
#[derive(Default)]
struct Runs {
    attempts: [u64; JOBS],
}

fn op(dice: &mut Rng, nodes: usize, runs: &mut Runs) -> Op {
    let at = dice.below(JOBS);
    let job = at as u8;
    let action = dice.pick(&ACTIONS).copied().unwrap_or("prolog").to_owned();
    let to = usize::from(dice.one_in(8));
    let some = |dice: &mut Rng| {
        let first = dice.below(nodes);
        (first, dice.range(1, (nodes - first) as u64) as usize)
    };
    match dice.below(24) {
        0..=5 => Op::Run { to, job, action, attempt: None, nodes: Some(some(dice)) },
        // The same nodes every time: then asking again is attaching.
        6..=8 => Op::Run { to, job, action, attempt: None, nodes: None },
        9..=11 => {
            runs.attempts[at] += 1;
            let nodes = if dice.one_in(2) { None } else { Some(some(dice)) };
            Op::Run { to, job, action, attempt: Some(runs.attempts[at]), nodes }
        }
        12..=13 => Op::Cancel { to, job, action: dice.one_in(2).then_some(action) },
        14 => Op::Resolve { to, job, ok: dice.one_in(2) },
        15 => Op::Signal { to, job, signal: [1, 9, 10, 12, 15, 9][dice.below(6)] },
        16 => Op::OutboxApplied { to },
        17..=18 => Op::Look { to, job },
        19..=20 => Op::Exec { node: dice.below(nodes), job, action, attempt: dice.range(0, 1) },
        21 if dice.one_in(2) => Op::Hangup { node: dice.below(nodes) },
        21 => Op::CancelLocal { node: dice.below(nodes), job, action, attempt: dice.range(0, 1) },
        22 => Op::Backup,
        _ if dice.one_in(4) => Op::TakeOver { to },
        _ => Op::Run { to, job, action: "epilog".to_owned(), attempt: None, nodes: None },
    }
}

/// Retention goes by the wall clock: a controller's steps are of twenty minutes at most, so that what is pruned is known.
fn fault(dice: &mut Rng, nodes: usize, strange: bool) -> Fault {
    match dice.below(if strange { 14 } else { 12 }) {
        0..=1 => Fault::KillController { which: 0, down_ms: dice.skewed(1, 60_000) },
        2 if dice.one_in(2) => Fault::FullStore { ms: dice.skewed(1, 60_000) },
        2 => Fault::ControllerClockStep { by_ms: clock_step(dice) / 72 },
        12 => Fault::Restore { empty: dice.one_in(2) },
        13 => Fault::SecondController { empty: dice.one_in(3), ms: dice.range(1_000, 60_000) },
        _ => node_fault(dice, nodes),
    }
}

fn node_fault(dice: &mut Rng, nodes: usize) -> Fault {
    let node = dice.below(nodes);
    match dice.below(32) {
        0..=3 => Fault::Drop { node, side: [Side::Both, Side::Agent, Side::Controller][dice.below(3)] },
        4..=6 => Fault::Partition { node, ms: dice.skewed(1, 120_000) },
        7..=11 => Fault::KillAgent { node, down_ms: dice.skewed(1, 90_000) },
        12..=13 => Fault::StopAgent { node, ms: dice.skewed(1, 120_000) },
        14..=16 => Fault::PowerFail { node, down_ms: dice.skewed(100, 120_000) },
        17 if dice.one_in(4) => Fault::Burn { node },
        17..=18 => Fault::SoftReboot { node, down_ms: dice.skewed(100, 10_000) },
        19..=21 => Fault::LoseBus { node, ms: dice.skewed(1, 30_000) },
        22..=23 => Fault::StallSystemd { node, ms: dice.skewed(1, 120_000) },
        24..=25 => Fault::FullRun { node, ms: dice.skewed(1, 60_000) },
        26..=27 => Fault::KillRunner { node },
        28 => Fault::StopUnit { node },
        29 => Fault::ClockStep { node, by_ms: clock_step(dice) },
        30 if dice.one_in(2) => Fault::Clone { node, ms: dice.range(1_000, 60_000) },
        _ => Fault::KillAgent { node, down_ms: dice.skewed(1, 2_000) },
    }
}

fn clock_step(dice: &mut Rng) -> i64 {
    let by = dice.skewed(1, 86_400_000) as i64;
    if dice.one_in(2) { by } else { -by }
}

fn trap(dice: &mut Rng, nodes: usize) -> Trap {
    let of_controller = dice.one_in(3);
    let down_ms = dice.skewed(1, 60_000);
    let nth = dice.skewed(0, 10) as u32;
    if of_controller {
        let effect = dice.pick(&CONTROLLER_EFFECTS).copied().unwrap_or("commit").to_owned();
        let spring = match dice.below(8) {
            0 if effect == "commit" => Spring::Fail,
            0 if effect == "fan" => Spring::CrashWithin { down_ms },
            0..=3 => Spring::CrashBefore { down_ms },
            _ => Spring::CrashAfter { down_ms },
        };
        return Trap { node: None, effect, nth, spring };
    }
    let effect = dice.pick(&AGENT_EFFECTS).copied().unwrap_or("write-intent").to_owned();
    let start = effect == "start-unit";
    let fails = CAN_FAIL.contains(&effect.as_str());
    let spring = match dice.below(16) {
        0 | 1 if fails => Spring::Fail,
        2 if effect == "bury" => Spring::CrashWithin { down_ms },
        2..=4 if start => Spring::Unanswered { happens: dice.one_in(2) },
        5..=6 if start => Spring::Late { ms: dice.skewed(1_000, 200_000) },
        0..=6 => Spring::CrashBefore { down_ms },
        7..=13 => Spring::CrashAfter { down_ms },
        14 => Spring::PowerBefore { down_ms },
        _ => Spring::PowerAfter { down_ms },
    };
    Trap { node: Some(dice.below(nodes)), effect, nth, spring }
}
