use super::bed::Bed;
use super::values::*;
use crate::agent::io::{Input, StartReply};
use crate::message::ToAgent;
use crate::outcome::Outcome;
use crate::task::Claim;

const CANCELLED: &str = "take-claim j.1.prolog.0 cancelled";

fn signal(signal: u8) -> Input {
    message(ToAgent::Signal { task: task("j", 1, "prolog", 0), signal })
}

fn cancel_j() -> Input {
    cancel("j", 1, "prolog", 0)
}

#[test]
fn a_cancel_before_the_claim_takes_the_claim_itself() {
    let mut bed = Bed::up();
    bed.live("j", 2, "epilog", 0);
    let id = task("j", 1, "prolog", 0);
    bed.checks([
        (start_message("j", 1, "prolog", 0), &["write-intent j.1.prolog.0"]),
        (
            intent_written(id),
            &["accepted j.1.prolog.0", "moved j.1.prolog.0 waiting for epilog of job j, attempt 2, rank 0"],
        ),
        (cancel_j(), &[CANCELLED]),
        // A repeated cancel changes nothing while the claim is under way.
        (cancel_j(), &[]),
        (claim_taken(id, true), &["write-outcome j.1.prolog.0 cancelled"]),
        (cancel_j(), &[]),
        (outcome_written(id), &["finished j.1.prolog.0 cancelled"]),
        (cancel_j(), &["finished j.1.prolog.0 cancelled"]),
        (ack(id), &["write-tombstone j.1.prolog.0 cancelled"]),
        (tombstone_written(id), &[]),
        (cancel_j(), &["finished j.1.prolog.0 cancelled"]),
    ]);
}

#[test]
fn a_cancel_during_the_intents_write_withdraws_it_afterwards() {
    let mut bed = Bed::up();
    let id = task("j", 1, "prolog", 0);
    bed.checks([
        (start_message("j", 1, "prolog", 0), &["write-intent j.1.prolog.0"]),
        (cancel_j(), &[]),
        (intent_written(id), &["accepted j.1.prolog.0", CANCELLED]),
        (claim_taken(id, true), &["write-outcome j.1.prolog.0 cancelled"]),
    ]);
}

#[test]
fn a_cancel_during_the_start_wins_the_race_for_the_claim() {
    let mut bed = Bed::up();
    let id = task("j", 1, "prolog", 0);
    let mut over = seen_exited(&intent("j", 1, "prolog", 0), 1, 75);
    over.result = None;
    over.claim = Some(Claim::Cancelled);
    bed.checks([
        (start_message("j", 1, "prolog", 0), &["write-intent j.1.prolog.0"]),
        (intent_written(id), &["accepted j.1.prolog.0", "start-unit j.1.prolog.0"]),
        (cancel_j(), &[CANCELLED]),
        (claim_taken(id, true), &[]),
        // The unit starts, and its runner finds the claim taken and ends. Only then has the agent a unit to unload.
        (queued(id), &["inspect j.1.prolog.0"]),
        (inspected(id, over), &["write-outcome j.1.prolog.0 cancelled"]),
        (outcome_written(id), &["unload j.1.prolog.0", "finished j.1.prolog.0 cancelled"]),
    ]);
}

#[test]
fn a_cancel_during_the_start_that_loses_the_race_is_a_signal() {
    let mut bed = Bed::up();
    let id = bed.live("j", 1, "prolog", 0);
    bed.checks([
        (cancel_j(), &[CANCELLED]),
        (claim_taken(id, false), &["inspect j.1.prolog.0"]),
        (inspected(id, seen_running(&intent("j", 1, "prolog", 0), 1)), &["signal j.1.prolog.0 15"]),
    ]);
}

#[test]
fn a_cancel_of_what_systemd_then_refuses_ends_as_cancelled() {
    let mut bed = Bed::up();
    let id = task("j", 1, "prolog", 0);
    bed.checks([
        (start_message("j", 1, "prolog", 0), &["write-intent j.1.prolog.0"]),
        (intent_written(id), &["accepted j.1.prolog.0", "start-unit j.1.prolog.0"]),
        (cancel_j(), &[CANCELLED]),
        (start_reply(id, StartReply::Rejected("no".to_owned())), &[]),
        (claim_taken(id, true), &["write-outcome j.1.prolog.0 cancelled"]),
    ]);
}

#[test]
fn each_cancel_after_the_claim_signals_the_runner() {
    let mut bed = Bed::up();
    bed.claimed("j", 1, "prolog", 0);
    bed.check(cancel_j(), &["signal j.1.prolog.0 15"]);
    bed.check(cancel_j(), &["signal j.1.prolog.0 15"]);
}

#[test]
fn a_cancel_that_the_bus_may_have_lost_is_sent_again() {
    let mut bed = Bed::up();
    let id = bed.claimed("j", 1, "prolog", 0);
    bed.checks([
        (cancel_j(), &["signal j.1.prolog.0 15"]),
        (Input::BusLost, &[]),
        (joined(vec![], vec![]), &["watch j.1.prolog.0"]),
        (task_changed(id), &["inspect j.1.prolog.0"]),
        (inspected(id, seen_running(&intent("j", 1, "prolog", 0), 1)), &["signal j.1.prolog.0 15"]),
    ]);
}

#[test]
fn a_cancel_while_the_bus_is_gone_waits_for_it() {
    let mut bed = Bed::up();
    let id = bed.claimed("j", 1, "prolog", 0);
    bed.checks([
        (Input::BusLost, &[]),
        (cancel_j(), &[]),
        (joined(vec![], vec![]), &["watch j.1.prolog.0"]),
        (task_changed(id), &["inspect j.1.prolog.0"]),
        (inspected(id, seen_running(&intent("j", 1, "prolog", 0), 1)), &["signal j.1.prolog.0 15"]),
    ]);
}

#[test]
fn a_claim_that_cannot_be_taken_is_tried_again_and_is_visible() {
    let mut bed = Bed::up();
    let id = bed.live("j", 1, "prolog", 0);
    bed.check(cancel_j(), &[CANCELLED]);
    bed.check(Input::ClaimTaken { task: id, result: Err("full".to_owned()) }, &["wake 250"]);
    assert_eq!(bed.machine.status_line(), "connected; 1 starting; 1 in trouble");
    // After an early tick the machine requests another.
    bed.pass(249, &["wake 250"]);
    bed.pass(1, &[CANCELLED]);
    bed.check(Input::ClaimTaken { task: id, result: Err("full".to_owned()) }, &["wake 750"]);
    bed.pass(500, &[CANCELLED]);
    bed.check(claim_taken(id, true), &["inspect j.1.prolog.0"]);
}

#[test]
fn a_claim_to_retry_is_dropped_with_the_end_of_its_task() {
    // Regression test: the machine tried the claim again after the burial, which left a directory with only a claim.
    let mut bed = Bed::up();
    let id = bed.live("j", 1, "prolog", 0);
    bed.check(cancel_j(), &[CANCELLED]);
    bed.check(Input::ClaimTaken { task: id, result: Err("full".to_owned()) }, &["wake 250"]);
    bed.check(task_changed(id), &["inspect j.1.prolog.0"]);
    bed.check(inspected(id, seen_exited(&intent("j", 1, "prolog", 0), 1, 0)), &["write-outcome j.1.prolog.0 ok"]);
    bed.pass(250, &[]);
}

#[test]
fn a_cancel_of_an_unknown_task_leaves_a_refusing_tombstone() {
    let mut bed = Bed::up();
    let id = task("j", 1, "prolog", 0);
    let reported: &[&str] = &["finished j.1.prolog.0 cancelled"];
    bed.checks([
        (cancel_j(), &["write-tombstone j.1.prolog.0 cancelled"]),
        // The answer waits until the tombstone is durable, also for a quick Start.
        (start_message("j", 1, "prolog", 0), &[]),
        (cancel_j(), &[]),
        (tombstone_written(id), reported),
        (start_message("j", 1, "prolog", 0), reported),
        (begin(id), reported),
    ]);
    bed.reconnect("hello 2 [j.1.prolog.0 tombstone cancelled]", &["redial 1000", reported[0]]);
    bed.check(ack(id), &[]);
    bed.reconnect("hello 2 [j.1.prolog.0 tombstone cancelled]", &["redial 1000"]);
    bed.check(start_message("j", 1, "prolog", 0), reported);
}

#[test]
fn an_unwritten_tombstone_refuses_and_is_retried() {
    let mut bed = Bed::up();
    let id = task("j", 1, "prolog", 0);
    bed.check(cancel_j(), &["write-tombstone j.1.prolog.0 cancelled"]);
    let full = Input::TombstoneWritten { task: id, result: Err("full".to_owned()) };
    let error = "error: cannot write the tombstone of prolog of job j, attempt 1, rank 0, trying again: full";
    bed.check(full, &[error, "wake 250"]);
    bed.check(start_message("j", 1, "prolog", 0), &[]);
    bed.pass(250, &["write-tombstone j.1.prolog.0 cancelled"]);
    bed.check(tombstone_written(id), &["finished j.1.prolog.0 cancelled"]);
}

#[test]
fn an_unknown_task_past_the_cap_gets_no_tombstone() {
    let mut node = node();
    node.policy.max_tombstones = 1;
    let mut bed = Bed::up_as(node);
    bed.live("k", 1, "prolog", 0);
    bed.check(cancel_j(), &["finished j.1.prolog.0 cancelled"]);
    bed.check(
        start_message("j", 1, "prolog", 0),
        &["finished j.1.prolog.0 excused, refused (this host keeps 1 tasks and records of ended tasks*"],
    );
}

#[test]
fn a_cancel_that_contradicts_its_id_makes_no_tombstone() {
    let mut bed = Bed::up();
    let wrong = ToAgent::Cancel {
        task: task("j", 1, "prolog", 0),
        job: job("k"),
        attempt: crate::ids::Attempt::from_number(1),
        action: action("prolog"),
        why: String::new(),
        commit: 0,
    };
    bed.check(message(wrong), &["finished j.1.prolog.0 cancelled"]);
    bed.check(start_message("j", 1, "prolog", 0), &["write-intent j.1.prolog.0"]);
}

#[test]
fn signals_reach_scripts_and_kill_spares_the_runner() {
    let mut bed = Bed::up();
    bed.claimed("j", 1, "prolog", 0);
    for (asked, sent) in [(1, 1), (2, 2), (10, 10), (12, 12), (15, 15), (9, 43)] {
        bed.check(signal(asked), &[&format!("signal j.1.prolog.0 {sent}")]);
    }
    for harmful in [0, 3, 11, 19, 42, 64] {
        bed.check(signal(harmful), &["warning: signal *"]);
    }
}

#[test]
fn a_signal_before_the_claim_waits_for_it() {
    let mut bed = Bed::up();
    let id = bed.live("j", 1, "prolog", 0);
    bed.check(signal(9), &[]);
    bed.check(task_changed(id), &["inspect j.1.prolog.0"]);
    let intent = intent("j", 1, "prolog", 0);
    let mut unclaimed = seen_running(&intent, 1);
    unclaimed.claim = None;
    bed.check(inspected(id, unclaimed), &[]);
    bed.check(task_changed(id), &["inspect j.1.prolog.0"]);
    bed.check(inspected(id, seen_running(&intent, 1)), &["signal j.1.prolog.0 43"]);
}

#[test]
fn a_signal_for_what_does_not_run_is_not_sent() {
    let mut bed = Bed::up();
    bed.check(signal(9), &["warning: signal 9 was not sent: this node has no such task"]);
    bed.ended("j", 1, "prolog", 0, &["unload j.1.prolog.0", "finished j.1.prolog.0 ok"]);
    let why = "prolog of job j, attempt 1, rank 0 runs no script that the controller may signal";
    bed.check(signal(9), &[&format!("warning: signal 9 was not sent: {why}")]);
}

#[test]
fn the_controller_has_no_power_over_the_hosts_own_tasks() {
    let mut bed = Bed::up();
    let id = local("j", 1, "prolog", 0);
    bed.feed(Input::Exec { caller: 1, exec: exec("j", 1, "prolog", 0) });
    bed.feed(intent_written(id));
    bed.feed(queued(id));
    let cancel = ToAgent::Cancel {
        task: id,
        job: job("j"),
        attempt: crate::ids::Attempt::from_number(1),
        action: action("prolog"),
        why: String::new(),
        commit: 0,
    };
    bed.checks([
        (
            message(cancel),
            &["warning: prolog of job j, attempt 1, rank 0 was not cancelled: the controller cannot cancel a local*"],
        ),
        (message(ToAgent::Signal { task: id, signal: 9 }), &["warning: signal 9 was not sent*"]),
        (ack(id), &[]),
        (begin(id), &[]),
        (forget(id), &[]),
    ]);
    bed.feed(task_changed(id));
    bed.feed(inspected(id, seen_exited(&local_intent("j", 1, "prolog", 0), 1, 0)));
    bed.check(
        outcome_written(id),
        &[
            "unload local:j.1.prolog.0",
            "reply 1 ended ok",
            "write-tombstone \
                                                                                       local:j.1.prolog.0 ok",
        ],
    );
    bed.check(tombstone_written(id), &[]);
    bed.now.boot_ms = u64::MAX / 2;
    bed.check(forget(id), &[]);
    assert_eq!(bed.machine.tombstones.get(id).unwrap().tombstone.outcome, Outcome::Ok);
}
