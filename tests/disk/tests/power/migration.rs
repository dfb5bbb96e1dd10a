//! Power cuts within the migration of a store of an earlier release: the store is that of one release or the other, and
//! as soon as it is the new one, a whole copy of the old one is beside it.

use std::path::Path;

use perilog_controller::store::check;
use perilog_disk::disk::Disk;
use perilog_disk::image::Image;
use perilog_disk::power::Cut;
use perilog_disk::record::{self, Entry};
use rusqlite::Connection;
use rustix::process::Signal;

use crate::controller::{Place, RUN, examine_all, starts};
use crate::{cuts, image};

/// Number of power cuts: each moment of the migration, several times. The real controller starts after some of them.
const CUTS: usize = 300;
const EACH: usize = 15;

/// Version of the tables that the earlier release knows, and the copy that a migration keeps.
const EARLIER: i64 = 12;
const COPY: &str = "controller.db-version-12";

/// Takes what the versions 13 and 14 changed out of a store.
const DOWN: &str = "
    ALTER TABLE epochs RENAME TO lives;
    ALTER TABLE action_deltas RENAME COLUMN delta TO stands; ALTER TABLE action_deltas RENAME TO moved;
    ALTER TABLE attempt_deltas RENAME COLUMN delta TO holds; ALTER TABLE attempt_deltas RENAME TO given;
    ALTER TABLE drains RENAME COLUMN notified TO told; ALTER TABLE drains RENAME COLUMN notice_id TO telling;
    UPDATE events SET name = 'job-let-go' WHERE name = 'job-hand-over';
    PRAGMA user_version = 12; PRAGMA wal_checkpoint(TRUNCATE)";

/// Returns the disk of the recorded controller, with the store as an earlier release had it.
fn earlier() -> Image {
    let dir = crate::in_memory();
    Image::read(&RUN.place.recorded.directory).unwrap().write(dir.path()).unwrap();
    Connection::open(dir.path().join("controller.db")).unwrap().execute_batch(DOWN).unwrap();
    Image::read(dir.path()).unwrap()
}

fn version(store: &Path) -> i64 {
    Connection::open(store).unwrap().pragma_query_value(None, "user_version", |row| row.get(0)).unwrap()
}

/// Returns what is wrong with the copy of the earlier store; `None` also if the store is not migrated.
fn copy_problem(image: &Image) -> Option<String> {
    let dir = crate::in_memory();
    image.write(dir.path()).unwrap();
    if version(&dir.path().join("controller.db")) == EARLIER {
        return None;
    }
    let copy = dir.path().join(COPY);
    match check(&copy) {
        Ok(()) if version(&copy) == EARLIER => None,
        Ok(()) => Some(format!("the copy has version {}", version(&copy))),
        Err(error) => Some(format!("the copy: {error}")),
    }
}

#[test]
fn a_cut_within_a_migration_leaves_one_store_or_the_other() {
    let entries = record::read(&RUN.record).unwrap();
    let acknowledged = entries.iter().filter_map(|entry| match entry {
        Entry::Acknowledged { what } => Some(*what),
        _ => None,
    });
    let acknowledged: Vec<&str> = acknowledged.collect();
    let before = earlier();
    let mut place = Place::new();
    before.write(&place.recorded.directory).unwrap();
    let controller = place.start();
    controller.log.wait_for("an earlier release wrote this store");
    controller.signal(Signal::TERM);
    assert_eq!(controller.terminated().code(), Some(0));
    let record = std::fs::read(&place.recorded.record).unwrap();
    let entries = record::read(&record).unwrap();
    // From the first call up to the names of the migrated store's files, and somewhat beyond.
    let moments: Vec<usize> = (0..cuts(CUTS)).map(|number| number % (entries.len() + 1)).collect();
    let mut bad = Vec::new();
    for (seed, moments) in (1..).zip(moments.chunk_by(|a, b| a < b)) {
        let disk = Disk::with(seed, &before);
        bad.extend(examine_all(disk, &entries, seed, moments, |number, cut| {
            let cut = Cut { acknowledged: acknowledged.clone(), image: cut.image.clone(), ..*cut };
            let after = if number % EACH == 0 { starts(&cut) } else { image::problem(&cut) };
            copy_problem(&cut.image).or(after)
        }));
    }
    eprintln!("{} calls; {} images, {} bad", entries.len(), moments.len(), bad.len());
    assert!(bad.is_empty(), "{} of {} images are bad:\n{}", bad.len(), moments.len(), bad.join("\n"));
}
