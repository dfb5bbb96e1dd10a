//! Log lines about strangers, so many at a time: whoever knocks a thousand times a second must not fill the journal.

use std::fmt::Display;
use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};

use perilog_host::clock;

/// Lines in one window. A misconfigured node or two are all seen; a scanner is not.
const LINES: u32 = 30;
const WINDOW_MS: u64 = 30_000;

#[derive(Debug, Default)]
pub(crate) struct Complaints(Mutex<Window>);

#[derive(Debug, Default)]
struct Window {
    began_ms: u64,
    lines: u32,
    unsaid: u64,
}

impl Complaints {
    /// Logs that `peer` was refused, unless too many were just now.
    pub(crate) fn refused(&self, peer: SocketAddr, why: &dyn Display) {
        let (say, unsaid) = self.0.lock().unwrap_or_else(PoisonError::into_inner).admit(clock::mono_ms());
        if unsaid > 0 {
            tracing::warn!("{unsaid} more connections were refused and not logged");
        }
        if say {
            tracing::warn!(%peer, "refused {peer}: {why}");
        }
    }
}

impl Window {
    /// Is this one logged; and how many of the last window were not?
    fn admit(&mut self, now_ms: u64) -> (bool, u64) {
        let mut unsaid = 0;
        if now_ms.saturating_sub(self.began_ms) >= WINDOW_MS {
            unsaid = std::mem::take(&mut self.unsaid);
            (self.began_ms, self.lines) = (now_ms, 0);
        }
        let say = self.lines < LINES;
        if say {
            self.lines += 1;
        } else {
            self.unsaid += 1;
        }
        (say, unsaid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_lines_a_window_and_then_their_number() {
        let mut window = Window { began_ms: 1_000_000, ..Window::default() };
        let said = (0..100).filter(|n| window.admit(1_000_000 + n).0).count();
        assert_eq!(said, LINES as usize);
        assert_eq!(window.admit(1_000_000 + WINDOW_MS), (true, 70));
        assert_eq!(window.admit(1_000_001 + WINDOW_MS), (true, 0));
    }
}
