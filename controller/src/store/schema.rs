//! The tables, and how a file gets them. Names are for whoever looks at it with sqlite3(1):
//!
//! ```text
//! sqlite3 -readonly /var/lib/perilog/controller.db \
//!   "SELECT datetime(timestamp, 'unixepoch'), name, context FROM events WHERE job = 'f2' ORDER BY sequence"
//! ```
//!
//! Sets of ranks are RFC 22 texts, lists of hosts RFC 29 texts, times milliseconds since 1970 (but for `events.timestamp`, RFC 18), objects JSON.

use rusqlite::{Connection, Transaction};

use super::OpenError;

/// Raised with every change of the tables; a file of a higher one is refused.
const VERSION: i64 = 1;

/// "peri": tells our files from other SQLite files (`PRAGMA application_id`).
const APPLICATION: i64 = 0x7065_7269;

const TABLES: &str = "
CREATE TABLE epoch (
    number INTEGER NOT NULL,
    nonce TEXT NOT NULL                 -- 16 hexadecimal digits
) STRICT;

CREATE TABLE nodes (
    host TEXT PRIMARY KEY,
    machine TEXT NOT NULL,
    boot TEXT NOT NULL,
    boot_number INTEGER NOT NULL,       -- counts the boots that this controller saw
    version TEXT NOT NULL,
    seen_ms INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE attempts (
    job TEXT NOT NULL,
    attempt TEXT NOT NULL,
    ranks TEXT NOT NULL,
    hosts TEXT NOT NULL,                -- in rank order
    userid INTEGER,
    open INTEGER NOT NULL,
    touched_ms INTEGER NOT NULL,
    PRIMARY KEY (job, attempt)
) STRICT, WITHOUT ROWID;

CREATE TABLE actions (
    number INTEGER PRIMARY KEY,         -- in the order in which they began
    id TEXT NOT NULL UNIQUE,
    job TEXT NOT NULL,
    attempt TEXT NOT NULL,
    name TEXT NOT NULL,
    ranks TEXT NOT NULL,
    userid INTEGER,
    env TEXT NOT NULL,                  -- {name: value}
    timeout_ms INTEGER,
    began_ms INTEGER NOT NULL,
    waiting TEXT NOT NULL,              -- no Start was committed yet
    sent TEXT NOT NULL,                 -- Start committed, not accepted
    accepted TEXT NOT NULL,             -- accepted, not ended
    ok TEXT NOT NULL,
    ended TEXT NOT NULL,                -- ended otherwise: see ranks
    cancelling TEXT NOT NULL,
    cancel_why TEXT,
    boots TEXT NOT NULL,                -- {boot number of its Start: ranks}
    verdict TEXT,
    ended_ms INTEGER,
    unknown TEXT NOT NULL,              -- rebuilt from what nodes told: not heard of yet
    events_from INTEGER NOT NULL
) STRICT;
CREATE INDEX actions_by_attempt ON actions (job, attempt);

CREATE TABLE ranks (
    action TEXT NOT NULL,
    rank INTEGER NOT NULL,
    outcome TEXT NOT NULL,              -- its word, for people; `ended` has all of it
    ended TEXT NOT NULL,
    late TEXT NOT NULL,                 -- results that came after the outcome was settled
    PRIMARY KEY (action, rank)
) STRICT;

CREATE TABLE events (
    job TEXT NOT NULL,
    sequence INTEGER NOT NULL,
    timestamp REAL NOT NULL,
    name TEXT NOT NULL,
    context TEXT,
    PRIMARY KEY (job, sequence)
) STRICT, WITHOUT ROWID;

CREATE TABLE outbox (
    sequence INTEGER PRIMARY KEY,
    epoch INTEGER NOT NULL,
    job TEXT NOT NULL,
    attempt TEXT NOT NULL,
    body TEXT NOT NULL
) STRICT;

CREATE TABLE outbox_last (sequence INTEGER NOT NULL) STRICT;
INSERT INTO outbox_last VALUES (0);
";

/// Makes the tables of a new file, and checks those of an old one.
pub(super) fn prepare(db: &mut Connection) -> Result<(), OpenError> {
    let pragma = |db: &Connection, name: &str| db.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
    let (application, version) = (pragma(db, "application_id")?, pragma(db, "user_version")?);
    if (application, version) == (APPLICATION, VERSION) {
        return Ok(());
    }
    let tables: i64 = db.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
    match (application, version) {
        (0, 0) if tables == 0 => Ok(create(db.transaction()?)?),
        (APPLICATION, version) => Err(OpenError::Version { found: version, ours: VERSION }),
        _ => Err(OpenError::Foreign),
    }
}

fn create(transaction: Transaction<'_>) -> rusqlite::Result<()> {
    transaction.execute_batch(TABLES)?;
    transaction.pragma_update(None, "application_id", APPLICATION)?;
    transaction.pragma_update(None, "user_version", VERSION)?;
    transaction.commit()
}
