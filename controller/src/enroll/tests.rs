//! Tests of enrolment's decisions: which host gets a certificate, for which proof.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};
use std::os::unix::fs::PermissionsExt;

use perilog_core::HostList;
use perilog_host::authority::{self, ISSUED, Issued, Issuer, KeyPair};
use perilog_host::enroll::bound;

use super::*;

const NOW: u64 = 1_800_000_000_000;
const HOUR: u64 = 3_600_000;

/// Address of the host n1, with a port that only root can use.
const PEER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)), 600);

struct Bed {
    dir: tempfile::TempDir,
    enrolment: Arc<Enrolment>,
}

impl Bed {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let enrolment = Enrolment::open(&dir.path().join("enroll"), "test", HOUR, None, Expiries::default()).unwrap();
        Self { dir, enrolment: Arc::new(enrolment) }
    }

    fn authority(&self) -> PathBuf {
        self.dir.path().join("enroll")
    }

    fn known(&self) -> Vec<Issued> {
        authority::known(&std::fs::read(self.authority().join(ISSUED)).unwrap_or_default()).issued
    }

    /// Writes a list as `perilog ca revoke` does: a new file replaces the old file.
    fn revoke(&self, serials: &[&str]) {
        let dir = self.authority();
        let text = |name: &str| std::fs::read_to_string(dir.join(name)).unwrap();
        let key = KeyPair::from_pem(&text("ca-key.pem")).unwrap();
        let issuer = Issuer::from_ca_cert_pem(&text("ca.pem"), key).unwrap();
        let one = |serial: &&str| authority::Revoked { serial: (*serial).to_owned(), at_ms: NOW };
        let list: Vec<_> = serials.iter().map(one).collect();
        std::fs::write(dir.join("new"), authority::revocations(&issuer, 2, &list, NOW, NOW + HOUR).unwrap()).unwrap();
        std::fs::rename(dir.join("new"), dir.join("crl.pem")).unwrap();
    }

    fn token(&self, host: &str) -> String {
        let hosts: HostList = host.parse().unwrap();
        self.enrolment.tokens.make(&hosts, 0, NOW, NOW + HOUR).unwrap().remove(0).1
    }

    /// Asks for a certificate of `host`, as a visitor does. Returns the text of the refusal, or "a certificate".
    /// `shown`: the names in the certificate that the visitor shows, whose serial number is 01; empty: the visitor
    /// shows none.
    async fn ask(&self, shown: &[&str], host: &str, token: Option<&str>, key: &str) -> String {
        let names = shown.iter().map(ToString::to_string).collect();
        let shown = (!shown.is_empty()).then_some(Shown { names, serial: "01".to_owned() });
        self.answer(shown, host, token, key).await.map_or_else(|no| no.reported, |_| "a certificate".to_owned())
    }

    async fn answer(&self, shown: Option<Shown>, host: &str, token: Option<&str>, key: &str) -> Result<String, No> {
        let csr = authority::request(key).unwrap_or_else(|_| key.to_owned());
        let ask = Ask { host: host.to_owned(), token: token.map(str::to_owned), munge: None, csr };
        self.enrolment.answer(PEER, shown, ask, NOW).await
    }
}

#[tokio::test]
async fn a_token_or_a_certificate_of_ours_and_nothing_else_gives_one() {
    let bed = Bed::new();
    let (token, key, other) = (bed.token("n0"), authority::key().unwrap(), authority::key().unwrap());
    let used =
        "the token was used already; if that was not this node, revoke the host's certificates (perilog ca revoke)";
    for (shown, host, token, key, reported) in [
        (
            &[][..],
            "n0",
            None,
            &key,
            "the request has no token, no munge credential and no certificate of an earlier \
                                     enrolment",
        ),
        (&[], "n0", Some("abc"), &key, "the token is unknown, or was revoked"),
        (&[], "n1", Some(token.as_str()), &key, "the token is not for n1"),
        (&[], "n 0", Some(&token), &key, "malformed host name"),
        (&[], "n0", Some(&token), &"no key".to_owned(), "invalid certificate request"),
        // In all these cases the token stays unused.
        (&[], "n0", Some(&token), &key, "a certificate"),
        (&[], "n0", Some(&token), &other, used),
        // The first answer was lost.
        (&[], "n0", Some(&token), &key, "a certificate"),
        (&["n0"], "n0", None, &key, "a certificate"),
        (&["n0"], "n1", None, &key, "the certificate is for n0, not for n1"),
        // A certificate does not replace an invalid token.
        (&["n0"], "n0", Some("abc"), &key, "the token is unknown, or was revoked"),
    ] {
        let output = bed.ask(shown, host, token, key).await;
        assert!(output.starts_with(reported), "{shown:?} {host} {token:?}: {output}");
    }
    assert_eq!(bed.known().len(), 3, "each can be revoked");
}

/// Regression test: a host that asked for its certificate in another spelling (`N0`, `n0.`) got one under that
/// spelling, and `perilog ca revoke` for the host did not find it.
#[tokio::test]
async fn a_host_is_certified_under_one_name_however_it_is_written() {
    let bed = Bed::new();
    let key = authority::key().unwrap();
    for (made, asked) in [("n0", "N0"), ("N0", "n0."), ("n0.", "n0"), ("N0.", "n0..")] {
        let token = bed.token(made);
        assert_eq!(bed.ask(&[], asked, Some(&token), &key).await, "a certificate", "{made} {asked}");
        assert_eq!(bed.ask(&["n0"], asked, None, &key).await, "a certificate", "{asked}");
    }
    let known = bed.known();
    assert_eq!(known.len(), 8);
    assert!(known.iter().all(|issued| issued.names == ["n0"]), "{known:?}");
}

#[tokio::test]
async fn each_certificate_has_its_number_and_the_authority_stays() {
    let bed = Bed::new();
    let key = authority::key().unwrap();
    assert_eq!(bed.ask(&["n0"], "n0", None, &key).await, "a certificate");
    let dir = bed.authority();
    let again = Enrolment::open(&dir, "test", HOUR, None, Expiries::default()).unwrap();
    let bed = Bed { enrolment: Arc::new(again), ..bed };
    assert_eq!(bed.ask(&["n0"], "n0", None, &key).await, "a certificate");
    let serials: BTreeSet<String> = bed.known().into_iter().map(|issued| issued.serial).collect();
    assert_eq!(serials.len(), 2, "{serials:?}");
    use std::os::unix::fs::MetadataExt;
    let mode = |name: &str| std::fs::metadata(dir.join(name)).unwrap().mode() & 0o777;
    assert_eq!((mode(""), mode("ca-key.pem"), mode("ca.pem"), mode("tokens")), (0o700, 0o600, 0o644, 0o700));
}

fn shown(host: &str, serial: &str) -> Option<Shown> {
    Some(Shown { names: vec![host.to_owned()], serial: serial.to_owned() })
}

/// Regression test: a revoked certificate renewed itself until the controller reloaded.
#[tokio::test]
async fn a_revoked_host_needs_a_token_even_before_a_reload() {
    let bed = Bed::new();
    let key = authority::key().unwrap();
    bed.answer(None, "n0", Some(&bed.token("n0")), &key).await.unwrap();
    let first = bed.known()[0].serial.clone();
    bed.answer(shown("n0", &first), "n0", None, &key).await.unwrap();
    let second = bed.known()[1].serial.clone();

    bed.revoke(&[&first]);
    let no = bed.answer(shown("n0", &first), "n0", None, &key).await.unwrap_err();
    assert!(
        no.reported == "the certificate was revoked" && no.logged.contains("its certificate was revoked"),
        "{no:?}"
    );
    bed.answer(shown("n0", &second), "n0", None, &key).await.unwrap();

    // An operator revoked the host as `perilog ca revoke n0` does, but overlooked one of its certificates.
    let third = bed.known()[2].serial.clone();
    bed.revoke(&[&first, &third]);
    let no = bed.answer(shown("n0", &second), "n0", None, &key).await.unwrap_err();
    assert!(no.logged.contains("the newest certificate of n0 was revoked"), "{no:?}");
    assert_eq!(bed.known().len(), 3);

    bed.answer(None, "n0", Some(&bed.token("n0")), &key).await.unwrap();
    let fourth = bed.known()[3].serial.clone();
    bed.answer(shown("n0", &fourth), "n0", None, &key).await.unwrap();
    // A restarted controller has the same records.
    bed.revoke(&[&bed.known()[4].serial]);
    let again = Bed {
        enrolment: Arc::new(Enrolment::open(&bed.authority(), "test", HOUR, None, Expiries::default()).unwrap()),
        ..bed
    };
    assert!(again.answer(shown("n0", &fourth), "n0", None, &key).await.is_err());
}

#[tokio::test]
async fn without_a_readable_revocation_list_nothing_is_renewed() {
    let bed = Bed::new();
    let key = authority::key().unwrap();
    let list = bed.authority().join("crl.pem");
    for (text, part) in [(Some("no list"), "no revocation list"), (None, "the list is missing")] {
        match text {
            Some(text) => std::fs::write(&list, text).unwrap(),
            None => std::fs::remove_file(&list).unwrap(),
        }
        let no = bed.answer(shown("n0", "01"), "n0", None, &key).await.unwrap_err();
        assert!(no.reported.starts_with("internal error") && no.logged.contains(part), "{no:?}");
    }
    assert_eq!(bed.known().len(), 0);
    // An operator's token counts also without a readable list.
    bed.answer(None, "n0", Some(&bed.token("n0")), &key).await.unwrap();
}

/// No process revokes between the check of the list and the signature. The test holds the lock in place of `perilog ca
/// revoke`.
#[tokio::test]
async fn who_revokes_is_waited_for_and_nothing_is_signed_meanwhile() {
    let bed = Bed::new();
    let key = authority::key().unwrap();
    let lock = Lock::take(&bed.authority()).unwrap();
    let no = bed.answer(shown("n0", "01"), "n0", None, &key).await.unwrap_err();
    assert!(no.logged.contains("has been locked for more than"), "{no:?}");
    let asking = bed.answer(shown("n0", "01"), "n0", None, &key);
    let revoking = async {
        bed.revoke(&["01"]);
        drop(lock);
    };
    let (answer, ()) = tokio::join!(asking, revoking);
    assert_eq!(answer.unwrap_err().reported, "the certificate was revoked");
    assert_eq!(bed.known().len(), 0);
}

/// A host with an earlier certificate gets only a limited number of new ones per hour: a node that restarts over and
/// over must not fill the list. Another host, and a new token of the same host, are not affected.
#[tokio::test]
async fn each_host_has_its_own_hourly_bound_of_certificates() {
    let bed = Bed::new();
    let key = authority::key().unwrap();
    let most = most_an_hour(HOUR);
    assert_eq!((most, most_an_hour(30 * 24 * HOUR), most_an_hour(HOUR / 60), most_an_hour(1)), (13, 10, 190, COUNTED));
    for _ in 0..most {
        bed.answer(shown("n0", "01"), "n0", None, &key).await.unwrap();
    }
    let no = bed.answer(shown("n0", "01"), "n0", None, &key).await.unwrap_err();
    assert_eq!(
        no.reported,
        "this node got 13 certificates within an hour, the limit: ask again later, or use a new token (perilog token \
         create)"
    );
    assert!(no.logged.contains("n0 got 13 certificates") && no.logged.contains("(by its certificate)"), "{no:?}");
    bed.answer(shown("n1", "01"), "n1", None, &key).await.unwrap();
    // A new token is an operator's permission without a bound; a repeated token counts as a request of the machine.
    let token = bed.token("n0");
    bed.answer(None, "n0", Some(&token), &key).await.unwrap();
    assert!(
        bed.answer(None, "n0", Some(&token), &key).await.unwrap_err().logged.contains("by a token that uid 0 made")
    );
    // The controller reads the count from the disk, and the count ends after an hour.
    let again = Bed {
        enrolment: Arc::new(Enrolment::open(&bed.authority(), "test", HOUR, None, Expiries::default()).unwrap()),
        ..bed
    };
    assert!(again.answer(None, "N0", Some(&token), &key).await.is_err());
    let ask = Ask { host: "n0".to_owned(), token: None, munge: None, csr: authority::request(&key).unwrap() };
    again.enrolment.answer(PEER, shown("n0", "01"), ask, NOW + HOUR).await.unwrap();
}

/// Writes an executable shell script with this name and body into the bed's directory; returns its path.
fn program(bed: &Bed, name: &str, body: &str) -> PathBuf {
    let (path, new) = (bed.dir.path().join(name), bed.dir.path().join("new"));
    std::fs::write(&new, format!("#!/bin/sh\n{body}\n")).unwrap();
    std::fs::set_permissions(&new, std::fs::Permissions::from_mode(0o755)).unwrap();
    // `cp` makes the executable: another test that forks at this moment would inherit this process's open file, and
    // exec would fail with "text file busy".
    let copied = std::process::Command::new("cp").arg("--remove-destination").args([&new, &path]).status();
    assert!(copied.unwrap().success());
    path
}

/// Replaces `unmunge` by a program that always reports this user, address and payload.
fn unmunge(bed: &Bed, uid: u32, origin: &str, payload: &str) -> PathBuf {
    let output = format!("STATUS:          0\nENCODE_HOST:     {origin}\nUID:             {uid}\n\n{payload}");
    std::fs::write(bed.dir.path().join("said"), output).unwrap();
    let dir = bed.dir.path().display();
    program(bed, "unmunge", &format!("[ \"$(/bin/cat)\" = MUNGE:abc: ] && exec /bin/cat {dir}/said\nexit 14"))
}

/// Makes a bed, an enrolment in a new directory, in which munge may enrol n1, n2, n3 and n9. Its resolver gives n1, n3
/// and the unlisted name `other` the same address, and n9 none.
fn munged() -> Bed {
    let bed = Bed::new();
    let names = "case \"$2\" in n1|n3|other) echo '10.0.0.1 STREAM x';; n2) echo 10.0.0.2;; *) exit 2;; esac";
    let getent = program(&bed, "getent", names);
    let munged = Munged::new(unmunge(&bed, 0, "10.0.0.1", ""), &"n[1-2],N3.,n9".parse().unwrap());
    let enrolment = Enrolment::open(&bed.authority(), "test", HOUR, None, Expiries::default()).unwrap();
    let munge = Munge::new(Some(munged)).with_getent(getent);
    Bed { enrolment: Arc::new(Enrolment { munge, ..enrolment }), ..bed }
}

async fn by_munge(bed: &Bed, host: &str, credential: &str, key: &str, peer: SocketAddr) -> Result<String, No> {
    let csr = authority::request(key).unwrap();
    let ask = Ask { host: host.to_owned(), token: None, munge: Some(credential.to_owned()), csr };
    bed.enrolment.answer(peer, None, ask, NOW).await
}

fn public(key: &str) -> Vec<u8> {
    Requested::read(&authority::request(key).unwrap()).unwrap().key()
}

#[tokio::test]
async fn munge_enrols_only_the_listed_host_with_the_address() {
    let bed = munged();
    let (key, other) = (authority::key().unwrap(), authority::key().unwrap());
    let [n1, n2, alias, n9] = ["n1", "n2", "other", "n9"].map(|host| bound(host, &public(&key)));
    let elsewhere = SocketAddr::from(([10, 0, 0, 2], 600));
    let of_a_user = SocketAddr::new(PEER.ip(), 40_000);
    // The last column: whether the log keeps the line apart from strangers.
    for (uid, origin, payload, host, credential, key, peer, logged, is_serious) in [
        (1000, "10.0.0.1", &n1, "n1", "MUNGE:abc:", &key, PEER, "is of uid 1000, not of root", true),
        (0, "10.0.0.1", &n1, "n1", "MUNGE:abc:", &other, PEER, "was not made for n1 with this key", true),
        (0, "10.0.0.1", &n1, "n2", "MUNGE:abc:", &key, PEER, "was not made for n2 with this key", true),
        // Root of n1 has a credential for the name n2; a holder of munge's key can forge the origin.
        (0, "10.0.0.1", &n2, "n2", "MUNGE:abc:", &key, PEER, "n2 has the address 10.0.0.2 here, not 10.0.0.1", true),
        (0, "10.0.0.2", &n2, "n2", "MUNGE:abc:", &key, PEER, "n2 has the address 10.0.0.2 here, not 10.0.0.1", true),
        // A user of n2 forwards connections of root on n1.
        (
            0,
            "10.0.0.1",
            &n2,
            "n2",
            "MUNGE:abc:",
            &key,
            elsewhere,
            "was made at 10.0.0.1, but n2 has the address 10.0.0.2",
            true,
        ),
        (0, "10.0.0.1", &n1, "n1", "MUNGE:abc:", &key, of_a_user, "from port 40000, but an agent uses", false),
        (0, "10.0.0.1", &n1, "n1", "MUNGE:another:", &key, PEER, "exit status: 14", false),
        (0, "10.0.0.1", &n1, "n1", "token", &key, PEER, "the text is not a munge credential", false),
        (0, "10.0.0.1", &n9, "n9", "MUNGE:abc:", &key, PEER, "n9 has no address here", true),
        // An unlisted name of the same host, such as the name of a service.
        (0, "10.0.0.1", &alias, "other", "MUNGE:abc:", &key, PEER, "other is not in [enroll] munge-hosts", false),
    ] {
        unmunge(&bed, uid, origin, payload);
        let case = format!("{uid} {origin} {payload:?} {host} {credential} {peer}");
        let no = by_munge(&bed, host, credential, key, peer).await.unwrap_err();
        assert!(
            no.reported == NOT_MUNGED && no.logged.contains(logged) && no.is_serious == is_serious,
            "{case}: {no:?}"
        );
    }
    assert_eq!(bed.known().len(), 0);
    for host in ["n1", "N1", "n1.", "n3"] {
        unmunge(&bed, 0, "10.0.0.1", &bound(host, &public(&key)));
        by_munge(&bed, host, "MUNGE:abc:", &key, PEER).await.unwrap();
    }
    assert_eq!(bed.known().iter().filter(|issued| issued.names == ["n1"]).count(), 3);
}

#[tokio::test]
async fn munge_counts_only_where_it_is_switched_on() {
    let bed = munged();
    let key = authority::key().unwrap();
    unmunge(&bed, 0, "10.0.0.1", &bound("n1", &public(&key)));
    bed.enrolment.set(HOUR, None);
    let no = by_munge(&bed, "n1", "MUNGE:abc:", &key, PEER).await.unwrap_err();
    assert!(no.reported == NOT_MUNGED && no.logged.contains("[enroll] munge is not set on this controller"), "{no:?}");
}

/// Root of a revoked node still has munge's key and the node's address, so munge must not enrol the node again.
#[tokio::test]
async fn munge_does_not_bring_back_who_was_revoked_and_a_token_does() {
    let bed = munged();
    let key = authority::key().unwrap();
    let serials = || bed.known().into_iter().map(|issued| issued.serial).collect::<Vec<_>>();
    let revoke = |serials: &[String]| bed.revoke(&serials.iter().map(String::as_str).collect::<Vec<_>>());
    let ask = async |host: &str| {
        unmunge(&bed, 0, "10.0.0.1", &bound(host, &public(&key)));
        by_munge(&bed, host, "MUNGE:abc:", &key, PEER).await
    };
    ask("n1").await.unwrap();
    revoke(&serials());
    for host in ["n1", "N1", "n1."] {
        let no = ask(host).await.unwrap_err();
        assert!(no.reported == NOT_MUNGED && no.is_serious, "{host}: {no:?}");
        assert!(
            no.logged.contains("the newest certificate of n1 was revoked; if the host may enrol again"),
            "{host}: {no:?}"
        );
    }
    ask("n3").await.expect("another host speaks for no other");
    bed.answer(None, "n1", Some(&bed.token("n1")), &key).await.unwrap();
    ask("n1").await.expect("and the next boot");
    // A revocation of certificates older than the newest does not exclude the host.
    revoke(&serials()[..3]);
    ask("n1").await.unwrap();
    revoke(&serials());
    assert!(ask("n1").await.is_err());
    // Without a readable list, the controller accepts no host.
    for (text, part) in [(Some("no list"), "no revocation list"), (None, "the list is missing")] {
        let list = bed.authority().join("crl.pem");
        match text {
            Some(text) => std::fs::write(&list, text).unwrap(),
            None => std::fs::remove_file(&list).unwrap(),
        }
        let no = ask("n1").await.unwrap_err();
        assert!(no.is_serious && no.logged.contains(part), "{no:?}");
    }
}

/// Regression test: the thief of a used token got a new certificate after each revocation, and no operator could revoke
/// the token.
#[tokio::test]
async fn a_used_token_re_enrols_no_host_even_after_a_new_one() {
    let bed = Bed::new();
    let (attacker, node) = (authority::key().unwrap(), authority::key().unwrap());
    let stolen = bed.token("n0");
    for _ in 0..2 {
        bed.answer(None, "n0", Some(&stolen), &attacker).await.unwrap();
    }
    let serials = || bed.known().into_iter().map(|issued| issued.serial).collect::<Vec<_>>();
    bed.revoke(&serials().iter().map(String::as_str).collect::<Vec<_>>());
    let no = bed.answer(None, "n0", Some(&stolen), &attacker).await.unwrap_err();
    assert!(no.reported == "the certificate was revoked" && no.is_serious, "{no:?}");
    bed.answer(None, "n0", Some(&bed.token("n0")), &node).await.unwrap();
    let no = bed.answer(None, "n0", Some(&stolen), &attacker).await.unwrap_err();
    assert!(no.reported == "the certificate was revoked", "the host is back, and the attacker is not: {no:?}");
    assert_eq!(bed.enrolment.tokens.take_back(&"n0".parse().unwrap(), NOW).unwrap(), 2);
    assert_eq!(bed.ask(&[], "n0", Some(&stolen), &attacker).await, "the token is unknown, or was revoked");
    assert_eq!(bed.known().len(), 3);
}

/// Regression test: after the list of issued certificates was lost, revoked hosts could enrol again, because only that
/// list maps revoked serial numbers to hosts.
#[tokio::test]
async fn a_lost_list_after_a_revocation_stops_enrolment() {
    let bed = munged();
    let key = authority::key().unwrap();
    let issued = bed.authority().join(ISSUED);
    assert_eq!(std::fs::read(&issued).unwrap(), b"", "it is made with the authority");
    let token = bed.token("n1");
    unmunge(&bed, 0, "10.0.0.1", &bound("n1", &public(&key)));
    // An authority of an earlier release that has issued no certificate.
    std::fs::remove_file(&issued).unwrap();
    by_munge(&bed, "n1", "MUNGE:abc:", &key, PEER).await.unwrap();
    bed.answer(None, "n1", Some(&token), &key).await.unwrap();
    bed.revoke(&[&bed.known()[1].serial]);
    std::fs::remove_file(&issued).unwrap();
    let new = bed.token("n1");
    for no in [
        by_munge(&bed, "n1", "MUNGE:abc:", &key, PEER).await,
        bed.answer(shown("n1", "01"), "n1", None, &key).await,
        bed.answer(None, "n1", Some(&token), &key).await,
        // The certificate would begin a new list, and the controller would forget all other revoked hosts.
        bed.answer(None, "n1", Some(&new), &key).await,
    ] {
        let no = no.unwrap_err();
        let why = "issued.jsonl: the list is missing, so the revoked hosts are unknown: restore it";
        assert!(no.reported.starts_with("internal error") && no.logged.contains(why) && no.is_serious, "{no:?}");
    }
    assert!(!issued.exists());
}

/// Regression test: an attacker with a node's certificate could use up the host's hourly number of certificates by
/// asking often. The node then got no certificate, even for a new token.
#[tokio::test]
async fn a_new_token_brings_a_host_back_though_its_hour_is_used_up() {
    let bed = Bed::new();
    let (attacker, node) = (authority::key().unwrap(), authority::key().unwrap());
    bed.answer(None, "n0", Some(&bed.token("n0")), &attacker).await.unwrap();
    let first = bed.known()[0].serial.clone();
    while bed.answer(shown("n0", &first), "n0", None, &attacker).await.is_ok() {}
    let serials: Vec<_> = bed.known().into_iter().map(|issued| issued.serial).collect();
    assert_eq!(serials.len(), most_an_hour(HOUR));
    bed.revoke(&serials.iter().map(String::as_str).collect::<Vec<_>>());
    bed.answer(None, "n0", Some(&bed.token("n0")), &node).await.unwrap();
}

/// Regression test: the list of issued certificates was never pruned, and became too large for `perilog ca revoke` to
/// read, so that no host could be revoked.
#[tokio::test]
async fn a_long_list_is_pruned_when_the_controller_starts() {
    let bed = Bed::new();
    let long_ago = |n: u32| Issued {
        serial: format!("4{n:031X}"),
        role: "node".to_owned(),
        names: vec!["n0".to_owned()],
        not_after_ms: 1,
        enrolled_ms: Some(1),
    };
    let add = |issued: &[Issued]| authority::remember(&Lock::take(&bed.authority()).unwrap(), issued).unwrap();
    let open = || Enrolment::open(&bed.authority(), "test", HOUR, None, Expiries::default()).unwrap();
    add(&[long_ago(0), long_ago(1)]);
    open();
    assert_eq!(bed.known().len(), 2, "a short one is left alone");
    add(&(2..12_000).map(long_ago).collect::<Vec<_>>());
    let lock = Lock::take(&bed.authority()).unwrap();
    open();
    assert_eq!(bed.known().len(), 12_000, "another process has locked it, and the controller starts all the same");
    drop(lock);
    bed.revoke(&[&long_ago(7).serial]);
    open();
    assert_eq!(bed.known(), [long_ago(7), long_ago(11_999)]);
}
