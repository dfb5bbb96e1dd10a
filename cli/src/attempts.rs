//! Choice of a job's attempt if the operator names none: the newest requested attempt. An attempt that only a node
//! reports is an orphan until a request names it, whatever its number (docs/decisions/0014).
//!
//! The controller logs the event `attempt` once for each requested attempt. After a loss of the store no such event
//! exists, and the choice is the newest reported attempt.

use std::collections::BTreeSet;

use perilog_core::Attempt;

use crate::log::Entry;

/// The attempts of a job that were requested, and not only reported by a node: those for which the job's event log, as
/// far as it was read, has an event `attempt`.
#[derive(Debug, Clone, Default)]
pub(crate) struct RequestedAttempts(BTreeSet<Attempt>);

impl RequestedAttempts {
    pub(crate) fn note(&mut self, entry: &Entry) {
        if entry.name == "attempt" {
            self.0.extend(entry.attempt());
        }
    }

    /// Returns the newest requested attempt among `of`; if none of them was requested, the newest of all. `None`: `of`
    /// is empty.
    pub(crate) fn meant(&self, of: impl Iterator<Item = Attempt>) -> Option<Attempt> {
        of.max_by_key(|number| (self.0.contains(number), *number))
    }
}

#[cfg(test)]
mod tests {
    use perilog_core::Attempt;

    use super::*;

    #[test]
    fn a_requested_attempt_is_meant_before_an_orphan() {
        let number = Attempt::from_number;
        for (asked, of, expect) in [
            (&[][..], &[][..], None),
            (&[0], &[0], Some(0)),
            (&[0, 1], &[0, 1], Some(1)),
            (&[0], &[0, 7], Some(0)),
            (&[0, 8], &[0, 7, 8], Some(8)),
            // The controller's store was lost.
            (&[], &[3, 7], Some(7)),
            // The requested task does not belong to that attempt.
            (&[0, 1], &[0, 7], Some(0)),
        ] {
            let asked = RequestedAttempts(asked.iter().copied().map(number).collect());
            assert_eq!(asked.meant(of.iter().copied().map(number)), expect.map(number), "{asked:?} {of:?}");
        }
    }
}
