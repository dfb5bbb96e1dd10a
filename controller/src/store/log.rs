//! The write-ahead log on a disk that can fail.
//!
//! After a failed fsync the kernel calls the pages clean, and never writes them. A later process reads them from the
//! page cache as if they were on the disk. So two rules hold:
//!
//! * A start writes the log's bytes again, before anything is appended or copied to the store's file ([`renew`]).
//!   Otherwise a power cut ends the log where those pages were, and loses all later batches.
//! * A checkpoint that fails ends the process, and the log stays ([`checkpoint_if_long`]). SQLite copies a part of the
//!   log without a sync while a connection reads, and the next checkpoint begins behind that part. A sync that fails
//!   then loses the part, unless the next process copies the whole log.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use perilog_core::defect;
use rusqlite::config::DbConfig;
use rusqlite::{Connection, TransactionBehavior};

use super::{OpenError, directory, place};

/// Number of pages in the log from which on a checkpoint copies them to the store's file; SQLite's own default.
const LONG: i64 = 1_000;
/// Number of bytes to write at a time.
const PIECE: usize = 1024 * 1024;

/// Switches the write-ahead log of the store on.
pub(super) fn begin(db: &Connection, store: &Path) -> Result<(), OpenError> {
    let mut statement = db.prepare("PRAGMA journal_mode = WAL")?;
    // SQLite names the new mode first, and then writes it to the file of a new store. That can fail.
    let modes: Vec<String> = statement.query_map([], |row| row.get(0))?.collect::<Result<_, _>>()?;
    match modes.into_iter().next() {
        Some(mode) if mode == "wal" => Ok(()),
        mode => Err(OpenError::NoLog { path: store.to_owned(), mode: mode.unwrap_or_default() }),
    }
}

/// Writes the log that an earlier process left again, with the same bytes at the same place, and syncs it. The lock of
/// SQLite's writers keeps other programs from appending meanwhile.
///
/// # Errors
/// [`OpenError::Log`]: the log cannot be read, or the disk does not take it. [`OpenError::Sqlite`]: SQLite does not
/// give the lock, for example because another program writes. The controller must not go on.
pub(super) fn renew(db: &mut Connection, store: &Path) -> Result<(), OpenError> {
    if defect!(LogNotRenewed) {
        return Ok(());
    }
    // Closing the connection copies the log, too.
    keep(db, true);
    let lock = db.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let path = place::beside(store, "wal");
    match rewrite(&path) {
        Err(source) if source.kind() != io::ErrorKind::NotFound => return Err(OpenError::Log { path, source }),
        _ => lock.rollback()?,
    }
    keep(db, false);
    Ok(())
}

fn rewrite(path: &Path) -> io::Result<()> {
    let file = File::options().read(true).write(true).open(path)?;
    let mut piece = vec![0; PIECE];
    let mut at = 0;
    loop {
        let read = file.read_at(&mut piece, at)?;
        if read == 0 {
            return file.sync_all();
        }
        file.write_all_at(&piece[..read], at)?;
        at += read as u64;
    }
}

/// Copies the log that an earlier process left to the store's file, and syncs the file. Copies only a part while
/// another connection reads an older state.
///
/// # Errors
/// An error of SQLite. After an error, closing `db` leaves the log in place.
pub(super) fn checkpoint(db: &Connection) -> rusqlite::Result<()> {
    if defect!(LogNotRenewed) {
        return Ok(());
    }
    copy(db)
}

fn copy(db: &Connection) -> rusqlite::Result<()> {
    db.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(())).inspect_err(|_| keep(db, true))
}

/// Copies the log to the store's file once the log is long.
///
/// # Errors
/// The errors of [`checkpoint`].
pub(super) fn checkpoint_if_long(db: &Connection) -> rusqlite::Result<()> {
    let pages: i64 =
        db.query_row("PRAGMA wal_checkpoint(NOOP)", [], |row| row.get(1)).inspect_err(|_| keep(db, true))?;
    if pages < LONG {
        return Ok(());
    }
    let copied = copy(db);
    if defect!(CheckpointErrorsIgnored) { Ok(()) } else { copied }
}

/// Copies the whole log to the store's file and empties the log, before `db` is closed. An empty log shows a clean end.
/// SQLite does the same when the last connection is closed, but readers may have one. Leaves a log that is to stay.
pub(super) fn end(db: &Connection) {
    if defect!(LogLeftToReaders) {
        return;
    }
    // SQLite refuses the question only of a connection that is closed.
    if db.db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE).unwrap_or(true) {
        return;
    }
    let is_busy: rusqlite::Result<bool> = db.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get(0));
    if is_busy.unwrap_or(true) {
        keep(db, true);
    }
}

/// Returns `true` if the store at `path` has a log with contents: its last controller did not end cleanly.
pub(super) fn is_left(path: &Path) -> bool {
    place::beside(path, "wal").metadata().is_ok_and(|log| log.len() > 0)
}

/// Sets whether the log stays when `db` is closed. Otherwise SQLite copies it to the store's file and removes it; the
/// copy omits what a failed checkpoint lost.
pub(super) fn keep(db: &Connection, keeps: bool) {
    // SQLite refuses the setting only of a connection that is closed.
    let _ = db.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, keeps);
}

/// Syncs the names of the store's files. SQLite ignores an error of that.
pub(super) fn sync_names(store: &Path) -> Result<(), OpenError> {
    let dir = directory(store);
    let synced = File::open(dir).and_then(|dir| dir.sync_all());
    synced.map_err(|source| OpenError::Place { path: dir.to_owned(), source })
}
