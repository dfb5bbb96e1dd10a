//! Lists the newest actions, as `perilog jobs` shows them. The query walks the actions from the newest on and stops at
//! the limit, so its cost does not grow with what the store keeps; only a filter that few actions pass makes it walk
//! more.

use perilog_core::controller::{Layout, blamed, last_line};
use perilog_core::task::Ended;
use perilog_core::{HostList, IdSet};
use rusqlite::{Connection, OptionalExtension, params};
use serde::Serialize;

use super::StoreError;
use super::timings::{Since, StepReader, layout};

/// Maximum number of actions that one query looks at. A filter that nothing passes takes about a second for as many.
const MOST: usize = 200_000;
/// Maximum number of actions that one query looks at although they began before `since_ms`: they may have ended later.
const EARLIER: usize = 10_000;

/// An action of a job, with its verdict and what went wrong.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Listed {
    pub job: String,
    pub attempt: String,
    pub userid: Option<u32>,
    pub action: String,
    /// The word of the verdict, such as `failed`; `open`: the action has not ended.
    pub state: String,
    /// Time of the request, in milliseconds since 1970.
    pub began_ms: u64,
    pub ended_ms: Option<u64>,
    pub hosts: HostList,
    /// The hosts on which the action ended otherwise than ok.
    pub bad: HostList,
    /// How the action ended on one of the hosts in `bad`: `failed (exit 7)`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result: Option<String>,
    /// The script that failed there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub script: Option<String>,
    /// The last line that this script printed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<String>,
    /// Why an operator cancelled the action.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// A page of the newest actions. `truncated`: older ones may match, too.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Newest {
    pub jobs: Vec<Listed>,
    pub truncated: bool,
}

impl StepReader {
    /// Returns the actions of the selected name that began or ended at `since_ms` or later, the newest first, and at
    /// most `limit`. With `failed`, only ended actions with another verdict than ok.
    ///
    /// # Errors
    /// [`StoreError`] if the file cannot be read.
    pub fn newest(&self, of: &Since, failed: bool, limit: usize) -> Result<Newest, StoreError> {
        let db = self.db();
        let mut actions = db.prepare_cached(
            "SELECT began_ms, name, verdict, id, job, attempt, userid, ended_ms, ranks, cancel_why FROM actions
             ORDER BY number DESC",
        )?;
        let since = i64::try_from(of.since_ms).unwrap_or(i64::MAX);
        let mut rows = actions.query([])?;
        let (mut newest, mut seen) = (Newest::default(), 0);
        let mut earlier = 0;
        while let Some(row) = rows.next()? {
            let (began_ms, ended_ms): (i64, Option<i64>) = (row.get(0)?, row.get(7)?);
            // Actions are numbered as they begin. After a clock that was set back an older one may have a later time.
            if seen == MOST || earlier == EARLIER {
                newest.truncated = seen == MOST;
                break;
            }
            seen += 1;
            earlier += usize::from(began_ms < since);
            if began_ms.max(ended_ms.unwrap_or(began_ms)) < since {
                continue;
            }
            let (name, verdict): (String, Option<String>) = (row.get(1)?, row.get(2)?);
            let is_bad = verdict.as_deref().is_some_and(|verdict| verdict != "ok");
            if of.action.as_ref().is_some_and(|action| action.as_str() != name) || (failed && !is_bad) {
                continue;
            }
            if newest.jobs.len() == limit {
                newest.truncated = true;
                break;
            }
            let (id, job, attempt): (String, String, String) = (row.get(3)?, row.get(4)?, row.get(5)?);
            let layout = db
                .prepare_cached("SELECT ranks, hosts FROM attempts WHERE job = ?1 AND attempt = ?2")?
                .query_row(params![job, attempt], layout)
                .optional()?
                .flatten();
            let hosts_of = |ranks: &IdSet| layout.as_ref().map(|layout: &Layout| layout.hosts_of(ranks));
            let ranks: IdSet = row.get::<_, String>(8)?.parse().unwrap_or_default();
            let (bad, sample) = bad(&db, &id, verdict.as_deref())?;
            newest.jobs.push(Listed {
                hosts: hosts_of(&ranks).unwrap_or_default(),
                bad: hosts_of(&bad).unwrap_or_default(),
                result: sample.as_ref().map(Ended::result),
                script: sample.as_ref().and_then(blamed).map(|step| step.script.clone()),
                line: sample.as_ref().and_then(last_line),
                state: verdict.unwrap_or_else(|| "open".to_owned()),
                began_ms: began_ms.unsigned_abs(),
                ended_ms: ended_ms.map(i64::unsigned_abs),
                userid: row.get(6)?,
                why: row.get(9)?,
                job,
                attempt,
                action: name,
            });
        }
        Ok(newest)
    }
}

/// Returns the ranks of an action that ended otherwise than ok, and how one of them ended: the first whose outcome is
/// the verdict's, or else the first.
fn bad(db: &Connection, action: &str, verdict: Option<&str>) -> rusqlite::Result<(IdSet, Option<Ended>)> {
    // `expects`: the end of an open task, if an announced boot comes.
    const BAD: &str = "FROM ranks WHERE action = ?1 AND outcome <> 'ok' AND expects IS NULL
         AND NOT (outcome = 'resolved' AND json_extract(ended, '$.outcome.ok'))";
    let mut select = db.prepare_cached(&format!("SELECT rank {BAD}"))?;
    let ranks: IdSet = select.query_map([action], |row| row.get::<_, u32>(0))?.collect::<Result<_, _>>()?;
    let mut select = db.prepare_cached(&format!("SELECT ended {BAD} ORDER BY outcome IS NOT ?2, rank LIMIT 1"))?;
    let ended: Option<String> = select.query_row(params![action, verdict], |row| row.get(0)).optional()?;
    Ok((ranks, ended.and_then(|text| serde_json::from_str(&text).ok())))
}
