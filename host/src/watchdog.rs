//! The service manager's watchdog (`WatchdogSec=`, systemd.service(5)): systemd ends a daemon that does not report in
//! time that it is alive, and starts it again.
//!
//! A daemon's loop reports after its work, so a loop that hangs in a call is found as well as a process that was
//! stopped. A thread of its own sends the report: if the service manager hangs, the loop does not wait for it.

use std::time::Duration;

use libsystemd::daemon::watchdog_enabled;
use tokio::task::JoinHandle;

use crate::notify;

/// Number of reports within the time that the service manager allows: one that comes late is not yet fatal.
const REPORTS: u32 = 3;

/// The time of the next report.
#[derive(Debug)]
pub struct Watchdog {
    every_ms: u64,
    next_ms: u64,
    sending: Option<JoinHandle<()>>,
}

impl Watchdog {
    /// Returns the watchdog that the service manager demands of this process; `None`: it demands none.
    pub fn of_environment() -> Option<Self> {
        watchdog_enabled(false).map(Self::within)
    }

    fn within(limit: Duration) -> Self {
        let every_ms = u64::try_from((limit / REPORTS).as_millis()).unwrap_or(u64::MAX).max(1);
        Self { every_ms, next_ms: 0, sending: None }
    }

    /// Returns the time of the next report (CLOCK_MONOTONIC, ms): the loop has to wake then.
    pub const fn next_ms(&self) -> u64 {
        self.next_ms
    }

    /// Reports that the loop is alive, if a report is due at `mono_ms` (CLOCK_MONOTONIC).
    pub fn alive(&mut self, mono_ms: u64) {
        if self.is_due(mono_ms) && self.sending.as_ref().is_none_or(JoinHandle::is_finished) {
            self.sending = Some(tokio::task::spawn_blocking(notify::alive));
        }
    }

    /// Returns `true` if a report is due; the next one is then due one interval later.
    const fn is_due(&mut self, mono_ms: u64) -> bool {
        let is_due = mono_ms >= self.next_ms;
        if is_due {
            self.next_ms = mono_ms.saturating_add(self.every_ms);
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_reports_fit_the_time_that_is_allowed() {
        let mut watchdog = Watchdog::within(Duration::from_secs(60));
        let due = [5_000, 5_001, 24_999, 25_000, 25_001, 90_000, 109_999].map(|at| watchdog.is_due(at));
        assert_eq!(due, [true, false, false, true, false, true, false]);
        assert_eq!(watchdog.next_ms(), 110_000);
    }
}
