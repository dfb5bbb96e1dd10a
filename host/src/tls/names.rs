//! Reads the names, the serial number, the end and the issuer of a certificate.

use rustls::pki_types::CertificateDer;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::authority::{canonical, hexadecimal};

/// Returns the DNS names (subjectAltName, RFC 5280 4.2.1.6) of a verified certificate in canonical form
/// ([`canonical`]).
///
/// The common name does not count (RFC 9525), and wildcards, which name no host, do not count either. An unreadable
/// certificate has no names.
pub fn dns_names(certificate: &CertificateDer<'_>) -> Vec<String> {
    let Ok((_, certificate)) = X509Certificate::from_der(certificate) else {
        return Vec::new();
    };
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
        .filter(|name| !name.is_empty() && !name.contains('*'))
        .collect()
}

/// Returns the serial number of a verified certificate in the form of [`crate::authority::revoked`]: hexadecimal, two
/// digits a byte. `None` if the certificate is unreadable.
pub fn serial_number(certificate: &CertificateDer<'_>) -> Option<String> {
    let (_, certificate) = X509Certificate::from_der(certificate).ok()?;
    Some(hexadecimal(&certificate.serial.to_bytes_be()))
}

/// Returns the end of a verified certificate in milliseconds since 1970; `None` if the certificate is unreadable.
pub(super) fn not_after_ms(certificate: &CertificateDer<'_>) -> Option<u64> {
    let (_, certificate) = X509Certificate::from_der(certificate).ok()?;
    u64::try_from(certificate.validity().not_after.timestamp()).ok()?.checked_mul(1_000)
}

/// Returns the name of a verified certificate's authority as text (RFC 4514); `None` if the certificate is unreadable.
pub(super) fn issuer(certificate: &CertificateDer<'_>) -> Option<String> {
    let (_, certificate) = X509Certificate::from_der(certificate).ok()?;
    Some(certificate.issuer().to_string())
}
