//! Changes for edges that follow all jobs: names of changed jobs, and whether drains changed. An edge that reads late
//! finds each job once, however often the job changed: the feed grows with the number of jobs, not with their events.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use perilog_core::JobId;
use perilog_core::controller::Record;
use tokio::sync::mpsc;

/// Maximum number of changed jobs that wait for a follower. The writer disconnects a slower follower, which starts
/// over.
const MAX_CHANGED: usize = 200_000;

#[derive(Debug, Default, PartialEq)]
pub(crate) struct Changes {
    pub(crate) jobs: BTreeSet<JobId>,
    pub(crate) drains: bool,
}

impl Changes {
    /// Returns the changes in a batch of records.
    pub(super) fn of(records: &[Record]) -> Self {
        let mut changes = Self::default();
        for record in records {
            match record {
                Record::Attempt(row) => drop(changes.jobs.insert(row.job.clone())),
                Record::Action(row) => drop(changes.jobs.insert(row.job.clone())),
                Record::Event { job, .. } => drop(changes.jobs.insert(job.clone())),
                Record::Drain(_) | Record::Undrained { .. } => changes.drains = true,
                _ => {}
            }
        }
        changes
    }

    fn is_empty(&self) -> bool {
        self.jobs.is_empty() && !self.drains
    }
}

/// The writer's half of a feed: takes the changes.
#[derive(Debug)]
pub(crate) struct Feed {
    changes: Arc<Mutex<Changes>>,
    ring: mpsc::Sender<()>,
}

/// The receiving half of a feed, for a follower: returns the changes that the writer has added.
#[derive(Debug)]
pub(crate) struct Followed {
    changes: Arc<Mutex<Changes>>,
    rung: mpsc::Receiver<()>,
}

pub(crate) fn feed() -> (Feed, Followed) {
    let (ring, rung) = mpsc::channel(1);
    let changes = Arc::<Mutex<Changes>>::default();
    (Feed { changes: changes.clone(), ring }, Followed { changes, rung })
}

impl Feed {
    /// Adds changes. Returns `false` if the follower is gone, or has fallen too far behind.
    pub(crate) fn put(&self, news: &Changes) -> bool {
        if self.ring.is_closed() {
            return false;
        }
        if news.is_empty() {
            return true;
        }
        let mut changes = self.changes.lock().unwrap_or_else(PoisonError::into_inner);
        changes.jobs.extend(news.jobs.iter().cloned());
        changes.drains |= news.drains;
        let is_bounded = changes.jobs.len() <= MAX_CHANGED;
        drop(changes);
        // A full channel already contains a wake-up.
        let _ = self.ring.try_send(());
        is_bounded
    }
}

impl Followed {
    /// Returns the changes since the last call; `None`: the writer dropped the feed.
    pub(crate) async fn next(&mut self) -> Option<Changes> {
        self.rung.recv().await?;
        Some(std::mem::take(&mut *self.changes.lock().unwrap_or_else(PoisonError::into_inner)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changed(names: &[&str], drains: bool) -> Changes {
        Changes { jobs: names.iter().map(|name| JobId::new(name).unwrap()).collect(), drains }
    }

    #[tokio::test]
    async fn a_late_follower_finds_each_job_once() {
        let (feed, mut followed) = feed();
        for names in [&["a"][..], &["b", "a"], &[], &["a"]] {
            assert!(feed.put(&changed(names, false)));
        }
        assert!(feed.put(&changed(&[], true)));
        assert_eq!(followed.next().await, Some(changed(&["a", "b"], true)));
        assert!(feed.put(&changed(&["c"], false)));
        assert_eq!(followed.next().await, Some(changed(&["c"], false)));
        drop(feed);
        assert_eq!(followed.next().await, None);
    }

    #[test]
    fn a_follower_that_is_gone_or_far_behind_is_let_go() {
        let (feed, followed) = super::feed();
        let many: Vec<String> = (0..=MAX_CHANGED).map(|n| format!("j{n}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert!(feed.put(&changed(&many[1..], false)));
        assert!(!feed.put(&changed(&many[..1], false)));
        drop(followed);
        assert!(!feed.put(&changed(&[], false)));
    }
}
