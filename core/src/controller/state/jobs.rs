//! Jobs: holds all attempts and all actions, and looks them up.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Deref;

use serde_json::{Value, json};

use crate::controller::interface::io::{AttemptRow, Effect, Record, SessionId, Settings};
use crate::controller::state::action::Action;
use crate::controller::state::attempt::JobAttempt;
use crate::controller::state::attempts::Job;
use crate::controller::state::context::Context;
use crate::controller::state::layout::Layout;
use crate::controller::state::table::Table;
use crate::eventlog::Event;
use crate::ids::{ActionId, ActionName, Attempt, HostName, JobId, Rank, TaskId};
use crate::job::Part;
use crate::message::ToAgent;

/// All jobs with their attempts, and the actions of all attempts.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Jobs {
    pub(crate) table: Table,
    /// Unlisted attempts that are not completely released ([`crate::controller::recovery`]).
    pub(crate) unlisted: BTreeSet<(JobId, Attempt)>,
    /// Names of the after-actions, copied from the settings.
    pub(crate) after: Vec<ActionName>,
}

impl Deref for Jobs {
    type Target = BTreeMap<JobId, Job>;

    fn deref(&self) -> &Self::Target {
        self.table.jobs()
    }
}

impl Jobs {
    pub(crate) fn is_external(&self, id: ActionId) -> bool {
        self.action(id).is_some_and(|action| action.row.external.is_some())
    }

    /// Returns `true` if the action is an after-action. An external action is no after-action, whatever its name.
    pub(crate) fn follows(&self, action: &Action) -> bool {
        action.row.external.is_none() && self.after.contains(&action.row.name)
    }

    /// Returns `true` if the attempt exists and is abandoned.
    pub(crate) fn is_abandoned(&self, job: &JobId, number: Attempt) -> bool {
        self.attempt(job, number).is_some_and(|attempt| attempt.abandoned)
    }

    /// Returns `true` if the attempt is suspended: no task begins, no rank is released, and no notice is sent.
    pub(crate) fn is_suspended(&self, job: &JobId, number: Attempt) -> bool {
        self.attempt(job, number).is_some_and(|attempt| attempt.suspended)
    }

    pub(crate) fn is_suspended_action(&self, id: ActionId) -> bool {
        self.action(id).is_some_and(|action| self.is_suspended(&action.row.job, action.row.attempt))
    }

    /// Returns the unreleased ranks and resources of an attempt.
    pub(crate) fn unreleased(&self, job: &JobId, number: Attempt) -> Part {
        let Some(attempt) = self.attempt(job, number) else { return Part::default() };
        let mut left = attempt.whole();
        left.subtract(&attempt.released);
        left
    }

    pub(crate) fn new(settings: &Settings) -> Self {
        Self { after: settings.after.clone(), ..Self::default() }
    }

    pub(crate) fn attempt(&self, job: &JobId, number: Attempt) -> Option<&JobAttempt> {
        self.get(job)?.attempts.get(&number)
    }

    pub(crate) fn attempt_mut(&mut self, job: &JobId, number: Attempt) -> Option<&mut JobAttempt> {
        self.table.attempt_mut(job, number)
    }

    /// Returns all attempts of all jobs, also those that have ended.
    pub(crate) fn all_attempts(&self) -> impl Iterator<Item = (&JobId, Attempt, &JobAttempt)> {
        self.iter().flat_map(|(job, entry)| entry.attempts.iter().map(move |(number, of)| (job, *number, of)))
    }

    pub(crate) fn action(&self, id: ActionId) -> Option<&Action> {
        self.table.action(id)
    }

    pub(crate) fn action_mut(&mut self, id: ActionId) -> Option<&mut Action> {
        self.table.action_mut(id)
    }

    /// Adds an attempt from its stored row. Ignores a row whose numbers of ranks and hosts differ, or whose hosts are
    /// no valid layout.
    pub(crate) fn load(&mut self, row: AttemptRow) {
        if let Some((job, number, attempt)) = JobAttempt::stored(row) {
            self.table.add_attempt(&job, number, attempt);
        }
    }

    /// Adds an action to its attempt.
    pub(crate) fn add_action(&mut self, action: Action) {
        self.table.add_action(action);
    }

    /// Returns the actions of an attempt, in the order in which they began.
    pub(crate) fn of<'a>(&'a self, attempt: &'a JobAttempt) -> impl Iterator<Item = &'a Action> {
        attempt.actions.iter().filter_map(|id| self.action(*id))
    }

    /// Returns the attempt to which an action belongs; `None`: the store does not have the attempt.
    pub(crate) fn attempt_of(&self, action: &Action) -> Option<&JobAttempt> {
        self.attempt(&action.row.job, action.row.attempt)
    }

    /// Returns the layout of an action's attempt; `None`: the store does not have the action or its attempt.
    pub(crate) fn layout(&self, id: ActionId) -> Option<&Layout> {
        Some(&self.attempt_of(self.action(id)?)?.layout)
    }

    /// Returns the host of a task's rank; `None`: the store does not have the task's action, or the rank is outside the
    /// layout.
    pub(crate) fn host_of(&self, task: TaskId) -> Option<HostName> {
        self.layout(task.action)?.host(task.rank)
    }

    /// Returns the name of a task's host, for a look-up.
    pub(crate) fn name_of(&self, task: TaskId) -> Option<&str> {
        self.layout(task.action)?.name(task.rank)
    }

    /// Returns the tasks of `host` for the task list of a node that connects for the first time. These are the host's
    /// tasks in two kinds of actions: those in which a rank of any host still waits for its Start, and external actions
    /// without a verdict.
    pub(crate) fn waiting_for(&self, host: &HostName) -> BTreeSet<TaskId> {
        let shown = |a: &&Action| a.row.external.is_some() && a.row.verdict.is_none();
        let open = self.table.live_actions().filter(|a| !a.row.waiting.is_empty() || shown(a));
        open.filter_map(|action| {
            let rank = Rank(self.attempt_of(action)?.layout.rank(host.as_str())?);
            action.row.ranks.contains(rank.0).then(|| action.task(rank))
        })
        .collect()
    }
}

impl Jobs {
    /// Marks an action as changed in this batch: the end of the batch logs its ends, decides its verdict and stores its
    /// records. Also renews `touched_ms` of the action's attempt, from which retention counts, if it is older than a
    /// minute.
    pub(crate) fn touch(&mut self, id: ActionId, cx: &mut Context) {
        cx.touched.insert(id);
        let Some(action) = self.action(id) else { return };
        let (job, number) = (action.row.job.clone(), action.row.attempt);
        let Some(attempt) = self.attempt_mut(&job, number) else { return };
        // Retention needs a precision of a minute; to store the row in every batch would cost too much.
        if cx.now.wall_ms.abs_diff(attempt.touched_ms) > 60_000 {
            attempt.touched_ms = cx.now.wall_ms;
            cx.attempt_changed(&job, number);
        }
    }

    /// Appends an event about an action to the log of the action's job. `more`: a JSON object with further members of
    /// the event's context; the action's name and attempt are added to it.
    pub(crate) fn action_event(&mut self, id: ActionId, name: &str, mut more: Value, cx: &mut Context) {
        let Some(row) = self.action(id).map(|action| &action.row) else { return };
        let job = row.job.clone();
        if let Some(context) = more.as_object_mut() {
            context.insert("action".to_owned(), json!(row.name));
            context.insert("attempt".to_owned(), json!(row.attempt));
        }
        self.event(&job, name, more, cx);
    }

    /// Appends an event to the job's log, and publishes it to clients that follow the log.
    pub(crate) fn event(&mut self, job: &JobId, name: &str, context: Value, cx: &mut Context) {
        let sequence = self.table.count_event(job);
        let context = match context {
            Value::Object(map) => Some(map),
            _ => None,
        };
        let event = Event::at_millis(cx.now.wall_ms, name, context);
        cx.records.push(Record::Event { job: job.clone(), sequence, event: event.clone() });
        cx.effects.push(Effect::Publish { job: job.clone(), sequence, event });
    }

    /// Sends a Cancel of the task on the session, if the store knows the task's action.
    pub(crate) fn send_cancel(&self, session: SessionId, task: TaskId, why: &str, cx: &mut Context) {
        let Some(row) = self.action(task.action).map(|action| &action.row) else { return };
        let (job, attempt, action) = (row.job.clone(), row.attempt, row.name.clone());
        cx.send(session, ToAgent::Cancel { task, job, attempt, action, why: why.to_owned(), commit: 0 });
    }

    /// Adds the records of the changed attempts, whole rows and deltas, to the batch. Puts them before the other
    /// records, which may refer to these attempts, but after a `Prune` of the same job.
    pub(crate) fn record_attempts(&self, cx: &mut Context) {
        let (dirty_holds, whole) = (std::mem::take(&mut cx.dirty_holds), std::mem::take(&mut cx.attempts));
        let parts =
            dirty_holds.into_iter().filter(|(key, _)| !whole.contains(key)).filter_map(|((job, number), ranks)| {
                let holds = Box::new(self.attempt(&job, number)?.holds(&ranks));
                Some((job.clone(), Record::AttemptDelta { job, attempt: number, holds }))
            });
        let rows = whole.iter().filter_map(|(job, number)| {
            Some((job.clone(), Record::Attempt(self.attempt(job, *number)?.row(job.clone(), *number))))
        });
        let mut first: BTreeMap<usize, Vec<Record>> = BTreeMap::new();
        let pruned = cx.pruned();
        for (job, record) in rows.chain(parts) {
            first.entry(pruned.get(&job).map_or(0, |at| at + 1)).or_default().push(record);
        }
        if first.is_empty() {
            return;
        }
        let others = std::mem::take(&mut cx.records);
        let mut records = Vec::with_capacity(others.len() + whole.len());
        records.extend(first.remove(&0).unwrap_or_default());
        for (at, record) in others.into_iter().enumerate() {
            records.push(record);
            records.extend(first.remove(&(at + 1)).unwrap_or_default());
        }
        cx.records = records;
    }
}
