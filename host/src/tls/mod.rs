//! Certificates and mutual TLS 1.3 (RFC 8446).
//!
//! Each side shows a certificate and demands a certificate. The *extended key usage* keeps the sides apart: a node's
//! certificate allows only clientAuth, so an attacker with a node's key cannot play the controller. Each side refuses a
//! certificate without an extended key usage. The caller decides about a verified peer's permissions, by the names in
//! the peer's certificate ([`dns_names`]).
//!
//! TLS 1.2 is off. Resumption is off too: a resumed session does not verify the peer again, and ten thousand sessions
//! take memory. The provider is ring, passed explicitly and never taken from a process-wide default
//! (docs/decisions/0002).

mod fault;
mod files;
mod issued;
mod names;
mod peer;
mod pin;
mod usage;

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::PathBuf;
use std::sync::Arc;

use rustls::client::{Resumption, WantsClientCert, WebPkiServerVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{ClientCertVerifierBuilder, NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{ClientConfig, ConfigBuilder, ServerConfig};

pub use self::fault::TlsFault;
pub use self::files::{MAX_FILE, TlsError};
pub use self::issued::check_issued;
pub use self::names::{Identity, dns_names, serial_number};
pub use self::peer::PeerChain;
pub use self::pin::{Pin, PinError, learn};

use self::files::Loaded;

/// Paths of the PEM files by which a host proves its identity and verifies its peers.
#[derive(Debug, Clone, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct TlsFiles {
    /// Certificates of the trusted authorities.
    pub ca: PathBuf,
    /// File with this host's certificate, followed by the intermediate certificates.
    pub cert: PathBuf,
    /// File with this host's private key. Only the file's owner may have access to it; if root owns the file, its group
    /// may read it, too.
    pub key: PathBuf,
    /// File with the revocation lists. If set, this side refuses revoked certificates, and all certificates of an
    /// authority without a list in this file.
    #[serde(default)]
    pub crl: Option<PathBuf>,
}

/// TLS settings of the accepting side of a link. Cheap to clone.
#[derive(Clone, Debug)]
pub struct ServerTls {
    pub(crate) config: Arc<ServerConfig>,
    /// Verifier by which a reload checks the peers of open sessions again; `None` without revocation lists, and for an
    /// enrolment server.
    revocations: Option<Arc<dyn ClientCertVerifier>>,
    /// Serial numbers of expired certificates whose hosts are revoked. The revocation lists omit them, but a session
    /// that began with such a certificate may still be open: a reload ends it by this set.
    revoked_too: Arc<HashSet<String>>,
    names: Arc<[String]>,
    read: Read,
    pin: Option<Pin>,
}

/// Digests of what the files contained, to tell what a reload has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Read {
    chain: u64,
    roots: u64,
    crls: u64,
}

impl Read {
    fn of(trusted: &files::Trusted, chain: &[CertificateDer<'_>]) -> Self {
        let digest = |text: &dyn Fn(&mut DefaultHasher)| {
            let mut hasher = DefaultHasher::new();
            text(&mut hasher);
            hasher.finish()
        };
        Self {
            chain: digest(&|hasher| chain.iter().for_each(|der| der.as_ref().hash(hasher))),
            roots: digest(&|hasher| {
                trusted.roots.roots.iter().for_each(|root| root.subject_public_key_info.as_ref().hash(hasher));
            }),
            crls: digest(&|hasher| trusted.crls.iter().for_each(|der| der.as_ref().hash(hasher))),
        }
    }
}

/// TLS settings of the dialling side of a link. Cheap to clone.
#[derive(Clone, Debug)]
pub struct ClientTls {
    pub(crate) config: Arc<ClientConfig>,
    names: Arc<[String]>,
}

/// An additional authority whose certificates count only for clients. The revocation list is mandatory: without a list,
/// this side would accept revoked clients.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Clients {
    pub ca: PathBuf,
    pub crl: PathBuf,
}

impl ServerTls {
    /// Reads the certificate files. A reload calls this again; open connections keep their settings.
    pub fn load(files: &TlsFiles) -> Result<Self, TlsError> {
        Self::load_with(files, None)
    }

    /// Reads the certificate files, as [`load`](Self::load) does. The server also accepts clients with a certificate of
    /// the authority in `clients`, if given.
    pub fn load_with(files: &TlsFiles, clients: Option<&Clients>) -> Result<Self, TlsError> {
        let Loaded { mut trusted, chain, key } = files::load(files)?;
        if let Some(Clients { ca, crl }) = clients {
            trusted.add(ca, Some(crl))?;
        }
        let (has_lists, read) = (!trusted.crls.is_empty(), Read::of(&trusted, &chain));
        let verifier = client_verifier(trusted);
        let verifier = if files.crl.is_none() { verifier.allow_unknown_revocation_status() } else { verifier };
        let verifier = verifier.build().map_err(|source| TlsError::verifier(files, source))?;
        let verifier: Arc<dyn ClientCertVerifier> = Arc::new(usage::OfClients(verifier));
        let served = Self::serving(files, verifier.clone(), chain, key, read)?;
        Ok(Self { revocations: has_lists.then_some(verifier), ..served })
    }

    /// Sets further serial numbers that count as revoked. They are of expired certificates, which the revocation lists
    /// omit ([`crate::authority::run_out`]).
    #[must_use]
    pub fn and_revoked(self, serials: HashSet<String>) -> Self {
        Self { revoked_too: Arc::new(serials), ..self }
    }

    /// Reads the files for an enrolment server, which also accepts clients without a certificate. A certificate that a
    /// client shows must come from `clients`. This side sends its authority after its own certificate, so that a
    /// client that knows the authority's digest can learn the authority ([`learn`]).
    pub fn load_open(files: &TlsFiles, clients: &Clients) -> Result<Self, TlsError> {
        let Loaded { mut chain, key, .. } = files::load(files)?;
        let issuer = files::issuer(&files.ca, &chain)?;
        let pin = issuer.as_ref().map(|issuer| Pin::of(issuer));
        chain.extend(issuer);
        let trusted = files::Trusted::load(&clients.ca, Some(&clients.crl))?;
        let read = Read::of(&trusted, &chain);
        let verifier = client_verifier(trusted).allow_unauthenticated().build();
        let verifier = verifier.map_err(|source| TlsError::Verifier { path: clients.ca.clone(), source })?;
        let served = Self::serving(files, Arc::new(usage::OfClients(verifier)), chain, key, read)?;
        Ok(Self { pin, ..served })
    }

    fn serving(
        files: &TlsFiles,
        verifier: Arc<dyn ClientCertVerifier>,
        chain: Vec<CertificateDer<'static>>,
        key: PrivateKeyDer<'static>,
        read: Read,
    ) -> Result<Self, TlsError> {
        let names = chain.first().map(dns_names).unwrap_or_default().into();
        let mut config = ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(|source| TlsError::pair(files, source))?
            .with_client_cert_verifier(verifier)
            .with_single_cert(chain, key)
            .map_err(|source| TlsError::pair(files, source))?;
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        Ok(Self { config: Arc::new(config), revocations: None, revoked_too: Arc::default(), names, read, pin: None })
    }

    /// Returns the pin of the authority that signed this host's certificate, for an enrolment server; `None` for other
    /// servers, and if `ca` does not have that authority.
    pub fn pin(&self) -> Option<Pin> {
        self.pin
    }

    /// Returns the parts that differ from those of `before`, for people: `certificate`, `authorities`, `revocation
    /// lists`.
    pub fn changes_since(&self, before: &Self) -> Vec<&'static str> {
        let (new, old) = (self.read, before.read);
        let parts = [
            ("certificate", new.chain != old.chain),
            ("authorities", new.roots != old.roots),
            ("revocation lists", new.crls != old.crls),
        ];
        parts.into_iter().filter_map(|(part, is_new)| is_new.then_some(part)).collect()
    }

    /// Returns the DNS names in this host's certificate.
    pub fn names(&self) -> &[String] {
        &self.names
    }
}

impl ClientTls {
    /// Reads the certificate files. A reload calls this again; open connections keep their settings.
    pub fn load(files: &TlsFiles) -> Result<Self, TlsError> {
        let Loaded { trusted, chain, key } = files::load(files)?;
        let names = chain.first().map(dns_names).unwrap_or_default().into();
        let config = client_builder(files, trusted)?
            .with_client_auth_cert(chain, key)
            .map_err(|source| TlsError::pair(files, source))?;
        Ok(Self::dialling(config, names))
    }

    /// Builds a client that shows no certificate, but verifies the server. Reads only `ca` and `crl` of `files`.
    pub fn load_anonymous(files: &TlsFiles) -> Result<Self, TlsError> {
        let trusted = files::Trusted::load(&files.ca, files.crl.as_deref())?;
        Ok(Self::dialling(client_builder(files, trusted)?.with_no_client_auth(), Arc::default()))
    }

    fn dialling(mut config: ClientConfig, names: Arc<[String]>) -> Self {
        config.resumption = Resumption::disabled();
        Self { config: Arc::new(config), names }
    }

    /// Returns the DNS names in this host's certificate.
    pub fn names(&self) -> &[String] {
        &self.names
    }
}

impl TlsFiles {
    /// Returns the begin and the expiry of this host's certificate, in milliseconds since 1970; `None` if the file
    /// does not exist.
    pub fn validity(&self) -> Result<Option<(u64, u64)>, TlsError> {
        files::validity(&self.cert)
    }
}

fn client_verifier(files::Trusted { roots, crls }: files::Trusted) -> ClientCertVerifierBuilder {
    WebPkiClientVerifier::builder_with_provider(roots.into(), provider())
        .with_crls(crls)
        .only_check_end_entity_revocation()
        // An agent has only one certificate to show: the list of authorities would only make each handshake longer.
        .clear_root_hint_subjects()
}

fn client_builder(
    files: &TlsFiles,
    files::Trusted { roots, crls }: files::Trusted,
) -> Result<ConfigBuilder<ClientConfig, WantsClientCert>, TlsError> {
    let mut verifier = WebPkiServerVerifier::builder_with_provider(roots.into(), provider())
        .with_crls(crls)
        .only_check_end_entity_revocation();
    if files.crl.is_none() {
        verifier = verifier.allow_unknown_revocation_status();
    }
    let verifier = verifier.build().map_err(|source| TlsError::verifier(files, source))?;
    Ok(ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(|source| TlsError::pair(files, source))?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(usage::OfServers(verifier))))
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

#[cfg(test)]
pub(crate) mod tests;
