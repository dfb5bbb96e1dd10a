//! Attempt of a job: decides which of its ranks and named resources the job itself holds, and which are released.
//!
//! ```text
//!   job add, run --> held by the job --finish--> held by its after-actions --each drops its hold--> released
//! ```
//! A rank or named resource is free when neither the job nor an action holds it. The controller then releases it, once.

use std::collections::BTreeSet;

use crate::controller::action::stands::Holds;
use crate::controller::io::{AttemptRow, Source};
use crate::controller::job::layout::Layout;
use crate::defect;
use crate::ids::{ActionId, Attempt, JobId};
use crate::idset::IdSet;
use crate::job::{Part, Terms};
use crate::milestone::Milestones;

/// An attempt of a job.
///
/// | flag | set | cleared | stored |
/// |---|---|---|---|
/// | `open` | when the attempt begins | when a newer attempt, an edge or an operator closes the attempt | yes |
/// | `added` | when `job add`, an edge or an operator says that a resource manager will finish it | never | yes |
/// | `complete` | when all its ranks and resources are released | never | yes |
/// | `asserted` | when it begins or thaws | when the controller starts; by a recovery, if work is unfinished | no |
/// | `unvouched` | by a recovery, if work is unfinished | when an edge, request or operator vouches for it | yes |
/// | `recovered` | when the attempt begins or is vouched for in a recovery; when an edge's list adds it | never | yes |
/// | `by_hand` | when an operator decides on hosts of `disowned` ranks | by a recovery, or new disowned ranks | yes |
///
/// An attempt that is not asserted is frozen. An unvouched attempt is never asserted. In a recovered attempt, a setup
/// action may have begun on any rank.
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
    pub(crate) unvouched: bool,
    pub(crate) recovered: bool,
    /// Disowned ranks: the resource manager no longer holds them for the attempt. For example, an edge, a request or an
    /// operator said so, or a recovery began while the attempt was a bare run whose actions had all ended.
    pub(crate) disowned: IdSet,
    pub(crate) asserted: bool,
    pub(crate) by_hand: bool,
    /// The number of the last edge's list that has the attempt; 0: no list since this controller started. Not stored.
    pub(crate) listed: u64,
}

impl JobAttempt {
    /// Returns `true` if the attempt waits for an operator's decision. Either the attempt is unvouched, or it has
    /// disowned ranks and no edge that could say which jobs have their hosts now.
    pub(crate) fn waits_for_a_word(&self) -> bool {
        self.unvouched || self.wants_a_word_on_hosts()
    }

    /// Returns `true` if a resource manager will finish the attempt, and the attempt is not unvouched.
    pub(crate) const fn is_vouched(&self) -> bool {
        self.added && !self.unvouched
    }

    /// Returns the ranks about which an operator must decide: all unreleased ranks of an unvouched attempt, and the
    /// unreleased disowned ranks of any other attempt.
    pub(crate) fn in_doubt(&self) -> IdSet {
        let of = if self.unvouched { self.layout.ranks() } else { &self.disowned };
        of.difference(&self.released.ranks)
    }

    /// Returns `true` if an operator must decide about the hosts of disowned ranks: no operator has done so, and the
    /// attempt has no source whose edge could name the hosts' holders.
    pub(crate) fn wants_a_word_on_hosts(&self) -> bool {
        self.has_disowned() && self.source.is_none()
    }

    /// Returns `true` if the attempt has disowned ranks that are not released, and no operator has decided about their
    /// hosts. `false` for an open bare run that still holds ranks, because it needs no operator.
    pub(crate) fn has_disowned(&self) -> bool {
        let disowned = !self.disowned.is_subset(&self.released.ranks);
        // An attempt that `perilog run` opened without `job add` needs no operator while the job itself holds ranks.
        let is_bare = self.open && !self.added && !self.hold.is_empty();
        disowned && !self.complete && !self.by_hand && !is_bare
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
            unvouched: false,
            recovered: false,
            disowned: IdSet::new(),
            asserted: true,
            by_hand: false,
            listed: 0,
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
            milestones: if defect!(MilestonesForgotten) { Milestones::default() } else { row.milestones },
            too_many_milestones: false,
            source: row.source,
            unvouched: row.unvouched,
            recovered: row.recovered,
            disowned: row.disowned,
            asserted: false,
            by_hand: row.by_hand,
            listed: 0,
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
            unvouched: self.unvouched,
            recovered: self.recovered,
            disowned: self.disowned.clone(),
            by_hand: self.by_hand,
        }
    }

    /// Returns the delta of the attempt's row for `ranks`: which of them are held, released, handed over or disowned.
    pub(crate) fn holds(&self, ranks: &IdSet) -> Holds {
        let of = |set: &IdSet| set.intersection(ranks);
        let (hold, released, left) = (of(&self.hold.ranks), of(&self.released.ranks), of(self.milestones.left()));
        Holds { ranks: ranks.clone(), hold, released, left, disowned: of(&self.disowned) }
    }

    /// Returns all ranks and named resources of the attempt.
    pub(crate) fn whole(&self) -> Part {
        Part { ranks: self.layout.ranks().clone(), resources: self.terms.resources.clone() }
    }

    /// Returns the ranks and named resources whose release the resource manager waits for: all ranks except disowned
    /// ones, and all named resources. Leaves the named resources out if every rank is disowned.
    pub(crate) fn owed(&self) -> Part {
        let ranks = self.layout.ranks().difference(&self.disowned);
        let resources = if ranks.is_empty() { BTreeSet::new() } else { self.terms.resources.clone() };
        Part { ranks, resources }
    }

    /// Drops the job's hold on `asked`, and returns what the job held of it. If the job then holds no rank any more, it
    /// also drops its named resources, because no later request would name them.
    pub(crate) fn let_go(&mut self, asked: &Part) -> Part {
        let mut part = self.hold.intersection(asked);
        if part.ranks == self.hold.ranks && !defect!(ResourcesStay) {
            part.resources.clone_from(&self.hold.resources);
        }
        self.hold.subtract(&part);
        part
    }
}
