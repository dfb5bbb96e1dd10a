use super::bed::Bed;
use super::values::*;
use crate::agent::io::{Effect, Input};
use crate::message::FromAgent;
use crate::outcome::Outcome;

#[test]
fn the_status_line_counts_what_there_is() {
    let mut bed = Bed::cold();
    assert_eq!(bed.machine.status_line(), "looking for tasks; not connected");
    bed.check(joined(vec![], vec![]), &[]);
    assert_eq!(bed.machine.status_line(), "not connected; idle");
    bed.check(Input::LinkUp { counter: 1 }, &["hello 1 []"]);
    assert_eq!(bed.machine.status_line(), "connecting; idle");
    bed.feed(welcome(1));
    bed.feed(epoch_written(1));
    bed.live("j", 1, "prolog", 0);
    bed.feed(start_message("j", 1, "epilog", 0));
    bed.feed(intent_written(task("j", 1, "epilog", 0)));
    assert_eq!(bed.machine.status_line(), "connected; 1 starting, 1 waiting");
    for (j, rank) in [("k", 0), ("k", 1)] {
        let id = bed.live(j, 1, "prolog", rank);
        let mut seen = seen_running(&intent(j, 1, "prolog", rank), 1);
        seen.steps = vec![begin_step(0, "a", 1)];
        bed.feed(task_changed(id));
        bed.feed(inspected(id, seen));
    }
    bed.ended("l", 1, "prolog", 0, &["unload l.1.prolog.0", "finished l.1.prolog.0 ok"]);
    bed.check(Input::BusLost, &[]);
    bed.check(Input::LinkDown, &[]);
    assert_eq!(
        bed.machine.status_line(),
        "not connected; 2 running, 1 starting, 1 waiting, 1 to be acknowledged; no system bus"
    );
}

/// Regression test: the age that the agent reported counted from the acceptance of the task, so the controller counted
/// the limit from there, too.
#[test]
fn the_age_of_a_run_counts_from_its_beginning() {
    let mut bed = Bed::up();
    let first = bed.live("j", 1, "prolog", 0);
    bed.feed(start_message("j", 1, "epilog", 0));
    let id = task("j", 1, "epilog", 0);
    bed.feed(intent_written(id));
    bed.now.boot_ms = 5_000;
    bed.feed(task_changed(first));
    bed.feed(inspected(first, seen_exited(&intent("j", 1, "prolog", 0), 1, 0)));
    bed.feed(outcome_written(first));
    bed.feed(queued(id));
    let mut seen = seen_running(&intent("j", 1, "epilog", 0), 1);
    for (at, step, age) in [(5_100, begin_step(0, "a", 1), 0), (5_700, begin_step(1, "b", 1), 600)] {
        bed.now.boot_ms = at;
        seen.steps.push(step);
        bed.feed(task_changed(id));
        let effects = bed.feed(inspected(id, seen.clone()));
        let reported = effects.iter().find_map(|effect| match effect {
            Effect::Send(FromAgent::PhaseChanged { task, age_ms, .. }) if *task == id => Some(*age_ms),
            _ => None,
        });
        assert_eq!(reported, Some(age), "{effects:?}");
    }
}

#[test]
fn a_status_shows_the_state_of_each_task_and_the_reason() {
    let mut bed = Bed::up();
    bed.claimed("j", 1, "prolog", 0);
    bed.feed(start_message("j", 1, "epilog", 0));
    bed.feed(intent_written(task("j", 1, "epilog", 0)));
    bed.feed(start_message("k", 1, "prolog", 0));
    bed.ended("l", 1, "prolog", 3, &["finished l.1.prolog.0 failed (exit 3)"]);
    bed.now.boot_ms = 42;
    let effects = bed.check(Input::Status { caller: 4 }, &["status 4 4"]);
    let [Effect::StatusReply { tasks, .. }] = &effects[..] else { unreachable!() };
    let reported: Vec<(&str, Option<&str>)> = tasks.iter().map(|t| (t.state.as_str(), t.why.as_deref())).collect();
    assert_eq!(
        reported,
        [
            ("starting", None),
            ("waiting", Some("waits for prolog of job j, attempt 1, rank 0")),
            ("waiting", Some("waits for its record (intent) to be on disk")),
            ("ended", Some("waits for the controller to acknowledge it")),
        ]
    );
    assert_eq!(tasks[0].invocation, Some(invocation(1)));
    assert_eq!((tasks[0].age_ms, tasks[0].cluster, tasks[0].local), (42, Some(cluster()), false));
    assert!(matches!(tasks[3].outcome, Some(Outcome::Failed { .. })));
}
