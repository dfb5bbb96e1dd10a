use super::bed::Bed;
use super::values::*;
use crate::agent::io::{Effect, Found, Input, Seen};
use crate::ids::BootId;
use crate::message::{FromAgent, HeldState};
use crate::outcome::Outcome;
use crate::task::{Claim, Ended, Intent, Lingering, NO_CLAIM, NO_TASK, NOT_OURS};

fn ended(outcome: Outcome) -> Option<Ended> {
    Some(Ended::bare(outcome, 5))
}

fn failed() -> Outcome {
    Outcome::Failed { why: crate::outcome::Failure::Exit(3) }
}

/// Starts a machine whose host has the traces `found`, and asserts that the first `Joined` has the effects `expect`.
#[track_caller]
fn come_up(found: Vec<Found>, expect: &[&str]) -> Bed {
    let mut bed = Bed::cold();
    bed.check(joined(found, vec![]), expect);
    bed
}

/// Returns the findings for a unit that has perilog's ids, but whose directory is gone.
fn without_directory(intent: &Intent, seen: Seen) -> Found {
    Found { intent: None, ..found(intent, seen) }
}

#[test]
fn a_written_outcome_unloads_and_reports_until_acknowledged() {
    let intent = intent("j", 1, "prolog", 0);
    for (seen, unload) in
        [(seen_exited(&intent, 1, 0), true), (Seen { claim: Some(claim(1)), ..Seen::default() }, false)]
    {
        let found = Found { ended: ended(Outcome::Ok), ..found(&intent, seen) };
        let expect: &[&str] = if unload { &["unload j.1.prolog.0"] } else { &[] };
        let mut bed = come_up(vec![found], expect);
        bed.connect(&["hello 1 [j.1.prolog.0 ended]"], &["redial 1000", "finished j.1.prolog.0 ok"]);
        bed.check(ack(intent.start.task), &["write-tombstone j.1.prolog.0 ok"]);
    }
}

#[test]
fn an_outcome_of_a_local_task_gets_its_tombstone_at_once() {
    let intent = local_intent("j", 1, "prolog", 0);
    let found = Found { ended: ended(Outcome::Ok), ..found(&intent, seen_nothing()) };
    come_up(vec![found], &["write-tombstone local:j.1.prolog.0 ok"]);
}

#[test]
fn a_job_that_is_pending_is_waited_for() {
    let intent = intent("j", 1, "prolog", 0);
    let pending = Seen { claim: None, ..seen_running(&intent, 1) };
    let mut bed = come_up(vec![found(&intent, pending)], &["watch j.1.prolog.0"]);
    bed.connect(&["hello 1 [j.1.prolog.0 live starting]"], &["redial 1000"]);
    bed.check(task_changed(intent.start.task), &["inspect j.1.prolog.0"]);
    bed.check(inspected(intent.start.task, seen_exited(&intent, 1, 0)), &["write-outcome j.1.prolog.0 ok"]);
}

#[test]
fn a_running_unit_is_adopted_and_read_once_more() {
    let intent = intent("j", 1, "prolog", 0);
    let mut seen = seen_running(&intent, 1);
    seen.steps = vec![begin_step(0, "a", 1)];
    let mut bed = come_up(vec![found(&intent, seen)], &["watch j.1.prolog.0"]);
    bed.connect(&["hello 1 [j.1.prolog.0 live running a 1/1]"], &["redial 1000"]);
    bed.check(task_changed(intent.start.task), &["inspect j.1.prolog.0"]);
    bed.check(
        inspected(intent.start.task, seen_exited(&intent, 1, 3)),
        &["write-outcome j.1.prolog.0 failed (exit 3)"],
    );
}

#[test]
fn a_unit_that_is_over_is_collected_once_nothing_lingers() {
    let intent = intent("j", 1, "prolog", 0);
    for (code, outcome) in [(0, "ok"), (3, "failed (exit 3)")] {
        come_up(
            vec![found(&intent, seen_exited(&intent, 1, code))],
            &[&format!("write-outcome j.1.prolog.0 {outcome}")],
        );
    }
    let lingers = Seen { processes: processes(&[7]), ..seen_exited(&intent, 1, 0) };
    let mut bed = come_up(vec![found(&intent, lingers)], &["watch-empty j.1.prolog.0", "wake 250"]);
    bed.connect(&["hello 1 [j.1.prolog.0 live lingering 1]"], &["redial 1000"]);
}

#[test]
fn a_claim_without_a_unit_needs_a_complete_result() {
    let intent = intent("j", 1, "prolog", 0);
    let gone = Seen { claim: Some(claim(1)), ..Seen::default() };
    let lost = "lost (its unit vanished without a result)";
    for (seen, expect) in [
        (Seen { result: Some(result(1, 0)), ..gone.clone() }, "ok"),
        (Seen { result: Some(result(9, 0)), ..gone.clone() }, lost),
        (gone, lost),
    ] {
        // The machine inspects again, because the daemon did not read claim and unit at the same time.
        let mut bed = come_up(vec![found(&intent, seen.clone())], &["inspect j.1.prolog.0"]);
        bed.check(inspected(intent.start.task, seen), &[&format!("write-outcome j.1.prolog.0 {expect}")]);
    }
}

#[test]
fn what_nobody_claimed_begins_only_with_a_message_of_this_session() {
    let intent = intent("j", 1, "prolog", 0);
    let id = intent.start.task;
    let unclaimed = || found(&intent, seen_nothing());
    let hello: &[&str] = &["hello 1 [j.1.prolog.0 unclaimed]"];
    for (word, expect) in [
        (begin(id), &["start-unit j.1.prolog.0"][..]),
        (start_message("j", 1, "prolog", 0), &["accepted j.1.prolog.0", "start-unit j.1.prolog.0"]),
        (cancel("j", 1, "prolog", 0), &["take-claim j.1.prolog.0 cancelled"]),
        (probe(), &["probed 5"]),
    ] {
        let mut bed = come_up(vec![unclaimed()], &["wake 10001"]);
        bed.check(task_changed(id), &[]);
        bed.connect(hello, &["redial 1000"]);
        bed.check(word, expect);
    }
}

fn probe() -> Input {
    message(crate::message::ToAgent::Probe { nonce: 5 })
}

#[test]
fn an_unclaimed_task_past_its_not_after_is_refused_and_claimed() {
    let intent = intent("j", 1, "prolog", 0);
    let mut bed = Bed::cold();
    bed.now.boot_ms = 10_001;
    let refused = "refused (the task did not begin in time: it was not requested again after a restart of the agent)";
    bed.check(joined(vec![found(&intent, seen_nothing())], vec![]), &[&format!("take-claim j.1.prolog.0 {refused}")]);
    bed.check(claim_taken(intent.start.task, true), &[&format!("write-outcome j.1.prolog.0 {refused}")]);
}

#[test]
fn a_task_of_another_boot_is_lost_by_the_reboot() {
    let mut of_before = intent("j", 1, "prolog", 0);
    of_before.start.boot = BootId::new("boot-0").unwrap();
    let id = of_before.start.task;
    let lost = "lost (the node rebooted)";
    let mut bed = come_up(vec![found(&of_before, seen_nothing())], &[&format!("take-claim j.1.prolog.0 {lost}")]);
    bed.check(claim_taken(id, true), &[&format!("write-outcome j.1.prolog.0 {lost}")]);
    let claimed = Seen { claim: Some(claim(1)), ..Seen::default() };
    let mut bed = come_up(vec![found(&of_before, claimed.clone())], &["inspect j.1.prolog.0"]);
    bed.check(inspected(id, claimed), &[&format!("write-outcome j.1.prolog.0 {lost}")]);
}

#[test]
fn a_claim_of_the_agent_before_us_is_the_end_that_it_names() {
    let intent = intent("j", 1, "prolog", 0);
    for (claim, expect) in [
        (Claim::Cancelled, "cancelled"),
        (Claim::Withdrawn(Outcome::Refused { why: "late".to_owned() }), "refused (late)"),
    ] {
        let seen = Seen { claim: Some(claim), ..Seen::default() };
        let mut bed = come_up(vec![found(&intent, seen.clone())], &["inspect j.1.prolog.0"]);
        bed.check(inspected(intent.start.task, seen), &[&format!("write-outcome j.1.prolog.0 {expect}")]);
    }
}

#[test]
fn a_unit_with_our_ids_and_no_directory_is_rebuilt_and_adopted() {
    let intent = intent("j", 1, "sweep", 0);
    let id = intent.start.task;
    let mut bed = Bed::cold();
    let found = without_directory(&intent, Seen { claim: None, ..seen_running(&intent, 1) });
    let effects = bed.check(
        joined(vec![found], vec![]),
        &[
            "warning: the agent's record (intent) of perilog-task-sweep-j-0-*",
            "write-intent j.1.sweep.0",
            "take-claim j.1.sweep.0 for its runner",
        ],
    );
    let Effect::WriteIntent { intent: rebuilt, .. } = &effects[1] else { unreachable!() };
    assert_eq!((rebuilt.start.task, &rebuilt.start.job, rebuilt.local), (id, &intent.start.job, false));
    assert_eq!(rebuilt.plan.lingering, Lingering::Kill);
    assert_eq!(rebuilt.not_after_boottime_ms, 0, "a runner that is still to come must not claim");
    bed.check(intent_written(id), &[]);
    bed.check(claim_taken(id, true), &["inspect j.1.sweep.0"]);
    bed.check(inspected(id, seen_running(&intent, 1)), &["watch j.1.sweep.0"]);
    bed.check(task_changed(id), &["inspect j.1.sweep.0"]);
    // The removed directory held the result: the outcome is then never a success.
    let over = Seen { result: None, ..seen_exited(&intent, 1, 0) };
    bed.check(inspected(id, over), &["write-outcome j.1.sweep.0 failed (its runner ended with exit 0 and no result)"]);
}

/// Regression test: systemd handled a start after the tombstone of its task was removed, and a failed unit stayed
/// loaded. The next agent made a task of the unit, although the task had ended hours before.
#[test]
fn a_unit_whose_runner_had_no_task_is_only_unloaded() {
    let intent = intent("j", 1, "prolog", 0);
    let exited = |code| without_directory(&intent, Seen { claim: None, result: None, ..seen_exited(&intent, 1, code) });
    let late = || exited(NO_TASK);
    // A runner may also have found the task claimed: a start delivered twice left that unit loaded when the tombstone
    // was written. Or /run was full when the unit started, and had room again when the task was withdrawn (found by the
    // simulator).
    for unit in [late(), exited(NOT_OURS), exited(NO_CLAIM)] {
        let mut bed = Bed::cold();
        bed.check(joined(vec![unit], vec![]), &["warning: perilog-task-prolog-j-0-*", "unload j.1.prolog.0"]);
        bed.connect(&["hello 1 []"], &["redial 1000"]);
    }
    // Units with live processes, and units that ran a script, count fully.
    let ran = without_directory(&intent, Seen { claim: None, result: None, ..seen_exited(&intent, 1, 3) });
    for kept in [Found { processes: processes(&[7]), ..late() }, ran] {
        let effects = Bed::cold().feed(joined(vec![kept], vec![]));
        assert!(effects.iter().any(|effect| matches!(effect, Effect::WriteIntent { .. })), "{effects:?}");
    }
}

#[test]
fn a_rebuilt_task_of_an_unconfigured_action_is_held() {
    let intent = local_intent("j", 1, "nothing", 0);
    let mut bed = Bed::cold();
    let effects = bed.feed(joined(vec![without_directory(&intent, seen_running(&intent, 1))], vec![]));
    let Effect::WriteIntent { intent: rebuilt, .. } = &effects[1] else { unreachable!() };
    assert_eq!((rebuilt.plan.lingering, rebuilt.local), (Lingering::Hold, true));
    let text = Input::IntentWritten { task: intent.start.task, result: Err("full".to_owned()) };
    bed.check(text, &["error: cannot write the rebuilt record (intent) of nothing of job j, attempt 1, rank 0: full"]);
}

#[test]
fn an_orphan_is_reported_once_and_nothing_is_done_to_it() {
    let intent = intent("j", 1, "prolog", 0);
    let orphan = || Found { unit_ids: None, ..without_directory(&intent, seen_running(&intent, 1)) };
    let reported = "warning: perilog-task-prolog-j-0-*";
    let mut bed = come_up(vec![orphan()], &[reported]);
    bed.check(joined(vec![orphan()], vec![]), &[]);
    bed.check(joined(vec![], vec![]), &[]);
    bed.check(joined(vec![orphan()], vec![]), &[reported]);
}

#[test]
fn a_directory_without_an_intent_is_reported_and_harmless() {
    let intent = intent("j", 1, "prolog", 0);
    let empty = || Found { intent: None, unit_ids: None, ..found(&intent, seen_nothing()) };
    let mut bed = come_up(vec![empty()], &["warning: the task directory perilog-task-prolog-j-0-*"]);
    bed.check(joined(vec![empty()], vec![]), &[]);
    bed.connect(&["hello 1 []"], &["redial 1000"]);
    bed.check(start_message("j", 1, "prolog", 0), &["write-intent j.1.prolog.0"]);
}

#[test]
fn an_intent_whose_unit_is_anothers_is_refused() {
    let (mine, other) = (intent("j", 1, "prolog", 0), intent("j", 2, "prolog", 0));
    let seen = Seen { claim: None, unit_ids: Some(unit_ids(&other)), ..seen_running(&mine, 1) };
    come_up(
        vec![found(&mine, seen)],
        &["take-claim j.1.prolog.0 refused (another unit or directory on this host has the name*"],
    );
}

#[test]
fn tombstones_answer_for_their_tasks_and_are_shown() {
    let intent = intent("j", 1, "prolog", 0);
    let mut bed = Bed::cold();
    bed.check(joined(vec![], vec![tombstone(&intent, failed())]), &[]);
    bed.connect(&["hello 1 [j.1.prolog.0 tombstone failed (exit 3)]"], &["redial 1000"]);
    bed.check(start_message("j", 1, "prolog", 0), &["finished j.1.prolog.0 failed (exit 3)"]);
    bed.now.boot_ms = 10_000;
    bed.check(forget(intent.start.task), &["remove-tombstone j.1.prolog.0"]);
}

#[test]
fn failed_units_are_kept_over_a_restart_and_are_no_tasks() {
    let names = [("j", 1), ("j", 2), ("k", 1), ("k", 2)];
    let mut tombstones = Vec::new();
    let mut units = Vec::new();
    for (i, (j, attempt)) in names.into_iter().enumerate() {
        let mut intent = intent(j, attempt, "prolog", 0);
        intent.not_after_boottime_ms = [30, 20, 10, 40][i];
        let code = if i == 3 { 0 } else { 3 };
        tombstones.push(tombstone(&intent, if code == 0 { Outcome::Ok } else { failed() }));
        units.push(without_directory(&intent, seen_exited(&intent, 1, code)));
    }
    let strangers = Found { unit_ids: None, claim: None, ..units[0].clone() };
    // A kept unit that an operator reset manually makes room, also if another program's unit has the same name.
    for left in [vec![units[1].clone()], vec![strangers, units[1].clone()]] {
        let mut bed = Bed::cold();
        // The oldest of three failed units is one too many; the unit that did not fail has no reason to stay.
        bed.check(joined(units.clone(), tombstones.clone()), &["unload k.1.prolog.0", "unload k.2.prolog.0"]);
        // On a second join the machine still keeps two units.
        bed.check(joined(units[..2].to_vec(), vec![]), &[]);
        bed.check(joined(left, vec![]), &[]);
        bed.connect_any();
        bed.ended("l", 1, "prolog", 3, &["finished l.1.prolog.0 failed (exit 3)"]);
    }
}

#[test]
fn what_is_unloaded_without_a_bus_is_unloaded_when_it_is_back() {
    let mut bed = Bed::up();
    let id = bed.claimed("j", 1, "prolog", 0);
    let intent = intent("j", 1, "prolog", 0);
    bed.check(task_changed(id), &["inspect j.1.prolog.0"]);
    bed.check(inspected(id, seen_exited(&intent, 1, 0)), &["write-outcome j.1.prolog.0 ok"]);
    bed.check(Input::BusLost, &[]);
    bed.check(outcome_written(id), &["finished j.1.prolog.0 ok"]);
    bed.check(joined(vec![found(&intent, seen_exited(&intent, 1, 0))], vec![]), &["unload j.1.prolog.0"]);
}

#[test]
fn a_change_during_a_scan_is_newer_than_the_scan() {
    let mut bed = Bed::up();
    let id = bed.claimed("j", 1, "prolog", 0);
    let intent = intent("j", 1, "prolog", 0);
    // systemd was re-executed; the findings show an earlier state of the directory.
    let stale = || found(&intent, Seen { claim: None, ..seen_exited(&intent, 1, 0) });
    bed.check(joined(vec![stale()], vec![]), &["watch j.1.prolog.0"]);
    bed.check(task_changed(id), &["inspect j.1.prolog.0"]);
    bed.check(inspected(id, seen_exited(&intent, 1, 0)), &["write-outcome j.1.prolog.0 ok"]);
    bed.check(outcome_written(id), &["unload j.1.prolog.0", "finished j.1.prolog.0 ok"]);
    bed.check(ack(id), &["write-tombstone j.1.prolog.0 ok"]);
    bed.check(tombstone_written(id), &[]);
    // The task has its tombstone: the findings are no task, only a unit to unload.
    bed.check(joined(vec![stale()], vec![]), &["unload j.1.prolog.0"]);
    bed.check(joined(vec![found(&intent, seen_nothing())], vec![]), &[]);
}

#[test]
fn a_start_of_the_agent_before_us_that_came_late_is_noticed() {
    let intent = intent("j", 1, "prolog", 0);
    let id = intent.start.task;
    let mut bed = come_up(vec![found(&intent, seen_nothing())], &["wake 10001"]);
    let late = found(&intent, seen_running(&intent, 1));
    bed.check(joined(vec![late], vec![]), &["inspect j.1.prolog.0"]);
    bed.check(inspected(id, seen_running(&intent, 1)), &["watch j.1.prolog.0"]);
    // A unit that disappeared without a claim changes nothing: no controller wants the task yet.
    let mut bed = come_up(vec![found(&intent, seen_nothing())], &["wake 10001"]);
    let late = found(&intent, Seen { claim: None, ..seen_running(&intent, 1) });
    bed.check(joined(vec![late], vec![]), &["inspect j.1.prolog.0"]);
    bed.check(inspected(id, seen_nothing()), &[]);
    let effects = bed.feed(Input::LinkUp { counter: 1 });
    let [Effect::Send(FromAgent::Hello(hello))] = &effects[..] else { unreachable!() };
    assert_eq!(hello.tasks[0].state, HeldState::Unclaimed);
}

#[test]
fn the_queue_after_a_restart_is_in_the_order_of_acceptance() {
    let mut later = intent("j", 1, "epilog", 0);
    later.accepted_boottime_ms = 7;
    let earlier = intent("j", 1, "prolog", 0);
    let mut bed = Bed::cold();
    bed.feed(joined(vec![found(&later, seen_nothing()), found(&earlier, seen_nothing())], vec![]));
    bed.connect_any();
    let waits = "moved j.1.epilog.0 waiting for prolog of job j, attempt 1, rank 0";
    bed.check(begin(later.start.task), &[waits]);
    bed.check(begin(earlier.start.task), &["start-unit j.1.prolog.0"]);
    let mut bed = Bed::cold();
    bed.feed(joined(vec![found(&later, seen_nothing()), found(&earlier, seen_nothing())], vec![]));
    bed.feed(Input::BusLost);
    bed.connect_any();
    bed.check(begin(later.start.task), &[waits]);
    bed.check(begin(earlier.start.task), &["moved j.1.prolog.0 waiting for the system bus"]);
}

#[test]
fn requests_before_a_reexec_of_systemd_are_repeated() {
    let mut bed = Bed::up();
    let inspected_task = bed.claimed("j", 1, "prolog", 0);
    let starting = task("k", 1, "prolog", 0);
    bed.check(task_changed(inspected_task), &["inspect j.1.prolog.0"]);
    bed.feed(start_message("k", 1, "prolog", 0));
    bed.check(intent_written(starting), &["accepted k.1.prolog.0", "start-unit k.1.prolog.0"]);
    bed.checks([
        (joined(vec![], vec![]), &["watch j.1.prolog.0", "inspect k.1.prolog.0"]),
        (task_changed(inspected_task), &["inspect j.1.prolog.0"]),
        (inspected(starting, seen_running(&intent("k", 1, "prolog", 0), 2)), &["watch k.1.prolog.0"]),
    ]);
}

#[test]
fn an_outcome_on_disk_is_kept_though_its_intent_is_gone() {
    let intent = intent("j", 1, "prolog", 0);
    let found = Found { ended: ended(failed()), ..without_directory(&intent, seen_exited(&intent, 1, 0)) };
    let mut bed = Bed::cold();
    bed.check(
        joined(vec![found], vec![]),
        &[
            "warning: the agent's record (intent) of perilog-task-prolog-j-0-*",
            "write-intent j.1.prolog.0",
            "unload j.1.prolog.0",
        ],
    );
    bed.connect(&["hello 1 [j.1.prolog.0 ended]"], &["redial 1000", "finished j.1.prolog.0 failed (exit 3)"]);
    // A runner without a directory has the same effect: a repeated Start would find this outcome in the task's
    // directory.
    let unit = Seen { claim: None, result: None, ..seen_exited(&intent, 1, NO_TASK) };
    let found = Found { ended: ended(failed()), ..without_directory(&intent, unit) };
    let mut bed = Bed::cold();
    bed.check(
        joined(vec![found], vec![]),
        &["warning: the agent's record (intent) of perilog-task-prolog-j-0-*", "write-intent j.1.prolog.0"],
    );
    bed.connect(&["hello 1 [j.1.prolog.0 ended]"], &["redial 1000", "finished j.1.prolog.0 failed (exit 3)"]);
}

#[test]
fn a_tombstone_that_a_crash_cut_short_is_finished() {
    let intent = intent("j", 1, "prolog", 0);
    let directory = || Found { ended: ended(Outcome::Ok), ..found(&intent, seen_nothing()) };
    let mut bed = Bed::cold();
    bed.check(joined(vec![directory()], vec![tombstone(&intent, Outcome::Ok)]), &["write-tombstone j.1.prolog.0 ok"]);
    bed.check(tombstone_written(intent.start.task), &[]);
    bed.connect(&["hello 1 [j.1.prolog.0 tombstone ok]"], &["redial 1000"]);
}

/// Regression test: another program's unit had the name of a task, and the agent refused the task for that
/// reason. A restarted agent then stopped that unit.
#[test]
fn a_foreign_unit_of_an_ended_tasks_name_is_left_alone() {
    let (intent, other) = (intent("j", 1, "prolog", 0), intent("j", 2, "prolog", 0));
    let refused = || Outcome::Refused { why: "another unit or directory on this host has the name".to_owned() };
    let of_nobody = Seen { unit_ids: None, claim: None, ..seen_running(&intent, 2) };
    let of_another = Seen { unit_ids: Some(unit_ids(&other)), ..of_nobody.clone() };
    for seen in [of_nobody, of_another, Seen { unit_ids: None, claim: Some(claim(1)), ..seen_running(&intent, 2) }] {
        // The task has ended; has its tombstone; and ended in the lifetime of the agent that finds it again.
        let directory = || Found { ended: ended(refused()), ..found(&intent, seen.clone()) };
        let mut bed = come_up(vec![directory()], &[]);
        bed.check(joined(vec![directory()], vec![]), &[]);
        let mut bed = Bed::cold();
        let unit = || Found { unit_ids: None, ..without_directory(&intent, seen.clone()) };
        bed.check(joined(vec![unit()], vec![tombstone(&intent, refused())]), &[]);
    }
}

/// Regression test: two tasks of one job, accepted in one millisecond, changed places in the queue when the agent
/// restarted. The second task began beside the first, whose start was in flight.
#[test]
fn tasks_accepted_in_one_millisecond_keep_their_order() {
    let mut bed = Bed::up();
    let accepted = |effects: Vec<Effect>| {
        let at = effects.iter().find_map(|effect| match effect {
            Effect::WriteIntent { intent, .. } => Some(intent.accepted_boottime_ms),
            _ => None,
        });
        at.unwrap()
    };
    let first = accepted(bed.feed(start_message("j", 1, "sweep", 0)));
    let second = accepted(bed.feed(start_message("j", 1, "epilog", 0)));
    assert!(first < second);
}
