//! `perilog node forget`: the controller forgets a dismantled node, and refuses to forget a node that is in use.

use crate::job::Terms;

use super::release::{add, bench, finish};
use super::*;

fn forget(b: &mut Bench, hosts: &str) -> Result<u64, Refusal> {
    let (reply, _) = b.ask(Request::NodeForget { hosts: hosts.parse().unwrap(), reports: false });
    reply.map(|reply| match reply {
        Reply::Reached { tasks } => tasks,
        other => panic!("{other:?}"),
    })
}

fn known(b: &Bench) -> Vec<&str> {
    b.store.nodes.iter().map(|node| node.host.as_str()).collect()
}

fn leaves(b: &mut Bench, session: SessionId) {
    b.batch(vec![Input::Closed { session, why: "gone".into() }]);
}

#[test]
fn a_node_in_use_stays_and_the_refusal_says_why() {
    type Change = fn(&mut Bench, &[SessionId]);
    let table: &[(&str, Change, &str)] = &[
        ("connected", |_, _| {}, "n0 is connected: stop its agent first (systemctl disable --now perilog-agent)"),
        (
            "held by a job that goes on",
            |b, n| {
                b.ask(add("j", "n[0-1]", Terms::default())).0.unwrap();
                leaves(b, n[0]);
            },
            "n0 is held by job j (see perilog why n0)",
        ),
        (
            "its epilog is done, and another node's is not",
            |b, n| {
                b.ask(add("j", "n[0-1]", Terms::default())).0.unwrap();
                b.ask(finish("j", None)).0.unwrap();
                b.receives(n[0], finished(task("epilog", "j", 0), Outcome::Ok));
                leaves(b, n[0]);
            },
            "n0 is held by job j (see perilog why n0)",
        ),
        (
            "a task without an end",
            |b, n| {
                b.run("check", "j", "n0");
                leaves(b, n[0]);
            },
            "n0 is held by job j (see perilog why n0)",
        ),
    ];
    for (case, change, why) in table {
        let (mut b, n) = bench(2, |_| {});
        change(&mut b, &n);
        let refused = Refusal::Conflict(format!("{why}; no node was forgotten"));
        assert_eq!(forget(&mut b, "n0"), Err(refused), "{case}");
        assert_eq!(known(&b), ["n0", "n1"], "{case}");
    }
}

#[test]
fn a_controller_that_has_just_started_waits_for_its_nodes() {
    let (b, _) = bench(2, |_| {});
    let mut b = b.restart_settling();
    let refused = forget(&mut b, "n0").unwrap_err();
    assert!(matches!(&refused, Refusal::Conflict(text) if text.contains("has just started")), "{refused:?}");
    b.pass(10_000);
    assert_eq!(forget(&mut b, "n0"), Ok(1));
}

#[test]
fn all_of_them_are_forgotten_or_none() {
    let (mut b, n) = bench(3, |_| {});
    leaves(&mut b, n[0]);
    leaves(&mut b, n[1]);
    assert!(matches!(forget(&mut b, "n[0-2]"), Err(Refusal::Conflict(_))));
    assert!(matches!(forget(&mut b, "n[0,9]"), Err(Refusal::NoSuchNode(_))));
    assert_eq!(known(&b), ["n0", "n1", "n2"]);
    assert_eq!(forget(&mut b, "n[0-1]"), Ok(2));
    assert_eq!(known(&b), ["n2"]);
    assert!(
        b.notes
            .iter()
            .any(|note| note.starts_with("n1: uid 0 removed this node from the controller (perilog node forget)")),
        "{:?}",
        b.notes
    );
}

/// A drain outlives the forgetting of its node, and then a restart of the controller: the resource manager may still
/// list the host. If the node returns, the controller treats it as new, and the drain still holds.
#[test]
fn a_drain_stays_and_a_node_that_returns_is_new() {
    let (mut b, n) = bench(1, |_| {});
    b.ask(Request::Drain { hosts: "n0".parse().unwrap(), reason: "bad dimm".into(), force: false }).0.unwrap();
    leaves(&mut b, n[0]);
    assert_eq!(forget(&mut b, "n0"), Ok(1));
    let mut b = b.restart();
    assert_eq!((known(&b).len(), b.store.drains.len()), (0, 1));
    b.up("n0", "b2", vec![]);
    assert_eq!((b.store.nodes[0].boot_number, b.store.drains.len()), (1, 1));
    // Its next job begins as on any node.
    b.run("prolog", "k", "n0");
    assert_eq!(known(&b), ["n0"]);
}
