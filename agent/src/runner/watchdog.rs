//! Limits of a try of a script, as a value: the next deadline, and what the runner must do then. All times are
//! CLOCK_MONOTONIC in milliseconds.
//!
//! ```text
//!   running --limit--> overdue (forensics, then TERM once) --drain--> the script goes on without a limit
//!                                                          --kill, after the grace--> KILL, once --> in vain
//! ```

use perilog_core::defect;
use perilog_core::task::OnTimeout;

/// Time between TERM and KILL for a script past its limit, if the policy is to kill the script.
pub(crate) const KILL_GRACE_MS: u64 = 10_000;
/// Time after a KILL in which a script ends that does not hang in the kernel.
const VAIN_MS: u64 = 5_000;
/// Time after a limit within which the end of a script still counts as in time: the runner may see the end a little
/// late on a busy node.
const LATE_MS: u64 = 1_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Limit {
    /// CLOCK_MONOTONIC (ms) at which the limit passes.
    pub(crate) at: u64,
    /// The configured limit in milliseconds, for the step record of the passed limit.
    pub(crate) limit_ms: u64,
}

impl Limit {
    pub(crate) fn new(from: u64, limit_ms: u64) -> Self {
        Self { at: from.saturating_add(limit_ms), limit_ms }
    }
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Due {
    /// The limit has passed: record that; if `term`, send TERM to the script.
    Overdue {
        limit: Limit,
        term: bool,
    },
    Kill,
    /// The script has not ended since it was sent KILL: record that. `limit_ms`: the limit that it had passed.
    InVain {
        limit_ms: u64,
    },
}

#[derive(Debug)]
pub(crate) struct Watchdog {
    /// The script's time limits and the task's that have not passed yet. The limit that passes next is the last
    /// element.
    limits: Vec<Limit>,
    policy: OnTimeout,
    /// Whether the script has received TERM, for a limit or a cancel. The script may be cleaning up, and a second TERM
    /// would end the cleanup.
    termed: bool,
    kill_at: Option<u64>,
    /// The time at which a script that was sent KILL should have ended.
    vain_at: Option<u64>,
    /// The last limit (ms) that the script passed, its own or that of the task; `None`: it has passed none.
    overdue: Option<u64>,
}

impl Watchdog {
    pub(crate) fn new(script: Option<Limit>, task: Option<Limit>, policy: OnTimeout) -> Self {
        let mut limits: Vec<Limit> = script.into_iter().chain(task).collect();
        limits.sort_by_key(|limit| std::cmp::Reverse(limit.at));
        Self { limits, policy, termed: false, kill_at: None, vain_at: None, overdue: None }
    }

    /// Records that the runner sent the script TERM for a cancel, so that a limit sends no second TERM.
    pub(crate) fn termed(&mut self) {
        self.termed = true;
    }

    /// Returns `true` if the script ran past its own limit or that of the task.
    pub(crate) fn overdue(&self) -> bool {
        self.overdue.is_some()
    }

    /// Records that the script was sent KILL at `now` (CLOCK_MONOTONIC, ms). The kernel ends the script at once, unless
    /// it hangs in the kernel.
    pub(crate) fn killed(&mut self, now: u64) {
        self.vain_at = Some(now.saturating_add(VAIN_MS));
    }

    /// Returns the limit (ms) that a script passed which ended at `ended`, if it ended more than [`LATE_MS`] past it.
    pub(crate) fn passed_by(&self, ended: u64) -> Option<u64> {
        if defect!(FrozenIsInTime) {
            return None;
        }
        let late = |limit: &&Limit| ended > limit.at.saturating_add(LATE_MS);
        self.limits.iter().rev().find(late).map(|limit| limit.limit_ms)
    }

    /// Returns CLOCK_MONOTONIC (ms) at which to call [`Self::due`] next; `None`: no limit is left, and
    /// nothing is to follow.
    pub(crate) fn next(&self) -> Option<u64> {
        let limit = self.limits.last().map(|limit| limit.at);
        limit.into_iter().chain(self.kill_at).chain(self.vain_at).min()
    }

    /// Returns the next thing that the runner must do at `now` (CLOCK_MONOTONIC, ms); `None`: nothing is due. The
    /// caller repeats the call until it returns `None`.
    pub(crate) fn due(&mut self, now: u64) -> Option<Due> {
        if self.limits.last().is_some_and(|limit| limit.at <= now) {
            let limit = self.limits.pop()?;
            if self.policy == OnTimeout::Kill && self.overdue.is_none() {
                self.kill_at = Some(now.saturating_add(KILL_GRACE_MS));
            }
            self.overdue = Some(limit.limit_ms);
            let term = !std::mem::replace(&mut self.termed, true);
            return Some(Due::Overdue { limit, term });
        }
        if self.kill_at.take_if(|at| *at <= now).is_some() {
            self.killed(now);
            return Some(Due::Kill);
        }
        self.vain_at.take_if(|at| *at <= now).and(self.overdue).map(|limit_ms| Due::InVain { limit_ms })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limit(at: u64) -> Limit {
        Limit { at, limit_ms: at }
    }

    fn overdue(at: u64, term: bool) -> Option<Due> {
        Some(Due::Overdue { limit: limit(at), term })
    }

    #[test]
    fn drain_says_term_once_and_then_lets_it_be() {
        let mut dog = Watchdog::new(Some(limit(10)), Some(limit(30)), OnTimeout::Drain);
        assert_eq!((dog.next(), dog.due(9), dog.overdue()), (Some(10), None, false));
        assert_eq!((dog.due(10), dog.due(10), dog.overdue()), (overdue(10, true), None, true));
        assert_eq!((dog.next(), dog.due(29)), (Some(30), None));
        assert_eq!((dog.due(31), dog.due(u64::MAX)), (overdue(30, false), None));
        assert_eq!(dog.next(), None);
    }

    #[test]
    fn kill_comes_once_after_the_grace() {
        let mut dog = Watchdog::new(None, Some(limit(30)), OnTimeout::Kill);
        assert_eq!(dog.due(31), overdue(30, true));
        assert_eq!(dog.next(), Some(31 + KILL_GRACE_MS));
        assert_eq!(dog.due(30 + KILL_GRACE_MS), None);
        let killed = 31 + KILL_GRACE_MS;
        assert_eq!((dog.due(killed), dog.due(killed)), (Some(Due::Kill), None));
        assert_eq!((dog.next(), dog.due(killed + VAIN_MS - 1)), (Some(killed + VAIN_MS), None));
        let in_vain = Some(Due::InVain { limit_ms: 30 });
        assert_eq!((dog.due(killed + VAIN_MS), dog.due(u64::MAX), dog.next()), (in_vain, None, None));
    }

    /// An operator may send KILL before a limit has passed: then there is no limit to name.
    #[test]
    fn an_operators_kill_is_in_vain_past_a_limit_only() {
        let mut dog = Watchdog::new(None, Some(limit(30)), OnTimeout::Drain);
        dog.killed(1);
        assert_eq!((dog.next(), dog.due(29)), (Some(30), None));
        dog.killed(20);
        assert_eq!(
            (dog.due(20 + VAIN_MS), dog.due(20 + VAIN_MS)),
            (overdue(30, true), Some(Due::InVain { limit_ms: 30 }))
        );
    }

    #[test]
    fn both_limits_at_once_are_both_recorded_with_one_term() {
        let mut dog = Watchdog::new(Some(limit(30)), Some(limit(10)), OnTimeout::Kill);
        assert_eq!((dog.due(50), dog.due(50)), (overdue(10, true), overdue(30, false)));
        assert_eq!(dog.next(), Some(50 + KILL_GRACE_MS));
    }

    #[test]
    fn a_cancelled_script_is_not_signalled_twice() {
        let mut dog = Watchdog::new(Some(limit(10)), None, OnTimeout::Drain);
        dog.termed();
        assert_eq!(dog.due(10), overdue(10, false));
    }

    #[test]
    fn an_end_that_is_seen_long_past_a_limit_is_past_it() {
        perilog_core::switch_on_defect!(perilog_host::defect::chosen());
        let dog = Watchdog::new(Some(limit(10)), Some(limit(30)), OnTimeout::Drain);
        assert_eq!(
            (dog.passed_by(10), dog.passed_by(10 + LATE_MS), dog.passed_by(11 + LATE_MS)),
            (None, None, Some(10))
        );
        assert_eq!(Watchdog::new(None, None, OnTimeout::Drain).passed_by(u64::MAX), None);
    }

    #[test]
    fn without_limits_there_is_nothing_to_wait_for() {
        let mut dog = Watchdog::new(None, None, OnTimeout::Kill);
        assert_eq!((dog.next(), dog.due(u64::MAX)), (None, None));
    }
}
