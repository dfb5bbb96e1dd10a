//! Number of agents that this controller can welcome in a second. The listener measures it while many agents connect:
//! it divides the processor time that the host offers them by the time that the process takes for each. The machine
//! derives the redial window from the number.
//!
//! The number is true for this host and the present load only. A session costs more while tasks end at the same time,
//! and the window is then longer.

use std::sync::{Mutex, PoisonError};
use std::thread;

use perilog_host::clock;

/// Number of sessions of a measurement.
const SESSIONS: u64 = 256;
/// Longest time of a measurement in milliseconds. When sessions come more slowly, other work may have taken most of the
/// processor time, and the measurement does not count.
const LONGEST_MS: u64 = 1_000;
/// Percentage of the host's processor time that connecting agents may take. The rest is for running jobs, and for other
/// programs.
const SHARE_PERCENT: u64 = 75;

#[derive(Debug)]
pub(super) struct Rate {
    processors: u64,
    since: Mutex<Mark>,
}

/// Begin of a measurement.
#[derive(Debug, Clone, Copy)]
struct Mark {
    mono_ms: u64,
    /// Processor time of this process.
    cpu_us: u64,
    /// Number of sessions since the begin.
    sessions: u64,
}

impl Rate {
    pub(super) fn new() -> Self {
        let processors = thread::available_parallelism().map_or(1, |processors| processors.get() as u64);
        Self { processors, since: Mutex::new(Mark::new()) }
    }

    /// Counts a session. Returns the measured number of agents in a second if this session ends a measurement that
    /// counts; otherwise `None`.
    pub(super) fn count(&self) -> Option<u64> {
        let mut since = self.since.lock().unwrap_or_else(PoisonError::into_inner);
        since.sessions += 1;
        if since.sessions < SESSIONS {
            return None;
        }
        let now = Mark::new();
        per_second(std::mem::replace(&mut *since, now), now, self.processors)
    }
}

impl Mark {
    fn new() -> Self {
        Self { mono_ms: clock::mono_ms(), cpu_us: clock::process_cpu_us(), sessions: 0 }
    }
}

/// Returns the number of agents in a second by a measurement; `None` if the measurement took too long to
/// count.
fn per_second(since: Mark, now: Mark, processors: u64) -> Option<u64> {
    let (elapsed_ms, cpu_us) = (now.mono_ms.saturating_sub(since.mono_ms), now.cpu_us.saturating_sub(since.cpu_us));
    let per_second = processors * 1_000_000 * SHARE_PERCENT / 100 * since.sessions / cpu_us.max(1);
    (elapsed_ms <= LONGEST_MS).then_some(per_second)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mark(mono_ms: u64, cpu_us: u64, sessions: u64) -> Mark {
        Mark { mono_ms, cpu_us, sessions }
    }

    #[test]
    fn the_rate_is_of_processor_time_and_only_in_a_rush() {
        let of = |since, now| per_second(since, now, 2);
        assert_eq!(of(mark(10, 7_000, 256), mark(110, 7_000 + 256 * 500, 0)), Some(3_000), "half a millisecond each");
        assert_eq!(of(mark(10, 0, 256), mark(1_010, 256 * 1_000, 0)), Some(1_500));
        assert_eq!(of(mark(10, 0, 256), mark(1_011, 256 * 500, 0)), None, "too slow");
        assert!(of(mark(0, 9, 256), mark(0, 0, 0)).is_some(), "a clock that stood still");
    }

    #[test]
    fn a_measurement_ends_with_its_last_session() {
        let rate = Rate::new();
        let measured = |sessions| (0..sessions).filter_map(|_| rate.count()).count();
        assert_eq!((measured(SESSIONS - 1), measured(1)), (0, 1));
        assert_eq!(measured(SESSIONS), 1);
    }
}
