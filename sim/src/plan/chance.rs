//! Chooses the random requests and faults of a plan, and its traps: faults that strike at an effect of a daemon.

use super::spring::{CAN_FAIL, HALVES};
use super::{ACTIONS, AGENT_EFFECTS, CONTROLLER_EFFECTS, Fault, Op, Side, Spring, Step, Trap, What};
use crate::rng::Rng;
use crate::world::site;

/// Number of jobs that the steps of one time span of a plan use, in a small world. The number is small, so that several
/// attempts and actions concern the same job. Each span has its own jobs, because a job with pruned attempts must not
/// return.
const JOBS: usize = 3;
/// Number of time spans of the longest plans.
const SPANS: usize = 3;

fn job_of(dice: &mut Rng, span: usize) -> usize {
    span * JOBS + dice.below(JOBS)
}

/// First number of the jobs that only [`spent`] uses, above the numbers of [`pruned_early`].
const OWN_JOBS: usize = JOBS * SPANS + JOBS + 1;
/// Number of jobs per time span for [`spent`]: the first check uses up the tolerance of such a job.
const SPENT: usize = 8;

/// The number of the newest attempt of each job: a requeue gets the next number.
#[derive(Default)]
pub(super) struct Runs {
    attempts: [u64; JOBS * SPANS],
}

pub(super) fn op(dice: &mut Rng, nodes: usize, span: usize, runs: &mut Runs) -> Op {
    let at = job_of(dice, span);
    let job = at as u8;
    let action = dice.pick(&ACTIONS).copied().unwrap_or("prolog").to_owned();
    let to = usize::from(dice.one_in(8));
    let some = |dice: &mut Rng| {
        let first = dice.below(nodes);
        (first, dice.range(1, (nodes - first) as u64) as usize)
    };
    match dice.below(46) {
        0..=5 => Op::Run { to, job, action, attempt: None, nodes: Some(some(dice)) },
        // The same nodes each time: a repeated request attaches.
        6..=8 => Op::Run { to, job, action, attempt: None, nodes: None },
        9..=11 => {
            let last = runs.attempts.get_mut(at);
            let attempt = last.map(|last| {
                *last += 1;
                *last
            });
            let nodes = if dice.one_in(2) { None } else { Some(some(dice)) };
            Op::Run { to, job, action, attempt, nodes }
        }
        12..=13 => Op::Cancel { to, job, action: dice.one_in(2).then_some(action) },
        14 => Op::Resolve { to, job, ok: dice.one_in(2) },
        15 => Op::Signal { to, job, signal: [1, 9, 10, 12, 15, 9][dice.below(6)] },
        16 => Op::OutboxApplied { to },
        17..=18 => Op::Query { to, job },
        19..=20 => Op::Exec { node: dice.below(nodes), job, action, attempt: dice.range(0, 1) },
        21 if dice.one_in(2) => Op::Hangup { node: dice.below(nodes) },
        21 => Op::CancelLocal { node: dice.below(nodes), job, action, attempt: dice.range(0, 1) },
        22 => Op::Backup,
        23 => Op::Status { node: dice.below(nodes) },
        24 => Op::Ask { to, job: dice.one_in(2).then_some(job) },
        25 => Op::Reload { node: dice.below(nodes), policy: dice.range(0, 2) as u8 },
        26 => Op::Configure { settings: dice.range(0, 3) as u8 },
        28..=30 => {
            let (first, count) = some(dice);
            let keep = dice.one_in(4).then(|| dice.range(1, count as u64) as u32);
            let ((tolerate, percent), shrink) = (tolerance(dice, 0, 2), dice.one_in(2));
            let rabbits = dice.one_in(2);
            Op::AddJob { to, job, attempt: None, nodes: (first, count), tolerate, percent, keep, shrink, rabbits }
        }
        31..=33 => {
            let ranks = dice.one_in(3).then(|| (dice.below(nodes) as u32, dice.range(1, 3) as u32));
            Op::Finish { to, job, ranks }
        }
        37..=40 => {
            let rabbits = dice.one_in(3);
            let nodes = (!rabbits || dice.one_in(2)).then(|| some(dice));
            Op::Serve { job, nodes, rabbits, lease_ms: dice.range(2_000, 40_000) }
        }
        34 => Op::CancelJob { to, job },
        35 => {
            let node = dice.below(nodes);
            match dice.below(5) {
                0..=1 => Op::Drain { to, node },
                2..=3 => Op::Undrain { to, node },
                _ => Op::LiftOutside { node },
            }
        }
        41..=42 => {
            let ranks = dice.one_in(2).then(|| (dice.below(nodes) as u32, dice.range(1, 3) as u32));
            Op::Milestone { to, job, ranks }
        }
        43 => Op::Quiesce { to, wait: dice.one_in(2) },
        44..=45 => Op::Resume { to },
        _ if dice.one_in(4) => Op::TakeOver { to },
        _ => Op::Run { to, job, action: "epilog".to_owned(), attempt: None, nodes: None },
    }
}

/// Returns a random tolerance. With `true` the number is a percentage from 0 to 100; with `false`, a number of ranks in
/// `least ..= most`.
fn tolerance(dice: &mut Rng, least: u64, most: u64) -> (u32, bool) {
    if dice.one_in(3) { (dice.range(0, 100) as u32, true) } else { (dice.range(least, most) as u32, false) }
}

/// Chooses a random fault. `strange`: half of the faults are faults of memory ([`Fault::of_memory`]). Clock steps of a
/// controller are twenty minutes at most: retention uses the wall clock, and the plan must know which attempts are
/// pruned.
pub(super) fn fault(dice: &mut Rng, nodes: usize, strange: bool) -> Fault {
    if strange && dice.one_in(2) {
        return memory_fault(dice, nodes);
    }
    match dice.below(12) {
        0..=1 => Fault::KillController { which: 0, down_ms: dice.skewed(1, 60_000) },
        2 if dice.one_in(2) => Fault::FullStore { ms: dice.skewed(1, 60_000) },
        2 => Fault::ControllerClockStep { by_ms: clock_step(dice) / 72 },
        _ => node_fault(dice, nodes),
    }
}

/// Chooses a random fault of memory ([`Fault::of_memory`]), such as a restored store.
fn memory_fault(dice: &mut Rng, nodes: usize) -> Fault {
    let ms = dice.skewed(500, 90_000);
    match dice.below(14) {
        0..=1 => Fault::Restore { empty: dice.one_in(2) },
        2..=4 => Fault::CopyRestored { raw: dice.one_in(2), ms },
        5..=6 => Fault::DirectoryRolledBack { ms },
        7..=8 => Fault::MemoryRolledBack { ms },
        9..=10 => Fault::ForgedMark { node: dice.below(nodes), far: dice.one_in(2), ms },
        11..=12 => Fault::SchedulerRolledBack { ms },
        _ => Fault::SecondController { empty: dice.one_in(3), ms: dice.range(1_000, 60_000) },
    }
}

/// Number of different jobs that the resource manager launches in a world.
const LAUNCHED: u64 = 5;

/// Returns a step in which the resource manager launches, shrinks or ends one of its own jobs.
pub(super) fn launches(dice: &mut Rng, nodes: usize, at_ms: u64) -> Vec<Step> {
    let job = site::LAUNCHED + dice.range(0, LAUNCHED - 1) as u8;
    let op = match dice.below(10) {
        0 => Op::End { job },
        1 => Op::Shrink { job, keep: dice.range(1, 2) as u32 },
        _ => Op::Launch { job, count: dice.range(1, nodes as u64) as usize, ms: dice.skewed(100, 40_000) },
    };
    vec![Step { at_ms, what: What::Do(op) }]
}

pub(super) fn node_fault(dice: &mut Rng, nodes: usize) -> Fault {
    let node = dice.below(nodes);
    match dice.below(36) {
        0..=3 => Fault::Drop { node, side: [Side::Both, Side::Agent, Side::Controller][dice.below(3)] },
        4..=6 => Fault::Partition { node, ms: dice.skewed(1, 120_000) },
        7..=11 => Fault::KillAgent { node, down_ms: dice.skewed(1, 90_000) },
        12..=13 => Fault::StopAgent { node, ms: dice.skewed(1, 120_000) },
        14..=16 => Fault::PowerFail { node, down_ms: dice.skewed(100, 120_000) },
        17 if dice.one_in(4) => Fault::Burn { node },
        18 if dice.one_in(2) => Fault::Restart { node, keeps_run: dice.one_in(3), down_ms: dice.skewed(100, 10_000) },
        17..=18 => Fault::SoftReboot { node, down_ms: dice.skewed(100, 10_000) },
        19..=21 => Fault::LoseBus { node, ms: dice.skewed(1, 30_000) },
        23 if dice.one_in(2) => Fault::HangRunners { node, ms: dice.skewed(1, 120_000) },
        22..=23 => Fault::StallSystemd { node, ms: dice.skewed(1, 120_000) },
        24..=25 => Fault::FullRun { node, ms: dice.skewed(1, 60_000) },
        26..=27 => Fault::KillRunner { node },
        28 if dice.one_in(2) => Fault::TakeName { node, ms: dice.skewed(1, 60_000) },
        28 => Fault::StopUnit { node },
        29 => Fault::ClockStep { node, by_ms: clock_step(dice) },
        32 => Fault::Reexec { node, ms: dice.skewed(20, 5_000) },
        33..=34 => Fault::Suspend { node, ms: dice.skewed(1_000, 180_000) },
        35 => Fault::OomKill { node },
        31 if dice.one_in(2) => Fault::RemoveSpool { node },
        30 if dice.one_in(2) => Fault::Clone { node, ms: dice.range(1_000, 60_000) },
        _ => Fault::KillAgent { node, down_ms: dice.skewed(1, 2_000) },
    }
}

fn clock_step(dice: &mut Rng) -> i64 {
    let by = dice.skewed(1, 86_400_000) as i64;
    if dice.one_in(2) { by } else { -by }
}

pub(super) fn trap(dice: &mut Rng, nodes: usize) -> Trap {
    let effect = if dice.one_in(3) { dice.pick(CONTROLLER_EFFECTS) } else { dice.pick(AGENT_EFFECTS) };
    trap_at(dice, nodes, effect.copied().unwrap_or("commit"))
}

pub(super) fn trap_at(dice: &mut Rng, nodes: usize, effect: &'static str) -> Trap {
    let down_ms = dice.skewed(1, 60_000);
    let nth = dice.skewed(0, 10) as u32;
    let effect_name = effect.to_owned();
    if CONTROLLER_EFFECTS.contains(&effect) {
        let spring = match dice.below(8) {
            0 if effect == "commit" => Spring::Fail,
            0 if effect == "fan" => Spring::CrashWithin { down_ms },
            0..=3 => Spring::CrashBefore { down_ms },
            _ => Spring::CrashAfter { down_ms },
        };
        return Trap { node: None, effect: effect_name, nth, spring };
    }
    let start = effect == "start-unit";
    let spring = match dice.below(18) {
        0 | 1 if CAN_FAIL.contains(&effect) => Spring::Fail,
        2 if effect == HALVES => Spring::CrashWithin { down_ms },
        2..=4 if start => Spring::Unanswered { happens: dice.one_in(2) },
        5..=6 if start => Spring::Late { ms: dice.skewed(1_000, 200_000) },
        0..=8 => Spring::CrashBefore { down_ms },
        9..=14 => Spring::CrashAfter { down_ms },
        15 => Spring::PowerAfter { down_ms },
        _ => Spring::PowerBefore { down_ms },
    };
    Trap { node: Some(dice.below(nodes)), effect: effect_name, nth, spring }
}

type Make = fn(&mut Rng, usize, usize, u64) -> Vec<Step>;

/// Rare effects of the daemons, each with a function that returns steps which lead to the effect.
pub(super) const AIMS: [(&str, Make); 23] = [
    ("answer", asked),
    ("send-answer", asked),
    ("status-reply", with_status_queries),
    ("kill-lingering", lingering),
    ("watch-empty", lingering),
    ("take-claim", cancelled_early),
    ("signal-runner", signalled),
    ("send-signal", signalled),
    ("send-cancel", cancelled_early),
    ("send-probed", cloned),
    ("send-turned-away", cloned),
    ("send-probe", rebooted),
    ("write-intent", cleared),
    ("send-cancel", cancelled_unknown),
    ("send-ack", cancelled_in_flight),
    ("send-expects-boot", firmware),
    ("send-boot-expected", firmware),
    ("commit", lifted),
    ("commit", grown),
    ("commit", spent),
    ("commit", remembered),
    ("commit", remembered),
    ("send-finished", away_over_a_recovery),
];

fn run_on(dice: &mut Rng, nodes: usize, span: usize, action: &str) -> Op {
    let job = job_of(dice, span) as u8;
    Op::Run { to: 0, job, action: action.to_owned(), attempt: None, nodes: Some((0, nodes)) }
}

/// Returns a `Run` whose scripts may leave lingering processes, and a later SIGKILL by an operator, at times to another
/// job. In most cases the action is `sweep`, whose leftovers perilog itself kills. `span`: index of the plan's time
/// span, whose jobs the steps use.
fn lingering(dice: &mut Rng, nodes: usize, span: usize, at_ms: u64) -> Vec<Step> {
    let action = ["sweep", "sweep", "sweep", "prolog"][dice.below(4)];
    let run = run_on(dice, nodes, span, action);
    let kill = Op::Signal { to: 0, job: job_of(dice, span) as u8, signal: 9 };
    vec![Step { at_ms, what: What::Do(run) }, Step { at_ms: at_ms + dice.skewed(1_000, 30_000), what: What::Do(kill) }]
}

/// Returns a `Run`, and its cancel at most two seconds later: often between the agent's intent and the runner's claim.
/// There the claim decides whether the task begins. `span`: index of the plan's time span, whose jobs the steps use.
fn cancelled_early(dice: &mut Rng, nodes: usize, span: usize, at_ms: u64) -> Vec<Step> {
    let run = run_on(dice, nodes, span, "prolog");
    let Op::Run { job, .. } = run else { return Vec::new() };
    let cancel = Op::Cancel { to: 0, job, action: None };
    vec![Step { at_ms, what: What::Do(run) }, Step { at_ms: at_ms + dice.skewed(1, 2_000), what: What::Do(cancel) }]
}

fn signalled(dice: &mut Rng, nodes: usize, span: usize, at_ms: u64) -> Vec<Step> {
    let run = run_on(dice, nodes, span, "unlimited");
    let Op::Run { job, .. } = run else { return Vec::new() };
    let mut steps = vec![Step { at_ms, what: What::Do(run) }];
    for _ in 0..3 {
        let signal = [1, 9, 10, 12, 15, 10][dice.below(6)];
        let what = What::Do(Op::Signal { to: 0, job, signal });
        steps.push(Step { at_ms: at_ms + dice.range(500, 15_000), what });
    }
    steps
}

fn asked(dice: &mut Rng, nodes: usize, span: usize, at_ms: u64) -> Vec<Step> {
    let run = run_on(dice, nodes, span, "unlimited");
    let ask = |ms| Step { at_ms: at_ms + ms, what: What::Do(Op::Ask { to: 0, job: None }) };
    vec![Step { at_ms, what: What::Do(run) }, ask(dice.range(0, 2_000)), ask(dice.range(0, 20_000))]
}

fn with_status_queries(dice: &mut Rng, nodes: usize, span: usize, at_ms: u64) -> Vec<Step> {
    let run = run_on(dice, nodes, span, "prolog");
    let mut steps = vec![Step { at_ms, what: What::Do(run) }];
    steps.extend((0..nodes).map(|node| {
        let at_ms = at_ms + dice.skewed(1, 20_000);
        Step { at_ms, what: What::Do(Op::Status { node }) }
    }));
    steps
}

fn cloned(dice: &mut Rng, nodes: usize, _: usize, at_ms: u64) -> Vec<Step> {
    let what = What::Fault(Fault::Clone { node: dice.below(nodes), ms: dice.range(1_000, 60_000) });
    vec![Step { at_ms, what }]
}

/// Returns a step after which a rebooted node may say Hello while the session of its earlier boot is still open.
fn rebooted(dice: &mut Rng, nodes: usize, _: usize, at_ms: u64) -> Vec<Step> {
    let what = What::Fault(Fault::PowerFail { node: dice.below(nodes), down_ms: dice.skewed(100, 15_000) });
    vec![Step { at_ms, what }]
}

/// Returns a `Run` whose scripts may announce a reboot of their node. In some cases the steps also cut the power of a
/// drained node, or cancel or resolve the tasks. `span`: index of the plan's time span, whose jobs the steps use.
fn firmware(dice: &mut Rng, nodes: usize, span: usize, at_ms: u64) -> Vec<Step> {
    let action = ["firmware", "firmware", "prolog"][dice.below(3)];
    let run = run_on(dice, nodes, span, action);
    let Op::Run { job, .. } = run else { return Vec::new() };
    let step = |at_ms, op| Step { at_ms, what: What::Do(op) };
    let mut steps = vec![step(at_ms, run)];
    if dice.one_in(3) {
        let (node, down_ms) = (dice.below(nodes), dice.skewed(100, 10_000));
        steps.push(step(at_ms, Op::Configure { settings: 3 }));
        steps.push(step(at_ms + dice.skewed(1, 40_000), Op::Drain { to: 0, node }));
        let fails_at = at_ms + dice.range(40_000, 60_000);
        steps.push(Step { at_ms: fails_at, what: What::Fault(Fault::PowerFail { node, down_ms }) });
    }
    match dice.below(6) {
        0 => steps.push(step(at_ms + dice.skewed(1, 30_000), Op::Cancel { to: 0, job, action: None })),
        1 => steps.push(step(at_ms + dice.skewed(1, 60_000), Op::Resolve { to: 0, job, ok: dice.one_in(2) })),
        _ => {}
    }
    steps
}

/// Returns a `Run` between the times `from` and `to`, at times with a `Cancel` soon after. Only this function uses the
/// numbers of these jobs, because an attempt that the controller prunes early must not return.
pub(super) fn pruned_early(dice: &mut Rng, nodes: usize, (from, to): (u64, u64)) -> Vec<Step> {
    let job = dice.range((JOBS * SPANS) as u64, (JOBS * SPANS + JOBS) as u64) as u8;
    let action = ["prolog", "sweep", "mount"][dice.below(3)].to_owned();
    let at_ms = dice.range(from, to);
    let run = Op::Run { to: 0, job, action, attempt: None, nodes: Some((0, nodes)) };
    let mut steps = vec![Step { at_ms, what: What::Do(run) }];
    if dice.one_in(3) {
        let cancel = Op::Cancel { to: 0, job, action: None };
        steps.push(Step { at_ms: at_ms + dice.skewed(1, 10_000), what: What::Do(cancel) });
    }
    steps
}

/// Returns a `Run`, and a fault that removes the directories of a node's tasks ([`Fault::RemoveSpool`]). The agent
/// notices the loss at its next start, or at the end of the task. `span`: index of the plan's time span, whose jobs the
/// steps use.
fn cleared(dice: &mut Rng, nodes: usize, span: usize, at_ms: u64) -> Vec<Step> {
    let action = ["prolog", "sweep", "unlimited", "epilog"][dice.below(4)];
    let run = run_on(dice, nodes, span, action);
    let node = dice.below(nodes);
    let lost_at = at_ms + dice.skewed(1, 20_000);
    let mut steps = vec![
        Step { at_ms, what: What::Do(run) },
        Step { at_ms: lost_at, what: What::Fault(Fault::RemoveSpool { node }) },
    ];
    if dice.one_in(4) {
        // The unit that remains is an orphan.
        let taken = Fault::TakeName { node, ms: dice.skewed(1, 60_000) };
        steps.push(Step { at_ms: at_ms + dice.range(5, 60), what: What::Fault(taken) });
    }
    if dice.one_in(2) {
        let kill = Fault::KillAgent { node, down_ms: dice.skewed(1, 10_000) };
        steps.push(Step { at_ms: lost_at + dice.skewed(0, 5_000), what: What::Fault(kill) });
    }
    steps
}

/// Returns steps in which all sessions break while Starts are on their way, so the cancel that follows may find no task
/// on a node. The controller then restarts on an older backup, and starts the task once more in the same boot. `span`:
/// index of the plan's time span, whose jobs the steps use.
fn cancelled_unknown(dice: &mut Rng, nodes: usize, span: usize, at_ms: u64) -> Vec<Step> {
    let run = run_on(dice, nodes, span, "prolog");
    let Op::Run { job, .. } = run else { return Vec::new() };
    let lost_at = at_ms + dice.range(2, 40);
    let asked_at = lost_at + dice.range(1, 300);
    let restored_at = asked_at + dice.range(1_500, 12_000);
    let mut steps = vec![
        Step { at_ms, what: What::Do(run) },
        Step { at_ms: asked_at - 1, what: What::Do(Op::Backup) },
        Step { at_ms: asked_at, what: What::Do(Op::Cancel { to: 0, job, action: None }) },
        Step { at_ms: restored_at, what: What::Fault(Fault::Restore { empty: false }) },
        Step { at_ms: restored_at + dice.range(30_000, 90_000), what: What::Do(Op::TakeOver { to: 0 }) },
    ];
    let drop = |node| What::Fault(Fault::Drop { node, side: Side::Both });
    steps.extend((0..nodes).map(|node| Step { at_ms: lost_at, what: drop(node) }));
    steps
}

/// Returns a `Run`, and its cancel while systemd starts the tasks' units. Each agent dies just before the cancel, so
/// its next process may get the Cancel of a task without a claim. Traps may also delay the start ([`late`]), or kill
/// the controller before it acknowledges the end. PID 1 then starts the unit when the task has its outcome and no
/// tombstone yet. `span`: index of the plan's time span, whose jobs the steps use.
fn cancelled_in_flight(dice: &mut Rng, nodes: usize, span: usize, at_ms: u64) -> Vec<Step> {
    let run = run_on(dice, nodes, span, "prolog");
    let Op::Run { job, .. } = run else { return Vec::new() };
    let asked_at = at_ms + dice.range(100, 400);
    let kill = |node, down_ms| What::Fault(Fault::KillAgent { node, down_ms });
    let mut steps = vec![
        Step { at_ms, what: What::Do(run) },
        Step { at_ms: asked_at, what: What::Do(Op::Cancel { to: 0, job, action: None }) },
    ];
    steps.extend((0..nodes).map(|node| Step { at_ms: asked_at - 1, what: kill(node, dice.range(1, 300)) }));
    steps
}

/// Returns a trap, a planned fault, that delays one of a node's first three calls to start a unit.
pub(super) fn late(dice: &mut Rng, nodes: usize) -> Trap {
    let spring = Spring::Late { ms: dice.range(500, 15_000) };
    Trap { node: Some(dice.below(nodes)), effect: "start-unit".to_owned(), nth: dice.range(0, 2) as u32, spring }
}

/// Returns a `Run`, after which an operator twice lifts the drains of all nodes, in perilog or in the resource manager
/// alone. Overdue scripts of the run may still be alive then. The controller dies soon after each lift. `span`: index
/// of the plan's time span, whose jobs the steps use.
fn lifted(dice: &mut Rng, nodes: usize, span: usize, at_ms: u64) -> Vec<Step> {
    let action = ["prolog", "mount", "epilog"][dice.below(3)];
    let mut steps = vec![Step { at_ms, what: What::Do(run_on(dice, nodes, span, action)) }];
    let outside = dice.one_in(3);
    // The controller may have pruned the jobs of the span that ends with an hour: these jobs do not return.
    let more = outside && span != 1;
    let lift = |node| if outside { Op::LiftOutside { node } } else { Op::Undrain { to: 0, node } };
    for _ in 0..2 {
        let lifted_at = at_ms + dice.range(31_000, 100_000);
        steps.extend((0..nodes).map(|node| Step { at_ms: lifted_at, what: What::Do(lift(node)) }));
        if more {
            steps.push(Step {
                at_ms: lifted_at + dice.skewed(1, 5_000),
                what: What::Do(run_on(dice, nodes, span, action)),
            });
        }
        let kill = Fault::KillController { which: 0, down_ms: dice.skewed(1, 5_000) };
        steps.push(Step { at_ms: lifted_at + dice.skewed(1, 10_000), what: What::Fault(kill) });
    }
    steps
}

/// Returns steps in which a job drops its ranks one by one. Meanwhile the controller restarts on an empty store or on
/// an old backup, and the resource manager may add the job again. `span`: index of the plan's time span, whose jobs the
/// steps use.
fn grown(dice: &mut Rng, nodes: usize, span: usize, at_ms: u64) -> Vec<Step> {
    let (job, rabbits) = (job_of(dice, span) as u8, dice.one_in(2));
    let nodes_of_all = (0, nodes);
    let add = || {
        let (attempt, keep) = (None, None);
        let (tolerate, percent) = (0, false);
        Op::AddJob { to: 0, job, attempt, nodes: nodes_of_all, tolerate, percent, keep, shrink: false, rabbits }
    };
    let mut steps = vec![Step { at_ms, what: What::Do(add()) }];
    let finish = |at_ms, ranks| Step { at_ms, what: What::Do(Op::Finish { to: 0, job, ranks }) };
    let mut t = at_ms;
    for rank in 0..nodes as u32 {
        t += dice.skewed(1, 4_000);
        steps.push(finish(t, Some((rank, 1))));
    }
    let lost_at = at_ms + dice.range(1, 20_000);
    steps.push(Step { at_ms: lost_at, what: What::Fault(Fault::Restore { empty: dice.below(4) > 0 }) });
    if dice.one_in(2) {
        // The nodes have accepted the lost controller.
        let accepted_at = lost_at + dice.skewed(100, 10_000);
        steps.push(Step { at_ms: accepted_at, what: What::Do(Op::TakeOver { to: 0 }) });
    }
    if dice.one_in(2) {
        let added_at = lost_at + dice.skewed(1, 30_000);
        steps.push(Step { at_ms: added_at, what: What::Do(add()) });
    }
    steps.push(finish(lost_at + dice.range(20_000, 60_000), None));
    steps
}

/// Returns steps that run two checks for one job, each of which fails on some nodes. The first check uses up the job's
/// tolerance. `span`: index of the plan's time span, whose jobs the steps use.
fn spent(dice: &mut Rng, nodes: usize, span: usize, at_ms: u64) -> Vec<Step> {
    // A separate job: no other step comes between the two checks.
    let job = (OWN_JOBS + span * SPENT + dice.below(SPENT)) as u8;
    let (attempt, (tolerate, percent), keep, rabbits) = (None, tolerance(dice, 1, 2), None, false);
    // Few ranks: checks on many ranks have more findings than the job tolerates.
    let count = dice.range(2, 4) as usize;
    let of = (0, count.min(nodes));
    let add = Op::AddJob { to: 0, job, attempt, nodes: of, tolerate, percent, keep, shrink: dice.one_in(3), rabbits };
    let mut steps = vec![Step { at_ms, what: What::Do(add) }];
    for (nth, action) in (1..).zip(site::CHECKS) {
        let run = Op::Run { to: 0, job, action: action.to_owned(), attempt, nodes: None };
        steps.push(Step { at_ms: at_ms + nth * dice.skewed(20, 5_000), what: What::Do(run) });
    }
    steps
}

/// Returns steps in which the resource manager's jobs end, and other jobs get their hosts. A fault then restores an
/// earlier state of the store, of the controller's host, or of the resource manager.
fn remembered(dice: &mut Rng, nodes: usize, _: usize, at_ms: u64) -> Vec<Step> {
    let step = |at_ms, op| Step { at_ms, what: What::Do(op) };
    let launch = |dice: &mut Rng, job: u8| Op::Launch {
        job: site::LAUNCHED + job,
        count: dice.range(1, nodes as u64) as usize,
        ms: dice.skewed(1, 10_000),
    };
    let mut steps = vec![step(at_ms, launch(dice, 0)), step(at_ms + dice.skewed(1, 3_000), launch(dice, 1))];
    let copied_at = at_ms + dice.skewed(1, 30_000);
    let ms = dice.range(3_000, 60_000);
    let fault = match dice.below(6) {
        0..=1 => Fault::CopyRestored { raw: dice.one_in(2), ms },
        2 => Fault::DirectoryRolledBack { ms },
        3 => Fault::MemoryRolledBack { ms },
        4 => Fault::SchedulerRolledBack { ms },
        _ => Fault::CopyRestored { raw: true, ms },
    };
    steps.push(Step { at_ms: copied_at, what: What::Fault(fault) });
    // These jobs belong to the epoch that the fault loses.
    for job in 2..4 {
        steps.push(step(copied_at + dice.range(0, ms), launch(dice, job)));
    }
    if dice.one_in(2) {
        let node = dice.below(nodes);
        let fault = match dice.below(3) {
            0 => Fault::PowerFail { node, down_ms: dice.skewed(100, 30_000) },
            1 => Fault::Partition { node, ms: dice.skewed(1_000, 60_000) },
            _ => Fault::KillAgent { node, down_ms: dice.skewed(1, 30_000) },
        };
        steps.push(Step { at_ms: copied_at + dice.range(0, ms + 10_000), what: What::Fault(fault) });
    }
    let job = dice.range(0, 3) as u8;
    steps.push(step(copied_at + ms + dice.skewed(1, 60_000), launch(dice, job)));
    steps
}

/// Returns the steps of [`remembered`], which include a rollback, and a fault that cuts off or suspends a node about
/// that time, for one to five minutes. The node may keep tasks of the lost epoch. `span`: index of the plan's time
/// span, whose jobs the steps use.
fn away_over_a_recovery(dice: &mut Rng, nodes: usize, span: usize, at_ms: u64) -> Vec<Step> {
    let mut steps = remembered(dice, nodes, span, at_ms);
    let (node, ms) = (dice.below(nodes), dice.range(60_000, 300_000));
    let away_at = at_ms + dice.skewed(500, 60_000);
    let fault = if dice.one_in(4) { Fault::Suspend { node, ms } } else { Fault::Partition { node, ms } };
    steps.push(Step { at_ms: away_at, what: What::Fault(fault) });
    steps
}
