//! Queue to the writer: bounded, for everything that may become an input.
//!
//! Sessions and API calls wait here when the writer is busy, which slows them down. The number of entries bounds the
//! queue, and so does the number of bytes in their frames, because a frame may have a megabyte.

use std::sync::Arc;

use perilog_core::JobId;
use perilog_core::controller::io::{Refusal, Reply, Request, SessionId};
use perilog_core::controller::{Input, Settings};
use perilog_core::message::FromAgent;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};

use super::delivery::Delivery;
use super::feed::Feed;
use super::outlet::{EventQueue, Outlet, PartQueue};

/// Maximum number of waiting entries: a few batches, so that a full batch is ready after each commit.
const WAITING: usize = 4_096;
/// Maximum total size, in KiB, of the frames of waiting entries.
const ROOM_KIB: usize = 64 * 1024;

/// An item in the queue to the writer, which takes the items in order of arrival.
#[derive(Debug)]
pub(crate) enum Entry {
    /// A peer has sent a valid preamble. The entries of this session's messages follow.
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
        room: Room,
    },
    Closed {
        session: SessionId,
        why: String,
    },
    Request {
        uid: u32,
        request: Request,
        answer: oneshot::Sender<Result<Reply, Refusal>>,
        /// The queue for the answers of nodes, if the request is a question to nodes.
        parts: Option<PartQueue>,
    },
    /// Registers a follower of a job's events. The writer fires `ready` when the follower is registered: `events` gets
    /// every event that a later commit writes.
    Follow {
        job: JobId,
        events: EventQueue,
        ready: oneshot::Sender<()>,
    },
    /// Registers an edge that follows the changes of all jobs. The writer fires `ready` when the follower is
    /// registered: `feed` gets the changes of every later commit.
    FollowAll {
        feed: Feed,
        ready: oneshot::Sender<()>,
    },
    /// A waiting caller has disconnected: the caller's `answer` is closed.
    HungUp,
    Settings(Settings),
    /// Number of agents that this controller can welcome in a second, as the listener has measured it.
    Redials {
        per_second: u64,
    },
    /// Ends the writer after the earlier entries.
    Stop,
}

impl Entry {
    /// Adds the peer of the entry to `delivery`, or removes it, and returns the input for the machine; `None` if the
    /// machine needs none.
    pub(super) fn into_input(self, delivery: &mut Delivery) -> Option<Input> {
        match self {
            Self::Opened { session, outlet } => {
                delivery.add_session(session, outlet);
                None
            }
            Self::Message { session, names, peer, message, room: _ } => {
                delivery.has_session(session).then_some(Input::Message { session, names, peer, message })
            }
            Self::Closed { session, why } => delivery.remove_session(session).then_some(Input::Closed { session, why }),
            Self::Request { uid, request, answer, parts } => {
                let client = delivery.add_caller(&request, answer, parts);
                Some(Input::Request { client, uid, request })
            }
            Self::Follow { job, events, ready } => {
                delivery.follow(job, events, ready);
                None
            }
            Self::FollowAll { feed, ready } => {
                delivery.add_feed(feed, ready);
                None
            }
            Self::HungUp => delivery.hung_up(),
            Self::Redials { per_second } => Some(Input::Redials { per_second }),
            Self::Settings(_) | Self::Stop => None,
        }
    }
}

/// A frame's share of the queue's bound in KiB; dropping the value frees the share.
pub(crate) type Room = OwnedSemaphorePermit;

/// The sending end of the queue to the writer; cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Inlet {
    queue: mpsc::Sender<Entry>,
    room: Arc<Semaphore>,
}

/// Error: the writer has ended, so the queue takes no more entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ended;

impl Inlet {
    pub(crate) fn new() -> (Self, mpsc::Receiver<Entry>) {
        let (queue, entries) = mpsc::channel(WAITING);
        (Self { queue, room: Arc::new(Semaphore::new(ROOM_KIB)) }, entries)
    }

    pub(crate) async fn put(&self, entry: Entry) -> Result<(), Ended> {
        self.queue.send(entry).await.map_err(|_| Ended)
    }

    /// Waits for room for a frame of `bytes` bytes, and reserves the room until the writer takes the frame's message.
    pub(crate) async fn reserve(&self, bytes: usize) -> Result<Room, Ended> {
        let kib = u32::try_from(bytes / 1024 + 1).unwrap_or(u32::MAX);
        self.room.clone().acquire_many_owned(kib).await.map_err(|_| Ended)
    }

    /// Sends a request of the user `uid` to the machine, and returns the reply. `parts`: the queue for the nodes'
    /// answers, if the request is a question to nodes.
    pub(crate) async fn ask(&self, uid: u32, request: Request, parts: Option<PartQueue>) -> Result<Reply, Refusal> {
        let (answer, answered) = oneshot::channel();
        let ending = || Refusal::Unavailable("the controller is stopping; ask again when it runs again".to_owned());
        self.put(Entry::Request { uid, request, answer, parts }).await.map_err(|Ended| ending())?;
        answered.await.unwrap_or_else(|_| Err(ending()))
    }
}
