//! Certificates and mutual TLS 1.3 (RFC 8446).
//!
//! Each side shows a certificate and demands one. The authority's *extended key usage* keeps the sides apart: a node's certificate says clientAuth
//! only, so that a key stolen from a node cannot play the controller. What a verified certificate is allowed to say is for the caller to decide,
//! by the names in it ([`dns_names`]).
//!
//! TLS 1.2 is off, and so is resumption: a session that is resumed was not verified again, and ten thousand of them take memory.
//! The provider is ring, handed in and never taken from a process-wide default (docs/decisions/0002).

mod fault;
mod files;
mod names;
mod peer;

use std::path::PathBuf;
use std::sync::Arc;

use rustls::client::{Resumption, WebPkiServerVerifier};
use rustls::crypto::CryptoProvider;
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{ClientConfig, ServerConfig};

pub use self::fault::TlsFault;
pub use self::files::TlsError;
pub use self::names::dns_names;
pub use self::peer::PeerChain;

use self::files::Loaded;

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

/// The accepting side: demands a certificate of the peer. Cheap to clone.
#[derive(Clone, Debug)]
pub struct ServerTls {
    pub(crate) config: Arc<ServerConfig>,
    /// Only where there is a revocation list.
    revocations: Option<Arc<dyn ClientCertVerifier>>,
    names: Arc<[String]>,
}

/// The dialling side. Cheap to clone.
#[derive(Clone, Debug)]
pub struct ClientTls {
    pub(crate) config: Arc<ClientConfig>,
    names: Arc<[String]>,
}

impl ServerTls {
    /// Reads the files. Called again for a reload; connections that stand keep what they were made with.
    pub fn load(files: &TlsFiles) -> Result<Self, TlsError> {
        let Loaded { roots, chain, key, crls } = files::load(files)?;
        let names = chain.first().map(dns_names).unwrap_or_default().into();
        let mut verifier = WebPkiClientVerifier::builder_with_provider(roots, provider())
            .with_crls(crls)
            .only_check_end_entity_revocation()
            // Every agent has one authority's certificate: the list of authorities would only make each handshake longer.
            .clear_root_hint_subjects();
        if files.crl.is_none() {
            verifier = verifier.allow_unknown_revocation_status();
        }
        let verifier = verifier.build().map_err(|source| TlsError::verifier(files, source))?;
        let mut config = ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(|source| TlsError::pair(files, source))?
            .with_client_cert_verifier(verifier.clone())
            .with_single_cert(chain, key)
            .map_err(|source| TlsError::pair(files, source))?;
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        let revocations = files.crl.is_some().then_some(verifier);
        Ok(Self { config: Arc::new(config), revocations, names })
    }

    /// The DNS names in our own certificate.
    pub fn names(&self) -> &[String] {
        &self.names
    }
}

impl ClientTls {
    /// Reads the files. Called again for a reload; connections that stand keep what they were made with.
    pub fn load(files: &TlsFiles) -> Result<Self, TlsError> {
        let Loaded { roots, chain, key, crls } = files::load(files)?;
        let names = chain.first().map(dns_names).unwrap_or_default().into();
        let mut verifier = WebPkiServerVerifier::builder_with_provider(roots, provider())
            .with_crls(crls)
            .only_check_end_entity_revocation();
        if files.crl.is_none() {
            verifier = verifier.allow_unknown_revocation_status();
        }
        let verifier = verifier.build().map_err(|source| TlsError::verifier(files, source))?;
        let mut config = ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(|source| TlsError::pair(files, source))?
            .with_webpki_verifier(verifier)
            .with_client_auth_cert(chain, key)
            .map_err(|source| TlsError::pair(files, source))?;
        config.resumption = Resumption::disabled();
        Ok(Self { config: Arc::new(config), names })
    }

    /// The DNS names in our own certificate.
    pub fn names(&self) -> &[String] {
        &self.names
    }
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

#[cfg(test)]
pub(crate) mod tests;
