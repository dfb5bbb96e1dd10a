//! History: what has ended costs nothing but its place, in a batch, at a start and when retention forgets it.

use crate::controller::memory::Needs;
use crate::job::Terms;

use super::release::{add, bench, finish, job};
use super::*;

/// Adds and finishes jobs with these numbers, such as `j0`, one after the other on n0: a prolog, an epilog, and the
/// release.
fn over(b: &mut Bench, session: SessionId, jobs: std::ops::Range<u32>) {
    for job in jobs.map(|n| format!("j{n}")) {
        b.ask(add(&job, "n0", Terms::default())).0.unwrap();
        b.run("prolog", &job, "n0");
        b.receives(session, finished(task("prolog", &job, 0), Outcome::Ok));
        b.ask(finish(&job, None)).0.unwrap();
        b.receives(session, finished(task("epilog", &job, 0), Outcome::Ok));
    }
}

/// Returns the numbers of live actions, live attempts and deadlines.
fn live(b: &Bench) -> [usize; 3] {
    let sizes = b.m.sizes();
    ["live actions", "live attempts", "deadlines"].map(|name| sizes.iter().find(|(of, _)| *of == name).unwrap().1)
}

#[test]
fn what_has_ended_is_live_no_more() {
    let (mut b, n) = bench(1, |_| {});
    over(&mut b, n[0], 0..20);
    assert_eq!(live(&b), [0, 0, 0]);
    b.ask(add("k", "n0", Terms::default())).0.unwrap();
    assert_eq!(live(&b), [0, 1, 0]);
    b.run("prolog", "k", "n0");
    assert_eq!(live(&b), [1, 1, 1], "its start-grace runs");
    b.receives(n[0], finished(task("prolog", "k", 0), Outcome::Ok));
    assert_eq!(live(&b), [0, 1, 0], "the job holds its rank");
    b.ask(finish("k", None)).0.unwrap();
    assert_eq!(live(&b), [1, 1, 1]);
    b.receives(n[0], finished(task("epilog", "k", 0), Outcome::Ok));
    assert_eq!(live(&b), [0, 0, 0]);
}

/// Returns the names of the jobs that the machine holds.
fn in_memory(b: &Bench) -> Vec<&str> {
    b.m.jobs.keys().map(JobId::as_str).collect()
}

/// A controller keeps the jobs of weeks: each took eight kilobytes of its memory, and a part of each start.
#[test]
fn what_has_ended_leaves_memory() {
    let (mut b, n) = bench(1, |_| {});
    over(&mut b, n[0], 0..20);
    b.ask(add("k", "n0", Terms::default())).0.unwrap();
    assert_eq!(in_memory(&b), ["k"]);
    let count = |b: &Bench| b.m.sizes().iter().find(|(of, _)| *of == "jobs").unwrap().1;
    assert_eq!(count(&b), 21, "the store has them");
    let b = b.restart();
    assert_eq!((in_memory(&b), count(&b)), (vec!["k"], 21), "and a start does not load them");
    // The daemon's machine holds a job for a minute: nodes that connect again name it one after the other.
    let (mut b, n) = bench(1, |_| {});
    b.holding = Holding { verdicts: 2, ..Holding::default() };
    over(&mut b, n[0], 0..20);
    assert_eq!(in_memory(&b).len(), 20);
    b.pass(61_000);
    assert_eq!(in_memory(&b), ["j19"], "the overview shows its verdicts");
}

/// A requester may ask again, and a node may report again: the answer is the one that the job had while it was open.
#[test]
fn a_request_about_an_ended_job_finds_it() {
    let (mut b, n) = bench(1, |_| {});
    over(&mut b, n[0], 0..3);
    assert_eq!(in_memory(&b), [""; 0]);
    let (reply, _) = b.ask(Request::Show { job: job("j1"), targets: None });
    assert!(matches!(reply, Ok(Reply::Show(view)) if view.attempts.len() == 1));
    let events = b.events.len();
    b.ask(finish("j1", None)).0.unwrap();
    let (reply, effects) = b.ask(Request::Run(request("prolog", "j1", Some("n0"), Some(0))));
    assert!(matches!(reply, Ok(Reply::Running { attached: true, .. })), "{reply:?}");
    assert_eq!((starts(&effects).len(), b.events.len()), (0, events));
    let again = task("prolog", "j2", 0);
    assert!(b.receives(n[0], finished(again, Outcome::Ok)).contains(&ack(n[0], again)), "it is known");
    let tombstone = HeldState::Tombstone { outcome: Outcome::Ok, past_ms: 1, reboot: Reboot::None };
    b.batch(vec![Input::Closed { session: n[0], why: String::new() }]);
    b.up("n0", "b", vec![held("epilog", "j0", 0, tombstone)]);
    assert_eq!(b.m.sizes().iter().find(|(of, _)| *of == "tasks that are not settled").unwrap().1, 0);
}

/// `perilog why` names the last failed tasks of a node.
#[test]
fn what_is_referred_to_stays() {
    let (mut b, n) = bench(1, |_| {});
    over(&mut b, n[0], 0..2);
    b.ask(add("bad", "n0", Terms::default())).0.unwrap();
    b.run("prolog", "bad", "n0");
    b.receives(n[0], finished(task("prolog", "bad", 0), exit(1)));
    b.ask(finish("bad", None)).0.unwrap();
    b.receives(n[0], finished(task("epilog", "bad", 0), Outcome::Ok));
    over(&mut b, n[0], 2..5);
    let failed = |b: &mut Bench| match b.ask(Request::Why { host: HostName::new("n0").unwrap() }).0.unwrap() {
        Reply::Why(why) => why.failed.iter().map(|task| task.job.to_string()).collect::<Vec<_>>(),
        other => panic!("{other:?}"),
    };
    assert_eq!((failed(&mut b), in_memory(&b)), (vec!["bad".to_owned()], vec!["bad"]));
    let mut b = b.restart();
    assert_eq!((failed(&mut b), in_memory(&b)), (vec!["bad".to_owned()], vec!["bad"]));
}

/// A requeued job is due to leave memory for its first attempt, and lives again.
#[test]
fn what_has_pending_notices_stays() {
    let (mut b, n) = bench(1, |_| {});
    b.holding = Holding { verdicts: 0, ..Holding::default() };
    over(&mut b, n[0], 0..2);
    let Request::JobAdd(again) = add("j0", "n0", Terms::default()) else { panic!() };
    b.ask(Request::JobAdd(Box::new(JobAdd { attempt: Some(Attempt::from_number(1)), ..*again }))).0.unwrap();
    b.pass(61_000);
    assert_eq!(in_memory(&b), ["j0"]);
    assert!(b.m.sizes().contains(&("live attempts", 1)));
}

/// Each set took 160 bytes, of which a finished job had ten.
#[test]
fn what_has_ended_has_one_copy_of_equal_sets() {
    let (mut b, n) = bench(1, |_| {});
    b.holding = Holding::default();
    over(&mut b, n[0], 0..1);
    let mut again = Bench::load(b.store.clone(), b.now);
    let needs = Needs { jobs: [job("j0")].into(), ..Needs::default() };
    again.m.jobs.take_in(again.store.fetch(&needs), again.now, &mut again.m.cx);
    for b in [&b, &again] {
        let attempt = b.m.jobs.attempt(&job("j0"), Attempt::FIRST).unwrap();
        let all = attempt.layout.ranks();
        assert!(attempt.released.ranks.is_shared(all));
        for action in b.m.jobs.of(attempt) {
            assert!(action.row.ok.is_shared(all) && action.row.boots[&1].is_shared(all), "{}", action.row.name);
        }
    }
}

/// The store removes the rows of all attempts of a batch in one transaction: with a month's jobs in one batch it stood
/// still for a minute.
#[test]
fn retention_goes_on_in_small_batches() {
    let (mut b, n) = bench(1, |settings| settings.keep_attempts = 0);
    b.holding = Holding::default();
    over(&mut b, n[0], 0..25);
    b.now.mono_ms += 3_600_000;
    b.fetch(&[Input::Tick]);
    let output = b.m.handle(vec![Input::Tick], b.now);
    let now = Effect::WakeAt { mono_ms: b.now.mono_ms };
    assert!(output.effects.contains(&now), "the next batch goes on at once");
    b.commit(output);
    assert_eq!((b.store.attempts.len(), b.store.outbox.len()), (5, 15));
    b.fetch(&[Input::Tick]);
    let output = b.m.handle(vec![Input::Tick], b.now);
    assert!(!output.effects.contains(&now));
    b.commit(output);
    assert_eq!((b.store.attempts.len(), b.store.outbox.len()), (0, 0));
}

/// An operator whose disk is filling up shortens the retention.
#[test]
fn a_shorter_retention_is_in_force_at_once() {
    let (mut b, n) = bench(1, |_| {});
    over(&mut b, n[0], 0..5);
    let before = b.settings.clone();
    let fewer = Settings { keep_attempts: 3, ..before.clone() };
    let shorter = Settings { retention_ms: 0, ..fewer.clone() };
    for (settings, left) in [(before, 5), (fewer, 3), (shorter.clone(), 0), (shorter, 0)] {
        b.batch(vec![Input::Settings(settings)]);
        b.pass(1);
        assert_eq!(b.store.attempts.len(), left);
    }
}

#[test]
fn the_longest_unchanged_attempts_go_first() {
    let (mut b, n) = bench(1, |settings| settings.keep_attempts = 3);
    for job in [3, 1, 4, 0, 2] {
        over(&mut b, n[0], job..job + 1);
        b.pass(1_000);
    }
    b.pass(3_600_000);
    let kept: Vec<String> = b.store.attempts.iter().map(|row| row.job.to_string()).collect();
    assert_eq!(kept, ["j4", "j0", "j2"]);
}

/// Returns the number of notices that the resource manager gets now.
fn noticed(b: &mut Bench) -> usize {
    match b.ask(Request::Outbox { after: 0, limit: 99 }).0.unwrap() {
        Reply::Outbox(entries) => entries.len(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_start_suspends_only_what_has_pending_work() {
    let (mut b, n) = bench(1, |settings| settings.release_hook = true);
    b.holding = Holding::default();
    over(&mut b, n[0], 0..3);
    // The hook has carried out the release of j0 and j1, and not yet that of j2.
    for job in ["j0", "j1"] {
        let entries = b.store.outbox.iter().filter(|of| of.reader == Reader::ReleaseHook && of.job.as_str() == job);
        for sequence in entries.map(|of| of.sequence).collect::<Vec<_>>() {
            b.ask(Request::OutboxDone { sequence }).0.unwrap();
        }
    }
    b.ask(add("k", "n0", Terms::default())).0.unwrap();
    let mut b = b.restart_settling();
    let is_suspended = |b: &Bench, name: &str| b.m.jobs.is_suspended(&job(name), Attempt::FIRST);
    assert_eq!(["j0", "j1", "j2", "k"].map(|name| is_suspended(&b, name)), [false, false, true, true]);
    assert_eq!(live(&b)[1], 2);
    b.pass(10_000);
    assert_eq!(["j0", "j1", "j2", "k"].map(|name| is_suspended(&b, name)), [false; 4]);
    assert_eq!(live(&b)[1], 1);
}

/// While the gate is shut, a node may show that the store is behind. The notices of what had ended are then dropped.
#[test]
fn notices_of_what_had_ended_wait_for_the_gate() {
    let (mut b, n) = bench(1, |_| {});
    over(&mut b, n[0], 0..2);
    let all = noticed(&mut b);
    let mut b = b.restart_settling();
    assert_eq!((noticed(&mut b), all > 0), (0, true));
    let effects = b.pass(10_000);
    assert!(effects.contains(&Effect::OutboxGrew), "readers that wait ask again");
    assert_eq!(noticed(&mut b), all);
}
