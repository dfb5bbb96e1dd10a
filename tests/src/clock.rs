//! The only clock of the tests, and the only place where the tests pause, normally between two checks of a condition.

use std::time::{Duration, Instant};

/// Stopwatch: measures the time since its start.
#[derive(Debug, Clone, Copy)]
pub struct Stopwatch(Instant);

impl Stopwatch {
    #[allow(clippy::disallowed_methods)] // an edge: the tests measure the real world
    pub fn start() -> Self {
        Self(Instant::now())
    }

    #[allow(clippy::disallowed_methods)]
    pub fn elapsed(self) -> Duration {
        Instant::now().duration_since(self.0)
    }
}

/// Sleeps for `length`, for example between two checks of a condition whose change no notification announces.
#[allow(clippy::disallowed_methods)]
pub(crate) fn pause(length: Duration) {
    std::thread::sleep(length);
}
