//! Sessions: the connections that the controller welcomes as a host's agent, and those that it refuses or replaces.

use super::*;

#[test]
fn a_certificate_for_another_host_is_turned_away() {
    let mut b = Bench::new();
    let s = b.session();
    let message = FromAgent::Hello(hello("n0", "b", 1, vec![]));
    let effects =
        b.batch(vec![Input::Message { session: s, names: Some(vec!["n1".into()]), peer: "p".into(), message }]);
    assert!(matches!(&effects[..], [Effect::Send { message: ToAgent::TurnedAway { why }, .. }, Effect::Close { .. }]
            if why.contains("n1")));
    assert_eq!(b.store.nodes, []);
}

#[test]
fn the_redial_window_follows_the_measured_rate() {
    let mut b = Bench::new();
    b.batch(vec![Input::Settings(Settings { redial_per_second: 2, ..settings() })]);
    let window_ms = |b: &mut Bench, host: &str| {
        let session = b.session();
        match b.receives(session, FromAgent::Hello(hello(host, "b", 1, vec![]))).into_iter().next() {
            Some(Effect::Send { message: ToAgent::Welcome { redial_window_ms, .. }, .. }) => redial_window_ms,
            other => panic!("{other:?}"),
        }
    };
    let windows = ["n0", "n1", "n2", "n3", "n4"].map(|host| window_ms(&mut b, host));
    assert_eq!(windows, [1_000, 1_000, 1_500, 2_000, 2_500]);
    b.batch(vec![Input::Redials { per_second: 3 }]);
    assert_eq!(window_ms(&mut b, "n5"), 2_000);
    // The gate of the next controller, which has not measured anything, counts with the rate of the settings.
    b.batch(vec![Input::Redials { per_second: 1 }]);
    assert_eq!(window_ms(&mut b, "n6"), 3_500);
}

/// Certificates normally name a host in small letters without a final dot. R and agent.toml may write the name with
/// capital letters or a final dot; it matches all the same.
#[test]
fn a_certificate_names_its_host_in_whatever_letters() {
    let cases = [("n0", "n0", true), ("n0", "N0", true), ("N0.", "n0", true), ("n0", "n00", false)];
    for (name, host, is_its) in cases {
        let mut b = Bench::new();
        let (session, names) = (b.session(), Some(vec![name.to_owned()]));
        let message = FromAgent::Hello(hello(host, "b", 1, vec![]));
        b.batch(vec![Input::Message { session, names, peer: "p".into(), message }]);
        assert_eq!(b.store.nodes.len(), usize::from(is_its), "{name} {host}");
    }
}

#[test]
fn a_newer_session_of_one_agent_replaces_the_older() {
    let mut b = Bench::new();
    let (old, _) = b.up("n0", "b", vec![]);
    b.run("prolog", "j", "n0");
    let new = b.session();
    let t = task("prolog", "j", 0);
    let effects = b.receives(new, FromAgent::Hello(hello("n0", "b", 9, vec![held("prolog", "j", 0, live())])));
    assert!(matches!(&effects[..], [Effect::Close { session, .. }, Effect::Send { session: to, .. }]
            if *session == old && *to == new));
    assert_eq!(b.receives(old, finished(t, exit(1))), []);
    assert_eq!(b.receives(new, finished(t, Outcome::Ok)), [ack(new, t), Effect::OutboxGrew]);
    // The controller refuses an older Hello that arrives late.
    let late = b.session();
    let effects = b.receives(late, FromAgent::Hello(hello("n0", "b", 3, vec![])));
    assert!(is_turned_away(&effects, late), "{effects:?}");
    let replaced =
        "n0: its session from 10.0.0.9:5001 was replaced by a newer one from the same address, 10.0.0.9:5002";
    assert!(b.notes.iter().any(|note| note == replaced), "{:?}", b.notes);
}

/// Regression test: an agent was killed with its Hello on the way. Its successor connected, accepted a task and was
/// killed too. Then the old Hello arrived without the task, and the controller marked a running task as lost.
#[test]
fn a_hello_older_than_the_last_session_is_ignored() {
    let mut b = Bench::new();
    let s = b.session();
    b.receives(s, FromAgent::Hello(hello("n0", "b", 5_887, vec![])));
    b.run("prolog", "j", "n0");
    let t = task("prolog", "j", 0);
    b.receives(s, FromAgent::Accepted { task: t, limit_ms: None });
    b.batch(vec![Input::Closed { session: s, why: String::new() }]);
    let late = b.session();
    let effects = b.receives(late, FromAgent::Hello(hello("n0", "b", 5_152, vec![])));
    assert!(is_turned_away(&effects, late), "{effects:?}");
    assert!(b.store.actions[0].accepted.contains(0), "{:?}", b.store.actions);
    // Another boot begins its own session numbers.
    let next = b.session();
    let effects = b.receives(next, FromAgent::Hello(hello("n0", "b2", 17, vec![])));
    assert!(matches!(&effects[0], Effect::Send { message: ToAgent::Welcome { .. }, .. }), "{effects:?}");
    // The new boot ends the old boot: a late Hello of the old boot is refused.
    b.batch(vec![Input::Closed { session: next, why: String::new() }]);
    let late = b.session();
    let effects = b.receives(late, FromAgent::Hello(hello("n0", "b", 9_000, vec![])));
    assert!(is_turned_away(&effects, late), "{effects:?}");
    assert_eq!(b.store.nodes[0].boot.as_str(), "b2");
    // Boot ids order soft reboots, even those that the controller never saw.
    for (boot, wins) in [("b2+2", true), ("b2+1", false), ("b2", false), ("b2+10", true), ("b3", true)] {
        let next = b.session();
        let effects = b.receives(next, FromAgent::Hello(hello("n0", boot, 18, vec![])));
        let welcomed = matches!(&effects[0], Effect::Send { message: ToAgent::Welcome { .. }, .. });
        assert_eq!(welcomed, wins, "{boot}: {effects:?}");
        b.batch(vec![Input::Closed { session: next, why: String::new() }]);
    }
}

fn rivals() -> (Bench, SessionId, SessionId, u64) {
    let mut b = Bench::new();
    let (old, _) = b.up("n0", "b", vec![]);
    let new = b.session();
    let mut clone = hello("n0", "b2", 1, vec![]);
    clone.machine = MachineId::new("another").unwrap();
    let effects = b.receives(new, FromAgent::Hello(clone));
    let [Effect::Send { session, message: ToAgent::Probe { nonce } }] = effects[..] else { panic!("{effects:?}") };
    assert_eq!(session, old);
    (b, old, new, nonce)
}

#[test]
fn a_probe_distinguishes_two_machines_of_one_name() {
    let (mut b, old, new, nonce) = rivals();
    let effects = b.receives(old, FromAgent::Probed { nonce });
    assert!(
        matches!(&effects[..], [Effect::Send { session, message: ToAgent::TurnedAway { .. } }, Effect::Close { .. }]
            if *session == new)
    );
    let (Ok(Reply::Nodes { nodes, .. }), _) = b.ask(Request::Nodes { targets: None, after: None }) else { panic!() };
    assert_eq!((nodes[0].state.as_str(), nodes[0].machine.as_deref()), ("online", Some("machine-n0")));
    assert!(nodes[0].note.as_ref().unwrap().contains("two machines claim n0"));
}

#[test]
fn a_dead_session_is_replaced_without_an_answer_or_transport() {
    let (mut b, old, new, _) = rivals();
    let effects = b.pass(2_000);
    assert!(matches!(&effects[..], [Effect::Close { session, .. },
            Effect::Send { session: to, message: ToAgent::Welcome { .. } }]
            if *session == old && *to == new));
    let (mut b, old, new, _) = rivals();
    let effects = b.batch(vec![Input::Closed { session: old, why: String::new() }]);
    assert!(matches!(&effects[..], [Effect::Send { session, message: ToAgent::Welcome { .. } }] if *session == new));
}

/// Regression test: another machine claimed a host, and waited for the probe of the host's session. Meanwhile the true
/// agent connected again. When its old session closed, the controller opened the other machine's session too.
#[test]
fn a_rival_of_a_replaced_session_waits_for_the_new_one() {
    let (mut b, old, clone, _) = rivals();
    let back = b.session();
    b.receives(back, FromAgent::Hello(hello("n0", "b", 9, vec![])));
    let effects = b.batch(vec![Input::Closed { session: old, why: String::new() }]);
    let [Effect::Send { session, message: ToAgent::Probe { nonce } }] = effects[..] else { panic!("{effects:?}") };
    assert_eq!(session, back);
    let effects = b.receives(back, FromAgent::Probed { nonce });
    assert!(matches!(&effects[..], [Effect::Send { session, .. }, Effect::Close { .. }] if *session == clone));
}

#[test]
fn an_agent_that_speaks_for_anothers_task_changes_nothing() {
    let mut b = Bench::new();
    b.up("n0", "b", vec![]);
    let (n1, _) = b.up("n1", "b", vec![]);
    b.run("prolog", "j", "n[0-1]");
    let others = task("prolog", "j", 0);
    assert_eq!(b.receives(n1, FromAgent::Accepted { task: others, limit_ms: None }), []);
    // The controller acknowledges the report, so that the agent stops repeating it, and ignores the outcome.
    assert_eq!(b.receives(n1, finished(others, Outcome::Ok)), [ack(n1, others)]);
    assert_eq!(b.action("prolog", "j", 0).sent.to_string(), "0-1");
}

#[test]
fn hello_may_come_in_pages_and_nothing_before_it_counts() {
    let mut b = Bench::new();
    let s = b.session();
    assert_eq!(b.receives(s, FromAgent::Probed { nonce: 1 }), []);
    let mut page = hello("n0", "b", 1, vec![held("epilog", "j", 0, live())]);
    page.more = true;
    assert_eq!(b.receives(s, FromAgent::Hello(page)), []);
    b.receives(s, FromAgent::Hello(hello("n0", "b", 1, vec![held("epilog", "k", 0, live())])));
    assert_eq!(b.m.nodes.get("n0").unwrap().unsettled.unknown.len(), 2);
}

/// A Hello is refused if all its pages together list more tasks than a node can hold, even if each page fits into a
/// frame.
#[test]
fn a_hello_of_more_tasks_than_a_node_can_hold_ends_its_session() {
    for (most, state) in [(20_000, HeldState::Ended), (400, HeldState::Unclaimed), (400, live())] {
        let page = |tasks: usize, more: bool| {
            let mut page = hello("n0", "b", 1, vec![held("epilog", "j", 0, state.clone()); tasks]);
            page.more = more;
            FromAgent::Hello(page)
        };
        let mut b = Bench::new();
        let s = b.session();
        assert_eq!(b.receives(s, page(most, true)), []);
        let effects = b.receives(s, page(1, true));
        assert!(is_turned_away(&effects, s), "{effects:?}");
        assert!(b.notes.iter().any(|note| note.contains("more tasks than a node can hold")), "{:?}", b.notes);
        // The session is over: its last page creates no node.
        assert_eq!(b.receives(s, page(0, false)), []);
        assert!(b.store.nodes.is_empty() && b.store.actions.is_empty());
    }
}

/// Regression test: any user of a node can read its machine id and boot id. A thief with these ids and the node's key
/// replaced the node's session without a journal line. The thief's session number, 2^64-1, then kept the true agent out
/// until the node booted.
#[test]
fn an_attacker_takes_no_place_unseen_and_keeps_nobody_out() {
    let (mut b, attacker) = (Bench::new(), "10.0.0.66");
    let (agent, _) = b.up("n0", "b", vec![]);
    let dial = |b: &mut Bench, from: &str, boot: &str, link| {
        let session = b.session();
        let effects = b.batch(vec![from_address(session, from, FromAgent::Hello(hello("n0", boot, link, vec![])))]);
        (session, effects)
    };
    let is_welcome =
        |effects: &[Effect]| matches!(effects, [Effect::Send { message: ToAgent::Welcome { .. }, .. }, ..]);
    // No agent uses such a session number.
    let (session, effects) = dial(&mut b, attacker, "b", u64::MAX);
    assert!(is_turned_away(&effects, session), "{effects:?}");
    // The true agent answers the probe, and the note shows both claimants.
    let (session, effects) = dial(&mut b, attacker, "b", 1 << 40);
    let [Effect::Send { session: asked, message: ToAgent::Probe { nonce } }] = effects[..] else {
        panic!("{effects:?}")
    };
    assert_eq!(asked, agent);
    let effects = b.receives(agent, FromAgent::Probed { nonce });
    assert!(is_turned_away(&effects, session), "{effects:?}");
    let row = |b: &mut Bench| {
        let (Ok(Reply::Nodes { nodes, .. }), _) = b.ask(Request::Nodes { targets: None, after: None }) else {
            panic!()
        };
        nodes[0].note.clone().unwrap_or_default()
    };
    assert!(row(&mut b).contains("two machines claim n0"));
    for boot in ["b", "another"] {
        // The true agent does not answer, for example because its network is cut. The thief replaces it, and the
        // journal says so.
        let (session, effects) = dial(&mut b, attacker, boot, 1 << 40);
        assert!(matches!(effects[..], [Effect::Send { message: ToAgent::Probe { .. }, .. }]), "{effects:?}");
        assert!(b.pass(2_000).iter().any(|effect| is_welcome(std::slice::from_ref(effect))));
        assert!(row(&mut b).contains("did not answer, and a new one from 10.0.0.66:"), "{}", row(&mut b));
        assert!(b.notes.iter().any(|note| note.contains("did not answer, and a new one from 10.0.0.66:")));
        // While the thief's session stands, the true agent is turned away after a probe.
        let (back, effects) = dial(&mut b, "10.0.0.9", "b", 40);
        let [Effect::Send { session: asked, message: ToAgent::Probe { nonce } }] = effects[..] else {
            panic!("{effects:?}")
        };
        assert_eq!(asked, session);
        let effects = b.receives(session, FromAgent::Probed { nonce });
        assert!(is_turned_away(&effects, back), "{effects:?}");
        // After the thief has gone, its session number keeps the true agent out for a minute at most.
        b.batch(vec![Input::Closed { session, why: String::new() }]);
        let (back, effects) = dial(&mut b, "10.0.0.9", "b", 41);
        assert!(is_turned_away(&effects, back), "{effects:?}");
        b.pass(60_000);
        let (_, effects) = dial(&mut b, "10.0.0.9", "b", 42);
        assert!(is_welcome(&effects), "{effects:?}");
    }
}

/// Regression test, found by the simulator: the network held back a Hello from before a container's restart. It came
/// after the next boot's session had ended, and counted as another restart: the prolog that ran was `lost (rebooted)`.
#[test]
fn a_hello_from_before_a_containers_restart_is_old() {
    for (boot, link, is_old) in [
        ("kernel-r1", 5, true),
        ("kernel-r1+1", 5, true),
        // The next restart.
        ("kernel-r3", 50, false),
        // The numbers of another kernel begin at its own start.
        ("lenrek-r1", 5, false),
        // A restored snapshot of the machine without its /run: the controller lets it in a minute later.
        ("kernel-r4", 5, true),
    ] {
        let mut b = Bench::new();
        let session = b.session();
        b.receives(session, FromAgent::Hello(hello("n0", "kernel-r2", 40, vec![])));
        b.batch(vec![Input::Closed { session, why: String::new() }]);
        let late = b.session();
        let effects = b.receives(late, FromAgent::Hello(hello("n0", boot, link, vec![])));
        assert_eq!(is_turned_away(&effects, late), is_old, "{boot} {link}: {effects:?}");
        if boot == "kernel-r4" {
            b.pass(60_000);
            let late = b.session();
            let effects = b.receives(late, FromAgent::Hello(hello("n0", boot, link, vec![])));
            assert!(!is_turned_away(&effects, late), "{effects:?}");
        }
    }
}

#[test]
fn an_outgrown_controller_says_so_and_can_take_over() {
    let mut b = Bench::new();
    let (n0, _) = b.up("n0", "b", vec![]);
    b.receives(n0, FromAgent::EpochRefused { seen: Epoch { number: 41, nonce: 3 } });
    let (Ok(Reply::Status(status)), _) = b.ask(Request::Status {}) else { panic!() };
    assert!(status.notes[0].contains("take-over"), "{:?}", status.notes);
    let (reply, effects) = b.ask(Request::Recover { take_over: true });
    assert_eq!(reply, Ok(Reply::TakenOver { epoch: 42 }));
    assert!(matches!(&effects[..], [Effect::Close { session, .. }] if *session == n0));
    assert_eq!(b.store.history.newest().unwrap().epoch.number, 42);
}
