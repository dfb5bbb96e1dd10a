//! External actions: the ranks and named resources that they cover, the reports of their services, and the loss of the
//! unreported ranks when a service is silent for its lease.

use std::collections::BTreeSet;

use serde_json::json;

use crate::idset::IdSet;
use crate::job::{Part, Terms};
use crate::outcome::{Loss, Verdict};

use super::release::{add, bench, contexts, finish, job};
use super::*;

const LEASE_MS: u64 = 30_000;

fn names(list: &str) -> BTreeSet<ResourceName> {
    list.split(',').filter(|name| !name.is_empty()).map(|name| ResourceName::new(name).unwrap()).collect()
}

fn part(ranks: &str, resources: &str) -> Part {
    Part { ranks: ranks.parse().unwrap(), resources: names(resources) }
}

fn start(name: &str, targets: Option<&str>, resources: &str) -> Request {
    let run = RunRequest { targets: targets.map(|t| t.parse().unwrap()), ..request(name, "j", None, None) };
    Request::ActionStart(Box::new(ActionStart { run, resources: names(resources), lease_ms: LEASE_MS }))
}

fn ok() -> ReportKind {
    ReportKind::Ok
}

fn failed() -> ReportKind {
    ReportKind::Failed { check: None, message: "no space".into() }
}

fn tolerable() -> ReportKind {
    ReportKind::Tolerable { check: Some(CheckName::new("lustre").unwrap()), message: "slow".into() }
}

/// Builds a report about the action `stage`; `None` for both `ranks` and `resources` means everything that the action
/// covers.
fn report(ranks: Option<&str>, resources: Option<&str>, kind: ReportKind) -> Request {
    let targets = ranks.map(|ranks| ranks.parse().unwrap());
    let (action, resources) = (ActionName::new("stage").unwrap(), resources.map(names));
    reports(Report { job: job("j"), attempt: None, action, targets, resources, kind })
}

/// Sends a service's report. Returns two sets of ranks and named resources: those that ended with this report, and
/// those for which the report came late.
fn reported(b: &mut Bench, request: Request) -> (Part, Part) {
    let (reply, effects) = b.ask(request);
    assert!(!effects.iter().any(|e| matches!(e, Effect::Send { .. } | Effect::Fan { .. })), "{effects:?}");
    match reply {
        Ok(Reply::Reported { ended, late, .. }) => (ended, late),
        reply => panic!("{reply:?}"),
    }
}

/// Adds a job on n0-n3 with two rabbits (named resources), and starts the external action `stage` over `ranks` and
/// `resources`. `ranks` of `None` means no ranks; without resources it means all ranks. `tolerate` is the job's
/// tolerance; `change` changes the settings.
fn staged(
    tolerate: &str,
    ranks: Option<&str>,
    resources: &str,
    change: impl Fn(&mut Settings),
) -> (Bench, Vec<SessionId>) {
    let (mut b, n) = bench(4, change);
    let terms = Terms { tolerate: tolerate.parse().ok(), resources: names("rabbit1,rabbit2"), ..Terms::default() };
    b.ask(add("j", "n[0-3]", terms)).0.unwrap();
    let (reply, effects) = b.ask(start("stage", ranks, resources));
    assert!(matches!(reply, Ok(Reply::Running { attached: false, .. })), "{reply:?}");
    assert_eq!(effects, [], "nothing is sent to any node");
    (b, n)
}

fn each(settings: &mut Settings) {
    settings.release.insert(ActionName::new("stage").unwrap(), ReleasePolicy::Each);
}

fn released(b: &Bench) -> Part {
    b.store.attempts[0].released.clone()
}

#[test]
fn what_it_covers_is_reported_when_it_starts() {
    let held = |ranks, resources| {
        let (b, _) = staged("0", ranks, resources, |_| {});
        b.action("stage", "j", 0).held.clone()
    };
    // Each row: the requested ranks and resources, and the part that the action holds.
    for (ranks, resources, expect) in [
        (None, "", part("0-3", "")),
        (None, "rabbit1", part("", "rabbit1")),
        (Some("1-2"), "", part("1-2", "")),
        (Some("n[0,3]"), "rabbit2", part("0,3", "rabbit2")),
    ] {
        assert_eq!(held(ranks, resources), expect, "{ranks:?} {resources}");
    }
    let (mut b, n) = staged("0", Some("0-1"), "rabbit1", |_| {});
    b.run("prolog", "j", "n[0-3]");
    #[rustfmt::skip]
    let table = [
        (start("stage", None, ""), "attached"),
        (start("stage", Some("n[0-1]"), "rabbit1"), "attached"),
        (start("stage", Some("0-2"), ""), "covers ranks 0-1; the request names ranks 0-2"),
        (start("stage", None, "rabbit1"), "stage of job j attempt 0 covers ranks 0-1 and rabbit1; the request names \
                                           rabbit1"),
        (start("stage", Some("0-1"), "rabbit2"), "the request names rabbit2"),
        (start("other", None, "rabbit9"), "job j has no resource rabbit9: it has rabbit1, rabbit2"),
        (start("other", Some("9"), ""), "rank 9 is not one of ranks 0-3"),
        (start("epilog", None, ""), "epilog is an after-action"),
        (start("prolog", None, ""), "prolog of job j attempt 0 is run by agents"),
        (Request::Run(request("stage", "j", None, None)), "is run by a service outside of perilog (an external \
                                                           action)"),
    ];
    for (request, expect) in table {
        let asked = format!("{request:?}");
        let text = match b.ask(request).0 {
            Ok(Reply::Running { attached: true, .. }) => "attached".to_owned(),
            reply => format!("{reply:?}"),
        };
        assert!(text.contains(expect), "{asked}: {text}");
    }
    // A node's reports about an external action change nothing.
    let effects = b.receives(n[0], finished(task("stage", "j", 0), exit(1)));
    assert_eq!(effects, [ack(n[0], task("stage", "j", 0))]);
    b.receives(n[0], FromAgent::Accepted { task: task("stage", "j", 0), limit_ms: None });
    assert_eq!(b.action("stage", "j", 0).accepted.to_string(), "0-1");
    // Neither a reboot nor a Hello without the task changes the action.
    b.batch(vec![Input::Closed { session: n[0], why: "boot".into() }]);
    b.up("n0", "b2", vec![held_by_node()]);
    b.batch(vec![Input::Closed { session: n[1], why: "cut".into() }]);
    b.up("n1", "b", vec![]);
    assert_eq!(b.action("stage", "j", 0).accepted.to_string(), "0-1");
}

fn held_by_node() -> Held {
    held("stage", "j", 0, HeldState::Tombstone { outcome: exit(1), past_ms: 0, reboot: Reboot::None })
}

#[test]
fn reports_are_partial_and_repeated_and_the_first_counts() {
    let (mut b, _) = staged("0", Some("0-3"), "rabbit1", |_| {});
    #[rustfmt::skip]
    let table = [
        // (ranks, resources, said) -> (ended, late)
        (Some("0"), None, ok(), "0", "", "", ""),
        (Some("0"), None, ok(), "", "", "", ""),
        (Some("0-1"), None, ok(), "1", "", "", ""),
        (Some("n1"), None, failed(), "", "", "1", ""),
        (Some("1"), None, failed(), "", "", "", ""),
        (None, Some("rabbit1"), ok(), "", "rabbit1", "", ""),
        (None, Some("rabbit1"), tolerable(), "", "", "", "rabbit1"),
        (None, Some("rabbit1"), tolerable(), "", "", "", ""),
        (None, None, ReportKind::Renew, "", "", "", ""),
        // Everything that the action covers.
        (None, None, ok(), "2-3", "", "", ""),
    ];
    for (ranks, resources, kind, ended, ended_resources, late, late_resources) in table {
        // Reports survive a crash at any point.
        b = b.restart();
        let answer = reported(&mut b, report(ranks, resources, kind.clone()));
        let expect = (part(ended, ended_resources), part(late, late_resources));
        assert_eq!(answer, expect, "{ranks:?} {resources:?} {kind:?}");
    }
    assert_eq!(b.action("stage", "j", 0).verdict, Some(Verdict::Ok));
    assert_eq!(contexts(&b, "late").len(), 2);
    for (request, expect) in [
        (report(Some("0-3"), Some("rabbit2"), ok()), "covers ranks 0-3 and rabbit1, and not rabbit2"),
        (report(Some("4"), None, ok()), "covers ranks 0-3 and rabbit1: rank 4 is not one of ranks 0-3"),
    ] {
        let (reply, _) = b.ask(request);
        assert!(matches!(&reply, Err(Refusal::Conflict(text)) if text.contains(expect)), "{reply:?}");
    }
    b.run("prolog", "j", "n[0-3]");
    for (action, expect) in [("prolog", "run by the agents"), ("none", "has no action none")] {
        let Request::ActionReport(mut report) = report(None, None, ok()) else { unreachable!() };
        report.action = ActionName::new(action).unwrap();
        let (reply, _) = b.ask(Request::ActionReport(report));
        assert!(format!("{reply:?}").contains(expect), "{reply:?}");
    }
}

#[test]
fn what_is_reported_is_released_as_the_policy_says() {
    let (mut b, n) = staged("0", Some("0-2"), "rabbit1", each);
    b.ask(finish("j", None)).0.unwrap();
    // The epilog waits for the service rank by rank; a resource without a hold is released at once.
    assert_eq!(released(&b), part("", "rabbit2"));
    assert_eq!(b.action("epilog", "j", 0).waiting.to_string(), "0-2");
    let (_, effects) = b.ask(report(Some("1"), None, ok()));
    assert_eq!(starts(&effects), [(n[1], 1)]);
    b.receives(n[1], finished(task("epilog", "j", 1), Outcome::Ok));
    b.ask(report(None, Some("rabbit1"), ok())).0.unwrap();
    assert_eq!(released(&b), part("", "rabbit1,rabbit2"));
    b.ask(report(None, None, ok())).0.unwrap();
    for rank in [0, 2, 3] {
        b.receives(n[rank as usize], finished(task("epilog", "j", rank), Outcome::Ok));
    }
    assert_eq!(released(&b), part("0-3", "rabbit1,rabbit2"));
    let lasts: Vec<_> = contexts(&b, "release").iter().map(|c| c["final"].clone()).collect();
    assert_eq!(lasts.iter().filter(|last| **last == json!(true)).count(), 1);
    // Without a policy, the action releases everything together.
    let (mut b, _) = staged("0", None, "rabbit1,rabbit2", |_| {});
    b.ask(finish("j", None)).0.unwrap();
    b.ask(report(None, Some("rabbit1"), ok())).0.unwrap();
    assert_eq!(released(&b), Part::default());
    b.ask(report(None, Some("rabbit2"), ok())).0.unwrap();
    assert_eq!(released(&b), part("", "rabbit1,rabbit2"));
}

#[test]
fn who_is_silent_for_its_lease_loses_the_rest() {
    let (b, _) = staged("0", Some("0-2"), "rabbit1", each);
    let lost = Outcome::Lost { why: Loss::Lease };
    // Each row: an event half a lease after the start, and whether the action outlives the first lease because of it.
    let half = LEASE_MS / 2;
    type Happens = fn(Bench) -> Bench;
    let table: [(&str, Happens, bool); 6] = [
        ("nothing", |b| b, false),
        (
            "renewed",
            |mut b| {
                reported(&mut b, report(None, None, ReportKind::Renew));
                b
            },
            true,
        ),
        (
            "a report",
            |mut b| {
                reported(&mut b, report(Some("0"), None, ok()));
                b
            },
            true,
        ),
        (
            "started again",
            |mut b| {
                b.ask(start("stage", None, "")).0.unwrap();
                b
            },
            true,
        ),
        ("the controller is killed", Bench::restart, true),
        (
            "the clock is stepped by a day",
            |mut b| {
                b.now.wall_ms += 86_400_000;
                b
            },
            false,
        ),
    ];
    for (what, happens, epochs) in table {
        let mut b = Bench::load_with(b.store.clone(), b.settings.clone(), Holding::NONE, b.now);
        // The wait after the start ends.
        b.pass(10_000);
        b.pass(half);
        b = happens(b);
        b.pass(half - 10);
        assert!(b.action("stage", "j", 0).verdict.is_none(), "{what}");
        b.pass(100);
        assert_eq!(b.action("stage", "j", 0).verdict.is_none(), epochs, "{what}");
        b.pass(half);
        assert_eq!(b.action("stage", "j", 0).verdict, Some(Verdict::Lost), "{what}");
    }
    let mut b = Bench { events: vec![], ..b };
    b.pass(10_000);
    reported(&mut b, report(Some("1"), None, ok()));
    b.pass(LEASE_MS);
    assert_eq!(b.outcome(task("stage", "j", 0)), lost);
    let row = b.action("stage", "j", 0);
    assert_eq!((row.ok.to_string(), row.not_ok.to_string()), ("1".to_owned(), "0,2".to_owned()));
    assert_eq!(row.external.as_ref().unwrap().ended[&names("rabbit1").pop_first().unwrap()].ended.outcome, lost);
    let reason = "stage: lost (the lease of its service expired): the service did not report within its \
                  lease of 30s; its last report came at 2023-11-14T22:13:30Z (job j attempt 0)";
    let drains: Vec<_> = b.store.drains.iter().map(|d| (d.host.as_str(), d.reason.as_str())).collect();
    assert_eq!(drains, [("n0", reason), ("n2", reason)]);
    let expired = &contexts(&b, "lease-expired")[0];
    assert_eq!((&expired["ranks"], &expired["resources"]), (&json!("0,2"), &json!(["rabbit1"])));
    assert_eq!(contexts(&b, "verdict")[0]["resources"], json!({"rabbit1": lost.to_string()}));
    // The service returns: its reports are recorded, and change nothing.
    let (ended, late) = reported(&mut b, report(None, None, ok()));
    assert_eq!((ended, late), (Part::default(), part("0,2", "rabbit1")));
    assert_eq!(b.outcome(task("stage", "j", 0)), lost);
    assert_eq!(b.action("stage", "j", 0).verdict, Some(Verdict::Lost));
}

#[test]
fn tolerance_counts_what_failed_of_ranks_and_resources() {
    #[rustfmt::skip]
    let table = [
        ("0", vec![tolerable(), ok(), ok()], Verdict::Failed),
        ("1", vec![tolerable(), ok(), ok()], Verdict::Ok),
        ("1", vec![ok(), ok(), tolerable()], Verdict::Ok),
        ("1", vec![tolerable(), ok(), tolerable()], Verdict::Failed),
        ("2", vec![tolerable(), ok(), tolerable()], Verdict::Ok),
        ("100%", vec![ok(), ok(), failed()], Verdict::Failed),
        ("100%", vec![ok(), failed(), ok()], Verdict::Failed),
    ];
    for (tolerate, kind, expect) in table {
        let (mut b, _) = staged(tolerate, Some("0-1"), "rabbit1", |_| {});
        reported(&mut b, report(Some("0"), None, kind[0].clone()));
        reported(&mut b, report(Some("1"), None, kind[1].clone()));
        reported(&mut b, report(None, Some("rabbit1"), kind[2].clone()));
        assert_eq!(b.action("stage", "j", 0).verdict, Some(expect), "{tolerate} {kind:?}");
        let forgiven = expect == Verdict::Ok;
        assert_eq!(contexts(&b, "exception").len(), usize::from(forgiven), "{tolerate} {kind:?}");
        if forgiven && kind[2] == tolerable() {
            assert_eq!(contexts(&b, "exception")[0]["resources"], json!({"rabbit1": "tolerable"}));
        }
    }
}

#[test]
fn a_cancel_is_asked_of_the_service_and_drains_nobody() {
    let (mut b, _) = staged("0", Some("0-1"), "rabbit1", each);
    let (reply, effects) = b.ask(Request::JobCancel { job: job("j"), attempt: None, why: "user".into() });
    reply.unwrap();
    assert!(!effects.iter().any(|e| matches!(e, Effect::Send { .. })), "{effects:?}");
    let mut b = b.restart();
    let (reply, _) = b.ask(report(None, None, ReportKind::Renew));
    let open = part("0-1", "rabbit1");
    let none = Part::default();
    assert_eq!(reply, Ok(Reply::Reported { ended: none.clone(), late: none, open: open.clone(), cancelling: open }));
    // Rank 0 was done before the cancel; the others stop.
    reported(&mut b, report(Some("0"), None, ok()));
    let (ended, _) = reported(&mut b, report(Some("1"), Some("rabbit1"), failed()));
    assert_eq!(ended, part("1", "rabbit1"));
    assert_eq!(b.outcome(task("stage", "j", 1)), Outcome::Cancelled { status: None });
    assert_eq!(reported(&mut b, report(Some("1"), Some("rabbit1"), failed())), Default::default());
    assert_eq!(b.action("stage", "j", 0).verdict, Some(Verdict::Cancelled));
    assert_eq!(b.store.drains, []);
    assert_eq!(released(&b).resources, names("rabbit1,rabbit2"));
}

/// Regression test: the rest of a lease was shown as 4.96667m.
#[test]
fn the_rest_of_a_lease_is_shown_in_whole_seconds() {
    let (mut b, _) = bench(4, |_| {});
    b.ask(add("j", "n[0-3]", Terms::default())).0.unwrap();
    let run = request("stage", "j", None, None);
    let run = RunRequest { targets: Some("0-1".parse().unwrap()), ..run };
    let lease_ms = 300_000;
    b.ask(Request::ActionStart(Box::new(ActionStart { run, resources: names(""), lease_ms }))).0.unwrap();
    b.pass(2_000);
    let Ok(Reply::Ps { rows, .. }) = b.ask(Request::Ps { older_than_ms: 0, held: false }).0 else { panic!("no ps") };
    assert_eq!(rows[0].why, "its service must report within 4m57s (lease 5m)");
}

#[test]
fn an_operator_settles_it_and_everything_shows_it() {
    let (mut b, _) = staged("0", Some("0-1"), "rabbit1", |_| {});
    b.pass(10_000);
    let Ok(Reply::Ps { rows, .. }) = b.ask(Request::Ps { older_than_ms: 0, held: false }).0 else { panic!("no ps") };
    let shown: Vec<_> =
        rows.iter().map(|r| (r.state.as_str(), r.why.as_str(), r.ranks.to_string(), r.resources.len())).collect();
    let why = "its service must report within 19s (lease 30s)";
    assert_eq!(shown, [("external", why, String::new(), 1), ("external", why, "0-1".to_owned(), 0)]);
    assert!(rows.iter().all(|row| row.lease_left_ms.is_some_and(|left| left < 20_000)));
    let Ok(Reply::Why(view)) = b.ask(Request::Why { host: HostName::new("n1").unwrap() }).0 else { panic!("no why") };
    assert_eq!((view.open[0].why.as_str(), view.open[0].unit.as_str(), view.node.tasks), (why, "", 1));
    let Ok(Reply::Show(view)) = b.ask(Request::Show { job: job("j"), targets: None }).0 else { panic!("no show") };
    assert_eq!(view.attempts[0].actions[0].external.as_ref().unwrap().lease_ms, LEASE_MS);
    let rest = |targets| Request::Resolve { which: which("j", targets), ok: true, reason: "by an operator".into() };
    assert_eq!(b.ask(rest(Some("1"))).0, Ok(Reply::Resolved { tasks: 1, waiting: 0 }));
    assert_eq!(b.ask(rest(None)).0, Ok(Reply::Resolved { tasks: 2, waiting: 0 }));
    assert_eq!(b.action("stage", "j", 0).verdict, Some(Verdict::Ok));
    assert!(b.ask(rest(None)).0.is_err());
}

#[test]
fn a_service_restarts_its_action_after_a_lost_store() {
    let (mut b, _) = staged("0", None, "", |_| {});
    let before = b.action("stage", "j", 0).id;
    b.store = Snapshot::default();
    let mut b = b.restart();
    assert!(matches!(b.ask(report(Some("0"), None, ok())).0, Err(Refusal::NoSuchJob(_))));
    b.ask(add("j", "n[0-3]", Terms::default())).0.unwrap();
    assert!(matches!(b.ask(report(Some("0"), None, ok())).0, Err(Refusal::NoSuchAction(_))));
    b.ask(start("stage", None, "")).0.unwrap();
    assert_eq!(b.action("stage", "j", 0).id, before);
    reported(&mut b, report(None, None, ok()));
    assert_eq!(b.action("stage", "j", 0).verdict, Some(Verdict::Ok));
    // The same action does not begin twice, and a milestone ends no rank.
    let (mut b, _) = staged("0", Some("0"), "", |_| {});
    reported(&mut b, report(None, None, ReportKind::Milestone(MilestoneName::new("data-out").unwrap())));
    reported(&mut b, report(None, None, ReportKind::Milestone(MilestoneName::new("data-out").unwrap())));
    assert_eq!(contexts(&b, "milestone").len(), 1);
    assert_eq!(b.action("stage", "j", 0).ok, IdSet::new());
}

/// Regression test: a service carried out the action `stage` on n0, and then the site made `stage` an after-action. The
/// other nodes were released with neither a clean-up nor a drain.
#[test]
fn no_service_cleans_up_for_an_after_action_of_its_name() {
    let (mut b, n) = staged("0", Some("0"), "", |_| {});
    b.run("prolog", "j", "n[0-3]");
    for (rank, session) in (0..).zip(&n) {
        b.receives(*session, finished(task("prolog", "j", rank), Outcome::Ok));
    }
    b.settings.after = vec![ActionName::new("stage").unwrap()];
    b.batch(vec![Input::Settings(b.settings.clone())]);
    b.ask(finish("j", None)).0.unwrap();
    let drained: Vec<&str> = b.store.drains.iter().map(|drain| drain.host.as_str()).collect();
    assert_eq!(drained, ["n1", "n2", "n3"]);
}

/// Regression test: a service of another job with the same id asked for other resources. The controller refused the
/// request, but the request took up the attempt of the restored store all the same.
#[test]
fn a_refused_start_of_a_service_takes_nothing_up() {
    let (b, _) = staged("0", None, "", |_| {});
    let copy = b.store.clone();
    let mut b = b.restored(&copy);
    assert!(matches!(b.ask(start("stage", None, "rabbit7")).0, Err(Refusal::Conflict(_))));
    assert_eq!(b.view().abandoned.len(), 1);
    b.ask(start("stage", None, "")).0.unwrap();
    assert_eq!(b.view().abandoned.len(), 0);
}

/// Regression test: a job could hand over ranks early, but no named resources.
#[test]
fn a_job_may_drop_named_resources_and_keep_its_ranks() {
    let finish = |ranks: Option<&str>, resources: &str| Request::JobFinish {
        job: job("j"),
        attempt: None,
        targets: ranks.map(|ranks| ranks.parse().unwrap()),
        resources: Some(names(resources)),
    };
    // The resource without a service is released at once; the other one with the service's end.
    let (mut b, _) = staged("0", None, "rabbit2", |_| {});
    let (reply, effects) = b.ask(finish(None, "rabbit1,rabbit2"));
    assert_eq!((reply, starts(&effects)), (Ok(Reply::Finished(part("", "rabbit1,rabbit2"))), vec![]));
    let attempt = b.store.attempts[0].clone();
    assert_eq!((attempt.hold, released(&b)), (part("0-3", ""), part("", "rabbit1")));
    reported(&mut b, report(None, None, ok()));
    assert_eq!((released(&b), b.store.attempts[0].complete), (part("", "rabbit1,rabbit2"), false));
    assert_eq!(b.ask(finish(None, "rabbit1")).0, Ok(Reply::Finished(Part::default())), "once");
    let hand_over = &contexts(&b, "job-hand-over")[0];
    assert_eq!((&hand_over["ranks"], &hand_over["resources"]), (&json!(""), &json!(["rabbit1", "rabbit2"])));
    let reply = b.ask(finish(None, "rabbit7")).0;
    let text = "job j attempt 0 has no resource rabbit7: it has rabbit1, rabbit2".to_owned();
    assert_eq!(reply, Err(Refusal::Invalid(text)));
    // A request hands over both kinds, and the after-action takes the ranks.
    let (mut b, n) = staged("0", None, "rabbit2", |_| {});
    let (reply, effects) = b.ask(finish(Some("1"), "rabbit1"));
    assert_eq!((reply, starts(&effects)), (Ok(Reply::Finished(part("1", "rabbit1"))), vec![(n[1], 1)]));
    assert_eq!((b.store.attempts[0].hold.clone(), released(&b)), (part("0,2-3", "rabbit2"), part("", "rabbit1")));
}

/// Regression test: the list of failures for the job's owner named failed ranks, but no failed resources.
#[test]
fn who_failed_names_resources_too() {
    let (mut b, _) = staged("2", Some("0"), "rabbit1,rabbit2", |_| {});
    reported(&mut b, report(Some("0"), Some("rabbit2"), tolerable()));
    reported(&mut b, report(None, Some("rabbit1"), ok()));
    let Ok(Reply::Failed { ranks, resources, .. }) = b.ask(Request::Failed { job: job("j"), attempt: None }).0 else {
        panic!()
    };
    let checks = json!([{"check": "lustre", "message": "slow"}]);
    let rabbit2 = json!({"resource": "rabbit2", "action": "stage", "outcome": "tolerable", "result": "tolerable",
        "message": null, "checks": checks});
    assert_eq!((ranks.to_string(), resources), ("0".into(), vec![rabbit2]));
}

/// Regression test: a repeated `action start` of an ended action changed the lease in the machine, but not in the
/// store.
#[test]
fn what_is_over_has_the_lease_that_it_had() {
    let (mut b, _) = staged("0", None, "", |_| {});
    reported(&mut b, report(None, None, ok()));
    let Request::ActionStart(mut again) = start("stage", None, "") else { panic!() };
    again.lease_ms = 2 * LEASE_MS;
    let reply = b.ask(Request::ActionStart(again)).0;
    assert!(matches!(reply, Ok(Reply::Running { attached: true, .. })), "{reply:?}");
    assert_eq!(b.action("stage", "j", 0).external.as_ref().map(|external| external.lease_ms), Some(LEASE_MS));
}

/// Regression test: an operator cancelled an epilog and lifted the drain that followed. Then the operator cancelled an
/// external action on the same node, its service reported a failure, and the node was not drained again. If the
/// operator resolves the task of the external action instead, no drain follows.
#[test]
fn a_service_past_its_cancelled_epilog_drains_its_node_again() {
    for stopped in [true, false] {
        let (mut b, _) = staged("", Some("0"), "", |_| {});
        b.ask(finish("j", None)).0.unwrap();
        let of = |name| Which { action: Some(ActionName::new(name).unwrap()), ..which("j", Some("0")) };
        b.ask(Request::Cancel { which: of("epilog"), why: "w".into() }).0.unwrap();
        b.ask(Request::Undrain { hosts: "n0".parse().unwrap(), forget: false, notice_id: None }).0.unwrap();
        if stopped {
            b.ask(Request::Cancel { which: of("stage"), why: "w".into() }).0.unwrap();
            reported(&mut b, report(Some("0"), None, failed()));
        } else {
            b.ask(Request::Resolve { which: of("stage"), ok: true, reason: "seen to".into() }).0.unwrap();
        }
        let answer =
            b.store.drains.iter().any(|row| row.newest().reason.contains(", and epilog had been cancelled: no"));
        assert_eq!(answer, stopped, "{:?}", b.store.drains);
    }
}
