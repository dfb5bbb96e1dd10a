//! First contact: a host that has no authority's certificate yet learns it from the server, by its digest.
//!
//! ```text
//!   pin, out of band ──> handshake: the server's chain ends in its authority ──> digest = pin, chain valid ──> ca.pem
//! ```
//! The enrolment server sends its authority's certificate after its own ([`ServerTls::load_open`]). The client takes
//! the authority from the chain by its digest, and then verifies the server as usual, with that authority alone. A
//! server without the authority's signature completes no handshake.
//!
//! [`ServerTls::load_open`]: super::ServerTls::load_open

use std::fmt;
use std::str::FromStr;
use std::sync::{Arc, Mutex, PoisonError};

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};
use sha2::{Digest, Sha256};
use x509_parser::prelude::{FromDer, X509Certificate};

use super::usage::OfServers;
use super::{ClientTls, provider};
use crate::link::{Dial, LinkError, dial};

/// SHA-256 of an authority's certificate (DER), as `openssl x509 -fingerprint -sha256` prints it, with or without
/// colons.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pin([u8; 32]);

impl Pin {
    /// Returns the pin of a certificate (DER).
    pub fn of(certificate: &[u8]) -> Self {
        Self(Sha256::digest(certificate).into())
    }
}

impl fmt::Display for Pin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl FromStr for Pin {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let digits: String = text.chars().filter(|c| *c != ':').collect();
        let wrong = || "expected 64 hexadecimal digits: the SHA-256 of the authority's certificate".to_owned();
        if digits.len() != 64 || !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(wrong());
        }
        let mut bytes = [0; 32];
        for (at, byte) in bytes.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&digits[at * 2..at * 2 + 2], 16).map_err(|_| wrong())?;
        }
        Ok(Self(bytes))
    }
}

/// The reason why the authority was not learned.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PinError {
    #[error(transparent)]
    Link(#[from] LinkError),
    #[error("{address} has no authority with this pin; it has {shown}")]
    Other { address: String, shown: String },
}

/// Dials an enrolment server. Returns the certificate (DER) of the authority that has this pin and has signed the
/// server's certificate. `to.tls` is not used.
///
/// # Errors
/// [`PinError`]: the server is unreachable or the handshake fails, for example because that authority did not sign the
/// server's certificate; or the server shows no certificate of an authority with this pin.
pub async fn learn(to: &Dial, pin: Pin) -> Result<Vec<u8>, PinError> {
    let seen = Arc::new(Mutex::new(Seen::default()));
    let verifier = Pinned { pin, provider: provider(), seen: seen.clone() };
    let config = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(|source| LinkError::of(&to.address, std::io::Error::other(source)))?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_no_client_auth();
    let dialled = dial(&Dial { tls: Some(ClientTls::dialling(config, Arc::default())), ..to.clone() }).await;
    let Seen { authority, shown } = std::mem::take(&mut *seen.lock().unwrap_or_else(PoisonError::into_inner));
    match (dialled, authority) {
        (Ok(_), Some(authority)) => Ok(authority),
        (Err(_), None) if !shown.is_empty() => {
            Err(PinError::Other { address: to.address.clone(), shown: shown.join(" and ") })
        }
        (Err(error), _) => Err(error.into()),
        // Without TLS, the verifier sees nothing.
        (Ok(_), None) => Err(PinError::Other { address: to.address.clone(), shown: "none".to_owned() }),
    }
}

/// The certificates that the server showed in the last handshake.
#[derive(Debug, Default)]
struct Seen {
    /// Certificate (DER) of the authority that matches the pin, once the client has verified the server's certificate
    /// with it; otherwise `None`.
    authority: Option<Vec<u8>>,
    /// If no authority in the server's chain matches the pin: the digests of at most [`NAMED`] certificates that follow
    /// the server's own, or a single sentence that no certificate follows. Empty if an authority matches.
    shown: Vec<String>,
}

#[derive(Debug)]
struct Pinned {
    pin: Pin,
    provider: Arc<CryptoProvider>,
    seen: Arc<Mutex<Seen>>,
}

/// Maximum number of certificates of a chain that an error names.
const NAMED: usize = 4;

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        first: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let is_authority = |der: &CertificateDer<'_>| X509Certificate::from_der(der).is_ok_and(|(_, it)| it.is_ca());
        let pinned = between.iter().find(|der| Pin::of(der) == self.pin && is_authority(der));
        let Some(authority) = pinned else {
            let mut shown: Vec<String> = between.iter().take(NAMED).map(|der| Pin::of(der).to_string()).collect();
            if shown.is_empty() {
                shown.push("only its own certificate (is it an older version?)".to_owned());
            }
            self.seen.lock().unwrap_or_else(PoisonError::into_inner).shown = shown;
            return Err(Error::InvalidCertificate(CertificateError::UnknownIssuer));
        };
        let mut roots = RootCertStore::empty();
        roots.add(authority.clone().into_owned())?;
        let verifier = WebPkiServerVerifier::builder_with_provider(roots.into(), self.provider.clone())
            .build()
            .map_err(|error| Error::General(error.to_string()))?;
        let verified = OfServers(verifier).verify_server_cert(first, between, name, ocsp, now)?;
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).authority = Some(authority.to_vec());
        Ok(verified)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signed, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signed, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use rustls::pki_types::pem::PemObject;

    use super::*;
    use crate::link::{self, Keepalive, Listener};
    use crate::tls::tests::{Authority, CLIENT, SERVER};
    use crate::tls::{Clients, ServerTls, TlsFault, TlsFiles};

    /// Starts an enrolment server with the certificate of `files`, which accepts client certificates of `nodes`. Dials
    /// the server, expects the host name `name` in its certificate, and learns the authority by `pin`. Returns the
    /// authority's certificate (DER).
    async fn met(files: &TlsFiles, nodes: &Clients, name: &str, pin: Pin) -> Result<Vec<u8>, PinError> {
        let socket = link::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = socket.local_addr().unwrap().to_string();
        let tls = ServerTls::load_open(files, nodes).unwrap();
        let listener = Listener::new(socket, Some(tls), Keepalive::default()).unwrap();
        let to = Dial { server_name: name.to_owned(), ..Dial::plain(address) };
        let (learned, _) = tokio::join!(learn(&to, pin), async { listener.next().await.handshake().await });
        learned
    }

    #[tokio::test]
    async fn only_the_pinned_authority_of_its_own_server_is_learned() {
        let (site, attacker) = (Authority::named("site"), Authority::named("attacker"));
        let enrols = Authority::named("enrols");
        let nodes = Clients { ca: enrols.issue("x", CLIENT).ca, crl: enrols.revoke(99) };
        let ctl = site.issue("ctl", SERVER);
        let der = CertificateDer::from_pem_file(&ctl.ca).unwrap();
        let pin = Pin::of(&der);
        assert_eq!(met(&ctl, &nodes, "ctl", pin).await.unwrap(), der.to_vec());
        let fault = |learned: Result<Vec<u8>, PinError>| match learned.unwrap_err() {
            PinError::Link(error) => error.tls_fault().unwrap(),
            other => panic!("{other}"),
        };
        assert_eq!(fault(met(&ctl, &nodes, "other", pin).await), TlsFault::WrongName);
        assert_eq!(fault(met(&site.issue("n1", CLIENT), &nodes, "n1", pin).await), TlsFault::WrongUsage);
        // Another authority, in its own name and with the site's certificate behind its own.
        let forged = attacker.issue("ctl", SERVER);
        let own = Pin::of(&CertificateDer::from_pem_file(&forged.ca).unwrap());
        let error = met(&forged, &nodes, "ctl", pin).await.unwrap_err().to_string();
        assert!(error.ends_with(&format!("has no authority with this pin; it has {own}")), "{error}");
        let text = std::fs::read_to_string(&forged.cert).unwrap() + &std::fs::read_to_string(&ctl.ca).unwrap();
        std::fs::write(&forged.cert, text).unwrap();
        assert_eq!(fault(met(&forged, &nodes, "ctl", pin).await), TlsFault::UnknownAuthority);
    }

    #[test]
    fn a_pin_is_64_digits() {
        let pin = Pin::of(b"abc");
        let plain = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        let coloned: Vec<String> = plain.as_bytes().chunks(2).map(|two| String::from_utf8_lossy(two).into()).collect();
        assert_eq!(pin.to_string(), plain);
        assert_eq!([plain, &coloned.join(":").to_uppercase()].map(str::parse), [Ok(pin), Ok(pin)]);
        for wrong in ["", "ba78", &plain.replace('a', "g"), &format!("{plain}00"), &"é".repeat(32)] {
            assert!(wrong.parse::<Pin>().is_err(), "{wrong}");
        }
    }
}
