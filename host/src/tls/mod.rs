//! Certificates and mutual TLS 1.3.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use rustls::pki_types::CertificateDer;

/// Where the PEM files are.
#[derive(Debug, Clone, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct TlsFiles {
    /// Certificates of the authorities that we trust.
    pub ca: PathBuf,
    /// Our certificate, then those between it and an authority.
    pub cert: PathBuf,
    /// Our private key. Nobody but its owner may read it.
    pub key: PathBuf,
    /// Revocation list. With one, a certificate whose authority is not covered by it is refused.
    #[serde(default)]
    pub crl: Option<PathBuf>,
}

/// Why certificates cannot be loaded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {}

/// The accepting side: demands a certificate of the peer. Cheap to clone.
#[derive(Clone, Debug)]
pub struct ServerTls {
    pub(crate) config: Arc<rustls::ServerConfig>,
}

/// The dialling side. Cheap to clone.
#[derive(Clone, Debug)]
pub struct ClientTls {
    pub(crate) config: Arc<rustls::ClientConfig>,
}

impl ServerTls {
    pub fn load(_files: &TlsFiles) -> Result<Self, TlsError> {
        todo!()
    }
}

impl ClientTls {
    pub fn load(_files: &TlsFiles) -> Result<Self, TlsError> {
        todo!()
    }
}

/// Why a handshake or a session failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum TlsFault {
    /// A certificate is not valid yet: a clock is wrong, as clocks are when a node boots. Worth another try.
    NotYetValid,
    Expired,
    /// No authority of ours signed it.
    UnknownAuthority,
    /// It is for another host.
    WrongName,
    /// It is for the other side: a node's certificate where a controller's is needed, or the reverse.
    WrongUsage,
    Revoked,
    /// The peer showed none.
    NoCertificate,
    /// The peer ended the handshake; its log says why.
    RefusedByPeer,
    /// The peer speaks no TLS 1.3.
    Other,
}

impl TlsFault {
    /// Finds the TLS fault inside an I/O error, if there is one.
    pub fn of(_error: &io::Error) -> Option<Self> {
        todo!()
    }
}

/// The DNS names (subjectAltName) of a verified peer certificate; the common name does not count.
pub fn dns_names(_certificate: &CertificateDer<'_>) -> Vec<String> {
    todo!()
}
