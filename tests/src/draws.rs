//! Random numbers of the soaks.

/// Random numbers by splitmix64: equal seeds give equal numbers.
#[derive(Debug)]
pub(crate) struct Draws(pub(crate) u64);

impl Draws {
    /// Returns a number from 0 to `bound - 1`.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound
    }

    /// Returns one of these, of which there is at least one.
    pub(crate) fn one_of<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        let index = usize::try_from(self.below(all.len() as u64)).unwrap_or_default();
        &all[index]
    }
}
