//! Log lines about strangers, so many at a time: whoever knocks a thousand times a second must not fill the journal.

use std::collections::HashMap;
use std::fmt::Display;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Mutex, PoisonError};

use perilog_host::clock;

/// Lines in one window. A misconfigured node or two are all seen; a scanner is not.
const LINES: u32 = 30;
const WINDOW_MS: u64 = 30_000;
/// Of one address that is known to be a host of ours, which is told the same again and again: each thing is said once in a window, and so many things.
const LINES_OF_ONE: u32 = 30;
const WINDOW_OF_ONE_MS: u64 = 600_000;
/// Addresses that have lines of their own: the largest cluster, over several networks.
const MOST: usize = 50_000;

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
        let now_ms = clock::mono_ms();
        let (say, unsaid) = self.0.lock().unwrap_or_else(PoisonError::into_inner).admit(now_ms, LINES, WINDOW_MS);
        if unsaid > 0 {
            tracing::warn!("{unsaid} more connections were refused and not logged");
        }
        if say {
            tracing::warn!(%peer, "refused {peer}: {why}");
        }
    }
}

/// The same of those who have shown what only a host of ours has: each address has lines of its own, so that nobody hides another one's.
#[derive(Debug, Default)]
pub(crate) struct ComplaintsOfEach {
    of: Mutex<HashMap<IpAddr, Own>>,
    /// Where there are too many addresses.
    others: Complaints,
}

#[derive(Debug, Default)]
struct Own {
    window: Window,
    /// What was said last: a node that is not right tries for ever, and is told the same.
    last: String,
}

impl ComplaintsOfEach {
    /// Logs that `peer` was refused, unless that was just said, or its address was too often just now.
    pub(crate) fn refused(&self, peer: SocketAddr, why: &str) {
        let address = peer.ip().to_canonical();
        match self.admit(address, why, clock::mono_ms(), MOST) {
            None => self.others.refused(peer, &why),
            Some((say, unsaid)) => {
                if unsaid > 0 {
                    tracing::warn!(%peer, "refused {address} {unsaid} times more, which was not logged");
                }
                if say {
                    tracing::warn!(%peer, "refused {peer}: {why}");
                }
            }
        }
    }

    /// Is this one logged; and how many of the last window were not? None: there is no room for one more address.
    fn admit(&self, address: IpAddr, why: &str, now_ms: u64, most: usize) -> Option<(bool, u64)> {
        let mut of = self.of.lock().unwrap_or_else(PoisonError::into_inner);
        let is_open = |own: &Own| now_ms.saturating_sub(own.window.began_ms) < WINDOW_OF_ONE_MS;
        if of.len() >= most && !of.contains_key(&address) {
            of.retain(|_, own| is_open(own));
            if of.len() >= most {
                return None;
            }
        }
        let new = || Own { window: Window { began_ms: now_ms, ..Window::default() }, last: String::new() };
        let own = of.entry(address).or_insert_with(new);
        if own.last == why && is_open(own) {
            own.window.unsaid += 1;
            return Some((false, 0));
        }
        why.clone_into(&mut own.last);
        Some(own.window.admit(now_ms, LINES_OF_ONE, WINDOW_OF_ONE_MS))
    }
}

impl Window {
    /// Is this one logged; and how many of the last window were not?
    fn admit(&mut self, now_ms: u64, lines: u32, window_ms: u64) -> (bool, u64) {
        let mut unsaid = 0;
        if now_ms.saturating_sub(self.began_ms) >= window_ms {
            unsaid = std::mem::take(&mut self.unsaid);
            (self.began_ms, self.lines) = (now_ms, 0);
        }
        let say = self.lines < lines;
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
        let said = (0..100).filter(|n| window.admit(1_000_000 + n, LINES, WINDOW_MS).0).count();
        assert_eq!(said, LINES as usize);
        assert_eq!(window.admit(1_000_000 + WINDOW_MS, LINES, WINDOW_MS), (true, 70));
        assert_eq!(window.admit(1_000_001 + WINDOW_MS, LINES, WINDOW_MS), (true, 0));
    }

    #[test]
    fn who_is_refused_a_thousand_times_hides_nobody_else() {
        let each = ComplaintsOfEach::default();
        let admit = |last: u8, why: &str, now_ms: u64| each.admit(IpAddr::from([10, 0, 0, last]), why, now_ms, 2);
        let said = |why: &dyn Fn(u64) -> String| {
            (0..1000).filter(|n| admit(1, &why(*n), *n).is_some_and(|(say, _)| say)).count()
        };
        assert_eq!(said(&|_| "the same".to_owned()), 1);
        assert_eq!(said(&|n| format!("as n{n}")), LINES_OF_ONE as usize - 1);
        assert_eq!(admit(2, "the same", 1000), Some((true, 0)));
        assert_eq!(admit(2, "another", 1000), Some((true, 0)), "what is new is said");
        assert_eq!(admit(3, "the same", 1000), None, "there is room for two");
        assert_eq!(admit(1, "as n999", WINDOW_OF_ONE_MS), Some((true, 1970)));
        // Those whose window is over make room.
        assert_eq!(admit(3, "the same", 1000 + WINDOW_OF_ONE_MS), Some((true, 0)));
    }
}
