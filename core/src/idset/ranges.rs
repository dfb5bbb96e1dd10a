//! Sorted ranges in chunks: what an [`IdSet`](super::IdSet) keeps.
//!
//! A set of a large job has some ten thousand ranges while its ranks end in any order, and each message of a node looks
//! into a dozen such sets. A chunk is one piece of memory, and the first ids of all chunks are another: a look-up
//! touches two, where a tree touches one for each of its levels, twice.

use std::cmp::Ordering;
use std::hash::{Hash, Hasher};

/// A range: its first id and its last.
type Range = (u32, u32);

/// Maximum number of ranges in a chunk; a full chunk is cut into halves. A longer one would be slower to change, a
/// shorter one makes the list of chunks longer. Tests have small sets, of many chunks all the same.
const MAX_CHUNK: usize = if cfg!(test) { 4 } else { 128 };

/// Ranges in ascending order; no two overlap or touch.
#[derive(Debug, Clone, Default)]
pub(super) struct Ranges {
    /// The first id of each chunk.
    firsts: Vec<u32>,
    /// No chunk is empty.
    chunks: Vec<Vec<Range>>,
    len: usize,
}

impl Ranges {
    pub(super) const fn new() -> Self {
        Self { firsts: Vec::new(), chunks: Vec::new(), len: 0 }
    }

    pub(super) const fn len(&self) -> usize {
        self.len
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(super) fn first(&self) -> Option<Range> {
        self.chunks.first()?.first().copied()
    }

    pub(super) fn last(&self) -> Option<Range> {
        self.chunks.last()?.last().copied()
    }

    /// Returns the last range that begins at `id` or before.
    pub(super) fn before(&self, id: u32) -> Option<Range> {
        let (chunk, at) = self.place(id)?;
        Some(self.chunks[chunk][at])
    }

    /// Iterates over the ranges in ascending order, from the last range on that begins at `id` or before.
    pub(super) fn from(&self, id: u32) -> impl Iterator<Item = Range> + '_ {
        let (chunk, at) = self.place(id).unwrap_or_default();
        let here = self.chunks.get(chunk).map(|ranges| &ranges[at..]).unwrap_or_default();
        let others = self.chunks.get(chunk + 1..).unwrap_or_default();
        here.iter().chain(others.iter().flatten()).copied()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = Range> + '_ {
        self.chunks.iter().flatten().copied()
    }

    /// Adds a range, which neither overlaps nor touches another.
    pub(super) fn insert(&mut self, range: Range) {
        self.len += 1;
        let Some((chunk, at)) = self.place(range.0) else {
            // The range comes before all others.
            match self.chunks.first_mut() {
                Some(ranges) => ranges.insert(0, range),
                None => self.chunks.push(vec![range]),
            }
            match self.firsts.first_mut() {
                Some(first) => *first = range.0,
                None => self.firsts.push(range.0),
            }
            return self.cut(0);
        };
        self.chunks[chunk].insert(at + 1, range);
        self.cut(chunk);
    }

    /// Removes the range that begins at `first`, if there is one.
    pub(super) fn remove(&mut self, first: u32) {
        let Some((chunk, at)) = self.place(first).filter(|(chunk, at)| self.chunks[*chunk][*at].0 == first) else {
            return;
        };
        self.len -= 1;
        let ranges = &mut self.chunks[chunk];
        ranges.remove(at);
        match ranges.first() {
            Some((first, _)) => self.firsts[chunk] = *first,
            None => {
                self.chunks.remove(chunk);
                self.firsts.remove(chunk);
            }
        }
        self.join(chunk);
    }

    /// Joins a short chunk to the next one, so that a set that shrinks has few chunks again.
    fn join(&mut self, chunk: usize) {
        let short = |at: usize| self.chunks.get(at).is_some_and(|ranges| ranges.len() <= MAX_CHUNK / 4);
        if short(chunk) && short(chunk + 1) {
            let next = self.chunks.remove(chunk + 1);
            self.firsts.remove(chunk + 1);
            self.chunks[chunk].extend(next);
        }
    }

    /// Returns the chunk, and the place in it, of the last range that begins at `id` or before.
    fn place(&self, id: u32) -> Option<(usize, usize)> {
        let chunk = self.firsts.partition_point(|first| *first <= id).checked_sub(1)?;
        // The chunk's first range begins at `id` or before.
        Some((chunk, self.chunks[chunk].partition_point(|(lo, _)| *lo <= id) - 1))
    }

    /// Cuts a full chunk into halves.
    fn cut(&mut self, chunk: usize) {
        let ranges = &mut self.chunks[chunk];
        if ranges.len() >= MAX_CHUNK {
            let mut right = Vec::with_capacity(MAX_CHUNK);
            right.extend(ranges.drain(MAX_CHUNK / 2..));
            self.firsts.insert(chunk + 1, right[0].0);
            self.chunks.insert(chunk + 1, right);
        }
    }
}

/// Collects ranges that come in ascending order.
impl FromIterator<Range> for Ranges {
    fn from_iter<I: IntoIterator<Item = Range>>(ranges: I) -> Self {
        let mut all = Self::new();
        for range in ranges {
            all.len += 1;
            match all.chunks.last_mut() {
                Some(last) if last.len() < MAX_CHUNK / 2 => last.push(range),
                _ => {
                    all.firsts.push(range.0);
                    all.chunks.push(vec![range]);
                }
            }
        }
        all
    }
}

/// Equal ranges are equal, however they are cut into chunks.
impl PartialEq for Ranges {
    fn eq(&self, other: &Self) -> bool {
        self.len == other.len && self.iter().eq(other.iter())
    }
}

impl Eq for Ranges {}

impl PartialOrd for Ranges {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Ranges {
    fn cmp(&self, other: &Self) -> Ordering {
        self.iter().cmp(other.iter())
    }
}

impl Hash for Ranges {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_usize(self.len);
        self.iter().for_each(|range| range.hash(state));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_that_grows_and_shrinks_has_chunks_as_it_needs_them() {
        let count = |ranges: &Ranges| (ranges.len(), ranges.chunks.len(), ranges.iter().count());
        let mut ranges = Ranges::new();
        // Backwards, and with every second one at a time: all places of a chunk.
        (0..64).rev().step_by(2).chain((0..64).step_by(2)).for_each(|n| ranges.insert((10 * n, 10 * n + 1)));
        let (len, chunks, walked) = count(&ranges);
        assert_eq!((len, walked), (64, 64));
        assert!((16..=32).contains(&chunks), "{chunks}");
        assert_eq!(ranges, (0..64).map(|n| (10 * n, 10 * n + 1)).collect());
        assert!(ranges.firsts.iter().zip(&ranges.chunks).all(|(first, chunk)| chunk[0].0 == *first));
        (0..60).for_each(|n| ranges.remove(10 * n));
        assert_eq!(ranges.first(), Some((600, 601)));
        ranges.remove(605);
        let (len, chunks, walked) = count(&ranges);
        assert_eq!((len, walked), (4, 4));
        assert!(chunks <= 3, "{chunks}");
        (60..64).for_each(|n| ranges.remove(10 * n));
        assert_eq!(ranges, Ranges::new());
    }
}
