//! Positions of the ids of a set, counted from 0.
//!
//! An [`IdSet`] has to walk its ranges to find a position. This index stores the number of ids before each range, and
//! finds the range by binary search.

use super::IdSet;

/// An index of the positions of a set's ids, counted from 0. Later changes of the set do not change the index.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Positions {
    /// Each range in ascending order: its first id, its last id, and the position of its first id.
    ranges: Vec<(u32, u32, u64)>,
}

impl Positions {
    pub fn of(ids: &IdSet) -> Self {
        let mut before = 0;
        let count = |(lo, hi): (u32, u32)| {
            let here = (lo, hi, before);
            before += u64::from(hi - lo) + 1;
            here
        };
        Self { ranges: ids.ranges().map(count).collect() }
    }

    /// Returns the position of `id`, if the set contains the id.
    pub fn position(&self, id: u32) -> Option<u64> {
        let after = self.ranges.partition_point(|(lo, _, _)| *lo <= id);
        let (lo, hi, before) = *self.ranges.get(after.checked_sub(1)?)?;
        (id <= hi).then(|| before + u64::from(id - lo))
    }

    /// Returns the id at a position, counted from 0 in ascending order; `None`: the set has too few ids.
    pub fn id(&self, position: u64) -> Option<u32> {
        let after = self.ranges.partition_point(|(_, _, before)| *before <= position);
        let (lo, hi, before) = *self.ranges.get(after.checked_sub(1)?)?;
        let id = u32::try_from(u64::from(lo) + (position - before)).ok()?;
        (id <= hi).then_some(id)
    }

    /// Returns the positions of those `ids` that are in the set. Leaves out positions past `u32::MAX`: no list is that
    /// long.
    pub fn select(&self, ids: &IdSet) -> IdSet {
        let mut positions = IdSet::new();
        for (from, to) in ids.ranges() {
            let first = self.ranges.partition_point(|(_, hi, _)| *hi < from);
            for (lo, hi, before) in self.ranges[first..].iter().take_while(|(lo, _, _)| *lo <= to) {
                let at = |id: u32| u32::try_from(before + u64::from(id - lo));
                if let (Ok(lo), Ok(hi)) = (at(from.max(*lo)), at(to.min(*hi))) {
                    positions.insert_range(lo, hi);
                }
            }
        }
        positions
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn ids_and_positions_both_ways() {
        let positions = Positions::of(&"19-22,30,4294967295".parse().unwrap());
        for (id, at) in [
            (0, None),
            (18, None),
            (19, Some(0)),
            (22, Some(3)),
            (23, None),
            (30, Some(4)),
            (31, None),
            (u32::MAX, Some(5)),
        ] {
            assert_eq!(positions.position(id), at, "{id}");
        }
        assert_eq!(
            (0..7).map(|at| positions.id(at)).collect::<Vec<_>>(),
            [19, 20, 21, 22, 30, u32::MAX].map(Some).into_iter().chain([None]).collect::<Vec<_>>()
        );
        assert_eq!(positions.select(&"0-20,22-30".parse().unwrap()).to_string(), "0-1,3-4");
        assert_eq!(Positions::of(&IdSet::from(0..=u32::MAX)).position(u32::MAX), Some(u64::from(u32::MAX)));
        assert_eq!(Positions::default().id(0), None);
    }

    proptest! {
        #[test]
        fn positions_are_those_of_a_walk(ids: BTreeSet<u16>, some: BTreeSet<u16>) {
            let set = |ids: &BTreeSet<u16>| ids.iter().map(|id| u32::from(*id % 64)).collect::<IdSet>();
            let (ids, some) = (set(&ids), set(&some));
            let positions = Positions::of(&ids);
            for (at, id) in (0..).zip(ids.iter()) {
                prop_assert_eq!((positions.position(id), positions.id(at)), (Some(at), Some(id)));
            }
            let walked: IdSet = (0..).zip(ids.iter()).filter(|(_, id)| some.contains(*id)).map(|(at, _)| at).collect();
            prop_assert_eq!(positions.select(&some), walked);
        }
    }
}
