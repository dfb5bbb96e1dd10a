//! Durable store: one SQLite file, written by one thread, in one transaction per batch.
//!
//! WAL with `synchronous=FULL`: a batch for which [`Durable::commit`] returned survives kill -9 and a power cut. The
//! store applies the records of a batch in order and whole, or not at all. `perilog_core::controller::Snapshot::apply`
//! defines the meaning of the records, and tests compare the store with that function.
//!
//! | module | contents |
//! |---|---|
//! | `schema` | the tables |
//! | `write` | records to rows |
//! | `steps` | durations of scripts, for people; a full disk drops them first |
//! | `timings`, `skew`, `walk` | durations, read, summed up and compared |
//! | `jobs` | the newest actions, for a list |
//! | `load` | rows to a snapshot |
//! | `part` | what a start loads, and the jobs that a batch needs |
//! | `log` | the write-ahead log on a disk that can fail |
//! | `search` | when a store is searched for damage, and the search beside the controller |
//! | `rebuild` | a damaged store at a start |
//! | `events` | a second, read-only connection for the API's event logs |
//! | `order` | the order of all events, over all jobs |
//! | `export`, `backup` | connections of their own, for the whole store as lines or as a file |
//! | `copied` | when a copy was last put on a disk |
//! | `anchor` | the newest commit, in a file beside the store |
//! | `host` | the host whose controller used the store last, in a file beside the store |
//! | `place`, `reserve` | file systems, the lock, the reserve for a full disk |

mod anchor;
mod backup;
mod copied;
mod error;
mod events;
mod export;
mod host;
mod jobs;
mod load;
mod log;
mod order;
mod part;
mod place;
mod rebuild;
mod reserve;
mod schema;
mod search;
mod skew;
mod steps;
#[cfg(test)]
mod tests;
mod timings;
mod walk;
mod write;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use perilog_core::controller::io::Fetched;
use perilog_core::controller::{Holding, Needs, Record, Snapshot};
use perilog_core::{Commit, defect};
use rusqlite::{Connection, OpenFlags, TransactionBehavior};

pub use backup::{backup, check, install};
pub(crate) use copied::{last_copy, note_copy};
pub use error::{OpenError, StoreError};
pub use events::{EventReader, Numbered};
pub use export::{Exporter, Wanted, head as export_head};
pub use jobs::{Listed, Newest};
pub(crate) use order::{Ordered, Spot};
pub use search::Search;
pub use skew::Skew;
pub use steps::Ran;
pub use timings::{Page, Pending, Place, Since, StepReader, Which};

use anchor::Anchor;
use host::Host;
use place::Lock;
use reserve::Reserve;
use search::When;
use steps::Known;

/// Number of prepared statements to keep: more than the writer uses.
const STATEMENTS: usize = 64;
/// Size in KiB of the writer's page cache; a batch touches few pages.
const CACHE_KIB: i64 = 8 * 1024;
/// Size in bytes to which a checkpoint cuts the file of the write-ahead log; a burst makes the file larger.
const LOG_LIMIT: i64 = 64 * 1024 * 1024;
/// Time in milliseconds to wait for a lock of the store: an operator with sqlite3(1) may hold a lock for a moment.
const BUSY_MS: u32 = 5_000;

/// Operations of a store that the writer needs.
pub trait Durable {
    /// Loads the whole store.
    fn load(&mut self) -> Result<Snapshot, StoreError>;

    /// Loads what a start needs ([`Snapshot::without_ended`]), or more.
    fn load_open(&mut self, holding: Holding) -> Result<Snapshot, StoreError>;

    /// Loads the jobs that a batch needs ([`Snapshot::fetch`]).
    fn fetch(&mut self, needs: &Needs) -> Result<Fetched, StoreError>;

    /// Applies `records` in order, all or none, and stores the durations in `ran`. On return the records are on disk.
    ///
    /// Removes from `ran` every duration that this call has not stored: those that the store had already, and those
    /// that fit no action or host of the store. If a full disk had room only for the records, `ran` is empty.
    fn commit_with(&mut self, records: &[Record], ran: &mut Vec<Ran>) -> Result<(), StoreError>;

    fn commit(&mut self, records: &[Record]) -> Result<(), StoreError> {
        self.commit_with(records, &mut Vec::new())
    }

    /// Writes the newest commit to the anchor beside the store, once the commit's records are on the disk.
    fn anchor(&mut self, newest: Commit);

    /// Returns `true` while the disk is full and the reserve is in use, so that no new prolog may begin. Also checks
    /// whether the disk has room again, and then restores the reserve.
    fn is_full(&mut self) -> bool;
}

#[derive(Debug)]
pub struct Store {
    path: PathBuf,
    db: Connection,
    reserve: Reserve,
    anchor: Anchor,
    host: Host,
    known: Known,
    lock: Lock,
    /// Whether the store is still to be searched for damage beside the controller.
    is_unsearched: Arc<AtomicBool>,
}

impl Store {
    /// Opens the store at `path`, and creates a missing store.
    ///
    /// # Errors
    /// [`OpenError`]: the directory is missing, or on a network file system; another controller uses the store; the
    /// file is of another program, or of a version that this release does not know; the store is damaged and cannot be
    /// rebuilt, or is of an earlier version and cannot be copied first; or the disk or SQLite fails.
    pub fn open(path: &Path) -> Result<Self, OpenError> {
        place::check_file_system(directory(path))?;
        let lock = place::lock(path)?;
        let mut reserve = Reserve::new(path);
        let (anchor, host) = (Anchor::open(path)?, Host::of(path));
        let mut when = search::when(path, &lock);
        loop {
            match open_whole(path, when == When::First).map_err(|error| error.at(path)) {
                // The store has been rebuilt: opens the new file.
                Ok(None) => when = When::Never,
                Ok(Some(db)) => {
                    match log::checkpoint(&db) {
                        // A full disk has no room for that, and the log is on the disk.
                        Err(error) if !reserve.disk_is_full() => return Err(OpenError::from(error).at(path)),
                        _ => log::sync_names(path)?,
                    }
                    search::trust(&lock);
                    let is_unsearched = Arc::new(AtomicBool::new(when == When::Beside));
                    let (path, known) = (path.to_owned(), Known::default());
                    return Ok(Self { path, db, reserve, anchor, host, known, lock, is_unsearched });
                }
                // SQLite needs a little room even to open its log.
                Err(_) if reserve.disk_is_full() && reserve.release() => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Returns the search for damage that is due beside the controller; `None`: none is due.
    pub fn search(&self) -> Option<Search> {
        if defect!(SearchSkipped) {
            return None;
        }
        self.is_unsearched.load(Ordering::Relaxed).then(|| Search::new(&self.path, self.is_unsearched.clone()))
    }

    /// Makes the next start search the store for damage before it reads a row.
    fn distrust(&self) {
        // With the log, the next start searches.
        log::keep(&self.db, true);
        self.lock.forget_note();
    }

    fn write(&mut self, records: &[Record], ran: &mut Vec<Ran>) -> rusqlite::Result<()> {
        let transaction = self.db.transaction_with_behavior(TransactionBehavior::Immediate)?;
        for record in records {
            write::apply(&transaction, record)?;
            if defect!(StoreCommitsEach) {
                transaction.execute_batch("COMMIT; BEGIN IMMEDIATE")?;
            }
        }
        self.known.write(&transaction, records, ran)?;
        transaction.commit()
    }

    /// Copies a long log to the store's file. A full disk may have no room for that, and the log grows meanwhile.
    fn shorten_log(&self) -> Result<(), StoreError> {
        match log::checkpoint_if_long(&self.db).map_err(|error| self.classify(error)) {
            Err(error @ StoreError::Other(_)) => {
                self.distrust();
                Err(error)
            }
            Ok(()) | Err(StoreError::Full) => Ok(()),
        }
    }

    /// Converts an error of SQLite. An I/O error on a full disk becomes [`StoreError::Full`], because SQLite does not
    /// always report a full disk as such.
    fn classify(&self, error: rusqlite::Error) -> StoreError {
        let io = matches!(
            error.sqlite_error_code(),
            Some(rusqlite::ErrorCode::SystemIoFailure | rusqlite::ErrorCode::CannotOpen)
        );
        if io && self.reserve.disk_is_full() {
            return StoreError::Full;
        }
        StoreError::from(error).at(&self.path)
    }
}

impl Durable for Store {
    fn load(&mut self) -> Result<Snapshot, StoreError> {
        let stored = load::snapshot(&self.db).inspect_err(|_| self.distrust());
        let stored = stored.map_err(|error| error.at(&self.path))?;
        Ok(Snapshot { anchor: self.anchor.read(), moved: self.host.has_moved(), ..stored })
    }

    fn load_open(&mut self, holding: Holding) -> Result<Snapshot, StoreError> {
        let stored = part::open(&self.db, holding).inspect_err(|_| self.distrust());
        let stored = stored.map_err(|error| error.at(&self.path))?;
        Ok(Snapshot { anchor: self.anchor.read(), moved: self.host.has_moved(), ..stored })
    }

    fn fetch(&mut self, needs: &Needs) -> Result<Fetched, StoreError> {
        let fetched = part::fetch(&self.db, needs).inspect_err(|_| self.distrust());
        fetched.map_err(|error| error.at(&self.path))
    }

    fn anchor(&mut self, newest: Commit) {
        self.anchor.write(newest);
    }

    fn commit_with(&mut self, records: &[Record], ran: &mut Vec<Ran>) -> Result<(), StoreError> {
        // The reserve is only for outcomes.
        if !self.reserve.is_held() {
            ran.clear();
        }
        loop {
            let tried = ran.len();
            let Err(error) = self.write(records, ran) else {
                self.host.note();
                return self.shorten_log();
            };
            self.known.forget();
            if rebuild::is_damage(&error) {
                self.distrust();
            }
            // SQLite rolled back the whole transaction. No outcome may be lost because of durations, so the next try
            // omits the durations.
            if tried > 0 {
                tracing::warn!(%error, "the run times of the scripts of {tried} tasks are not stored");
                ran.clear();
                continue;
            }
            match self.classify(error) {
                // Tries again with the reserve's room.
                StoreError::Full if self.reserve.release() => {}
                StoreError::Full => return Err(StoreError::Full),
                error => {
                    self.distrust();
                    return Err(error);
                }
            }
        }
    }

    fn is_full(&mut self) -> bool {
        !(self.reserve.is_held() || self.reserve.refill())
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        if defect!(SearchForgotten) {
            self.is_unsearched.store(false, Ordering::Relaxed);
        }
        if self.is_unsearched.load(Ordering::Relaxed) {
            // With the log, the next start searches.
            log::keep(&self.db, true);
        }
        log::end(&self.db);
    }
}

/// Opens the store with the tables of this version. `check`: looks for damage first. `None`: the store was damaged, and
/// has been rebuilt in a new file.
fn open_whole(path: &Path, check: bool) -> Result<Option<Connection>, OpenError> {
    let mut db = connect(path)?;
    let wrong = if check { rebuild::damage(&db)? } else { None };
    if let Some(wrong) = wrong {
        return rebuild::rebuild(db, path, &wrong).map(|()| None);
    }
    backup::keep(&db, path)?;
    schema::prepare(&mut db)?;
    Ok(Some(db))
}

fn connect(path: &Path) -> Result<Connection, OpenError> {
    place::create_private(path)?;
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut db = Connection::open_with_flags(path, flags)?;
    db.busy_timeout(Duration::from_millis(BUSY_MS.into()))?;
    log::begin(&db, path)?;
    db.pragma_update(None, "synchronous", "FULL")?;
    db.pragma_update(None, "cache_size", -CACHE_KIB)?;
    db.pragma_update(None, "journal_size_limit", LOG_LIMIT)?;
    // SQLite ignores the errors of its own checkpoints.
    db.pragma_update_and_check(None, "wal_autocheckpoint", 0, |_| Ok(()))?;
    db.set_prepared_statement_cache_capacity(STATEMENTS);
    log::renew(&mut db, path)?;
    Ok(db)
}

fn directory(path: &Path) -> &Path {
    path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or_else(|| Path::new("."))
}
