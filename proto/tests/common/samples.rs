//! Fixed sample of every message, with every field set to a distinct value.

use std::collections::{BTreeMap, BTreeSet};

use perilog_core::message::{Ask, FromAgent, Held, HeldState, Hello, Phase, ToAgent};
use perilog_core::outcome::{ExitStatus, Failure, Loss, Outcome};
use perilog_core::task::{Check, Ended, Process, Reboot, Start, Step, Tail};
use perilog_core::{
    ActionId, ActionName, Attempt, BootId, ClusterId, Commit, Epoch, HostName, JobId, MachineId, Mark, MilestoneName,
    Rank, TaskId,
};
use uuid::Uuid;

const EPOCH: Epoch = Epoch { number: 7, nonce: 0x0123_4567_89ab_cdef };

pub(crate) fn task() -> TaskId {
    TaskId { action: ActionId(Uuid::from_u128(0x0011_2233_4455_5677_8899_aabb_ccdd_eeff)), rank: Rank(300) }
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

fn data_out() -> MilestoneName {
    MilestoneName::new("data-out").unwrap()
}

pub(crate) fn start() -> Start {
    Start {
        task: task(),
        job: job(),
        attempt: attempt(),
        action: prolog(),
        boot: BootId::new("6e2f6a30-3f0f-4a0c-9c4b-0f1e2d3c4b5a+2").unwrap(),
        not_after_ms: 600_000,
        ranks: "0-3,300".parse().unwrap(),
        hosts: "n[0-3],login1".parse().unwrap(),
        userid: Some(1000),
        env: BTreeMap::from([("FLUX_JOB_ID".to_owned(), "fuZZybuNNy".to_owned()), ("SITE".to_owned(), String::new())]),
        timeout_ms: Some(90_000),
        after: false,
        milestones: BTreeSet::new(),
        commit: 0,
    }
}

pub(crate) fn ended(outcome: Outcome) -> Ended {
    Ended {
        outcome,
        began_ms: Some(1_552_593_348_092),
        ended_ms: 1_552_593_349_000,
        elapsed_ms: Some(908),
        steps: vec![Step {
            script: "10-mount".to_owned(),
            digest: "e3b0c442".to_owned(),
            attempt: 2,
            began_ms: 1_552_593_348_100,
            elapsed_ms: 800,
            status: Some(ExitStatus::Exit(3)),
            tolerable: true,
            timed_out: true,
        }],
        checks: vec![Check { check: "lustre".to_owned(), message: "mount missing".to_owned() }],
        milestones: vec!["data-out".to_owned()],
        user_message: Some("your quota is full".to_owned()),
        expect_reboot: true,
        booted: false,
        lingering: vec![Process { pid: 4711, command: "sleep 60".to_owned() }],
        tails: vec![Tail { script: "10-mount".to_owned(), text: "mount: no such device\n".to_owned() }],
        forensics: Some("4711 D wait_on_page_bit".to_owned()),
        cpu_ns: Some(1_000_000),
        memory_peak: Some(1 << 20),
        dropped_env: 4,
        note: Some("unit and result differ".to_owned()),
        skipped: Vec::new(),
        empty: false,
        excused: false,
    }
}

fn outcomes() -> Vec<(&'static str, Outcome)> {
    let failed = |why| Outcome::Failed { why };
    vec![
        ("ok", Outcome::Ok),
        ("tolerable", Outcome::Tolerable),
        ("failed-exit", failed(Failure::Exit(3))),
        ("failed-signal", failed(Failure::Signal(9))),
        ("failed-oom", failed(Failure::Oom)),
        ("failed-exec", failed(Failure::Exec("203".to_owned()))),
        ("failed-configuration", failed(Failure::Configuration("no such directory".to_owned()))),
        ("failed-unit", failed(Failure::Unit("BadUnitSetting".to_owned()))),
        ("failed-no-result", failed(Failure::NoResult(Some(ExitStatus::Signal(11))))),
        ("failed-reported", failed(Failure::Reported)),
        ("timeout", Outcome::Timeout { status: Some(ExitStatus::Signal(15)) }),
        ("cancelled", Outcome::Cancelled { status: None }),
        ("lost-rebooted", Outcome::Lost { why: Loss::Rebooted }),
        ("lost-vanished", Outcome::Lost { why: Loss::Vanished }),
        ("lost-unreachable", Outcome::Lost { why: Loss::Unreachable }),
        ("lost-offline", Outcome::Lost { why: Loss::Offline }),
        ("lost-unknown-node", Outcome::Lost { why: Loss::UnknownNode }),
        ("lost-lease", Outcome::Lost { why: Loss::Lease }),
        ("refused", Outcome::Refused { why: "no such action".to_owned() }),
        ("resolved", Outcome::Resolved { ok: true, reason: "seen by hand".to_owned(), by: 1001 }),
    ]
}

fn phases() -> Vec<(&'static str, Phase)> {
    vec![
        ("waiting", Phase::Waiting { why: "an epilog of f2".to_owned() }),
        ("starting", Phase::Starting),
        (
            "running",
            Phase::Running { script: "10-mount".to_owned(), index: 1, of: 3, progress: Some("12%".to_owned()) },
        ),
        ("overdue", Phase::Overdue { script: "10-mount".to_owned(), limit_ms: 5000, doing: String::new() }),
        (
            "overdue-doing",
            Phase::Overdue {
                script: "10-mount".to_owned(),
                limit_ms: 5000,
                doing: "4711 D mount in rpc_wait_bit_killable".to_owned(),
            },
        ),
        ("lingering", Phase::Lingering { processes: vec![Process { pid: 4711, command: "sleep 60".to_owned() }] }),
    ]
}

fn hello() -> Hello {
    let held = |state| Held {
        task: task(),
        job: job(),
        attempt: attempt(),
        action: prolog(),
        limit_ms: None,
        userid: Some(1000),
        commit: None,
        local: true,
        state,
    };
    Hello {
        host: HostName::new("n3.site.example").unwrap(),
        machine: MachineId::new("0123456789abcdef0123456789abcdef").unwrap(),
        boot: BootId::new("6e2f6a30-3f0f-4a0c-9c4b-0f1e2d3c4b5a").unwrap(),
        link: 12,
        version: "0.1.0".to_owned(),
        actions: None,
        newest: None,
        tasks: vec![
            held(HeldState::Unclaimed),
            held(HeldState::Live { phase: Phase::Starting, age_ms: 1500 }),
            held(HeldState::Ended),
            held(HeldState::Tombstone { outcome: Outcome::Ok, past_ms: 0, reboot: Reboot::None }),
        ],
        more: true,
    }
}

/// Returns a Hello with tombstones: one whose reboot is still to come, one whose announced reboot has come, and one
/// that a reboot has undone.
fn boots() -> Hello {
    let whole = hello();
    let tombstone = |reboot| Held {
        state: HeldState::Tombstone { outcome: Outcome::Ok, past_ms: 7, reboot },
        ..whole.tasks[0].clone()
    };
    Hello { tasks: [Reboot::Expected, Reboot::Come, Reboot::Since].map(tombstone).into(), ..whole.clone() }
}

/// Returns a Hello in which the host and its task name a commit (`newest`, `commit`). The other samples of Hello name
/// none, as those of an older agent.
fn marked() -> Hello {
    let whole = hello();
    let commit = Commit { epoch: EPOCH, number: 4_711 };
    let newest = Some(Mark { cluster: ClusterId(Uuid::from_u128(0xff)), commit });
    let tasks = whole.tasks.iter().take(1).map(|held| Held { commit: Some(commit), ..held.clone() }).collect();
    Hello { newest, tasks, ..whole }
}

pub(crate) fn to_agent() -> Vec<(String, ToAgent)> {
    let logs = Ask::Logs { job: job(), action: Some(prolog()), attempt: Some(attempt()), rank: Some(3), lines: 100 };
    let task = task();
    let cancel = |commit| {
        let (job, attempt, action, why) = (job(), attempt(), prolog(), "by uid 0".to_owned());
        ToAgent::Cancel { task, job, attempt, action, why, commit }
    };
    let cluster = ClusterId(Uuid::from_u128(0xff));
    [
        ("welcome", ToAgent::Welcome { epoch: EPOCH, cluster, redial_window_ms: 2000, commit: 0 }),
        ("welcome-commit", ToAgent::Welcome { epoch: EPOCH, cluster, redial_window_ms: 2000, commit: 4_711 }),
        ("turned-away", ToAgent::TurnedAway { why: "another machine is n3".to_owned() }),
        ("start", ToAgent::Start(start())),
        ("start-commit", ToAgent::Start(Start { after: true, commit: 4_711, ..start() })),
        ("start-milestones", ToAgent::Start(Start { milestones: BTreeSet::from([data_out()]), ..start() })),
        ("begin", ToAgent::Begin { task }),
        ("cancel", cancel(0)),
        ("cancel-commit", cancel(4_711)),
        ("signal", ToAgent::Signal { task, signal: 10 }),
        ("ack", ToAgent::Ack { task, commit: 0 }),
        ("ack-commit", ToAgent::Ack { task, commit: 4_711 }),
        ("boot-expected", ToAgent::BootExpected { task }),
        ("forget", ToAgent::Forget { tasks: vec![task, task] }),
        ("probe", ToAgent::Probe { nonce: 99 }),
        ("ask-logs", ToAgent::Ask { question: 5, ask: logs }),
        ("ask-status", ToAgent::Ask { question: 6, ask: Ask::Status }),
        ("unsupported", ToAgent::Unsupported { message: 77 }),
    ]
    .map(|(name, message)| (format!("to-agent-{name}"), message))
    .into()
}

pub(crate) fn from_agent() -> Vec<(String, FromAgent)> {
    let task = task();
    let fixed = [
        ("hello".to_owned(), FromAgent::Hello(hello())),
        ("hello-boots".to_owned(), FromAgent::Hello(boots())),
        ("hello-actions".to_owned(), FromAgent::Hello(Hello { actions: Some([prolog()].into()), ..hello() })),
        ("hello-no-actions".to_owned(), FromAgent::Hello(Hello { actions: Some([].into()), ..hello() })),
        ("hello-commits".to_owned(), FromAgent::Hello(marked())),
        ("epoch-refused".to_owned(), FromAgent::EpochRefused { seen: EPOCH }),
        ("accepted".to_owned(), FromAgent::Accepted { task, limit_ms: None }),
        ("accepted-limited".to_owned(), FromAgent::Accepted { task, limit_ms: Some(600_000) }),
        (
            "finished-empty".to_owned(),
            FromAgent::Finished {
                task,
                ended: Box::new(Ended {
                    skipped: vec!["/etc/perilog/prolog.d/10-hello is skipped: not executable".to_owned()],
                    empty: true,
                    ..Ended::bare(Outcome::Ok, 1_552_593_349_000)
                }),
            },
        ),
        (
            "finished-excused".to_owned(),
            FromAgent::Finished {
                task,
                ended: Box::new(Ended {
                    excused: true,
                    ..Ended::bare(Outcome::Refused { why: "128 tasks have not ended".to_owned() }, 1_552_593_349_000)
                }),
            },
        ),
        (
            "expects-boot".to_owned(),
            FromAgent::ExpectsBoot { task, within_ms: Some(600_000), ended: Box::new(ended(Outcome::Ok)) },
        ),
        ("milestone".to_owned(), FromAgent::Milestone { task, name: "data-out".to_owned() }),
        ("probed".to_owned(), FromAgent::Probed { nonce: 99 }),
        ("answer".to_owned(), FromAgent::Answer { question: 5, text: "a line\n".to_owned(), last: true }),
        ("unsupported".to_owned(), FromAgent::Unsupported { message: 77 }),
    ];
    let moved = phases()
        .into_iter()
        .map(|(name, phase)| (format!("moved-{name}"), FromAgent::PhaseChanged { task, phase, age_ms: 1500 }));
    let finished = outcomes().into_iter().map(|(name, outcome)| {
        // The first sample carries everything, the others only the outcome.
        let ended = if outcome == Outcome::Ok { ended(outcome) } else { Ended::bare(outcome, 1_552_593_349_000) };
        (format!("finished-{name}"), FromAgent::Finished { task, ended: Box::new(ended) })
    });
    fixed
        .into_iter()
        .chain(moved)
        .chain(finished)
        .map(|(name, message)| (format!("from-agent-{name}"), message))
        .collect()
}
