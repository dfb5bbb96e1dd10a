//! A connection, with TLS or without.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use rustls::pki_types::CertificateDer;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsStream;

use crate::tls::{PeerChain, dns_names};

/// A connection, with TLS or without.
#[derive(Debug)]
pub enum Stream {
    Plain(TcpStream),
    /// Boxed: the state of a TLS session has a kilobyte, and streams are moved about.
    Tls(Box<TlsStream<TcpStream>>),
}

impl Stream {
    /// Returns the DNS names in the peer's verified certificate.
    pub(crate) fn peer_names(&self) -> Vec<String> {
        self.peer_certificates().first().map(dns_names).unwrap_or_default()
    }

    pub(super) fn peer_chain(&self) -> PeerChain {
        PeerChain::of(self.peer_certificates())
    }

    /// Returns the peer's own certificate; `None` in plain text, or if the peer showed none.
    pub(crate) fn peer_certificate(&self) -> Option<&CertificateDer<'static>> {
        self.peer_certificates().first()
    }

    fn peer_certificates(&self) -> &[CertificateDer<'static>] {
        match self {
            Self::Plain(_) => &[],
            Self::Tls(tls) => tls.get_ref().1.peer_certificates().unwrap_or_default(),
        }
    }
}

/// Evaluates a call on the stream inside, plain or TLS: `each!(self, stream => stream.poll_read(cx, buf))`.
macro_rules! each {
    ($self:ident, $stream:ident => $call:expr) => {
        match $self.get_mut() {
            Self::Plain($stream) => {
                let $stream = Pin::new($stream);
                $call
            }
            Self::Tls($stream) => {
                let $stream = Pin::new($stream.as_mut());
                $call
            }
        }
    };
}

impl AsyncRead for Stream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        each!(self, stream => stream.poll_read(cx, buf))
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        each!(self, stream => stream.poll_write(cx, buf))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        each!(self, stream => stream.poll_write_vectored(cx, bufs))
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Plain(stream) => stream.is_write_vectored(),
            Self::Tls(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        each!(self, stream => stream.poll_flush(cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        each!(self, stream => stream.poll_shutdown(cx))
    }
}
