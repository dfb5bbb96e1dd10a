//! Session with a controller: preambles, then frames both ways until either side ends it.

use std::time::Duration;

use perilog_core::message::FromAgent;
use perilog_host::fault;
use perilog_host::link::{FrameReader, FrameWriter, Link, LinkError};
use perilog_proto::{DecodeError, Decoded, Mismatch, Preamble, decode_to_agent, encode_from_agent, negotiate};
use tokio::sync::{mpsc, oneshot};

use super::LinkEvent;

/// Maximum number of messages that wait for the writer. At the start of a session the machine sends Hello at once (its
/// tombstones in parts of some hundred), and a handful of messages for each of at most 400 tasks. Only a controller
/// that reads nothing fills the queue; the session then ends, and the next session repeats all messages.
const OUTBOX: usize = 4096;
/// Limit for both preambles together: sending this agent's, and receiving the peer's. A peer that is silent for longer
/// is no controller.
const PREAMBLE_LIMIT: Duration = Duration::from_secs(20);
/// Limit for sending the last messages of a finished session, and again for closing its connection. A peer that reads
/// needs milliseconds.
const GOODBYE_LIMIT: Duration = Duration::from_secs(1);

// Neither crate knows the other.
const _: () = assert!(perilog_proto::MAX_MESSAGE <= perilog_host::link::MAX_FRAME, "a message fits a frame");

/// The queue of messages to the controller. An answer to an operator's question waits for room in the queue; the
/// agent's event loop never waits.
pub type Outbox = mpsc::Sender<FromAgent>;

/// Handle by which the agent's event loop sends messages in a session; dropping the handle ends the session.
#[derive(Debug)]
pub struct Session {
    pub outbox: Outbox,
    _hold: oneshot::Sender<()>,
}

/// The reason why a session ended without an orderly close.
#[derive(Debug, thiserror::Error)]
pub(super) enum SessionError {
    #[error(transparent)]
    Link(#[from] LinkError),
    #[error(transparent)]
    Mismatch(#[from] Mismatch),
    #[error("the peer sent an invalid message: {0}")]
    Malformed(#[from] DecodeError),
    #[error(
        "the peer did not send its version within {PREAMBLE_LIMIT:?}: is it a perilog-controller, and does it answer?"
    )]
    Silent,
    #[error("the controller closed the connection before it sent its version; the controller's log may say why")]
    Closed,
}

/// A link on which both sides have agreed on a version.
#[derive(Debug)]
pub(super) struct AgreedLink {
    link: Link,
    /// The controller's release.
    release: String,
}

/// Exchanges preambles. `release`: this agent's release.
pub(super) async fn agree(mut link: Link, release: &str) -> Result<AgreedLink, SessionError> {
    let preambles = async {
        link.writer.send(Preamble::ours(release).encode()).await?;
        let frame = link.reader.next().await?.ok_or(SessionError::Closed)?;
        Ok::<_, SessionError>(negotiate(&frame)?)
    };
    let agreed = tokio::time::timeout(PREAMBLE_LIMIT, preambles).await.map_err(|_| SessionError::Silent)??;
    Ok(AgreedLink { link, release: agreed.release })
}

/// Runs a session to its end. Sends `Up` into `events`, and `Down` when the session ends. `counter` is the number of
/// the session.
pub(super) async fn run(
    agreed: AgreedLink,
    events: &mpsc::Sender<LinkEvent>,
    counter: u64,
) -> Result<(), SessionError> {
    let AgreedLink { link: Link { peer, mut reader, mut writer, .. }, release } = agreed;
    let (outbox, queue) = mpsc::channel(OUTBOX);
    let (hold, dropped) = oneshot::channel();
    let session = Session { outbox: outbox.clone(), _hold: hold };
    if events.send(LinkEvent::Up { counter, session, peer: format!("{peer} (release {release})") }).await.is_err() {
        return Ok(());
    }
    let (close, closing) = oneshot::channel::<()>();
    let ended = {
        let transmitting = transmit(&mut writer, queue, closing);
        tokio::pin!(transmitting);
        // Both directions run at once: a peer that waits for the agent to read must not block itself.
        tokio::select! {
            ended = receive(&mut reader, events, counter, &outbox) => ended,
            ended = &mut transmitting => ended,
            _ = dropped => {
                // Writes the messages from before the loop ended the session: they may give the reason (a refused
                // epoch).
                drop(close);
                tokio::time::timeout(GOODBYE_LIMIT, transmitting).await.unwrap_or(Ok(()))
            }
        }
    };
    // The session has ended in any case, so a failed goodbye changes nothing.
    let _ = tokio::time::timeout(GOODBYE_LIMIT, writer.close()).await;
    // Without a loop, the process is ending.
    let _ = events.send(LinkEvent::Down { counter }).await;
    ended
}

async fn receive(
    reader: &mut FrameReader,
    events: &mpsc::Sender<LinkEvent>,
    counter: u64,
    outbox: &Outbox,
) -> Result<(), SessionError> {
    while let Some(frame) = reader.next().await? {
        match decode_to_agent(&frame)? {
            Decoded::Known(message) => {
                if events.send(LinkEvent::Message { counter, message }).await.is_err() {
                    return Ok(());
                }
            }
            Decoded::Unknown(message) => {
                tracing::warn!(
                    "the controller sent a message (type {message}) that this agent does not know, and ignores. \
                     Upgrade perilog-agent"
                );
                // A full outbox is about to end the session anyway.
                let _ = outbox.try_send(FromAgent::Unsupported { message });
            }
        }
    }
    Ok(())
}

/// Writes queued messages. Once the sender of `closing` is dropped, writes the queued messages and ends.
async fn transmit(
    writer: &mut FrameWriter,
    mut queue: mpsc::Receiver<FromAgent>,
    mut closing: oneshot::Receiver<()>,
) -> Result<(), SessionError> {
    loop {
        let message = tokio::select! {
            biased;
            message = queue.recv() => message,
            _ = &mut closing, if !queue.is_closed() => {
                queue.close();
                continue;
            }
        };
        let Some(message) = message else { return Ok(()) };
        fault::point_if("before-accepted", || matches!(message, FromAgent::Accepted { .. }));
        writer.send(encode_from_agent(&message)).await?;
        fault::point_if("after-finished", || matches!(message, FromAgent::Finished { .. }));
    }
}
