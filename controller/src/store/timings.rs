//! Reads durations of scripts: the tasks of a job, and sums over a period (`skew`: scripts that differ between nodes).
//! The reader has a separate read-only connection, so that a sum over a million tasks delays no follower of an event
//! log.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use perilog_core::controller::Layout;
use perilog_core::controller::view::PAGE_BYTES;
use perilog_core::{ActionName, Attempt, JobId, Rank};
use rusqlite::{Connection, OpenFlags, OptionalExtension, Row, params};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::StoreError;
use super::steps::TOLERABLE;
use super::walk::{Step, at, parse, walk};

/// Read-only connection for the durations of tasks and scripts. Cheap to clone; concurrent reads wait for each other.
#[derive(Debug, Clone)]
pub struct StepReader {
    db: Arc<Mutex<Connection>>,
}

/// Selects tasks of a job.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Which {
    pub job: JobId,
    /// The attempt of the job; `None`: the attempt of the job's newest action. If the job has no action, there is
    /// no task to select, and `None` stands for any attempt.
    pub attempt: Option<Attempt>,
    pub action: Option<ActionName>,
}

/// A page of tasks. `next`: the place after which the next page begins; `None` for the last page.
#[derive(Debug)]
pub struct Page {
    pub tasks: Vec<Value>,
    pub next: Option<Place>,
}

/// The number of an action, and a rank of the action.
pub type Place = (i64, u32);

/// Selects actions by their time, and by their name (`None`: all names).
#[derive(Debug, Clone)]
pub struct Since {
    /// Actions that began at this time or later, in milliseconds since 1970; in a list of actions
    /// ([`StepReader::newest`]), also those that ended then.
    pub since_ms: u64,
    pub action: Option<ActionName>,
}

/// Unfinished work. `manager`: notices that no edge has confirmed; `release_hook`: releases that the release hook has
/// not carried out; `drains` and `undrains`: drains to make and to lift that are not confirmed yet.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Pending {
    pub manager: u64,
    pub release_hook: u64,
    pub drains: u64,
    pub undrains: u64,
    /// The begin of the oldest action that has not ended, in milliseconds since 1970; `None`: all actions have ended.
    pub oldest_open_ms: Option<u64>,
}

/// The subject of one line of `perilog stats`: an action's tasks (`host` and `script` are `None`), its tasks on one
/// host, or one of its scripts.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    action: String,
    host: Option<String>,
    script: Option<String>,
}

/// One line of `perilog stats`: counts and times of an action's tasks, of its tasks on one host, or of one of its
/// scripts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Total {
    pub action: String,
    /// The host whose tasks the line sums up, in sums by node; otherwise `None`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// The script whose tries the line sums up; `None`: the line is about the action's tasks as a whole.
    pub script: Option<String>,
    pub count: u64,
    /// Tasks with an outcome other than ok; for a script, tries with a status other than 0.
    pub failed: u64,
    pub timed_out: u64,
    pub min_ms: u64,
    pub median_ms: u64,
    pub p95_ms: u64,
    pub max_ms: u64,
}

/// The lines of `perilog stats`, and the number of tasks that they sum up.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Totals {
    pub rows: Vec<Total>,
    pub tasks: u64,
    /// Whether the sum omits older tasks, because there are more than a sum may have.
    pub truncated: bool,
}

#[derive(Default)]
struct Times {
    millis: Vec<u32>,
    failed: u64,
    timed_out: u64,
}

/// The times of an action's scripts.
#[derive(Default)]
struct ByScript {
    all: Vec<(i64, Times)>,
    places: HashMap<i64, usize>,
}

impl ByScript {
    /// Returns the times of a script. `place`: the script's place in its task, where the search begins, because most
    /// tasks of an action run the same scripts.
    fn of(&mut self, script: i64, place: usize) -> &mut Times {
        let is_there = self.all.get(place).is_some_and(|(known, _)| *known == script);
        let place = if is_there { place } else { *self.places.entry(script).or_insert(self.all.len()) };
        if place == self.all.len() {
            self.all.push((script, Times::default()));
        }
        &mut self.all[place].1
    }
}

impl StepReader {
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

    pub(super) fn db(&self) -> MutexGuard<'_, Connection> {
        self.db.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a page of the tasks of a job's attempt whose durations the store has, ordered by action and rank: at
    /// most `limit` tasks past the place `after`. `None`: the attempt does not exist.
    ///
    /// # Errors
    /// [`StoreError`] if the file cannot be read.
    pub fn timeline(&self, which: &Which, after: Option<Place>, limit: usize) -> Result<Option<Page>, StoreError> {
        let db = self.db();
        let Some(attempt) = attempt_of(&db, which)? else { return Ok(None) };
        let layout = db.query_row(
            "SELECT ranks, hosts FROM attempts WHERE job = ?1 AND attempt = ?2",
            params![which.job.as_str(), attempt],
            layout,
        )?;
        let scripts = scripts(&db)?;
        let (number, rank) = after.map_or((-1, -1), |(number, rank)| (number, i64::from(rank)));
        let mut statement = db.prepare_cached(
            "SELECT actions.number, actions.name, actions.began_ms, steps.rank, steps.outcome, steps.began_ms, \
             steps.elapsed_ms, steps.steps
             FROM actions JOIN steps ON steps.action = actions.number
             WHERE actions.job = ?1 AND actions.attempt = ?2 AND (?3 IS NULL OR actions.name = ?3)
               AND (actions.number > ?4 OR actions.number = ?4 AND steps.rank > ?5)
             ORDER BY actions.number, steps.rank LIMIT ?6",
        )?;
        let action = which.action.as_ref().map(ActionName::as_str);
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let mut rows =
            statement.query(params![which.job.as_str(), attempt, action, number, rank, limit.saturating_add(1)])?;
        let (mut page, mut steps) = (Page { tasks: Vec::new(), next: None }, Vec::new());
        let (mut last, mut left) = (None, PAGE_BYTES);
        while let Some(row) = rows.next()? {
            if page.tasks.len() as i64 == limit {
                page.next = last;
                break;
            }
            let rank: u32 = row.get(3)?;
            let host = layout.as_ref().and_then(|layout| layout.host(Rank(rank)));
            parse(row.get_ref(7)?.as_str().unwrap_or_default(), &mut steps);
            let began: Value = row.get::<_, i64>(5)?.into();
            let task = serde_json::json!({
                "attempt": attempt, "action": row.get::<_, String>(1)?, "asked_ms": row.get::<_, i64>(2)?, "rank": rank,
                "host": host,
                "outcome": row.get::<_, String>(4)?, "began_ms": began, "elapsed_ms": row.get::<_, i64>(6)?,
                "steps": steps.iter().map(|step| reported(step, &scripts)).collect::<Vec<_>>(),
            });
            let bytes = serde_json::to_vec(&task).map_or(0, |json| json.len() + 1);
            if bytes > left && !page.tasks.is_empty() {
                page.next = last;
                break;
            }
            left = left.saturating_sub(bytes);
            page.tasks.push(task);
            last = Some((row.get(0)?, rank));
        }
        Ok(Some(page))
    }

    /// Returns counts, failures and times by action and script.
    ///
    /// # Errors
    /// [`StoreError`] if the file cannot be read.
    pub fn totals(&self, of: &Since) -> Result<Totals, StoreError> {
        let db = self.db();
        let scripts = scripts(&db)?;
        let mut times: Vec<(Times, ByScript)> = Vec::new();
        let mut steps = Vec::new();
        let walked = walk(&db, of, |task| {
            let (whole, by_script) = at(&mut times, task.action);
            parse(task.steps(), &mut steps);
            whole.add(task.elapsed_ms(), task.outcome() != "ok", steps.iter().any(Step::timed_out));
            for (place, step) in steps.iter().enumerate() {
                by_script.of(step.script, place).add(step.elapsed_ms, step.failed(), step.timed_out());
            }
        })?;
        let mut totals: BTreeMap<Key, Times> = BTreeMap::new();
        for (action, (whole, by_script)) in times.into_iter().enumerate() {
            let key = |script| Key { action: walked.names.get(action).to_owned(), host: None, script };
            totals.insert(key(None), whole);
            for (id, of_script) in by_script.all {
                // Sums over all digests of the script.
                let script = scripts.get(&id).map_or_else(|| format!("#{id}"), |(name, _)| name.clone());
                totals.entry(key(Some(script))).or_default().join(of_script);
            }
        }
        let rows = totals.into_iter().filter_map(|(key, times)| times.total(key)).collect();
        Ok(Totals { rows, tasks: walked.tasks, truncated: walked.truncated })
    }

    /// Returns counts, failures and times by action and node, the worst node of each action first. Leaves out a task if
    /// the store has no readable layout of its attempt.
    ///
    /// # Errors
    /// [`StoreError`] if the file cannot be read.
    pub fn totals_by_node(&self, of: &Since) -> Result<Totals, StoreError> {
        let db = self.db();
        let mut times: Vec<HashMap<String, Times>> = Vec::new();
        let mut steps = Vec::new();
        let walked = walk(&db, of, |task| {
            let Some(host) = task.host() else { return };
            let hosts = at(&mut times, task.action);
            if !hosts.contains_key(host) {
                hosts.insert(host.to_owned(), Times::default());
            }
            let Some(times) = hosts.get_mut(host) else { return };
            parse(task.steps(), &mut steps);
            times.add(task.elapsed_ms(), task.outcome() != "ok", steps.iter().any(Step::timed_out));
        })?;
        let key = |action, host| Key { action: walked.names.get(action).to_owned(), host: Some(host), script: None };
        let times = times.into_iter().enumerate().flat_map(|(action, hosts)| {
            let hosts: BTreeMap<String, Times> = hosts.into_iter().collect();
            hosts.into_iter().map(move |(host, times)| (key(action, host), times))
        });
        let mut rows: Vec<Total> = times.filter_map(|(key, times)| times.total(key)).collect();
        let worst = |row: &Total| (std::cmp::Reverse(row.failed), std::cmp::Reverse(row.p95_ms));
        // Stable: nodes that are alike stay in the order of their names.
        rows.sort_by(|a, b| a.action.cmp(&b.action).then(worst(a).cmp(&worst(b))));
        Ok(Totals { rows, tasks: walked.tasks, truncated: walked.truncated })
    }

    /// Returns how many notices and drains no hook or edge has carried out yet, and when the oldest open action began.
    pub fn pending(&self) -> Result<Pending, StoreError> {
        let db = self.db();
        let count = |sql: &str| -> Result<u64, StoreError> {
            let count: i64 = db.prepare_cached(sql)?.query_row([], |row| row.get(0))?;
            Ok(u64::try_from(count).unwrap_or(0))
        };
        Ok(Pending {
            manager: count("SELECT count(*) FROM outbox WHERE edge = 'manager'")?,
            release_hook: count("SELECT count(*) FROM outbox WHERE edge = 'release-hook'")?,
            drains: count("SELECT count(*) FROM drains WHERE NOT confirmed AND NOT lifted")?,
            undrains: count("SELECT count(*) FROM drains WHERE lifted")?,
            oldest_open_ms: db
                .prepare_cached("SELECT min(began_ms) FROM actions WHERE verdict IS NULL")?
                .query_row([], |row| row.get::<_, Option<i64>>(0))?
                .and_then(|ms| u64::try_from(ms).ok()),
        })
    }
}

impl Times {
    fn add(&mut self, millis: u64, failed: bool, timed_out: bool) {
        self.millis.push(u32::try_from(millis).unwrap_or(u32::MAX));
        self.failed += u64::from(failed);
        self.timed_out += u64::from(timed_out);
    }

    fn join(&mut self, other: Self) {
        self.millis.extend(other.millis);
        self.failed += other.failed;
        self.timed_out += other.timed_out;
    }

    fn total(mut self, key: Key) -> Option<Total> {
        let (min, max) = (*self.millis.iter().min()?, *self.millis.iter().max()?);
        // The smallest value with at least this share of all values at or below it. The 95th comes first: then the
        // values of the median are before its place.
        let place = |hundredths: usize| (self.millis.len() * hundredths).div_ceil(100).saturating_sub(1);
        let (median, p95) = (place(50), place(95));
        let p95_ms = *self.millis.select_nth_unstable(p95).1;
        let median_ms = *self.millis.get_mut(..=p95)?.select_nth_unstable(median).1;
        let [min_ms, median_ms, p95_ms, max_ms] = [min, median_ms, p95_ms, max].map(u64::from);
        Some(Total {
            action: key.action,
            host: key.host,
            script: key.script,
            count: self.millis.len() as u64,
            failed: self.failed,
            timed_out: self.timed_out,
            min_ms,
            median_ms,
            p95_ms,
            max_ms,
        })
    }
}

/// Parses the layout of an attempt from its columns `ranks` and `hosts`; `None` if an operator has edited the row
/// wrongly.
pub(super) fn layout(row: &Row<'_>) -> rusqlite::Result<Option<Layout>> {
    let (ranks, hosts): (String, String) = (row.get(0)?, row.get(1)?);
    Ok(ranks.parse().ok().zip(hosts.parse().ok()).and_then(|(ranks, hosts)| Layout::new(ranks, hosts).ok()))
}

/// Returns the attempt that `which` names, or else the attempt of the job's newest action (any attempt if the job has
/// no action). `None`: no such attempt exists.
pub(super) fn attempt_of(db: &Connection, which: &Which) -> rusqlite::Result<Option<String>> {
    let newest = "SELECT attempts.attempt FROM attempts LEFT JOIN actions USING (job, attempt)
         WHERE job = ?1 AND (?2 IS NULL OR attempts.attempt = ?2) ORDER BY actions.number IS NULL, actions.number DESC \
         LIMIT 1";
    let attempt = which.attempt.map(|attempt| attempt.to_string());
    db.prepare_cached(newest)?.query_row(params![which.job.as_str(), attempt], |row| row.get(0)).optional()
}

/// Returns name and digest of each script, by the script's number.
pub(super) fn scripts(db: &Connection) -> rusqlite::Result<HashMap<i64, (String, String)>> {
    let mut statement = db.prepare_cached("SELECT id, name, digest FROM scripts")?;
    let rows = statement.query_map([], |row| Ok((row.get(0)?, (row.get(1)?, row.get(2)?))))?;
    rows.collect()
}

fn reported(step: &Step, scripts: &HashMap<i64, (String, String)>) -> Value {
    let (name, digest) = scripts.get(&step.script).cloned().unwrap_or_default();
    serde_json::json!({
        "script": name, "digest": digest, "try": step.attempt, "after_ms": step.after_ms, "elapsed_ms": step.elapsed_ms,
        "status": step.status, "tolerable": step.marks & TOLERABLE != 0, "timed_out": step.timed_out(),
    })
}
