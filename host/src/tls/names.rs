//! Whom a certificate names.

use rustls::pki_types::CertificateDer;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::authority::{canonical, hexadecimal};

/// The DNS names (subjectAltName, RFC 5280 4.2.1.6) of a certificate, in their one form ([`canonical`]).
///
/// The common name does not count (RFC 9525), nor do wildcards: they name no host. The certificate must be verified already; one that cannot be
/// read names nobody.
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

/// The serial number of a certificate: hexadecimal, two digits a byte, as a revocation list is read ([`crate::authority::revoked`]). It must be verified
/// already; none of one that cannot be read.
pub fn serial_number(certificate: &CertificateDer<'_>) -> Option<String> {
    let (_, certificate) = X509Certificate::from_der(certificate).ok()?;
    Some(hexadecimal(&certificate.serial.to_bytes_be()))
}
