//! Loads a snapshot from rows. Every value passes the constructor of its type, so an error names a row that was damaged
//! or edited manually.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::str::FromStr;

use perilog_core::controller::io::{
    ActionRow, AttemptRow, DrainRow, Fetched, NodeRow, OutboxEntry, Quiet, RankRow, Recovered, RecoveryRow, Source,
};
use perilog_core::controller::{ActionDelta, AttemptDelta, Body, Snapshot};
use perilog_core::ids::{ActionId, Epoch, TaskId};
use perilog_core::{Attempt, EpochRange, History, JobId, Rank};
use rusqlite::types::FromSql;
use rusqlite::{Connection, Params, Row, Statement};
use serde::de::DeserializeOwned;

use super::StoreError;

/// Loads the whole store.
pub(super) fn snapshot(db: &Connection) -> Result<Snapshot, StoreError> {
    // One read transaction: all tables at one moment.
    let db = db.unchecked_transaction()?;
    let mut snapshot = Snapshot {
        attempts: rows(&db, "attempts", "SELECT * FROM attempts ORDER BY job, attempt", attempt)?,
        actions: rows(&db, "actions", "SELECT * FROM actions ORDER BY number", action)?,
        ranks: rows(&db, "ranks", "SELECT * FROM ranks ORDER BY action, rank", rank)?,
        events_last: rows(&db, "events", EVENTS_LAST, events_last)?.into_iter().collect(),
        outbox: rows(&db, "outbox", "SELECT * FROM outbox ORDER BY sequence", outbox)?,
        ..without_jobs(&db)?
    };
    put_action_deltas(&db, &mut snapshot, "")?;
    put_attempt_deltas(&db, &mut snapshot, "")?;
    Ok(snapshot)
}

/// Loads all of the store but its jobs and its outbox.
pub(super) fn without_jobs(db: &Connection) -> Result<Snapshot, StoreError> {
    Ok(Snapshot {
        history: history(db)?,
        stamp: one(db, "stamp", "made_ms")?,
        recovery: rows(db, "recovery", "SELECT * FROM recovery", recovery)?.pop(),
        nodes: rows(db, "nodes", "SELECT * FROM nodes ORDER BY host", node)?,
        drains: rows(db, "drains", "SELECT * FROM drains ORDER BY host", drain)?,
        quiet: rows(db, "quiet", "SELECT * FROM quiet", quiet)?.pop(),
        outbox_last: one(db, "outbox_last", "sequence")?.unwrap_or(0),
        ..Snapshot::default()
    })
}

/// Loads the rows of these jobs.
pub(super) fn jobs(db: &Connection, jobs: &BTreeSet<JobId>) -> Result<Fetched, StoreError> {
    const OF: &str = "job IN (SELECT value FROM json_each(?1))";
    const ACTIONS: &str = "action IN (SELECT id FROM actions WHERE job IN (SELECT value FROM json_each(?1)))";
    let names = serde_json::to_string(jobs).unwrap_or_default();
    let attempts = format!("SELECT * FROM attempts WHERE {OF} ORDER BY job, attempt");
    let mut part = Snapshot { attempts: of(db, "attempts", &attempts, &names, attempt)?, ..Snapshot::default() };
    if part.attempts.is_empty() {
        return Ok(Fetched::default());
    }
    let jobs: BTreeSet<&JobId> = part.attempts.iter().map(|row| &row.job).collect();
    let names = serde_json::to_string(&jobs).unwrap_or_default();
    let actions = format!("SELECT * FROM actions WHERE {OF} ORDER BY number");
    part.actions = of(db, "actions", &actions, &names, action)?;
    put_rows_of_action_deltas(
        &mut part,
        of(
            db,
            "action_deltas",
            &format!("{ACTION_DELTAS} WHERE {ACTIONS} {ACTION_DELTA_ORDER}"),
            &names,
            action_delta,
        )?,
    );
    put_rows_of_attempt_deltas(
        &mut part,
        of(db, "attempt_deltas", &format!("{ATTEMPT_DELTAS} WHERE {OF} {ATTEMPT_DELTA_ORDER}"), &names, attempt_delta)?,
    );
    let ranks = format!("SELECT * FROM ranks WHERE {ACTIONS} ORDER BY action, rank");
    Ok(Fetched {
        ranks: of(db, "ranks", &ranks, &names, rank)?,
        events_last: of(db, "events", EVENTS_LAST_OF, &names, events_last)?.into_iter().collect(),
        outbox: of(db, "outbox", OUTBOX_OF, &names, outbox)?,
        attempts: part.attempts,
        actions: part.actions,
    })
}

/// Loads the notices to the release hook.
pub(super) fn hooked(db: &Connection) -> Result<Vec<OutboxEntry>, StoreError> {
    rows(db, "outbox", "SELECT * FROM outbox WHERE edge <> 'manager' ORDER BY sequence", outbox)
}

/// Loads a page of the notices to the resource manager: the first `limit` with a higher sequence number than `after`.
pub(super) fn page(db: &Connection, after: u64, limit: usize) -> Result<Vec<OutboxEntry>, StoreError> {
    const PAGE: &str = "SELECT * FROM outbox WHERE edge = 'manager' AND sequence > ?1 ORDER BY sequence LIMIT ?2";
    let integer = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
    let mut statement = db.prepare_cached(PAGE)?;
    read_rows(&mut statement, "outbox", [integer(after), integer(limit as u64)], outbox)
}

fn events_last(row: &Cells<'_>) -> Result<(JobId, u64), Wrong> {
    Ok((parsed(row, "job")?, number(row, "last")?))
}

fn action_delta(row: &Cells<'_>) -> Result<(ActionId, ActionDelta), Wrong> {
    Ok((action_id(row, "action")?, json(row, "delta")?))
}

fn attempt_delta(row: &Cells<'_>) -> Result<((JobId, Attempt), AttemptDelta), Wrong> {
    Ok(((parsed(row, "job")?, parsed(row, "attempt")?), json(row, "delta")?))
}

/// Loads the epochs of the controller in this store, and the number of the last commit.
pub(super) fn history(db: &Connection) -> Result<History, StoreError> {
    Ok(History {
        epochs: rows(db, "epochs", "SELECT * FROM epochs ORDER BY first", epoch_range)?,
        last: one(db, "last_commit", "number")?.unwrap_or(0),
    })
}

/// Returns the number in `column` of a table with at most one row; `None` if the table is empty.
fn one(db: &Connection, table: &str, column: &str) -> Result<Option<u64>, StoreError> {
    let sql = format!("SELECT {column} FROM {table}");
    Ok(rows(db, table, &sql, |row| number(row, column))?.pop())
}

/// The rows of one job: its attempts, their actions, and the ended ranks.
pub(super) struct Job {
    pub(super) attempts: Vec<AttemptRow>,
    pub(super) actions: Vec<ActionRow>,
    pub(super) ranks: Vec<RankRow>,
}

pub(super) fn job(db: &Connection, job: &JobId) -> Result<Job, StoreError> {
    // A job's id has no quote: [A-Za-z0-9._-].
    let of = format!("job = '{job}'");
    let ids = format!("action IN (SELECT id FROM actions WHERE {of})");
    let mut part = Snapshot {
        attempts: rows(db, "attempts", &format!("SELECT * FROM attempts WHERE {of} ORDER BY attempt"), attempt)?,
        actions: rows(db, "actions", &format!("SELECT * FROM actions WHERE {of} ORDER BY number"), action)?,
        ranks: rows(db, "ranks", &format!("SELECT * FROM ranks WHERE {ids} ORDER BY action, rank"), rank)?,
        ..Snapshot::default()
    };
    put_action_deltas(db, &mut part, &format!("WHERE {ids}"))?;
    put_attempt_deltas(db, &mut part, &format!("WHERE {of}"))?;
    Ok(Job { attempts: part.attempts, actions: part.actions, ranks: part.ranks })
}

/// Applies the rows of the table `action_deltas` to the rows of actions. A row of `action_deltas` has the sets of ranks
/// (waiting, sent, accepted and so on) that changed after the action's row was written. `only`: a WHERE clause that
/// selects rows of `action_deltas`.
fn put_action_deltas(db: &Connection, snapshot: &mut Snapshot, only: &str) -> Result<(), StoreError> {
    put_rows_of_action_deltas(
        snapshot,
        rows(db, "action_deltas", &format!("{ACTION_DELTAS} {only} {ACTION_DELTA_ORDER}"), action_delta)?,
    );
    Ok(())
}

fn put_rows_of_action_deltas(snapshot: &mut Snapshot, action_delta: Vec<(ActionId, ActionDelta)>) {
    let mut by_id: BTreeMap<ActionId, &mut ActionRow> = snapshot.actions.iter_mut().map(|row| (row.id, row)).collect();
    for (id, delta) in action_delta {
        if let Some(row) = by_id.get_mut(&id) {
            row.put(&delta);
        }
    }
}

/// Applies the rows of the table `attempt_deltas` to the rows of attempts: changes of an attempt's holds since its row
/// was written. `only`: a WHERE clause that limits these changes.
fn put_attempt_deltas(db: &Connection, snapshot: &mut Snapshot, only: &str) -> Result<(), StoreError> {
    put_rows_of_attempt_deltas(
        snapshot,
        rows(db, "attempt_deltas", &format!("{ATTEMPT_DELTAS} {only} {ATTEMPT_DELTA_ORDER}"), attempt_delta)?,
    );
    Ok(())
}

fn put_rows_of_attempt_deltas(snapshot: &mut Snapshot, attempt_delta: Vec<((JobId, Attempt), AttemptDelta)>) {
    let key = |row: &AttemptRow| (row.job.clone(), row.attempt);
    let mut by_key: BTreeMap<_, &mut AttemptRow> = snapshot.attempts.iter_mut().map(|row| (key(row), row)).collect();
    for (key, holds) in attempt_delta {
        if let Some(row) = by_key.get_mut(&key) {
            row.put(&holds);
        }
    }
}

const ACTION_DELTAS: &str = "SELECT action, delta FROM action_deltas";
const ACTION_DELTA_ORDER: &str = "ORDER BY action, number";
const ATTEMPT_DELTAS: &str = "SELECT job, attempt, delta FROM attempt_deltas";
const ATTEMPT_DELTA_ORDER: &str = "ORDER BY job, attempt, number";

/// Query for the sequence number of each job's last event. The query steps from job to job through the index, and never
/// walks the log, which may have millions of rows.
const EVENTS_LAST: &str = "
    WITH RECURSIVE jobs (job) AS (
        SELECT min(job) FROM events
        UNION ALL
        SELECT (SELECT min(job) FROM events WHERE job > jobs.job) FROM jobs WHERE jobs.job IS NOT NULL
    )
    SELECT job, (SELECT max(sequence) FROM events WHERE events.job = jobs.job) AS last FROM jobs WHERE job IS NOT NULL";

const OUTBOX_OF: &str = "
    SELECT * FROM outbox WHERE edge = 'manager' AND job IN (SELECT value FROM json_each(?1)) ORDER BY sequence";

/// The same as [`EVENTS_LAST`] for jobs that a JSON array names.
const EVENTS_LAST_OF: &str = "
    SELECT value AS job, (SELECT max(sequence) FROM events WHERE events.job = value) AS last FROM json_each(?1)
    WHERE last IS NOT NULL";

type Wrong = String;

fn rows<T>(
    db: &Connection,
    table: &str,
    sql: &str,
    read: impl Fn(&Cells<'_>) -> Result<T, Wrong>,
) -> Result<Vec<T>, StoreError> {
    read_rows(&mut db.prepare(sql)?, table, [], read)
}

/// Reads the rows that a query about jobs selects. `names`: the jobs, as a JSON array.
fn of<T>(
    db: &Connection,
    table: &str,
    sql: &str,
    names: &str,
    read: impl Fn(&Cells<'_>) -> Result<T, Wrong>,
) -> Result<Vec<T>, StoreError> {
    let mut statement = db.prepare_cached(sql)?;
    read_rows(&mut statement, table, [names], read)
}

fn read_rows<T>(
    statement: &mut Statement<'_>,
    table: &str,
    params: impl Params,
    read: impl Fn(&Cells<'_>) -> Result<T, Wrong>,
) -> Result<Vec<T>, StoreError> {
    let names: Vec<String> = statement.column_names().map(str::to_owned).collect();
    let mut rows = statement.query(params)?;
    let mut all = Vec::new();
    while let Some(row) = rows.next()? {
        let value = read(&Cells { row, names: &names, next: Cell::new(0) })
            .map_err(|wrong| StoreError::Other(format!("table {table}, row {}: {wrong}", all.len() + 1)))?;
        all.push(value);
    }
    Ok(all)
}

/// A row with the names of its columns. The readers ask for the columns by name and nearly in their order, so each name
/// is looked for behind the one before: SQLite would compare the names from the first on, for each value.
struct Cells<'a> {
    row: &'a Row<'a>,
    names: &'a [String],
    next: Cell<usize>,
}

impl Cells<'_> {
    fn get<T: FromSql>(&self, name: &str) -> rusqlite::Result<T> {
        let next = self.next.get();
        let behind = self.names.iter().skip(next).position(|of| of == name).map(|at| next + at);
        let at = behind.or_else(|| self.names.iter().position(|of| of == name));
        let at = at.ok_or_else(|| rusqlite::Error::InvalidColumnName(name.to_owned()))?;
        self.next.set(at + 1);
        self.row.get(at)
    }
}

fn column<T: FromSql>(row: &Cells<'_>, name: &str) -> Result<T, Wrong> {
    row.get(name).map_err(|error| format!("{name}: {error}"))
}

fn parsed<T: FromStr<Err: Display>>(row: &Cells<'_>, name: &str) -> Result<T, Wrong> {
    column::<String>(row, name)?.parse().map_err(|error| format!("{name}: {error}"))
}

fn json<T: DeserializeOwned>(row: &Cells<'_>, name: &str) -> Result<T, Wrong> {
    serde_json::from_str(&column::<String>(row, name)?).map_err(|error| format!("{name}: {error}"))
}

/// Parses a value whose JSON form is a string, such as a verdict. `name`: the column of the value, for the error.
fn from_string<T: DeserializeOwned>(name: &str, word: String) -> Result<T, Wrong> {
    serde_json::from_value(word.clone().into()).map_err(|_| format!("{name}: unknown word {word:?}"))
}

fn number(row: &Cells<'_>, name: &str) -> Result<u64, Wrong> {
    let number: i64 = column(row, name)?;
    u64::try_from(number).map_err(|_| format!("{name}: {number} is below zero"))
}

fn perhaps(row: &Cells<'_>, name: &str) -> Result<Option<u64>, Wrong> {
    match column::<Option<i64>>(row, name)? {
        None => Ok(None),
        Some(_) => number(row, name).map(Some),
    }
}

fn action_id(row: &Cells<'_>, name: &str) -> Result<ActionId, Wrong> {
    parsed::<uuid::Uuid>(row, name).map(ActionId)
}

fn epoch_range(row: &Cells<'_>) -> Result<EpochRange, Wrong> {
    let nonce: String = column(row, "nonce")?;
    let nonce = u64::from_str_radix(&nonce, 16).map_err(|error| format!("nonce: {error}"))?;
    Ok(EpochRange { epoch: Epoch { number: number(row, "number")?, nonce }, first: number(row, "first")? })
}

fn recovery(row: &Cells<'_>) -> Result<RecoveryRow, Wrong> {
    Ok(RecoveryRow {
        since_ms: number(row, "since_ms")?,
        why: column(row, "why")?,
        epoch: number(row, "epoch")?,
        ended_ms: perhaps(row, "ended_ms")?,
    })
}

fn source(row: &Cells<'_>) -> Result<Option<Source>, Wrong> {
    let (name, instance) = (column::<Option<String>>(row, "source")?, column::<Option<String>>(row, "instance")?);
    Ok(name.map(|name| Source { name, instance: instance.unwrap_or_default() }))
}

fn node(row: &Cells<'_>) -> Result<NodeRow, Wrong> {
    Ok(NodeRow {
        host: parsed(row, "host")?,
        machine: parsed(row, "machine")?,
        boot: parsed(row, "boot")?,
        boot_number: column(row, "boot_number")?,
        version: column(row, "version")?,
        seen_ms: number(row, "seen_ms")?,
    })
}

fn attempt(row: &Cells<'_>) -> Result<AttemptRow, Wrong> {
    Ok(AttemptRow {
        job: parsed(row, "job")?,
        attempt: parsed(row, "attempt")?,
        ranks: parsed(row, "ranks")?,
        hosts: parsed(row, "hosts")?,
        userid: column(row, "userid")?,
        open: column(row, "open")?,
        touched_ms: number(row, "touched_ms")?,
        terms: json(row, "terms")?,
        added: column(row, "added")?,
        hold: json(row, "hold")?,
        released: json(row, "released")?,
        complete: column(row, "complete")?,
        milestones: json(row, "milestones")?,
        source: source(row)?,
        abandoned: column(row, "abandoned")?,
        silent: column(row, "silent")?,
        recovered: recovered(column(row, "recovered")?)?,
    })
}

fn recovered(number: i64) -> Result<Recovered, Wrong> {
    match number {
        0 => Ok(Recovered::No),
        1 => Ok(Recovered::Added),
        2 => Ok(Recovered::TakenUp),
        3 => Ok(Recovered::Begun),
        other => Err(format!("recovered: {other} is not 0 to 3")),
    }
}

fn action(row: &Cells<'_>) -> Result<ActionRow, Wrong> {
    Ok(ActionRow {
        id: action_id(row, "id")?,
        job: parsed(row, "job")?,
        attempt: parsed(row, "attempt")?,
        name: parsed(row, "name")?,
        ranks: parsed(row, "ranks")?,
        userid: column(row, "userid")?,
        env: json(row, "env")?,
        timeout_ms: perhaps(row, "timeout_ms")?,
        began_ms: number(row, "began_ms")?,
        waiting: parsed(row, "waiting")?,
        sent: parsed(row, "sent")?,
        accepted: parsed(row, "accepted")?,
        ok: parsed(row, "ok")?,
        not_ok: parsed(row, "ended")?,
        cancelling: parsed(row, "cancelling")?,
        cancel_why: column(row, "cancel_why")?,
        boots: json::<BTreeMap<u32, _>>(row, "boots")?,
        verdict: column::<Option<String>>(row, "verdict")?.map(|text| from_string("verdict", text)).transpose()?,
        ended_ms: perhaps(row, "ended_ms")?,
        events_from: number(row, "events_from")?,
        held: json(row, "held")?,
        growing: column(row, "growing")?,
        resolving: json(row, "resolving")?,
        external: column::<Option<String>>(row, "external")?
            .map(|text| serde_json::from_str(&text).map_err(|error| format!("external: {error}")))
            .transpose()?,
        overdue: json(row, "overdue")?,
        lingering: parsed(row, "lingering")?,
        limits: json(row, "limits")?,
        remarks: json(row, "remarks")?,
    })
}

fn drain(row: &Cells<'_>) -> Result<DrainRow, Wrong> {
    Ok(DrainRow {
        host: parsed(row, "host")?,
        since_ms: number(row, "since_ms")?,
        reason: column(row, "reason")?,
        by: column(row, "by")?,
        confirmed: column(row, "confirmed")?,
        lifted: column(row, "lifted")?,
        notified: column(row, "notified")?,
        stuck: column(row, "stuck")?,
        again: column::<Option<String>>(row, "again")?
            .map(|text| serde_json::from_str(&text).map_err(|error| format!("again: {error}")))
            .transpose()?,
        notice_id: number(row, "notice_id")?,
        asked_ms: number(row, "asked_ms")?,
        doubtful: column(row, "doubtful")?,
        passing: column::<Option<String>>(row, "passing")?
            .map(|text| serde_json::from_str(&text).map_err(|error| format!("passing: {error}")))
            .transpose()?,
    })
}

fn quiet(row: &Cells<'_>) -> Result<Quiet, Wrong> {
    Ok(Quiet { since_ms: number(row, "since_ms")?, by: column(row, "by")?, reason: column(row, "reason")? })
}

fn rank(row: &Cells<'_>) -> Result<RankRow, Wrong> {
    let task = TaskId { action: action_id(row, "action")?, rank: Rank(column(row, "rank")?) };
    let expects = column::<Option<String>>(row, "expects")?
        .map(|text| serde_json::from_str(&text).map_err(|error| format!("expects: {error}")))
        .transpose()?;
    Ok(RankRow { task, ended: json(row, "ended")?, late: json(row, "late")?, expects })
}

fn outbox(row: &Cells<'_>) -> Result<OutboxEntry, Wrong> {
    Ok(OutboxEntry {
        sequence: number(row, "sequence")?,
        epoch: number(row, "epoch")?,
        reader: from_string("edge", column(row, "edge")?)?,
        job: parsed(row, "job")?,
        attempt: parsed(row, "attempt")?,
        body: Body::parse(&column::<String>(row, "body")?).map_err(|error| format!("body: {error}"))?,
    })
}
