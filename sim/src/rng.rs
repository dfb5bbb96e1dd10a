//! Random numbers from a seed. Every random choice of a world comes from here.

/// A stream of random numbers. Each purpose has its own stream: if a plan leaves out a fault, the plan's scripts behave
/// as before.
#[derive(Debug, Clone)]
pub struct Rng(fastrand::Rng);

impl Rng {
    pub fn new(seed: u64) -> Self {
        Self(fastrand::Rng::with_seed(seed))
    }

    /// Creates the stream for a named purpose, such as `latency`, from the seed of a plan.
    pub fn named(seed: u64, name: &str) -> Self {
        // FNV-1a is the same in every version of the compiler, unlike the hasher of std.
        let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
        });
        Self::new(seed ^ hash)
    }

    /// Returns a number in `low ..= high`.
    pub fn range(&mut self, low: u64, high: u64) -> u64 {
        self.0.u64(low..=high.max(low))
    }

    /// Returns a number in `0 .. n`; 0 if `n` is 0.
    pub fn below(&mut self, n: usize) -> usize {
        if n == 0 { 0 } else { self.0.usize(0..n) }
    }

    /// Returns `true` once in `n` calls, on average.
    pub fn one_in(&mut self, n: u64) -> bool {
        self.0.u64(0..n.max(1)) == 0
    }

    pub fn pick<'a, T>(&mut self, of: &'a [T]) -> Option<&'a T> {
        of.get(self.below(of.len()))
    }

    /// Returns a random number from `low` to `high`, such as a duration in ms: mostly near `low`, sometimes near
    /// `high`.
    pub fn skewed(&mut self, low: u64, high: u64) -> u64 {
        let spread = high.saturating_sub(low);
        let part = self.0.f64();
        // With the cube, half of the numbers lie below an eighth of the spread.
        low + (part * part * part * spread as f64) as u64
    }
}
