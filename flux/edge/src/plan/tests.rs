//! Tables of cases: states of Flux and of perilog, and the actions that are due.

mod external;
mod followers;
mod housekeeping;
mod pages;
mod tasks;
mod world;

use std::collections::BTreeSet;

use perilog_core::controller::io::{DrainRow, Passing};
use perilog_core::controller::view::{EdgeAction, EdgeAttempt};
use perilog_core::{ActionName, Attempt, Event, HostName, JobId, Verdict};
use perilog_terms::Cap;
use serde_json::{Value, json};

use super::tasks::Inspection;
use super::view::{FluxDrain, Site};
use super::*;

const ID: u64 = 38_235_275_264;
/// The time of the job's allocation, in seconds.
const ALLOC: f64 = 1000.5;
const NOW_MS: u64 = 2_000_000;
const PATIENCE_MS: u64 = 60_000;

fn host(name: &str) -> HostName {
    HostName::new(name).unwrap()
}

fn job_name() -> JobId {
    perilog_core::Fluid(ID).job()
}

fn event(at: f64, name: &str, context: &Value) -> Event {
    Event::new(at, name, context.as_object().cloned()).unwrap()
}

fn take(view: &mut View, at: f64, name: &str, context: Value) {
    view.jobs.get_mut(&ID).unwrap().take(&event(at, name, &context));
}

fn ours() -> Value {
    json!({"description": "perilog"})
}

/// Returns a view in which the edge knows both sides. Flux has a job on n0 and n1, and perilog does not know the job
/// yet.
fn view() -> View {
    let mut view = View::new(Site { online_patience_ms: PATIENCE_MS, ..Site::default() });
    view.cap = Cap::all();
    view.is_current = true;
    view.starttime = 900.0;
    view.online = "0-3".parse().unwrap();
    view.up = "0-3".parse().unwrap();
    let nodes =
        json!({"version": 1, "execution": {"R_lite": [{"rank": "0-3", "children": {}}], "nodelist": ["n[0-3]"]}});
    view.set_ranks(&perilog_core::ResourceSet::from_json(&nodes.to_string()).unwrap());
    let mut job = Job::new(ID);
    job.set_r(
        &json!({"version": 1, "execution": {"R_lite": [{"rank": "0-1", "children": {}}], "nodelist": ["n[0-1]"]}}),
    );
    view.jobs.insert(ID, job);
    take(&mut view, 1000.0, "submit", json!({"userid": 1000}));
    take(&mut view, ALLOC, "alloc", json!({}));
    take(&mut view, 1001.0, "prolog-start", ours());
    view.jobs.get_mut(&ID).unwrap().inspection = Inspection::NoMonitor;
    view
}

fn attempt() -> EdgeAttempt {
    EdgeAttempt {
        job: job_name(),
        attempt: Attempt::of_alloc(ALLOC).unwrap(),
        ranks: "0-1".parse().unwrap(),
        hosts: "n[0-1]".parse().unwrap(),
        open: true,
        hold: "0-1".parse().unwrap(),
        released: Default::default(),
        complete: false,
        abandoned: false,
        actions: vec![],
        milestones: vec![],
    }
}

fn action(name: &str, verdict: Option<Verdict>, bad: bool) -> EdgeAction {
    let (ranks, hosts) = if bad { ("1", "n1") } else { ("", "") };
    let failures =
        json!([{"check": "lustre", "message": "/p is not mounted", "hosts": "n1", "ranks": "1"}]).as_array().cloned();
    EdgeAction {
        name: ActionName::new(name).unwrap(),
        verdict,
        ended_ms: verdict.map(|_| NOW_MS - 1_000),
        bad: ranks.parse().unwrap(),
        bad_hosts: hosts.parse().unwrap(),
        bad_resources: Default::default(),
        failures: if bad { failures.unwrap() } else { vec![] },
    }
}

fn knows(view: &mut View, attempt: EdgeAttempt) {
    view.attempts.insert((attempt.job.clone(), attempt.attempt), attempt);
}

fn with(actions: Vec<EdgeAction>) -> EdgeAttempt {
    EdgeAttempt { actions, ..attempt() }
}

/// Returns an attempt whose ranks are all released, after an epilog with this verdict. `bad`: the epilog failed on rank
/// 1.
fn complete(verdict: Verdict, bad: bool) -> EdgeAttempt {
    let actions = vec![action("prolog", Some(Verdict::Ok), false), action("epilog", Some(verdict), bad)];
    EdgeAttempt { hold: Default::default(), released: "0-1".parse().unwrap(), complete: true, ..with(actions) }
}

fn drain(name: &str) -> DrainRow {
    DrainRow { notice_id: 7, ..DrainRow::new(host(name), "prolog 10-a: failed".to_owned(), None, NOW_MS - 1_000) }
}

/// Returns the actions that are due at [`NOW_MS`], each as a text such as `finish prolog 0`.
fn due(view: &View) -> Vec<String> {
    due_at(view, NOW_MS)
}

fn due_at(view: &View, now_ms: u64) -> Vec<String> {
    let due = plan(view, now_ms);
    let mut words: Vec<String> = due.actions.iter().map(action_text).collect();
    words.extend(due.wake_at_ms.map(|at| format!("look in {}", at - now_ms)));
    words
}

fn action_text(action: &Action) -> String {
    match action {
        Action::Add { .. } => "add".to_owned(),
        Action::Run { what, .. } => format!("run {}", what.as_str()),
        Action::DropHold { .. } => "finish the part".to_owned(),
        Action::Start { name, .. } => format!("start {name}"),
        Action::Cancel { name, .. } => format!("cancel {name}"),
        Action::Post { name, mark, context, .. } => match context["severity"].as_u64() {
            Some(severity) => format!("{name} {mark} {severity}"),
            None => format!("post {name}"),
        },
        Action::Inspect { ranks, .. } => format!("ask {ranks}"),
        Action::Finish { what, status, .. } => format!("finish {} {status}", what.as_str()),
        Action::Drain { host, overwrite, .. } => format!("drain {host}{}", if *overwrite { " over" } else { "" }),
        Action::Undrain { host } => format!("undrain {host}"),
        Action::Notified { host, lifted, .. } => format!("notified {host}{}", if *lifted { " lifted" } else { "" }),
        Action::Lifted { host, .. } => format!("lifted {host}"),
    }
}

fn fatal(view: &mut View) {
    take(view, 1002.0, "exception", json!({"type": "cancel", "severity": 0, "note": ""}));
}

fn nothing(_: &mut View) {}

#[test]
fn a_prolog_goes_from_its_start_to_its_finish() {
    type Change = fn(&mut View);
    let unknown: Change = nothing;
    let known: Change = |view| knows(view, attempt());
    let runs: Change = |view| knows(view, with(vec![action("prolog", None, false)]));
    let ok: Change = |view| knows(view, with(vec![action("prolog", Some(Verdict::Ok), false)]));
    let tolerated: Change = |view| knows(view, with(vec![action("prolog", Some(Verdict::Ok), true)]));
    let failed: Change = |view| knows(view, with(vec![action("prolog", Some(Verdict::Failed), true)]));
    let cancelled: Change = |view| knows(view, with(vec![action("prolog", Some(Verdict::Cancelled), true)]));
    let away: Change = |view| view.online = "0,2-3".parse().unwrap();
    let draining: Change = |view| drop(view.drains.insert(host("n1"), drain("n1")));
    let asked: Change = |view| {
        view.jobs.get_mut(&ID).unwrap().cancel_asked.insert(ActionName::new("prolog").unwrap());
    };
    let refused: Change = |view| {
        view.refused.insert((job_name(), Attempt::of_alloc(ALLOC).unwrap()), "the job has a newer attempt".to_owned());
    };
    let absent: Change = |view| view.is_current = false;
    let cleaned: Change = |view| {
        let other = EdgeAttempt { job: JobId::new("fother").unwrap(), hold: Default::default(), ..attempt() };
        knows(view, other);
    };
    let abandoned: Change = |view| knows(view, EdgeAttempt { abandoned: true, ..attempt() });
    let bypass: Change = |view| view.jobs.get_mut(&ID).unwrap().bypass = true;
    let malformed: Change = |view| view.jobs.get_mut(&ID).unwrap().malformed = Some("no R_lite".to_owned());
    #[rustfmt::skip]
    let table: [(&str, &[Change], &[&str]); 24] = [
        ("unknown", &[unknown], &["add"]),
        ("unknown, cancelled", &[fatal], &["finish prolog 256"]),
        ("perilog is away", &[absent], &[]),
        ("known", &[known], &["run prolog"]),
        ("known, a host is cleaned up after another job", &[known, cleaned], &[]),
        ("known, and abandoned by a restore", &[abandoned], &[]),
        ("known, cancelled before it began", &[known, fatal], &["finish prolog 256"]),
        ("runs", &[runs], &[]),
        ("runs, cancelled", &[runs, fatal], &["cancel prolog"]),
        ("runs, cancelled and reported", &[runs, fatal, asked], &[]),
        ("ok", &[ok], &["finish prolog 0"]),
        ("ok, cancelled", &[ok, fatal], &["finish prolog 256"]),
        ("ok, a broker is away", &[ok, away], &["look in 59000"]),
        ("tolerated", &[tolerated], &["exception tolerated 1"]),
        ("tolerated, the drain is on its way", &[tolerated, draining], &["drain n1"]),
        ("failed", &[failed], &["exception prolog 0"]),
        ("failed, the drain is on its way", &[failed, draining], &["drain n1"]),
        // A cancel after the failure does not hide the failure.
        ("failed, cancelled", &[failed, fatal], &["exception prolog 1"]),
        ("cancelled by an operator", &[cancelled], &["exception prolog 0"]),
        ("cancelled with its job", &[cancelled, fatal], &["finish prolog 256"]),
        ("refused", &[refused], &["exception refused 0"]),
        ("refused, cancelled", &[refused, fatal], &["finish prolog 256"]),
        ("an allocation of no scheduler", &[bypass], &["finish prolog 0"]),
        ("an R of another form", &[malformed], &["exception refused 0"]),
    ];
    for (name, changes, expect) in table {
        let mut view = view();
        changes.iter().for_each(|change| change(&mut view));
        assert_eq!(due(&view), expect, "{name}");
    }
}

#[test]
fn missing_brokers_are_drained_after_the_patience() {
    let mut view = view();
    knows(&mut view, with(vec![action("prolog", Some(Verdict::Ok), false)]));
    view.online = "2-3".parse().unwrap();
    // The patience counts from the verdict, also over restarts of the edge.
    let late = NOW_MS - 1_000 + PATIENCE_MS;
    assert_eq!(due_at(&view, late - 1), ["look in 1"]);
    for expect in ["drain n0", "drain n1", "finish prolog 0"] {
        let due = plan(&view, late);
        assert_eq!(due.actions.iter().map(action_text).collect::<Vec<_>>(), [expect]);
        view.did(&due.actions[0]);
    }
    assert_eq!(due_at(&view, late), Vec::<String>::new());
}

/// A kill may end the edge after any call, also after a call without an answer. The next edge repeats the call or makes
/// the next one, and reaches the same end.
#[test]
fn each_call_may_be_the_last() {
    let start = || {
        let mut view = view();
        knows(&mut view, with(vec![action("prolog", Some(Verdict::Failed), true)]));
        view.drains.insert(host("n1"), drain("n1"));
        view
    };
    // The state of Flux and perilog after a call was carried out.
    let effect = |view: &mut View, action: &Action| match action {
        Action::Drain { host, reason, .. } => {
            view.flux_drains.insert(host.clone(), FluxDrain { reason: reason.clone() });
        }
        Action::Notified { host, .. } => {
            let drain = view.drains.get_mut(host).unwrap();
            drain.confirmed = true;
        }
        Action::Post { name, context, .. } => {
            let event = event(1003.0, name, context);
            view.jobs.get_mut(&ID).unwrap().take(&event);
        }
        Action::Finish { status, .. } => {
            let context = json!({"description": "perilog", "status": status});
            view.jobs.get_mut(&ID).unwrap().take(&event(1004.0, "prolog-finish", &context));
        }
        other => panic!("{other:?}"),
    };
    let expected = ["drain n1", "notified n1", "exception prolog 0", "finish prolog 256"];
    for cut in 0..=expected.len() {
        let mut view = start();
        let mut calls = Vec::new();
        for step in 0..10 {
            let Some(action) = plan(&view, NOW_MS).actions.into_iter().next() else { break };
            effect(&mut view, &action);
            // A new edge knows only the state of both sides.
            if step != cut {
                view.did(&action);
            }
            calls.push(action_text(&action));
        }
        assert_eq!(calls, expected, "cut after {cut}");
    }
}

#[test]
fn an_epilog_runs_from_the_tasks_end_to_the_last_release() {
    type Change = fn(&mut View);
    let ran: Change = |view| {
        take(view, 1002.0, "prolog-finish", json!({"description": "perilog", "status": 0}));
        take(view, 1003.0, "start", json!({}));
    };
    let never: Change = |view| {
        fatal(view);
        take(view, 1003.0, "prolog-finish", json!({"description": "perilog", "status": 256}));
    };
    // Flux has started the job, but the eventlog does not show the start yet.
    let asked_to_start: Change = |view| {
        take(view, 1002.0, "prolog-finish", json!({"description": "perilog", "status": 0}));
        fatal(view);
    };
    let over: Change = |view| take(view, 1005.0, "epilog-start", ours());
    let released: Change = |view| take(view, 1006.0, "release", json!({"ranks": "all", "final": true}));
    let restarted: Change = |view| {
        view.starttime = 1500.0;
        view.jobs.get_mut(&ID).unwrap().before = true;
    };
    let reloaded: Change = |view| view.jobs.get_mut(&ID).unwrap().before = true;
    let away: Change = |view| view.online = "0,2-3".parse().unwrap();
    let moved: Change = |view| {
        view.online = "0,2-4".parse().unwrap();
        view.ranks.insert(HostName::new("n1").unwrap(), 4);
        view.up = view.online.clone();
    };
    let known: Change = |view| knows(view, with(vec![action("prolog", Some(Verdict::Ok), false)]));
    let begun: Change = |view| {
        let actions = vec![action("prolog", Some(Verdict::Ok), false), action("epilog", None, false)];
        knows(view, with(actions));
    };
    let handed_over: Change = |view| {
        let actions = vec![action("prolog", Some(Verdict::Ok), false), action("epilog", None, false)];
        knows(view, EdgeAttempt { hold: Default::default(), ..with(actions) });
    };
    let clean: Change = |view| knows(view, complete(Verdict::Ok, false));
    let dirty: Change = |view| knows(view, complete(Verdict::Failed, true));
    let reported: Change = |view| {
        view.jobs.get_mut(&ID).unwrap().reported.insert("epilog".to_owned());
    };
    #[rustfmt::skip]
    let table: [(&str, &[Change], &[&str]); 18] = [
        ("tasks live", &[ran, over, known], &[]),
        ("tasks may live, start is not reported yet", &[asked_to_start, over, known], &[]),
        ("tasks are gone", &[ran, over, released, known], &["run epilog"]),
        ("it runs, and the job holds its ranks", &[ran, over, released, begun], &["finish the part"]),
        ("it runs", &[ran, over, released, handed_over], &[]),
        ("all is released", &[ran, over, released, clean], &["finish epilog 0"]),
        ("all is released, a broker is away", &[ran, over, released, clean, away], &["look in 59000"]),
        ("all is released, a node has another rank since a reconfiguration", &[ran, over, released, clean, moved],
         &["finish epilog 0"]),
        ("it failed", &[ran, over, released, dirty], &["exception epilog 2"]),
        ("it failed, and that was reported", &[ran, over, released, dirty, reported], &["finish epilog 256"]),
        ("nothing was ever begun", &[never, over], &["finish epilog 0"]),
        ("its prolog failed", &[never, over, known], &["run epilog"]),
        ("perilog never had a report of it", &[ran, over, released], &["add"]),
        // Rank 0 posts `release` while tasks live on other nodes.
        ("rank 0 was restarted", &[ran, over, released, restarted, known], &["run epilog"]),
        ("rank 0 was restarted, a broker has not joined", &[ran, over, released, restarted, known, away],
         &["drain n1"]),
        // Flux never posts a release.
        ("rank 0 was restarted in CLEANUP", &[ran, over, restarted, known], &["run epilog"]),
        // Only the plugin was restarted: the release will come.
        ("the plugin was loaded again", &[ran, over, reloaded, known], &[]),
        ("the plugin was loaded again, tasks are gone", &[ran, over, released, reloaded, known], &["run epilog"]),
    ];
    for (name, changes, expect) in table {
        let mut view = view();
        changes.iter().for_each(|change| change(&mut view));
        assert_eq!(due(&view), expect, "{name}");
    }
}

/// Rank 0 restarts without the brokers of a job that ran, and Flux frees the job: no housekeeping of Flux waits on the
/// job's nodes. The edge begins the job's epilog first, while its `Sync` still lists the job. Only then it sends a
/// `Sync` without the job, so that the controller counts the job as lost.
#[test]
fn a_job_freed_without_its_brokers_is_lost_at_its_epilog() {
    let mut view = view();
    view.jobs.get_mut(&ID).unwrap().before = true;
    view.starttime = 1500.0;
    take(&mut view, 1002.0, "prolog-finish", json!({"description": "perilog", "status": 0}));
    take(&mut view, 1003.0, "start", json!({}));
    for name in ["release", "free", "clean"] {
        let context = if name == "release" { json!({"ranks": "all", "final": true}) } else { json!({}) };
        take(&mut view, 1600.0, name, context);
    }
    view.settle(ID);
    knows(&mut view, with(vec![action("prolog", Some(Verdict::Ok), false)]));
    for expect in ["run epilog", "finish the part"] {
        assert!(!sync::is_due(&view));
        let source = json!({"name": "flux", "instance": "system"});
        assert_eq!(sync::pages(&view, &source)[0]["attempts"][0]["phase"], "running");
        let due = plan(&view, NOW_MS);
        assert_eq!(due.actions.iter().map(action_text).collect::<Vec<_>>(), [expect]);
        view.did(&due.actions[0]);
    }
    assert!(sync::is_due(&view) && view.jobs.is_empty());
}

/// Regression test: after a restart of a real Flux's rank 0, an epilog began while tasks of the job were alive. The
/// plugin's list says that the job is older than the restart. The edge must not forget that when it reads the journal's
/// backlog, which comes later.
#[test]
fn a_job_from_before_a_restart_stays_so_over_its_backlog() {
    let mut view = view();
    view.starttime = 1500.0;
    let mut job = Job::new(ID);
    job.before = true;
    job.set_r(
        &json!({"version": 1, "execution": {"R_lite": [{"rank": "0-1", "children": {}}], "nodelist": ["n[0-1]"]}}),
    );
    view.jobs.insert(ID, job);
    take(&mut view, 1000.0, "submit", json!({"userid": 1000}));
    take(&mut view, ALLOC, "alloc", json!({}));
    take(&mut view, 1003.0, "start", json!({}));
    take(&mut view, 1600.0, "epilog-start", ours());
    take(&mut view, 1600.0, "release", json!({"ranks": "all", "final": true}));
    view.jobs.get_mut(&ID).unwrap().inspection = Inspection::NoMonitor;
    knows(&mut view, with(vec![action("prolog", Some(Verdict::Ok), false)]));
    assert_eq!(due(&view), ["run epilog"]);
    view.online = "0,2-3".parse().unwrap();
    assert!(!due(&view).contains(&"run epilog".to_owned()), "{:?}", due(&view));
}

/// Regression test: with a real Flux the edge sent `Run` of one prolog four times. It repeated the call after the
/// answer, because the controller's feed did not report the change yet.
#[test]
fn what_was_answered_is_not_asked_for_again() {
    let mut view = view();
    for expect in ["add", "run prolog"] {
        let due = plan(&view, NOW_MS);
        assert_eq!(due.actions.iter().map(action_text).collect::<Vec<_>>(), [expect]);
        view.did(&due.actions[0]);
    }
    assert_eq!(due(&view), Vec::<String>::new());
    // The feed's report counts.
    knows(&mut view, attempt());
    assert_eq!(due(&view), ["run prolog"]);
    view.jobs.clear();
    for (row, standing, expect) in [
        (drain("n1"), true, "notified n1"),
        (DrainRow { lifted: true, ..drain("n1") }, false, "notified n1 lifted"),
        (DrainRow { confirmed: true, ..drain("n1") }, false, "lifted n1"),
    ] {
        view.flux_drains.clear();
        view.flux_drains.extend(standing.then(|| (host("n1"), FluxDrain { reason: "x [perilog:7]".to_owned() })));
        view.flux_lifted.insert(host("n1"));
        view.drains.insert(host("n1"), row);
        let due_now = plan(&view, NOW_MS);
        assert_eq!(due_now.actions.iter().map(action_text).collect::<Vec<_>>(), [expect]);
        view.did(&due_now.actions[0]);
        assert_eq!(due(&view), Vec::<String>::new(), "{expect}");
    }
}

#[test]
fn drains_are_made_to_say_the_same() {
    let row = |change: fn(&mut DrainRow)| {
        let mut row = drain("n1");
        change(&mut row);
        row
    };
    let new = || row(|_| {});
    let confirmed = || row(|drain| drain.confirmed = true);
    let lifted = || row(|drain| drain.lifted = true);
    let cleaning = || row(|drain| drain.passing = Some(Passing::Cleaning { job: job_name(), attempt: Attempt::FIRST }));
    let ours = Some("perilog: x [perilog:7]");
    #[rustfmt::skip]
    let table: [(&str, DrainRow, Option<&str>, bool, bool, &[&str]); 15] = [
        ("new", new(), None, false, true, &["drain n1"]),
        ("it is there", new(), ours, false, true, &["notified n1"]),
        ("an older one is there", new(), Some("perilog: x [perilog:6]"), false, true, &["drain n1 over"]),
        ("another's is there", new(), Some("broken fan"), false, true, &["notified n1"]),
        ("in force", confirmed(), ours, false, true, &[]),
        ("in force, by another's", confirmed(), Some("broken fan"), false, true, &[]),
        ("a person lifted it in Flux", confirmed(), None, true, true, &["lifted n1"]),
        ("Flux has forgotten it", confirmed(), None, false, true, &["drain n1"]),
        ("lifted in perilog", lifted(), ours, false, true, &["undrain n1"]),
        ("lifted on both sides", lifted(), None, true, true, &["notified n1 lifted"]),
        ("lifted, and another's stays", lifted(), Some("broken fan"), false, true, &["notified n1 lifted"]),
        ("to clean up", cleaning(), ours, false, true, &["notified n1"]),
        ("to clean up, before its broker joins", cleaning(), ours, false, false, &["look in 59000"]),
        ("to clean up, not drained yet", cleaning(), None, false, false, &["drain n1"]),
        // The edge ignores the text of a user.
        ("a reason that looks like ours", lifted(), Some("perilog: [perilog:x]"), false, true, &["notified n1 lifted"]),
    ];
    for (name, row, standing, flux_lifted, online, expect) in table {
        let mut view = view();
        view.jobs.clear();
        view.drains.insert(host("n1"), row);
        view.flux_drains.extend(standing.map(|reason| (host("n1"), FluxDrain { reason: reason.to_owned() })));
        view.flux_lifted.extend(flux_lifted.then(|| host("n1")));
        view.online = if online { "0-3" } else { "0,2-3" }.parse().unwrap();
        assert_eq!(due(&view), expect, "{name}");
    }
    // The host is not in this instance: Flux can begin nothing there.
    let mut view = view();
    view.jobs.clear();
    view.drains.insert(host("login1"), drain("login1"));
    assert_eq!(due(&view), ["notified login1"]);
}

#[test]
fn a_milestone_is_posted_once_and_under_no_name_of_flux() {
    for (name, free) in [
        ("data-out", true),
        ("stage2", true),
        ("clean", false),
        ("free", false),
        ("start", false),
        ("epilog-finish", false),
        ("prolog-anything", false),
        ("exception", false),
        ("flux-restart", false),
        ("Data-Out", false),
        ("a.b", false),
    ] {
        assert_eq!(milestones::is_free(name), free, "{name}");
    }
    let mut view = view();
    let milestones = ["data-out", "clean"].map(|name| perilog_core::MilestoneName::new(name).unwrap());
    knows(&mut view, EdgeAttempt { milestones: milestones.to_vec(), ..with(vec![action("prolog", None, false)]) });
    assert_eq!(due(&view), ["post data-out"]);
    let due_now = plan(&view, NOW_MS);
    let Action::Post { name, context, .. } = &due_now.actions[0] else { panic!() };
    take(&mut view, 1002.0, name, context.clone());
    assert_eq!(due(&view), Vec::<String>::new());
}

/// A guest may raise an exception of severity 1, of any type, on the guest's own job. Such an exception lacks the mark
/// that the edge puts into the context of its own exceptions, so the edge still posts its own.
#[test]
fn what_a_user_raises_hides_nothing_of_ours() {
    let mut view = view();
    knows(&mut view, with(vec![action("prolog", Some(Verdict::Ok), true)]));
    take(&mut view, 1002.0, "exception", json!({"type": "node-failure", "severity": 1, "note": "n1", "userid": 1000}));
    assert_eq!(due(&view), ["exception tolerated 1"]);
    // An exception of a rolled-back attempt does not count either.
    let reported =
        json!({"type": "node-failure", "severity": 1, "note": "", "perilog": {"attempt": "7", "what": "tolerated"}});
    take(&mut view, 1002.0, "exception", reported);
    assert_eq!(due(&view), ["exception tolerated 1"]);
}

#[test]
fn an_exception_names_nodes_and_checks_and_fits_into_flux() {
    let mut view = view();
    let mut prolog = action("prolog", Some(Verdict::Failed), true);
    prolog.failures.push(json!({"check": "failed", "message": "failed (exit 3)", "hosts": "n0", "ranks": "0"}));
    prolog.bad_hosts = "n[0-1]".parse().unwrap();
    knows(&mut view, with(vec![prolog.clone()]));
    let note = |view: &View| {
        let Some(Action::Post { context, .. }) = plan(view, NOW_MS).actions.into_iter().next() else { panic!() };
        context["note"].as_str().unwrap().to_owned()
    };
    assert_eq!(note(&view), "prolog failed on n[0-1]: lustre: /p is not mounted (n1); failed (exit 3) (n0)");
    prolog.failures.pop();
    prolog.bad_hosts = "n1".parse().unwrap();
    knows(&mut view, with(vec![prolog.clone()]));
    assert_eq!(note(&view), "prolog failed on n1: lustre: /p is not mounted");
    prolog.failures = vec![json!({"check": "a", "message": "é\u{0}\n".repeat(4_000), "hosts": "n1"})];
    knows(&mut view, with(vec![prolog]));
    let long = note(&view);
    assert!(long.len() <= 1024 && !long.contains(char::is_control) && long.ends_with("..."), "{long}");
}

#[test]
fn perilog_gets_all_that_flux_has() {
    let source = json!({"name": "flux", "instance": "system"});
    let mut view = view();
    view.cap = Cap::read(r#"{"max-tolerate": 1}"#).unwrap();
    assert!(
        view.jobs
            .get_mut(&ID)
            .unwrap()
            .set_jobspec(&json!({"attributes": {"system": {"perilog": {"tolerate": 2}}}}))
            .is_none()
    );
    view.flux_drains.insert(host("n3"), FluxDrain { reason: "perilog: x [perilog:7]".to_owned() });
    // Pending jobs, freed jobs, and jobs without a scheduler: perilog has no part in these.
    view.jobs.insert(1, Job::new(1));
    let page = sync::pages(&view, &source).remove(0);
    let listed = json!({"job": job_name(), "attempt": "1000.5", "userid": 1000, "ranks": "0-1", "hosts": "n[0-1]",
                        "phase": "preparing", "tolerate": "1"});
    assert_eq!(page["attempts"], json!([listed]));
    assert_eq!(page["drains"], json!([{"host": "n3", "reason": "perilog: x [perilog:7]"}]));
    take(&mut view, 1002.0, "prolog-finish", json!({"description": "perilog", "status": 0}));
    assert_eq!(sync::pages(&view, &source)[0]["attempts"][0]["phase"], "running");
    take(&mut view, 1003.0, "epilog-start", ours());
    take(&mut view, 1003.0, "free", json!({}));
    assert_eq!(sync::pages(&view, &source)[0]["attempts"], json!([]));
}

/// The feed shows an attempt as abandoned, because an operator restored the controller's store while the edge was
/// connected. Then the edge has to send `Sync` again.
#[test]
fn perilog_gets_the_list_again_when_it_asks() {
    let mut view = view();
    assert!(!sync::is_due(&view));
    knows(&mut view, attempt());
    assert!(!sync::is_due(&view));
    knows(&mut view, EdgeAttempt { abandoned: true, ..attempt() });
    assert!(sync::is_due(&view));
    // The controller would refuse the same attempt again.
    view.refused.insert((job_name(), Attempt::of_alloc(ALLOC).unwrap()), "of another user".to_owned());
    assert!(!sync::is_due(&view));
}

/// Malformed terms count as none: a job may pass with `novalidate`, or before Flux loads the plugin.
#[test]
fn terms_that_came_past_the_plugin_forgive_nothing() {
    for (asked, expect, wrong) in [
        (json!({"tolerate": "abc"}), json!({"tolerate": "0"}), true),
        (json!(7), json!({"tolerate": "0"}), true),
        (json!({"tolerate": "50%"}), json!({"tolerate": "1"}), false),
        (json!({"keep": 1}), json!({"tolerate": "1"}), false),
        (json!({"tolerate-check": {"lustre": "50%"}}), json!({"tolerate_checks": {"lustre": "1"}}), false),
    ] {
        let mut view = view();
        let job = view.jobs.get_mut(&ID).unwrap();
        let complaint = job.set_jobspec(&json!({"attributes": {"system": {"perilog": asked}}}));
        assert_eq!(complaint.is_some(), wrong, "{asked}");
        let job = &view.jobs[&ID];
        let forgiven = sync::terms(&view, job, &job.held().unwrap());
        assert_eq!(Value::Object(forgiven), expect, "{asked}");
    }
}

#[test]
fn a_launch_that_comes_again_is_another_attempt() {
    let mut view = view();
    let first = view.jobs[&ID].alloc;
    take(&mut view, 1002.0, "start", json!({}));
    take(&mut view, 2000.25, "alloc", json!({}));
    let job = &view.jobs[&ID];
    assert_ne!(job.alloc, first);
    assert!(!job.before);
    assert_eq!((job.may_have_tasks, job.prolog.was_held(), &job.reported), (false, false, &BTreeSet::new()));
    assert!(job.held().is_some(), "R stands beside the events");
}
