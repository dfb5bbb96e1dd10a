//! Contents of a certificate, read from PEM.

use std::path::Path;

use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use x509_parser::extensions::{GeneralName, ParsedExtension};
use x509_parser::pem::Pem;
use x509_parser::prelude::{FromDer, X509Certificate};
use x509_parser::revocation_list::CertificateRevocationList;

use super::authority::Revoked;
use crate::fault::Fault;
use crate::{text, when};

/// A certificate as `ca show` prints it. Times are in milliseconds since 1970.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::verb) struct Read {
    pub(in crate::verb) file: String,
    pub(in crate::verb) subject: String,
    pub(in crate::verb) issuer: String,
    /// `authority`, `controller`, `node`, or `other`.
    pub(in crate::verb) role: &'static str,
    /// Host names and addresses (subjectAltName).
    pub(in crate::verb) names: Vec<String>,
    /// Identifiers of the certificate's own key and of its signer's key, in hexadecimal; `None`: the certificate does
    /// not have this identifier. They tell authorities with the same name apart.
    pub(in crate::verb) keys: (Option<String>, Option<String>),
    /// The serial number in hexadecimal, two digits a byte.
    pub(in crate::verb) serial: String,
    pub(in crate::verb) not_before_ms: u64,
    pub(in crate::verb) not_after_ms: u64,
    /// Fingerprint as `openssl x509 -fingerprint -sha256` writes it.
    pub(in crate::verb) fingerprint: String,
}

/// Returns all certificates of a PEM text, in order; skips keys and other contents.
pub(in crate::verb) fn certificates(file: &Path, pem: &str) -> Result<Vec<Read>, Fault> {
    let bad = |why: String| Fault::Usage(format!("{}: {why}", file.display()));
    let mut found = Vec::new();
    for block in Pem::iter_from_buffer(pem.as_bytes()) {
        let block = block.map_err(|error| bad(format!("malformed PEM ({error})")))?;
        if block.label != "CERTIFICATE" {
            continue;
        }
        let certificate = block.parse_x509().map_err(|error| bad(format!("malformed certificate ({error})")))?;
        found.push(read(file, &certificate, &block.contents));
    }
    Ok(found)
}

fn read(file: &Path, certificate: &X509Certificate<'_>, der: &[u8]) -> Read {
    let validity = certificate.validity();
    let ms = |seconds: i64| u64::try_from(seconds).unwrap_or(0).saturating_mul(1000);
    let names = certificate.subject_alternative_name().ok().flatten();
    Read {
        file: file.display().to_string(),
        subject: text::line(&certificate.subject().to_string()),
        issuer: text::line(&certificate.issuer().to_string()),
        role: role(certificate),
        names: names.map(|san| san.value.general_names.iter().map(name).collect()).unwrap_or_default(),
        keys: keys(certificate),
        serial: hexadecimal(&certificate.serial.to_bytes_be()),
        not_before_ms: ms(validity.not_before.timestamp()),
        not_after_ms: ms(validity.not_after.timestamp()),
        fingerprint: Sha256::digest(der).iter().map(|byte| format!("{byte:02X}")).collect::<Vec<_>>().join(":"),
    }
}

/// Reads a revocation list in PEM form. Returns the list's own number (0 if it has none) and its entries.
pub(super) fn revocations(file: &Path, pem: &[u8]) -> Result<(u64, Vec<Revoked>), Fault> {
    let bad = |why: String| Fault::Usage(format!("{}: {why}", file.display()));
    let block = Pem::iter_from_buffer(pem).find_map(Result::ok).filter(|block| block.label == "X509 CRL");
    let block = block.ok_or_else(|| bad("no revocation list in PEM form".to_owned()))?;
    let (_, list) = CertificateRevocationList::from_der(&block.contents)
        .map_err(|error| bad(format!("malformed revocation list ({error})")))?;
    let number = list.crl_number().and_then(|number| u64::try_from(number).ok()).unwrap_or(0);
    let revoked = list.iter_revoked_certificates().map(|revoked| Revoked {
        serial: hexadecimal(&revoked.user_certificate.to_bytes_be()),
        at_ms: u64::try_from(revoked.revocation_date.timestamp()).unwrap_or(0).saturating_mul(1000),
    });
    Ok((number, revoked.collect()))
}

/// Returns the certificate's subject key identifier and authority key identifier (RFC 5280, 4.2.1.2 and 4.2.1.1) in
/// hexadecimal; `None` for an identifier that the certificate does not have.
fn keys(certificate: &X509Certificate<'_>) -> (Option<String>, Option<String>) {
    let (mut own, mut signer) = (None, None);
    for extension in certificate.extensions() {
        match extension.parsed_extension() {
            ParsedExtension::SubjectKeyIdentifier(id) => own = Some(hexadecimal(id.0)),
            ParsedExtension::AuthorityKeyIdentifier(id) => {
                signer = id.key_identifier.as_ref().map(|id| hexadecimal(id.0))
            }
            _ => {}
        }
    }
    (own, signer)
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02X}")).collect()
}

fn role(certificate: &X509Certificate<'_>) -> &'static str {
    if certificate.is_ca() {
        return "authority";
    }
    match certificate
        .extended_key_usage()
        .ok()
        .flatten()
        .map(|usage| (usage.value.client_auth, usage.value.server_auth))
    {
        Some((true, false)) => "node",
        Some((false, true)) => "controller",
        _ => "other",
    }
}

fn name(name: &GeneralName<'_>) -> String {
    match name {
        GeneralName::DNSName(host) => text::line(host),
        GeneralName::IPAddress(bytes) => match (<[u8; 4]>::try_from(*bytes), <[u8; 16]>::try_from(*bytes)) {
            (Ok(v4), _) => std::net::Ipv4Addr::from(v4).to_string(),
            (_, Ok(v6)) => std::net::Ipv6Addr::from(v6).to_string(),
            _ => "?".to_owned(),
        },
        other => text::line(&other.to_string()),
    }
}

impl Read {
    /// Returns `true` if this certificate names `authority` as its issuer, and is no authority itself.
    pub(super) fn is_of(&self, authority: &Self) -> bool {
        self.role != "authority" && self.was_issued_by(authority)
    }

    /// Returns `true` if this certificate names `authority` as its issuer, by name and, if it has one, by key
    /// identifier. Does not check the signature.
    pub(in crate::verb) fn was_issued_by(&self, authority: &Self) -> bool {
        let same_key = self.keys.1.is_none() || self.keys.1 == authority.keys.0;
        self.issuer == authority.subject && same_key
    }

    pub(in crate::verb) fn json(&self) -> Value {
        json!({
            "file": self.file, "subject": self.subject, "issuer": self.issuer, "role": self.role, "names": self.names,
            "serial": self.serial, "not_before": when::rfc3339(self.not_before_ms),
            "not_after": when::rfc3339(self.not_after_ms),
            "fingerprint_sha256": self.fingerprint,
        })
    }
}
