use super::bed::Bed;
use super::values::*;
use crate::agent::io::{Effect, Input, Node, Seen};
use crate::ids::{BootId, TaskId};
use crate::message::{FromAgent, HeldState, ToAgent};
use crate::outcome::Outcome;
use crate::task::{Reboot, Report, Start, StepRecord, Tombstone, UnitFacts};

const TASK: &str = "j.1.prolog.0";

fn steps(after: &[StepRecord]) -> Vec<StepRecord> {
    [&[begin_step(0, "a", 1), report_step(Report::ExpectReboot)], after].concat()
}

fn running(id: TaskId, after: &[StepRecord]) -> Input {
    inspected(id, Seen { steps: steps(after), ..seen_running(&intent("j", 1, "prolog", 0), 1) })
}

/// Makes a task whose script announced a reboot, and asserts that the agent reported this in the open session.
fn announced(bed: &mut Bed) -> TaskId {
    let id = bed.claimed("j", 1, "prolog", 0);
    bed.checks([
        (task_changed(id), &["inspect j.1.prolog.0"]),
        (running(id, &[]), &["expects-boot j.1.prolog.0 ok within 60000", "moved j.1.prolog.0 running a 1/1"]),
    ]);
    id
}

#[test]
fn an_announced_boot_is_reported_per_session_and_change() {
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
        (task_changed(id), &["inspect j.1.prolog.0"]),
        (running(id, &[]), &[]),
        (task_changed(id), &["inspect j.1.prolog.0"]),
        (
            running(id, &[ended(0), begin_step(1, "b", 2)]),
            &["expects-boot j.1.prolog.0 ok*", "moved j.1.prolog.0 running b 2/2"],
        ),
        (task_changed(id), &["inspect j.1.prolog.0"]),
        (running(id, &[ended(3), begin_step(1, "b", 2)]), &["expects-boot j.1.prolog.0 failed (exit 3)*"]),
        // The agent marks nothing before the controller has confirmed.
        (message(ToAgent::BootExpected { task: id }), &["mark-boot-expected j.1.prolog.0"]),
    ]);
    bed.reconnect(
        "hello 2 [j.1.prolog.0 live running b 2/2]",
        &["redial 1000", "expects-boot j.1.prolog.0 failed (exit 3)*"],
    );
}

#[test]
fn what_happens_without_a_controller_is_reported_when_there_is_one() {
    let mut bed = Bed::up();
    let id = bed.claimed("j", 1, "prolog", 0);
    bed.checks([
        (Input::LinkDown, &[]),
        (task_changed(id), &["inspect j.1.prolog.0"]),
        (running(id, &[]), &[]),
        (message(ToAgent::BootExpected { task: id }), &[]),
    ]);
    bed.check(Input::LinkUp { counter: 2 }, &["hello 2 [j.1.prolog.0 live running a 1/1]"]);
    bed.check(welcome(1), &["redial 1000", "expects-boot j.1.prolog.0 ok within 60000"]);
    // A later agent reads the announcement again.
    let mut later = Bed::cold();
    let intent = intent("j", 1, "prolog", 0);
    later.feed(joined(vec![found(&intent, Seen { steps: steps(&[]), ..seen_running(&intent, 1) })], vec![]));
    later.reconnect_any(&["write-epoch 1"]);
    let reported = later.feed(epoch_written(1));
    assert!(
        reported
            .iter()
            .any(|effect| super::effect_text::effect_text(effect) == "expects-boot j.1.prolog.0 ok within 60000"),
        "{reported:?}"
    );
}

#[test]
fn scripts_that_ended_well_leave_the_boot_and_its_limit() {
    let intent = intent("j", 1, "prolog", 0);
    for (code, expect) in [(0, Some("ok")), (3, None)] {
        let mut bed = Bed::up();
        let id = announced(&mut bed);
        let over = Seen { steps: steps(&[]), ..seen_exited(&intent, 1, code) };
        let outcome = if code == 0 { "ok" } else { "failed (exit 3)" };
        bed.checks([
            (task_changed(id), &["inspect j.1.prolog.0"]),
            (inspected(id, over), &[&format!("write-outcome {TASK} {outcome}")]),
        ]);
        let reported: Vec<String> = bed.feed(outcome_written(id)).iter().map(super::effect_text::effect_text).collect();
        let waits = reported.contains(&format!("expects-boot {TASK} ok within 60000"));
        assert_eq!(
            (waits, reported.last()),
            (expect.is_some(), Some(&format!("finished {TASK} {outcome}"))),
            "{reported:?}"
        );
    }
}

#[test]
fn the_limit_counts_from_the_first_script() {
    for (wall_ms, boot_ms, left) in [(0, 0, 5_000), (1_000, 2_000, 4_000), (9_000, 2_000, 3_000), (9_000, 9_000, 0)] {
        let mut bed = Bed::up();
        let (id, limited) =
            (task("j", 1, "prolog", 0), Start { timeout_ms: Some(5_000), ..start("j", 1, "prolog", 0) });
        bed.feed(message(ToAgent::Start(limited)));
        bed.feed(intent_written(id));
        bed.feed(queued(id));
        bed.now.wall_ms += wall_ms;
        bed.now.boot_ms += boot_ms;
        bed.feed(task_changed(id));
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
            (inspected(intent.start.task, left.clone()), &[&format!("write-outcome {TASK} {expect}")]),
        ]);
        // The /run of a container may keep the unit's file: systemd loads the unit, which has not run in this boot.
        let unit = UnitFacts { loaded: true, active: "inactive".to_owned(), ..UnitFacts::default() };
        let (left, mut bed) = (Seen { unit: Some(unit), ..left }, Bed::cold());
        bed.feed(joined(vec![found(&intent, left.clone())], vec![]));
        let reported: Vec<String> =
            bed.feed(inspected(intent.start.task, left)).iter().map(super::effect_text::effect_text).collect();
        assert!(reported.contains(&format!("write-outcome {TASK} {expect}")), "{reported:?}");
    }
}

/// Regression test: a tombstone did not record an announced reboot. After one controller had acknowledged the end, the
/// agent reported the end to another controller from the tombstone, without the reboot.
#[test]
fn a_tombstone_reports_the_boot_and_then_that_it_came() {
    let intent = intent("j", 1, "prolog", 0);
    let id = intent.start.task;
    let waits = (Some(intent.start.boot.clone()), true, intent.limit_ms());
    let mut bed = Bed::up();
    // A failed task does not wait for the reboot.
    for (code, of) in [(3, (None, false, None)), (0, waits.clone())] {
        bed = Bed::up();
        announced(&mut bed);
        bed.feed(task_changed(id));
        bed.feed(inspected(id, Seen { steps: steps(&[]), ..seen_exited(&intent, 1, code) }));
        bed.feed(outcome_written(id));
        let written = bed.feed(ack(id));
        let [Effect::WriteTombstone { tombstone, .. }] = &written[..] else { panic!("{written:?}") };
        assert_eq!((tombstone.boot.clone(), tombstone.expects_boot, tombstone.limit_ms), of, "{code}");
    }
    let (boot, expects_boot, limit_ms) = waits;
    let tombstone = Tombstone { boot, expects_boot, limit_ms, ..tombstone(&intent, Outcome::Ok) };
    let expects = "hello 2 [j.1.prolog.0 tombstone ok, boot Expected]";
    bed.reconnect(expects, &["redial 1000"]);
    bed.feed(tombstone_written(id));
    bed.reconnect(expects, &["redial 1000"]);
    // The agent of this boot; and the agent of the next boot, which a soft reboot left the tombstone.
    let after = |softs| BootId::new(&format!("{}+{softs}", intent.start.boot)).unwrap();
    for (boot, expect) in [
        (intent.start.boot.clone(), Reboot::Expected),
        (after(1), Reboot::Come),
        // A second boot was not announced.
        (after(2), Reboot::Since),
    ] {
        let mut bed = Bed::of(Node { boot, ..node() });
        bed.feed(joined(vec![], vec![tombstone.clone()]));
        let reported = bed.feed(Input::LinkUp { counter: 1 });
        let [Effect::Send(FromAgent::Hello(hello))] = &reported[..] else { panic!("{reported:?}") };
        let [held] = &hello.tasks[..] else { panic!("{hello:?}") };
        bed.feed(welcome(1));
        bed.feed(epoch_written(1));
        let HeldState::Tombstone { reboot, .. } = held.state else { panic!("{held:?}") };
        assert_eq!((reboot, held.limit_ms), (expect, limit_ms));
        for (word, answers) in [
            (start_message("j", 1, "prolog", 0), 1 + usize::from(expect == Reboot::Expected)),
            (begin(id), 1),
            (cancel("j", 1, "prolog", 0), 1),
        ] {
            let reported = bed.feed(word);
            assert_eq!(reported.len(), answers, "{reported:?}");
            if let [Effect::Send(FromAgent::ExpectsBoot { within_ms, .. }), _] = reported[..] {
                assert_eq!(within_ms, limit_ms);
            }
            let Some(Effect::Send(FromAgent::Finished { ended, .. })) = reported.last() else { panic!("{reported:?}") };
            assert_eq!((&ended.outcome, ended.reboot()), (&Outcome::Ok, expect));
        }
    }
}
