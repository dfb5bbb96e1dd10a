//! Export of all jobs in the store, a job at a time, as JSON objects (`perilog export`; docs/operate.md lists the
//! members).
//!
//! The export uses a read-only connection of its own: to the store of a running or stopped controller, or to a copy.

use std::collections::BTreeMap;
use std::path::Path;

use perilog_core::JobId;
use perilog_core::controller::io::ActionRow;
use perilog_core::ids::ActionId;
use rusqlite::{Connection, OpenFlags, OptionalExtension, params};
use serde_json::{Map, Value, json};

use super::events::EventReader;
use super::{OpenError, StoreError, load};

/// Version of the export. A developer raises the version when a member changes its meaning or disappears; new members
/// do not raise the version.
const SCHEMA: u32 = 1;
/// Maximum number of events that the export reads from the store at a time.
const PAGE: usize = 1_000;

/// Selects the jobs of an export. Times are milliseconds since 1970.
#[derive(Debug, Clone, Default)]
pub struct Wanted {
    pub job: Option<JobId>,
    /// Only jobs with a change at this time or later; `None`: also the oldest jobs.
    pub since_ms: Option<u64>,
    /// Only jobs whose first event is before this time; `None`: also the newest jobs.
    pub until_ms: Option<u64>,
}

#[derive(Debug)]
pub struct Exporter {
    db: Connection,
    events: EventReader,
    wanted: Wanted,
    last: String,
}

impl Exporter {
    /// Opens a read-only connection to the store at `path`; `wanted` selects the jobs.
    ///
    /// # Errors
    /// [`StoreError`]: the store does not exist, cannot be read, or is not of this version.
    pub fn open(path: &Path, wanted: Wanted) -> Result<Self, StoreError> {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let db = Connection::open_with_flags(path, flags)?;
        db.busy_timeout(std::time::Duration::from_millis(super::BUSY_MS.into()))?;
        super::schema::check(&db).map_err(|error| StoreError::Other(not_exported(&error)))?;
        Ok(Self { db, events: EventReader::open(path)?, wanted, last: String::new() })
    }

    /// Returns all lines of the next job, in the order of job ids; `None` after the last job. Blocks for the time of
    /// the queries.
    ///
    /// # Errors
    /// [`StoreError`]: the store cannot be read, or has a row that is malformed.
    pub fn next_job(&mut self) -> Result<Option<Vec<Value>>, StoreError> {
        const NEXT: &str = "
            SELECT job FROM attempts WHERE job > ?1 AND (?2 IS NULL OR job = ?2)
            GROUP BY job HAVING max(touched_ms) >= ?3
            AND (?4 IS NULL OR (SELECT timestamp FROM events WHERE events.job = attempts.job ORDER BY sequence LIMIT \
            1) * 1000 < ?4)
            ORDER BY job LIMIT 1";
        let number = |ms: u64| i64::try_from(ms).unwrap_or(i64::MAX);
        let Wanted { job, since_ms, until_ms } = &self.wanted;
        let filter =
            params![self.last, job.as_ref().map(JobId::as_str), since_ms.map_or(0, number), until_ms.map(number)];
        let Some(job) = self.db.query_row(NEXT, filter, |row| row.get::<_, String>(0)).optional()? else {
            return Ok(None);
        };
        self.last.clone_from(&job);
        let job: JobId = job.parse().map_err(|error| StoreError::Other(format!("table attempts: {error}")))?;
        self.job(&job).map(Some)
    }

    fn job(&self, job: &JobId) -> Result<Vec<Value>, StoreError> {
        // One read transaction: the whole job at one moment, except for concurrent events.
        let db = self.db.unchecked_transaction()?;
        let part = load::job(&db, job)?;
        let mut lines = vec![json!({ "kind": "job", "job": job, "attempts": part.attempts.len() })];
        let mut hosts = BTreeMap::new();
        for row in part.attempts {
            let names = row.ranks.iter().zip(row.hosts.iter().map(str::to_owned));
            hosts.insert(row.attempt, names.collect::<BTreeMap<u32, String>>());
            lines.push(json!({
                "kind": "attempt", "job": row.job, "attempt": row.attempt, "ranks": row.ranks, "hosts": row.hosts,
                "userid": row.userid,
                "open": row.open, "touched_ms": row.touched_ms, "added": row.added, "hold": row.hold,
                "released": row.released,
                "complete": row.complete,
            }));
        }
        let actions: BTreeMap<ActionId, &ActionRow> = part.actions.iter().map(|row| (row.id, row)).collect();
        for row in &part.actions {
            lines.push(json!({
                "kind": "action", "job": row.job, "attempt": row.attempt, "action": row.name, "id": row.id,
                "ranks": row.ranks,
                "external": row.external.is_some(), "timeout_ms": row.timeout_ms, "began_ms": row.began_ms,
                "ended_ms": row.ended_ms,
                "verdict": row.verdict, "waiting": row.waiting, "sent": row.sent, "accepted": row.accepted,
                "ok": row.ok,
                "ended": row.not_ok, "cancelling": row.cancelling,
            }));
        }
        for row in part.ranks {
            let Some(action) = actions.get(&row.task.action) else { continue };
            let host = hosts.get(&action.attempt).and_then(|hosts| hosts.get(&row.task.rank.0));
            lines.push(json!({
                "kind": "rank", "job": job, "attempt": action.attempt, "action": action.name, "rank": row.task.rank,
                "host": host,
                "ended": row.ended, "late": row.late,
            }));
        }
        drop(db);
        let mut after = 0;
        loop {
            let page = self.events.events(job, after, PAGE)?;
            let Some((last, _)) = page.last() else { return Ok(lines) };
            after = *last;
            lines.extend(page.iter().map(|(sequence, event)| {
                let context = event.context().cloned().unwrap_or_else(Map::new);
                json!({
                    "kind": "event", "job": job, "sequence": sequence, "timestamp": event.timestamp(),
                    "name": event.name(),
                    "context": context,
                })
            }));
        }
    }
}

/// Returns the reason why a file cannot be exported. The remedy for a store of an earlier version is another than that
/// of a controller, which migrates it.
fn not_exported(error: &OpenError) -> String {
    match error {
        OpenError::Version { found, ours } if found < ours => format!(
            "its tables are of version {found}, and this release exports only version {ours}: export a migrated copy \
             (perilog-controller --check-store FILE --copy-to NEW)"
        ),
        error => error.to_string(),
    }
}

/// Returns the first line of an export, which has the version of the format of all other lines.
pub fn head(now_ms: u64) -> Value {
    json!({ "kind": "export", "schema": SCHEMA, "release": env!("CARGO_PKG_VERSION"), "at_ms": now_ms })
}

#[cfg(test)]
mod tests {
    use super::super::{Durable, Store};
    use super::*;

    /// Regression test: the text about a store of an earlier version advised to use a newer release.
    #[test]
    fn a_store_of_an_earlier_version_is_named_with_the_remedy() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("controller.db");
        Store::open(&path).unwrap().commit(&[]).unwrap();
        Connection::open(&path).unwrap().execute_batch("PRAGMA user_version = 13").unwrap();
        let error = Exporter::open(&path, Wanted::default()).unwrap_err().to_string();
        assert!(error.contains("are of version 13") && error.contains("--copy-to"), "{error}");
    }
}
