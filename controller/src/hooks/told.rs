//! Who is told at this moment, and who is told again, when: by job, or by host. Whatever a command is about, of one job or host there is no other
//! beside it; one that fails keeps nobody waiting but itself.

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
    /// It failed, and its time has come then.
    Again(Instant),
    Fresh,
}

#[derive(Debug, Clone, Copy)]
enum Stand {
    Telling,
    /// It failed: told again then.
    Again(Instant),
}

#[derive(Debug, Clone, Copy)]
struct Tried {
    stand: Stand,
    /// To lift a drain is another thing than the drain.
    lifts: bool,
    /// How long it waits should it fail.
    backoff: Duration,
}

/// What is told, or was and failed. As many as there is to tell: what is there no more leaves with [`Told::keep`].
#[derive(Debug, Default)]
pub(super) struct Told(BTreeMap<Key, Tried>);

impl Told {
    /// `None`: not now.
    pub(super) fn turn(&self, key: &Key, lifts: bool, now: Instant) -> Option<Turn> {
        match self.0.get(key).map(|tried| (tried.stand, tried.lifts)) {
            Some((Stand::Telling, _)) => None,
            Some((Stand::Again(at), of)) if of == lifts => (at <= now).then_some(Turn::Again(at)),
            // What failed was the opposite.
            Some((Stand::Again(_), _)) | None => Some(Turn::Fresh),
        }
    }

    /// Jobs whose time has come, who waits longest first.
    pub(super) fn due_jobs(&self, now: Instant) -> Vec<JobId> {
        let due = |(key, tried): (&Key, &Tried)| match (key, tried.stand) {
            (Key::Job(job), Stand::Again(at)) if at <= now => Some((at, job.clone())),
            _ => None,
        };
        let due: BTreeSet<_> = self.0.iter().filter_map(due).collect();
        due.into_iter().map(|(_, job)| job).collect()
    }

    pub(super) fn jobs(&self) -> BTreeSet<JobId> {
        let job = |key: &Key| if let Key::Job(job) = key { Some(job.clone()) } else { None };
        self.0.keys().filter_map(job).collect()
    }

    /// When the next one's time comes, after this moment.
    pub(super) fn next(&self, now: Instant) -> Option<Instant> {
        let again = |tried: &Tried| if let Stand::Again(at) = tried.stand { Some(at) } else { None };
        self.0.values().filter_map(again).filter(|at| *at > now).min()
    }

    pub(super) fn begin(&mut self, keys: &[Key], lifts: bool) {
        for key in keys {
            let before = self.0.get(key).filter(|tried| tried.lifts == lifts);
            let backoff = before.map_or(FIRST_BACKOFF, |tried| tried.backoff);
            self.0.insert(key.clone(), Tried { stand: Stand::Telling, lifts, backoff });
        }
    }

    pub(super) fn done(&mut self, keys: &[Key]) {
        for key in keys {
            self.0.remove(key);
        }
    }

    /// What failed together is told again together.
    pub(super) fn failed(&mut self, keys: &[Key], now: Instant) {
        let backoff = keys.iter().filter_map(|key| self.0.get(key)).map(|tried| tried.backoff).max();
        let backoff = backoff.unwrap_or(FIRST_BACKOFF);
        for key in keys {
            if let Some(tried) = self.0.get_mut(key) {
                tried.stand = Stand::Again(now + backoff);
                tried.backoff = (backoff * 2).min(LAST_BACKOFF);
            }
        }
    }

    /// Those that are to be told no more are not waited for.
    pub(super) fn keep(&mut self, is_there: impl Fn(&Key) -> bool) {
        self.0.retain(|key, tried| matches!(tried.stand, Stand::Telling) || is_there(key));
    }
}
