//! Tables of the store, their creation and their migration. The names of tables and columns are readable for an
//! operator with sqlite3(1):
//!
//! ```text
//! sqlite3 -readonly /var/lib/perilog/controller.db \
//!   "SELECT datetime(timestamp, 'unixepoch'), name, context FROM events WHERE job = 'f2' ORDER BY sequence"
//! ```
//!
//! | value | form |
//! |---|---|
//! | set of ranks | text of RFC 22 |
//! | list of hosts | text of RFC 29 |
//! | time | milliseconds since 1970; `events.timestamp`: seconds since 1970 (RFC 18) |
//! | length of time, such as `timeout_ms` | milliseconds |
//! | object | JSON |

use std::collections::BTreeSet;

use perilog_core::{IdSet, Rank};
use perilog_host::fault;
use rusqlite::{Connection, Transaction};

use super::OpenError;
use super::timings::layout;

/// Version of the tables. A developer raises the version with every change; the controller refuses a file with a higher
/// version.
pub(super) const VERSION: i64 = 14;

/// SQLite's `application_id` of perilog's stores ("peri"): distinguishes them from other SQLite files.
const APPLICATION: i64 = 0x7065_7269;

const TABLES: &str = "
CREATE TABLE epochs (                   -- of the controller with this store, from a start or a take-over; oldest go
    first INTEGER PRIMARY KEY,          -- the number of its first commit
    number INTEGER NOT NULL,            -- its epoch
    nonce TEXT NOT NULL                 -- 16 hexadecimal digits
) STRICT;

CREATE TABLE last_commit (number INTEGER NOT NULL) STRICT;
INSERT INTO last_commit VALUES (0);

CREATE TABLE stamp (                    -- one row in what `perilog controller backup` wrote, until it is restored
    made_ms INTEGER NOT NULL
) STRICT;

CREATE TABLE recovery (                 -- one row: the last generation, when the store was behind its nodes
    since_ms INTEGER NOT NULL,
    why TEXT NOT NULL,
    epoch INTEGER NOT NULL,             -- that began it
    ended_ms INTEGER                    -- when the grace was over
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
    terms TEXT NOT NULL DEFAULT '{}',   -- what the job was added with
    added INTEGER NOT NULL DEFAULT 0,   -- by job add: a request will finish it
    hold TEXT NOT NULL DEFAULT '{}',    -- {ranks, resources} that the job itself holds
    released TEXT NOT NULL DEFAULT '{}',
    complete INTEGER NOT NULL DEFAULT 0,
    milestones TEXT NOT NULL DEFAULT '{}', -- which ranks reached them, and which need not
    source TEXT,                        -- the resource manager's edge that added it, and the instance of that
    instance TEXT,
    abandoned INTEGER NOT NULL DEFAULT 0, -- by a generation: nothing of it begins or is released
    silent INTEGER NOT NULL DEFAULT 0,  -- its edge does not list it: the resource manager gets no notice of it
    recovered INTEGER NOT NULL DEFAULT 0, -- since a generation: 0 no, 1 added, 2 taken up, 3 taken up begun
    PRIMARY KEY (job, attempt)
) STRICT, WITHOUT ROWID;
CREATE INDEX attempts_open ON attempts (job) WHERE NOT complete OR abandoned;
CREATE INDEX attempts_by_change ON attempts (touched_ms, job, attempt);

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
    events_from INTEGER NOT NULL,
    held TEXT NOT NULL DEFAULT '{}',    -- {ranks, resources} that it still holds
    growing INTEGER NOT NULL DEFAULT 0, -- it follows the job, and more ranks are to come
    resolving TEXT NOT NULL DEFAULT '[]', -- [{ranks, ok, reason, by}] that wait for a drain
    external TEXT,                      -- a service outside runs it: its lease, and how its resources ended
    overdue TEXT NOT NULL DEFAULT '{}', -- {script: open ranks} that were reported past their limit
    lingering TEXT NOT NULL DEFAULT '', -- open ranks, nodes drained: for what scripts left behind, or as lost, alive
    limits TEXT NOT NULL DEFAULT '{}',  -- {milliseconds: ranks} by nodes, where they differ from timeout_ms
    remarks TEXT NOT NULL DEFAULT '{}', -- {text: ranks}: notes about ranks that are ok
    live INTEGER NOT NULL DEFAULT 1     -- it has work left, by this row
) STRICT;
CREATE INDEX actions_live ON actions (job) WHERE live;
CREATE INDEX actions_by_end ON actions (ended_ms, job) WHERE verdict IS NOT NULL;
CREATE INDEX actions_by_attempt ON actions (job, attempt);
CREATE INDEX actions_open ON actions (began_ms) WHERE verdict IS NULL;
CREATE INDEX actions_by_begin ON actions (began_ms, name); -- all that sums of durations need of an action

CREATE TABLE action_deltas (            -- what changed in the sets of a row of actions since it was written, in order
    action TEXT NOT NULL,
    number INTEGER NOT NULL,
    delta TEXT NOT NULL,                -- {set: ranks}, of just these ranks
    PRIMARY KEY (action, number)
) STRICT, WITHOUT ROWID;

CREATE TABLE attempt_deltas (           -- the same of a row of attempts: hold, released
    job TEXT NOT NULL,
    attempt TEXT NOT NULL,
    number INTEGER NOT NULL,
    delta TEXT NOT NULL,
    PRIMARY KEY (job, attempt, number)
) STRICT, WITHOUT ROWID;

CREATE TABLE ranks (
    action TEXT NOT NULL,
    rank INTEGER NOT NULL,
    outcome TEXT NOT NULL,              -- its name, for people; `ended` has all of it
    ended TEXT NOT NULL,
    late TEXT NOT NULL,                 -- results that came after the outcome was settled
    expects TEXT,                       -- {machine, within_ms}: open; `ended` is how an announced boot ends it
    ended_ms INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (action, rank)
) STRICT;
CREATE INDEX ranks_expected ON ranks (action) WHERE expects IS NOT NULL;
CREATE INDEX ranks_failed ON ranks (ended_ms, action, rank, outcome) WHERE expects IS NULL AND outcome <> 'ok';

CREATE TABLE drains (
    host TEXT PRIMARY KEY,
    since_ms INTEGER NOT NULL,
    reason TEXT NOT NULL,
    \"by\" INTEGER,                     -- a user id; null: perilog itself
    confirmed INTEGER NOT NULL,         -- in force
    lifted INTEGER NOT NULL,            -- undrained, and the hook has not confirmed that
    notified INTEGER NOT NULL DEFAULT 0, -- a hook has drained it
    stuck INTEGER,                      -- for a stuck script and nothing else: the boot number of its node then
    again TEXT,                         -- {at_ms, reason, by}: what was found wrong there last, since it was drained
    notice_id INTEGER NOT NULL DEFAULT 0, -- of the newest notice to the hook: higher with each
    asked_ms INTEGER NOT NULL DEFAULT 0, -- since when a notice is pending
    doubtful INTEGER NOT NULL DEFAULT 0, -- in a grace: it may have been lifted since
    passing TEXT                        -- why recovery drained it, and for nothing else
) STRICT, WITHOUT ROWID;

CREATE TABLE quiet (                    -- one row: no new starts
    since_ms INTEGER NOT NULL,
    \"by\" INTEGER NOT NULL,
    reason TEXT NOT NULL
) STRICT;

CREATE TABLE events (
    job TEXT NOT NULL,
    sequence INTEGER NOT NULL,
    timestamp REAL NOT NULL,
    name TEXT NOT NULL,
    context TEXT,
    written INTEGER NOT NULL DEFAULT 0, -- the number of its commit: the order over all jobs
    PRIMARY KEY (job, sequence)
) STRICT, WITHOUT ROWID;
CREATE INDEX events_in_order ON events (written);

CREATE TABLE steps (                    -- how long the scripts of a task took: for people, nothing is decided by it
    action INTEGER NOT NULL,            -- its number
    rank INTEGER NOT NULL,
    outcome TEXT NOT NULL,              -- as its node reported it
    began_ms INTEGER NOT NULL,          -- by the node's clock
    elapsed_ms INTEGER NOT NULL,
    steps TEXT NOT NULL,                -- [[script, after_ms, elapsed_ms, status (128 + signal) or null, try, flags]]
                                        -- flags: 1 tolerable, 2 past its limit
    host TEXT,                          -- of the rank
    PRIMARY KEY (action, rank)
) STRICT, WITHOUT ROWID;

CREATE TABLE scripts (                  -- what the numbers in steps mean
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL,
    digest TEXT NOT NULL,               -- SHA-256, as its node reported it
    last INTEGER NOT NULL,              -- the number of the newest action that ran it
    UNIQUE (name, digest)
) STRICT;

CREATE TABLE outbox (
    sequence INTEGER PRIMARY KEY,
    epoch INTEGER NOT NULL,
    job TEXT NOT NULL,
    attempt TEXT NOT NULL,
    body TEXT NOT NULL,
    edge TEXT NOT NULL DEFAULT 'manager' -- the reader: a hook or an edge
) STRICT;
CREATE INDEX outbox_by_attempt ON outbox (job, attempt);

CREATE TABLE outbox_last (sequence INTEGER NOT NULL) STRICT;
INSERT INTO outbox_last VALUES (0);
";

/// Creates the tables of a new file; migrates the tables of an earlier version.
pub(super) fn prepare(db: &mut Connection) -> Result<(), OpenError> {
    let pragma = |db: &Connection, name: &str| db.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
    let (application, version) = (pragma(db, "application_id")?, pragma(db, "user_version")?);
    if (application, version) == (APPLICATION, VERSION) {
        return Ok(());
    }
    let tables: i64 = db.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
    match (application, version) {
        (0, 0) if tables == 0 => Ok(create(db.transaction()?)?),
        (APPLICATION, 1..VERSION) => Ok(migrate(db.transaction()?, version)?),
        (APPLICATION, version) => Err(OpenError::Version { found: version, ours: VERSION }),
        _ => Err(OpenError::Foreign),
    }
}

/// Returns the version of the tables if an earlier release wrote the store; `None`: there is nothing to migrate.
pub(super) fn earlier(db: &Connection) -> rusqlite::Result<Option<i64>> {
    let pragma = |name: &str| db.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
    let (application, version) = (pragma("application_id")?, pragma("user_version")?);
    Ok(Some(version).filter(|version| application == APPLICATION && (1..VERSION).contains(version)))
}

/// Checks that the database is a store of this version.
pub(super) fn check(db: &Connection) -> Result<(), OpenError> {
    let pragma = |name: &str| db.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
    match (pragma("application_id")?, pragma("user_version")?) {
        (APPLICATION, VERSION) => Ok(()),
        (APPLICATION, version) => Err(OpenError::Version { found: version, ours: VERSION }),
        _ => Err(OpenError::Foreign),
    }
}

/// Checks that the database has tables and indexes alone. A foreign trigger or view would act when the controller
/// writes or reads.
pub(super) fn check_kinds(db: &Connection) -> Result<(), OpenError> {
    const OTHER: &str = "SELECT type, name FROM sqlite_schema WHERE type NOT IN ('table', 'index') ORDER BY name";
    match objects(db, OTHER)?.into_iter().next() {
        Some((kind, name)) => Err(no_controller_makes(&kind, &name)),
        None => Ok(()),
    }
}

/// Checks that the database has the tables and indexes of a new store, and no others.
pub(super) fn check_objects(db: &Connection) -> Result<(), OpenError> {
    const ALL: &str = "SELECT type, name FROM sqlite_schema WHERE name NOT LIKE 'sqlite\\_%' ESCAPE '\\'";
    let new = Connection::open_in_memory()?;
    new.execute_batch(TABLES)?;
    let (found, expected) = (objects(db, ALL)?, objects(&new, ALL)?);
    if let Some((kind, name)) = found.difference(&expected).next() {
        return Err(no_controller_makes(kind, name));
    }
    match expected.difference(&found).next() {
        Some((kind, name)) => Err(OpenError::Damaged(format!("it has no {kind} {name}"))),
        None => Ok(()),
    }
}

fn no_controller_makes(kind: &str, name: &str) -> OpenError {
    OpenError::Damaged(format!("it has the {kind} {name}, which no controller makes"))
}

/// Returns the kind and the name of each object that the query selects.
fn objects(db: &Connection, query: &str) -> rusqlite::Result<BTreeSet<(String, String)>> {
    db.prepare(query)?.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?.collect()
}

/// SQL that migrates the tables of each version to those of the next; the first text begins at version 1. Actions that
/// an earlier version began get the holds that this version would give.
const MIGRATIONS: [&str; (VERSION - 1) as usize] = [
    "
ALTER TABLE attempts ADD COLUMN terms TEXT NOT NULL DEFAULT '{}';
ALTER TABLE attempts ADD COLUMN added INTEGER NOT NULL DEFAULT 0;
ALTER TABLE attempts ADD COLUMN hold TEXT NOT NULL DEFAULT '{}';
ALTER TABLE attempts ADD COLUMN released TEXT NOT NULL DEFAULT '{}';
ALTER TABLE attempts ADD COLUMN complete INTEGER NOT NULL DEFAULT 0;
ALTER TABLE attempts ADD COLUMN milestones TEXT NOT NULL DEFAULT '{}';
ALTER TABLE attempts ADD COLUMN rebuilt INTEGER NOT NULL DEFAULT 0;
UPDATE attempts SET hold = json_object('ranks', ranks) WHERE open;
UPDATE attempts SET released = json_object('ranks', ranks), complete = 1 WHERE NOT open;
ALTER TABLE actions ADD COLUMN held TEXT NOT NULL DEFAULT '{}';
ALTER TABLE actions ADD COLUMN growing INTEGER NOT NULL DEFAULT 0;
ALTER TABLE actions ADD COLUMN external TEXT;
ALTER TABLE actions ADD COLUMN overdue TEXT NOT NULL DEFAULT '{}';
ALTER TABLE actions ADD COLUMN lingering TEXT NOT NULL DEFAULT '';
CREATE INDEX actions_open ON actions (began_ms) WHERE verdict IS NULL;
UPDATE actions SET held = json_object('ranks', ranks) WHERE verdict IS NULL;
CREATE TABLE drains (
    host TEXT PRIMARY KEY,
    since_ms INTEGER NOT NULL,
    reason TEXT NOT NULL,
    \"by\" INTEGER,
    confirmed INTEGER NOT NULL,
    lifted INTEGER NOT NULL,
    told INTEGER NOT NULL DEFAULT 0,
    stuck INTEGER
) STRICT, WITHOUT ROWID;
CREATE TABLE quiet (since_ms INTEGER NOT NULL, \"by\" INTEGER NOT NULL, reason TEXT NOT NULL) STRICT;
ALTER TABLE actions ADD COLUMN resolving TEXT NOT NULL DEFAULT '[]';
CREATE TABLE moved (
    action TEXT NOT NULL,
    number INTEGER NOT NULL,
    stands TEXT NOT NULL,
    PRIMARY KEY (action, number)
) STRICT, WITHOUT ROWID;
CREATE TABLE given (
    job TEXT NOT NULL,
    attempt TEXT NOT NULL,
    number INTEGER NOT NULL,
    holds TEXT NOT NULL,
    PRIMARY KEY (job, attempt, number)
) STRICT, WITHOUT ROWID;
ALTER TABLE ranks ADD COLUMN expects TEXT;
ALTER TABLE outbox ADD COLUMN edge TEXT NOT NULL DEFAULT 'manager';
CREATE TABLE steps (
    action INTEGER NOT NULL,
    rank INTEGER NOT NULL,
    outcome TEXT NOT NULL,
    began_ms INTEGER NOT NULL,
    elapsed_ms INTEGER NOT NULL,
    steps TEXT NOT NULL,
    PRIMARY KEY (action, rank)
) STRICT, WITHOUT ROWID;
CREATE TABLE scripts (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL,
    digest TEXT NOT NULL,
    last INTEGER NOT NULL,
    UNIQUE (name, digest)
) STRICT;
",
    "
ALTER TABLE attempts ADD COLUMN asked INTEGER NOT NULL DEFAULT 1;
ALTER TABLE attempts ADD COLUMN told TEXT NOT NULL DEFAULT '';
UPDATE attempts SET asked = 0 WHERE rebuilt AND NOT added;
UPDATE attempts SET terms = json_remove(terms, '$.tolerate') WHERE json_extract(terms, '$.tolerate') = '0';
",
    "
ALTER TABLE drains ADD COLUMN again TEXT;
ALTER TABLE drains ADD COLUMN telling INTEGER NOT NULL DEFAULT 0;
ALTER TABLE drains ADD COLUMN asked_ms INTEGER NOT NULL DEFAULT 0;
UPDATE drains SET telling = since_ms, asked_ms = since_ms;
",
    "ALTER TABLE actions ADD COLUMN limits TEXT NOT NULL DEFAULT '{}';",
    "ALTER TABLE actions ADD COLUMN remarks TEXT NOT NULL DEFAULT '{}';",
    // An earlier version did not number its commits: its last epoch counts as one commit, and earlier epochs are
    // unknown.
    "
CREATE TABLE lives (first INTEGER PRIMARY KEY, number INTEGER NOT NULL, nonce TEXT NOT NULL) STRICT;
INSERT INTO lives SELECT 0, number, nonce FROM epoch;
DROP TABLE epoch;
CREATE TABLE last_commit (number INTEGER NOT NULL) STRICT;
INSERT INTO last_commit VALUES (0);
CREATE TABLE IF NOT EXISTS stamp (made_ms INTEGER NOT NULL) STRICT;
CREATE TABLE recovery (since_ms INTEGER NOT NULL, why TEXT NOT NULL, epoch INTEGER NOT NULL, ended_ms INTEGER) STRICT;
ALTER TABLE attempts DROP COLUMN rebuilt;
ALTER TABLE attempts DROP COLUMN asked;
ALTER TABLE attempts DROP COLUMN told;
ALTER TABLE attempts ADD COLUMN source TEXT;
ALTER TABLE attempts ADD COLUMN instance TEXT;
ALTER TABLE attempts ADD COLUMN unvouched INTEGER NOT NULL DEFAULT 0;
ALTER TABLE attempts ADD COLUMN recovered INTEGER NOT NULL DEFAULT 0;
ALTER TABLE attempts ADD COLUMN disowned TEXT NOT NULL DEFAULT '';
ALTER TABLE actions ADD COLUMN unvouched INTEGER NOT NULL DEFAULT 0;
ALTER TABLE drains ADD COLUMN unvouched INTEGER NOT NULL DEFAULT 0;
ALTER TABLE drains ADD COLUMN passing TEXT;
",
    "ALTER TABLE attempts ADD COLUMN by_hand INTEGER NOT NULL DEFAULT 0;",
    // An earlier version kept no order over all jobs: all of its events count as written by its last commit.
    "
ALTER TABLE events ADD COLUMN written INTEGER NOT NULL DEFAULT 0;
UPDATE events SET written = (SELECT number FROM last_commit);
CREATE INDEX events_in_order ON events (written);
",
    // An earlier version asked an operator about each attempt. Attempts without an answer are abandoned.
    "
ALTER TABLE attempts RENAME COLUMN unvouched TO abandoned;
UPDATE attempts SET abandoned = 1 WHERE disowned <> '' AND NOT complete;
UPDATE attempts SET recovered = 2 WHERE recovered;
ALTER TABLE attempts ADD COLUMN silent INTEGER NOT NULL DEFAULT 0;
ALTER TABLE attempts DROP COLUMN disowned;
ALTER TABLE attempts DROP COLUMN by_hand;
ALTER TABLE actions DROP COLUMN unvouched;
ALTER TABLE drains RENAME COLUMN unvouched TO doubtful;
",
    "
CREATE INDEX outbox_by_attempt ON outbox (job, attempt);
CREATE INDEX actions_by_begin ON actions (began_ms, name);
ALTER TABLE steps ADD COLUMN host TEXT;
",
    "
CREATE INDEX attempts_open ON attempts (job) WHERE NOT complete OR abandoned;
CREATE INDEX attempts_by_change ON attempts (touched_ms, job, attempt);
ALTER TABLE actions ADD COLUMN live INTEGER NOT NULL DEFAULT 1;
UPDATE actions SET live = 0 WHERE verdict IS NOT NULL AND waiting = '' AND sent = '' AND accepted = ''
    AND resolving = '[]' AND external IS NULL;
CREATE INDEX actions_live ON actions (job) WHERE live;
CREATE INDEX actions_by_end ON actions (ended_ms, job) WHERE verdict IS NOT NULL;
ALTER TABLE ranks ADD COLUMN ended_ms INTEGER NOT NULL DEFAULT 0;
UPDATE ranks SET ended_ms = coalesce(json_extract(ended, '$.ended_ms'), 0);
CREATE INDEX ranks_expected ON ranks (action) WHERE expects IS NOT NULL;
CREATE INDEX ranks_failed ON ranks (ended_ms, action, rank, outcome) WHERE expects IS NULL AND outcome <> 'ok';
",
    "
ALTER TABLE lives RENAME TO epochs;
ALTER TABLE moved RENAME TO action_deltas;
ALTER TABLE action_deltas RENAME COLUMN stands TO delta;
ALTER TABLE given RENAME TO attempt_deltas;
ALTER TABLE attempt_deltas RENAME COLUMN holds TO delta;
ALTER TABLE drains RENAME COLUMN told TO notified;
ALTER TABLE drains RENAME COLUMN telling TO notice_id;
",
    "UPDATE events SET name = 'job-hand-over' WHERE name = 'job-let-go';",
];

/// The last version whose table `actions` has the column `unknown`: ranks that no node had reported.
const HAD_UNKNOWN: i64 = 6;

/// The last version whose table `steps` has no column `host`.
const HAD_NO_HOSTS: i64 = 10;

fn migrate(transaction: Transaction<'_>, from: i64) -> rusqlite::Result<()> {
    for step in MIGRATIONS.iter().skip(usize::try_from(from - 1).unwrap_or(usize::MAX)) {
        transaction.execute_batch(step)?;
    }
    if from <= HAD_UNKNOWN {
        ask_unknown_again(&transaction)?;
    }
    if from <= HAD_NO_HOSTS {
        name_hosts(&transaction)?;
    }
    transaction.pragma_update(None, "user_version", VERSION)?;
    fault::point("mid-migration");
    transaction.commit()
}

/// Removes the column `unknown` of the table `actions`, and adds its ranks to the column `sent`. An earlier version
/// could rebuild a lost store from the nodes' reports; `unknown` then had the ranks that no node had reported. The
/// controller sends a sent rank its Start again, and a node that knows the task answers with the task's state.
fn ask_unknown_again(transaction: &Transaction<'_>) -> rusqlite::Result<()> {
    let mut select = transaction.prepare("SELECT number, sent, unknown FROM actions WHERE unknown <> ''")?;
    let rows =
        select.query_map([], |row| Ok((row.get::<_, i64>(0)?, row.get::<_, String>(1)?, row.get::<_, String>(2)?)))?;
    for row in rows {
        let (number, sent, unknown) = row?;
        // A text edited manually stays unchanged: loading the text reports an error.
        let (Ok(sent), Ok(unknown)) = (sent.parse::<IdSet>(), unknown.parse::<IdSet>()) else { continue };
        let sent = sent.union(&unknown).to_string();
        transaction.execute("UPDATE actions SET sent = ?2 WHERE number = ?1", rusqlite::params![number, sent])?;
    }
    drop(select);
    transaction.execute_batch("ALTER TABLE actions DROP COLUMN unknown")
}

/// Fills the column `host` of the table `steps` with the host of each rank. An unreadable layout leaves it empty.
fn name_hosts(transaction: &Transaction<'_>) -> rusqlite::Result<()> {
    let mut select = transaction.prepare(
        "SELECT ranks, hosts, number, steps.rank FROM steps JOIN (
             SELECT number, attempts.ranks AS ranks, hosts FROM actions JOIN attempts USING (job, attempt)
         ) ON action = number ORDER BY number",
    )?;
    let mut update = transaction.prepare("UPDATE steps SET host = ?3 WHERE action = ?1 AND rank = ?2")?;
    let (mut rows, mut of) = (select.query([])?, None);
    let mut hosts = Vec::new();
    while let Some(row) = rows.next()? {
        let (number, rank): (i64, u32) = (row.get(2)?, row.get(3)?);
        if of.as_ref().is_none_or(|(last, _)| *last != number) {
            of = Some((number, layout(row)?));
        }
        let layout = of.as_ref().and_then(|(_, layout)| layout.as_ref());
        hosts.extend(layout.and_then(|layout| layout.host(Rank(rank))).map(|host| (number, rank, host)));
    }
    drop(rows);
    for (number, rank, host) in hosts {
        update.execute(rusqlite::params![number, rank, host.as_str()])?;
    }
    Ok(())
}

fn create(transaction: Transaction<'_>) -> rusqlite::Result<()> {
    transaction.execute_batch(TABLES)?;
    transaction.pragma_update(None, "application_id", APPLICATION)?;
    transaction.pragma_update(None, "user_version", VERSION)?;
    transaction.commit()
}
