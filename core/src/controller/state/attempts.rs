//! The attempts of a job, in order. Each is in a box: nearly every job has one attempt, and a node of a map has room
//! for eleven values, which would take ten times the memory of the attempt.

use std::collections::{BTreeMap, btree_map};
use std::ops::RangeBounds;

use crate::controller::state::attempt::JobAttempt;
use crate::ids::Attempt;

#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Attempts(BTreeMap<Attempt, Box<JobAttempt>>);

type Entry<'a> = (&'a Attempt, &'a Box<JobAttempt>);
/// Iterator over the attempts of a job, in order.
type Iter<'a> =
    std::iter::Map<btree_map::Iter<'a, Attempt, Box<JobAttempt>>, fn(Entry<'a>) -> (&'a Attempt, &'a JobAttempt)>;

fn unboxed<'a>((number, attempt): Entry<'a>) -> (&'a Attempt, &'a JobAttempt) {
    (number, attempt)
}

impl Attempts {
    pub(crate) fn get(&self, number: &Attempt) -> Option<&JobAttempt> {
        self.0.get(number).map(|attempt| &**attempt)
    }

    pub(crate) fn contains_key(&self, number: &Attempt) -> bool {
        self.0.contains_key(number)
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn iter(&self) -> Iter<'_> {
        self.0.iter().map(unboxed)
    }

    pub(crate) fn keys(&self) -> btree_map::Keys<'_, Attempt, Box<JobAttempt>> {
        self.0.keys()
    }

    pub(crate) fn values(&self) -> impl DoubleEndedIterator<Item = &JobAttempt> {
        self.iter().map(|(_, attempt)| attempt)
    }

    pub(crate) fn range(
        &self,
        range: impl RangeBounds<Attempt>,
    ) -> impl DoubleEndedIterator<Item = (&Attempt, &JobAttempt)> {
        self.0.range(range).map(unboxed)
    }

    pub(crate) fn get_mut(&mut self, number: &Attempt) -> Option<&mut JobAttempt> {
        self.0.get_mut(number).map(|attempt| &mut **attempt)
    }

    pub(crate) fn insert(&mut self, number: Attempt, attempt: JobAttempt) {
        self.0.insert(number, Box::new(attempt));
    }

    pub(crate) fn remove(&mut self, number: &Attempt) -> Option<JobAttempt> {
        self.0.remove(number).map(|attempt| *attempt)
    }
}

impl<'a> IntoIterator for &'a Attempts {
    type Item = (&'a Attempt, &'a JobAttempt);
    type IntoIter = Iter<'a>;

    fn into_iter(self) -> Iter<'a> {
        self.iter()
    }
}

/// The attempts of a job.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Job {
    pub(crate) attempts: Attempts,
    /// Last sequence number of the job's event log.
    pub(crate) events_last: u64,
}

impl Job {
    /// Returns the number of the newest open attempt. A request that names no attempt means this one.
    pub(crate) fn open_attempt(&self) -> Option<Attempt> {
        self.attempts.iter().rev().find(|(_, attempt)| attempt.open).map(|(number, _)| *number)
    }

    pub(crate) fn last_attempt(&self) -> Option<Attempt> {
        self.attempts.keys().next_back().copied()
    }

    /// Returns the job's last attempt, from which a requeue takes its terms, and its hosts if the request names none.
    /// `None`: the job has no attempt.
    pub(crate) fn before_the_next(&self) -> Option<&JobAttempt> {
        self.attempts.values().next_back()
    }
}
