//! Tests of the store against the reference (`Snapshot::apply`), and against power cuts.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use perilog_core::controller::io::{
    ActionRow, Again, AttemptRow, DrainRow, Expects, External, Fetched, NodeRow, OutboxEntry, Passing, Quiet, RankRow,
    Reader, Recovered, RecoveryRow, Resolving, ResourceEnd, Source,
};
use perilog_core::controller::{ActionDelta, AttemptDelta, Body, Elsewhere, Holding, Needs, Oldest, Record, Snapshot};
use perilog_core::ids::ResourceName;
use perilog_core::ids::{ActionId, BootId, Epoch, HostName, MachineId, MilestoneName, TaskId};
use perilog_core::outcome::{Failure, Outcome, Verdict};
use perilog_core::task::Ended;
use perilog_core::{ActionName, Attempt, Event, IdSet, JobId, Milestones, Part, Rank, Terms, Tolerance};
use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::json;

use super::*;

mod crash;
#[path = "../../../agent/src/spool/tests/ends.rs"]
mod ends;
mod export;
mod frozen;
mod jobs;
mod order;
mod rebuild;
mod steps;
mod versions;

fn open(dir: &Path) -> Store {
    perilog_core::switch_on_defect!(perilog_host::defect::chosen());
    Store::open(&dir.join("controller.db")).unwrap()
}

fn job(n: u8) -> JobId {
    JobId::new(&format!("f{n}")).unwrap()
}

fn event(job: &JobId, sequence: u64) -> Record {
    let context = json!({"attempt": "1", "note": format!("of {sequence}\n")});
    let event = Event::at_millis(1_552_593_348_092 + sequence, "finish", context.as_object().cloned());
    Record::Event { job: job.clone(), sequence, event }
}

fn attempts() -> impl Strategy<Value = (JobId, Attempt)> {
    (0..3u8, 0..3u64, 0..2u32)
        .prop_map(|(n, whole, half)| (job(n), Attempt::from_parts(whole, half * 500_000_000).unwrap()))
}

fn ids() -> impl Strategy<Value = IdSet> {
    vec(0..20u32, 0..6).prop_map(IdSet::from_iter)
}

fn ended() -> impl Strategy<Value = Ended> {
    prop_oneof![
        Just(Outcome::Ok),
        any::<u8>().prop_map(|code| Outcome::Failed { why: Failure::Exit(code) }),
        ".{0,9}".prop_map(|why| Outcome::Refused { why }),
    ]
    .prop_map(|outcome| Ended { tails: vec![], note: Some("a 'note'".to_owned()), ..Ended::bare(outcome, 7) })
}

fn external() -> External {
    let name = |text| ResourceName::new(text).unwrap();
    let ended = ResourceEnd { ended: Ended::bare(Outcome::Ok, 7), late: vec![Ended::bare(Outcome::Tolerable, 8)] };
    External {
        lease_ms: 30_000,
        last_report_ms: 1_552_593_348_092,
        resources: [name("rabbit:1"), name("rabbit:2")].into(),
        ended: [(name("rabbit:1"), ended)].into(),
        cancelling: true,
    }
}

fn action_row() -> impl Strategy<Value = Box<ActionRow>> {
    let sets = vec(ids(), 9);
    let verdict =
        proptest::option::of(prop_oneof![Just(Verdict::Ok), Just(Verdict::Timeout), Just(Verdict::Cancelled)]);
    let numbers = (any::<Option<u32>>(), proptest::option::of(0..1_000_000u64), 0..1_000_000_000_000u64);
    (0..9u128, attempts(), sets, verdict, numbers, ".{0,9}").prop_map(
        |(id, (job, attempt), mut sets, verdict, (userid, timeout_ms, began_ms), text)| {
            let mut next = || sets.pop().unwrap();
            Box::new(ActionRow {
                id: ActionId(uuid::Uuid::from_u128(id)),
                job,
                attempt,
                name: ActionName::new("prolog").unwrap(),
                ranks: next(),
                userid,
                env: BTreeMap::from([("A".to_owned(), text.clone())]),
                timeout_ms,
                began_ms,
                waiting: next(),
                sent: next(),
                accepted: next(),
                ok: next(),
                not_ok: next(),
                cancelling: next(),
                cancel_why: userid.map(|_| text),
                boots: BTreeMap::from([(1, next())]),
                verdict,
                ended_ms: timeout_ms,
                events_from: began_ms,
                held: Part { ranks: next(), resources: [ResourceName::new("rabbit:1").unwrap()].into() },
                growing: userid.is_some(),
                resolving: userid
                    .map(|by| Resolving {
                        ranks: IdSet::from(3..=4),
                        ok: by % 2 == 0,
                        reason: "gone \"x\"".to_owned(),
                        by,
                        overdue: by % 3 == 0,
                    })
                    .into_iter()
                    .collect(),
                external: userid.map(|_| Box::new(external())),
                overdue: userid.map(|_| ("10-a \"x\"".to_owned(), IdSet::from(3..=4))).into_iter().collect(),
                lingering: userid.map(|_| IdSet::from(5..=5)).unwrap_or_default(),
                limits: userid.map(|_| (600_000, IdSet::from(6..=7))).into_iter().collect(),
                remarks: userid.map(|_| ("no \"x\"".to_owned(), IdSet::from(8..=9))).into_iter().collect(),
            })
        },
    )
}

fn record() -> impl Strategy<Value = Record> {
    let node = (0..4u8, any::<u32>(), 0..1_000_000u64).prop_map(|(n, boot_number, seen_ms)| {
        Record::Node(NodeRow {
            host: HostName::new(&format!("n{n}")).unwrap(),
            machine: MachineId::new("0123456789abcdef0123456789abcdef").unwrap(),
            boot: BootId::new("6e2f6a30+2").unwrap(),
            boot_number,
            version: "0.1 \"x\"".to_owned(),
            seen_ms,
        })
    });
    let attempt = (attempts(), ids(), any::<(Option<u32>, bool)>(), 0..1_000_000u64).prop_map(
        |((job, attempt), ranks, (userid, open), touched_ms)| {
            Record::Attempt(AttemptRow {
                job,
                attempt,
                ranks,
                hosts: "n[0-3],login1".parse().unwrap(),
                userid,
                open,
                touched_ms,
                terms: Terms { tolerate: Some(Tolerance::Percent(10)), keep: userid, shrink: open, ..Terms::default() },
                added: open,
                hold: Part { ranks: IdSet::from(0..=3), resources: [ResourceName::new("rabbit:1").unwrap()].into() },
                released: Part::default(),
                complete: !open,
                milestones: milestones(open),
                source: userid.map(|_| Source { name: "flux".to_owned(), instance: "system \"1\"".to_owned() }),
                abandoned: open,
                silent: !open,
                recovered: match userid.map(|userid| userid % 3) {
                    None => Recovered::No,
                    Some(0) => Recovered::Added,
                    Some(1) => Recovered::TakenUp,
                    Some(_) => Recovered::Begun,
                },
            })
        },
    );
    let rank = (0..9u128, 0..9u32, ended(), vec(ended(), 0..2), any::<Option<Option<u64>>>());
    let rank = rank.prop_map(|(id, rank, ended, late, expects)| {
        let expects = expects.map(|within_ms| Expects { within_ms, machine: MachineId::new("m").unwrap() });
        let task = TaskId { action: ActionId(uuid::Uuid::from_u128(id)), rank: Rank(rank) };
        Record::Rank(Box::new(RankRow { task, ended, late, expects }))
    });
    let outbox = attempts().prop_map(|(job, attempt)| {
        // `numbered` sets the number when the whole sequence of records is known.
        Record::Outbox(OutboxEntry {
            sequence: 0,
            epoch: 1,
            reader: if attempt == Attempt::FIRST { Reader::Manager } else { Reader::ReleaseHook },
            job,
            attempt,
            body: Body::from(&json!({"event": "verdict", "status": 0})),
        })
    });
    let drain = (0..4u8, 0..1_000_000u64, any::<(Option<u32>, bool, bool, Option<u32>)>()).prop_map(
        |(n, since_ms, (by, confirmed, lifted, stuck))| {
            let (host, reason) = (HostName::new(&format!("n{n}")).unwrap(), "prolog 10-a: exit 1: \"x\"".to_owned());
            let notified = confirmed && !lifted;
            let again = notified.then(|| Again { at_ms: since_ms, reason: "epilog 20-b: exit 2".to_owned(), by });
            Record::Drain(DrainRow {
                host,
                since_ms,
                reason,
                by,
                confirmed,
                lifted,
                notified,
                stuck,
                again,
                notice_id: since_ms + 1,
                asked_ms: since_ms,
                doubtful: notified,
                passing: match by {
                    None => None,
                    Some(by) if by % 2 == 0 => Some(Passing::Unknown),
                    Some(_) => Some(Passing::Cleaning { job: job(n), attempt: Attempt::FIRST }),
                },
            })
        },
    );
    prop_oneof![
        1 => any::<(u32, u64)>().prop_map(|(number, nonce)| Record::Epoch(Epoch { number: number.into(), nonce })),
        1 => any::<(u32, Option<u32>)>().prop_map(|(since, ended)| Record::Recovery(RecoveryRow {
            since_ms: since.into(), why: "the \"anchor\"".to_owned(), epoch: 3, ended_ms: ended.map(u64::from),
        })),
        2 => node,
        2 => attempt,
        4 => action_row().prop_map(Record::Action),
        4 => (0..9u128, ids(), ids(), ids()).prop_map(|(id, ranks, ok, held)| {
            let (ok, held) = (ok.intersection(&ranks), held.intersection(&ranks));
            let overdue = BTreeMap::from([("10-b".to_owned(), ok.clone())]);
            let boots = BTreeMap::from([(2, ok.clone())]);
            let limits = BTreeMap::from([(600_000, ranks.clone())]);
            let remarks = BTreeMap::from([("no script ran".to_owned(), ok.clone())]);
            let delta = ActionDelta { boots, overdue, limits, remarks, lingering: held.clone(), ranks, ok, held,
                                 ..ActionDelta::default() };
            Record::ActionDelta { action: ActionId(uuid::Uuid::from_u128(id)), delta: Box::new(delta) }
        }),
        4 => (attempts(), ids(), ids()).prop_map(|((job, attempt), ranks, released)| {
            let released = released.intersection(&ranks);
            Record::AttemptDelta { job, attempt,
                           holds: Box::new(AttemptDelta { hold: ranks.difference(&released),
                                                  ranks, released,
                                                  left: IdSet::new() }) }
        }),
        4 => rank,
        4 => (0..3u8).prop_map(|n| event(&job(n), 0)),
        4 => outbox,
        2 => (0..20u64).prop_map(|through| Record::OutboxApplied { through }),
        2 => (0..20u64).prop_map(|sequence| Record::OutboxDone { sequence }),
        2 => drain,
        1 => any::<Option<u32>>().prop_map(|by| Record::Quiet(
            by.map(|by| Quiet { since_ms: by.into(), by, reason: "a new release".to_owned() })
        )),
        1 => (0..4u8).prop_map(|n| Record::Undrained { host: HostName::new(&format!("n{n}")).unwrap() }),
        1 => (0..4u8).prop_map(|n| Record::NodeForgotten { host: HostName::new(&format!("n{n}")).unwrap() }),
        1 => (attempts(),
              any::<bool>()).prop_map(|((job, attempt), whole_job)| Record::Prune { job, attempt, whole_job }),
    ]
}

/// Numbers the events and the outbox entries in order, as the machine does. Also inserts the record of a commit before
/// the record of each new epoch.
fn numbered(mut records: Vec<Record>) -> Vec<Record> {
    let (mut outbox, mut commit) = (0, 0);
    for (n, record) in (1..).zip(&mut records) {
        match record {
            Record::Event { sequence, .. } => *sequence = n,
            Record::Outbox(entry) => {
                outbox += 1;
                entry.sequence = outbox;
            }
            _ => {}
        }
    }
    let numbers = |record| {
        commit += 1;
        let first = matches!(record, Record::Epoch(_)).then_some(Record::Commit(commit));
        first.into_iter().chain([record])
    };
    records.into_iter().flat_map(numbers).collect()
}

fn sorted(mut snapshot: Snapshot) -> Snapshot {
    snapshot.nodes.sort_by(|a, b| a.host.cmp(&b.host));
    snapshot.attempts.sort_by_key(|a| (a.job.clone(), a.attempt));
    snapshot.ranks.sort_by_key(|r| r.task);
    snapshot.drains.sort_by(|a, b| a.host.cmp(&b.host));
    snapshot
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn the_store_holds_what_the_records_say(records in vec(record(), 0..60), batch in 1..9usize) {
        let dir = tempfile::tempdir().unwrap();
        let mut expect = Snapshot::default();
        let records = numbered(records);
        let mut store = open(dir.path());
        for batch in records.chunks(batch) {
            store.commit(batch).unwrap();
            batch.iter().for_each(|record| expect.apply(record));
        }
        prop_assert_eq!(sorted(store.load().unwrap()), sorted(expect.clone()));
        check_parts(&mut store, &expect);
        drop(store);
        prop_assert_eq!(sorted(open(dir.path()).load().unwrap()), sorted(expect));
    }
}

/// Compares what a start loads, and what a batch may need, with the reference.
fn check_parts(store: &mut Store, expect: &Snapshot) {
    let actions = |n: std::ops::Range<u128>| n.map(|n| ActionId(uuid::Uuid::from_u128(n))).collect();
    let oldest = |until_ms, limit| Some(Oldest { until_ms, limit });
    for needs in [
        Needs { jobs: [job(0), job(9)].into(), ..Needs::default() },
        Needs { jobs: [job(2)].into(), actions: actions(0..4), page: Some((1, 2)), oldest: None },
        Needs { page: Some((0, 3)), ..Needs::default() },
        Needs { actions: actions(4..99), ..Needs::default() },
        Needs { oldest: oldest(u64::MAX, 2), ..Needs::default() },
        Needs { oldest: oldest(500_000, 9), ..Needs::default() },
    ] {
        assert_eq!(known(store.fetch(&needs).unwrap()), known(expect.fetch(&needs)), "{needs:?}");
    }
    let (part, least) = (store.load_open(Holding::NONE).unwrap(), expect.without_ended(Holding::NONE));
    let jobs = |of: &[AttemptRow]| of.iter().map(|row| row.job.clone()).collect::<BTreeSet<JobId>>();
    let loaded = jobs(&part.attempts);
    assert!(loaded.is_superset(&jobs(&least.attempts)), "a start loads what it needs");
    let all = Needs { jobs: loaded.clone(), ..Needs::default() };
    let Snapshot { attempts, actions, ranks, events_last, outbox, elsewhere, .. } = part.clone();
    let outbox = outbox.into_iter().filter(|entry| entry.reader == Reader::Manager).collect();
    assert_eq!(known(Fetched { attempts, actions, ranks, events_last, outbox }), known(expect.fetch(&all)));
    let left = jobs(&expect.attempts).len() - loaded.len();
    assert_eq!((elsewhere.jobs, elsewhere.attempts), (left, expect.attempts.len() - part.attempts.len()));
    let rest = Snapshot { attempts: vec![], actions: vec![], ranks: vec![], ..expect.clone() };
    let (here, there): (Vec<_>, Vec<_>) = expect
        .outbox
        .iter()
        .cloned()
        .partition(|entry| entry.reader == Reader::ReleaseHook || loaded.contains(&entry.job));
    let sequences = || there.iter().map(|entry| entry.sequence);
    assert_eq!(elsewhere.notices, sequences().min().zip(sequences().max()));
    let rest = Snapshot { events_last: BTreeMap::new(), outbox: here, elsewhere, ..rest };
    let part = Snapshot { attempts: vec![], actions: vec![], ranks: vec![], events_last: BTreeMap::new(), ..part };
    assert_eq!(sorted(part), sorted(rest));
}

/// Returns the rows of the jobs that have an attempt, in order.
fn known(mut of: Fetched) -> Fetched {
    let jobs: BTreeSet<JobId> = of.attempts.iter().map(|row| row.job.clone()).collect();
    of.actions.retain(|row| jobs.contains(&row.job));
    let ids: BTreeSet<ActionId> = of.actions.iter().map(|row| row.id).collect();
    of.ranks.retain(|row| ids.contains(&row.task.action));
    of.events_last.retain(|job, _| jobs.contains(job));
    of.attempts.sort_by_key(|row| (row.job.clone(), row.attempt));
    of.ranks.sort_by_key(|row| row.task);
    of
}

/// A start and a batch look for jobs through indexes: neither walks the finished ones.
#[test]
fn no_question_about_jobs_walks_the_finished_ones() {
    let dir = tempfile::tempdir().unwrap();
    drop(open(dir.path()));
    let db = Connection::open(dir.path().join("controller.db")).unwrap();
    for sql in super::part::QUESTIONS {
        let mut statement = db.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
        let plan: Vec<String> =
            statement.raw_query().mapped(|row| row.get("detail")).collect::<Result<_, _>>().unwrap();
        // These have rows of open jobs alone, or an index of these.
        let walks = |line: &&String| {
            let small = ["SCAN action_deltas", "SCAN outbox", "SCAN json_each", "SCAN (subquery"];
            let indexes = [
                "attempts_open",
                "actions_live",
                "actions_by_end",
                "ranks_expected",
                "ranks_failed",
                "attempts_by_change",
            ];
            line.starts_with("SCAN")
                && !small.iter().any(|of| line.starts_with(of))
                && !indexes.iter().any(|of| line.ends_with(of))
        };
        let walk = plan.iter().find(walks);
        assert_eq!(walk, None, "{sql}: {plan:#?}");
    }
}

#[test]
fn a_store_says_what_it_is_and_refuses_what_it_is_not() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("controller.db");
    assert_eq!(open(dir.path()).load().unwrap(), Snapshot::default());
    let error = |path: &Path| Store::open(path).unwrap_err().to_string();
    let edit = |sql: &str| Connection::open(&path).unwrap().execute_batch(sql).unwrap();

    let ours = super::schema::VERSION;
    let wrong = format!("the store has tables of version {}, and this controller supports up to {ours}", ours + 1);
    edit(&format!("PRAGMA user_version = {}", ours + 1));
    assert!(error(&path).starts_with(&wrong));
    edit(&format!("PRAGMA user_version = {ours}; PRAGMA application_id = 5"));
    assert!(error(&path).contains("database of another program"));
    edit("PRAGMA application_id = 1885696617");
    let held = open(dir.path());
    assert!(error(&path).contains("another controller is using this store"));
    drop(held);
    assert!(error(&dir.path().join("none/c.db")).contains("none: No such file"));
    std::fs::write(
        dir.path().join("text"),
        "not a database, but a text that is long enough to look like one".repeat(40),
    )
    .unwrap();
    assert!(error(&dir.path().join("text")).contains("not a database"));
}

/// Regression test: `perilog-controller --copy-to` wrote over a store, and removed the store if the copy failed.
#[test]
fn a_copy_never_takes_the_place_of_a_file() {
    let dir = tempfile::tempdir().unwrap();
    open(dir.path()).commit(&[Record::Attempt(attempt_row(job(1), 0..=1, "n[0-1]"))]).unwrap();
    let path = dir.path().join("controller.db");
    let other = dir.path().join("other.db");
    std::fs::write(&other, "a store").unwrap();
    for from in [&path, &dir.path().join("no store")] {
        let refused = super::backup::install(from, &other).unwrap_err().to_string();
        assert!(refused.contains("File exists"), "{refused}");
        assert_eq!(std::fs::read_to_string(&other).unwrap(), "a store");
    }
}

/// A damaged or hostile copy replaces no store, the reason names what is wrong, and nothing in it runs.
#[test]
fn a_copy_that_no_controller_could_start_with_is_refused() {
    let node = "INSERT INTO nodes VALUES ('-rf /', 'm', 'b', 1, '1', 0)";
    let trigger = "CREATE TRIGGER t AFTER INSERT ON stamp BEGIN DELETE FROM attempts; END";
    let view = "DROP TABLE nodes; CREATE VIEW nodes AS WITH RECURSIVE n(h) AS (SELECT 1 UNION ALL SELECT h FROM n) \
                SELECT h AS host FROM n";
    let cases = [
        (node, "table nodes"),
        (trigger, "it has the trigger t, which no controller makes"),
        (view, "it has the view nodes, which no controller makes"),
        ("PRAGMA user_version = 3", "its tables are not those of its version"),
        ("CREATE TABLE own (x)", "it has the table own, which no controller makes"),
        ("DROP INDEX events_in_order", "it has no index events_in_order"),
    ];
    for (damage, expected) in cases {
        let dir = tempfile::tempdir().unwrap();
        let (path, to) = (dir.path().join("controller.db"), dir.path().join("to.db"));
        open(dir.path()).commit(&[Record::Attempt(attempt_row(job(1), 0..=1, "n[0-1]"))]).unwrap();
        Connection::open(&path).unwrap().execute_batch(damage).unwrap();
        let checked = super::backup::check(&path).map_err(|error| error.to_string());
        let made = super::backup::install(&path, &to).map_err(|error| error.to_string());
        let refused = checked.and(made).unwrap_err();
        assert!(refused.contains(expected), "{damage}: {refused}");
        let refused = super::backup::install(&path, &to).unwrap_err().to_string();
        assert!(refused.contains(expected), "{damage}, without a check before: {refused}");
        assert!(!to.exists(), "{damage}");
    }
}

fn milestones(some: bool) -> Milestones {
    let mut milestones = Milestones::default();
    if some {
        let name = MilestoneName::new("data-out").unwrap();
        milestones.record(&name, &IdSet::from(0..=3)).unwrap();
        milestones.leave(&IdSet::from(4..=5));
        milestones.reach(&IdSet::from(0..=5), &IdSet::new(), &IdSet::new());
    }
    milestones
}

/// Returns the row of a job's first attempt, as it is when the attempt begins.
fn attempt_row(job: JobId, ranks: std::ops::RangeInclusive<u32>, hosts: &str) -> AttemptRow {
    AttemptRow {
        job,
        attempt: Attempt::FIRST,
        ranks: IdSet::from(ranks),
        hosts: hosts.parse().unwrap(),
        userid: None,
        open: true,
        touched_ms: 0,
        terms: Terms::default(),
        added: false,
        hold: Part::default(),
        released: Part::default(),
        complete: false,
        milestones: Milestones::default(),
        source: None,
        abandoned: false,
        silent: false,
        recovered: Recovered::No,
    }
}

#[test]
fn a_damaged_row_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = open(dir.path());
    let row = attempt_row(job(1), 0..=1, "n[0-1]");
    store.commit(&[Record::Attempt(row)]).unwrap();
    store.db.execute_batch("UPDATE attempts SET ranks = '1-0'").unwrap();
    let error = store.load().unwrap_err().to_string();
    let expected = format!(
        "the store: {}: table attempts, row 1: ranks: malformed idset \"1-0\" at character 3: expected ids in \
         ascending order, here 2 or more",
        dir.path().join("controller.db").display()
    );
    assert_eq!(error, expected);
}

#[test]
fn the_api_reads_events_while_the_writer_writes() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = open(dir.path());
    let reader = EventReader::open(&dir.path().join("controller.db")).unwrap();
    let (a, b) = (job(1), job(2));
    for sequence in 1..=5 {
        store.commit(&[event(&a, sequence), event(&b, sequence)]).unwrap();
        let read = reader.events(&a, 0, 100).unwrap();
        assert_eq!(read.iter().map(|(n, _)| *n).collect::<Vec<_>>(), (1..=sequence).collect::<Vec<_>>());
    }
    let read = reader.events(&a, 2, 2).unwrap();
    assert_eq!(read.iter().map(|(n, _)| *n).collect::<Vec<_>>(), [3, 4]);
    let Record::Event { event: third, .. } = event(&a, 3) else { unreachable!() };
    assert_eq!(read[0].1, third);
    assert!(reader.events(&job(9), 0, 10).unwrap().is_empty());
    // Large events come one at a time.
    let large = json!({"hosts": "n".repeat(300_000)});
    for sequence in 6..9 {
        let event = Event::at_millis(1, "finish", large.as_object().cloned());
        store.commit(&[Record::Event { job: a.clone(), sequence, event }]).unwrap();
    }
    assert_eq!(reader.events(&a, 4, 100).unwrap().iter().map(|(n, _)| *n).collect::<Vec<_>>(), [5]);
    assert_eq!(reader.events(&a, 5, 100).unwrap().iter().map(|(n, _)| *n).collect::<Vec<_>>(), [6]);
}

/// A batch that is too large for the disk is refused whole, although the store gives up its reserve for it. Once the
/// disk has room, the same batch succeeds, and the reserve is back. A limit on the pages of the file simulates the full
/// disk.
#[test]
fn a_failed_batch_leaves_nothing_behind() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = open(dir.path());
    let job = job(1);
    store.commit(&[event(&job, 1)]).unwrap();
    assert!(!store.is_full());
    let pages: i64 = store.db.pragma_query_value(None, "page_count", |row| row.get(0)).unwrap();
    store.db.pragma_update_and_check(None, "max_page_count", pages + 4, |_| Ok(())).unwrap();
    let many: Vec<Record> = (2..2000).map(|n| event(&job, n)).collect();
    assert!(matches!(store.commit(&many), Err(StoreError::Full)));
    assert!(!dir.path().join("controller.db-reserve").exists(), "the reserve was tried");
    assert_eq!(store.load().unwrap().events_last[&job], 1, "whole or not at all");
    store.db.pragma_update_and_check(None, "max_page_count", 1_000_000, |_| Ok(())).unwrap();
    store.commit(&many).unwrap();
    assert!(!store.is_full(), "there is room: the reserve is held again");
    assert!(dir.path().join("controller.db-reserve").metadata().unwrap().len() >= 8 << 20);
}
