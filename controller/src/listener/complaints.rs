//! Log lines about refused peers, with a bound on their number ([`perilog_host::complaints`]).

use std::fmt::Display;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Mutex, PoisonError};

use perilog_host::clock;
use perilog_host::complaints::{Each, LINES, WINDOW_MS, Window};

/// Maximum number of addresses whose log lines are limited separately; further addresses share one limit.
const MOST: usize = 50_000;

#[derive(Debug, Default)]
pub(crate) struct Complaints(Mutex<Window>);

impl Complaints {
    /// Logs that the controller refused `peer`, unless it has logged too many such lines lately.
    pub(crate) fn refused(&self, peer: SocketAddr, why: &dyn Display) {
        self.refused_by_name(peer, None, &canonical(peer).to_string(), why);
    }

    /// Logs a refusal of a peer. `host`: the name in the peer's certificate, for a field of the journal; `None`: the
    /// peer has not shown one. `who`: the peer's name and address for people.
    pub(super) fn refused_by_name(&self, peer: SocketAddr, host: Option<&str>, who: &str, why: &dyn Display) {
        let now_ms = clock::mono_ms();
        let (is_logged, suppressed) =
            self.0.lock().unwrap_or_else(PoisonError::into_inner).admit(now_ms, LINES, WINDOW_MS);
        if suppressed > 0 {
            tracing::warn!("{suppressed} more connections were refused and not logged");
        }
        if is_logged {
            // An error of a connection names its peer, too.
            let why = why.to_string();
            let why = why.strip_prefix(&format!("{peer}: ")).unwrap_or(&why);
            tracing::warn!(%peer, host, "refused {who}: {why}");
        }
    }
}

/// Returns the peer's address with IPv4 as people write it: `10.0.0.1:4000` for `[::ffff:10.0.0.1]:4000`.
pub(super) fn canonical(peer: SocketAddr) -> SocketAddr {
    SocketAddr::new(peer.ip().to_canonical(), peer.port())
}

/// Writes log lines about refusals that deserve attention, for example of peers with a certificate of the site. Each
/// address normally has its own limit, so that lines about one address do not suppress lines about another.
#[derive(Debug)]
pub(crate) struct ComplaintsOfEach {
    each: Each<IpAddr>,
    /// The one limit that the log lines about all further addresses share, once [`MOST`] addresses have a limit of
    /// their own.
    others: Complaints,
}

impl Default for ComplaintsOfEach {
    fn default() -> Self {
        Self { each: Each::new(MOST), others: Complaints::default() }
    }
}

impl ComplaintsOfEach {
    /// Logs that the controller refused `peer`, unless it has logged the same line, or too many lines about the
    /// address, lately.
    pub(crate) fn refused(&self, peer: SocketAddr, why: &str) {
        let address = peer.ip().to_canonical();
        match self.each.admit(address, why) {
            None => self.others.refused(peer, &why),
            Some((is_logged, suppressed)) => {
                if suppressed > 0 {
                    tracing::warn!(%peer, "refused {address} {suppressed} times more, which was not logged");
                }
                if is_logged {
                    tracing::warn!(%peer, "refused {}: {why}", canonical(peer));
                }
            }
        }
    }
}
