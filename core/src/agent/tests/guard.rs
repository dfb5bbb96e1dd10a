use super::bed::Bed;
use super::values::*;
use crate::agent::io::Input;
use crate::ids::TaskId;

/// Sends a Start, and returns its task. Asserts that the task begins, or that the agent reports that the task waits for
/// `waits_for`.
#[track_caller]
fn ask(bed: &mut Bed, j: &str, attempt: u64, a: &str, rank: u32, waits_for: Option<&str>) -> TaskId {
    let id = task(j, attempt, a, rank);
    let name = super::effect_text::name(id);
    bed.feed(start_message(j, attempt, a, rank));
    let accepted = format!("accepted {name}");
    let next = match waits_for {
        Some(why) => format!("moved {name} waiting for {why}"),
        None => format!("start-unit {name}"),
    };
    let effects = bed.feed(intent_written(id));
    let got: Vec<String> =
        effects.iter().map(super::effect_text::effect_text).filter(|w| !w.starts_with("wake")).collect();
    assert_eq!(got, [accepted, next]);
    id
}

/// Ends a task whose start is under way. Asserts that the last inspection requests the write of the outcome, and then
/// has the effects `then`.
#[track_caller]
fn end(bed: &mut Bed, id: TaskId, j: &str, attempt: u64, a: &str, rank: u32, then: &[&str]) {
    let name = super::effect_text::name(id);
    bed.feed(queued(id));
    bed.feed(task_changed(id));
    let written = format!("write-outcome {name} ok");
    let expect: Vec<&str> = [written.as_str()].into_iter().chain(then.iter().copied()).collect();
    bed.check(inspected(id, seen_exited(&intent(j, attempt, a, rank), 1, 0)), &expect);
}

#[test]
fn no_task_begins_beside_another_action_or_attempt_of_its_job() {
    for (j, attempt, a, rank, waits) in [
        ("j", 1, "prolog", 1, false),
        ("j", 1, "epilog", 0, true),
        ("j", 2, "prolog", 0, true),
        ("k", 1, "epilog", 0, false),
        ("k", 1, "prolog", 0, false),
    ] {
        let mut bed = Bed::up();
        ask(&mut bed, "j", 1, "prolog", 0, None);
        let why = waits.then_some("prolog of job j, attempt 1, rank 0");
        ask(&mut bed, j, attempt, a, rank, why);
    }
}

#[test]
fn the_queue_is_in_order_and_each_task_names_its_wait() {
    let mut bed = Bed::up();
    let prolog = ask(&mut bed, "j", 1, "prolog", 0, None);
    let epilog = ask(&mut bed, "j", 1, "epilog", 0, Some("prolog of job j, attempt 1, rank 0"));
    let again = ask(&mut bed, "j", 2, "prolog", 0, Some("prolog of job j, attempt 1, rank 0"));
    // A task of the live step, but behind an epilog: the task would delay the epilog.
    let late = ask(&mut bed, "j", 1, "prolog", 1, Some("epilog of job j, attempt 1, rank 0"));
    end(
        &mut bed,
        prolog,
        "j",
        1,
        "prolog",
        0,
        &[
            "moved j.1.epilog.0 starting",
            "start-unit j.1.epilog.0",
            "moved j.2.prolog.0 waiting for epilog of job j, attempt 1, rank 0",
        ],
    );
    end(
        &mut bed,
        epilog,
        "j",
        1,
        "epilog",
        0,
        &[
            "moved j.2.prolog.0 starting",
            "start-unit j.2.prolog.0",
            "moved j.1.prolog.1 waiting for prolog of job j, attempt 2, rank 0",
        ],
    );
    end(&mut bed, again, "j", 2, "prolog", 0, &["moved j.1.prolog.1 starting", "start-unit j.1.prolog.1"]);
    end(&mut bed, late, "j", 1, "prolog", 1, &[]);
}

#[test]
fn an_exclusive_host_runs_one_task_at_a_time() {
    let mut node = node();
    node.policy.serialize_host = true;
    let mut bed = Bed::up_as(node);
    let first = ask(&mut bed, "j", 1, "prolog", 0, None);
    ask(&mut bed, "j", 1, "prolog", 1, Some("prolog of job j, attempt 1, rank 0"));
    ask(&mut bed, "k", 1, "prolog", 0, Some("prolog of job j, attempt 1, rank 0"));
    end(
        &mut bed,
        first,
        "j",
        1,
        "prolog",
        0,
        &[
            "moved j.1.prolog.1 starting",
            "start-unit j.1.prolog.1",
            "moved k.1.prolog.0 waiting for prolog of job j, attempt 1, rank 1",
        ],
    );
}

#[test]
fn a_host_that_is_no_longer_exclusive_starts_its_queue() {
    let mut node = node();
    node.policy.serialize_host = true;
    let mut bed = Bed::up_as(node.clone());
    ask(&mut bed, "j", 1, "prolog", 0, None);
    ask(&mut bed, "k", 1, "prolog", 0, Some("prolog of job j, attempt 1, rank 0"));
    node.policy.serialize_host = false;
    bed.check(Input::Policy(node.policy), &["moved k.1.prolog.0 starting", "start-unit k.1.prolog.0"]);
}

#[test]
fn lingering_processes_hold_the_host_unless_kept_by_plan() {
    for (a, holds) in [("prolog", true), ("mount", false)] {
        let mut bed = Bed::up();
        let id = bed.claimed("j", 1, a, 0);
        ask(&mut bed, "j", 1, "epilog", 0, Some(&format!("{a} of job j, attempt 1, rank 0")));
        bed.feed(task_changed(id));
        let mut over = seen_exited(&intent("j", 1, a, 0), 1, 0);
        over.processes = processes(&[7]);
        let effects = bed.feed(inspected(id, over));
        let began = effects.iter().any(|e| matches!(e, crate::agent::Effect::StartUnit { .. }));
        assert_eq!(began, !holds, "{a}");
    }
}

#[test]
fn tasks_of_the_hosts_own_count_too() {
    let mut bed = Bed::up();
    bed.feed(Input::Exec { caller: 1, exec: exec("j", 1, "prolog", 0) });
    bed.feed(intent_written(local("j", 1, "prolog", 0)));
    ask(&mut bed, "j", 1, "epilog", 0, Some("prolog of job j, attempt 1, rank 0"));
    bed.check(Input::Exec { caller: 2, exec: exec("j", 1, "epilog", 1) }, &["write-intent local:j.1.epilog.1"]);
    bed.check(
        intent_written(local("j", 1, "epilog", 1)),
        &["reply 2 started", "reply 2 waiting for prolog of job j, attempt 1, rank 0"],
    );
}

#[test]
fn no_task_begins_while_a_script_of_a_released_attempt_is_alive() {
    let mut bed = Bed::up();
    let stuck = bed.claimed("j", 1, "prolog", 0);
    bed.check(forget(stuck), &[]);
    let next = ask(&mut bed, "k", 1, "prolog", 0, Some("prolog of job j, attempt 1, rank 0"));
    bed.feed(task_changed(stuck));
    bed.check(
        inspected(stuck, seen_exited(&intent("j", 1, "prolog", 0), 1, 0)),
        &["write-outcome j.1.prolog.0 ok", "moved k.1.prolog.0 starting", "start-unit k.1.prolog.0"],
    );
    bed.check(queued(next), &[]);
}

#[test]
fn a_task_of_an_attempt_that_was_forgotten_does_not_begin() {
    let mut bed = Bed::up();
    ask(&mut bed, "j", 1, "prolog", 0, None);
    let waiting = ask(&mut bed, "j", 1, "epilog", 0, Some("prolog of job j, attempt 1, rank 0"));
    let refused = "refused (the attempt was closed before the task began)";
    bed.check(forget(waiting), &[&format!("take-claim j.1.epilog.0 {refused}")]);
}

#[test]
fn a_task_that_waits_past_its_not_after_is_refused_and_claimed() {
    let mut bed = Bed::up();
    let first = ask(&mut bed, "j", 1, "prolog", 0, None);
    bed.feed(queued(first));
    let id = task("j", 1, "epilog", 0);
    bed.feed(start_message("j", 1, "epilog", 0));
    bed.check(intent_written(id), &["accepted j.1.epilog.0", "moved j.1.epilog.0 waiting for prolog*"]);
    bed.now.boot_ms = 10_000;
    let refused = "refused (the task did not begin in time: it waited for prolog of job j, attempt 1, rank 0)";
    bed.pass(1, &["inspect j.1.prolog.0", &format!("take-claim j.1.epilog.0 {refused}")]);
    bed.check(claim_taken(id, true), &[&format!("write-outcome j.1.epilog.0 {refused}")]);
    bed.check(outcome_written(id), &[&format!("finished j.1.epilog.0 {refused}")]);
}

#[test]
fn a_withdrawn_start_holds_the_host_until_it_is_claimed() {
    let mut bed = Bed::up();
    let first = ask(&mut bed, "j", 1, "prolog", 0, None);
    bed.feed(start_reply(first, crate::agent::io::StartReply::Rejected("no".to_owned())));
    ask(&mut bed, "j", 1, "epilog", 0, Some("prolog of job j, attempt 1, rank 0"));
    bed.check(
        claim_taken(first, true),
        &["write-outcome j.1.prolog.0 failed (systemd: no)", "moved j.1.epilog.0 starting", "start-unit j.1.epilog.0"],
    );
}

/// Regression test: the start of a prolog was still on its way to PID 1 when the agent was killed, and the next agent
/// let the epilog run beside the prolog.
#[test]
fn nothing_begins_beside_a_task_of_the_earlier_agent() {
    let (prolog, epilog) = (intent("j", 1, "prolog", 0), task("j", 1, "epilog", 0));
    let mut bed = Bed::cold();
    bed.feed(joined(vec![found(&prolog, seen_nothing())], vec![]));
    bed.connect_any();
    ask(&mut bed, "j", 1, "epilog", 0, Some("prolog of job j, attempt 1, rank 0"));
    bed.check(cancel("j", 1, "prolog", 0), &["take-claim j.1.prolog.0 cancelled"]);
    // The prolog's runner was faster, so the prolog lives.
    bed.check(claim_taken(prolog.start.task, false), &["inspect j.1.prolog.0"]);
    bed.check(
        inspected(prolog.start.task, seen_exited(&prolog, 1, 0)),
        &["write-outcome j.1.prolog.0 ok", "moved j.1.epilog.0 starting", "start-unit j.1.epilog.0"],
    );
    bed.check(queued(epilog), &[]);
}

/// Regression test: a restarted agent got a Cancel, but the task's runner took the claim before the agent could. The
/// agent then forgot the Cancel, and never sent TERM to the runner.
#[test]
fn a_cancel_after_a_restart_reaches_a_faster_runner() {
    let prolog = intent("j", 1, "prolog", 0);
    let id = prolog.start.task;
    let mut bed = Bed::cold();
    bed.feed(joined(vec![found(&prolog, seen_nothing())], vec![]));
    bed.connect_any();
    bed.check(cancel("j", 1, "prolog", 0), &["take-claim j.1.prolog.0 cancelled"]);
    bed.check(claim_taken(id, false), &["inspect j.1.prolog.0"]);
    bed.check(inspected(id, seen_running(&prolog, 1)), &["watch j.1.prolog.0", "signal j.1.prolog.0 15"]);
}

/// The agent withdraws a local prolog (`Exec`) if its caller has not come back after a restart of the agent and another
/// task of the job waits. Otherwise the prolog would hold back the epilog until its not-after, an hour.
#[test]
fn an_abandoned_task_is_withdrawn_for_a_waiting_one_of_its_job() {
    let prolog = local_intent("j", 1, "prolog", 0);
    let mut bed = Bed::cold();
    bed.feed(joined(vec![found(&prolog, seen_nothing())], vec![]));
    let epilog = local("j", 1, "epilog", 0);
    bed.feed(Input::Exec { caller: 1, exec: exec("j", 1, "epilog", 0) });
    let effects = bed.feed(intent_written(epilog));
    let got: Vec<String> = effects.iter().map(super::effect_text::effect_text).collect();
    assert!(
        got.iter().any(|w| w.starts_with("take-claim")) && !got.iter().any(|w| w.starts_with("start-unit")),
        "{got:?}"
    );
    let effects = bed.feed(claim_taken(prolog.start.task, true));
    let got: Vec<String> = effects.iter().map(super::effect_text::effect_text).collect();
    assert!(got.iter().any(|w| w.starts_with("start-unit")), "{got:?}");
}
