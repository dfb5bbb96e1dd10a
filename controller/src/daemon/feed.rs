//! Changes for edges that follow all jobs: names of changed jobs, and whether drains changed. An edge that reads late
//! finds each job once, however often the job changed: the feed grows with the number of jobs, not with their events.
//!
//! A follower that waits for the next change gets more than names: the writer hands over what the change looks like,
//! so that the follower need not ask the writer.
//!
//! ```text
//!   follower waits ── a commit changes few jobs ──> names, and the replies to Attempts and Drains ──> sent to the edge
//!   follower is busy ── any commit ───────────────> names ──> the follower asks for both replies ───> sent to the edge
//! ```

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use perilog_core::controller::Record;
use perilog_core::controller::io::{AttemptsOf, Reply, Source};
use perilog_core::{JobId, defect};
use tokio::sync::mpsc;

/// Maximum number of changed jobs that wait for a follower. The writer disconnects a slower follower, which starts
/// over.
const MAX_CHANGED: usize = 200_000;
/// Maximum number of changed jobs of a commit that the writer hands over. The next commit waits meanwhile, so the
/// follower asks for the jobs of a larger change, page by page.
const MAX_HANDED: usize = 16;

/// The replies to [`Request::Attempts`] and [`Request::Drains`] of an edge, both of the same moment.
///
/// [`Request::Attempts`]: perilog_core::controller::io::Request::Attempts
/// [`Request::Drains`]: perilog_core::controller::io::Request::Drains
pub(crate) type Replies = [Reply; 2];

#[derive(Debug, Default, PartialEq)]
pub(crate) struct Changes {
    pub(crate) jobs: BTreeSet<JobId>,
    pub(crate) drains: bool,
    /// The state of `jobs` and of the drains after the newest of these changes; `None`: the follower has to ask.
    pub(crate) handed: Option<Replies>,
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

/// State that the writer and a follower share.
#[derive(Debug, Default)]
struct Shared {
    changes: Changes,
    waiting: Option<Waiting>,
}

/// A follower that waits for the next change.
#[derive(Debug, Clone, Copy)]
struct Waiting {
    /// Revision of the list of drains that the edge has; `None`: it has none.
    drains: Option<u64>,
}

/// The writer's half of a feed: takes the changes.
#[derive(Debug)]
pub(crate) struct Feed {
    source: Source,
    shared: Arc<Mutex<Shared>>,
    ring: mpsc::Sender<()>,
    /// The replies that the writer handed over last; `None`: the follower has asked since, or has got none yet.
    last: Option<Replies>,
}

/// The receiving half of a feed, for a follower: returns the changes that the writer has added.
#[derive(Debug)]
pub(crate) struct Followed {
    shared: Arc<Mutex<Shared>>,
    rung: mpsc::Receiver<()>,
}

/// Makes a feed for a follower of the attempts of this source.
pub(crate) fn feed(source: Source) -> (Feed, Followed) {
    let (ring, rung) = mpsc::channel(1);
    let shared = Arc::<Mutex<Shared>>::default();
    (Feed { source, shared: shared.clone(), ring, last: None }, Followed { shared, rung })
}

fn lock(shared: &Mutex<Shared>) -> MutexGuard<'_, Shared> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Feed {
    /// Adds changes, and hands over their state if the follower waits. `replies_of`: returns the replies to an edge
    /// that has the list of drains of this revision; `None`: a job is not in memory, only in the store. Returns `false`
    /// if the follower is gone, or has fallen too far behind.
    pub(crate) fn put(
        &mut self,
        news: &Changes,
        replies_of: impl FnOnce(&AttemptsOf, Option<u64>) -> Option<Replies>,
    ) -> bool {
        if self.ring.is_closed() {
            return false;
        }
        if news.is_empty() {
            return true;
        }
        let waiting = lock(&self.shared).waiting.take().filter(|_| news.jobs.len() <= MAX_HANDED);
        // Without the lock: the follower does not go on before the ring below.
        let handed = waiting.and_then(|waiting| replies_of(&self.of(news), waiting.drains));
        if let (Some(replies), Some(waiting)) = (&handed, waiting)
            && (shows_nothing(replies, waiting) || self.last.as_ref() == Some(replies))
        {
            lock(&self.shared).waiting = Some(waiting);
            return true;
        }
        let mut shared = lock(&self.shared);
        let changes = &mut shared.changes;
        let is_first = changes.is_empty();
        changes.jobs.extend(news.jobs.iter().cloned());
        changes.drains |= news.drains;
        if is_first {
            changes.handed = handed;
        } else if !defect!(HandedOverOutdated) {
            // The replies of an earlier commit that the follower has not taken are outdated.
            changes.handed = None;
        }
        self.last.clone_from(&changes.handed);
        let is_bounded = changes.jobs.len() <= MAX_CHANGED;
        drop(shared);
        // A full channel already contains a wake-up.
        let _ = self.ring.try_send(());
        is_bounded
    }

    /// Returns the request for the state of changed jobs.
    fn of(&self, news: &Changes) -> AttemptsOf {
        let jobs = news.jobs.iter().cloned().collect();
        AttemptsOf { source: self.source.clone(), jobs: Some(jobs), after: None, limit: MAX_HANDED }
    }
}

/// Returns `true` if these replies have nothing for the edge: no attempt of its source, and the list of drains that it
/// has.
fn shows_nothing(replies: &Replies, waiting: Waiting) -> bool {
    matches!(replies, [Reply::Attempts(attempts), Reply::Drains { revision, .. }]
        if attempts.is_empty() && waiting.drains == Some(*revision))
}

impl Followed {
    /// Waits for the next change, and returns the changes since the last call. `None`: the writer dropped the feed.
    /// `drains`: the revision of the list of drains that the edge has, if any.
    pub(crate) async fn next(&mut self, drains: Option<u64>) -> Option<Changes> {
        loop {
            if let Some(changes) = self.take(drains) {
                return Some(changes);
            }
            self.rung.recv().await?;
        }
    }

    /// Returns the changes since the last call; `None`: there are none, and the follower waits from now on.
    fn take(&self, drains: Option<u64>) -> Option<Changes> {
        let mut shared = lock(&self.shared);
        let changes = std::mem::take(&mut shared.changes);
        let is_empty = changes.is_empty();
        shared.waiting = is_empty.then_some(Waiting { drains });
        (!is_empty).then_some(changes)
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::pin::pin;
    use std::task::Poll;

    use super::*;

    fn source() -> Source {
        Source { name: "flux".to_owned(), instance: "i".to_owned() }
    }

    fn changed(names: &[&str], drains: bool) -> Changes {
        Changes { jobs: names.iter().map(|name| JobId::new(name).unwrap()).collect(), drains, handed: None }
    }

    /// Adds changes to a feed whose writer hands nothing over.
    fn put(feed: &mut Feed, news: &Changes) -> bool {
        feed.put(news, |_, _| None)
    }

    /// Replies that differ in the number of the list of drains, and show no attempt.
    fn replies(revision: u64) -> Replies {
        [Reply::Attempts(Vec::new()), Reply::Drains { drains: Vec::new(), next: None, revision }]
    }

    /// Lets the follower wait for the next change.
    async fn wait(followed: &mut Followed, drains: Option<u64>) {
        let mut next = pin!(followed.next(drains));
        assert!(poll_fn(|cx| Poll::Ready(next.as_mut().poll(cx).is_pending())).await);
    }

    #[tokio::test]
    async fn a_late_follower_finds_each_job_once() {
        let (mut feed, mut followed) = feed(source());
        for names in [&["a"][..], &["b", "a"], &[], &["a"]] {
            assert!(put(&mut feed, &changed(names, false)));
        }
        assert!(put(&mut feed, &changed(&[], true)));
        assert_eq!(followed.next(None).await, Some(changed(&["a", "b"], true)));
        assert!(put(&mut feed, &changed(&["c"], false)));
        assert_eq!(followed.next(None).await, Some(changed(&["c"], false)));
        drop(feed);
        assert_eq!(followed.next(None).await, None);
    }

    #[test]
    fn a_follower_that_is_gone_or_far_behind_is_dropped() {
        let (mut feed, followed) = super::feed(source());
        let many: Vec<String> = (0..=MAX_CHANGED).map(|n| format!("j{n}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert!(put(&mut feed, &changed(&many[1..], false)));
        assert!(!put(&mut feed, &changed(&many[..1], false)));
        drop(followed);
        assert!(!put(&mut feed, &changed(&[], false)));
    }

    #[tokio::test]
    async fn what_is_handed_over_is_the_state_after_the_newest_change() {
        perilog_core::switch_on_defect!(perilog_host::defect::chosen());
        let (mut feed, mut followed) = feed(source());
        wait(&mut followed, Some(1)).await;
        let replies_of = |of: &AttemptsOf, drains| {
            assert_eq!((of.jobs.as_deref(), drains), (Some(&[JobId::new("a").unwrap()][..]), Some(1)));
            Some(replies(2))
        };
        assert!(feed.put(&changed(&["a"], false), replies_of));
        let handed = |jobs, of| Some(Changes { handed: Some(replies(of)), ..changed(jobs, false) });
        assert_eq!(followed.next(Some(1)).await, handed(&["a"], 2));
        // The follower is busy: it gets names.
        let busy = |_: &AttemptsOf, _| panic!("no edge waits");
        assert!(feed.put(&changed(&["b"], false), busy));
        assert_eq!(followed.next(Some(2)).await, Some(changed(&["b"], false)));
        // A second change comes before the follower has taken the first.
        wait(&mut followed, Some(2)).await;
        assert!(feed.put(&changed(&["c"], false), |_, _| Some(replies(3))));
        assert!(feed.put(&changed(&["d"], false), busy));
        assert_eq!(followed.next(Some(2)).await, Some(changed(&["c", "d"], false)));
        // A change of many jobs is not handed over.
        wait(&mut followed, Some(3)).await;
        let many: Vec<String> = (0..=MAX_HANDED).map(|n| format!("j{n}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert!(feed.put(&changed(&many, false), |_, _| panic!("they are too many")));
        assert_eq!(followed.next(Some(3)).await, Some(changed(&many, false)));
    }

    #[tokio::test]
    async fn a_change_that_shows_the_edge_nothing_new_does_not_wake_it() {
        let (mut feed, mut followed) = feed(source());
        wait(&mut followed, Some(1)).await;
        // Other sources' jobs, while the edge has the list of drains.
        assert!(feed.put(&changed(&["x"], false), |_, _| Some(replies(1))));
        wait(&mut followed, Some(1)).await;
        assert!(feed.put(&changed(&["a"], true), |_, _| Some(replies(2))));
        assert!(followed.next(Some(1)).await.is_some());
        // The same state again: a rank of several has ended.
        wait(&mut followed, Some(1)).await;
        assert!(feed.put(&changed(&["a"], false), |_, _| Some(replies(2))));
        wait(&mut followed, Some(1)).await;
        // After a change of which the follower got the name only, its state may be any.
        assert!(put(&mut feed, &changed(&["a"], false)));
        assert!(followed.next(Some(1)).await.is_some());
        wait(&mut followed, Some(1)).await;
        assert!(feed.put(&changed(&["a"], false), |_, _| Some(replies(2))));
        assert_eq!(followed.next(Some(1)).await.and_then(|changes| changes.handed), Some(replies(2)));
    }
}
