//! Operators' requests: `resolve`, which waits for the drain if a script may be alive, and `quiesce`.

use crate::controller::view::WhyTask;
use crate::job::Terms;
use crate::task::Process;
use crate::{Loss, Verdict};

use super::release::{add, bench, contexts, finish};
use super::*;

fn resolve(ok: bool) -> Request {
    Request::Resolve { which: which("j", None), ok, reason: "power-cycled".into() }
}

fn resolved(tasks: u64, waiting: u64) -> Result<Reply, Refusal> {
    Ok(Reply::Resolved { tasks, waiting })
}

/// Confirms, in place of the drain hook, the newest notice about this host.
pub(super) fn confirm(b: &mut Bench, host: &str) -> Vec<Effect> {
    let row = b.store.drains.iter().find(|drain| drain.host.as_str() == host).unwrap().clone();
    b.ask(Request::DrainsDone { drains: vec![(row.host, row.notice_id)], lifted: row.lifted }).1
}

pub(super) fn hooked(settings: &mut Settings) {
    settings.drain_hook = true;
}

/// Connects n0 again in the same boot, with a Hello that lists the tasks `held`. Returns the session, and all effects
/// but the Welcome and the closing of sessions.
fn again(b: &mut Bench, held: Vec<Held>) -> (SessionId, Vec<Effect>) {
    let session = b.session();
    let mut effects = b.receives(session, FromAgent::Hello(hello("n0", "b", session.0, held)));
    effects.retain(|e| !matches!(e, Effect::Close { .. } | Effect::Send { message: ToAgent::Welcome { .. }, .. }));
    (session, effects)
}

fn running() -> Phase {
    Phase::Running { script: "10-a".into(), index: 1, of: 1, progress: None }
}

/// Creates a bench whose only node has accepted a prolog and reported this phase of it. `None`: the node has reported
/// no phase.
fn accepted(phase: Option<Phase>) -> (Bench, SessionId) {
    let (mut b, n) = bench(1, hooked);
    b.run("prolog", "j", "n0");
    b.receives(n[0], FromAgent::Accepted { task: task("prolog", "j", 0), limit_ms: None });
    if let Some(phase) = phase {
        b.receives(n[0], FromAgent::PhaseChanged { task: task("prolog", "j", 0), phase, age_ms: 1 });
    }
    (b, n[0])
}

#[test]
fn a_live_task_is_resolved_when_its_drain_is_in_force() {
    let t = task("prolog", "j", 0);
    for restart in [false, true] {
        let (mut b, _) = accepted(Some(running()));
        let (reply, effects) = b.ask(resolve(true));
        assert_eq!((reply, effects), (resolved(1, 1), vec![Effect::OutboxGrew]));
        assert_eq!((b.action("prolog", "j", 0).verdict, b.action("prolog", "j", 0).accepted.len()), (None, 1));
        let Ok(Reply::Ps { rows, .. }) = b.ask(Request::Ps { older_than_ms: 0, held: false }).0 else { panic!() };
        let mut states: Vec<_> = rows.iter().map(|row| (row.action.as_str(), row.state.as_str(), &row.why)).collect();
        states.sort();
        assert_eq!((states[0].0, states[0].1, states.len()), ("drain", "notifying", 2));
        assert_eq!((states[1].0, states[1].1), ("prolog", "resolving"));
        assert_eq!(
            states[1].2,
            "will be resolved as an operator asked (power-cycled) once the drain of its node is in \
                                 force"
        );
        assert_eq!(contexts(&b, "resolve").len(), 1);
        if restart {
            b = b.restart();
        }
        confirm(&mut b, "n0");
        assert_eq!(b.outcome(t), Outcome::Resolved { ok: true, reason: "power-cycled".into(), by: 0 });
        assert_eq!(b.action("prolog", "j", 0).verdict, Some(Verdict::Ok));
        // The resolution is used up, also for the next controller.
        let mut b = b.restart();
        assert!(b.action("prolog", "j", 0).resolving.is_empty());
        // The task's own result is still recorded.
        let (n0, _) = again(&mut b, vec![held("prolog", "j", 0, HeldState::Ended)]);
        b.receives(n0, finished(t, exit(5)));
        assert_eq!((b.outcome(t).as_str(), b.store.ranks[0].late[0].outcome.clone()), ("resolved", exit(5)));
    }
}

/// Regression test: `perilog why` called a node free while the script of a resolved epilog still ran there.
#[test]
fn a_script_that_outlives_its_resolution_is_shown() {
    let (mut b, n0) = accepted(Some(running()));
    let open = |b: &mut Bench| {
        let host = HostName::new("n0").unwrap();
        let Ok(Reply::Why(view)) = b.ask(Request::Why { host }).0 else { panic!("no why") };
        let kills = |task: &WhyTask| task.next.iter().all(|next| next.starts_with("ssh n0 systemctl "));
        assert!(view.open.iter().all(kills), "no verb reaches a task that is over: {:?}", view.open);
        view.open.into_iter().map(|task| (task.state, task.why)).collect::<Vec<_>>()
    };
    b.ask(resolve(false)).0.unwrap();
    confirm(&mut b, "n0");
    let continues = (
        "running".to_owned(),
        "it still runs, although its task has ended: resolved as failed by uid 0 (power-cycled)",
    );
    let continues = (continues.0, continues.1.to_owned());
    assert_eq!(open(&mut b), [continues]);
    b.receives(n0, finished(task("prolog", "j", 0), exit(5)));
    assert_eq!(open(&mut b), []);
}

/// A rank ends by itself while an operator's resolution of it waits for a drain. The store must drop the resolution of
/// this rank: after a restart of the controller, the rank still has its own outcome.
#[test]
fn a_resolution_that_is_used_up_is_gone_from_the_store() {
    let (mut b, n) = bench(2, hooked);
    b.run("prolog", "j", "n[0-1]");
    for rank in 0..2 {
        b.receives(n[rank as usize], FromAgent::Accepted { task: task("prolog", "j", rank), limit_ms: None });
    }
    assert_eq!(b.ask(resolve(false)).0, resolved(2, 2));
    b.receives(n[0], finished(task("prolog", "j", 0), exit(3)));
    assert_eq!(b.action("prolog", "j", 0).resolving[0].ranks.to_string(), "1");
    let mut b = b.restart();
    confirm(&mut b, "n0");
    assert_eq!(b.outcome(task("prolog", "j", 0)), exit(3));
    confirm(&mut b, "n1");
    assert_eq!(b.outcome(task("prolog", "j", 1)).as_str(), "resolved");
}

#[test]
fn an_end_that_comes_while_the_resolution_waits() {
    let t = task("prolog", "j", 0);
    let resolution = || Outcome::Resolved { ok: false, reason: "power-cycled".into(), by: 0 };
    // A result of the scripts is the outcome. An end that proves that no script lives lets the resolution become the
    // outcome at once.
    for (end, outcome) in [
        (Outcome::Ok, None),
        (exit(3), Some(exit(3))),
        (Outcome::Cancelled { status: None }, Some(resolution())),
        (Outcome::Refused { why: "full".into() }, Some(resolution())),
        (Outcome::Lost { why: Loss::Vanished }, Some(resolution())),
        (Outcome::Lost { why: Loss::Rebooted }, Some(resolution())),
    ] {
        let (mut b, n0) = accepted(Some(running()));
        b.ask(resolve(false)).0.unwrap();
        b.receives(n0, finished(t, end.clone()));
        let row = b.action("prolog", "j", 0);
        assert!(row.verdict.is_some() && row.resolving.is_empty(), "{end}");
        match outcome {
            Some(outcome) => assert_eq!(b.outcome(t), outcome, "{end}"),
            None => assert_eq!(row.ok.len(), 1),
        }
    }
    // After another boot no process of the task is alive.
    let (mut b, n0) = accepted(Some(running()));
    b.ask(resolve(false)).0.unwrap();
    b.batch(vec![Input::Closed { session: n0, why: "gone".into() }]);
    b.up("n0", "b2", vec![]);
    assert_eq!(b.outcome(t), resolution());
    // Neither an unreachable node nor the end of the limit shows that the scripts have ended.
    let (mut b, n) = bench(1, hooked);
    b.ask(Request::Run(RunRequest { timeout_ms: Some(1_000), ..request("prolog", "j", Some("n0"), None) })).0.unwrap();
    b.receives(n[0], FromAgent::Accepted { task: t, limit_ms: None });
    b.ask(resolve(false)).0.unwrap();
    b.batch(vec![Input::Closed { session: n[0], why: "gone".into() }]);
    b.pass(10_000_000);
    b.pass(10_000_000);
    assert_eq!(b.action("prolog", "j", 0).verdict, None);
    confirm(&mut b, "n0");
    assert_eq!(b.outcome(t), resolution());
}

#[test]
fn a_repeated_drain_is_awaited_and_a_lifted_one_is_not() {
    let drain = |reason: &str| Request::Drain { hosts: "n0".parse().unwrap(), reason: reason.into(), force: true };
    let (mut b, _) = accepted(Some(running()));
    b.ask(drain("bad memory")).0.unwrap();
    // The drain is not confirmed yet.
    assert_eq!(b.ask(resolve(true)).0, resolved(1, 1));
    // A later resolution replaces the earlier one.
    assert_eq!(b.ask(resolve(false)).0, resolved(1, 1));
    confirm(&mut b, "n0");
    assert!(matches!(b.outcome(task("prolog", "j", 0)), Outcome::Resolved { ok: false, .. }));
    let (mut b, _) = accepted(Some(running()));
    b.ask(drain("bad memory")).0.unwrap();
    confirm(&mut b, "n0");
    // The drain is in force here; the controller asks the hook whether the resource manager still has it.
    assert_eq!(b.ask(resolve(true)).0, resolved(1, 1));
    confirm(&mut b, "n0");
    assert_eq!(b.action("prolog", "j", 0).verdict, Some(Verdict::Ok));
    // With an undrain an operator states that the node is in order, so the resolution waits no longer.
    let (mut b, _) = accepted(Some(running()));
    assert_eq!(b.ask(resolve(true)).0, resolved(1, 1));
    b.ask(Request::Undrain { hosts: "n0".parse().unwrap(), forget: true, notice_id: None }).0.unwrap();
    assert_eq!(b.action("prolog", "j", 0).verdict, Some(Verdict::Ok));
    // Without a hook a drain is in force at once, also if the hook is removed meanwhile.
    let (mut b, _) = accepted(Some(running()));
    assert_eq!(b.ask(resolve(true)).0, resolved(1, 1));
    b.batch(vec![Input::Settings(settings())]);
    assert_eq!(b.action("prolog", "j", 0).verdict, Some(Verdict::Ok));
}

/// Regression test: an operator resolved a task that waited on its node. The node got no Cancel, and ran the task hours
/// later.
#[test]
fn what_is_resolved_before_it_began_never_begins() {
    let t = task("prolog", "j", 0);
    let queued = || Phase::Waiting { why: "another task runs on this host".into() };
    for hook in [false, true] {
        for (phase, cancelled) in [
            (None, true),
            (Some(queued()), true),
            (Some(Phase::Starting), true),
            (Some(running()), false),
            (Some(Phase::Lingering { processes: vec![] }), false),
        ] {
            let (mut b, _) = accepted(phase.clone());
            b.settings.drain_hook = hook;
            b.batch(vec![Input::Settings(b.settings.clone())]);
            let (_, effects) = b.ask(resolve(true));
            let reported = effects.iter().filter(|effect| is_cancel(effect, t)).count();
            assert_eq!(reported, usize::from(cancelled), "{phase:?}");
            // The Cancel is repeated when the node comes back, unless the scripts run.
            let mut b = b.restart();
            for (held_as, cancelled) in [
                (HeldState::Unclaimed, true),
                (HeldState::Live { phase: queued(), age_ms: 1 }, true),
                (HeldState::Live { phase: running(), age_ms: 1 }, false),
            ] {
                let (_, effects) = again(&mut b, vec![held("prolog", "j", 0, held_as.clone())]);
                let reported = effects.iter().filter(|effect| is_cancel(effect, t)).count();
                assert_eq!(reported, usize::from(cancelled), "{held_as:?}: {effects:?}");
                let begins = |e: &Effect| matches!(e, Effect::Send { message: ToAgent::Begin { .. }, .. });
                assert!(!effects.iter().any(begins), "{effects:?}");
            }
        }
    }
    // A Start that never arrived is not sent again.
    let (mut b, _) = bench(1, hooked);
    b.run("prolog", "j", "n0");
    assert_eq!(b.ask(resolve(true)).0, resolved(1, 1));
    let (_, effects) = again(&mut b, vec![]);
    assert!(matches!(&effects[..], [e] if is_cancel(e, t)), "{effects:?}");
    // The controller tells the node the reason in the operator's words.
    let text_of = |effect: &Effect| match effect {
        Effect::Send { message: ToAgent::Cancel { why, .. }, .. } => why.clone(),
        _ => String::new(),
    };
    assert_eq!(text_of(&effects[0]), "resolved by an operator before it began: power-cycled");
}

fn run(action: &str, name: &str) -> Request {
    Request::Run(request(action, name, Some("n0"), None))
}

fn quiesce(wait: bool) -> Request {
    Request::Quiesce { reason: "new release".into(), wait }
}

#[test]
fn quiet_begins_only_what_follows_and_outlives_a_restart() {
    let (mut b, _) = bench(1, |_| {});
    b.ask(add("j", "n0", Terms::default())).0.unwrap();
    b.run("prolog", "j", "n0");
    assert_eq!(b.ask(quiesce(false)).0, Ok(Reply::Quiet { actions: 1, tasks: 1 }));
    let mut b = b.restart();
    assert!(b.m.status_line().ends_with("; quiet: no new starts"), "{}", b.m.status_line());
    let (reply, effects) = b.ask(run("prolog", "k"));
    let Err(Refusal::Unavailable(text)) = reply else { panic!("{reply:?}") };
    assert_eq!(
        text,
        "prolog does not begin: quiet for 10s by uid 0 (new release); to let actions begin again: perilog resume"
    );
    assert_eq!(effects, []);
    assert!(matches!(b.ask(run("housekeeping", "j")).0, Err(Refusal::Unavailable(_))));
    // A quiesced controller lets clients attach to running actions, adds jobs, and begins after-actions.
    assert!(matches!(b.ask(run("prolog", "j")).0, Ok(Reply::Running { attached: true, .. })));
    b.ask(add("k", "n0", Terms::default())).0.unwrap();
    let (n0, _) = again(&mut b, vec![held("prolog", "j", 0, live())]);
    b.receives(n0, finished(task("prolog", "j", 0), Outcome::Ok));
    assert_eq!(starts(&b.ask(finish("j", None)).1), [(n0, 0)]);
    b.ask(finish("k", None)).0.unwrap();
    let Ok(Reply::Status(status)) = b.ask(Request::Status {}).0 else { panic!() };
    assert_eq!(status.quiet.as_ref().map(|quiet| quiet.by), Some(0));
    assert_eq!(status.notes, ["quiet for 10s by uid 0 (new release): nothing new begins until: perilog resume"]);
    let Ok(Reply::Ps { notes, .. }) = b.ask(Request::Ps { older_than_ms: 0, held: false }).0 else { panic!() };
    assert_eq!(notes, status.notes);
    assert_eq!(b.ask(Request::Resume {}).0, Ok(Reply::Resumed { was_quiet: true }));
    let mut b = b.restart();
    assert_eq!(b.ask(Request::Resume {}).0, Ok(Reply::Resumed { was_quiet: false }));
    assert!(matches!(b.ask(run("prolog", "l")).0, Ok(Reply::Running { .. })));
}

#[test]
fn who_waits_for_quiet_is_answered_when_nothing_is_open() {
    let answers = |effects: &[Effect]| -> Vec<(Client, bool)> {
        let of = |effect: &Effect| match effect {
            Effect::Reply { client, reply } => Some((*client, reply.is_ok())),
            _ => None,
        };
        effects.iter().filter_map(of).collect()
    };
    let asks = |client, request| Input::Request { client, uid: 0, request };
    let (mut b, n) = bench(1, |_| {});
    b.run("prolog", "j", "n0");
    assert_eq!(answers(&b.batch(vec![asks(7, quiesce(true)), asks(8, quiesce(true))])), []);
    b.receives(n[0], FromAgent::Accepted { task: task("prolog", "j", 0), limit_ms: None });
    let effects = b.receives(n[0], finished(task("prolog", "j", 0), Outcome::Ok));
    assert_eq!(answers(&effects), [(7, true), (8, true)]);
    // A client is answered at once if no action is open, and refused when an operator resumes.
    assert_eq!(answers(&b.batch(vec![asks(9, quiesce(true))])), [(9, true)]);
    b.ask(Request::Resume {}).0.unwrap();
    b.run("epilog", "j", "n0");
    b.batch(vec![asks(10, quiesce(true))]);
    assert_eq!(answers(&b.batch(vec![asks(11, Request::Resume {})])), [(10, false), (11, true)]);
    // The number of waiting clients is bounded.
    b.batch((100..164).map(|client| asks(client, quiesce(true))).collect());
    assert_eq!(answers(&b.batch(vec![asks(200, quiesce(true))])), [(200, false)]);
    // A client that disconnects makes room, and gets no answer.
    b.batch(vec![Input::HungUp { clients: (100..163).collect() }]);
    assert_eq!(answers(&b.batch(vec![asks(201, quiesce(true))])), []);
    assert_eq!(answers(&b.batch(vec![asks(12, Request::Resume {})])), [(163, false), (201, false), (12, true)]);
}

/// Processes that linger longer than the task's time limit drain their node, and the reason of the drain names them.
#[test]
fn what_lingers_past_the_limit_drains_its_node_and_is_named() {
    // The limit comes from the request, or from the node.
    for (timeout_ms, limit_ms) in [(Some(30_000), None), (None, Some(30_000))] {
        let (mut b, n) = bench(2, |_| {});
        let t = |rank| task("prolog", "j", rank);
        b.ask(Request::Run(RunRequest { timeout_ms, ..request("prolog", "j", Some("n[0-1]"), None) })).0.unwrap();
        let lingers = |pid| Phase::Lingering { processes: vec![Process { pid, command: "mountd".into() }] };
        for rank in 0..2 {
            b.receives(n[rank as usize], FromAgent::Accepted { task: t(rank), limit_ms });
        }
        // The time before the processes lingered does not count.
        b.receives(n[0], FromAgent::PhaseChanged { task: t(0), phase: lingers(4711), age_ms: 25_000 });
        b.pass(20_000);
        assert!(b.store.drains.is_empty());
        // A change of the processes restarts no clock, and each task counts from its own begin of lingering.
        b.receives(n[0], FromAgent::PhaseChanged { task: t(0), phase: lingers(4712), age_ms: 45_000 });
        b.receives(n[1], FromAgent::PhaseChanged { task: t(1), phase: lingers(1), age_ms: 45_000 });
        b.receives(n[1], finished(t(1), Outcome::Ok));
        b.pass(10_000);
        let reasons: Vec<_> =
            b.store.drains.iter().map(|drain| (drain.host.to_string(), drain.reason.clone())).collect();
        let reason = "prolog: its scripts ended, but their processes did not within 30s: mountd (job j attempt 0)";
        assert_eq!(reasons, [("n0".to_owned(), reason.to_owned())]);
        // The drain comes once: the task has not ended, and an operator may lift the drain.
        b.ask(Request::Undrain { hosts: "n0".parse().unwrap(), forget: false, notice_id: None }).0.unwrap();
        b.pass(100_000);
        assert!(b.store.drains.is_empty());
        assert_eq!(b.action("prolog", "j", 0).verdict, None);
    }
}

/// An operator resolves a running task, and later the node reports how its scripts ended. The resolution stays the
/// outcome, and the job's log shows the scripts' own end as a late event.
#[test]
fn the_scripts_own_end_is_reported_beside_a_resolution() {
    let (mut b, n0) = accepted(Some(running()));
    b.ask(resolve(true)).0.unwrap();
    let t = task("prolog", "j", 0);
    let stopped = Ended { steps: vec![step()], ..ended(Outcome::Cancelled { status: None }) };
    b.receives(n0, FromAgent::Finished { task: t, ended: Box::new(stopped) });
    assert!(matches!(b.outcome(t), Outcome::Resolved { ok: true, .. }));
    assert_eq!(b.store.ranks[0].late[0].outcome, Outcome::Cancelled { status: None });
    assert_eq!(b.reported("j").iter().filter(|event| **event == "late").count(), 1);
}

#[test]
fn a_resolved_and_undrained_task_drains_nothing_at_its_limit() {
    let (mut b, n) = bench(1, |_| {});
    b.run("epilog", "j", "n0");
    let t = task("epilog", "j", 0);
    b.receives(n[0], FromAgent::Accepted { task: t, limit_ms: None });
    b.ask(Request::Resolve { which: which("j", Some("0")), ok: false, reason: "seen".into() }).0.unwrap();
    b.ask(Request::Undrain { hosts: "n0".parse().unwrap(), forget: false, notice_id: None }).0.unwrap();
    let phase = Phase::Overdue { script: "10".into(), limit_ms: 1, doing: String::new() };
    b.receives(n[0], FromAgent::PhaseChanged { task: t, phase, age_ms: 0 });
    assert_eq!((b.store.drains.clone(), b.reported("j").contains(&"overdue")), (vec![], true));
}
