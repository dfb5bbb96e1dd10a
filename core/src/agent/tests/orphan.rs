use super::bed::Bed;
use super::values::*;
use crate::agent::io::{Caller, Effect, Exec, Found, HookEvent, Input, Seen};
use crate::agent::orphan::GONE_AFTER_MS;
use crate::ids::TaskId;
use crate::outcome::{Failure, Outcome};
use crate::task::{Ended, Hook, Intent};

const CALL_BEGUN: &str = "call local:j.1.epilog.0 /p begun";
const CALL_ENDED: &str = "call local:j.1.epilog.0 /p ended";
const FAILED: &str = "failed (exit 3)";

fn id() -> TaskId {
    local("j", 1, "epilog", 0)
}

fn hooked() -> Exec {
    Exec {
        hook: Hook { orphan_program: Some("/p".to_owned()), instance: None, note: None },
        ..exec("j", 1, "epilog", 0)
    }
}

fn call(caller: Caller) -> Input {
    Input::Exec { caller, exec: hooked() }
}

fn intent() -> Intent {
    Intent { hook: hooked().hook, ..local_intent("j", 1, "epilog", 0) }
}

fn reported(event: HookEvent, result: Result<(), &str>) -> Input {
    Input::HookCalled { task: id(), event, result: result.map_err(str::to_owned) }
}

/// Makes a machine with a running local epilog (`Exec`), for whose end caller 1 waits.
fn running() -> Bed {
    let mut bed = Bed::cold();
    bed.check(joined(vec![], vec![]), &[]);
    bed.checks([
        (call(1), &["write-intent local:j.1.epilog.0"]),
        (intent_written(id()), &["reply 1 started", "start-unit local:j.1.epilog.0"]),
        (queued(id()), &[]),
    ]);
    bed
}

/// Ends the epilog's unit: its scripts failed with exit 3, and the machine asks the daemon to write the outcome.
fn fail(bed: &mut Bed) {
    // An inspection may be under way already.
    bed.feed(task_changed(id()));
    let over = inspected(id(), seen_exited(&intent(), 1, 3));
    bed.check(over, &["write-outcome local:j.1.epilog.0 failed (exit 3)"]);
}

fn write_tombstone() -> String {
    format!("write-tombstone local:j.1.epilog.0 {FAILED}")
}

#[test]
fn a_hook_that_receives_the_end_needs_no_program() {
    let mut bed = running();
    fail(&mut bed);
    bed.check(outcome_written(id()), &["reply 1 ended failed (exit 3)", &write_tombstone()]);
}

#[test]
fn the_program_of_an_orphaned_hook_is_called_until_it_succeeds() {
    let mut bed = running();
    bed.feed(Input::Hangup { caller: 1 });
    bed.pass(GONE_AFTER_MS - 1, &["inspect local:j.1.epilog.0", "wake 10000"]);
    bed.pass(1, &[CALL_BEGUN]);
    bed.check(reported(HookEvent::Begun, Ok(())), &[]);
    fail(&mut bed);
    let effects = bed.check(outcome_written(id()), &[CALL_ENDED]);
    let Some(Effect::CallHook(notifying)) = effects.iter().find(|effect| matches!(effect, Effect::CallHook(_))) else {
        panic!()
    };
    assert_eq!(notifying.env["PERILOG_ATTEMPT"], "1");
    assert!(notifying.env["PERILOG_REASON"].starts_with("epilog of j: failed (exit 3)"), "{:?}", notifying.env);
    // The agent does not write the task's tombstone before the program knows the end, however long that takes. The
    // agent logs once an hour.
    let note = "error: `/p ended` failed for epilog of job j, attempt 1, rank 0, will retry: exit status: 1";
    bed.check(reported(HookEvent::Ended, Err("exit status: 1")), &[note, "wake 10250"]);
    bed.pass(250, &[CALL_ENDED]);
    for _ in 0..100 {
        bed.feed(reported(HookEvent::Ended, Err("exit status: 1")));
        bed.pass(60_000, &[CALL_ENDED]);
    }
    bed.check(reported(HookEvent::Ended, Ok(())), &[&write_tombstone()]);
}

#[test]
fn a_program_that_fails_for_hours_is_a_line_an_hour() {
    let mut bed = running();
    bed.check(Input::DaemonDied { caller: 7, task: id() }, &["reply 7 noted", CALL_BEGUN]);
    let mut notes = 0;
    for _ in 0..180 {
        let effects = bed.feed(reported(HookEvent::Begun, Err("down")));
        notes += effects.iter().filter(|effect| matches!(effect, Effect::Note { .. })).count();
        bed.now.boot_ms += 60_000;
        let is_call = |effect: &Effect| matches!(effect, Effect::CallHook(_));
        assert!(bed.feed(Input::Tick).iter().any(is_call));
    }
    assert_eq!(notes, 3);
}

#[test]
fn a_returning_hook_receives_the_end_and_the_start_is_undone() {
    let mut bed = running();
    bed.feed(Input::Hangup { caller: 1 });
    // A hook dials again in time.
    bed.check(call(2), &["reply 2 attached", "reply 2 starting"]);
    bed.pass(GONE_AFTER_MS, &["inspect local:j.1.epilog.0"]);
    // A hook dials again too late.
    bed.feed(Input::Hangup { caller: 2 });
    bed.pass(GONE_AFTER_MS, &[CALL_BEGUN]);
    bed.check(reported(HookEvent::Begun, Ok(())), &[]);
    bed.check(call(3), &["reply 3 attached", "reply 3 waiting for systemd*"]);
    fail(&mut bed);
    bed.check(outcome_written(id()), &["reply 3 ended failed (exit 3)", &format!("{CALL_ENDED}, end received")]);
    bed.check(reported(HookEvent::Ended, Ok(())), &[&write_tombstone()]);
}

/// The agent runs the program in `Hook::orphan_program` if the resource manager's daemon has died, even if the hook
/// lives and learns the end: no process reads the hook's exit status.
#[test]
fn a_hook_whose_daemon_has_died_is_as_good_as_gone() {
    let mut bed = running();
    bed.check(Input::DaemonDied { caller: 7, task: id() }, &["reply 7 noted", CALL_BEGUN]);
    bed.check(reported(HookEvent::Begun, Ok(())), &[]);
    fail(&mut bed);
    bed.check(outcome_written(id()), &["reply 1 ended failed (exit 3)", CALL_ENDED]);
    bed.check(reported(HookEvent::Ended, Ok(())), &[&write_tombstone()]);
    bed.check(tombstone_written(id()), &[]);
    bed.check(Input::DaemonDied { caller: 8, task: id() }, &["reply 8 refused: there is no such task on this host"]);
}

/// Regression test, found with a real Slurm: slurmd and the agent were killed at once, and the prolog ended before the
/// next agent came up. The hook called that agent and got the prolog's end, before it could report that slurmd had
/// died. So the agent did not run the program in `Hook::orphan_program`, and the job waited for its prolog for ever.
#[test]
fn a_hook_that_dials_again_reports_its_daemons_death_first() {
    let daemon_died = |caller| Input::Exec { caller, exec: Exec { daemon_died: true, ..hooked() } };
    let ended = Ended::bare(Outcome::Failed { why: Failure::Exit(3) }, 7);
    let mut bed = Bed::cold();
    bed.feed(joined(vec![Found { ended: Some(ended), ..found(&intent(), Seen::default()) }], vec![]));
    bed.check(daemon_died(1), &["reply 1 attached", "reply 1 ended failed (exit 3)", CALL_ENDED]);
    bed.check(reported(HookEvent::Ended, Ok(())), &[&write_tombstone()]);
    // The call is the first one that the agent gets.
    let mut bed = Bed::cold();
    bed.check(joined(vec![], vec![]), &[]);
    bed.check(daemon_died(1), &["write-intent local:j.1.epilog.0"]);
    bed.check(intent_written(id()), &["reply 1 started", CALL_BEGUN, "start-unit local:j.1.epilog.0"]);
}

#[test]
fn an_agent_that_starts_takes_care_of_orphaned_hooks() {
    let ended = Ended::bare(Outcome::Failed { why: Failure::Exit(3) }, 7);
    let over = || Found { ended: Some(ended.clone()), ..found(&intent(), Seen::default()) };
    // No hook comes back.
    let mut bed = Bed::cold();
    bed.feed(joined(vec![over()], vec![]));
    bed.pass(GONE_AFTER_MS, &[CALL_ENDED]);
    // The hook comes back; an earlier agent may have notified the program `begun`.
    let mut bed = Bed::cold();
    bed.feed(joined(vec![over()], vec![]));
    bed.check(call(1), &["reply 1 attached", "reply 1 ended failed (exit 3)", &format!("{CALL_ENDED}, end received")]);
    bed.check(reported(HookEvent::Ended, Ok(())), &[&write_tombstone()]);
    // An accepted task that had not begun runs, because the job has ended.
    let mut bed = Bed::cold();
    bed.feed(joined(vec![found(&intent(), Seen::default())], vec![]));
    bed.pass(GONE_AFTER_MS, &[CALL_BEGUN, "start-unit local:j.1.epilog.0"]);
}

#[test]
fn another_job_of_a_number_that_was_seen_is_refused() {
    let of = |instance: &str| {
        let hook = Hook { orphan_program: None, instance: Some(instance.to_owned()), note: None };
        Exec { hook, ..exec("j", 1, "prolog", 0) }
    };
    let call = |caller, exec| Input::Exec { caller, exec };
    let (id, why) = (
        local("j", 1, "prolog", 0),
        "prolog has already run on this node for another job with the number j, which began at 100; this job began at \
         200. The resource manager has begun to number its jobs anew: set its first number above the last one (Slurm: \
         FirstJobId), and reboot this node",
    );
    let mut bed = Bed::cold();
    bed.check(joined(vec![], vec![]), &[]);
    bed.check(call(1, of("100")), &["write-intent local:j.1.prolog.0"]);
    bed.check(intent_written(id), &["reply 1 started", "start-unit local:j.1.prolog.0"]);
    bed.check(call(2, of("200")), &[&format!("reply 2 refused: {why}")]);
    // The same instance, and a Slurm that does not name an instance.
    bed.check(call(3, of("100")), &["reply 3 attached", "reply 3 starting"]);
    bed.check(call(4, exec("j", 1, "prolog", 0)), &["reply 4 attached", "reply 4 starting"]);
    // A tombstone remembers the instance.
    let intent = Intent { hook: of("100").hook, ..local_intent("j", 1, "prolog", 0) };
    let mut bed = Bed::cold();
    bed.check(joined(vec![], vec![tombstone(&intent, Outcome::Ok)]), &[]);
    bed.check(call(1, of("200")), &[&format!("reply 1 refused: {why}")]);
    bed.check(call(2, of("100")), &["reply 2 ended before ok"]);
}
