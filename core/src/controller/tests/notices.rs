//! Bodies of notices. A store keeps them over an upgrade of the controller, and hooks and readers of the outbox have
//! programs for them. So members are added, and never renamed or removed.

use serde_json::{Value, json};

use crate::idset::IdSet;
use crate::job::{Part, Terms, Tolerance};
use crate::resource_set::ResourceSet;

use super::release::{add, bench, finish, job};
use super::*;

const R: &str = r#"{"version":1,"execution":{"R_lite":[{"rank":"0-3","children":{"core":"0-1"}}],
    "nodelist":["n[0-3]"]},"scheduling":{"graph":{}}}"#;

/// Returns the fragment of R for some ranks, with their hosts.
fn fragment(ranks: &str, hosts: &str) -> Value {
    json!({"version": 1, "scheduling": {"graph": {}}, "execution": {"starttime": 0.0, "expiration": 0.0,
        "R_lite": [{"rank": ranks, "children": {"core": "0-1"}}], "nodelist": [hosts]}})
}

/// Returns the bodies of the notices to the resource manager, in order.
fn expected() -> Vec<Value> {
    let nothing = json!({"version": 1, "execution": {"starttime": 0.0, "expiration": 0.0, "R_lite": [],
        "nodelist": []}});
    vec![
        json!({"event": "verdict", "action": "stage", "attempt": "0", "verdict": "ok", "status": 0, "ok": "0-2",
            "by_outcome": {"tolerable": "3"}, "resources": {"rabbit1": "tolerable"}, "hosts": "n3"}),
        json!({"event": "exception", "type": "node-failure", "severity": 1, "note": "n3", "ranks": "3", "hosts": "n3",
            "checks": [{"check": "lustre", "message": "slow", "ranks": "3", "hosts": "n3"}], "action": "stage",
            "attempt": "0", "resources": {"rabbit1": "tolerable"}}),
        json!({"event": "milestone", "attempt": "0", "name": "data-in", "without": "3"}),
        json!({"event": "shrink", "attempt": "0", "ranks": "3", "hosts": "n3", "left": "0-2", "left_hosts": "n[0-2]",
            "R": fragment("0-2", "n[0-2]")}),
        json!({"event": "release", "attempt": "0", "ranks": "3", "hosts": "n3", "resources": [], "final": false,
            "R": fragment("3", "n3")}),
        json!({"event": "release", "attempt": "0", "ranks": "", "hosts": "", "resources": ["rabbit1"], "final": false,
            "R": nothing}),
        json!({"event": "verdict", "action": "epilog", "attempt": "0", "verdict": "ok", "status": 0, "ok": "0-3",
            "by_outcome": {}}),
        json!({"event": "release", "attempt": "0", "ranks": "0-2", "hosts": "n[0-2]", "resources": [], "final": true,
            "R": fragment("0-2", "n[0-2]")}),
    ]
}

/// A service prepares a rabbit and four ranks, of which one rank and the rabbit fail. The job goes on with three ranks,
/// reaches a milestone and ends.
#[test]
fn notices_have_the_members_that_they_always_had() {
    let (mut b, n) = bench(4, |settings| settings.release_hook = true);
    let rabbit = ResourceName::new("rabbit1").unwrap();
    let terms = Terms {
        r: Some(Box::new(ResourceSet::from_json(R).unwrap())),
        resources: [rabbit.clone()].into(),
        tolerate: Some(Tolerance::Ranks(2)),
        shrink: true,
        ..Terms::default()
    };
    b.ask(add("j", "", terms)).0.unwrap();
    let run = RunRequest { targets: Some("0-3".parse().unwrap()), ..request("stage", "j", None, None) };
    let start = ActionStart { run, resources: [rabbit.clone()].into(), lease_ms: 30_000 };
    b.ask(Request::ActionStart(Box::new(start))).0.unwrap();
    let tolerable = || ReportKind::Tolerable { check: Some(CheckName::new("lustre").unwrap()), message: "slow".into() };
    for (ranks, resources, kind) in [
        (Some("0-2"), None, ReportKind::Milestone(MilestoneName::new("data-in").unwrap())),
        (Some("0-2"), None, ReportKind::Ok),
        (None, Some(rabbit.clone()), tolerable()),
        (Some("3"), None, tolerable()),
    ] {
        let targets = ranks.map(|ranks| ranks.parse().unwrap());
        let resources = resources.map(|name| [name].into());
        let (action, attempt) = (ActionName::new("stage").unwrap(), None);
        b.ask(reports(Report { job: job("j"), attempt, action, targets, resources, kind })).0.unwrap();
    }
    b.receives(n[3], finished(task("epilog", "j", 3), Outcome::Ok));
    b.ask(finish("j", None)).0.unwrap();
    for rank in 0..3 {
        b.receives(n[rank as usize], finished(task("epilog", "j", rank), Outcome::Ok));
    }
    let of = |reader| b.store.outbox.iter().filter(move |entry| entry.reader == reader);
    let bodies: Vec<&str> = of(Reader::Manager).map(|entry| entry.body.as_str()).collect();
    assert_eq!(bodies, expected().iter().map(Value::to_string).collect::<Vec<_>>());
    // The release hook gets the releases, each with its time.
    let mut releases = expected();
    releases.retain(|body| body["event"] == "release");
    let hooked = of(Reader::ReleaseHook).map(|entry| {
        let mut body = entry.body.value();
        assert!(body["at_ms"].as_u64().is_some_and(|at_ms| at_ms <= b.now.wall_ms), "{body}");
        body.as_object_mut().unwrap().remove("at_ms");
        body
    });
    assert_eq!(hooked.collect::<Vec<_>>(), releases);
    // After a start, the controller itself reads these members.
    let released: Vec<Part> = b.store.outbox.iter().filter_map(OutboxEntry::released).collect();
    let whole = released.iter().fold(IdSet::new(), |all, part| all.union(&part.ranks));
    assert_eq!(whole.to_string(), "0-3");
    assert!(released.iter().any(|part| part.resources == [rabbit.clone()].into()), "{released:?}");
}
