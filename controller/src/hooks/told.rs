//! Who is told at this moment, and who is told again, when: by job, or by host. Whatever a command is about, of one job or host there is no other
//! beside it; one that fails keeps nobody waiting but itself. Hosts that failed together are told again in halves, until who is at fault is alone.
//!
//! Where nobody is at fault, because the resource manager is away, all are alone by and by. The first that is done says that it is there again: those
//! that had failed alone while nobody was told are told together then, at once. Not one that failed alone again after another was done: that one is at
//! fault, and stays so. It waits by its own backoff, whoever else is told, until it is done itself. That one could be told after all says that it may
//! not have been the others' fault either: they are told together once more.

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
    /// How many commands had been carried out when it first failed, or when it last failed alone.
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
    /// By itself, and others were told since it had failed before; until it is done.
    AtFault,
}

impl Tried {
    /// With others: how long it waits. Not by what it has waited alone before, for most of them are not at fault.
    fn fail(&mut self, successes: u64) -> Duration {
        self.failed = Failed::Together;
        self.at.get_or_insert(successes);
        FIRST_BACKOFF
    }

    /// By itself: how long it waits.
    fn fail_alone(&mut self, successes: u64) -> Duration {
        let others_were_told = self.at.replace(successes).is_some_and(|at| at != successes);
        if self.failed != Failed::AtFault {
            self.failed = if others_were_told { Failed::AtFault } else { Failed::Alone };
        }
        let wait = self.backoff;
        self.backoff = (wait * 2).min(LAST_BACKOFF);
        wait
    }
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
        let mut no_fault = false;
        for key in keys {
            no_fault |= self.tried.remove(key).is_some_and(|tried| tried.failed == Failed::AtFault);
        }
        self.successes += 1;
        self.groups += 1;
        let together = |failed| failed == Failed::Alone || failed == Failed::AtFault && no_fault;
        for (key, tried) in &mut self.tried {
            if matches!((key, tried.stand), (Key::Host(_), Stand::Again(..))) && together(tried.failed) {
                (tried.stand, tried.failed) = (Stand::Again(now, self.groups), Failed::Alone);
            }
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
                    let wait =
                        if keys.len() == 1 { tried.fail_alone(self.successes) } else { tried.fail(self.successes) };
                    tried.stand = Stand::Again(now + wait, self.groups);
                }
            }
        }
    }

    /// Those that are to be told no more are not waited for.
    pub(super) fn keep(&mut self, is_there: impl Fn(&Key) -> bool) {
        self.tried.retain(|key, tried| matches!(tried.stand, Stand::Telling) || is_there(key));
    }
}
