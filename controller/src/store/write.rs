//! Converts records to rows.

use perilog_core::controller::Record;
use perilog_core::controller::io::{
    ActionRow, AttemptRow, DrainRow, NodeRow, OutboxEntry, Quiet, RankRow, Recovered, RecoveryRow,
};
use perilog_core::ids::Epoch;
use perilog_core::mark::MAX_EPOCHS;
use perilog_core::{Attempt, Event, IdSet, JobId};
use rusqlite::{Connection, Params, Result, params};
use serde::Serialize;

pub(super) fn apply(db: &Connection, record: &Record) -> Result<()> {
    match record {
        Record::Commit(number) => run(db, "UPDATE last_commit SET number = ?1", [integer(*number)]),
        Record::Epoch(epoch) => epoch_range(db, *epoch),
        Record::Recovery(row) => recovery(db, row),
        Record::Node(row) => node(db, row),
        Record::NodeForgotten { host } => run(db, "DELETE FROM nodes WHERE host = ?1", [host.as_str()]),
        Record::Attempt(row) => attempt(db, row),
        Record::Action(row) => action(db, row),
        Record::ActionDelta { action, delta } => run(
            db,
            "INSERT INTO action_deltas (action, number, delta)
             SELECT id, (SELECT coalesce(max(number), 0) + 1 FROM action_deltas WHERE action = ?1), ?2
             FROM actions WHERE id = ?1",
            params![action.to_string(), json(delta)?],
        ),
        Record::AttemptDelta { job, attempt, holds } => run(
            db,
            "INSERT INTO attempt_deltas (job, attempt, number, delta)
             SELECT job, attempt,
                 (SELECT coalesce(max(number), 0) + 1 FROM attempt_deltas WHERE job = ?1 AND attempt = ?2), ?3
             FROM attempts WHERE job = ?1 AND attempt = ?2",
            params![job.as_str(), attempt.to_string(), json(holds)?],
        ),
        Record::Rank(row) => rank(db, row),
        Record::Event { job, sequence, event } => log(db, job, *sequence, event),
        Record::Outbox(entry) => outbox(db, entry),
        Record::OutboxApplied { through } => {
            run(db, "DELETE FROM outbox WHERE sequence <= ?1 AND edge = 'manager'", [integer(*through)])
        }
        Record::OutboxDone { sequence } => run(db, "DELETE FROM outbox WHERE sequence = ?1", [integer(*sequence)]),
        Record::Quiet(row) => quiet(db, row.as_ref()),
        Record::Drain(row) => drain(db, row),
        Record::Undrained { host } => run(db, "DELETE FROM drains WHERE host = ?1", [host.as_str()]),
        Record::Prune { job, attempt, whole_job } => prune(db, job, *attempt, *whole_job),
    }
}

fn run(db: &Connection, sql: &str, params: impl Params) -> Result<()> {
    db.prepare_cached(sql)?.execute(params).map(drop)
}

/// Converts a number to SQLite's signed integer; a number above the maximum becomes the maximum (no actual number
/// reaches it).
fn integer(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn json(value: &impl Serialize) -> Result<String> {
    serde_json::to_string(value).map_err(|error| rusqlite::Error::ToSqlConversionFailure(error.into()))
}

/// Returns a value whose JSON is a string, as that string.
fn string(value: impl Serialize) -> Result<String> {
    json(&value).map(|text| text.trim_matches('"').to_owned())
}

/// Writes that an epoch of the controller begins with the present commit, and forgets the oldest epochs past the
/// maximum.
fn epoch_range(db: &Connection, epoch: Epoch) -> Result<()> {
    let nonce = format!("{:016x}", epoch.nonce);
    run(
        db,
        "INSERT OR REPLACE INTO epochs (first, number, nonce) SELECT number, ?1, ?2 FROM last_commit",
        params![integer(epoch.number), nonce],
    )?;
    run(
        db,
        "DELETE FROM epochs WHERE first NOT IN (SELECT first FROM epochs ORDER BY first DESC LIMIT ?1)",
        [integer(MAX_EPOCHS as u64)],
    )
}

/// Writes the row about the controller's recovery. Also removes the stamp, which marks the store as a copy: its only
/// purpose was to begin the recovery.
fn recovery(db: &Connection, row: &RecoveryRow) -> Result<()> {
    run(db, "DELETE FROM recovery", [])?;
    run(db, "DELETE FROM stamp", [])?;
    run(
        db,
        "INSERT INTO recovery (since_ms, why, epoch, ended_ms) VALUES (?1, ?2, ?3, ?4)",
        params![integer(row.since_ms), row.why, integer(row.epoch), row.ended_ms.map(integer)],
    )
}

fn node(db: &Connection, row: &NodeRow) -> Result<()> {
    run(
        db,
        "INSERT OR REPLACE INTO nodes (host, machine, boot, boot_number, version, seen_ms) VALUES (?1, ?2, ?3, ?4, ?5, \
         ?6)",
        params![
            row.host.as_str(),
            row.machine.as_str(),
            row.boot.as_str(),
            row.boot_number,
            row.version,
            integer(row.seen_ms)
        ],
    )
}

fn attempt(db: &Connection, row: &AttemptRow) -> Result<()> {
    run(
        db,
        "DELETE FROM attempt_deltas WHERE job = ?1 AND attempt = ?2",
        params![row.job.as_str(), row.attempt.to_string()],
    )?;
    run(
        db,
        "INSERT OR REPLACE INTO attempts (job, attempt, ranks, hosts, userid, open, touched_ms, terms, added, hold, \
         released, complete,
             milestones, source, instance, abandoned, silent, recovered)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18)",
        params![
            row.job.as_str(),
            row.attempt.to_string(),
            row.ranks.to_string(),
            row.hosts.to_string(),
            row.userid,
            row.open,
            integer(row.touched_ms),
            json(&row.terms)?,
            row.added,
            json(&row.hold)?,
            json(&row.released)?,
            row.complete,
            json(&row.milestones)?,
            row.source.as_ref().map(|source| &source.name),
            row.source.as_ref().map(|source| &source.instance),
            row.abandoned,
            row.silent,
            match row.recovered {
                Recovered::No => 0,
                Recovered::Added => 1,
                Recovered::TakenUp => 2,
                Recovered::Begun => 3,
            }
        ],
    )
}

/// Inserts or updates the row of an action. An existing row keeps its number, and the numbers order the actions by
/// begin.
fn action(db: &Connection, row: &ActionRow) -> Result<()> {
    run(db, "DELETE FROM action_deltas WHERE action = ?1", [row.id.to_string()])?;
    run(
        db,
        "INSERT INTO actions (id, job, attempt, name, ranks, userid, env, timeout_ms, began_ms, waiting, sent, \
         accepted, ok, ended,
             cancelling, cancel_why, boots, verdict, ended_ms, events_from, held, growing, resolving, external,
             overdue, lingering, limits, remarks, live)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21, ?22, \
         ?23, ?24, ?25,
             ?26, ?27, ?28, ?29)
         ON CONFLICT (id) DO UPDATE SET job = ?2, attempt = ?3, name = ?4, ranks = ?5, userid = ?6, env = ?7, \
         timeout_ms = ?8,
             began_ms = ?9, waiting = ?10, sent = ?11, accepted = ?12, ok = ?13, ended = ?14, cancelling = ?15, \
         cancel_why = ?16,
             boots = ?17, verdict = ?18, ended_ms = ?19, events_from = ?20, held = ?21, growing = ?22,
             resolving = ?23, external = ?24, overdue = ?25, lingering = ?26, limits = ?27, remarks = ?28, live = ?29",
        params![
            row.id.to_string(),
            row.job.as_str(),
            row.attempt.to_string(),
            row.name.as_str(),
            row.ranks.to_string(),
            row.userid,
            json(&row.env)?,
            row.timeout_ms.map(integer),
            integer(row.began_ms),
            set(&row.waiting),
            set(&row.sent),
            set(&row.accepted),
            set(&row.ok),
            set(&row.not_ok),
            set(&row.cancelling),
            row.cancel_why,
            json(&row.boots)?,
            row.verdict.map(|verdict| verdict.as_str()),
            row.ended_ms.map(integer),
            integer(row.events_from),
            json(&row.held)?,
            row.growing,
            json(&row.resolving)?,
            row.external.as_ref().map(json).transpose()?,
            json(&row.overdue)?,
            set(&row.lingering),
            json(&row.limits)?,
            json(&row.remarks)?,
            row.is_live(),
        ],
    )
}

fn set(ids: &IdSet) -> String {
    ids.to_string()
}

fn rank(db: &Connection, row: &RankRow) -> Result<()> {
    run(
        db,
        "INSERT OR REPLACE INTO ranks (action, rank, outcome, ended, late, expects, ended_ms)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
        params![
            row.task.action.to_string(),
            row.task.rank.0,
            row.ended.outcome.as_str(),
            json(&row.ended)?,
            json(&row.late)?,
            row.expects.as_ref().map(json).transpose()?,
            integer(row.ended.ended_ms)
        ],
    )
}

fn drain(db: &Connection, row: &DrainRow) -> Result<()> {
    run(
        db,
        "INSERT OR REPLACE INTO drains (host, since_ms, reason, \"by\", confirmed, lifted, notified, stuck, again, \
         notice_id, asked_ms, doubtful, passing)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)",
        params![
            row.host.as_str(),
            integer(row.since_ms),
            row.reason,
            row.by,
            row.confirmed,
            row.lifted,
            row.notified,
            row.stuck,
            row.again.as_ref().map(json).transpose()?,
            integer(row.notice_id),
            integer(row.asked_ms),
            row.doubtful,
            row.passing.as_ref().map(json).transpose()?
        ],
    )
}

fn quiet(db: &Connection, row: Option<&Quiet>) -> Result<()> {
    run(db, "DELETE FROM quiet", [])?;
    let Some(row) = row else { return Ok(()) };
    run(
        db,
        "INSERT INTO quiet (since_ms, \"by\", reason) VALUES (?1, ?2, ?3)",
        params![integer(row.since_ms), row.by, row.reason],
    )
}

fn log(db: &Connection, job: &JobId, sequence: u64, event: &Event) -> Result<()> {
    run(
        db,
        "INSERT OR REPLACE INTO events (job, sequence, timestamp, name, context, written)
         SELECT ?1, ?2, ?3, ?4, ?5, number FROM last_commit",
        params![
            job.as_str(),
            integer(sequence),
            event.timestamp(),
            event.name(),
            event.context().map(json).transpose()?
        ],
    )
}

fn outbox(db: &Connection, entry: &OutboxEntry) -> Result<()> {
    run(
        db,
        "INSERT OR REPLACE INTO outbox (sequence, epoch, job, attempt, body, edge) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
        params![
            integer(entry.sequence),
            integer(entry.epoch),
            entry.job.as_str(),
            entry.attempt.to_string(),
            entry.body.as_str(),
            string(entry.reader)?
        ],
    )?;
    run(db, "UPDATE outbox_last SET sequence = ?1", [integer(entry.sequence)])
}

fn prune(db: &Connection, job: &JobId, attempt: Attempt, whole_job: bool) -> Result<()> {
    let of = params![job.as_str(), attempt.to_string()];
    run(db, "DELETE FROM ranks WHERE action IN (SELECT id FROM actions WHERE job = ?1 AND attempt = ?2)", of)?;
    run(db, "DELETE FROM action_deltas WHERE action IN (SELECT id FROM actions WHERE job = ?1 AND attempt = ?2)", of)?;
    run(db, "DELETE FROM attempt_deltas WHERE job = ?1 AND attempt = ?2", of)?;
    run(db, "DELETE FROM steps WHERE action IN (SELECT number FROM actions WHERE job = ?1 AND attempt = ?2)", of)?;
    run(db, "DELETE FROM scripts WHERE last < (SELECT coalesce(min(action), 9223372036854775807) FROM steps)", [])?;
    run(db, "DELETE FROM actions WHERE job = ?1 AND attempt = ?2", of)?;
    run(db, "DELETE FROM attempts WHERE job = ?1 AND attempt = ?2", of)?;
    run(db, "DELETE FROM outbox WHERE job = ?1 AND attempt = ?2", of)?;
    if whole_job {
        run(db, "DELETE FROM events WHERE job = ?1", [job.as_str()])?;
    }
    Ok(())
}
