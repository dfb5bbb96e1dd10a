//! Certificates of a connected peer, kept for the whole session: a later revocation list may name them.

use rustls::pki_types::{CertificateDer, UnixTime};

use super::names::{issuer, not_after_ms};
use super::{ServerTls, TlsFault, serial_number};

/// The certificate of a peer and its intermediate certificates; some hundred bytes.
#[derive(Debug, Clone)]
pub struct PeerChain {
    chain: Box<[CertificateDer<'static>]>,
    verified: UnixTime,
}

impl PeerChain {
    /// Wraps a chain that the TLS handshake has just verified.
    pub(crate) fn of(chain: &[CertificateDer<'static>]) -> Self {
        Self { chain: chain.into(), verified: UnixTime::now() }
    }

    /// Returns the end of the peer's certificate, in milliseconds since 1970; `None` in plain text.
    pub fn until_ms(&self) -> Option<u64> {
        self.chain.first().and_then(not_after_ms)
    }

    /// Returns the name of the authority that signed the peer's certificate (`CN=site`); `None` in plain text.
    pub fn issuer(&self) -> Option<String> {
        self.chain.first().and_then(issuer)
    }
}

impl ServerTls {
    /// Returns `true` if the peer of an open session has been revoked since the handshake. A new authority or the
    /// certificate's expiry does not close a session.
    ///
    /// The check costs two signature checks with a revocation list, and nothing without a list.
    pub fn has_revoked(&self, peer: &PeerChain) -> bool {
        let Some((first, between)) = peer.chain.split_first() else { return false };
        if !self.revoked_too.is_empty() && serial_number(first).is_some_and(|serial| self.revoked_too.contains(&serial))
        {
            return true;
        }
        let Some(verifier) = &self.revocations else { return false };
        // Verifies as of the handshake: rustls would report a certificate that has expired since as expired, not as
        // revoked.
        let verified = verifier.verify_client_cert(first, between, peer.verified);
        verified.is_err_and(|error| TlsFault::of_rustls(&error) == TlsFault::Revoked)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rcgen::{CertificateParams, SerialNumber, date_time_ymd};
    use rustls::pki_types::pem::PemObject;

    use super::*;
    use crate::tls::TlsFiles;
    use crate::tls::tests::{Authority, CLIENT, SERVER};

    #[test]
    fn end_and_issuer_of_a_certificate_are_read_from_it() {
        let ca = Authority::new();
        let files = ca.issue_with("n0", CLIENT, |params| params.not_after = date_time_ymd(2020, 1, 1));
        let chain = [CertificateDer::from_pem_file(files.cert).unwrap()];
        assert_eq!(PeerChain::of(&chain).until_ms(), Some(1_577_836_800_000));
        assert!(PeerChain::of(&chain).issuer().unwrap().contains("CN="));
        let plain = PeerChain::of(&[]);
        assert_eq!((plain.until_ms(), plain.issuer()), (None, None));
    }

    #[test]
    fn what_is_revoked_since_is_found_though_it_has_run_out() {
        let ca = Authority::new();
        let ctl = ca.issue("ctl", SERVER);
        let until_2020 = |number: u64| {
            move |params: &mut CertificateParams| {
                params.serial_number = Some(SerialNumber::from(number));
                params.not_after = date_time_ymd(2020, 1, 1);
            }
        };
        let in_2015 = UnixTime::since_unix_epoch(Duration::from_secs(45 * 365 * 86_400));
        let peer = |number: u64| {
            let files = ca.issue_with(&format!("n{number}"), CLIENT, until_2020(number));
            PeerChain { chain: [CertificateDer::from_pem_file(files.cert).unwrap()].into(), verified: in_2015 }
        };
        let (bad, good) = (peer(66), peer(67));
        let without = ServerTls::load(&ctl).unwrap();
        assert!(!without.has_revoked(&bad), "there is no list");
        let with = ServerTls::load(&TlsFiles { crl: Some(ca.revoke(66)), ..ctl }).unwrap();
        assert!(with.has_revoked(&bad) && !with.has_revoked(&good));
        assert!(!with.has_revoked(&PeerChain::of(&[])), "plain text");
        // Serial numbers of expired certificates, which the list omits.
        let with = with.and_revoked(["43".to_owned()].into());
        assert!(with.has_revoked(&bad) && with.has_revoked(&good) && !with.has_revoked(&peer(68)));
    }
}
