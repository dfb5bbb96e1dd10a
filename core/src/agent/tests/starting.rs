use super::bed::Bed;
use super::values::*;
use crate::agent::io::{Input, Seen, StartReply};
use crate::ids::{self, TaskId};
use crate::task::{Claim, NO_TASK, NOT_OURS};

/// Makes a task whose start systemd has not answered yet.
pub(super) fn starting(bed: &mut Bed) -> TaskId {
    let id = task("j", 1, "prolog", 0);
    bed.check(start_message("j", 1, "prolog", 0), &["write-intent j.1.prolog.0"]);
    bed.check(intent_written(id), &["accepted j.1.prolog.0", "start-unit j.1.prolog.0"]);
    id
}

fn unknown() -> StartReply {
    StartReply::Unknown("timed out".to_owned())
}

#[test]
fn an_error_of_systemd_is_a_failure_after_the_claim() {
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
        // systemd reports no changes of a unit from another start, unless the daemon watches the unit.
        (inspected(id, seen_running(&intent, 1)), &["watch j.1.prolog.0"]),
        (task_changed(id), &["inspect j.1.prolog.0"]),
        (inspected(id, seen_exited(&intent, 1, 0)), &["write-outcome j.1.prolog.0 ok"]),
    ]);
}

#[test]
fn an_existing_unit_is_adopted_only_by_its_ids_or_claim() {
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
            bed.check(task_changed(id), &["inspect j.1.prolog.0"]);
            bed.check(inspected(id, seen_exited(&intent, 1, 0)), &["write-outcome j.1.prolog.0 ok"]);
            continue;
        }
        let refused = "refused (another unit or directory on this host has the name perilog-task-prolog-j-0-";
        bed.check(inspected(id, seen), &[&format!("take-claim j.1.prolog.0 {refused}*")]);
        bed.check(claim_taken(id, true), &[&format!("write-outcome j.1.prolog.0 {refused}*")]);
        // A foreign unit is not unloaded.
        bed.check(outcome_written(id), &[&format!("finished j.1.prolog.0 {refused}*")]);
    }
}

/// If systemd handles a start late, the unit may come up after its task is gone, and its runner then ends without a
/// task. If the same task is to start again, the agent first unloads that old unit.
#[test]
fn a_unit_that_found_no_task_goes_before_the_next_start() {
    let intent = intent("j", 1, "prolog", 0);
    let ghost = |code| Seen { claim: None, result: None, ..seen_exited(&intent, 1, code) };
    let mut bed = Bed::up();
    bed.unloads = false;
    let id = starting(&mut bed);
    let unloaded = Input::Unloaded { stem: ids::stem(&intent.start.action, &intent.start.job, id), result: Ok(()) };
    let waiting = "moved j.1.prolog.0 waiting for systemd to unload an earlier unit of the same name";
    bed.checks([
        (start_reply(id, StartReply::Exists), &["inspect j.1.prolog.0"]),
        (inspected(id, ghost(NO_TASK)), &["unload j.1.prolog.0", waiting, "wake 250"]),
    ]);
    // An unload during the next start would stop the next start's unit.
    bed.pass(250, &["wake 10001"]);
    bed.check(unloaded, &["moved j.1.prolog.0 starting", "start-unit j.1.prolog.0"]);
    // The agent gives up a task whose runner never finds the directory.
    bed.unloads = true;
    for _ in 0..4 {
        bed.feed(queued(id));
        bed.feed(task_changed(id));
        bed.feed(inspected(id, ghost(NOT_OURS)));
        bed.pass(250, &["moved j.1.prolog.0 starting", "start-unit j.1.prolog.0"]);
    }
    bed.feed(queued(id));
    bed.feed(task_changed(id));
    let refused = "refused (its runner stopped before it ran any script (exit 66): see journalctl -u \
                   'perilog-task-prolog-j-*' on that node)";
    bed.check(inspected(id, ghost(NO_TASK)), &[&format!("take-claim j.1.prolog.0 {refused}")]);
}

#[test]
fn a_foreign_unit_in_a_claimed_tasks_place_loses_it() {
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
fn an_unknown_start_is_inspected_and_adopted_if_it_happened() {
    let mut bed = Bed::up();
    let id = starting(&mut bed);
    bed.check(start_reply(id, unknown()), &["inspect j.1.prolog.0"]);
    bed.check(inspected(id, seen_running(&intent("j", 1, "prolog", 0), 1)), &["watch j.1.prolog.0"]);
}

#[test]
fn an_unanswered_start_is_repeated_without_harm() {
    let mut bed = Bed::up();
    let id = starting(&mut bed);
    let waiting = "moved j.1.prolog.0 waiting for the next try to start its unit (systemd did not answer the request \
                   to start its unit: timed out)";
    bed.check(start_reply(id, unknown()), &["inspect j.1.prolog.0"]);
    bed.check(inspected(id, seen_nothing()), &[waiting, "wake 250"]);
    bed.pass(250, &["moved j.1.prolog.0 starting", "start-unit j.1.prolog.0"]);
    // The first start succeeded after all.
    bed.check(start_reply(id, StartReply::Exists), &["inspect j.1.prolog.0"]);
    bed.check(inspected(id, seen_running(&intent("j", 1, "prolog", 0), 1)), &["watch j.1.prolog.0"]);
}

#[test]
fn a_late_start_is_noticed_while_the_next_one_waits() {
    let mut bed = Bed::up();
    let id = starting(&mut bed);
    bed.check(start_reply(id, unknown()), &["inspect j.1.prolog.0"]);
    bed.check(inspected(id, seen_nothing()), &["moved j.1.prolog.0 waiting*", "wake 250"]);
    bed.check(task_changed(id), &["inspect j.1.prolog.0"]);
    bed.check(inspected(id, seen_running(&intent("j", 1, "prolog", 0), 1)), &["watch j.1.prolog.0"]);
    bed.pass(250, &[]);
}

#[test]
fn a_start_that_never_happens_fails_and_is_claimed() {
    let mut bed = Bed::up();
    let id = starting(&mut bed);
    for pause in [250, 500, 1000, 2000, 4000] {
        bed.feed(start_reply(id, unknown()));
        bed.feed(inspected(id, seen_nothing()));
        bed.pass(pause, &["moved j.1.prolog.0 starting", "start-unit j.1.prolog.0"]);
    }
    let failed = "failed (systemd: systemd did not answer the request to start its unit: timed out)";
    bed.check(start_reply(id, unknown()), &["inspect j.1.prolog.0"]);
    bed.check(inspected(id, seen_nothing()), &[&format!("take-claim j.1.prolog.0 {failed}")]);
    bed.check(claim_taken(id, true), &[&format!("write-outcome j.1.prolog.0 {failed}")]);
}

#[test]
fn a_claim_without_a_unit_is_inspected_twice_before_its_loss() {
    let mut bed = Bed::up();
    let id = starting(&mut bed);
    // The unit started between the reads of the unit and of its files.
    let raced = Seen { claim: Some(claim(1)), ..Seen::default() };
    bed.check(start_reply(id, unknown()), &["inspect j.1.prolog.0"]);
    bed.check(inspected(id, raced), &["inspect j.1.prolog.0"]);
    bed.check(inspected(id, seen_running(&intent("j", 1, "prolog", 0), 1)), &["watch j.1.prolog.0"]);
}

#[test]
fn doubtful_units_are_inspected_when_the_bus_is_back() {
    let mut bed = Bed::up();
    let claimed = bed.claimed("j", 1, "prolog", 0);
    let starting = task("k", 1, "prolog", 0);
    bed.check(start_message("k", 1, "prolog", 0), &["write-intent k.1.prolog.0"]);
    bed.check(intent_written(starting), &["accepted k.1.prolog.0", "start-unit k.1.prolog.0"]);
    let waiting = task("l", 1, "prolog", 0);
    bed.checks([
        (Input::BusLost, &[]),
        (task_changed(claimed), &[]),
        (inspected(claimed, seen_nothing()), &[]),
        (start_reply(starting, unknown()), &[]),
        (start_message("l", 1, "prolog", 0), &["write-intent l.1.prolog.0"]),
        (intent_written(waiting), &["accepted l.1.prolog.0", "moved l.1.prolog.0 waiting for the system bus"]),
        (
            joined(vec![], vec![]),
            &["watch j.1.prolog.0", "inspect k.1.prolog.0", "moved l.1.prolog.0 starting", "start-unit l.1.prolog.0"],
        ),
        // The daemon watches the unit again, because the bus of its start is gone, and reads the unit once more.
        (inspected(starting, seen_running(&intent("k", 1, "prolog", 0), 2)), &["watch k.1.prolog.0"]),
        (task_changed(claimed), &["inspect j.1.prolog.0"]),
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
            &[
                "moved j.1.prolog.0 waiting for the next try to start its unit (the connection to the system bus was \
               lost while systemd started the task's unit)",
                "wake 250",
            ],
        ),
    ]);
    bed.pass(250, &["moved j.1.prolog.0 starting", "start-unit j.1.prolog.0"]);
}

#[test]
fn an_agents_claim_decides_the_end_of_a_late_unit() {
    let mut bed = Bed::up();
    let id = starting(&mut bed);
    let mut late = seen_running(&intent("j", 1, "prolog", 0), 1);
    late.claim = Some(Claim::Cancelled);
    let mut over = seen_exited(&intent("j", 1, "prolog", 0), 1, 75);
    (over.claim, over.result) = (Some(Claim::Cancelled), None);
    bed.checks([
        (start_reply(id, unknown()), &["inspect j.1.prolog.0"]),
        (inspected(id, late), &["watch j.1.prolog.0"]),
        (task_changed(id), &["inspect j.1.prolog.0"]),
        (inspected(id, over), &["write-outcome j.1.prolog.0 cancelled"]),
    ]);
}
