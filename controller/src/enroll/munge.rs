//! Munge credential in place of a token. A valid, new credential for this key proves *that* root of some host with
//! munge's key asks. Only the peer's address proves which host (docs/decisions/0011).
//!
//! ```text
//!   [enroll] munge-hosts ── port 600-1023 ── unmunge: valid, uid 0, this name and key
//!       ── the name has the peer's address ── the name has the origin's address ──> root of that host asks
//! ```
//! The order matters: only a peer that could be a node's agent causes a program to run or a name to be looked up.

use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use perilog_core::HostList;
use perilog_host::authority::canonical;
use perilog_host::enroll::bound;
use perilog_host::link::is_roots;
use perilog_host::munge::{self, Decoded};
use perilog_host::program;
use tokio::sync::Semaphore;

/// Maximum number of credentials that the controller judges at once. Each takes some milliseconds, so ten thousand
/// nodes that boot at once pass within a minute or two.
const AT_ONCE: usize = 8;
/// Maximum time for which a credential waits until fewer than [`AT_ONCE`] others are being judged. The later steps of
/// the judgement have limits of their own; together they stay below the server's limit for the decision.
const TURN: Duration = Duration::from_secs(2);
/// Maximum time for the lookup of a host's addresses: a resolver needs 5 s to skip a dead server (resolv.conf(5)).
const LOOKUP: Duration = Duration::from_secs(6);
/// Resolver of this host: /etc/hosts and DNS, according to nsswitch.conf. The resolver runs as a program, because the
/// controller can kill a program that hangs. A call in this process could hang for ever.
const GETENT: &str = "/usr/bin/getent";

/// The hosts that may enrol with a munge credential, and the program that decodes one.
#[derive(Debug, Clone)]
pub(crate) struct Munged {
    unmunge: PathBuf,
    /// Canonical names of the hosts that may enrol.
    hosts: HashSet<String>,
}

impl Munged {
    pub(crate) fn new(unmunge: PathBuf, hosts: &HostList) -> Self {
        Self { unmunge, hosts: hosts.iter().map(canonical).collect() }
    }
}

pub(super) struct Munge {
    /// The hosts and the program of munge, replaced by a reload; `None` if munge is disabled.
    set: RwLock<Option<Arc<Munged>>>,
    turns: Arc<Semaphore>,
    getent: PathBuf,
}

/// The reason of a rejected credential, only for the log.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Doubt {
    /// Whether this rejection deserves attention: only a peer with munge's key could cause it, or the controller is at
    /// fault. The log lines about such rejections have limits of their own, so that lines about strangers do not
    /// suppress them.
    pub(super) is_serious: bool,
    pub(super) why: String,
}

pub(super) fn stranger(why: impl ToString) -> Doubt {
    Doubt { is_serious: false, why: why.to_string() }
}

fn serious(why: impl ToString) -> Doubt {
    Doubt { is_serious: true, why: why.to_string() }
}

impl Munge {
    pub(super) fn new(set: Option<Munged>) -> Self {
        let set = RwLock::new(set.map(Arc::new));
        Self { set, turns: Arc::new(Semaphore::new(AT_ONCE)), getent: GETENT.into() }
    }

    #[cfg(test)]
    pub(super) fn with_getent(self, getent: PathBuf) -> Self {
        Self { getent, ..self }
    }

    pub(super) fn set(&self, set: Option<Munged>) {
        *self.set.write().unwrap_or_else(PoisonError::into_inner) = set.map(Arc::new);
    }

    /// Confirms by a munge credential that root of `host` (canonical) asks for a certificate of `key` (DER).
    ///
    /// # Errors
    /// [`Doubt`], for the log: munge is off, the host or its port may not ask, too many checks run, `unmunge` fails or
    /// refuses, root did not make the credential for this host and key, or an address is not the host's.
    pub(super) async fn confirm(
        &self,
        credential: &str,
        host: &str,
        key: &[u8],
        peer: SocketAddr,
    ) -> Result<(), Doubt> {
        let set = self.set.read().unwrap_or_else(PoisonError::into_inner).clone();
        let set = set
            .ok_or_else(|| stranger("it sent a munge credential, but [enroll] munge is not set on this controller"))?;
        may_ask(&set.hosts, host, peer).map_err(stranger)?;
        let Ok(Ok(_turn)) = tokio::time::timeout(TURN, self.turns.acquire()).await else {
            return Err(stranger(format_args!(
                "{AT_ONCE} credentials are being checked already, and no check ended within {TURN:?}; the node asks \
                 again. Do munged and the resolver of this host answer?"
            )));
        };
        let decoded = munge::decode(&set.unmunge, credential).await;
        let decoded =
            decoded.map_err(|error| Doubt { is_serious: !error.is_of_strangers(), why: error.to_string() })?;
        is_of_root(&decoded, host, key).map_err(serious)?;
        let addresses = addresses(&self.getent, host).await.map_err(serious)?;
        is_there(host, peer.ip(), decoded.origin, &addresses).map_err(serious)
    }
}

/// Returns the addresses of `host`, as this host's resolver knows them.
async fn addresses(getent: &Path, host: &str) -> Result<Vec<IpAddr>, String> {
    let answer = program::ask(getent, &["ahosts", host], b"", LOOKUP).await;
    let answer = answer.map_err(|error| format!("the addresses of {host} are not known here: {error}"))?;
    // Each kind of socket has a line: the address, the kind, perhaps the name.
    let text = String::from_utf8_lossy(&answer.output);
    let mut addresses: Vec<IpAddr> =
        text.lines().filter_map(|line| line.split_whitespace().next()?.parse().ok()).collect();
    addresses.dedup();
    if !answer.status.success() || addresses.is_empty() {
        return Err(format!(
            "{host} has no address here: add it to /etc/hosts or DNS (getent ahosts {host}: {})",
            answer.status
        ));
    }
    Ok(addresses)
}

/// Checks, without running a program or looking up a name, that `host` is one of `hosts`, and that only root can use
/// the peer's port. The error is a sentence for the log.
fn may_ask(hosts: &HashSet<String>, host: &str, peer: SocketAddr) -> Result<(), String> {
    if !hosts.contains(host) {
        return Err(format!(
            "{host} is not in [enroll] munge-hosts: if it is a node, add it there; if not, find out who asks"
        ));
    }
    if !is_roots(peer.port()) {
        return Err(format!(
            "it comes from port {}, but an agent uses one of 600 to 1023, which only root may use: is there a NAT in \
             between? If not, find out who asks",
            peer.port()
        ));
    }
    Ok(())
}

/// Checks that root made the credential, for the enrolment of this host with this key (DER).
fn is_of_root(decoded: &Decoded, host: &str, key: &[u8]) -> Result<(), String> {
    if decoded.uid != 0 {
        return Err(format!("its munge credential is of uid {}, not of root: find out who asks", decoded.uid));
    }
    if decoded.payload != bound(host, key).as_bytes() {
        return Err(format!(
            "its munge credential was not made for {host} with this key: it is used a second time, or was made for \
             something else"
        ));
    }
    Ok(())
}

/// Checks that two addresses belong to `host`: the peer's, and `origin`, at which munged made the credential. A munged
/// that does not know its own address passes. `addresses`: the host's addresses by the resolver. The error is a
/// sentence for the log.
fn is_there(host: &str, peer: IpAddr, origin: Ipv4Addr, addresses: &[IpAddr]) -> Result<(), String> {
    let (peer, origin) = (peer.to_canonical(), IpAddr::V4(origin));
    let has = |address| addresses.iter().any(|of| of.to_canonical() == address);
    let shown = || addresses.iter().map(|of| of.to_canonical().to_string()).collect::<Vec<_>>().join(", ");
    if !has(peer) {
        return Err(format!(
            "{host} has the address {} here, not {peer}: if {peer} belongs to {host}, add it to /etc/hosts or DNS; if \
             not, find out who asks",
            shown()
        ));
    }
    // A munged that does not know its host's address reports no address, or loopback.
    let is_no_address = origin.is_unspecified() || origin.is_loopback();
    if !is_no_address && origin != peer && !has(origin) {
        return Err(format!(
            "its munge credential was made at {origin}, but {host} has the address {} here: add {origin} to /etc/hosts \
             or DNS, or set --origin of munged on {host}; if {origin} is of another host, find out who asks",
            shown()
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

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
            (1000, &payload, "n1", KEY, Some("is of uid 1000, not of root")),
            (u32::MAX, &payload, "n1", KEY, Some("not of root")),
            (0, &payload, "n2", KEY, Some("was not made for n2 with this key")),
            (0, &payload, "n1", b"another key", Some("was not made for n1 with this key")),
            (0, &payload.replace("enroll-1", "enroll-2"), "n1", KEY, Some("was not made for")),
            (0, payload.trim_end(), "n1", KEY, Some("was not made for")),
            (0, &format!("{payload}more"), "n1", KEY, Some("was not made for")),
            (0, slurms, "n1", KEY, Some("was not made for")),
        ] {
            let answer = is_of_root(&decoded(uid, payload), host, key);
            let fits = answer.as_ref().err().zip(expect).map(|(answer, part)| answer.contains(part));
            assert!(fits.unwrap_or(answer.is_ok() && expect.is_none()), "{uid} {payload:?} {host}: {answer:?}");
        }
    }

    #[test]
    fn the_address_says_which_host_it_is() {
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        let (one, two) = (["10.0.0.1"].map(ip), ["10.1.0.1", "10.0.0.1", "fd00::1"].map(ip));
        let mapped = ["::ffff:10.0.0.1"].map(ip);
        for (peer, origin, addresses, expect) in [
            ("10.0.0.1", "10.0.0.1", &one[..], None),
            // A socket of IPv6 also accepts IPv4, and a resolver may return either form.
            ("::ffff:10.0.0.1", "10.0.0.1", &one, None),
            ("10.0.0.1", "10.0.0.1", &mapped, None),
            ("10.0.0.2", "10.0.0.1", &one, Some("n1 has the address 10.0.0.1 here, not 10.0.0.2")),
            ("::10.0.0.1", "10.0.0.1", &one, Some("here, not ::a00:1")),
            ("10.0.0.2", "0.0.0.0", &one, Some("here, not 10.0.0.2")),
            ("127.0.0.1", "10.0.0.1", &one, Some("here, not 127.0.0.1")),
            ("10.0.0.1", "10.0.0.1", &[], Some("n1 has the address  here, not")),
            // Several networks.
            ("10.1.0.1", "10.0.0.1", &two, None),
            ("fd00::1", "10.0.0.1", &two, None),
            (
                "fd00::1",
                "10.0.0.2",
                &two,
                Some("was made at 10.0.0.2, but n1 has the address 10.1.0.1, 10.0.0.1, fd00::1 here"),
            ),
            // An empty origin, and the origin of another host.
            ("10.0.0.1", "0.0.0.0", &one, None),
            ("10.0.0.1", "127.0.1.1", &one, None),
            ("10.0.0.1", "10.0.0.9", &one, Some("was made at 10.0.0.9")),
        ] {
            let answer = is_there("n1", ip(peer), origin.parse().unwrap(), addresses);
            let fits = answer.as_ref().err().zip(expect).map(|(answer, part)| answer.contains(part));
            assert!(fits.unwrap_or(answer.is_ok() && expect.is_none()), "{peer} {origin} {addresses:?}: {answer:?}");
        }
    }

    #[test]
    fn an_unlisted_host_or_a_port_of_any_user_is_refused() {
        let hosts = Munged::new(PathBuf::new(), &"n[1-2],N3.,site".parse().unwrap()).hosts;
        let from = |port: u16| SocketAddr::from(([10, 0, 0, 1], port));
        for (host, port, expect) in [
            ("n1", 1023, None),
            ("n2", 600, None),
            ("n3", 600, None),
            ("n1", 1024, Some("port 1024, but an agent uses one of 600 to 1023")),
            ("n1", 599, Some("port 599")),
            ("n4", 600, Some("n4 is not in [enroll] munge-hosts")),
            ("alias", 600, Some("alias is not in")),
            ("10.0.0.1", 600, Some("10.0.0.1 is not in")),
        ] {
            let answer = may_ask(&hosts, host, from(port));
            let fits = answer.as_ref().err().zip(expect).map(|(answer, part)| answer.contains(part));
            assert!(fits.unwrap_or(answer.is_ok() && expect.is_none()), "{host} {port}: {answer:?}");
        }
    }

    fn program(dir: &tempfile::TempDir, body: &str) -> PathBuf {
        let (path, new) = (dir.path().join("getent"), dir.path().join("new"));
        std::fs::write(&new, format!("#!/bin/sh\n{body}\n")).unwrap();
        std::fs::set_permissions(&new, std::fs::Permissions::from_mode(0o755)).unwrap();
        // `cp` makes the executable: another test that forks at this moment would inherit this process's open file, and
        // exec would fail with "text file busy".
        let copied = std::process::Command::new("cp").arg("--remove-destination").args([&new, &path]).status();
        assert!(copied.unwrap().success());
        path
    }

    #[tokio::test]
    async fn names_come_from_this_hosts_resolver_within_a_limit() {
        let here = addresses(Path::new(GETENT), "localhost").await.unwrap();
        assert!(here.iter().all(IpAddr::is_loopback), "{here:?}");
        let error = addresses(Path::new(GETENT), "no-such-host.invalid").await.unwrap_err();
        assert!(error.contains("no-such-host.invalid has no address here"), "{error}");
        let dir = tempfile::tempdir().unwrap();
        let getent_program = program(
            &dir,
            "[ \"$*\" = 'ahosts n1' ] && echo '10.0.0.1 STREAM n1'; echo '10.0.0.1 DGRAM'; echo 'fd00::1 RAW'",
        );
        let answer = addresses(&getent_program, "n1").await.unwrap();
        assert_eq!(answer.iter().map(ToString::to_string).collect::<Vec<_>>(), ["10.0.0.1", "fd00::1"]);

        let begun = dir.path().join("begun");
        let hangs = program(&dir, &format!(": >{}; exec /bin/sleep 1000", begun.display()));
        let munge = Munge::new(None).with_getent(hangs);
        let asked = tokio::spawn(async move { addresses(&munge.getent, "n1").await });
        while !begun.exists() {
            tokio::task::yield_now().await;
        }
        tokio::time::pause();
        let error = asked.await.unwrap().unwrap_err();
        assert!(
            error.contains("the addresses of n1 are not known here") && error.contains("within 6s, and was killed"),
            "{error}"
        );
    }
}
