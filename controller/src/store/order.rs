//! Order of all events, over all jobs: the order of their commits; within a commit by job and sequence.
//!
//! A [`Spot`], a position in this order, names an event by its commit, and the commit by the controller's epoch that
//! made it, so a spot is valid after a restart. A restored store lacks the newest commits of the store before. A reader
//! whose spot is in such a lost commit is refused, so that it neither misses an event nor reads an event twice.

use std::fmt;
use std::str::FromStr;

use perilog_core::ids::Epoch;
use perilog_core::mark::Place;
use perilog_core::{Commit, Event, History, JobId};
use rusqlite::params;

use super::events::{EventReader, integer, page};
use super::{StoreError, load};

/// A position in the order of all events: just after an event, or just after a whole commit. Its text is
/// `EPOCH-NONCE:COMMIT[:JOB:SEQUENCE]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Spot {
    commit: Commit,
    event: Option<(JobId, u64)>,
}

/// An event of a job's log, with its place ([`Spot`]) in the order of all events.
pub(crate) struct Ordered {
    pub(crate) spot: Spot,
    pub(crate) job: JobId,
    pub(crate) sequence: u64,
    pub(crate) event: Event,
}

impl EventReader {
    /// Returns events in the order of all events, from just after the position `after` (`None`: from the oldest event
    /// on). There are at most `limit` events, fewer if they are large, but at least one if one exists. Returns `None`
    /// if `after` is in a commit that the store never made. Blocks the thread for a query.
    ///
    /// # Errors
    /// [`StoreError`]: the file cannot be read, or has a malformed row.
    pub(crate) fn all(&self, after: Option<&Spot>, limit: usize) -> Result<Option<Vec<Ordered>>, StoreError> {
        let db = self.lock();
        let db = db.unchecked_transaction()?;
        let history = load::history(&db)?;
        if after.is_some_and(|spot| history.place(spot.commit) == Place::Foreign) {
            return Ok(None);
        }
        let (written, job, sequence) = after.map_or((-1, "", 0), Spot::key);
        let mut statement = db.prepare_cached(
            "SELECT job, sequence, timestamp, name, context, written FROM events
             WHERE (written, job, sequence) > (?1, ?2, ?3) ORDER BY written, job, sequence LIMIT ?4",
        )?;
        let rows = statement.query(params![written, job, sequence, integer(limit as u64)])?;
        let ordered = page(rows)?.into_iter().map(|stored| {
            let event = Some((stored.job.clone(), stored.sequence));
            let spot = Spot { commit: commit(&history, stored.written), event };
            Ordered { spot, job: stored.job, sequence: stored.sequence, event: stored.event }
        });
        Ok(Some(ordered.collect()))
    }

    /// Returns the position after which the newest events begin: at most the newest `last`, and only those with a time
    /// stamp of `since_ms` (milliseconds since 1970) or later. `None`: the selection has every event of the store.
    /// Walks the events from the newest on, in pages, and holds the reader for a page at a time.
    ///
    /// # Errors
    /// [`StoreError`]: the file cannot be read, or has a malformed row.
    pub(crate) fn before_newest(&self, last: Option<u64>, since_ms: Option<u64>) -> Result<Option<Spot>, StoreError> {
        let (mut count, mut before) = (0, (i64::MAX, String::new(), 0_i64));
        loop {
            let db = self.lock();
            let mut statement = db.prepare_cached(
                "SELECT written, job, sequence, timestamp FROM events WHERE (written, job, sequence) < (?1, ?2, ?3)
                 ORDER BY written DESC, job DESC, sequence DESC LIMIT ?4",
            )?;
            let mut rows = statement.query(params![before.0, before.1, before.2, WALKED])?;
            let mut walked = 0;
            while let Some(row) = rows.next()? {
                let timestamp: f64 = row.get(3)?;
                before = (row.get(0)?, row.get(1)?, row.get(2)?);
                if last == Some(count) || since_ms.is_some_and(|since_ms| timestamp * 1000.0 < since_ms as f64) {
                    let Ok(job) = before.1.parse() else { return Ok(None) };
                    let commit = commit(&load::history(&db)?, before.0.unsigned_abs());
                    return Ok(Some(Spot { commit, event: Some((job, before.2.unsigned_abs())) }));
                }
                (count, walked) = (count + 1, walked + 1);
            }
            if walked < WALKED {
                return Ok(None);
            }
        }
    }

    /// Returns the position just after the newest commit, for a reader who wants only later events.
    ///
    /// # Errors
    /// [`StoreError`]: the file cannot be read, or has a malformed row.
    pub(crate) fn newest(&self) -> Result<Spot, StoreError> {
        let history = load::history(&self.lock())?;
        Ok(Spot { commit: commit(&history, history.last), event: None })
    }
}

/// Number of events that [`EventReader::before_newest`] walks at a time.
const WALKED: i64 = 4096;

/// Returns the commit of this number, with its epoch; epoch 0 if the store has forgotten that epoch.
fn commit(history: &History, number: u64) -> Commit {
    let epoch_range = history.epochs.iter().rfind(|epoch_range| epoch_range.first <= number);
    Commit { epoch: epoch_range.map_or(Epoch { number: 0, nonce: 0 }, |epoch_range| epoch_range.epoch), number }
}

impl Spot {
    /// Returns the spot's commit, job and sequence number, to compare the spot with the rows of events. A spot after a
    /// whole commit has the job `~`, which sorts after every job's id (`[A-Za-z0-9._-]`).
    fn key(&self) -> (i64, &str, i64) {
        let number = integer(self.commit.number);
        self.event.as_ref().map_or((number, "~", 0), |(job, sequence)| (number, job.as_str(), integer(*sequence)))
    }
}

impl fmt::Display for Spot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Commit { epoch, number } = self.commit;
        write!(f, "{}-{:016x}:{number}", epoch.number, epoch.nonce)?;
        match &self.event {
            Some((job, sequence)) => write!(f, ":{job}:{sequence}"),
            None => Ok(()),
        }
    }
}

/// Error: the text is no [`Spot`].
#[derive(Debug, thiserror::Error)]
#[error("malformed position {0:?}: expected `now`, or the `spot` of an event from an earlier reply")]
pub(crate) struct NoSpot(String);

impl FromStr for Spot {
    type Err = NoSpot;

    fn from_str(text: &str) -> Result<Self, NoSpot> {
        let read = || {
            let parts: Vec<&str> = text.split(':').collect();
            let (epoch, number, event) = match parts[..] {
                [epoch, number] => (epoch, number, None),
                [epoch, number, job, sequence] => (epoch, number, Some((job.parse().ok()?, sequence.parse().ok()?))),
                _ => return None,
            };
            let (epoch, nonce) = epoch.split_once('-')?;
            let epoch = Epoch { number: epoch.parse().ok()?, nonce: u64::from_str_radix(nonce, 16).ok()? };
            Some(Self { commit: Commit { epoch, number: number.parse().ok()? }, event })
        };
        read().ok_or_else(|| NoSpot(text.to_owned()))
    }
}

/// Returns how SQLite would run the query for a page of events, as `EXPLAIN QUERY PLAN` describes it. A test checks
/// that no page walks the whole log.
#[cfg(test)]
pub(super) fn plan(db: &rusqlite::Connection) -> String {
    let sql = "EXPLAIN QUERY PLAN SELECT job, sequence, timestamp, name, context, written FROM events
         WHERE (written, job, sequence) > (1, 'a', 1) ORDER BY written, job, sequence LIMIT 1";
    db.query_row(sql, [], |row| row.get("detail")).unwrap()
}
