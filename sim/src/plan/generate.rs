//! Generates plans from seeds.

use super::chance::{self, Runs};
use super::{Fault, Op, Plan, Scheduler, Step, Trap, What};
use crate::rng::Rng;
use crate::world::site;

const ONE_HOUR_MS: u64 = 3_600_000;
/// The time spans of a plan's steps (begin and end in ms) in a world that lasts for hours. The controller prunes
/// attempts past their retention between the spans, and agents forget tombstones.
const LONG: [(u64, u64); 3] = [
    (0, 120_000),
    (ONE_HOUR_MS - 10_000, ONE_HOUR_MS + 130_000),
    (2 * ONE_HOUR_MS - 20_000, 2 * ONE_HOUR_MS + 260_000),
];
/// The time spans of a plan's steps (begin and end in ms) in a world that lasts for hours and prunes early. At the end
/// of the second span the controller prunes this span's attempts, although their tasks may still begin. No step names a
/// pruned attempt later, because each span has its own jobs.
const FORGETFUL: [(u64, u64); 3] =
    [(0, 60_000), (ONE_HOUR_MS - 60_000, ONE_HOUR_MS - 1_000), (2 * ONE_HOUR_MS - 20_000, 2 * ONE_HOUR_MS + 260_000)];
/// World times (ms) at which the controller gets and loses the [`site::FORGETFUL`] settings. The controller first looks
/// for attempts to prune one hour after its start.
const FORGETS: (u64, u64) = (ONE_HOUR_MS - 70_000, ONE_HOUR_MS + 240_000);
/// Number of traps that a plan sets on a rare effect, if the plan aims at that effect.
const AIMED: usize = 8;

/// Generates the plan of a world of 1-8 nodes with many events.
pub fn depth(seed: u64) -> Plan {
    let mut dice = Rng::named(seed, "depth");
    let nodes = dice.skewed(1, 8) as usize;
    let is_long = dice.one_in(5);
    let forgets = is_long && dice.one_in(2);
    let spans = match is_long {
        true if forgets => FORGETFUL.to_vec(),
        true => LONG.to_vec(),
        false => vec![(0, dice.range(5_000, 240_000))],
    };
    let horizon_ms = spans.last().map_or(0, |(_, to)| *to);
    let mut steps = Vec::new();
    let (ops, faults) = (dice.range(2, 30), dice.skewed(0, 32));
    let mut runs = Runs::default();
    for _ in 0..ops {
        let (span, at_ms) = moment(&mut dice, &spans);
        let what = What::Do(chance::op(&mut dice, nodes, span, &mut runs));
        steps.push(Step { at_ms, what });
    }
    // Faults of a controller's memory weaken the checks, so only every third world has such faults.
    let strange = dice.one_in(3);
    for _ in 0..faults {
        let at_ms = moment(&mut dice, &spans).1;
        let fault = chance::fault(&mut dice, nodes, strange);
        if matches!(fault, Fault::Restore { .. } | Fault::SecondController { .. }) && dice.one_in(2) {
            // An operator notices that no agent accepts the controller, and takes over. Otherwise no agent would accept
            // it for an hour, or until the world ends.
            let after_ms = if spans.len() > 1 { dice.range(30_000, 90_000) } else { dice.skewed(100, 60_000) };
            steps.push(Step { at_ms: at_ms + after_ms, what: What::Do(Op::TakeOver { to: 0 }) });
        }
        steps.push(Step { at_ms, what: What::Fault(fault) });
    }
    // The hooks hang; in a long world past the hour at which the controller looks for attempts to prune.
    if dice.one_in(4) {
        let ms = if spans.len() > 1 { dice.range(ONE_HOUR_MS, 2 * ONE_HOUR_MS) } else { dice.skewed(1_000, 120_000) };
        steps.push(Step { at_ms: moment(&mut dice, &spans).1, what: What::Fault(Fault::HangHooks { ms }) });
    }
    let settings = if dice.one_in(2) { dice.range(2, 3) as u8 } else { 0 };
    let configure = |at_ms, settings| Step { at_ms, what: What::Do(Op::Configure { settings }) };
    if settings > 0 {
        steps.push(configure(0, settings));
    }
    if forgets {
        let (from, to) = FORGETS;
        steps.extend([configure(from, settings + site::FORGETFUL), configure(to, settings)]);
        steps.extend((0..AIMED / 2).flat_map(|_| chance::pruned_early(&mut dice, nodes, FORGETFUL[1])));
    }
    // A resource manager launches its own jobs.
    let scheduler = Some(if dice.one_in(2) { Scheduler::Edge } else { Scheduler::Hooks });
    for _ in 0..dice.range(0, 10) {
        let at_ms = moment(&mut dice, &spans).1;
        steps.extend(chance::launches(&mut dice, nodes, at_ms));
    }
    if dice.one_in(6) {
        let down = Fault::SchedulerDown { ms: dice.skewed(500, 60_000) };
        steps.push(Step { at_ms: moment(&mut dice, &spans).1, what: What::Fault(down) });
    }
    // Every world runs at least one prolog.
    let nodes_of_all = Some((0, nodes));
    let first = Op::Run { to: 0, job: 0, action: "prolog".to_owned(), attempt: None, nodes: nodes_of_all };
    steps.push(Step { at_ms: dice.range(0, 3_000), what: What::Do(first) });
    let mut traps: Vec<Trap> = (0..dice.skewed(0, 40)).map(|_| chance::trap(&mut dice, nodes)).collect();
    // Chance alone rarely meets a rare effect: half of the worlds aim at one such effect.
    if dice.one_in(2) {
        let at = dice.below(chance::AIMS.len());
        let (effect, make) = chance::AIMS[at];
        for _ in 0..AIMED / 2 {
            let (span, at_ms) = moment(&mut dice, &spans);
            steps.extend(make(&mut dice, nodes, span, at_ms));
        }
        traps.extend((0..AIMED).map(|_| chance::trap_at(&mut dice, nodes, effect)));
        if effect == "send-ack" {
            traps.extend((0..AIMED).map(|_| chance::late(&mut dice, nodes)));
        }
    }
    if spans.len() > 1 {
        for effect in ["send-forget", "remove-tombstone"] {
            traps.extend((0..AIMED).map(|_| chance::trap_at(&mut dice, nodes, effect)));
        }
    }
    steps.retain(|step| step.at_ms <= horizon_ms);
    steps.sort_by_key(|step| step.at_ms);
    let exclusive = (0..nodes).filter(|_| dice.one_in(6)).collect();
    Plan { story: String::new(), seed, nodes, exclusive, scheduler, horizon_ms, steps, traps }
}

/// Chooses a random time span of the plan; returns the span's index, and a random moment (ms) within the span.
fn moment(dice: &mut Rng, spans: &[(u64, u64)]) -> (usize, u64) {
    let span = dice.below(spans.len());
    let (from, to) = spans.get(span).copied().unwrap_or_default();
    (span, dice.range(from, to))
}

/// Generates the plan of a world of a thousand nodes, with one job over all of them, and some faults.
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
        let what = What::Fault(chance::node_fault(&mut dice, nodes));
        steps.push(Step { at_ms: dice.range(0, horizon_ms), what });
    }
    for _ in 0..2 {
        let kill = Fault::KillController { which: 0, down_ms: dice.range(1, 8_000) };
        steps.push(Step { at_ms: dice.range(0, horizon_ms), what: What::Fault(kill) });
    }
    steps.sort_by_key(|step| step.at_ms);
    let traps = (0..60).map(|_| chance::trap(&mut dice, nodes)).collect();
    let (exclusive, scheduler) = (Vec::new(), None);
    Plan { story: String::new(), seed, nodes, exclusive, scheduler, horizon_ms, steps, traps }
}
