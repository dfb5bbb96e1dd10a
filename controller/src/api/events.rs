//! The method `Events`, the event log of a job: the stored events past a sequence number, and with `follow` also new
//! events, without gaps and repetitions.
//!
//! A call that waits for new events first registers with the writer as a follower, then reads the store. Later commits
//! reach the follower's queue, earlier commits are in the store, and the follower recognises an event in both by its
//! number. The writer drops a follower that falls behind; such a follower continues from the store.

use std::borrow::Borrow;
use std::sync::Arc;

use perilog_core::controller::io::Refusal;
use perilog_core::{Event, JobId};
use perilog_host::varlink::{Call, Gone, ReplySink};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio::sync::oneshot;

use super::{Api, refuse, request};
use crate::daemon::{Drain, Entry, events};
use crate::store::Numbered;

/// Maximum number of events in one reply.
pub(super) const PAGE: usize = 500;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Events {
    job: JobId,
    after: Option<u64>,
    follow: Option<bool>,
}

pub(super) async fn serve(api: &Api, call: Call) -> Result<(), Gone> {
    let more = call.more;
    let Some((Events { job, after, follow }, _, reply)) = request::parse(call).await? else { return Ok(()) };
    let mut log = Log { api, job, last: after.unwrap_or(0) };
    match (more, follow.unwrap_or(false)) {
        (false, false) => match log.page().await {
            Ok(page) => reply.done(page_value(&page)).await,
            Err(refusal) => refuse(reply, &refusal).await,
        },
        (_, true) => log.follow(reply).await,
        (true, false) => {
            let mut reply = reply;
            match log.history(&mut reply).await? {
                Ok(()) => reply.done(json!({ "events": [] })).await,
                Err(refusal) => refuse(reply, &refusal).await,
            }
        }
    }
}

/// A client's reading position in a job's event log. `last`: the sequence number of the last event that was read.
struct Log<'a> {
    api: &'a Api,
    job: JobId,
    last: u64,
}

impl Log<'_> {
    /// Returns the next page of the log from the store; an empty page at the end. Refuses an unknown job.
    async fn page(&mut self) -> Result<Vec<Numbered>, Refusal> {
        let read = |after, limit| {
            let (reader, job) = (self.api.reader.clone(), self.job.clone());
            async move {
                let reading = tokio::task::spawn_blocking(move || reader.events(&job, after, limit));
                reading.await.map_err(|error| error.to_string())?.map_err(|error| error.to_string())
            }
        };
        let unreadable = |text: String| Refusal::Unavailable(format!("the event log cannot be read: {text}"));
        let page = read(self.last, PAGE).await.map_err(unreadable)?;
        if page.is_empty() && read(0, 1).await.map_err(unreadable)?.is_empty() {
            return Err(Refusal::NoSuchJob(format!("no job {}", self.job)));
        }
        if let Some((last, _)) = page.last() {
            self.last = *last;
        }
        Ok(page)
    }

    /// Sends the stored events past `last`, page by page. The inner error is a refusal, such as an unknown job, that
    /// the caller has to send to the client.
    async fn history(&mut self, reply: &mut ReplySink) -> Result<Result<(), Refusal>, Gone> {
        loop {
            match self.page().await {
                Err(refusal) => return Ok(Err(refusal)),
                Ok(page) if page.is_empty() => return Ok(Ok(())),
                Ok(page) => reply.more(page_value(&page)).await?,
            }
        }
    }

    /// Sends each new event of the job until the client disconnects or the controller forgets the job.
    async fn follow(&mut self, mut reply: ReplySink) -> Result<(), Gone> {
        let _waiting = reply.wait().await?;
        loop {
            let mut queue = match self.enter_queue().await {
                Ok(queue) => queue,
                Err(refusal) => return refuse(reply, &refusal).await,
            };
            if let Err(refusal) = self.history(&mut reply).await? {
                return refuse(reply, &refusal).await;
            }
            loop {
                let event = tokio::select! {
                    event = queue.next() => event,
                    () = reply.closed() => return Err(Gone),
                };
                match event {
                    Some(event) if event.0 > self.last => {
                        self.last = event.0;
                        reply.more(page_value(std::slice::from_ref(&event))).await?;
                    }
                    // The store had this event, too.
                    Some(_) => {}
                    // The follower fell behind, or the job's log is gone, or the controller begins anew: reads the
                    // store.
                    None => break,
                }
            }
        }
    }

    async fn enter_queue(&self) -> Result<Drain<Arc<Numbered>>, Refusal> {
        let ending = || Refusal::Unavailable("the controller is stopping; ask again when it runs again".to_owned());
        let (events, queue) = events();
        let (ready, follows) = oneshot::channel();
        let entry = Entry::Follow { job: self.job.clone(), events, ready };
        self.api.inlet.put(entry).await.map_err(|_| ending())?;
        follows.await.map_err(|_| ending())?;
        Ok(queue)
    }
}

fn page_value(page: &[impl Borrow<Numbered>]) -> Value {
    let events = page.iter().map(Borrow::borrow).map(|(sequence, event)| event_value(*sequence, event));
    json!({ "events": events.collect::<Vec<_>>() })
}

/// Returns an event (RFC 18) as JSON, with its sequence number in the log.
pub(super) fn event_value(sequence: u64, event: &Event) -> Value {
    let context = event.context().cloned().unwrap_or_else(Map::new);
    json!({ "sequence": sequence, "timestamp": event.timestamp(), "name": event.name(), "context": context })
}
