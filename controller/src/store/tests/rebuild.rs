//! A damaged store: found at a start, or beside the controller.

use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;

use super::*;

/// A store with events of many jobs, whose host was cut off: its log stays, and this boot is another.
fn cut_off(dir: &Path) {
    killed(dir);
    fs::write(dir.join("controller.db-lock"), "another boot").unwrap();
}

/// The same of a controller that was killed: its log stays.
fn killed(dir: &Path) {
    let mut store = open(dir);
    for n in 0..40 {
        let events: Vec<Record> = (1..=20).map(|sequence| event(&job(n), sequence)).collect();
        store.commit(&events).unwrap();
    }
    store.commit(&[Record::Attempt(attempt_row(job(1), 0..=1, "n[0-1]"))]).unwrap();
    log::keep(&store.db, true);
}

/// Overwrites the first page of the table or index.
fn damage(dir: &Path, name: &str) {
    let path = dir.join("controller.db");
    let at = place_of(dir, name);
    let file = File::options().write(true).open(path).unwrap();
    file.write_all_at(&[0x5a; 4096], at).unwrap();
}

/// Copies the log to the store's file, and leaves a log that SQLite takes for empty. Returns where the first page of
/// the table or index begins in the store's file.
fn place_of(dir: &Path, name: &str) -> u64 {
    let db = Connection::open(dir.join("controller.db")).unwrap();
    log::keep(&db, true);
    db.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
    let sql = "SELECT rootpage FROM sqlite_master WHERE name = ?1";
    let page: i64 = db.query_row(sql, [name], |row| row.get(0)).unwrap();
    drop(db);
    fs::write(dir.join("controller.db-wal"), "a killed controller leaves one").unwrap();
    (page as u64 - 1) * 4096
}

/// Returns the name of an index that an SQL statement of the schema makes.
fn an_index(dir: &Path) -> String {
    let db = Connection::open(dir.join("controller.db")).unwrap();
    log::keep(&db, true);
    let sql = "SELECT name FROM sqlite_master WHERE type = 'index' AND sql IS NOT NULL AND tbl_name = 'events'";
    db.query_row(sql, [], |row| row.get(0)).unwrap()
}

fn has_log(dir: &Path) -> bool {
    log::is_left(&dir.join("controller.db"))
}

fn kept(dir: &Path) -> usize {
    let names = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.contains("-damaged-")).count()
}

#[test]
fn a_store_whose_rows_can_all_be_read_is_rebuilt_and_may_be_behind() {
    let dir = tempfile::tempdir().unwrap();
    cut_off(dir.path());
    let before = open(dir.path()).load().unwrap();
    cut_off(dir.path());
    damage(dir.path(), &an_index(dir.path()));
    let mut store = open(dir.path());
    let after = store.load().unwrap();
    assert_eq!((after.attempts, before.stamp, kept(dir.path())), (before.attempts, None, 1));
    assert!(after.stamp.is_some(), "a controller enters recovery");
    assert_eq!(crate::store::rebuild::damage(&store.db).unwrap(), None);
    let events: u32 = store.db.query_row("SELECT COUNT(*) FROM events", [], |row| row.get(0)).unwrap();
    assert_eq!(events, 800);
    // The next start finds nothing.
    drop(store);
    open(dir.path());
    assert_eq!(kept(dir.path()), 1);
}

#[test]
fn a_store_with_an_unreadable_row_is_refused_and_left_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    cut_off(dir.path());
    damage(dir.path(), "events");
    let bytes = fs::read(dir.path().join("controller.db")).unwrap();
    for _ in 0..2 {
        let error = Store::open(&dir.path().join("controller.db")).unwrap_err().to_string();
        assert!(error.contains("controller.db: the store is damaged (") && error.contains("restore FILE"), "{error}");
    }
    assert!(fs::read(dir.path().join("controller.db")).unwrap() == bytes);
    assert_eq!(kept(dir.path()), 0);
    assert!(!dir.path().join("controller.db-rebuilding").exists());
}

/// After a clean end the log is gone, and the start reads no more than it needs.
#[test]
fn a_store_that_was_closed_is_not_checked() {
    let dir = tempfile::tempdir().unwrap();
    drop(open(dir.path()));
    assert!(!has_log(dir.path()));
    assert!(open(dir.path()).search().is_none());
    // An error keeps the log: the next start checks the store.
    let mut store = open(dir.path());
    store.db.execute_batch("DROP TABLE last_commit").unwrap();
    store.load().unwrap_err();
    drop(store);
    assert!(has_log(dir.path()));
}

/// SQLite removes the log when the last connection is closed. Here that is a reader's, which may not write.
#[test]
fn a_clean_end_beside_a_reader_is_known_at_the_next_start() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = open(dir.path());
    store.commit(&[event(&job(1), 1)]).unwrap();
    let reader = EventReader::open(&dir.path().join("controller.db")).unwrap();
    assert_eq!(reader.events(&job(1), 0, 9).unwrap().len(), 1);
    drop(store);
    assert!(!has_log(dir.path()));
    drop(reader);
    let store = open(dir.path());
    assert!(store.search().is_none() && kept(dir.path()) == 0);
    let reader = EventReader::open(&dir.path().join("controller.db")).unwrap();
    assert_eq!(reader.events(&job(1), 0, 9).unwrap().len(), 1);
}

/// A kill damages no file, so the new controller need not wait for a read of the whole file.
#[test]
fn a_killed_controllers_store_is_searched_beside_the_next_one() {
    let dir = tempfile::tempdir().unwrap();
    killed(dir.path());
    let store = open(dir.path());
    store.search().expect("a search is due").run().unwrap();
    drop(store);
    assert!(!has_log(dir.path()), "the store is whole");

    killed(dir.path());
    damage(dir.path(), &an_index(dir.path()));
    let store = open(dir.path());
    assert_eq!(kept(dir.path()), 0, "the start reads what it needs");
    let error = store.search().expect("a search is due").run().unwrap_err().to_string();
    assert!(error.contains("controller.db: the store is damaged (") && error.contains("Its next start"), "{error}");
    drop(store);
    let mut store = open(dir.path());
    assert!(store.load().unwrap().stamp.is_some(), "a controller enters recovery");
    assert_eq!(kept(dir.path()), 1);
}

#[test]
fn a_clean_end_before_the_search_is_over_leaves_the_log() {
    let dir = tempfile::tempdir().unwrap();
    for _ in 0..2 {
        killed(dir.path());
        drop(open(dir.path()));
        assert!(has_log(dir.path()));
        assert!(open(dir.path()).search().is_some(), "the next start searches");
    }
}

/// A power cut can leave a file that no process has left.
#[test]
fn after_a_cut_or_an_error_a_store_is_searched_first() {
    let dir = tempfile::tempdir().unwrap();
    cut_off(dir.path());
    damage(dir.path(), &an_index(dir.path()));
    assert!(open(dir.path()).search().is_none(), "the start has searched it");
    assert_eq!(kept(dir.path()), 1);

    let dir = tempfile::tempdir().unwrap();
    killed(dir.path());
    let mut store = open(dir.path());
    store.db.execute_batch("ALTER TABLE quiet RENAME TO noisy").unwrap();
    store.commit(&[Record::Quiet(None)]).unwrap_err();
    store.db.execute_batch("ALTER TABLE noisy RENAME TO quiet").unwrap();
    drop(store);
    damage(dir.path(), &an_index(dir.path()));
    drop(open(dir.path()));
    assert_eq!(kept(dir.path()), 1, "a start after an error searches it");
}

/// A page of a table that the disk never wrote is an old one, and reads well. The index of the table shows it.
#[test]
fn a_table_that_lacks_rows_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = open(dir.path());
    store.commit(&[event(&job(1), 1), event(&job(1), 2)]).unwrap();
    let at = place_of(dir.path(), "events");
    let file = File::options().read(true).write(true).open(dir.path().join("controller.db")).unwrap();
    let mut old = vec![0; 4096];
    file.read_exact_at(&mut old, at).unwrap();
    store.commit(&[event(&job(1), 3)]).unwrap();
    store.distrust();
    drop(store);
    assert_eq!(place_of(dir.path(), "events"), at);
    file.write_all_at(&old, at).unwrap();
    let error = Store::open(&dir.path().join("controller.db")).unwrap_err().to_string();
    assert!(error.contains("table events lacks rows that its index has"), "{error}");
}
