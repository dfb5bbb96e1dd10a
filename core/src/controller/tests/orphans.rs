//! Orphans: an orphan blocks its host; a request adopts the orphan, or an operator decides about it.

use super::recovery::{confirm, owing};
use super::release::{contexts, finish};
use super::*;

const GATE_MS: u64 = 5_000;

#[test]
fn an_orphan_blocks_its_host_until_adopted_or_confirmed() {
    for (adopt, word) in [(true, Confirm::Over), (false, Confirm::Over), (false, Confirm::Gone)] {
        let mut b = Bench::new();
        let (n0, _) = b.up("n0", "b", vec![held("prolog", "j", 0, live())]);
        assert_eq!(starts(&b.run("prolog", "other", "n0")), [], "beside an orphan");
        assert_eq!(b.says(n0, finished(task("prolog", "j", 0), Outcome::Ok)), [], "the only witness keeps what it has");
        b.pass(GATE_MS);
        assert_eq!(b.drained(), [("n0", false)]);
        if adopt {
            // The node reported the end before the adoption. The other job's prolog begins too, as on a shared node.
            assert_eq!(starts(&b.run("prolog", "j", "n0")), [(n0, 0), (n0, 0)]);
            assert_eq!(b.drained(), []);
            assert!(
                b.says(n0, finished(task("prolog", "j", 0), Outcome::Ok)).contains(&ack(n0, task("prolog", "j", 0)))
            );
            continue;
        }
        let (reply, effects) = b.ask(confirm(Some("j"), word));
        reply.unwrap();
        let given_up = effects.contains(&ack(n0, task("prolog", "j", 0)));
        assert_eq!(given_up, word == Confirm::Gone);
        assert_eq!(starts(&effects).len(), 2 - usize::from(given_up), "{effects:?}");
        assert_eq!(b.drained(), []);
        if word == Confirm::Over {
            b.ends(n0, task("prolog", "j", 0));
            b.ends(n0, task("epilog", "j", 0));
            assert_eq!(contexts(&b, "release").len(), 1);
        }
    }
}

/// Regression test: a task waited for an orphan of another job on its node. The node never came back, and the task
/// waited for ever.
#[test]
fn nothing_waits_for_an_orphan_on_a_host_that_is_away() {
    let mut b = Bench::new();
    let (n0, _) = b.up("n0", "b", vec![held("prolog", "j", 0, live())]);
    assert_eq!(starts(&b.run("prolog", "other", "n0")), [], "beside an orphan");
    b.batch(vec![Input::Closed { session: n0, why: String::new() }]);
    assert_eq!(contexts(&b, "verdict").len(), 0, "it may come back");
    b.pass(600_000);
    assert_eq!(contexts(&b, "verdict").len(), 1);
}

#[test]
fn nobody_waits_for_a_node_whose_orphan_was_given_up() {
    let (b, _) = owing();
    let copy = b.store.clone();
    let mut b = b.restored(&copy);
    b.up("n0", "b", vec![]);
    let orphan = || vec![held("prolog", "other", 0, live())];
    let (n1, _) = b.up("n1", "b", orphan());
    b.batch(vec![Input::Closed { session: n1, why: String::new() }]);
    b.ask(confirm(Some("j"), Confirm::Gone)).0.unwrap();
    assert!(b.in_recovery(), "the orphan waits for a word");
    b.ask(confirm(Some("other"), Confirm::Gone)).0.unwrap();
    assert!(!b.in_recovery() && b.view().orphans.is_empty());
    // The node gets the Cancel when it comes back.
    let (n1, effects) = b.up("n1", "b", orphan());
    let told = effects.iter().filter(|effect| {
        matches!(effect, Effect::Send { session, message: ToAgent::Cancel { task: of, .. } }
            if (*session, *of) == (n1, task("prolog", "other", 0)))
    });
    assert_eq!(told.count(), 1, "{effects:?}");
}

#[test]
fn an_adopted_orphan_is_shown_as_its_node_told_it() {
    let phase = |script: &str| Phase::Running { script: script.into(), index: 1, of: 2, progress: None };
    let mut b = Bench::new();
    let (n0, _) = b.up("n0", "b", vec![held("prolog", "j", 0, HeldState::Live { phase: phase("10"), age_ms: 10 })]);
    b.says(n0, FromAgent::Moved { task: task("prolog", "j", 0), phase: phase("20"), age_ms: 0 });
    b.pass(1_000);
    b.run("prolog", "j", "n0");
    let Ok(Reply::Ps { rows, .. }) = b.ask(Request::Ps { older_than_ms: 1_000, held: false }).0 else { panic!() };
    let shown: Vec<_> = rows.iter().map(|row| (row.state.as_str(), row.why.as_str())).collect();
    assert_eq!(shown, [("running", "20 (1 of 2)")]);
}

#[test]
fn an_adopted_orphan_waits_for_nothing() {
    let mut b = Bench::new();
    let (n0, _) = b.up("n0", "b", vec![held("epilog", "j", 0, HeldState::Ended)]);
    assert_eq!(starts(&b.run("prolog", "j", "n0")), [(n0, 0)]);
    // In a normal order the epilog would wait for the prolog. This epilog ended in a lost life, and its node reports
    // the end now.
    let (_, effects) = b.ask(finish("j", None));
    assert_eq!(starts(&effects), [(n0, 0)]);
    assert_eq!(b.action("epilog", "j", 0).accepted.to_string(), "0");
    let epilog = Which { action: Some(ActionName::new("epilog").unwrap()), ..which("j", None) };
    b.ask(Request::Cancel { which: epilog, why: "asked".into() }).0.unwrap();
    assert_eq!(b.action("epilog", "j", 0).ended.to_string(), "", "its node has it");
    let effects = b.says(n0, finished(task("epilog", "j", 0), exit(3)));
    assert!(effects.contains(&ack(n0, task("epilog", "j", 0))));
    assert_eq!(b.store.ranks[0].ended.outcome, exit(3));
}

/// An operator has said that an orphan's job is over and its nodes were released (`Confirm::Gone`). The orphan is no
/// reason to drain its host; `ps` and the reasons of drains name only other orphans.
#[test]
fn an_orphan_that_was_given_up_drains_no_host_and_is_named_nowhere() {
    let mut b = Bench::new();
    let both = |rank| ["j", "k"].map(|job| held("prolog", job, rank, live())).to_vec();
    // The given-up orphan is the first of its host.
    let gone = if task("prolog", "j", 0) < task("prolog", "k", 0) { "j" } else { "k" };
    let left = if gone == "j" { "k" } else { "j" };
    b.up("n0", "b", both(0));
    b.up("n1", "b", vec![held("prolog", gone, 1, live())]);
    b.ask(confirm(Some(gone), Confirm::Gone)).0.unwrap();
    let Ok(Reply::Ps { notes, .. }) = b.ask(Request::Ps { older_than_ms: 0, held: false }).0 else { panic!() };
    let text = format!("prolog of job {left} is there, and this store does not know it: perilog controller recover");
    assert_eq!(notes, [format!("n0: {text}")]);
    b.pass(GATE_MS);
    assert_eq!(b.drained(), [("n0", false)]);
    let reason = format!("prolog of job {left} attempt 0 is there, and the controller's store does not know it");
    assert_eq!(b.store.drains[0].reason, reason);
}
