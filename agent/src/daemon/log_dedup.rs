//! Log messages about the node as a whole that the agent has logged since the last Welcome, so that it logs each
//! message once. For example, a controller that turns the agent away repeats its reason at every dial.

use std::collections::BTreeSet;

/// Maximum number of remembered log messages. The agent has few different messages, but a message that contains a
/// number could be new each time. Past the bound, the agent forgets all messages and may log one again.
const MOST: usize = 16;

#[derive(Debug, Default)]
pub(super) struct LogDedup(BTreeSet<String>);

impl LogDedup {
    pub(super) fn is_news(&mut self, text: &str) -> bool {
        if self.0.len() >= MOST {
            self.0.clear();
        }
        self.0.insert(text.to_owned())
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thing_is_news_once_until_things_change() {
        let mut log_dedup = LogDedup::default();
        assert!(
            log_dedup.is_news("turned away") && log_dedup.is_news("not accepted") && !log_dedup.is_news("turned away")
        );
        log_dedup.clear();
        assert!(log_dedup.is_news("turned away"));
        for n in 0..100 {
            assert!(log_dedup.is_news(&n.to_string()));
        }
        assert!(log_dedup.0.len() <= MOST);
    }
}
