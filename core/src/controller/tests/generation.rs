//! Generations: what an abandoned attempt keeps and drops, who takes it up, and what becomes of its hosts.

use crate::controller::io::ReleasePolicy;
use crate::job::Terms;
use crate::outcome::{Loss, Verdict};

use super::recovery::{accepted_epoch, commit, list, listed};
use super::release::{add, bench, contexts, finish};
use super::*;

/// Creates a bench with a finished job on n[0-1]. Its epilog has ended on n0, and waits on n1, which is away.
pub(super) fn with_pending_work() -> (Bench, SessionId) {
    let (mut b, n) = bench(2, |_| {});
    b.ask(add("j", "n[0-1]", Terms::default())).0.unwrap();
    b.batch(vec![Input::Closed { session: n[1], why: String::new() }]);
    b.ask(finish("j", None)).0.unwrap();
    b.ends(n[0], task("epilog", "j", 0));
    (b, n[0])
}

/// Adds an attempt with this number.
fn add_number(name: &str, hosts: &str, number: u64) -> Request {
    let Request::JobAdd(add) = add(name, hosts, Terms::default()) else { unreachable!() };
    Request::JobAdd(Box::new(JobAdd { attempt: Some(Attempt::from_number(number)), ..*add }))
}

fn tombstone(action: &str, job: &str, rank: u32, outcome: Outcome) -> Held {
    held(action, job, rank, HeldState::Tombstone { outcome, past_ms: 0, reboot: Reboot::None })
}

/// Returns a controller on a copy of the store: job `j` on `n0` had run its prolog when the copy was made.
fn prepared(settings: impl Fn(&mut Settings)) -> Bench {
    let (mut b, n) = bench(1, settings);
    b.ask(add("j", "n0", Terms::default())).0.unwrap();
    b.run("prolog", "j", "n0");
    b.ends(n[0], task("prolog", "j", 0));
    let copy = b.store.clone();
    b.restored(&copy)
}

/// The same task in another attempt of its job.
fn of_attempt(held: Held, number: u64) -> Held {
    let task = TaskId { action: id(held.action.as_str(), held.job.as_str(), number), rank: held.task.rank };
    Held { task, attempt: Attempt::from_number(number), ..held }
}

fn undrain(host: &str) -> Request {
    Request::Undrain { hosts: host.parse().unwrap(), forget: false, notice_id: None }
}

fn reasons(b: &Bench) -> Vec<(&str, &str)> {
    b.store.drains.iter().map(|drain| (drain.host.as_str(), drain.reason.as_str())).collect()
}

#[test]
fn a_generation_keeps_facts_and_drops_debts() {
    let (mut b, n) = bench(2, |s| s.release_hook = true);
    b.ask(add("j", "n[0-1]", Terms::default())).0.unwrap();
    b.ask(finish("j", None)).0.unwrap();
    b.ends(n[0], task("epilog", "j", 0));
    let copy = b.store.clone();
    let mut b = b.restored(&copy);
    assert_eq!(contexts(&b, "attempt-abandoned").len(), 1, "who follows the job asks again");
    let (n1, effects) = b.up("n1", "b", vec![held("epilog", "j", 1, HeldState::Ended)]);
    assert_eq!(effects, []);
    b.up("n0", "b", vec![]);
    // The last epilog ends: the end is a fact, and neither the verdict nor the release follows.
    let acked = b.ends(n1, task("epilog", "j", 1));
    assert!(acked.contains(&ack(n1, task("epilog", "j", 1))));
    b.pass(86_400_000);
    let row = b.action("epilog", "j", 0);
    assert_eq!((row.ok.to_string(), row.verdict), ("0-1".to_owned(), None));
    assert!(contexts(&b, "release").is_empty());
    let view = b.view();
    assert_eq!((view.abandoned.len(), view.abandoned[0].command.as_str()), (1, "perilog job finish j --attempt 0"));
    assert_eq!(b.drained(), [], "its clean-up has run");
    // The hook repeats that the job is over.
    b.ask(finish("j", None)).0.unwrap();
    assert_eq!((contexts(&b, "release").len(), b.view().abandoned.len()), (1, 0));
    assert_eq!(b.store.outbox.iter().filter(|entry| entry.reader == Reader::ReleaseHook).count(), 1);
}

#[test]
fn a_generation_outlives_a_restart() {
    let (b, _) = with_pending_work();
    let copy = b.store.clone();
    let mut b = b.restored(&copy).restart();
    let (n1, effects) = b.up("n1", "b", vec![]);
    assert!(b.in_recovery() && starts(&effects).is_empty());
    assert_eq!(starts(&b.ask(finish("j", None)).1), [(n1, 1)]);
}

/// F9: a release that the hook has not carried out waits until the job is finished again.
#[test]
fn a_pending_release_is_sent_when_its_job_is_finished_again() {
    let (mut b, n) = bench(1, |s| s.release_hook = true);
    b.ask(add("j", "n0", Terms::default())).0.unwrap();
    b.ask(finish("j", None)).0.unwrap();
    b.ends(n[0], task("epilog", "j", 0));
    let copy = b.store.clone();
    let pending = |b: &mut Bench| {
        let request = Request::Releases { first: vec![], except: Default::default(), limit: 9 };
        let Ok(Reply::Outbox(entries)) = b.ask(request).0 else { panic!() };
        entries.len()
    };
    assert_eq!(pending(&mut b), 1);
    let mut b = b.restored(&copy);
    assert_eq!((pending(&mut b), b.view().abandoned.len()), (0, 1));
    b.ask(finish("j", None)).0.unwrap();
    assert_eq!((pending(&mut b), b.view().abandoned.len()), (1, 0));
}

/// Regression test: a milestone of an abandoned attempt entered the outbox, and all later notices waited behind it.
#[test]
fn an_abandoned_attempt_keeps_no_notice_back() {
    let (mut b, _) = bench(1, |_| {});
    b.ask(add("j", "n0", Terms::default())).0.unwrap();
    b.run("prolog", "j", "n0");
    let copy = b.store.clone();
    let mut b = b.restored(&copy);
    let (n0, _) = b.up("n0", "b", vec![held("prolog", "j", 0, live())]);
    let done = Ended { milestones: vec!["data-out".to_owned()], ..ended(Outcome::Ok) };
    b.receives(n0, FromAgent::Finished { task: task("prolog", "j", 0), ended: Box::new(done) });
    assert_eq!((b.view().abandoned.len(), contexts(&b, "milestone").len()), (1, 2));
    assert_eq!(b.store.outbox, []);
}

#[test]
fn a_setup_action_goes_on_for_who_asks_and_not_for_a_job_that_had_begun() {
    for (phase, begins) in [(JobPhase::Preparing, true), (JobPhase::Running, false), (JobPhase::Ended, false)] {
        let (mut b, n) = bench(2, |_| {});
        b.ask(list(vec![listed("j", "n[0-1]", JobPhase::Preparing)])).0.unwrap();
        b.batch(vec![Input::Closed { session: n[1], why: String::new() }]);
        b.run("prolog", "j", "n[0-1]");
        let copy = b.store.clone();
        let mut b = b.restored(&copy);
        b.up("n0", "b", vec![held("prolog", "j", 0, live())]);
        let (n1, effects) = b.up("n1", "b", vec![]);
        assert_eq!(starts(&effects), []);
        let (_, effects) = b.ask(list(vec![listed("j", "n[0-1]", phase)]));
        assert_eq!(starts(&effects) == [(n1, 1)], begins || phase == JobPhase::Ended, "{phase:?}");
        assert_eq!(b.action("prolog", "j", 0).sent.contains(1), begins, "{phase:?}");
    }
}

#[test]
fn an_absent_task_is_lost_once_its_attempt_is_taken_up() {
    let (mut b, n) = bench(2, |_| {});
    b.ask(add("j", "n[0-1]", Terms::default())).0.unwrap();
    b.run("prolog", "j", "n[0-1]");
    for (rank, session) in (0..).zip(&n) {
        b.receives(*session, FromAgent::Accepted { task: task("prolog", "j", rank), limit_ms: None });
    }
    let copy = b.store.clone();
    let mut b = b.restored(&copy);
    b.up("n0", "b", vec![]);
    b.up("n1", "b2", vec![]);
    assert_eq!(b.action("prolog", "j", 0).accepted.to_string(), "0-1", "an abandoned attempt has no losses");
    b.run("prolog", "j", "n[0-1]");
    let lost = |why| Outcome::Lost { why };
    assert_eq!(b.outcome(task("prolog", "j", 0)), lost(Loss::Vanished));
    assert_eq!(b.outcome(task("prolog", "j", 1)), lost(Loss::Rebooted));
}

/// The epilog of a taken-up attempt runs on all its ranks: a lost epoch may have begun a prolog there that the store
/// does not have.
#[test]
fn a_taken_up_attempt_is_cleaned_up_on_all_its_ranks() {
    let (mut b, _) = bench(2, |_| {});
    b.ask(add("j", "n[0-1]", Terms::default())).0.unwrap();
    let copy = b.store.clone();
    let mut b = b.restored(&copy);
    let sessions = ["n0", "n1"].map(|host| b.up(host, "b", vec![]).0);
    b.ask(add("j", "n[0-1]", Terms::default())).0.unwrap();
    let (reply, effects) = b.ask(add_number("j", "n[0-1]", 1));
    reply.unwrap();
    assert_eq!(starts(&effects), [(sessions[0], 0), (sessions[1], 1)], "the epilog of attempt 0");
}

/// A request may take up fewer hosts than the copy has: a lost epoch had released the others.
#[test]
fn hosts_that_a_request_does_not_name_are_given_up() {
    let (mut b, _) = bench(3, |_| {});
    b.ask(add("j", "n[0-2]", Terms::default())).0.unwrap();
    let copy = b.store.clone();
    let mut b = b.restored(&copy);
    b.up("n0", "b", vec![]);
    b.up("n1", "b", vec![tombstone("epilog", "j", 1, Outcome::Ok)]);
    let n2 = b.up("n2", "b", vec![]).0;
    b.ask(add("j", "n2", Terms::default())).0.unwrap();
    let row = &b.store.attempts[0];
    assert_eq!((row.hold.ranks.to_string(), row.released.ranks.to_string()), ("2".to_owned(), "0-1".to_owned()));
    assert!(b.store.outbox.is_empty(), "{:?}", b.store.outbox);
    let reason = "epilog: cancelled: another job may have its host (job j attempt 0)";
    assert_eq!(reasons(&b), [("n0", reason)], "n1 was cleaned up in the lost epoch");
    assert_eq!(starts(&b.ask(finish("j", None)).1), [(n2, 2)]);
    b.ends(n2, task("epilog", "j", 2));
    assert_eq!(contexts(&b, "release").len(), 1, "of n2 alone");
}

/// F1: the store knows attempt 0, and a node knows attempt 2 of the job. A request without a number means attempt 2.
#[test]
fn a_request_without_a_number_means_the_newest_that_a_node_knows() {
    for state in [live(), HeldState::Tombstone { outcome: Outcome::Ok, past_ms: 0, reboot: Reboot::None }] {
        let (mut b, _) = bench(1, |_| {});
        b.ask(add("j", "n0", Terms::default())).0.unwrap();
        b.run("prolog", "j", "n0");
        let copy = b.store.clone();
        let mut b = b.restored(&copy);
        let is_live = state == live();
        b.up("n0", "b", vec![of_attempt(held("prolog", "j", 0, state), 2)]);
        let Ok(Reply::Added { attempt, .. }) = b.ask(add("j", "n0", Terms::default())).0 else { panic!() };
        assert_eq!(attempt, Attempt::from_number(2));
        let known = b.action("prolog", "j", 2);
        assert_eq!((known.accepted.is_empty(), known.ok.is_empty()), (!is_live, is_live), "the task is adopted");
        b.grace();
        // Attempt 0 was begun in this boot, and nothing shows that it was cleaned up.
        assert_eq!(reasons(&b), [("n0", "the epilog of job j attempt 0 may not have run here")]);
    }
}

/// F3: a newer attempt leaves an abandoned one as it is: a client may still ask for it.
#[test]
fn a_newer_attempt_leaves_an_abandoned_one_alone() {
    let (mut b, _) = bench(2, |_| {});
    b.ask(add("j", "n[0-1]", Terms::default())).0.unwrap();
    b.run("prolog", "j", "n[0-1]");
    let copy = b.store.clone();
    let mut b = b.restored(&copy);
    let sessions = ["n0", "n1"].map(|host| b.up(host, "b", vec![]).0);
    assert_eq!(starts(&b.ask(add_number("j", "n0", 1)).1), []);
    let row = &b.store.attempts[0];
    assert!(row.abandoned && row.open && !row.complete);
    b.ask(Request::Run(request("prolog", "j", None, Some(1)))).0.unwrap();
    // An operator's run: n0 is attempt 1's, so the epilog of attempt 0 runs on n1 alone.
    let over = Request::JobFinish {
        job: JobId::new("j").unwrap(),
        attempt: Some(Attempt::FIRST),
        targets: None,
        resources: None,
    };
    assert_eq!(starts(&b.ask(over).1), [(sessions[1], 1)]);
    assert_eq!(reasons(&b), [("n0", "epilog: cancelled: another job may have its host (job j attempt 0)")]);
    b.ends(sessions[1], task("epilog", "j", 1));
    let reported: Vec<_> = contexts(&b, "release").iter().map(|release| release["hosts"].clone()).collect();
    assert_eq!(reported, ["n1"]);
}

/// A node's tombstone of an attempt that was taken up after the grace goes when the controller forgets the attempt.
#[test]
fn a_tombstone_goes_with_its_attempt() {
    let mut b = prepared(|_| {});
    let unsettled = |b: &Bench| b.m.sizes().iter().find(|(of, _)| *of == "tasks that are not settled").unwrap().1;
    b.up("n0", "b", vec![tombstone("epilog", "j", 0, exit(3))]);
    b.grace();
    b.ask(add("k", "n0", Terms::default())).0.unwrap();
    b.ask(finish("j", None)).0.unwrap();
    assert_eq!((unsettled(&b), b.action("epilog", "j", 0).verdict), (1, Some(Verdict::Cancelled)));
    b.pass(30 * 86_400_000);
    assert_eq!((unsettled(&b), b.store.attempts.len()), (0, 1));
}

/// F4: the lost epoch gave the host of a job to another job. An operator who finishes the first begins nothing there.
#[test]
fn nothing_is_cleaned_up_beside_another_job() {
    for other_is_known in [true, false] {
        let (mut b, _) = bench(1, |_| {});
        b.ask(add("j", "n0", Terms::default())).0.unwrap();
        b.run("prolog", "j", "n0");
        let copy = b.store.clone();
        let mut b = b.restored(&copy);
        let there = tombstone("prolog", "k", 0, Outcome::Ok);
        b.up("n0", "b", if other_is_known { vec![] } else { vec![there] });
        if other_is_known {
            b.ask(add("k", "n0", Terms::default())).0.unwrap();
        }
        b.grace();
        assert_eq!(starts(&b.ask(finish("j", None)).1), [], "{other_is_known}");
        let last = b.store.drains[0].newest().reason;
        assert_eq!(last, "epilog: cancelled: another job may have its host (job j attempt 0)");
        assert!(b.store.attempts[0].complete && contexts(&b, "release").is_empty());
    }
}

/// Regression test: an epilog of a job that was finished again waited on its node, which was away, and another job got
/// the host meanwhile. The epilog began beside that job.
#[test]
fn an_unbegun_clean_up_does_not_begin_beside_another_job() {
    let waits = HeldState::Live { phase: Phase::Waiting { why: "its runner".into() }, age_ms: 1 };
    for (name, state) in [("unclaimed", Some(HeldState::Unclaimed)), ("waits", Some(waits)), ("not there", None)] {
        let (mut b, _) = bench(1, |_| {});
        b.ask(add("j", "n0", Terms::default())).0.unwrap();
        b.run("prolog", "j", "n0");
        let copy = b.store.clone();
        let mut b = b.restored(&copy);
        let (n0, _) = b.up("n0", "b", vec![held("prolog", "j", 0, HeldState::Ended)]);
        b.receives(n0, finished(task("prolog", "j", 0), Outcome::Ok));
        assert_eq!(starts(&b.ask(finish("j", None)).1), [(n0, 0)]);
        b.ask(add("k", "n0", Terms::default())).0.unwrap();
        b.batch(vec![Input::Closed { session: n0, why: String::new() }]);
        let there = state.map(|state| held("epilog", "j", 0, state));
        let (_, effects) = b.up("n0", "b", there.into_iter().collect());
        let begins = |effect: &Effect| {
            matches!(
                effect,
                Effect::Send { message: ToAgent::Begin { .. } | ToAgent::Start(_), .. } | Effect::Fan { .. }
            )
        };
        assert!(!effects.iter().any(begins), "{name}: {effects:?}");
        assert_eq!(contexts(&b, "given-up").len(), 1, "{name}");
        assert!(contexts(&b, "release").is_empty(), "{name}");
    }
}

/// Two jobs of the copy shared the host: clients that ask for them again still share it.
#[test]
fn jobs_that_shared_a_host_in_the_copy_share_it_still() {
    let (mut b, _) = bench(1, |_| {});
    for job in ["j", "k"] {
        b.ask(add(job, "n0", Terms::default())).0.unwrap();
        b.run("prolog", job, "n0");
    }
    let copy = b.store.clone();
    let mut b = b.restored(&copy);
    let (n0, _) = b.up("n0", "b", ["j", "k"].map(|job| held("prolog", job, 0, HeldState::Ended)).to_vec());
    for job in ["j", "k"] {
        b.run("prolog", job, "n0");
        b.ends(n0, task("prolog", job, 0));
    }
    assert_eq!(starts(&b.ask(finish("j", None)).1), [(n0, 0)]);
}

/// F3: a host is drained where a setup action began in this boot, or in the lost epoch, and no clean-up is shown.
#[test]
fn a_host_whose_clean_up_may_be_missing_is_drained_after_the_grace() {
    let ok = || Outcome::Ok;
    for (reported, boot, drained) in [
        (vec![], "b", true),
        (vec![], "b2", false),
        (vec![tombstone("epilog", "j", 0, ok())], "b", false),
        (vec![tombstone("epilog", "j", 0, exit(1))], "b", true),
        (vec![tombstone("prolog", "k", 0, ok())], "b2", true),
        (vec![tombstone("prolog", "k", 0, ok()), tombstone("epilog", "k", 0, ok())], "b2", false),
        (vec![Held { local: true, ..tombstone("prolog", "k", 0, ok()) }], "b2", false),
    ] {
        let (mut b, n) = bench(1, |_| {});
        b.ask(add("j", "n0", Terms::default())).0.unwrap();
        b.run("prolog", "j", "n0");
        b.ends(n[0], task("prolog", "j", 0));
        let copy = b.store.clone();
        for comes_late in [false, true] {
            let (c, _) = bench(0, |_| {});
            let mut c = c.restored(&copy);
            if comes_late {
                c.grace();
                c.pass(86_400_000);
            }
            c.up("n0", boot, reported.clone());
            if !comes_late {
                assert_eq!(c.drained(), [], "the grace runs");
                c.grace();
            }
            assert_eq!(c.drained().len(), usize::from(drained), "{comes_late} {boot} {reported:?}");
        }
    }
}

/// Regression test: a node forgot its tombstones, past their retention or as it booted. The drain for the missing
/// clean-up was then lifted, though no clean-up had run.
#[test]
fn a_drain_for_a_missing_clean_up_outlives_its_traces() {
    let (setup, cleaned) = (|| tombstone("prolog", "k", 0, Outcome::Ok), || tombstone("epilog", "k", 0, Outcome::Ok));
    for (boot, shown, drained) in
        [("b", vec![], true), ("b2", vec![], true), ("b", vec![setup()], true), ("b", vec![setup(), cleaned()], false)]
    {
        let (b, _) = bench(1, |_| {});
        let copy = b.store.clone();
        let mut b = b.restored(&copy);
        let (n0, _) = b.up("n0", "b", vec![setup()]);
        b.grace();
        assert_eq!(b.drained().len(), 1);
        b.batch(vec![Input::Closed { session: n0, why: String::new() }]);
        b.up("n0", boot, shown);
        assert_eq!(b.drained().len(), usize::from(drained), "{boot}");
    }
}

/// Regression test: a second restore came when a host was drained for a missing clean-up. An undrain in its grace made
/// the node forget the tombstones of the attempt: a request for the attempt would then run its scripts again.
#[test]
fn an_undrain_in_a_grace_forgets_no_tombstone() {
    for in_grace in [false, true] {
        let (b, _) = bench(1, |_| {});
        let copy = b.store.clone();
        let mut b = b.restored(&copy);
        b.up("n0", "b", vec![tombstone("prolog", "k", 0, Outcome::Ok)]);
        b.grace();
        assert_eq!(b.drained().len(), 1);
        let epoch = b.store.recovery.as_ref().unwrap().epoch;
        let mut b = b.restart();
        b.up("n0", "b", vec![tombstone("prolog", "k", 0, Outcome::Ok)]);
        if in_grace {
            let session = b.session();
            b.receives(session, accepted_epoch("n1", session.0, commit(epoch, 7, 10_000), vec![]));
            assert!(b.store.recovery.as_ref().unwrap().ended_ms.is_none(), "a grace runs");
        }
        let undrain = Request::Undrain { hosts: "n0".parse().unwrap(), forget: false, notice_id: None };
        let (_, effects) = b.ask(undrain);
        let forgets = |effect: &Effect| matches!(effect, Effect::Send { message: ToAgent::Forget { .. }, .. });
        assert_eq!(effects.iter().any(forgets), !in_grace, "{effects:?}");
        if in_grace {
            b.grace();
            assert_eq!(b.drained().len(), 1, "no request for the attempt has arrived");
        }
    }
}

/// Regression test: a job began after the copy was made. Its hook asked for it after the grace, and the drain stayed.
#[test]
fn a_job_that_is_added_after_the_grace_takes_up_its_tasks() {
    let (b, _) = bench(1, |_| {});
    let copy = b.store.clone();
    let mut b = b.restored(&copy);
    let (n0, _) = b.up("n0", "b", vec![tombstone("prolog", "k", 0, Outcome::Ok)]);
    b.grace();
    assert_eq!(b.drained(), [("n0", false)]);
    let view = b.view();
    let command = "perilog job add k --attempt 0 --nodes n0 && perilog job finish k --attempt 0";
    assert_eq!((view.abandoned[0].command.as_str(), view.abandoned[0].stored), (command, false));
    b.ask(add("k", "n0", Terms::default())).0.unwrap();
    assert_eq!((b.view().abandoned.len(), b.drained()), (0, vec![]));
    assert_eq!(b.action("prolog", "k", 0).ok.to_string(), "0");
    assert_eq!(starts(&b.ask(finish("k", None)).1), [(n0, 0)]);
}

/// Regression test: the copy had a job's epilog, which had ended. The release was sent although a job that the copy
/// lacked had the host.
#[test]
fn no_host_of_an_unknown_job_is_reported_free() {
    for beside in [true, false] {
        let (mut b, n) = bench(1, |_| {});
        b.ask(add("j", "n0", Terms::default())).0.unwrap();
        b.run("prolog", "j", "n0");
        b.ends(n[0], task("prolog", "j", 0));
        b.ask(finish("j", None)).0.unwrap();
        let copy = b.store.clone();
        let mut b = b.restored(&copy);
        let mut reported = vec![tombstone("prolog", "j", 0, Outcome::Ok), tombstone("epilog", "j", 0, Outcome::Ok)];
        reported.extend(beside.then(|| tombstone("prolog", "k", 0, Outcome::Ok)));
        b.up("n0", "b", reported);
        b.grace();
        b.ask(finish("j", None)).0.unwrap();
        b.pass(600_000);
        let counts = [contexts(&b, "release").len(), contexts(&b, "given-up").len()];
        assert_eq!(counts, if beside { [0, 1] } else { [1, 0] });
        assert!(b.store.attempts[0].complete && b.action("epilog", "j", 0).ok.to_string() == "0");
    }
}

#[test]
fn a_drain_for_a_missing_clean_up_ends_when_the_attempt_is_taken_up() {
    let mut b = prepared(|_| {});
    let (n0, _) = b.up("n0", "b", vec![]);
    b.grace();
    assert_eq!(b.drained(), [("n0", false)]);
    assert_eq!(starts(&b.ask(finish("j", None)).1), [(n0, 0)]);
    assert_eq!(b.drained(), []);
}

/// An operator who undrains a host answers for the clean-up, also when the node comes again.
#[test]
fn an_undrain_answers_for_a_missing_clean_up() {
    let mut b = prepared(|_| {});
    let (n0, _) = b.up("n0", "b", vec![tombstone("prolog", "k", 0, Outcome::Ok)]);
    b.grace();
    b.pass(2_000);
    let (reply, effects) = b.ask(undrain("n0"));
    reply.unwrap();
    let forgets = send(n0, ToAgent::Forget { tasks: vec![task("prolog", "k", 0)] });
    assert!(effects.contains(&forgets), "{effects:?}");
    assert!(b.store.attempts[0].complete && contexts(&b, "release").is_empty());
    b.batch(vec![super::boots::closed(n0)]);
    b.up("n0", "b", vec![]);
    assert_eq!(b.drained(), []);
}

/// Regression test: the last host of an abandoned attempt counted as released, and its named resources stayed held by a
/// job that had no rank to finish.
#[test]
fn the_last_undrained_host_takes_the_named_resources_along() {
    let (mut b, n) = bench(2, |_| {});
    let resources = [ResourceName::new("rabbit1").unwrap()].into();
    b.ask(add("j", "n[0-1]", Terms { resources, ..Terms::default() })).0.unwrap();
    b.run("prolog", "j", "n[0-1]");
    b.ends(n[0], task("prolog", "j", 0));
    b.ends(n[1], task("prolog", "j", 1));
    let copy = b.store.clone();
    let mut b = b.restored(&copy);
    b.up("n0", "b", vec![]);
    b.up("n1", "b", vec![]);
    b.grace();
    b.pass(2_000);
    b.ask(undrain("n0")).0.unwrap();
    let row = &b.store.attempts[0];
    assert_eq!((row.hold.to_string(), row.complete), ("rank 1 and rabbit1".to_owned(), false));
    b.ask(undrain("n1")).0.unwrap();
    let row = &b.store.attempts[0];
    assert!(row.complete && row.hold.is_empty() && contexts(&b, "release").is_empty(), "{row:?}");
}

/// F3: no other job's setup action begins before the drain for a missing clean-up is in force.
#[test]
fn a_new_job_waits_for_the_drain_for_a_missing_clean_up() {
    let mut b = prepared(|s| s.drain_hook = true);
    let (n0, _) = b.up("n0", "b", vec![]);
    b.grace();
    assert_eq!(starts(&b.run("prolog", "k", "n0")), []);
    let (host, notice_id) = (HostName::new("n0").unwrap(), b.store.drains[0].notice_id);
    let (_, effects) = b.ask(Request::DrainsDone { drains: vec![(host, notice_id)], lifted: false });
    assert_eq!(starts(&effects), [(n0, 0)]);
}

/// F10: a quiesced controller takes attempts up, and begins no setup action.
#[test]
fn a_quiesced_controller_takes_attempts_up() {
    let (mut b, _) = bench(1, |_| {});
    b.ask(add("j", "n0", Terms::default())).0.unwrap();
    let copy = b.store.clone();
    let mut b = b.restored(&copy);
    let (n0, _) = b.up("n0", "b", vec![]);
    b.ask(Request::Quiesce { reason: "upgrade".into(), wait: false }).0.unwrap();
    assert!(b.ask(Request::Run(request("prolog", "k", Some("n0"), None))).0.is_err());
    let (reply, effects) = b.ask(Request::Run(request("prolog", "j", Some("n0"), None)));
    assert!(matches!(reply, Err(Refusal::Unavailable(_))) && starts(&effects).is_empty(), "{reply:?}");
    assert_eq!(b.view().abandoned.len(), 0);
    assert_eq!(starts(&b.ask(finish("j", None)).1), [(n0, 0)], "an epilog is taken");
}

/// F7: a lost epoch founds one generation. A node that comes later with its marks has unknown tasks only.
#[test]
fn a_lost_epoch_makes_one_generation() {
    let (b, _) = with_pending_work();
    let copy = b.store.clone();
    let mut b = b.restored(&copy);
    b.ask(finish("j", None)).0.unwrap();
    for host in ["n0", "n1"] {
        let session = b.session();
        let lost = super::recovery::commit(1, 7, 10_000);
        b.receives(session, super::recovery::accepted_epoch(host, session.0, lost, vec![]));
    }
    assert_eq!(contexts(&b, "attempt-abandoned").len(), 1);
}

#[test]
fn a_grace_prunes_nothing() {
    let (mut b, n) = bench(1, |s| s.retention_ms = 1_000);
    b.ask(add("j", "n0", Terms::default())).0.unwrap();
    b.ask(finish("j", None)).0.unwrap();
    b.ends(n[0], task("epilog", "j", 0));
    let copy = b.store.clone();
    let (mut b, _) = {
        let (mut c, s) = bench(0, |s| s.retention_ms = 1_000);
        c.holding = Holding::default();
        (c.restored(&copy), s)
    };
    let (n0, _) = b.up("n0", "b", vec![]);
    // An agent that accepts another controller keeps the grace from ending.
    b.receives(n0, FromAgent::EpochRefused { seen: Epoch { number: 99, nonce: 0 } });
    b.pass(2 * 3_600_000);
    assert_eq!(b.store.attempts.len(), 1);
    b.ask(Request::NodeForget { hosts: "n0".parse().unwrap(), reports: true }).0.unwrap();
    b.grace();
    b.pass(3_600_000);
    assert_eq!(b.store.attempts.len(), 0);
}

#[test]
fn a_wait_for_a_job_reports_what_it_waits_for() {
    let waits = |b: &mut Bench| {
        let Ok(Reply::Show(view)) = b.ask(Request::Show { job: JobId::new("j").unwrap(), targets: None }).0 else {
            panic!()
        };
        view.attempts[0].waits.clone()
    };
    let (mut b, n) = bench(1, |_| {});
    b.ask(add("j", "n0", Terms::default())).0.unwrap();
    b.batch(vec![Input::Closed { session: n[0], why: String::new() }]);
    b.run("prolog", "j", "n0");
    assert_eq!(waits(&mut b), None, "a node that is away is no recovery");
    let copy = b.store.clone();
    let mut b = b.restart_settling();
    assert!(waits(&mut b).unwrap().contains("waits for its nodes"));
    b.up("n0", "b", vec![]);
    assert_eq!(waits(&mut b), None, "the gate is open");
    let mut b = b.restored(&copy);
    assert!(waits(&mut b).unwrap().contains("perilog job finish j --attempt 0"));
    b.up("n0", "b", vec![held("prolog", "unknown", 0, live())]);
    let (reply, _) = b.ask(Request::Run(request("prolog", "j", Some("n0"), None)));
    let Ok(Reply::Running { waits: Some(why), .. }) = reply else { panic!("{reply:?}") };
    assert!(why.contains("unknown"), "{why}");
    assert_eq!(contexts(&b, "attempt-taken-up").len(), 1);
}

/// A drain of the copy is in doubt until the resource manager lists it, or the grace is over. A listed drain that the
/// store lacks is adopted only if perilog made it.
#[test]
fn drains_of_a_copy_wait_for_the_list_or_the_grace() {
    let drain_states = |b: &Bench| -> Vec<(String, bool, bool)> {
        b.store.drains.iter().map(|drain| (drain.host.to_string(), drain.confirmed, drain.doubtful)).collect()
    };
    let (mut b, _) = bench(3, |s| s.drain_hook = true);
    b.ask(list(vec![listed("a", "n0", JobPhase::Running)])).0.unwrap();
    b.ask(Request::Drain { hosts: "n0".parse().unwrap(), reason: "by an operator".into(), force: false }).0.unwrap();
    super::operator::confirm(&mut b, "n0");
    let copy = b.store.clone();
    let mut b = b.restored(&copy);
    assert_eq!(drain_states(&b), [("n0".to_owned(), false, true)]);
    let drains = [("n0", "[perilog: 1] fan"), ("n1", "fan [perilog: 2]"), ("n2", "perilog")]
        .map(|(host, reason)| ListedDrain { host: HostName::new(host).unwrap(), reason: reason.into() });
    let Request::Sync(page) = list(vec![listed("a", "n0", JobPhase::Running)]) else { panic!() };
    b.ask(Request::Sync(Box::new(SyncPage { drains: drains.to_vec(), ..*page }))).0.unwrap();
    assert_eq!(drain_states(&b), [("n0".to_owned(), true, false), ("n1".to_owned(), true, false)]);
    let mut b = b.restored(&copy);
    let notice_id = b.store.drains[0].notice_id;
    b.grace();
    let drain = &b.store.drains[0];
    assert!(!drain.confirmed && !drain.doubtful && drain.notice_id > notice_id, "{drain:?}");
}

#[test]
fn an_undrain_of_the_copy_is_dropped() {
    let (mut b, _) = bench(1, |s| s.drain_hook = true);
    b.ask(Request::Drain { hosts: "n0".parse().unwrap(), reason: "by an operator".into(), force: false }).0.unwrap();
    super::operator::confirm(&mut b, "n0");
    b.ask(undrain("n0")).0.unwrap();
    let copy = b.store.clone();
    let b = b.restored(&copy);
    assert_eq!(b.drained(), [("n0", false)]);
    assert!(b.notes.iter().any(|note| note.contains("an undrain of this host was under way")), "{:?}", b.notes);
}

#[test]
fn why_names_the_abandoned_attempts_as_the_next_step() {
    let (b, _) = with_pending_work();
    let copy = b.store.clone();
    let mut b = b.restored(&copy);
    b.up("n1", "b", vec![]);
    let Ok(Reply::Why(view)) = b.ask(Request::Why { host: HostName::new("n1").unwrap() }).0 else { panic!() };
    assert_eq!(view.open[0].next, ["perilog ps --abandoned", "perilog show j"]);
    let Ok(Reply::Ps { notes, rows }) = b.ask(Request::Ps { older_than_ms: 0, held: false }).0 else { panic!() };
    assert!(notes.iter().any(|note| note.starts_with("1 attempt is abandoned")), "{notes:?} {rows:?}");
}

/// An edge's epilog of one rank was released by the lost epoch, and the copy lacks that. Each release is sent once.
#[test]
fn a_list_gives_up_what_it_lacks_and_sends_again_what_it_names() {
    let (mut b, n) = bench(3, |s| {
        s.release.insert(ActionName::new("epilog").unwrap(), ReleasePolicy::Each);
    });
    b.ask(list(vec![listed("j", "n[0-2]", JobPhase::Running)])).0.unwrap();
    b.ask(finish("j", None)).0.unwrap();
    b.ends(n[0], task("epilog", "j", 0));
    let copy = b.store.clone();
    let mut b = b.restored(&copy);
    assert!(b.store.outbox.is_empty(), "the copy's notices are dropped: {:?}", b.store.outbox);
    let up = ["n0", "n1", "n2"].map(|host| b.up(host, "b", vec![]).0);
    // n0 was not read, n1 was, and n2 is still to be cleaned up.
    let part = Listed {
        ranks: [0, 2].into_iter().collect(),
        hosts: "n[0,2]".parse().unwrap(),
        ..listed("j", "n0", JobPhase::Ended)
    };
    let (_, effects) = b.ask(list(vec![part]));
    assert_eq!(starts(&effects), [(up[2], 2)]);
    b.ends(up[2], task("epilog", "j", 2));
    let reported: Vec<String> = b
        .store
        .outbox
        .iter()
        .map(|e| e.body.value())
        .filter(|body| body["event"] == "release")
        .map(|body| body["hosts"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(reported, ["n0", "n2"]);
    assert_eq!(b.drained(), [("n1", false)], "the copy does not know its clean-up");
}
