//! Reader of event logs: a read-only connection beside the writer's connection; WAL allows both at once.

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use perilog_core::{Event, JobId};
use rusqlite::{Connection, OpenFlags, Rows, params};

use super::StoreError;

/// Maximum size in bytes of all events in one page; a single event that lists the hosts of a large job may be longer.
const BYTES: usize = 48 * 1024;
/// Bytes of an event in a reply beside its context and its job's id: name, numbers, and the keys.
const BESIDE: usize = 192;

/// An event with its sequence number in the job's log.
pub type Numbered = (u64, Event);

/// Reader of event logs; cheap to clone. All clones share one connection, so reads run one after the other.
#[derive(Debug, Clone)]
pub struct EventReader {
    db: Arc<Mutex<Connection>>,
}

impl EventReader {
    /// Opens a read-only connection to the store at `path`.
    ///
    /// # Errors
    /// [`StoreError`]: the store does not exist or cannot be opened.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let db = Connection::open_with_flags(path, flags)?;
        db.busy_timeout(std::time::Duration::from_millis(super::BUSY_MS.into()))?;
        Ok(Self { db: Arc::new(Mutex::new(db)) })
    }

    /// Returns events of a job past `after`, in order: at most `limit`, fewer if they are large, at least one if one
    /// exists. Blocks for the time of a query.
    ///
    /// # Errors
    /// [`StoreError`]: the file cannot be read, or has a malformed row.
    pub fn events(&self, job: &JobId, after: u64, limit: usize) -> Result<Vec<Numbered>, StoreError> {
        let db = self.lock();
        let mut statement = db.prepare_cached(
            "SELECT job, sequence, timestamp, name, context, written FROM events
             WHERE job = ?1 AND sequence > ?2 ORDER BY sequence LIMIT ?3",
        )?;
        let rows = statement.query(params![job.as_str(), integer(after), integer(limit as u64)])?;
        Ok(page(rows)?.into_iter().map(|stored| (stored.sequence, stored.event)).collect())
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Connection> {
        self.db.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A row of the table `events`.
pub(super) struct Stored {
    pub(super) job: JobId,
    pub(super) sequence: u64,
    pub(super) event: Event,
    /// Number of the commit that wrote the event.
    pub(super) written: u64,
}

/// Reads rows until the events exceed [`BYTES`] together, but at least one row if there is one.
pub(super) fn page(mut rows: Rows<'_>) -> Result<Vec<Stored>, StoreError> {
    let mut page = Vec::new();
    let mut bytes = 0;
    while let Some(row) = rows.next()? {
        let (job, sequence): (String, i64) = (row.get(0)?, row.get(1)?);
        let wrong = |what: String| {
            let text = format!("it is damaged: event {sequence} of job {job}: {what}");
            StoreError::Other(format!("{text}. Restore a copy (perilog controller restore FILE)"))
        };
        let context: Option<String> = row.get(4)?;
        bytes += context.as_ref().map_or(0, String::len) + job.len() + BESIDE;
        if bytes > BYTES && !page.is_empty() {
            break;
        }
        let context = context.map(|text| serde_json::from_str(&text)).transpose().map_err(|e| wrong(e.to_string()))?;
        let event = Event::new(row.get(2)?, row.get::<_, String>(3)?, context)
            .ok_or_else(|| wrong("its timestamp is not valid (RFC 18)".to_owned()))?;
        let number = |number: i64| u64::try_from(number).map_err(|_| wrong("a number is below zero".to_owned()));
        page.push(Stored {
            job: job.parse().map_err(|error| wrong(format!("{error}")))?,
            sequence: number(sequence)?,
            event,
            written: number(row.get(5)?)?,
        });
    }
    Ok(page)
}

/// Converts a number to SQLite's signed 64-bit integer; a number that is too large becomes `i64::MAX`.
pub(super) fn integer(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
