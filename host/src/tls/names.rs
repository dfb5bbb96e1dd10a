//! Reads the names, the serial number, the end and the issuer of a certificate.

use rustls::pki_types::CertificateDer;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::authority::{canonical, hexadecimal};

/// Identity of a peer, as its verified certificate states it. The default is that of a peer in plain text.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Identity {
    /// DNS names, as [`dns_names`] returns them.
    pub names: Vec<String>,
    /// End of the certificate, in milliseconds since 1970.
    pub until_ms: Option<u64>,
    /// Name of the authority that signed the certificate (RFC 4514), such as `CN=site`.
    pub issuer: Option<String>,
}

impl Identity {
    /// Reads a verified certificate once. An unreadable one states nothing.
    pub(crate) fn of(certificate: &CertificateDer<'_>) -> Self {
        let Ok((_, certificate)) = X509Certificate::from_der(certificate) else { return Self::default() };
        let until = u64::try_from(certificate.validity().not_after.timestamp());
        Self {
            names: names_of(&certificate),
            until_ms: until.ok().and_then(|until| until.checked_mul(1_000)),
            issuer: Some(certificate.issuer().to_string()),
        }
    }
}

/// Returns the DNS names (subjectAltName, RFC 5280 4.2.1.6) of a verified certificate in canonical form
/// ([`canonical`]).
///
/// The common name does not count (RFC 9525), and neither do wildcards and names with control characters, which name no
/// host. An unreadable certificate has no names.
pub fn dns_names(certificate: &CertificateDer<'_>) -> Vec<String> {
    X509Certificate::from_der(certificate).map(|(_, certificate)| names_of(&certificate)).unwrap_or_default()
}

fn names_of(certificate: &X509Certificate<'_>) -> Vec<String> {
    let Ok(Some(names)) = certificate.subject_alternative_name() else {
        return Vec::new();
    };
    names
        .value
        .general_names
        .iter()
        .filter_map(|name| match name {
            GeneralName::DNSName(name) => Some(canonical(name)),
            _ => None,
        })
        // No host has a control character in its name, and the names are written to logs.
        .filter(|name| !name.is_empty() && !name.contains(|c: char| c == '*' || c.is_control()))
        .collect()
}

/// Returns the serial number of a verified certificate in the form of [`crate::authority::revoked`]: hexadecimal, two
/// digits a byte. `None` if the certificate is unreadable.
pub fn serial_number(certificate: &CertificateDer<'_>) -> Option<String> {
    let (_, certificate) = X509Certificate::from_der(certificate).ok()?;
    Some(hexadecimal(&certificate.serial.to_bytes_be()))
}
