//! Turns of notices: which notice is next, and when to repeat a failed notice, by job or by host. No two running
//! commands are about the same job or host, and a failing notice delays only itself. The controller repeats a failed
//! group of hosts in halves, until the refused host is alone.
//!
//! If the resource manager is away, every command fails, and in the end each host has a command of its own, although no
//! host is at fault. The first success shows that the resource manager is back. All hosts that failed alone then go out
//! together, at once.
//!
//! But a host is at fault if it failed before, and fails alone after another host's success. Successes of hosts that
//! were never at fault leave the delay of such a host as it is. When one host at fault succeeds after all, the others
//! may not be at fault either: they go out together once more.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use perilog_core::{HostName, JobId};
use tokio::time::Instant;

pub(super) const FIRST_BACKOFF: Duration = Duration::from_secs(1);
pub(super) const LAST_BACKOFF: Duration = Duration::from_secs(60);

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Key {
    Job(JobId),
    Host(HostName),
}

/// The permission to run a notice's command now. Turns are ordered by precedence: repeated notices come before new
/// ones, and the repeated notice that became due first comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Turn {
    /// The notice failed before. Its next try became due at this time, together with the other notices of this group.
    Again(Instant, Group),
    Fresh,
}

/// Number of a group of failed notices; the controller repeats the notices of a group together, in one command if they
/// are alike.
pub(super) type Group = u64;

#[derive(Debug, Clone, Copy)]
enum NextTry {
    Running,
    /// The notice failed. Its next try is due at this time, together with the other notices of this group.
    Again(Instant, Group),
}

#[derive(Debug, Clone, Copy)]
struct Tried {
    next: NextTry,
    /// `true`: the notice lifts a drain; `false`: it makes a drain or is a release. If the opposite notice about the
    /// same host comes next, it begins without this notice's delay.
    lifts: bool,
    /// Delay before the next try, if a command about this notice alone fails next.
    backoff: Duration,
    /// The value of [`Schedule::successes`] when this notice last failed alone; if it never did, when it first failed.
    /// `None`: the notice has not failed. If `successes` is higher now, another command has succeeded since.
    at: Option<u64>,
    failed: Failed,
}

/// Kind of the last failure of a notice, which decides when the controller repeats the notice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Failed {
    /// The last failed command was about several notices, so this one may not be at fault. Also the value before the
    /// first failure.
    Together,
    /// The last failed command was about this notice alone, and no command has succeeded since the failure before: the
    /// resource manager may be away.
    Alone,
    /// The last failed command was about this notice alone, although another command had succeeded since the failure
    /// before. The state lasts until a command about this host, or about another host at fault, succeeds.
    AtFault,
}

impl Tried {
    /// Records the failure of a command with several notices, and returns the delay before the next try: always
    /// [`FIRST_BACKOFF`], because most notices of the command are not at fault. `successes`: the present number of
    /// commands that succeeded.
    fn fail(&mut self, successes: u64) -> Duration {
        self.failed = Failed::Together;
        self.at.get_or_insert(successes);
        FIRST_BACKOFF
    }

    /// Records the failure of a command with this notice alone, and returns the delay before the next try. Each such
    /// failure doubles the delay, up to [`LAST_BACKOFF`]. `successes`: the present number of commands that succeeded.
    fn fail_alone(&mut self, successes: u64) -> Duration {
        let others_succeeded = self.at.replace(successes).is_some_and(|at| at != successes);
        if self.failed != Failed::AtFault {
            self.failed = if others_succeeded { Failed::AtFault } else { Failed::Alone };
        }
        let wait = self.backoff;
        self.backoff = (wait * 2).min(LAST_BACKOFF);
        wait
    }
}

/// The state of running and failed notices, by job or host. [`Schedule::keep`] removes notices that no longer exist.
#[derive(Debug, Default)]
pub(super) struct Schedule {
    tried: BTreeMap<Key, Tried>,
    groups: Group,
    /// Number of commands that succeeded.
    successes: u64,
}

impl Schedule {
    /// Returns the turn of the notice about `key` if the notice may run at `now`. `None`: a notice about this key runs
    /// already, or the notice failed and its next try is not due yet. `lifts`: whether the notice lifts a drain.
    pub(super) fn turn(&self, key: &Key, lifts: bool, now: Instant) -> Option<Turn> {
        match self.tried.get(key).map(|tried| (tried.next, tried.lifts)) {
            Some((NextTry::Running, _)) => None,
            Some((NextTry::Again(at, group), of)) if of == lifts => (at <= now).then_some(Turn::Again(at, group)),
            // The failed notice was the opposite notice.
            Some((NextTry::Again(..), _)) | None => Some(Turn::Fresh),
        }
    }

    /// Returns the jobs whose failed release is due again, longest waiting first.
    pub(super) fn due_jobs(&self, now: Instant) -> Vec<JobId> {
        let due = |(key, tried): (&Key, &Tried)| match (key, tried.next) {
            (Key::Job(job), NextTry::Again(at, _)) if at <= now => Some((at, job.clone())),
            _ => None,
        };
        let due: BTreeSet<_> = self.tried.iter().filter_map(due).collect();
        due.into_iter().map(|(_, job)| job).collect()
    }

    pub(super) fn jobs(&self) -> BTreeSet<JobId> {
        let job = |key: &Key| if let Key::Job(job) = key { Some(job.clone()) } else { None };
        self.tried.keys().filter_map(job).collect()
    }

    /// Returns the earliest time after `now` at which the next try of a failed notice is due; `None` if there is no
    /// such try.
    pub(super) fn next(&self, now: Instant) -> Option<Instant> {
        let again = |tried: &Tried| if let NextTry::Again(at, _) = tried.next { Some(at) } else { None };
        self.tried.values().filter_map(again).filter(|at| *at > now).min()
    }

    pub(super) fn begin(&mut self, keys: &[Key], lifts: bool) {
        for key in keys {
            let before = self.tried.get(key).filter(|tried| tried.lifts == lifts);
            let new =
                Tried { next: NextTry::Running, lifts, backoff: FIRST_BACKOFF, at: None, failed: Failed::Together };
            let tried = before.map_or(new, |before| Tried { next: NextTry::Running, ..*before });
            self.tried.insert(key.clone(), tried);
        }
    }

    pub(super) fn done(&mut self, keys: &[Key], now: Instant) {
        let mut no_fault = false;
        for key in keys {
            no_fault |= self.tried.remove(key).is_some_and(|tried| tried.failed == Failed::AtFault);
        }
        self.successes += 1;
        self.groups += 1;
        let together = |failed| failed == Failed::Alone || failed == Failed::AtFault && no_fault;
        for (key, tried) in &mut self.tried {
            if matches!((key, tried.next), (Key::Host(_), NextTry::Again(..))) && together(tried.failed) {
                (tried.next, tried.failed) = (NextTry::Again(now, self.groups), Failed::Alone);
            }
        }
    }

    /// Records that a command failed. A failure of a command for many hosts puts no host at fault: each half goes out
    /// separately next, until the refused host is alone. Only the delay of a notice that fails alone grows.
    pub(super) fn failed(&mut self, keys: &[Key], now: Instant) {
        let (first, second) = keys.split_at(keys.len() / 2);
        for half in [first, second].into_iter().filter(|half| !half.is_empty()) {
            self.groups += 1;
            for key in half {
                if let Some(tried) = self.tried.get_mut(key) {
                    let wait =
                        if keys.len() == 1 { tried.fail_alone(self.successes) } else { tried.fail(self.successes) };
                    tried.next = NextTry::Again(now + wait, self.groups);
                }
            }
        }
    }

    /// Drops failed notices for which `is_there` is `false`: their release or drain no longer exists.
    pub(super) fn keep(&mut self, is_there: impl Fn(&Key) -> bool) {
        self.tried.retain(|key, tried| matches!(tried.next, NextTry::Running) || is_there(key));
    }
}
