//! The method `Attempts`: streams all attempts of a source, and with `follow` each attempt again when it changes. The
//! follower registers before the API asks the machine, so a change in between is sent twice and never missed. A
//! follower that was disconnected starts over.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use perilog_core::controller::io::{AttemptsOf, Refusal, Reply, Request, Source};
use perilog_core::controller::view::{DrainView, EdgeAttempt, PAGE_BYTES, SourceView, StatusView};
use perilog_core::{HostName, JobId};
use perilog_host::varlink::{Call, Gone, ReplySink};
use serde::Deserialize;
use serde_json::json;
use tokio::sync::oneshot;

use super::{Api, lists, refuse, request};
use crate::daemon::{Changes, Entry, Followed, feed};

/// Maximum number of attempts in one reply.
const PAGE: usize = 200;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Attempts {
    source: Source,
    jobs: Option<BTreeSet<JobId>>,
    follow: Option<bool>,
}

pub(super) async fn serve(api: &Api, call: Call) -> Result<(), Gone> {
    let Some((parameters, peer, reply)) = request::parse::<Attempts>(call).await? else { return Ok(()) };
    let Attempts { source, jobs, follow } = parameters;
    let jobs = jobs.unwrap_or_default();
    let mut feed = Feed { api, uid: peer.uid, source, reply, drains: None };
    let ended = match follow.unwrap_or(false) {
        true => feed.follow(jobs).await,
        false => feed.snapshot(jobs).await,
    };
    match ended {
        Ok(()) => feed.reply.done(json!({ "attempts": [], "current": true })).await,
        Err(End::Refused(refusal)) => refuse(feed.reply, &refusal).await,
        Err(End::Gone) => Err(Gone),
    }
}

/// The sources that edges follow. Key: the source as text. Value: the number of its followers, at least 1.
#[derive(Debug, Default)]
pub(crate) struct Following(Mutex<BTreeMap<String, u64>>);

impl Following {
    fn begin(&self, source: &Source) -> Follower<'_> {
        let source = source.to_string();
        *self.sources().entry(source.clone()).or_default() += 1;
        Follower { all: self, source }
    }

    fn sources(&self) -> MutexGuard<'_, BTreeMap<String, u64>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets `followed` of each source in a status, and adds a note about each source that no edge follows.
    pub(super) fn complete(&self, status: &mut StatusView) {
        let followed = self.sources();
        for of in &mut status.sources {
            of.followed = followed.contains_key(&of.source);
            if !of.followed {
                let SourceView { source, unreleased, .. } = of;
                status.notes.push(format!(
                    "no edge is connected for {source}; the number of its attempts that wait for their release is \
                     {unreleased}. Start the edge: systemctl start perilog-flux"
                ));
            }
        }
    }
}

/// A follower of a source: [`Following`] counts it until this value is dropped.
struct Follower<'a> {
    all: &'a Following,
    source: String,
}

impl Drop for Follower<'_> {
    fn drop(&mut self) {
        let mut sources = self.all.sources();
        if let Some(count) = sources.get_mut(&self.source) {
            *count -= 1;
        }
        sources.retain(|_, count| *count > 0);
    }
}

/// A page of the list of drains.
struct Drains {
    rows: Vec<DrainView>,
    next: Option<HostName>,
    revision: u64,
}

/// Returns the attempts in pages of bounded size, each of one attempt at least.
fn pages(attempts: Vec<EdgeAttempt>) -> Vec<Vec<EdgeAttempt>> {
    let (mut pages, mut left): (Vec<Vec<EdgeAttempt>>, _) = (Vec::new(), 0);
    for attempt in attempts {
        let bytes = size(&attempt) + 1;
        match pages.last_mut() {
            Some(page) if bytes <= left => page.push(attempt),
            _ => {
                pages.push(vec![attempt]);
                left = PAGE_BYTES;
            }
        }
        left = left.saturating_sub(bytes);
    }
    pages
}

fn size(value: &impl serde::Serialize) -> usize {
    serde_json::to_vec(value).map_or(0, |json| json.len())
}

enum End {
    Refused(Refusal),
    Gone,
}

impl From<Gone> for End {
    fn from(_: Gone) -> Self {
        Self::Gone
    }
}

impl From<Refusal> for End {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

struct Feed<'a> {
    api: &'a Api,
    uid: u32,
    source: Source,
    reply: ReplySink,
    /// Revision of the list of drains that the controller sent to the edge last; `None`: it has sent none yet.
    drains: Option<u64>,
}

impl Feed<'_> {
    /// Sends the attempts of the source that are not wholly released or that are abandoned. Then sends all attempts of
    /// `jobs`, and, with the last page, the drains.
    async fn snapshot(&mut self, jobs: BTreeSet<JobId>) -> Result<(), End> {
        let mut after = None;
        loop {
            let of = AttemptsOf { source: self.source.clone(), jobs: None, after: after.take(), limit: PAGE };
            let page = self.attempts(of).await?;
            let Some(last) = page.last() else { break };
            after = Some((last.job.clone(), last.attempt));
            for page in pages(page) {
                self.reply.more(json!({ "attempts": page, "current": false })).await?;
            }
        }
        self.changed(Changes { jobs, ..Changes::default() }).await
    }

    async fn follow(&mut self, jobs: BTreeSet<JobId>) -> Result<(), End> {
        let _waiting = self.reply.wait().await?;
        let _follower = self.api.following.begin(&self.source);
        let mut followed = self.enter_queue().await?;
        self.snapshot(jobs).await?;
        loop {
            let changes = tokio::select! {
                changes = followed.next(self.drains) => changes,
                () = self.reply.closed() => return Err(End::Gone),
            };
            let ended = "this follower fell behind, or the controller starts again from its store: follow again";
            let changes = changes.ok_or_else(|| Refusal::Unavailable(ended.to_owned()))?;
            self.changed(changes).await?;
        }
    }

    /// Sends the present state of these jobs, page by page; the last reply completes the state, and says `current`. The
    /// follower acts on nothing of a page before that.
    ///
    /// The attempts may be newer than the change that led to this call: they may show a verdict whose drain is the next
    /// change. A follower that saw such a verdict alone would fail the job before the node at fault is drained. So this
    /// function always reads the drains too, after the last attempts. A state that the writer hands over is of one
    /// moment.
    async fn changed(&mut self, changes: Changes) -> Result<(), End> {
        let (attempts, mut drains, is_begun) = match changes.handed {
            Some([attempts, drains]) => (attempts_in(attempts), drains_in(drains)?, false),
            None => self.ask(changes.jobs.into_iter().collect()).await?,
        };
        let mut pages = pages(attempts);
        let page = pages.pop().unwrap_or_default();
        for page in pages {
            self.reply.more(json!({ "attempts": page, "current": false })).await?;
        }
        let is_news = self.drains != Some(drains.revision);
        // A drain that changes between two pages is a change of its own, which the follower gets next.
        self.drains = Some(drains.revision);
        while let Some(next) = drains.next.take() {
            self.reply.more(json!({ "attempts": [], "drains": drains.rows, "current": false })).await?;
            drains = self.drains(Some(next), None).await?;
        }
        let mut body = json!({ "attempts": page, "current": true });
        if is_news {
            if size(&page) + size(&drains.rows) > PAGE_BYTES {
                self.reply.more(json!({ "attempts": page, "current": false })).await?;
                body["attempts"] = json!([]);
            }
            body["drains"] = json!(drains.rows);
        }
        // Skips a page without a job of this source, unless the pages before it still need a last one.
        if is_begun || is_news || !page.is_empty() {
            self.reply.more(body).await?;
        }
        Ok(())
    }

    /// Asks the writer for the present state of these jobs and of the drains. Sends all pages of attempts but those of
    /// the last [`PAGE`] jobs, which the function returns with the drains. The last value: `true` if it has sent a
    /// page.
    async fn ask(&mut self, jobs: Vec<JobId>) -> Result<(Vec<EdgeAttempt>, Drains, bool), End> {
        let mut parts: Vec<Vec<JobId>> = jobs.chunks(PAGE).map(<[JobId]>::to_vec).collect();
        let last = parts.pop().unwrap_or_default();
        let mut is_begun = false;
        for part in parts {
            for page in pages(self.of(part).await?) {
                self.reply.more(json!({ "attempts": page, "current": false })).await?;
                is_begun = true;
            }
        }
        // The writer handles both requests in this order, and mostly in one batch.
        let (attempts, drains) = tokio::join!(biased; self.of(last), self.drains(None, self.drains));
        Ok((attempts?, drains?, is_begun))
    }

    async fn of(&self, jobs: Vec<JobId>) -> Result<Vec<EdgeAttempt>, Refusal> {
        self.attempts(AttemptsOf { source: self.source.clone(), jobs: Some(jobs), after: None, limit: PAGE }).await
    }

    async fn attempts(&self, of: AttemptsOf) -> Result<Vec<EdgeAttempt>, Refusal> {
        self.api.ask(self.uid, Request::Attempts(of)).await.map(attempts_in)
    }

    /// Returns the page of drains after the host `after`. The page is empty if the list still has the revision `known`.
    async fn drains(&self, after: Option<HostName>, known: Option<u64>) -> Result<Drains, Refusal> {
        self.api.ask(self.uid, Request::Drains { targets: None, after, known }).await.and_then(drains_in)
    }

    async fn enter_queue(&self) -> Result<Followed, Refusal> {
        let ending = || Refusal::Unavailable("the controller is stopping; ask again when it runs again".to_owned());
        let (feed, followed) = feed(self.source.clone());
        let (ready, follows) = oneshot::channel();
        self.api.inlet.put(Entry::FollowAll { feed, ready }).await.map_err(|_| ending())?;
        follows.await.map_err(|_| ending())?;
        Ok(followed)
    }
}

fn attempts_in(reply: Reply) -> Vec<EdgeAttempt> {
    match reply {
        Reply::Attempts(attempts) => attempts,
        _ => Vec::new(),
    }
}

fn drains_in(reply: Reply) -> Result<Drains, Refusal> {
    match reply {
        Reply::Drains { drains, next, revision } => Ok(Drains { rows: lists::drains(drains), next, revision }),
        other => Err(Refusal::Unavailable(format!("no list of drains: {other:?}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_that_no_edge_follows_is_noted() {
        let source = |instance: &str| Source { name: "flux".to_owned(), instance: instance.to_owned() };
        let shown = json!({"source": source("system").to_string(), "unreleased": 3, "followed": false});
        let status = json!({"version": "1", "cluster": "c", "epoch": 1, "nodes": 0, "online": 0, "jobs": 0,
                            "actions_open": 0,
            "tasks_open": 0, "outbox": 0, "notes": [], "sources": [shown]});
        let following = Following::default();
        let noted = || {
            let mut status = StatusView::deserialize(&status).unwrap();
            following.complete(&mut status);
            assert_eq!(status.sources[0].followed, status.notes.is_empty());
            status.notes.join("\n")
        };
        let is_missed = || {
            noted().contains(
                "no edge is connected for flux (instance system); the number of its attempts that wait for their \
                 release is 3.",
            )
        };
        let _other = following.begin(&source("test"));
        assert!(is_missed(), "{}", noted());
        let (first, second) = (following.begin(&source("system")), following.begin(&source("system")));
        assert_eq!(noted(), "");
        drop(first);
        assert_eq!(noted(), "");
        drop(second);
        assert!(is_missed(), "{}", noted());
    }
}
