//! Host names of peers, for log lines: the name in the peer's certificate, or else the last host that connected from
//! the peer's address. No decision depends on these names.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Mutex, PoisonError};

use super::complaints::canonical;

/// Maximum number of remembered addresses: enough for a large cluster.
const MOST: usize = 50_000;

#[derive(Debug, Default)]
pub(super) struct Names(Mutex<HashMap<IpAddr, String>>);

impl Names {
    /// Records that a peer at this address has shown a verified certificate of this host.
    pub(super) fn learn(&self, peer: SocketAddr, host: &str) {
        let mut names = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let address = peer.ip().to_canonical();
        if names.len() < MOST || names.contains_key(&address) {
            names.insert(address, host.to_owned());
        }
    }

    /// Returns the text that names a peer in log lines, for example `n4 at 10.0.0.5:4002`. `host`: the name in the
    /// peer's certificate; `None`: the peer has not shown one, and the text has the last host at this address, if
    /// known.
    pub(super) fn who(&self, peer: SocketAddr, host: Option<&str>) -> String {
        let peer = canonical(peer);
        let names = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match (host, names.get(&peer.ip())) {
            (Some(host), _) => format!("{host} at {peer}"),
            (None, Some(last)) => format!("{peer} ({last} was there last)"),
            (None, None) => peer.to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_is_called_by_its_name_wherever_that_is_known() {
        let names = Names::default();
        let at = |text: &str| text.parse::<SocketAddr>().unwrap();
        let who = |peer: &str, host| names.who(at(peer), host);
        assert_eq!(who("[::ffff:10.0.0.5]:4000", None), "10.0.0.5:4000");
        names.learn(at("[::ffff:10.0.0.5]:4000"), "n3");
        assert_eq!(who("10.0.0.5:4001", None), "10.0.0.5:4001 (n3 was there last)");
        assert_eq!(who("[::ffff:10.0.0.5]:4002", Some("n4")), "n4 at 10.0.0.5:4002");
        assert_eq!(who("[fd00::5]:4000", None), "[fd00::5]:4000");
    }
}
