//! Holds: their display, and the release of everything that was held.

use std::collections::BTreeSet;

use crate::job::Terms;
use crate::message::ITS_START;
use crate::task::Process;

use super::release::{add, bench, contexts, finish, job};
use super::*;

fn rabbits(names: &[&str]) -> BTreeSet<ResourceName> {
    names.iter().map(|name| ResourceName::new(name).unwrap()).collect()
}

/// Returns the rows of `perilog ps` in the state `held`, each as holder, held ranks and named resources, and reason.
/// `all`: as with the option `--held`.
fn held_rows(b: &mut Bench, all: bool) -> Vec<(String, String, String)> {
    let Ok(Reply::Ps { rows, .. }) = b.ask(Request::Ps { older_than_ms: 0, held: all }).0 else { panic!("no ps") };
    let held = rows.into_iter().filter(|row| row.state == "held");
    held.map(|row| {
        let part = crate::job::Part { ranks: row.ranks, resources: row.resources };
        (row.action.to_string(), part.to_string(), row.why)
    })
    .collect()
}

/// Regression test: all ranks of a job were finished by name, so the job was over. It still held its named resources,
/// and no command showed them.
#[test]
fn with_its_last_rank_a_job_drops_its_named_resources() {
    for parts in [&["0-3"][..], &["0-1", "3", "2"], &["n[0-3]"]] {
        let (mut b, n) = bench(4, |_| {});
        b.ask(add("j", "n[0-3]", Terms { resources: rabbits(&["rabbit1"]), ..Terms::default() })).0.unwrap();
        for (at, part) in parts.iter().enumerate() {
            let Ok(Reply::Finished(part)) = b.ask(finish("j", Some(part))).0 else { panic!() };
            assert_eq!(part.resources.is_empty(), at + 1 < parts.len(), "{parts:?}");
        }
        for rank in 0..4 {
            b.receives(n[rank as usize], finished(task("epilog", "j", rank), Outcome::Ok));
        }
        assert!(b.store.attempts[0].complete, "{parts:?}: {:?}", b.store.attempts[0]);
    }
}

/// A resource stays held while a service works on it.
#[test]
fn what_a_service_works_on_stays_until_it_has_reported() {
    let (mut b, _) = bench(1, |settings| settings.after.clear());
    b.ask(add("j", "n0", Terms { resources: rabbits(&["rabbit1"]), ..Terms::default() })).0.unwrap();
    let run = request("stage", "j", None, None);
    let start = ActionStart { run, resources: rabbits(&["rabbit1"]), lease_ms: 30_000 };
    b.ask(Request::ActionStart(Box::new(start))).0.unwrap();
    b.ask(finish("j", Some("0"))).0.unwrap();
    assert_eq!(b.store.attempts[0].released.to_string(), "rank 0");
    // An operator resolves one resource by name, and no other.
    let resolve = |resources: Option<&[&str]>, targets| {
        let which = Which { resources: resources.map(rabbits), ..which("j", targets) };
        Request::Resolve { which, ok: false, reason: "the rabbit is gone".into() }
    };
    let reply = b.ask(resolve(Some(&["rabbit2"]), None)).0;
    let Err(Refusal::Invalid(text)) = reply else { panic!("{reply:?}") };
    assert_eq!(text, "job j attempt 0 has no resource rabbit2: it has rabbit1");
    assert!(b.ask(resolve(None, Some("0"))).0.is_err(), "ranks by name are no resources");
    assert_eq!(b.ask(resolve(Some(&["rabbit1"]), None)).0, Ok(Reply::Resolved { tasks: 1, waiting: 0 }));
    assert!(b.store.attempts[0].complete);
}

#[test]
fn a_resource_is_resolved_alone_or_with_ranks() {
    for (resources, targets, open) in
        [(&["rabbit1"][..], None, "ranks 0-1 and rabbit2"), (&["rabbit1", "rabbit2"], Some("1"), "rank 0")]
    {
        let (mut b, _) = bench(2, |_| {});
        let names = rabbits(&["rabbit1", "rabbit2"]);
        b.ask(add("j", "n[0-1]", Terms { resources: names.clone(), ..Terms::default() })).0.unwrap();
        let run = RunRequest { targets: Some("0-1".parse().unwrap()), ..request("stage", "j", None, None) };
        let start = ActionStart { run, resources: names, lease_ms: 30_000 };
        b.ask(Request::ActionStart(Box::new(start))).0.unwrap();
        let which = Which { resources: Some(rabbits(resources)), ..which("j", targets) };
        b.ask(Request::Resolve { which, ok: true, reason: "by an operator".into() }).0.unwrap();
        let row = b.action("stage", "j", 0);
        let external = row.external.as_ref().unwrap();
        let left = external.resources.iter().filter(|name| !external.ended.contains_key(*name)).cloned().collect();
        assert_eq!(crate::job::Part { ranks: row.open_ranks(), resources: left }.to_string(), open);
    }
}

#[test]
fn what_is_held_is_shown_with_who_holds_it_and_until_when() {
    let (mut b, n) = bench(4, |_| {});
    b.ask(add("j", "n[0-3]", Terms { resources: rabbits(&["rabbit1"]), ..Terms::default() })).0.unwrap();
    b.run("prolog", "bare", "n0");
    assert_eq!(held_rows(&mut b, false), []);
    b.ask(finish("j", Some("0-1"))).0.unwrap();
    b.receives(n[0], finished(task("epilog", "j", 0), Outcome::Ok));
    b.pass(1_000);
    let mut rows = held_rows(&mut b, true);
    rows.sort();
    let row = |by: &str, what: &str, why: &str| (by.to_owned(), what.to_owned(), why.to_owned());
    let bare = "perilog run made this job; to release it: perilog job finish bare";
    let done = "done here; released together with n1 (sent: the node has not accepted it yet), as set by release in \
                [action.epilog]";
    let kept = "the job keeps its ranks until it is finished (manually: perilog job finish j)";
    assert_eq!(
        rows,
        [row("epilog", "rank 0", done), row("job", "rank 0", bare), row("job", "ranks 2-3 and rabbit1", kept)]
    );
    let Ok(Reply::Show(view)) = b.ask(Request::Show { job: job("j"), targets: None }).0 else { panic!("no show") };
    assert_eq!((view.attempts[0].held.len(), view.attempts[0].released.is_empty()), (2, true));
    // An attempt that is fully released has no holder.
    b.ask(finish("j", None)).0.unwrap();
    for rank in 1..4 {
        b.receives(n[rank as usize], finished(task("epilog", "j", rank), Outcome::Ok));
    }
    let Ok(Reply::Show(view)) = b.ask(Request::Show { job: job("j"), targets: None }).0 else { panic!("no show") };
    assert_eq!(
        (view.attempts[0].held.len(), view.attempts[0].released.to_string()),
        (0, "ranks 0-3 and rabbit1".into())
    );
}

/// Regression test: an operator ran the epilog of a bare run on some ranks. The other ranks were released without an
/// epilog, with only a line in the journal.
#[test]
fn an_epilog_by_an_operator_covers_all_that_a_bare_job_holds() {
    let (mut b, _) = bench(4, |_| {});
    b.run("prolog", "j", "n[0-3]");
    let part = |name: &str| {
        let targets = Some("0".parse().unwrap());
        Request::Run(RunRequest { targets, ..request("epilog", name, Some("n[0-3]"), None) })
    };
    // The same is refused if the request would create the job.
    for name in ["j", "k"] {
        let reply = b.ask(part(name)).0;
        let Err(Refusal::Conflict(text)) = reply else { panic!("{reply:?}") };
        assert!(text.contains("also holds ranks 1-3, where epilog would not run later"), "{text}");
    }
    // After `job finish` the epilog runs on these ranks, and on the others when the job hands them over.
    b.ask(finish("j", Some("0"))).0.unwrap();
    b.ask(finish("j", None)).0.unwrap();
    assert_eq!(b.action("epilog", "j", 0).ranks.to_string(), "0-3");
}

fn overdue() -> Phase {
    Phase::Overdue { script: "10-umount".into(), limit_ms: 600_000, doing: String::new() }
}

fn lingers() -> Phase {
    Phase::Lingering { processes: vec![Process { pid: 7, command: "mountd".into() }] }
}

/// Regression test: an operator lifted the drain for a stuck script. The store had no record of the script, and the
/// next controller drained the node again.
#[test]
fn an_undrain_of_a_stuck_script_outlives_a_restart() {
    for phase in [overdue(), lingers()] {
        let (mut b, n) = bench(2, |_| {});
        let t = task("epilog", "j", 0);
        let run = RunRequest { timeout_ms: Some(30_000), ..request("epilog", "j", Some("n[0-1]"), None) };
        b.ask(Request::Run(run)).0.unwrap();
        for rank in 0..2 {
            b.receives(n[rank as usize], FromAgent::Accepted { task: task("epilog", "j", rank), limit_ms: None });
        }
        b.receives(n[0], FromAgent::PhaseChanged { task: t, phase: phase.clone(), age_ms: 0 });
        b.pass(31_000);
        assert_eq!(b.store.drains.len(), 1, "{phase:?}");
        b.ask(Request::Undrain { hosts: "n0".parse().unwrap(), forget: false, notice_id: None }).0.unwrap();
        let mut b = b.restart();
        let state = HeldState::Live { phase: phase.clone(), age_ms: 31_000 };
        let (n0, _) = b.up("n0", "b", vec![held("epilog", "j", 0, state)]);
        b.pass(31_000);
        assert_eq!((contexts(&b, "drain").len(), b.store.drains.len()), (1, 0), "{phase:?}");
        // Another script of the task causes another drain.
        let phase = Phase::Overdue { script: "20-sync".into(), limit_ms: 600_000, doing: String::new() };
        b.receives(n0, FromAgent::PhaseChanged { task: t, phase, age_ms: 0 });
        assert_eq!(b.store.drains.len(), 1);
        // An ended task has no stuck scripts.
        b.receives(n0, finished(t, Outcome::Ok));
        let row = b.action("epilog", "j", 0);
        assert!(row.overdue.is_empty() && row.lingering.is_empty(), "{row:?}");
    }
}

/// The controller drains a node when a script becomes overdue. The later end of the script, as `timeout`, causes no
/// second drain.
#[test]
fn a_stuck_script_drains_its_node_once() {
    for (lifted, drains) in [(false, 1), (true, 0)] {
        let (mut b, n) = bench(1, |_| {});
        let t = task("epilog", "j", 0);
        b.run("epilog", "j", "n0");
        b.receives(n[0], FromAgent::Accepted { task: t, limit_ms: None });
        b.receives(n[0], FromAgent::PhaseChanged { task: t, phase: overdue(), age_ms: 0 });
        if lifted {
            b.ask(Request::Undrain { hosts: "n0".parse().unwrap(), forget: false, notice_id: None }).0.unwrap();
        }
        b.receives(n[0], finished(t, Outcome::Timeout { status: None }));
        assert_eq!((b.store.drains.len(), contexts(&b, "drain").len()), (drains, 1));
    }
}

/// Regression test: an operator lifted the drain for a start that took too long. The epilog then timed out, and its
/// host was released without a drain.
#[test]
fn a_timeout_after_an_overdue_start_drains_again() {
    let (mut b, n) = bench(1, |_| {});
    let t = task("epilog", "j", 0);
    b.run("epilog", "j", "n0");
    b.receives(n[0], FromAgent::Accepted { task: t, limit_ms: None });
    let phase = Phase::Overdue { script: ITS_START.into(), limit_ms: 30_000, doing: "it waits".into() };
    b.receives(n[0], FromAgent::PhaseChanged { task: t, phase, age_ms: 0 });
    b.ask(Request::Undrain { hosts: "n0".parse().unwrap(), forget: false, notice_id: None }).0.unwrap();
    assert_eq!(b.store.drains, []);
    b.receives(n[0], finished(t, Outcome::Timeout { status: None }));
    assert_eq!((b.store.drains.len(), contexts(&b, "drain").len()), (1, 2));
}
