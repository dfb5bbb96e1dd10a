//! What a certificate says, read back from PEM.

use std::path::Path;

use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use x509_parser::extensions::GeneralName;
use x509_parser::pem::Pem;
use x509_parser::prelude::X509Certificate;

use crate::fault::Fault;
use crate::{text, when};

/// A certificate as `ca show` tells it. Times are milliseconds since the epoch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::verb) struct Read {
    pub(in crate::verb) file: String,
    pub(in crate::verb) subject: String,
    pub(in crate::verb) issuer: String,
    /// `authority`, `controller`, `node`, or `other`.
    pub(in crate::verb) role: &'static str,
    /// Host names and addresses (subjectAltName).
    pub(in crate::verb) names: Vec<String>,
    pub(in crate::verb) not_before_ms: u64,
    pub(in crate::verb) not_after_ms: u64,
    /// As `openssl x509 -fingerprint -sha256` writes it.
    pub(in crate::verb) fingerprint: String,
}

/// All certificates of a PEM text, in order; keys and what else is in it are skipped.
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
        not_before_ms: ms(validity.not_before.timestamp()),
        not_after_ms: ms(validity.not_after.timestamp()),
        fingerprint: Sha256::digest(der).iter().map(|byte| format!("{byte:02X}")).collect::<Vec<_>>().join(":"),
    }
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
    pub(in crate::verb) fn json(&self) -> Value {
        json!({
            "file": self.file, "subject": self.subject, "issuer": self.issuer, "role": self.role, "names": self.names,
            "not_before": when::rfc3339(self.not_before_ms), "not_after": when::rfc3339(self.not_after_ms),
            "fingerprint_sha256": self.fingerprint,
        })
    }
}
