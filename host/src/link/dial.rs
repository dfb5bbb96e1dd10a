//! The dialling side.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use rustls::pki_types::ServerName;
use tokio::net::{TcpStream, lookup_host};
use tokio_rustls::TlsConnector;

use super::{Keepalive, Link, LinkError, Stream};
use crate::tls::ClientTls;

/// For the name, the connection and the handshake together. Long enough for a controller that all its agents dial at once.
const DIAL_LIMIT: Duration = Duration::from_secs(30);

/// Whom to dial, and how.
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

impl Dial {
    /// Without TLS, and otherwise as usual. The server's name is the host in `address`.
    pub fn plain(address: impl Into<String>) -> Self {
        let address = address.into();
        let host = address.rsplit_once(':').map_or(address.as_str(), |(host, _)| host);
        let server_name = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        Self { address, server_name, tls: None, keepalive: Keepalive::default(), limit: DIAL_LIMIT }
    }

    /// With TLS, and otherwise as usual.
    pub fn tls(address: impl Into<String>, tls: ClientTls) -> Self {
        Self { tls: Some(tls), ..Self::plain(address) }
    }
}

/// Dials and shakes hands. All addresses of the host are tried in turn.
///
/// A server that refuses our certificate says so only when we read from the link (RFC 8446 4.4.2): the handshake is over for us before it has
/// looked.
pub async fn dial(dial: &Dial) -> Result<Link, LinkError> {
    let late = |_| LinkError::TimedOut { peer: dial.address.clone(), limit: dial.limit };
    let (peer, stream) = tokio::time::timeout(dial.limit, connect(dial)).await.map_err(late)??;
    Ok(Link::new(peer, stream))
}

/// Without the limit, and with no frames on it.
pub(crate) async fn connect(dial: &Dial) -> Result<(SocketAddr, Stream), LinkError> {
    let address = || dial.address.clone();
    let addresses: Vec<_> =
        lookup_host(&dial.address).await.map_err(|source| LinkError::Resolve { address: address(), source })?.collect();
    let tcp =
        first_of(&addresses, dial.limit).await.map_err(|source| LinkError::Connect { address: address(), source })?;
    let failed = |source| LinkError::of(&dial.address, source);
    dial.keepalive.apply(&tcp).map_err(failed)?;
    let peer = tcp.peer_addr().map_err(failed)?;
    let Some(tls) = &dial.tls else {
        return Ok((peer, Stream::Plain(tcp)));
    };
    let name = ServerName::try_from(dial.server_name.clone())
        .map_err(|_| LinkError::ServerName { name: dial.server_name.clone() })?;
    let stream = TlsConnector::from(tls.config.clone()).connect(name, tcp).await.map_err(failed)?;
    Ok((peer, Stream::Tls(Box::new(stream.into()))))
}

/// The first address that answers. Each has its share of the time: one that swallows packets must not use up that of the next.
pub(super) async fn first_of(addresses: &[SocketAddr], limit: Duration) -> io::Result<TcpStream> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    let share = limit / u32::try_from(addresses.len()).unwrap_or(u32::MAX).max(1);
    for address in addresses {
        match tokio::time::timeout(share, TcpStream::connect(address)).await {
            Ok(Ok(tcp)) => return Ok(tcp),
            Ok(Err(error)) => last = error,
            Err(_) => last = io::ErrorKind::TimedOut.into(),
        }
    }
    Err(last)
}
