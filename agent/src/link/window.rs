//! Time of the next dial: a random moment in a window (full jitter), so that ten thousand agents do not dial a
//! restarted controller at once.

use std::sync::Mutex;
use std::sync::PoisonError;
use std::time::Duration;

use perilog_core::defect;
use perilog_host::clock;

/// Shortest length in milliseconds of the redial window: the time within which the agent dials again, at a random
/// moment. The length starts at this value. If a controller names a shorter one, this value counts instead.
const FLOOR_MS: u64 = 1_000;
/// Length in milliseconds up to which the redial window doubles while dials fail. If the controller has named a longer
/// window, its length is the bound instead.
const CEILING_MS: u64 = 30_000;
/// Time in milliseconds after the end of a session for which failed dials leave the window as it is: a restart of the
/// controller, or its move to another host, takes less. A window that grew would only put off the agents that dialled
/// first.
const TAKEOVER_MS: u64 = 60_000;
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
    /// Time (CLOCK_MONOTONIC, ms) of the end of the last session with a Welcome; `None`: there was none, or it has not
    /// ended.
    ended_ms: Option<u64>,
}

impl Default for Window {
    fn default() -> Self {
        Self(Mutex::new(Sizes { base: FLOOR_MS, now: FLOOR_MS, welcomed: false, ended_ms: None }))
    }
}

impl Window {
    /// Records a Welcome, and sets the window's length to the milliseconds that the controller named in it, within
    /// bounds.
    pub fn set(&self, millis: u64) {
        let base = millis.clamp(FLOOR_MS, MOST_MS);
        *self.lock() = Sizes { base, now: base, welcomed: true, ended_ms: None };
    }

    /// Returns `true` if a controller sent a Welcome since the last [`Self::close`].
    pub(super) fn is_welcomed(&self) -> bool {
        self.lock().welcomed
    }

    /// Records that all controllers were dialled, and the session, if there was one, has ended. Without a Welcome (the
    /// controllers are away, or turned the agent away) the window grows, unless a session ended within [`TAKEOVER_MS`].
    pub fn close(&self) {
        self.close_at(clock::mono_ms());
    }

    fn close_at(&self, mono_ms: u64) {
        let mut sizes = self.lock();
        if std::mem::take(&mut sizes.welcomed) {
            sizes.ended_ms = Some(mono_ms);
            return;
        }
        let is_brief = sizes.ended_ms.is_some_and(|ended_ms| mono_ms < ended_ms.saturating_add(TAKEOVER_MS));
        let is_brief = if defect!(FirstRefusalDoubles) { false } else { is_brief };
        if !is_brief {
            sizes.now = (sizes.now * 2).min(CEILING_MS.max(sizes.base));
        }
    }

    /// Returns the time to wait before the next dial: random, uniform over the window.
    pub fn pause(&self) -> Duration {
        // The random number has 62 bits, a window at most 20, so every moment is equally likely.
        let random = uuid::Uuid::new_v4().as_u64_pair().1 & (u64::MAX >> 2);
        Duration::from_millis(random % self.lock().now)
    }

    /// Creates a window of 20 milliseconds, short enough for tests.
    #[cfg(test)]
    pub(super) fn brief() -> Self {
        Self(Mutex::new(Sizes { base: 20, now: 20, welcomed: false, ended_ms: None }))
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
    fn dials_that_fail_during_a_restart_or_a_takeover_keep_the_window() {
        perilog_core::switch_on_defect!(perilog_host::defect::chosen());
        let window = Window::default();
        for restart in 0..2 {
            window.set(4_000);
            let lengths = [0, 4, 30, 59, 60, 64].map(|seconds| {
                window.close_at((3_600 * restart + seconds) * 1_000);
                window.lock().now
            });
            assert_eq!(lengths, [4_000, 4_000, 4_000, 4_000, 8_000, 16_000], "the session's end, then failed dials");
        }
    }

    #[test]
    fn a_window_grows_to_its_ceiling_and_pauses_fill_it() {
        let window = Window::default();
        let now = |w: &Window| w.lock().now;
        let mut seen = vec![now(&window)];
        for _ in 0..6 {
            assert!(!window.is_welcomed());
            window.close();
            seen.push(now(&window));
        }
        assert_eq!(seen, [1000, 2000, 4000, 8000, 16_000, 30_000, 30_000]);
        window.set(120_000);
        assert!(window.is_welcomed());
        window.close_at(0);
        assert!(!window.is_welcomed());
        window.close_at(TAKEOVER_MS);
        assert_eq!(now(&window), 120_000, "the controller's own is not shortened");
        window.set(u64::MAX);
        assert_eq!(now(&window), MOST_MS);
        window.set(0);
        let pauses: Vec<u64> = (0..1000).map(|_| u64::try_from(window.pause().as_millis()).unwrap()).collect();
        assert!(pauses.iter().all(|p| *p < 1000));
        assert!(pauses.iter().any(|p| *p < 200) && pauses.iter().any(|p| *p >= 800));
    }
}
