//! Failed TLS handshakes: their meaning for an operator, and whether a retry can help.

use std::io;

use rustls::{CertificateError, Error};

/// The reason why a handshake or a session failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TlsFault {
    /// The peer's certificate is not valid yet. Probably a clock is wrong, as clocks are while a node boots, so another
    /// try may succeed.
    #[error("the peer's certificate is not valid yet; compare the clocks")]
    NotYetValid,
    #[error("the peer's certificate has expired; issue a new one")]
    Expired,
    #[error("no authority of this host has signed the peer's certificate; compare the `ca` files")]
    UnknownAuthority,
    #[error("the peer's certificate is for another host")]
    WrongName,
    /// The peer's certificate is not for the peer's side, such as a node's where a controller's is expected.
    #[error("the peer's certificate is for the other role, client or server (its extended key usage)")]
    WrongUsage,
    #[error("the peer's certificate was revoked")]
    Revoked,
    #[error("the revocation list does not cover the peer's authority")]
    UnknownRevocation,
    #[error("the peer's certificate is not acceptable")]
    BadCertificate,
    #[error("the peer showed no certificate")]
    NoCertificate,
    /// The peer refused this host and sent a TLS alert. The alert names the objection; the peer's log has more.
    #[error("the peer refused this host")]
    RefusedByPeer,
    #[error("the peer does not speak TLS 1.3, or does not speak TLS at all")]
    Protocol,
}

impl TlsFault {
    /// Returns the TLS fault inside an I/O error, if any.
    pub fn of(error: &io::Error) -> Option<Self> {
        error.get_ref()?.downcast_ref::<Error>().map(Self::of_rustls)
    }

    pub(super) fn of_rustls(error: &Error) -> Self {
        match error {
            Error::InvalidCertificate(certificate) => Self::of_certificate(certificate),
            Error::NoCertificatesPresented => Self::NoCertificate,
            Error::AlertReceived(_) => Self::RefusedByPeer,
            _ => Self::Protocol,
        }
    }

    fn of_certificate(error: &CertificateError) -> Self {
        use CertificateError as E;
        match error {
            E::NotValidYet | E::NotValidYetContext { .. } => Self::NotYetValid,
            E::Expired | E::ExpiredContext { .. } => Self::Expired,
            // An authority that was created anew under its old name: the name is known, the signature does not match.
            E::UnknownIssuer | E::BadSignature => Self::UnknownAuthority,
            E::NotValidForName | E::NotValidForNameContext { .. } => Self::WrongName,
            E::InvalidPurpose | E::InvalidPurposeContext { .. } => Self::WrongUsage,
            E::Revoked => Self::Revoked,
            E::UnknownRevocationStatus | E::ExpiredRevocationList | E::ExpiredRevocationListContext { .. } => {
                Self::UnknownRevocation
            }
            _ => Self::BadCertificate,
        }
    }
}
