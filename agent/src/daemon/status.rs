//! Status line for `systemctl status`: current, but updated at most once a second. Each update wakes PID 1, which is
//! busy when tasks arrive by the hundred. Without changes, no timer runs.

use std::time::Duration;

use perilog_host::{clock, notify};

const PAUSE_MS: u64 = 1_000;

#[derive(Debug, Default)]
pub(super) struct StatusLine {
    shown: String,
    wanted: Option<String>,
    /// Result of the last reload, if an operator must act: keys that need a restart, or a wrong configuration.
    remark: Option<String>,
    /// CLOCK_MONOTONIC (ms) before which the status line is not updated again.
    next_ms: u64,
}

impl StatusLine {
    pub(super) fn remark(&mut self, remark: Option<String>) {
        self.remark = remark;
    }

    /// Returns `line` with the remark about the last reload appended, if there is a remark.
    pub(super) fn whole(&self, line: String) -> String {
        match &self.remark {
            Some(remark) => format!("{line}; {remark}"),
            None => line,
        }
    }

    /// Shows the line in `systemctl status`. Within a second of the last update, only keeps the line for a later call
    /// ([`Self::due`]).
    pub(super) fn show(&mut self, line: String) {
        let line = self.whole(line);
        self.wanted = (line != self.shown).then_some(line);
        if clock::mono_ms() < self.next_ms {
            return;
        }
        if let Some(line) = self.wanted.take() {
            notify::status(&line);
            self.shown = line;
            self.next_ms = clock::mono_ms() + PAUSE_MS;
        }
    }

    /// Returns how long to wait before the next call of `show`; `None` if the line is up to date.
    pub(super) fn due(&self) -> Option<Duration> {
        self.wanted.as_ref().map(|_| clock::until(self.next_ms))
    }
}
