//! Tests of durations of scripts: written once, read back, removed with the attempt, and dropped first on a full disk.

use perilog_core::ExitStatus;
use perilog_core::task::Step;

use super::versions::undo_version_12;
use super::*;

fn id(job: u8) -> ActionId {
    ActionId(uuid::Uuid::from_u128(u128::from(job) + 1))
}

/// Begins a prolog of a job on n0 to n3.
fn begin(store: &mut Store, job: u8, began_ms: u64) {
    let attempt = attempt_row(super::job(job), 0..=3, "n[0-3]");
    let name = ActionName::new("prolog").unwrap();
    let action = ActionRow::new(id(job), super::job(job), Attempt::FIRST, name, IdSet::from(0..=3), began_ms);
    store.commit(&[Record::Attempt(attempt), Record::Action(Box::new(action))]).unwrap();
}

fn step(script: &str, digest: &str, elapsed_ms: u64, status: Option<ExitStatus>) -> Step {
    let (script, digest) = (script.to_owned(), digest.to_owned());
    Step { script, digest, attempt: 1, began_ms: 1_010, elapsed_ms, status, tolerable: false, timed_out: false }
}

fn ran(job: u8, rank: u32, host: &str, outcome: &'static str, steps: Vec<Step>) -> Ran {
    Ran {
        task: TaskId { action: id(job), rank: Rank(rank) },
        host: Some(HostName::new(host).unwrap()),
        action: None,
        outcome,
        began_ms: 1_000,
        elapsed_ms: steps.iter().map(|step| step.elapsed_ms).sum(),
        steps,
        skipped: 0,
        empty: false,
    }
}

fn some_record() -> [Record; 1] {
    [Record::Quiet(None)]
}

fn commit(store: &mut Store, ran: Vec<Ran>) -> usize {
    let mut ran = ran;
    store.commit_with(&some_record(), &mut ran).unwrap();
    ran.len()
}

fn count(store: &Store, table: &str) -> i64 {
    store.db.query_row(&format!("SELECT count(*) FROM {table}"), [], |row| row.get(0)).unwrap()
}

fn reader(dir: &Path) -> StepReader {
    StepReader::open(&dir.join("controller.db")).unwrap()
}

const OK: Option<ExitStatus> = Some(ExitStatus::Exit(0));
const ALL: Since = Since { since_ms: 0, action: None };

/// The store writes the durations of a task once, only from the host of the task's rank, and only for an action that it
/// knows.
#[test]
fn a_task_is_written_once_and_only_as_its_own_host_says() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = open(dir.path());
    begin(&mut store, 1, 900);
    let mount = |ms| vec![step("10-mount.sh", "aa", ms, OK), step("20-gpu.sh", "bb", 5, Some(ExitStatus::Signal(9)))];
    let mut tried = mount(20);
    (tried[0].attempt, tried[0].tolerable, tried[1].timed_out) = (3, true, true);
    assert_eq!(commit(&mut store, vec![ran(1, 0, "n0", "ok", mount(10)), ran(1, 1, "n1", "failed", tried)]), 2);
    // Repeated after a reconnect; reported by another node; for an unknown action.
    let not_news =
        vec![ran(1, 0, "n0", "ok", mount(99)), ran(1, 2, "n3", "ok", mount(9)), ran(7, 0, "n0", "ok", mount(9))];
    assert_eq!(commit(&mut store, not_news), 0);
    assert_eq!((count(&store, "steps"), count(&store, "scripts")), (2, 2));

    let which = Which { job: job(1), attempt: None, action: None };
    let page = reader(dir.path()).timeline(&which, None, 10).unwrap().unwrap();
    assert!(page.next.is_none());
    assert_eq!(
        page.tasks,
        [
            json!({"attempt": "0", "action": "prolog", "asked_ms": 900, "rank": 0, "host": "n0", "outcome": "ok",
                   "began_ms": 1000,
                "elapsed_ms": 15, "steps": [
                    {"script": "10-mount.sh", "digest": "aa", "try": 1, "after_ms": 10, "elapsed_ms": 10, "status": 0,
                     "tolerable": false, "timed_out": false},
                    {"script": "20-gpu.sh", "digest": "bb", "try": 1, "after_ms": 10, "elapsed_ms": 5, "status": 137,
                     "tolerable": false, "timed_out": false}]}),
            json!({"attempt": "0", "action": "prolog", "asked_ms": 900, "rank": 1, "host": "n1", "outcome": "failed",
                   "began_ms": 1000,
                "elapsed_ms": 25, "steps": [
                    {"script": "10-mount.sh", "digest": "aa", "try": 3, "after_ms": 10, "elapsed_ms": 20, "status": 0,
                     "tolerable": true, "timed_out": false},
                    {"script": "20-gpu.sh", "digest": "bb", "try": 1, "after_ms": 10, "elapsed_ms": 5, "status": 137,
                     "tolerable": false, "timed_out": true}]}),
        ]
    );
    // Page by page.
    let first = reader(dir.path()).timeline(&which, None, 1).unwrap().unwrap();
    let second = reader(dir.path()).timeline(&which, first.next, 1).unwrap().unwrap();
    assert_eq!([first.tasks, second.tasks].concat(), page.tasks);
    assert!(second.next.is_none());
    assert!(reader(dir.path()).timeline(&Which { job: job(9), ..which }, None, 1).unwrap().is_none());
}

/// A task may have hundreds of scripts.
#[test]
fn a_page_of_tasks_fits_a_reply() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = open(dir.path());
    begin(&mut store, 1, 900);
    let many = || (0..300).map(|n| step(&format!("{n}-{}", "x".repeat(60)), "aa", 5, OK)).collect();
    commit(&mut store, (0..4).map(|rank| ran(1, rank, &format!("n{rank}"), "ok", many())).collect());
    let which = Which { job: job(1), attempt: None, action: None };
    let (mut ranks, mut after) = (Vec::new(), None);
    loop {
        let page = reader(dir.path()).timeline(&which, after, 1_000).unwrap().unwrap();
        assert!(serde_json::to_vec(&page.tasks).unwrap().len() <= 64 * 1_024 || page.tasks.len() == 1);
        ranks.extend(page.tasks.iter().map(|task| task["rank"].as_u64().unwrap()));
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(ranks, [0, 1, 2, 3]);
}

#[test]
fn durations_go_with_their_attempt_and_scripts_when_unused() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = open(dir.path());
    for job in 1..=3 {
        begin(&mut store, job, 900);
        let own = format!("{job}.sh");
        commit(
            &mut store,
            vec![ran(job, 0, "n0", "ok", vec![step("10-all.sh", "aa", 1, OK), step(&own, "bb", 1, OK)])],
        );
    }
    assert_eq!((count(&store, "steps"), count(&store, "scripts")), (3, 4));
    let prune = |job: u8| Record::Prune { job: super::job(job), attempt: Attempt::FIRST, whole_job: true };
    store.commit(&[prune(1), prune(2)]).unwrap();
    assert_eq!((count(&store, "steps"), count(&store, "scripts")), (1, 2), "10-all.sh and 3.sh");
    store.commit(&[prune(3)]).unwrap();
    assert_eq!((count(&store, "steps"), count(&store, "scripts")), (0, 0));
    // SQLite reuses numbers, so the cache must not keep old numbers.
    begin(&mut store, 1, 900);
    commit(&mut store, vec![ran(1, 3, "n3", "ok", vec![step("10-all.sh", "aa", 1, OK)])]);
    let names = "SELECT count(*) FROM steps, json_each(steps.steps) s JOIN scripts ON scripts.id = s.value ->> 0";
    let found: i64 = store.db.query_row(names, [], |row| row.get(0)).unwrap();
    assert_eq!(found, 1);
}

#[test]
fn totals_are_exact() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = open(dir.path());
    for job in 0..25 {
        begin(&mut store, job, 1_000 * u64::from(job));
        let of = |rank: u32| {
            let ms = 10 * (4 * u64::from(job) + u64::from(rank)) + 10;
            let bad = if ms > 980 { Some(ExitStatus::Exit(7)) } else { OK };
            ran(
                job,
                rank,
                &format!("n{rank}"),
                if ms > 980 { "failed" } else { "ok" },
                vec![step("10-a.sh", "aa", ms, bad)],
            )
        };
        assert_eq!(commit(&mut store, (0..4).map(of).collect()), 4);
    }
    let totals = reader(dir.path()).totals(&ALL).unwrap();
    assert_eq!((totals.tasks, totals.truncated, totals.rows.len()), (100, false, 2));
    for (row, script) in totals.rows.iter().zip([None, Some("10-a.sh".to_owned())]) {
        let times = [row.min_ms, row.median_ms, row.p95_ms, row.max_ms];
        assert_eq!((row.count, row.failed, times, &row.script), (100, 2, [10, 500, 950, 1_000], &script));
    }
    // n3 has the longest tasks, and n2 and n3 the two that failed.
    let by_node = reader(dir.path()).totals_by_node(&ALL).unwrap();
    let rows: Vec<_> =
        by_node.rows.iter().map(|row| (row.host.as_deref(), row.count, row.failed, row.max_ms)).collect();
    let expect = [("n3", 1, 1_000), ("n2", 1, 990), ("n1", 0, 980), ("n0", 0, 970)];
    assert_eq!(rows, expect.map(|(host, failed, max)| (Some(host), 25, failed, max)));
    assert_eq!((by_node.tasks, by_node.rows[0].script.as_deref()), (100, None));
    let late = Since { since_ms: 24_000, action: Some(ActionName::new("prolog").unwrap()) };
    assert_eq!(reader(dir.path()).totals(&late).unwrap().tasks, 4);
    let other = Since { action: Some(ActionName::new("epilog").unwrap()), ..ALL };
    assert_eq!(reader(dir.path()).totals(&other).unwrap().rows, []);
}

#[test]
fn what_differs_is_named_by_the_newest_task_of_each_node() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = open(dir.path());
    let scripts = |mount: &str| vec![step("10-mount.sh", mount, 1, OK), step("20-gpu.sh", "bb", 1, OK)];
    begin(&mut store, 1, 1_000);
    commit(&mut store, (0..4).map(|rank| ran(1, rank, &format!("n{rank}"), "ok", scripts("old"))).collect());
    assert_eq!(reader(dir.path()).skew(&ALL).unwrap(), Skew { rows: vec![], nodes: 4, scripts: 2, truncated: false });
    begin(&mut store, 2, 2_000);
    // n3 did not take part; n1's new task fails and stops there; n2 has no 20-gpu.sh.
    let failed = vec![step("10-mount.sh", "odd", 1, Some(ExitStatus::Exit(1)))];
    let newer = vec![
        ran(2, 0, "n0", "ok", scripts("new")),
        ran(2, 1, "n1", "failed", failed),
        ran(2, 2, "n2", "ok", vec![step("10-mount.sh", "new", 1, OK)]),
    ];
    assert_eq!(commit(&mut store, newer), 3);
    let skew = reader(dir.path()).skew(&ALL).unwrap();
    let seen: Vec<_> = skew
        .rows
        .iter()
        .flat_map(|row| row.versions.iter().map(|v| (row.script.as_str(), v.digest.as_deref(), v.hosts.to_string())))
        .collect();
    assert_eq!(
        seen,
        [
            ("10-mount.sh", Some("new"), "n[0,2]".to_owned()),
            ("10-mount.sh", Some("odd"), "n1".to_owned()),
            ("10-mount.sh", Some("old"), "n3".to_owned()),
            ("20-gpu.sh", Some("bb"), "n[0,3]".to_owned()),
            ("20-gpu.sh", None, "n2".to_owned()),
        ]
    );
}

/// The tasks of a store of version 10 have no host: sums by node and comparisons took it from each attempt's layout.
#[test]
fn tasks_of_the_version_before_get_their_hosts() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = open(dir.path());
    begin(&mut store, 1, 1_000);
    begin(&mut store, 2, 2_000);
    let scripts = |digest: &str| vec![step("10-a.sh", digest, 1, OK)];
    commit(&mut store, (0..4).map(|rank| ran(1, rank, &format!("n{rank}"), "ok", scripts("aa"))).collect());
    commit(&mut store, vec![ran(2, 3, "n3", "ok", scripts("bb"))]);
    let (skew, by_node) = (reader(dir.path()).skew(&ALL).unwrap(), reader(dir.path()).totals_by_node(&ALL).unwrap());
    assert_eq!((skew.nodes, skew.rows.len(), by_node.rows.len(), by_node.tasks), (4, 1, 4, 5));
    undo_version_12(&store.db);
    store
        .db
        .execute_batch(
            "DROP INDEX outbox_by_attempt; DROP INDEX actions_by_begin; ALTER TABLE steps DROP COLUMN host;
             UPDATE attempts SET hosts = 'n[' WHERE job = 'f2'; PRAGMA user_version = 10",
        )
        .unwrap();
    drop(store);
    drop(Store::open(&dir.path().join("controller.db")).unwrap());
    let left = reader(dir.path()).totals_by_node(&ALL).unwrap();
    assert_eq!((left.rows.len(), left.tasks), (4, 5), "the layout of one attempt is unreadable");
    let compared = reader(dir.path()).skew(&ALL).unwrap();
    assert_eq!((compared.nodes, compared.rows.len()), (4, 0));
}

/// On a full disk, which a limit of SQLite simulates, the store keeps the records that fit, drops durations, and leaves
/// the reserve in place.
#[test]
fn on_a_full_disk_it_is_the_first_to_go() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = open(dir.path());
    begin(&mut store, 1, 900);
    let pages: i64 = store.db.pragma_query_value(None, "page_count", |row| row.get(0)).unwrap();
    store.db.pragma_update_and_check(None, "max_page_count", pages + 1, |_| Ok(())).unwrap();
    let many = |rank: u32| {
        let steps = (0..200).map(|n| step(&format!("{n}-{rank}.sh"), "aa", 1, OK)).collect();
        ran(1, rank, &format!("n{rank}"), "ok", steps)
    };
    let mut ran: Vec<Ran> = (0..4).map(many).collect();
    store.commit_with(&[event(&job(1), 1)], &mut ran).unwrap();
    assert!(ran.is_empty(), "the store does not believe that it was written");
    assert_eq!((store.load().unwrap().events_last[&job(1)], count(&store, "steps")), (1, 0));
    assert!(dir.path().join("controller.db-reserve").exists(), "the reserve is for outcomes");
    // While in use, the reserve is only for outcomes.
    store.db.pragma_update_and_check(None, "max_page_count", 1_000_000, |_| Ok(())).unwrap();
    assert!(store.reserve.release());
    assert_eq!(commit(&mut store, vec![many(0)]), 0);
    assert!(!store.is_full(), "there is room again");
    assert_eq!(commit(&mut store, vec![many(0)]), 1, "nothing of the failed transaction is remembered");
}

/// If a table of durations is damaged, a commit loses the durations of the batch, but none of its records.
#[test]
fn a_damaged_table_costs_no_record() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = open(dir.path());
    begin(&mut store, 1, 900);
    store.db.execute_batch("DROP TABLE scripts").unwrap();
    let mut lost = vec![ran(1, 0, "n0", "ok", vec![step("10-a.sh", "aa", 1, OK)])];
    store.commit_with(&[event(&job(1), 1)], &mut lost).unwrap();
    assert_eq!((store.load().unwrap().events_last[&job(1)], lost.len()), (1, 0));
}
