//! Order: an after-action begins when the setup actions on its rank have ended, and never beside them. The order of the
//! requests does not matter.

use std::collections::BTreeSet;

use crate::job::Terms;
use crate::outcome::Verdict;

use super::release::{add, bench, contexts, finish, job};
use super::*;

/// Returns the action and rank of each Start among the effects.
fn begun(effects: &[Effect]) -> Vec<(String, u32)> {
    let of = |effect: &Effect| match effect {
        Effect::Fan { start, to } => {
            to.iter().map(|(_, rank, _)| (start.action.to_string(), rank.0)).collect::<Vec<_>>()
        }
        Effect::Send { message: ToAgent::Start(start), .. } => vec![(start.action.to_string(), start.task.rank.0)],
        _ => Vec::new(),
    };
    effects.iter().flat_map(of).collect()
}

fn one(action: &str, rank: u32) -> Vec<(String, u32)> {
    vec![(action.to_owned(), rank)]
}

fn released(b: &Bench) -> Vec<String> {
    contexts(b, "release").iter().map(|c| c["ranks"].as_str().unwrap_or_default().to_owned()).collect()
}

/// Lets the node accept the task, and report it as `ok`.
fn runs(b: &mut Bench, session: SessionId, action: &str, rank: u32) -> Vec<Effect> {
    b.receives(session, FromAgent::Accepted { task: task(action, "j", rank), limit_ms: None });
    b.receives(session, finished(task(action, "j", rank), Outcome::Ok))
}

fn why_waiting(b: &mut Bench) -> Vec<(String, String)> {
    let Ok(Reply::Ps { rows, .. }) = b.ask(Request::Ps { older_than_ms: 0, held: false }).0 else { panic!("no ps") };
    let waiting = rows.into_iter().filter(|row| row.state == "waiting");
    waiting.map(|row| (row.action.to_string(), row.why)).collect()
}

fn shrinking() -> Terms {
    Terms { shrink: true, tolerate: "1".parse().ok(), ..Terms::default() }
}

#[test]
fn a_growing_epilog_waits_for_a_later_prolog() {
    let (mut b, n) = bench(2, |_| {});
    b.ask(add("j", "n[0-1]", Terms::default())).0.unwrap();
    assert_eq!(begun(&b.ask(finish("j", Some("0"))).1), one("epilog", 0));
    b.receives(n[0], FromAgent::Accepted { task: task("epilog", "j", 0), limit_ms: None });
    assert_eq!(begun(&b.ask(Request::Run(request("prolog", "j", None, None))).1), one("prolog", 1));
    b.receives(n[1], FromAgent::Accepted { task: task("prolog", "j", 1), limit_ms: None });
    assert_eq!(begun(&b.ask(finish("j", None)).1), []);
    assert_eq!(why_waiting(&mut b), [("epilog".to_owned(), "prolog has not ended there".to_owned())]);
    // The wait costs no start-grace, and a restart changes nothing.
    b.pass(120_000);
    let mut b = b.restart();
    let (n1, effects) = b.up("n1", "b", vec![held("prolog", "j", 1, live())]);
    assert_eq!(begun(&effects), []);
    let effects = b.receives(n1, finished(task("prolog", "j", 1), Outcome::Ok));
    assert_eq!(begun(&effects), one("epilog", 1));
    runs(&mut b, n1, "epilog", 1);
    let (n0, _) = b.up("n0", "b", vec![held("epilog", "j", 0, live())]);
    b.receives(n0, finished(task("epilog", "j", 0), Outcome::Ok));
    assert_eq!((released(&b), b.action("epilog", "j", 0).verdict), (vec!["0-1".to_owned()], Some(Verdict::Ok)));
}

/// The node is away while a prolog and an epilog are requested: on its return the node gets the prolog first.
#[test]
fn a_node_that_comes_back_gets_its_prolog_first() {
    let (mut b, n) = bench(2, |_| {});
    b.ask(add("j", "n[0-1]", Terms::default())).0.unwrap();
    b.ask(finish("j", Some("0"))).0.unwrap();
    b.receives(n[0], finished(task("epilog", "j", 0), Outcome::Ok));
    b.batch(vec![Input::Closed { session: n[1], why: String::new() }]);
    b.ask(Request::Run(request("prolog", "j", None, None))).0.unwrap();
    b.ask(finish("j", None)).0.unwrap();
    let (n1, effects) = b.up("n1", "b", vec![]);
    assert_eq!(begun(&effects), one("prolog", 1));
    assert_eq!(begun(&runs(&mut b, n1, "prolog", 1)), one("epilog", 1));
    assert_eq!(released(&b), ["0"]);
    runs(&mut b, n1, "epilog", 1);
    assert_eq!(released(&b), ["0", "1"]);
}

/// Rank 0 fails a check, and the job hands it over to the epilog. Then the user cancels the job while the prolog of
/// rank 1 runs: the epilog of rank 1 waits for the end of that prolog.
#[test]
fn after_a_shrink_a_cancel_waits_for_the_prolog() {
    let (mut b, n) = bench(2, |_| {});
    b.ask(add("j", "n[0-1]", shrinking())).0.unwrap();
    b.ask(Request::Run(request("check", "j", None, None))).0.unwrap();
    b.receives(n[0], finished(task("check", "j", 0), Outcome::Tolerable));
    b.receives(n[1], finished(task("check", "j", 1), Outcome::Ok));
    assert_eq!(begun(&b.ask(Request::Run(request("prolog", "j", None, None))).1), one("prolog", 1));
    b.receives(n[1], FromAgent::Accepted { task: task("prolog", "j", 1), limit_ms: None });
    let (_, effects) = b.ask(Request::JobCancel { job: job("j"), attempt: None, why: "user".into() });
    assert_eq!(begun(&effects), []);
    assert!(effects.iter().any(|effect| is_cancel(effect, task("prolog", "j", 1))));
    let effects = b.receives(n[1], finished(task("prolog", "j", 1), Outcome::Cancelled { status: None }));
    assert_eq!(begun(&effects), one("epilog", 1));
}

#[test]
fn a_growing_epilog_waits_for_a_later_service() {
    let (mut b, n) = bench(2, |_| {});
    b.ask(add("j", "n[0-1]", shrinking())).0.unwrap();
    b.ask(Request::Run(request("prolog", "j", None, None))).0.unwrap();
    b.receives(n[0], finished(task("prolog", "j", 0), Outcome::Tolerable));
    b.receives(n[1], finished(task("prolog", "j", 1), Outcome::Ok));
    let run = RunRequest { targets: Some("1".parse().unwrap()), ..request("stage", "j", None, None) };
    b.ask(Request::ActionStart(Box::new(ActionStart { run, resources: BTreeSet::new(), lease_ms: 60_000 }))).0.unwrap();
    assert_eq!(begun(&b.ask(finish("j", None)).1), []);
    assert_eq!(why_waiting(&mut b), [("epilog".to_owned(), "stage has not ended there".to_owned())]);
    let report = Report {
        job: job("j"),
        attempt: None,
        action: ActionName::new("stage").unwrap(),
        targets: None,
        resources: None,
        kind: ReportKind::Ok,
    };
    assert_eq!(begun(&b.ask(Request::ActionReport(Box::new(report))).1), one("epilog", 1));
}

/// The site empties its list of after-actions while the after-action `sweep` waits for the epilog. All the same,
/// `sweep` begins when the epilog has ended.
#[test]
fn what_follows_jobs_no_more_is_not_waited_for() {
    let name = |name| ActionName::new(name).unwrap();
    let (mut b, n) = bench(1, |settings| settings.after = vec![name("epilog"), name("sweep")]);
    b.ask(add("j", "n0", Terms::default())).0.unwrap();
    b.ask(Request::Run(request("prolog", "j", None, None))).0.unwrap();
    b.receives(n[0], FromAgent::Accepted { task: task("prolog", "j", 0), limit_ms: None });
    assert_eq!(begun(&b.ask(finish("j", None)).1), []);
    assert_eq!(begun(&runs(&mut b, n[0], "prolog", 0)), one("epilog", 0));
    let settings = Settings { after: Vec::new(), ..b.settings.clone() };
    assert_eq!(begun(&b.batch(vec![Input::Settings(settings)])), []);
    assert_eq!(begun(&runs(&mut b, n[0], "epilog", 0)), one("sweep", 0));
}

/// An operator ran the epilog manually on all ranks of the job. Whether this epilog runs or has ended, the controller
/// refuses a later prolog of the same attempt: no epilog would follow the prolog.
#[test]
fn nothing_prepares_ranks_where_an_epilog_has_been() {
    for ended in [false, true] {
        let (mut b, n) = bench(1, |_| {});
        b.ask(add("j", "n0", Terms::default())).0.unwrap();
        b.ask(Request::Run(request("epilog", "j", None, None))).0.unwrap();
        if ended {
            b.receives(n[0], finished(task("epilog", "j", 0), Outcome::Ok));
        }
        let text = |action| {
            format!(
                "epilog of job j attempt 0 covers rank 0, and no action would clean up after {action} there: begin \
                 another attempt (--attempt 1)"
            )
        };
        for nodes in [None, Some("n0")] {
            let (reply, effects) = b.ask(Request::Run(request("prolog", "j", nodes, None)));
            assert_eq!((reply, begun(&effects)), (Err(Refusal::Conflict(text("prolog"))), vec![]));
        }
        let run = request("stage", "j", None, None);
        let start = ActionStart { run, resources: BTreeSet::new(), lease_ms: 60_000 };
        assert_eq!(b.ask(Request::ActionStart(Box::new(start))).0, Err(Refusal::Conflict(text("stage"))));
        let (reply, effects) = b.ask(Request::Run(request("prolog", "j", Some("n0"), Some(1))));
        assert!(reply.is_ok());
        assert_eq!(begun(&effects), if ended { one("prolog", 0) } else { vec![] });
    }
}

/// With `after = ["epilog", "housekeeping"]`, both run in that order on each rank after its prolog. The rank is
/// released when both have ended.
#[test]
fn housekeeping_follows_the_epilog_and_neither_joins_a_prolog() {
    let after = ["epilog", "housekeeping"].map(|name| ActionName::new(name).unwrap());
    let (mut b, n) = bench(2, |settings| settings.after = after.to_vec());
    b.ask(add("j", "n[0-1]", Terms::default())).0.unwrap();
    b.ask(finish("j", Some("0"))).0.unwrap();
    b.ask(Request::Run(request("prolog", "j", None, None))).0.unwrap();
    assert_eq!(begun(&b.ask(finish("j", None)).1), []);
    assert_eq!(begun(&runs(&mut b, n[0], "epilog", 0)), one("housekeeping", 0));
    assert_eq!(begun(&runs(&mut b, n[1], "prolog", 1)), one("epilog", 1));
    assert_eq!(begun(&runs(&mut b, n[1], "epilog", 1)), one("housekeeping", 1));
    assert_eq!(released(&b), [] as [&str; 0]);
    assert_eq!(begun(&runs(&mut b, n[0], "housekeeping", 0)), []);
    assert_eq!(begun(&runs(&mut b, n[1], "housekeeping", 1)), []);
    assert_eq!(released(&b), ["0-1"]);
}

/// Regression test: the site removed `sweep` from its after-actions while a `sweep` task waited for the epilog. The
/// controller cancelled the waiting task when the node reported the epilog.
#[test]
fn a_task_behind_an_epilog_begins_though_the_setting_changed() {
    let after = |names: &[&str]| names.iter().map(|name| ActionName::new(name).unwrap()).collect();
    let (mut b, n) = bench(1, |s| s.after = after(&["epilog", "sweep"]));
    b.run("prolog", "j", "n0");
    b.receives(n[0], finished(task("prolog", "j", 0), Outcome::Ok));
    assert_eq!(begun(&b.ask(finish("j", None)).1), one("epilog", 0));
    b.settings.after = after(&["epilog"]);
    b.batch(vec![Input::Settings(b.settings.clone()), Input::Closed { session: n[0], why: String::new() }]);
    let (n0, effects) = b.up("n0", "b", vec![held("epilog", "j", 0, live())]);
    assert_eq!(begun(&effects), []);
    let effects = b.receives(n0, finished(task("epilog", "j", 0), Outcome::Ok));
    assert_eq!(begun(&effects), one("sweep", 0));
}
