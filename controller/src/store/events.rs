//! Reader of event logs: a read-only connection beside the writer's connection; WAL allows both at once.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use perilog_core::{Event, JobId};
use rusqlite::{Connection, OpenFlags, params};

use super::StoreError;

/// Maximum number of bytes of contexts in a read: an event that lists the hosts of a large job has hundreds of KiB.
const BYTES: usize = 256 * 1024;

/// An event with its sequence number in the job's log.
pub type Numbered = (u64, Event);

/// Reader of events; cheap to clone. Reads take turns, each as short as its limit.
#[derive(Debug, Clone)]
pub struct EventReader {
    db: Arc<Mutex<Connection>>,
}

impl EventReader {
    /// Opens a read-only connection to the store at `path`.
    ///
    /// # Errors
    /// [`StoreError`] if the store does not exist.
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
    /// [`StoreError`] if the file cannot be read.
    pub fn events(&self, job: &JobId, after: u64, limit: usize) -> Result<Vec<Numbered>, StoreError> {
        let db = self.db.lock().unwrap_or_else(PoisonError::into_inner);
        let mut statement = db.prepare_cached(
            "SELECT sequence, timestamp, name, context FROM events WHERE job = ?1 AND sequence > ?2 ORDER BY sequence LIMIT ?3",
        )?;
        let after = i64::try_from(after).unwrap_or(i64::MAX);
        let rows =
            statement.query_map(params![job.as_str(), after, i64::try_from(limit).unwrap_or(i64::MAX)], |row| {
                Ok((
                    row.get::<_, i64>(0)?,
                    row.get::<_, f64>(1)?,
                    row.get::<_, String>(2)?,
                    row.get::<_, Option<String>>(3)?,
                ))
            })?;
        let mut events = Vec::new();
        let mut bytes = 0;
        for row in rows {
            let (sequence, timestamp, name, context) = row?;
            let wrong = |what: &str| StoreError::Other(format!("table events, job {job}, sequence {sequence}: {what}"));
            bytes += context.as_ref().map_or(0, String::len);
            if bytes > BYTES && !events.is_empty() {
                break;
            }
            let context =
                context.map(|text| serde_json::from_str(&text)).transpose().map_err(|e| wrong(&e.to_string()))?;
            let event =
                Event::new(timestamp, name, context).ok_or_else(|| wrong("its timestamp is no RFC 18 timestamp"))?;
            events.push((u64::try_from(sequence).map_err(|_| wrong("below zero"))?, event));
        }
        Ok(events)
    }
}
