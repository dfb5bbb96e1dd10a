//! Queues from the writer: each queue is bounded, and the writer never waits for a queue. The writer disconnects a peer
//! that does not read its queue. Such a peer can catch up later: an agent by Hello, a follower by sequence number.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use perilog_core::HostName;
use tokio::sync::{mpsc, oneshot};

use crate::store::Numbered;

/// Maximum number of frames that wait for a peer. Many frames are normal: after an absence, the controller acknowledges
/// each finished task.
const FRAMES: usize = 4_096;
/// Maximum number of bytes in waiting frames: the memory that a peer can hold before the writer disconnects it.
const FRAME_BYTES: usize = 4 * 1024 * 1024;
/// Maximum number of events that wait for a follower; a slower follower reads them from the store later. The number is
/// small, because an event of a large job may have hundreds of KiB.
const EVENTS: usize = 64;
/// Maximum number of parts of nodes' answers that wait for a reader: all nodes of a large job answer at once.
const PARTS: usize = 4_096;
/// Maximum number of bytes in the waiting parts of nodes' answers.
const PART_BYTES: usize = 16 * 1024 * 1024;

/// The reason why the writer ended a session.
#[derive(Debug)]
pub(crate) enum End {
    /// The session ends in an orderly way, for this reason: it still sends the frames that are in its queue.
    Close(String),
    /// The peer does not read its frames, so the queue is full.
    Overflow,
}

/// A frame in a queue. Boxed, because tokio allocates room for 32 items with each queue: ten thousand queues with few
/// frames each would waste memory.
pub(crate) type Frame = Box<Bytes>;

/// The writer's half of the queue of frames to a session's peer; it can also end the session.
#[derive(Debug)]
pub(crate) struct Outlet {
    frames: Queue<Frame>,
    end: oneshot::Sender<End>,
}

/// The receiving half of an [`Outlet`], which the session holds.
#[derive(Debug)]
pub(crate) struct Outbound {
    pub(crate) frames: Drain<Frame>,
    pub(crate) end: oneshot::Receiver<End>,
    /// Queue for frames that the session sends to its peer by itself, without the writer. Closed when the writer drops
    /// the [`Outlet`].
    pub(crate) own: WeakQueue<Frame>,
}

impl Outlet {
    pub(crate) fn new() -> (Self, Outbound) {
        let (frames, drain) = queue(FRAMES, FRAME_BYTES);
        let (end, ended) = oneshot::channel();
        let own = frames.downgrade();
        (Self { frames, end }, Outbound { frames: drain, end: ended, own })
    }

    /// Queues a frame.
    ///
    /// # Errors
    /// [`Overflow`]: the queue is full, or the session has ended.
    pub(crate) fn send(&self, frame: Bytes) -> Result<(), Overflow> {
        self.frames.put(Box::new(frame))
    }

    pub(crate) fn end(self, end: End) {
        // The session may have ended by itself.
        let _ = self.end.send(end);
    }
}

/// A part of a node's answer to a client's question, for example lines of a job's output. `last`: no part of this node
/// follows; `lost`: the node disconnected before its last part.
#[derive(Debug)]
pub(crate) struct Part {
    pub(crate) host: HostName,
    pub(crate) text: String,
    pub(crate) last: bool,
    pub(crate) lost: bool,
}

pub(crate) type PartQueue = Queue<Part>;
/// Queue of a job's events to one follower. The queues of several followers share the events themselves.
pub(crate) type EventQueue = Queue<Arc<Numbered>>;

pub(crate) fn parts() -> (PartQueue, Drain<Part>) {
    queue(PARTS, PART_BYTES)
}

pub(crate) fn events() -> (EventQueue, Drain<Arc<Numbered>>) {
    // Several queues share an event, so the queue bounds only the number of events.
    queue(EVENTS, usize::MAX)
}

/// An item of a [`Queue`]. A queue bounds the number of its items, and also the sum of their sizes.
pub(crate) trait Heavy {
    fn bytes(&self) -> usize;
}

impl Heavy for Frame {
    fn bytes(&self) -> usize {
        self.len()
    }
}

impl Heavy for Part {
    fn bytes(&self) -> usize {
        self.text.len()
    }
}

impl Heavy for Arc<Numbered> {
    fn bytes(&self) -> usize {
        0
    }
}

/// Error: the queue is full, or its reader is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Overflow;

/// A bounded queue whose sender never waits: a full queue is an error.
#[derive(Debug)]
pub(crate) struct Queue<T> {
    items: mpsc::Sender<T>,
    bytes: Arc<AtomicUsize>,
    most: usize,
}

#[derive(Debug)]
pub(crate) struct WeakQueue<T> {
    items: mpsc::WeakSender<T>,
    bytes: Arc<AtomicUsize>,
    most: usize,
}

#[derive(Debug)]
pub(crate) struct Drain<T> {
    items: mpsc::Receiver<T>,
    bytes: Arc<AtomicUsize>,
}

fn queue<T>(items: usize, most: usize) -> (Queue<T>, Drain<T>) {
    let (sender, receiver) = mpsc::channel(items);
    let bytes = Arc::<AtomicUsize>::default();
    (Queue { items: sender, bytes: bytes.clone(), most }, Drain { items: receiver, bytes })
}

impl<T: Heavy> Queue<T> {
    pub(crate) fn put(&self, item: T) -> Result<(), Overflow> {
        let bytes = item.bytes();
        if self.bytes.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes) > self.most {
            return Err(Overflow);
        }
        self.items.try_send(item).map_err(|_| Overflow)
    }

    /// Returns `true` if the reader is gone.
    pub(crate) fn is_closed(&self) -> bool {
        self.items.is_closed()
    }

    fn downgrade(&self) -> WeakQueue<T> {
        WeakQueue { items: self.items.downgrade(), bytes: self.bytes.clone(), most: self.most }
    }
}

impl<T: Heavy> WeakQueue<T> {
    /// Queues an item; returns `Err` if the queue is full or closed.
    pub(crate) fn put(&self, item: T) -> Result<(), Overflow> {
        let items = self.items.upgrade().ok_or(Overflow)?;
        Queue { items, bytes: self.bytes.clone(), most: self.most }.put(item)
    }
}

impl<T: Heavy> Drain<T> {
    /// Returns the next item; `None`: the writer has dropped the queue.
    pub(crate) async fn next(&mut self) -> Option<T> {
        let item = self.items.recv().await?;
        self.bytes.fetch_sub(item.bytes(), Ordering::Relaxed);
        Some(item)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_queue_is_bounded_by_number_and_by_bytes() {
        let (outlet, mut outbound) = Outlet::new();
        let frame = Bytes::from(vec![0; FRAME_BYTES / 4]);
        for _ in 0..4 {
            outlet.send(frame.clone()).unwrap();
        }
        assert_eq!(outlet.send(Bytes::from_static(b"x")), Err(Overflow));
        let (queue, mut drain) = events();
        let event = |n| Arc::new((n, perilog_core::Event::at_millis(1, "x", None)));
        for n in 0..EVENTS as u64 {
            queue.put(event(n)).unwrap();
        }
        assert_eq!(queue.put(event(0)), Err(Overflow));
        drop(queue);
        // Delivers the sent items, then ends.
        for n in 0..EVENTS as u64 {
            assert_eq!(drain.next().await.unwrap().0, n);
        }
        assert!(drain.next().await.is_none());
        assert_eq!(outbound.frames.next().await.as_deref(), Some(&frame));
        outlet.end(End::Close("over".to_owned()));
        assert!(matches!(outbound.end.await, Ok(End::Close(_))));
        assert_eq!(outbound.own.put(Frame::default()), Err(Overflow));
    }
}
