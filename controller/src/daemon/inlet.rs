//! Queue to the writer: bounded, for everything that may become an input.
//!
//! Sessions and API calls wait here when the writer is busy, which slows them down. Entries bound the queue, and so do
//! the bytes of their frames, because a frame may be a megabyte.

use std::sync::Arc;

use perilog_core::JobId;
use perilog_core::controller::Settings;
use perilog_core::controller::io::{Refusal, Reply, Request, SessionId};
use perilog_core::message::FromAgent;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};

use super::feed::Feed;
use super::outlet::{EventQueue, Outlet, PartQueue};

/// Most waiting entries: a few batches, so that a full batch is ready after each commit.
const WAITING: usize = 4_096;
/// Most KiB of their frames.
const WEIGHT_KIB: usize = 64 * 1024;

/// Entry for the writer, in order of arrival.
#[derive(Debug)]
pub(crate) enum Entry {
    /// Session with a valid preamble. Its messages follow.
    Opened {
        session: SessionId,
        outlet: Outlet,
    },
    Message {
        session: SessionId,
        names: Option<Vec<String>>,
        peer: String,
        message: FromAgent,
        #[allow(dead_code, reason = "held, not read")]
        weight: Weight,
    },
    Closed {
        session: SessionId,
        why: String,
    },
    Request {
        uid: u32,
        request: Request,
        answer: oneshot::Sender<Result<Reply, Refusal>>,
        /// Where the answers of nodes go, for a question to them.
        parts: Option<PartQueue>,
    },
    /// Events of a job from now on. `ready`: whatever is committed from here on goes into the queue.
    Follow {
        job: JobId,
        events: EventQueue,
        ready: oneshot::Sender<()>,
    },
    /// Registers a follower of all jobs. `ready`: later commits are reported to it.
    FollowAll {
        feed: Feed,
        ready: oneshot::Sender<()>,
    },
    /// A waiting caller has disconnected: its `answer` is closed.
    HungUp,
    Settings(Settings),
    /// Ends the writer after the entries before it.
    Stop,
}

/// A frame's share of the queue's bound; given back when it is dropped.
pub(crate) type Weight = OwnedSemaphorePermit;

/// Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Inlet {
    queue: mpsc::Sender<Entry>,
    weight: Arc<Semaphore>,
}

/// The writer has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ended;

impl Inlet {
    pub(crate) fn new() -> (Self, mpsc::Receiver<Entry>) {
        let (queue, entries) = mpsc::channel(WAITING);
        (Self { queue, weight: Arc::new(Semaphore::new(WEIGHT_KIB)) }, entries)
    }

    pub(crate) async fn put(&self, entry: Entry) -> Result<(), Ended> {
        self.queue.send(entry).await.map_err(|_| Ended)
    }

    /// Reserves room for a frame of `bytes` bytes, until the writer takes its message.
    pub(crate) async fn weigh(&self, bytes: usize) -> Result<Weight, Ended> {
        let kib = u32::try_from(bytes / 1024 + 1).unwrap_or(u32::MAX);
        self.weight.clone().acquire_many_owned(kib).await.map_err(|_| Ended)
    }

    /// Asks the machine.
    pub(crate) async fn ask(&self, uid: u32, request: Request, parts: Option<PartQueue>) -> Result<Reply, Refusal> {
        let (answer, answered) = oneshot::channel();
        let ending = || Refusal::Unavailable("the controller is ending; ask again when it is back".to_owned());
        self.put(Entry::Request { uid, request, answer, parts }).await.map_err(|Ended| ending())?;
        answered.await.unwrap_or_else(|_| Err(ending()))
    }
}
