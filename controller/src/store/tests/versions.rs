//! Stores of earlier versions: each is migrated at its first start, and keeps what it has.

use super::*;

/// Gives the tables and columns of a store the names that they had in version 12.
fn undo_version_13(db: &Connection) {
    db.execute_batch(
        "ALTER TABLE epochs RENAME TO lives;
         ALTER TABLE action_deltas RENAME COLUMN delta TO stands; ALTER TABLE action_deltas RENAME TO moved;
         ALTER TABLE attempt_deltas RENAME COLUMN delta TO holds; ALTER TABLE attempt_deltas RENAME TO given;
         ALTER TABLE drains RENAME COLUMN notified TO told; ALTER TABLE drains RENAME COLUMN notice_id TO telling",
    )
    .unwrap();
}

/// Takes what versions 12 and 13 changed out of a store. Version 14 changed no tables.
pub(super) fn undo_version_12(db: &Connection) {
    undo_version_13(db);
    db.execute_batch(
        "DROP INDEX attempts_open; DROP INDEX attempts_by_change; DROP INDEX actions_live; DROP INDEX actions_by_end;
         DROP INDEX ranks_expected; DROP INDEX ranks_failed; ALTER TABLE actions DROP COLUMN live;
         ALTER TABLE ranks DROP COLUMN ended_ms",
    )
    .unwrap();
}

#[test]
fn a_store_of_an_earlier_version_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("controller.db");
    let db = Connection::open(&path).unwrap();
    db.execute_batch(include_str!("tables-1.sql")).unwrap();
    db.execute_batch("PRAGMA application_id = 1885696617; PRAGMA user_version = 1").unwrap();
    drop(db);
    let store = open(dir.path()).load().unwrap();
    let part = |ranks: &str| Part::of_ranks(ranks.parse().unwrap());
    let held: Vec<_> = store.attempts.iter().map(|a| (a.hold.clone(), a.released.clone(), a.complete)).collect();
    assert_eq!(held, [(part(""), part("0-3"), true), (part("0-3"), part(""), false)]);
    assert_eq!(store.actions.iter().map(|a| a.held.clone()).collect::<Vec<_>>(), [part(""), part("0-3")]);
    assert_eq!(
        (store.history.newest().unwrap(), store.outbox[0].reader, store.outbox_last),
        (Commit { epoch: Epoch { number: 4, nonce: 0x00ff }, number: 0 }, Reader::Manager, 3)
    );
    assert_eq!(store.actions[1].sent, IdSet::from(2..=3), "ranks that no node had reported are asked for again");
    assert_eq!(tables(&path), tables_of_a_new_file());
}

/// Regression test: a copy of a store of an earlier version had no stamp, so a controller that started with the copy
/// did not enter recovery.
#[test]
fn a_copy_of_an_earlier_version_is_stamped() {
    let dir = tempfile::tempdir().unwrap();
    let old = dir.path().join("old.db");
    let db = Connection::open(&old).unwrap();
    db.execute_batch(include_str!("tables-1.sql")).unwrap();
    db.execute_batch("PRAGMA application_id = 1885696617; PRAGMA user_version = 1").unwrap();
    drop(db);
    let path = dir.path().join("controller.db");
    super::backup::install(&old, &path).unwrap();
    assert!(open(dir.path()).load().unwrap().stamp.is_some());
    assert_eq!(tables(&path), tables_of_a_new_file());
}

/// A store of version 9 has unconfirmed attempts, and ranks that their attempt has lost: these attempts are abandoned.
#[test]
fn a_store_of_version_9_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("controller.db");
    let rows: Vec<AttemptRow> = (1..=3).map(|n| attempt_row(job(n), 0..=1, "n[0-1]")).collect();
    open(dir.path()).commit(&rows.iter().cloned().map(Record::Attempt).collect::<Vec<_>>()).unwrap();
    let db = Connection::open(&path).unwrap();
    undo_version_12(&db);
    db.execute_batch(
        "DROP INDEX outbox_by_attempt; DROP INDEX actions_by_begin; ALTER TABLE steps DROP COLUMN host;
         ALTER TABLE attempts RENAME COLUMN abandoned TO unvouched; ALTER TABLE attempts DROP COLUMN silent;
         ALTER TABLE attempts ADD COLUMN disowned TEXT NOT NULL DEFAULT '';
         ALTER TABLE attempts ADD COLUMN by_hand INTEGER NOT NULL DEFAULT 0;
         ALTER TABLE actions ADD COLUMN unvouched INTEGER NOT NULL DEFAULT 0;
         ALTER TABLE drains RENAME COLUMN doubtful TO unvouched;
         PRAGMA user_version = 9",
    )
    .unwrap();
    let (first, second) = (job(1), job(2));
    db.execute("UPDATE attempts SET unvouched = 1 WHERE job = ?1", [first.as_str()]).unwrap();
    db.execute("UPDATE attempts SET disowned = '1', recovered = 1 WHERE job = ?1", [second.as_str()]).unwrap();
    drop(db);
    let rows: Vec<(bool, Recovered)> =
        open(dir.path()).load().unwrap().attempts.iter().map(|row| (row.abandoned, row.recovered)).collect();
    assert_eq!(rows, [(true, Recovered::No), (true, Recovered::TakenUp), (false, Recovered::No)]);
    assert_eq!(tables(&path), tables_of_a_new_file());
}

/// A store of version 10 has no index of the outbox: to forget an attempt took a walk over all its entries.
#[test]
fn a_store_of_version_10_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("controller.db");
    open(dir.path()).commit(&[Record::Attempt(attempt_row(job(1), 0..=1, "n[0-1]"))]).unwrap();
    let db = Connection::open(&path).unwrap();
    undo_version_12(&db);
    db.execute_batch(
        "DROP INDEX outbox_by_attempt; DROP INDEX actions_by_begin; ALTER TABLE steps DROP COLUMN host;
         PRAGMA user_version = 10",
    )
    .unwrap();
    drop(db);
    assert_eq!(open(dir.path()).load().unwrap().attempts.len(), 1);
    let db = Connection::open(&path).unwrap();
    super::schema::check_objects(&db).unwrap();
    assert_eq!(tables(&path), tables_of_a_new_file());
    // Pruning removes the rows of each table through an index.
    for (table, key) in [("outbox", "job"), ("actions", "job"), ("steps", "action"), ("ranks", "action")] {
        let attempt = if key == "job" { " AND attempt = ''" } else { "" };
        let plan = format!("EXPLAIN QUERY PLAN DELETE FROM {table} WHERE {key} = ''{attempt}");
        let plan: String = db.query_row(&plan, [], |row| row.get("detail")).unwrap();
        assert!(plan.starts_with("SEARCH"), "{table}: {plan}");
    }
}

/// A store of version 11 loads everything at a start. It does not know which of its actions have ended.
#[test]
fn a_store_of_version_11_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("controller.db");
    let rows = [job(1), job(2)].map(|job| AttemptRow { complete: true, ..attempt_row(job, 0..=1, "n[0-1]") });
    let action = |n: u8, verdict| {
        let (id, name) = (ActionId(uuid::Uuid::from_u128(n.into())), ActionName::new("prolog").unwrap());
        let row = ActionRow::new(id, job(n), Attempt::FIRST, name, IdSet::from(0..=1), 5);
        let over = ActionRow { verdict, waiting: IdSet::new(), ok: row.ranks.clone(), ..row };
        Record::Action(Box::new(over))
    };
    let records = rows.map(Record::Attempt).into_iter().chain([action(1, Some(Verdict::Ok)), action(2, None)]);
    open(dir.path()).commit(&records.collect::<Vec<_>>()).unwrap();
    let db = Connection::open(&path).unwrap();
    undo_version_12(&db);
    db.execute_batch("PRAGMA user_version = 11").unwrap();
    drop(db);
    let part = open(dir.path()).load_open(Holding::NONE).unwrap();
    assert_eq!(part.attempts.iter().map(|row| &row.job).collect::<Vec<_>>(), [&job(2)]);
    assert_eq!(part.elsewhere, Elsewhere { jobs: 1, attempts: 1, actions: 1, notices: None });
    super::schema::check_objects(&Connection::open(&path).unwrap()).unwrap();
    assert_eq!(tables(&path), tables_of_a_new_file());
}

/// A store of version 12 has other names for its epochs, its deltas and the notices of its drains.
#[test]
fn a_store_of_version_12_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("controller.db");
    let (id, name) = (ActionId(uuid::Uuid::from_u128(1)), ActionName::new("prolog").unwrap());
    let row = ActionRow::new(id, job(1), Attempt::FIRST, name, IdSet::from(0..=1), 5);
    let delta = ActionDelta { ranks: IdSet::from(0..=1), ok: IdSet::from(0..=1), ..ActionDelta::default() };
    let holds = AttemptDelta { ranks: IdSet::from(0..=1), hold: IdSet::from(1..=1), ..AttemptDelta::default() };
    let drain = DrainRow {
        host: HostName::new("n0").unwrap(),
        since_ms: 5,
        reason: "prolog 10-a: exit 1".to_owned(),
        by: None,
        confirmed: true,
        lifted: false,
        notified: true,
        stuck: None,
        again: None,
        notice_id: 9,
        asked_ms: 6,
        doubtful: false,
        passing: None,
    };
    let records = [
        Record::Epoch(Epoch { number: 3, nonce: 7 }),
        Record::Attempt(attempt_row(job(1), 0..=1, "n[0-1]")),
        Record::Action(Box::new(row)),
        Record::ActionDelta { action: id, delta: Box::new(delta) },
        Record::AttemptDelta { job: job(1), attempt: Attempt::FIRST, holds: Box::new(holds) },
        Record::Drain(drain.clone()),
    ];
    open(dir.path()).commit(&records).unwrap();
    let before = open(dir.path()).load().unwrap();
    assert_eq!((before.actions[0].ok.clone(), &before.drains[..]), (IdSet::from(0..=1), &[drain][..]));
    assert_eq!(before.attempts[0].hold, Part::of_ranks(IdSet::from(1..=1)));
    let db = Connection::open(&path).unwrap();
    undo_version_13(&db);
    db.execute_batch("PRAGMA user_version = 12").unwrap();
    drop(db);
    assert_eq!(open(dir.path()).load().unwrap(), before);
    super::schema::check_objects(&Connection::open(&path).unwrap()).unwrap();
    assert_eq!(tables(&path), tables_of_a_new_file());
}

/// A store of version 13 has another name for the event of a job that hands over some of its ranks.
#[test]
fn a_store_of_version_13_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("controller.db");
    open(dir.path()).commit(&[event(&job(1), 1), event(&job(1), 2)]).unwrap();
    let db = Connection::open(&path).unwrap();
    db.execute_batch("UPDATE events SET name = 'job-let-go' WHERE sequence = 1; PRAGMA user_version = 13").unwrap();
    drop(db);
    drop(open(dir.path()));
    let db = Connection::open(&path).unwrap();
    let mut names = db.prepare("SELECT name FROM events ORDER BY sequence").unwrap();
    let names: Vec<String> = names.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect();
    assert_eq!(names, ["job-hand-over", "finish"]);
}

/// Returns each column of each table, as the name of the table, and the name and type of the column.
pub(super) fn tables(path: &Path) -> Vec<(String, String)> {
    let db = Connection::open(path).unwrap();
    let sql = "SELECT m.name, c.name || ' ' || c.type FROM sqlite_schema m, pragma_table_info(m.name) c ORDER BY \
               m.name, c.name";
    let mut statement = db.prepare(sql).unwrap();
    statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap().map(Result::unwrap).collect()
}

pub(super) fn tables_of_a_new_file() -> Vec<(String, String)> {
    let dir = tempfile::tempdir().unwrap();
    drop(open(dir.path()));
    tables(&dir.path().join("controller.db"))
}
