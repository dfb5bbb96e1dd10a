//! Writes the replies of a call to the client.

use std::io;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::net::unix::OwnedWriteHalf;
use tokio::sync::{oneshot, watch};

use super::Service;
use super::limits::{Full, Waiters, Waiting};

/// Longest time for which a client may leave a reply unread once its socket is full. Past the limit the server closes
/// the connection; the client resumes a stream by its sequence number.
const WRITE_LIMIT: Duration = Duration::from_secs(10);

/// The error of a reply that did not reach the client: the client disconnected, reads too slowly, or already has an
/// error as the last reply of its call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the client is gone")]
pub struct Gone;

/// Sink for the replies of a call. A `oneway` call gets no replies.
///
/// The sink may move into another tokio task; the connection reads its next request when the sink is used up or
/// dropped. Dropping the sink before the first reply sends `org.varlink.service.MethodNotImplemented`; dropping it in
/// mid-stream ends the connection.
#[derive(Debug)]
pub struct ReplySink {
    method: String,
    more: bool,
    oneway: bool,
    gone: watch::Receiver<bool>,
    waiters: Waiters,
    /// The writing half of the connection; `None` once `Drop` has handed it back to the connection.
    pen: Option<Pen>,
    back: Option<oneshot::Sender<Pen>>,
}

/// The writing half of a connection, and the state of the current call.
#[derive(Debug)]
pub(super) struct Pen {
    half: Half,
    pub(super) state: PenState,
}

#[derive(Debug)]
enum Half {
    Socket(OwnedWriteHalf),
    /// Keeps the single reply of a call that runs beside an earlier call, until the earlier call is answered.
    Kept(Vec<u8>),
}

impl Half {
    async fn write(&mut self, bytes: Vec<u8>) -> io::Result<()> {
        match self {
            Self::Socket(half) => match tokio::time::timeout(WRITE_LIMIT, half.write_all(&bytes)).await {
                Ok(written) => written,
                Err(_) => Err(io::ErrorKind::TimedOut.into()),
            },
            Self::Kept(kept) => {
                *kept = bytes;
                Ok(())
            }
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PenState {
    /// The call has had no reply yet.
    Unused,
    /// The call has had some replies, but not the last.
    Streaming,
    Finished,
    /// A message may be half written: no other message can follow.
    Broken,
}

impl Pen {
    pub(super) fn new(half: OwnedWriteHalf) -> Self {
        Self { half: Half::Socket(half), state: PenState::Unused }
    }

    /// Creates the pen (the writer of replies) of a call that runs beside an earlier call of its connection. The pen
    /// stores the call's single reply until [`Self::send_kept`] sends it after the earlier call's.
    pub(super) fn keeping() -> Self {
        Self { half: Half::Kept(Vec::new()), state: PenState::Unused }
    }

    /// Sends the reply that `by`, the pen of a call that ran beside an earlier one, has stored. Returns `false` if the
    /// connection must end: the reply cannot be written, or that call gave no pen back (`None`).
    pub(super) async fn send_kept(&mut self, by: Option<Self>) -> bool {
        match by.map(|by| by.half) {
            Some(Half::Kept(reply)) => self.half.write(reply).await.is_ok(),
            Some(Half::Socket(_)) | None => false,
        }
    }

    async fn write(&mut self, message: &Value, then: PenState) -> Result<(), Gone> {
        if matches!(self.state, PenState::Broken | PenState::Finished) {
            return Err(Gone);
        }
        let bytes = framed(message).ok_or(Gone)?;
        // Broken until the write completes: a caller that drops this future half-way leaves half a message.
        self.state = PenState::Broken;
        self.half.write(bytes).await.map_err(|_| Gone)?;
        self.state = then;
        Ok(())
    }

    /// Writes a last message without waiting; the message is lost if the client's socket is full.
    pub(super) fn send_now(&self, message: &Value) {
        if let (Half::Socket(half), Some(bytes)) = (&self.half, framed(message)) {
            let _ = half.try_write(&bytes);
        }
    }

    /// Answers `org.varlink.service.MethodNotImplemented` to a call that the service left without a reply.
    pub(super) async fn not_implemented(&mut self, method: &str) -> Result<(), Gone> {
        self.write(&not_implemented(method), PenState::Finished).await
    }
}

/// Encodes a message as JSON with the closing NUL of Varlink; `None` if the value has no JSON form.
pub(super) fn framed(message: &Value) -> Option<Vec<u8>> {
    let mut bytes = serde_json::to_vec(message).ok()?;
    bytes.push(0);
    Some(bytes)
}

/// Returns the error reply for a client whose connection the server has no room for: `Busy` of the service's first
/// interface, with `text`.
pub(super) fn busy<S: Service>(service: &S, text: &str) -> Value {
    let interface = service.describe().first().map_or("org.varlink.service", |interface| interface.name);
    json!({ "error": format!("{interface}.Busy"), "parameters": { "text": text } })
}

pub(super) fn invalid_parameter(parameter: &str) -> Value {
    json!({ "error": "org.varlink.service.InvalidParameter", "parameters": { "parameter": parameter } })
}

fn not_implemented(method: &str) -> Value {
    json!({ "error": "org.varlink.service.MethodNotImplemented", "parameters": { "method": method } })
}

impl ReplySink {
    /// Creates the sink for the replies of a call, which writes with `pen`, the writing half of the connection. Once
    /// the sink is used up or dropped, the returned receiver gets the pen back.
    pub(super) fn new(
        method: &str,
        (more, oneway): (bool, bool),
        mut pen: Pen,
        gone: watch::Receiver<bool>,
        waiters: Waiters,
    ) -> (Self, oneshot::Receiver<Pen>) {
        let (back, returned) = oneshot::channel();
        pen.state = PenState::Unused;
        (Self { method: method.to_owned(), more, oneway, gone, waiters, pen: Some(pen), back: Some(back) }, returned)
    }

    /// Sends the last reply; `value` is an object.
    pub async fn done(mut self, value: Value) -> Result<(), Gone> {
        self.write(&json!({ "parameters": value }), PenState::Finished).await
    }

    /// Sends one of several replies. A client that did not ask for `more` gets `org.varlink.service.ExpectedMore`, and
    /// the call has ended.
    pub async fn more(&mut self, value: Value) -> Result<(), Gone> {
        if !self.more {
            let error = json!({ "error": "org.varlink.service.ExpectedMore", "parameters": {} });
            self.write(&error, PenState::Finished).await?;
            return Err(Gone);
        }
        self.write(&json!({ "parameters": value, "continues": true }), PenState::Streaming).await
    }

    /// Sends an error as the last reply; `name` is qualified, as in `io.perilog.Controller.NotFound`.
    pub async fn error(mut self, name: &str, parameters: Value) -> Result<(), Gone> {
        self.write(&json!({ "error": name, "parameters": parameters }), PenState::Finished).await
    }

    /// Sends the error `InvalidParameter`; `parameter` names the parameter, or says what is wrong.
    pub async fn invalid_parameter(self, parameter: &str) -> Result<(), Gone> {
        self.error("org.varlink.service.InvalidParameter", json!({ "parameter": parameter })).await
    }

    /// Takes a waiting seat, which the call keeps while it waits for an event. If no waiting seat is free, the client
    /// gets an error (`Busy` of the method's interface), and the call has ended.
    pub async fn wait(&mut self) -> Result<Waiting, Gone> {
        match self.waiters.wait() {
            Ok(waiting) => Ok(waiting),
            Err(Full(text)) => {
                let interface = self.method.rsplit_once('.').map_or("", |(interface, _)| interface);
                let busy = json!({ "error": format!("{interface}.Busy"), "parameters": { "text": text } });
                self.write(&busy, PenState::Finished).await?;
                Err(Gone)
            }
        }
    }

    /// Resolves once the client has disconnected; otherwise never. Cancel safe, so a streaming call can `select!`
    /// between this and its next value.
    pub async fn closed(&self) {
        // An error means that the connection itself has ended.
        let _ = self.gone.clone().wait_for(|gone| *gone).await;
    }

    async fn write(&mut self, message: &Value, then: PenState) -> Result<(), Gone> {
        let pen = self.pen.as_mut().ok_or(Gone)?;
        if self.oneway {
            pen.state = then;
            return Ok(());
        }
        let written = pen.write(message, then).await;
        if written.is_err() {
            tracing::debug!(method = %self.method, "a client went away or was too slow");
        }
        written
    }
}

impl Drop for ReplySink {
    fn drop(&mut self) {
        if let (Some(mut pen), Some(back)) = (self.pen.take(), self.back.take()) {
            if self.oneway {
                pen.state = PenState::Finished;
            }
            // The send fails if the connection has ended.
            let _ = back.send(pen);
        }
    }
}
