//! Tests of the order of all events: pages, restarts, restored copies, an older store.

use std::os::unix::fs::PermissionsExt as _;

use super::versions::{tables, tables_of_a_new_file, undo_version_12};
use super::*;

fn reader(dir: &Path) -> EventReader {
    EventReader::open(&dir.join("controller.db")).unwrap()
}

/// Writes a commit with events; `jobs`: the job and sequence number of each.
fn write(store: &mut Store, number: u64, jobs: &[(u8, u64)]) {
    let events = jobs.iter().map(|(n, sequence)| event(&job(*n), *sequence));
    store.commit(&[vec![Record::Commit(number)], events.collect()].concat()).unwrap();
}

fn begin(store: &mut Store, number: u64, epoch: u64, nonce: u64) {
    store.commit(&[Record::Commit(number), Record::Epoch(Epoch { number: epoch, nonce })]).unwrap();
}

/// Reads all events past `after` in pages of at most `limit`. Returns each event as its job and sequence number, and as
/// the text of its [`Spot`]. Each page but the first begins after the spot that this text gives when parsed.
fn read(reader: &EventReader, after: Option<&str>, limit: usize) -> Vec<(String, String)> {
    let mut all: Vec<(String, String)> = Vec::new();
    let mut after: Option<Spot> = after.map(|spot| spot.parse().unwrap());
    loop {
        let page = reader.all(after.as_ref(), limit).unwrap().expect("the store has the spot");
        let Some(last) = page.last() else { return all };
        after = Some(last.spot.to_string().parse().unwrap());
        assert_eq!(after.as_ref(), Some(&last.spot));
        all.extend(page.iter().map(|one| (format!("{} {}", one.job, one.sequence), one.spot.to_string())));
    }
}

#[test]
fn all_events_come_in_the_order_of_commits() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = open(dir.path());
    begin(&mut store, 1, 1, 0xa);
    write(&mut store, 2, &[(2, 1), (1, 1), (2, 2)]);
    begin(&mut store, 3, 2, 0xb);
    write(&mut store, 4, &[(1, 2)]);
    let reader = reader(dir.path());
    let expect = [
        ("f1 1", "1-000000000000000a:2:f1:1"),
        ("f2 1", "1-000000000000000a:2:f2:1"),
        ("f2 2", "1-000000000000000a:2:f2:2"),
        ("f1 2", "2-000000000000000b:4:f1:2"),
    ]
    .map(|(event, spot)| (event.to_owned(), spot.to_owned()));
    for limit in 1..=5 {
        assert_eq!(read(&reader, None, limit), expect, "{limit}");
        for (already, (_, spot)) in expect.iter().enumerate() {
            assert_eq!(read(&reader, Some(spot), limit), expect[already + 1..], "{limit} {spot}");
        }
    }
    assert_eq!(read(&reader, Some("1-000000000000000a:2"), 9), expect[3..], "after a whole commit");
    assert_eq!(reader.newest().unwrap().to_string(), "2-000000000000000b:4");
    // From the back: the newest events alone.
    for (last, since_ms, from) in [
        (Some(0), None, 4),
        (Some(1), None, 3),
        (Some(3), None, 1),
        (Some(4), None, 0),
        (Some(9), None, 0),
        (None, Some(0), 0),
        (None, Some(u64::MAX), 4),
        (Some(2), Some(0), 2),
        (None, None, 0),
    ] {
        let spot = reader.before_newest(last, since_ms).unwrap().map(|spot| spot.to_string());
        assert_eq!(read(&reader, spot.as_deref(), 9), expect[from..], "{last:?} {since_ms:?}");
    }
    let plan = crate::store::order::plan(&store.db);
    assert!(plan.starts_with("SEARCH events USING INDEX events_in_order"), "no page walks the log: {plan}");
}

#[test]
fn a_spot_of_lost_commits_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = open(dir.path());
    begin(&mut store, 1, 1, 0xa);
    write(&mut store, 2, &[(1, 1)]);
    // An older copy of this store was restored, and its controller began an epoch of the same number.
    begin(&mut store, 3, 2, 0xc);
    write(&mut store, 4, &[(1, 2)]);
    let reader = reader(dir.path());
    for (spot, known) in [
        ("1-000000000000000a:2:f1:1", true),
        ("1-000000000000000a:3:f1:2", false),
        ("2-000000000000000b:4:f1:2", false),
        ("2-000000000000000c:4:f1:2", true),
        ("2-000000000000000c:5", false),
    ] {
        assert_eq!(reader.all(Some(&spot.parse().unwrap()), 9).unwrap().is_some(), known, "{spot}");
    }
    for text in ["", "now", "7", "1-a", "1-x:2", "1-a:2:f1", "1-a:2:f 1:1", "1-a:2:f1:1:1"] {
        assert!(text.parse::<Spot>().unwrap_err().to_string().contains("malformed position"), "{text}");
    }
}

#[test]
fn events_of_a_store_of_the_version_before_come_first() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = open(dir.path());
    begin(&mut store, 1, 1, 0xa);
    write(&mut store, 2, &[(2, 1)]);
    write(&mut store, 3, &[(1, 1)]);
    drop(store);
    let db = Connection::open(dir.path().join("controller.db")).unwrap();
    undo_version_12(&db);
    db.execute_batch(
        "DROP INDEX outbox_by_attempt; DROP INDEX actions_by_begin; ALTER TABLE steps DROP COLUMN host;
         DROP INDEX events_in_order;
         ALTER TABLE events DROP COLUMN written;
         ALTER TABLE attempts RENAME COLUMN abandoned TO unvouched;
         ALTER TABLE attempts DROP COLUMN silent;
         ALTER TABLE attempts ADD COLUMN disowned TEXT NOT NULL DEFAULT '';
         ALTER TABLE attempts ADD COLUMN by_hand INTEGER NOT NULL DEFAULT 0;
         ALTER TABLE actions ADD COLUMN unvouched INTEGER NOT NULL DEFAULT 0;
         ALTER TABLE drains RENAME COLUMN doubtful TO unvouched;
         PRAGMA user_version = 8",
    )
    .unwrap();
    drop(db);
    let mut store = open(dir.path());
    let kept = dir.path().join("controller.db-version-8");
    let copy = Connection::open(&kept).unwrap();
    assert_eq!(copy.pragma_query_value(None, "user_version", |row| row.get::<_, i64>(0)).unwrap(), 8);
    assert_eq!(copy.query_row("SELECT count(*) FROM events", [], |row| row.get::<_, i64>(0)).unwrap(), 2);
    assert_eq!(std::fs::metadata(&kept).unwrap().permissions().mode() & 0o777, 0o600);
    backup::check(&kept).unwrap();
    begin(&mut store, 4, 2, 0xb);
    write(&mut store, 5, &[(1, 2)]);
    let all = read(&reader(dir.path()), None, 9);
    let spots = ["1-000000000000000a:3:f1:1", "1-000000000000000a:3:f2:1", "2-000000000000000b:5:f1:2"];
    assert_eq!(all.iter().map(|(_, spot)| spot.as_str()).collect::<Vec<_>>(), spots);
    assert_eq!(tables(&dir.path().join("controller.db")), tables_of_a_new_file());
}
