//! Copies the store while the controller writes, by SQLite's online backup. The copy is of one moment, is checked, and
//! has no log beside it.
//!
//! The controller makes the copy beside the store, where it may write; on return the copy has no name. SQLite copies in
//! one step: the writer goes on meanwhile (WAL), and the copy contains no later page.

use std::fs::{self, File};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use perilog_host::clock;
use rusqlite::backup::{Backup, StepResult};
use rusqlite::{Connection, OpenFlags};
use rustix::fs::statvfs;

use super::{OpenError, StoreError, load, log, place, reserve, schema};

/// Copies the store. Returns the copy as an open file without a name, at its beginning, and the copy's size in bytes.
/// Blocks for as long as the disk needs.
///
/// # Errors
/// [`StoreError`]: the disk beside the store has no room or fails, another program locks the store, or the store is
/// unreadable, damaged or has triggers or views.
pub fn backup(store: &Path) -> Result<(File, u64), StoreError> {
    let path = place::beside(store, "copying");
    let made = copy_beside(store, &path);
    let _ = fs::remove_file(&path);
    let file = made?;
    let size = file.metadata().map_err(|error| other(&error))?.len();
    Ok((file, size))
}

fn other(error: &dyn std::fmt::Display) -> StoreError {
    StoreError::Other(format!("no copy can be made: {error}"))
}

/// Copies the store to the file `to` beside it, and replaces a file that a killed controller left there.
fn copy_beside(store: &Path, to: &Path) -> Result<File, StoreError> {
    let size = fs::metadata(store).map_err(|error| other(&error))?.len();
    let found = statvfs(super::directory(store)).map_err(|error| other(&error))?;
    let free = found.f_bavail.saturating_mul(found.f_frsize);
    // With less free room, the copy would fill the disk and use up the reserve.
    let needed = size.saturating_add(reserve::ROOM);
    if free < needed {
        return Err(other(&format!("{needed} bytes must be free beside the store, and only {free} are")));
    }
    let _ = fs::remove_file(to);
    copy(store, to)?;
    File::open(to).map_err(|error| other(&error))
}

/// SQL that makes the table `stamp` in a copy of a store of an earlier version, as the schema has it. A row of this
/// table marks a store as a copy.
const STAMPS: &str = "CREATE TABLE IF NOT EXISTS stamp (made_ms INTEGER NOT NULL) STRICT";

fn copy(store: &Path, to: &Path) -> Result<(), StoreError> {
    place::create_private(to).map_err(|error| StoreError::Other(format!("no copy can be made: {error}")))?;
    let from = open(store, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
    from.busy_timeout(std::time::Duration::from_millis(super::BUSY_MS.into()))?;
    let mut to = open(to, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    {
        let backup = Backup::new(&from, &mut to)?;
        match backup.step(-1)? {
            StepResult::Done => {}
            step => {
                let text = format!("no copy can be made: the store is locked by another program ({step:?})");
                return Err(StoreError::Other(text));
            }
        }
    }
    stamp(&to)
}

/// Stamps a copy, and checks it: a controller recognises a store with a stamp as behind.
fn stamp(copy: &Connection) -> Result<(), StoreError> {
    // The first write fires no trigger, because there is none.
    schema::check_kinds(copy).map_err(|error| StoreError::Other(error.to_string()))?;
    // The copy is one file without a log beside it: an operator could forget the log.
    copy.pragma_update_and_check(None, "journal_mode", "DELETE", |_| Ok(()))?;
    let now = i64::try_from(clock::wall_ms()).unwrap_or(i64::MAX);
    // A store of an earlier version has no table.
    copy.execute_batch(STAMPS)?;
    copy.execute("INSERT INTO stamp (made_ms) SELECT ?1 WHERE NOT EXISTS (SELECT 1 FROM stamp)", [now])?;
    is_whole(copy)?.map_or(Ok(()), |wrong| {
        Err(StoreError::Other(format!("the copy is damaged, and the store may be damaged too: {wrong}")))
    })
}

/// Keeps a copy of a store of an earlier version beside the store, before its tables are migrated: an earlier release
/// can start with the copy. Does nothing for a store of this version. Replaces the copy that a start made which was cut
/// off.
///
/// # Errors
/// [`OpenError::NotKept`]: the store cannot be copied, for example because the disk has no room. Another error: the
/// store's version cannot be read. The store is as it was.
pub(super) fn keep(db: &Connection, store: &Path) -> Result<(), OpenError> {
    let Some(version) = schema::earlier(db)? else { return Ok(()) };
    let kept = place::beside(store, &format!("version-{version}"));
    let made = place::beside(store, "copying");
    let keep = || -> Result<(), StoreError> {
        copy_beside(store, &made)?.sync_all().map_err(|error| other(&error))?;
        fs::rename(&made, &kept).map_err(|error| other(&error))?;
        log::sync_names(store).map_err(|error| other(&error))
    };
    keep().map_err(|why| {
        let _ = fs::remove_file(&made);
        OpenError::NotKept { path: store.to_owned(), why: why.to_string() }
    })?;
    tracing::info!(
        "{}: an earlier release wrote this store; the store is migrated now, and {} is a copy of it",
        store.display(),
        kept.display()
    );
    Ok(())
}

/// Finishes a copy at `to` that the controller is to start with: stamps it, migrates it, and reads all of its rows.
pub(super) fn complete(to: &Path) -> Result<(), StoreError> {
    stamp(&open(to, OpenFlags::SQLITE_OPEN_READ_WRITE)?)?;
    try_out(to)
}

/// Copies a store, or a copy of a store, to the new file `to`, with the transactions that are only in its write-ahead
/// log. The copy is stamped: a controller that starts with it is in recovery. The copy gets the tables of this version,
/// and all of its rows are read once: a controller can start with it.
///
/// # Errors
/// [`StoreError`]: `to` exists, and stays as it is, or cannot be made; or no controller could start with the copy, or
/// the store or the disk failed, and no `to` is left.
pub fn install(store: &Path, to: &Path) -> Result<(), StoreError> {
    let made = File::options().write(true).create_new(true).mode(0o600).open(to);
    made.map_err(|error| StoreError::Other(format!("cannot make the copy: {error}")))?;
    copy(store, to).and_then(|()| try_out(to)).inspect_err(|_| drop(fs::remove_file(to)))
}

/// Migrates the copy at `path` to the tables of this version, and reads all of its rows.
fn try_out(path: &Path) -> Result<(), StoreError> {
    let mut db = open(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    let unlike = |error: OpenError| StoreError::Other(format!("its tables are not those of its version: {error}"));
    schema::prepare(&mut db).map_err(unlike)?;
    schema::check_objects(&db).map_err(unlike)?;
    load::snapshot(&db).map(drop)
}

/// Opens a file that may come from a stranger: no function or virtual table of SQLite that has effects outside of the
/// database works in the file's own definitions.
fn open(path: &Path, access: OpenFlags) -> rusqlite::Result<Connection> {
    let db = Connection::open_with_flags(path, access | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    db.pragma_update(None, "trusted_schema", false)?;
    Ok(db)
}

/// Checks that a file is a complete store, of this version or an earlier one, and nothing but tables and indexes.
///
/// # Errors
/// [`OpenError::Place`]: the file cannot be examined. [`OpenError::Foreign`], [`OpenError::Version`]: the file is of
/// another program or of a later release. [`OpenError::Damaged`]: it is damaged, or has triggers or views.
/// [`OpenError::Sqlite`]: SQLite cannot read it.
pub fn check(store: &Path) -> Result<(), OpenError> {
    // Without this check, SQLite would create a journal beside the path, or wait for one.
    fs::metadata(store).map_err(|source| OpenError::Place { path: store.to_owned(), source })?;
    let db = open(store, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
    match schema::check(&db) {
        // Opening the file will migrate its tables.
        Err(OpenError::Version { found, ours }) if found < ours => {}
        checked => checked?,
    }
    schema::check_kinds(&db)?;
    is_whole(&db)?.map_or(Ok(()), |wrong| Err(OpenError::Damaged(wrong)))
}

/// Returns the problem that SQLite's quick check finds in the database; `None` if the database is whole.
fn is_whole(db: &Connection) -> rusqlite::Result<Option<String>> {
    let verdict: String = db.query_row("PRAGMA quick_check", [], |row| row.get(0))?;
    Ok((verdict != "ok").then_some(verdict))
}
