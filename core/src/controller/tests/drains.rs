//! The drain hook: its notices, their order, and the removal of a pending drain.

use crate::job::Terms;
use crate::outcome::Loss;

use super::operator::{confirm, hooked};
use super::release::{add, bench, contexts, finish};
use super::tolerance::report_end;
use super::*;

/// If a site configures a drain hook later, the hook gets a notice of each existing drain that no hook has confirmed.
#[test]
fn a_hook_that_is_configured_later_gets_the_drains_in_force() {
    for by_restart in [false, true] {
        let (mut b, _) = bench(2, |_| {});
        b.ask(Request::Drain { hosts: "n[0-1]".parse().unwrap(), reason: "bad memory".into(), force: true }).0.unwrap();
        b.ask(Request::Undrain { hosts: "n1".parse().unwrap(), forget: false, notice_id: None }).0.unwrap();
        let unnotified = |b: &Bench| b.store.drains.iter().filter(|drain| !drain.confirmed).count();
        assert_eq!((b.store.drains.len(), unnotified(&b)), (1, 0));
        b.settings.drain_hook = true;
        if by_restart {
            b = b.restart();
        } else {
            assert_eq!(b.batch(vec![Input::Settings(b.settings.clone())]), [Effect::OutboxGrew]);
        }
        assert_eq!(unnotified(&b), 1);
        confirm(&mut b, "n0");
        // The hook keeps its knowledge of the drain over restarts and configuration changes.
        let mut b = b.restart();
        assert_eq!((unnotified(&b), b.store.drains[0].notified), (0, true));
        b.batch(vec![Input::Settings(settings())]);
        b.batch(vec![Input::Settings(b.settings.clone())]);
        assert_eq!(unnotified(&b), 0);
    }
}

/// A command of the other host may undrain or drain after the new controller has begun: the hook of the new host
/// carries out every drain in force once more, and until then no drain counts as in force.
#[test]
fn a_move_sends_each_drain_in_force_again_once() {
    let (mut b, _) = bench(4, hooked);
    let ask = |b: &mut Bench, request: Request| b.ask(request).0.unwrap();
    ask(&mut b, Request::Drain { hosts: "n[0-2]".parse().unwrap(), reason: "dimm".into(), force: true });
    for host in ["n0", "n1"] {
        confirm(&mut b, host);
    }
    ask(&mut b, Request::Undrain { hosts: "n1".parse().unwrap(), forget: false, notice_id: None });
    let rows = |b: &Bench| -> Vec<(String, bool, bool, u64)> {
        let row = |drain: &DrainRow| (drain.host.to_string(), drain.confirmed, drain.lifted, drain.notice_id);
        b.store.drains.iter().map(row).collect()
    };
    let before = rows(&b);
    let mut b = b.restart();
    assert_eq!(rows(&b), before, "a restart on the same host sends nothing again");
    b.store.moved = true;
    let mut b = b.restart();
    let number = before[0].3;
    assert_eq!(rows(&b)[0], ("n0".to_owned(), false, false, number + 1));
    assert_eq!(rows(&b)[1..], before[1..], "pending notices are sent anyway");
    let moved = "moved here, and sends the drain hook the drains of n0 again";
    assert!(b.notes.iter().any(|note| note.contains(moved)));
    // The confirmation of the earlier notice, from a command of the other host, does not count.
    ask(&mut b, Request::DrainsDone { drains: vec![(HostName::new("n0").unwrap(), number)], lifted: false });
    assert!(!rows(&b)[0].1);
    confirm(&mut b, "n0");
    assert!(rows(&b)[0].1);
    // Without a hook nothing is sent.
    b.settings.drain_hook = false;
    let b = b.restart();
    assert!(rows(&b)[0].1);
}

/// Regression test: unless a rank waited for the drain, `ps` did not show that the drain hook failed.
#[test]
fn an_unconfirmed_drain_is_shown_with_age_and_reason() {
    let (mut b, _) = bench(3, hooked);
    let shown = |b: &mut Bench| -> Vec<(String, String, String, u64)> {
        let Ok(Reply::Ps { rows, .. }) = b.ask(Request::Ps { older_than_ms: 0, held: false }).0 else { panic!() };
        let of = |row: &crate::controller::view::PsRow| (row.action.to_string(), row.hosts.to_string());
        assert!(rows.iter().all(|row| row.job.is_none() && row.state == "notifying"));
        rows.iter().map(|row| (of(row).0, of(row).1, row.why.clone(), row.age_ms / 1_000)).collect()
    };
    let line = |action: &str, hosts: &str, why: &str, age| (action.to_owned(), hosts.to_owned(), why.to_owned(), age);
    let fails = |b: &mut Bench, lifted, notice_id| {
        let what = FailedNotice::Drain { host: HostName::new("n0").unwrap(), notice_id, lifted };
        b.ask(Request::HookFailed { what: vec![what], why: "exit 4: no such node".into() }).0.unwrap();
    };
    b.ask(Request::Drain { hosts: "n[0-2]".parse().unwrap(), reason: "dimm".into(), force: true }).0.unwrap();
    let notice_id = b.m.drains["n0"].notice_id;
    b.pass(5_000);
    let (waits, failed) = (
        "the drain hook has not carried it out yet (dimm)",
        "the drain hook failed, and will be retried: exit 4: no such node (dimm)",
    );
    assert_eq!(shown(&mut b), [line("drain", "n[0-2]", waits, 5)]);
    fails(&mut b, false, notice_id);
    // Failures of another notice, and of a lifted drain, do not concern this drain.
    fails(&mut b, false, notice_id + 1);
    fails(&mut b, true, notice_id);
    let mut rows = shown(&mut b);
    rows.sort();
    assert_eq!(rows, [line("drain", "n0", failed, 5), line("drain", "n[1-2]", waits, 5)]);
    confirm(&mut b, "n1");
    confirm(&mut b, "n2");
    assert_eq!(shown(&mut b), [line("drain", "n0", failed, 5)]);
    // The undrain is another notice with its own age, counted from the hook's first failure.
    b.ask(Request::Undrain { hosts: "n0".parse().unwrap(), forget: false, notice_id: None }).0.unwrap();
    assert_eq!(shown(&mut b), [line("undrain", "n0", waits, 0)]);
    fails(&mut b, true, notice_id);
    b.pass(7_000);
    fails(&mut b, true, notice_id);
    assert_eq!(shown(&mut b), [line("undrain", "n0", failed, 7)]);
    b.ask(Request::DrainsDone { drains: vec![(HostName::new("n0").unwrap(), notice_id)], lifted: true }).0.unwrap();
    fails(&mut b, true, notice_id);
    assert_eq!((shown(&mut b), b.m.drains.failed.len()), (vec![], 0));
    // The host is drained anew, and then the site removes the hook.
    b.ask(Request::Drain { hosts: "n0".parse().unwrap(), reason: "dimm".into(), force: true }).0.unwrap();
    let notice_id = b.m.drains["n0"].notice_id;
    fails(&mut b, false, notice_id);
    assert_eq!(b.m.drains.failed.len(), 1);
    b.batch(vec![Input::Settings(settings())]);
    assert_eq!((shown(&mut b), b.m.drains.failed.len()), (vec![], 0));
}

/// The drain hook fails for ever for a host that the resource manager does not know. An operator can drop such a drain.
#[test]
fn a_drain_that_the_hook_will_not_lift_is_dropped_by_an_operator() {
    let (mut b, _) = bench(1, |settings| settings.drain_hook = true);
    let undrain = |forget| Request::Undrain { hosts: "typo".parse().unwrap(), forget, notice_id: None };
    b.ask(Request::Drain { hosts: "typo".parse().unwrap(), reason: "dimm".into(), force: true }).0.unwrap();
    b.ask(undrain(false)).0.unwrap();
    assert_eq!(b.ask(undrain(false)).0, Ok(undrained(0, "", "typo")));
    b.ask(undrain(true)).0.unwrap();
    assert_eq!(b.store.drains, []);
    let again = b.ask(undrain(true)).0;
    let text = "no host typo is drained, and no node has that name; nothing was undrained";
    assert_eq!(again, Err(Refusal::NoSuchNode(text.to_owned())));
}

fn undrained(tasks: u64, already: &str, lifting: &str) -> Reply {
    Reply::Undrained { tasks, already: already.parse().unwrap(), lifting: lifting.parse().unwrap() }
}

/// Regression test: `perilog undrain "n[1-2]"` with n2 in service was refused, and n1 stayed drained. `perilog drain
/// "n[1-2]"` with n2 drained already reported that it drained both.
#[test]
fn each_host_of_a_list_is_drained_or_lifted_once() {
    let (mut b, _) = bench(11, |_| {});
    let drain = |hosts: &str| Request::Drain { hosts: hosts.parse().unwrap(), reason: "fan".into(), force: false };
    let undrain = |hosts: &str| Request::Undrain { hosts: hosts.parse().unwrap(), forget: false, notice_id: None };
    let drained = |tasks, already: &str| Ok(Reply::Drained { tasks, already: already.parse().unwrap() });
    assert_eq!(b.ask(drain("n[2,10]")).0, drained(2, ""));
    assert_eq!(b.ask(drain("n[10,1-2]")).0, drained(1, "n[2,10]"));
    assert_eq!(b.ask(undrain("n[1,3]")).0, Ok(undrained(1, "n3", "")));
    let refused = b.ask(undrain("n[2,99]")).0;
    assert!(
        matches!(&refused, Err(Refusal::NoSuchNode(text)) if text.contains("nothing was undrained")),
        "{refused:?}"
    );
    assert_eq!(b.store.drains.len(), 2);
    assert_eq!(b.ask(undrain("n[0-10]")).0, Ok(undrained(2, "n[0-1,3-9]", "")));
    assert_eq!(b.store.drains, []);
}

/// An operator undrained the host in the resource manager alone. The controller does not know, so it sends a notice of
/// the next fault, and waits for the hook.
#[test]
fn a_further_fault_of_a_drained_host_is_sent_and_awaited() {
    let (mut b, n) = bench(2, hooked);
    b.ask(Request::Drain { hosts: "n0".parse().unwrap(), reason: "dimm".into(), force: true }).0.unwrap();
    confirm(&mut b, "n0");
    b.ask(add("j", "n[0-1]", Terms::default())).0.unwrap();
    b.ask(finish("j", None)).0.unwrap();
    report_end(&mut b, n[1], task("epilog", "j", 1), ended(Outcome::Ok));
    let effects = report_end(&mut b, n[0], task("epilog", "j", 0), ended(exit(2)));
    assert!(effects.contains(&Effect::OutboxGrew), "{effects:?}");
    let mut b = b.restart();
    let drain = &b.store.drains[0];
    let reason = "epilog: failed (exit 2) (job j attempt 0)".to_owned();
    let newest = Again { at_ms: drain.newest().at_ms, reason, by: None };
    assert_eq!((drain.reason.as_str(), drain.newest(), drain.confirmed), ("dimm", newest, false));
    assert!(drain.newest().at_ms > drain.since_ms);
    assert_eq!(b.store.attempts[0].released.ranks.to_string(), "1");
    confirm(&mut b, "n0");
    assert!(b.store.attempts[0].complete);
    // The same fault again causes no notice; an operator's drain always does.
    let again = |b: &mut Bench, reason: &str| {
        let request = Request::Drain { hosts: "n0".parse().unwrap(), reason: reason.into(), force: true };
        assert_eq!(b.ask(request).0, Ok(Reply::Drained { tasks: 0, already: "n0".parse().unwrap() }));
        let drain = &b.store.drains[0];
        (drain.reason.clone(), drain.newest().reason, drain.confirmed)
    };
    assert_eq!(again(&mut b, "fan"), ("dimm".to_owned(), "fan".to_owned(), false));
    confirm(&mut b, "n0");
    assert_eq!(again(&mut b, "fan"), ("dimm".to_owned(), "fan".to_owned(), false));
    // A fault after an undrain makes a new drain.
    b.ask(Request::Undrain { hosts: "n0".parse().unwrap(), forget: false, notice_id: None }).0.unwrap();
    b.ask(Request::Drain { hosts: "n0".parse().unwrap(), reason: "disk".into(), force: true }).0.unwrap();
    assert_eq!((b.store.drains[0].reason.as_str(), &b.store.drains[0].again), ("disk", &None));
}

/// Without a drain hook, a drain is in force at once, and no rank waits for it. The store keeps the reason of a later
/// fault beside the first reason.
#[test]
fn what_else_is_wrong_is_kept_where_no_hook_is() {
    let (mut b, n) = bench(1, |_| {});
    b.ask(Request::Drain { hosts: "n0".parse().unwrap(), reason: "dimm".into(), force: true }).0.unwrap();
    b.ask(add("j", "n0", Terms::default())).0.unwrap();
    b.ask(finish("j", None)).0.unwrap();
    report_end(&mut b, n[0], task("epilog", "j", 0), ended(exit(2)));
    let drain = &b.store.drains[0];
    assert_eq!((drain.reason.as_str(), drain.confirmed), ("dimm", true));
    assert!(drain.again.as_ref().is_some_and(|again| again.reason.starts_with("epilog: failed")));
    assert!(b.store.attempts[0].complete);
}

/// Regression test: an operator's undrain arrived just after a new fault of the host. The undrain also lifted the drain
/// for the new fault, of which the operator could not know.
#[test]
fn an_undrain_leaves_a_fault_that_nobody_can_have_seen() {
    for hook in [false, true] {
        let (mut b, n) = bench(1, |settings| settings.drain_hook = hook);
        b.ask(Request::Drain { hosts: "n0".parse().unwrap(), reason: "dimm".into(), force: true }).0.unwrap();
        confirm(&mut b, "n0");
        b.ask(add("j", "n0", Terms::default())).0.unwrap();
        b.ask(finish("j", None)).0.unwrap();
        report_end(&mut b, n[0], task("epilog", "j", 0), ended(exit(2)));
        let undrain = || Request::Undrain { hosts: "n0".parse().unwrap(), forget: false, notice_id: None };
        let refused = b.ask(undrain()).0;
        assert!(matches!(&refused, Err(Refusal::Conflict(text)) if text.contains("(exit 2)")), "{refused:?}");
        assert!(b.store.drains[0].again.is_some() && !b.store.drains[0].lifted);
        // The undrain is accepted once the resource manager shows the fault, or a second has passed.
        if hook {
            confirm(&mut b, "n0");
        } else {
            b.pass(1_000);
        }
        b.ask(undrain()).0.unwrap();
        assert!(b.store.drains.iter().all(|drain| drain.lifted), "{:?}", b.store.drains);
    }
}

/// Regression test: while the drain hook carried out an undrain, an epilog failed, and the next undrain lifted that
/// drain too. The rank was released, and the resource manager was never notified of the fault.
#[test]
fn an_undrain_waits_for_the_hook_of_a_fault_that_came_under_a_lift() {
    let (mut b, n) = bench(1, hooked);
    let undrain = |forget| Request::Undrain { hosts: "n0".parse().unwrap(), forget, notice_id: None };
    b.ask(Request::Drain { hosts: "n0".parse().unwrap(), reason: "dimm".into(), force: true }).0.unwrap();
    confirm(&mut b, "n0");
    let first = b.store.drains[0].notice_id;
    b.ask(add("j", "n0", Terms::default())).0.unwrap();
    b.ask(undrain(false)).0.unwrap();
    b.ask(finish("j", None)).0.unwrap();
    report_end(&mut b, n[0], task("epilog", "j", 0), ended(exit(7)));
    // Minutes later the hook has still not carried it out.
    b.pass(300_000);
    let refused = b.ask(undrain(false)).0;
    assert!(matches!(&refused, Err(Refusal::Conflict(text)) if text.contains("(exit 7)")), "{refused:?}");
    // An edge names the drain that its resource manager showed.
    let of_first = Request::Undrain { hosts: "n0".parse().unwrap(), forget: true, notice_id: Some(first) };
    let refused = b.ask(of_first).0;
    assert!(matches!(&refused, Err(Refusal::Conflict(text)) if text.contains("(exit 7)")), "{refused:?}");
    assert!(!b.store.attempts[0].complete, "the rank waits for its drain");
    confirm(&mut b, "n0");
    assert!(b.store.attempts[0].complete);
    b.ask(undrain(false)).0.unwrap();
    // A hook that never carries it out: the operator drops the drain without it.
    b.ask(undrain(true)).0.unwrap();
    assert!(b.store.drains.is_empty());
}

/// Regression test: the drain hook confirmed an earlier notice, and the controller took this for a confirmation of a
/// newer notice.
#[test]
fn a_confirmation_of_an_earlier_notice_is_none_of_a_newer_one() {
    let (mut b, n) = bench(1, hooked);
    let drain = |reason: &str| Request::Drain { hosts: "n0".parse().unwrap(), reason: reason.into(), force: true };
    b.ask(drain("dimm")).0.unwrap();
    confirm(&mut b, "n0");
    b.ask(drain("fan")).0.unwrap();
    let row = b.store.drains[0].clone();
    b.ask(add("j", "n0", Terms::default())).0.unwrap();
    b.ask(finish("j", None)).0.unwrap();
    report_end(&mut b, n[0], task("epilog", "j", 0), ended(exit(2)));
    // The job's log has an event about the newer fault.
    assert!(contexts(&b, "drain")[0]["reason"].as_str().is_some_and(|reason| reason.starts_with("epilog: failed")));
    b.ask(Request::DrainsDone { drains: vec![(row.host, row.notice_id)], lifted: false }).0.unwrap();
    assert_eq!((b.store.drains[0].confirmed, b.store.attempts[0].complete), (false, false));
    confirm(&mut b, "n0");
    assert!(b.store.attempts[0].complete);
}

/// Regression test: a drain was confirmed, and then the site removed the drain hook. A new fault came, and the hook got
/// no notice of the fault when the site configured the hook again.
#[test]
fn drains_without_a_hook_are_sent_to_a_later_hook() {
    for by_restart in [false, true] {
        let (mut b, n) = bench(1, hooked);
        b.ask(Request::Drain { hosts: "n0".parse().unwrap(), reason: "dimm".into(), force: true }).0.unwrap();
        confirm(&mut b, "n0");
        b.settings.drain_hook = false;
        b.batch(vec![Input::Settings(b.settings.clone())]);
        b.run("prolog", "j", "n0");
        report_end(&mut b, n[0], task("prolog", "j", 0), ended(exit(2)));
        b.settings.drain_hook = true;
        if by_restart {
            b = b.restart();
        } else {
            b.batch(vec![Input::Settings(b.settings.clone())]);
        }
        assert!(!b.store.drains[0].confirmed);
    }
}

/// Regression test: a drain had waited for its hook for hours, and `ps` showed it as new after each new fault of the
/// host.
#[test]
fn what_waits_for_its_hook_is_as_old_as_that_was_asked() {
    let (mut b, n) = bench(1, hooked);
    b.ask(add("j", "n0", Terms::default())).0.unwrap();
    b.ask(finish("j", None)).0.unwrap();
    report_end(&mut b, n[0], task("epilog", "j", 0), ended(exit(2)));
    b.pass(7_200_000);
    b.ask(Request::Drain { hosts: "n0".parse().unwrap(), reason: "fan".into(), force: true }).0.unwrap();
    let Ok(Reply::Ps { rows, .. }) = b.ask(Request::Ps { older_than_ms: 3_600_000, held: false }).0 else { panic!() };
    assert_eq!(rows.iter().map(|row| row.state.as_str()).collect::<Vec<_>>(), ["draining"]);
    assert!(rows[0].why.contains("fan"), "{}", rows[0].why);
}

/// Regression test: a second script was stuck after a reboot, and the controller took that earlier reboot for the end
/// of the second script.
#[test]
fn what_is_stuck_once_more_waits_for_another_boot() {
    let (mut b, n) = bench(1, |_| {});
    let overdue = |script: &str| Phase::Overdue { script: script.into(), limit_ms: 5, doing: String::new() };
    let stuck = |b: &mut Bench, session, job: &str, script: &str| {
        b.run("prolog", job, "n0");
        b.receives(session, FromAgent::Accepted { task: task("prolog", job, 0), limit_ms: None });
        b.receives(
            session,
            FromAgent::PhaseChanged { task: task("prolog", job, 0), phase: overdue(script), age_ms: 1 },
        );
    };
    stuck(&mut b, n[0], "j", "10-a");
    b.batch(vec![Input::Closed { session: n[0], why: "gone".into() }]);
    let (session, _) = b.up("n0", "b2", vec![]);
    stuck(&mut b, session, "k", "20-b");
    b.settings.reboot_cleans = true;
    b.batch(vec![Input::Settings(b.settings.clone())]);
    b.receives(session, finished(task("prolog", "k", 0), Outcome::Timeout { status: None }));
    assert_eq!(b.store.drains.len(), 1);
    b.batch(vec![Input::Closed { session, why: "gone".into() }]);
    b.up("n0", "b3", vec![]);
    assert_eq!(b.store.drains, []);
}

/// Regression test: an operator cancelled the epilog and lifted the drain that followed. Then the prolog ended, and the
/// rank was released with neither a drain nor a clean-up.
#[test]
fn a_script_past_its_cancelled_epilog_drains_its_node_again() {
    let ran = || Ended { steps: vec![step()], ..ended(Outcome::Cancelled { status: None }) };
    let reported = |end: &str| Some(format!("prolog: {end}, and epilog had been cancelled (job j attempt 0)"));
    // Each row: the fate of the epilog, the end of the prolog after it, and the drain reason that follows.
    for (epilog, prolog, expect) in [
        ("cancel", ended(Outcome::Ok), reported("ok")),
        ("cancel", ended(exit(3)), reported("failed (exit 3)")),
        ("cancel", ended(Outcome::Timeout { status: None }), reported("timeout")),
        // The scripts succeeded before the cancel stopped the task.
        ("cancel", ran(), reported("cancelled")),
        // No script ran: no clean-up is needed.
        ("cancel", ended(Outcome::Cancelled { status: None }), None),
        ("resolve", ended(Outcome::Ok), None),
    ] {
        // The operator lifts the drain here, or in the resource manager alone.
        for (hook, here) in [(false, true), (true, true), (true, false)] {
            let (mut b, n) = bench(1, |settings| settings.drain_hook = hook);
            b.run("prolog", "j", "n0");
            b.ask(finish("j", None)).0.unwrap();
            let of = || Which { action: Some(ActionName::new("epilog").unwrap()), ..which("j", None) };
            if epilog == "cancel" {
                b.ask(Request::Cancel { which: of(), why: "w".into() }).0.unwrap();
                if hook {
                    confirm(&mut b, "n0");
                }
                if here {
                    b.ask(Request::Undrain { hosts: "n0".parse().unwrap(), forget: true, notice_id: None }).0.unwrap();
                }
            } else {
                b.ask(Request::Resolve { which: of(), ok: true, reason: "clean".into() }).0.unwrap();
            }
            assert_eq!(b.store.drains.len(), usize::from(epilog == "cancel" && !here));
            report_end(&mut b, n[0], task("prolog", "j", 0), prolog.clone());
            let drain = b.store.drains.first();
            let reported =
                drain.map(|row| row.newest().reason).filter(|reason| !reason.starts_with("epilog: cancelled"));
            assert_eq!(reported, expect, "epilog: {epilog}, prolog {}, {hook}, {here}", prolog.outcome);
            // The rank is released once the drain is in force; no reboot lifts this drain.
            assert_eq!(b.store.attempts[0].complete, expect.is_none() || !hook);
            assert!(drain.is_none_or(|row| row.stuck.is_none()));
        }
    }
}

/// Regression test: an operator cancelled the epilog, the prolog became lost, and the operator lifted the drains. Then
/// the node came back and reported that the prolog had run, and the node was not drained again.
#[test]
fn a_lost_script_past_its_cancelled_epilog_drains_its_node() {
    let ran = Ended { steps: vec![step()], ..ended(Outcome::Cancelled { status: None }) };
    for (own, expect) in [
        (ended(Outcome::Ok), Some("prolog: ok, and epilog had been cancelled (job j attempt 0)")),
        (ran, Some("prolog: cancelled, and epilog had been cancelled (job j attempt 0)")),
        (ended(Outcome::Cancelled { status: None }), None),
    ] {
        let (mut b, n) = bench(1, |_| {});
        b.run("prolog", "j", "n0");
        b.receives(n[0], FromAgent::Accepted { task: task("prolog", "j", 0), limit_ms: Some(1_000) });
        b.ask(finish("j", None)).0.unwrap();
        let of = Which { action: Some(ActionName::new("epilog").unwrap()), ..which("j", None) };
        b.ask(Request::Cancel { which: of, why: "w".into() }).0.unwrap();
        let lift = |b: &mut Bench| {
            b.ask(Request::Undrain { hosts: "n0".parse().unwrap(), forget: false, notice_id: None }).0.unwrap()
        };
        lift(&mut b);
        b.batch(vec![Input::Closed { session: n[0], why: String::new() }]);
        b.pass(4_000_000);
        assert_eq!(b.outcome(task("prolog", "j", 0)), Outcome::Lost { why: Loss::Unreachable });
        assert!(b.store.drains[0].reason.starts_with("prolog: lost"), "{:?}", b.store.drains);
        lift(&mut b);
        let (session, _) = b.up("n0", "b", vec![held("prolog", "j", 0, HeldState::Ended)]);
        assert_eq!(b.store.drains, []);
        report_end(&mut b, session, task("prolog", "j", 0), own);
        assert_eq!(b.store.drains.first().map(|row| row.newest().reason).as_deref(), expect);
    }
}
