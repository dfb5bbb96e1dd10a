//! Mandatory extended key usage (RFC 5280 4.2.1.12), which keeps the two sides apart. webpki accepts a certificate
//! without a usage for both sides, so an attacker with the key of a hand-made certificate could play the controller.

use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{CertificateError, DigitallySignedStruct, DistinguishedName, Error, SignatureScheme};
use x509_parser::prelude::{FromDer, X509Certificate};

/// The side of a connection, client or server, that a certificate is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Usage {
    Client,
    Server,
}

/// Returns `true` if the certificate's extended key usage names this side.
pub(crate) fn has_usage(certificate: &CertificateDer<'_>, usage: Usage) -> bool {
    let Ok((_, certificate)) = X509Certificate::from_der(certificate) else { return false };
    match (certificate.extended_key_usage(), usage) {
        (Ok(Some(usages)), Usage::Client) => usages.value.client_auth,
        (Ok(Some(usages)), Usage::Server) => usages.value.server_auth,
        _ => false,
    }
}

fn demand(certificate: &CertificateDer<'_>, usage: Usage) -> Result<(), Error> {
    if has_usage(certificate, usage) {
        Ok(())
    } else {
        Err(Error::InvalidCertificate(CertificateError::InvalidPurpose))
    }
}

/// Verifier of client certificates that also demands the extended key usage clientAuth.
#[derive(Debug)]
pub(super) struct OfClients(pub(super) Arc<dyn ClientCertVerifier>);

impl ClientCertVerifier for OfClients {
    fn offer_client_auth(&self) -> bool {
        self.0.offer_client_auth()
    }

    fn client_auth_mandatory(&self) -> bool {
        self.0.client_auth_mandatory()
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.0.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        first: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let verified = self.0.verify_client_cert(first, between, now)?;
        demand(first, Usage::Client).map(|()| verified)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}

/// Verifier of server certificates that also demands the extended key usage serverAuth.
#[derive(Debug)]
pub(super) struct OfServers(pub(super) Arc<WebPkiServerVerifier>);

impl ServerCertVerifier for OfServers {
    fn verify_server_cert(
        &self,
        first: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let verified = self.0.verify_server_cert(first, between, name, ocsp, now)?;
        demand(first, Usage::Server).map(|()| verified)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}
