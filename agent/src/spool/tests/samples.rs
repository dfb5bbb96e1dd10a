//! Sample of every file of the spool, and of every line of `steps.jsonl`. In the samples named `full` every field is
//! set.

use std::collections::{BTreeMap, BTreeSet};

use perilog_core::ids::{
    self, ActionId, ActionName, Attempt, BootId, ClusterId, Epoch, InvocationId, JobId, MilestoneName, Rank, TaskId,
};
use perilog_core::outcome::{ExitStatus, Failure, Outcome};
use perilog_core::task::{
    Claim, Empty, Ended, Hook, Intent, Leftover, Lingering, OnError, OnTimeout, Plan, Report, Retries, Run, RunResult,
    ScriptPlan, Start, StepRecord, Tombstone, Treatment,
};
use perilog_core::{AcceptedEpoch, BootRecord, Commit};

use super::ends::{ended, outcomes};
use super::golden::Content;

const EPOCH: Epoch = Epoch { number: 5, nonce: 0x0123_4567_89ab_cdef };
const COMMIT: Commit = Commit { epoch: EPOCH, number: 4_711 };
const AT_MS: u64 = 1_552_593_348_092;

/// Returns all samples, each with a name. No two samples of a file have the same name.
pub(super) fn samples() -> Vec<(String, Content)> {
    let intents = [("full", intent()), ("bare", bare_intent()), ("command", command())];
    let intents = intents.map(|(name, intent)| (name, Content::Intent(Box::new(intent))));
    let outcomes = outcomes().into_iter().map(|(name, outcome)| (name, Content::Outcome(Ended::bare(outcome, AT_MS))));
    let fixed = [
        ("full", Content::Boot(boot())),
        ("bare", Content::Boot(BootRecord { pid1: None, nonce: None, ..boot() })),
        ("full", Content::Epoch(AcceptedEpoch { epoch: EPOCH, cluster: Some(cluster()), commit: 4_711 })),
        ("bare", Content::Epoch(EPOCH.into())),
        ("full", Content::Outcome(ended(Outcome::Failed { why: Failure::Exit(3) }))),
        ("full", Content::Tombstone(tombstone())),
        ("bare", Content::Tombstone(bare_tombstone())),
        ("full", Content::Result(result())),
        ("bare", Content::Result(bare_result())),
        ("asked", Content::StopAsked),
        ("expected", Content::BootExpected),
    ];
    let claims = claims().into_iter().map(|(name, claim)| (name, Content::Claim(claim)));
    let steps = steps().into_iter().map(|(name, step)| (name, Content::Step(step)));
    let all = fixed.into_iter().chain(intents).chain(outcomes).chain(claims).chain(steps);
    all.map(|(name, content)| (name.to_owned(), content)).collect()
}

/// Returns the stem of the task of all samples.
pub(super) fn stem() -> String {
    ids::stem(&prolog(), &job(), task())
}

fn cluster() -> ClusterId {
    ClusterId::from_name("hpc")
}

fn job() -> JobId {
    JobId::new("fuZZybuNNy").unwrap()
}

fn attempt() -> Attempt {
    "1552593348.09283".parse().unwrap()
}

fn prolog() -> ActionName {
    ActionName::new("prolog").unwrap()
}

fn task() -> TaskId {
    TaskId { action: ActionId::of(cluster(), &job(), attempt(), &prolog()), rank: Rank(3) }
}

fn boot_id() -> BootId {
    BootId::new("6e2f6a30-3f0f-4a0c-9c4b-0f1e2d3c4b5a+2").unwrap()
}

fn invocation() -> InvocationId {
    InvocationId::new("0123456789abcdef0123456789abcdef").unwrap()
}

fn text(text: &str) -> String {
    text.to_owned()
}

fn boot() -> BootRecord {
    let kernel = text("6e2f6a30-3f0f-4a0c-9c4b-0f1e2d3c4b5a");
    BootRecord { kernel, pid1: Some(7), nonce: Some(text("00ff00ff00ff00ff")) }
}

pub(super) fn intent() -> Intent {
    Intent {
        start: Start {
            task: task(),
            job: job(),
            attempt: attempt(),
            action: prolog(),
            boot: boot_id(),
            not_after_ms: 60_000,
            ranks: "0-3,300".parse().unwrap(),
            hosts: "n[0-3],login1".parse().unwrap(),
            userid: Some(1000),
            env: BTreeMap::from([(text("FLUX_JOB_ID"), text("fuZZybuNNy")), (text("SITE"), text("a b"))]),
            timeout_ms: Some(90_000),
            after: true,
            milestones: BTreeSet::from([MilestoneName::new("data-out").unwrap()]),
            commit: 4_711,
        },
        plan: Plan {
            run: Run::Directories(vec![text("/etc/perilog/prolog.d")]),
            user: text("root"),
            cwd: text("/"),
            path: text("/usr/bin:/bin"),
            umask: 0o022,
            env: BTreeMap::from([(text("LANG"), text("C"))]),
            timeout_ms: Some(600_000),
            script_timeout_ms: Some(300_000),
            on_timeout: OnTimeout::Kill,
            on_error: OnError::Stop,
            empty: Empty::Fail,
            lingering: Lingering::Kill,
            retries: Retries { count: 2, backoff_ms: 1_000, ceiling_ms: 60_000 },
            scripts: BTreeMap::from([(text("10-mount"), script())]),
            nofile: 1024,
            memory_max: Some(1 << 30),
            tasks_max: Some(512),
            cpu_weight: Some(100),
            oom_score_adjust: -100,
        },
        env: BTreeMap::from([(text("SITE"), text("a b"))]),
        dropped_env: 1,
        not_after_boottime_ms: 1_000_000,
        accepted_boottime_ms: 940_000,
        local: true,
        commit: Some(COMMIT),
        hook: Hook {
            orphan_program: Some(text("/usr/libexec/perilog/slurm-orphaned")),
            instance: Some(text("2019-03-14T19:55:48")),
            note: Some(text("/var/lib/perilog/slurm/7.json")),
        },
    }
}

fn script() -> ScriptPlan {
    let retries = Some(Retries { count: 1, backoff_ms: 500, ceiling_ms: 500 });
    ScriptPlan { user: Some(text("nobody")), timeout_ms: Some(5_000), retries, tolerable: true }
}

/// Returns an intent that lacks what may be missing.
fn bare_intent() -> Intent {
    let whole = intent();
    let (env, milestones) = (BTreeMap::new(), BTreeSet::new());
    let start =
        Start { userid: None, env, timeout_ms: None, after: false, milestones, commit: 0, ..whole.start.clone() };
    let plan = Plan { run: whole.plan.run.clone(), ..Plan::default() };
    let (env, commit, hook) = (BTreeMap::new(), None, Hook::default());
    Intent { start, plan, env, dropped_env: 0, local: false, commit, hook, ..whole }
}

/// Returns an intent with a command in place of directories.
fn command() -> Intent {
    let run = Run::Command(vec![text("/usr/bin/true"), text("--all")]);
    let plan = Plan { run, lingering: Lingering::Keep, ..Plan::default() };
    Intent { plan, ..bare_intent() }
}

fn tombstone() -> Tombstone {
    Tombstone {
        task: task(),
        job: job(),
        attempt: attempt(),
        action: prolog(),
        outcome: Outcome::Resolved { ok: true, reason: text("the node was replaced"), by: 1001 },
        not_after_boottime_ms: 1_000_000,
        local: true,
        boot: Some(boot_id()),
        expects_boot: true,
        limit_ms: Some(u64::MAX),
        after: true,
        commit: Some(COMMIT),
        instance: Some(text("2019-03-14T19:55:48")),
    }
}

/// Returns a tombstone that lacks what may be missing.
fn bare_tombstone() -> Tombstone {
    let (outcome, boot, limit_ms, commit, instance) = (Outcome::Ok, None, None, None, None);
    let (local, expects_boot, after) = (false, false, false);
    Tombstone { outcome, local, boot, expects_boot, limit_ms, after, commit, instance, ..tombstone() }
}

fn claims() -> Vec<(&'static str, Claim)> {
    let refused = Outcome::Refused { why: text("the node is drained") };
    vec![
        ("runner", Claim::Runner(invocation())),
        ("cancelled", Claim::Cancelled),
        ("withdrawn", Claim::Withdrawn(refused)),
        ("withdrawn-ok", Claim::Withdrawn(Outcome::Ok)),
    ]
}

fn result() -> RunResult {
    RunResult {
        invocation: invocation(),
        began_ms: AT_MS,
        ended_ms: AT_MS + 908,
        elapsed_ms: 908,
        ran: 2,
        of: 3,
        status: 137,
        worst: Some(ExitStatus::Signal(9)),
        timed_out: true,
        cancelled: true,
        configuration: Some(text("/etc/perilog/prolog.d/20-a: others can write it")),
        exec: Some(text("10-mount: no such interpreter")),
        skipped: vec![text("/etc/perilog/prolog.d/10-hello is skipped: not executable")],
    }
}

/// Returns the result of a task whose scripts all succeeded.
fn bare_result() -> RunResult {
    let (worst, configuration, exec, skipped) = (None, None, None, Vec::new());
    let (timed_out, cancelled) = (false, false);
    RunResult { ran: 3, status: 0, worst, timed_out, cancelled, configuration, exec, skipped, ..result() }
}

fn steps() -> Vec<(&'static str, StepRecord)> {
    let (seq, at_ms) = (1, AT_MS);
    let script = || text("10-mount");
    let end = |status, tolerable, timed_out| StepRecord::End {
        seq,
        script: script(),
        at_ms,
        elapsed_ms: 800,
        status,
        tolerable,
        timed_out,
    };
    let report = |report| StepRecord::Report { seq, script: script(), at_ms, report };
    let left = |treatment| StepRecord::Left { at_ms, treatment, processes: vec![leftover()] };
    let inside = Leftover { cgroup: None, ..leftover() };
    vec![
        (
            "begin",
            StepRecord::Begin {
                seq,
                script: script(),
                digest: text("e3b0c442"),
                user: text("root"),
                attempt: 2,
                at_ms,
                of: 3,
            },
        ),
        ("end", end(ExitStatus::Exit(3), true, true)),
        ("end-signal", end(ExitStatus::Signal(9), false, false)),
        ("not-run", StepRecord::NotRun { seq, script: script(), at_ms, why: text("no such interpreter") }),
        (
            "overdue",
            StepRecord::Overdue {
                seq,
                script: script(),
                at_ms,
                limit_ms: 5_000,
                forensics: text("4711 D mount in rpc_wait_bit_killable\n"),
                doing: text("4711 D mount in rpc_wait_bit_killable"),
            },
        ),
        ("report-tolerable", report(Report::Tolerable { check: text("lustre"), message: text("mount missing") })),
        ("report-milestone", report(Report::Milestone { name: text("data-out") })),
        ("report-progress", report(Report::Progress { message: text("12%") })),
        ("report-expect-reboot", report(Report::ExpectReboot)),
        ("report-user", report(Report::User { message: text("your quota is full") })),
        ("cancelled", StepRecord::Cancelled { at_ms }),
        ("left-keep", left(Treatment::Keep)),
        ("left-hold", left(Treatment::Hold { term: true, kill: true })),
        ("left-kill", left(Treatment::Kill)),
        ("left-inside", StepRecord::Left { at_ms, treatment: Treatment::Kill, processes: vec![inside] }),
    ]
}

fn leftover() -> Leftover {
    let cgroup = Some(text("/user.slice/user-1.slice/session-c1.scope"));
    Leftover { pid: 4711, start: 1_000, command: text("sleep 60"), uid: 1000, cgroup }
}
