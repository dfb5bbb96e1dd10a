//! Attempt numbers for resource managers without attempts: the host counts, by the job's tasks that it remembers.
//!
//! At a requeue Slurm gives the epilog the restart count of the next attempt, and Flux gives its housekeeping no number
//! at all. Such a caller instead names the effect of its action on an attempt: a prolog *begins* the attempt, an epilog
//! or housekeeping *ends* it.
//!
//! ```text
//!   the host remembers of the newest attempt    a prolog gets               an epilog gets
//!   nothing                                     the first attempt           the first attempt
//!   only the prolog                             the same: attach            the same: its epilog
//!   only the epilog, alive                      the next                    the same: attach
//!   only the epilog, ended                      the next                    the next: its prolog ran elsewhere
//!   both                                        the next: a requeue         the same: attach
//! ```
//! To *attach* is to wait for a task that exists, or to get its outcome, without running scripts. So a repeated call
//! normally attaches, and the scripts of a requeued job run again. A job may have only one action that begins an
//! attempt without a number: a second one, such as a `check` beside the prolog, gets the next attempt, as after a
//! requeue.
//!
//! A caller may also number the attempt that its action begins, as Slurm does for a prolog. The host takes that number,
//! unless an epilog of that attempt or of a later one was called here. In that case the host takes the number after the
//! last such attempt. This happens if slurmctld lost its newest state: it begins a job again with the old number. The
//! epilog has undone the work of the first prolog, so the scripts must run again.

use perilog_core::ids::{ActionName, Attempt};
use serde::Deserialize;

/// The effect of an action on an attempt: a prolog begins the attempt, an epilog ends the attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Turn {
    Begins,
    Ends,
}

/// A task of the job and rank that a call of `Exec` names. A call of `Exec`, not the controller, began the task on this
/// host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocalTask {
    pub action: ActionName,
    pub attempt: Attempt,
    /// Whether the task has ended and only its tombstone is left.
    pub over: bool,
}

pub(super) fn attempt(known: &[LocalTask], action: &ActionName, turn: Turn) -> Attempt {
    let Some(newest) = known.iter().map(|known| known.attempt).max() else { return Attempt::FIRST };
    let of_newest = || known.iter().filter(|known| known.attempt == newest);
    let others = of_newest().any(|known| known.action != *action);
    let over = of_newest().any(|known| known.action == *action && known.over);
    match turn {
        Turn::Begins if others => newest.next(),
        Turn::Ends if over && !others => newest.next(),
        Turn::Begins | Turn::Ends => newest,
    }
}

/// Name of the action that ends an attempt: once it was called on this host, [`begun`] counts the attempt as over. The
/// action that begins an attempt may have any name. Housekeeping does not count: only Slurm numbers the attempts that
/// it begins, and Slurm has no housekeeping.
const EPILOG: &str = "epilog";

/// Returns the attempt of a call that numbers the attempt it begins: `number`, or the attempt after the last one whose
/// epilog was called here, whichever is higher.
pub(super) fn begun(known: &[LocalTask], number: Attempt) -> Attempt {
    let ended = known.iter().filter(|known| known.action.as_str() == EPILOG).map(|known| known.attempt).max();
    ended.map_or(number, |ended| number.max(ended.next()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> ActionName {
        ActionName::new(text).unwrap()
    }

    fn known(action: &str, attempt: u64, over: bool) -> LocalTask {
        LocalTask { action: name(action), attempt: Attempt::from_number(attempt), over }
    }

    #[test]
    fn a_repeated_call_attaches_and_a_requeue_is_another_attempt() {
        let (live, over) = (false, true);
        #[rustfmt::skip]
        let table = [
            // known tasks of the job, a prolog's attempt, an epilog's attempt
            (vec![], 0, 0),
            (vec![known("prolog", 0, live)], 0, 0),
            (vec![known("prolog", 0, over)], 0, 0),
            (vec![known("epilog", 0, live)], 1, 0),
            (vec![known("epilog", 0, over)], 1, 1),
            (vec![known("prolog", 0, over), known("epilog", 0, live)], 1, 0),
            (vec![known("prolog", 0, over), known("epilog", 0, over)], 1, 0),
            (vec![known("prolog", 0, over), known("epilog", 0, over), known("prolog", 1, live)], 1, 1),
            (vec![known("prolog", 1, over), known("epilog", 0, over), known("prolog", 0, over)], 1, 1),
            (vec![known("prolog", 3, over), known("epilog", 3, over)], 4, 3),
        ];
        for (known, prolog, epilog) in table {
            assert_eq!(attempt(&known, &name("prolog"), Turn::Begins), Attempt::from_number(prolog), "{known:?}");
            assert_eq!(attempt(&known, &name("epilog"), Turn::Ends), Attempt::from_number(epilog), "{known:?}");
        }
    }

    /// Regression test: slurmctld lost the begin of a job, called its epilog and began the job again. No script ran for
    /// the second begin.
    #[test]
    fn a_number_whose_epilog_was_called_begins_another_attempt() {
        let (live, over) = (false, true);
        #[rustfmt::skip]
        let table = [
            // known tasks of the job, the number of the call, the attempt
            (vec![], 2, 2),
            (vec![known("prolog", 0, live)], 0, 0),
            (vec![known("prolog", 0, over)], 0, 0),
            (vec![known("prolog", 0, over)], 1, 1),
            (vec![known("prolog", 0, over), known("epilog", 0, live)], 0, 1),
            (vec![known("prolog", 0, over), known("epilog", 0, over)], 0, 1),
            (vec![known("prolog", 0, over), known("epilog", 0, over)], 3, 3),
            (vec![known("epilog", 0, over)], 0, 1),
            (vec![known("prolog", 0, over), known("epilog", 0, over), known("prolog", 1, over),
                  known("epilog", 1, over)], 1, 2),
            // Slurm's second begin of attempt 0: a repeated call attaches, and so does a hook of another action.
            (vec![known("prolog", 0, over), known("epilog", 0, over), known("prolog", 1, live)], 0, 1),
            (vec![known("check", 0, over), known("prolog", 0, live)], 0, 0),
            // The host refuses an attempt that is older than a prolog without an epilog.
            (vec![known("prolog", 1, over)], 0, 0),
        ];
        for (known, number, expect) in table {
            assert_eq!(begun(&known, Attempt::from_number(number)), Attempt::from_number(expect), "{known:?}");
        }
    }
}
