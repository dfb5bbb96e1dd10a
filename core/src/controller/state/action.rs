//! Action of an attempt: decides which rank state each of its ranks is in.
//!
//! ```text
//!   waiting --Start committed--> sent --Accepted--> accepted --Finished--> ok | ended
//!      |                          |                    |
//!      +----- cancel, grace ------+---- lost, resolve -+--------------------> ended
//! ```
//! Each rank is in exactly one of these states. All changes of a rank's state are methods of [`Action`].

use std::collections::{BTreeMap, BTreeSet};

use crate::controller::interface::io::{ActionRow, External, RankRow, Record};
use crate::controller::state::batches::Batches;
use crate::controller::state::expected::Expected;
use crate::controller::state::layout::Layout;
use crate::controller::stored::delta::take_out;
use crate::defect;
use crate::ids::{Rank, TaskId};
use crate::idset::IdSet;
use crate::outcome::Outcome;
use crate::task::Start;

/// An action of an attempt: its row, and state that the store does not keep.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Action {
    pub(crate) row: ActionRow,
    pub(crate) ended: BTreeMap<Rank, RankRow>,
    /// Open ranks with an announced reboot of their node.
    pub(crate) expected: BTreeMap<Rank, Expected>,
    /// Time (CLOCK_MONOTONIC, ms) from which the limits count: the start of the action, the start of this controller,
    /// or when its attempt proceeds. For an external action, the last message of its service.
    pub(crate) armed_ms: u64,
    /// Key: a rank whose limits count from a later time than `armed_ms`, for example because an earlier action or an
    /// absent node kept it waiting. Value: that time (monotonic).
    ready_ms: BTreeMap<u32, u64>,
    /// Time (monotonic) of the next check of the limits; `None`: no limit is running.
    pub(crate) check_ms: Option<u64>,
    pub(crate) batches: Batches,
    /// For an external action: time (wall clock) of the last message of its service. The time in the row may be up to
    /// half a lease older, because the store does not get every message.
    pub(crate) last_report_ms: u64,
    /// Ends of ranks in this batch that the event log does not have yet.
    pub(crate) fresh: Vec<Fresh>,
    /// Ranks that ended in this batch. Actions that waited for an end on these ranks may begin now.
    pub(crate) freed: IdSet,
    /// Ended ranks that the action still holds, until its release policy drops them.
    pub(crate) done: IdSet,
    /// Key: a rank with lingering processes for which the controller has not drained the node yet. Value: the time
    /// (monotonic) at which this controller learned of the processes.
    pub(crate) lingering: BTreeMap<Rank, u64>,
    /// `true` if a field of the row changed that is not part of a delta: the batch stores the whole row.
    pub(crate) changed: bool,
    pub(crate) changed_ranks: BTreeSet<Rank>,
    /// Ranks whose rank state or details changed in this batch. The batch stores a delta of the row for these ranks,
    /// unless it stores the whole row.
    pub(crate) dirty: IdSet,
    /// Approximate size (bytes) of the action's deltas in the store since its last whole row; `None`: this controller
    /// has not stored the whole row yet, so the size is unknown.
    beside: Option<usize>,
    /// Number of events about overdue scripts and lingering processes in the job's log, by rank ([`Self::may_log`]).
    pub(crate) logged: BTreeMap<Rank, u8>,
    /// `true` if this batch may have changed the action, and the index does not have the change yet
    /// (`table`).
    pub(crate) is_stale: bool,
}

/// End of a rank, for the event log. Ranks with equal ends share one event.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Fresh {
    pub(crate) rank: Rank,
    pub(crate) outcome: Outcome,
    /// The outcome as a text for people.
    pub(crate) result: String,
    pub(crate) elapsed_ms: Option<u64>,
    pub(crate) message: Option<String>,
    pub(crate) checks: Vec<crate::task::Check>,
}

/// Rank state: how far a rank of an action is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum RankState {
    /// The action does not cover the rank.
    NotInAction,
    Waiting,
    Sent,
    Accepted,
    Ok,
    /// The rank has ended, but not as `ok`.
    NotOk,
}

impl Action {
    pub(crate) fn new(row: ActionRow, armed_ms: u64) -> Self {
        let done = row.held.ranks.difference(&row.open_ranks());
        let last_report_ms = row.external.as_ref().map_or(0, |external| external.last_report_ms);
        Self {
            row,
            ended: BTreeMap::new(),
            expected: BTreeMap::new(),
            armed_ms,
            ready_ms: BTreeMap::new(),
            check_ms: None,
            batches: Batches::default(),
            fresh: Vec::new(),
            freed: IdSet::new(),
            lingering: BTreeMap::new(),
            done,
            changed: true,
            changed_ranks: BTreeSet::new(),
            last_report_ms,
            dirty: IdSet::new(),
            beside: None,
            logged: BTreeMap::new(),
            is_stale: false,
        }
    }

    /// Creates an action from its stored row. `armed_ms`: the time (monotonic) from which its limits count.
    pub(crate) fn stored(mut row: ActionRow, armed_ms: u64) -> Self {
        if defect!(StuckForgotten) {
            (row.overdue, row.lingering) = (BTreeMap::new(), IdSet::new());
        }
        Self { changed: false, ..Self::new(row, armed_ms) }
    }

    pub(crate) const fn task(&self, rank: Rank) -> TaskId {
        TaskId { action: self.row.id, rank }
    }

    pub(crate) fn rank_state(&self, rank: Rank) -> RankState {
        let row = &self.row;
        [
            (&row.ok, RankState::Ok),
            (&row.accepted, RankState::Accepted),
            (&row.sent, RankState::Sent),
            (&row.waiting, RankState::Waiting),
            (&row.not_ok, RankState::NotOk),
        ]
        .into_iter()
        .find_map(|(set, state)| set.contains(rank.0).then_some(state))
        .unwrap_or(RankState::NotInAction)
    }

    /// Lets the limits of `ranks` count from `mono_ms` (monotonic), for example because nothing keeps these ranks
    /// waiting.
    pub(crate) fn ready(&mut self, ranks: &IdSet, mono_ms: u64) {
        if mono_ms != self.armed_ms {
            self.ready_ms.extend(ranks.iter().map(|rank| (rank, mono_ms)));
        }
    }

    /// Returns the time (monotonic) from which the limits of a rank count.
    pub(crate) fn armed(&self, rank: Rank) -> u64 {
        self.ready_ms.get(&rank.0).copied().unwrap_or(self.armed_ms)
    }

    pub(crate) fn is_open_on(&self, rank: Rank) -> bool {
        matches!(self.rank_state(rank), RankState::Waiting | RankState::Sent | RankState::Accepted)
    }

    /// Adds ranks to the action, for example those of a later hand-over. They wait for their Start.
    pub(crate) fn grow(&mut self, ranks: &IdSet) {
        self.row.waiting.extend_with(ranks);
        self.grow_by(ranks);
    }

    fn grow_by(&mut self, ranks: &IdSet) {
        self.row.ranks.extend_with(ranks);
        self.row.held.ranks.extend_with(ranks);
        self.changed = true;
    }

    /// Seals the action: no further rank will join it.
    pub(crate) fn grown(&mut self) {
        self.changed |= std::mem::take(&mut self.row.growing);
    }

    /// Returns the ranks that have not ended.
    pub(crate) fn open_ranks(&self) -> IdSet {
        self.row.open_ranks()
    }

    pub(crate) fn count_open(&self) -> u64 {
        // The sets are disjoint, because each rank has one state.
        [&self.row.waiting, &self.row.sent, &self.row.accepted].map(IdSet::len).into_iter().sum()
    }

    pub(crate) fn is_open(&self) -> bool {
        !(self.row.waiting.is_empty()
            && self.row.sent.is_empty()
            && self.row.accepted.is_empty()
            && !self.row.external.as_ref().is_some_and(|external| external.is_open()))
    }

    /// Returns the lease and the named resources of an external action for a change, and marks the action's row as
    /// changed; `None`: the action is not external.
    pub(crate) fn external_mut(&mut self) -> Option<&mut External> {
        let external = self.row.external.as_deref_mut()?;
        self.changed = true;
        Some(external)
    }

    pub(crate) fn leave(&mut self, rank: Rank) {
        let row = &mut self.row;
        for set in [&mut row.waiting, &mut row.sent, &mut row.accepted, &mut row.ok, &mut row.not_ok] {
            if set.remove(rank.0) {
                break;
            }
        }
        take_out(&mut self.row.remarks, rank);
        self.dirty.insert(rank.0);
    }

    /// Changes a rank's state to `sent`, because the batch commits a Start for the rank. `boot_number`: the boot of the
    /// node for which the Start is meant.
    pub(crate) fn send(&mut self, rank: Rank, boot_number: u32) {
        self.leave(rank);
        self.row.sent.insert(rank.0);
        self.seen_in(rank, boot_number);
    }

    /// Changes a rank's state from `sent` back to `waiting`: the node did not get the Start, and must not begin the
    /// task now.
    pub(crate) fn unsend(&mut self, rank: Rank) {
        self.leave(rank);
        self.row.waiting.insert(rank.0);
    }

    pub(crate) fn accept(&mut self, rank: Rank) {
        self.leave(rank);
        self.row.accepted.insert(rank.0);
    }

    /// Returns the number of the boot for which the rank's Start was meant, or in which its node holds the task.
    /// `None`: no Start was sent, and no node has reported the task.
    pub(crate) fn boot(&self, rank: Rank) -> Option<u32> {
        self.row.boots.iter().find_map(|(number, ranks)| ranks.contains(rank.0).then_some(*number))
    }

    /// Returns `true` if the rank ended well.
    pub(crate) fn went_well(&self, rank: Rank) -> bool {
        self.row.ok.contains(rank.0) || self.ended.get(&rank).is_some_and(|row| row.ended.outcome.went_well())
    }

    /// Records the boot in which the node holds the task of the rank.
    pub(crate) fn seen_in(&mut self, rank: Rank, boot_number: u32) {
        if self.boot(rank) != Some(boot_number) {
            take_out(&mut self.row.boots, rank);
            self.row.boots.entry(boot_number).or_default().insert(rank.0);
            self.dirty.insert(rank.0);
        }
    }

    /// Returns the reason for which the rank's task is to be cancelled; `None`: no cancel was requested.
    pub(crate) fn cancel_of(&self, rank: Rank) -> Option<String> {
        self.row.cancelling.contains(rank.0).then(|| self.row.cancel_why.clone().unwrap_or_default())
    }

    /// Returns the reason why the rank's task must not begin: a cancel, or a resolution that waits. `None`: the task
    /// may begin.
    pub(crate) fn must_not_begin(&self, rank: Rank) -> Option<String> {
        self.cancel_of(rank).or_else(|| self.resolving(rank).map(|resolution| before_its_begin(&resolution.reason)))
    }

    pub(crate) fn cancelling(&mut self, rank: Rank, why: &str) {
        self.row.cancelling.insert(rank.0);
        self.dirty.insert(rank.0);
        if self.row.cancel_why.as_deref() != Some(why) {
            self.row.cancel_why = Some(why.to_owned());
            self.changed = true;
        }
    }

    /// Builds the Start of a rank for the boot `boot` of its node. Leaves `after` and `milestones` empty: the caller
    /// sets them.
    pub(crate) fn start(&self, layout: &Layout, not_after_ms: u64, rank: Rank, boot: &crate::ids::BootId) -> Start {
        Start {
            task: self.task(rank),
            job: self.row.job.clone(),
            attempt: self.row.attempt,
            action: self.row.name.clone(),
            boot: boot.clone(),
            not_after_ms,
            ranks: self.row.ranks.clone(),
            hosts: layout.hosts_of(&self.row.ranks),
            userid: self.row.userid,
            env: self.row.env.clone(),
            timeout_ms: self.row.timeout_ms,
            after: false,
            milestones: BTreeSet::new(),
            commit: 0,
        }
    }

    /// Appends to `records` what changed in this batch: the action's whole row or a delta of it, and the row of each
    /// rank whose details changed.
    pub(crate) fn take_records(&mut self, records: &mut Vec<Record>) {
        let dirty = std::mem::take(&mut self.dirty);
        let delta = self.row.delta(&dirty);
        let beside = self
            .beside
            .map(|beside| beside + delta.estimated_bytes())
            .filter(|beside| *beside < self.row.estimated_bytes());
        if std::mem::take(&mut self.changed) || (beside.is_none() && !dirty.is_empty()) {
            self.beside = Some(0);
            records.push(Record::Action(Box::new(self.row.clone())));
        } else if !dirty.is_empty() {
            self.beside = beside;
            records.push(Record::ActionDelta { action: self.row.id, delta: Box::new(delta) });
        }
        for rank in std::mem::take(&mut self.changed_ranks) {
            let expected = self.expected.get(&rank).map(|expected| &expected.row);
            if let Some(row) = expected.or_else(|| self.ended.get(&rank)) {
                records.push(Record::Rank(Box::new(row.clone())));
            }
        }
    }
}

/// Returns the reason in the Cancel for a task that an operator resolved before any of its scripts began.
pub(crate) fn before_its_begin(reason: &str) -> String {
    format!("resolved by an operator before it began: {}", reason.trim())
}
