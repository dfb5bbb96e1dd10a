//! Names of hosts: a host has one spelling, and a refusal of another one names it.

use crate::job::Terms;

use super::release::{add, bench};
use super::*;

/// Regression test: the kernel's host name of n0 changed to N0. The controller welcomed a second node on the
/// certificate of n0, and the jobs of n0 were lost.
#[test]
fn a_node_has_one_spelling() {
    for (first, second) in [("n0", "N0"), ("N0", "n0"), ("n0", "n0."), ("Node0", "nODE0")] {
        let mut b = Bench::new();
        let (open, _) = b.up(first, "b", vec![]);
        let session = b.session();
        let effects = b.receives(session, FromAgent::Hello(hello(second, "b", session.0, vec![])));
        let expect = format!("this node is known as {first}, not {second}: set host = \"{first}\" in its agent.toml");
        assert!(
            matches!(&effects[..], [Effect::Send { message: ToAgent::TurnedAway { why }, .. }, Effect::Close { .. }]
                if *why == expect),
            "{effects:?}"
        );
        assert_eq!(b.store.nodes.len(), 1);
        // A forgotten name is free. A store that has both spellings keeps both.
        let row = b.store.nodes[0].clone();
        b.pass(10_000);
        b.batch(vec![super::boots::closed(open)]);
        b.ask(Request::NodeForget { hosts: first.parse().unwrap(), reports: false }).0.unwrap();
        b.up(second, "b", vec![]);
        b.store.nodes.push(row);
        let mut b = b.restart();
        b.up(first, "b", vec![]);
        b.up(second, "b", vec![]);
        assert_eq!(b.store.nodes.len(), 2);
    }
}

#[test]
fn another_spelling_of_a_host_is_refused_with_the_one_that_was_meant() {
    let (mut b, _) = bench(2, |_| {});
    b.up("fld1", "b", vec![]);
    b.up("login.site", "b", vec![]);
    let drain = |host: &str| Request::Drain { hosts: host.parse().unwrap(), reason: "x".into(), force: false };
    let nodes = |host: &str| Request::Nodes { targets: Some(host.parse().unwrap()), after: None };
    let why = |host: &str| Request::Why { host: HostName::new(host).unwrap() };
    let undrain = |host: &str| Request::Undrain { hosts: host.parse().unwrap(), forget: false, notice_id: None };
    let forget = |host: &str| Request::NodeForget { hosts: host.parse().unwrap(), reports: false };
    #[rustfmt::skip]
    let table = [
        ("FLD1", Some("fld1")), ("fld1.", Some("fld1")), ("fld1.domain", Some("fld1")), ("Fld1.Domain", Some("fld1")),
        ("N0", Some("n0")), ("login", Some("login.site")), ("LOGIN.site", Some("login.site")), ("fld2", None),
        ("other", None),
    ];
    for (typed, meant) in table {
        for request in [drain(typed), nodes(typed), why(typed), undrain(typed), forget(typed)] {
            let text = match b.ask(request.clone()).0 {
                Err(Refusal::NoSuchNode(text) | Refusal::Conflict(text)) => text,
                other => panic!("{request:?}: {other:?}"),
            };
            let suggestion = text.split_once("; did you mean ").map(|(_, rest)| rest.split_once('?').unwrap().0);
            assert_eq!(suggestion, meant, "{request:?}: {text}");
        }
    }
}

/// Regression test: a job on `n0.cluster` was accepted, and no text named n0, which was meant.
#[test]
fn a_job_on_a_longer_name_of_a_host_gets_the_name_that_was_meant() {
    let (mut b, _) = bench(2, |_| {});
    let Ok(Reply::Added { unknown, meant, .. }) = b.ask(add("j", "n0.cluster,n1", Terms::default())).0 else {
        panic!()
    };
    assert_eq!((unknown.to_string().as_str(), meant.to_string().as_str()), ("n0.cluster", "n0"));
}

/// A job on another spelling of a host would wait for a node that never comes.
#[test]
fn a_job_on_another_spelling_of_a_host_is_refused() {
    let (mut b, _) = bench(2, |_| {});
    for request in [add("j", "n0,N1", Terms::default()), Request::Run(request("prolog", "j", Some("n0,N1"), None))] {
        let reply = b.ask(request).0;
        assert_eq!(reply, Err(Refusal::Invalid("host N1 is known here as n1: use that spelling".to_owned())));
    }
    assert_eq!(b.store.attempts, []);
    // Hosts that are yet to come have any name.
    b.ask(add("j", "n0,M7", Terms::default())).0.unwrap();
}
