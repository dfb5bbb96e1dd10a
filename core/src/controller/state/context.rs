//! Context of a batch: the time, the settings, and the output so far. The output is records, effects, queued changes,
//! and the actions and attempts that the end of the batch settles. Every part of the machine writes to the context; the
//! context calls no act of a part.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::agent::io::Level;
use crate::controller::interface::io::{Client, Effect, Now, Record, Refusal, Reply, SessionId, Settings};
use crate::controller::state::change::Change;
use crate::controller::state::outbox::Outbox;
use crate::controller::state::quota::Quota;
use crate::defect;
use crate::hostlist::HostList;
use crate::ids::{ActionId, ActionName, Attempt, HostName, JobId, MilestoneName};
use crate::idset::IdSet;
use crate::job::Part;
use crate::mark::History;
use crate::message::ToAgent;

/// The state of the batch that the machine handles now.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Context {
    /// The clocks of the batch; between two batches, the clocks of the earlier one.
    pub(crate) now: Now,
    pub(crate) settings: Settings,
    pub(crate) outbox: Outbox,
    pub(crate) records: Vec<Record>,
    pub(crate) effects: Vec<Effect>,
    /// Actions to settle at the end of the batch: the machine then logs their ends, decides their verdicts and stores
    /// their records.
    pub(crate) touched: BTreeSet<ActionId>,
    /// Consequences of acts, in order; `Machine::react` carries each out on the part that it concerns.
    pub(crate) changes: VecDeque<Change>,
    /// Attempts whose whole row the batch stores.
    pub(crate) attempts: BTreeSet<(JobId, Attempt)>,
    /// Ranks whose holds changed, by attempt. The batch stores a delta for these ranks, unless it stores the attempt's
    /// whole row (`attempts`).
    pub(crate) dirty_holds: BTreeMap<(JobId, Attempt), IdSet>,
    /// Ranks and named resources on which a hold was dropped, by attempt. The end of the batch releases those that
    /// nothing else holds.
    pub(crate) dropped: BTreeMap<(JobId, Attempt), Part>,
    /// Milestones reported in this batch, each with the ranks that had not reported the milestone before.
    pub(crate) milestones: BTreeMap<MilestoneEntry, IdSet>,
    /// Ranks whose hosts were drained in this batch for a fault of the action, by the reason.
    pub(crate) drained: BTreeMap<(ActionId, String), IdSet>,
    /// Lines for the journal, by level and text, each with the hosts that it is about.
    pub(crate) noted: BTreeMap<(Level, String), BTreeSet<HostName>>,
    /// Hosts whose drain came into force or was lifted in this batch. The end of the batch settles the resolutions that
    /// waited for these drains.
    pub(crate) in_force: BTreeSet<HostName>,
    /// Time (ms, monotonic) at which the last `WakeAt` effect asked for a tick; `None`: that tick has come, or no
    /// effect has asked for one.
    pub(crate) wake_ms: Option<u64>,
    /// Number of ranks or hosts that the batch may still change by itself.
    pub(crate) quota: Quota,
}

impl Context {
    pub(crate) fn new(settings: Settings, outbox: Outbox, now: Now) -> Self {
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

    pub(crate) fn reply(&mut self, client: Client, reply: Result<Reply, Refusal>) {
        self.effects.push(Effect::Reply { client, reply });
    }

    pub(crate) fn note(&mut self, level: Level, job: Option<&JobId>, host: Option<&HostName>, text: impl Into<String>) {
        let (job, host) = (job.cloned(), host.cloned());
        self.effects.push(Effect::Note { level, job, host, text: text.into(), by_node: false });
    }

    /// Queues a journal line about a host for the end of the batch. Hosts with the same text share a line: a restored
    /// store causes the same text for each node of a cluster.
    pub(crate) fn note_host(&mut self, level: Level, host: &HostName, text: String) {
        if defect!(NotesUnfolded) {
            return self.note(level, None, Some(host), text);
        }
        self.noted.entry((level, text)).or_default().insert(host.clone());
    }

    /// Writes the lines of [`Self::note_host`].
    pub(crate) fn log_notes(&mut self) {
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
    pub(crate) fn note_of_node(&mut self, level: Level, host: &HostName, text: impl Into<String>) {
        let (host, text) = (Some(host.clone()), text.into());
        self.effects.push(Effect::Note { level, job: None, host, text, by_node: true });
    }

    pub(crate) fn send(&mut self, session: SessionId, message: ToAgent) {
        self.effects.push(Effect::Send { session, message });
    }

    /// Marks an attempt as changed: the batch stores the attempt's whole row.
    pub(crate) fn attempt_changed(&mut self, job: &JobId, number: Attempt) {
        self.attempts.insert((job.clone(), number));
    }

    /// Marks ranks and named resources on which a hold was dropped. The end of the batch releases those that nothing
    /// else holds.
    pub(crate) fn hold_dropped(&mut self, job: &JobId, number: Attempt, part: &Part) {
        self.dropped.entry((job.clone(), number)).or_default().extend_with(part);
    }

    /// Numbers the batch's commit if the batch has records, and puts the number of the newest commit into every message
    /// to a node.
    pub(crate) fn commit(&mut self, history: &mut History) {
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

/// A reported milestone and who reported it, without the ranks. Reports of one batch that differ only in their ranks
/// become one event.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct MilestoneEntry {
    pub(crate) job: JobId,
    pub(crate) attempt: Attempt,
    pub(crate) name: MilestoneName,
    /// The action whose script or service reported; `None`: an operator reported.
    pub(crate) action: Option<ActionName>,
    /// The user id of the operator who reported; `None`: an action reported.
    pub(crate) by: Option<u32>,
}
