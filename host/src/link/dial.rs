//! Dialling side of a link, which is a connection over TCP or TLS that carries frames.

use std::collections::HashSet;
use std::io;
use std::net::SocketAddr;
use std::ops::Range;
use std::time::Duration;

use rustls::pki_types::ServerName;
use tokio::net::{TcpSocket, TcpStream, lookup_host};
use tokio_rustls::TlsConnector;

use super::{Keepalive, Link, LinkError, Stream};
use crate::clock;
use crate::tls::ClientTls;

/// Ports from which root dials (rcmd(3)). Only root may bind a port below 1024 (ip(7), unless
/// `ip_unprivileged_port_start` changes that); ports below 600 belong to services.
const ROOTS: Range<u16> = 600..1024;
/// Ports that a management controller (IPMI, AMT) intercepts on many machines before the host sees the packets.
const MANAGEMENT: [u16; 2] = [623, 664];
/// File that lists ports which the dialler must not use, because other services bind them later (bindresvport(3)).
const BLACKLIST: &str = "/etc/bindresvport.blacklist";

/// Limit for name lookup, connection and handshake together. It is long enough for a controller that all its agents
/// dial at once.
const DIAL_LIMIT: Duration = Duration::from_secs(30);

/// The address of a server, and the settings with which to dial it.
#[derive(Debug, Clone)]
pub struct Dial {
    /// Address of the server as `host:port`.
    pub address: String,
    /// The name in the peer's certificate. Not used in plain text.
    pub server_name: String,
    /// The TLS settings; `None`: plain text.
    pub tls: Option<ClientTls>,
    pub keepalive: Keepalive,
    /// Limit for the connection alone, without name lookup and handshake.
    pub connect_limit: Duration,
    /// Limit for name lookup, connection and handshake together.
    pub limit: Duration,
    /// Whether to dial from a port below 1024 ([`is_roots`]). Such a port proves to the peer that root dials.
    pub as_root: bool,
}

impl Dial {
    /// Returns default settings for a link in plain text. The server's name is the host in `address`.
    pub fn plain(address: impl Into<String>) -> Self {
        let address = address.into();
        let host = address.rsplit_once(':').map_or(address.as_str(), |(host, _)| host);
        let server_name = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let keepalive = Keepalive::default();
        let (connect_limit, limit) = (DIAL_LIMIT, DIAL_LIMIT);
        Self { address, server_name, tls: None, keepalive, connect_limit, limit, as_root: false }
    }

    /// Returns default settings for a link with TLS. The server's name is the host in `address`.
    pub fn tls(address: impl Into<String>, tls: ClientTls) -> Self {
        Self { tls: Some(tls), ..Self::plain(address) }
    }
}

/// Connects to the server and completes the handshake. Tries the addresses of the host in turn, until one accepts
/// a connection.
///
/// The client learns of a refused certificate only when it reads from the link (RFC 8446 4.4.2): the client's handshake
/// ends before the server checks the certificate.
pub async fn dial(dial: &Dial) -> Result<Link, LinkError> {
    let late = |_| LinkError::TimedOut { peer: dial.address.clone(), limit: dial.limit };
    let (peer, stream) = tokio::time::timeout(dial.limit, connect(dial)).await.map_err(late)??;
    Ok(Link::new(peer, stream))
}

/// Connects and completes the handshake, for callers that speak no frames and have a limit of their own.
pub(crate) async fn connect(dial: &Dial) -> Result<(SocketAddr, Stream), LinkError> {
    let address = || dial.address.clone();
    let addresses: Vec<_> =
        lookup_host(&dial.address).await.map_err(|source| LinkError::Resolve { address: address(), source })?.collect();
    let tcp = match first_of(&addresses, dial.connect_limit, dial.as_root).await {
        Ok(tcp) => tcp,
        Err(source) => return Err(LinkError::Connect { address: address(), addresses, source }),
    };
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

/// Tries the addresses one after the other, and returns a connection to the first one that answers. Each address has an
/// equal share of `limit`, so an address that drops packets leaves time for the next. `as_root`: dials from a port of
/// [`ROOTS`]. If no address answers, returns the error of the last one.
pub(super) async fn first_of(addresses: &[SocketAddr], limit: Duration, as_root: bool) -> io::Result<TcpStream> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    let share = limit / u32::try_from(addresses.len()).unwrap_or(u32::MAX).max(1);
    for address in addresses {
        let connected =
            async { if as_root { from_a_port_of_roots(*address).await } else { TcpStream::connect(address).await } };
        match tokio::time::timeout(share, connected).await {
            Ok(Ok(tcp)) => return Ok(tcp),
            Ok(Err(error)) => last = error,
            Err(_) => last = io::ErrorKind::TimedOut.into(),
        }
    }
    Err(last)
}

/// Returns `true` if a peer's port proves that root of the peer's host opened the connection.
pub fn is_roots(port: u16) -> bool {
    ROOTS.contains(&port)
}

/// Returns the ports that the dialler must not use: [`MANAGEMENT`], and those in the text `blacklist`, one a line (`#`
/// begins a comment).
fn left_alone(blacklist: &str) -> HashSet<u16> {
    let numbers = blacklist.lines().filter_map(|line| line.split('#').next()?.trim().parse().ok());
    numbers.chain(MANAGEMENT).collect()
}

/// Connects from a free port of [`ROOTS`]. Skips ports in use, and ports whose last connection the kernel still keeps
/// (TIME_WAIT, about a minute).
async fn from_a_port_of_roots(address: SocketAddr) -> io::Result<TcpStream> {
    // Without the file, the dialler may use all ports.
    let left_alone = left_alone(&std::fs::read_to_string(BLACKLIST).unwrap_or_default());
    let many = u64::from(ROOTS.end - ROOTS.start);
    // A start that changes with the time, so that two tries in a row begin at different ports.
    let begin = ROOTS.start + u16::try_from(clock::mono_ms() % many).unwrap_or_default();
    let ports = (begin..ROOTS.end).chain(ROOTS.start..begin).filter(|port| !left_alone.contains(port));
    let mut last = io::Error::new(io::ErrorKind::AddrInUse, "every port that only root may use is in use");
    for port in ports {
        let (socket, own) = match address {
            SocketAddr::V4(_) => (TcpSocket::new_v4()?, SocketAddr::from(([0; 4], port))),
            SocketAddr::V6(_) => (TcpSocket::new_v6()?, SocketAddr::from(([0; 16], port))),
        };
        let connected = match socket.bind(own) {
            Ok(()) => socket.connect(address).await,
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                let text =
                    format!("no port below {} may be used ({error}): CAP_NET_BIND_SERVICE is missing", ROOTS.end);
                return Err(io::Error::new(error.kind(), text));
            }
            Err(error) => Err(error),
        };
        match connected {
            Err(error) if matches!(error.kind(), io::ErrorKind::AddrInUse | io::ErrorKind::AddrNotAvailable) => {
                last = error
            }
            other => return other,
        }
    }
    Err(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_of_services_and_of_management_are_left_alone() {
        let text = "# ports\n631 # cups\n\n  636\n921#lwresd\nx\n70000\n";
        let mut ports: Vec<u16> = left_alone(text).into_iter().collect();
        ports.sort_unstable();
        assert_eq!(ports, [623, 631, 636, 664, 921]);
        let roots = [599, 600, 1023, 1024].map(is_roots);
        assert_eq!(roots, [false, true, true, false]);
    }
}
