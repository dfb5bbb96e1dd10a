//! Tolerance: forgiven failures, and the reports, releases and drains that follow.

use serde_json::json;

use crate::job::Terms;
use crate::outcome::{Loss, Verdict};
use crate::task::Check;

use super::operator::confirm;
use super::release::{add, bench, contexts, finish, job};
use super::*;

pub(super) fn terms(tolerate: &str) -> Terms {
    Terms { tolerate: tolerate.parse().ok(), ..Terms::default() }
}

pub(super) fn check(name: &str, message: &str) -> Ended {
    let checks = vec![Check { check: name.into(), message: message.into() }];
    Ended { checks, ..ended(Outcome::Tolerable) }
}

pub(super) fn report_end(b: &mut Bench, session: SessionId, task: TaskId, ended: Ended) -> Vec<Effect> {
    b.receives(session, FromAgent::Finished { task, ended: Box::new(ended) })
}

/// Runs a prolog of a job with these terms, on one node for each outcome. Returns the bench and the prolog's verdict;
/// `None`: the prolog has no verdict yet.
pub(super) fn verdict(terms: Terms, outcomes: &[Outcome], change: impl Fn(&mut Settings)) -> (Bench, Option<Verdict>) {
    let (mut b, n) = bench(outcomes.len() as u32, change);
    let nodes = format!("n[0-{}]", outcomes.len() - 1);
    b.ask(add("j", &nodes, terms)).0.unwrap();
    b.run("prolog", "j", &nodes);
    for (rank, outcome) in (0u32..).zip(outcomes) {
        report_end(&mut b, n[rank as usize], task("prolog", "j", rank), ended(outcome.clone()));
    }
    let verdict = b.action("prolog", "j", 0).verdict;
    (b, verdict)
}

#[test]
fn tolerance_covers_named_checks_up_to_its_limit() {
    let (ok, soft) = (Outcome::Ok, Outcome::Tolerable);
    let lost = Outcome::Lost { why: Loss::Vanished };
    let resolved = Outcome::Resolved { ok: true, reason: "r".into(), by: 0 };
    #[rustfmt::skip]
    let table = [
        ("0", vec![ok.clone(), ok.clone()], false, Verdict::Ok),
        ("0", vec![ok.clone(), soft.clone()], false, Verdict::Failed),
        ("1", vec![ok.clone(), soft.clone()], false, Verdict::Ok),
        ("1", vec![soft.clone(), soft.clone(), ok.clone()], false, Verdict::Failed),
        ("50%", vec![soft.clone(), soft.clone(), ok.clone(), ok.clone()], false, Verdict::Ok),
        ("49%", vec![soft.clone(), soft.clone(), ok.clone(), ok.clone()], false, Verdict::Failed),
        // No tolerance covers a generic failure.
        ("100%", vec![ok.clone(), exit(1)], false, Verdict::Failed),
        ("100%", vec![soft.clone(), exit(1)], false, Verdict::Failed),
        ("100%", vec![ok.clone(), Outcome::Timeout { status: None }], false, Verdict::Timeout),
        ("100%", vec![ok.clone(), Outcome::Refused { why: "w".into() }], false, Verdict::Refused),
        ("100%", vec![ok.clone(), Outcome::Cancelled { status: None }], false, Verdict::Cancelled),
        ("100%", vec![ok.clone(), lost.clone()], false, Verdict::Lost),
        ("1", vec![ok.clone(), lost.clone()], true, Verdict::Ok),
        ("1", vec![soft.clone(), lost], true, Verdict::Lost),
        ("0", vec![ok, resolved], false, Verdict::Ok),
        // Every rank failed, and every failure was forgiven.
        ("100%", vec![soft.clone(), soft], false, Verdict::Ok),
    ];
    for (tolerate, outcomes, tolerate_lost, expect) in table {
        let (_, verdict) = verdict(terms(tolerate), &outcomes, |s| s.tolerate_lost = tolerate_lost);
        assert_eq!(verdict, Some(expect), "{tolerate} {tolerate_lost} {outcomes:?}");
    }
}

/// With the site's setting `tolerate-timeout`, a job may forgive a rank past its time limit.
#[test]
fn a_rank_past_its_limit_is_forgiven_where_the_site_says_so() {
    let late = Outcome::Timeout { status: None };
    for (tolerate, outcomes, expect) in [
        ("0", [Outcome::Ok, late.clone()], Verdict::Timeout),
        ("1", [Outcome::Ok, late.clone()], Verdict::Ok),
        ("1", [late.clone(), late.clone()], Verdict::Timeout),
        ("1", [late.clone(), Outcome::Tolerable], Verdict::Timeout),
        ("100%", [late, exit(1)], Verdict::Failed),
    ] {
        let (_, verdict) = verdict(terms(tolerate), &outcomes, |s| s.tolerate_timeout = true);
        assert_eq!(verdict, Some(expect), "{tolerate} {outcomes:?}");
    }
}

/// A script hangs past its limit on one of two nodes. A job that may forgive the rank goes on once the node's drain is
/// in force, and the script's own end is recorded as late. Any other job waits for the script.
#[test]
fn a_job_goes_on_without_a_straggler() {
    let phase = || Phase::Overdue { script: "10-mount".into(), limit_ms: 1_000, doing: String::new() };
    for (tolerate, allowed, is_given_up) in [("1", true, true), ("0", true, false), ("1", false, false)] {
        let (mut b, n) = bench(2, |s| (s.tolerate_timeout, s.drain_hook) = (allowed, true));
        b.ask(add("j", "n[0-1]", terms(tolerate))).0.unwrap();
        b.run("prolog", "j", "n[0-1]");
        let t = task("prolog", "j", 1);
        b.receives(n[1], FromAgent::Accepted { task: t, limit_ms: Some(1_000) });
        b.receives(n[1], FromAgent::PhaseChanged { task: t, phase: phase(), age_ms: 1 });
        report_end(&mut b, n[0], task("prolog", "j", 0), ended(Outcome::Ok));
        assert_eq!(b.action("prolog", "j", 0).verdict, None, "the drain is not in force");
        let mut b = b.restart();
        confirm(&mut b, "n1");
        let row = b.action("prolog", "j", 0);
        assert_eq!(row.verdict, is_given_up.then_some(Verdict::Ok), "{tolerate} {allowed}");
        assert!(row.resolving.is_empty());
        // The script is shown as long as it lives: also to a controller that has just started.
        let overdue = HeldState::Live { phase: phase(), age_ms: 1 };
        let (session, _) = b.up("n1", "b", vec![held("prolog", "j", 1, overdue)]);
        let shown = |b: &mut Bench| match b.ask(Request::Ps { older_than_ms: 0, held: false }).0 {
            Ok(Reply::Ps { rows, .. }) => rows.into_iter().find(|row| row.hosts.to_string() == "n1").map(|row| row.why),
            reply => panic!("{reply:?}"),
        };
        let past = "10-mount is past its limit of 1s".to_owned();
        let gone_on = format!("{past}: it still runs, although its task has ended: timeout");
        assert_eq!(shown(&mut b), Some(if is_given_up { gone_on } else { past }), "{tolerate} {allowed}");
        report_end(&mut b, session, t, ended(Outcome::Ok));
        match is_given_up {
            true => {
                assert_eq!(shown(&mut b), None);
                assert_eq!(b.outcome(t), Outcome::Timeout { status: None });
                assert_eq!(b.store.ranks[0].late[0].outcome, Outcome::Ok);
            }
            false => assert_eq!(b.action("prolog", "j", 0).verdict, Some(Verdict::Ok)),
        }
    }
}

/// Regression test: the controller did not wait for a script past its limit, and ended the rank as `timeout`. The
/// script itself later ended as `timeout` too. The controller took this for a repetition, and recorded no late end.
#[test]
fn the_own_end_of_a_straggler_is_late() {
    let (mut b, n) = bench(2, |s| s.tolerate_timeout = true);
    b.ask(add("j", "n[0-1]", terms("1"))).0.unwrap();
    b.run("prolog", "j", "n[0-1]");
    let t = task("prolog", "j", 1);
    b.receives(n[1], FromAgent::Accepted { task: t, limit_ms: Some(1_000) });
    let phase = Phase::Overdue { script: "10-mount".into(), limit_ms: 1_000, doing: String::new() };
    b.receives(n[1], FromAgent::PhaseChanged { task: t, phase, age_ms: 1 });
    let late = Outcome::Timeout { status: None };
    assert_eq!(b.outcome(t), late, "the rank was given up");
    for _ in 0..2 {
        report_end(&mut b, n[1], t, Ended { steps: vec![step()], ..ended(late.clone()) });
        assert_eq!(b.store.ranks[0].late.len(), 1);
        assert_eq!(b.m.sizes()[3], ("tasks by node", 3), "no script of it lives");
    }
}

/// Returns terms with the tolerance `tolerate` for the job, and with tolerances for single checks, as (check,
/// tolerance).
fn by_check(tolerate: &str, checks: &[(&str, &str)]) -> Terms {
    let check = |(name, of): &(&str, &str)| (CheckName::new(name).unwrap(), of.parse().unwrap());
    Terms { checks: checks.iter().map(check).collect(), ..terms(tolerate) }
}

#[test]
fn a_check_with_a_tolerance_of_its_own_has_no_more() {
    let (lustre, gpu) = (|| check("lustre", "m"), || check("gpu", "m"));
    let ok = || ended(Outcome::Ok);
    let both = || Ended { checks: [lustre().checks, gpu().checks].concat(), ..lustre() };
    // The end of a script that the node's configuration calls tolerable, without a check.
    let unnamed = || ended(Outcome::Tolerable);
    let lost = || ended(Outcome::Lost { why: Loss::Vanished });
    let (two, none): (&[_], &[_]) = (&[("lustre", "2")], &[]);
    let levels: &[_] = &[("gpu", "0"), ("lustre", "50%")];
    #[rustfmt::skip]
    let table: &[(&str, &[(&str, &str)], [Ended; 4], Verdict)] = &[
        // The terms name one check: the job forgives failures of that check only.
        ("", two, [lustre(), lustre(), ok(), ok()], Verdict::Ok),
        ("", two, [lustre(), lustre(), lustre(), ok()], Verdict::Failed),
        ("", two, [lustre(), gpu(), ok(), ok()], Verdict::Failed),
        ("", two, [both(), ok(), ok(), ok()], Verdict::Failed),
        ("", two, [unnamed(), ok(), ok(), ok()], Verdict::Failed),
        ("", two, [lost(), ok(), ok(), ok()], Verdict::Lost),
        ("", two, [ended(exit(1)), ok(), ok(), ok()], Verdict::Failed),
        // A total stands beside the check's tolerance: both limits hold.
        ("3", two, [lustre(), lustre(), gpu(), ok()], Verdict::Ok),
        ("3", two, [lustre(), both(), unnamed(), ok()], Verdict::Ok),
        ("3", two, [lustre(), lustre(), both(), ok()], Verdict::Failed),
        ("1", two, [lustre(), lustre(), ok(), ok()], Verdict::Failed),
        ("0", two, [lustre(), ok(), ok(), ok()], Verdict::Failed),
        ("3", none, [lustre(), lustre(), lustre(), ok()], Verdict::Ok),
        // Different limits by check: none for one check, half of the ranks for another.
        ("3", levels, [lustre(), lustre(), unnamed(), ok()], Verdict::Ok),
        ("3", levels, [gpu(), ok(), ok(), ok()], Verdict::Failed),
        ("", levels, [lustre(), lustre(), ok(), ok()], Verdict::Ok),
    ];
    for (tolerate, checks, ends, expect) in table {
        let (mut b, _) = bench(4, |s| s.tolerate_lost = true);
        b.ask(add("j", "n[0-3]", by_check(tolerate, checks))).0.unwrap();
        b.run("prolog", "j", "n[0-3]");
        // The terms survive a restart.
        let mut b = b.restart();
        for (rank, end) in (0u32..).zip(ends) {
            let (session, _) = b.up(&format!("n{rank}"), "b", vec![held("prolog", "j", rank, HeldState::Ended)]);
            report_end(&mut b, session, task("prolog", "j", rank), end.clone());
        }
        let case: Vec<_> = ends.iter().map(|end| (end.outcome.as_str(), end.checks.len())).collect();
        assert_eq!(b.action("prolog", "j", 0).verdict, Some(*expect), "{tolerate} {checks:?} {case:?}");
    }
}

/// Failures of a check that were forgiven in one action count against the check's tolerance in the next. A rank that
/// fails the check again counts once.
#[test]
fn the_tolerance_of_a_check_is_of_the_whole_job() {
    for (second, expect) in [
        ([check("lustre", "m"), ended(Outcome::Ok)], Verdict::Ok),
        ([ended(Outcome::Ok), check("lustre", "m")], Verdict::Failed),
        ([ended(Outcome::Ok), check("gpu", "m")], Verdict::Ok),
    ] {
        let (mut b, n) = bench(2, |_| {});
        b.ask(add("j", "n[0-1]", by_check("2", &[("lustre", "1")]))).0.unwrap();
        for (action, ends) in [("prolog", [check("lustre", "m"), ended(Outcome::Ok)]), ("check", second)] {
            b.run(action, "j", "n[0-1]");
            for (rank, end) in (0u32..).zip(ends) {
                report_end(&mut b, n[rank as usize], task(action, "j", rank), end);
            }
        }
        assert_eq!(b.action("check", "j", 0).verdict, Some(expect));
    }
}

#[test]
fn tolerated_ranks_are_reported_in_a_non_fatal_exception() {
    let (mut b, n) = bench(4, |_| {});
    b.ask(add("j", "n[0-3]", terms("2"))).0.unwrap();
    b.run("prolog", "j", "n[0-3]");
    report_end(&mut b, n[1], task("prolog", "j", 1), check("lustre", "mount missing"));
    report_end(&mut b, n[3], task("prolog", "j", 3), check("lustre", "mount missing"));
    for rank in [0, 2] {
        report_end(&mut b, n[rank as usize], task("prolog", "j", rank), ended(Outcome::Ok));
    }
    assert_eq!(
        contexts(&b, "exception"),
        [json!({"type": "node-failure", "severity": 1, "note": "n[1,3]", "ranks": "1,3", "hosts": "n[1,3]",
            "action": "prolog", "attempt": "0",
            "checks": [{"check": "lustre", "message": "mount missing", "ranks": "1,3", "hosts": "n[1,3]"}]})]
    );
    let reported: Vec<_> = b.store.outbox.iter().map(|entry| entry.body.value()["event"].clone()).collect();
    assert_eq!(reported, ["verdict", "exception"]);
    assert_eq!(
        b.store.drains.iter().map(|d| (d.host.as_str(), d.reason.as_str())).collect::<Vec<_>>(),
        [
            ("n1", "prolog: tolerable: lustre: mount missing (job j attempt 0)"),
            ("n3", "prolog: tolerable: lustre: mount missing (job j attempt 0)")
        ]
    );
    assert_eq!(contexts(&b, "shrink"), [] as [serde_json::Value; 0]);
}

/// With `tolerate-lost`, one exception names both the lost node and the node with a failed check (requirement A21).
#[test]
fn a_dead_node_shares_the_exception_of_failed_checks() {
    let (mut b, n) = bench(3, |s| s.tolerate_lost = true);
    b.ask(add("j", "n[0-2]", terms("2"))).0.unwrap();
    b.run("prolog", "j", "n[0-2]");
    for rank in 0..3 {
        b.receives(n[rank as usize], FromAgent::Accepted { task: task("prolog", "j", rank), limit_ms: None });
    }
    report_end(&mut b, n[0], task("prolog", "j", 0), ended(Outcome::Ok));
    report_end(&mut b, n[2], task("prolog", "j", 2), check("lustre", "mount missing"));
    b.batch(vec![Input::Closed { session: n[1], why: "power".into() }]);
    b.up("n1", "c", vec![]);
    assert_eq!(b.action("prolog", "j", 0).verdict, Some(Verdict::Ok));
    assert_eq!(
        contexts(&b, "exception"),
        [json!({"type": "node-failure", "severity": 1, "note": "n[1-2]", "ranks": "1-2", "hosts": "n[1-2]",
            "action": "prolog", "attempt": "0",
            "checks": [{"check": "lost", "message": "lost (the node rebooted)", "ranks": "1", "hosts": "n1"},
                {"check": "lustre", "message": "mount missing", "ranks": "2", "hosts": "n2"}]})]
    );
    assert_eq!(b.store.drains.iter().map(|drain| drain.host.as_str()).collect::<Vec<_>>(), ["n2", "n1"]);
}

/// A node is lost after the prolog, while the job runs. The loss counts against the job's tolerance in the job's next
/// action, for example `perilog run check --job JOB` (requirement A21).
#[test]
fn a_job_tolerates_a_node_lost_before_a_later_action() {
    for (tolerate, expect) in [("1", Verdict::Ok), ("0", Verdict::Lost)] {
        let (mut b, n) = bench(3, |s| s.tolerate_lost = true);
        b.ask(add("j", "n[0-2]", terms(tolerate))).0.unwrap();
        b.run("prolog", "j", "n[0-2]");
        for rank in 0..3 {
            report_end(&mut b, n[rank as usize], task("prolog", "j", rank), ended(Outcome::Ok));
        }
        assert_eq!(b.action("prolog", "j", 0).verdict, Some(Verdict::Ok));
        // The loss of the node alone ends no task, because none ran there.
        b.batch(vec![Input::Closed { session: n[1], why: "power".into() }]);
        b.pass(settings().unreachable_grace_ms);
        assert_eq!(contexts(&b, "exception"), [] as [serde_json::Value; 0]);
        b.run("check", "j", "n[0-2]");
        for rank in [0, 2] {
            report_end(&mut b, n[rank as usize], task("check", "j", rank), ended(Outcome::Ok));
        }
        assert_eq!(b.action("check", "j", 0).verdict, Some(expect), "{tolerate}");
        let reported: Vec<_> = contexts(&b, "exception")
            .iter()
            .map(|c| (c["action"].clone(), c["severity"].clone(), c["ranks"].clone(), c["hosts"].clone()))
            .collect();
        let one = (json!("check"), json!(1), json!("1"), json!("n1"));
        assert_eq!(reported, if expect == Verdict::Ok { vec![one] } else { vec![] }, "{tolerate}");
        // In both cases the job keeps its ranks until the resource manager finishes the job.
        assert_eq!(b.store.attempts[0].hold.ranks.to_string(), "0-2");
        assert_eq!(b.store.drains.iter().map(|drain| drain.host.as_str()).collect::<Vec<_>>(), ["n1"]);
    }
}

/// A failed epilog has a verdict of its own and drains its node; no failure of the job is reported (requirement C15).
#[test]
fn a_clean_up_that_fails_leaves_the_job_a_success() {
    let (mut b, n) = bench(2, |_| {});
    b.ask(add("j", "n[0-1]", Terms::default())).0.unwrap();
    b.run("prolog", "j", "n[0-1]");
    for rank in 0..2 {
        report_end(&mut b, n[rank as usize], task("prolog", "j", rank), ended(Outcome::Ok));
    }
    b.ask(finish("j", None)).0.unwrap();
    report_end(&mut b, n[0], task("epilog", "j", 0), ended(Outcome::Ok));
    report_end(&mut b, n[1], task("epilog", "j", 1), ended(exit(7)));
    let verdicts = ["prolog", "epilog"].map(|name| b.action(name, "j", 0).verdict);
    assert_eq!(verdicts, [Some(Verdict::Ok), Some(Verdict::Failed)]);
    // No rank failed for the job.
    let Ok(Reply::Failed { ranks, checks, .. }) = b.ask(Request::Failed { job: job("j"), attempt: None }).0 else {
        panic!("who failed is reported")
    };
    assert_eq!((ranks.to_string().as_str(), checks), ("", vec![]));
    assert_eq!(contexts(&b, "exception"), [] as [serde_json::Value; 0]);
    let reported: Vec<_> = b.store.outbox.iter().map(|entry| entry.body.value()).collect();
    let words = |key: &str| reported.iter().map(|body| body[key].clone()).collect::<Vec<_>>();
    assert_eq!(
        (words("event"), words("verdict")),
        (vec![json!("verdict"), json!("verdict"), json!("release")], vec![json!("ok"), json!("failed"), json!(null)])
    );
    let lasts: Vec<_> = contexts(&b, "release").iter().map(|c| (c["ranks"].clone(), c["final"].clone())).collect();
    assert_eq!(lasts, [(json!("0-1"), json!(true))]);
    assert_eq!(b.store.drains.iter().map(|drain| drain.host.as_str()).collect::<Vec<_>>(), ["n1"]);
}

#[test]
fn failed_and_surplus_ranks_are_released_down_to_keep() {
    let soft = || Outcome::Tolerable;
    let ok = || Outcome::Ok;
    #[rustfmt::skip]
    let table = [
        // Each row: shrink, keep and outcomes, then the verdict and the released ranks.
        (false, None, vec![ok(), soft(), ok(), ok()], Verdict::Ok, ""),
        (true, None, vec![ok(), soft(), ok(), ok()], Verdict::Ok, "1"),
        (false, Some(2), vec![ok(), soft(), ok(), ok()], Verdict::Ok, "1,3"),
        (false, Some(3), vec![ok(), soft(), ok(), ok()], Verdict::Ok, "1"),
        (false, Some(4), vec![ok(), ok(), ok(), ok()], Verdict::Ok, ""),
        (false, Some(1), vec![ok(), ok(), ok(), ok()], Verdict::Ok, "1-3"),
        // One rank too many failed to keep three.
        (false, Some(3), vec![soft(), soft(), ok(), ok()], Verdict::Failed, ""),
        (true, Some(2), vec![soft(), exit(1), ok(), ok()], Verdict::Failed, ""),
    ];
    for (shrink, keep, outcomes, expect, back) in table {
        // With `keep` and no tolerance, every rank above the kept number may fail.
        let tolerate = if keep.is_some() { "" } else { "1" };
        let (b, verdict) = verdict(Terms { shrink, keep, ..terms(tolerate) }, &outcomes, |_| {});
        let case = format!("{shrink} {keep:?} {outcomes:?}");
        assert_eq!(verdict, Some(expect), "{case}");
        let shrinks = contexts(&b, "shrink");
        assert_eq!(shrinks.first().map_or("", |s| s["ranks"].as_str().unwrap()), back, "{case}");
        assert_eq!(shrinks.len(), usize::from(!back.is_empty()), "{case}");
        if !back.is_empty() {
            // The released ranks pass through their epilog before the job's other ranks do.
            let epilog = b.action("epilog", "j", 0);
            assert_eq!((epilog.ranks.to_string().as_str(), epilog.growing), (back, true), "{case}");
            assert!(keep.is_none_or(|keep| b.store.attempts[0].hold.ranks.len() >= u64::from(keep)), "{case}");
        }
    }
}

#[test]
fn only_faulty_hosts_are_drained_and_reasons_are_kept() {
    let (mut b, n) = bench(4, |_| {});
    b.ask(Request::Drain { hosts: "n0".parse().unwrap(), reason: "dimm".into(), force: true }).0.unwrap();
    b.run("prolog", "j", "n[0-3]");
    b.receives(n[2], FromAgent::Accepted { task: task("prolog", "j", 2), limit_ms: None });
    b.ask(Request::Cancel { which: which("j", Some("2")), why: "user".into() }).0.unwrap();
    report_end(&mut b, n[2], task("prolog", "j", 2), ended(Outcome::Cancelled { status: None }));
    report_end(&mut b, n[0], task("prolog", "j", 0), ended(exit(2)));
    report_end(&mut b, n[1], task("prolog", "j", 1), ended(exit(3)));
    report_end(&mut b, n[3], task("prolog", "j", 3), ended(Outcome::Ok));
    let drains = b.m.drains.values();
    assert_eq!(
        drains.map(|d| (d.host.as_str(), d.reason.as_str(), d.by)).collect::<Vec<_>>(),
        [("n0", "dimm", Some(0)), ("n1", "prolog: failed (exit 3) (job j attempt 0)", None)]
    );
    let mut b = b.restart();
    for (hosts, expect) in [("n1", true), ("n1", false), ("n2", false), ("n0", true)] {
        let reply = b.ask(Request::Undrain { hosts: hosts.parse().unwrap(), forget: false, notice_id: None }).0;
        assert!(matches!(reply, Ok(Reply::Undrained { tasks, .. }) if (tasks == 1) == expect), "{hosts}: {reply:?}");
    }
    assert_eq!(b.store.drains, []);
}

#[test]
fn a_rank_at_fault_is_released_when_its_drain_is_in_force() {
    let (mut b, n) = bench(3, |s| s.drain_hook = true);
    b.ask(add("j", "n[0-2]", Terms::default())).0.unwrap();
    b.ask(finish("j", None)).0.unwrap();
    report_end(&mut b, n[0], task("epilog", "j", 0), ended(Outcome::Ok));
    report_end(&mut b, n[1], task("epilog", "j", 1), ended(exit(1)));
    let effects = report_end(&mut b, n[2], task("epilog", "j", 2), ended(Outcome::Ok));
    assert!(effects.contains(&Effect::OutboxGrew), "{effects:?}");
    let released = |b: &Bench| b.store.attempts[0].released.ranks.to_string();
    assert_eq!(released(&b), "0,2");
    // Across a restart the release still waits for the hook; a confirmation of another notice does not count.
    let mut b = b.restart();
    let notice_id = b.store.drains[0].notice_id;
    let done =
        |notice_id, lifted| Request::DrainsDone { drains: vec![(HostName::new("n1").unwrap(), notice_id)], lifted };
    b.ask(done(notice_id - 1, false)).0.unwrap();
    b.ask(done(notice_id, true)).0.unwrap();
    assert_eq!(released(&b), "0,2");
    b.ask(done(notice_id, false)).0.unwrap();
    assert_eq!(released(&b), "0-2");
    assert!(b.store.attempts[0].complete);
    let lasts: Vec<_> = contexts(&b, "release").iter().map(|c| c["final"].clone()).collect();
    assert_eq!(lasts, [false, true]);
    // Without a configured hook, no drain waits for confirmation.
    let bare = Bench::load(b.store.clone(), b.now);
    assert!(bare.m.drains.values().all(|drain| drain.confirmed));
    // A lifted drain is forgotten only when the hook has confirmed the lift.
    b.ask(Request::Undrain { hosts: "n1".parse().unwrap(), forget: false, notice_id: None }).0.unwrap();
    assert!(b.store.drains[0].lifted);
    b.ask(done(notice_id, true)).0.unwrap();
    assert_eq!(b.store.drains, []);
}

/// Regression test: a script passed its limit while the controller was down, and the controller did not drain the node
/// when the node's next Hello reported it.
#[test]
fn a_limit_that_passed_unreported_drains_the_node_too() {
    let (mut b, n) = bench(1, |_| {});
    b.ask(add("j", "n0", Terms::default())).0.unwrap();
    b.ask(finish("j", None)).0.unwrap();
    b.receives(n[0], FromAgent::Accepted { task: task("epilog", "j", 0), limit_ms: None });
    let phase = || Phase::Overdue { script: "10-umount".into(), limit_ms: 600_000, doing: String::new() };
    let overdue = || vec![held("epilog", "j", 0, HeldState::Live { phase: phase(), age_ms: 5 })];
    let reported = |b: &Bench| contexts(b, "overdue").len();
    let mut b = b.restart();
    b.up("n0", "b", overdue());
    assert_eq!(b.store.drains[0].reason, "epilog: 10-umount is past its limit of 10m (job j attempt 0)");
    assert_eq!(reported(&b), 1);
    // The next controller repeats no event, and after an undrain another session does not drain the node again.
    let mut b = b.restart();
    let (session, _) = b.up("n0", "b", overdue());
    b.ask(Request::Undrain { hosts: "n0".parse().unwrap(), forget: false, notice_id: None }).0.unwrap();
    b.batch(vec![Input::Closed { session, why: String::new() }]);
    b.up("n0", "b", overdue());
    assert_eq!((reported(&b), b.store.drains.len()), (1, 0));
}

#[test]
fn a_script_past_its_limit_drains_its_node_while_it_is_alive() {
    let (mut b, n) = bench(1, |_| {});
    b.ask(add("j", "n0", Terms::default())).0.unwrap();
    b.ask(finish("j", None)).0.unwrap();
    let t = task("epilog", "j", 0);
    b.receives(n[0], FromAgent::Accepted { task: t, limit_ms: None });
    let phase = Phase::Overdue { script: "10-umount".into(), limit_ms: 600_000, doing: String::new() };
    b.receives(n[0], FromAgent::PhaseChanged { task: t, phase, age_ms: 0 });
    assert_eq!(b.store.drains[0].reason, "epilog: 10-umount is past its limit of 10m (job j attempt 0)");
    assert!(b.store.attempts[0].released.is_empty());
    // The script's later end does not change the reason.
    report_end(&mut b, n[0], t, ended(Outcome::Timeout { status: None }));
    assert_eq!(b.store.drains[0].reason, "epilog: 10-umount is past its limit of 10m (job j attempt 0)");
    assert!(b.store.attempts[0].complete);
    assert!(matches!(
        b.ask(Request::JobCancel { job: job("x"), attempt: None, why: String::new() }).0,
        Err(Refusal::NoSuchJob(_))
    ));
}
