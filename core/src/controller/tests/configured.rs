//! Configured actions: typing mistakes, and nodes that do not configure an action.

use super::*;

fn names(names: &str) -> Option<std::collections::BTreeSet<ActionName>> {
    Some(names.split_whitespace().map(|name| ActionName::new(name).unwrap()).collect())
}

/// Connects nodes n0, n1 and so on, each with the configured actions that its Hello reports. `None`: an older agent,
/// which reports no actions.
fn site(actions: &[Option<&str>]) -> (Bench, Vec<SessionId>) {
    let mut b = Bench::new();
    let mut sessions = Vec::new();
    for (at, of) in actions.iter().enumerate() {
        let session = b.session();
        let hello = hello(&format!("n{at}"), "b", session.0, vec![]);
        b.receives(session, FromAgent::Hello(Hello { actions: of.and_then(names), ..hello }));
        sessions.push(session);
    }
    (b, sessions)
}

fn refused(why: &str) -> Outcome {
    Outcome::Refused { why: why.to_owned() }
}

/// Regression test: `perilog run prolgo` drained every node that it named, and left a job that held them.
#[test]
fn an_action_that_no_node_configures_is_refused() {
    let usual = Some("epilog prolog");
    for (site_of, action, text) in [
        (&[usual, usual][..], "prolgo", Some("no node of n[0-1] configures an action prolgo; did you mean prolog?")),
        (&[usual, Some("check")], "housekeeping", Some("configured: check, epilog, prolog")),
        (&[Some(""), Some("")], "prolog", Some("no node of n[0-1] configures any action")),
        // One node configures the action, or may configure it.
        (&[usual, Some("check")], "check", None),
        (&[usual, None], "prolgo", None),
    ] {
        let (mut b, _) = site(site_of);
        let (reply, effects) = b.ask(Request::Run(request(action, "j", Some("n[0-1]"), None)));
        match text {
            Some(text) => {
                assert!(matches!(&reply, Err(Refusal::Invalid(why)) if why.contains(text)), "{reply:?}");
                assert!(starts(&effects).is_empty() && b.store.attempts.is_empty() && b.store.drains.is_empty());
                assert_eq!(b.reported("j"), [""; 0]);
            }
            None => assert!(reply.is_ok() && !starts(&effects).is_empty(), "{reply:?}"),
        }
    }
    // The last Hello counts while the node is away; a node that never came has reported nothing.
    let (mut b, n) = site(&[usual]);
    b.batch(vec![Input::Closed { session: n[0], why: String::new() }]);
    b.pass(5_000);
    assert!(b.ask(Request::Run(request("prolgo", "j", Some("n0"), None))).0.is_err());
    assert!(b.ask(Request::Run(request("prolgo", "j", Some("n[0,9]"), None))).0.is_ok());
}

/// Regression test: a run of a new action a moment after `systemctl reload` was refused, because the agent had ended
/// its session in order to report the new action.
#[test]
fn a_node_that_renews_its_session_may_configure_any_action() {
    let (mut b, n) = site(&[Some("epilog prolog")]);
    b.batch(vec![Input::Closed { session: n[0], why: String::new() }]);
    b.pass(4_900);
    assert!(b.ask(Request::Run(request("check", "j", Some("n0"), None))).0.is_ok());
    let session = b.session();
    let hello = hello("n0", "b", session.0, vec![]);
    let effects = b.receives(session, FromAgent::Hello(Hello { actions: names("check epilog prolog"), ..hello }));
    assert!(!starts(&effects).is_empty(), "{effects:?}");
}

/// Regression test: `perilog run` on a mistyped host waited for the host, and drained it.
#[test]
fn a_mistyped_host_is_refused_and_begins_nothing() {
    for (hosts, known, text) in [
        (
            "n0,tyop1",
            true,
            Some("no node tyop1 has ever connected to this controller; did you mean typo1? nothing was begun"),
        ),
        ("n0,tyop1", false, None),
        // A host that differs in its digits is another host, and no slip.
        (
            "n[0,7-9]",
            true,
            Some("no node n[7-9] has ever connected to this controller, and nothing was begun; to begin on"),
        ),
        ("n0", true, None),
        ("d5", true, None),
    ] {
        let (mut b, _) = site(&[None]);
        let session = b.session();
        b.receives(session, FromAgent::Hello(hello("typo1", "b", session.0, vec![])));
        // A drained host counts as known.
        b.ask(Request::Drain { hosts: "d5".parse().unwrap(), reason: "to come".into(), force: true }).0.unwrap();
        let run = RunRequest { known, ..request("prolog", "j", Some(hosts), None) };
        let reply = b.ask(Request::Run(run.clone())).0;
        match text {
            Some(text) => {
                assert!(matches!(&reply, Err(Refusal::NoSuchNode(why)) if why.contains(text)), "{reply:?}");
                assert!(b.store.attempts.is_empty() && b.reported("j").is_empty());
            }
            None => assert!(reply.is_ok(), "{reply:?}"),
        }
    }
    // The resource manager has named the hosts of the job: an operator may run an action there, before they have come.
    let (mut b, _) = site(&[None]);
    b.ask(super::release::add("j", "n[0-1]", crate::job::Terms::default())).0.unwrap();
    b.ask(Request::Run(RunRequest { known: true, ..request("prolog", "j", None, None) })).0.unwrap();
}

/// Regression test of two faults. 2,050 short jobs filled a node with records; the node refused every later prolog,
/// and each refusal drained the node. A node refused a prolog as too late, and a reload had by then dropped that prolog
/// from the configuration; the controller excused the node, because it no longer configured the prolog.
#[test]
fn an_excused_refusal_drains_only_for_an_after_action() {
    for (action, excused, outcome, drained) in [
        ("prolog", true, refused("this host keeps 4096 tasks and records of ended tasks"), false),
        ("prolog", true, refused("action prolog is not configured on this node"), false),
        // The reason of the refusal counts, not what the node configures by now.
        ("prolog", false, refused("the task did not begin in time"), true),
        // No clean-up happens.
        ("epilog", true, refused("128 tasks have not ended on this host"), true),
        ("epilog", true, refused("action epilog is not configured on this node"), true),
        // A failed script is the node's fault, whatever else the node reports.
        ("prolog", true, Outcome::Failed { why: Failure::Exit(1) }, true),
    ] {
        // The other node configures every action, so the controller accepts the request.
        for configured in [None, Some("check"), Some("epilog prolog")] {
            let (mut b, n) = site(&[configured, Some("epilog prolog")]);
            b.run(action, "j", "n[0-1]");
            let (task, ended) = (task(action, "j", 0), Ended { excused, ..Ended::bare(outcome.clone(), 1) });
            b.receives(n[0], FromAgent::Finished { task, ended: Box::new(ended) });
            assert_eq!(b.outcome(task), outcome);
            assert_eq!(b.store.drains.len(), usize::from(drained), "{configured:?} {action} {outcome}");
        }
    }
}

/// Regression test: a mistyped hostlist drained hosts that do not exist.
#[test]
fn a_host_that_never_connected_is_drained_only_by_force() {
    let (mut b, _) = site(&[None]);
    let drain = |force| Request::Drain { hosts: "n[0-2]".parse().unwrap(), reason: "typo".into(), force };
    let reply = b.ask(drain(false)).0;
    assert!(
        matches!(&reply, Err(Refusal::NoSuchNode(why)) if why.contains("n[1-2]") && why.contains("--force")),
        "{reply:?}"
    );
    assert_eq!(b.store.drains, []);
    assert_eq!(b.ask(drain(true)).0, Ok(Reply::Drained { tasks: 3, already: crate::HostList::new() }));
    // A drained host counts as known.
    assert_eq!(b.ask(drain(false)).0, Ok(Reply::Drained { tasks: 0, already: "n[0-2]".parse().unwrap() }));
}
