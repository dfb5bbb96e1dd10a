//! Sessions that others contradict: n1 told of nothing in its Hello, and other nodes tell of tasks that it should have.

use super::*;
use crate::outcome::Loss;

const VANISHED: Outcome = Outcome::Lost { why: Loss::Vanished };

/// n1 has a session, and after it another node tells of this job, which is n1's too.
fn told(b: &mut Bench, host: &str, job: &str) -> Vec<(SessionId, u64)> {
    let session = b.session();
    let nodes = format!("{host},n1");
    let effects =
        b.says(session, FromAgent::Hello(hello(host, "b", session.0, vec![held("prolog", job, 0, &nodes, live())])));
    probes(&effects)
}

fn probes(effects: &[Effect]) -> Vec<(SessionId, u64)> {
    let probe = |effect: &Effect| match effect {
        Effect::Send { session, message: ToAgent::Probe { nonce } } => Some((*session, *nonce)),
        _ => None,
    };
    effects.iter().filter_map(probe).collect()
}

fn asked() -> (Bench, SessionId, u64) {
    let mut b = Bench::new();
    let (n1, _) = b.up("n1", "b", vec![]);
    let probes = told(&mut b, "n0", "j");
    let [(asked, nonce)] = probes[..] else { panic!("{probes:?}") };
    assert_eq!(asked, n1);
    assert!(is_unknown(&b, "j"));
    (b, n1, nonce)
}

fn is_unknown(b: &Bench, job: &str) -> bool {
    b.action("prolog", job, 0).unknown.contains(1)
}

fn closed(effects: &[Effect]) -> Vec<SessionId> {
    let close = |effect: &Effect| match effect {
        Effect::Close { session, .. } => Some(*session),
        _ => None,
    };
    effects.iter().filter_map(close).collect()
}

/// Found by the simulator: its session was half open, and it had had another controller since its Hello; what that had begun there was lost (vanished),
/// though it had ended.
#[test]
fn of_what_others_tell_a_node_is_asked_whether_its_session_lives() {
    let (mut b, n1, nonce) = asked();
    assert_eq!(b.says(n1, FromAgent::Probed { nonce: nonce + 1 }), []);
    assert!(is_unknown(&b, "j"), "that was another question");
    b.says(n1, FromAgent::Probed { nonce });
    assert_eq!(b.outcome(task("prolog", "j", 1)), VANISHED);
}

/// The transport finds that it is dead; or nobody does, for its agent hangs.
#[test]
fn a_session_that_does_not_answer_is_over_and_its_next_hello_tells() {
    for hangs in [false, true] {
        let (mut b, n1, nonce) = asked();
        if hangs {
            assert_eq!(closed(&b.pass(59_000)), []);
            assert_eq!(closed(&b.pass(2_000)), [n1]);
            b.says(n1, FromAgent::Probed { nonce });
            assert_eq!(closed(&b.pass(120_000)), [], "asked no more");
        } else {
            b.batch(vec![Input::Closed { session: n1, why: String::new() }]);
            assert_eq!(closed(&b.pass(120_000)), []);
        }
        assert!(is_unknown(&b, "j"), "{hangs}");
        let stone = HeldState::Tombstone { outcome: exit(1), past_ms: 0, reboot: Reboot::None };
        b.up("n1", "b", vec![held("prolog", "j", 1, "n[0-1]", stone)]);
        assert_eq!(b.outcome(task("prolog", "j", 1)), exit(1), "{hangs}");
    }
}

/// Found by a review: its answer was under way when its node went to another controller, and settled what that one had begun there.
#[test]
fn an_answer_settles_nothing_that_was_told_after_its_question() {
    let (mut b, n1, nonce) = asked();
    assert_eq!(told(&mut b, "n2", "k"), [], "one question at a time");
    let again = probes(&b.says(n1, FromAgent::Probed { nonce }));
    assert_eq!(again, [(n1, nonce + 1)]);
    assert!(is_unknown(&b, "j") && is_unknown(&b, "k"));
    b.says(n1, FromAgent::Probed { nonce: nonce + 1 });
    assert_eq!([("j", 1), ("k", 1)].map(|(job, rank)| b.outcome(task("prolog", job, rank))), [VANISHED, VANISHED]);
    // What one Hello tells is asked by one question.
    let mut b = Bench::new();
    let (n1, _) = b.up("n1", "b", vec![]);
    let session = b.session();
    let tasks = ["j", "k"].map(|job| held("prolog", job, 0, "n[0-1]", live()));
    let effects = b.says(session, FromAgent::Hello(hello("n0", "b", session.0, tasks.to_vec())));
    let [(_, nonce)] = probes(&effects)[..] else { panic!("{effects:?}") };
    assert_eq!(probes(&b.says(n1, FromAgent::Probed { nonce })), []);
    assert_eq!(["j", "k"].map(|job| b.outcome(task("prolog", job, 1))), [VANISHED, VANISHED]);
}

/// Found by a review: the boot that it told of it in was not kept, and at its next Hello, of the same boot, what it had done passed for undone.
#[test]
fn what_its_own_node_tells_before_it_answers_is_of_its_boot() {
    for accepted in [true, false] {
        for (boot, expect) in [("b", Outcome::Ok), ("b2", Outcome::Lost { why: Loss::Rebooted })] {
            let (mut b, n1, nonce) = asked();
            let t = task("prolog", "j", 1);
            if accepted {
                b.says(n1, FromAgent::Accepted { task: t, limit_ms: None });
                b.says(n1, FromAgent::Probed { nonce });
            }
            b.says(n1, finished(t, Outcome::Ok));
            b.batch(vec![Input::Closed { session: n1, why: String::new() }]);
            b.up("n1", boot, vec![]);
            let action = b.action("prolog", "j", 0);
            let outcome = if action.ok.contains(1) { Outcome::Ok } else { b.outcome(t) };
            assert_eq!(outcome, expect, "{accepted} {boot}");
        }
    }
}
