//! Fills a store with finished jobs, as the controller would have left them: one rank each, its prolog and its epilog
//! ok, all released, with the events and the durations. The jobs began within the last hour.

use std::path::Path;

use anyhow::{Context, Result};
use perilog_core::ids::{ActionId, ClusterId};
use perilog_core::{ActionName, Attempt, IdSet, JobId, Part};
use perilog_host::clock;
use rusqlite::{Connection, Statement, Transaction, params};

use crate::authority;

/// Number of nodes of the cluster.
const NODES: usize = 64;
/// A further node, which has no job.
pub(super) const SPARE: &str = "spare";
/// Number of scripts that each action runs.
const SCRIPTS: i64 = 2;
/// Milliseconds within which all jobs began.
const WITHIN_MS: i64 = 3_600_000;

/// Returns the host of the job number `n`.
pub(super) fn host(n: usize) -> String {
    format!("n{}", n % NODES)
}

/// Returns the id of the job number `n`.
pub(super) fn job(n: usize) -> String {
    format!("j{n}")
}

/// Fills the store at `path`, whose controller is not running, with the jobs 0 to `jobs` - 1.
pub(super) fn fill(path: &Path, jobs: usize) -> Result<()> {
    let mut db = Connection::open(path).with_context(|| format!("opening {}", path.display()))?;
    let transaction = db.transaction()?;
    nodes(&transaction)?;
    let count = i64::try_from(jobs)?;
    let from_ms = i64::try_from(clock::wall_ms())? - WITHIN_MS;
    {
        let mut rows = Rows::new(&transaction)?;
        for n in 0..jobs {
            rows.job(n, from_ms + WITHIN_MS * i64::try_from(n)? / count.max(1))?;
        }
    }
    let scripts = "INSERT INTO scripts (id, name, digest, last) VALUES (?1, ?2, ?3, ?4)";
    for id in 1..=SCRIPTS * 2 {
        transaction.execute(scripts, params![id, format!("{id}0-script"), format!("{id:064x}"), count * 2])?;
    }
    transaction.execute("UPDATE last_commit SET number = number + ?1", [count])?;
    transaction.commit().context("filling the store")
}

fn nodes(db: &Transaction<'_>) -> Result<()> {
    let mut insert = db.prepare(
        "INSERT INTO nodes (host, machine, boot, boot_number, version, seen_ms) VALUES (?1, ?2, ?2, 1, '0.1.0', 0)",
    )?;
    for (n, host) in (0..NODES).map(host).chain([SPARE.to_owned()]).enumerate() {
        insert.execute(params![host, format!("{n:032x}")])?;
    }
    Ok(())
}

/// The statements that write a job.
struct Rows<'a> {
    attempt: Statement<'a>,
    action: Statement<'a>,
    steps: Statement<'a>,
    event: Statement<'a>,
    rank: String,
}

impl<'a> Rows<'a> {
    fn new(db: &'a Connection) -> Result<Self> {
        Ok(Self {
            attempt: db.prepare(
                "INSERT INTO attempts (job, attempt, ranks, hosts, userid, open, touched_ms, added, released, complete)
                 VALUES (?1, ?2, '0', ?3, 1000, 1, ?4, 1, ?5, 1)",
            )?,
            action: db.prepare(
                "INSERT INTO actions (id, job, attempt, name, ranks, userid, env, timeout_ms, began_ms, waiting, sent, \
                 accepted, ok, ended, cancelling, boots, verdict, ended_ms, events_from, live)
                 VALUES (?1, ?2, ?3, ?4, '0', 1000, '{}', 600000, ?5, '', '', '', '0', '', '', '{\"1\":\"0\"}', 'ok', \
                 ?5 + 500, ?6, 0)",
            )?,
            steps: db.prepare(
                "INSERT INTO steps (action, rank, outcome, began_ms, elapsed_ms, steps, host) VALUES (?1, 0, 'ok', ?2, \
                 500, ?3, ?4)",
            )?,
            event: db.prepare(
                "INSERT INTO events (job, sequence, timestamp, name, context, written) VALUES (?1, ?2, ?3, ?4, ?5, 1)",
            )?,
            rank: serde_json::to_string(&Part::of_ranks(IdSet::from(0..=0)))?,
        })
    }

    fn job(&mut self, n: usize, began_ms: i64) -> Result<()> {
        let (job, host, attempt) = (JobId::new(&job(n))?, host(n), Attempt::FIRST);
        let number = attempt.to_string();
        self.attempt.execute(params![job.as_str(), number, host, began_ms + 2_000, self.rank])?;
        for (at, name) in ["prolog", "epilog"].into_iter().enumerate() {
            let at = i64::try_from(at)?;
            let (name, began_ms) = (ActionName::new(name)?, began_ms + 1_000 * at);
            let id = ActionId::of(ClusterId::from_name(authority::CLUSTER), &job, attempt, &name);
            let row = params![id.to_string(), job.as_str(), number, name.as_str(), began_ms, 3 * at];
            let action = self.action.insert(row)?;
            let first = at * SCRIPTS + 1;
            let steps: Vec<String> =
                (0..SCRIPTS).map(|script| format!("[{},{},230,0]", first + script, 250 * script)).collect();
            self.steps.execute(params![action, began_ms, format!("[{}]", steps.join(",")), host])?;
            for (more, event) in ["start", "finish", "verdict"].into_iter().enumerate() {
                let sequence = 3 * at + i64::try_from(more)? + 1;
                let context = format!("{{\"action\":\"{name}\",\"attempt\":\"{number}\",\"ok\":\"0\"}}");
                let timestamp = began_ms as f64 / 1000.0;
                self.event.execute(params![job.as_str(), sequence, timestamp, event, context])?;
            }
        }
        Ok(())
    }
}
