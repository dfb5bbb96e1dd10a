//! Accepting side of a link (a connection over TCP or TLS that carries frames): the listener and the handshake.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::io::Errno;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_rustls::TlsAcceptor;

use super::{Keepalive, Link, LinkError, Stream};
use crate::clock;
use crate::complaints::Window;
use crate::tls::ServerTls;

/// Maximum number of concurrent handshakes. The processor bounds them, so more would slow down each handshake and take
/// memory. Further connections wait in the listen queue.
const MAX_HANDSHAKES: usize = 256;
/// Limit of a handshake. A silent peer counts as a concurrent handshake for this time.
const HANDSHAKE_LIMIT: Duration = Duration::from_secs(10);
/// Pause after an error of accept(2) such as EMFILE, which would come again at once.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Time in milliseconds in which at most one error of accept(2) is logged.
const ONE_LINE_MS: u64 = 60_000;
/// Length of the listen queue in connections: all agents of a large cluster dial at once after a restart. The kernel
/// limits the length to net.core.somaxconn.
const BACKLOG: u32 = 65_535;

/// Binds a listening TCP socket, with a long queue. Needs a running tokio runtime.
pub fn bind(address: SocketAddr) -> Result<std::net::TcpListener, LinkError> {
    let listen = || {
        let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
        // After a restart the remains of old connections must not keep the daemon from listening.
        socket.set_reuseaddr(true)?;
        socket.bind(address)?;
        socket.listen(BACKLOG)?.into_std()
    };
    listen().map_err(|source| LinkError::Bind { address, source })
}

/// A listening socket with its TLS settings.
#[derive(Debug)]
pub struct Listener {
    tcp: TcpListener,
    tls: Option<ServerTls>,
    keepalive: Keepalive,
    handshakes: Arc<Semaphore>,
    failures: Mutex<Window>,
}

impl Listener {
    /// Wraps a listener from [`bind`] or from socket activation; without `tls` the link is plain text. Needs a running
    /// tokio runtime.
    pub fn new(listener: std::net::TcpListener, tls: Option<ServerTls>, keepalive: Keepalive) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        let tcp = TcpListener::from_std(listener)?;
        Ok(Self {
            tcp,
            tls,
            keepalive,
            handshakes: Arc::new(Semaphore::new(MAX_HANDSHAKES)),
            failures: Mutex::default(),
        })
    }

    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.tcp.local_addr()
    }

    /// Logs that accept(2) failed, unless such a line was logged lately.
    fn complain(&self, error: &io::Error) {
        let now_ms = clock::mono_ms();
        let (is_logged, _) = self.failures.lock().unwrap_or_else(PoisonError::into_inner).admit(now_ms, 1, ONE_LINE_MS);
        let hint = match Errno::from_io_error(error) {
            Some(Errno::MFILE) => "; this process may not open more files: raise LimitNOFILE= of its unit",
            Some(Errno::NFILE) => "; this host may not open more files: raise fs.file-max",
            _ => "",
        };
        if is_logged {
            tracing::warn!("cannot accept connections ({error}){hint}; trying again every {ACCEPT_PAUSE:?}");
        }
    }

    /// Sets the certificates for later connections.
    pub fn set_tls(&mut self, tls: Option<ServerTls>) {
        self.tls = tls;
    }

    #[cfg(test)]
    pub(super) fn free_places(&self) -> usize {
        self.handshakes.available_permits()
    }

    /// Returns the next connection, once there is room for another handshake. Never fails: after an error of accept(2),
    /// normally pauses and tries again; logs at most one error a minute. Cancel safe.
    pub async fn next(&self) -> Incoming {
        let place = match self.handshakes.clone().acquire_owned().await {
            Ok(place) => place,
            // No code closes the semaphore.
            Err(_) => std::future::pending().await,
        };
        loop {
            match self.tcp.accept().await {
                Ok((tcp, peer)) => {
                    return Incoming { peer, tcp, tls: self.tls.clone(), keepalive: self.keepalive, _place: place };
                }
                // The peer gave up while waiting in the queue; try the next connection.
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(error) => {
                    self.complain(&error);
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }
}

/// A connection before its handshake. It counts as one of the concurrent handshakes until that ends, or it is dropped.
#[derive(Debug)]
pub struct Incoming {
    pub peer: SocketAddr,
    tcp: TcpStream,
    tls: Option<ServerTls>,
    keepalive: Keepalive,
    _place: OwnedSemaphorePermit,
}

impl Incoming {
    /// Completes the handshake within ten seconds. The caller runs this in a separate tokio task.
    pub async fn handshake(self) -> Result<Link, LinkError> {
        let peer = self.peer;
        let late = |_| LinkError::TimedOut { peer: peer.to_string(), limit: HANDSHAKE_LIMIT };
        let (peer, stream) = tokio::time::timeout(HANDSHAKE_LIMIT, self.shake()).await.map_err(late)??;
        Ok(Link::new(peer, stream))
    }

    /// Completes the TLS handshake, if TLS is on; returns the peer's address and the stream. Has no time limit: the
    /// caller sets one.
    pub(crate) async fn shake(self) -> Result<(SocketAddr, Stream), LinkError> {
        let failed = |source| LinkError::of(self.peer, source);
        self.keepalive.apply(&self.tcp).map_err(failed)?;
        let stream = match self.tls {
            None => Stream::Plain(self.tcp),
            Some(tls) => {
                let stream = TlsAcceptor::from(tls.config).accept(self.tcp).await.map_err(failed)?;
                Stream::Tls(Box::new(stream.into()))
            }
        };
        Ok((self.peer, stream))
    }
}
