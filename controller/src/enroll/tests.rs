//! Who is given a certificate, and for what.

use std::net::{IpAddr, Ipv4Addr};
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;

use perilog_core::HostList;
use perilog_host::authority::{self, ISSUED, Issuer, KeyPair};
use perilog_host::enroll::bound;

use super::*;

const NOW: u64 = 1_800_000_000_000;
const HOUR: u64 = 3_600_000;
/// A port of root's on n1.
const PEER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)), 600);

struct Bed {
    dir: tempfile::TempDir,
    enrolment: Arc<Enrolment>,
}

impl Bed {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let enrolment = Enrolment::open(&dir.path().join("enroll"), "test", HOUR, None).unwrap();
        Self { dir, enrolment: Arc::new(enrolment) }
    }

    fn token(&self, host: &str) -> String {
        let hosts: HostList = host.parse().unwrap();
        self.enrolment.tokens.make(&hosts, 0, NOW, NOW + HOUR).unwrap().remove(0).1
    }

    /// What is told, or "a certificate".
    fn ask(&self, shown: &[&str], host: &str, token: Option<&str>, key: &str) -> String {
        let shown: Vec<String> = shown.iter().map(ToString::to_string).collect();
        let csr = authority::request(key).unwrap_or_else(|_| key.to_owned());
        let ask = Ask { host: host.to_owned(), token: token.map(str::to_owned), munge: None, csr };
        match self.enrolment.judge(&shown, &ask, Err("no munge credential".to_owned()), NOW) {
            Ok(_) => "a certificate".to_owned(),
            Err((told, _)) => told,
        }
    }

    fn issued(&self) -> usize {
        std::fs::read_to_string(self.dir.path().join("enroll").join(ISSUED)).map_or(0, |text| text.lines().count())
    }
}

#[test]
fn a_token_or_a_certificate_of_ours_and_nothing_else_gives_one() {
    let bed = Bed::new();
    let (token, key, other) = (bed.token("n0"), authority::key().unwrap(), authority::key().unwrap());
    let used =
        "the token was used already; if that was not this node, revoke the host's certificates (perilog ca revoke)";
    for (shown, host, token, key, told) in [
        (&[][..], "n0", None, &key, "neither a token nor a certificate of an earlier enrolment"),
        (&[], "n0", Some("abc"), &key, "the token is not known (any more)"),
        (&[], "n1", Some(token.as_str()), &key, "the token is not for n1"),
        (&[], "n 0", Some(&token), &key, "malformed host name"),
        (&[], "n0", Some(&token), &"no key".to_owned(), "no good request"),
        // None of these has used it up.
        (&[], "n0", Some(&token), &key, "a certificate"),
        (&[], "n0", Some(&token), &other, used),
        // An answer that was lost.
        (&[], "n0", Some(&token), &key, "a certificate"),
        (&["n0"], "n0", None, &key, "a certificate"),
        (&["n0"], "n1", None, &key, "the certificate is for n0, not for n1"),
        // A certificate does not make up for a token that is none.
        (&["n0"], "n0", Some("abc"), &key, "the token is not known (any more)"),
    ] {
        let said = bed.ask(shown, host, token, key);
        assert!(said.starts_with(told), "{shown:?} {host} {token:?}: {said}");
    }
    assert_eq!(bed.issued(), 3, "each can be revoked");
}

#[test]
fn a_certificate_has_a_number_of_its_own_and_the_authority_stays_the_same() {
    let bed = Bed::new();
    let key = authority::key().unwrap();
    assert_eq!(bed.ask(&["n0"], "n0", None, &key), "a certificate");
    let dir = bed.dir.path().join("enroll");
    let again = Enrolment::open(&dir, "test", HOUR, None).unwrap();
    let bed = Bed { enrolment: Arc::new(again), ..bed };
    assert_eq!(bed.ask(&["n0"], "n0", None, &key), "a certificate");
    let text = std::fs::read_to_string(dir.join(ISSUED)).unwrap();
    let serials: std::collections::BTreeSet<String> =
        text.lines().map(|line| serde_json::from_str::<authority::Issued>(line).unwrap().serial).collect();
    assert_eq!(serials.len(), 2, "{text}");
    use std::os::unix::fs::MetadataExt;
    let mode = |name: &str| std::fs::metadata(dir.join(name)).unwrap().mode() & 0o777;
    assert_eq!((mode(""), mode("ca-key.pem"), mode("ca.pem"), mode("tokens")), (0o700, 0o600, 0o644, 0o700));
}

/// The addresses of a small cluster. The test looks none up.
fn names(host: &str) -> std::io::Result<Vec<IpAddr>> {
    match host {
        "n1" | "N1" | "alias" => Ok(vec![PEER.ip()]),
        "n2" => Ok(vec![Ipv4Addr::new(10, 0, 0, 2).into()]),
        _ => Err(std::io::ErrorKind::NotFound.into()),
    }
}

/// A program in the place of `unmunge`: whatever it is given, it says that this user has said this, at this address.
fn unmunge(bed: &Bed, uid: u32, origin: &str, payload: &str) {
    let path = bed.dir.path().join("unmunge");
    let said =
        format!("STATUS:          Success (0)\nENCODE_HOST:     x ({origin})\nUID:             x ({uid})\n\n{payload}");
    std::fs::write(bed.dir.path().join("said"), said).unwrap();
    let new = path.with_extension("new");
    std::fs::write(
        &new,
        format!("#!/bin/sh\n[ \"$(/bin/cat)\" = MUNGE:abc: ] && exec /bin/cat {}/said", bed.dir.path().display()),
    )
    .unwrap();
    std::fs::set_permissions(&new, std::fs::Permissions::from_mode(0o755)).unwrap();
    std::fs::rename(new, path).unwrap();
}

/// A bed where munge counts.
fn munged() -> Bed {
    let bed = Bed::new();
    let enrolment = Enrolment::open(&bed.dir.path().join("enroll"), "test", HOUR, None).unwrap();
    let munge = Munge::with_names(bed.dir.path().join("unmunge"), names);
    Bed { enrolment: Arc::new(Enrolment { munge, ..enrolment }), ..bed }
}

/// (what is told, what is logged), or a certificate's.
async fn by_munge(bed: &Bed, host: &str, credential: &str, key: &str, peer: SocketAddr) -> (String, String) {
    let csr = authority::request(key).unwrap();
    let ask = Ask { host: host.to_owned(), token: None, munge: Some(credential.to_owned()), csr };
    match bed.enrolment.answer(peer, Vec::new(), ask, NOW).await {
        Ok((_, how)) => ("a certificate".to_owned(), how),
        Err(refused) => refused,
    }
}

fn public(key: &str) -> Vec<u8> {
    Requested::read(&authority::request(key).unwrap()).unwrap().key()
}

#[tokio::test]
async fn munge_enrols_the_host_that_has_the_address_and_no_other() {
    let bed = munged();
    let (key, other) = (authority::key().unwrap(), authority::key().unwrap());
    let (n1, n2) = (bound("n1", &public(&key)), bound("n2", &public(&key)));
    let elsewhere = SocketAddr::from(([10, 0, 0, 2], 600));
    let of_a_user = SocketAddr::new(PEER.ip(), 40_000);
    for (uid, origin, payload, host, credential, key, peer, logged) in [
        (0, "10.0.0.1", &n1, "n1", "MUNGE:abc:", &key, PEER, Ok("by munge, serial number")),
        (1000, "10.0.0.1", &n1, "n1", "MUNGE:abc:", &key, PEER, Err("is uid 1000's, not root's")),
        (0, "10.0.0.1", &n1, "n1", "MUNGE:abc:", &other, PEER, Err("was not made for n1 with this key")),
        (0, "10.0.0.1", &n1, "n2", "MUNGE:abc:", &key, PEER, Err("was not made for n2 with this key")),
        // Root of n1 has a credential made for the name of n2, and whoever has munge's key says that it was made there.
        (0, "10.0.0.1", &n2, "n2", "MUNGE:abc:", &key, PEER, Err("n2 is 10.0.0.2 here, and not 10.0.0.1")),
        (0, "10.0.0.2", &n2, "n2", "MUNGE:abc:", &key, PEER, Err("n2 is 10.0.0.2 here, and not 10.0.0.1")),
        // A user of n2 lets root of n1 through.
        (0, "10.0.0.1", &n2, "n2", "MUNGE:abc:", &key, elsewhere, Err("was made at 10.0.0.1, and n2 is 10.0.0.2")),
        (0, "10.0.0.1", &n1, "n1", "MUNGE:abc:", &key, of_a_user, Err("from port 40000, which any user")),
        (0, "10.0.0.1", &n1, "n1", "MUNGE:another:", &key, PEER, Err("exit status: 1")),
        (0, "10.0.0.1", &n1, "n1", "token", &key, PEER, Err("it was not asked")),
        (0, "10.0.0.1", &bound("n9", &public(&key)), "n9", "MUNGE:abc:", &key, PEER, Err("n9 has no address here")),
    ] {
        unmunge(&bed, uid, origin, payload);
        let case = format!("{uid} {origin} {payload:?} {host} {credential} {peer}");
        let (told, said) = by_munge(&bed, host, credential, key, peer).await;
        let expect = logged.map_or(NOT_MUNGED, |_| "a certificate");
        assert!(told == expect && said.contains(logged.unwrap_or_else(|why| why)), "{case}: {told}, {said}");
    }
    assert_eq!(bed.issued(), 1);
}

#[tokio::test]
async fn munge_counts_only_where_it_is_switched_on() {
    let bed = Bed::new();
    let key = authority::key().unwrap();
    unmunge(&bed, 0, "10.0.0.1", &bound("n1", &public(&key)));
    let (told, logged) = by_munge(&bed, "n1", "MUNGE:abc:", &key, PEER).await;
    assert_eq!((told.as_str(), logged.contains("[enroll] munge is not true here")), (NOT_MUNGED, true), "{logged}");
}

/// Root of a node that was thrown out has munge's key and its address still.
#[tokio::test]
async fn munge_does_not_bring_back_who_was_revoked_and_a_token_does() {
    let bed = munged();
    let key = authority::key().unwrap();
    let serials = || -> Vec<String> {
        let text = std::fs::read_to_string(bed.dir.path().join("enroll").join(ISSUED)).unwrap();
        text.lines().map(|line| serde_json::from_str::<authority::Issued>(line).unwrap().serial).collect()
    };
    // As `perilog ca revoke` does: a new file in the place of the old one.
    let revoke = |serials: &[String]| {
        let dir = bed.dir.path().join("enroll");
        let text = |name: &str| std::fs::read_to_string(dir.join(name)).unwrap();
        let issuer =
            Issuer::from_ca_cert_pem(&text("ca.pem"), KeyPair::from_pem(&text("ca-key.pem")).unwrap()).unwrap();
        let list: Vec<_> =
            serials.iter().map(|serial| authority::Revoked { serial: serial.clone(), at_ms: NOW }).collect();
        std::fs::write(dir.join("new"), authority::revocations(&issuer, 2, &list, NOW, NOW + HOUR).unwrap()).unwrap();
        std::fs::rename(dir.join("new"), dir.join("crl.pem")).unwrap();
    };
    let ask = async |host: &str| {
        unmunge(&bed, 0, "10.0.0.1", &bound(host, &public(&key)));
        by_munge(&bed, host, "MUNGE:abc:", &key, PEER).await
    };
    assert_eq!(ask("n1").await.0, "a certificate");
    revoke(&serials());
    for host in ["n1", "N1"] {
        let (told, logged) = ask(host).await;
        assert!(told == NOT_MUNGED && logged.contains("was revoked: munge does not bring it back"), "{host}: {logged}");
    }
    assert_eq!(ask("alias").await.0, "a certificate", "another name speaks for nobody else");
    let token = bed.token("n1");
    assert_eq!(bed.ask(&[], "n1", Some(&token), &key), "a certificate");
    assert_eq!(ask("n1").await.0, "a certificate", "and the next boot");
    // What came before its newest one does not count, also for a controller that was started anew.
    revoke(&serials()[..2]);
    assert!(!Revoked::new(&bed.dir.path().join("enroll")).has("n1").unwrap());
    revoke(&serials());
    assert!(bed.enrolment.revoked.has("n1").unwrap());
    // Who cannot tell lets nobody in.
    std::fs::write(bed.dir.path().join("enroll/crl.pem"), "no list").unwrap();
    let (told, logged) = ask("n1").await;
    assert!(told == NOT_MUNGED && logged.contains("it cannot be seen whether n1 was revoked"), "{logged}");
}
