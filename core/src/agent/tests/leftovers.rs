//! A runner that waits for processes that outlive its scripts.

use super::bed::Bed;
use super::values::*;
use crate::agent::{Effect, Input};
use crate::ids::TaskId;
use crate::message::ToAgent;
use crate::task::{Leftover, StepRecord, Treatment};

const HOLD: Treatment = Treatment::Hold { term: false, kill: false };

fn left(pids: &[u32], treatment: Treatment) -> StepRecord {
    let cgroup = Some("/user.slice/session-c1.scope".to_owned());
    let leftover = |pid| Leftover { pid, start: 1, command: "sleep".to_owned(), uid: 0, cgroup: cgroup.clone() };
    StepRecord::Left { at_ms: 1, treatment, processes: pids.iter().copied().map(leftover).collect() }
}

fn steps(records: &[StepRecord]) -> Vec<StepRecord> {
    [begin_step(0, "a", 1)].into_iter().chain(records.iter().cloned()).collect()
}

fn waits(id: TaskId, records: &[StepRecord], deaf: bool) -> Input {
    let deaf = deaf.then(|| "its runner is stopped".to_owned());
    let running = seen_running(&intent("j", 1, "prolog", 0), 1);
    inspected(id, crate::agent::io::Seen { steps: steps(records), deaf, ..running })
}

const NOTE: &str = "info: the scripts of prolog of job j, attempt 1, rank 0 have ended; the task waits for the \
                    processes that they left behind: *";

#[test]
fn what_a_runner_waits_for_is_named_and_gets_kill_from_the_runner() {
    let mut bed = Bed::up();
    let id = bed.claimed("j", 1, "prolog", 0);
    let signal = |signal: u8| message(ToAgent::Signal { task: id, signal });
    let (first, killed) = (left(&[7, 8], HOLD), left(&[8], Treatment::Kill));
    bed.checks([
        (task_changed(id), &["inspect j.1.prolog.0"][..]),
        (waits(id, std::slice::from_ref(&first), false), &[NOTE, "moved j.1.prolog.0 lingering 2"]),
        (signal(15), &["warning: signal 15 was not sent: *"]),
        (signal(9), &["signal j.1.prolog.0 43"]),
        (task_changed(id), &["inspect j.1.prolog.0"]),
        (waits(id, &[first.clone(), killed.clone()], false), &["moved j.1.prolog.0 lingering 1"]),
        (task_changed(id), &["inspect j.1.prolog.0"]),
    ]);
    let over = seen_exited(&intent("j", 1, "prolog", 0), 1, 0);
    let over = crate::agent::io::Seen { steps: steps(&[first, killed]), ..over };
    let effects = bed.check(inspected(id, over), &["write-outcome j.1.prolog.0 ok"]);
    let [Effect::WriteOutcome { ended, .. }] = &effects[..] else { unreachable!() };
    // Process 7 ended by itself.
    let named: Vec<_> = ended.lingering.iter().map(|process| (process.pid, process.command.as_str())).collect();
    assert_eq!(named, [(8, "sleep (in /user.slice/session-c1.scope)")]);
}

#[test]
fn the_limit_of_scripts_that_have_ended_is_not_the_runners() {
    let mut bed = Bed::up();
    let id = bed.claimed("j", 1, "prolog", 0);
    bed.check(task_changed(id), &["inspect j.1.prolog.0"]);
    bed.check(waits(id, &[left(&[7], HOLD)], false), &[NOTE, "moved j.1.prolog.0 lingering 1"]);
    bed.pass(600_000, &[]);
    bed.check(task_changed(id), &["inspect j.1.prolog.0"]);
    bed.check(waits(id, &[left(&[7], HOLD)], true), &[]);
}

/// A deaf runner kills nothing, so KILL goes to its unit.
#[test]
fn a_kill_reaches_the_unit_of_a_stopped_runner_that_waits() {
    let mut bed = Bed::up();
    let id = bed.claimed("j", 1, "prolog", 0);
    bed.check(task_changed(id), &["inspect j.1.prolog.0"]);
    bed.check(waits(id, &[left(&[7], HOLD)], false), &[NOTE, "moved j.1.prolog.0 lingering 1"]);
    bed.check(message(ToAgent::Signal { task: id, signal: 9 }), &["signal j.1.prolog.0 43"]);
    bed.now.boot_ms += 2_000;
    bed.check(task_changed(id), &["inspect j.1.prolog.0"]);
    bed.check(waits(id, &[left(&[7], HOLD)], true), &["warning: *", "kill-lingering j.1.prolog.0"]);
}

#[test]
fn what_is_to_stay_is_in_the_end_of_the_task_also_outside_of_its_unit() {
    let mut bed = Bed::up();
    let id = bed.claimed("j", 1, "mount", 0);
    bed.check(task_changed(id), &["inspect j.1.mount.0"]);
    let over = seen_exited(&intent("j", 1, "mount", 0), 1, 0);
    let over =
        crate::agent::io::Seen { processes: processes(&[7]), steps: steps(&[left(&[7, 8], Treatment::Keep)]), ..over };
    let effects = bed.check(inspected(id, over), &["write-outcome j.1.mount.0 ok"]);
    let [Effect::WriteOutcome { ended, .. }] = &effects[..] else { unreachable!() };
    assert_eq!(ended.lingering.iter().map(|process| process.pid).collect::<Vec<_>>(), [7, 8]);
}
