//! Views of the controller's web page: node states as in `perilog nodes`, grouped, with the most important first, and
//! bounded in size.

use crate::controller::overview::*;
use crate::controller::view::WhyView;
use crate::job::Terms;
use crate::outcome::Verdict;
use crate::task::Tail;

use super::release::{add, bench, finish};
use super::*;

fn overview(b: &mut Bench) -> Overview {
    let Ok(Reply::Overview(OverviewReply::Cluster(view))) = b.ask(Request::Overview(OverviewRequest::Cluster)).0 else {
        panic!("no overview")
    };
    *view
}

fn timeline(b: &mut Bench, job: &str) -> Timeline {
    let overview = OverviewRequest::Job(JobId::new(job).unwrap());
    let Ok(Reply::Overview(OverviewReply::Job(view))) = b.ask(Request::Overview(overview)).0 else {
        panic!("no timeline")
    };
    *view
}

fn node(b: &mut Bench, host: &str) -> WhyView {
    let overview = OverviewRequest::Node(HostName::new(host).unwrap());
    let Ok(Reply::Overview(OverviewReply::Node(view))) = b.ask(Request::Overview(overview)).0 else {
        panic!("no node")
    };
    *view
}

/// Returns each group of nodes as a line, for example `drained epilog (after stuck held): n2`. A line has the state,
/// the action, all that is true of the nodes, and their hosts.
fn lines(view: &Overview) -> Vec<String> {
    let line = |group: &NodeGroup| {
        let marks = [("after", group.after), ("stuck", group.stuck), ("drained", group.drained), ("held", group.held)];
        let marks: Vec<&str> = marks.iter().filter(|(_, is)| *is).map(|(mark, _)| *mark).collect();
        let action = group.action.as_ref().map(|action| format!(" {action}")).unwrap_or_default();
        format!("{}{action} ({}): {}", group.state, marks.join(" "), group.hosts)
    };
    view.groups.iter().map(line).collect()
}

fn failed(b: &mut Bench, session: SessionId, task: crate::ids::TaskId, line: &str) {
    let step = Step {
        script: "10-mount".into(),
        digest: String::new(),
        attempt: 1,
        began_ms: 0,
        elapsed_ms: 0,
        status: Some(ExitStatus::Exit(7)),
        tolerable: false,
        timed_out: false,
    };
    let ended = Ended {
        steps: vec![step],
        tails: vec![Tail { script: "10-mount".into(), text: format!("secret\n{line}\n") }],
        ..Ended::bare(Outcome::Failed { why: Failure::Exit(7) }, b.now.wall_ms)
    };
    b.receives(session, FromAgent::Finished { task, ended: Box::new(ended) });
}

#[test]
fn a_node_is_what_matters_most_about_it() {
    let (mut b, n) = bench(8, |_| {});
    b.ask(add("j", "n[0-3]", Terms::default())).0.unwrap();
    b.ask(finish("j", None)).0.unwrap();
    b.ask(add("k", "n[4-5]", Terms::default())).0.unwrap();
    b.run("prolog", "k", "n[4-5]");
    b.receives(n[4], finished(task("prolog", "k", 0), Outcome::Ok));
    b.receives(n[0], finished(task("epilog", "j", 0), Outcome::Ok));
    b.receives(n[2], FromAgent::Accepted { task: task("epilog", "j", 2), limit_ms: None });
    let phase = Phase::Overdue { script: "20-x".into(), limit_ms: 5, doing: String::new() };
    b.receives(n[2], FromAgent::PhaseChanged { task: task("epilog", "j", 2), phase, age_ms: 1 });
    b.ask(Request::Drain { hosts: "n6".parse().unwrap(), reason: "bad dimm".into(), force: false }).0.unwrap();
    b.batch(vec![Input::Closed { session: n[3], why: "gone".into() }]);

    let view = overview(&mut b);
    let expected = [
        "busy prolog (held): n5",
        "busy epilog (after held): n1",
        "drained (): n6",
        "drained epilog (after stuck held): n2",
        "free (): n7",
        "held (): n[0,4]",
        "offline epilog (after held): n3",
    ];
    assert_eq!(lines(&view), expected);
    assert_eq!(view.groups.iter().map(|group| group.count).sum::<u64>(), view.status.nodes);
    let drains: Vec<(&str, String)> =
        view.drains.iter().map(|drain| (drain.reason.as_str(), drain.hosts.to_string())).collect();
    assert!(drains.contains(&("bad dimm", "n6".to_owned())) && drains.len() == 2, "{drains:?}");

    // The stuck one comes first, although all are of one age.
    let first = &view.open[0];
    assert_eq!(
        (first.state.as_str(), first.stuck, first.why.as_str()),
        ("overdue", true, "20-x is past its limit of 5ms")
    );
    assert!(view.open[1..].iter().all(|row| !row.stuck), "{:?}", view.open);
}

#[test]
fn a_verdict_names_its_script_and_a_timeline_every_action() {
    let (mut b, n) = bench(3, |_| {});
    b.ask(add("j", "n[0-2]", Terms::default())).0.unwrap();
    b.run("prolog", "j", "n[0-2]");
    b.receives(n[0], finished(task("prolog", "j", 0), Outcome::Ok));
    failed(&mut b, n[1], task("prolog", "j", 1), "no such device");
    failed(&mut b, n[2], task("prolog", "j", 2), "no such device");
    b.ask(finish("j", None)).0.unwrap();
    b.receives(n[0], finished(task("epilog", "j", 0), Outcome::Ok));

    let view = overview(&mut b);
    let [last] = &view.verdicts[..] else { panic!("{:?}", view.verdicts) };
    let fault = last.fault.as_ref().unwrap();
    assert_eq!((last.action.as_str(), last.verdict, last.count, last.bad), ("prolog", Verdict::Failed, 3, 2));
    assert_eq!((fault.script.as_deref(), fault.line.as_deref()), (Some("10-mount"), Some("no such device")));
    assert_eq!((fault.count, fault.hosts.to_string()), (2, "n[1-2]".to_owned()));

    let line = timeline(&mut b, "j");
    let [attempt] = &line.attempts[..] else { panic!("{line:?}") };
    let actions: Vec<_> = attempt
        .actions
        .iter()
        .map(|of| (of.action.as_str(), of.after, of.verdict, of.ok, of.bad, of.open.len()))
        .collect();
    assert_eq!(actions, [("prolog", false, Some(Verdict::Failed), 1, 2, 0), ("epilog", true, None, 1, 0, 1)]);
    let refused = b.ask(Request::Overview(OverviewRequest::Job(JobId::new("none").unwrap()))).0;
    assert!(matches!(refused, Err(Refusal::NoSuchJob(_))), "{refused:?}");

    // A page is read by people who may not read what scripts print: the last line of a failed one, and no more.
    let view = node(&mut b, "n1");
    let ended = view.failed[0].ended.as_ref().unwrap();
    assert_eq!((ended.tails.len(), ended.steps.len()), (0, 1));
    let text = serde_json::to_string(&(overview(&mut b), timeline(&mut b, "j"), view)).unwrap();
    assert!(text.contains("no such device") && !text.contains("secret"), "{text}");
}

#[test]
fn names_are_in_the_order_of_their_numbers() {
    let mut b = Bench::new();
    for host in ["n10", "n9", "n1", "gpu2-b", "gpu2-a", "n010", "gpu10-a", "login", "n2"] {
        b.up(host, "b1", vec![]);
    }
    let view = overview(&mut b);
    let hosts: Vec<&str> = view.groups[0].hosts.iter().collect();
    assert_eq!(hosts, ["gpu2-a", "gpu2-b", "gpu10-a", "login", "n1", "n2", "n9", "n10", "n010"]);
}

/// Each list of the web page's overview and timeline has a maximum length, however many jobs, failures and drain
/// reasons the cluster has. For most lists, the page says how many entries it leaves out.
#[test]
fn lists_have_a_bound_and_say_what_is_left_out() {
    let (mut b, n) = bench(200, |_| {});
    let wide = "x".repeat(2 * MAX_TEXT);
    b.ask(add("wide", "n[0-199]", Terms::default())).0.unwrap();
    b.run("prolog", "wide", "n[0-199]");
    for (rank, session) in n.iter().enumerate() {
        failed(&mut b, *session, task("prolog", "wide", rank as u32), &format!("{wide} {rank}"));
    }
    for (job, session) in n.iter().enumerate().take(2 * MAX_VERDICTS) {
        b.run("prolog", &format!("j{job}"), &format!("n{job}"));
        b.receives(*session, finished(task("prolog", &format!("j{job}"), 0), Outcome::Ok));
    }
    for job in 0..150 {
        b.run("prolog", &format!("open{job}"), &format!("n{job}"));
        b.ask(Request::Drain {
            hosts: format!("n{job}").parse().unwrap(),
            reason: format!("{job} {wide}"),
            force: true,
        })
        .0
        .unwrap();
    }
    let view = overview(&mut b);
    assert_eq!((view.open.len(), view.open_left_out), (MAX_ROWS, 50));
    assert_eq!((view.drains.len(), view.verdicts.len()), (MAX_ROWS, MAX_VERDICTS));
    assert!(view.drains_left_out > 0, "{}", view.drains_left_out);
    // The newest, and first of them the last.
    let jobs: Vec<&str> = view.verdicts.iter().map(|row| row.job.as_str()).collect();
    let newest: Vec<String> = (MAX_VERDICTS..2 * MAX_VERDICTS).rev().map(|job| format!("j{job}")).collect();
    assert_eq!(jobs, newest);
    let line = timeline(&mut b, "wide");
    let action = &line.attempts[0].actions[0];
    assert_eq!((action.faults.len(), action.faults_left_out, action.bad), (MAX_FAULTS, 200 - MAX_FAULTS as u64, 200));
    assert_eq!((line.attempts[0].hosts.len(), line.attempts[0].count), (MAX_HOSTS, 200));
    let bytes = serde_json::to_vec(&view).unwrap().len();
    assert!(bytes < 150_000, "{bytes}");
}

/// The overview of ten thousand nodes, in the states of a usual working day, has less than 32 KiB.
#[test]
fn ten_thousand_nodes_are_small() {
    let mut b = Bench::new();
    let sessions: Vec<SessionId> = (0..10_000).map(|host| b.up(&format!("n{host}"), "b1", vec![]).0).collect();
    for job in 0..100 {
        let hosts = format!("n[{}-{}]", job * 90, job * 90 + 79);
        b.ask(add(&format!("j{job}"), &hosts, Terms::default())).0.unwrap();
        if job % 4 == 0 {
            b.run("prolog", &format!("j{job}"), &hosts);
        }
    }
    for away in sessions.iter().step_by(97) {
        b.batch(vec![Input::Closed { session: *away, why: "gone".into() }]);
    }
    let view = overview(&mut b);
    assert_eq!(view.groups.iter().map(|group| group.count).sum::<u64>(), 10_000);
    assert_eq!(view.groups.iter().map(|group| group.hosts.len()).sum::<usize>(), 10_000);
    let bytes = serde_json::to_vec(&view).unwrap().len();
    assert!(bytes < 32_768, "{bytes}");
}
