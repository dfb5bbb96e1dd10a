//! Context of a batch: the time, the settings, and the output so far. The output is records, effects, queued changes,
//! and the actions and attempts that the end of the batch settles. Every part of the machine writes to the context; the
//! context calls no act of a part.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::agent::io::Level;
use crate::controller::io::{Client, Effect, Now, Passing, Record, Refusal, Reply, SessionId, Settings};
use crate::controller::job::Jobs;
use crate::controller::job::milestones::MilestoneEntry;
use crate::controller::operator::drain::Order;
use crate::controller::quota::Quota;
use crate::controller::releases::outbox::Outbox;
use crate::defect;
use crate::hostlist::HostList;
use crate::ids::{ActionId, Attempt, HostName, JobId, Rank, TaskId};
use crate::idset::IdSet;
use crate::job::Part;
use crate::mark::History;
use crate::message::{Hello, ToAgent};
use crate::task::Ended;

/// The state of the batch that the machine handles now.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Context {
    /// The clocks of the batch; between two batches, the clocks of the earlier one.
    pub(super) now: Now,
    pub(super) settings: Settings,
    pub(super) outbox: Outbox,
    pub(super) records: Vec<Record>,
    pub(super) effects: Vec<Effect>,
    /// Actions to settle at the end of the batch: the machine then logs their ends, decides their verdicts and stores
    /// their records.
    pub(super) touched: BTreeSet<ActionId>,
    /// Consequences of acts, in order; `Machine::react` carries each out on the part that it concerns.
    pub(super) changes: VecDeque<Change>,
    /// Attempts whose whole row the batch stores.
    pub(super) attempts: BTreeSet<(JobId, Attempt)>,
    /// Ranks whose holds changed, by attempt. The batch stores a delta for these ranks, unless it stores the attempt's
    /// whole row (`attempts`).
    pub(super) dirty_holds: BTreeMap<(JobId, Attempt), IdSet>,
    /// Ranks and named resources on which a hold was dropped, by attempt. The end of the batch releases those that
    /// nothing else holds.
    pub(super) dropped: BTreeMap<(JobId, Attempt), Part>,
    /// Milestones reported in this batch, each with the ranks that had not reported the milestone before.
    pub(super) milestones: BTreeMap<MilestoneEntry, IdSet>,
    /// Ranks whose hosts were drained in this batch for a fault of the action, by the reason.
    pub(super) drained: BTreeMap<(ActionId, String), IdSet>,
    /// Hosts that the batch has to say the same of in the journal, by level and text.
    pub(super) noted: BTreeMap<(Level, String), BTreeSet<HostName>>,
    /// Hosts whose drain came into force or was lifted in this batch. The end of the batch settles the resolutions that
    /// waited for these drains.
    pub(super) in_force: BTreeSet<HostName>,
    /// Time (ms, monotonic) at which the last `WakeAt` effect asked for a tick; `None`: that tick has come, or no
    /// effect has asked for one.
    pub(super) wake_ms: Option<u64>,
    /// How many ranks the batch may still start or end by itself.
    pub(super) quota: Quota,
}

/// Consequence of an act for another part of the machine, which the acting part cannot reach. `Machine::react` carries
/// out each change.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Change {
    /// The session's Hello is complete, and no other session speaks for its host: the session normally opens. The text
    /// is a note about the node, for operators; `None`: no note.
    Greeted(SessionId, Box<Hello>, Option<String>),
    /// No session speaks for the host. The time limits of the node's tasks are checked again once the grace for an
    /// absent node has passed.
    Away(HostName),
    /// The attempt gives up the rank, because another job (`to`) may have its host.
    GiveUp { job: JobId, attempt: Attempt, rank: Rank, to: JobId },
    /// The attempt gave up ranks of the action. Tasks that their nodes have not begun get a Cancel.
    GivenUp(ActionId, IdSet),
    /// The host has no unknown task. The drain for them is lifted, and waiting tasks on the host may begin.
    NoUnknown(HostName),
    /// An abandoned attempt was taken up, or an attempt was added that a lost epoch may have had. Its unknown tasks are
    /// adopted, and drains for its clean-ups are lifted.
    TakenUp(JobId, Attempt),
    /// These ranks have joined the action, when the action began or later. Their nodes' task lists get the tasks, and
    /// unknown tasks on these ranks are adopted.
    Joined(ActionId, IdSet),
    /// These ranks of the action may be able to begin. Each waits for its Start, or its task is unclaimed on the node.
    /// A rank begins unless an earlier action, its node or recovery keeps it waiting.
    Ready(ActionId, IdSet),
    /// An earlier batch left the Starts of these ranks for this one. Their limits count from this time (monotonic).
    Continuing(ActionId, IdSet, u64),
    /// An operator's request to drain hosts, or to lift drains, is to be carried out.
    Ordered(Box<Order>),
    /// The action's attempt proceeds. The action's waiting tasks may begin.
    Proceeds(ActionId),
    /// The action has its verdict. Its tasks leave the task lists of their nodes.
    Decided(ActionId),
    /// The task must stop or never begin, for this reason. The task's node gets a Cancel if the node is connected,
    /// unless the attempt is suspended and the task is still to be decided about.
    Cancelled(TaskId, String),
    /// A task has ended. The node's task lists are updated, and the host may be drained.
    Ended(End),
    /// A script of the host ended, or its node said Hello. With `reboot-cleans`, this may lift a drain for a stuck
    /// script that a reboot has ended.
    ScriptsEnded(HostName),
    /// The host of the task is to be drained for the reason `what`. `is_stuck`: a script of the task lives, and a
    /// reboot of the node ends the script.
    Drain { task: TaskId, what: String, is_stuck: bool },
    /// The hosts need no clean-up. The machine lifts their drains for the cause `Passing`.
    Cleaned(Vec<HostName>, Passing),
}

/// End of a task, for the update of its node and the drain of its host.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct End {
    pub(super) task: TaskId,
    /// `true` if the rank waited for an announced reboot of its node. Start-grace then counts again for the node's
    /// other tasks.
    pub(super) rebooted: bool,
    /// `true` if the task's scripts may go on after the end: an operator resolved the task, or the controller gave up a
    /// script past its limit.
    pub(super) continues: bool,
    pub(super) is_ok: bool,
    /// The end with its details, if it may be a reason to drain the host; else `None`.
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
            dirty_holds: BTreeMap::new(),
            dropped: BTreeMap::new(),
            milestones: BTreeMap::new(),
            drained: BTreeMap::new(),
            noted: BTreeMap::new(),
            in_force: BTreeSet::new(),
            wake_ms: None,
            quota: Quota::default(),
        }
    }

    pub(super) fn reply(&mut self, client: Client, reply: Result<Reply, Refusal>) {
        self.effects.push(Effect::Reply { client, reply });
    }

    pub(super) fn note(&mut self, level: Level, job: Option<&JobId>, host: Option<&HostName>, text: impl Into<String>) {
        let (job, host) = (job.cloned(), host.cloned());
        self.effects.push(Effect::Note { level, job, host, text: text.into(), by_node: false });
    }

    /// Says something of a host in the journal. Hosts of which a batch says the same share a line, at the end of the
    /// batch: a restored store has the same to say of each node of a cluster.
    pub(super) fn note_host(&mut self, level: Level, host: &HostName, text: String) {
        if defect!(NotesUnfolded) {
            return self.note(level, None, Some(host), text);
        }
        self.noted.entry((level, text)).or_default().insert(host.clone());
    }

    /// Writes the lines of [`Self::note_host`].
    pub(super) fn log_notes(&mut self) {
        for ((level, text), hosts) in std::mem::take(&mut self.noted) {
            match hosts.first() {
                Some(host) if hosts.len() == 1 => self.note(level, None, Some(host), text),
                _ => {
                    let hosts = HostList::sorted(hosts.iter().map(HostName::as_str));
                    self.note(level, None, None, format!("{hosts}: {text}"));
                }
            }
        }
    }

    /// Adds a journal line about an act of a node. A node can cause any number of such lines, so the daemon bounds the
    /// lines of each host.
    pub(super) fn note_of_node(&mut self, level: Level, host: &HostName, text: impl Into<String>) {
        let (host, text) = (Some(host.clone()), text.into());
        self.effects.push(Effect::Note { level, job: None, host, text, by_node: true });
    }

    pub(super) fn send(&mut self, session: SessionId, message: ToAgent) {
        self.effects.push(Effect::Send { session, message });
    }

    /// Sends a Cancel of the task on the session, if the store knows the task's action.
    pub(super) fn send_cancel(&mut self, session: SessionId, jobs: &Jobs, task: TaskId, why: &str) {
        let Some(row) = jobs.action(task.action).map(|action| &action.row) else { return };
        let (job, attempt, action) = (row.job.clone(), row.attempt, row.name.clone());
        self.send(session, ToAgent::Cancel { task, job, attempt, action, why: why.to_owned(), commit: 0 });
    }

    /// Marks an attempt as changed: the batch stores the attempt's whole row.
    pub(super) fn attempt_changed(&mut self, job: &JobId, number: Attempt) {
        self.attempts.insert((job.clone(), number));
    }

    /// Marks ranks and named resources on which a hold was dropped. The end of the batch releases those that nothing
    /// else holds.
    pub(super) fn hold_dropped(&mut self, job: &JobId, number: Attempt, part: &Part) {
        self.dropped.entry((job.clone(), number)).or_default().extend_with(part);
    }

    /// Adds the records of the changed attempts, whole rows and deltas, to the batch. Puts them before the other
    /// records, which may refer to these attempts, but after a `Prune` of the same job.
    pub(super) fn record_attempts(&mut self, jobs: &Jobs) {
        let (dirty_holds, whole) = (std::mem::take(&mut self.dirty_holds), std::mem::take(&mut self.attempts));
        let parts =
            dirty_holds.into_iter().filter(|(key, _)| !whole.contains(key)).filter_map(|((job, number), ranks)| {
                let holds = Box::new(jobs.attempt(&job, number)?.holds(&ranks));
                Some((job.clone(), Record::AttemptDelta { job, attempt: number, holds }))
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

    /// Numbers the batch's commit if the batch has records, and puts the number of the newest commit into every message
    /// to a node.
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
