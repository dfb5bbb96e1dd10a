//! Values for the tests of the agent's machine: ids, intents, units, inspections, inputs.

use std::collections::{BTreeMap, BTreeSet};

use crate::agent::io::{Exec, Found, Input, Node, Policy, Seen, StartReply, UnitIds};
use crate::hostlist::HostList;
use crate::ids::*;
use crate::idset::IdSet;
use crate::mark::AcceptedEpoch;
use crate::message::ToAgent;
use crate::outcome::ExitStatus;
use crate::task::*;

pub(crate) const BOOT: &str = "boot-1";

pub(crate) fn cluster() -> ClusterId {
    ClusterId::from_name("test")
}

pub(crate) fn job(name: &str) -> JobId {
    JobId::new(name).unwrap()
}

pub(crate) fn action(name: &str) -> ActionName {
    ActionName::new(name).unwrap()
}

pub(crate) fn task_of(cluster: ClusterId, j: &str, attempt: u64, a: &str, rank: u32) -> TaskId {
    let action = ActionId::of(cluster, &job(j), Attempt::from_number(attempt), &action(a));
    TaskId { action, rank: Rank(rank) }
}

/// Returns the id of a task that a controller ordered.
pub(crate) fn task(j: &str, attempt: u64, a: &str, rank: u32) -> TaskId {
    task_of(cluster(), j, attempt, a, rank)
}

/// Returns the id of a local task (`Exec`).
pub(crate) fn local(j: &str, attempt: u64, a: &str, rank: u32) -> TaskId {
    task_of(ClusterId::LOCAL, j, attempt, a, rank)
}

pub(crate) fn invocation(n: u8) -> InvocationId {
    InvocationId::new(&format!("{n:032x}")).unwrap()
}

pub(crate) fn plan() -> Plan {
    let run = Run::Directories(vec!["/etc/perilog/prolog.d".to_owned()]);
    Plan { run, timeout_ms: Some(60_000), nofile: 65_536, ..Plan::default() }
}

/// Returns the node that the tests use. Its actions `prolog` and `epilog` hold lingering processes, `sweep` kills them,
/// `mount` keeps them.
pub(crate) fn node() -> Node {
    let lingering = |lingering| Plan { lingering, ..plan() };
    let actions = [
        ("prolog", plan()),
        ("epilog", plan()),
        ("sweep", lingering(Lingering::Kill)),
        ("mount", lingering(Lingering::Keep)),
    ];
    Node {
        host: HostName::new("n0").unwrap(),
        machine: MachineId::new("m0").unwrap(),
        boot: BootId::new(BOOT).unwrap(),
        version: "0.1.0".to_owned(),
        policy: Policy {
            actions: actions.into_iter().map(|(name, plan)| (action(name), plan)).collect(),
            env_allow: vec!["FLUX_JOB_ID".to_owned()],
            serialize_host: false,
            keep_failed: 2,
            max_tombstones: 20,
            max_tasks: 10,
        },
    }
}

pub(crate) fn start(j: &str, attempt: u64, a: &str, rank: u32) -> Start {
    let mut ranks = IdSet::new();
    ranks.insert(rank);
    Start {
        milestones: BTreeSet::new(),
        task: task(j, attempt, a, rank),
        job: job(j),
        attempt: Attempt::from_number(attempt),
        action: action(a),
        boot: BootId::new(BOOT).unwrap(),
        not_after_ms: 10_000,
        ranks,
        hosts: HostList::from_names(["n0"]).unwrap(),
        userid: Some(1000),
        env: BTreeMap::new(),
        timeout_ms: None,
        after: false,
        commit: 0,
    }
}

/// Returns the intent that the machine makes of [`start`] at boot time 0.
pub(crate) fn intent(j: &str, attempt: u64, a: &str, rank: u32) -> Intent {
    Intent {
        start: start(j, attempt, a, rank),
        plan: node().policy.actions.get(&action(a)).cloned().unwrap_or_else(plan),
        env: BTreeMap::new(),
        dropped_env: 0,
        not_after_boottime_ms: 10_000,
        accepted_boottime_ms: 0,
        local: false,
        commit: None,
        hook: Hook::default(),
    }
}

pub(crate) fn local_intent(j: &str, attempt: u64, a: &str, rank: u32) -> Intent {
    let mut intent = intent(j, attempt, a, rank);
    intent.start.task = local(j, attempt, a, rank);
    intent.local = true;
    intent
}

pub(crate) fn stem_of(intent: &Intent) -> String {
    stem(&intent.start.action, &intent.start.job, intent.start.task)
}

pub(crate) fn exec(j: &str, attempt: u64, a: &str, rank: u32) -> Exec {
    Exec {
        job: job(j),
        attempt: Attempt::from_number(attempt),
        action: action(a),
        rank: Rank(rank),
        userid: None,
        env: BTreeMap::new(),
        timeout_ms: None,
        plan: None,
        hook: Hook::default(),
        daemon_died: false,
    }
}

pub(crate) fn unit_ids(intent: &Intent) -> UnitIds {
    let start = &intent.start;
    UnitIds { task: start.task, job: start.job.clone(), attempt: start.attempt, action: start.action.clone() }
}

/// Returns the facts of a loaded unit whose main process runs; `n` numbers its invocation.
pub(crate) fn running(n: u8) -> UnitFacts {
    UnitFacts {
        loaded: true,
        job_pending: true,
        active: "activating".to_owned(),
        sub: "start".to_owned(),
        result: "success".to_owned(),
        main_pid: 100,
        invocation: Some(invocation(n)),
        cgroup: Some("/perilog.slice/x".to_owned()),
        ..UnitFacts::default()
    }
}

/// Returns the facts of a loaded unit whose main process exited with `code`; `n` numbers its invocation.
pub(crate) fn exited(n: u8, code: u8) -> UnitFacts {
    let (active, result) = if code == 0 { ("active", "success") } else { ("failed", "exit-code") };
    UnitFacts {
        loaded: true,
        active: active.to_owned(),
        result: result.to_owned(),
        main_code: 1,
        main_status: i32::from(code),
        invocation: Some(invocation(n)),
        cgroup: Some("/perilog.slice/x".to_owned()),
        ..UnitFacts::default()
    }
}

pub(crate) fn result(n: u8, status: u8) -> RunResult {
    RunResult {
        invocation: invocation(n),
        began_ms: 1,
        ended_ms: 2,
        elapsed_ms: 1,
        ran: 1,
        of: 1,
        status,
        worst: (status != 0).then_some(ExitStatus::Exit(status)),
        timed_out: false,
        cancelled: false,
        configuration: None,
        exec: None,
        skipped: Vec::new(),
    }
}

pub(crate) fn claim(n: u8) -> Claim {
    Claim::Runner(invocation(n))
}

/// Returns the inspection of a running, claimed unit with perilog's ids; `n` numbers the unit's invocation.
pub(crate) fn seen_running(intent: &Intent, n: u8) -> Seen {
    Seen { unit: Some(running(n)), unit_ids: Some(unit_ids(intent)), claim: Some(claim(n)), ..Seen::default() }
}

/// Returns the inspection of a unit with perilog's ids whose runner exited with `code` and wrote its result; `n`
/// numbers the unit's invocation.
pub(crate) fn seen_exited(intent: &Intent, n: u8, code: u8) -> Seen {
    Seen { unit: Some(exited(n, code)), result: Some(result(n, code)), ..seen_running(intent, n) }
}

pub(crate) fn seen_nothing() -> Seen {
    Seen::default()
}

/// Returns a task's traces as a `Joined` reports them, if an inspection would show `seen`.
pub(crate) fn found(intent: &Intent, seen: Seen) -> Found {
    Found {
        stem: stem_of(intent),
        intent: Some(intent.clone()),
        claim: seen.claim,
        ended: None,
        result: seen.result,
        steps: seen.steps,
        tails: seen.tails,
        unit: seen.unit,
        stop_asked: seen.stop_asked,
        processes: seen.processes,
        unit_ids: seen.unit_ids,
    }
}

pub(crate) fn processes(pids: &[u32]) -> Vec<Process> {
    pids.iter().map(|pid| Process { pid: *pid, command: "sleep".to_owned() }).collect()
}

pub(crate) fn tombstone(intent: &Intent, outcome: crate::outcome::Outcome) -> Tombstone {
    let start = &intent.start;
    let boot = outcome.went_well().then(|| start.boot.clone());
    Tombstone {
        task: start.task,
        job: start.job.clone(),
        attempt: start.attempt,
        action: start.action.clone(),
        outcome,
        not_after_boottime_ms: intent.not_after_boottime_ms,
        local: intent.local,
        boot,
        expects_boot: false,
        limit_ms: None,
        after: false,
        commit: None,
        instance: intent.hook.instance.clone(),
    }
}

pub(crate) fn begin_step(seq: u32, script: &str, of: u32) -> StepRecord {
    let (script, digest, user) = (script.to_owned(), String::new(), "root".to_owned());
    StepRecord::Begin { seq, script, digest, user, attempt: 1, at_ms: 0, of }
}

pub(crate) fn report_step(report: Report) -> StepRecord {
    StepRecord::Report { seq: 0, script: "a".to_owned(), at_ms: 0, report }
}

// Inputs.

pub(crate) fn joined(found: Vec<Found>, tombstones: Vec<Tombstone>) -> Input {
    Input::Joined { found, tombstones, accepted: None }
}

pub(crate) fn message(message: ToAgent) -> Input {
    Input::Message(message)
}

/// Returns the contents of `epoch.json` of an agent that accepted this epoch.
pub(crate) fn accepted(number: u64) -> AcceptedEpoch {
    AcceptedEpoch { cluster: Some(cluster()), ..epoch(number).into() }
}

pub(crate) fn epoch(number: u64) -> Epoch {
    Epoch { number, nonce: number }
}

pub(crate) fn welcome(number: u64) -> Input {
    message(ToAgent::Welcome { epoch: epoch(number), cluster: cluster(), redial_window_ms: 1000, commit: 0 })
}

pub(crate) fn epoch_written(number: u64) -> Input {
    Input::EpochWritten { epoch: epoch(number), result: Ok(()) }
}

pub(crate) fn start_message(j: &str, attempt: u64, a: &str, rank: u32) -> Input {
    message(ToAgent::Start(start(j, attempt, a, rank)))
}

pub(crate) fn cancel(j: &str, attempt: u64, a: &str, rank: u32) -> Input {
    message(ToAgent::Cancel {
        task: task(j, attempt, a, rank),
        job: job(j),
        attempt: Attempt::from_number(attempt),
        action: action(a),
        why: "asked".to_owned(),
        commit: 0,
    })
}

pub(crate) fn ack(task: TaskId) -> Input {
    message(ToAgent::Ack { task, commit: 0 })
}

pub(crate) fn forget(task: TaskId) -> Input {
    message(ToAgent::Forget { tasks: vec![task] })
}

pub(crate) fn begin(task: TaskId) -> Input {
    message(ToAgent::Begin { task })
}

pub(crate) fn intent_written(task: TaskId) -> Input {
    Input::IntentWritten { task, result: Ok(()) }
}

pub(crate) fn queued(task: TaskId) -> Input {
    Input::Started { task, reply: StartReply::Queued }
}

pub(crate) fn start_reply(task: TaskId, reply: StartReply) -> Input {
    Input::Started { task, reply }
}

pub(crate) fn task_changed(task: TaskId) -> Input {
    Input::TaskChanged { task }
}

pub(crate) fn inspected(task: TaskId, seen: Seen) -> Input {
    Input::Inspected { task, seen: Ok(seen) }
}

pub(crate) fn claim_taken(task: TaskId, ours: bool) -> Input {
    Input::ClaimTaken { task, result: Ok(ours) }
}

pub(crate) fn outcome_written(task: TaskId) -> Input {
    Input::OutcomeWritten { task, result: Ok(()) }
}

pub(crate) fn tombstone_written(task: TaskId) -> Input {
    Input::TombstoneWritten { task, result: Ok(()) }
}
