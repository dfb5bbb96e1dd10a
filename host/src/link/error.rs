//! Errors of a link, which is a connection over TCP or TLS that carries frames.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use crate::tls::TlsFault;

/// An error between this host and a peer; the error names the peer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LinkError {
    #[error("cannot listen on {address}: {source}")]
    Bind { address: SocketAddr, source: io::Error },
    #[error("cannot find the address of {address}: {source}")]
    Resolve { address: String, source: io::Error },
    #[error("`{name}` is not a host name that a certificate can have")]
    ServerName { name: String },
    #[error("cannot connect to {}: {source}", at(address, addresses))]
    Connect { address: String, addresses: Vec<SocketAddr>, source: io::Error },
    #[error("{peer}: not connected within {limit:?}")]
    TimedOut { peer: String, limit: Duration },
    #[error("{peer}: {fault} ({source})")]
    Tls { peer: String, fault: TlsFault, source: io::Error },
    /// A frame of the peer exceeds the limit. A separate variant, because such a peer speaks another protocol or is
    /// hostile.
    #[error("{peer}: a frame is larger than {limit} bytes")]
    FrameTooLarge { peer: String, limit: usize },
    #[error("{peer}: the connection was cut off")]
    Cut { peer: String },
    #[error("{peer}: {source}")]
    Io { peer: String, source: io::Error },
}

/// Returns an address as it is configured, with the addresses of its name if it is a name: a wrong entry of DNS or
/// /etc/hosts shows there.
fn at(address: &str, resolved: &[SocketAddr]) -> String {
    if resolved.is_empty() || address.parse::<SocketAddr>().is_ok() {
        return address.to_owned();
    }
    let resolved: Vec<String> = resolved.iter().map(|address| address.ip().to_string()).collect();
    format!("{address} ({})", resolved.join(", "))
}

impl LinkError {
    /// Returns the TLS fault that caused the error, if any.
    pub fn tls_fault(&self) -> Option<TlsFault> {
        match self {
            Self::Tls { fault, .. } => Some(*fault),
            _ => None,
        }
    }

    /// Converts an I/O error of an established connection, or of its handshake, to the error that names the peer.
    pub(crate) fn of(peer: impl ToString, source: io::Error) -> Self {
        let peer = peer.to_string();
        match TlsFault::of(&source) {
            Some(fault) => Self::Tls { peer, fault, source },
            // A peer that dies sends no goodbye, neither of TLS nor of TCP.
            None if matches!(
                source.kind(),
                io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe
            ) =>
            {
                Self::Cut { peer }
            }
            None => Self::Io { peer, source },
        }
    }
}
