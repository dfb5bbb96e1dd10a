//! Calls and streams over one connection to the broker. A separate task reads without pause: unread messages would pile
//! up in the broker's memory without a bound.

use std::collections::HashMap;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::BytesMut;
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{Mutex as AsyncMutex, mpsc, oneshot};

use super::wire::{Kind, Message};

/// Longest wait for the answer to one call. A module that Flux reloaded meanwhile never answers.
const ANSWER: Duration = Duration::from_secs(30);
/// Maximum number of replies of one stream that wait until the session reads them.
const REPLIES: usize = 1_024;
/// Maximum number of requests to the edge's service `perilog` that wait until the edge refuses them.
const REQUESTS: usize = 64;
const EPERM: u32 = 1;
const ENOSYS: u32 = 38;

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RpcError {
    #[error("Flux is gone: {0}")]
    Gone(String),
    #[error("Flux refuses {topic}: errno {errnum}{}{text}", if text.is_empty() { "" } else { ": " })]
    Refused { topic: String, errnum: u32, text: String },
    #[error("Flux did not answer {0} within {ANSWER:?}")]
    Late(String),
    #[error("Flux answered {0} with a text that is no JSON")]
    Malformed(String),
}

impl RpcError {
    /// Returns the errno with which Flux refused the call; `None`: the call failed in another way.
    pub const fn errnum(&self) -> Option<u32> {
        match self {
            Self::Refused { errnum, .. } => Some(*errnum),
            _ => None,
        }
    }
}

type Answer = Result<Value, RpcError>;

enum Waits {
    Call(oneshot::Sender<Answer>),
    Stream(mpsc::Sender<Answer>),
}

/// A connection to Flux's broker. All clones share the connection; it closes when the last clone is dropped.
#[derive(Clone)]
pub struct Broker(Arc<Inner>);

struct Inner {
    writer: AsyncMutex<OwnedWriteHalf>,
    waits: Arc<Mutex<Waiting>>,
    tag: AtomicU32,
    reader: tokio::task::AbortHandle,
}

#[derive(Default)]
struct Waiting {
    by_tag: HashMap<u32, (String, Waits)>,
    /// The reason why the connection ended; `None`: the connection is open.
    ended: Option<String>,
}

impl Broker {
    /// Connects to the broker's local socket.
    ///
    /// # Errors
    /// The broker does not listen at `path`, the system does not let this process open it, or the broker refuses this
    /// user.
    pub async fn connect(path: &Path) -> io::Result<Self> {
        let mut stream = UnixStream::connect(path).await?;
        match stream.read_u8().await? {
            0 => {}
            errno => return Err(io::Error::from_raw_os_error(errno.into())),
        }
        let (reader, writer) = stream.into_split();
        let waits = Arc::<Mutex<Waiting>>::default();
        let (requests, refused) = mpsc::channel(REQUESTS);
        let reading = tokio::spawn(read(reader, waits.clone(), requests)).abort_handle();
        let broker =
            Self(Arc::new(Inner { writer: AsyncMutex::new(writer), waits, tag: AtomicU32::new(1), reader: reading }));
        tokio::spawn(refuse(Arc::downgrade(&broker.0), refused));
        Ok(broker)
    }

    /// Makes one call to a service of Flux and returns its answer.
    ///
    /// # Errors
    /// [`RpcError`]
    pub async fn rpc(&self, topic: &str, payload: &Value, nodeid: u32) -> Answer {
        let (answer, answered) = oneshot::channel();
        let tag = self.send(topic, payload, nodeid, Waits::Call(answer)).await?;
        match tokio::time::timeout(ANSWER, answered).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => Err(RpcError::Gone("the connection ended".to_owned())),
            Err(_) => {
                self.0.waiting().by_tag.remove(&tag);
                Err(RpcError::Late(topic.to_owned()))
            }
        }
    }

    /// Makes a call with many answers. The stream always ends with an error: ENODATA is the regular end.
    ///
    /// # Errors
    /// [`RpcError::Gone`]
    pub async fn stream(&self, topic: &str, payload: &Value, nodeid: u32) -> Result<mpsc::Receiver<Answer>, RpcError> {
        let (replies, stream) = mpsc::channel(REPLIES);
        self.send(topic, payload, nodeid, Waits::Stream(replies)).await?;
        Ok(stream)
    }

    async fn send(&self, topic: &str, payload: &Value, nodeid: u32, waits: Waits) -> Result<u32, RpcError> {
        let tag = self.0.tag.fetch_add(1, Ordering::Relaxed);
        let is_streaming = matches!(waits, Waits::Stream(_));
        {
            let mut waiting = self.0.waiting();
            if let Some(why) = &waiting.ended {
                return Err(RpcError::Gone(why.clone()));
            }
            waiting.by_tag.insert(tag, (topic.to_owned(), waits));
        }
        let message = Message::request(topic, &payload.to_string(), nodeid, tag, is_streaming);
        self.0.write(&message).await.map_err(|error| RpcError::Gone(error.to_string()))?;
        Ok(tag)
    }
}

impl Inner {
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        lock(&self.waits)
    }

    async fn write(&self, message: &Message) -> io::Result<()> {
        self.writer.lock().await.write_all(&message.encode()).await
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.reader.abort();
    }
}

fn lock(waits: &Mutex<Waiting>) -> MutexGuard<'_, Waiting> {
    waits.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn read(mut from: OwnedReadHalf, waits: Arc<Mutex<Waiting>>, requests: mpsc::Sender<Message>) {
    let mut buffer = BytesMut::new();
    let why = loop {
        match Message::decode(&mut buffer) {
            Ok(Some(message)) => {
                deliver(message, &waits, &requests).await;
                continue;
            }
            Ok(None) => {}
            Err(malformed) => break malformed.to_string(),
        }
        match from.read_buf(&mut buffer).await {
            Ok(0) => break "the broker closed the connection".to_owned(),
            Ok(_) => {}
            Err(error) => break error.to_string(),
        }
    };
    let mut waiting = lock(&waits);
    waiting.ended = Some(why);
    // Dropping the senders tells each call and stream that the connection ended.
    waiting.by_tag.clear();
}

async fn deliver(message: Message, waits: &Mutex<Waiting>, requests: &mpsc::Sender<Message>) {
    let errnum = match message.kind {
        Kind::Response { errnum } => errnum,
        Kind::Request { .. } => {
            // Past the bound a request gets no answer, so that the reader goes on.
            let _ = requests.try_send(message);
            return;
        }
        Kind::Other(_) => return,
    };
    let stream = {
        let mut waiting = lock(waits);
        match waiting.by_tag.get(&message.matchtag) {
            Some((topic, Waits::Stream(stream))) => {
                let (topic, stream) = (topic.clone(), stream.clone());
                if errnum != 0 {
                    waiting.by_tag.remove(&message.matchtag);
                }
                Some((stream, answer(&topic, errnum, &message)))
            }
            Some((_, Waits::Call(_))) => {
                if let Some((topic, Waits::Call(call))) = waiting.by_tag.remove(&message.matchtag) {
                    let _ = call.send(answer(&topic, errnum, &message));
                }
                None
            }
            None => None,
        }
    };
    if let Some((stream, answer)) = stream {
        // The reader waits for room in the stream, so the session gets this answer before all later messages.
        let _ = stream.send(answer).await;
    }
}

fn answer(topic: &str, errnum: u32, message: &Message) -> Answer {
    let text = message.payload.as_deref().unwrap_or_default();
    if errnum != 0 {
        let text = String::from_utf8_lossy(text).into_owned();
        return Err(RpcError::Refused { topic: topic.to_owned(), errnum, text });
    }
    if text.is_empty() {
        return Ok(Value::Null);
    }
    serde_json::from_slice(text).map_err(|_| RpcError::Malformed(topic.to_owned()))
}

/// Refuses the requests that arrive for the edge's service `perilog`, until the connection ends. The service's name is
/// only a lock, but guests can send requests to it, and a sender without an answer may wait for ever.
async fn refuse(inner: std::sync::Weak<Inner>, mut requests: mpsc::Receiver<Message>) {
    while let Some(request) = requests.recv().await {
        let errnum = if request.is_of_owner() { ENOSYS } else { EPERM };
        let (Some(inner), Some(refusal)) = (inner.upgrade(), request.refusal(errnum)) else { continue };
        if inner.write(&refusal).await.is_err() {
            return;
        }
    }
}
