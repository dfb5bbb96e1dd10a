//! A munge credential in the place of a token. That it is munge's, new, and of this key says *that* root of some host with munge's key asks; which host, only
//! the address says from which it asks (docs/decisions/0011).
//!
//! ```text
//!   port below 1024 ── unmunge: good, uid 0, this name and key ── the name has the peer's address ── and the origin's ──> vouched for
//! ```
//! In this order: nobody has a program run or a name looked up who could not be a node's agent.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use perilog_host::enroll::bound;
use perilog_host::link::is_roots;
use perilog_host::munge::{self, Decoded};
use tokio::sync::Semaphore;

/// Programs and lookups at once. One takes some milliseconds, so that ten thousand nodes that boot at once are through within a minute or two.
const AT_ONCE: usize = 8;
/// A visitor waits so long for its turn; what it does then has limits of its own. Together less than a visit may take.
const TURN: Duration = Duration::from_secs(4);

/// The resolver of this host: /etc/hosts, DNS, what nsswitch.conf says. It may block for seconds.
type Resolve = fn(&str) -> io::Result<Vec<IpAddr>>;

pub(super) struct Munge {
    /// `unmunge`; none where munge counts for nothing.
    program: RwLock<Option<PathBuf>>,
    turns: Arc<Semaphore>,
    resolve: Resolve,
}

impl Munge {
    pub(super) fn new(program: Option<PathBuf>) -> Self {
        Self { program: RwLock::new(program), turns: Arc::new(Semaphore::new(AT_ONCE)), resolve }
    }

    #[cfg(test)]
    pub(super) fn with_names(program: PathBuf, resolve: Resolve) -> Self {
        Self { resolve, ..Self::new(Some(program)) }
    }

    pub(super) fn set(&self, program: Option<PathBuf>) {
        *self.program.write().unwrap_or_else(PoisonError::into_inner) = program;
    }

    /// Whether root of this host asks for this key (DER).
    ///
    /// # Errors
    /// A sentence for the log, with what to do.
    pub(super) async fn vouch(&self, credential: &str, host: &str, key: &[u8], peer: SocketAddr) -> Result<(), String> {
        let program = self.program.read().unwrap_or_else(PoisonError::into_inner).clone();
        let program = program.ok_or("it shows a munge credential, and [enroll] munge is not true here")?;
        may_ask(host, peer)?;
        let Ok(Ok(turn)) = tokio::time::timeout(TURN, self.turns.clone().acquire_owned()).await else {
            return Err(format!(
                "{AT_ONCE} credentials are looked at already, and none was done within {TURN:?}; it asks again. Do munged and the resolver of this host answer?"
            ));
        };
        let decoded = munge::decode(&program, credential).await.map_err(|error| error.to_string())?;
        is_of_root(&decoded, host, key)?;
        let (name, resolve) = (host.to_owned(), self.resolve);
        // It has its turn until the resolver has answered, whether or not anybody waits.
        let looked_up = tokio::task::spawn_blocking(move || (resolve(&name), turn)).await;
        let addresses =
            looked_up.map_err(io::Error::other).and_then(|(addresses, _turn)| addresses).map_err(|error| {
                format!("{host} has no address here ({error}): put it into /etc/hosts or DNS; getent ahosts {host}")
            })?;
        is_there(host, peer.ip(), decoded.origin, &addresses)
    }
}

fn resolve(host: &str) -> io::Result<Vec<IpAddr>> {
    Ok((host, 0).to_socket_addrs()?.map(|address| address.ip()).collect())
}

/// What is seen without asking anybody.
fn may_ask(host: &str, peer: SocketAddr) -> Result<(), String> {
    if !is_roots(peer.port()) {
        return Err(format!(
            "it comes from port {}, which any user of that host may take; an agent takes one below 1024 (is there a NAT between?)",
            peer.port()
        ));
    }
    // The resolver takes `10.0.0.3`, `167772163` and `0xa000003` for the address itself: everybody has that name.
    let last = host.trim_end_matches('.').rsplit('.').next().unwrap_or_default();
    if last.starts_with("0x") || last.starts_with("0X") || last.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(format!("{host} is a number, and no name that says which host this is; give it a token"));
    }
    Ok(())
}

/// Root has made it, for this.
fn is_of_root(decoded: &Decoded, host: &str, key: &[u8]) -> Result<(), String> {
    if decoded.uid != 0 {
        return Err(format!("its munge credential is uid {}'s, not root's: find out who that is", decoded.uid));
    }
    if decoded.payload != bound(host, key).as_bytes() {
        return Err(format!(
            "its munge credential was not made for {host} with this key: somebody uses it a second time, or has made it for something else"
        ));
    }
    Ok(())
}

/// The host of this name has these addresses: the peer's is one, and that of munged where the credential was made, if it says any.
fn is_there(host: &str, peer: IpAddr, origin: Ipv4Addr, addresses: &[IpAddr]) -> Result<(), String> {
    let (peer, origin) = (peer.to_canonical(), IpAddr::V4(origin));
    let has = |address| addresses.iter().any(|of| of.to_canonical() == address);
    let shown = || addresses.iter().map(|of| of.to_canonical().to_string()).collect::<Vec<_>>().join(", ");
    if !has(peer) {
        return Err(format!(
            "{host} is {} here, and not {peer}: if that is its address, put it into /etc/hosts or DNS; if not, find out who that is",
            shown()
        ));
    }
    // munged that knows no address of its host's says none, or loopback's.
    let says_nothing = origin.is_unspecified() || origin.is_loopback();
    if !says_nothing && origin != peer && !has(origin) {
        return Err(format!(
            "its munge credential was made at {origin}, and {host} is {} here: put that into /etc/hosts or DNS, or set --origin of munged there; if it is another host's, find out who that is",
            shown()
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &[u8] = b"a key";

    fn decoded(uid: u32, payload: &str) -> Decoded {
        Decoded { uid, origin: Ipv4Addr::UNSPECIFIED, payload: payload.into() }
    }

    #[test]
    fn a_credential_counts_for_root_and_for_its_name_and_key() {
        let payload = bound("n1", KEY);
        assert!(payload.starts_with("perilog-enroll-1 n1 ") && payload.len() == 85, "{payload}");
        let slurms = "";
        for (uid, payload, host, key, expect) in [
            (0, payload.as_str(), "n1", KEY, None),
            (1000, &payload, "n1", KEY, Some("is uid 1000's, not root's")),
            (u32::MAX, &payload, "n1", KEY, Some("not root's")),
            (0, &payload, "n2", KEY, Some("was not made for n2 with this key")),
            (0, &payload, "n1", b"another key", Some("was not made for n1 with this key")),
            (0, &payload.replace("enroll-1", "enroll-2"), "n1", KEY, Some("was not made for")),
            (0, payload.trim_end(), "n1", KEY, Some("was not made for")),
            (0, &format!("{payload}more"), "n1", KEY, Some("was not made for")),
            (0, slurms, "n1", KEY, Some("was not made for")),
        ] {
            let said = is_of_root(&decoded(uid, payload), host, key);
            let fits = said.as_ref().err().zip(expect).map(|(said, part)| said.contains(part));
            assert!(fits.unwrap_or(said.is_ok() && expect.is_none()), "{uid} {payload:?} {host}: {said:?}");
        }
    }

    #[test]
    fn the_address_says_which_host_it_is() {
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        let (one, two) = (["10.0.0.1"].map(ip), ["10.1.0.1", "10.0.0.1", "fd00::1"].map(ip));
        let mapped = ["::ffff:10.0.0.1"].map(ip);
        for (peer, origin, addresses, expect) in [
            ("10.0.0.1", "10.0.0.1", &one[..], None),
            // A socket of IPv6 takes IPv4, too; and so may a resolver.
            ("::ffff:10.0.0.1", "10.0.0.1", &one, None),
            ("10.0.0.1", "10.0.0.1", &mapped, None),
            ("10.0.0.2", "10.0.0.1", &one, Some("n1 is 10.0.0.1 here, and not 10.0.0.2")),
            ("::10.0.0.1", "10.0.0.1", &one, Some("and not ::a00:1")),
            ("10.0.0.2", "0.0.0.0", &one, Some("and not 10.0.0.2")),
            ("127.0.0.1", "10.0.0.1", &one, Some("and not 127.0.0.1")),
            ("10.0.0.1", "10.0.0.1", &[], Some("n1 is  here, and not")),
            // Several networks.
            ("10.1.0.1", "10.0.0.1", &two, None),
            ("fd00::1", "10.0.0.1", &two, None),
            ("fd00::1", "10.0.0.2", &two, Some("was made at 10.0.0.2, and n1 is 10.1.0.1, 10.0.0.1, fd00::1 here")),
            // An origin that says nothing, and one that says another host.
            ("10.0.0.1", "0.0.0.0", &one, None),
            ("10.0.0.1", "127.0.1.1", &one, None),
            ("10.0.0.1", "10.0.0.9", &one, Some("was made at 10.0.0.9")),
        ] {
            let said = is_there("n1", ip(peer), origin.parse().unwrap(), addresses);
            let fits = said.as_ref().err().zip(expect).map(|(said, part)| said.contains(part));
            assert!(fits.unwrap_or(said.is_ok() && expect.is_none()), "{peer} {origin} {addresses:?}: {said:?}");
        }
    }

    #[test]
    fn a_port_of_any_users_and_a_number_for_a_name_are_nobody() {
        let from = |port: u16| SocketAddr::from(([10, 0, 0, 1], port));
        for (host, port, expect) in [
            ("n1", 1023, None),
            ("n1.site.example", 600, None),
            ("0x1.site", 600, None),
            ("n1", 1024, Some("port 1024, which any user")),
            ("10.0.0.1", 600, Some("is a number")),
            ("167772161", 600, Some("is a number")),
            ("10.1", 600, Some("is a number")),
            ("0xa000001", 600, Some("is a number")),
            ("10.0.0.1.", 600, Some("is a number")),
        ] {
            let said = may_ask(host, from(port));
            let fits = said.as_ref().err().zip(expect).map(|(said, part)| said.contains(part));
            assert!(fits.unwrap_or(said.is_ok() && expect.is_none()), "{host} {port}: {said:?}");
        }
    }

    #[test]
    fn names_are_this_hosts_resolvers() {
        assert!(resolve("localhost").is_ok_and(|addresses| addresses.iter().all(IpAddr::is_loopback)));
        assert!(resolve("no-such-host.invalid").is_err());
    }
}
