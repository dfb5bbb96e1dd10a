//! Certificates of a connected peer, at hand for the whole session: a later revocation list may name them.

use std::fmt;

use rustls::pki_types::{CertificateDer, UnixTime};

use super::{ServerTls, TlsFault, serial_number};
use crate::link::Shared;

/// The certificate of a connected peer and its intermediate certificates. TLS keeps both, so this value has no copy,
/// which would take half a kilobyte for each agent.
pub struct PeerChain {
    connection: Shared,
    verified: UnixTime,
}

impl fmt::Debug for PeerChain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PeerChain").field("verified", &self.verified).finish_non_exhaustive()
    }
}

impl PeerChain {
    /// Wraps a connection whose TLS handshake has just verified the peer.
    pub(crate) fn of(connection: Shared) -> Self {
        Self { connection, verified: UnixTime::now() }
    }
}

impl ServerTls {
    /// Returns `true` if the peer of an open session has been revoked since the handshake. A new authority or the
    /// certificate's expiry does not close a session.
    ///
    /// The check costs two signature checks with a revocation list, and nothing without a list.
    pub fn has_revoked(&self, peer: &PeerChain) -> bool {
        self.has_revoked_since(&peer.connection.peer_certificates(), peer.verified)
    }

    /// Returns `true` if the certificates that a handshake verified at this time are revoked now.
    fn has_revoked_since(&self, chain: &[CertificateDer<'_>], verified: UnixTime) -> bool {
        let Some((first, between)) = chain.split_first() else { return false };
        if !self.revoked_too.is_empty() && serial_number(first).is_some_and(|serial| self.revoked_too.contains(&serial))
        {
            return true;
        }
        let Some(verifier) = &self.revocations else { return false };
        // Verifies as of the handshake: rustls would report a certificate that has expired since as expired, not as
        // revoked.
        let verified = verifier.verify_client_cert(first, between, verified);
        verified.is_err_and(|error| TlsFault::of_rustls(&error) == TlsFault::Revoked)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rcgen::{CertificateParams, SerialNumber, date_time_ymd};
    use rustls::pki_types::pem::PemObject;

    use super::*;
    use crate::tls::tests::{Authority, CLIENT, SERVER};
    use crate::tls::{Identity, TlsFiles};

    #[test]
    fn end_and_issuer_of_a_certificate_are_read_from_it() {
        let ca = Authority::new();
        let files = ca.issue_with("n0", CLIENT, |params| params.not_after = date_time_ymd(2020, 1, 1));
        let identity = Identity::of(&CertificateDer::from_pem_file(files.cert).unwrap());
        assert_eq!((identity.names, identity.until_ms), (vec!["n0".to_owned()], Some(1_577_836_800_000)));
        assert!(identity.issuer.unwrap().contains("CN="));
        assert_eq!(Identity::of(&CertificateDer::from(vec![1, 2, 3])), Identity::default());
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
            [CertificateDer::from_pem_file(files.cert).unwrap()]
        };
        let has_revoked = |tls: &ServerTls, chain: &[CertificateDer<'_>]| tls.has_revoked_since(chain, in_2015);
        let (bad, good) = (peer(66), peer(67));
        let without = ServerTls::load(&ctl).unwrap();
        assert!(!has_revoked(&without, &bad), "there is no list");
        let with = ServerTls::load(&TlsFiles { crl: Some(ca.revoke(66)), ..ctl }).unwrap();
        assert!(has_revoked(&with, &bad) && !has_revoked(&with, &good));
        assert!(!has_revoked(&with, &[]), "plain text");
        // Serial numbers of expired certificates, which the list omits.
        let with = with.and_revoked(["43".to_owned()].into());
        assert!(has_revoked(&with, &bad) && has_revoked(&with, &good) && !has_revoked(&with, &peer(68)));
    }
}
