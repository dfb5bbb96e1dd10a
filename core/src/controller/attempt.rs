//! One try of a job: its ranks and their hosts, what the job holds of them itself, and what has been given back.
//!
//! ```text
//!   job add, run --> held by the job --finish--> held by what follows it --each action lets go--> released
//! ```
//! A rank, or a named resource, is free when nobody holds it: neither the job nor an action. It is released once.

use std::collections::BTreeSet;

use crate::controller::io::{AttemptRow, Source};
use crate::controller::layout::Layout;
use crate::controller::machine::Job;
use crate::controller::stands::Holds;
use crate::defect;
use crate::ids::{ActionId, Attempt, JobId};
use crate::idset::IdSet;
use crate::job::{Part, Terms};
use crate::milestone::Milestones;

#[derive(Debug, Clone, PartialEq)]
pub(super) struct JobAttempt {
    pub(super) layout: Layout,
    pub(super) userid: Option<u32>,
    pub(super) open: bool,
    pub(super) touched_ms: u64,
    /// In the order of their begins.
    pub(super) actions: Vec<ActionId>,
    pub(super) terms: Terms,
    pub(super) added: bool,
    pub(super) hold: Part,
    pub(super) released: Part,
    pub(super) complete: bool,
    pub(super) milestones: Milestones,
    /// It was said in the log that there are more of them than are kept.
    pub(super) too_many_milestones: bool,
    pub(super) source: Option<Source>,
    pub(super) unvouched: bool,
    pub(super) recovered: bool,
    pub(super) disowned: IdSet,
    /// Vouched for in this controller's life: it is not frozen. Not stored.
    pub(super) asserted: bool,
    /// A person has vouched for its disowned ranks.
    pub(super) by_hand: bool,
}

impl Job {
    /// The one that is meant where none is named: the newest that is open.
    pub(super) fn open_attempt(&self) -> Option<Attempt> {
        self.attempts.iter().rev().find(|(_, attempt)| attempt.open).map(|(number, _)| *number)
    }

    pub(super) fn last_attempt(&self) -> Option<Attempt> {
        self.attempts.keys().next_back().copied()
    }

    /// The attempt that a new one is a requeue of.
    pub(super) fn before_the_next(&self) -> Option<&JobAttempt> {
        self.attempts.values().next_back()
    }
}

impl JobAttempt {
    /// Does this attempt wait for an operator: is it unvouched, or has it disowned ranks and no edge that could say who holds their hosts?
    pub(super) fn waits_for_a_word(&self) -> bool {
        self.unvouched || self.wants_a_word_on_hosts()
    }

    /// Has it disowned ranks, and no edge that could say who holds their hosts?
    pub(super) fn wants_a_word_on_hosts(&self) -> bool {
        let disowned = !self.disowned.is_subset(&self.released.ranks);
        disowned && self.source.is_none() && !self.complete && !self.by_hand
    }

    /// It holds all that it has.
    pub(super) fn new(layout: Layout, userid: Option<u32>, terms: Terms, added: bool, wall_ms: u64) -> Self {
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
        }
    }

    /// A requeue that nobody has added: what it is owed, whose it is and what it may be forgiven is as for the attempt before. R and what is no rank
    /// are of the ranks that were handed out, and go with them only.
    ///
    /// # Errors
    /// A text: as many as that one was to keep are not there.
    pub(super) fn requeue(
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

    /// As it was stored; `None`: its ranks and hosts do not fit.
    pub(super) fn stored(row: AttemptRow) -> Option<(JobId, Attempt, Self)> {
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
        };
        Some((row.job, row.attempt, entry))
    }

    pub(super) fn row(&self, job: JobId, attempt: Attempt) -> AttemptRow {
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

    /// How these ranks are held.
    pub(super) fn holds(&self, ranks: &IdSet) -> Holds {
        let of = |set: &IdSet| set.intersection(ranks);
        let (hold, released, left) = (of(&self.hold.ranks), of(&self.released.ranks), of(self.milestones.left()));
        Holds { ranks: ranks.clone(), hold, released, left, disowned: of(&self.disowned) }
    }

    /// All that was handed out.
    pub(super) fn whole(&self) -> Part {
        Part { ranks: self.layout.ranks().clone(), resources: self.terms.resources.clone() }
    }

    /// What the resource manager waits for: all of it, but for ranks that it does not hold for this attempt any more. With the last rank goes what is
    /// none.
    pub(super) fn owed(&self) -> Part {
        let ranks = self.layout.ranks().difference(&self.disowned);
        let resources = if ranks.is_empty() { BTreeSet::new() } else { self.terms.resources.clone() };
        Part { ranks, resources }
    }

    /// The job lets go of a part of what it holds still. With its last rank it is over: what else it holds goes with that, for nobody would ask
    /// for it again.
    pub(super) fn let_go(&mut self, asked: &Part) -> Part {
        let mut part = self.hold.intersection(asked);
        if part.ranks == self.hold.ranks && !defect!(ResourcesStay) {
            part.resources.clone_from(&self.hold.resources);
        }
        self.hold.subtract(&part);
        part
    }

    /// Will somebody finish it? Until then it is neither closed nor forgotten for being idle.
    pub(super) fn is_expected(&self) -> bool {
        self.added && self.open && !self.complete
    }
}
