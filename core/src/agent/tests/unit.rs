use super::bed::Bed;
use super::values::*;
use crate::agent::io::{Input, Seen, StartReply};
use crate::ids::TaskId;
use crate::task::{Claim, Report, StepRecord, UnitFacts};

/// A task whose StartUnit is not answered.
fn starting(bed: &mut Bed) -> TaskId {
    let id = task("j", 1, "prolog", 0);
    bed.check(start_message("j", 1, "prolog", 0), &["write-intent j.1.prolog.0"]);
    bed.check(intent_written(id), &["accepted j.1.prolog.0", "start-unit j.1.prolog.0"]);
    id
}

fn unknown() -> StartReply {
    StartReply::Unknown("timed out".to_owned())
}

#[test]
fn an_error_of_systemd_itself_is_a_failure_but_the_claim_comes_first() {
    let mut bed = Bed::up();
    let id = starting(&mut bed);
    let failed = "failed (systemd: Access denied)";
    bed.checks([
        (
            start_reply(id, StartReply::Rejected("Access denied".to_owned())),
            &[&format!("take-claim j.1.prolog.0 {failed}")],
        ),
        (claim_taken(id, true), &[&format!("write-outcome j.1.prolog.0 {failed}")]),
        (outcome_written(id), &[&format!("finished j.1.prolog.0 {failed}")]),
    ]);
}

#[test]
fn a_rejected_start_whose_claim_a_runner_has_runs() {
    let mut bed = Bed::up();
    let id = starting(&mut bed);
    let intent = intent("j", 1, "prolog", 0);
    bed.checks([
        (start_reply(id, StartReply::Rejected("no".to_owned())), &["take-claim j.1.prolog.0 failed (systemd: no)"]),
        (claim_taken(id, false), &["inspect j.1.prolog.0"]),
        // Nobody tells of what was not started for us, unless it is watched.
        (inspected(id, seen_running(&intent, 1)), &["watch j.1.prolog.0"]),
        (stirred(id), &["inspect j.1.prolog.0"]),
        (inspected(id, seen_exited(&intent, 1, 0)), &["write-outcome j.1.prolog.0 ok"]),
    ]);
}

#[test]
fn a_unit_that_exists_is_adopted_by_its_ids_or_by_its_claim_and_otherwise_refused() {
    let intent = intent("j", 1, "prolog", 0);
    let other = unit_ids(&super::values::intent("j", 2, "prolog", 0));
    let by_ids = Seen { claim: None, ..seen_running(&intent, 1) };
    let by_claim = Seen { unit_ids: None, ..seen_running(&intent, 1) };
    let nobodys = Seen { claim: None, unit_ids: None, ..seen_running(&intent, 1) };
    let of_another = Seen { claim: None, unit_ids: Some(other), ..seen_running(&intent, 1) };
    for (seen, adopted) in [(by_ids, true), (by_claim, true), (nobodys, false), (of_another, false)] {
        let mut bed = Bed::up();
        let id = starting(&mut bed);
        bed.check(start_reply(id, StartReply::Exists), &["inspect j.1.prolog.0"]);
        if adopted {
            bed.check(inspected(id, seen), &["watch j.1.prolog.0"]);
            bed.check(stirred(id), &["inspect j.1.prolog.0"]);
            bed.check(inspected(id, seen_exited(&intent, 1, 0)), &["write-outcome j.1.prolog.0 ok"]);
            continue;
        }
        let refused = "refused (something else on this host has the name perilog-task-prolog-j-0-";
        bed.check(inspected(id, seen), &[&format!("take-claim j.1.prolog.0 {refused}*")]);
        bed.check(claim_taken(id, true), &[&format!("write-outcome j.1.prolog.0 {refused}*")]);
        // What is not ours is not unloaded.
        bed.check(outcome_written(id), &[&format!("finished j.1.prolog.0 {refused}*")]);
    }
}

#[test]
fn a_foreign_unit_in_the_place_of_a_claimed_task_leaves_it_lost() {
    let mut bed = Bed::up();
    let id = starting(&mut bed);
    let foreign = Seen { unit: Some(running(9)), claim: Some(claim(1)), ..Seen::default() };
    bed.checks([
        (start_reply(id, StartReply::Exists), &["inspect j.1.prolog.0"]),
        (inspected(id, foreign.clone()), &["inspect j.1.prolog.0"]),
        (inspected(id, foreign), &["write-outcome j.1.prolog.0 lost (its unit vanished without a result)"]),
    ]);
}

#[test]
fn an_unknown_start_is_looked_at_and_adopted_if_it_happened() {
    let mut bed = Bed::up();
    let id = starting(&mut bed);
    bed.check(start_reply(id, unknown()), &["inspect j.1.prolog.0"]);
    bed.check(inspected(id, seen_running(&intent("j", 1, "prolog", 0), 1)), &["watch j.1.prolog.0"]);
}

#[test]
fn an_unknown_start_that_did_not_happen_is_asked_for_again_and_a_late_one_harms_nobody() {
    let mut bed = Bed::up();
    let id = starting(&mut bed);
    let waiting = "moved j.1.prolog.0 waiting for systemd did not answer its start: timed out";
    bed.check(start_reply(id, unknown()), &["inspect j.1.prolog.0"]);
    bed.check(inspected(id, seen_nothing()), &[waiting, "wake 250"]);
    bed.pass(250, &["moved j.1.prolog.0 starting", "start-unit j.1.prolog.0"]);
    // The first one came through after all.
    bed.check(start_reply(id, StartReply::Exists), &["inspect j.1.prolog.0"]);
    bed.check(inspected(id, seen_running(&intent("j", 1, "prolog", 0), 1)), &["watch j.1.prolog.0"]);
}

#[test]
fn a_late_start_is_noticed_while_the_next_one_waits() {
    let mut bed = Bed::up();
    let id = starting(&mut bed);
    bed.check(start_reply(id, unknown()), &["inspect j.1.prolog.0"]);
    bed.check(inspected(id, seen_nothing()), &["moved j.1.prolog.0 waiting*", "wake 250"]);
    bed.check(stirred(id), &["inspect j.1.prolog.0"]);
    bed.check(inspected(id, seen_running(&intent("j", 1, "prolog", 0), 1)), &["watch j.1.prolog.0"]);
    bed.pass(250, &[]);
}

#[test]
fn a_start_that_is_never_answered_and_never_happens_fails_in_the_end_with_its_claim_taken() {
    let mut bed = Bed::up();
    let id = starting(&mut bed);
    for pause in [250, 500, 1000, 2000, 4000] {
        bed.feed(start_reply(id, unknown()));
        bed.feed(inspected(id, seen_nothing()));
        bed.pass(pause, &["moved j.1.prolog.0 starting", "start-unit j.1.prolog.0"]);
    }
    let failed = "failed (systemd: systemd did not answer its start: timed out)";
    bed.check(start_reply(id, unknown()), &["inspect j.1.prolog.0"]);
    bed.check(inspected(id, seen_nothing()), &[&format!("take-claim j.1.prolog.0 {failed}")]);
    bed.check(claim_taken(id, true), &[&format!("write-outcome j.1.prolog.0 {failed}")]);
}

#[test]
fn a_claim_without_a_unit_is_looked_at_once_more_before_it_is_lost() {
    let mut bed = Bed::up();
    let id = starting(&mut bed);
    // The unit came up between the look at it and the look at its files.
    let raced = Seen { claim: Some(claim(1)), ..Seen::default() };
    bed.check(start_reply(id, unknown()), &["inspect j.1.prolog.0"]);
    bed.check(inspected(id, raced), &["inspect j.1.prolog.0"]);
    bed.check(inspected(id, seen_running(&intent("j", 1, "prolog", 0), 1)), &["watch j.1.prolog.0"]);
}

#[test]
fn a_unit_that_vanished_is_lost_unless_its_result_is_complete() {
    let lost = "lost (its unit vanished without a result)";
    let gone = Seen { claim: Some(claim(1)), ..Seen::default() };
    for (seen, expect) in [
        (gone.clone(), lost),
        (Seen { result: Some(result(1, 0)), ..gone.clone() }, "ok"),
        (Seen { result: Some(result(1, 3)), ..gone.clone() }, "failed (exit 3)"),
        (Seen { result: Some(result(2, 0)), ..gone.clone() }, lost),
        // What systemd says of a unit that it does not know.
        (Seen { unit: Some(UnitFacts { result: "success".to_owned(), ..UnitFacts::default() }), ..gone }, lost),
    ] {
        let mut bed = Bed::up();
        let id = bed.claimed("j", 1, "prolog", 0);
        bed.check(stirred(id), &["inspect j.1.prolog.0"]);
        bed.check(inspected(id, seen), &[&format!("write-outcome j.1.prolog.0 {expect}")]);
        // There is nothing to unload.
        bed.check(outcome_written(id), &[&format!("finished j.1.prolog.0 {expect}")]);
    }
}

#[test]
fn a_unit_that_vanished_before_its_claim_is_lost_with_the_claim_taken() {
    let mut bed = Bed::up();
    let id = bed.live("j", 1, "prolog", 0);
    let lost = "lost (its unit vanished without a result)";
    bed.checks([
        (stirred(id), &["inspect j.1.prolog.0"]),
        (inspected(id, seen_nothing()), &[&format!("take-claim j.1.prolog.0 {lost}")]),
        (claim_taken(id, true), &[&format!("write-outcome j.1.prolog.0 {lost}")]),
    ]);
}

#[test]
fn a_runner_that_never_claimed_is_never_a_success_and_the_claim_is_taken_first() {
    let intent = intent("j", 1, "prolog", 0);
    for (code, outcome) in [
        (0, "refused (the runner did not claim the task and ran nothing (exit 0): its unit's journal says why)"),
        (75, "refused (the runner did not claim the task and ran nothing (exit 75): its unit's journal says why)"),
        (203, "failed (cannot execute: systemd exit code 203, systemd.exec(5))"),
    ] {
        let mut bed = Bed::up();
        let id = bed.live("j", 1, "prolog", 0);
        let seen = Seen { claim: None, result: None, ..seen_exited(&intent, 1, code) };
        bed.check(stirred(id), &["inspect j.1.prolog.0"]);
        bed.check(inspected(id, seen), &[&format!("take-claim j.1.prolog.0 {outcome}")]);
        bed.check(claim_taken(id, true), &[&format!("write-outcome j.1.prolog.0 {outcome}")]);
    }
}

#[test]
fn a_claim_that_nobody_can_read_is_taken_for_that_of_the_unit_and_does_not_go_round_in_circles() {
    let mut bed = Bed::up();
    let id = bed.live("j", 1, "prolog", 0);
    let torn = Seen { claim: None, ..seen_exited(&intent("j", 1, "prolog", 0), 1, 0) };
    bed.checks([
        (stirred(id), &["inspect j.1.prolog.0"]),
        (inspected(id, torn.clone()), &["take-claim j.1.prolog.0 refused*"]),
        (claim_taken(id, false), &["inspect j.1.prolog.0"]),
        (inspected(id, torn), &["write-outcome j.1.prolog.0 ok"]),
    ]);
    let mut bed = Bed::up();
    let id = bed.live("j", 1, "prolog", 0);
    bed.checks([
        (stirred(id), &["inspect j.1.prolog.0"]),
        (inspected(id, seen_nothing()), &["take-claim j.1.prolog.0 lost*"]),
        (claim_taken(id, false), &["inspect j.1.prolog.0"]),
        (inspected(id, seen_nothing()), &["write-outcome j.1.prolog.0 lost*"]),
    ]);
}

#[test]
fn the_unit_that_is_asked_is_believed_only_when_it_is_over() {
    let intent = intent("j", 1, "prolog", 0);
    let base = || exited(1, 0);
    #[rustfmt::skip]
    let table = [
        ("exited", base(), true),
        ("failed", exited(1, 3), true),
        ("its job is pending", UnitFacts { job_pending: true, ..base() }, false),
        ("its main process runs", UnitFacts { main_pid: 5, ..base() }, false),
        ("on its way up", UnitFacts { active: "activating".to_owned(), ..base() }, false),
        ("on its way down", UnitFacts { active: "deactivating".to_owned(), ..base() }, false),
        ("queued", UnitFacts { job_pending: true, main_code: 0, active: "inactive".to_owned(), ..base() }, false),
        ("its job was dropped", UnitFacts { main_code: 0, active: "inactive".to_owned(), ..base() }, true),
    ];
    for (what, unit, over) in table {
        let mut bed = Bed::up();
        let id = bed.claimed("j", 1, "prolog", 0);
        bed.check(stirred(id), &["inspect j.1.prolog.0"]);
        let effects = bed.feed(inspected(id, Seen { unit: Some(unit), ..seen_exited(&intent, 1, 0) }));
        assert_eq!(effects.len(), usize::from(over), "{what}: {effects:?}");
    }
}

#[test]
fn looks_are_one_at_a_time_and_what_stirs_meanwhile_is_looked_at_after() {
    let mut bed = Bed::up();
    let id = starting(&mut bed);
    let intent = intent("j", 1, "prolog", 0);
    bed.checks([
        // The job can end before the call is answered.
        (stirred(id), &[]),
        (queued(id), &["inspect j.1.prolog.0"]),
        (stirred(id), &[]),
        (stirred(id), &[]),
        (inspected(id, seen_running(&intent, 1)), &["inspect j.1.prolog.0"]),
        (inspected(id, seen_running(&intent, 1)), &[]),
        // An answer that nobody waits for.
        (inspected(id, seen_exited(&intent, 1, 3)), &[]),
        (stirred(id), &["inspect j.1.prolog.0"]),
        (stirred(id), &[]),
        (inspected(id, seen_exited(&intent, 1, 0)), &["write-outcome j.1.prolog.0 ok"]),
        (stirred(id), &[]),
    ]);
}

#[test]
fn a_look_that_fails_is_repeated_later_each_time() {
    let mut bed = Bed::up();
    let id = bed.live("j", 1, "prolog", 0);
    let failed = || Input::Inspected { task: id, seen: Err("no reply".to_owned()) };
    bed.check(stirred(id), &["inspect j.1.prolog.0"]);
    let mut at = 0;
    for pause in [250, 500, 1000, 2000, 4000, 8000, 16_000, 32_000, 60_000, 60_000] {
        at += pause;
        bed.check(failed(), &[&format!("wake {at}")]);
        bed.pass(pause, &["inspect j.1.prolog.0"]);
    }
    bed.check(inspected(id, seen_running(&intent("j", 1, "prolog", 0), 1)), &[]);
    bed.check(stirred(id), &["inspect j.1.prolog.0"]);
    bed.check(failed(), &[&format!("wake {}", at + 250)]);
}

#[test]
fn what_a_script_leaves_behind_holds_the_task_and_is_named() {
    let mut bed = Bed::up();
    let id = bed.claimed("j", 1, "prolog", 0);
    let over = seen_exited(&intent("j", 1, "prolog", 0), 1, 0);
    let lingering = |pids: &[u32]| inspected(id, Seen { processes: processes(pids), ..over.clone() });
    bed.checks([
        (stirred(id), &["inspect j.1.prolog.0"]),
        (lingering(&[7, 8]), &["watch-empty j.1.prolog.0", "moved j.1.prolog.0 lingering 2"]),
        (stirred(id), &["inspect j.1.prolog.0"]),
        (lingering(&[8]), &["watch-empty j.1.prolog.0", "moved j.1.prolog.0 lingering 1"]),
        (stirred(id), &["inspect j.1.prolog.0"]),
        (lingering(&[8]), &["watch-empty j.1.prolog.0"]),
        (stirred(id), &["inspect j.1.prolog.0"]),
        (inspected(id, over.clone()), &["write-outcome j.1.prolog.0 ok"]),
    ]);
}

#[test]
fn what_lingers_is_killed_where_the_plan_says_so_and_then_looked_at_again() {
    let mut bed = Bed::up();
    let id = bed.claimed("j", 1, "sweep", 0);
    let over = seen_exited(&intent("j", 1, "sweep", 0), 1, 0);
    let lingering = |pids: &[u32]| inspected(id, Seen { processes: processes(pids), ..over.clone() });
    bed.checks([
        (stirred(id), &["inspect j.1.sweep.0"]),
        (lingering(&[7]), &["kill-lingering j.1.sweep.0", "watch-empty j.1.sweep.0", "moved j.1.sweep.0 lingering 1"]),
        (stirred(id), &["inspect j.1.sweep.0"]),
        // One that does not die is held, not killed again; a new one is.
        (lingering(&[7]), &["watch-empty j.1.sweep.0"]),
        (stirred(id), &["inspect j.1.sweep.0"]),
        (
            lingering(&[7, 9]),
            &["kill-lingering j.1.sweep.0", "watch-empty j.1.sweep.0", "moved j.1.sweep.0 lingering 2"],
        ),
        (stirred(id), &["inspect j.1.sweep.0"]),
        (inspected(id, over.clone()), &["write-outcome j.1.sweep.0 ok"]),
    ]);
    let effects = bed.feed(outcome_written(id));
    let [_, crate::agent::Effect::Send(crate::message::FromAgent::Finished { ended, .. })] = &effects[..] else {
        unreachable!()
    };
    assert_eq!(ended.lingering, processes(&[7, 9]));
}

#[test]
fn what_is_meant_to_stay_is_recorded_and_does_not_hold() {
    let mut bed = Bed::up();
    let id = bed.claimed("j", 1, "mount", 0);
    bed.check(stirred(id), &["inspect j.1.mount.0"]);
    let over = Seen { processes: processes(&[7]), ..seen_exited(&intent("j", 1, "mount", 0), 1, 0) };
    let effects = bed.check(inspected(id, over), &["write-outcome j.1.mount.0 ok"]);
    let [crate::agent::Effect::WriteOutcome { ended, .. }] = &effects[..] else { unreachable!() };
    assert_eq!(ended.lingering, processes(&[7]));
}

#[test]
fn phases_and_milestones_are_told_once_per_change() {
    let mut bed = Bed::up();
    let id = bed.claimed("j", 1, "prolog", 0);
    let with = |steps: Vec<StepRecord>| inspected(id, Seen { steps, ..seen_running(&intent("j", 1, "prolog", 0), 1) });
    let overdue =
        StepRecord::Overdue { seq: 0, script: "a".to_owned(), at_ms: 0, limit_ms: 50, forensics: String::new() };
    let end = StepRecord::End {
        seq: 0,
        script: "a".to_owned(),
        at_ms: 0,
        elapsed_ms: 0,
        status: crate::outcome::ExitStatus::Exit(0),
        tolerable: false,
        timed_out: true,
    };
    let progress = report_step(Report::Progress { message: "half".to_owned() });
    let milestone = report_step(Report::Milestone { name: "data-out".to_owned() });
    let mut steps = Vec::new();
    let mut told = |new: Vec<StepRecord>, expect: &[&str]| {
        steps.extend(new);
        bed.check(stirred(id), &["inspect j.1.prolog.0"]);
        bed.check(with(steps.clone()), expect);
        bed.check(stirred(id), &["inspect j.1.prolog.0"]);
        bed.check(with(steps.clone()), &[]);
    };
    told(vec![begin_step(0, "a", 2)], &["moved j.1.prolog.0 running a 1/2"]);
    told(vec![progress], &["moved j.1.prolog.0 running a 1/2: half"]);
    told(vec![milestone], &["moved j.1.prolog.0 milestone data-out"]);
    told(vec![overdue], &["moved j.1.prolog.0 overdue a 50"]);
    told(vec![end], &["moved j.1.prolog.0 running a 1/2: half"]);
    told(vec![begin_step(1, "b", 2)], &["moved j.1.prolog.0 running b 2/2"]);
}

#[test]
fn nothing_is_asked_of_a_bus_that_is_gone_and_all_in_doubt_is_looked_at_when_it_is_back() {
    let mut bed = Bed::up();
    let claimed = bed.claimed("j", 1, "prolog", 0);
    let starting = task("k", 1, "prolog", 0);
    bed.check(start_message("k", 1, "prolog", 0), &["write-intent k.1.prolog.0"]);
    bed.check(intent_written(starting), &["accepted k.1.prolog.0", "start-unit k.1.prolog.0"]);
    let waiting = task("l", 1, "prolog", 0);
    bed.checks([
        (Input::BusLost, &[]),
        (stirred(claimed), &[]),
        (inspected(claimed, seen_nothing()), &[]),
        (start_reply(starting, unknown()), &[]),
        (start_message("l", 1, "prolog", 0), &["write-intent l.1.prolog.0"]),
        (
            intent_written(waiting),
            &["accepted l.1.prolog.0", "moved l.1.prolog.0 waiting for the system bus", "wake 10001"],
        ),
        (
            joined(vec![], vec![]),
            &["watch j.1.prolog.0", "inspect k.1.prolog.0", "moved l.1.prolog.0 starting", "start-unit l.1.prolog.0"],
        ),
        // It is watched anew, since the bus that its start was asked on is gone; and read once more.
        (inspected(starting, seen_running(&intent("k", 1, "prolog", 0), 2)), &["watch k.1.prolog.0"]),
        (stirred(claimed), &["inspect j.1.prolog.0"]),
        (inspected(claimed, seen_exited(&intent("j", 1, "prolog", 0), 1, 0)), &["write-outcome j.1.prolog.0 ok"]),
    ]);
}

#[test]
fn a_start_that_the_bus_swallowed_is_asked_for_again() {
    let mut bed = Bed::up();
    let id = starting(&mut bed);
    bed.checks([
        (Input::BusLost, &[]),
        (joined(vec![], vec![]), &["inspect j.1.prolog.0"]),
        (
            inspected(id, seen_nothing()),
            &["moved j.1.prolog.0 waiting for the system bus was lost while its unit was being started", "wake 250"],
        ),
    ]);
    bed.pass(250, &["moved j.1.prolog.0 starting", "start-unit j.1.prolog.0"]);
}

#[test]
fn an_agents_claim_on_a_unit_that_came_late_ends_as_it_says_when_the_unit_is_over() {
    let mut bed = Bed::up();
    let id = starting(&mut bed);
    let mut late = seen_running(&intent("j", 1, "prolog", 0), 1);
    late.claim = Some(Claim::Cancelled);
    let mut over = seen_exited(&intent("j", 1, "prolog", 0), 1, 75);
    (over.claim, over.result) = (Some(Claim::Cancelled), None);
    bed.checks([
        (start_reply(id, unknown()), &["inspect j.1.prolog.0"]),
        (inspected(id, late), &["watch j.1.prolog.0"]),
        (stirred(id), &["inspect j.1.prolog.0"]),
        (inspected(id, over), &["write-outcome j.1.prolog.0 cancelled"]),
    ]);
}
