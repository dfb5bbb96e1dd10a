//! Time of the next dial: a random moment in a window (full jitter), so that ten thousand agents do not dial a
//! restarted controller at once.

use std::sync::Mutex;
use std::sync::PoisonError;
use std::time::Duration;

use perilog_core::defect;

/// Shortest length in milliseconds of the redial window: the time within which the agent dials again, at a random
/// moment. The length starts at this value. If a controller names a shorter one, this value counts instead.
const FLOOR_MS: u64 = 1_000;
/// Length in milliseconds up to which the redial window doubles while dials fail. If the controller has named a longer
/// window, its length is the bound instead.
const CEILING_MS: u64 = 30_000;
/// Length in milliseconds of the longest redial window. If a controller names a longer one, this value counts instead.
/// Without this bound, a wrong number could keep a node disconnected for a day.
const MOST_MS: u64 = 600_000;

/// The redial window: the time within which the agent dials a controller again, at a random moment, after a failed dial
/// or the end of a session. The agent's event loop and the dialler share this value: the event loop sets the length
/// that the controller named.
#[derive(Debug)]
pub struct Window(Mutex<Sizes>);

#[derive(Debug)]
struct Sizes {
    /// The window's length in milliseconds that the controller named in its Welcome, brought within [`FLOOR_MS`] and
    /// [`MOST_MS`]; before the first Welcome, [`FLOOR_MS`].
    base: u64,
    now: u64,
    /// Whether a Welcome came since the last dial.
    welcomed: bool,
    /// Whether the next failed dial leaves the length as it is: the first one after a Welcome does. A controller that
    /// restarts is away for less than a window, and a longer window would only put off the agents that dialled first.
    spares: bool,
}

impl Default for Window {
    fn default() -> Self {
        Self(Mutex::new(Sizes { base: FLOOR_MS, now: FLOOR_MS, welcomed: false, spares: false }))
    }
}

impl Window {
    /// Records a Welcome, and sets the window's length to the milliseconds that the controller named in it, within
    /// bounds.
    pub fn set(&self, millis: u64) {
        let base = millis.clamp(FLOOR_MS, MOST_MS);
        *self.lock() = Sizes { base, now: base, welcomed: true, spares: true };
    }

    /// Records that a dial failed, or that the session of that dial ended. Returns `true` if the controller sent a
    /// Welcome after the dial. Otherwise (the controller is away, or turned the agent away) the window grows, unless it
    /// is the first such dial since a Welcome.
    pub(super) fn close(&self) -> bool {
        let mut sizes = self.lock();
        let welcomed = std::mem::take(&mut sizes.welcomed);
        let is_spared = !welcomed && std::mem::take(&mut sizes.spares);
        let is_spared = if defect!(FirstRefusalDoubles) { false } else { is_spared };

        if !welcomed && !is_spared {
            sizes.now = (sizes.now * 2).min(CEILING_MS.max(sizes.base));
        }
        welcomed
    }

    /// Returns the time to wait before the next dial: random, uniform over the window.
    pub(super) fn pause(&self) -> Duration {
        // The random number has 62 bits, a window at most 20, so every moment is equally likely.
        let random = uuid::Uuid::new_v4().as_u64_pair().1 & (u64::MAX >> 2);
        Duration::from_millis(random % self.lock().now)
    }

    /// Creates a window of 20 milliseconds, short enough for tests.
    #[cfg(test)]
    pub(super) fn brief() -> Self {
        Self(Mutex::new(Sizes { base: 20, now: 20, welcomed: false, spares: false }))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Sizes> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression test: agents that dialled while a controller restarted waited for up to two windows, and all were
    /// back only then.
    #[test]
    fn the_first_failed_dial_after_a_welcome_keeps_the_window() {
        perilog_core::switch_on_defect!(perilog_host::defect::chosen());
        let window = Window::default();
        for _restart in 0..2 {
            window.set(4_000);
            let lengths = [(); 4].map(|()| {
                window.close();
                window.lock().now
            });
            assert_eq!(lengths, [4_000, 4_000, 8_000, 16_000], "the session's end, then three failed dials");
        }
    }

    #[test]
    fn a_window_grows_to_its_ceiling_and_pauses_fill_it() {
        let window = Window::default();
        let now = |w: &Window| w.lock().now;
        let mut seen = vec![now(&window)];
        for _ in 0..6 {
            assert!(!window.close());
            seen.push(now(&window));
        }
        assert_eq!(seen, [1000, 2000, 4000, 8000, 16_000, 30_000, 30_000]);
        window.set(120_000);
        assert!(window.close() && !window.close() && !window.close());
        assert_eq!(now(&window), 120_000, "the controller's own is not shortened");
        window.set(u64::MAX);
        assert_eq!(now(&window), MOST_MS);
        window.set(0);
        let pauses: Vec<u64> = (0..1000).map(|_| u64::try_from(window.pause().as_millis()).unwrap()).collect();
        assert!(pauses.iter().all(|p| *p < 1000));
        assert!(pauses.iter().any(|p| *p < 200) && pauses.iter().any(|p| *p >= 800));
    }
}
