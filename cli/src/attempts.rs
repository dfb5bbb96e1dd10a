//! Which attempt of a job is meant where none is named: the newest that was asked for. One of which only a node has told is nobody's until it is asked
//! for, whatever its number (an orphan, docs/decisions/0014).
//!
//! The controller says in the job's log of each attempt that it was asked for, once (`attempt`). Where it says so of none, because its store was lost, what
//! nodes told is all there is: the newest.

use std::collections::BTreeSet;

use perilog_core::Attempt;

use crate::log::Entry;

/// Those that were asked for, as far as the log was read.
#[derive(Debug, Clone, Default)]
pub(crate) struct Asked(BTreeSet<Attempt>);

impl Asked {
    pub(crate) fn note(&mut self, entry: &Entry) {
        if entry.name == "attempt" {
            self.0.extend(entry.attempt());
        }
    }

    /// The one that is meant of these. `None`: there are none.
    pub(crate) fn meant(&self, of: impl Iterator<Item = Attempt>) -> Option<Attempt> {
        of.max_by_key(|number| (self.0.contains(number), *number))
    }
}

#[cfg(test)]
mod tests {
    use perilog_core::Attempt;

    use super::*;

    #[test]
    fn who_only_nodes_tell_of_is_not_meant_beside_one_that_was_asked_for() {
        let number = Attempt::from_number;
        for (asked, of, expect) in [
            (&[][..], &[][..], None),
            (&[0], &[0], Some(0)),
            (&[0, 1], &[0, 1], Some(1)),
            (&[0], &[0, 7], Some(0)),
            (&[0, 8], &[0, 7, 8], Some(8)),
            // A store that was lost.
            (&[], &[3, 7], Some(7)),
            // What is looked for is not of that one.
            (&[0, 1], &[0, 7], Some(0)),
        ] {
            let asked = Asked(asked.iter().copied().map(number).collect());
            assert_eq!(asked.meant(of.iter().copied().map(number)), expect.map(number), "{asked:?} {of:?}");
        }
    }
}
