//! Retention: the attempts that the controller forgets after a time, and the attempts that it keeps for a pending
//! release, drain or clean-up.

use crate::job::Terms;

use super::release::{add, bench, finish};
use super::*;

const HOUR_MS: u64 = 3_600_000;
const RETENTION_MS: u64 = 30 * 86_400_000;

/// Returns the attempts in the store, sorted, each as `JOB.ATTEMPT`.
fn kept(b: &Bench) -> Vec<String> {
    let mut all: Vec<_> = b.store.attempts.iter().map(|row| format!("{}.{}", row.job, row.attempt)).collect();
    all.sort();
    all
}

/// Ends the action `name` of a job on n0 with this outcome.
fn ended(b: &mut Bench, n: &[SessionId], job: &str, attempt: u64, name: &str, outcome: Outcome) {
    let task = TaskId { action: id(name, job, attempt), rank: Rank(0) };
    b.receives(n[0], finished(task, outcome));
}

/// Adds and finishes a job on n0; its epilog ends with this outcome.
fn over(b: &mut Bench, n: &[SessionId], name: &str, epilog: Outcome) {
    b.ask(add(name, "n0", Terms::default())).0.unwrap();
    b.ask(finish(name, None)).0.unwrap();
    ended(b, n, name, 0, "epilog", epilog);
}

/// Creates a bench with one node. `keep` is the setting `keep-attempts`; `change` changes other settings.
fn at(keep: usize, change: impl Fn(&mut Settings)) -> (Bench, Vec<SessionId>) {
    bench(1, |settings| {
        settings.keep_attempts = keep;
        change(settings);
    })
}

#[test]
fn only_pending_releases_outlive_retention() {
    for (keep, ms) in [(1_000, RETENTION_MS + HOUR_MS), (0, HOUR_MS)] {
        let (mut b, n) = at(keep, |settings| settings.release_hook = true);
        over(&mut b, &n, "j", Outcome::Ok);
        b.pass(ms);
        assert_eq!(kept(&b), ["j.0"], "the hook was never notified");
        let Ok(Reply::Outbox(entries)) =
            b.ask(Request::Releases { first: vec![], except: Default::default(), limit: 9 }).0
        else {
            panic!()
        };
        b.ask(Request::OutboxDone { sequence: entries[0].sequence }).0.unwrap();
        assert!(!b.store.outbox.is_empty(), "no reader has fetched what the resource manager's reader gets");
        b.pass(HOUR_MS);
        assert_eq!((kept(&b), b.store.outbox.len()), (vec![], 0));
        let why = if keep == 0 { "the store has more attempts than keep-attempts" } else { "it is past its retention" };
        let why = format!("attempt 0 is forgotten: {why}");
        assert!(b.notes.iter().any(|note| note.contains(&why)), "{:?}", b.notes);
    }
}

#[test]
fn what_waits_for_a_drain_stays() {
    for (keep, ms) in [(1_000, RETENTION_MS + HOUR_MS), (0, HOUR_MS)] {
        let (mut b, n) = at(keep, |settings| settings.drain_hook = true);
        over(&mut b, &n, "j", exit(1));
        // A bare run whose node is being drained.
        b.run("prolog", "k", "n0");
        ended(&mut b, &n, "k", 0, "prolog", exit(1));
        b.pass(ms);
        assert_eq!(kept(&b), ["j.0", "k.0"]);
        // The same holds after a restart.
        let mut b = b.restart();
        b.pass(ms);
        assert_eq!(kept(&b), ["j.0", "k.0"]);
        let row = b.store.drains[0].clone();
        b.ask(Request::DrainsDone { drains: vec![(row.host, row.notice_id)], lifted: false }).0.unwrap();
        b.pass(ms);
        let left: &[&str] = if keep == 0 { &["k.0"] } else { &[] };
        assert_eq!(kept(&b), left);
    }
}

/// No resource manager finishes a bare run, so its job may still run. Above `keep-attempts`, the controller forgets a
/// bare run only if its after-actions have ended.
#[test]
fn a_bare_run_goes_when_its_retention_is_over() {
    let (mut b, n) = at(0, |_| {});
    for (name, actions) in [("a", &["prolog"][..]), ("b", &["prolog", "epilog"]), ("c", &["check"])] {
        for action in actions {
            b.run(action, name, "n0");
            ended(&mut b, &n, name, 0, action, Outcome::Ok);
        }
    }
    // A resource manager will finish this attempt.
    b.ask(add("d", "n0", Terms::default())).0.unwrap();
    b.run("prolog", "d", "n0");
    ended(&mut b, &n, "d", 0, "prolog", Outcome::Ok);
    b.pass(HOUR_MS);
    assert_eq!(kept(&b), ["a.0", "c.0", "d.0"]);
    b.pass(RETENTION_MS);
    assert_eq!(kept(&b), ["d.0"]);
    b.ask(finish("d", None)).0.unwrap();
    b.pass(RETENTION_MS);
    assert_eq!(kept(&b), ["d.0"], "its epilog has not ended");
    ended(&mut b, &n, "d", 0, "epilog", Outcome::Ok);
    b.pass(HOUR_MS);
    assert_eq!(kept(&b), Vec::<String>::new());
}

/// The controller forgets no attempt before an older attempt of the same job. Otherwise the number of the newer
/// attempt, and the ids of its tasks, would be used again.
#[test]
fn of_a_job_the_older_attempts_go_first() {
    let (mut b, n) = at(0, |settings| settings.release_hook = true);
    b.ask(add("j", "n0", Terms::default())).0.unwrap();
    b.ask(Request::Run(request("prolog", "j", Some("n0"), Some(1)))).0.unwrap();
    ended(&mut b, &n, "j", 1, "prolog", Outcome::Ok);
    b.ask(finish("j", None)).0.unwrap();
    ended(&mut b, &n, "j", 1, "epilog", Outcome::Ok);
    let done = |b: &mut Bench| {
        let Ok(Reply::Outbox(entries)) =
            b.ask(Request::Releases { first: vec![], except: Default::default(), limit: 9 }).0
        else {
            panic!()
        };
        entries.into_iter().map(|entry| (entry.attempt.to_string(), entry.sequence)).collect::<Vec<_>>()
    };
    let reported = done(&mut b);
    assert_eq!(reported.len(), 1, "{reported:?}");
    // An operator carried out the release of the newer attempt, but not that of the older one.
    let newer =
        b.store.outbox.iter().filter(|entry| entry.reader == Reader::ReleaseHook).map(|entry| entry.sequence).max();
    b.ask(Request::OutboxDone { sequence: newer.unwrap() }).0.unwrap();
    b.pass(HOUR_MS);
    assert_eq!(kept(&b), ["j.0", "j.1"]);
    b.ask(Request::OutboxDone { sequence: reported[0].1 }).0.unwrap();
    b.pass(HOUR_MS);
    assert_eq!(kept(&b), Vec::<String>::new());
}

/// The controller also forgets a finished job that had no actions.
#[test]
fn a_job_without_any_action_is_forgotten_too() {
    let (mut b, _) = at(1_000, |settings| settings.after.clear());
    b.ask(add("j", "n0", Terms::default())).0.unwrap();
    b.ask(finish("j", None)).0.unwrap();
    let next = b.m.facts().next_check();
    assert!(next.is_some(), "nothing would ever look at it");
    b.pass(RETENTION_MS + HOUR_MS);
    assert_eq!(kept(&b), Vec::<String>::new());
}

/// In one batch, a tick forgets an attempt, and then a request begins the same attempt anew. The store must have the
/// new attempt.
#[test]
fn what_is_asked_for_in_the_batch_that_forgets_it_is_there() {
    let asked = [add("j", "n0", Terms::default()), Request::Run(request("prolog", "j", Some("n0"), None))];
    for again in asked {
        let (mut b, n) = at(1_000, |settings| settings.after.clear());
        over(&mut b, &n, "j", Outcome::Ok);
        assert!(b.store.attempts[0].complete);
        b.now.mono_ms += RETENTION_MS + HOUR_MS;
        b.now.wall_ms += RETENTION_MS + HOUR_MS;
        b.batch(vec![Input::Tick, Input::Request { client: 2, uid: 0, request: again }]);
        let holds: Vec<_> = b.store.attempts.iter().map(|row| (row.complete, row.hold.ranks.to_string())).collect();
        assert_eq!(holds, [(false, "0".to_owned())]);
    }
}

#[test]
fn a_late_milestone_of_a_forgotten_attempt_leaves_nothing() {
    let (mut b, n) = at(1_000, |settings| settings.after.clear());
    b.ask(add("j", "n0", Terms::default())).0.unwrap();
    b.run("prolog", "j", "n0");
    ended(&mut b, &n, "j", 0, "prolog", Outcome::Ok);
    b.ask(finish("j", None)).0.unwrap();
    b.now.mono_ms += RETENTION_MS + HOUR_MS;
    b.now.wall_ms += RETENTION_MS + HOUR_MS;
    let milestone = FromAgent::Milestone { task: task("prolog", "j", 0), name: "data-out".into() };
    b.batch(vec![from(n[0], milestone), Input::Tick]);
    assert_eq!(b.m.sizes()[1], ("jobs", 0));
}

/// Regression test: the site removed the release hook from its configuration, and the controller dropped the releases
/// that the hook had not carried out.
#[test]
fn what_is_pending_for_a_release_hook_stays_when_it_is_taken_out() {
    let (mut b, n) = at(1_000, |settings| settings.release_hook = true);
    b.run("epilog", "j", "n0");
    b.receives(n[0], finished(task("epilog", "j", 0), Outcome::Ok));
    b.ask(super::release::finish("j", None)).0.unwrap();
    let pending = |b: &Bench| b.store.outbox.iter().filter(|entry| entry.reader == Reader::ReleaseHook).count();
    assert_eq!(pending(&b), 1);
    b.settings.release_hook = false;
    let output = b.m.handle(vec![Input::Settings(b.settings.clone())], b.now);
    let warned = |effect: &Effect| {
        matches!(effect, Effect::Note { text, .. } if text.starts_with("1 release is \
                                                                                                   pending"))
    };
    assert!(output.effects.iter().any(warned), "{:?}", output.effects);
    b.commit(output);
    let mut b = b.restart();
    assert_eq!(pending(&b), 1);
    let Ok(Reply::Ps { rows, .. }) = b.ask(Request::Ps { older_than_ms: 0, held: false }).0 else { panic!() };
    assert_eq!(rows.iter().filter(|row| row.state == "notifying").count(), 1);
    // An operator drops the release, here or where the hook refuses it for ever.
    let forget = |reason: &str| Request::JobForget {
        job: JobId::new("j").unwrap(),
        attempt: None,
        releases: true,
        reason: reason.to_owned(),
    };
    assert!(matches!(b.ask(forget(" ")).0, Err(Refusal::Invalid(_))));
    assert_eq!(b.ask(forget("the scheduler was notified manually")).0, Ok(Reply::Reached { tasks: 1 }));
    assert_eq!((pending(&b), b.reported("j").last().copied()), (0, Some("release-forgotten")));
    assert!(matches!(b.ask(forget("again")).0, Err(Refusal::Conflict(_))));
    assert_eq!(b.restart().m.cx.outbox.pending(), 0);
}
