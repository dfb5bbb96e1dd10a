//! Unlisted attempts: what becomes of an attempt that its edge's list lacks, and what a list says again.

use crate::job::Terms;

use super::recovery::{list, listed, page, source};
use super::release::{add, bench, contexts, finish};
use super::*;

fn waits(b: &mut Bench, job: &str) -> Option<String> {
    let Ok(Reply::Show(view)) = b.ask(Request::Show { job: JobId::new(job).unwrap(), targets: None }).0 else {
        panic!()
    };
    view.attempts[0].waits.clone()
}

/// An attempt that its edge does not list is cleaned up on drained hosts. A host that another job has is given up, and
/// stays drained. No notice is sent.
#[test]
fn an_attempt_that_an_edge_does_not_list_is_over_in_silence() {
    let (mut b, n) = bench(2, |s| s.release_hook = true);
    b.ask(list(vec![listed("a", "n[0-1]", JobPhase::Running)])).0.unwrap();
    let (reply, effects) = b.ask(list(vec![listed("c", "n0", JobPhase::Preparing)]));
    let Ok(Reply::Synced(reported)) = reply else { panic!("{reply:?}") };
    assert_eq!((reported.known, reported.added, reported.over.len(), reported.refused.len()), (0, 1, 1, 0));
    assert_eq!(starts(&effects), [(n[1], 1)], "n0 is the new job's");
    assert_eq!(b.drained(), [("n0", false), ("n1", false)]);
    b.ends(n[1], task("epilog", "a", 1));
    b.ask(finish("c", None)).0.unwrap();
    b.ends(n[0], task("epilog", "c", 0));
    let reason = "epilog: cancelled: another job may have its host (job a attempt 0)";
    let reasons: Vec<String> = b.store.drains.iter().map(|drain| drain.newest().reason).collect();
    assert_eq!(reasons, [reason]);
    assert!(b.store.outbox.iter().all(|entry| entry.job.as_str() == "c"), "{:?}", b.store.outbox);
}

/// After a restore, what the lost epoch cleaned up is not cleaned up again, and the rest is, after the grace.
#[test]
fn an_abandoned_attempt_that_its_edge_does_not_list_is_cleaned_up_after_the_grace() {
    let (mut b, _) = bench(2, |_| {});
    b.ask(list(vec![listed("a", "n[0-1]", JobPhase::Running)])).0.unwrap();
    let copy = b.store.clone();
    let mut b = b.restored(&copy);
    let tombstone = HeldState::Tombstone { outcome: Outcome::Ok, past_ms: 0, reboot: Reboot::None };
    b.up("n0", "b", vec![held("epilog", "a", 0, tombstone)]);
    let (n1, _) = b.up("n1", "b", vec![]);
    assert_eq!(starts(&b.ask(list(vec![])).1), []);
    assert_eq!(starts(&b.grace()), [(n1, 1)]);
    assert_eq!(b.drained(), [("n1", false)]);
    b.ends(n1, task("epilog", "a", 1));
    assert!(b.drained().is_empty() && b.store.outbox.is_empty());
}

/// Regression test: the resource manager was rolled back too. A list lacked an attempt, and a later list had it again.
/// Its epilog did not begin.
#[test]
fn an_attempt_that_is_listed_again_is_cleaned_up() {
    let (mut b, n) = bench(1, |s| s.drain_hook = true);
    b.ask(list(vec![listed("a", "n0", JobPhase::Running)])).0.unwrap();
    assert_eq!(starts(&b.ask(list(vec![])).1), []);
    assert!(waits(&mut b, "a").unwrap().contains("n0 is drained first, and cleaned up"));
    assert_eq!(starts(&b.ask(list(vec![listed("a", "n0", JobPhase::Ended)])).1), [(n[0], 0)]);
    b.ends(n[0], task("epilog", "a", 0));
    assert_eq!(contexts(&b, "release").len(), 1, "it is reported");
}

/// Regression test: a job's clean-up ran on a host when a list gave the host to another job, and the next list to none.
/// The other job's clean-up began beside the first.
#[test]
fn a_clean_up_waits_for_one_that_runs() {
    let (mut b, n) = bench(1, |_| {});
    b.ask(list(vec![listed("z", "n0", JobPhase::Running)])).0.unwrap();
    let (_, effects) = b.ask(list(vec![]));
    assert_eq!(starts(&effects), [(n[0], 0)], "the epilog of z");
    b.ask(list(vec![listed("a", "n0", JobPhase::Running)])).0.unwrap();
    let (_, effects) = b.ask(list(vec![]));
    assert_eq!(starts(&effects), []);
    assert!(waits(&mut b, "a").unwrap().contains("n0 is drained first, and cleaned up"));
    let effects = b.ends(n[0], task("epilog", "z", 0));
    assert_eq!(starts(&effects), [(n[0], 0)], "the epilog of a");
}

#[test]
fn a_refused_attempts_host_is_not_cleaned_up_after_a_restart() {
    let (mut b, _) = bench(3, |_| {});
    b.ask(list(vec![listed("a", "n0", JobPhase::Running), listed("c", "n1", JobPhase::Running)])).0.unwrap();
    let wrong = Listed { userid: Some(7), ..listed("c", "n0", JobPhase::Running) };
    assert_eq!(starts(&b.ask(list(vec![wrong])).1), []);
    let mut b = b.restart();
    for host in ["n0", "n1", "n2"] {
        assert_eq!(starts(&b.up(host, "b", vec![]).1), [], "{host}");
    }
}

#[test]
fn a_refused_attempts_host_is_cleaned_up_once_unlisted() {
    let (mut b, n) = bench(1, |_| {});
    b.ask(list(vec![listed("a", "n0", JobPhase::Running), listed("c", "n0", JobPhase::Running)])).0.unwrap();
    b.ask(finish("c", None)).0.unwrap();
    b.ends(n[0], task("epilog", "c", 0));
    // `a` is gone; the list has a job of another user on its host, whose number the store knows.
    let wrong = Listed { userid: Some(7), ..listed("c", "n0", JobPhase::Running) };
    assert_eq!(starts(&b.ask(list(vec![wrong])).1), []);
    assert_eq!(starts(&b.ask(list(vec![])).1), [(n[0], 0)]);
}

/// After a restart, the clean-up of an attempt that its edge no longer lists waits for that edge's next list.
#[test]
fn a_clean_up_waits_for_the_list_of_its_own_instance() {
    let other = Source { name: "flux".into(), instance: "i2".into() };
    let (mut b, n) = bench(1, |_| {});
    b.ask(list(vec![listed("a", "n0", JobPhase::Running)])).0.unwrap();
    b.batch(vec![super::boots::closed(n[0])]);
    b.ask(list(vec![])).0.unwrap();
    let mut b = b.restart();
    let (n0, effects) = b.up("n0", "b", vec![]);
    assert_eq!(starts(&effects), []);
    assert_eq!(starts(&b.ask(page(other, None, false, vec![])).1), [], "another instance");
    assert_eq!(starts(&b.ask(list(vec![])).1), [(n0, 0)]);
}

/// Regression test: a release waited for a drain. In one batch, an operator lifted this drain, and a clean-up drained
/// the host anew. The rank was released without waiting for the new drain.
#[test]
fn a_release_waits_for_the_drain_of_the_same_batch() {
    let (mut b, n) = bench(1, |settings| settings.drain_hook = true);
    b.ask(list(vec![listed("a", "n0", JobPhase::Running)])).0.unwrap();
    b.ask(add("b", "n0", Terms::default())).0.unwrap();
    b.ask(list(vec![])).0.unwrap();
    assert_eq!(b.drained(), [("n0", false)], "a is cleaned up there");
    b.ask(finish("b", None)).0.unwrap();
    b.ends(n[0], task("epilog", "b", 0));
    b.pass(2_000);
    b.ask(Request::Undrain { hosts: "n0".parse().unwrap(), forget: true, notice_id: None }).0.unwrap();
    assert_eq!((b.drained(), contexts(&b, "release").len()), (vec![("n0", false)], 0), "drained anew");
    let (host, notice_id) = (HostName::new("n0").unwrap(), b.store.drains[0].notice_id);
    b.ask(Request::DrainsDone { drains: vec![(host, notice_id)], lifted: false }).0.unwrap();
    assert_eq!(contexts(&b, "release").len(), 1);
}

/// Regression test: an unclaimed epilog of an unlisted attempt began only with its node's next Hello.
#[test]
fn an_unclaimed_epilog_begins_once_its_host_is_drained() {
    let (mut b, n) = bench(1, |s| s.drain_hook = true);
    b.ask(list(vec![listed("a", "n0", JobPhase::Running)])).0.unwrap();
    b.ask(finish("a", None)).0.unwrap();
    b.receives(n[0], FromAgent::Accepted { task: task("epilog", "a", 0), limit_ms: None });
    b.ask(list(vec![])).0.unwrap();
    b.batch(vec![super::boots::closed(n[0])]);
    let (n0, effects) = b.up("n0", "b", vec![held("epilog", "a", 0, HeldState::Unclaimed)]);
    let begin = send(n0, ToAgent::Begin { task: task("epilog", "a", 0) });
    assert!(!effects.contains(&begin), "{effects:?}");
    let (host, notice_id) = (HostName::new("n0").unwrap(), b.store.drains[0].notice_id);
    let (_, effects) = b.ask(Request::DrainsDone { drains: vec![(host, notice_id)], lifted: false });
    assert!(effects.contains(&begin), "{effects:?}");
}

#[test]
fn a_forgotten_release_is_sent_again_beside_another() {
    let (mut b, n) = bench(2, |_| {});
    b.ask(list(vec![listed("a", "n[0-1]", JobPhase::Running)])).0.unwrap();
    b.ask(finish("a", Some("n1"))).0.unwrap();
    b.ends(n[1], task("epilog", "a", 1));
    b.ask(Request::OutboxApplied { through: b.store.outbox_last }).0.unwrap();
    b.ask(finish("a", None)).0.unwrap();
    b.ends(n[0], task("epilog", "a", 0));
    b.ask(list(vec![listed("a", "n[0-1]", JobPhase::Running)])).0.unwrap();
    let reported: Vec<String> = b.store.outbox.iter().map(|e| e.body.value()["ranks"].to_string()).collect();
    assert!(reported.iter().any(|ranks| ranks.contains('1')), "{reported:?}");
}

#[test]
fn a_resource_manager_that_forgot_a_release_gets_it_again() {
    let (mut b, n) = bench(1, |_| {});
    b.ask(list(vec![listed("a", "n0", JobPhase::Running)])).0.unwrap();
    b.ask(finish("a", None)).0.unwrap();
    b.ends(n[0], task("epilog", "a", 0));
    let reported = |b: &Bench| b.store.outbox.iter().filter(|entry| entry.body.value()["event"] == "release").count();
    assert_eq!(reported(&b), 1);
    // The edge has not read the release yet.
    b.ask(list(vec![listed("a", "n0", JobPhase::Ended)])).0.unwrap();
    assert_eq!(reported(&b), 1);
    b.ask(Request::OutboxApplied { through: b.store.outbox_last }).0.unwrap();
    b.ask(list(vec![listed("a", "n0", JobPhase::Running)])).0.unwrap();
    let entry = b.store.outbox.last().unwrap().body.value();
    assert_eq!((reported(&b), &entry["ranks"], &entry["final"]), (1, &"0".into(), &true.into()));
}

#[test]
fn a_list_of_another_instance_says_nothing() {
    let (mut b, _) = bench(1, |_| {});
    b.ask(list(vec![listed("a", "n0", JobPhase::Running)])).0.unwrap();
    let other = Source { instance: "i2".into(), ..source() };
    b.ask(page(other, None, false, vec![])).0.unwrap();
    assert!(b.store.attempts[0].open);
    b.ask(add("manual", "n0", Terms::default())).0.unwrap();
    b.ask(list(vec![])).0.unwrap();
    let open: Vec<_> = b.store.attempts.iter().filter(|a| a.open).map(|a| a.job.as_str()).collect();
    assert_eq!(open, ["manual"]);
}

#[test]
fn what_contradicts_is_refused_and_changes_nothing() {
    let (mut b, _) = bench(2, |_| {});
    b.ask(list(vec![listed("a", "n0", JobPhase::Running)])).0.unwrap();
    let other_user = Listed { userid: Some(7), ..listed("a", "n0", JobPhase::Running) };
    for wrong in [listed("a", "n1", JobPhase::Running), other_user] {
        let before = b.store.attempts.clone();
        let Ok(Reply::Synced(reported)) = b.ask(list(vec![wrong])).0 else { panic!() };
        assert_eq!((reported.refused.len(), reported.over.len()), (1, 0));
        assert_eq!(b.store.attempts, before);
    }
}
