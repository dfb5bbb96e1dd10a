//! Context of a batch: its time, the settings, and its output so far: records, effects, and the actions and attempts
//! that the end of the batch settles. Every room writes to the context; no function here calls another room.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::agent::io::Level;
use crate::controller::giveback::outbox::Outbox;
use crate::controller::io::{Client, Effect, Now, Passing, Record, Refusal, Reply, SessionId, Settings};
use crate::controller::job::Jobs;
use crate::controller::job::milestones::Saying;
use crate::eventlog::Event;
use crate::ids::{ActionId, Attempt, HostName, JobId, TaskId};
use crate::idset::IdSet;
use crate::job::Part;
use crate::mark::History;
use crate::message::{Hello, ToAgent};
use crate::task::Ended;

/// The batch under way: its time, the settings, and its output.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Context {
    /// The clocks at the batch. Between batches, those of the last one.
    pub(super) now: Now,
    pub(super) settings: Settings,
    pub(super) outbox: Outbox,
    pub(super) records: Vec<Record>,
    pub(super) effects: Vec<Effect>,
    /// Actions to settle when the batch ends: their ends become events, a verdict is decided, records are stored.
    pub(super) touched: BTreeSet<ActionId>,
    /// Consequences for other parts, in order; `Machine::react` carries them out.
    pub(super) changes: VecDeque<Change>,
    pub(super) attempts: BTreeSet<(JobId, Attempt)>,
    /// Ranks with changed holds, for attempts that have no other change.
    pub(super) given: BTreeMap<(JobId, Attempt), IdSet>,
    /// Parts whose hold was dropped: each is released if no other hold is left.
    pub(super) let_go: BTreeMap<(JobId, Attempt), Part>,
    /// Reported milestones, by reporter.
    pub(super) said: BTreeMap<Saying, IdSet>,
    /// Hosts whose drain has come into force, or was lifted.
    pub(super) in_force: BTreeSet<HostName>,
    pub(super) wake_ms: Option<u64>,
}

/// Consequence of an act for another part of the machine. Jobs know no node, session, drain or recovery; nodes and
/// sessions know no job.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Change {
    /// The session speaks for its host from now on. The text is what an operator should read about that.
    Greeted(SessionId, Box<Hello>, Option<String>),
    /// No session speaks for the host any more.
    Away(HostName),
    /// The last orphan of the host is gone.
    Unorphaned(HostName),
    /// Ranks have joined an action.
    Joined(ActionId, IdSet),
    /// Waiting ranks of an action may begin, as far as their attempt knows.
    Ready(ActionId, IdSet),
    /// The action's attempt was vouched for, or the action itself: its waiting tasks go on.
    Thawed(ActionId),
    /// The action has its verdict.
    Decided(ActionId),
    /// The task is not to begin, or to stop, for this reason.
    Cancelled(TaskId, String),
    Ended(End),
    /// The last script of the host may have ended: a reboot may have cleaned the host.
    ScriptsEnded(HostName),
    /// A script of the task lives on its host: the host is drained for this reason.
    Lives(TaskId, String),
    /// Nothing cleans up after the task: its host is drained for this reason.
    Unclean(TaskId, String),
    /// Disowned ranks on these hosts were cleaned up, or are the attempt's again: their drains are lifted.
    Cleaned(Vec<HostName>, Passing),
}

/// End of a task, for its node and its host's drain.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct End {
    pub(super) task: TaskId,
    /// The task had announced a reboot.
    pub(super) rebooted: bool,
    /// The task's script may go on: an operator has resolved the task, or the job has given up a script past its limit.
    pub(super) goes_on: bool,
    pub(super) is_ok: bool,
    /// The end for which the host may be drained.
    pub(super) blame: Option<Ended>,
}

impl Context {
    pub(super) fn new(settings: Settings, outbox: Outbox, now: Now) -> Self {
        Self {
            now,
            settings,
            outbox,
            records: Vec::new(),
            effects: Vec::new(),
            touched: BTreeSet::new(),
            changes: VecDeque::new(),
            attempts: BTreeSet::new(),
            given: BTreeMap::new(),
            let_go: BTreeMap::new(),
            said: BTreeMap::new(),
            in_force: BTreeSet::new(),
            wake_ms: None,
        }
    }

    pub(super) fn reply(&mut self, client: Client, reply: Result<Reply, Refusal>) {
        self.effects.push(Effect::Reply { client, reply });
    }

    pub(super) fn note(&mut self, level: Level, job: Option<&JobId>, host: Option<&HostName>, text: impl Into<String>) {
        let (job, host) = (job.cloned(), host.cloned());
        self.effects.push(Effect::Note { level, job, host, text: text.into(), by_node: false });
    }

    /// Adds a journal line about an act of a node. A node can cause any number of such lines: the edge bounds the lines
    /// of each host.
    pub(super) fn note_of_node(&mut self, level: Level, host: &HostName, text: impl Into<String>) {
        let (host, text) = (Some(host.clone()), text.into());
        self.effects.push(Effect::Note { level, job: None, host, text, by_node: true });
    }

    pub(super) fn send(&mut self, session: SessionId, message: ToAgent) {
        self.effects.push(Effect::Send { session, message });
    }

    /// Sends the node of a known task its Cancel.
    pub(super) fn send_cancel(&mut self, session: SessionId, jobs: &Jobs, task: TaskId, why: &str) {
        let Some(row) = jobs.action(task.action).map(|action| &action.row) else { return };
        let (job, attempt, action) = (row.job.clone(), row.attempt, row.name.clone());
        self.send(session, ToAgent::Cancel { task, job, attempt, action, why: why.to_owned(), commit: 0 });
    }

    /// Notes an attempt whose row the batch stores.
    pub(super) fn attempt_changed(&mut self, job: &JobId, number: Attempt) {
        self.attempts.insert((job.clone(), number));
    }

    /// Notes a part whose hold was dropped: the batch releases it if no other hold is left.
    pub(super) fn hold_dropped(&mut self, job: &JobId, number: Attempt, part: &Part) {
        self.let_go.entry((job.clone(), number)).or_default().extend_with(part);
    }

    /// Puts the records of changed attempts first, because other records refer to attempts, but after the pruning of
    /// attempts of the same job.
    pub(super) fn record_attempts(&mut self, jobs: &Jobs) {
        let (given, whole) = (std::mem::take(&mut self.given), std::mem::take(&mut self.attempts));
        let parts = given.into_iter().filter(|(key, _)| !whole.contains(key)).filter_map(|((job, number), ranks)| {
            let holds = Box::new(jobs.attempt(&job, number)?.holds(&ranks));
            Some((job.clone(), Record::Given { job, attempt: number, holds }))
        });
        let rows = whole.iter().filter_map(|(job, number)| {
            Some((job.clone(), Record::Attempt(jobs.attempt(job, *number)?.row(job.clone(), *number))))
        });
        let mut first: BTreeMap<usize, Vec<Record>> = BTreeMap::new();
        let pruned = self.pruned();
        for (job, record) in rows.chain(parts) {
            first.entry(pruned.get(&job).map_or(0, |at| at + 1)).or_default().push(record);
        }
        if first.is_empty() {
            return;
        }
        let others = std::mem::take(&mut self.records);
        let mut records = Vec::with_capacity(others.len() + whole.len());
        records.extend(first.remove(&0).unwrap_or_default());
        for (at, record) in others.into_iter().enumerate() {
            records.push(record);
            records.extend(first.remove(&(at + 1)).unwrap_or_default());
        }
        self.records = records;
    }

    /// Numbers the batch's commit, and stamps that number on every message to a node.
    pub(super) fn commit(&mut self, history: &mut History) {
        if !self.records.is_empty() {
            history.last += 1;
            self.records.insert(0, Record::Commit(history.last));
        }
        let number = history.last;
        for effect in &mut self.effects {
            match effect {
                Effect::Send { message, .. } => message.set_commit(number),
                Effect::Fan { start, .. } => start.commit = number,
                _ => {}
            }
        }
    }
}

impl Jobs {
    /// Marks the action for the end of the batch, which settles it, and its attempt as in use.
    pub(super) fn touch(&mut self, id: ActionId, cx: &mut Context) {
        cx.touched.insert(id);
        let Some(action) = self.action(id) else { return };
        let (job, number) = (action.row.job.clone(), action.row.attempt);
        let Some(attempt) = self.attempt_mut(&job, number) else { return };
        // Retention needs a precision of a minute; a stored row for every batch would cost too much.
        if cx.now.wall_ms.abs_diff(attempt.touched_ms) > 60_000 {
            attempt.touched_ms = cx.now.wall_ms;
            cx.attempt_changed(&job, number);
        }
    }

    /// Appends an event to the job's log, and publishes the event to followers.
    pub(super) fn event(&mut self, job: &JobId, name: &str, context: serde_json::Value, cx: &mut Context) {
        let entry = self.entry(job.clone()).or_default();
        entry.events_last += 1;
        let sequence = entry.events_last;
        let context = match context {
            serde_json::Value::Object(map) => Some(map),
            _ => None,
        };
        let event = Event::at_millis(cx.now.wall_ms, name, context);
        cx.records.push(Record::Event { job: job.clone(), sequence, event: event.clone() });
        cx.effects.push(Effect::Publish { job: job.clone(), sequence, event });
    }
}
