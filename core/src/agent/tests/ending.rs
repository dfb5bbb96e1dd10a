use super::bed::Bed;
use super::values::*;
use crate::agent::io::{Effect, Input, Policy};
use crate::agent::tombstones::brief;
use crate::ids::{BootId, JobId, TaskId};
use crate::outcome::{Failure, Outcome};

fn outcome_not_written(task: TaskId) -> Input {
    Input::OutcomeWritten { task, result: Err("No space left on device".to_owned()) }
}

#[test]
fn an_end_is_reported_only_after_it_is_on_disk_and_is_never_lost() {
    let mut bed = Bed::up();
    let id = bed.claimed("j", 1, "prolog", 0);
    let write: &[&str] = &["write-outcome j.1.prolog.0 ok"];
    bed.check(task_changed(id), &["inspect j.1.prolog.0"]);
    bed.check(inspected(id, seen_exited(&intent("j", 1, "prolog", 0), 1, 0)), write);
    bed.check(
        outcome_not_written(id),
        &[
            "error: cannot write the outcome of prolog of job j, attempt 1, rank 0, trying again: No space left on \
             device",
            // Operators see why the task is still open.
            "moved j.1.prolog.0 running its runner 1/1: the task has ended, but its outcome cannot be written: No \
             space left on device",
            "wake 250",
        ],
    );
    bed.pass(250, write);
    // The agent logs the trouble once; the status shows the trouble as long as it lasts.
    bed.check(outcome_not_written(id), &["wake 750"]);
    assert_eq!(bed.machine.status_line(), "connected; 1 ended; 1 in trouble");
    // A new session does not report the end, either: for all other programs the task has not ended.
    bed.reconnect(
        "hello 2 [j.1.prolog.0 live running its runner 1/1: the task has ended, but its outcome cannot be written: No \
         space left on device]",
        &["redial 1000"],
    );
    bed.pass(500, write);
    bed.check(outcome_written(id), &["unload j.1.prolog.0", "finished j.1.prolog.0 ok"]);
    bed.pass(60_000, &[]);
}

#[test]
fn finished_is_sent_on_every_session_until_it_is_acknowledged() {
    let mut bed = Bed::up();
    let id = bed.ended("j", 1, "prolog", 0, &["unload j.1.prolog.0", "finished j.1.prolog.0 ok"]);
    bed.reconnect("hello 2 [j.1.prolog.0 ended]", &["redial 1000", "finished j.1.prolog.0 ok"]);
    bed.reconnect("hello 2 [j.1.prolog.0 ended]", &["redial 1000", "finished j.1.prolog.0 ok"]);
    bed.check(ack(id), &["write-tombstone j.1.prolog.0 ok"]);
    bed.reconnect("hello 2 [j.1.prolog.0 tombstone ok]", &["redial 1000"]);
    bed.check(tombstone_written(id), &[]);
    bed.reconnect("hello 2 [j.1.prolog.0 tombstone ok]", &["redial 1000"]);
}

#[test]
fn an_end_without_a_session_is_reported_when_there_is_one() {
    let mut bed = Bed::up();
    let id = bed.claimed("j", 1, "prolog", 0);
    bed.check(Input::LinkDown, &[]);
    bed.check(task_changed(id), &["inspect j.1.prolog.0"]);
    bed.check(inspected(id, seen_exited(&intent("j", 1, "prolog", 0), 1, 0)), &["write-outcome j.1.prolog.0 ok"]);
    bed.check(outcome_written(id), &["unload j.1.prolog.0"]);
    bed.reconnect("hello 2 [j.1.prolog.0 ended]", &["redial 1000", "finished j.1.prolog.0 ok"]);
}

#[test]
fn a_failed_tombstone_is_written_again() {
    let mut bed = Bed::up();
    let id = bed.ended("j", 1, "prolog", 0, &["unload j.1.prolog.0", "finished j.1.prolog.0 ok"]);
    bed.check(ack(id), &["write-tombstone j.1.prolog.0 ok"]);
    bed.check(ack(id), &[]);
    let full = Input::TombstoneWritten { task: id, result: Err("full".to_owned()) };
    bed.check(
        full,
        &["error: cannot write the tombstone of prolog of job j, attempt 1, rank 0, trying again: full", "wake 250"],
    );
    bed.pass(250, &["write-tombstone j.1.prolog.0 ok"]);
    bed.check(tombstone_written(id), &[]);
}

#[test]
fn the_newest_failed_units_stay_loaded_and_others_go_at_once() {
    let mut bed = Bed::up();
    let failed = |j: &str| format!("finished {j}.1.prolog.0 failed (exit 3)");
    bed.ended("j", 1, "prolog", 3, &[&failed("j")]);
    bed.ended("k", 1, "prolog", 3, &[&failed("k")]);
    bed.ended("k", 2, "prolog", 0, &["unload k.2.prolog.0", "finished k.2.prolog.0 ok"]);
    bed.ended("l", 1, "prolog", 3, &["unload j.1.prolog.0", &failed("l")]);
    let policy = Policy { keep_failed: 0, ..node().policy };
    bed.check(Input::Policy(policy), &["unload k.1.prolog.0", "unload l.1.prolog.0"]);
    bed.ended("j", 2, "prolog", 3, &["unload j.2.prolog.0", "finished j.2.prolog.0 failed (exit 3)"]);
}

#[test]
fn a_cancelled_unit_is_not_kept() {
    let mut bed = Bed::up();
    let id = bed.claimed("j", 1, "prolog", 0);
    bed.feed(cancel("j", 1, "prolog", 0));
    bed.feed(task_changed(id));
    let mut seen = seen_exited(&intent("j", 1, "prolog", 0), 1, 143);
    seen.result.as_mut().unwrap().cancelled = true;
    bed.check(inspected(id, seen), &["write-outcome j.1.prolog.0 cancelled (exit 143)"]);
    bed.check(outcome_written(id), &["unload j.1.prolog.0", "finished j.1.prolog.0 cancelled (exit 143)"]);
}

#[test]
fn a_forgotten_tombstone_stays_until_its_not_after() {
    let mut bed = Bed::up();
    let id = bed.tombstone_written("j", 1, "prolog");
    bed.check(forget(id), &[]);
    bed.check(start_message("j", 1, "prolog", 0), &["finished j.1.prolog.0 ok"]);
    // The tombstone has no timer: the machine removes it with the next input.
    bed.pass(9_999, &[]);
    bed.pass(1, &["remove-tombstone j.1.prolog.0"]);
    bed.check(start_message("j", 1, "prolog", 0), &["write-intent j.1.prolog.0"]);
    // A tombstone that is not forgotten stays.
    bed.tombstone_written("k", 1, "prolog");
    bed.now.boot_ms += 100_000;
    bed.check(start_message("k", 1, "prolog", 0), &["finished k.1.prolog.0 ok"]);
}

#[test]
fn what_is_forgotten_before_it_is_over_goes_after_it() {
    let mut bed = Bed::up();
    let id = bed.claimed("j", 1, "prolog", 0);
    bed.check(forget(id), &[]);
    bed.feed(task_changed(id));
    bed.feed(inspected(id, seen_exited(&intent("j", 1, "prolog", 0), 1, 0)));
    bed.check(outcome_written(id), &["unload j.1.prolog.0", "finished j.1.prolog.0 ok"]);
    bed.check(ack(id), &["write-tombstone j.1.prolog.0 ok"]);
    bed.now.boot_ms = 10_000;
    bed.check(tombstone_written(id), &["remove-tombstone j.1.prolog.0"]);
    // The controller forgets the tombstone of an unknown task while the daemon writes the tombstone.
    let id = task("k", 1, "prolog", 0);
    bed.check(cancel("k", 1, "prolog", 0), &["write-tombstone k.1.prolog.0 cancelled"]);
    bed.check(forget(id), &[]);
    bed.check(tombstone_written(id), &["finished k.1.prolog.0 cancelled", "remove-tombstone k.1.prolog.0"]);
}

#[test]
fn a_unit_that_is_kept_keeps_its_tombstone() {
    let mut bed = Bed::up();
    let id = bed.ended("j", 1, "prolog", 3, &["finished j.1.prolog.0 failed (exit 3)"]);
    bed.check(ack(id), &["write-tombstone j.1.prolog.0 failed (exit 3)"]);
    bed.check(tombstone_written(id), &[]);
    bed.now.boot_ms = 20_000;
    bed.check(forget(id), &[]);
    let policy = Policy { keep_failed: 0, ..node().policy };
    bed.check(Input::Policy(policy), &["unload j.1.prolog.0", "remove-tombstone j.1.prolog.0"]);
}

/// Regression test: the agent removed a tombstone while systemd was still unloading the task's unit, and then died. The
/// next agent took the unit for a live task. The controller then recreated the job, which it had forgotten hours
/// before.
#[test]
fn a_unit_that_may_still_be_loaded_keeps_its_tombstone() {
    let mut bed = Bed::up();
    bed.unloads = false;
    let id = bed.ended("j", 1, "prolog", 0, &["unload j.1.prolog.0", "finished j.1.prolog.0 ok"]);
    bed.check(ack(id), &["write-tombstone j.1.prolog.0 ok"]);
    bed.check(tombstone_written(id), &[]);
    bed.now.boot_ms = 20_000;
    bed.check(forget(id), &[]);
    let start = start("j", 1, "prolog", 0);
    let stem = crate::ids::stem(&start.action, &start.job, id);
    let unloaded = |result| Input::Unloaded { stem: stem.clone(), result };
    bed.check(
        unloaded(Err("no answer".to_owned())),
        &[&format!("warning: cannot unload {stem}, trying again: no answer"), "wake 20250"],
    );
    bed.pass(250, &["unload j.1.prolog.0"]);
    bed.check(unloaded(Ok(())), &["remove-tombstone j.1.prolog.0"]);
    // A repeated answer that no state expects.
    bed.check(unloaded(Ok(())), &[]);
}

#[test]
fn a_lost_bus_reports_anew_what_is_loaded() {
    let mut bed = Bed::up();
    bed.unloads = false;
    let id = bed.ended("j", 1, "prolog", 0, &["unload j.1.prolog.0", "finished j.1.prolog.0 ok"]);
    bed.check(ack(id), &["write-tombstone j.1.prolog.0 ok"]);
    bed.check(tombstone_written(id), &[]);
    bed.now.boot_ms = 20_000;
    bed.check(forget(id), &[]);
    bed.check(Input::BusLost, &[]);
    bed.check(joined(vec![], vec![]), &["remove-tombstone j.1.prolog.0"]);
}

#[test]
fn an_acknowledgement_of_what_has_not_ended_is_ignored() {
    let mut bed = Bed::up();
    bed.check(ack(task("k", 1, "prolog", 0)), &[]);
    let id = bed.claimed("j", 1, "prolog", 0);
    bed.check(ack(id), &[]);
}

#[test]
fn what_the_outcome_reports_comes_from_runner_and_unit() {
    let mut bed = Bed::up();
    bed.now.wall_ms = 77;
    let id = bed.claimed("j", 1, "prolog", 0);
    bed.feed(task_changed(id));
    let mut seen = seen_exited(&intent("j", 1, "prolog", 0), 1, 0);
    seen.unit.as_mut().unwrap().cpu_ns = Some(5);
    let effects = bed.feed(inspected(id, seen));
    let [Effect::WriteOutcome { ended, .. }] = &effects[..] else { unreachable!() };
    assert_eq!((ended.began_ms, ended.ended_ms, ended.cpu_ns), (Some(1), 2, Some(5)));
}

#[test]
fn the_largest_tombstone_fits_in_512_bytes() {
    let mut intent = intent("j", 1, "prolog", 0);
    intent.start.job = JobId::new(&"j".repeat(64)).unwrap();
    intent.start.action = action(&"a".repeat(32));
    intent.start.boot = BootId::new("b").unwrap();
    intent.start.attempt = crate::ids::Attempt::from_parts(u64::MAX, 999_999_999).unwrap();
    intent.start.task.rank = crate::ids::Rank(u32::MAX);
    intent.not_after_boottime_ms = u64::MAX;
    for text in ["x".repeat(5000), "\"\\\n\u{7}é".repeat(5000)] {
        for outcome in [
            Outcome::Failed { why: Failure::Exec(text.clone()) },
            Outcome::Failed { why: Failure::Configuration(text.clone()) },
            Outcome::Failed { why: Failure::Unit(text.clone()) },
            Outcome::Refused { why: text.clone() },
            Outcome::Resolved { ok: false, reason: text.clone(), by: u32::MAX },
        ] {
            let bytes = serde_json::to_vec(&tombstone(&intent, brief(&outcome))).unwrap().len();
            assert!(bytes <= 512, "{bytes} for {}", outcome.as_str());
        }
    }
    let boot = BootId::new(&"b".repeat(64)).unwrap();
    let waits = crate::task::Tombstone {
        boot: Some(boot),
        expects_boot: true,
        limit_ms: Some(u64::MAX),
        ..tombstone(&intent, Outcome::Tolerable)
    };
    let bytes = serde_json::to_vec(&waits).unwrap().len();
    assert!(bytes <= 512, "{bytes} for one that waits for a boot");
}
