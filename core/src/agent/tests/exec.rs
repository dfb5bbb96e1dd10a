use super::bed::Bed;
use super::values::*;
use crate::agent::io::{Caller, Effect, Exec, Found, Input, Node};
use crate::ids::{BootId, TaskId};
use crate::outcome::{Failure, Loss, Outcome};
use crate::task::{Ended, Plan, Report};

fn call(caller: Caller, exec: Exec) -> Input {
    Input::Exec { caller, exec }
}

fn id() -> TaskId {
    local("j", 1, "prolog", 0)
}

/// Makes a machine that has no connection to a controller.
fn alone() -> Bed {
    let mut bed = Bed::cold();
    bed.check(joined(vec![], vec![]), &[]);
    bed
}

/// Makes a live task that caller 1 asked for.
fn begun(bed: &mut Bed) {
    bed.checks([
        (call(1, exec("j", 1, "prolog", 0)), &["write-intent local:j.1.prolog.0"]),
        (intent_written(id()), &["reply 1 started", "start-unit local:j.1.prolog.0"]),
        (queued(id()), &[]),
    ]);
}

#[test]
fn a_caller_follows_its_task_without_a_controller() {
    let mut bed = alone();
    begun(&mut bed);
    let mut running = seen_running(&local_intent("j", 1, "prolog", 0), 1);
    running.steps = vec![begin_step(0, "a", 1), report_step(Report::Milestone { name: "half".to_owned() })];
    bed.checks([
        (task_changed(id()), &["inspect local:j.1.prolog.0"]),
        (inspected(id(), running), &["reply 1 milestone half", "reply 1 running a 1/1"]),
        (task_changed(id()), &["inspect local:j.1.prolog.0"]),
        (
            inspected(id(), seen_exited(&local_intent("j", 1, "prolog", 0), 1, 3)),
            &["write-outcome local:j.1.prolog.0 failed (exit 3)"],
        ),
        // An end that a caller knows counts as acknowledged.
        (
            outcome_written(id()),
            &[
                "reply 1 ended failed (exit 3)",
                "write-tombstone local:j.1.prolog.0 failed (exit \
                                                                    3)",
            ],
        ),
        (call(2, exec("j", 1, "prolog", 0)), &["reply 2 attached", "reply 2 ended failed (exit 3)"]),
        (tombstone_written(id()), &[]),
        (call(3, exec("j", 1, "prolog", 0)), &["reply 3 ended before failed (exit 3)"]),
    ]);
}

/// The agent runs a local prolog again if a soft reboot has undone its work. The reboot keeps /run, and in it the
/// record that the prolog succeeded.
#[test]
fn what_a_boot_undid_is_done_again() {
    let (ok, failed) = (Outcome::Ok, Outcome::Failed { why: Failure::Exit(3) });
    let (lost, after) = (Outcome::Lost { why: Loss::Rebooted }, format!("{BOOT}+1"));
    for (action, outcome, boot, again) in [
        ("prolog", &ok, BOOT, false),
        ("prolog", &ok, &after, true),
        ("prolog", &lost, &after, true),
        ("prolog", &failed, &after, false),
        // An epilog's work outlives the boot.
        ("epilog", &ok, &after, false),
    ] {
        let intent = local_intent("j", 1, action, 0);
        let expect = match again {
            true => format!("write-intent local:j.1.{action}.0"),
            false => format!("reply 1 ended before {outcome}"),
        };
        let cold = || Bed::of(Node { boot: BootId::new(boot).unwrap(), ..node() });
        let mut bed = cold();
        bed.check(joined(vec![], vec![tombstone(&intent, outcome.clone())]), &[]);
        bed.check(call(1, exec("j", 1, action, 0)), &[&expect]);
        if boot == BOOT {
            continue;
        }
        // The task has no tombstone yet: a caller waits for that.
        let ended = Some(Ended::bare(outcome.clone(), 7));
        let mut bed = cold();
        bed.check(
            joined(vec![Found { ended, ..found(&intent, seen_nothing()) }], vec![]),
            &[&format!("write-tombstone local:j.1.{action}.0 {outcome}")],
        );
        bed.check(call(1, exec("j", 1, action, 0)), &[]);
        bed.check(tombstone_written(intent.start.task), &[&expect]);
    }
}

#[test]
fn a_second_caller_attaches_at_whatever_point_it_comes() {
    let mut bed = alone();
    bed.checks([
        (call(1, exec("j", 1, "prolog", 0)), &["write-intent local:j.1.prolog.0"]),
        (call(2, exec("j", 1, "prolog", 0)), &[]),
        (intent_written(id()), &["reply 1 started", "reply 2 attached", "start-unit local:j.1.prolog.0"]),
        (call(3, exec("j", 1, "prolog", 0)), &["reply 3 attached", "reply 3 starting"]),
        (queued(id()), &[]),
        (Input::Hangup { caller: 1 }, &[]),
        (task_changed(id()), &["inspect local:j.1.prolog.0"]),
        (
            inspected(id(), seen_exited(&local_intent("j", 1, "prolog", 0), 1, 0)),
            &["write-outcome local:j.1.prolog.0 ok"],
        ),
        (
            outcome_written(id()),
            &[
                "unload local:j.1.prolog.0",
                "reply 2 ended ok",
                "reply 3 ended ok",
                "write-tombstone local:j.1.prolog.0 \
                                                                                    ok",
            ],
        ),
    ]);
}

#[test]
fn a_task_goes_on_when_all_its_callers_have_gone() {
    let mut bed = alone();
    begun(&mut bed);
    bed.checks([
        (Input::Hangup { caller: 1 }, &[]),
        (task_changed(id()), &["inspect local:j.1.prolog.0"]),
        (
            inspected(id(), seen_exited(&local_intent("j", 1, "prolog", 0), 1, 0)),
            &["write-outcome local:j.1.prolog.0 ok"],
        ),
        (outcome_written(id()), &["unload local:j.1.prolog.0", "write-tombstone local:j.1.prolog.0 ok"]),
    ]);
}

#[test]
fn an_attempt_older_than_a_known_one_is_refused() {
    let mut bed = alone();
    begun(&mut bed);
    let older = "is refused: this host has already seen the newer attempt 1";
    let refused = format!("reply 2 refused: attempt 0 of prolog of job j {older}");
    let ask = |a: &str, rank| call(2, exec("j", 0, a, rank));
    bed.check(ask("prolog", 0), &[&refused]);
    bed.check(ask("prolog", 1), &[&refused]);
    bed.check(ask("epilog", 0), &["write-intent local:j.0.epilog.0"]);
    bed.check(call(3, exec("k", 0, "prolog", 0)), &["write-intent local:k.0.prolog.0"]);
    // A newer attempt waits for the older attempt, on the host.
    bed.check(call(4, exec("j", 2, "prolog", 0)), &["write-intent local:j.2.prolog.0"]);
    bed.check(call(5, exec("j", 1, "prolog", 0)), &["reply 5 attached", "reply 5 starting"]);
    // The tombstone of the newer attempt alone is enough.
    let mut bed = alone();
    begun(&mut bed);
    bed.feed(task_changed(id()));
    bed.feed(inspected(id(), seen_exited(&local_intent("j", 1, "prolog", 0), 1, 0)));
    bed.feed(outcome_written(id()));
    bed.feed(tombstone_written(id()));
    bed.check(ask("prolog", 0), &[&refused]);
}

#[test]
fn what_cannot_be_taken_on_is_refused_to_its_callers() {
    let mut bed = alone();
    bed.check(
        call(1, exec("j", 1, "nothing", 0)),
        &["reply 1 refused: action nothing is not configured on this node*"],
    );
    bed.check(call(1, exec("j", 1, "prolog", 0)), &["write-intent local:j.1.prolog.0"]);
    bed.check(call(2, exec("j", 1, "prolog", 0)), &[]);
    let full = Input::IntentWritten { task: id(), result: Err("full".to_owned()) };
    let refused = "refused: this host cannot record the task: full";
    bed.check(full, &[&format!("reply 1 {refused}"), &format!("reply 2 {refused}")]);
    bed.check(call(1, exec("j", 1, "prolog", 0)), &["write-intent local:j.1.prolog.0"]);
}

#[test]
fn a_plan_of_the_callers_replaces_the_configured_one() {
    let mut bed = alone();
    let own = Plan { user: "tester".to_owned(), timeout_ms: Some(9), ..plan() };
    let mut try_it = exec("j", 1, "nothing", 0);
    (try_it.plan, try_it.timeout_ms) = (Some(own), Some(5));
    let effects = bed.check(call(1, try_it), &["write-intent local:j.1.nothing.0"]);
    let [Effect::WriteIntent { intent, .. }] = &effects[..] else { unreachable!() };
    assert_eq!((intent.plan.user.as_str(), intent.plan.timeout_ms, intent.local), ("tester", Some(5), true));
    assert_eq!((intent.start.ranks.to_string(), intent.start.hosts.to_string()), ("0".to_owned(), "n0".to_owned()));
}

#[test]
fn callers_that_come_before_everything_was_found_wait_for_it() {
    let mut bed = Bed::cold();
    for caller in 0..64 {
        bed.check(call(caller, exec("j", 1, "prolog", 0)), &[]);
    }
    bed.check(call(64, exec("j", 1, "prolog", 0)), &["reply 64 refused: the agent cannot take this task yet*"]);
    for caller in 1..64 {
        bed.check(Input::Hangup { caller }, &[]);
    }
    bed.check(joined(vec![], vec![]), &["write-intent local:j.1.prolog.0"]);
    bed.check(intent_written(id()), &["reply 0 started", "start-unit local:j.1.prolog.0"]);
}

#[test]
fn the_callers_of_one_task_are_not_without_number() {
    let mut bed = alone();
    bed.feed(call(0, exec("j", 1, "prolog", 0)));
    for caller in 1..64 {
        bed.check(call(caller, exec("j", 1, "prolog", 0)), &[]);
    }
    bed.check(call(64, exec("j", 1, "prolog", 0)), &["reply 64 refused: 64 callers wait for this task"]);
}

#[test]
fn an_unclaimed_task_begins_after_a_restart_for_its_caller() {
    let mut bed = Bed::cold();
    bed.check(joined(vec![found(&local_intent("j", 1, "prolog", 0), seen_nothing())], vec![]), &["wake 10001"]);
    bed.check(call(1, exec("j", 1, "prolog", 0)), &["reply 1 attached", "start-unit local:j.1.prolog.0"]);
}

#[test]
fn an_unclaimed_task_without_a_caller_is_given_up_on_restart() {
    let mut bed = Bed::cold();
    bed.check(joined(vec![found(&local_intent("j", 1, "prolog", 0), seen_nothing())], vec![]), &["wake 10001"]);
    let refused = "refused (the task did not begin in time: it was not requested again after a restart of the agent)";
    bed.pass(10_001, &[&format!("take-claim local:j.1.prolog.0 {refused}")]);
    bed.check(claim_taken(id(), true), &[&format!("write-outcome local:j.1.prolog.0 {refused}")]);
    bed.check(outcome_written(id()), &["write-tombstone local:j.1.prolog.0 refused*"]);
}

#[test]
fn a_local_cancel_stops_a_task_of_the_hosts_own_and_no_other() {
    let stop = |caller, task| Input::CancelLocal { caller, task };
    let mut bed = Bed::up();
    bed.live("k", 1, "prolog", 0);
    bed.check(
        stop(9, task("k", 1, "prolog", 0)),
        &["reply 9 refused: the controller began this task; to cancel it, run on the controller's host: `perilog \
           cancel k prolog --attempt 1 --ranks 0`"],
    );
    bed.check(stop(9, id()), &["reply 9 refused: there is no such task on this host"]);
    begun(&mut bed);
    bed.check(stop(9, id()), &["reply 9 cancelling", "take-claim local:j.1.prolog.0 cancelled"]);
    bed.check(claim_taken(id(), false), &["inspect local:j.1.prolog.0"]);
    let running = seen_running(&local_intent("j", 1, "prolog", 0), 1);
    bed.check(inspected(id(), running), &["signal local:j.1.prolog.0 15"]);
    bed.feed(task_changed(id()));
    bed.feed(inspected(id(), seen_exited(&local_intent("j", 1, "prolog", 0), 1, 0)));
    bed.check(stop(9, id()), &["reply 9 ended before ok"]);
    bed.check(
        outcome_written(id()),
        &[
            "unload local:j.1.prolog.0",
            "reply 1 ended ok",
            "write-tombstone \
                                                                                         local:j.1.prolog.0 ok",
        ],
    );
    bed.check(tombstone_written(id()), &[]);
    bed.check(stop(9, id()), &["reply 9 ended before ok"]);
}

#[test]
fn the_controller_only_sees_the_hosts_own_tasks() {
    let mut bed = alone();
    begun(&mut bed);
    bed.connect(&["hello 1 [local:j.1.prolog.0 live starting]"], &["redial 1000"]);
    let mut running = seen_running(&local_intent("j", 1, "prolog", 0), 1);
    running.steps = vec![begin_step(0, "a", 1), report_step(Report::Milestone { name: "half".to_owned() })];
    bed.check(task_changed(id()), &["inspect local:j.1.prolog.0"]);
    bed.check(inspected(id(), running), &["reply 1 milestone half", "reply 1 running a 1/1"]);
    bed.check(task_changed(id()), &["inspect local:j.1.prolog.0"]);
    bed.check(
        inspected(id(), seen_exited(&local_intent("j", 1, "prolog", 0), 1, 0)),
        &["write-outcome local:j.1.prolog.0 ok"],
    );
    bed.reconnect("hello 2 [local:j.1.prolog.0 live running a 1/1]", &["redial 1000"]);
    bed.check(
        outcome_written(id()),
        &[
            "unload local:j.1.prolog.0",
            "reply 1 ended ok",
            "write-tombstone \
                                                                                         local:j.1.prolog.0 ok",
        ],
    );
    bed.check(tombstone_written(id()), &[]);
    bed.reconnect("hello 2 [local:j.1.prolog.0 tombstone ok]", &["redial 1000"]);
}

#[test]
fn only_tombstones_of_the_hosts_own_tasks_make_room() {
    let mut node = node();
    node.policy.max_tombstones = 6;
    let mut bed = Bed::up_as(node);
    bed.tombstone_written("k", 1, "prolog");
    for rank in 0..3 {
        bed.now.boot_ms += 1;
        let id = local("j", 1, "mount", rank);
        bed.feed(call(1, exec("j", 1, "mount", rank)));
        bed.feed(intent_written(id));
        bed.feed(queued(id));
        bed.feed(task_changed(id));
        bed.feed(inspected(id, seen_exited(&local_intent("j", 1, "mount", rank), 1, 0)));
        bed.feed(outcome_written(id));
        bed.check(tombstone_written(id), &[]);
    }
    let policy = crate::agent::Policy { max_tombstones: 4, ..super::values::node().policy };
    bed.check(Input::Policy(policy), &[]);
    bed.check(
        call(1, exec("j", 1, "mount", 3)),
        &["remove-tombstone local:j.1.mount.0", "remove-tombstone local:j.1.mount.1", "write-intent local:j.1.mount.3"],
    );
}
