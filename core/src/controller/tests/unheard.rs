//! Where a store was lost or put back: a node whose word has not been heard yet is neither passed over nor given back, and another's word takes nothing
//! from it. Found by a review, each with what had come of it.

use super::hearsay::{stone, told};
use super::release::{add, contexts, finish};
use super::*;
use crate::controller::io::{AttemptRow, ReleasePolicy};
use crate::idset::IdSet;
use crate::job::{Part, Terms};
use crate::outcome::{Loss, Verdict};

fn drained(b: &Bench) -> Vec<String> {
    b.store.drains.iter().map(|drain| drain.host.to_string()).collect()
}

/// Ranks of each release, and which says that it is the last.
fn releases(b: &Bench) -> Vec<(String, bool)> {
    let of = |context: &serde_json::Value| {
        (context["ranks"].as_str().unwrap_or_default().to_owned(), context["final"] == true)
    };
    contexts(b, "release").iter().map(of).collect()
}

fn released(b: &Bench) -> String {
    attempt_0(b).released.ranks.to_string()
}

fn refused(reply: &Result<Reply, Refusal>) -> &str {
    match reply {
        Err(Refusal::Conflict(text)) => text,
        other => panic!("{other:?}"),
    }
}

fn cancel_job() -> Request {
    Request::JobCancel { job: JobId::new("j").unwrap(), attempt: None, why: "w".into() }
}

/// n1 went back uncleaned and undrained, because n0 had told that the epilog was over n1 too.
#[test]
fn no_nodes_word_takes_anothers_epilog_away() {
    // Where n1 is when n0 tells; is the job added before, after, or by its finish only?
    for (n1_first, added) in [(true, "before"), (false, "before"), (true, "after"), (false, "after"), (true, "never")] {
        let mut b = Bench::new();
        let case = format!("{n1_first} {added}");
        let ran = || vec![stone("prolog", 1, Outcome::Ok)];
        if added == "before" {
            b.ask(add("j", "n[0-1]", Terms::default())).0.unwrap();
        }
        let mut n1 = n1_first.then(|| b.up("n1", "b", ran()).0);
        let (n0, _) = b.up("n0", "b", vec![held("epilog", "j", 0, "n[0-1]", live())]);
        if added == "after" {
            b.ask(add("j", "n[0-1]", Terms::default())).0.unwrap();
        }
        let n1 = *n1.get_or_insert_with(|| b.up("n1", "b", ran()).0);
        assert_eq!((b.action("epilog", "j", 0).ranks.to_string(), drained(&b).len()), ("0".into(), 0), "{case}");
        b.says(n0, finished(task("epilog", "j", 0), Outcome::Ok));
        assert_eq!((b.action("epilog", "j", 0).verdict, releases(&b).len()), (None, 0), "{case}");
        let (_, effects) = b.ask(finish("j", None));
        assert_eq!(starts(&effects), [(n1, 1)], "{case}");
        b.says(n1, finished(task("epilog", "j", 1), exit(4)));
        assert_eq!(
            (b.action("epilog", "j", 0).verdict, drained(&b)),
            (Some(Verdict::Failed), vec!["n1".into()]),
            "{case}"
        );
        // n0's had ended before the job let go, and was another lot.
        assert_eq!((released(&b), releases(&b).pop()), ("0-1".into(), Some(("1".to_owned(), true))), "{case}");
    }
}

/// By hand it is begun over all that the job has, where a store was lost: over what it was begun is not known any more.
#[test]
fn who_begins_an_epilog_again_by_name_has_it_where_its_node_does_not_know_it() {
    let mut b = Bench::new();
    b.up("n0", "b", vec![held("epilog", "j", 0, "n[0-1]", live())]);
    let (n1, _) = b.up("n1", "b", vec![]);
    assert_eq!(b.action("epilog", "j", 0).ranks.to_string(), "0");
    let (reply, effects) = b.ask(Request::Run(request("epilog", "j", Some("n[0-1]"), None)));
    assert!(matches!(reply, Ok(Reply::Running { attached: true, .. })), "{reply:?}");
    assert_eq!((starts(&effects), b.store.attempts[0].hold.ranks.to_string()), (vec![(n1, 1)], "0-1".into()));
}

/// Another attempt was asked for meanwhile; the older one is not given back whole before n1 has told.
#[test]
fn an_attempt_that_gave_way_ends_when_all_have_told() {
    let mut b = Bench::new();
    for name in ["prolog", "epilog"] {
        b.m.settings.release.insert(ActionName::new(name).unwrap(), ReleasePolicy::Each);
    }
    let (n0, _) = b.up("n0", "b", vec![held("prolog", "j", 0, "n[0-1]", live())]);
    b.ask(Request::Run(request("prolog", "j", Some("n0"), Some(1)))).0.unwrap();
    b.says(n0, finished(task("prolog", "j", 0), Outcome::Ok));
    b.says(n0, finished(task("epilog", "j", 0), Outcome::Ok));
    assert_eq!((releases(&b), attempt_0(&b).complete), (vec![("0".to_owned(), false)], false));
    b.up("n1", "b", vec![]);
    let last: Vec<_> = releases(&b).into_iter().filter(|(_, last)| *last).collect();
    assert_eq!((last.len(), attempt_0(&b).complete, released(&b)), (1, true, "0".into()));
}

/// The job let go of n1 before n1 had come: it counted as covered.
#[test]
fn an_epilog_that_its_node_does_not_know_begins_there_when_the_job_has_let_go() {
    let mut b = Bench::new();
    b.up("n0", "b", vec![held("epilog", "j", 0, "n[0-1]", live())]);
    b.ask(add("j", "n[0-1]", Terms::default())).0.unwrap();
    b.ask(finish("j", None)).0.unwrap();
    assert_eq!(b.action("epilog", "j", 0).unknown.to_string(), "1");
    let (n1, effects) = b.up("n1", "b", vec![]);
    assert_eq!(starts(&effects), [(n1, 1)]);
}

/// Found by the simulator: the prolog waited for an epilog that another node had told of, and that for the prolog.
#[test]
fn what_waited_for_an_epilog_that_is_not_there_begins_before_it() {
    let mut b = Bench::new();
    let (n0, _) = b.up("n0", "b", vec![]);
    let (n1, _) = b.up("n1", "b", vec![]);
    b.ask(add("j", "n[0-1]", Terms::default())).0.unwrap();
    b.batch([n0, n1].map(|session| Input::Closed { session, why: String::new() }).into());
    b.run("prolog", "j", "n[0-1]");
    b.up("n0", "b", vec![stone("prolog", 0, Outcome::Ok), held("epilog", "j", 0, "n[0-1]", live())]);
    b.ask(finish("j", None)).0.unwrap();
    let (n1, effects) = b.up("n1", "b", vec![]);
    assert!(effects.iter().any(
        |effect| matches!(effect, Effect::Fan { start, to } if start.action.as_str() == "prolog" && to[0].0 == n1)
    ));
    let effects = b.says(n1, finished(task("prolog", "j", 1), Outcome::Ok));
    assert_eq!(starts(&effects), [(n1, 1)]);
}

/// `final` was said without n1, and n1 was never given back.
#[test]
fn a_job_does_not_end_while_a_node_that_was_told_of_has_not_told() {
    for end in [finish("j", None), cancel_job()] {
        let mut b = Bench::new();
        let (n0, _) = b.up("n0", "b", vec![held("epilog", "j", 0, "n[0-1]", live())]);
        b.says(n0, finished(task("epilog", "j", 0), Outcome::Ok));
        let (reply, effects) = b.ask(end.clone());
        let text = "of what job j attempt 0 has on n1 only other nodes have told: it ends when those have too; or name all that it has \
                    (perilog job add, or --ranks 0-1)";
        assert_eq!((refused(&reply), effects.len(), releases(&b).len()), (text, 0, 0));
        // It comes, with its own: then the job ends, and all of it is given back.
        let mut c = b.restart();
        let (n1, _) = c.up("n1", "b", vec![held("epilog", "j", 1, "n[0-1]", live())]);
        c.ask(end.clone()).0.unwrap();
        c.says(n1, finished(task("epilog", "j", 1), Outcome::Ok));
        assert_eq!((releases(&c), released(&c)), (vec![("0-1".to_owned(), true)], "0-1".into()));
    }
    // It comes, and has nothing of it: it is none of the job.
    let mut b = Bench::new();
    let (n0, _) = b.up("n0", "b", vec![held("epilog", "j", 0, "n[0-1]", live())]);
    b.says(n0, finished(task("epilog", "j", 0), Outcome::Ok));
    b.up("n1", "b", vec![]);
    b.ask(finish("j", None)).0.unwrap();
    assert_eq!((releases(&b), b.store.attempts[0].complete), (vec![("0".to_owned(), true)], true));
    // It never comes, and an operator names it, or gives it up.
    for by_hand in [true, false] {
        let mut b = Bench::new();
        let (n0, _) = b.up("n0", "b", vec![held("epilog", "j", 0, "n[0-1]", live())]);
        b.says(n0, finished(task("epilog", "j", 0), Outcome::Ok));
        if by_hand {
            b.ask(finish("j", Some("0-1"))).0.unwrap();
            assert_eq!(releases(&b).len(), 0);
        }
        let which = Which { action: Some(ActionName::new("epilog").unwrap()), ..which("j", Some("1")) };
        b.ask(Request::Resolve { which, ok: false, reason: "dead".into() }).0.unwrap();
        if !by_hand {
            b.ask(finish("j", None)).0.unwrap();
        }
        assert_eq!((releases(&b), drained(&b)), (vec![("0-1".to_owned(), true)], vec!["n1".into()]), "{by_hand}");
    }
}

/// What lived on n1 was released, without an epilog and untold, because the job had been finished without it.
#[test]
fn what_comes_after_the_end_is_cleaned_up_after_or_drained_and_goes_back() {
    for verdict in [true, false] {
        let mut b = Bench::new();
        let (n0, _) = b.up("n0", "b", vec![held("epilog", "j", 0, "n0", live())]);
        b.ask(finish("j", None)).0.unwrap();
        let end = finished(task("epilog", "j", 0), Outcome::Ok);
        if verdict {
            b.says(n0, end.clone());
            assert!(b.store.attempts[0].complete);
        }
        let (n1, _) = b.up("n1", "b", vec![held("prolog", "j", 1, "n[0-1]", live())]);
        assert_eq!(released(&b), if verdict { "0" } else { "" });
        let mut b = b.restart();
        let (n0, _) = b.up("n0", "b", if verdict { vec![] } else { vec![held("epilog", "j", 0, "n0", live())] });
        let n1 = (b.up("n1", "b", vec![held("prolog", "j", 1, "n[0-1]", live())]).0, n1).0;
        let effects = b.says(n1, finished(task("prolog", "j", 1), Outcome::Ok));
        if verdict {
            // Its epilog had come to its verdict.
            assert_eq!((starts(&effects), drained(&b)), (vec![], vec!["n1".into()]));
        } else {
            assert_eq!((starts(&effects), drained(&b)), (vec![(n1, 1)], vec![]));
            b.says(n0, end);
            b.says(n1, finished(task("epilog", "j", 1), Outcome::Ok));
        }
        assert_eq!((released(&b), b.store.attempts[0].complete), ("0-1".into(), true));
    }
}

fn attempt_0(b: &Bench) -> &AttemptRow {
    b.store.attempts.iter().find(|row| row.attempt == Attempt::FIRST).unwrap()
}

/// n0, the last that was known to hold it, told of a newer attempt that was made up: the older one was closed for n1 too, and its epilog begun beside
/// the job there.
#[test]
fn the_last_that_is_known_closes_nothing_for_who_has_not_told() {
    let both = || vec![told("prolog", 0, 0, "n[0-1]", HeldState::Ended), told("prolog", 7, 0, "n0", live())];
    for n1_first in [true, false] {
        let mut b = Bench::new();
        let n1 = |b: &mut Bench| b.up("n1", "b", vec![told("prolog", 0, 1, "n[0-1]", live())]).0;
        let first = n1_first.then(|| n1(&mut b));
        b.up("n0", "b", both());
        let n1 = first.unwrap_or_else(|| n1(&mut b));
        assert!(attempt_0(&b).open && attempt_0(&b).hold.ranks.contains(1), "{n1_first}");
        let effects = b.says(n1, finished(task("prolog", "j", 1), Outcome::Ok));
        assert_eq!(starts(&effects), []);
        // Where n1 has nothing of it, it is over with n0's.
        let mut b = Bench::new();
        let (n0, _) = b.up("n0", "b", both());
        b.says(n0, finished(task("prolog", "j", 0), Outcome::Ok));
        b.up("n1", "b", vec![]);
        b.says(n0, finished(task("epilog", "j", 0), Outcome::Ok));
        let row = attempt_0(&b);
        assert_eq!((row.complete, row.released.clone()), (true, Part::of_ranks("0".parse().unwrap())), "{n1_first}");
    }
}

/// n1 says itself that it lost its epilog: it was taken for one who had only been said to have it, and went back undrained.
#[test]
fn a_node_that_says_that_it_lost_its_task_is_drained() {
    let lost = Outcome::Lost { why: Loss::Vanished };
    for n1_first in [true, false] {
        let mut b = Bench::new();
        let n1 = |b: &mut Bench| drop(b.up("n1", "b", vec![stone("epilog", 1, lost.clone())]));
        if n1_first {
            n1(&mut b);
        }
        let (n0, _) = b.up("n0", "b", vec![held("epilog", "j", 0, "n[0-1]", live())]);
        if !n1_first {
            n1(&mut b);
        }
        b.says(n0, finished(task("epilog", "j", 0), Outcome::Ok));
        b.ask(finish("j", None)).0.unwrap();
        assert_eq!((drained(&b), releases(&b)), (vec!["n1".into()], vec![("0-1".to_owned(), true)]), "{n1_first}");
    }
}

/// It was begun all the same: that its node did not know it came after the operator's word. What it was to clean up after drains the node when it ends.
#[test]
fn an_epilog_that_was_cancelled_or_resolved_does_not_begin_where_its_node_does_not_know_it() {
    let which = || Which { action: Some(ActionName::new("epilog").unwrap()), ..which("j", Some("1")) };
    for (request, cancelled) in [
        (Request::Cancel { which: which(), why: "w".into() }, true),
        (Request::Resolve { which: which(), ok: false, reason: "r".into() }, false),
    ] {
        let mut b = Bench::new();
        b.m.settings.drain_hook = true;
        b.up("n0", "b", vec![held("epilog", "j", 0, "n[0-1]", live())]);
        b.ask(add("j", "n[0-1]", Terms::default())).0.unwrap();
        b.ask(finish("j", None)).0.unwrap();
        b.ask(request).0.unwrap();
        let (n1, effects) = b.up("n1", "b", vec![held("prolog", "j", 1, "n[0-1]", live())]);
        assert_eq!(starts(&effects), []);
        assert_eq!((b.action("epilog", "j", 0).ended.to_string(), drained(&b)), ("1".into(), vec!["n1".into()]));
        b.ask(Request::Undrain { hosts: "n1".parse().unwrap(), forget: true }).0.unwrap();
        b.says(n1, finished(task("prolog", "j", 1), Outcome::Ok));
        assert_eq!(drained(&b).len(), usize::from(cancelled));
    }
}

/// n1 stayed prepared, and no command gave it back: it came only when the job had been finished on what was known of it.
#[test]
fn a_job_that_was_finished_before_all_of_it_was_known_is_added_with_the_rest() {
    let mut b = Bench::new();
    let (n0, _) = b.up("n0", "b", vec![held("epilog", "j", 0, "n0", live())]);
    b.ask(finish("j", None)).0.unwrap();
    b.says(n0, finished(task("epilog", "j", 0), Outcome::Ok));
    assert!(attempt_0(&b).complete);
    b.up("n1", "b", vec![stone("prolog", 1, Outcome::Ok)]);
    let reply = b.ask(add("j", "n[0-1]", Terms::default())).0;
    assert!(matches!(reply, Ok(Reply::Added { attached: false, over: false, .. })), "{reply:?}");
    assert_eq!((attempt_0(&b).hold.ranks.to_string(), attempt_0(&b).complete), ("1".into(), false));
    b.ask(finish("j", None)).0.unwrap();
    // Its epilog had come to its verdict.
    assert_eq!((released(&b), drained(&b), attempt_0(&b).complete), ("0-1".into(), vec!["n1".into()], true));
}

/// Found by the simulator: what is no rank was never given back.
#[test]
fn a_job_that_went_back_whole_is_added_with_what_is_no_rank_and_gives_that_back() {
    let mut b = Bench::new();
    let (n0, _) = b.up("n0", "b", vec![held("epilog", "j", 0, "n0", live())]);
    b.ask(finish("j", None)).0.unwrap();
    b.says(n0, finished(task("epilog", "j", 0), Outcome::Ok));
    assert_eq!(releases(&b), [("0".to_owned(), true)]);
    let terms = Terms { resources: [crate::ids::ResourceName::new("rabbit1").unwrap()].into(), ..Terms::default() };
    let reply = b.ask(add("j", "n0", terms)).0;
    assert!(matches!(reply, Ok(Reply::Added { over: true, .. })), "{reply:?}");
    let row = attempt_0(&b);
    assert_eq!((row.released.resources.len(), row.complete, releases(&b).len()), (1, true, 2));
}

/// An epilog that was begun by hand again over a part came to its verdict, and the rest went back uncleaned.
#[test]
fn an_epilog_by_hand_over_a_part_of_what_the_job_has_grows() {
    let mut b = Bench::new();
    let (n0, _) = b.up("n0", "b", vec![held("epilog", "j", 0, "n0", live())]);
    b.up("n1", "b", vec![held("prolog", "j", 1, "n[0-1]", live())]);
    b.ask(Request::Run(request("epilog", "j", Some("n0"), None))).0.unwrap();
    b.says(n0, finished(task("epilog", "j", 0), Outcome::Ok));
    assert_eq!(b.action("epilog", "j", 0).verdict, None);
}

/// Its tombstone is of an action that is known, but not over its rank.
#[test]
fn a_tombstone_speaks_for_its_rank_whoever_came_first() {
    let mut b = Bench::new();
    b.up("n0", "b", vec![held("epilog", "j", 0, "n0", live())]);
    b.up("n2", "b", vec![held("prolog", "j", 2, "n[0-2]", live())]);
    assert_eq!(attempt_0(&b).told.to_string(), "1");
    b.up("n1", "b", vec![stone("epilog", 1, Outcome::Ok)]);
    assert_eq!((attempt_0(&b).told.to_string(), attempt_0(&b).hold.ranks.contains(1)), (String::new(), true));
}

/// Of an attempt that another took the place of: what was let go of is said, also where it was owned by that very word.
#[test]
fn who_names_a_rank_of_a_closed_attempt_hears_that_it_went() {
    let mut b = Bench::new();
    b.up("n0", "b", vec![told("prolog", 0, 0, "n[0-1]", live())]);
    b.ask(Request::Run(request("prolog", "j", Some("n[0-1]"), Some(1)))).0.unwrap();
    let row = &b.store.attempts[0];
    assert_eq!((row.open, row.told.to_string().as_str()), (false, "1"));
    let Request::JobFinish { job, targets, resources, .. } = finish("j", Some("1")) else { unreachable!() };
    let reply = b.ask(Request::JobFinish { job, attempt: Some(Attempt::FIRST), targets, resources }).0;
    assert_eq!(reply, Ok(Reply::Finished(Part::of_ranks(IdSet::from(1..=1)))));
}
