//! Vouching: the ranks for which an operator or an edge vouches, and the texts that clients get while a job waits for
//! recovery.

use super::recovery::{assert, confirm, listed, page};
use super::release::{add, bench, contexts, finish};
use super::*;
use crate::job::Terms;

/// Creates a bench on a restored store with an unvouched attempt 0 on n[0-1]. Its requeue, attempt 1, has n0 alone.
fn requeued() -> (Bench, SessionId) {
    let (mut b, n) = bench(2, |_| {});
    b.ask(add("j", "n[0-1]", Terms::default())).0.unwrap();
    b.run("prolog", "j", "n[0-1]");
    b.says(n[0], finished(task("prolog", "j", 0), Outcome::Ok));
    b.says(n[1], finished(task("prolog", "j", 1), Outcome::Ok));
    let copy = b.store.clone();
    let mut b = b.restored(&copy);
    let n0 = b.up("n0", "b", vec![]).0;
    let Request::JobAdd(next) = add("j", "n0", Terms::default()) else { unreachable!() };
    b.ask(Request::JobAdd(Box::new(JobAdd { attempt: Some(Attempt::from_number(1)), ..*next }))).0.unwrap();
    (b, n0)
}

#[test]
fn a_persons_word_on_disowned_ranks_outlives_a_restart() {
    let (mut b, _) = requeued();
    assert!(b.in_recovery(), "n1 may be another job's by now");
    b.ask(confirm(Some("j"), Confirm::Over)).0.unwrap();
    assert!(!b.in_recovery() && b.view().attempts.is_empty(), "the word was given: {:?}", b.view());
    let mut b = b.restart();
    let (n1, effects) = b.up("n1", "b", vec![]);
    assert_eq!(starts(&effects), [(n1, 1)]);
}

/// Regression test: a restored store had the notice of an attempt's release, which the lost life had dealt with. A
/// newer attempt came, and the resource manager was told once more that the older one's host is free.
#[test]
fn an_owed_release_of_a_superseded_attempt_is_not_told() {
    let (mut b, n) = bench(2, |settings| {
        settings.release_hook = true;
        settings.release.insert(ActionName::new("epilog").unwrap(), ReleasePolicy::Each);
    });
    b.ask(add("j", "n[0-1]", Terms::default())).0.unwrap();
    b.ask(finish("j", None)).0.unwrap();
    b.ends(n[1], task("epilog", "j", 1));
    let releases = |b: &Bench| {
        let bodies = b.store.outbox.iter().map(|entry| entry.body.value());
        bodies.filter(|body| body["event"] == "release" && body["attempt"] == "0").count()
    };
    assert_eq!(releases(&b), 2, "for the resource manager and for the release hook");
    let copy = b.store.clone();
    for (is_restored, told) in [(false, 2), (true, 0)] {
        b = if is_restored { b.restored(&copy) } else { b.restart() };
        let Request::JobAdd(next) = add("j", "n0", Terms::default()) else { unreachable!() };
        b.ask(Request::JobAdd(Box::new(JobAdd { attempt: Some(Attempt::from_number(1)), ..*next }))).0.unwrap();
        assert_eq!(releases(&b), told, "{is_restored}");
        assert_eq!(contexts(&b, "release-forgotten").len(), usize::from(is_restored));
    }
}

/// An operator who vouches for all jobs does not vouch for the disowned ranks of an edge's attempt. Only the edge's
/// next list can say which job holds the host of such a rank.
#[test]
fn vouching_for_all_jobs_excludes_an_edges_disowned_ranks() {
    let (mut b, _) = bench(2, |_| {});
    b.ask(assert(vec![listed("edge", "n[0-1]", JobPhase::Running)])).0.unwrap();
    b.ask(add("by-hand", "n0", Terms::default())).0.unwrap();
    let copy = b.store.clone();
    let mut b = b.restored(&copy);
    let mut part = listed("edge", "n[0-1]", JobPhase::Running);
    (part.ranks, part.hosts) = ([0].into_iter().collect(), "n0".parse().unwrap());
    b.ask(assert(vec![part])).0.unwrap();
    let listed: Vec<String> = b.view().attempts.iter().map(|of| of.job.to_string()).collect();
    assert_eq!(listed, ["by-hand"]);
    b.ask(confirm(None, Confirm::Running)).0.unwrap();
    assert!(!b.in_recovery());
    assert_eq!(b.drained(), [("n1", false)], "n1 may be another job's: it is drained before it is cleaned up");
}

/// Regression test: the resource manager was restored too. The edge's list lacked a rank, and a later list had it
/// again. The rank's epilog did not begin.
#[test]
fn a_rank_that_is_listed_again_is_cleaned_up() {
    let (mut b, _) = bench(3, |_| {});
    b.ask(assert(vec![listed("a", "n[0-1]", JobPhase::Running)])).0.unwrap();
    b.ask(add("b", "n2", Terms::default())).0.unwrap();
    let copy = b.store.clone();
    let mut b = b.restored(&copy);
    let sessions = ["n0", "n1"].map(|host| b.up(host, "b", vec![]).0);
    let mut part = listed("a", "n[0-1]", JobPhase::Running);
    (part.ranks, part.hosts) = ([0].into_iter().collect(), "n0".parse().unwrap());
    let (_, effects) = b.ask(assert(vec![part]));
    assert_eq!((starts(&effects), b.in_recovery()), (vec![], true), "n1 may be another job's, and b is to vouch for");
    let (_, effects) = b.ask(assert(vec![listed("a", "n[0-1]", JobPhase::Running)]));
    assert_eq!(starts(&effects), [(sessions[1], 1)]);
}

/// Regression test: the resource manager was restored twice. It listed a job again whose hosts it had given on, and the
/// job that had got them began its clean-up before the edge had read the notice, or asked for its attempts.
#[test]
fn a_clean_up_waits_for_a_repeated_release() {
    let Request::Sync(list) = assert(vec![]) else { unreachable!() };
    let follow = || Request::Attempts(AttemptsOf { source: list.source.clone(), jobs: None, after: None, limit: 9 });
    for follows in [false, true] {
        let (mut b, n) = bench(1, |_| {});
        let Request::JobAdd(z) = add("z", "n0", Terms::default()) else { unreachable!() };
        b.ask(Request::JobAdd(Box::new(JobAdd { source: Some(list.source.clone()), ..*z }))).0.unwrap();
        if follows {
            b.ask(follow()).0.unwrap();
        }
        b.ask(assert(vec![listed("a", "n0", JobPhase::Running)])).0.unwrap();
        assert!(b.store.attempts.iter().any(|of| of.job.as_str() == "z" && of.complete), "z had begun nothing");
        if follows {
            b.ask(follow()).0.unwrap();
        }
        let (_, effects) = b.ask(assert(vec![listed("z", "n0", JobPhase::Preparing)]));
        assert_eq!(starts(&effects), [], "the resource manager counts n0 as a host of z");
        assert!(waits(&mut b, "a").unwrap().contains("has read what z gave back"));
        let through = b.store.outbox_last;
        let (_, effects) = b.ask(if follows { follow() } else { Request::OutboxApplied { through } });
        assert_eq!(starts(&effects), [(n[0], 0)], "the epilog of a");
    }
}

/// Regression test: a job's clean-up ran on a host when a list gave the host to another job, and the next list to none.
/// The other job had the lower name, and its clean-up began beside the first.
#[test]
fn a_clean_up_waits_for_one_that_runs() {
    let (mut b, n) = bench(1, |_| {});
    b.ask(assert(vec![listed("z", "n0", JobPhase::Running)])).0.unwrap();
    let (_, effects) = b.ask(assert(vec![]));
    assert_eq!(starts(&effects), [(n[0], 0)], "the epilog of z");
    b.ask(assert(vec![listed("a", "n0", JobPhase::Running)])).0.unwrap();
    let (_, effects) = b.ask(assert(vec![]));
    assert_eq!(starts(&effects), []);
    assert!(waits(&mut b, "a").unwrap().contains("job z holds n0"));
    let effects = b.ends(n[0], task("epilog", "z", 0));
    assert_eq!(starts(&effects), [(n[0], 0)], "the epilog of a");
}

fn waits(b: &mut Bench, job: &str) -> Option<String> {
    let Ok(Reply::Show(view)) = b.ask(Request::Show { job: JobId::new(job).unwrap() }).0 else { panic!() };
    view.attempts[0].waits.clone()
}

/// A job that waits for the gate or for recovery has a text with the reason. `perilog wait`, `perilog run` and the
/// hooks show the text.
#[test]
fn who_waits_for_a_job_is_told_what_it_waits_for() {
    let (mut b, n) = bench(1, |_| {});
    b.ask(add("j", "n0", Terms::default())).0.unwrap();
    b.batch(vec![Input::Closed { session: n[0], why: String::new() }]);
    b.run("prolog", "j", "n0");
    assert_eq!(waits(&mut b, "j"), None, "a node that is away is no recovery");
    let copy = b.store.clone();
    let mut b = b.restart_settling();
    assert!(waits(&mut b, "j").unwrap().contains("waits for its nodes"));
    b.up("n0", "b", vec![]);
    assert_eq!(waits(&mut b, "j"), None, "the gate is open");
    // The old store comes back: the event log tells followers, and a repeated `run` vouches for the job.
    let mut b = b.restored(&copy);
    assert_eq!(contexts(&b, "attempt-unvouched").len(), 1);
    assert!(waits(&mut b, "j").unwrap().contains("perilog controller recover"));
    b.up("n0", "b", vec![held("prolog", "orphan", 0, live())]);
    let (reply, _) = b.ask(Request::Run(request("prolog", "j", Some("n0"), None)));
    let Ok(Reply::Running { waits: Some(why), .. }) = reply else { panic!("{reply:?}") };
    assert!(why.contains("orphan"), "{why}");
    assert_eq!(contexts(&b, "attempt-vouched").len(), 1);
    b.ask(confirm(Some("orphan"), Confirm::Gone)).0.unwrap();
    let (reply, _) = b.ask(Request::Run(request("prolog", "j", Some("n0"), None)));
    assert!(matches!(reply, Ok(Reply::Running { attached: true, .. })), "{reply:?}");
}

#[test]
fn a_refused_attempts_host_is_not_cleaned_up_after_a_restart() {
    let (mut b, _) = bench(3, |_| {});
    b.ask(assert(vec![listed("a", "n0", JobPhase::Running), listed("c", "n1", JobPhase::Running)])).0.unwrap();
    let wrong = Listed { userid: Some(7), ..listed("c", "n0", JobPhase::Running) };
    assert_eq!(starts(&b.ask(assert(vec![wrong])).1), []);
    let mut b = b.restart();
    for host in ["n0", "n1", "n2"] {
        assert_eq!(starts(&b.up(host, "b", vec![]).1), [], "{host}");
    }
}

#[test]
fn a_refused_attempts_host_is_cleaned_up_once_unlisted() {
    let (mut b, n) = bench(1, |_| {});
    b.ask(assert(vec![listed("a", "n0", JobPhase::Running), listed("c", "n0", JobPhase::Running)])).0.unwrap();
    b.ask(finish("c", None)).0.unwrap();
    b.ends(n[0], task("epilog", "c", 0));
    b.ask(Request::OutboxApplied { through: b.store.outbox_last }).0.unwrap();
    // `a` is gone; the list has a job of another user on its host, whose number the store knows.
    let wrong = Listed { userid: Some(7), ..listed("c", "n0", JobPhase::Running) };
    assert_eq!(starts(&b.ask(assert(vec![wrong])).1), []);
    assert_eq!(starts(&b.ask(assert(vec![])).1), [(n[0], 0)]);
}

/// A drain in a restored store is in doubt until the resource manager lists it. A listed drain that the store lacks is
/// adopted only if perilog made it.
#[test]
fn listed_drains_are_the_stores_again() {
    let (mut b, _) = bench(3, |s| s.drain_hook = true);
    b.ask(assert(vec![listed("a", "n0", JobPhase::Running)])).0.unwrap();
    b.ask(Request::Drain { hosts: "n0".parse().unwrap(), reason: "by hand".into(), force: false }).0.unwrap();
    super::by_hand::confirm(&mut b, "n0");
    let copy = b.store.clone();
    let mut b = b.restored(&copy);
    let stands = |b: &Bench| -> Vec<(String, bool, bool)> {
        b.store.drains.iter().map(|drain| (drain.host.to_string(), drain.confirmed, drain.unvouched)).collect()
    };
    assert_eq!(stands(&b), [("n0".to_owned(), false, true)]);
    let drains = [("n0", true), ("n1", true), ("n2", false)].map(|(host, ours)| ListedDrain {
        host: HostName::new(host).unwrap(),
        reason: "why".into(),
        ours,
    });
    let Request::Sync(list) = assert(vec![listed("a", "n0", JobPhase::Running)]) else { panic!() };
    b.ask(Request::Sync(Box::new(SyncPage { drains: drains.to_vec(), ..*list }))).0.unwrap();
    assert_eq!(stands(&b), [("n0".to_owned(), true, false), ("n1".to_owned(), true, false)]);
}

/// The epilog of a recovered attempt runs on all its ranks: a lost life may have begun a prolog there that the store
/// does not have.
#[test]
fn a_recovered_attempt_is_cleaned_up_on_all_its_ranks() {
    let (mut b, _) = bench(2, |_| {});
    b.ask(add("j", "n[0-1]", Terms::default())).0.unwrap();
    let copy = b.store.clone();
    let mut b = b.restored(&copy);
    let sessions = ["n0", "n1"].map(|host| b.up(host, "b", vec![]).0);
    b.ask(add("j", "n[0-1]", Terms::default())).0.unwrap();
    let Request::JobAdd(requeued) = add("j", "n[0-1]", Terms::default()) else { panic!() };
    let (reply, effects) =
        b.ask(Request::JobAdd(Box::new(JobAdd { attempt: Some(Attempt::FIRST.next()), ..*requeued })));
    reply.unwrap();
    assert_eq!(starts(&effects), [(sessions[0], 0), (sessions[1], 1)], "the epilog of attempt 0");
}

/// After a restart, the clean-up of an attempt that its edge no longer lists waits for the edge's next list. Only that
/// edge, or an operator who names the job, lets the clean-up begin.
#[test]
fn a_clean_up_waits_for_the_list_of_its_own_instance() {
    let other = Source { name: "flux".into(), instance: "i2".into() };
    let of_another = || page(other.clone(), None, false, vec![]);
    let begins = |last: Request| {
        let (mut b, n) = bench(1, |_| {});
        b.ask(assert(vec![listed("a", "n0", JobPhase::Running)])).0.unwrap();
        b.batch(vec![super::boots::closed(n[0])]);
        b.ask(assert(vec![])).0.unwrap();
        let mut b = b.restart();
        let (n0, effects) = b.up("n0", "b", vec![]);
        assert_eq!(starts(&effects), []);
        assert_eq!(starts(&b.ask(of_another()).1), [], "another instance");
        let (reply, effects) = b.ask(last);
        (reply.map(drop), starts(&effects) == [(n0, 0)])
    };
    assert_eq!(begins(assert(vec![])), (Ok(()), true));
    assert_eq!(begins(confirm(Some("a"), Confirm::Over)), (Ok(()), true));
    let (reply, begun) = begins(confirm(None, Confirm::Over));
    assert!(matches!(reply, Err(Refusal::Conflict(_))) && !begun, "{reply:?}");
}

#[test]
fn a_word_for_an_older_attempt_begins_nothing_beside() {
    let (mut b, n0) = requeued();
    let of_newer = |name| TaskId { action: id(name, "j", 1), rank: Rank(0) };
    b.ask(Request::Run(request("prolog", "j", Some("n0"), Some(1)))).0.unwrap();
    let (reply, effects) = b.ask(confirm(Some("j"), Confirm::Over));
    reply.unwrap();
    assert_eq!(starts(&effects), [], "attempt 1 has n0");
    b.ends(n0, of_newer("prolog"));
    b.ask(finish("j", None)).0.unwrap();
    assert_eq!(starts(&b.ends(n0, of_newer("epilog"))), [(n0, 0)], "it has given n0 back");
}

#[test]
fn a_forgotten_release_is_told_again_beside_another() {
    let (mut b, n) = bench(2, |_| {});
    b.ask(assert(vec![listed("a", "n[0-1]", JobPhase::Running)])).0.unwrap();
    b.ask(finish("a", Some("n1"))).0.unwrap();
    b.ends(n[1], task("epilog", "a", 1));
    b.ask(Request::OutboxApplied { through: b.store.outbox_last }).0.unwrap();
    b.ask(finish("a", None)).0.unwrap();
    b.ends(n[0], task("epilog", "a", 0));
    b.ask(assert(vec![listed("a", "n[0-1]", JobPhase::Running)])).0.unwrap();
    let told: Vec<String> = b.store.outbox.iter().map(|e| e.body.value()["ranks"].to_string()).collect();
    assert!(told.iter().any(|ranks| ranks.contains('1')), "{told:?}");
}

/// Regression test: a store was lost, and a prolog of job `j` waited for an orphan of another job. The node then
/// reported that an epilog of `j` had already ended in the lost life. The prolog began after that epilog.
#[test]
fn a_setup_action_does_not_follow_the_epilog_of_a_lost_life() {
    let (mut b, _) = bench(0, |_| {});
    let orphan = || held("firmware", "x", 0, HeldState::Ended);
    let stone = HeldState::Tombstone { outcome: Outcome::Ok, past_ms: 0, reboot: Reboot::None };
    let (first, _) = b.up("n0", "b", vec![orphan()]);
    b.run("prolog", "j", "n0");
    b.ask(finish("j", None)).0.unwrap();
    b.batch(vec![super::boots::closed(first)]);
    let (second, effects) = b.up("n0", "b", vec![orphan(), held("epilog", "j", 0, stone)]);
    assert_eq!(starts(&effects), []);
    b.batch(vec![super::boots::closed(second)]);
    let (_, effects) = b.up("n0", "b", vec![]);
    assert_eq!(starts(&effects), [], "its rank was cleaned up");
}

/// Regression test: a node reported an ended epilog that the store did not know, and a prolog of the same job was
/// requested. When an operator said that the job was over, the epilog was adopted, and the prolog began after it.
#[test]
fn no_setup_action_follows_an_adopted_epilog() {
    let (mut b, _) = bench(0, |_| {});
    let orphans = ["x", "j"].map(|job| held(if job == "x" { "firmware" } else { "epilog" }, job, 0, HeldState::Ended));
    let (n0, _) = b.up("n0", "b", orphans.to_vec());
    b.run("prolog", "j", "n0");
    b.ask(confirm(Some("x"), Confirm::Gone)).0.unwrap();
    let (_, effects) = b.ask(confirm(Some("j"), Confirm::Over));
    assert_eq!(starts(&effects), [(n0, 0)], "the epilog's end is asked for");
    assert_eq!(b.outcome(task("prolog", "j", 0)), Outcome::Cancelled { status: None });
    assert_eq!(starts(&b.ends(n0, task("epilog", "j", 0))), []);
}

/// Regression test: a release waited for a drain. In one batch, an operator lifted this drain, and a clean-up drained
/// the host anew. The rank was released without waiting for the new drain.
#[test]
fn a_release_waits_for_the_drain_of_the_same_batch() {
    let (mut b, n) = bench(2, |settings| settings.drain_hook = true);
    b.ask(assert(vec![listed("a", "n[0-1]", JobPhase::Running)])).0.unwrap();
    b.ask(add("b", "n1", Terms::default())).0.unwrap();
    let mut part = listed("a", "n[0-1]", JobPhase::Running);
    (part.ranks, part.hosts) = ([0].into_iter().collect(), "n0".parse().unwrap());
    b.ask(assert(vec![part])).0.unwrap();
    assert_eq!(b.drained(), [("n1", false)], "a is cleaned up there");
    b.ask(finish("b", None)).0.unwrap();
    b.ends(n[1], task("epilog", "b", 0));
    b.pass(2_000);
    b.ask(Request::Undrain { hosts: "n1".parse().unwrap(), forget: true, telling: None }).0.unwrap();
    assert_eq!((b.drained(), contexts(&b, "release").len()), (vec![("n1", false)], 0), "drained anew");
    let (host, telling) = (HostName::new("n1").unwrap(), b.store.drains[0].telling);
    b.ask(Request::DrainDone { host, telling, lifted: false }).0.unwrap();
    assert_eq!(contexts(&b, "release").len(), 1);
}

/// Creates a bench on a restored store, with a drain hook if `drain_hook` is `true`. n0 and n1 both hold the epilog of
/// job `a` unclaimed, but the edge lists n0 alone for `a`. Returns the bench, the nodes' sessions, and the effects of
/// the list.
fn unclaimed(drain_hook: bool) -> (Bench, [SessionId; 2], Vec<Effect>) {
    let (mut b, n) = bench(2, |s| s.drain_hook = drain_hook);
    b.ask(assert(vec![listed("a", "n[0-1]", JobPhase::Running)])).0.unwrap();
    b.ask(finish("a", None)).0.unwrap();
    for (rank, session) in (0..).zip(&n) {
        b.says(*session, FromAgent::Accepted { task: task("epilog", "a", rank), limit_ms: None });
    }
    let copy = b.store.clone();
    let mut b = b.restored(&copy);
    let up = |b: &mut Bench, rank: u32| {
        b.up(&format!("n{rank}"), "b", vec![held("epilog", "a", rank, HeldState::Unclaimed)]).0
    };
    let sessions = [up(&mut b, 0), up(&mut b, 1)];
    let mut part = listed("a", "n[0-1]", JobPhase::Ended);
    (part.ranks, part.hosts) = ([0].into_iter().collect(), "n0".parse().unwrap());
    let effects = b.ask(assert(vec![part])).1;
    (b, sessions, effects)
}

fn begins(session: SessionId, rank: u32) -> Effect {
    send(session, ToAgent::Begin { task: task("epilog", "a", rank) })
}

/// Regression test: an unclaimed epilog on a disowned rank began only with its node's next Hello.
#[test]
fn an_unclaimed_epilog_on_a_disowned_rank_begins_once_its_host_is_drained() {
    let (b, n, effects) = unclaimed(false);
    assert!(effects.contains(&begins(n[0], 0)) && effects.contains(&begins(n[1], 1)), "{effects:?}");
    assert_eq!(b.drained(), [("n1", false)]);
}

#[test]
fn an_unclaimed_epilog_begins_once_its_rank_is_listed_again() {
    let (mut b, n, effects) = unclaimed(true);
    assert!(effects.contains(&begins(n[0], 0)) && !effects.contains(&begins(n[1], 1)), "{effects:?}");
    let Ok(Reply::Ps { rows, .. }) = b.ask(Request::Ps { older_than_ms: 0, held: false }).0 else { panic!() };
    let why: Vec<&str> = rows.iter().filter(|row| row.hosts.contains("n1")).map(|row| row.why.as_str()).collect();
    assert!(why.contains(&"the resource manager does not hold n1 for a any more: drained first"), "{rows:?}");
    let (_, effects) = b.ask(assert(vec![listed("a", "n[0-1]", JobPhase::Ended)]));
    assert!(effects.contains(&begins(n[1], 1)), "{effects:?}");
}
