//! Session of a connection, from its handshake to its end, in one tokio task that reads and writes concurrently.
//!
//! The task of an idle session is as large as its largest future, ten thousand times. So the futures that a session
//! needs only at its begin or end, or only while a message is on its way, are boxed. A future keeps the memory of its
//! arguments to its end, even if they have moved on: so a session gets its handshake boxed, and uses its link in the
//! link's box.

use std::fmt::Display;
use std::net::SocketAddr;
use std::pin::Pin;
use std::time::Duration;

use perilog_core::controller::io::SessionId;
use perilog_core::defect;
use perilog_core::message::{FromAgent, ToAgent};
use perilog_host::fault;
use perilog_host::link::{FrameReader, FrameWriter, Link, LinkError};
use perilog_host::tls::{Identity, PeerChain, ServerTls};
use perilog_proto::{Decoded, Preamble, decode_from_agent, decode_to_agent, encode_to_agent, negotiate};
use tokio::sync::watch;

use super::Sessions;
use super::complaints::canonical;
use super::expiries::By;
use super::greeting::Place;
use crate::daemon::{Drain, End, Entry, Frame, Outbound, Outlet, Room, WeakQueue};
use crate::enroll::enrols;

/// Time that an agent has for its preamble, and again for all pages of its Hello. An agent sends them at once; an agent
/// on a swapping node may need a while.
const HELLO_LIMIT: Duration = Duration::from_secs(30);
/// Time for the peer to read the last messages of a session that the machine closes.
const FLUSH_LIMIT: Duration = Duration::from_secs(5);
/// Maximum size in bytes of all pages of a Hello. A node that is full of tasks and tombstones sends a few MiB.
const HELLO_BYTES: usize = 16 * 1024 * 1024;

/// The reason why a session has ended.
enum Over {
    /// The session ended in an orderly way, or the network failed. The text says which.
    Ended(String),
    /// The peer violated the protocol, with the reason.
    Refused(String),
}

fn refused(why: impl Display) -> Over {
    Over::Refused(why.to_string())
}

impl From<LinkError> for Over {
    fn from(error: LinkError) -> Self {
        match error {
            LinkError::FrameTooLarge { limit, .. } => refused(format_args!("a frame is larger than {limit} bytes")),
            error => Self::Ended(error.to_string()),
        }
    }
}

/// Serves a connection of `peer` to its end, from its handshake on.
pub(super) async fn serve<H>(
    peer: SocketAddr,
    handshake: Pin<Box<H>>,
    plain: bool,
    tls: watch::Receiver<Option<ServerTls>>,
    sessions: &Sessions,
) where
    H: Future<Output = Result<Link, LinkError>>,
{
    match handshake.await {
        // A monitor or `perilog doctor` has looked whether the port is open: nothing was refused.
        Err(LinkError::Cut { .. }) => tracing::debug!(%peer, "the peer left before its handshake"),
        Err(error) => sessions.refused(peer, None, &error),
        Ok(link) => {
            let host = link.identity.names.first().cloned();
            host.iter().for_each(|host| sessions.names.learn(peer, host));
            if let Over::Refused(why) = talk(Box::new(link), plain, tls, sessions).await {
                sessions.refused(peer, host.as_deref(), &why);
            }
        }
    }
}

async fn talk(mut link: Box<Link>, plain: bool, tls: watch::Receiver<Option<ServerTls>>, sessions: &Sessions) -> Over {
    let Identity { names, until_ms, issuer } = std::mem::take(&mut link.identity);
    let Link { peer, ref chain, ref mut reader, ref mut writer, .. } = *link;
    let by = issuer.filter(|issuer| enrols(issuer)).map_or(By::Hand, |_| By::Enrolment);
    let (id, address) = (sessions.next_id(), peer.ip().to_canonical());
    let name = names.first().cloned();
    let mut place = name.as_ref().map(|name| sessions.greetings.enter(name, address, id.0));
    if let Some(place) = &mut place
        && !place.turn().await
    {
        return crowded();
    }
    let greeting = greet(reader, writer, sessions.release);
    let greeted = tokio::select! {
        greeted = Box::pin(tokio::time::timeout(HELLO_LIMIT, greeting)) => greeted,
        over = lost(&mut place) => return over,
    };
    match greeted {
        Err(_) => return refused(format_args!("it did not send its version within {HELLO_LIMIT:?}")),
        Ok(Err(over)) => return over,
        Ok(Ok(())) => {}
    }
    let _expiry = name.as_ref().zip(until_ms).map(|(name, until_ms)| sessions.expiries.enter(peer, name, until_ms, by));
    let (outlet, outbound) = Outlet::new();
    if let Some(per_second) = sessions.rate.count() {
        // The writer's end, if any, ends the session below.
        let _ = Box::pin(sessions.inlet.put(Entry::Redials { per_second })).await;
    }
    if Box::pin(sessions.inlet.put(Entry::Opened { session: id, outlet })).await.is_err() {
        return Over::Ended("the controller is stopping".to_owned());
    }
    let Outbound { frames, end, own } = outbound;
    let names = (!plain).then_some(names);
    let names = if defect!(NamesUnchecked) { None } else { names };
    let session_reader = SessionReader { id, peer, names, own, sessions };
    let reading = session_reader.read(reader, place);
    let welcomed = || name.iter().for_each(|name| sessions.greetings.welcomed(name, address));
    let writing = write(writer, frames, welcomed);
    tokio::pin!(writing);
    let over = tokio::select! {
        over = reading => over,
        over = &mut writing => over,
        () = revoked(chain, tls) => refused("its certificate was revoked"),
        end = end => match end {
            // The writer has dropped the queue: `writing` still writes the queued frames, then a goodbye.
            Ok(End::Close(why)) => {
                let _ = Box::pin(tokio::time::timeout(FLUSH_LIMIT, writing)).await;
                Over::Ended(why)
            }
            Ok(End::Overflow) => refused(
                "it reads its messages too slowly, so the controller ended the session; it can connect again",
            ),
            Err(_) => Over::Ended("the controller is stopping".to_owned()),
        }
    };
    let (Over::Ended(why) | Over::Refused(why)) = &over;
    // An error of a connection names its peer, which the machine knows.
    let why = why.strip_prefix(&format!("{peer}: ")).unwrap_or(why);
    tracing::debug!(%peer, session = id.0, why, "session over");
    // The writer may have ended before.
    let _ = Box::pin(sessions.inlet.put(Entry::Closed { session: id, why: why.to_owned() })).await;
    over
}

/// Waits until a reload finds that the peer's certificate is revoked; for ever if none does.
async fn revoked(chain: &PeerChain, mut tls: watch::Receiver<Option<ServerTls>>) {
    while tls.changed().await.is_ok() {
        let current = tls.borrow_and_update().clone();
        if current.is_some_and(|tls| tls.has_revoked(chain)) {
            return;
        }
    }
    std::future::pending().await
}

/// Exchanges preambles. The controller sends first, so that a peer of another version can log the controller's version.
async fn greet(reader: &mut FrameReader, writer: &mut FrameWriter, release: &str) -> Result<(), Over> {
    writer.send(Preamble::ours(release).encode()).await?;
    let theirs =
        reader.next().await?.ok_or_else(|| Over::Ended("it disconnected before it sent anything".to_owned()))?;
    negotiate(&theirs).map(drop).map_err(refused)
}

/// Writes the queued frames to the peer, and calls `welcomed` when the first Welcome is among them.
async fn write(writer: &mut FrameWriter, mut frames: Drain<Frame>, welcomed: impl FnOnce()) -> Over {
    let mut welcomed = Some(welcomed);
    while let Some(frame) = frames.next().await {
        if welcomed.is_some() && matches!(decode_to_agent(&frame), Ok(Decoded::Known(ToAgent::Welcome { .. }))) {
            welcomed.take().into_iter().for_each(|welcomed| welcomed());
        }
        fault::point_if("before-ack", || matches!(decode_to_agent(&frame), Ok(Decoded::Known(ToAgent::Ack { .. }))));
        if let Err(error) = writer.send(*frame).await {
            return error.into();
        }
    }
    match writer.close().await {
        Ok(()) => Over::Ended("the controller closed the connection".to_owned()),
        Err(error) => error.into(),
    }
}

/// The half of a session that reads the peer's messages.
struct SessionReader<'a> {
    id: SessionId,
    peer: SocketAddr,
    /// Hosts that the peer's certificate names; `None` in plain text.
    names: Option<Vec<String>>,
    own: WeakQueue<Frame>,
    sessions: &'a Sessions,
}

impl SessionReader<'_> {
    async fn read(self, reader: &mut FrameReader, mut place: Option<Place<'_>>) -> Over {
        let greeted = tokio::select! {
            greeted = Box::pin(tokio::time::timeout(HELLO_LIMIT, self.hello(reader))) => greeted,
            over = lost(&mut place) => return over,
        };
        drop(place);
        match greeted {
            Err(_) => return refused(format_args!("it did not send its whole Hello within {HELLO_LIMIT:?}")),
            Ok(Err(over)) => return over,
            Ok(Ok(())) => {}
        }
        loop {
            let passed = match frame(reader).await {
                Ok(frame) => Box::pin(self.pass(frame)).await,
                Err(over) => Err(over),
            };
            if let Err(over) = passed {
                return over;
            }
        }
    }

    /// Reads all pages of the agent's Hello, and passes each page to the writer.
    async fn hello(&self, reader: &mut FrameReader) -> Result<(), Over> {
        let (mut bytes, mut _large) = (0, None);
        loop {
            let frame = frame(reader).await?;
            bytes += frame.len();
            if bytes > HELLO_BYTES {
                return Err(refused(format_args!("its Hello is larger than {HELLO_BYTES} bytes")));
            }
            let Some((message, room)) = self.read_frame(&frame).await? else {
                return Err(refused("it sent an unknown message before its Hello"));
            };
            let FromAgent::Hello(page) = &message else {
                return Err(refused("it sent another message before its Hello"));
            };
            let more = page.more;
            self.put(message, room).await?;
            if !more {
                return Ok(());
            }
            if _large.is_none() {
                _large = self.sessions.greetings.large.acquire().await.ok();
            }
        }
    }

    /// Passes the message in a frame to the writer.
    async fn pass(&self, frame: bytes::Bytes) -> Result<(), Over> {
        match self.read_frame(&frame).await? {
            Some((message, room)) => self.put(message, room).await,
            None => Ok(()),
        }
    }

    /// Returns the message in a frame; `None` for an unknown message, which the session answers with Unsupported.
    async fn read_frame(&self, frame: &[u8]) -> Result<Option<(FromAgent, Room)>, Over> {
        let room = self.sessions.inlet.reserve(frame.len()).await.map_err(ending)?;
        match decode_from_agent(frame) {
            Ok(Decoded::Known(message)) => Ok(Some((message, room))),
            Ok(Decoded::Unknown(message)) => {
                let unsupported = encode_to_agent(&ToAgent::Unsupported { message });
                self.own.put(Frame::new(unsupported)).map_err(|_| refused("it reads its messages too slowly"))?;
                Ok(None)
            }
            Err(error) => Err(refused(error)),
        }
    }

    async fn put(&self, message: FromAgent, room: Room) -> Result<(), Over> {
        // Only a Hello needs the sender's identity; other messages come by the thousand.
        let (names, peer) = match &message {
            FromAgent::Hello(_) => (self.names.clone(), canonical(self.peer).to_string()),
            _ => (Some(Vec::new()), String::new()),
        };
        let entry = Entry::Message { session: self.id, names, peer, message, room };
        self.sessions.inlet.put(entry).await.map_err(ending)
    }
}

async fn frame(reader: &mut FrameReader) -> Result<bytes::Bytes, Over> {
    reader.next().await?.ok_or_else(|| Over::Ended("the agent closed the connection".to_owned()))
}

fn crowded() -> Over {
    refused("another peer with the same certificate took its place, before it had sent its Hello")
}

/// Waits until another peer with the same certificate takes this peer's place, and returns that as the reason of the
/// session's end. If `place` is `None`, waits for ever.
async fn lost(place: &mut Option<Place<'_>>) -> Over {
    match place {
        Some(place) => place.lost().await,
        None => std::future::pending().await,
    }
    crowded()
}

fn ending(_: crate::daemon::Ended) -> Over {
    Over::Ended("the controller is stopping".to_owned())
}

#[cfg(test)]
mod tests;
