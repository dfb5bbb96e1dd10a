//! Who is given a certificate, and for what.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};

use perilog_core::HostList;
use perilog_host::authority::{self, ISSUED, Issued, Issuer, KeyPair};

use super::*;

const NOW: u64 = 1_800_000_000_000;
const HOUR: u64 = 3_600_000;

const PEER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)), 40_000);

struct Bed {
    dir: tempfile::TempDir,
    enrolment: Arc<Enrolment>,
}

impl Bed {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let enrolment = Enrolment::open(&dir.path().join("enroll"), "test", HOUR).unwrap();
        Self { dir, enrolment: Arc::new(enrolment) }
    }

    fn authority(&self) -> PathBuf {
        self.dir.path().join("enroll")
    }

    fn known(&self) -> Vec<Issued> {
        authority::known(&std::fs::read(self.authority().join(ISSUED)).unwrap_or_default()).issued
    }

    /// What `perilog ca revoke` leaves behind: a new file in the place of the old one.
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

    /// What is told, or "a certificate". `shown`: the names of a certificate, which has a number that nobody else has.
    async fn ask(&self, shown: &[&str], host: &str, token: Option<&str>, key: &str) -> String {
        let names = shown.iter().map(ToString::to_string).collect();
        let shown = (!shown.is_empty()).then_some(Shown { names, serial: "01".to_owned() });
        self.answer(shown, host, token, key).await.map_or_else(|no| no.told, |_| "a certificate".to_owned())
    }

    async fn answer(&self, shown: Option<Shown>, host: &str, token: Option<&str>, key: &str) -> Result<String, No> {
        let csr = authority::request(key).unwrap_or_else(|_| key.to_owned());
        let ask = Ask { host: host.to_owned(), token: token.map(str::to_owned), csr };
        self.enrolment.answer(PEER, shown, ask, NOW).await
    }
}

#[tokio::test]
async fn a_token_or_a_certificate_of_ours_and_nothing_else_gives_one() {
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
        let said = bed.ask(shown, host, token, key).await;
        assert!(said.starts_with(told), "{shown:?} {host} {token:?}: {said}");
    }
    assert_eq!(bed.known().len(), 3, "each can be revoked");
}

/// Another spelling once had certificates that `perilog ca revoke` did not find.
#[tokio::test]
async fn a_host_is_certified_and_remembered_by_one_name_however_it_is_written() {
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
async fn a_certificate_has_a_number_of_its_own_and_the_authority_stays_the_same() {
    let bed = Bed::new();
    let key = authority::key().unwrap();
    assert_eq!(bed.ask(&["n0"], "n0", None, &key).await, "a certificate");
    let dir = bed.authority();
    let again = Enrolment::open(&dir, "test", HOUR).unwrap();
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

/// A revoked certificate once renewed itself until the controller was told to reload.
#[tokio::test]
async fn what_is_revoked_is_not_renewed_though_nobody_has_reloaded_and_a_token_brings_it_back() {
    let bed = Bed::new();
    let key = authority::key().unwrap();
    bed.answer(None, "n0", Some(&bed.token("n0")), &key).await.unwrap();
    let first = bed.known()[0].serial.clone();
    bed.answer(shown("n0", &first), "n0", None, &key).await.unwrap();
    let second = bed.known()[1].serial.clone();

    bed.revoke(&[&first]);
    let no = bed.answer(shown("n0", &first), "n0", None, &key).await.unwrap_err();
    assert!(no.told == "the certificate was revoked" && no.logged.contains("its certificate was revoked"), "{no:?}");
    bed.answer(shown("n0", &second), "n0", None, &key).await.unwrap();

    // The host was thrown out, as `perilog ca revoke n0` does; one of its certificates was overlooked.
    let third = bed.known()[2].serial.clone();
    bed.revoke(&[&first, &third]);
    let no = bed.answer(shown("n0", &second), "n0", None, &key).await.unwrap_err();
    assert!(no.logged.contains("the newest certificate of n0 was revoked"), "{no:?}");
    assert_eq!(bed.known().len(), 3);

    bed.answer(None, "n0", Some(&bed.token("n0")), &key).await.unwrap();
    let fourth = bed.known()[3].serial.clone();
    bed.answer(shown("n0", &fourth), "n0", None, &key).await.unwrap();
    // And a controller that was started anew knows the same.
    bed.revoke(&[&bed.known()[4].serial]);
    let again = Bed { enrolment: Arc::new(Enrolment::open(&bed.authority(), "test", HOUR).unwrap()), ..bed };
    assert!(again.answer(shown("n0", &fourth), "n0", None, &key).await.is_err());
}

#[tokio::test]
async fn who_cannot_tell_what_is_revoked_renews_nothing() {
    let bed = Bed::new();
    let key = authority::key().unwrap();
    let list = bed.authority().join("crl.pem");
    for (text, part) in [(Some("no list"), "no revocation list"), (None, "there is no such list")] {
        match text {
            Some(text) => std::fs::write(&list, text).unwrap(),
            None => std::fs::remove_file(&list).unwrap(),
        }
        let no = bed.answer(shown("n0", "01"), "n0", None, &key).await.unwrap_err();
        assert!(no.told.starts_with("an error of the controller") && no.logged.contains(part), "{no:?}");
    }
    assert_eq!(bed.known().len(), 0);
    // A human's word is good without.
    bed.answer(None, "n0", Some(&bed.token("n0")), &key).await.unwrap();
}

/// Between the look at the list and the signature nobody revokes: `perilog ca revoke` has the lock here.
#[tokio::test]
async fn who_revokes_is_waited_for_and_nothing_is_signed_meanwhile() {
    let bed = Bed::new();
    let key = authority::key().unwrap();
    let lock = Lock::take(&bed.authority()).unwrap();
    let no = bed.answer(shown("n0", "01"), "n0", None, &key).await.unwrap_err();
    assert!(no.logged.contains("is locked for more than"), "{no:?}");
    let asking = bed.answer(shown("n0", "01"), "n0", None, &key);
    let revoking = async {
        bed.revoke(&["01"]);
        drop(lock);
    };
    let (answer, ()) = tokio::join!(asking, revoking);
    assert_eq!(answer.unwrap_err().told, "the certificate was revoked");
    assert_eq!(bed.known().len(), 0);
}

/// A node that restarts over and over must not fill the lists.
#[tokio::test]
async fn a_host_is_given_so_many_certificates_an_hour_and_no_other_one_waits_for_it() {
    let bed = Bed::new();
    let key = authority::key().unwrap();
    let most = most_an_hour(HOUR);
    assert_eq!((most, most_an_hour(30 * 24 * HOUR), most_an_hour(HOUR / 60), most_an_hour(1)), (13, 10, 190, COUNTED));
    for _ in 0..most {
        bed.answer(shown("n0", "01"), "n0", None, &key).await.unwrap();
    }
    let no = bed.answer(shown("n0", "01"), "n0", None, &key).await.unwrap_err();
    assert_eq!(no.told, "it was given 13 certificates within the last hour, and gets no more for now");
    assert!(no.logged.contains("n0 was given 13 certificates") && no.logged.contains("(by its certificate)"), "{no:?}");
    bed.answer(shown("n1", "01"), "n1", None, &key).await.unwrap();
    // It is counted from the disk, and is over after an hour.
    let again = Bed { enrolment: Arc::new(Enrolment::open(&bed.authority(), "test", HOUR).unwrap()), ..bed };
    assert!(again.answer(None, "N0", Some(&again.token("n0")), &key).await.is_err());
    let ask = Ask { host: "n0".to_owned(), token: None, csr: authority::request(&key).unwrap() };
    again.enrolment.answer(PEER, shown("n0", "01"), ask, NOW + HOUR).await.unwrap();
}
