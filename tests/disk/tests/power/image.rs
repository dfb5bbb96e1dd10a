//! Examination of an image of the controller's disk: the store opens as at a start, nothing acknowledged is missing,
//! nothing looks like a restored store, and a further batch can be committed.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use perilog_controller::store::{Durable, EventReader, Store};
use perilog_core::controller::io::ActionRow;
use perilog_core::controller::{Record, Snapshot};
use perilog_core::task::Ended;
use perilog_core::{Event, JobId, Rank, TaskId};
use perilog_disk::power::Cut;
use perilog_host::authority;
use rusqlite::Connection;
use serde_json::Value;

type Wrong = Box<dyn std::error::Error>;

/// Returns what is wrong with an image; `None`: all is well.
pub(crate) fn problem(cut: &Cut<'_>) -> Option<String> {
    let dir = crate::in_memory();
    cut.image.write(dir.path()).unwrap();
    examine(dir.path(), &cut.acknowledged).err().map(|wrong| wrong.to_string())
}

/// Examines the directory of a controller that is not running.
pub(crate) fn examine(dir: &Path, acknowledged: &[&str]) -> Result<(), Wrong> {
    let path = dir.join("controller.db");
    let mut store = Store::open(&path)?;
    let found = Found { snapshot: store.load()?, reader: EventReader::open(&path)? };
    found.is_in_order()?;
    let mut events: BTreeMap<JobId, BTreeSet<(u64, String)>> = BTreeMap::new();
    for what in acknowledged {
        let words: Vec<&str> = what.split(' ').collect();
        if let ["event", job, ..] = words[..] {
            let job = JobId::new(job)?;
            if !events.contains_key(&job) {
                events.insert(job.clone(), found.events(&job)?);
            }
        }
        if !found.has(&words, &events, dir)? {
            return Err(format!("lost: {what}").into());
        }
    }
    let job = JobId::new("afterwards")?;
    store.commit(&[Record::Event { job: job.clone(), sequence: 1, event: Event::at_millis(1, "finish", None) }])?;
    drop(store);
    if found.reader.events(&job, 0, 1)?.len() != 1 {
        return Err("a batch after the cut is not there".into());
    }
    let db = Connection::open(&path)?;
    let verdict: String = db.query_row("PRAGMA integrity_check", [], |row| row.get(0))?;
    if verdict == "ok" { Ok(()) } else { Err(verdict.into()) }
}

struct Found {
    snapshot: Snapshot,
    reader: EventReader,
}

impl Found {
    /// Fails if a controller would take the store for an older copy, or for a damaged one.
    fn is_in_order(&self) -> Result<(), Wrong> {
        let Snapshot { history, stamp, anchor, moved, recovery, .. } = &self.snapshot;
        let newest = history.newest();
        // The anchor is written once its commit is on the disk.
        if anchor.is_some_and(|anchor| newest.is_none_or(|newest| anchor.number > newest.number)) {
            return Err(format!("the anchor has {anchor:?}, and the store {newest:?}").into());
        }
        if *moved || stamp.is_some() || recovery.is_some() {
            return Err(format!("moved: {moved}, stamp: {stamp:?}, recovery: {recovery:?}").into());
        }
        Ok(())
    }

    fn events(&self, job: &JobId) -> Result<BTreeSet<(u64, String)>, Wrong> {
        let (mut events, mut last) = (BTreeSet::new(), 0);
        loop {
            let page = self.reader.events(job, last, usize::MAX)?;
            if page.is_empty() {
                return Ok(events);
            }
            for (number, event) in page {
                if number != last + 1 {
                    return Err(format!("{job} has the event {number} behind the event {last}").into());
                }
                last = number;
                events.insert((number, event.name().to_owned()));
            }
        }
    }

    /// Returns whether what a mark names is there.
    fn has(&self, mark: &[&str], events: &BTreeMap<JobId, BTreeSet<(u64, String)>>, dir: &Path) -> Result<bool, Wrong> {
        let Snapshot { attempts, actions, drains, .. } = &self.snapshot;
        let action = |job: &str, attempt: &str, name: &str| {
            let is_it = |row: &&ActionRow| row.job.as_str() == job && row.attempt.to_string() == attempt;
            actions.iter().filter(is_it).find(|row| row.name.as_str() == name)
        };
        Ok(match *mark {
            ["attempt", job, attempt] => {
                attempts.iter().any(|row| row.job.as_str() == job && row.attempt.to_string() == attempt)
            }
            ["action", job, attempt, name] => action(job, attempt, name).is_some(),
            ["end", job, attempt, name, rank, outcome] => {
                let rank = rank.parse()?;
                action(job, attempt, name).is_some_and(|row| self.has_ended(row, rank, outcome))
            }
            ["event", job, number, name] => events[&JobId::new(job)?].contains(&(number.parse()?, name.to_owned())),
            ["quiet"] => self.snapshot.quiet.is_some(),
            ["drain", host] => drains.iter().any(|row| row.host.as_str() == host),
            ["token", digest] => token(dir, digest).is_some(),
            ["certificate", digest] => {
                let token = token(dir, digest).ok_or("the token is lost")?;
                let list = std::fs::read(dir.join("enroll").join(authority::ISSUED))?;
                authority::known(&list).issued.iter().any(|issued| token["serial"] == issued.serial)
            }
            _ => return Err(format!("a mark that the examination does not know: {mark:?}").into()),
        })
    }

    /// Returns whether the store has this outcome of a rank: as how it ended, or as a report that came later.
    fn has_ended(&self, action: &ActionRow, rank: u32, outcome: &str) -> bool {
        let task = TaskId { action: action.id, rank: Rank(rank) };
        let row = self.snapshot.ranks.iter().find(|row| row.task == task);
        // A plain ok has no row.
        let Some(row) = row else { return outcome == "ok" && action.ok.contains(rank) };
        let set = if row.ended.outcome.is_ok() { &action.ok } else { &action.not_ok };
        let has = |ended: &Ended| ended.outcome.as_str() == outcome;
        set.contains(rank) && (has(&row.ended) || row.late.iter().any(has))
    }
}

/// Returns the record of a token.
fn token(dir: &Path, digest: &str) -> Option<Value> {
    let text = std::fs::read(dir.join("enroll/tokens").join(digest)).ok()?;
    serde_json::from_slice(&text).ok()
}
