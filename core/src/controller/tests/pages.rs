//! The pages of an edge's list: what the list lacks counts only when its last page is there.

use crate::idset::IdSet;

use super::recovery::{GRACE_MS, listed, page, source};
use super::release::bench;
use super::*;

/// Sends a page, and returns the reply.
fn send(b: &mut Bench, sync: Option<u64>, continues: bool, jobs: &[&str]) -> Result<Synced, Refusal> {
    let jobs = jobs.iter().map(|job| listed(job, &format!("n{}", &job[1..]), JobPhase::Running)).collect();
    match b.ask(page(source(), sync, continues, jobs)).0? {
        Reply::Synced(reported) => Ok(reported),
        other => panic!("{other:?}"),
    }
}

fn open(b: &Bench) -> Vec<&str> {
    b.store.attempts.iter().filter(|of| of.open).map(|of| of.job.as_str()).collect()
}

#[test]
fn a_list_in_pages_closes_what_no_page_has() {
    let (mut b, _) = bench(4, |_| {});
    send(&mut b, None, false, &["j0", "j1", "j2"]).unwrap();
    let first = send(&mut b, None, true, &["j0"]).unwrap();
    assert_eq!((first.known, first.over.len(), open(&b)), (1, 0, vec!["j0", "j1", "j2"]));
    let second = send(&mut b, Some(first.sync), true, &["j3"]).unwrap();
    assert_eq!((second.sync, second.added, second.over.len()), (first.sync, 1, 0));
    let last = send(&mut b, Some(first.sync), false, &["j1"]).unwrap();
    assert_eq!((last.over.len(), open(&b)), (1, vec!["j0", "j1", "j3"]), "{last:?}");
}

/// A page after a cut belongs to no list: the edge begins again, and nothing of the half list counts.
#[test]
fn a_half_list_says_nothing() {
    let (mut b, _) = bench(4, |_| {});
    let whole = send(&mut b, None, false, &["j0", "j1"]).unwrap().sync;
    let half = send(&mut b, None, true, &["j0"]).unwrap().sync;
    let late = |b: &mut Bench, sync| match send(b, Some(sync), false, &[]) {
        Err(Refusal::Conflict(why)) => why,
        other => panic!("{other:?}"),
    };
    assert!(late(&mut b, whole).contains("begin again with a page without `sync`"));
    // The refused page has dropped the half list, as a new first page does.
    late(&mut b, half);
    let half = send(&mut b, None, true, &["j0"]).unwrap().sync;
    let newer = send(&mut b, None, true, &["j0"]).unwrap().sync;
    late(&mut b, half);
    assert_eq!(open(&b), ["j0", "j1"]);
    // An edge that lost its connection does not come back for a minute.
    let newest = send(&mut b, None, true, &["j0"]).unwrap().sync;
    assert!(newest > newer);
    b.pass(60_000);
    late(&mut b, newest);
    let half = send(&mut b, None, true, &["j0"]).unwrap().sync;
    let mut b = b.restart();
    late(&mut b, half);
    assert!(send(&mut b, None, true, &["j0"]).unwrap().sync > half, "no number is used in two lives");
    assert_eq!(open(&b), ["j0", "j1"]);
}

/// The pages that are to come may have the job whose host a clean-up waits for.
#[test]
fn no_clean_up_begins_on_half_a_list() {
    let (mut b, n) = bench(2, |_| {});
    send(&mut b, None, false, &["j0", "j1"]).unwrap();
    b.batch(vec![super::boots::closed(n[0])]);
    send(&mut b, None, false, &["j1"]).unwrap();
    let half = send(&mut b, None, true, &[]).unwrap().sync;
    let (_, effects) = b.up("n0", "b", vec![]);
    assert_eq!(starts(&effects), [], "the list is half");
    let reply = b.ask(page(source(), Some(half), false, vec![listed("j1", "n1", JobPhase::Running)]));
    assert_eq!(starts(&reply.1).len(), 1, "n0 is no job's");
}

/// The end of the grace drops what only later pages may need, such as tombstones of unknown tasks.
#[test]
fn no_grace_ends_on_half_a_list() {
    let (mut b, _) = bench(2, |_| {});
    send(&mut b, None, false, &["j0"]).unwrap();
    let copy = b.store.clone();
    let mut b = b.restored(&copy);
    b.pass(GRACE_MS - 20_000);
    let half = send(&mut b, None, true, &["j0"]).unwrap().sync;
    b.pass(20_000);
    assert!(b.in_recovery());
    send(&mut b, Some(half), false, &["j1"]).unwrap();
    b.pass(1);
    assert!(!b.in_recovery());
    // An edge that went away with half a list does not keep the grace on.
    let mut b = b.restored(&copy);
    b.pass(GRACE_MS - 20_000);
    send(&mut b, None, true, &["j0"]).unwrap();
    b.pass(60_000);
    b.pass(1);
    assert!(!b.in_recovery());
}

/// An attempt that the controller cannot take keeps no other out of the list, and is not closed.
#[test]
fn an_unfit_attempt_is_refused_alone() {
    let (mut b, _) = bench(2, |_| {});
    send(&mut b, None, false, &["j0", "j1"]).unwrap();
    let unfit = Unfit { job: JobId::new("j0").unwrap(), attempt: Attempt::FIRST, why: "too many hosts".to_owned() };
    let Request::Sync(of) = page(source(), None, false, vec![listed("j1", "n1", JobPhase::Running)]) else { panic!() };
    let Ok(Reply::Synced(reported)) = b.ask(Request::Sync(Box::new(SyncPage { unfit: vec![unfit], ..*of }))).0 else {
        panic!("a list with an unfit attempt")
    };
    assert_eq!((reported.known, reported.refused.len(), reported.over.len(), open(&b)), (1, 1, 0, vec!["j0", "j1"]));
}

/// The feed begins with each job of the list, so an edge need not name its jobs in one long request.
#[test]
fn an_edge_sees_the_released_attempts_of_its_list() {
    let (mut b, n) = bench(3, |_| {});
    send(&mut b, None, false, &["j0", "j1", "j2"]).unwrap();
    for (at, job) in ["j0", "j1"].into_iter().enumerate() {
        b.ask(super::release::finish(job, None)).0.unwrap();
        b.receives(n[at], finished(task("epilog", job, 0), Outcome::Ok));
    }
    let seen = |b: &mut Bench| {
        let of = AttemptsOf { source: source(), jobs: None, after: None, limit: 9 };
        let Ok(Reply::Attempts(attempts)) = b.ask(Request::Attempts(of)).0 else { panic!() };
        attempts.iter().map(|of| of.job.to_string()).collect::<Vec<_>>()
    };
    let half = send(&mut b, None, true, &["j0"]).unwrap().sync;
    assert_eq!(seen(&mut b), ["j2"], "the list is half");
    send(&mut b, Some(half), false, &["j2"]).unwrap();
    assert_eq!(seen(&mut b), ["j0", "j2"], "j1 is released, and not listed");
}

/// 20,000 attempts come in twenty pages: no turn of the writer has more records than its page has entries, except for a
/// few.
#[test]
fn no_turn_of_a_long_list_is_long() {
    let (mut b, _) = bench(1, |_| {});
    let (mut sync, mut most) = (None, 0);
    for at in 0..20 {
        let ranks: IdSet = [0].into_iter().collect();
        let one = |of: u32| Listed { ranks: ranks.clone(), ..listed(&format!("f{of}"), "n0", JobPhase::Running) };
        let page = page(source(), sync, at < 19, (at * 1_000..(at + 1) * 1_000).map(one).collect());
        let output = b.m.handle(vec![Input::Request { client: 7, uid: 0, request: page }], b.now);
        most = most.max(output.records.len());
        let reported = output.effects.iter().find_map(|effect| match effect {
            Effect::Reply { reply: Ok(Reply::Synced(reported)), .. } => Some((reported.sync, reported.added)),
            _ => None,
        });
        let (number, added) = reported.expect("a reply to the page");
        assert_eq!(added, 1_000);
        sync = Some(number);
        output.records.iter().for_each(|record| b.store.apply(record));
    }
    assert_eq!(b.store.attempts.len(), 20_000);
    assert!(most <= 2_100, "{most} records in one turn");
}
