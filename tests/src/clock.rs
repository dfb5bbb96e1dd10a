//! The only clock of the tests, and the only place where the tests pause: between two checks of a condition.

use std::time::{Duration, Instant};

/// Time since the stopwatch was started.
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

/// Pauses between two checks of a condition without a notification.
#[allow(clippy::disallowed_methods)]
pub(crate) fn pause(length: Duration) {
    std::thread::sleep(length);
}
