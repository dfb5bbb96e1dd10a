use super::bed::Bed;
use super::values::*;
use crate::agent::io::{Input, Seen};
use crate::message::ToAgent;
use crate::task::{Report, StepRecord, UnitFacts};

#[test]
fn a_unit_that_vanished_is_lost_unless_its_result_is_complete() {
    let lost = "lost (its unit vanished without a result)";
    let gone = Seen { claim: Some(claim(1)), ..Seen::default() };
    for (seen, expect) in [
        (gone.clone(), lost),
        (Seen { result: Some(result(1, 0)), ..gone.clone() }, "ok"),
        (Seen { result: Some(result(1, 3)), ..gone.clone() }, "failed (exit 3)"),
        (Seen { result: Some(result(2, 0)), ..gone.clone() }, lost),
        // systemd's answer for an unknown unit.
        (Seen { unit: Some(UnitFacts { result: "success".to_owned(), ..UnitFacts::default() }), ..gone }, lost),
    ] {
        let mut bed = Bed::up();
        let id = bed.claimed("j", 1, "prolog", 0);
        bed.check(task_changed(id), &["inspect j.1.prolog.0"]);
        bed.check(inspected(id, seen), &[&format!("write-outcome j.1.prolog.0 {expect}")]);
        // The agent has no unit to unload.
        bed.check(outcome_written(id), &[&format!("finished j.1.prolog.0 {expect}")]);
    }
}

/// Regression test: with `Restart=on-failure` in a drop-in for all services, a failed task was shown as running for
/// ever. systemd waits to begin the unit again, or has begun it, and a further runner has its main process.
#[test]
fn a_unit_that_systemd_restarts_has_ended_with_its_runner() {
    let intent = intent("j", 1, "prolog", 0);
    let waits = UnitFacts { active: "activating".to_owned(), sub: "auto-restart".to_owned(), ..exited(1, 3) };
    let again = Seen { claim: Some(claim(1)), result: Some(result(1, 3)), ..seen_running(&intent, 2) };
    for (seen, outcome) in [
        (Seen { unit: Some(waits.clone()), ..seen_exited(&intent, 1, 3) }, "failed (exit 3)"),
        (again.clone(), "failed (exit 3)"),
        (Seen { result: None, ..again }, "lost (its unit vanished without a result)"),
        // The runner that began is the first: it is only slow to write its claim.
        (Seen { claim: None, result: None, ..seen_running(&intent, 2) }, ""),
    ] {
        let mut bed = Bed::up();
        let id = bed.live("j", 1, "prolog", 0);
        bed.feed(task_changed(id));
        let reported: Vec<String> = bed.feed(inspected(id, seen)).iter().map(super::effect_text::effect_text).collect();
        let wrote = reported.iter().find_map(|reported| reported.strip_prefix("write-outcome j.1.prolog.0 "));
        assert_eq!(wrote.unwrap_or_default(), outcome, "{reported:?}");
    }
}

#[test]
fn a_unit_that_vanished_before_its_claim_is_lost_and_claimed() {
    let mut bed = Bed::up();
    let id = bed.live("j", 1, "prolog", 0);
    let lost = "lost (its unit vanished without a result)";
    bed.checks([
        (task_changed(id), &["inspect j.1.prolog.0"]),
        (inspected(id, seen_nothing()), &[&format!("take-claim j.1.prolog.0 {lost}")]),
        (claim_taken(id, true), &[&format!("write-outcome j.1.prolog.0 {lost}")]),
    ]);
}

/// Regression test: a program stopped the agent's queued unit and used its name, and the agent took that unit's
/// result for the task's end.
#[test]
fn a_foreign_unit_with_the_name_of_a_queued_one_is_left_alone() {
    let intent = intent("j", 1, "prolog", 0);
    let other = unit_ids(&super::values::intent("j", 2, "prolog", 0));
    let lost = "lost (its unit vanished without a result)";
    for unit_ids in [None, Some(other)] {
        for seen in [seen_running(&intent, 2), seen_exited(&intent, 2, 0), seen_exited(&intent, 2, 3)] {
            let mut bed = Bed::up();
            let id = bed.live("j", 1, "prolog", 0);
            bed.checks([
                (task_changed(id), &["inspect j.1.prolog.0"]),
                (
                    inspected(id, Seen { unit_ids: unit_ids.clone(), claim: None, result: None, ..seen }),
                    &[&format!("take-claim j.1.prolog.0 {lost}")],
                ),
                (claim_taken(id, true), &[&format!("write-outcome j.1.prolog.0 {lost}")]),
                // The agent does not unload a foreign unit.
                (outcome_written(id), &[&format!("finished j.1.prolog.0 {lost}")]),
            ]);
        }
    }
}

#[test]
fn a_runner_that_never_claimed_is_never_a_success() {
    let intent = intent("j", 1, "prolog", 0);
    for (code, outcome) in [
        (0, "failed (its runner ended with exit 0 and no result)"),
        (
            73,
            "refused (its runner could not write to /run/perilog, and ran no script (exit 73): is /run full (df /run; \
             df -i /run)?)",
        ),
        (
            203,
            "failed (cannot execute: systemd cannot execute /usr/libexec/perilog/perilog-runner (exit 203): is it \
             installed?)",
        ),
    ] {
        let mut bed = Bed::up();
        let id = bed.live("j", 1, "prolog", 0);
        let seen = Seen { claim: None, result: None, ..seen_exited(&intent, 1, code) };
        bed.check(task_changed(id), &["inspect j.1.prolog.0"]);
        bed.check(inspected(id, seen), &[&format!("take-claim j.1.prolog.0 {outcome}")]);
        bed.check(claim_taken(id, true), &[&format!("write-outcome j.1.prolog.0 {outcome}")]);
    }
}

#[test]
fn an_unreadable_claim_counts_as_the_units_and_is_read_once() {
    let mut bed = Bed::up();
    let id = bed.live("j", 1, "prolog", 0);
    let torn = Seen { claim: None, ..seen_exited(&intent("j", 1, "prolog", 0), 1, 0) };
    bed.checks([
        (task_changed(id), &["inspect j.1.prolog.0"]),
        (inspected(id, torn.clone()), &["take-claim j.1.prolog.0 failed*"]),
        (claim_taken(id, false), &["inspect j.1.prolog.0"]),
        (inspected(id, torn), &["write-outcome j.1.prolog.0 ok"]),
    ]);
    let mut bed = Bed::up();
    let id = bed.live("j", 1, "prolog", 0);
    bed.checks([
        (task_changed(id), &["inspect j.1.prolog.0"]),
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
        ("its stop waits for its turn", UnitFacts { job_pending: true, ..base() }, true),
        ("its main process runs", UnitFacts { main_pid: 5, ..base() }, false),
        ("on its way up", UnitFacts { active: "activating".to_owned(), ..base() }, false),
        ("on its way down", UnitFacts { active: "deactivating".to_owned(), ..base() }, false),
        ("queued", UnitFacts { job_pending: true, main_code: 0, active: "inactive".to_owned(), ..base() }, false),
        ("its job was dropped", UnitFacts { main_code: 0, active: "inactive".to_owned(), ..base() }, true),
    ];
    for (what, unit, over) in table {
        let mut bed = Bed::up();
        let id = bed.claimed("j", 1, "prolog", 0);
        bed.check(task_changed(id), &["inspect j.1.prolog.0"]);
        let effects = bed.feed(inspected(id, Seen { unit: Some(unit), ..seen_exited(&intent, 1, 0) }));
        assert_eq!(effects.len(), usize::from(over), "{what}: {effects:?}");
    }
}

/// Regression test: a killed runner left a script that ignores TERM. The agent showed the script as running, and an
/// operator's KILL waited for the runner.
#[test]
fn leftovers_of_a_killed_runner_linger_until_the_unit_stops() {
    let intent = intent("j", 1, "prolog", 0);
    let mut bed = Bed::up();
    let id = bed.claimed("j", 1, "prolog", 0);
    let killed = |active: &str| UnitFacts { active: active.to_owned(), main_code: 2, main_status: 9, ..exited(1, 3) };
    let stopping = |pids: &[u32]| {
        let unit = Some(killed("deactivating"));
        inspected(
            id,
            Seen { unit, processes: processes(pids), steps: vec![begin_step(1, "a", 2)], ..seen_running(&intent, 1) },
        )
    };
    let failed = Seen { unit: Some(killed("failed")), ..seen_running(&intent, 1) };
    bed.checks([
        (task_changed(id), &["inspect j.1.prolog.0"]),
        (stopping(&[7]), &["watch-empty j.1.prolog.0", "moved j.1.prolog.0 lingering 1", "wake 250"]),
        (message(ToAgent::Signal { task: id, signal: 9 }), &["kill-lingering j.1.prolog.0"]),
        (task_changed(id), &["inspect j.1.prolog.0"]),
        (inspected(id, failed), &["write-outcome j.1.prolog.0 failed (its runner was killed: signal KILL)"]),
    ]);
}

#[test]
fn inspections_run_one_at_a_time_and_repeat_after_a_change() {
    let mut bed = Bed::up();
    let id = super::starting::starting(&mut bed);
    let intent = intent("j", 1, "prolog", 0);
    bed.checks([
        // The job can end before systemd answers the call.
        (task_changed(id), &[]),
        (queued(id), &["inspect j.1.prolog.0"]),
        (task_changed(id), &[]),
        (task_changed(id), &[]),
        (inspected(id, seen_running(&intent, 1)), &["inspect j.1.prolog.0"]),
        (inspected(id, seen_running(&intent, 1)), &[]),
        // An answer to no request.
        (inspected(id, seen_exited(&intent, 1, 3)), &[]),
        (task_changed(id), &["inspect j.1.prolog.0"]),
        (task_changed(id), &[]),
        (inspected(id, seen_exited(&intent, 1, 0)), &["write-outcome j.1.prolog.0 ok"]),
        (task_changed(id), &[]),
    ]);
}

#[test]
fn an_inspection_that_fails_is_repeated_later_each_time() {
    let mut node = node();
    node.policy.actions.get_mut(&action("prolog")).unwrap().timeout_ms = None;
    let mut bed = Bed::up_as(node);
    let id = bed.live("j", 1, "prolog", 0);
    bed.feed(task_changed(id));
    let steps = vec![begin_step(0, "a", 1)];
    bed.feed(inspected(id, Seen { steps, ..seen_running(&intent("j", 1, "prolog", 0), 1) }));
    bed.now.boot_ms += 5_000;
    bed.feed(Input::Tick);
    let failed = || Input::Inspected { task: id, seen: Err("no reply".to_owned()) };
    bed.check(task_changed(id), &["inspect j.1.prolog.0"]);
    let mut at = bed.now.boot_ms;
    for pause in [250, 500, 1000, 2000, 4000, 8000, 16_000, 32_000, 60_000, 60_000] {
        at += pause;
        bed.check(failed(), &[&format!("wake {at}")]);
        bed.pass(pause, &["inspect j.1.prolog.0"]);
    }
    bed.check(inspected(id, seen_running(&intent("j", 1, "prolog", 0), 1)), &[]);
    bed.check(task_changed(id), &["inspect j.1.prolog.0"]);
    bed.check(failed(), &[&format!("wake {}", at + 250)]);
}

#[test]
fn what_a_script_leaves_behind_holds_the_task_and_is_named() {
    let mut bed = Bed::up();
    let id = bed.claimed("j", 1, "prolog", 0);
    let over = seen_exited(&intent("j", 1, "prolog", 0), 1, 0);
    let lingering = |pids: &[u32]| inspected(id, Seen { processes: processes(pids), ..over.clone() });
    bed.checks([
        (task_changed(id), &["inspect j.1.prolog.0"]),
        // A process that was just forked still has its parent's name, so it is inspected once more.
        (lingering(&[7, 8]), &["watch-empty j.1.prolog.0", "moved j.1.prolog.0 lingering 2", "wake 250"]),
        (task_changed(id), &["inspect j.1.prolog.0"]),
        (
            lingering(&[8]),
            &[
                "info: the scripts of prolog of job j, attempt 1, rank 0 have ended; the task waits for the processes \
                 that they left behind: 8 (sleep)",
                "watch-empty j.1.prolog.0",
                "moved j.1.prolog.0 lingering 1",
            ],
        ),
        (task_changed(id), &["inspect j.1.prolog.0"]),
        (lingering(&[8]), &["watch-empty j.1.prolog.0"]),
        (task_changed(id), &["inspect j.1.prolog.0"]),
        (inspected(id, over.clone()), &["write-outcome j.1.prolog.0 ok"]),
    ]);
}

#[test]
fn lingering_processes_are_killed_by_plan_and_inspected_again() {
    let mut bed = Bed::up();
    let id = bed.claimed("j", 1, "sweep", 0);
    let over = seen_exited(&intent("j", 1, "sweep", 0), 1, 0);
    let lingering = |pids: &[u32]| inspected(id, Seen { processes: processes(pids), ..over.clone() });
    bed.checks([
        (task_changed(id), &["inspect j.1.sweep.0"]),
        (
            lingering(&[7]),
            &["kill-lingering j.1.sweep.0", "watch-empty j.1.sweep.0", "moved j.1.sweep.0 lingering 1", "wake 250"],
        ),
        (task_changed(id), &["inspect j.1.sweep.0"]),
        // A process that does not die is held, not killed again; a new one is killed.
        (lingering(&[7]), &["watch-empty j.1.sweep.0"]),
        (task_changed(id), &["inspect j.1.sweep.0"]),
        (
            lingering(&[7, 9]),
            &["kill-lingering j.1.sweep.0", "watch-empty j.1.sweep.0", "moved j.1.sweep.0 lingering 2"],
        ),
        (task_changed(id), &["inspect j.1.sweep.0"]),
        (inspected(id, over.clone()), &["write-outcome j.1.sweep.0 ok"]),
    ]);
    let effects = bed.feed(outcome_written(id));
    let [_, crate::agent::Effect::Send(crate::message::FromAgent::Finished { ended, .. })] = &effects[..] else {
        unreachable!()
    };
    assert_eq!(ended.lingering, processes(&[7, 9]));
}

/// Regression test: `perilog kill -s KILL` reported "sent" and reached no process, because a task with lingering
/// processes has no runner.
#[test]
fn what_lingers_is_killed_when_an_operator_says_so() {
    let mut bed = Bed::up();
    let id = bed.claimed("j", 1, "prolog", 0);
    let over = seen_exited(&intent("j", 1, "prolog", 0), 1, 0);
    let lingering = inspected(id, Seen { processes: processes(&[7]), ..over.clone() });
    let signal = |signal: u8| message(ToAgent::Signal { task: id, signal });
    bed.checks([
        (task_changed(id), &["inspect j.1.prolog.0"]),
        (lingering, &["watch-empty j.1.prolog.0", "moved j.1.prolog.0 lingering 1", "wake 250"]),
        (signal(9), &["kill-lingering j.1.prolog.0"]),
        (signal(9), &["kill-lingering j.1.prolog.0"]),
        (task_changed(id), &["inspect j.1.prolog.0"]),
    ]);
    let effects = bed.check(inspected(id, over), &["write-outcome j.1.prolog.0 ok"]);
    let [crate::agent::Effect::WriteOutcome { ended, .. }] = &effects[..] else { unreachable!() };
    assert_eq!(ended.lingering, processes(&[7]));
}

/// Regression test: while the bus was lost, `perilog kill -s KILL` reported "sent" and reached no process.
#[test]
fn what_lingers_is_killed_once_the_bus_is_back() {
    let mut bed = Bed::up();
    let id = bed.claimed("j", 1, "prolog", 0);
    let over = seen_exited(&intent("j", 1, "prolog", 0), 1, 0);
    let lingering = || inspected(id, Seen { processes: processes(&[7]), ..over.clone() });
    bed.check(task_changed(id), &["inspect j.1.prolog.0"]);
    bed.feed(lingering());
    bed.checks([
        (Input::BusLost, &[]),
        (message(ToAgent::Signal { task: id, signal: 9 }), &[]),
        (joined(vec![], vec![]), &["watch j.1.prolog.0"]),
        (task_changed(id), &["inspect j.1.prolog.0"]),
        (
            lingering(),
            &[
                "info: the scripts of prolog of job j, attempt 1, rank 0 have ended; the task waits for the processes \
                 that they left behind: 7 (sleep)",
                "watch-empty j.1.prolog.0",
                "kill-lingering j.1.prolog.0",
            ],
        ),
    ]);
}

#[test]
fn what_is_meant_to_stay_is_recorded_and_does_not_hold() {
    let mut bed = Bed::up();
    let id = bed.claimed("j", 1, "mount", 0);
    bed.check(task_changed(id), &["inspect j.1.mount.0"]);
    let over = Seen { processes: processes(&[7]), ..seen_exited(&intent("j", 1, "mount", 0), 1, 0) };
    let effects = bed.check(inspected(id, over), &["write-outcome j.1.mount.0 ok"]);
    let [crate::agent::Effect::WriteOutcome { ended, .. }] = &effects[..] else { unreachable!() };
    assert_eq!(ended.lingering, processes(&[7]));
}

#[test]
fn phases_and_milestones_are_reported_once_per_change() {
    let mut bed = Bed::up();
    let id = bed.claimed("j", 1, "prolog", 0);
    let with = |steps: Vec<StepRecord>| inspected(id, Seen { steps, ..seen_running(&intent("j", 1, "prolog", 0), 1) });
    let overdue = StepRecord::Overdue {
        seq: 0,
        script: "a".to_owned(),
        at_ms: 0,
        limit_ms: 50,
        forensics: String::new(),
        doing: "7 D mount".to_owned(),
    };
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
    let mut reported = |new: Vec<StepRecord>, expect: &[&str]| {
        steps.extend(new);
        bed.check(task_changed(id), &["inspect j.1.prolog.0"]);
        bed.check(with(steps.clone()), expect);
        bed.check(task_changed(id), &["inspect j.1.prolog.0"]);
        bed.check(with(steps.clone()), &[]);
    };
    reported(vec![begin_step(0, "a", 2)], &["moved j.1.prolog.0 running a 1/2"]);
    reported(vec![progress], &["moved j.1.prolog.0 running a 1/2: half"]);
    reported(vec![milestone], &["milestone j.1.prolog.0 data-out"]);
    reported(vec![overdue], &["moved j.1.prolog.0 overdue a 50 7 D mount"]);
    reported(vec![end], &["moved j.1.prolog.0 running a 1/2: half"]);
    reported(vec![begin_step(1, "b", 2)], &["moved j.1.prolog.0 running b 2/2"]);
}
