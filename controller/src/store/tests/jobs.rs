//! Tests of the list of the newest actions, which `perilog jobs` shows.

use perilog_core::ExitStatus;
use perilog_core::task::{Step, Tail};

use super::*;

/// Writes an action `name` of a job on n0 to n3, which began at `began_ms` and has this verdict.
fn write(store: &mut Store, n: u8, name: &str, began_ms: u64, verdict: Option<Verdict>) -> ActionId {
    let id = ActionId(uuid::Uuid::from_u128(u128::from(n) + 1));
    let attempt = attempt_row(job(n), 0..=3, "n[0-3]");
    let name = ActionName::new(name).unwrap();
    let row = ActionRow::new(id, job(n), Attempt::FIRST, name, IdSet::from(0..=3), began_ms);
    let ended_ms = verdict.map(|_| began_ms + 14_500);
    let row = ActionRow { verdict, ended_ms, ..row };
    store.commit(&[Record::Attempt(attempt), Record::Action(Box::new(row))]).unwrap();
    id
}

fn end(store: &mut Store, action: ActionId, rank: u32, ended: Ended) {
    let task = TaskId { action, rank: Rank(rank) };
    store.commit(&[Record::Rank(Box::new(RankRow { task, ended, late: vec![], expects: None }))]).unwrap();
}

#[test]
fn the_newest_actions_come_first_and_failed_ones_say_what_failed() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = open(dir.path());
    write(&mut store, 1, "prolog", 1_000, Some(Verdict::Ok));
    let failed = write(&mut store, 2, "prolog", 2_000, Some(Verdict::Failed));
    let mut ended = Ended::bare(Outcome::Failed { why: Failure::Exit(7) }, 2_500);
    ended.tails = vec![Tail { script: "20-gpu".to_owned(), text: "trying\nno device\n".to_owned() }];
    ended.steps = vec![Step {
        script: "20-gpu".to_owned(),
        digest: "aa".to_owned(),
        attempt: 1,
        began_ms: 2_000,
        elapsed_ms: 500,
        status: Some(ExitStatus::Exit(7)),
        tolerable: false,
        timed_out: false,
    }];
    // A rank that an operator resolved as ok is not bad, and the verdict's outcome is shown before another.
    end(&mut store, failed, 0, Ended::bare(Outcome::Resolved { ok: true, reason: "seen".to_owned(), by: 0 }, 2_500));
    end(&mut store, failed, 1, Ended::bare(Outcome::Cancelled { status: None }, 2_500));
    end(&mut store, failed, 3, ended);
    write(&mut store, 3, "epilog", 3_000, None);
    let reader = StepReader::open(&dir.path().join("controller.db")).unwrap();
    let all = Since { since_ms: 0, action: None };
    let list = |of: &Since, failed: bool, limit: usize| {
        let page = reader.newest(of, failed, limit).unwrap();
        let shown = page.jobs.iter().map(|row| format!("{} {} {}", row.job, row.action, row.state));
        (shown.collect::<Vec<_>>(), page.truncated)
    };
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    let (one, two, three) = ("f1 prolog ok", "f2 prolog failed", "f3 epilog open");
    assert_eq!(list(&all, false, 9), (names(&[three, two, one]), false));
    assert_eq!(list(&all, false, 2), (names(&[three, two]), true));
    assert_eq!(list(&Since { since_ms: 16_000, action: None }, false, 9), (names(&[two]), false));
    // Regression test: an action that began before the time and failed in it was not listed.
    assert_eq!(list(&Since { since_ms: 16_500, action: None }, true, 9), (names(&[two]), false));
    assert_eq!(list(&Since { since_ms: 16_501, action: None }, false, 9), (names(&[]), false));
    assert_eq!(list(&Since { since_ms: 2_000, action: None }, false, 9), (names(&[three, two, one]), false));
    assert_eq!(list(&all, true, 9), (names(&[two]), false));
    let prologs = Since { since_ms: 0, action: Some(ActionName::new("prolog").unwrap()) };
    assert_eq!(list(&prologs, false, 1), (names(&[two]), true));
    assert_eq!(list(&prologs, true, 1), (names(&[two]), false));
    let row = &reader.newest(&all, true, 9).unwrap().jobs[0];
    assert_eq!((row.hosts.to_string(), row.bad.to_string()), ("n[0-3]".to_owned(), "n[1,3]".to_owned()));
    assert_eq!((row.began_ms, row.ended_ms), (2_000, Some(16_500)));
    let reported = [&row.result, &row.script, &row.line].map(Option::as_deref);
    assert_eq!(reported, [Some("failed (exit 7)"), Some("20-gpu"), Some("no device")]);
    assert_eq!(reader.newest(&all, false, 9).unwrap().jobs[2].result, None);
}

/// A page of the newest actions costs the same in a large store: the query walks them from the newest on.
#[test]
fn no_page_walks_all_actions() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let plan = "EXPLAIN QUERY PLAN SELECT began_ms, name FROM actions ORDER BY number DESC";
    let mut plan = store.db.prepare(plan).unwrap();
    let steps: Vec<String> = plan.query_map([], |row| row.get("detail")).unwrap().collect::<Result<_, _>>().unwrap();
    assert_eq!(steps, ["SCAN actions"], "no sort over all rows");
}
