//! Sets of ids (ranks, cores) in the notation of RFC 22: `0-3,7`.
//!
//! The set is stored as sorted, disjoint ranges that do not touch. The cost of a set depends on the number of ranges,
//! never on the size of the ids: `0-4294967295` is one entry. Equal sets have equal ranges, so equality and hashing are
//! those of the ranges.
//!
//! Copies share the ranges until one copy changes: the ranks of a job go to each of the job's nodes, and are often
//! compared with their own copies.
//!
//! The parser is strict RFC 22, stricter than Flux's decoder, which skips empty elements and wraps ids of 2^32 and more
//! to small ones. The parser refuses ids above `u32::MAX`, and also `5-5`: a range has at least two ids.

mod parse;
mod positions;
mod ranges;
#[cfg(test)]
mod tests;

use std::fmt;
use std::ops::RangeInclusive;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

pub use positions::Positions;
use ranges::Ranges;

/// A set of `u32`. The order of sets has no meaning; it lets sets be keys of a map.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IdSet {
    /// `None` for the empty set, never empty ranges, so that equal sets have equal fields.
    ranges: Option<Arc<Ranges>>,
}

static NO_RANGES: Ranges = Ranges::new();

impl IdSet {
    /// Shares the memory of `other` if both sets are equal.
    pub fn share(&mut self, other: &Self) {
        if self == other {
            self.clone_from(other);
        }
    }

    pub const fn new() -> Self {
        Self { ranges: None }
    }

    /// Returns `true` if both sets share their memory.
    #[cfg(test)]
    pub(crate) fn is_shared(&self, other: &Self) -> bool {
        self.ranges.as_ref().zip(other.ranges.as_ref()).is_some_and(|(own, other)| Arc::ptr_eq(own, other))
    }

    /// Creates a set from ranges that neither overlap nor touch.
    fn of(ranges: Ranges) -> Self {
        Self { ranges: (!ranges.is_empty()).then(|| Arc::new(ranges)) }
    }

    fn kept(&self) -> &Ranges {
        self.ranges.as_deref().unwrap_or(&NO_RANGES)
    }

    /// Adds `id`; returns `true` if the set did not contain the id.
    pub fn insert(&mut self, id: u32) -> bool {
        let new = !self.contains(id);
        if new {
            self.insert_range(id, id);
        }
        new
    }

    /// Removes `id`; returns `true` if the set contained the id.
    pub fn remove(&mut self, id: u32) -> bool {
        let there = self.contains(id);
        if there {
            self.remove_range(id, id);
        }
        there
    }

    /// Adds the ids from `lo` to `hi`, both included; adds none if `lo > hi`.
    pub fn insert_range(&mut self, lo: u32, hi: u32) {
        // Changes nothing if the set has the range already: a change would copy shared ranges.
        if lo > hi || self.kept().before(lo).is_some_and(|(_, end)| hi <= end) {
            return;
        }
        let (mut lo, mut hi) = (lo, hi);
        let ranges = Arc::make_mut(self.ranges.get_or_insert_default());
        // Merges, from the right, every range that overlaps or touches the new range.
        while let Some((start, end)) = ranges.before(hi.saturating_add(1)) {
            if end.saturating_add(1) < lo {
                break;
            }
            ranges.remove(start);
            lo = lo.min(start);
            hi = hi.max(end);
        }
        ranges.insert((lo, hi));
    }

    /// Removes the ids from `lo` to `hi`, both included; removes none if `lo > hi`.
    pub fn remove_range(&mut self, lo: u32, hi: u32) {
        // Changes nothing if the set has no id of the range: a change would copy shared ranges.
        if lo > hi || self.within(lo, hi).next().is_none() {
            return;
        }
        let ranges = Arc::make_mut(self.ranges.get_or_insert_default());
        while let Some((start, end)) = ranges.before(hi) {
            if end < lo {
                break;
            }
            ranges.remove(start);
            if end > hi {
                ranges.insert((hi + 1, end));
            }
            if start < lo {
                ranges.insert((start, lo - 1));
                break;
            }
        }
        if ranges.is_empty() {
            self.ranges = None;
        }
    }

    pub fn contains(&self, id: u32) -> bool {
        self.kept().before(id).is_some_and(|(_, end)| id <= end)
    }

    /// Returns the number of ids, in a time that grows with the number of ranges.
    pub fn len(&self) -> u64 {
        self.ranges().map(|(lo, hi)| u64::from(hi - lo) + 1).sum()
    }

    pub fn is_empty(&self) -> bool {
        self.ranges.is_none()
    }

    pub fn first(&self) -> Option<u32> {
        self.kept().first().map(|(lo, _)| lo)
    }

    pub fn last(&self) -> Option<u32> {
        self.kept().last().map(|(_, hi)| hi)
    }

    /// Iterates over the ids in ascending order. A set from outside may contain four billion ids: the caller checks its
    /// bounds first (`last`, `is_subset`).
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.ranges().flat_map(|(lo, hi)| lo..=hi)
    }

    /// Iterates over the ranges (first, last) in ascending order; at least one id is missing between two ranges.
    pub fn ranges(&self) -> impl Iterator<Item = (u32, u32)> + '_ {
        self.kept().iter()
    }

    pub fn union(&self, other: &Self) -> Self {
        let (mut all, few) = if self.pieces() < other.pieces() { (other.clone(), self) } else { (self.clone(), other) };
        all.extend_with(few);
        all
    }

    pub fn intersection(&self, other: &Self) -> Self {
        let (few, many) = if self.pieces() < other.pieces() { (self, other) } else { (other, self) };
        if few.is_small_beside(many) {
            return Self::of(few.ranges().flat_map(|(lo, hi)| many.within(lo, hi)).collect());
        }
        Self::of(overlaps(self.ranges(), other.ranges()).collect())
    }

    /// Returns the ids of `self` that are not in `other`.
    pub fn difference(&self, other: &Self) -> Self {
        if other.is_empty() {
            return self.clone();
        }
        if self.is_small_beside(other) {
            let mut rest = self.clone();
            self.ranges().flat_map(|(lo, hi)| other.within(lo, hi)).for_each(|(lo, hi)| rest.remove_range(lo, hi));
            return rest;
        }
        Self::of(overlaps(self.ranges(), other.gaps()).collect())
    }

    /// Adds all ids of `other`.
    pub fn extend_with(&mut self, other: &Self) {
        if self.is_empty() {
            self.clone_from(other);
            return;
        }
        for (lo, hi) in other.ranges() {
            self.insert_range(lo, hi);
        }
    }

    /// Removes all ids of `other`.
    pub fn subtract(&mut self, other: &Self) {
        if self.is_small_beside(other) {
            *self = self.difference(other);
            return;
        }
        for (lo, hi) in other.ranges() {
            self.remove_range(lo, hi);
        }
    }

    /// Returns `true` if every id of `self` is in `other`.
    pub fn is_subset(&self, other: &Self) -> bool {
        // Ranges do not touch: a range of `self` either lies within one range of `other`, or is not fully contained.
        let there = |(lo, hi)| other.kept().before(lo).is_some_and(|(_, end)| hi <= end);
        self.ranges().all(there)
    }

    pub fn is_disjoint(&self, other: &Self) -> bool {
        let (few, many) = if self.pieces() < other.pieces() { (self, other) } else { (other, self) };
        if few.is_small_beside(many) {
            return few.ranges().all(|(lo, hi)| many.within(lo, hi).next().is_none());
        }
        overlaps(self.ranges(), other.ranges()).next().is_none()
    }

    /// Returns the number of ranges: the cost of storing, walking or writing the set grows with this number.
    pub fn pieces(&self) -> usize {
        self.kept().len()
    }

    /// Returns `true` if looking up each range of `self` in `other` is cheaper than walking both sets. Operations on
    /// one rank of a large job stay cheap this way.
    fn is_small_beside(&self, other: &Self) -> bool {
        self.pieces().saturating_mul(8) < other.pieces()
    }

    /// Iterates over the ranges of those ids of the set that lie between `lo` and `hi`, both included, in ascending
    /// order.
    fn within(&self, lo: u32, hi: u32) -> impl Iterator<Item = (u32, u32)> + '_ {
        let reached = self.kept().from(lo).take_while(move |(start, _)| *start <= hi);
        reached.map(move |(start, end)| (start.max(lo), end.min(hi))).filter(|(lo, hi)| lo <= hi)
    }

    /// Returns the RFC 22 text in optional brackets: `[0-3,7]`.
    pub fn to_brackets(&self) -> String {
        format!("[{self}]")
    }

    /// Iterates over the ranges of the ids that are not in the set, in ascending order.
    fn gaps(&self) -> impl Iterator<Item = (u32, u32)> + '_ {
        let starts = std::iter::once(Some(0)).chain(self.ranges().map(|(_, hi)| hi.checked_add(1)));
        let ends = self.ranges().map(|(lo, _)| lo.checked_sub(1)).chain(std::iter::once(Some(u32::MAX)));
        starts.zip(ends).filter_map(|(lo, hi)| Some((lo?, hi?)))
    }
}

/// Iterates over the common part of two ascending lists of disjoint ranges, in ascending order.
fn overlaps(
    a: impl Iterator<Item = (u32, u32)>,
    b: impl Iterator<Item = (u32, u32)>,
) -> impl Iterator<Item = (u32, u32)> {
    let (mut a, mut b) = (a.peekable(), b.peekable());
    std::iter::from_fn(move || {
        loop {
            let (&(a_lo, a_hi), &(b_lo, b_hi)) = (a.peek()?, b.peek()?);
            // The range that ends first overlaps no later range of the other list.
            if a_hi <= b_hi {
                a.next();
            } else {
                b.next();
            }
            let (lo, hi) = (a_lo.max(b_lo), a_hi.min(b_hi));
            if lo <= hi {
                return Some((lo, hi));
            }
        }
    })
}

impl From<RangeInclusive<u32>> for IdSet {
    fn from(range: RangeInclusive<u32>) -> Self {
        let mut set = Self::new();
        if !range.is_empty() {
            set.insert_range(*range.start(), *range.end());
        }
        set
    }
}

impl Extend<u32> for IdSet {
    fn extend<I: IntoIterator<Item = u32>>(&mut self, ids: I) {
        for id in ids {
            self.insert(id);
        }
    }
}

impl FromIterator<u32> for IdSet {
    fn from_iter<I: IntoIterator<Item = u32>>(ids: I) -> Self {
        let mut set = Self::new();
        set.extend(ids);
        set
    }
}

/// Formats as RFC 22 without brackets, as Flux does: neighbours are a range (`1-2`), the empty set is the empty text.
impl fmt::Display for IdSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut comma = "";
        for (lo, hi) in self.ranges() {
            if lo == hi {
                write!(f, "{comma}{lo}")?;
            } else {
                write!(f, "{comma}{lo}-{hi}")?;
            }
            comma = ",";
        }
        Ok(())
    }
}

impl fmt::Debug for IdSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{self}]")
    }
}

impl Serialize for IdSet {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for IdSet {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}
