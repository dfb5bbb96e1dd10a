//! Frames over TCP or TLS, with no meaning of their own.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;

use crate::tls::{ClientTls, ServerTls, TlsFault};

/// The largest frame. Whoever has more to say says it in pages.
pub const MAX_FRAME: usize = 1024 * 1024;

/// How the kernel watches a silent connection (tcp(7)). No timer of ours runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Keepalive {
    pub idle: Duration,
    pub interval: Duration,
    pub count: u32,
    /// How long sent data may stay unacknowledged (TCP_USER_TIMEOUT).
    pub user_timeout: Duration,
}

impl Default for Keepalive {
    fn default() -> Self {
        Self {
            idle: Duration::from_secs(30),
            interval: Duration::from_secs(10),
            count: 3,
            user_timeout: Duration::from_secs(60),
        }
    }
}

/// What went wrong between us and a peer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LinkError {
    #[error("{peer}: {source}")]
    Io { peer: String, source: io::Error },
}

impl LinkError {
    /// The TLS fault behind it, if there is one.
    pub fn tls_fault(&self) -> Option<TlsFault> {
        todo!()
    }
}

/// One connection, ready for frames.
#[derive(Debug)]
pub struct Link {
    pub peer: SocketAddr,
    /// DNS names in the peer's verified certificate; none in plain text.
    pub names: Vec<String>,
    pub reader: FrameReader,
    pub writer: FrameWriter,
}

/// Reads frames.
#[derive(Debug)]
pub struct FrameReader {}

impl FrameReader {
    /// The next frame, or none at an orderly end. Cancel safe.
    pub async fn next(&mut self) -> Result<Option<Bytes>, LinkError> {
        todo!()
    }
}

/// Writes frames, without copying them.
#[derive(Debug)]
pub struct FrameWriter {}

impl FrameWriter {
    /// Writes one frame. If it is dropped half-way, the next call first writes the rest: frames are never torn.
    pub async fn send(&mut self, _frame: Bytes) -> Result<(), LinkError> {
        todo!()
    }

    /// Says goodbye (TLS close_notify, FIN).
    pub async fn close(&mut self) -> Result<(), LinkError> {
        todo!()
    }
}

/// How to dial.
#[derive(Debug, Clone)]
pub struct Dial {
    /// `host:port`.
    pub address: String,
    /// The name that the peer's certificate must bear. Not used in plain text.
    pub server_name: String,
    /// None: plain text.
    pub tls: Option<ClientTls>,
    pub keepalive: Keepalive,
    /// For all of it: name, connection, handshake.
    pub limit: Duration,
}

/// Dials and shakes hands.
pub async fn dial(_dial: &Dial) -> Result<Link, LinkError> {
    todo!()
}

/// Binds a listening TCP socket with a long backlog.
pub fn bind(_address: SocketAddr) -> Result<std::net::TcpListener, LinkError> {
    todo!()
}

/// Accepts connections.
#[derive(Debug)]
pub struct Listener {}

impl Listener {
    /// `tls`: none is plain text. Needs a running tokio runtime.
    pub fn new(_listener: std::net::TcpListener, _tls: Option<ServerTls>, _keepalive: Keepalive) -> io::Result<Self> {
        todo!()
    }

    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        todo!()
    }

    /// Certificates for the connections from now on.
    pub fn set_tls(&mut self, _tls: Option<ServerTls>) {
        todo!()
    }

    /// The next connection, once there is room for one more handshake. Never fails: it logs and pauses. Cancel safe.
    pub async fn next(&self) -> Incoming {
        todo!()
    }
}

/// A connection that has not shaken hands. Holds its place among the handshakes.
#[derive(Debug)]
pub struct Incoming {
    pub peer: SocketAddr,
}

impl Incoming {
    /// Shakes hands within a limit; to be run in a task of its own.
    pub async fn handshake(self) -> Result<Link, LinkError> {
        todo!()
    }
}
