//! Contents of `store-14.sql`.

use perilog_core::ids::CheckName;
use perilog_core::task::Step;
use perilog_core::{Commit, EpochRange, ExitStatus, History, ResourceSet};

use super::super::ends::{ended, outcomes};
use super::*;

const AT_MS: u64 = 1_552_593_348_092;
const FIRST: Epoch = Epoch { number: 3, nonce: 0x0123_4567_89ab_cdef };
const SECOND: Epoch = Epoch { number: 4, nonce: u64::MAX };
const LAST: u64 = 9;

const R: &str = r#"{"version":1,"execution":{"R_lite":[{"rank":"0-29","children":{"core":"0-47","gpu":"0-3"}}],
    "nodelist":["n[0-29]"],"nslots":30,"starttime":1552593300.5,"expiration":1552596900.5,
    "properties":{"pdebug":"0-1"}},"scheduling":{"graph":{"nodes":["n0"]}}}"#;

pub(super) fn contents() -> Contents {
    Contents {
        action: changed_action(),
        attempt: changed_attempt(),
        snapshot: Snapshot {
            history: History {
                epochs: vec![EpochRange { epoch: FIRST, first: 1 }, EpochRange { epoch: SECOND, first: 7 }],
                last: LAST,
            },
            stamp: Some(AT_MS + 5_000),
            anchor: Some(Commit { epoch: SECOND, number: LAST }),
            moved: false,
            recovery: Some(RecoveryRow {
                since_ms: AT_MS,
                why: text("the \"anchor\" is newer"),
                epoch: SECOND.number,
                ended_ms: Some(AT_MS + 9_000),
            }),
            nodes: vec![node()],
            attempts: attempts(),
            actions: actions(),
            ranks: ranks(),
            drains: drains(),
            quiet: Some(Quiet { since_ms: AT_MS, by: 1000, reason: text("a new release") }),
            outbox: outbox(),
            outbox_last: 1_552_593_348_092_006,
            events_last: [(job(1), 2), (job(2), 1)].into(),
            elsewhere: Elsewhere::default(),
        },
        events: events(),
        spots: vec!["3-0123456789abcdef:1:f1:1", "4-ffffffffffffffff:9:f1:2", "4-ffffffffffffffff:9:f2:1"],
        ran: ran(),
        timeline: (job(1), timeline()),
        anchor: "perilog 1 epoch 00000000000000000004 nonce ffffffffffffffff commit 00000000000000000009\n",
    }
}

fn text(text: &str) -> String {
    text.to_owned()
}

fn set(ranks: &str) -> IdSet {
    ranks.parse().unwrap()
}

fn part(ranks: &str, resource: &str) -> Part {
    Part { ranks: set(ranks), resources: [name(resource)].into() }
}

fn name(resource: &str) -> ResourceName {
    ResourceName::new(resource).unwrap()
}

fn action_name(name: &str) -> ActionName {
    ActionName::new(name).unwrap()
}

fn host(name: &str) -> HostName {
    HostName::new(name).unwrap()
}

fn machine() -> MachineId {
    MachineId::new("0123456789abcdef0123456789abcdef").unwrap()
}

fn id(number: u128) -> ActionId {
    ActionId(uuid::Uuid::from_u128(number))
}

fn attempt() -> Attempt {
    "1552593348.09283".parse().unwrap()
}

fn node() -> NodeRow {
    NodeRow {
        host: host("n0"),
        machine: machine(),
        boot: BootId::new("6e2f6a30-3f0f-4a0c-9c4b-0f1e2d3c4b5a+2").unwrap(),
        boot_number: 2,
        version: text("0.1.0"),
        seen_ms: AT_MS,
    }
}

fn milestones(reported: &str, left: &str, whole: &str) -> Milestones {
    let mut milestones = Milestones::default();
    milestones.record(&MilestoneName::new("data-out").unwrap(), &set(reported)).unwrap();
    milestones.leave(&set(left));
    milestones.reach(&set(whole), &IdSet::new(), &set(left));
    milestones
}

fn attempts() -> Vec<AttemptRow> {
    let (mut changed, delta) = changed_attempt();
    changed.hold.ranks = set("0,9");
    changed.released.ranks = set("1-2");
    changed.milestones = milestones("3", "2", "0-9");
    assert_eq!(changed.milestones.left(), &delta.left);
    let tenth = Terms { tolerate: Some(Tolerance::Percent(10)), ..Terms::default() };
    let added = AttemptRow { recovered: Recovered::Added, terms: tenth, ..bare_attempt(3, 1) };
    vec![whole_attempt(), changed, added, bare_attempt(4, 1)]
}

fn whole_attempt() -> AttemptRow {
    let check = |name: &str, of| (CheckName::new(name).unwrap(), of);
    AttemptRow {
        job: job(1),
        attempt: attempt(),
        ranks: set("0-29"),
        hosts: "n[0-29]".parse().unwrap(),
        userid: Some(1000),
        open: true,
        touched_ms: AT_MS,
        terms: Terms {
            r: Some(Box::new(ResourceSet::from_json(R).unwrap())),
            resources: [name("rabbit:1"), name("rabbit:2")].into(),
            tolerate: Some(Tolerance::Ranks(3)),
            checks: [check("gpu", Tolerance::Percent(10)), check("lustre", Tolerance::Ranks(2))].into(),
            keep: Some(25),
            shrink: true,
        },
        added: true,
        hold: part("0-1", "rabbit:1"),
        released: part("29", "rabbit:2"),
        complete: true,
        milestones: milestones("0-28", "29", "0-29"),
        source: Some(Source { name: text("flux"), instance: text("system \"1\"") }),
        abandoned: true,
        silent: true,
        recovered: Recovered::Begun,
    }
}

fn bare_attempt(number: u8, last: u32) -> AttemptRow {
    AttemptRow {
        job: job(number),
        attempt: Attempt::FIRST,
        ranks: IdSet::from(0..=last),
        hosts: format!("n[0-{last}]").parse().unwrap(),
        userid: None,
        open: false,
        touched_ms: AT_MS,
        terms: Terms::default(),
        added: false,
        hold: Part::default(),
        released: Part::default(),
        complete: false,
        milestones: Milestones::default(),
        source: None,
        abandoned: false,
        silent: false,
        recovered: Recovered::No,
    }
}

/// Returns an attempt as its row has it, and what changed in it since.
fn changed_attempt() -> (AttemptRow, AttemptDelta) {
    let first = AttemptRow {
        hold: Part::of_ranks(set("0-9")),
        milestones: milestones("3", "", "0-9"),
        recovered: Recovered::TakenUp,
        ..bare_attempt(2, 9)
    };
    (first, AttemptDelta { ranks: set("0-8"), hold: set("0"), released: set("1-2"), left: set("2") })
}

fn actions() -> Vec<ActionRow> {
    let (first, _) = changed_action();
    let changed = ActionRow {
        waiting: set("0,9"),
        sent: set("1"),
        accepted: set("2"),
        ok: set("3-4"),
        not_ok: set("5-8"),
        cancelling: set("2"),
        held: Part::of_ranks(set("0-2,9")),
        boots: [(3, set("1-8"))].into(),
        overdue: [(text("20-umount"), set("2"))].into(),
        lingering: set("1"),
        limits: [(5_000, set("2"))].into(),
        remarks: [(text("no script ran"), set("3"))].into(),
        ..first
    };
    let verdicts = [Verdict::Ok, Verdict::Timeout, Verdict::Lost, Verdict::Refused, Verdict::Cancelled];
    let ended = verdicts.into_iter().zip(3..).map(|(verdict, number)| {
        let name = action_name(&format!("a-{verdict}"));
        let row = ActionRow::new(id(number), job(3), Attempt::FIRST, name, set("0-1"), AT_MS);
        let (waiting, ok, ended_ms) = (IdSet::new(), row.ranks.clone(), Some(AT_MS + 1));
        ActionRow { verdict: Some(verdict), waiting, ok, ended_ms, held: Part::default(), ..row }
    });
    [whole_action(), changed].into_iter().chain(ended).collect()
}

fn whole_action() -> ActionRow {
    ActionRow {
        id: id(1),
        job: job(1),
        attempt: attempt(),
        name: action_name("prolog"),
        ranks: set("0-29"),
        userid: Some(1000),
        env: [(text("A"), text("b \"c\" 'd'"))].into(),
        timeout_ms: Some(90_000),
        began_ms: AT_MS,
        waiting: set("0"),
        sent: set("1"),
        accepted: set("2-3"),
        ok: set("4-5"),
        not_ok: set("6-29"),
        cancelling: set("2"),
        cancel_why: Some(text("by uid 1000")),
        boots: [(1, set("0-28")), (2, set("29"))].into(),
        verdict: Some(Verdict::Failed),
        ended_ms: Some(AT_MS + 908),
        events_from: 1,
        held: part("0-3", "rabbit:1"),
        growing: true,
        resolving: vec![Resolving { ranks: set("3"), ok: true, reason: text("gone \"x\""), by: 1001, overdue: true }],
        external: Some(Box::new(External {
            lease_ms: 30_000,
            last_report_ms: AT_MS,
            resources: [name("rabbit:1"), name("rabbit:2")].into(),
            ended: [(
                name("rabbit:1"),
                ResourceEnd { ended: ended(Outcome::Ok), late: vec![ended(Outcome::Tolerable)] },
            )]
            .into(),
            cancelling: true,
        })),
        overdue: [(text("10-mount \"x\""), set("2"))].into(),
        lingering: set("3"),
        limits: [(600_000, set("1"))].into(),
        remarks: [(text("no script ran"), set("4"))].into(),
    }
}

/// Returns an action as its row has it, and what changed in it since.
fn changed_action() -> (ActionRow, ActionDelta) {
    let row = ActionRow::new(id(2), job(2), Attempt::FIRST, action_name("epilog"), set("0-9"), AT_MS);
    let first = ActionRow { resolving: vec![Resolving::new(set("0"), false, "a new disk", 1000)], ..row };
    let delta = ActionDelta {
        ranks: set("0-8"),
        waiting: set("0"),
        sent: set("1"),
        accepted: set("2"),
        ok: set("3-4"),
        not_ok: set("5-8"),
        cancelling: set("2"),
        held: set("0-2"),
        boots: [(3, set("1-8"))].into(),
        overdue: [(text("20-umount"), set("2"))].into(),
        lingering: set("1"),
        limits: [(5_000, set("2"))].into(),
        remarks: [(text("no script ran"), set("3"))].into(),
    };
    (first, delta)
}

fn ranks() -> Vec<RankRow> {
    let task = |rank| TaskId { action: id(1), rank: Rank(rank) };
    let expects = |within_ms| Some(Expects { machine: machine(), within_ms });
    let whole = RankRow {
        task: task(2),
        ended: ended(Outcome::Ok),
        late: vec![ended(Outcome::Failed { why: Failure::Exit(3) })],
        expects: expects(Some(600_000)),
    };
    let unlimited =
        RankRow { task: task(3), ended: Ended::bare(Outcome::Ok, AT_MS), late: vec![], expects: expects(None) };
    let rows = outcomes().into_iter().zip(6..).map(|((_, outcome), rank)| RankRow {
        task: task(rank),
        ended: Ended::bare(outcome, AT_MS),
        late: vec![],
        expects: None,
    });
    [whole, unlimited].into_iter().chain(rows).collect()
}

fn drains() -> Vec<DrainRow> {
    let reason = "prolog 10-mount: exit 3: \"x\"";
    let whole = DrainRow {
        host: host("n3"),
        since_ms: AT_MS,
        reason: text(reason),
        by: Some(1000),
        confirmed: true,
        lifted: true,
        notified: true,
        stuck: Some(2),
        again: Some(Again { at_ms: AT_MS + 1, reason: text("epilog 20-umount: exit 2"), by: Some(1001) }),
        notice_id: AT_MS + 2,
        asked_ms: AT_MS + 3,
        doubtful: true,
        passing: Some(Passing::Missing { job: job(1), attempt: attempt() }),
    };
    let passing = [Some(Passing::Cleaning { job: job(1), attempt: attempt() }), Some(Passing::Unknown), None];
    let others = passing.into_iter().zip(4..).map(|(passing, number)| DrainRow {
        again: Some(Again { at_ms: AT_MS, reason: text(reason), by: None }),
        passing,
        ..DrainRow::new(host(&format!("n{number}")), text(reason), None, AT_MS)
    });
    [whole].into_iter().chain(others).collect()
}

/// Returns a notice of each kind, as the machine makes it (`core/src/controller/tests/notices.rs`).
fn outbox() -> Vec<OutboxEntry> {
    let r = json!({"version": 1, "execution": {"starttime": 0.0, "expiration": 0.0,
        "R_lite": [{"rank": "3", "children": {"core": "0-1"}}], "nodelist": ["n3"]}});
    let release = json!({"event": "release", "attempt": "0", "ranks": "3", "hosts": "n3", "resources": ["rabbit:1"],
        "final": true, "R": r});
    let mut hooked = release.clone();
    hooked["at_ms"] = json!(AT_MS);
    let bodies = [
        json!({"event": "verdict", "action": "stage", "attempt": "0", "verdict": "ok", "status": 0, "ok": "0-2",
            "by_outcome": {"tolerable": "3"}, "resources": {"rabbit:1": "tolerable"}, "hosts": "n3"}),
        json!({"event": "exception", "type": "node-failure", "severity": 1, "note": "n3", "ranks": "3", "hosts": "n3",
            "checks": [{"check": "lustre", "message": "slow", "ranks": "3", "hosts": "n3"}], "action": "stage",
            "attempt": "0", "resources": {"rabbit:1": "tolerable"}}),
        json!({"event": "milestone", "attempt": "0", "name": "data-in", "without": "3"}),
        json!({"event": "shrink", "attempt": "0", "ranks": "3", "hosts": "n3", "left": "0-2", "left_hosts": "n[0-2]",
            "R": r}),
        release,
    ];
    let bodies = bodies.map(|body| (Reader::Manager, body)).into_iter().chain([(Reader::ReleaseHook, hooked)]);
    let entries = bodies.zip(1_552_593_348_092_001..).map(|((reader, body), sequence)| OutboxEntry {
        sequence,
        epoch: SECOND.number,
        reader,
        job: job(1),
        attempt: attempt(),
        body: Body::from(&body),
    });
    entries.collect()
}

fn events() -> Vec<(u64, Vec<(JobId, u64, Event)>)> {
    let context = json!({"action": "prolog", "hosts": "n[0-3]", "note": "a 'quoted' \"text\"\n", "status": 3});
    let event = |sequence: u64, name: &str, context: Option<serde_json::Value>| {
        let context = context.and_then(|context| context.as_object().cloned());
        (sequence, Event::new(1_552_593_348.5 + sequence as f64, name, context).unwrap())
    };
    let of = |n: u8, (sequence, event): (u64, Event)| (job(n), sequence, event);
    vec![
        (1, vec![of(1, event(1, "attempt", None))]),
        (LAST, vec![of(1, event(2, "finish", Some(context))), of(2, event(1, "job-hand-over", Some(json!({}))))]),
    ]
}

fn step(script: &str, after_ms: u64, status: Option<ExitStatus>) -> Step {
    Step {
        script: text(script),
        digest: text("e3b0c442"),
        attempt: 1,
        began_ms: AT_MS + after_ms,
        elapsed_ms: 800,
        status,
        tolerable: false,
        timed_out: false,
    }
}

fn ran() -> Vec<Ran> {
    let again = Step { attempt: 2, ..step("10-mount", 0, Some(ExitStatus::Exit(0))) };
    let passed = Step { tolerable: true, timed_out: true, ..step("20-gpu", 10, Some(ExitStatus::Signal(9))) };
    let ran = |rank, host: Option<HostName>, outcome, steps| Ran {
        task: TaskId { action: id(1), rank: Rank(rank) },
        host,
        action: None,
        outcome,
        began_ms: AT_MS,
        elapsed_ms: 908,
        steps,
        skipped: 1,
        empty: true,
    };
    vec![
        ran(4, Some(host("n4")), "ok", vec![again, passed]),
        // An announced reboot ended it.
        ran(5, None, "failed", vec![step("10-mount", 5, None)]),
    ]
}

fn timeline() -> Vec<serde_json::Value> {
    let task = |rank: u32, outcome: &str, steps: serde_json::Value| {
        json!({"attempt": "1552593348.09283", "action": "prolog", "asked_ms": AT_MS, "rank": rank,
            "host": format!("n{rank}"), "outcome": outcome, "began_ms": AT_MS, "elapsed_ms": 908, "steps": steps})
    };
    let step = |script: &str, of_try: u32, after_ms: u64, status: Option<u8>, marked: bool| {
        json!({"script": script, "digest": "e3b0c442", "try": of_try, "after_ms": after_ms, "elapsed_ms": 800,
            "status": status, "tolerable": marked, "timed_out": marked})
    };
    vec![
        task(4, "ok", json!([step("10-mount", 2, 0, Some(0), false), step("20-gpu", 1, 10, Some(137), true)])),
        task(5, "failed", json!([step("10-mount", 1, 5, None, false)])),
    ]
}
