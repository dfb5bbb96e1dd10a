//! Superseding: the after-actions of the older attempt clean up, and the newer attempt waits for them host by host.

use crate::job::Terms;
use crate::outcome::{ExitStatus, Verdict};

use super::release::{add, bench, contexts, finish, job};
use super::*;

pub(super) fn of(attempt: u64, action: &str, rank: u32) -> TaskId {
    TaskId { action: id(action, "j", attempt), rank: Rank(rank) }
}

/// Requests the prolog of a new attempt, over the hosts of the attempt before.
fn again(b: &mut Bench, attempt: u64) -> Vec<Effect> {
    let hosts = b.store.attempts.iter().filter(|row| row.job == job("j")).map(|row| row.hosts.to_string()).next_back();
    let (reply, effects) = b.ask(Request::Run(request("prolog", "j", hosts.as_deref(), Some(attempt))));
    assert!(matches!(reply, Ok(Reply::Running { attached: false, .. })), "{reply:?}");
    effects
}

pub(super) fn end(b: &mut Bench, session: SessionId, task: TaskId, outcome: Outcome) -> Vec<(SessionId, u32)> {
    starts(&b.receives(session, finished(task, outcome)))
}

/// Returns the action and attempt of each Start among the effects.
pub(super) fn begun(effects: &[Effect]) -> Vec<(String, String)> {
    let start = |effect: &Effect| match effect {
        Effect::Fan { start, .. } => Some((start.action.to_string(), start.attempt.to_string())),
        Effect::Send { message: ToAgent::Start(start), .. } => {
            Some((start.action.to_string(), start.attempt.to_string()))
        }
        _ => None,
    };
    effects.iter().filter_map(start).collect()
}

pub(super) fn named(action: &str, attempt: &str) -> Vec<(String, String)> {
    vec![(action.to_owned(), attempt.to_owned())]
}

/// Returns the tasks that `ps` shows as waiting. Each has action and attempt (`epilog of 0`), hosts, and the reason.
fn waits(b: &mut Bench) -> Vec<(String, String, String)> {
    let Ok(Reply::Ps { rows, .. }) = b.ask(Request::Ps { older_than_ms: 0, held: false }).0 else { panic!() };
    let waiting = rows.into_iter().filter(|row| row.state == "waiting");
    waiting.map(|row| (format!("{} of {}", row.action, row.attempt), row.hosts.to_string(), row.why)).collect()
}

/// Returns attempt and ranks of each release.
fn released(b: &Bench) -> Vec<(String, String)> {
    let text = |value: &serde_json::Value| value.as_str().map_or(value.to_string(), str::to_owned);
    contexts(b, "release").iter().map(|c| (text(&c["attempt"]), text(&c["ranks"]))).collect()
}

#[test]
fn the_new_attempt_waits_for_the_epilog_of_a_begun_one() {
    let (mut b, n) = bench(2, |_| {});
    b.run("prolog", "j", "n[0-1]");
    end(&mut b, n[0], of(0, "prolog", 0), Outcome::Ok);
    end(&mut b, n[1], of(0, "prolog", 1), Outcome::Ok);
    let effects = again(&mut b, 1);
    assert_eq!(begun(&effects), named("epilog", "0"));
    assert_eq!(starts(&effects), [(n[0], 0), (n[1], 1)]);
    assert_eq!(b.action("epilog", "j", 0).held.ranks.to_string(), "0-1");
    assert_eq!(released(&b), []);
    let why = "epilog of attempt 0 has not ended there".to_owned();
    assert_eq!(waits(&mut b), [("prolog of 1".to_owned(), "n[0-1]".to_owned(), why)]);
    // The wait ends host by host, also across a restart.
    let effects = b.receives(n[1], finished(of(0, "epilog", 1), Outcome::Ok));
    assert_eq!((begun(&effects), starts(&effects)), (named("prolog", "1"), vec![(n[1], 1)]));
    let mut b = b.restart();
    let prolog = b.action("prolog", "j", 1);
    assert_eq!((prolog.waiting.to_string(), prolog.sent.to_string()), ("0".into(), "1".into()));
    let (n0, effects) = b.up("n0", "b", vec![held("epilog", "j", 0, live())]);
    assert_eq!(starts(&effects), []);
    assert_eq!(end(&mut b, n0, of(0, "epilog", 0), Outcome::Ok), [(n0, 0)]);
    assert_eq!(released(&b), [("0".to_owned(), "0-1".to_owned())]);
    assert!(b.store.attempts.iter().any(|row| row.attempt == Attempt::FIRST && row.complete && !row.open));
}

/// Regression test: of a job with two attempts, `perilog why` suggested a command about the older one without
/// `--attempt`. The command then meant the newer attempt, and the controller refused it.
#[test]
fn advice_names_the_attempt_if_the_default_is_another() {
    let (mut b, n) = bench(1, |_| {});
    b.run("prolog", "j", "n0");
    end(&mut b, n[0], of(0, "prolog", 0), Outcome::Ok);
    again(&mut b, 1);
    let next = |b: &mut Bench| {
        let Ok(Reply::Why(view)) = b.ask(Request::Why { host: HostName::new("n0").unwrap() }).0 else { panic!() };
        let words = view.open.iter().map(|task| {
            let last = task.next.last().cloned().unwrap_or_default();
            (task.action.to_string(), task.unit.is_empty(), last)
        });
        let mut words: Vec<_> = words.collect();
        words.sort();
        words
    };
    let waits = ("prolog".to_owned(), true, "perilog cancel j prolog --ranks 0".to_owned());
    let runs = ("epilog".to_owned(), false, "perilog cancel j epilog --attempt 0 --ranks 0".to_owned());
    assert_eq!(next(&mut b), [runs, waits.clone()]);
    b.receives(n[0], FromAgent::Accepted { task: of(0, "epilog", 0), limit_ms: None });
    let phase = Phase::Overdue { script: "10-umount".into(), limit_ms: 600_000, doing: String::new() };
    b.receives(n[0], FromAgent::PhaseChanged { task: of(0, "epilog", 0), phase, age_ms: 0 });
    let stuck = "perilog resolve j epilog --attempt 0 --ranks 0 --reason TEXT".to_owned();
    assert_eq!(next(&mut b), [("epilog".to_owned(), false, stuck), waits]);
    // The refusal tells an operator who omits the attempt which attempt has the action.
    let epilog = Which { action: Some(ActionName::new("epilog").unwrap()), ..which("j", None) };
    let reply = b.ask(Request::Resolve { which: epilog, ok: false, reason: "hung".into() }).0;
    let text = "job j attempt 1 has no action epilog; attempt 0 has one: --attempt 0".to_owned();
    assert_eq!(reply, Err(Refusal::NoSuchAction(text)));
}

/// Regression test: the epilog of an attempt that Flux had lost ran without FLUX_JOB_ID and FLUX_JOB_USERID.
#[test]
fn an_epilog_that_nobody_asked_for_has_the_variables_of_its_prolog() {
    let env: BTreeMap<String, String> = [("FLUX_JOB_ID".to_owned(), "f2mKAgF7".to_owned())].into();
    let superseded: fn(&mut Bench) = |b| drop(again(b, 1));
    let finished_alone: fn(&mut Bench) = |b| drop(b.ask(finish("j", None)).0.unwrap());
    for ends in [superseded, finished_alone] {
        let (mut b, n) = bench(1, |_| {});
        let prolog = RunRequest { env: env.clone(), userid: Some(1000), ..request("prolog", "j", Some("n0"), None) };
        b.ask(Request::Run(prolog)).0.unwrap();
        end(&mut b, n[0], of(0, "prolog", 0), Outcome::Ok);
        ends(&mut b);
        let epilog = b.action("epilog", "j", 0);
        assert_eq!((&epilog.env, epilog.userid), (&env, Some(1000)));
    }
}

/// The epilog of a superseded attempt begins only when the attempt's running prolog has ended, whatever its outcome.
#[test]
fn a_prolog_that_runs_goes_on_and_its_epilog_comes_after_it() {
    for outcome in [Outcome::Ok, exit(3)] {
        let (mut b, n) = bench(1, |_| {});
        b.run("prolog", "j", "n0");
        b.receives(n[0], FromAgent::Accepted { task: of(0, "prolog", 0), limit_ms: None });
        assert_eq!(begun(&again(&mut b, 1)), []);
        let effects = b.receives(n[0], finished(of(0, "prolog", 0), outcome));
        assert_eq!(begun(&effects), named("epilog", "0"));
        let effects = b.receives(n[0], finished(of(0, "epilog", 0), Outcome::Ok));
        assert_eq!(begun(&effects), named("prolog", "1"));
    }
}

/// A third attempt opens while the tasks of the second attempt still wait. These tasks never begin, so no epilog of the
/// second attempt runs.
#[test]
fn what_was_never_sent_does_not_begin_and_is_not_followed() {
    let (mut b, n) = bench(1, |_| {});
    b.run("prolog", "j", "n0");
    again(&mut b, 1);
    assert_eq!(begun(&again(&mut b, 2)), []);
    assert_eq!(b.outcome(of(1, "prolog", 0)), Outcome::Cancelled { status: None });
    assert_eq!(released(&b), [("1".to_owned(), "0".to_owned())]);
    assert!(!b.store.actions.iter().any(|row| row.id == id("epilog", "j", 1)));
    assert!(b.store.drains.is_empty());
    end(&mut b, n[0], of(0, "prolog", 0), Outcome::Ok);
    let effects = b.receives(n[0], finished(of(0, "epilog", 0), Outcome::Ok));
    assert_eq!(begun(&effects), named("prolog", "2"));
}

/// Regression test: the site removed every after-action from its list. A waiting epilog then counted as a setup action.
#[test]
fn a_waiting_epilog_begins_though_no_action_is_an_after_action() {
    let (mut b, n) = bench(1, |_| {});
    b.run("prolog", "j", "n0");
    b.receives(n[0], FromAgent::Accepted { task: of(0, "prolog", 0), limit_ms: None });
    again(&mut b, 1);
    b.settings.after.clear();
    b.batch(vec![Input::Settings(b.settings.clone()), Input::Closed { session: n[0], why: String::new() }]);
    let (n0, _) = b.up("n0", "b", vec![held("prolog", "j", 0, live())]);
    let effects = b.receives(n0, finished(of(0, "prolog", 0), Outcome::Ok));
    assert_eq!(begun(&effects), named("epilog", "0"));
}

#[test]
fn without_anything_begun_it_is_released_at_once() {
    let (mut b, _) = bench(2, |_| {});
    b.ask(add("j", "n[0-1]", Terms::default())).0.unwrap();
    assert_eq!(begun(&again(&mut b, 1)), named("prolog", "1"));
    assert_eq!(released(&b), [("0".to_owned(), "0-1".to_owned())]);
}

/// An operator runs the epilog of an attempt manually. A newer attempt that supersedes this one waits for that epilog,
/// and no second epilog begins.
#[test]
fn an_epilog_that_was_asked_for_is_the_one() {
    for ended in [false, true] {
        let (mut b, n) = bench(1, |_| {});
        b.run("prolog", "j", "n0");
        end(&mut b, n[0], of(0, "prolog", 0), Outcome::Ok);
        b.run("epilog", "j", "n0");
        if ended {
            end(&mut b, n[0], of(0, "epilog", 0), Outcome::Ok);
        }
        assert_eq!(begun(&again(&mut b, 1)), if ended { named("prolog", "1") } else { vec![] });
        if !ended {
            let effects = b.receives(n[0], finished(of(0, "epilog", 0), Outcome::Ok));
            assert_eq!(begun(&effects), named("prolog", "1"));
        }
        assert_eq!(released(&b), [("0".to_owned(), "0".to_owned())]);
    }
}

/// A newer attempt waits only on hosts that the older attempt has too. On its other hosts it begins at once.
#[test]
fn only_hosts_that_both_have_wait() {
    let (mut b, n) = bench(3, |_| {});
    b.run("prolog", "j", "n[0-1]");
    let (reply, effects) = b.ask(Request::Run(request("prolog", "j", Some("n[2,1]"), Some(1))));
    assert!(reply.is_ok());
    assert_eq!(starts(&effects), [(n[2], 0)]);
    end(&mut b, n[1], of(0, "prolog", 1), Outcome::Ok);
    assert_eq!(end(&mut b, n[1], of(0, "epilog", 1), Outcome::Ok), [(n[1], 1)]);
    assert_eq!(end(&mut b, n[0], of(0, "prolog", 0), Outcome::Ok), [(n[0], 0)]);
    assert_eq!(end(&mut b, n[0], of(0, "epilog", 0), Outcome::Ok), []);
}

#[test]
fn an_operator_may_settle_or_cancel_what_the_new_one_waits_for() {
    let which = |action: &str| Which {
        job: job("j"),
        attempt: Some(Attempt::FIRST),
        action: Some(ActionName::new(action).unwrap()),
        targets: None,
        resources: None,
    };
    for resolve in [false, true] {
        let (mut b, n) = bench(1, |settings| settings.drain_hook = true);
        b.run("prolog", "j", "n0");
        b.receives(n[0], FromAgent::Accepted { task: of(0, "prolog", 0), limit_ms: None });
        again(&mut b, 1);
        if resolve {
            let request = |action| Request::Resolve { which: which(action), ok: false, reason: "hung".into() };
            assert_eq!(b.ask(request("prolog")).0, Ok(Reply::Resolved { tasks: 1, waiting: 1 }));
            // The epilog was never sent, so no script of it can run.
            assert_eq!(b.ask(request("epilog")).0, Ok(Reply::Resolved { tasks: 1, waiting: 0 }));
            // The prolog may live: the new attempt and the release wait until its node is drained.
            assert_eq!((waits(&mut b).len(), released(&b)), (1, vec![]));
            let row = b.store.drains[0].clone();
            let done = Request::DrainsDone { drains: vec![(row.host, row.notice_id)], lifted: false };
            assert_eq!(begun(&b.ask(done).1), named("prolog", "1"));
        } else {
            let cancel = |action| Request::Cancel { which: which(action), why: "w".into() };
            b.ask(cancel("epilog")).0.unwrap();
            b.ask(cancel("prolog")).0.unwrap();
            let effects = b.receives(
                n[0],
                finished(of(0, "prolog", 0), Outcome::Cancelled { status: Some(ExitStatus::Signal(15)) }),
            );
            assert_eq!(begun(&effects), named("prolog", "1"));
            // The cancelled epilog did not clean up, so the node is drained.
            assert_eq!(b.store.drains[0].reason, "epilog: cancelled (job j attempt 0)");
            let row = b.store.drains[0].clone();
            b.ask(Request::DrainsDone { drains: vec![(row.host, row.notice_id)], lifted: false }).0.unwrap();
        }
        assert_eq!(released(&b), [("0".to_owned(), "0".to_owned())]);
    }
}

/// A node is gone for good: its tasks become lost, and its rank is released once its drain is in force.
#[test]
fn a_node_that_is_gone_keeps_nobody_for_ever() {
    let (mut b, n) = bench(2, |settings| settings.drain_hook = true);
    b.run("prolog", "j", "n[0-1]");
    for rank in 0..2 {
        end(&mut b, n[rank as usize], of(0, "prolog", rank), Outcome::Ok);
    }
    b.batch(vec![Input::Closed { session: n[1], why: String::new() }]);
    again(&mut b, 1);
    assert_eq!(end(&mut b, n[0], of(0, "epilog", 0), Outcome::Ok), [(n[0], 0)]);
    b.receives(n[0], FromAgent::Accepted { task: of(1, "prolog", 0), limit_ms: None });
    b.pass(60_000);
    assert_eq!(b.action("epilog", "j", 0).verdict, Some(Verdict::Lost));
    assert_eq!(b.outcome(of(1, "prolog", 1)).as_str(), "lost");
    assert_eq!(released(&b), [("0".to_owned(), "0".to_owned())]);
    let row = b.store.drains[0].clone();
    b.ask(Request::DrainsDone { drains: vec![(row.host, row.notice_id)], lifted: false }).0.unwrap();
    assert_eq!(released(&b)[1..], [("0".to_owned(), "1".to_owned())]);
}

fn stage(attempt: Option<u64>, resources: &str) -> Request {
    let run = request("stage", "j", None, attempt);
    let resources = resources.split_terminator(',').map(|name| ResourceName::new(name).unwrap()).collect();
    Request::ActionStart(Box::new(ActionStart { run, resources, lease_ms: 60_000 }))
}

fn report(attempt: Option<u64>, kind: ReportKind) -> Request {
    let action = ActionName::new("stage").unwrap();
    let attempt = attempt.map(Attempt::from_number);
    reports(Report { job: job("j"), attempt, action, targets: None, resources: None, kind })
}

/// Sends a service's report. Returns three sets of ranks and named resources from the reply, as text: those that ended
/// with the report, those still open, and those on which the service should stop.
fn report_and_split(b: &mut Bench, request: Request) -> (String, String, String) {
    let (reply, _) = b.ask(request);
    let Ok(Reply::Reported { ended, open, cancelling, .. }) = reply else { panic!("{reply:?}") };
    (ended.to_string(), open.to_string(), cancelling.to_string())
}

/// The service of an external action knows nothing of a requeue. A report that names no attempt means the attempt for
/// which the service works, and the reply asks the service to stop.
#[test]
fn a_service_of_the_older_attempt_is_acknowledged_and_asked_to_stop() {
    let failed = || ReportKind::Failed { check: None, message: "stopped".into() };
    for attempt in [None, Some(0)] {
        let (mut b, _) = bench(1, |_| {});
        let resources = ["rabbit1".to_owned()].map(|name| ResourceName::new(&name).unwrap());
        b.ask(add("j", "n0", Terms { resources: resources.into(), ..Terms::default() })).0.unwrap();
        b.ask(stage(None, "")).0.unwrap();
        assert_eq!(begun(&again(&mut b, 1)), []);
        let whys: Vec<_> = waits(&mut b).into_iter().map(|(of, _, why)| format!("{of}: {why}")).collect();
        assert_eq!(
            whys,
            ["prolog of 1: stage of attempt 0 has not ended there", "epilog of 0: stage has not ended there"]
        );
        assert_eq!(contexts(&b, "cancel")[0]["why"], "attempt 1 was opened");
        let open = "rank 0".to_owned();
        assert_eq!(
            report_and_split(&mut b, report(attempt, ReportKind::Renew)),
            ("nothing".into(), open.clone(), open.clone())
        );
        // The service outlives a restart and its lease by reporting, then stops. No node is drained.
        let mut b = b.restart();
        b.pass(50_000);
        assert_eq!(report_and_split(&mut b, report(attempt, ReportKind::Renew)).2, open);
        b.pass(50_000);
        let (n0, _) = b.up("n0", "b", vec![]);
        assert_eq!(report_and_split(&mut b, report(attempt, failed())).0, "rank 0");
        assert_eq!(b.outcome(of(0, "stage", 0)), Outcome::Cancelled { status: None });
        assert_eq!(b.action("epilog", "j", 0).sent.to_string(), "0");
        assert_eq!(begun(&b.receives(n0, finished(of(0, "epilog", 0), Outcome::Ok))), named("prolog", "1"));
        assert!(b.store.drains.is_empty());
        // No action is open: a service that means the new attempt must start the action first.
        assert!(matches!(b.ask(report(None, ReportKind::Renew)).0, Err(Refusal::NoSuchAction(_))));
    }
}

/// A report that names no attempt means the open attempt if it has the action, otherwise the only older attempt with
/// that action open. If several older attempts have the action open, the report must name one.
#[test]
fn a_report_without_an_attempt_means_the_only_candidate() {
    let (mut b, _) = bench(1, |_| {});
    let resources = ["rabbit1", "rabbit2"].map(|name| ResourceName::new(name).unwrap());
    let requeued = |number: u64, b: &mut Bench| {
        let terms = Terms { resources: resources.clone().into(), ..Terms::default() };
        let Request::JobAdd(mut add) = add("j", "n0", terms) else { unreachable!() };
        add.attempt = Some(Attempt::from_number(number));
        b.ask(Request::JobAdd(add)).0.unwrap();
    };
    requeued(0, &mut b);
    b.ask(stage(None, "rabbit1")).0.unwrap();
    requeued(1, &mut b);
    assert_eq!(report_and_split(&mut b, report(None, ReportKind::Renew)).2, "rabbit1");
    b.ask(stage(None, "rabbit2")).0.unwrap();
    assert_eq!(report_and_split(&mut b, report(None, ReportKind::Renew)).1, "rabbit2");
    requeued(2, &mut b);
    assert!(matches!(b.ask(report(None, ReportKind::Renew)).0, Err(Refusal::NoSuchAction(_))));
    assert_eq!(report_and_split(&mut b, report(Some(0), ReportKind::Ok)).0, "rabbit1");
    assert_eq!(report_and_split(&mut b, report(None, ReportKind::Renew)).2, "rabbit2");
}

#[test]
fn a_service_starts_after_the_older_attempts_last_part() {
    let (mut b, n) = bench(1, |_| {});
    b.run("prolog", "j", "n0");
    end(&mut b, n[0], of(0, "prolog", 0), Outcome::Ok);
    let refused = |text: &str| Err(Refusal::Unavailable(text.to_owned()));
    // A service does not supersede an attempt: the older attempt's epilog would run beside the service.
    let text = "attempt 0 of job j has not been released: stage of attempt 1 can start once attempt 1 has begun \
                (perilog job add, or perilog run)";
    assert_eq!(b.ask(stage(Some(1), "")).0, refused(text));
    assert_eq!(b.store.attempts.len(), 1);
    assert_eq!(begun(&again(&mut b, 1)), named("epilog", "0"));
    let text = "epilog of attempt 0 of job j has not ended on n0: stage of attempt 1 can start when epilog has ended";
    for attempt in [None, Some(1)] {
        assert_eq!(b.ask(stage(attempt, "")).0, refused(text));
    }
    end(&mut b, n[0], of(0, "epilog", 0), Outcome::Ok);
    b.ask(stage(None, "")).0.unwrap();
    assert_eq!(report_and_split(&mut b, report(None, ReportKind::Ok)).0, "rank 0");
}
