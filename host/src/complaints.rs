//! Rate limits for journal lines about peers. A peer that connects a thousand times a second must neither fill the
//! journal nor hide lines about other peers.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Mutex, PoisonError};

use crate::clock;

/// Maximum number of journal lines about all peers that share one limit, such as all strangers, in a window of
/// [`WINDOW_MS`]. That shows a few misconfigured nodes completely, but limits the lines about a scanner.
pub const LINES: u32 = 30;
pub const WINDOW_MS: u64 = 30_000;
/// Maximum number of journal lines about one key, such as an address, in a window of [`WINDOW_OF_ONE_MS`].
pub const LINES_OF_ONE: u32 = 30;
pub const WINDOW_OF_ONE_MS: u64 = 600_000;

/// A time window that limits journal lines: its begin, the number of logged lines, and the number of omitted lines.
#[derive(Debug, Default)]
pub struct Window {
    began_ms: u64,
    lines: u32,
    suppressed: u64,
}

impl Window {
    pub fn beginning_at(began_ms: u64) -> Self {
        Self { began_ms, ..Self::default() }
    }

    /// Returns `true` if the window of `window_ms` milliseconds is still open at `now_ms`.
    pub fn is_open(&self, now_ms: u64, window_ms: u64) -> bool {
        now_ms.saturating_sub(self.began_ms) < window_ms
    }

    /// Counts a line that the caller omits because it is the same as the line before.
    pub fn repeat(&mut self) {
        self.suppressed += 1;
    }

    /// Counts a line at `now_ms`; a window of `window_ms` milliseconds admits `lines` lines. Returns `true` if the
    /// caller should log this line. If this line opens a new window, also returns how many lines the window before
    /// omitted; otherwise 0.
    pub fn admit(&mut self, now_ms: u64, lines: u32, window_ms: u64) -> (bool, u64) {
        let mut suppressed = 0;
        if !self.is_open(now_ms, window_ms) {
            suppressed = std::mem::take(&mut self.suppressed);
            (self.began_ms, self.lines) = (now_ms, 0);
        }
        let is_logged = self.lines < lines;
        if is_logged {
            self.lines += 1;
        } else {
            self.suppressed += 1;
        }
        (is_logged, suppressed)
    }
}

/// Limit of journal lines with a separate [`Window`] for each key, such as an address or a uid: many lines about one
/// key do not suppress lines about another.
#[derive(Debug)]
pub struct Each<K> {
    of: Mutex<HashMap<K, Own>>,
    most: usize,
}

#[derive(Debug, Default)]
struct Own {
    window: Window,
    /// The last line about the key. A repetition is only counted, because a misconfigured peer tries for ever and
    /// causes the same line each time.
    last: String,
}

impl<K: Eq + Hash> Each<K> {
    /// Creates windows for at most `most` keys at a time.
    pub fn new(most: usize) -> Self {
        Self { of: Mutex::default(), most }
    }

    /// Counts `line`, a journal line about `key`. Returns `true` if the caller should log it now: not if the key's
    /// window is full, or if `line` repeats the key's last line in the open window. If it opens a new window of the
    /// key, also returns how many lines the key's last window omitted; otherwise 0. `None`: the maximum number of other
    /// keys have open windows.
    pub fn admit(&self, key: K, line: &str) -> Option<(bool, u64)> {
        self.admit_at(key, line, clock::mono_ms())
    }

    fn admit_at(&self, key: K, line: &str, now_ms: u64) -> Option<(bool, u64)> {
        let mut of = self.of.lock().unwrap_or_else(PoisonError::into_inner);
        let is_open = |own: &Own| own.window.is_open(now_ms, WINDOW_OF_ONE_MS);
        if of.len() >= self.most && !of.contains_key(&key) {
            of.retain(|_, own| is_open(own));
            if of.len() >= self.most {
                return None;
            }
        }
        let own = of.entry(key).or_insert_with(|| Own { window: Window::beginning_at(now_ms), last: String::new() });
        if own.last == line && is_open(own) {
            own.window.repeat();
            return Some((false, 0));
        }
        line.clone_into(&mut own.last);
        Some(own.window.admit(now_ms, LINES_OF_ONE, WINDOW_OF_ONE_MS))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_lines_a_window_and_then_their_number() {
        let mut window = Window::beginning_at(1_000_000);
        let logged = (0..100).filter(|n| window.admit(1_000_000 + n, LINES, WINDOW_MS).0).count();
        assert_eq!(logged, LINES as usize);
        assert_eq!(window.admit(1_000_000 + WINDOW_MS, LINES, WINDOW_MS), (true, 70));
        assert_eq!(window.admit(1_000_001 + WINDOW_MS, LINES, WINDOW_MS), (true, 0));
    }

    #[test]
    fn who_is_refused_a_thousand_times_hides_nobody_else() {
        let each = Each::new(2);
        let admit = |key: u8, line: &str, now_ms: u64| each.admit_at(key, line, now_ms);
        let logged = |line: &dyn Fn(u64) -> String| {
            (0..1000).filter(|n| admit(1, &line(*n), *n).is_some_and(|(is_logged, _)| is_logged)).count()
        };
        assert_eq!(logged(&|_| "the same".to_owned()), 1);
        assert_eq!(logged(&|n| format!("as n{n}")), LINES_OF_ONE as usize - 1);
        assert_eq!(admit(2, "the same", 1000), Some((true, 0)));
        assert_eq!(admit(2, "another", 1000), Some((true, 0)), "what is new is said");
        assert_eq!(admit(3, "the same", 1000), None, "there is room for two");
        assert_eq!(admit(1, "as n999", WINDOW_OF_ONE_MS), Some((true, 1970)));
        // Keys whose window has ended make room.
        assert_eq!(admit(3, "the same", 1000 + WINDOW_OF_ONE_MS), Some((true, 0)));
    }
}
