//! Attempt of a job: decides which of its ranks and named resources the job itself holds, and which are released.
//!
//! ```text
//!   job add, run --> held by the job --finish--> held by its after-actions --each drops its hold--> released
//! ```
//! A rank or named resource is free when neither the job nor an action holds it. The controller then releases it, once.

use std::collections::BTreeSet;

use crate::controller::interface::io::{AttemptRow, Recovered, Source};
use crate::controller::state::layout::Layout;
use crate::controller::stored::delta::AttemptDelta;
use crate::defect;
use crate::ids::{ActionId, Attempt, JobId};
use crate::idset::IdSet;
use crate::job::{Part, Terms};
use crate::milestone::Milestones;

/// An attempt of a job.
///
/// | flag | set | cleared | stored |
/// |---|---|---|---|
/// | `open` | when the attempt begins | when a newer attempt opens, or its edge's list lacks the attempt | yes |
/// | `added` | when `job add`, an edge or an operator says that a resource manager will finish it | never | yes |
/// | `complete` | when all its ranks and resources are released | never | yes |
/// | `suspended` | when the controller starts, if live; by a generation | when taken up; when the gate opens | no |
/// | `abandoned` | by a generation, if the attempt has pending work | when it is taken up | yes |
/// | `silent` | when its edge's list lacks it | when its edge lists it again | yes |
///
/// An abandoned attempt is always suspended. The resource manager gets no notice of a silent attempt.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct JobAttempt {
    pub(crate) layout: Layout,
    pub(crate) userid: Option<u32>,
    pub(crate) open: bool,
    pub(crate) touched_ms: u64,
    /// The attempt's actions, in the order in which they began.
    pub(crate) actions: Vec<ActionId>,
    pub(crate) terms: Terms,
    pub(crate) added: bool,
    pub(crate) hold: Part,
    pub(crate) released: Part,
    pub(crate) complete: bool,
    pub(crate) milestones: Milestones,
    /// `true` if this controller has logged that the attempt has no room for another milestone.
    pub(crate) too_many_milestones: bool,
    pub(crate) source: Option<Source>,
    pub(crate) abandoned: bool,
    pub(crate) suspended: bool,
    pub(crate) silent: bool,
    /// Whether recovery from an old store touched the attempt. Unless `No`, a setup action may have begun on any rank.
    pub(crate) recovered: Recovered,
    /// The number of the last edge's list that has the attempt; 0: no list since this controller started. Not stored.
    pub(crate) listed: u64,
    /// `true` if this batch may have changed the attempt, and the index does not have the change yet
    /// (`table`).
    pub(crate) is_stale: bool,
}

impl JobAttempt {
    /// Returns `true` if the attempt is fully released and no generation abandoned it ([`AttemptRow::is_over`]).
    pub(crate) const fn is_over(&self) -> bool {
        self.complete && !self.abandoned
    }

    /// Returns `true` if a resource manager will still finish the attempt.
    pub(crate) const fn is_expected(&self) -> bool {
        self.added && self.open && !self.complete
    }

    /// Creates an open attempt whose job holds every rank and named resource. `added`: a resource manager will finish
    /// the attempt.
    pub(crate) fn new(layout: Layout, userid: Option<u32>, terms: Terms, added: bool, wall_ms: u64) -> Self {
        let hold = Part { ranks: layout.ranks().clone(), resources: terms.resources.clone() };
        Self {
            layout,
            userid,
            open: true,
            touched_ms: wall_ms,
            actions: Vec::new(),
            terms,
            added,
            hold,
            released: Part::default(),
            complete: false,
            milestones: Milestones::default(),
            too_many_milestones: false,
            source: None,
            abandoned: false,
            suspended: false,
            silent: false,
            recovered: Recovered::No,
            listed: 0,
            is_stale: false,
        }
    }

    /// Creates the attempt of a requeue that came without `job add`. Copies the terms of the attempt `before`, and its
    /// owner if `userid` is `None`. Leaves R and the named resources out if `layout` differs from the layout of
    /// `before`.
    ///
    /// # Errors
    /// A text for the requester: `layout` has fewer ranks than the terms demand (`keep`).
    pub(crate) fn requeue(
        layout: Layout,
        userid: Option<u32>,
        before: Option<&Self>,
        wall_ms: u64,
    ) -> Result<Self, String> {
        let mut terms = before.map(|before| before.terms.clone()).unwrap_or_default();
        if before.is_some_and(|before| before.layout != layout) {
            (terms.r, terms.resources) = (None, BTreeSet::new());
        }
        terms.check(layout.ranks().len())?;
        let userid = userid.or_else(|| before.and_then(|before| before.userid));
        Ok(Self::new(layout, userid, terms, false, wall_ms))
    }

    /// Creates an attempt from its stored row; returns it with its job and number. `None`: the row's ranks and hosts
    /// make no valid layout, for example because their numbers differ.
    pub(crate) fn stored(row: AttemptRow) -> Option<(JobId, Attempt, Self)> {
        let layout = Layout::new(row.ranks, row.hosts).ok()?;
        let milestones = if defect!(MilestonesForgotten) { Milestones::default() } else { row.milestones };
        let entry = Self {
            layout,
            userid: row.userid,
            open: row.open,
            touched_ms: row.touched_ms,
            actions: Vec::new(),
            terms: row.terms,
            added: row.added,
            hold: row.hold,
            released: row.released,
            complete: row.complete,
            milestones,
            too_many_milestones: false,
            source: row.source,
            abandoned: row.abandoned,
            suspended: false,
            silent: row.silent,
            recovered: row.recovered,
            listed: 0,
            is_stale: false,
        };
        Some((row.job, row.attempt, entry))
    }

    pub(crate) fn row(&self, job: JobId, attempt: Attempt) -> AttemptRow {
        AttemptRow {
            job,
            attempt,
            ranks: self.layout.ranks().clone(),
            hosts: self.layout.hosts().clone(),
            userid: self.userid,
            open: self.open,
            touched_ms: self.touched_ms,
            terms: self.terms.clone(),
            added: self.added,
            hold: self.hold.clone(),
            released: self.released.clone(),
            complete: self.complete,
            milestones: self.milestones.clone(),
            source: self.source.clone(),
            abandoned: self.abandoned,
            silent: self.silent,
            recovered: self.recovered,
        }
    }

    /// Returns the delta of the attempt's row for `ranks`: which of them are held, released or handed over.
    pub(crate) fn holds(&self, ranks: &IdSet) -> AttemptDelta {
        let of = |set: &IdSet| set.intersection(ranks);
        let (hold, released, left) = (of(&self.hold.ranks), of(&self.released.ranks), of(self.milestones.left()));
        AttemptDelta { ranks: ranks.clone(), hold, released, left }
    }

    /// Returns all ranks and named resources of the attempt.
    pub(crate) fn whole(&self) -> Part {
        Part { ranks: self.layout.ranks().clone(), resources: self.terms.resources.clone() }
    }

    /// Drops the job's hold on `asked`, and returns what the job held of it. If the job then holds no rank, it also
    /// drops its named resources, because no later request would name them.
    pub(crate) fn drop_hold(&mut self, asked: &Part) -> Part {
        let mut part = self.hold.intersection(asked);
        if defect!(ResourcesStay) {
        } else if part.ranks == self.hold.ranks {
            part.resources.clone_from(&self.hold.resources);
        }
        self.hold.subtract(&part);
        part
    }
}
