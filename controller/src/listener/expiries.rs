//! Times at which the certificates of connected peers expire, for people and for metrics. No decision depends on them.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use perilog_host::authority::canonical as canonical_name;

use super::complaints::canonical;

/// The certificates of the connected peers, with their ends, by the peer's address and port. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub(crate) struct Expiries(Arc<Mutex<HashMap<SocketAddr, Certificate>>>);

#[derive(Debug)]
struct Certificate {
    host: String,
    /// End of the certificate's validity, in milliseconds since 1970.
    until_ms: u64,
    by: By,
}

/// How a certificate is renewed: by an administrator, or by its node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum By {
    /// An administrator renews this certificate.
    Hand,
    /// The node renews this certificate itself.
    Enrolment,
}

/// Summary of the connected nodes' certificates that are renewed in one way, by an administrator or by their node
/// ([`By`]): the earliest end, and how many end soon.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Soonest {
    /// Earliest end of a connected node's certificate that is renewed in this way, in milliseconds since 1970. `None`:
    /// no connected node has a certificate that is renewed in this way.
    pub(crate) until_ms: Option<u64>,
    /// Number of connected nodes' certificates that are renewed in this way and end before the time `before_ms` of
    /// [`Expiries::soonest`].
    pub(crate) soon: u64,
}

/// A peer's entry in [`Expiries`]; dropping this value removes the entry.
#[derive(Debug)]
pub(super) struct Entry<'a> {
    all: &'a Expiries,
    peer: SocketAddr,
}

impl Expiries {
    /// Records the verified certificate of a peer, for as long as its session lasts.
    pub(super) fn enter(&self, peer: SocketAddr, host: &str, until_ms: u64, by: By) -> Entry<'_> {
        let peer = canonical(peer);
        self.lock().insert(peer, Certificate { host: host.to_owned(), until_ms, by });
        Entry { all: self, peer }
    }

    /// Records that the host has got a newer certificate than the one with which its session began. `until_ms`: the
    /// newer certificate's end, in milliseconds since 1970.
    pub(crate) fn renewed(&self, host: &str, until_ms: u64) {
        let host = canonical_name(host);
        for certificate in self.lock().values_mut().filter(|certificate| certificate.host == host) {
            certificate.until_ms = certificate.until_ms.max(until_ms);
        }
    }

    /// Returns when the certificate of a connected peer ends, in milliseconds since 1970; `None` if no connected peer
    /// at this address has shown a certificate. `peer`: the peer's address and port as text.
    pub(crate) fn until_ms(&self, peer: &str) -> Option<u64> {
        self.lock().get(&peer.parse().ok()?).map(|certificate| certificate.until_ms)
    }

    /// Returns the earliest end of the certificates that are renewed as `by` says, and how many of them end before
    /// `before_ms`.
    pub(crate) fn soonest(&self, by: By, before_ms: u64) -> Soonest {
        let all = self.lock();
        let ends = || all.values().filter(|certificate| certificate.by == by).map(|certificate| certificate.until_ms);
        Soonest { until_ms: ends().min(), soon: ends().filter(|end| *end < before_ms).count() as u64 }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<SocketAddr, Certificate>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Entry<'_> {
    fn drop(&mut self) {
        self.all.lock().remove(&self.peer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificates_end_lasts_as_its_session_and_can_move() {
        let expiries = Expiries::default();
        let soonest = |before_ms| expiries.soonest(By::Hand, before_ms);
        assert_eq!(soonest(u64::MAX), Soonest::default());
        let first = expiries.enter("[::ffff:10.0.0.1]:4000".parse().unwrap(), "n0", 100, By::Hand);
        let _second = expiries.enter("10.0.0.2:4000".parse().unwrap(), "n1", 300, By::Hand);
        let _enrolled = expiries.enter("10.0.0.3:4000".parse().unwrap(), "n2", 50, By::Enrolment);
        assert_eq!((expiries.until_ms("10.0.0.1:4000"), expiries.until_ms("10.0.0.1:4001")), (Some(100), None));
        assert_eq!(soonest(200), Soonest { until_ms: Some(100), soon: 1 });
        assert_eq!(expiries.soonest(By::Enrolment, 50), Soonest { until_ms: Some(50), soon: 0 });
        expiries.renewed("N0.", 900);
        // An answer that was sent twice, out of order.
        expiries.renewed("n0", 800);
        assert_eq!((expiries.until_ms("10.0.0.1:4000"), soonest(301).soon), (Some(900), 1));
        drop(first);
        assert_eq!((expiries.until_ms("10.0.0.1:4000"), soonest(0).until_ms), (None, Some(300)));
    }
}
