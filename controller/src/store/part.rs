//! Parts of the store: what a start loads, and the jobs that a batch needs. Neither walks the finished jobs, which may
//! be many and stay in the store.

use std::collections::{BTreeMap, BTreeSet};

use perilog_core::controller::io::Fetched;
use perilog_core::controller::{Elsewhere, FAILED_KEPT, Holding, Layout, Needs, Snapshot};
use perilog_core::task::Ended;
use perilog_core::{HostName, JobId, Rank};
use rusqlite::{Connection, OptionalExtension, params};

use super::timings::layout;
use super::{StoreError, load};

/// Maximum number of failed tasks, the newest first, among which a start looks for the last ones of each node.
const MAX_FAILED: usize = 100_000;

/// Query for the jobs with pending work, and those of the newest verdicts. An action with rows in `action_deltas` may
/// have changed since its row was written.
const OPEN: &str = "
    SELECT job FROM attempts WHERE NOT complete OR abandoned
    UNION SELECT job FROM actions WHERE live
    UNION SELECT job FROM action_deltas CROSS JOIN actions ON id = action
    UNION SELECT job FROM ranks CROSS JOIN actions ON id = action WHERE expects IS NOT NULL
    UNION SELECT job FROM outbox WHERE edge <> 'manager'
    UNION SELECT job FROM (SELECT job FROM actions WHERE verdict IS NOT NULL ORDER BY ended_ms DESC LIMIT ?1)";

const OF_ACTIONS: &str = "SELECT job FROM actions WHERE id IN (SELECT value FROM json_each(?1))";
/// Query for the attempts without pending work that were changed least recently. All other attempts are in memory.
const OLDEST: &str = "SELECT job FROM attempts WHERE complete AND NOT abandoned AND touched_ms <= ?1
    ORDER BY touched_ms, job, attempt LIMIT ?2";
/// Query for the failed tasks, the newest first.
const FAILED: &str = "
    SELECT job, attempt, rank, outcome, CASE outcome WHEN 'resolved' THEN ranks.ended END FROM ranks
    CROSS JOIN actions ON id = action WHERE expects IS NULL AND outcome <> 'ok' ORDER BY ranks.ended_ms DESC";
/// All queries by which a start or a batch finds jobs, for a test of their plans.
#[cfg(test)]
pub(super) const QUESTIONS: [&str; 4] = [OPEN, OF_ACTIONS, OLDEST, FAILED];

/// Loads what a start needs: all but the jobs that have ended, and to which nothing refers.
pub(super) fn open(db: &Connection, holding: Holding) -> Result<Snapshot, StoreError> {
    let db = db.unchecked_transaction()?;
    let snapshot = load::without_jobs(&db)?;
    let mut jobs = names(&db, OPEN, [i64::try_from(holding.verdicts).unwrap_or(i64::MAX)])?;
    jobs.extend(snapshot.drains.iter().filter_map(|drain| drain.passing.as_ref()?.job().cloned()));
    jobs.extend(failed(&db, snapshot.nodes.iter().map(|node| &node.host))?);
    let Fetched { attempts, actions, ranks, events_last, mut outbox } = load::jobs(&db, &jobs)?;
    let here: BTreeSet<u64> = outbox.iter().map(|entry| entry.sequence).collect();
    outbox.extend(load::hooked(&db)?);
    outbox.sort_by_key(|entry| entry.sequence);
    let count = |sql: &str| db.query_row(sql, [], |row| row.get::<_, i64>(0)).map(|n| usize::try_from(n).unwrap_or(0));
    let loaded: BTreeSet<&JobId> = attempts.iter().map(|row| &row.job).collect();
    let elsewhere = Elsewhere {
        jobs: count("SELECT count(DISTINCT job) FROM attempts")?.saturating_sub(loaded.len()),
        attempts: count("SELECT count(*) FROM attempts")?.saturating_sub(attempts.len()),
        actions: count("SELECT count(*) FROM actions")?.saturating_sub(actions.len()),
        notices: notices(&db, &here)?,
    };
    Ok(Snapshot { attempts, actions, ranks, events_last, outbox, elsewhere, ..snapshot })
}

/// Loads the jobs that a batch needs, those that the store has.
pub(super) fn fetch(db: &Connection, needs: &Needs) -> Result<Fetched, StoreError> {
    let db = db.unchecked_transaction()?;
    let mut jobs = needs.jobs.clone();
    if !needs.actions.is_empty() {
        let ids: Vec<String> = needs.actions.iter().map(ToString::to_string).collect();
        let ids = serde_json::to_string(&ids).unwrap_or_default();
        jobs.extend(names(&db, OF_ACTIONS, [ids])?);
    }
    if let Some(oldest) = needs.oldest {
        let until_ms = i64::try_from(oldest.until_ms).unwrap_or(i64::MAX);
        let limit = i64::try_from(oldest.limit).unwrap_or(i64::MAX);
        jobs.extend(names(&db, OLDEST, [until_ms, limit])?);
    }
    let mut fetched = if jobs.is_empty() { Fetched::default() } else { load::jobs(&db, &jobs)? };
    if let Some((after, limit)) = needs.page {
        let here: BTreeSet<u64> = fetched.outbox.iter().map(|entry| entry.sequence).collect();
        let page = load::page(&db, after, limit)?;
        fetched.outbox.extend(page.into_iter().filter(|entry| !here.contains(&entry.sequence)));
        fetched.outbox.sort_by_key(|entry| entry.sequence);
    }
    Ok(fetched)
}

/// Returns the lowest and the highest sequence number of the notices to the resource manager that are not `here`;
/// `None`: all are here. The search from each end is short, because it passes only notices that are here.
fn notices(db: &Connection, here: &BTreeSet<u64>) -> Result<Option<(u64, u64)>, StoreError> {
    let mut ends = [None, None];
    for (end, order) in ends.iter_mut().zip(["", "DESC"]) {
        let sql = format!("SELECT sequence FROM outbox WHERE edge = 'manager' ORDER BY sequence {order}");
        let mut select = db.prepare(&sql)?;
        let mut rows = select.query([])?;
        while let Some(row) = rows.next()?.filter(|_| end.is_none()) {
            let sequence = row.get::<_, i64>(0)?.unsigned_abs();
            *end = Some(sequence).filter(|sequence| !here.contains(sequence));
        }
    }
    let [first, last] = ends;
    Ok(first.zip(last))
}

/// Returns the jobs that a query selects.
///
/// # Errors
/// [`StoreError`]: the query fails, or a row has a malformed name of a job.
fn names(db: &Connection, sql: &str, params: impl rusqlite::Params) -> Result<BTreeSet<JobId>, StoreError> {
    let mut statement = db.prepare_cached(sql)?;
    let names = statement.query_map(params, |row| row.get::<_, String>(0))?;
    let mut jobs = BTreeSet::new();
    for name in names {
        let name = name?;
        // Without this check, a start would leave out the job that an operator has edited, and go on.
        jobs.insert(JobId::new(&name).map_err(|error| StoreError::Other(format!("job {name:?}: {error}")))?);
    }
    Ok(jobs)
}

/// Returns the jobs of the last [`FAILED_KEPT`] failed tasks of each of these hosts.
fn failed<'a>(db: &Connection, hosts: impl Iterator<Item = &'a HostName>) -> Result<BTreeSet<JobId>, StoreError> {
    let mut left: BTreeMap<&HostName, usize> = hosts.map(|host| (host, FAILED_KEPT)).collect();
    let mut open = left.len();
    let mut layouts: BTreeMap<(String, String), Option<Layout>> = BTreeMap::new();
    let mut jobs = BTreeSet::new();
    let mut select = db.prepare(FAILED)?;
    let mut rows = select.query([])?;
    for _ in 0..MAX_FAILED {
        let Some(row) = rows.next()?.filter(|_| open > 0) else { break };
        let ended: Option<String> = row.get(4)?;
        let ended = ended.and_then(|text| serde_json::from_str::<Ended>(&text).ok());
        if ended.is_some_and(|ended| ended.outcome.is_ok()) {
            continue;
        }
        let key: (String, String) = (row.get(0)?, row.get(1)?);
        let of = match layouts.get(&key) {
            Some(of) => of,
            None => {
                let of = db
                    .prepare_cached("SELECT ranks, hosts FROM attempts WHERE job = ?1 AND attempt = ?2")?
                    .query_row(params![key.0, key.1], layout)
                    .optional()?
                    .flatten();
                layouts.entry(key.clone()).or_insert(of)
            }
        };
        let host = of.as_ref().and_then(|layout| layout.host(Rank(row.get(2).ok()?)));
        let Some(left) = host.and_then(|host| left.get_mut(&host)).filter(|left| **left > 0) else { continue };
        *left -= 1;
        open -= usize::from(*left == 0);
        jobs.extend(JobId::new(&key.0).ok());
    }
    Ok(jobs)
}

#[cfg(test)]
mod tests {
    use super::super::{Durable, Store};
    use super::*;

    /// Regression test: a start left out a job whose name an operator had edited, and began without it.
    #[test]
    fn a_start_names_a_job_with_a_malformed_name() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("controller.db");
        let mut store = Store::open(&path).unwrap();
        store.commit(&[]).unwrap();
        let edit = "INSERT INTO attempts (job, attempt, ranks, hosts, open, touched_ms) \
                    VALUES ('f 1', '0', '0', 'n0', 1, 1)";
        Connection::open(&path).unwrap().execute_batch(edit).unwrap();
        let error = store.load_open(Holding::default()).unwrap_err().to_string();
        assert!(error.contains("controller.db: job \"f 1\": "), "{error}");
    }
}
