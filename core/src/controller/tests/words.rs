//! Recovery of a restored store: drain notices, hosts of bare runs, cancelled and unclaimed tasks, and the end of the
//! recovery.

use super::recovery::{commit, confirm};
use super::release::{add, bench, finish};
use super::*;
use crate::job::Terms;
use crate::mark::Mark;

/// Returns the action and job of each Start among the effects.
fn begun(effects: &[Effect]) -> Vec<String> {
    let start = |effect: &Effect| match effect {
        Effect::Send { message: ToAgent::Start(start), .. } => Some(format!("{} of {}", start.action, start.job)),
        Effect::Fan { start, .. } => Some(format!("{} of {}", start.action, start.job)),
        _ => None,
    };
    effects.iter().filter_map(start).collect()
}

fn owed(b: &mut Bench) -> Vec<(String, bool)> {
    let Ok(Reply::Drains(drains)) = b.ask(Request::Drains).0 else { panic!("no list of drains") };
    drains.iter().filter(|drain| drain.is_owed()).map(|drain| (drain.host.to_string(), drain.lifted)).collect()
}

#[test]
fn drains_of_a_copy_are_told_to_nobody_in_a_recovery() {
    let (mut b, _) = bench(3, |s| s.drain_hook = true);
    for host in ["n0", "n1"] {
        let hosts = host.parse().unwrap();
        b.ask(Request::Drain { hosts, reason: "fan".to_owned(), force: false }).0.unwrap();
        let telling = b.store.drains.iter().find(|drain| drain.host.as_str() == host).unwrap().telling;
        b.ask(Request::DrainDone { host: HostName::new(host).unwrap(), telling, lifted: false }).0.unwrap();
    }
    b.ask(add("a", "n2", Terms::default())).0.unwrap();
    b.ask(Request::Undrain { hosts: "n1".parse().unwrap(), forget: false, telling: None }).0.unwrap();
    assert_eq!(owed(&mut b), [("n1".to_owned(), true)], "before the copy");
    let copy = b.store.clone();
    let mut b = b.restored(&copy);
    for host in ["n0", "n1", "n2"] {
        b.up(host, "b2", vec![]);
    }
    assert!(b.in_recovery());
    assert_eq!(owed(&mut b), []);
    // When the recovery ends, the hook gets a notice of each drain; the owed undrain is dropped.
    b.ask(confirm(Some("a"), Confirm::Gone)).0.unwrap();
    b.pass(1);
    assert!(!b.in_recovery());
    assert_eq!(owed(&mut b), [("n0".to_owned(), false), ("n1".to_owned(), false)]);
}

#[test]
fn a_bare_run_of_the_copy_has_its_hosts_no_more() {
    for again in [false, true] {
        let (mut b, n) = bench(3, |_| {});
        b.run("prolog", "h", "n1");
        b.ends(n[1], task("prolog", "h", 0));
        let copy = b.store.clone();
        let mut b = b.restored(&copy);
        for host in ["n0", "n1", "n2"] {
            b.up(host, "b2", vec![]);
        }
        if again {
            // A request names the bare run in this life: the run has n1 again.
            b.run("prolog", "h", "n1");
        } else {
            b.ask(add("B", "n1", Terms::default())).0.unwrap();
        }
        let next = request("prolog", "h", Some("n2"), Some(1));
        let (reply, effects) = b.ask(Request::Run(next));
        reply.unwrap();
        let epilog = begun(&effects).contains(&"epilog of h".to_owned());
        assert_eq!(epilog, again, "{:?}", begun(&effects));
    }
}

#[test]
fn a_recovery_that_owes_nothing_waits_for_its_nodes() {
    let (mut b, n) = bench(3, |_| {});
    b.ask(add("x", "n0", Terms::default())).0.unwrap();
    b.ask(finish("x", None)).0.unwrap();
    b.ends(n[0], task("epilog", "x", 0));
    let copy = b.store.clone();
    let store = Snapshot { stamp: Some(1), ..copy };
    let mut b = Bench::load_with(store, b.settings.clone(), b.now);
    assert!(b.in_recovery());
    b.pass(60_000);
    assert!(!b.in_recovery());
}

#[test]
fn a_word_for_a_job_of_two_attempts_names_one() {
    let (mut b, _) = bench(3, |_| {});
    b.ask(add("c", "n1", Terms::default())).0.unwrap();
    let copy = b.store.clone();
    let mut b = b.restored(&copy);
    let orphan = TaskId { action: id("prolog", "c", 1), rank: Rank(0) };
    let attempt = Attempt::from_number(1);
    let told = held("prolog", "c", 0, HeldState::Live { phase: Phase::Starting, age_ms: 0 });
    let newest = Some(Mark { cluster: settings().cluster, commit: commit(1, 7, 1) });
    let session = b.session();
    let orphan = Held { task: orphan, attempt, ..told };
    b.says(session, FromAgent::Hello(Hello { newest, ..hello("n2", "b", session.0, vec![orphan]) }));
    let refused = b.ask(confirm(Some("c"), Confirm::Running)).0.unwrap_err();
    assert!(matches!(&refused, Refusal::Conflict(text) if text.contains("--attempt")), "{refused:?}");
}

/// The list of unvouched attempts shows, beside each attempt, the later job that holds one of its hosts now.
#[test]
fn the_list_names_who_has_a_node_by_now() {
    let (mut b, _) = bench(3, |_| {});
    b.ask(add("a", "n[0-1]", Terms::default())).0.unwrap();
    let copy = b.store.clone();
    let mut b = b.restored(&copy);
    let sessions = ["n0", "n1", "n2"].map(|host| b.up(host, "b2", vec![]).0);
    let beside = |b: &mut Bench| {
        let Ok(Reply::Recovery(view)) = b.ask(Request::Recover(Recover::List)).0 else { panic!("no list") };
        let row = view.attempts.into_iter().find(|row| row.job.as_str() == "a").unwrap();
        row.beside.into_iter().map(|(job, hosts)| format!("{job} on {hosts}")).collect::<Vec<_>>()
    };
    assert!(beside(&mut b).is_empty());
    b.ask(add("B", "n[1-2]", Terms::default())).0.unwrap();
    assert_eq!(beside(&mut b), ["B on n1"]);
    b.ask(finish("B", None)).0.unwrap();
    assert_eq!(beside(&mut b), ["B on n1"], "its epilog runs there");
    b.ends(sessions[1], task("epilog", "B", 0));
    b.ends(sessions[2], task("epilog", "B", 1));
    assert_eq!(beside(&mut b), [""; 0], "it was released");
}

#[test]
fn a_recovery_prunes_nothing() {
    let (mut b, _) = bench(2, |_| {});
    b.ask(add("a", "n0", Terms::default())).0.unwrap();
    let copy = b.store.clone();
    let mut b = b.restored(&copy);
    let sessions = ["n0", "n1"].map(|host| b.up(host, "b2", vec![]).0);
    b.ask(add("B", "n1", Terms::default())).0.unwrap();
    b.ask(finish("B", None)).0.unwrap();
    b.ends(sessions[1], task("epilog", "B", 0));
    let is_there = |b: &Bench| b.store.attempts.iter().any(|row| row.job.as_str() == "B");
    b.pass(30 * 86_400_000);
    assert!(b.in_recovery() && is_there(&b));
    b.ask(confirm(Some("a"), Confirm::Gone)).0.unwrap();
    b.pass(30 * 86_400_000);
    assert!(!b.in_recovery() && !is_there(&b));
}

/// Regression test: a node reported a cancelled task as unclaimed, because systemd had not started its unit yet.
/// Recovery held the task back, and the node got no Cancel.
#[test]
fn a_cancel_reaches_an_unclaimed_task_that_is_held_back() {
    let (mut b, n) = bench(1, |_| {});
    b.run("prolog", "j", "n0");
    b.says(n[0], FromAgent::Accepted { task: task("prolog", "j", 0), limit_ms: None });
    let which = which("j", None);
    b.ask(Request::Cancel { which, why: "asked".to_owned() }).0.unwrap();
    let copy = b.store.clone();
    let mut b = b.restored(&copy);
    b.ask(confirm(Some("j"), Confirm::Running)).0.unwrap();
    let (_, effects) = b.up("n0", "b", vec![held("prolog", "j", 0, HeldState::Unclaimed)]);
    let cancels = |effect: &&Effect| matches!(effect, Effect::Send { message: ToAgent::Cancel { .. }, .. });
    assert_eq!(effects.iter().filter(cancels).count(), 1, "{effects:?}");
}

/// Regression test: the Start of an epilog was on its way to a node. Then an operator said that the node was given
/// back, and the controller released the rank at once.
#[test]
fn what_was_given_back_keeps_a_rank_whose_start_is_under_way() {
    let epilog = task("epilog", "j", 0);
    for came in [None, Some(HeldState::Unclaimed)] {
        let (mut b, n) = bench(2, |_| {});
        b.ask(add("j", "n[0-1]", Terms::default())).0.unwrap();
        b.ask(finish("j", None)).0.unwrap();
        b.ends(n[1], task("epilog", "j", 1));
        let copy = b.store.clone();
        let mut b = b.restored(&copy);
        let is_given = |b: &Bench| b.store.attempts.iter().all(|row| row.released.ranks.contains(0));
        b.ask(confirm(Some("j"), Confirm::Gone)).0.unwrap();
        assert!(!b.in_recovery() && !is_given(&b), "its node may be about to begin it");
        let mut b = b.restart();
        assert!(!is_given(&b), "a restart changes nothing");
        let tasks = came.map(|state| held("epilog", "j", 0, state)).into_iter().collect();
        let (n0, effects) = b.up("n0", "b", tasks);
        assert!(effects.iter().any(|effect| is_cancel(effect, epilog)), "{effects:?}");
        assert!(starts(&effects).is_empty() && !is_given(&b));
        b.says(n0, finished(epilog, Outcome::Cancelled { status: None }));
        assert!(is_given(&b) && b.store.drains.is_empty(), "{:?}", b.store.drains);
    }
}
