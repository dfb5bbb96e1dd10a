//! Tables of cases: tasks that may live after their job's end in Flux.

use super::super::tasks::{Tasks, wait};
use super::*;

/// Time of the job's end in Flux, in seconds.
const ENDED: f64 = 1990.0;
const LATE_MS: u64 = 1_990_000 + PATIENCE_MS;

/// Returns a view of a job that ran with units of systemd, and has ended in Flux.
fn ended() -> View {
    let mut view = view();
    take(&mut view, 1002.0, "prolog-finish", json!({"description": "perilog", "status": 0}));
    take(&mut view, 1003.0, "start", json!({}));
    take(&mut view, 1989.0, "epilog-start", ours());
    take(&mut view, ENDED, "release", json!({"ranks": "all", "final": true}));
    knows(&mut view, with(vec![action("prolog", Some(Verdict::Ok), false)]));
    of(&mut view).inspection = Inspection::NotYet;
    view
}

fn of(view: &mut View) -> &mut Job {
    view.jobs.get_mut(&ID).unwrap()
}

fn lost(view: &mut View) {
    take(view, 1989.0, "exception", json!({"type": "exec", "severity": 0, "note": "node failure on n1 (rank 1)"}));
}

fn restarted(view: &mut View) {
    view.starttime = 1980.0;
    of(view).before = true;
}

fn live() -> Tasks {
    Tasks::Live("imp-shell-1-fX.service".to_owned())
}

fn unknown() -> Tasks {
    Tasks::Unknown("No route to host".to_owned())
}

#[test]
fn an_epilog_begins_where_no_unit_of_its_job_is_alive() {
    type Change = fn(&mut View);
    let cancelled: Change = |view| {
        take(view, 1989.0, "exception", json!({"type": "cancel", "severity": 0, "note": ""}));
    };
    // Not fatal, and no word of perilog's.
    let lost_one: Change = |view| {
        take(view, 1989.0, "exception", json!({"type": "node-failure", "severity": 2, "note": "node failure"}));
    };
    let ours: Change = |view| {
        let mark = json!({"type": "node-failure", "severity": 1, "note": "", "perilog": {"what": "tolerated"}});
        take(view, 1001.5, "exception", mark);
    };
    let gone: Change = |view| of(view).found([(0, Tasks::Gone), (1, Tasks::Gone)]);
    let is_alive: Change = |view| of(view).found([(0, Tasks::Gone), (1, live())]);
    let silent: Change = |view| of(view).found([(0, Tasks::Gone), (1, unknown())]);
    let none: Change = |view| of(view).inspection = Inspection::NoMonitor;
    let down: Change = |view| view.up = "0,2-3".parse().unwrap();
    let first: Change = |view| view.online = "1-3".parse().unwrap();
    let removed: Change = |view| view.up = "1-3".parse().unwrap();
    let drained: Change = |view| {
        view.flux_drains.insert(host("n1"), FluxDrain { reason: String::new() });
    };
    let (early, late) = (NOW_MS, LATE_MS);
    #[rustfmt::skip]
    let table: [(&str, &[Change], u64, &[&str]); 20] = [
        ("it ended well", &[], early, &["run epilog"]),
        ("it was tolerated", &[ours], early, &["run epilog"]),
        ("a broker was lost", &[lost], early, &["ask 0-1"]),
        ("a broker was lost, and the job goes on", &[lost_one], early, &["ask 0-1"]),
        ("it was cancelled", &[cancelled], early, &["ask 0-1"]),
        ("rank 0 was restarted", &[restarted], early, &["ask 0-1"]),
        ("rank 0 has not joined", &[restarted, first], early, &[]),
        ("no unit lives", &[lost, gone], early, &["run epilog"]),
        ("no unit of the job lives, Flux counts the node as offline", &[lost, gone, down], early, &["ask 1"]),
        ("a unit is alive", &[lost, is_alive], early, &["ask 1"]),
        ("a unit is alive, rank 0 was restarted", &[restarted, is_alive], early, &["ask 1"]),
        ("no answer", &[lost, silent], early, &["ask 1"]),
        ("no unit of the job lives, late", &[lost, gone, down], late, &["drain n1"]),
        ("no unit of the job lives, drained", &[lost, gone, down, drained], late, &["run epilog"]),
        ("no answer, drained", &[lost, silent, drained], late, &["run epilog"]),
        ("a unit is alive, late", &[lost, is_alive], late, &["drain n1"]),
        // No limit: the task is known to live.
        ("a unit is alive, drained", &[lost, is_alive, drained], late, &["ask 1"]),
        ("no monitor", &[lost, none], early, &["run epilog"]),
        ("no monitor, rank 0 was restarted, a node is down", &[restarted, none, down], early, &["look in 50000"]),
        ("the monitor of rank 0 was removed", &[lost, none, removed], early, &["look in 50000"]),
    ];
    for (name, changes, now_ms, expect) in table {
        let mut view = ended();
        changes.iter().for_each(|change| change(&mut view));
        assert_eq!(due_at(&view, now_ms), expect, "{name}");
    }
}

/// The patience counts from the end of the job in its eventlog, over restarts of rank 0. Each restart gives the other
/// brokers a moment to join.
#[test]
fn the_patience_outlives_rank_0() {
    let at = |starttime: f64| {
        let mut view = ended();
        view.site.online_patience_ms = 600_000;
        of(&mut view).before = true;
        of(&mut view).inspection = Inspection::NoMonitor;
        view.starttime = starttime;
        view.online = "0,2-3".parse().unwrap();
        let due = plan(&view, NOW_MS + 20_000);
        (due.actions.iter().map(action_text).collect::<Vec<_>>(), due.wake_at_ms)
    };
    let none = Vec::<String>::new();
    // 1990 s + 600 s, and not 2000 s + 600 s.
    assert_eq!(at(2000.0), (none.clone(), Some(2_590_000)));
    let mut view = ended();
    (view.starttime, of(&mut view).before, of(&mut view).inspection) = (5000.0, true, Inspection::NoMonitor);
    view.online = "0,2-3".parse().unwrap();
    assert_eq!(due_at(&view, 5_000_000), ["look in 60000"]);
    assert_eq!(due_at(&view, 5_060_000), ["drain n1"]);
}

/// A job is cancelled before rank 0 is killed: Flux never posts its release. The patience counts from the cancel.
#[test]
fn a_job_without_a_release_counts_from_its_exception() {
    let mut job = Job::new(ID);
    assert_eq!(job.ended_ms(7.0), 7_000);
    for (at, severity, expect) in [(8.0, 1, 7_000), (9.0, 0, 9_000), (10.0, 0, 9_000)] {
        job.take(&event(at, "exception", &json!({"type": "cancel", "severity": severity, "note": ""})));
        assert_eq!(job.ended_ms(7.0), expect, "{at}");
    }
}

#[test]
fn a_wait_says_where_why_and_since_when() {
    let mut view = ended();
    lost(&mut view);
    assert_eq!(wait(&view, &view.jobs[&ID]), None);
    of(&mut view).found([(0, Tasks::Gone), (1, live())]);
    let of_job = wait(&view, &view.jobs[&ID]).unwrap();
    assert_eq!(of_job.to_string(), "its epilog waits for tasks on n1: imp-shell-1-fX.service still runs");
    assert_eq!(of_job.since_ms, 1_990_000);
    // The job has dropped its hold.
    knows(&mut view, complete(Verdict::Ok, false));
    assert_eq!(wait(&view, &view.jobs[&ID]), None);
}

/// The drain for the clean-up after a job that Flux has lost is confirmed, and so the clean-up begins, when Flux counts
/// the node as online. Flux waits for live units there without a limit; a broker that never comes back has one.
#[test]
fn a_clean_up_after_a_lost_job_waits_for_units() {
    for (online, up, now_ms, expect) in [
        ("0-3", "0-3", NOW_MS, &["notified n1"][..]),
        ("0-3", "0,2-3", NOW_MS, &["look in 59000"]),
        ("0-3", "0,2-3", LATE_MS + 60_000, &[]),
        ("0,2-3", "0,2-3", LATE_MS + 60_000, &["notified n1"]),
    ] {
        let mut view = view();
        view.jobs.clear();
        (view.online, view.up) = (online.parse().unwrap(), up.parse().unwrap());
        let passing = Some(Passing::Cleaning { job: job_name(), attempt: Attempt::of_alloc(ALLOC).unwrap() });
        view.drains.insert(host("n1"), DrainRow { passing, ..drain("n1") });
        view.flux_drains.insert(host("n1"), FluxDrain { reason: "perilog: x [perilog:7]".to_owned() });
        assert_eq!(due_at(&view, now_ms), expect, "{online} {up}");
    }
}
