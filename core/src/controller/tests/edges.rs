//! The view of an edge: the attempts of its source and their state.

use crate::controller::view::EdgeAttempt;
use crate::job::Terms;
use crate::outcome::Verdict;

use super::recovery::listed;
use super::release::{bench, finish, job};
use super::tolerance::{check, report_end, terms};
use super::*;

fn source(instance: &str) -> Source {
    Source { name: "flux".into(), instance: instance.into() }
}

fn add(name: &str, attempt: u64, nodes: &str, terms: Terms, source: Option<Source>) -> Request {
    let (nodes, attempt) = (Some(nodes.parse().unwrap()), Some(Attempt::from_number(attempt)));
    Request::JobAdd(Box::new(JobAdd { source, job: job(name), attempt, nodes, userid: Some(1000), terms }))
}

fn attempts(b: &mut Bench, jobs: Option<&[&str]>, after: Option<(&str, u64)>, limit: usize) -> Vec<EdgeAttempt> {
    let jobs = jobs.map(|jobs| jobs.iter().map(|name| job(name)).collect());
    let after = after.map(|(name, number)| (job(name), Attempt::from_number(number)));
    let Ok(Reply::Attempts(attempts)) =
        b.ask(Request::Attempts(AttemptsOf { source: source("i1"), jobs, after, limit })).0
    else {
        panic!("attempts")
    };
    attempts
}

#[test]
fn an_edge_sees_the_attempts_of_its_own_source() {
    let (mut b, n) = bench(4, |_| {});
    let i1 = || Some(source("i1"));
    for (name, number, host, of) in
        [("a", 0, "n0", i1()), ("b", 0, "n1", Some(source("i2"))), ("c", 0, "n2", None), ("d", 0, "n3", i1())]
    {
        b.ask(add(name, number, host, Terms::default(), of)).0.unwrap();
    }
    b.run("prolog", "d", "n3");
    // The job is launched again: its first attempt is closed, and its epilog runs.
    b.ask(add("d", 1, "n3", Terms::default(), i1())).0.unwrap();
    // Job `a` is over.
    b.ask(finish("a", None)).0.unwrap();
    b.receives(n[0], finished(task("epilog", "a", 0), Outcome::Ok));
    #[rustfmt::skip]
    let table: [(Option<&[&str]>, Option<(&str, u64)>, usize, &[(&str, u64)]); 8] = [
        (None, None, 9, &[("d", 0), ("d", 1)]),
        (None, None, 1, &[("d", 0)]),
        (None, Some(("d", 0)), 9, &[("d", 1)]),
        (None, Some(("d", 1)), 9, &[]),
        (None, Some(("b", 7)), 9, &[("d", 0), ("d", 1)]),
        (Some(&["a"]), None, 9, &[("a", 0)]),
        (Some(&["b", "c", "none"]), None, 9, &[]),
        (Some(&["d", "a"]), None, 1, &[("d", 0), ("d", 1), ("a", 0)]),
    ];
    for (jobs, after, limit, expect) in table {
        let found = attempts(&mut b, jobs, after, limit);
        let found: Vec<(&str, Attempt)> = found.iter().map(|of| (of.job.as_str(), of.attempt)).collect();
        let expect: Vec<(&str, Attempt)> = expect.iter().map(|(name, n)| (*name, Attempt::from_number(*n))).collect();
        assert_eq!(found, expect, "{jobs:?} {after:?} {limit}");
    }
}

/// After a commit the writer hands the state of the changed jobs to an edge, unless the store alone has one of them:
/// the edge would see no attempt.
#[test]
fn a_job_in_the_store_alone_is_not_handed_over() {
    let (mut b, n) = bench(2, |_| {});
    b.ask(add("j", 0, "n0", Terms::default(), Some(source("i1")))).0.unwrap();
    b.ask(add("k", 0, "n1", Terms::default(), Some(source("i1")))).0.unwrap();
    let of = |names: &[&str]| {
        let jobs = names.iter().map(|name| job(name)).collect();
        AttemptsOf { source: source("i1"), jobs: Some(jobs), after: None, limit: 9 }
    };
    let handed = |b: &Bench, names: &[&str], known| b.m.facts().replies_to_edge(&of(names), known);
    let Some([Reply::Attempts(seen), Reply::Drains { revision, .. }]) = handed(&b, &["j"], None) else { panic!() };
    assert_eq!(seen, attempts(&mut b, Some(&["j"]), None, 9));
    b.run("prolog", "j", "n0");
    b.receives(n[0], finished(task("prolog", "j", 0), Outcome::Failed { why: Failure::Exit(1) }));
    let Some([Reply::Attempts(seen), Reply::Drains { drains, .. }]) = handed(&b, &["j", "k"], Some(revision)) else {
        panic!()
    };
    assert_eq!((seen.len(), seen[0].actions[0].verdict, drains.len()), (2, Some(Verdict::Failed), 1));
    // Job `k` is over, and leaves memory.
    b.ask(finish("k", None)).0.unwrap();
    b.receives(n[1], finished(task("epilog", "k", 0), Outcome::Ok));
    assert_eq!(handed(&b, &["j", "k"], None), None);
    assert_eq!(attempts(&mut b, Some(&["k"]), None, 9).len(), 1);
}

#[test]
fn an_attempt_shows_how_far_it_has_come() {
    let (mut b, n) = bench(2, |_| {});
    let show = |b: &mut Bench| attempts(b, Some(&["j"]), None, 9).remove(0);
    b.ask(add("j", 0, "n[0-1]", terms("1"), Some(source("i1")))).0.unwrap();
    let unreleased = |b: &mut Bench| match b.ask(Request::Status {}).0 {
        Ok(Reply::Status(status)) => {
            status.sources.into_iter().map(|of| (of.source, of.unreleased)).collect::<Vec<_>>()
        }
        reply => panic!("{reply:?}"),
    };
    assert_eq!(unreleased(&mut b), [(source("i1").to_string(), 1)]);
    let begun = show(&mut b);
    assert_eq!((begun.hold.to_string(), begun.complete, begun.actions), ("0-1".to_owned(), false, vec![]));
    b.run("prolog", "j", "n[0-1]");
    report_end(&mut b, n[1], task("prolog", "j", 1), check("lustre", "mount missing"));
    let prolog = show(&mut b).actions.remove(0);
    // One rank has failed, but the verdict is open: the edge learns of the failure with the verdict.
    assert_eq!((prolog.verdict, prolog.bad.is_empty(), prolog.failures.len()), (None, true, 0));
    report_end(&mut b, n[0], task("prolog", "j", 0), ended(Outcome::Ok));
    let prolog = show(&mut b).actions.remove(0);
    assert_eq!(
        (prolog.verdict, prolog.bad.to_string(), prolog.bad_hosts.to_string()),
        (Some(Verdict::Ok), "1".into(), "n1".into())
    );
    assert_eq!(
        prolog.failures,
        [serde_json::json!({"check": "lustre", "message": "mount missing", "hosts": "n1", "ranks": "1"})]
    );
    assert!(prolog.ended_ms.is_some());
    b.ask(finish("j", None)).0.unwrap();
    assert!(show(&mut b).hold.is_empty());
    for rank in [0, 1] {
        report_end(&mut b, n[rank as usize], task("epilog", "j", rank), ended(Outcome::Ok));
    }
    let over = show(&mut b);
    assert_eq!((over.complete, over.released.to_string(), over.actions.len()), (true, "0-1".to_owned(), 2));
    assert_eq!(unreleased(&mut b), []);
}

/// An edge's user reaches the jobs that edges added and the drains that its resource manager shows, and no others.
#[test]
fn an_edge_asks_about_its_own_jobs_and_drains_only() {
    let (mut b, _) = bench(4, |settings| settings.drain_hook = true);
    b.ask(add("own", 0, "n0", Terms::default(), Some(source("i1")))).0.unwrap();
    b.ask(add("hooks", 0, "n1", Terms::default(), None)).0.unwrap();
    b.run("prolog", "bare", "n2");
    let drain = |host: &str| Request::Drain { hosts: host.parse().unwrap(), reason: "look".to_owned(), force: false };
    b.ask(drain("n3")).0.unwrap();
    let notice_id = b.store.drains[0].notice_id;
    let run = |name: &str, attempt: Option<u64>| {
        let attempt = attempt.map(Attempt::from_number);
        Request::Run(RunRequest { attempt, ..request("prolog", name, None, None) })
    };
    let finish = |name: &str| Request::JobFinish {
        job: job(name),
        attempt: Some(Attempt::default()),
        targets: None,
        resources: None,
    };
    let cancel = |name: &str| {
        let attempt = Some(Attempt::default());
        let which = Which { job: job(name), attempt, action: None, targets: None, resources: None };
        Request::Cancel { which, why: "over".to_owned() }
    };
    let undrain = |notice_id: Option<u64>| Request::Undrain { hosts: "n3".parse().unwrap(), forget: true, notice_id };
    let other = || Source { name: "pbs".into(), instance: "i1".into() };
    let unnamed = |name: &str, source| match add(name, 0, "n0", Terms::default(), Some(source)) {
        Request::JobAdd(add) => Request::JobAdd(Box::new(JobAdd { attempt: None, ..*add })),
        request => request,
    };
    let mut refused = |request: Request| match b.ask(Request::OfEdge(Box::new(request))).0 {
        Err(Refusal::Conflict(_)) => "conflict",
        Err(Refusal::Invalid(_)) => "invalid",
        Err(Refusal::NoSuchJob(_)) => "no such job",
        Err(other) => panic!("{other:?}"),
        Ok(_) => "done",
    };
    for (request, expect) in [
        (run("own", Some(0)), "done"),
        (run("own", None), "invalid"),
        (run("none", Some(0)), "no such job"),
        (run("hooks", Some(0)), "conflict"),
        (run("bare", Some(0)), "conflict"),
        (cancel("hooks"), "conflict"),
        (cancel("bare"), "conflict"),
        (finish("hooks"), "conflict"),
        (add("x", 0, "n2", Terms::default(), None), "invalid"),
        (unnamed("own", source("i1")), "invalid"),
        (add("own", 0, "n0", Terms::default(), Some(other())), "conflict"),
        (add("own", 1, "n3", Terms::default(), Some(other())), "conflict"),
        (undrain(None), "invalid"),
        (undrain(Some(notice_id)), "conflict"),
        (Request::DrainsDone { drains: vec![("n3".parse().unwrap(), notice_id)], lifted: false }, "done"),
        (undrain(Some(notice_id)), "done"),
        // The edge becomes the source of a hook's job by adding it as it is.
        (add("hooks", 0, "n1", Terms::default(), Some(source("i1"))), "done"),
        (cancel("hooks"), "done"),
        (finish("hooks"), "done"),
        (add("bare", 0, "n2", Terms::default(), Some(source("i1"))), "done"),
        (finish("bare"), "done"),
        (finish("own"), "done"),
    ] {
        let label = format!("{request:?}");
        assert_eq!(refused(request), expect, "{label}");
    }
}

/// An edge's list changes no job of an edge of another name, neither the listed attempt nor the one before it.
#[test]
fn a_list_leaves_the_jobs_of_another_edge_alone() {
    let (mut b, _) = bench(2, |_| {});
    b.ask(add("j", 1, "n0", Terms::default(), Some(source("i1")))).0.unwrap();
    let before = b.store.clone();
    let of = Source { name: "pbs".into(), instance: "i1".into() };
    for (attempt, host) in [(1, "n0"), (2, "n1")] {
        let attempts = vec![Listed { attempt: Attempt::from_number(attempt), ..listed("j", host, JobPhase::Running) }];
        let page = SyncPage {
            source: of.clone(),
            sync: None,
            continues: false,
            attempts,
            unfit: Vec::new(),
            drains: Vec::new(),
        };
        let Ok(Reply::Synced(reported)) = b.ask(Request::OfEdge(Box::new(Request::Sync(Box::new(page))))).0 else {
            panic!("a list is taken");
        };
        assert_eq!((reported.refused.len(), reported.added, reported.known), (1, 0, 0));
        assert_eq!(b.store.attempts, before.attempts);
    }
}
