//! Durations of each task's scripts: one row per task. The store writes the row in the transaction that makes the
//! task's end durable, and removes the row with the attempt.
//!
//! The durations are for people (`perilog timeline`, `stats`, `skew`): no decision reads them, the machine does not
//! know them, and a full disk drops them first. A row has only numbers; `scripts` has names and digests, once each.

use std::collections::HashMap;
use std::sync::Arc;

use perilog_core::controller::{Layout, Record};
use perilog_core::ids::ActionId;
use perilog_core::task::Step;
use perilog_core::{ExitStatus, HostName, TaskId};
use rusqlite::{Connection, OptionalExtension, Result, params};

/// Maximum number of actions whose number, name and layout are cached; one more clears the cache. The ranks that end
/// within one batch normally belong to fewer actions.
const ACTIONS: usize = 64;
/// Maximum number of script digests in the cache: more than a site has scripts.
const DIGESTS: usize = 4_096;

/// Bit of a step's `marks`: the script failed, and the failure is tolerable.
pub(super) const TOLERABLE: u8 = 1;
/// Bit of a step's `marks`: the script passed its limit.
pub(super) const TIMED_OUT: u8 = 2;

/// A node's report of how long the scripts of a task ran.
#[derive(Debug, Clone, PartialEq)]
pub struct Ran {
    pub task: TaskId,
    /// The host that reported the durations: a node reports only its own tasks. `None`: no node did, because an
    /// announced reboot ended the task.
    pub host: Option<HostName>,
    /// The action's name; `None` until the store fills the name in, when it writes the durations.
    pub action: Option<Arc<str>>,
    pub outcome: &'static str,
    /// Begin of the task's scripts, in milliseconds since 1970, by the node's clock.
    pub began_ms: u64,
    pub elapsed_ms: u64,
    pub steps: Vec<Step>,
    /// Number of files that the runner skipped. The metrics count them; the store does not keep them.
    pub skipped: u64,
    /// Whether the task had no script to run. The metrics count it; the store does not keep it.
    pub empty: bool,
}

/// Cache of the numbers that the store gave to actions and scripts, so that the durations of a task cost one insert. A
/// failed transaction clears the cache.
#[derive(Debug, Default)]
pub(super) struct Known {
    actions: HashMap<ActionId, Action>,
    /// The cached scripts by digest. Each digest has a list, because scripts with different names may have the same
    /// digest.
    scripts: HashMap<String, Vec<Script>>,
}

#[derive(Debug)]
struct Action {
    number: i64,
    name: Arc<str>,
    layout: Layout,
}

#[derive(Debug)]
struct Script {
    name: String,
    id: i64,
    last: i64,
}

impl Known {
    pub(super) fn forget(&mut self) {
        *self = Self::default();
    }

    /// Stores the durations in `ran`, after the records of the same batch. Only the newly stored durations remain in
    /// `ran`.
    pub(super) fn write(&mut self, db: &Connection, records: &[Record], ran: &mut Vec<Ran>) -> Result<()> {
        // Pruning frees numbers for reuse, and a new attempt may have other hosts than an old attempt of the same name.
        if records.iter().any(|record| matches!(record, Record::Prune { .. })) {
            self.forget();
        }
        let mut wrong = None;
        ran.retain_mut(|ran| {
            wrong.is_none() && self.put(db, ran).unwrap_or_else(|error| wrong.replace(error).is_some())
        });
        wrong.map_or(Ok(()), Err)
    }

    /// Writes the durations of one task. Returns `false` if the store has them already, does not know the action, or if
    /// the host is not the host of the task's rank.
    fn put(&mut self, db: &Connection, ran: &mut Ran) -> Result<bool> {
        let Some(action) = self.action(db, ran.task.action)? else { return Ok(false) };
        let rank = ran.task.rank.0;
        if ran.host.as_ref().is_some_and(|host| action.layout.rank(host.as_str()) != Some(rank)) {
            return Ok(false);
        }
        let number = action.number;
        let host = action.layout.host(ran.task.rank).map(|host| host.to_string());
        ran.action = Some(action.name.clone());
        let mut steps = String::from("[");
        for step in &ran.steps {
            let script = self.script(db, step, number)?;
            if steps.len() > 1 {
                steps.push(',');
            }
            steps.push_str(&row(script, step, ran.began_ms));
        }
        steps.push(']');
        db.prepare_cached(
            "INSERT OR IGNORE INTO steps (action, rank, outcome, began_ms, elapsed_ms, steps, host) VALUES (?1, ?2, \
             ?3, ?4, ?5, ?6, ?7)",
        )?
        .execute(params![number, rank, ran.outcome, integer(ran.began_ms), integer(ran.elapsed_ms), steps, host])
        .map(|rows| rows > 0)
    }

    /// Returns the action's number, name and layout, from the cache or the store. `None`: the store has no such action,
    /// or its row is unreadable.
    fn action(&mut self, db: &Connection, id: ActionId) -> Result<Option<&Action>> {
        if !self.actions.contains_key(&id) {
            if self.actions.len() >= ACTIONS {
                self.actions.clear();
            }
            let found = db
                .prepare_cached(
                    "SELECT number, name, attempts.ranks, hosts FROM actions JOIN attempts USING (job, attempt) WHERE \
                     id = ?1",
                )?
                .query_row([id.to_string()], |row| {
                    let name: String = row.get(1)?;
                    Ok((row.get::<_, i64>(0)?, name, row.get::<_, String>(2)?, row.get::<_, String>(3)?))
                })
                .optional()?;
            // A missing action is not cached, because it may appear later.
            let action = found.and_then(|(number, name, ranks, hosts)| {
                let layout = Layout::new(ranks.parse().ok()?, hosts.parse().ok()?).ok()?;
                Some(Action { number, name: name.into(), layout })
            });
            let Some(action) = action else { return Ok(None) };
            self.actions.insert(id, action);
        }
        Ok(self.actions.get(&id))
    }

    /// Returns the number of a script, and records that this action uses the script.
    fn script(&mut self, db: &Connection, step: &Step, action: i64) -> Result<i64> {
        if self.scripts.len() >= DIGESTS && !self.scripts.contains_key(&step.digest) {
            self.scripts.clear();
        }
        let names = match self.scripts.get_mut(&step.digest) {
            Some(names) => names,
            None => self.scripts.entry(step.digest.clone()).or_default(),
        };
        if let Some(known) = names.iter().find(|known| known.name == step.script && known.last >= action) {
            return Ok(known.id);
        }
        names.retain(|known| known.name != step.script);
        if names.len() >= DIGESTS {
            names.clear();
        }
        let (id, last) = db
            .prepare_cached(
                "INSERT INTO scripts (name, digest, last) VALUES (?1, ?2, ?3)
                 ON CONFLICT (name, digest) DO UPDATE SET last = max(last, ?3) RETURNING id, last",
            )?
            .query_row(params![step.script, step.digest, action], |row| Ok((row.get(0)?, row.get(1)?)))?;
        names.push(Script { name: step.script.clone(), id, last });
        Ok(id)
    }
}

/// Formats a step as JSON numbers, such as `[7,10,20,0]`: the script's number, its begin after the task's begin (ms),
/// its duration (ms), its exit status. The number of the try and the bits ([`TOLERABLE`], [`TIMED_OUT`]) follow only if
/// needed.
fn row(script: i64, step: &Step, began_ms: u64) -> String {
    let after = step.began_ms.saturating_sub(began_ms);
    let status = step.status.map(ExitStatus::shell).map_or_else(|| "null".to_owned(), |status| status.to_string());
    let marks = u8::from(step.tolerable) * TOLERABLE + u8::from(step.timed_out) * TIMED_OUT;
    let more = match (step.attempt, marks) {
        (1, 0) => String::new(),
        (attempt, 0) => format!(",{attempt}"),
        (attempt, marks) => format!(",{attempt},{marks}"),
    };
    format!("[{script},{after},{},{status}{more}]", step.elapsed_ms)
}

fn integer(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
