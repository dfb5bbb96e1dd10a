//! Tests of a task whose directory was removed, and with it any claim and result: no file is left that could prove that
//! the task's scripts have not run.

use super::bed::Bed;
use super::values::*;
use crate::agent::io::{Effect, Found, Seen};
use crate::task::Intent;

fn gone(seen: Seen) -> Seen {
    Seen { claim: None, result: None, gone: true, ..seen }
}

/// If a task's directory is gone, the agent writes the outcome together with a rebuilt intent. No agent can match an
/// outcome without an intent to a task: if this agent died before it reported the end, the next one would begin the
/// task again.
#[test]
fn an_outcome_goes_to_disk_with_a_rebuilt_intent() {
    let mut bed = Bed::up();
    let id = bed.live("j", 1, "prolog", 0);
    bed.feed(task_changed(id));
    let effects = bed.feed(inspected(id, gone(seen_exited(&intent("j", 1, "prolog", 0), 1, 3))));
    let [Effect::WriteOutcome { rebuilt, .. }] = &effects[..] else { unreachable!() };
    assert!(rebuilt.is_rebuilt(), "a runner that is still to come must not claim");
    assert_eq!(rebuilt.start.task, id);
}

/// Returns what a new agent finds of a task whose earlier agent died halfway: that agent had rebuilt the intent from
/// the unit, but had not yet written the claim on behalf of the runner.
fn rebuilt(intent: &Intent, seen: Seen) -> Found {
    let intent = Intent { not_after_boottime_ms: 0, ..intent.clone() };
    found(&intent, Seen { claim: None, result: None, ..seen })
}

/// Regression test: the claim was removed before the agent had read it, and the agent reported a task as `refused`
/// although its scripts had run.
#[test]
fn what_its_unit_did_is_its_outcome() {
    let intent = intent("j", 1, "prolog", 0);
    let lost = "lost (its unit vanished without a result)";
    for (seen, expect) in [
        (seen_exited(&intent, 1, 0), "failed (its runner ended with exit 0 and no result)"),
        (seen_exited(&intent, 1, 3), "failed (its runner ended with exit 3 and no result)"),
        (seen_nothing(), lost),
    ] {
        let mut bed = Bed::up();
        let id = bed.live("j", 1, "prolog", 0);
        bed.check(task_changed(id), &["inspect j.1.prolog.0"]);
        bed.check(inspected(id, gone(seen)), &[&format!("write-outcome j.1.prolog.0 {expect}")]);
    }
}

/// Regression test: a task's directory was removed while its script ran, and the task was cancelled. The agent created
/// the directory anew, took the claim in it, and reported that the task was cancelled before its begin. The script went
/// on.
#[test]
fn a_cancel_reaches_the_scripts() {
    let intent = intent("j", 1, "prolog", 0);
    let mut bed = Bed::up();
    let id = bed.live("j", 1, "prolog", 0);
    bed.checks([
        (cancel("j", 1, "prolog", 0), &["take-claim j.1.prolog.0 cancelled"]),
        (claim_taken(id, false), &["inspect j.1.prolog.0"]),
        (inspected(id, gone(seen_running(&intent, 1))), &["signal j.1.prolog.0 15"]),
        (task_changed(id), &["inspect j.1.prolog.0"]),
        (inspected(id, gone(seen_exited(&intent, 1, 143))), &["write-outcome j.1.prolog.0 cancelled (exit 143)"]),
    ]);
}

/// Regression test: after the removal of a task's directory, the agent took another program's unit of the same name for
/// the task's unit.
#[test]
fn a_unit_of_its_name_that_is_not_its_own_is_left_alone() {
    let intent = intent("j", 1, "prolog", 0);
    let mut bed = Bed::cold();
    bed.check(joined(vec![found(&intent, seen_nothing())], vec![]), &["wake 10001"]);
    bed.connect_any();
    bed.checks([
        (cancel("j", 1, "prolog", 0), &["take-claim j.1.prolog.0 cancelled"]),
        (claim_taken(intent.start.task, false), &["inspect j.1.prolog.0"]),
        (
            inspected(intent.start.task, gone(Seen { unit_ids: None, ..seen_exited(&intent, 2, 0) })),
            &["write-outcome j.1.prolog.0 lost (its unit vanished without a result)"],
        ),
        (outcome_written(intent.start.task), &["finished j.1.prolog.0 lost (its unit vanished without a result)"]),
    ]);
}

/// Regression test: an agent rebuilt an intent from a unit, and died before it wrote the claim. The next agent took the
/// task for one that had never begun.
#[test]
fn a_rebuilt_intent_counts_as_begun_without_its_claim() {
    let intent = intent("j", 1, "prolog", 0);
    for (seen, expect) in [
        (seen_running(&intent, 1), "watch j.1.prolog.0"),
        (seen_exited(&intent, 1, 3), "write-outcome j.1.prolog.0 failed (its runner ended with exit 3 and no result)"),
        (seen_nothing(), "write-outcome j.1.prolog.0 lost (its unit vanished without a result)"),
    ] {
        Bed::cold().check(joined(vec![rebuilt(&intent, seen)], vec![]), &[expect]);
    }
}
