//! Frames over TCP or TLS. A frame is bytes; callers give them meaning.
//!
//! ```text
//!   dial ───────────────┐                     ┌─ FrameReader ─ next()
//!                       ├── handshake ── Link ┤
//!   Listener ─ Incoming ┘   (within a limit)  └─ FrameWriter ─ send()
//! ```
//!
//! A silent connection costs nothing: the kernel watches it ([`Keepalive`]) and no timer runs. A daemon may have ten
//! thousand connections, so buffers start small and shrink again after a large frame.
//!
//! Without certificates the link is plain text, for closed fabrics; the daemons document the switch. The identity of a
//! plain-text peer is unproven.

mod accept;
mod dial;
mod error;
mod frame;
mod keepalive;
mod stream;

pub use self::accept::{Incoming, Listener, bind};
pub(crate) use self::dial::connect;
pub use self::dial::{Dial, dial, is_roots};
pub use self::error::LinkError;
pub(crate) use self::frame::codec;
pub use self::frame::{FrameReader, FrameWriter, MAX_FRAME};
pub use self::keepalive::Keepalive;
pub(crate) use self::stream::Shared;
pub use self::stream::Stream;

use std::net::SocketAddr;

use crate::tls::{Identity, PeerChain};

/// A connection that is ready for frames.
#[derive(Debug)]
pub struct Link {
    pub peer: SocketAddr,
    /// Identity of the peer by its verified certificate.
    pub identity: Identity,
    /// Certificates that the peer showed; empty in plain text.
    pub chain: PeerChain,
    pub reader: FrameReader,
    pub writer: FrameWriter,
}

impl Link {
    pub(crate) fn new(peer: SocketAddr, stream: Stream) -> Self {
        let identity = stream.peer_identity();
        let shared = Shared::new(stream);
        let (reader, writer) = frame::split(peer, shared.clone());
        Self { peer, identity, chain: PeerChain::of(shared), reader, writer }
    }
}

#[cfg(test)]
mod tests;
