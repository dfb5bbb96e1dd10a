//! Requests: the attempt and the ranks that each request means, and the requests that the controller refuses.

use crate::job::{Terms, Tolerance};

use super::release::{add, bench, finish};
use super::*;

#[test]
fn the_same_thing_asked_twice_is_the_same_action() {
    let mut b = Bench::new();
    b.up("n0", "b", vec![]);
    b.run("prolog", "j", "n0");
    let (reply, effects) = b.ask(Request::Run(request("prolog", "j", Some("n0"), None)));
    assert!(matches!(reply, Ok(Reply::Running { attached: true, events_after: 1, .. })), "{reply:?}");
    assert_eq!(effects, []);
    let (reply, _) = b.ask(Request::Run(request("prolog", "j", Some("n1"), None)));
    assert!(matches!(reply, Err(Refusal::Conflict(_))));
}

#[test]
fn attempts_are_ordered_and_a_closed_one_is_refused() {
    let mut b = Bench::new();
    b.up("n0", "b", vec![]);
    b.run("prolog", "j", "n0");
    // A requeue without nodes uses the nodes of the attempt before.
    let (reply, effects) = b.ask(Request::Run(request("prolog", "j", None, Some(3))));
    assert!(
        matches!(&reply, Ok(Reply::Running { attached: false, attempt, .. }) if *attempt == Attempt::from_number(3))
    );
    // The older attempt's prolog has not ended there.
    assert_eq!(starts(&effects).len(), 0);
    let refused = |b: &mut Bench, action, attempt| b.ask(Request::Run(request(action, "j", None, Some(attempt)))).0;
    assert!(
        matches!(refused(&mut b, "check", 0), Err(Refusal::AttemptClosed(text)) if text.contains("the open one is 3"))
    );
    let none = "job j has no attempt 2: a new one must be above 3".to_owned();
    assert_eq!(refused(&mut b, "prolog", 2), Err(Refusal::AttemptClosed(none)));
    // A request may attach to an action of a closed attempt.
    assert!(matches!(refused(&mut b, "prolog", 0), Ok(Reply::Running { attached: true, .. })));
    // A request without a number means the open attempt.
    b.run("epilog", "j", "n0");
    assert_eq!(b.action("epilog", "j", 3).attempt, Attempt::from_number(3));
    let reported =
        ["attempt", "action-start", "action-start", "attempt-closed", "attempt", "action-start", "action-start"];
    assert_eq!(b.reported("j"), reported);
}

#[test]
fn ranks_by_idset_or_host_and_what_does_not_exist_is_named() {
    let mut b = Bench::new();
    let (reply, _) = b.ask(Request::Run(request("prolog", "j", None, None)));
    assert!(matches!(reply, Err(Refusal::NoSuchJob(_))));
    let sessions: Vec<_> = (0..3).map(|i| b.up(&format!("n{i}"), "b", vec![]).0).collect();
    let mut run = request("prolog", "j", Some("n[0-2]"), None);
    run.targets = Some("1-2".parse().unwrap());
    let (_, effects) = b.ask(Request::Run(run));
    assert_eq!(starts(&effects), [(sessions[1], 1), (sessions[2], 2)]);
    let mut run = request("check", "j", None, None);
    run.targets = Some("n2".parse().unwrap());
    // The prolog has not ended on n2.
    let (_, effects) = b.ask(Request::Run(run));
    assert_eq!(starts(&effects), []);
    let effects = b.receives(sessions[2], finished(task("prolog", "j", 2), Outcome::Ok));
    assert_eq!(starts(&effects), [(sessions[2], 2)]);
    let mut run = request("housekeeping", "j", None, None);
    run.targets = Some("n7".parse().unwrap());
    let (reply, _) = b.ask(Request::Run(run));
    assert!(matches!(reply, Err(Refusal::Conflict(text)) if text.contains("n7")));
    let (reply, _) = b.ask(Request::Run(request("prolog", "k", Some("n0,n1,n0"), None)));
    assert!(matches!(reply, Err(Refusal::Invalid(text)) if text.contains("n0 is named twice")));
}

#[test]
fn cancel_ends_what_was_never_sent_and_notifies_the_others() {
    let mut b = Bench::new();
    let (n0, _) = b.up("n0", "b", vec![]);
    let (n1, _) = b.up("n1", "b", vec![]);
    b.batch(vec![Input::Closed { session: n1, why: String::new() }]);
    b.run("prolog", "j", "n[0-1]");
    let (reply, effects) = b.ask(Request::Cancel { which: which("j", None), why: "w".into() });
    assert_eq!(reply, Ok(Reply::Reached { tasks: 2 }));
    let t0 = task("prolog", "j", 0);
    assert!(matches!(&effects[..], [e] if is_cancel(e, t0)), "{effects:?}");
    assert_eq!(b.outcome(task("prolog", "j", 1)), Outcome::Cancelled { status: None });
    // The node that missed the Cancel gets it on its return, and the task never begins.
    b.batch(vec![Input::Closed { session: n0, why: String::new() }]);
    let (n0, effects) = b.up("n0", "b", vec![held("prolog", "j", 0, HeldState::Unclaimed)]);
    assert!(matches!(&effects[..], [e] if is_cancel(e, t0)), "{effects:?}");
    b.receives(n0, finished(t0, Outcome::Cancelled { status: None }));
    assert_eq!(b.action("prolog", "j", 0).verdict, Some(crate::Verdict::Cancelled));
}

#[test]
fn a_resolved_tasks_own_result_is_still_recorded() {
    let mut b = Bench::new();
    let (n0, _) = b.up("n0", "b", vec![]);
    b.run("epilog", "j", "n0");
    let t = task("epilog", "j", 0);
    b.receives(n0, FromAgent::Accepted { task: t, limit_ms: None });
    let resolve = |reason: &str| Request::Resolve { which: which("j", Some("n0")), ok: true, reason: reason.into() };
    assert!(matches!(b.ask(resolve(" ")).0, Err(Refusal::Invalid(_))));
    assert_eq!(b.ask(resolve("hung mount")).0, Ok(Reply::Resolved { tasks: 1, waiting: 0 }));
    assert_eq!(b.action("epilog", "j", 0).verdict, Some(crate::Verdict::Ok));
    assert!(matches!(b.ask(resolve("again")).0, Err(Refusal::Conflict(_))));
    b.receives(n0, finished(t, exit(5)));
    assert_eq!((b.outcome(t).as_str(), b.store.ranks[0].late[0].outcome.clone()), ("resolved", exit(5)));
}

#[test]
fn a_full_disk_stops_new_prologs_and_nothing_else() {
    let mut b = Bench::new();
    b.up("n0", "b", vec![]);
    b.run("prolog", "j", "n0");
    b.batch(vec![Input::StoreFull(true)]);
    assert!(matches!(b.ask(Request::Run(request("prolog", "k", Some("n0"), None))).0, Err(Refusal::Unavailable(_))));
    b.run("epilog", "j", "n0");
    b.batch(vec![Input::StoreFull(false)]);
    b.run("prolog", "k", "n0");
}

#[test]
fn the_output_of_the_attempt_that_is_meant_is_asked_for() {
    let mut b = Bench::new();
    b.up("n0", "b", vec![]);
    b.run("prolog", "j", "n0");
    assert!(b.ask(Request::Run(request("prolog", "j", None, Some(3)))).0.is_ok());
    for (asked, meant) in [(None, 3), (Some(0), 0)] {
        let attempt = asked.map(Attempt::from_number);
        let ask = Ask::Logs { job: JobId::new("j").unwrap(), action: None, attempt, rank: None, lines: 9 };
        let which = Which { attempt, ..which("j", None) };
        let (_, effects) = b.ask(Request::Ask { which: AskWhich::Tasks(which), ask });
        let Some(Effect::Send { message: ToAgent::Ask { ask: Ask::Logs { attempt, .. }, .. }, .. }) = effects.first()
        else {
            panic!("{effects:?}")
        };
        assert_eq!(*attempt, Some(Attempt::from_number(meant)));
    }
}

#[test]
fn a_why_of_a_job_names_the_command_that_shows_jobs() {
    let mut b = Bench::new();
    b.up("n0", "b", vec![]);
    b.run("prolog", "j", "n0");
    for (host, hint) in [("j", "; j is a job: perilog show j"), ("k", "controller")] {
        let (reply, _) = b.ask(Request::Why { host: HostName::new(host).unwrap() });
        assert!(matches!(&reply, Err(Refusal::NoSuchNode(text)) if text.ends_with(hint)), "{reply:?}");
    }
}

#[test]
fn questions_reach_connected_nodes_and_end_when_a_node_leaves() {
    let mut b = Bench::new();
    let (n0, _) = b.up("n0", "b", vec![]);
    let (n1, _) = b.up("n1", "b", vec![]);
    let ask = Request::Ask { which: AskWhich::Hosts("n[0-1],x".parse().unwrap()), ask: Ask::Status };
    let (reply, effects) = b.ask(ask);
    let Ok(Reply::Asked { question, unreachable, .. }) = reply else { panic!("{reply:?}") };
    assert_eq!((unreachable.to_string(), effects.len()), ("x".into(), 2));
    let effects = b.receives(n0, FromAgent::Answer { question, text: "t".into(), last: true });
    assert!(matches!(&effects[..], [Effect::Answer { last: true, .. }]));
    // The node has answered this question already.
    assert_eq!(b.receives(n0, FromAgent::Answer { question, text: "t".into(), last: true }), []);
    let effects = b.batch(vec![Input::Closed { session: n1, why: String::new() }]);
    assert!(matches!(&effects[..], [Effect::Answer { last: true, lost: true, .. }]));
}

/// Regression test: a job lost its tolerance if its requeue began with `perilog run`, without a `job add`.
#[test]
fn a_requeue_has_the_terms_of_the_attempt_before() {
    let rabbit = || [ResourceName::new("rabbit1").unwrap()].into();
    let terms = Terms { tolerate: Some(Tolerance::Ranks(1)), keep: Some(3), resources: rabbit(), ..Terms::default() };
    let added = || {
        let (mut b, _) = bench(4, |_| {});
        b.ask(add("j", "n[0-3]", terms.clone())).0.unwrap();
        b
    };
    let less = Terms { resources: Default::default(), ..terms.clone() };
    let few = "cannot keep 3 ranks of a job that has 2: name other terms (perilog job add j --attempt 1)";
    let unnamed = "no attempt 1 of job j: add it (perilog job add), or name its nodes (--nodes)";
    // Each row: nodes and user of the requeue, and the terms and owner of the new attempt.
    for (nodes, user, expect) in [
        (None, None, Err(Refusal::NoSuchAttempt(unnamed.to_owned()))),
        (Some("n[0-3]"), None, Ok((terms.clone(), 1000))),
        (Some("n[0-3]"), Some(7), Ok((terms.clone(), 7))),
        // Named resources were handed out with the old ranks, so the new ranks do not inherit them.
        (Some("n[0-2]"), None, Ok((less.clone(), 1000))),
        (Some("n[0-1]"), None, Err(Refusal::Invalid(few.to_owned()))),
    ] {
        let mut b = added();
        let run = RunRequest { userid: user, ..request("prolog", "j", nodes, Some(1)) };
        let reply = b.ask(Request::Run(run)).0;
        let row = b.store.attempts.iter().find(|row| row.attempt == Attempt::from_number(1));
        let opened = reply.map(|_| row.map(|row| (row.terms.clone(), row.userid.unwrap())).unwrap());
        assert_eq!(opened, expect, "{nodes:?}");
        assert_eq!(b.store.attempts[0].open, expect.is_err());
        let Some(row) = row else { continue };
        assert_eq!((row.added, row.hold.resources == row.terms.resources), (false, true));
        // Terms of a later `job add` replace the inherited terms.
        let Request::JobAdd(again) = add("j", nodes.unwrap_or("n[0-3]"), Terms::default()) else { panic!() };
        b.ask(Request::JobAdd(Box::new(JobAdd { source: None, attempt: Some(Attempt::from_number(1)), ..*again })))
            .0
            .unwrap();
        assert_eq!(b.store.attempts[1].terms, Terms::default());
    }
}

/// A service works on a resource that a requeue took over from the attempt before. The controller refuses a later `job
/// add` without that resource.
#[test]
fn a_job_is_not_added_without_what_a_service_of_it_has() {
    let rabbit = || [ResourceName::new("rabbit1").unwrap()].into();
    let terms = || Terms { resources: rabbit(), ..Terms::default() };
    let (mut b, _) = bench(2, |_| {});
    b.ask(add("j", "n[0-1]", terms())).0.unwrap();
    b.ask(Request::Run(request("prolog", "j", Some("n[0-1]"), Some(1)))).0.unwrap();
    let run = request("stage", "j", None, None);
    b.ask(Request::ActionStart(Box::new(ActionStart { run, resources: rabbit(), lease_ms: 9_000 }))).0.unwrap();
    let refused = b.ask(add("j", "n[0-1]", Terms::default())).0;
    let text = "job j attempt 1: its stage still uses rabbit1, which the request no longer names";
    assert_eq!(refused, Err(Refusal::Conflict(text.to_owned())));
    b.ask(add("j", "n[0-1]", terms())).0.unwrap();
    assert!(b.store.attempts[1].added);
}

/// Regression test: a job had been added, and an operator began its next attempt on nodes of the operator's choice
/// (`--nodes`). A later requeue without `--nodes` took these nodes over. Its prolog ran on a released node, perhaps
/// beside another job.
#[test]
fn a_job_that_was_added_once_repeats_no_nodes() {
    let (mut b, _) = bench(4, |_| {});
    b.ask(add("j", "n[0-3]", Terms::default())).0.unwrap();
    b.ask(Request::Run(request("prolog", "j", Some("n[0-2]"), Some(1)))).0.unwrap();
    let refused = b.ask(Request::Run(request("prolog", "j", None, Some(2)))).0;
    assert!(matches!(refused, Err(Refusal::NoSuchAttempt(_))), "{refused:?}");
}

#[test]
fn a_bare_run_repeats_only_the_nodes_that_it_holds() {
    let again = |nodes| Request::Run(request("prolog", "j", nodes, Some(1)));
    let (mut b, _) = bench(4, |_| {});
    b.run("prolog", "j", "n[0-3]");
    b.ask(again(None)).0.unwrap();
    assert_eq!(b.store.attempts[1].hosts.to_string(), "n[0-3]");

    let (mut b, _) = bench(4, |_| {});
    b.run("prolog", "j", "n[0-3]");
    b.ask(finish("j", Some("2"))).0.unwrap();
    let text = "attempt 1 of job j cannot take over n2, which the attempt before it no longer holds: name its nodes \
                (--nodes)";
    assert_eq!(b.ask(again(None)).0, Err(Refusal::Conflict(text.to_owned())));
    assert!(b.store.attempts[0].open);
    b.ask(again(Some("n[0-1,3]"))).0.unwrap();
    assert_eq!(b.store.attempts[1].hosts.to_string(), "n[0-1,3]");
}

#[test]
fn a_request_after_the_end_gets_the_next_attempt() {
    let (mut b, n) = bench(1, |_| {});
    b.ask(add("j", "n0", Terms::default())).0.unwrap();
    assert!(matches!(b.ask(add("j", "n0", Terms::default())).0, Ok(Reply::Added { attached: true, .. })));
    b.ask(super::release::finish("j", None)).0.unwrap();
    b.receives(n[0], finished(task("epilog", "j", 0), Outcome::Ok));
    assert!(b.store.attempts[0].complete);
    let none = RunRequest { targets: Some("".parse().unwrap()), ..request("check", "j", None, None) };
    // A hook that repeats its request, because the controller was away, attaches to the finished attempt.
    let again = b.ask(add("j", "n0", Terms::default())).0;
    assert!(matches!(again, Ok(Reply::Added { attached: true, over: true, .. })), "{again:?}");
    for (request, expect) in [
        (
            Request::Run(request("check", "j", None, None)),
            "check cannot begin there; another attempt may begin (--attempt 1)",
        ),
        (Request::Run(none), "job j attempt 0 are already released; start a new attempt (--attempt 1)"),
    ] {
        let (reply, _) = b.ask(request);
        assert!(matches!(&reply, Err(Refusal::Conflict(text)) if text.ends_with(expect)), "{expect}: {reply:?}");
    }
}

/// Regression test: a node's report created an attempt, and that attempt's owner was shown as the job's owner.
#[test]
fn a_jobs_owner_is_that_of_the_attempt_that_is_meant() {
    let (mut b, _) = bench(1, |_| {});
    b.ask(add("j", "n0", Terms::default())).0.unwrap();
    let forged = Held {
        task: TaskId { action: id("prolog", "j", 7), rank: Rank(0) },
        attempt: Attempt::from_number(7),
        userid: Some(0),
        ..held("prolog", "j", 0, live())
    };
    b.up("n9", "b", vec![forged]);
    let Ok(Reply::Show(view)) = b.ask(Request::Show { job: JobId::new("j").unwrap(), targets: None }).0 else {
        panic!()
    };
    assert_eq!((view.userid, view.attempts.len()), (Some(1000), 1));
}

/// Regression test: `perilog cancel JOB` also cancelled the epilog that cleans up after the cancelled actions.
#[test]
fn a_cancel_that_names_no_action_leaves_what_cleans_up() {
    let (mut b, n) = bench(2, |_| {});
    b.ask(add("j", "n[0-1]", Terms::default())).0.unwrap();
    b.run("prolog", "j", "n[0-1]");
    for rank in 0..2 {
        b.receives(n[rank as usize], FromAgent::Accepted { task: task("prolog", "j", rank), limit_ms: None });
    }
    b.ask(super::release::finish("j", None)).0.unwrap();
    let cancel = |action: Option<&str>, targets| {
        let action = action.map(|name| ActionName::new(name).unwrap());
        Request::Cancel { which: Which { action, ..which("j", targets) }, why: "w".into() }
    };
    assert_eq!(b.ask(cancel(None, None)).0, Ok(Reply::Reached { tasks: 2 }));
    for rank in 0..2 {
        b.receives(n[rank as usize], finished(task("prolog", "j", rank), Outcome::Cancelled { status: None }));
    }
    assert_eq!((b.action("epilog", "j", 0).sent.to_string(), b.store.drains.len()), ("0-1".into(), 0));
    let (reply, _) = b.ask(cancel(None, None));
    assert!(matches!(&reply, Err(Refusal::Conflict(text)) if text.starts_with("only epilog of job")), "{reply:?}");
    // An operator may cancel the epilog by its name. Its node is then drained, because no epilog has cleaned up there.
    b.receives(n[0], finished(task("epilog", "j", 0), Outcome::Ok));
    assert_eq!(b.ask(cancel(Some("epilog"), Some("1"))).0, Ok(Reply::Reached { tasks: 1 }));
    b.receives(n[1], finished(task("epilog", "j", 1), Outcome::Cancelled { status: None }));
    let drains: Vec<_> = b.store.drains.iter().map(|row| (row.host.to_string(), row.reason.clone())).collect();
    assert_eq!(drains, [("n1".to_owned(), "epilog: cancelled (job j attempt 0)".to_owned())]);
}
