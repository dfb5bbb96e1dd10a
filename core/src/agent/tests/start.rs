use super::bed::Bed;
use super::values::*;
use crate::agent::io::{Effect, Input};
use crate::ids::BootId;
use crate::message::ToAgent;
use crate::outcome::Outcome;
use crate::task::{Start, Tombstone};

fn changed(change: impl Fn(&mut Start)) -> Input {
    let mut start = start("j", 1, "prolog", 0);
    change(&mut start);
    message(ToAgent::Start(start))
}

#[test]
fn accepted_waits_for_the_intent_and_not_for_systemd() {
    let mut bed = Bed::up();
    let id = task("j", 1, "prolog", 0);
    bed.checks([
        (start_message("j", 1, "prolog", 0), &["write-intent j.1.prolog.0"]),
        (intent_written(id), &["accepted j.1.prolog.0", "start-unit j.1.prolog.0"]),
    ]);
}

#[test]
fn an_ordinary_task_needs_no_timer_from_start_to_tombstone() {
    let mut bed = Bed::up();
    let id = task("j", 1, "prolog", 0);
    let intent = intent("j", 1, "prolog", 0);
    bed.checks([
        (start_message("j", 1, "prolog", 0), &["write-intent j.1.prolog.0"]),
        (intent_written(id), &["accepted j.1.prolog.0", "start-unit j.1.prolog.0"]),
        (queued(id), &[]),
        (task_changed(id), &["inspect j.1.prolog.0"]),
        (inspected(id, seen_exited(&intent, 1, 0)), &["write-outcome j.1.prolog.0 ok"]),
        (outcome_written(id), &["unload j.1.prolog.0", "finished j.1.prolog.0 ok"]),
        (ack(id), &["write-tombstone j.1.prolog.0 ok"]),
        (tombstone_written(id), &[]),
        (start_message("j", 1, "prolog", 0), &["finished j.1.prolog.0 ok"]),
    ]);
}

#[test]
fn an_unwritable_intent_is_refused_and_not_remembered() {
    let mut bed = Bed::up();
    let id = task("j", 1, "prolog", 0);
    let full = Input::IntentWritten { task: id, result: Err("No space left on device".to_owned()) };
    bed.checks([
        (start_message("j", 1, "prolog", 0), &["write-intent j.1.prolog.0"]),
        (full, &["finished j.1.prolog.0 refused (this host cannot record the task: No space left on device)"]),
        (start_message("j", 1, "prolog", 0), &["write-intent j.1.prolog.0"]),
    ]);
}

#[test]
fn a_repeated_start_is_answered_with_the_state_of_the_task() {
    let mut bed = Bed::up();
    let id = task("j", 1, "prolog", 0);
    let again = || start_message("j", 1, "prolog", 0);
    let accepted: &[&str] = &["accepted j.1.prolog.0"];
    let finished: &[&str] = &["finished j.1.prolog.0 failed (exit 3)"];
    bed.checks([
        (again(), &["write-intent j.1.prolog.0"]),
        // No file is on disk yet, so the agent has nothing to report.
        (again(), &[]),
        (intent_written(id), &["accepted j.1.prolog.0", "start-unit j.1.prolog.0"]),
        (again(), accepted),
        (queued(id), &[]),
        (again(), accepted),
        (task_changed(id), &["inspect j.1.prolog.0"]),
        (
            inspected(id, seen_exited(&intent("j", 1, "prolog", 0), 1, 3)),
            &["write-outcome j.1.prolog.0 failed (exit 3)"],
        ),
        (again(), accepted),
        (outcome_written(id), finished),
        (again(), finished),
        (ack(id), &["write-tombstone j.1.prolog.0 failed (exit 3)"]),
        (again(), finished),
        (tombstone_written(id), &[]),
        (again(), finished),
    ]);
}

#[test]
fn what_the_node_does_not_take_is_refused_with_nothing_written() {
    let mut bed = Bed::up();
    let unknown = ToAgent::Start(start("j", 1, "nothing", 0));
    bed.checks([
        (
            message(unknown),
            &["finished j.1.nothing.0 excused, refused (action nothing is not configured on this node; configured: \
               epilog, mount, prolog, sweep)"],
        ),
        (
            changed(|s| drop(s.env.insert("A-B".to_owned(), String::new()))),
            &["finished j.1.prolog.0 refused (malformed environment name \"A-B\"*"],
        ),
        (
            changed(|s| drop(s.env.insert("FLUX_JOB_ID".to_owned(), "x".repeat(70_000)))),
            &["finished j.1.prolog.0 refused (the variables of the request have 70011 bytes*"],
        ),
        (changed(|s| s.job = job("k")), &["finished j.1.prolog.0 refused (the task's id does not fit its job*"]),
        (
            changed(|s| s.task = local("j", 1, "prolog", 0)),
            &["finished local:j.1.prolog.0 refused (the task's id does not fit its job*"],
        ),
    ]);
}

#[test]
fn a_start_for_another_boot_is_lost_and_nothing_is_written() {
    let mut bed = Bed::up();
    let other = || changed(|s| s.boot = BootId::new("boot-0").unwrap());
    bed.check(other(), &["finished j.1.prolog.0 lost (the node rebooted)"]);
    bed.check(other(), &["finished j.1.prolog.0 lost (the node rebooted)"]);
}

#[test]
fn the_node_lists_the_environment_and_the_smaller_limit_wins() {
    for (asked, configured, expect) in
        [(None, Some(60_000), Some(60_000)), (Some(5), Some(60_000), Some(5)), (Some(70_000), None, Some(70_000))]
    {
        let mut node = node();
        node.policy.actions.get_mut(&action("prolog")).unwrap().timeout_ms = configured;
        let mut bed = Bed::up_as(node);
        bed.now.boot_ms = 500;
        let start = changed(|s| {
            s.timeout_ms = asked;
            s.env.insert("FLUX_JOB_ID".to_owned(), "f1".to_owned());
            s.env.insert("LD_PRELOAD".to_owned(), "/tmp/x".to_owned());
        });
        let effects = bed.check(start, &["write-intent j.1.prolog.0"]);
        let [Effect::WriteIntent { intent, .. }] = &effects[..] else { unreachable!() };
        assert_eq!(intent.plan.timeout_ms, expect);
        assert_eq!(
            (intent.env.get("FLUX_JOB_ID").map(String::as_str), intent.env.len(), intent.dropped_env),
            (Some("f1"), 1, 1)
        );
        assert_eq!((intent.accepted_boottime_ms, intent.not_after_boottime_ms, intent.local), (500, 10_500, false));
    }
}

#[test]
fn starts_past_the_cap_of_live_tasks_are_refused() {
    let mut node = node();
    node.policy.max_tasks = 2;
    let mut bed = Bed::up_as(node);
    bed.ended("j", 1, "prolog", 0, &["unload j.1.prolog.0", "finished j.1.prolog.0 ok"]);
    bed.live("k", 1, "prolog", 0);
    bed.live("l", 1, "prolog", 0);
    bed.check(
        start_message("j", 2, "prolog", 0),
        &["finished j.2.prolog.0 excused, refused (2 tasks have not ended on this host*"],
    );
}

/// Regression test: 2,050 short jobs filled a node with tombstones that their not-after kept from being removed. The
/// node then refused all later tasks, epilogs among them.
#[test]
fn only_acknowledged_ends_make_room_past_the_cap() {
    let mut node = node();
    node.policy.max_tombstones = 2;
    let mut bed = Bed::up_as(node);
    bed.tombstone_written("j", 1, "prolog");
    bed.live("k", 1, "prolog", 0);
    bed.check(start_message("j", 1, "epilog", 0), &["remove-tombstone j.1.prolog.0", "write-intent j.1.epilog.0"]);
    bed.check(
        start_message("l", 1, "prolog", 0),
        &["finished l.1.prolog.0 excused, refused (this host keeps 2 tasks and records of ended tasks*"],
    );
}

/// The agent limits the not-after of a task to a day. The controller chooses the not-after, and the agent keeps the
/// task's records until then.
#[test]
fn no_start_reaches_further_than_a_day() {
    let mut bed = Bed::up();
    let ToAgent::Start(mut start) = (match start_message("j", 1, "prolog", 0) {
        Input::Message(message) => message,
        other => panic!("{other:?}"),
    }) else {
        panic!("no Start")
    };
    start.not_after_ms = u64::MAX;
    let effects = bed.check(Input::Message(ToAgent::Start(start)), &["write-intent j.1.prolog.0"]);
    let Effect::WriteIntent { intent, .. } = &effects[0] else { panic!("{effects:?}") };
    assert_eq!(intent.not_after_boottime_ms, 24 * 3_600_000);
}

/// Regression test: a node with short jobs and the default configuration reached `max-tombstones` before the controller
/// sent Forget for any task. From then on the node refused all tasks.
#[test]
fn past_the_cap_the_oldest_tombstone_goes_whose_unit_is_gone() {
    let mut node = node();
    (node.policy.max_tombstones, node.policy.keep_failed) = (3, 1);
    let mut bed = Bed::up_as(node);
    // The unit stays for a post-mortem, and so does the tombstone.
    let failed = bed.ended("h", 1, "prolog", 3, &["finished h.1.prolog.0 failed (exit 3)"]);
    bed.check(ack(failed), &["write-tombstone h.1.prolog.0 failed (exit 3)"]);
    bed.check(tombstone_written(failed), &[]);
    bed.tombstone_written("j", 1, "prolog");
    bed.now.boot_ms += 1;
    bed.tombstone_written("k", 1, "prolog");
    bed.now.boot_ms = 10_000;
    bed.check(start_message("l", 1, "prolog", 0), &["remove-tombstone j.1.prolog.0", "write-intent l.1.prolog.0"]);
    bed.check(
        cancel("m", 1, "prolog", 0),
        &[
            "remove-tombstone k.1.prolog.0",
            "write-tombstone m.1.prolog.0 \
                                                                               cancelled",
        ],
    );
    bed.check(
        start_message("j", 2, "prolog", 0),
        &["finished j.2.prolog.0 excused, refused (this host keeps 3 tasks and records of ended tasks*"],
    );
}

#[test]
fn open_tombstones_stay_past_the_cap() {
    let refused = |holds: u32| {
        format!(
            "finished l.1.prolog.0 excused, refused (this host keeps {holds} tasks and records of \
                              ended tasks*"
        )
    };
    let mut node = node();
    node.policy.max_tombstones = 1;
    // A cancel of a task that never came stays until the controller knows the end.
    let mut bed = Bed::up_as(node.clone());
    let id = task("j", 1, "prolog", 0);
    bed.check(cancel("j", 1, "prolog", 0), &["write-tombstone j.1.prolog.0 cancelled"]);
    bed.check(tombstone_written(id), &["finished j.1.prolog.0 cancelled"]);
    bed.now.boot_ms = 20_000;
    bed.check(start_message("l", 1, "prolog", 0), &[&refused(1)]);
    bed.check(ack(id), &[]);
    bed.check(start_message("l", 1, "prolog", 0), &["remove-tombstone j.1.prolog.0", "write-intent l.1.prolog.0"]);
    // No other record on this host shows that a boot is to end the task.
    for (expects_boot, expect) in
        [(false, vec!["remove-tombstone j.1.prolog.0", "write-intent l.1.prolog.0"]), (true, vec![&*refused(1)])]
    {
        let tombstone = tombstone(&intent("j", 1, "prolog", 0), Outcome::Ok);
        let mut bed = Bed::of(node.clone());
        bed.check(joined(vec![], vec![Tombstone { expects_boot, ..tombstone }]), &[]);
        bed.feed(Input::LinkUp { counter: 1 });
        bed.feed(welcome(1));
        bed.feed(epoch_written(1));
        bed.now.boot_ms = 20_000;
        bed.check(start_message("l", 1, "prolog", 0), &expect);
    }
}

/// A node that is full of ended tasks, whose ends the controller has not stored yet, still accepts after-actions.
#[test]
fn after_actions_have_room_past_the_cap() {
    let refused = |holds: u32| format!("excused, refused (this host keeps {holds} tasks and records of ended tasks*");
    let mut node = node();
    (node.policy.max_tombstones, node.policy.max_tasks) = (1, 2);
    let mut bed = Bed::up_as(node);
    bed.check(cancel("j", 1, "prolog", 0), &["write-tombstone j.1.prolog.0 cancelled"]);
    bed.check(tombstone_written(task("j", 1, "prolog", 0)), &["finished j.1.prolog.0 cancelled"]);
    bed.now.boot_ms = 20_000;
    for (job, after, expect) in [
        ("h", false, format!("finished h.1.epilog.0 {}", refused(1))),
        ("k", true, "write-intent k.1.epilog.0".to_owned()),
        ("h", false, format!("finished h.1.epilog.0 {}", refused(2))),
        ("l", true, "write-intent l.1.epilog.0".to_owned()),
        ("m", true, "finished m.1.epilog.0 excused, refused (2 tasks have not ended*".to_owned()),
    ] {
        let asked = Start { after, ..start(job, 1, "epilog", 0) };
        bed.check(message(ToAgent::Start(asked)), &[&expect]);
    }
}

#[test]
fn a_name_that_an_orphan_has_is_refused_until_it_is_gone() {
    let mut bed = Bed::cold();
    let intent = intent("j", 1, "prolog", 0);
    let mut orphan = found(&intent, seen_nothing());
    orphan.intent = None;
    orphan.unit = Some(running(7));
    bed.check(joined(vec![orphan], vec![]), &["warning: perilog-task-prolog-j-0-*"]);
    bed.connect(&["hello 1 []"], &["redial 1000"]);
    bed.check(
        start_message("j", 1, "prolog", 0),
        &["finished j.1.prolog.0 refused (another unit or directory on this host has the name \
           perilog-task-prolog-j-0-*"],
    );
    bed.check(joined(vec![], vec![]), &[]);
    bed.check(start_message("j", 1, "prolog", 0), &["write-intent j.1.prolog.0"]);
}
