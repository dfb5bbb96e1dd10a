//! The site of every world: names, the nodes' configuration, the controller's settings, and the behaviour of scripts.

use std::collections::{BTreeMap, BTreeSet};

use perilog_core::agent::Policy;
use perilog_core::controller::Settings;
use perilog_core::controller::io::{ReleasePolicy, Source};
use perilog_core::task::{Lingering, NO_CLAIM, NO_TASK, NOT_OURS, OnError, OnTimeout, Plan, Report, Retries, Run};
use perilog_core::{
    ActionName, Attempt, BootId, BootRecord, ClusterId, ExitStatus, HostList, HostName, InvocationId, JobId, MachineId,
    MilestoneName, ResourceName, ResourceSet, TaskId,
};

use crate::rng::Rng;

/// Panic text: every name below is made of characters that every id accepts.
const FITS: &str = "made of characters that fit";

pub(crate) fn cluster() -> ClusterId {
    ClusterId::from_name("sim")
}

pub(crate) fn host(index: usize) -> HostName {
    HostName::new(&format!("n{index}")).expect(FITS)
}

pub(crate) fn machine(index: usize) -> MachineId {
    MachineId::new(&format!("machine{index}")).expect(FITS)
}

/// Returns the kernel's boot id of this power-on of a machine.
pub(crate) fn kernel(machine: usize, power_on: u64) -> String {
    format!("boot-{machine}-{power_on}")
}

pub(crate) fn boot_id(record: &BootRecord, soft: u32) -> BootId {
    record.boot_id(soft).expect(FITS)
}

pub(crate) fn job(number: u8) -> JobId {
    JobId::new(&format!("j{number}")).expect(FITS)
}

pub(crate) fn attempt(number: u64) -> Attempt {
    Attempt::from_number(number)
}

pub(crate) fn action(name: &str) -> ActionName {
    ActionName::new(name).unwrap_or_else(|_| ActionName::new("prolog").expect(FITS))
}

/// Returns the milestone that scripts and operators report.
pub(crate) fn milestone() -> MilestoneName {
    MilestoneName::new("data-out").expect(FITS)
}

pub(crate) fn invocation(number: u64) -> InvocationId {
    InvocationId::new(&format!("{number:032x}")).expect(FITS)
}

/// Jobs with this number or a higher one belong to the resource manager, which chooses their hosts.
pub(crate) const LAUNCHED: u8 = 200;

pub(crate) fn is_launched(job: &JobId) -> bool {
    job.as_str().get(1..).and_then(|number| number.parse().ok()).is_some_and(|number: u8| number >= LAUNCHED)
}

/// Returns `true` if the job gets an R: jobs with odd numbers do.
pub(crate) fn has_r(job: &JobId) -> bool {
    job.as_str().ends_with(['1', '3', '5', '7', '9'])
}

/// Returns the source as which the resource manager's edge presents itself to the controller.
pub(crate) fn source() -> Source {
    Source { name: "flux".to_owned(), instance: "sim".to_owned() }
}

/// Returns the variables that each request offers to a job's scripts; some jobs offer none. [`policy`] lists the
/// variables that nodes accept.
pub(crate) fn offered(job: &JobId) -> BTreeMap<String, String> {
    if job.as_str().ends_with(['2', '5', '8']) {
        return BTreeMap::new();
    }
    let offered = [
        ("FLUX_JOB_ID", job.as_str()),
        ("SITE_TIER", "gold"),
        ("FLUX_CONNECTOR_PATH", "/tmp/x"),
        ("FLUX_JOB_ID_LIST", "1,2"),
        ("PERILOG_JOB", "another"),
    ];
    offered.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

/// Returns the named resources that jobs may hold.
pub(crate) fn rabbits() -> BTreeSet<ResourceName> {
    ["rabbit1", "rabbit2"].into_iter().map(|name| ResourceName::new(name).expect(FITS)).collect()
}

/// Name of the external action that the simulated services carry out.
pub(crate) const SERVED: &str = "stage";

/// Actions whose scripts check their node, and report what they find wrong (`perilog-report tolerable`).
pub(crate) const CHECKS: [&str; 2] = ["fabric", "memory"];

/// Actions that settings make after-actions: `epilog` under all settings, `sweep` under some.
pub(crate) const FOLLOWING: [&str; 2] = ["epilog", "sweep"];

/// Bit in the number of [`settings`]: the controller prunes ended attempts at its next look, long before their tasks
/// are past their not-after.
pub(crate) const FORGETFUL: u8 = 8;

/// Returns the controller's settings with this number; a number may also include [`FORGETFUL`].
///
/// * 0: a usual site.
/// * 1: short times, and no limits of the controller.
/// * 2: with hooks, and a release of each rank as soon as it has ended.
/// * 3: with hooks, releases in batches, `sweep` as a second after-action, forgiven losses, and reboots that clean up.
pub(crate) fn settings(number: u8) -> Settings {
    let usual = usual_settings();
    if number >= FORGETFUL {
        return Settings {
            not_after_ms: 600_000,
            retention_ms: 1_000,
            keep_attempts: 1,
            ..settings(number - FORGETFUL)
        };
    }
    match number {
        0 => usual,
        2 => Settings {
            release: [(action("epilog"), ReleasePolicy::Each), (action(SERVED), ReleasePolicy::Each)].into(),
            drain_hook: true,
            release_hook: true,
            ..usual
        },
        3 => Settings {
            after: vec![action("epilog"), action("sweep")],
            release: ["epilog", "sweep", SERVED]
                .into_iter()
                .map(|name| (action(name), ReleasePolicy::Batches { first_ms: 2_000, ceiling_ms: 20_000 }))
                .collect(),
            tolerate_lost: true,
            tolerate_timeout: false,
            reboot_cleans: true,
            drain_hook: true,
            release_hook: true,
            ..usual
        },
        _ => Settings {
            start_grace_ms: 6_000,
            unreachable_grace_ms: 10_000,
            not_after_ms: 20_000,
            probe_ms: 500,
            timeouts: BTreeMap::new(),
            ..usual
        },
    }
}

fn usual_settings() -> Settings {
    let limited = ["prolog", "epilog", "sweep", "mount", "firmware"];
    Settings {
        cluster: cluster(),
        start_grace_ms: 20_000,
        unreachable_grace_ms: 40_000,
        not_after_ms: 60_000,
        probe_ms: 2_000,
        redial_per_second: 2_000,
        timeouts: limited.into_iter().map(|name| (action(name), 40_000)).collect(),
        retention_ms: 1_800_000,
        keep_attempts: 100,
        after: vec![action("epilog")],
        keep_after: action("prolog"),
        release: BTreeMap::new(),
        tolerate_lost: false,
        tolerate_timeout: false,
        reboot_cleans: false,
        drain_hook: false,
        release_hook: false,
    }
}

/// Returns the agent's configuration with this number. `exclusive`: all tasks of the host run one at a time.
///
/// * 0: a usual site.
/// * 1: one action less, other variables, lingering processes killed, no failed units kept for a post-mortem.
/// * 2: little room for tasks, tombstones and failed units.
pub(crate) fn policy(exclusive: bool, number: u8) -> Policy {
    let mut policy = usual_policy(exclusive);
    match number {
        0 => {}
        1 => {
            policy.actions.remove(&action("unlimited"));
            policy.actions.values_mut().for_each(|plan| plan.lingering = Lingering::Kill);
            policy.env_allow = vec!["SITE_TIER".to_owned()];
            policy.keep_failed = 0;
        }
        _ => (policy.max_tasks, policy.max_tombstones, policy.keep_failed) = (2, 3, 1),
    }
    policy
}

fn usual_policy(exclusive: bool) -> Policy {
    let run = || Run::Directories(vec!["/etc/perilog/scripts".to_owned()]);
    let plan = |timeout_ms| Plan { run: run(), timeout_ms, ..Plan::default() };
    let actions = [
        ("prolog", plan(Some(30_000))),
        ("epilog", Plan { on_timeout: OnTimeout::Kill, ..plan(Some(30_000)) }),
        ("sweep", Plan { lingering: Lingering::Kill, on_error: OnError::Stop, ..plan(Some(20_000)) }),
        ("mount", Plan { lingering: Lingering::Keep, retries: RETRIES, ..plan(Some(30_000)) }),
        ("unlimited", plan(None)),
        ("firmware", plan(Some(30_000))),
        (CHECKS[0], plan(Some(30_000))),
        (CHECKS[1], plan(Some(30_000))),
    ];
    Policy {
        actions: actions.into_iter().map(|(name, plan)| (action(name), plan)).collect(),
        // The last name has no effect: a requester cannot set perilog's own variables.
        env_allow: vec!["FLUX_JOB_ID".to_owned(), "PERILOG_JOB".to_owned()],
        serialize_host: exclusive,
        keep_failed: 2,
        max_tombstones: 64,
        max_tasks: 12,
    }
}

/// Retries of the action `mount`, whose scripts are flaky.
const RETRIES: Retries = Retries { count: 2, backoff_ms: 500, ceiling_ms: 2_000 };

/// Returns how often a script of this action may begin in one run: the first try, and the retries that every node's
/// configuration allows.
pub(crate) fn tries(action: &ActionName) -> u32 {
    if action.as_str() == "mount" { 1 + RETRIES.count } else { 1 }
}

/// Behaviour of a task's scripts. It depends only on seed and task, so a fault never changes the behaviour.
#[derive(Debug, Clone)]
pub(crate) struct Behaviour {
    pub(crate) scripts: Vec<Script>,
    /// Durations (ms) of the processes that outlive the scripts.
    pub(crate) leftovers: Vec<u64>,
    pub(crate) boot: Option<Announced>,
}

/// The announcement of a script that its node will reboot, and the reboot itself, if one follows.
#[derive(Debug, Clone)]
pub(crate) struct Announced {
    /// The index of the announcing script.
    pub(crate) script: usize,
    pub(crate) reboots: Reboots,
    /// The time (ms) from the reboot request to the end of all processes.
    pub(crate) goes_ms: u64,
    /// The time (ms) from the end of all processes to the next boot.
    pub(crate) down_ms: u64,
    pub(crate) soft: bool,
}

#[derive(Debug, Clone)]
pub(crate) enum Reboots {
    /// The script waits for the controller's confirmation, and then reboots the node.
    WhenKnown {
        after_ms: u64,
    },
    /// The script reboots the node without waiting for the controller.
    Rashly {
        after_ms: u64,
    },
    Never,
}

#[derive(Debug, Clone)]
pub(crate) struct Script {
    pub(crate) ms: u64,
    pub(crate) status: ExitStatus,
    /// The exit status of every try after the first.
    pub(crate) again: ExitStatus,
    /// Whether the script survives TERM and other signals, except KILL.
    pub(crate) traps_term: bool,
    pub(crate) reports: Vec<Report>,
}

pub(crate) fn behaviour(seed: u64, task: &TaskId, action: &ActionName) -> Behaviour {
    let mut dice = Rng::named(seed, &task.to_string());
    if CHECKS.contains(&action.as_str()) {
        return check(&mut dice);
    }
    let mut scripts: Vec<Script> = (0..[1, 1, 1, 2, 3, 0][dice.below(6)]).map(|_| script(&mut dice)).collect();
    let leaves = if action.as_str() == "sweep" { dice.one_in(2) } else { dice.one_in(6) };
    let leftovers = if leaves { vec![dice.skewed(1, 90_000); dice.range(1, 2) as usize] } else { Vec::new() };
    let boot = announced(seed, task, action, &scripts);
    if let Some(boot) = &boot
        && !matches!(boot.reboots, Reboots::Never)
        && let Some(script) = scripts.get_mut(boot.script)
    {
        // The script only waits for the reboot.
        script.ms = 120_000;
    }
    Behaviour { scripts, leftovers, boot }
}

/// Returns the behaviour of a check: its script succeeds, and in half of the cases reports a failed check
/// (`perilog-report tolerable`).
fn check(dice: &mut Rng) -> Behaviour {
    let (ms, status) = (dice.skewed(1, 5_000), ExitStatus::Exit(0));
    let found = Report::Tolerable { check: "link".to_owned(), message: "slow".to_owned() };
    let reports = dice.one_in(2).then_some(found).into_iter().collect();
    let script = Script { ms, status, again: status, traps_term: false, reports };
    Behaviour { scripts: vec![script], leftovers: Vec::new(), boot: None }
}

/// Returns the reboot that one of the task's scripts announces; `None`: no script announces one. The function has a
/// random stream of its own, so that the rest of the behaviour in kept plans stays as it was.
fn announced(seed: u64, task: &TaskId, action: &ActionName, scripts: &[Script]) -> Option<Announced> {
    let mut dice = Rng::named(seed, &format!("boot {task}"));
    let announces = match action.as_str() {
        "firmware" => dice.below(4) > 0,
        "prolog" => dice.one_in(16),
        _ => false,
    };
    if !announces || scripts.is_empty() {
        return None;
    }
    let reboots = match dice.below(8) {
        0..=4 => Reboots::WhenKnown { after_ms: dice.skewed(1, 3_000) },
        5..=6 => Reboots::Rashly { after_ms: dice.skewed(1, 8_000) },
        _ => Reboots::Never,
    };
    let down_ms = if dice.one_in(6) { dice.range(60_000, 120_000) } else { dice.skewed(200, 20_000) };
    let (script, goes_ms, soft) = (dice.below(scripts.len()), dice.skewed(0, 2_000), dice.one_in(4));
    Some(Announced { script, reboots, goes_ms, down_ms, soft })
}

fn script(dice: &mut Rng) -> Script {
    let ms = match dice.below(8) {
        0 => 0,
        1 => dice.range(20_000, 90_000),
        _ => dice.skewed(1, 20_000),
    };
    let status = match dice.below(10) {
        // Some exit statuses mean that the runner ran no script.
        0 => ExitStatus::Exit(match dice.range(1, 255) as u8 {
            201..219 => NO_TASK,
            219..237 => NO_CLAIM,
            237.. => NOT_OURS,
            status => status,
        }),
        1 => ExitStatus::Signal([9, 11, 6][dice.below(3)]),
        2 => ExitStatus::Exit(1),
        _ => ExitStatus::Exit(0),
    };
    let mut reports = Vec::new();
    if dice.one_in(6) {
        reports.push(Report::Tolerable { check: "lustre".to_owned(), message: "mount missing".to_owned() });
    }
    if dice.one_in(6) {
        reports.push(Report::Milestone { name: "data-out".to_owned() });
    }
    if dice.one_in(8) {
        reports.push(Report::Progress { message: "half".to_owned() });
    }
    let again = if dice.one_in(2) { ExitStatus::Exit(0) } else { status };
    Script { ms, status, again, traps_term: dice.one_in(5), reports }
}

/// Returns an R of these hosts, rank by rank: even ranks have more cores than odd ranks. `None`: no valid R has these
/// hosts.
pub(crate) fn resources(hosts: &HostList) -> Option<ResourceSet> {
    let lite = |rank: u64| {
        let cores = if rank.is_multiple_of(2) { "0-3" } else { "0-1" };
        serde_json::json!({"rank": rank.to_string(), "children": {"core": cores}})
    };
    let lite: Vec<_> = (0..hosts.len() as u64).map(lite).collect();
    let execution =
        serde_json::json!({"R_lite": lite, "nodelist": [hosts.to_string()], "starttime": 0, "expiration": 0});
    ResourceSet::from_json(&serde_json::json!({"version": 1, "execution": execution}).to_string()).ok()
}
