use super::bed::Bed;
use super::values::*;
use crate::agent::io::{Input, Seen};
use crate::ids::{BootId, TaskId};
use crate::message::ToAgent;
use crate::task::{Report, Start, StepRecord};

const TASK: &str = "j.1.prolog.0";

fn steps(after: &[StepRecord]) -> Vec<StepRecord> {
    [&[begin_step(0, "a", 1), report_step(Report::ExpectReboot)], after].concat()
}

fn running(id: TaskId, after: &[StepRecord]) -> Input {
    inspected(id, Seen { steps: steps(after), ..seen_running(&intent("j", 1, "prolog", 0), 1) })
}

/// A task whose script announced a boot, as this session knows.
fn announced(bed: &mut Bed) -> TaskId {
    let id = bed.claimed("j", 1, "prolog", 0);
    bed.checks([
        (stirred(id), &["inspect j.1.prolog.0"]),
        (running(id, &[]), &["expects-boot j.1.prolog.0 ok within 60000", "moved j.1.prolog.0 running a 1/1"]),
    ]);
    id
}

#[test]
fn a_boot_is_told_once_a_session_and_again_when_it_would_be_another_end() {
    let mut bed = Bed::up();
    let id = announced(&mut bed);
    let ended = |code| StepRecord::End {
        seq: 0,
        script: "a".to_owned(),
        at_ms: 1,
        elapsed_ms: 1,
        status: crate::outcome::ExitStatus::Exit(code),
        tolerable: false,
        timed_out: false,
    };
    bed.now.wall_ms += 1_000;
    bed.checks([
        (stirred(id), &["inspect j.1.prolog.0"]),
        (running(id, &[]), &[]),
        (stirred(id), &["inspect j.1.prolog.0"]),
        (
            running(id, &[ended(0), begin_step(1, "b", 2)]),
            &["expects-boot j.1.prolog.0 ok*", "moved j.1.prolog.0 running b 2/2"],
        ),
        (stirred(id), &["inspect j.1.prolog.0"]),
        (running(id, &[ended(3), begin_step(1, "b", 2)]), &["expects-boot j.1.prolog.0 failed (exit 3)*"]),
        // Nothing is marked that the controller did not say.
        (message(ToAgent::BootExpected { task: id }), &["mark-boot-expected j.1.prolog.0"]),
    ]);
    bed.reconnect(
        "hello 2 [j.1.prolog.0 live running b 2/2]",
        &["redial 1000", "expects-boot j.1.prolog.0 failed (exit 3)*"],
    );
}

#[test]
fn what_happens_without_a_controller_is_told_when_there_is_one() {
    let mut bed = Bed::up();
    let id = bed.claimed("j", 1, "prolog", 0);
    bed.checks([
        (Input::LinkDown, &[]),
        (stirred(id), &["inspect j.1.prolog.0"]),
        (running(id, &[]), &[]),
        (message(ToAgent::BootExpected { task: id }), &[]),
    ]);
    bed.check(Input::LinkUp { counter: 2 }, &["hello 2 [j.1.prolog.0 live running a 1/1]"]);
    bed.check(welcome(1), &["redial 1000", "expects-boot j.1.prolog.0 ok within 60000"]);
    // An agent that comes up later reads it again.
    let mut later = Bed::cold();
    let intent = intent("j", 1, "prolog", 0);
    later.feed(joined(vec![found(&intent, Seen { steps: steps(&[]), ..seen_running(&intent, 1) })], vec![]));
    later.reconnect_any(&["write-epoch 1"]);
    let told = later.feed(epoch_written(1));
    assert!(
        told.iter().any(|effect| super::words::words(effect) == "expects-boot j.1.prolog.0 ok within 60000"),
        "{told:?}"
    );
}

#[test]
fn scripts_that_ended_well_leave_the_boot_and_how_long_it_may_take() {
    let intent = intent("j", 1, "prolog", 0);
    for (code, expect) in [(0, Some("ok")), (3, None)] {
        let mut bed = Bed::up();
        let id = announced(&mut bed);
        let over = Seen { steps: steps(&[]), ..seen_exited(&intent, 1, code) };
        let outcome = if code == 0 { "ok" } else { "failed (exit 3)" };
        bed.checks([
            (stirred(id), &["inspect j.1.prolog.0"]),
            (inspected(id, over), &[&format!("write-outcome {TASK} {outcome}")]),
        ]);
        let told: Vec<String> = bed.feed(outcome_written(id)).iter().map(super::words::words).collect();
        let waits = told.contains(&format!("expects-boot {TASK} ok within 60000"));
        assert_eq!((waits, told.last()), (expect.is_some(), Some(&format!("finished {TASK} {outcome}"))), "{told:?}");
    }
}

#[test]
fn what_is_left_of_the_limit_counts_from_the_first_script_and_never_from_before_the_start() {
    for (wall_ms, boot_ms, left) in [(0, 0, 5_000), (1_000, 2_000, 4_000), (9_000, 2_000, 3_000), (9_000, 9_000, 0)] {
        let mut bed = Bed::up();
        let (id, limited) =
            (task("j", 1, "prolog", 0), Start { timeout_ms: Some(5_000), ..start("j", 1, "prolog", 0) });
        bed.feed(message(ToAgent::Start(limited)));
        bed.feed(intent_written(id));
        bed.feed(queued(id));
        bed.now.wall_ms += wall_ms;
        bed.now.boot_ms += boot_ms;
        bed.feed(stirred(id));
        let first = format!("expects-boot {TASK} ok within {left}");
        bed.check(running(id, &[]), &[&first, "moved j.1.prolog.0 running a 1/1"]);
    }
}

#[test]
fn a_soft_reboot_leaves_who_announced_it() {
    let mut intent = intent("j", 1, "prolog", 0);
    intent.start.boot = BootId::new("another").unwrap();
    for (steps, expect) in [(steps(&[]), "ok"), (vec![begin_step(0, "a", 1)], "lost (the node rebooted)")] {
        let mut bed = Bed::cold();
        let left = Seen { claim: Some(claim(1)), steps, ..Seen::default() };
        bed.checks([
            (joined(vec![found(&intent, left.clone())], vec![]), &["inspect j.1.prolog.0"]),
            (inspected(intent.start.task, left), &[&format!("write-outcome {TASK} {expect}")]),
        ]);
    }
}
