//! Views of nodes: `perilog why`, `nodes` and `status`, and the journal, show drained and held nodes.

use crate::controller::view::{StatusView, WhyView};
use crate::job::Terms;

use super::release::{add, bench, contexts, finish};
use super::*;

fn why(b: &mut Bench, host: &str) -> WhyView {
    let Ok(Reply::Why(view)) = b.ask(Request::Why { host: HostName::new(host).unwrap() }).0 else { panic!("no why") };
    *view
}

fn status(b: &mut Bench) -> StatusView {
    let Ok(Reply::Status(view)) = b.ask(Request::Status {}).0 else { panic!("no status") };
    *view
}

/// Returns for each node whether `perilog nodes` shows it as drained, and whether as held.
fn nodes(b: &mut Bench) -> Vec<(bool, bool)> {
    let Ok(Reply::Nodes { nodes, .. }) = b.ask(Request::Nodes { targets: None, after: None }).0 else {
        panic!("no nodes")
    };
    nodes.iter().map(|node| (node.drain.is_some(), node.held)).collect()
}

fn drain(hosts: &str, reason: &str) -> Request {
    Request::Drain { hosts: hosts.parse().unwrap(), reason: reason.into(), force: false }
}

#[test]
fn why_a_node_is_not_free_is_shown_for_each_node_that_is_not() {
    let (mut b, n) = bench(4, |_| {});
    b.ask(add("j", "n[0-1]", Terms::default())).0.unwrap();
    b.ask(finish("j", None)).0.unwrap();
    b.receives(n[0], finished(task("epilog", "j", 0), Outcome::Ok));
    b.receives(n[1], FromAgent::Accepted { task: task("epilog", "j", 1), limit_ms: None });
    let phase = Phase::Running { script: "20-x".into(), index: 1, of: 1, progress: None };
    b.receives(n[1], FromAgent::PhaseChanged { task: task("epilog", "j", 1), phase, age_ms: 1 });
    b.ask(drain("n2", "bad dimm")).0.unwrap();
    b.batch(vec![Input::Closed { session: n[3], why: "gone".into() }]);

    // The epilog on n0 has ended, and its release waits for another node.
    let held = why(&mut b, "n0");
    let whys: Vec<&str> = held.held.iter().map(|row| row.why.as_str()).collect();
    let with = "done here; released together with n1 (running: 20-x (1 of 1)), as set by release in [action.epilog]";
    assert_eq!((whys, held.open.len(), held.node.held), (vec![with], 0, true));
    assert_eq!((why(&mut b, "n1").open.len(), why(&mut b, "n1").node.held), (1, true));
    let drained = why(&mut b, "n2");
    let reason = drained.node.drain.map(|drain| (drain.reason, drain.by));
    assert_eq!((reason, drained.next), (Some(("bad dimm".to_owned(), Some(0))), vec!["perilog undrain n2".to_owned()]));
    assert_eq!(why(&mut b, "n3").next, ["ssh n3 perilog doctor", "ssh n3 systemctl status perilog-agent"]);

    assert_eq!(nodes(&mut b), [(false, true), (false, true), (true, false), (false, false)]);
    let view = status(&mut b);
    assert_eq!((view.nodes, view.online, view.drained, view.held), (4, 3, 1, 2));

    // When the last epilog has ended, no action holds the ranks.
    b.receives(n[1], finished(task("epilog", "j", 1), Outcome::Ok));
    b.ask(Request::Undrain { hosts: "n2".parse().unwrap(), forget: false, notice_id: None }).0.unwrap();
    let view = status(&mut b);
    assert_eq!((view.drained, view.held, nodes(&mut b)[..3].contains(&(false, true))), (0, 0, false));
}

/// `perilog why` suggests no undrain for a node with a stuck script: an undrain helps no job while the script runs.
#[test]
fn a_job_holds_its_nodes_and_a_stuck_script_is_the_next_step() {
    let (mut b, n) = bench(1, |_| {});
    b.run("prolog", "j", "n0");
    b.receives(n[0], FromAgent::Accepted { task: task("prolog", "j", 0), limit_ms: None });
    let phase = Phase::Overdue { script: "10-a".into(), limit_ms: 5, doing: String::new() };
    b.receives(n[0], FromAgent::PhaseChanged { task: task("prolog", "j", 0), phase, age_ms: 1 });
    let view = why(&mut b, "n0");
    assert!(view.node.drain.is_some() && view.next.is_empty() && view.open.len() == 1);
    assert_eq!(view.held[0].why, "perilog run made this job; to release it: perilog job finish j");
}

/// Regression test: for a script that hangs in the kernel, `perilog why` advised SIGKILL again after it had been sent.
#[test]
fn a_script_that_sigkill_did_not_end_is_not_to_be_killed_again() {
    let (mut b, n) = bench(1, |_| {});
    b.run("prolog", "j", "n0");
    b.receives(n[0], FromAgent::Accepted { task: task("prolog", "j", 0), limit_ms: None });
    let in_vain = format!("{}: 467 D 10-a in percpu_rwsem_wait", crate::task::KILLED_IN_VAIN);
    for (doing, advised) in [("467 D 10-a in percpu_rwsem_wait".to_owned(), true), (in_vain, false)] {
        let phase = Phase::Overdue { script: "10-a".into(), limit_ms: 5, doing };
        b.receives(n[0], FromAgent::PhaseChanged { task: task("prolog", "j", 0), phase, age_ms: 1 });
        let next = why(&mut b, "n0").open.remove(0).next;
        assert_eq!(next.iter().any(|line| line.contains("perilog kill")), advised, "{next:?}");
        assert!(next.iter().any(|line| line.contains("perilog resolve")), "{next:?}");
    }
}

#[test]
fn a_name_of_the_other_kind_is_pointed_to_its_verb() {
    let (mut b, _) = bench(1, |_| {});
    let reply = b.ask(Request::Show { job: JobId::new("n0").unwrap(), targets: None }).0;
    assert_eq!(reply, Err(Refusal::NoSuchJob("no job n0; n0 is a node: perilog why n0".to_owned())));
    assert_eq!(b.ask(finish("n0", None)).0, reply.map(|_| Reply::Done));
    b.ask(Request::Drain { hosts: "n9".parse().unwrap(), reason: "gone".into(), force: true }).0.unwrap();
    let reply = b.ask(Request::Why { host: HostName::new("n9").unwrap() }).0;
    assert!(
        matches!(&reply, Err(Refusal::NoSuchNode(text)) if text.ends_with("; it is drained: perilog drain")),
        "{reply:?}"
    );
}

#[test]
fn the_journal_has_a_line_for_each_drain_and_its_lifting() {
    let (mut b, n) = bench(3, |_| {});
    b.run("prolog", "j", "n0");
    b.receives(n[0], finished(task("prolog", "j", 0), exit(3)));
    b.ask(drain("n[1-2]", "bad dimm")).0.unwrap();
    b.ask(Request::Undrain { hosts: "n[0-1]".parse().unwrap(), forget: false, notice_id: None }).0.unwrap();
    b.ask(Request::Undrain { hosts: "n2".parse().unwrap(), forget: true, notice_id: None }).0.unwrap();
    b.batch(vec![Input::Closed { session: n[1], why: "the connection was cut off".into() }]);
    assert_eq!(
        b.notes,
        [
            "n0: drained: prolog: failed (exit 3) (job j attempt 0)",
            "uid 0 drained n[1-2]: bad dimm",
            "uid 0 undrained n[0-1]",
            "uid 0 undrained n2, without the drain hook",
            "n1: offline: the connection was cut off (10.0.0.9:5002)",
        ]
    );
    // The verdict's event names the hosts.
    let verdicts = super::release::contexts(&b, "verdict");
    assert_eq!(verdicts[0]["hosts"], "n0");
}

/// Regression test: a prolog directory held no executable file. The prolog was `ok` on every node, and only `perilog
/// logs` showed the cause.
#[test]
fn an_ok_that_ran_nothing_says_so_to_everybody_and_for_good() {
    let skipped = || vec!["/etc/perilog/prolog.d/10-hello is skipped: not executable".to_owned()];
    let (mut b, n) = bench(4, |_| {});
    b.ask(add("j", "n[0-3]", Terms::default())).0.unwrap();
    b.run("prolog", "j", "n[0-3]");
    let report_end = |b: &mut Bench, rank: u32, ended: Ended| {
        let task = task("prolog", "j", rank);
        b.receives(n[rank as usize], FromAgent::Finished { task, ended: Box::new(ended) });
    };
    report_end(&mut b, 0, empty());
    report_end(&mut b, 1, Ended { skipped: skipped(), ..empty() });
    report_end(&mut b, 2, Ended { skipped: skipped(), ..ended(Outcome::Ok) });
    report_end(&mut b, 3, ended(Outcome::Ok));
    let results: Vec<String> =
        contexts(&b, "finish").iter().map(|of| of["result"].as_str().unwrap().to_owned()).collect();
    assert_eq!(
        results,
        [
            "ok (no script ran)",
            "ok (no script ran; /etc/perilog/prolog.d/10-hello is skipped: not executable)",
            "ok (/etc/perilog/prolog.d/10-hello is skipped: not executable)",
            "ok",
        ]
    );
    let remarks = |b: &mut Bench| {
        let Ok(Reply::Show(view)) = b.ask(Request::Show { job: JobId::new("j").unwrap(), targets: None }).0 else {
            panic!("no show")
        };
        view.attempts[0].actions[0]
            .remarks
            .iter()
            .map(|(text, ranks)| (text.starts_with("no script ran"), ranks.to_string()))
            .collect::<Vec<_>>()
    };
    let all = [(false, "2".to_owned()), (true, "0".to_owned()), (true, "1".to_owned())];
    assert_eq!(remarks(&mut b), all);
    // The ranks share one text and need no row each, even on ten thousand nodes.
    assert_eq!(b.store.ranks, []);
    let mut b = b.restart();
    assert_eq!(remarks(&mut b), all);
    // `ps` shows the remark on an epilog that ran no script and waits for others.
    b.ask(finish("j", None)).0.unwrap();
    let (n0, _) = b.up("n0", "b", vec![]);
    b.receives(n0, FromAgent::Finished { task: task("epilog", "j", 0), ended: Box::new(empty()) });
    let Ok(Reply::Ps { rows, .. }) = b.ask(Request::Ps { older_than_ms: 0, held: true }).0 else { panic!("no ps") };
    let held = rows.iter().find(|row| row.state == "held").map(|row| row.why.clone()).unwrap_or_default();
    assert!(held.starts_with("done here (no script ran); released together with n[1-3] ("), "{held}");
}

/// Regression test: `since_ms` of a node was an age, and of a drain a time.
#[test]
fn since_is_a_time_of_nodes_as_of_drains() {
    let (mut b, _) = bench(1, |_| {});
    let up_ms = b.now.wall_ms;
    b.pass(33_360);
    b.ask(drain("n0", "fan")).0.unwrap();
    let drained_ms = b.now.wall_ms;
    let view = why(&mut b, "n0");
    assert_eq!((view.node.since_ms, view.node.drain.unwrap().since_ms), (up_ms, drained_ms));
}

/// Regression test: a job took 2,000 hosts that never connected, silently. `perilog why` reported of each that it never
/// connected, and not that the job holds it. A cancel of its epilog drained them with 2,000 lines in the journal.
#[test]
fn a_job_on_two_thousand_unknown_hosts_is_named_and_makes_one_line() {
    let (mut b, _) = bench(1, |_| {});
    let Ok(Reply::Added { unknown, .. }) = b.ask(add("big", "n0,m[0-1999]", Terms::default())).0 else {
        panic!("no add")
    };
    assert_eq!(unknown.to_string(), "m[0-1999]");
    let text = match b.ask(Request::Why { host: HostName::new("m1000").unwrap() }).0 {
        Err(Refusal::NoSuchNode(text)) => text,
        other => panic!("{other:?}"),
    };
    assert_eq!(
        text,
        "no node m1000 has ever connected to this controller; job big holds it as one of its 2001 hosts (perilog show \
         big; to end the job: perilog job cancel big)"
    );
    b.ask(finish("big", None)).0.unwrap();
    let cancel = Which { action: Some(ActionName::new("epilog").unwrap()), ..which("big", Some("1-2000")) };
    let reply = b.ask(Request::Cancel { which: cancel, why: "gone".into() }).0;
    assert_eq!(reply, Ok(Reply::Reached { tasks: 2000 }));
    assert_eq!(b.store.drains.len(), 2000);
    let lines: Vec<&String> = b.notes.iter().filter(|note| note.contains("drained")).collect();
    assert!(matches!(lines[..], [line] if line.starts_with("drained m[0-1999]: epilog: cancelled")), "{lines:?}");
    let events: Vec<String> = contexts(&b, "drain").iter().map(|of| of["hosts"].as_str().unwrap().to_owned()).collect();
    assert_eq!(events, ["m[0-1999]"]);
}

/// Regression test: `perilog why` of a released and drained host reported that the job holds it, and not that it is
/// drained.
#[test]
fn an_unknown_host_is_held_or_drained_or_both() {
    for (each, held) in [
        (true, ""),
        (false, "; job j holds it as one of its 2 hosts (perilog show j; to end the job: perilog job cancel j)"),
    ] {
        let (mut b, _) = bench(1, |settings| {
            if each {
                settings.release.insert(ActionName::new("epilog").unwrap(), crate::controller::io::ReleasePolicy::Each);
            }
        });
        b.ask(add("j", "n0,y1", Terms::default())).0.unwrap();
        b.ask(finish("j", None)).0.unwrap();
        let cancel = Which { action: Some(ActionName::new("epilog").unwrap()), ..which("j", Some("1")) };
        b.ask(Request::Cancel { which: cancel, why: "gone".into() }).0.unwrap();
        let why = b.ask(Request::Why { host: HostName::new("y1").unwrap() }).0;
        let text = format!("no node y1 has ever connected to this controller{held}; it is drained: perilog drain");
        assert_eq!(why, Err(Refusal::NoSuchNode(text)));
    }
}
