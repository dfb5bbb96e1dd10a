//! Hooks: programs of the site that carry out releases and drains in the resource manager. The program gets each notice
//! as a JSON object on standard input, at least once, in order per job. Exit status 0 confirms the notice. After
//! another end, or without an end within the limit, the controller repeats the notice with a delay that doubles from a
//! second to a minute. Before the repeat, the controller splits a drain of many hosts into halves, so that one refused
//! host does not block the others. The controller joins the hosts again once the resource manager answers. `perilog ps`
//! shows waiting notices.
//!
//! ```text
//!   [release] command   {"event":"release","sequence":7,"epoch":3,"job":"f1","attempt":"0","ranks":"0,2",
//!                        "hosts":"n[0,2]","resources":[],"final":false,"R":{...}}
//!   [drain] command     {"event":"drain","hosts":"n[1,3]","reason":"epilog 10-umount: failed (exit 7) ...",
//!                        "by":null}
//!                       {"event":"undrain","hosts":"n1"}
//! ```

mod command;
mod schedule;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use perilog_core::controller::io::{Again, DrainRow, FailedNotice, OutboxEntry, Reply, Request};
use perilog_core::{HostList, JobId};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::{Id, JoinSet};
use tokio::time::Instant;

use crate::daemon::Inlet;
use crate::metrics::Metrics;

pub(crate) use command::Command;
use command::NotifyError;
use schedule::{Key, Schedule, Turn};

/// Maximum number of commands of one hook that run at the same time. Each command is a process of the site.
const AT_ONCE: usize = 8;
/// Maximum number of commands of one hook that run for repeated notices: half of [`AT_ONCE`], so that repeated and new
/// notices do not block each other.
const AGAIN_AT_ONCE: usize = AT_ONCE / 2;

/// Maximum number of hosts whose drain one request confirms. Each request is a commit, which should neither come for
/// each host nor take long.
const AT_ONE_TIME: usize = 1_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Release,
    Drain,
}

impl Kind {
    /// Returns the name of the hook's table in `controller.toml`: `release` or `drain`.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Release => "release",
            Self::Drain => "drain",
        }
    }
}

/// A run of a hook's command, for one notice or for the drains of several hosts.
#[derive(Debug, Clone)]
struct Task {
    /// The job or the hosts that the notice is about. Two running notices never share a key.
    keys: Vec<Key>,
    /// Whether the notice lifts a drain.
    lifts: bool,
    turn: Turn,
    /// The subject of the notice for log lines, for example `release of job f1`.
    about: String,
    /// The job of a release; `None` for a drain. The journal has it as a field of a failure, so that
    /// `journalctl PERILOG_JOB=` finds the failure.
    job: Option<JobId>,
    /// The hosts of a drain; `None` for a release. The log line about a failure has them in the field `PERILOG_HOST`.
    hosts: Option<HostList>,
    /// The JSON object that the command gets on standard input.
    body: Value,
    /// The release or the drains that the controller reports to the machine as failed if the command fails.
    what: Vec<FailedNotice>,
    /// The requests to the machine if the command succeeds.
    done: Vec<Request>,
}

/// A run of the hook's command that has not ended: the jobs or hosts that its notice is about, and the notice's turn.
#[derive(Debug)]
struct Running {
    keys: Vec<Key>,
    turn: Turn,
}

/// Runs the hook's command for each notice of this kind, until the future is dropped. `command` is the command in
/// force, which a reload may replace; `grew` signals new notices.
pub(crate) async fn run(
    kind: Kind,
    inlet: Inlet,
    mut command: watch::Receiver<Option<Command>>,
    mut grew: watch::Receiver<()>,
    metrics: Option<Metrics>,
) {
    let mut schedule = Schedule::default();
    let mut tasks = JoinSet::new();
    let mut running: HashMap<Id, Running> = HashMap::new();
    loop {
        grew.mark_unchanged();
        let configured = command.borrow_and_update().clone();
        let now = Instant::now();
        let room = Room::beside(&running);
        if let Some(command) = configured.filter(|_| room.all > 0) {
            for task in room.chosen(pending(kind, &inlet, &mut schedule, room, now).await) {
                schedule.begin(&task.keys, task.lifts);
                let command = command.clone();
                let (keys, turn) = (task.keys.clone(), task.turn);
                let run = tasks.spawn(async move { (command.notify(&task.body).await, task) });
                running.insert(run.id(), Running { keys, turn });
            }
        }
        tokio::select! {
            changed = grew.changed() => if changed.is_err() { return },
            changed = command.changed() => if changed.is_err() { return },
            Some(ended) = tasks.join_next_with_id() => {
                let id = ended.as_ref().map_or_else(|error| error.id(), |(id, _)| *id);
                let of = running.remove(&id);
                if let Some(metrics) = &metrics {
                    metrics.hook(kind, matches!(&ended, Ok((_, (Ok(()), _)))));
                }
                match ended {
                    Ok((_, (result, task))) => ended_so(result, task, &inlet, &mut schedule).await,
                    // A panic in the task is a bug in perilog; the controller repeats the notice.
                    Err(_) => schedule.failed(&of.map(|of| of.keys).unwrap_or_default(), Instant::now()),
                }
            }
            // Due notices wait until a running notice ends.
            () = sleep_until(schedule.next(now)) => {}
        }
    }
}

async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

async fn ended_so(result: Result<(), NotifyError>, task: Task, inlet: &Inlet, schedule: &mut Schedule) {
    match result {
        Ok(()) => {
            schedule.done(&task.keys, Instant::now());
            for request in task.done {
                // If the writer is ending, the controller repeats the notice after its next start.
                let _ = inlet.ask(0, request, None).await;
            }
        }
        Err(NotifyError { why, printed }) => {
            let (job, host) = (task.job.map(tracing::field::display), task.hosts.map(tracing::field::display));
            let printed = printed.map(|printed| format!("\nits standard error:\n{printed}")).unwrap_or_default();
            tracing::warn!(job, host, "the hook failed for the {}, will retry: {why}{printed}", task.about);
            schedule.failed(&task.keys, Instant::now());
            for what in task.what.chunks(AT_ONE_TIME) {
                let _ = inlet.ask(0, Request::HookFailed { what: what.to_vec(), why: why.clone() }, None).await;
            }
        }
    }
}

/// The number of further commands that may begin: `all` in total, and at most `again` of them for repeated notices.
#[derive(Debug, Clone, Copy)]
struct Room {
    all: usize,
    again: usize,
}

impl Room {
    fn beside(running: &HashMap<Id, Running>) -> Self {
        let again = running.values().filter(|of| matches!(of.turn, Turn::Again(..))).count();
        Self { all: AT_ONCE.saturating_sub(running.len()), again: AGAIN_AT_ONCE.saturating_sub(again) }
    }

    /// Returns the tasks to begin now: first at most `again` with repeated notices, longest waiting first, then new
    /// ones, at most `all` together.
    fn chosen(self, mut tasks: Vec<Task>) -> Vec<Task> {
        tasks.sort_by_key(|task| task.turn);
        let again = tasks.iter().filter(|task| matches!(task.turn, Turn::Again(..))).count();
        let surplus = again.saturating_sub(self.again);
        tasks.drain(again - surplus..again);
        tasks.truncate(self.all);
        tasks
    }
}

/// Returns the runs for the notices of this kind that are due at `now` and are not running yet. At most `room.all`
/// releases are among them, but any number of drains: the caller chooses from them ([`Room::chosen`]).
async fn pending(kind: Kind, inlet: &Inlet, schedule: &mut Schedule, room: Room, now: Instant) -> Vec<Task> {
    match kind {
        Kind::Release => {
            let first: Vec<_> = schedule.due_jobs(now).into_iter().take(room.again.min(room.all)).collect();
            let request = Request::Releases { first: first.clone(), except: schedule.jobs(), limit: room.all };
            let Ok(Reply::Outbox(entries)) = inlet.ask(0, request, None).await else { return Vec::new() };
            let there: BTreeSet<_> = entries.iter().map(|entry| &entry.job).collect();
            schedule.keep(|key| !matches!(key, Key::Job(job) if first.contains(job) && !there.contains(job)));
            entries.into_iter().filter_map(|entry| release(entry, schedule, now)).collect()
        }
        Kind::Drain => {
            let Ok(Reply::PendingDrains(drains)) = inlet.ask(0, Request::PendingDrains, None).await else {
                return Vec::new();
            };
            let there: BTreeSet<_> = drains.iter().map(|drain| &drain.host).collect();
            schedule.keep(|key| matches!(key, Key::Host(host) if there.contains(host)));
            drained(drains, schedule, now)
        }
    }
}

fn release(entry: OutboxEntry, schedule: &Schedule, now: Instant) -> Option<Task> {
    let key = Key::Job(entry.job.clone());
    let turn = schedule.turn(&key, false, now)?;
    let mut body = entry.body.value();
    if let Some(object) = body.as_object_mut() {
        object.remove("at_ms");
        object.insert("sequence".to_owned(), entry.sequence.into());
        object.insert("epoch".to_owned(), entry.epoch.into());
        object.insert("job".to_owned(), json!(entry.job));
    }
    let (what, done) = (FailedNotice::Release(entry.sequence), Request::OutboxDone { sequence: entry.sequence });
    let about = format!("release of job {}", entry.job);
    let (job, hosts) = (Some(entry.job), None);
    Some(Task { keys: vec![key], lifts: false, turn, about, job, hosts, body, what: vec![what], done: vec![done] })
}

/// Returns the commands to run for the drains that are due: one command for all drains with the same reason and user,
/// and one for all drains to lift. The drains of a group that failed before ([`Turn::Again`]) have a command of their
/// own. Leaves out a host while a command about it runs, even if that command drains the host and this one would lift
/// the drain: the resource manager might get them in the wrong order.
fn drained(drains: Vec<DrainRow>, schedule: &Schedule, now: Instant) -> Vec<Task> {
    let mut alike: BTreeMap<(Turn, bool, String, Option<u32>), Vec<DrainRow>> = BTreeMap::new();
    for drain in drains {
        if let Some(turn) = schedule.turn(&Key::Host(drain.host.clone()), drain.lifted, now) {
            // Lifting a drain needs no reason.
            let newest = (!drain.lifted).then(|| drain.newest());
            let (reason, by) = newest.map(|Again { reason, by, .. }| (reason, by)).unwrap_or_default();
            let key = (turn, drain.lifted, reason, by);
            alike.entry(key).or_default().push(drain);
        }
    }
    let tasks = alike.into_iter().map(|((turn, lifted, reason, by), rows)| {
        let hosts = HostList::from_names(rows.iter().map(|row| row.host.as_str())).unwrap_or_default();
        let body = match lifted {
            true => json!({"event": "undrain", "hosts": hosts}),
            false => json!({"event": "drain", "hosts": hosts, "reason": reason, "by": by}),
        };
        let done = |rows: &[DrainRow]| Request::DrainsDone {
            drains: rows.iter().map(|row| (row.host.clone(), row.notice_id)).collect(),
            lifted,
        };
        let failed = |row: &DrainRow| FailedNotice::Drain { host: row.host.clone(), notice_id: row.notice_id, lifted };
        Task {
            keys: rows.iter().map(|row| Key::Host(row.host.clone())).collect(),
            lifts: lifted,
            turn,
            about: format!("{} of {hosts}", if lifted { "undrain" } else { "drain" }),
            job: None,
            hosts: Some(hosts),
            body,
            what: rows.iter().map(failed).collect(),
            done: rows.chunks(AT_ONE_TIME).map(done).collect(),
        }
    });
    tasks.collect()
}
