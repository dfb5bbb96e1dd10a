//! Checks a certificate from a controller, before it replaces a certificate that works.

use std::fmt::Display;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use x509_parser::prelude::{FromDer, X509Certificate};

use super::dns_names;
use super::usage::{Usage, has_usage};
use crate::authority::{canonical, public_key};

/// Confirms that `pem` certifies this key (PEM) for this host as a client, and has not expired. A certificate whose
/// validity begins later passes.
///
/// # Errors
/// A sentence that names the failed check.
pub fn check_issued(pem: &str, key: &str, host: &str, now_ms: u64) -> Result<(), String> {
    let no_certificate = |error: &dyn Display| format!("it is no certificate: {error}");
    // Checks all certificates: the file is useless with one that cannot be read.
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem.as_bytes()).collect();
    let chain = chain.map_err(|error| no_certificate(&error))?;
    for der in &chain {
        X509Certificate::from_der(der).map_err(|error| no_certificate(&error))?;
    }
    let der = chain.first().ok_or_else(|| no_certificate(&"there is none in it"))?;
    let (_, certificate) = X509Certificate::from_der(der).map_err(|error| no_certificate(&error))?;
    let own = public_key(key).map_err(|error| format!("the node's own key cannot be read: {error}"))?;
    let (from, until) = (certificate.validity().not_before.timestamp(), certificate.validity().not_after.timestamp());
    let now = i64::try_from(now_ms / 1000).unwrap_or(i64::MAX);
    match () {
        () if certificate.public_key().raw != own.as_slice() => Err("it is for another key".to_owned()),
        () if !dns_names(der).contains(&canonical(host)) => Err(format!("it does not name {host}")),
        () if !has_usage(der, Usage::Client) => Err("it is not for a client (its extended key usage)".to_owned()),
        () if until <= now => Err("it has expired; compare the clocks".to_owned()),
        () if from >= until => Err("it is valid at no time".to_owned()),
        () => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use rcgen::date_time_ymd;

    use super::*;
    use crate::tls::tests::{Authority, CLIENT, SERVER};

    #[test]
    fn only_a_client_certificate_of_this_key_and_host_is_accepted() {
        let ca = Authority::new();
        let (good, other) = (ca.issue("n1", CLIENT), ca.issue("n2", CLIENT));
        let server = ca.issue("n1s", SERVER);
        let old = ca.issue_with("n1o", CLIENT, |params| params.not_after = date_time_ymd(2020, 1, 1));
        let read = |path: &std::path::Path| fs::read_to_string(path).unwrap();
        let now_ms = 1_800_000_000_000;
        let check = |files: &crate::tls::TlsFiles, key: &crate::tls::TlsFiles, host: &str| {
            check_issued(&read(&files.cert), &read(&key.key), host, now_ms)
        };
        assert_eq!(check(&good, &good, "N1"), Ok(()));
        let own = read(&good.cert);
        let with = |more: &str| check_issued(&format!("{own}{more}"), &read(&good.key), "n1", now_ms);
        assert_eq!(with(&own), Ok(()), "a chain");
        for (text, expect) in [
            (with("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"), "no certificate"),
            (with(&own.replace("-----END", "")), "no certificate"),
            (check_issued(&read(&good.key), &read(&good.key), "n1", now_ms), "no certificate"),
            (check(&good, &other, "n1"), "another key"),
            (check(&good, &good, "n2"), "does not name n2"),
            (check(&server, &server, "n1s"), "not for a client"),
            (check(&old, &old, "n1o"), "expired"),
            (check_issued("rubbish", &read(&good.key), "n1", now_ms), "no certificate"),
        ] {
            assert!(text.clone().unwrap_err().contains(expect), "{text:?}");
        }
    }
}
