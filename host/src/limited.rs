//! A lookup with a time limit, of something that may never answer: a directory or file on a file system whose server is
//! gone, or the name service. The lookup runs in a thread of its own. A lookup without an answer leaves its thread
//! behind, which ends with the process, or with a late answer.

use std::sync::mpsc::{Receiver, sync_channel};
use std::time::Duration;

use crate::clock;

/// Time that a lookup may take. A server that is only slow answers within it.
pub const LIMIT: Duration = Duration::from_secs(10);

/// Nothing answered within the limit.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what} does not answer within {LIMIT:?}")]
pub struct NoAnswer {
    pub what: String,
}

/// A lookup that has begun. Several lookups that begin together share one limit.
#[derive(Debug)]
pub struct Lookup<T> {
    what: String,
    answer: Receiver<T>,
    until_ms: u64,
}

impl<T: Send + 'static> Lookup<T> {
    /// Begins the lookup of `what`, a noun for operators: `directory /site/prolog.d`.
    pub fn begin(what: impl Into<String>, lookup: impl FnOnce() -> T + Send + 'static) -> Self {
        Self::within(what, LIMIT, lookup)
    }

    fn within(what: impl Into<String>, limit: Duration, lookup: impl FnOnce() -> T + Send + 'static) -> Self {
        let (to, answer) = sync_channel(1);
        std::thread::spawn(move || {
            // After the limit there is no receiver.
            let _ = to.send(lookup());
        });
        let limit_ms = u64::try_from(limit.as_millis()).unwrap_or(u64::MAX);
        Self { what: what.into(), answer, until_ms: clock::mono_ms().saturating_add(limit_ms) }
    }

    /// Waits for the answer.
    ///
    /// # Errors
    /// No answer came within [`LIMIT`] of the begin, or the lookup panicked.
    pub fn answer(self) -> Result<T, NoAnswer> {
        self.answer.recv_timeout(clock::until(self.until_ms)).map_err(|_| NoAnswer { what: self.what })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_answer_is_named() {
        assert_eq!(Lookup::begin("x", || 7).answer(), Ok(7));
        let (_open, never) = sync_channel::<()>(1);
        let lookup = Lookup::within("directory /x", Duration::from_millis(10), move || never.recv());
        assert_eq!(lookup.answer().unwrap_err().to_string(), "directory /x does not answer within 10s");
    }
}
