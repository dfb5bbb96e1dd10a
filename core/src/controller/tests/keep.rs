//! Tolerance and `keep` over all actions of a job: forgiven ranks, kept ranks, and released surplus.

use crate::job::Terms;
use crate::outcome::Verdict;

use super::release::{add, bench, contexts, finish, job};
use super::tolerance::{check, report_end, terms, verdict};
use super::*;

/// Failures that were forgiven in one action count against the tolerance of the next. All actions together leave the
/// job at least `keep` ranks.
#[test]
fn tolerance_and_keep_are_the_jobs_over_all_its_actions() {
    let soft = || Outcome::Tolerable;
    for (terms, second, expect) in [
        (terms("1"), 1, Verdict::Failed),
        // The same rank counts once, even if it fails twice.
        (terms("1"), 0, Verdict::Ok),
        (terms("2"), 1, Verdict::Ok),
        (Terms { keep: Some(3), ..terms("") }, 1, Verdict::Failed),
        // The first action released the surplus.
        (Terms { keep: Some(2), ..terms("") }, 1, Verdict::Failed),
        (Terms { keep: Some(2), ..terms("") }, 3, Verdict::Ok),
    ] {
        let (mut b, n) = bench(4, |_| {});
        b.ask(add("j", "n[0-3]", terms.clone())).0.unwrap();
        // Both actions cover all ranks: the second begins before the first releases any.
        b.run("prolog", "j", "n[0-3]");
        b.run("health", "j", "n[0-3]");
        for (action, bad) in [("prolog", 0), ("health", second)] {
            for rank in 0..4 {
                let outcome = if rank == bad { soft() } else { Outcome::Ok };
                report_end(&mut b, n[rank as usize], task(action, "j", rank), ended(outcome));
            }
        }
        let case = format!("{terms:?} {second}");
        assert_eq!(b.action("prolog", "j", 0).verdict, Some(Verdict::Ok), "{case}");
        assert_eq!(b.action("health", "j", 0).verdict, Some(expect), "{case}");
        let left = b.store.attempts[0].hold.ranks.len();
        assert!(terms.keep.is_none_or(|keep| left >= u64::from(keep)), "{case}: {left} left");
    }
}

/// A job that hands failed ranks over needs at least one good rank, even with a tolerance of all ranks.
#[test]
fn with_nobody_left_there_is_no_success() {
    let soft = Outcome::Tolerable;
    let all = Terms { shrink: true, ..terms("100%") };
    let (b, verdict) = verdict(all, &[soft.clone(), soft], |_| {});
    assert_eq!(verdict, Some(Verdict::Failed));
    assert_eq!((contexts(&b, "shrink"), b.store.attempts[0].hold.ranks.to_string()), (vec![], "0-1".to_owned()));
}

/// Further ranks may fail in the action that the setting `keep-after` names (here `prolog`). So the job keeps its ranks
/// beyond `keep` until that action has succeeded.
#[test]
fn the_surplus_is_released_after_the_action_that_decides() {
    let (mut b, n) = bench(3, |_| {});
    b.ask(add("j", "n[0-2]", Terms { keep: Some(2), ..terms("1") })).0.unwrap();
    for name in ["check", "prolog"] {
        b.ask(Request::Run(request(name, "j", None, None))).0.unwrap();
        for rank in 0..3 {
            let outcome = if (name, rank) == ("prolog", 1) { Outcome::Tolerable } else { Outcome::Ok };
            report_end(&mut b, n[rank as usize], task(name, "j", rank), ended(outcome));
        }
        let expect = if name == "check" { "0-2" } else { "0,2" };
        assert_eq!(b.store.attempts[0].hold.ranks.to_string(), expect, "{name}");
        assert_eq!(b.action(name, "j", 0).verdict, Some(Verdict::Ok));
    }
}

/// A job that hands over failed ranks logs no `job-finish`. The event appears once, at the end, with all ranks that the
/// job still held.
#[test]
fn what_is_released_while_the_job_goes_on_is_not_its_finish() {
    let (soft, ok) = (Outcome::Tolerable, Outcome::Ok);
    let (mut b, _) = verdict(Terms { shrink: true, ..terms("1") }, &[soft, ok], |_| {});
    let ranks = |b: &Bench, name: &str| -> Vec<String> {
        contexts(b, name).iter().map(|c| c["ranks"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!((ranks(&b, "job-hand-over"), ranks(&b, "job-finish")), (vec!["0".to_owned()], vec![]));
    b.ask(finish("j", None)).0.unwrap();
    assert_eq!((ranks(&b, "job-hand-over"), ranks(&b, "job-finish")), (vec!["0".to_owned()], vec!["1".to_owned()]));
}

/// Regression test: in a job with `keep`, a prolog ran on some of the ranks. The job kept ranks on which no prolog had
/// run, and released ranks on which it had.
#[test]
fn who_is_kept_was_prepared() {
    // Each row: the ranks of the prolog, and the ranks that are released.
    for (nodes, back) in [("n[0-3]", "2-3"), ("n[1-3]", "3"), ("n[2-3]", "")] {
        let (mut b, n) = bench(4, |_| {});
        b.ask(add("j", "n[0-3]", Terms { keep: Some(2), ..terms("1") })).0.unwrap();
        b.run("prolog", "j", nodes);
        let ranks = b.action("prolog", "j", 0).ranks.clone();
        for rank in ranks.iter() {
            b.receives(n[rank as usize], finished(task("prolog", "j", rank), Outcome::Ok));
        }
        let shed: Vec<String> =
            contexts(&b, "shrink").iter().map(|of| of["ranks"].as_str().unwrap().to_owned()).collect();
        assert_eq!(shed.join(" "), back, "{nodes}");
    }
}

/// Regression test: `--keep 2 --tolerate 0` forgave every rank above the two.
#[test]
fn a_tolerance_of_none_is_none_also_where_some_are_to_be_kept() {
    let outcomes = [Outcome::Ok, Outcome::Tolerable, Outcome::Ok, Outcome::Ok];
    for (tolerate, expect) in [("", Verdict::Ok), ("0", Verdict::Failed), ("0%", Verdict::Failed), ("1", Verdict::Ok)] {
        let (_, verdict) = verdict(Terms { keep: Some(2), ..terms(tolerate) }, &outcomes, |_| {});
        assert_eq!(verdict, Some(expect), "{tolerate}");
    }
}

/// Regression test: a waiting action began on a rank that the job had handed over, and a failure there could fail the
/// job.
#[test]
fn what_waits_on_shed_ranks_is_withdrawn_and_does_not_count() {
    let (mut b, n) = bench(3, |_| {});
    b.ask(add("j", "n[0-2]", Terms { shrink: true, ..terms("1") })).0.unwrap();
    b.run("prolog", "j", "n[0-2]");
    report_end(&mut b, n[2], task("prolog", "j", 2), check("lustre", "gone"));
    b.batch(vec![Input::Closed { session: n[2], why: String::new() }]);
    b.run("check", "j", "n[0-2]");
    for rank in 0..2 {
        report_end(&mut b, n[rank as usize], task("prolog", "j", rank), ended(Outcome::Ok));
    }
    assert_eq!(b.store.attempts[0].hold.ranks.to_string(), "0-1");
    assert_eq!(b.outcome(task("check", "j", 2)), Outcome::Cancelled { status: None });
    assert_eq!(contexts(&b, "cancel")[0]["why"], "the job dropped its hold on the rank");
    let (n2, effects) = b.up("n2", "b", vec![]);
    assert_eq!(starts(&effects), [(n2, 2)], "its epilog");
    for rank in 0..2 {
        report_end(&mut b, n[rank as usize], task("check", "j", rank), ended(Outcome::Ok));
    }
    assert_eq!(b.action("check", "j", 0).verdict, Some(Verdict::Ok));
    assert_eq!(contexts(&b, "exception").len(), 1, "that of the prolog");
    let Ok(Reply::Failed { ranks, .. }) = b.ask(Request::Failed { job: job("j"), attempt: None }).0 else { panic!() };
    assert_eq!(ranks.to_string(), "2");

    // An action that began on no rank did not end well.
    let (mut b, n) = bench(2, |_| {});
    b.ask(add("j", "n[0-1]", Terms::default())).0.unwrap();
    b.batch(vec![Input::Closed { session: n[1], why: String::new() }]);
    let run = RunRequest { targets: Some("1".parse().unwrap()), ..request("check", "j", None, None) };
    b.ask(Request::Run(run)).0.unwrap();
    b.ask(finish("j", Some("1"))).0.unwrap();
    assert_eq!(b.action("check", "j", 0).verdict, Some(Verdict::Cancelled));
}
