//! The resource manager's edge as a command: what it must be told is one JSON object on the standard input of the site's own program, at least
//! once, in order per job. Exit 0 says that it is done; anything else, or no end within its limit, and it is told again, after a while that
//! doubles from a second to a minute. What waits so is shown by `perilog ps`.
//!
//! ```text
//!   [release] command   {"event":"release","sequence":7,"epoch":3,"job":"f1","attempt":"0","ranks":"0,2","hosts":"n[0,2]","resources":[],"final":false,"R":{...}}
//!   [drain] command     {"event":"drain","hosts":"n[1,3]","reason":"epilog 10-umount: failed (exit 7) after 2s ...","by":null}
//!                       {"event":"undrain","hosts":"n1"}
//! ```

mod command;

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use perilog_core::HostList;
use perilog_core::controller::io::{DrainRow, Hooked, OutboxEntry, Reply, Request};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;

pub(crate) use command::Command;

use crate::daemon::Inlet;

/// Commands of one hook that run at once: each is a process of the site's.
const AT_ONCE: usize = 8;
const FIRST_BACKOFF: Duration = Duration::from_secs(1);
const LAST_BACKOFF: Duration = Duration::from_secs(60);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Release,
    Drain,
}

/// Something to tell, and what to say when that is done.
#[derive(Debug, Clone)]
struct Task {
    /// What is not told beside one that is being told: a job, or hosts.
    key: String,
    /// For people.
    about: String,
    body: Value,
    what: Vec<Hooked>,
    done: Vec<Request>,
}

/// Where a task stands that was told at least once.
#[derive(Debug, Clone, Copy)]
enum Stand {
    Telling,
    /// It failed: told again then.
    Again(Instant),
    Due,
}

/// By the key of the task: where it stands, and how long it waits should it fail.
type Told = BTreeMap<String, (Stand, Duration)>;

/// Tells until it is dropped. `command`: the one in force; `grew`: there may be something new.
pub(crate) async fn run(
    kind: Kind,
    inlet: Inlet,
    mut command: watch::Receiver<Option<Command>>,
    mut grew: watch::Receiver<()>,
) {
    let mut running = JoinSet::new();
    let mut told = Told::new();
    // The keys of what runs, for one that does not come to its end.
    let mut keys: HashMap<tokio::task::Id, String> = HashMap::new();
    loop {
        grew.mark_unchanged();
        let configured = command.borrow_and_update().clone();
        if let Some(command) = configured {
            let tasks = pending(kind, &inlet).await;
            // What is pending no more is not waited for.
            told.retain(|key, (stand, _)| matches!(stand, Stand::Telling) || tasks.iter().any(|task| task.key == *key));
            for task in tasks {
                let (stand, backoff) = told.get(&task.key).copied().unwrap_or((Stand::Due, FIRST_BACKOFF));
                if !matches!(stand, Stand::Due) || running.len() >= AT_ONCE {
                    continue;
                }
                told.insert(task.key.clone(), (Stand::Telling, backoff));
                let command = command.clone();
                let key = task.key.clone();
                let run = running.spawn(async move { (command.tell(&task.body).await, task) });
                keys.insert(run.id(), key);
            }
        }
        let times = told.values().filter_map(|(stand, _)| match stand {
            Stand::Again(at) => Some(*at),
            Stand::Telling | Stand::Due => None,
        });
        let again = times.min();
        tokio::select! {
            changed = grew.changed() => if changed.is_err() { return },
            changed = command.changed() => if changed.is_err() { return },
            Some(ended) = running.join_next_with_id() => {
                let id = ended.as_ref().map_or_else(|error| error.id(), |(id, _)| *id);
                let key = keys.remove(&id);
                match ended {
                    Ok((_, (result, task))) => ended_so(result, task, &inlet, &mut told).await,
                    // A panic in there is a bug of ours, and no reason never to tell it again.
                    Err(_) => {
                        let again = Stand::Again(Instant::now() + LAST_BACKOFF);
                        told.extend(key.map(|key| (key, (again, LAST_BACKOFF))));
                    }
                }
            }
            () = sleep_until(again) => told.values_mut().for_each(|(stand, _)| {
                if matches!(stand, Stand::Again(at) if *at <= Instant::now()) {
                    *stand = Stand::Due;
                }
            }),
        }
    }
}

async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

async fn ended_so(result: Result<(), String>, task: Task, inlet: &Inlet, told: &mut Told) {
    match result {
        Ok(()) => {
            told.remove(&task.key);
            for request in task.done {
                // An ending writer: it is told again by the next one.
                let _ = inlet.ask(0, request, None).await;
            }
        }
        Err(why) => {
            tracing::warn!("{} is not told, and is tried again: {why}", task.about);
            let backoff = told.get(&task.key).map_or(FIRST_BACKOFF, |(_, backoff)| *backoff);
            told.insert(task.key, (Stand::Again(Instant::now() + backoff), (backoff * 2).min(LAST_BACKOFF)));
            for what in task.what {
                let _ = inlet.ask(0, Request::HookFailed { what, why: why.clone() }, None).await;
            }
        }
    }
}

async fn pending(kind: Kind, inlet: &Inlet) -> Vec<Task> {
    let request = match kind {
        Kind::Release => Request::Releases { limit: 4 * AT_ONCE },
        Kind::Drain => Request::Drains,
    };
    match inlet.ask(0, request, None).await {
        Ok(Reply::Outbox(entries)) => entries.into_iter().map(release).collect(),
        Ok(Reply::Drains(drains)) => drained(drains),
        _ => Vec::new(),
    }
}

fn release(entry: OutboxEntry) -> Task {
    let mut body = entry.body;
    if let Some(object) = body.as_object_mut() {
        object.remove("at_ms");
        object.insert("sequence".to_owned(), entry.sequence.into());
        object.insert("epoch".to_owned(), entry.epoch.into());
        object.insert("job".to_owned(), json!(entry.job));
    }
    let (what, done) = (Hooked::Release(entry.sequence), Request::OutboxDone { sequence: entry.sequence });
    let about = format!("release of job {}", entry.job);
    Task { key: entry.job.to_string(), about, body, what: vec![what], done: vec![done] }
}

/// Those that wait for the hook; one command for all that have the same reason.
fn drained(drains: Vec<DrainRow>) -> Vec<Task> {
    let mut alike: BTreeMap<(bool, String, Option<u32>), Vec<DrainRow>> = BTreeMap::new();
    for drain in drains.into_iter().filter(|drain| drain.lifted || !drain.confirmed) {
        alike.entry((drain.lifted, drain.reason.clone(), drain.by)).or_default().push(drain);
    }
    let task = |((lifted, reason, by), rows): ((bool, String, Option<u32>), Vec<DrainRow>)| {
        let hosts = HostList::from_names(rows.iter().map(|row| row.host.as_str())).unwrap_or_default();
        let body = match lifted {
            true => json!({"event": "undrain", "hosts": hosts}),
            false => json!({"event": "drain", "hosts": hosts, "reason": reason, "by": by}),
        };
        let done = |row: &DrainRow| Request::DrainDone { host: row.host.clone(), since_ms: row.since_ms, lifted };
        Task {
            key: format!("{lifted} {hosts}"),
            about: format!("{} of {hosts}", if lifted { "undrain" } else { "drain" }),
            body,
            what: rows.iter().map(|row| Hooked::Drain(row.host.clone())).collect(),
            done: rows.iter().map(done).collect(),
        }
    };
    alike.into_iter().map(task).collect()
}
