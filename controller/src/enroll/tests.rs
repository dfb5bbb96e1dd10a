//! Who is given a certificate, and for what.

use perilog_core::HostList;
use perilog_host::authority::{self, ISSUED};

use super::*;

const NOW: u64 = 1_800_000_000_000;
const HOUR: u64 = 3_600_000;

struct Bed {
    dir: tempfile::TempDir,
    enrolment: Enrolment,
}

impl Bed {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let enrolment = Enrolment::open(&dir.path().join("enroll"), "test", HOUR).unwrap();
        Self { dir, enrolment }
    }

    fn token(&self, host: &str) -> String {
        let hosts: HostList = host.parse().unwrap();
        self.enrolment.tokens.make(&hosts, 0, NOW, NOW + HOUR).unwrap().remove(0).1
    }

    /// What is told, or "a certificate".
    fn ask(&self, shown: &[&str], host: &str, token: Option<&str>, key: &str) -> String {
        let shown: Vec<String> = shown.iter().map(ToString::to_string).collect();
        let csr = authority::request(key).unwrap_or_else(|_| key.to_owned());
        let ask = Ask { host: host.to_owned(), token: token.map(str::to_owned), csr };
        match self.enrolment.judge(&shown, &ask, NOW) {
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

/// Another spelling once had certificates that `perilog ca revoke` did not find.
#[test]
fn a_host_is_certified_and_remembered_by_one_name_however_it_is_written() {
    let bed = Bed::new();
    let key = authority::key().unwrap();
    for (made, asked) in [("n0", "N0"), ("N0", "n0."), ("n0.", "n0"), ("N0.", "n0..")] {
        let token = bed.token(made);
        assert_eq!(bed.ask(&[], asked, Some(&token), &key), "a certificate", "{made} {asked}");
        assert_eq!(bed.ask(&["n0"], asked, None, &key), "a certificate", "{asked}");
    }
    let known = authority::known(&std::fs::read(bed.dir.path().join("enroll").join(ISSUED)).unwrap());
    assert_eq!(known.issued.len(), 8);
    assert!(known.issued.iter().all(|issued| issued.names == ["n0"]), "{known:?}");
}

#[test]
fn a_certificate_has_a_number_of_its_own_and_the_authority_stays_the_same() {
    let bed = Bed::new();
    let key = authority::key().unwrap();
    assert_eq!(bed.ask(&["n0"], "n0", None, &key), "a certificate");
    let dir = bed.dir.path().join("enroll");
    let again = Enrolment::open(&dir, "test", HOUR).unwrap();
    let bed = Bed { enrolment: again, ..bed };
    assert_eq!(bed.ask(&["n0"], "n0", None, &key), "a certificate");
    let text = std::fs::read_to_string(dir.join(ISSUED)).unwrap();
    let serials: std::collections::BTreeSet<String> =
        text.lines().map(|line| serde_json::from_str::<authority::Issued>(line).unwrap().serial).collect();
    assert_eq!(serials.len(), 2, "{text}");
    use std::os::unix::fs::MetadataExt;
    let mode = |name: &str| std::fs::metadata(dir.join(name)).unwrap().mode() & 0o777;
    assert_eq!((mode(""), mode("ca-key.pem"), mode("ca.pem"), mode("tokens")), (0o700, 0o600, 0o644, 0o700));
}
