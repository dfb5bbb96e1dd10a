//! The line that `systemctl status` shows: kept current, but at most once a second. Each change wakes PID 1, which is busy enough when tasks
//! come by the hundred; when nothing changes no timer runs.

use std::time::Duration;

use perilog_host::{clock, notify};

const PAUSE_MS: u64 = 1_000;

#[derive(Debug, Default)]
pub(super) struct StatusLine {
    shown: String,
    wanted: Option<String>,
    /// What the last reload left to be done.
    remark: Option<String>,
    /// CLOCK_MONOTONIC; not before this is another shown.
    next_ms: u64,
}

impl StatusLine {
    pub(super) fn remark(&mut self, remark: Option<String>) {
        self.remark = remark;
    }

    /// A line with the remark behind it.
    pub(super) fn whole(&self, line: String) -> String {
        match &self.remark {
            Some(remark) => format!("{line}; {remark}"),
            None => line,
        }
    }

    /// What is to be shown now, or as soon as it may.
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

    /// When to call `show` again; `None` if what is wanted is shown.
    pub(super) fn due(&self) -> Option<Duration> {
        self.wanted.as_ref().map(|_| clock::until(self.next_ms))
    }
}
