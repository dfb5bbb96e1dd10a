//! Who is told at this moment, and who is told again, when: by job, or by host. Whatever a command is about, of one job or host there is no other
//! beside it; one that fails keeps nobody waiting but itself. Hosts that failed together are told again in halves, until who is at fault is alone.
//!
//! Where nobody is at fault, because the resource manager is away, all are alone by and by. The first that is done says that it is there again: those
//! that had failed alone while nobody was told are told together then, at once. Not one that failed again after another was done: that one is at fault.

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

/// May something be told?
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Turn {
    /// It failed, and its time has come then; together with the others of that number.
    Again(Instant, Group),
    Fresh,
}

/// Those that are told again together have the same.
pub(super) type Group = u64;

#[derive(Debug, Clone, Copy)]
enum Stand {
    Telling,
    /// It failed: told again then, together with the others of that number.
    Again(Instant, Group),
}

#[derive(Debug, Clone, Copy)]
struct Tried {
    stand: Stand,
    /// To lift a drain is another thing than the drain.
    lifts: bool,
    /// How long it waits should it fail.
    backoff: Duration,
    /// How many hosts had been told when it last failed.
    at: Option<u64>,
    failed: Failed,
}

/// How one failed that is told again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Failed {
    /// With others; or it did not yet.
    Together,
    /// By itself, and nobody was told since it had failed before: perhaps nobody can be.
    Alone,
    /// By itself, and others were told since it had failed before.
    AtFault,
}

/// What is told, or was and failed. As many as there is to tell: what is there no more leaves with [`Told::keep`].
#[derive(Debug, Default)]
pub(super) struct Told {
    tried: BTreeMap<Key, Tried>,
    groups: Group,
    /// Commands that were carried out.
    successes: u64,
}

impl Told {
    /// `None`: not now.
    pub(super) fn turn(&self, key: &Key, lifts: bool, now: Instant) -> Option<Turn> {
        match self.tried.get(key).map(|tried| (tried.stand, tried.lifts)) {
            Some((Stand::Telling, _)) => None,
            Some((Stand::Again(at, group), of)) if of == lifts => (at <= now).then_some(Turn::Again(at, group)),
            // What failed was the opposite.
            Some((Stand::Again(..), _)) | None => Some(Turn::Fresh),
        }
    }

    /// Jobs whose time has come, who waits longest first.
    pub(super) fn due_jobs(&self, now: Instant) -> Vec<JobId> {
        let due = |(key, tried): (&Key, &Tried)| match (key, tried.stand) {
            (Key::Job(job), Stand::Again(at, _)) if at <= now => Some((at, job.clone())),
            _ => None,
        };
        let due: BTreeSet<_> = self.tried.iter().filter_map(due).collect();
        due.into_iter().map(|(_, job)| job).collect()
    }

    pub(super) fn jobs(&self) -> BTreeSet<JobId> {
        let job = |key: &Key| if let Key::Job(job) = key { Some(job.clone()) } else { None };
        self.tried.keys().filter_map(job).collect()
    }

    /// When the next one's time comes, after this moment.
    pub(super) fn next(&self, now: Instant) -> Option<Instant> {
        let again = |tried: &Tried| if let Stand::Again(at, _) = tried.stand { Some(at) } else { None };
        self.tried.values().filter_map(again).filter(|at| *at > now).min()
    }

    pub(super) fn begin(&mut self, keys: &[Key], lifts: bool) {
        for key in keys {
            let before = self.tried.get(key).filter(|tried| tried.lifts == lifts);
            let new =
                Tried { stand: Stand::Telling, lifts, backoff: FIRST_BACKOFF, at: None, failed: Failed::Together };
            let tried = before.map_or(new, |before| Tried { stand: Stand::Telling, ..*before });
            self.tried.insert(key.clone(), tried);
        }
    }

    pub(super) fn done(&mut self, keys: &[Key], now: Instant) {
        for key in keys {
            self.tried.remove(key);
        }
        self.successes += 1;
        self.groups += 1;
        let waits = |tried: &Tried| matches!(tried.stand, Stand::Again(..)) && tried.failed == Failed::Alone;
        for (_, tried) in self.tried.iter_mut().filter(|(key, tried)| matches!(key, Key::Host(_)) && waits(tried)) {
            (tried.stand, tried.backoff) = (Stand::Again(now, self.groups), FIRST_BACKOFF);
        }
    }

    /// A command that fails for many says nothing of any: each half of them is told by itself next, until who is at fault is alone. Only one that
    /// is alone waits longer each time.
    pub(super) fn failed(&mut self, keys: &[Key], now: Instant) {
        let (first, second) = keys.split_at(keys.len() / 2);
        for half in [first, second].into_iter().filter(|half| !half.is_empty()) {
            self.groups += 1;
            for key in half {
                if let Some(tried) = self.tried.get_mut(key) {
                    tried.stand = Stand::Again(now + tried.backoff, self.groups);
                    let others_were_told = tried.at.replace(self.successes).is_some_and(|at| at != self.successes);
                    tried.failed = match keys {
                        [_] if others_were_told => Failed::AtFault,
                        [_] => Failed::Alone,
                        _ => Failed::Together,
                    };
                    if keys.len() == 1 {
                        tried.backoff = (tried.backoff * 2).min(LAST_BACKOFF);
                    }
                }
            }
        }
    }

    /// Those that are to be told no more are not waited for.
    pub(super) fn keep(&mut self, is_there: impl Fn(&Key) -> bool) {
        self.tried.retain(|key, tried| matches!(tried.stand, Stand::Telling) || is_there(key));
    }
}
