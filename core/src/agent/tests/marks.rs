//! Tests of the commits that a host remembers and reports: in intents, tombstones, Hello and `epoch.json`. Also tests
//! that an accepted after-action bars later setup actions of its attempt.

use super::bed::Bed;
use super::values::*;
use crate::agent::io::{Effect, Input};
use crate::mark::{Commit, Mark};
use crate::message::{FromAgent, ToAgent};
use crate::outcome::Outcome;
use crate::task::{Start, Tombstone};

fn welcome_at(number: u64, commit: u64) -> Input {
    message(ToAgent::Welcome { epoch: epoch(number), cluster: cluster(), redial_window_ms: 1000, commit })
}

/// Makes a machine that accepts epoch 1 since a Welcome with commit 4.
fn bed() -> Bed {
    let mut bed = Bed::cold();
    bed.check(joined(vec![], vec![]), &[]);
    bed.check(Input::LinkUp { counter: 1 }, &["hello 1 []"]);
    bed.check(welcome_at(1, 4), &["write-epoch 1 commit 4"]);
    bed.check(epoch_written(1), &["redial 1000"]);
    bed
}

fn start_of(a: &str, after: bool, commit: u64) -> Input {
    message(ToAgent::Start(Start { after, commit, ..start("j", 1, a, 0) }))
}

fn cancel_at(a: &str, commit: u64) -> Input {
    let Input::Message(ToAgent::Cancel { task, job, attempt, action, why, .. }) = cancel("j", 1, a, 0) else {
        unreachable!()
    };
    message(ToAgent::Cancel { task, job, attempt, action, why, commit })
}

/// Opens a new session and returns the commit numbers in its Hello: first that of `newest`, then one for each task.
fn reported(bed: &mut Bed) -> (Option<u64>, Vec<Option<u64>>) {
    bed.feed(Input::LinkDown);
    let effects = bed.feed(Input::LinkUp { counter: 9 });
    let Some(Effect::Send(FromAgent::Hello(hello))) = effects.into_iter().next() else { panic!("no Hello") };
    bed.feed(welcome_at(1, 4));
    let number = |commit: Commit| {
        assert_eq!(commit.epoch, epoch(1));
        commit.number
    };
    let newest = hello.newest.map(|Mark { cluster: of, commit }| {
        assert_eq!(of, cluster());
        number(commit)
    });
    (newest, hello.tasks.iter().map(|held| held.commit.map(number)).collect())
}

#[test]
fn intent_and_tombstone_have_the_commits_that_caused_them() {
    let mut bed = bed();
    assert_eq!(reported(&mut bed), (Some(4), vec![]));
    let id = task("j", 1, "prolog", 0);
    let effects = bed.check(start_of("prolog", false, 7), &["write-intent j.1.prolog.0"]);
    let [Effect::WriteIntent { intent: written, .. }] = &effects[..] else { panic!() };
    assert_eq!(written.commit, Some(Commit { epoch: epoch(1), number: 7 }));
    bed.feed(intent_written(id));
    assert_eq!(reported(&mut bed), (Some(7), vec![Some(7)]));
    bed.feed(queued(id));
    bed.feed(task_changed(id));
    bed.feed(inspected(id, seen_exited(&intent("j", 1, "prolog", 0), 1, 0)));
    bed.feed(outcome_written(id));
    assert_eq!(reported(&mut bed), (Some(7), vec![Some(7)]));
    let effects = bed.feed(message(ToAgent::Ack { task: id, commit: 9 }));
    let tombstone_written_as = |effects: &[Effect]| match effects {
        [Effect::WriteTombstone { tombstone, .. }] => tombstone.commit.map(|commit| commit.number),
        other => panic!("{other:?}"),
    };
    assert_eq!(tombstone_written_as(&effects), Some(9));
    bed.feed(tombstone_written(id));
    assert_eq!(reported(&mut bed), (Some(9), vec![Some(9)]));
    // A cancel of a task that never came.
    assert_eq!(tombstone_written_as(&bed.feed(cancel_at("epilog", 12))), Some(12));
}

#[test]
fn what_goes_leaves_its_commit() {
    let mut bed = bed();
    let id = task("j", 1, "prolog", 0);
    bed.feed(cancel_at("prolog", 12));
    bed.feed(tombstone_written(id));
    bed.feed(message(ToAgent::Ack { task: id, commit: 13 }));
    bed.check(forget(id), &["write-epoch 1 commit 12", "remove-tombstone j.1.prolog.0"]);
    bed.feed(epoch_written(1));
    assert_eq!(reported(&mut bed), (Some(12), vec![]));
    // An older commit changes nothing.
    bed.feed(cancel_at("prolog", 11));
    bed.feed(tombstone_written(id));
    bed.check(forget(id), &["remove-tombstone j.1.prolog.0"]);
}

#[test]
fn an_older_controller_leaves_no_mark() {
    let mut bed = Bed::up();
    let id = bed.live("j", 1, "prolog", 0);
    bed.feed(cancel("k", 1, "prolog", 0));
    bed.feed(Input::LinkDown);
    let effects = bed.feed(Input::LinkUp { counter: 2 });
    let Some(Effect::Send(FromAgent::Hello(hello))) = effects.first() else { panic!() };
    assert_eq!((hello.newest, hello.tasks[0].task, hello.tasks[0].commit), (None, id, None));
}

/// A record of the epoch that an older agent wrote names no cluster. The agent writes the record again although the
/// epoch is the same.
#[test]
fn an_epoch_of_an_older_agent_gets_its_cluster() {
    let mut bed = Bed::cold();
    let of = epoch(3).into();
    bed.check(Input::Joined { found: vec![], tombstones: vec![], accepted: Some(of) }, &[]);
    bed.check(Input::LinkUp { counter: 1 }, &["hello 1 []"]);
    bed.check(welcome_at(3, 5), &["write-epoch 3 commit 5"]);
    bed.check(epoch_written(3), &["redial 1000"]);
}

/// A node that has accepted an after-action of an attempt refuses setup actions of that attempt, and still accepts
/// other after-actions.
#[test]
fn nothing_prepares_an_attempt_after_it_was_cleaned_up() {
    let tombstone = tombstone(&intent("j", 1, "epilog", 0), Outcome::Ok);
    let after = Tombstone { after: true, ..tombstone.clone() };
    let refused = "finished j.1.prolog.0 refused (epilog of job j attempt 1 has already cleaned up this node*";
    #[rustfmt::skip]
    let table = [
        ("the after-action's tombstone", vec![after.clone()], "prolog", false, refused),
        ("a tombstone of an older agent", vec![tombstone.clone()], "prolog", false, "write-intent j.1.prolog.0"),
        ("another after-action", vec![after.clone()], "check", true, "write-intent perilog-task-check-*"),
        ("of another attempt", vec![Tombstone { attempt: crate::ids::Attempt::from_number(2), ..after.clone() }],
         "prolog", false, "write-intent j.1.prolog.0"),
        ("of another job", vec![Tombstone { job: job("k"), ..after.clone() }], "prolog", false,
         "write-intent j.1.prolog.0"),
        ("the host's own", vec![Tombstone { local: true, ..after }], "prolog", false, "write-intent j.1.prolog.0"),
    ];
    for (case, tombstones, action, after, expect) in table {
        let mut node = node();
        node.policy.actions.insert(crate::ids::ActionName::new("check").unwrap(), plan());
        let mut bed = Bed::of(node);
        bed.check(joined(vec![], tombstones), &[]);
        bed.connect_any();
        let effects = bed.feed(start_of(action, after, 5));
        let got = super::effect_text::effect_text(&effects[0]);
        assert!(expect.strip_suffix('*').map_or(got == expect, |start| got.starts_with(start)), "{case}: {got}");
    }
    // A running after-action has the same effect.
    let mut bed = bed();
    bed.feed(start_of("epilog", true, 5));
    bed.feed(intent_written(task("j", 1, "epilog", 0)));
    bed.check(start_of("prolog", false, 6), &[refused]);
}
