//! Backoff: decides when the machine tries a failed operation again. The pause is a quarter of a second at first,
//! doubles each time, and is at most a minute.

use super::io::Now;

const FIRST_MS: u64 = 250;
/// Longest pause in milliseconds between two tries: an operation that keeps failing in the end wakes the agent only
/// once a minute.
const CEILING_MS: u64 = 60_000;

/// Number of failed tries of one operation, and the time of the next try. After a success, or before the first failure,
/// no try is planned.
#[derive(Debug, Default)]
pub(super) struct Backoff {
    pub(super) tries: u32,
    at: Option<u64>,
}

impl Backoff {
    pub(super) fn failed(&mut self, now: Now) {
        let pause = FIRST_MS.saturating_mul(1 << self.tries.min(16)).min(CEILING_MS);
        self.tries = self.tries.saturating_add(1);
        self.at = Some(now.boot_ms.saturating_add(pause));
    }

    /// Returns `true` if the next try is due: the caller must try now, and the time of the try is cleared.
    pub(super) fn take_due(&mut self, now: Now) -> bool {
        let due = self.at.is_some_and(|at| at <= now.boot_ms);
        if due {
            self.at = None;
        }
        due
    }

    /// Returns the time of the next try (CLOCK_BOOTTIME in milliseconds); `None`: no try is planned.
    pub(super) const fn at(&self) -> Option<u64> {
        self.at
    }

    pub(super) fn succeeded(&mut self) {
        *self = Self::default();
    }
}
