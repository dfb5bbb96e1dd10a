//! Gets the node's authority and certificate. `init` itself asks at the controller's enrolment port, so that `init`
//! writes a token to no file and reports a refusal at once. The agent renews the certificate later.

use std::fmt;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use perilog_host::authority::{self, Requested, canonical};
use perilog_host::clock;
use perilog_host::enroll::{Ask, AskError, ask, bound};
use perilog_host::link::Dial;
use perilog_host::munge;
use perilog_host::tls::{ClientTls, Pin, TlsFiles, check_issued, learn};

use crate::fault::Fault;
use crate::verb::ca::files::{self, CA_CERT, CERT, KEY, Who};
use crate::verb::ca::read::certificates;

/// A one-time token. `Debug` does not show the text.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Token(pub(super) String);

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token")
    }
}

/// The proof of identity with which the node gets its first certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Proof {
    Token(Token),
    Munge,
}

/// The enrolment of this node: everything that `init` needs to get the certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Enrolling {
    /// Address of the controller's enrolment port, as `host:port`.
    pub(super) address: String,
    pub(super) host: String,
    /// Directory that has ca.pem already, and gets key.pem and cert.pem.
    pub(super) dir: PathBuf,
    pub(super) proof: Proof,
}

/// Returns the paths of a daemon's certificate files in `dir`.
pub(super) fn files_in(dir: &Path) -> TlsFiles {
    TlsFiles { ca: dir.join(CA_CERT), cert: dir.join(CERT), key: dir.join(KEY), crl: None }
}

/// Asks the controller's enrolment port at `address` for the authority with this pin. Returns the authority's
/// certificate (PEM). `Err`: the reason as text.
pub(super) fn authority(address: &str, pin: Pin) -> Result<String, String> {
    let der = block_on(learn(&Dial::plain(address), pin))?.map_err(|error| error.to_string())?;
    Ok(pem(&der))
}

/// Returns `true` if `pem` is one certificate, and its fingerprint is the pin.
pub(super) fn is_pinned(pem: &str, pin: Pin) -> bool {
    let read = certificates(Path::new(CA_CERT), pem);
    read.is_ok_and(|all| matches!(all.as_slice(), [one] if one.fingerprint.parse() == Ok(pin)))
}

/// Encodes a certificate (DER) as PEM (RFC 7468).
fn pem(der: &[u8]) -> String {
    let text = STANDARD.encode(der);
    let mut pem = "-----BEGIN CERTIFICATE-----\n".to_owned();
    let mut rest = text.as_str();
    while !rest.is_empty() {
        let (line, more) = rest.split_at(rest.len().min(64));
        pem.push_str(line);
        pem.push('\n');
        rest = more;
    }
    pem + "-----END CERTIFICATE-----\n"
}

/// Returns the end of this host's certificate, in milliseconds since 1970. `None`: no certificate, a certificate of
/// another host, one without its key, or one that is not valid now.
pub(super) fn certificate(files: &TlsFiles, host: &str) -> Option<u64> {
    let tls = ClientTls::load(files).ok()?;
    let is_ours = tls.names().contains(&canonical(host));
    let (_, until_ms) = files.validity().ok()??;
    let (cert, key) = (files::read(&files.cert).ok()?, files::read(&files.key).ok()?);
    let is_good = check_issued(&cert, &key, host, clock::wall_ms()).is_ok();
    (is_ours && is_good).then_some(until_ms)
}

/// Gets the certificate from the controller's enrolment port. The key is on disk before the request: if the answer is
/// lost, the same token is good for the same key again.
pub(super) fn enrol(of: &Enrolling) -> Result<(), Fault> {
    let files = files_in(&of.dir);
    let key = key(&files.key)?;
    let odd = |error: authority::Error| Fault::Other(format!("{}: {error}", files.key.display()));
    let csr = authority::request(&key).map_err(odd)?;
    let tls = ClientTls::load_anonymous(&files).map_err(|error| Fault::Other(error.to_string()))?;
    let mut dial = Dial::tls(&of.address, tls);
    let mut question = Ask { host: of.host.clone(), token: None, munge: None, csr };
    match &of.proof {
        Proof::Token(Token(token)) => question.token = Some(token.clone()),
        Proof::Munge => {
            let public = Requested::read(&question.csr).map_err(Fault::Other)?.key();
            let payload = bound(&of.host, &public);
            let credential = block_on(munge::encode(Path::new(munge::MUNGE), &payload)).map_err(Fault::Other)?;
            question.munge = Some(credential.map_err(|error| Fault::Other(error.to_string()))?);
            dial.as_root = true;
        }
    }
    let cert = block_on(ask(&dial, &question)).map_err(Fault::Other)?.map_err(|error| match error {
        AskError::Refused { .. } => Fault::Usage(format!("{error}; {}", remedy(of))),
        error => Fault::Other(error.to_string()),
    })?;
    check_issued(&cert, &key, &of.host, clock::wall_ms()).map_err(|why| {
        Fault::Other(format!("{} answered with a certificate that this node does not accept: {why}", of.address))
    })?;
    files::write(&files.cert, Who::Everybody, &cert)
}

fn remedy(of: &Enrolling) -> String {
    match of.proof {
        Proof::Token(_) => {
            format!("for another token, type on the controller's host: perilog token create {}", of.host)
        }
        Proof::Munge => "on the controller's host, journalctl -u perilog-controller shows why".to_owned(),
    }
}

/// Returns the node's private key (PEM); makes the key if the file is missing.
fn key(path: &Path) -> Result<String, Fault> {
    match fs::read_to_string(path) {
        Ok(key) => return Ok(key),
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(source) => return Err(Fault::File { what: "cannot read", path: path.to_owned(), source }),
    }
    let key = authority::key()?;
    files::write(path, Who::OwnerOnly, &key)?;
    Ok(key)
}

fn block_on<T>(what: impl Future<Output = T>) -> Result<T, String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    Ok(runtime.map_err(|error| error.to_string())?.block_on(what))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_not_shown_and_pem_has_lines() {
        let proof = Proof::Token(Token("4sJm".to_owned()));
        assert_eq!(format!("{proof:?}"), "Token(Token)");
        let text = pem(&[7; 100]);
        assert!(text.lines().all(|line| line.len() <= 64) && text.lines().count() == 5, "{text}");
    }

    #[test]
    fn a_certificate_is_good_for_its_host_and_its_key() {
        let dir = tempfile::tempdir().unwrap();
        let (files, far_ms) = (files_in(dir.path()), 4_000_000_000_000);
        assert_eq!(certificate(&files, "n0"), None);
        let ca = authority::new("test", 0, far_ms).unwrap();
        let issuer =
            authority::Issuer::from_ca_cert_pem(&ca.cert, authority::KeyPair::from_pem(&ca.key).unwrap()).unwrap();
        let own = key(&files.key).unwrap();
        assert_eq!(key(&files.key).unwrap(), own, "it is made once");
        let issue = |key: &str, until_ms: u64| {
            let requested = Requested::read(&authority::request(key).unwrap()).unwrap();
            fs::write(&files.cert, requested.certify(&issuer, "n0", &[7; 16], 0, until_ms).unwrap()).unwrap();
        };
        fs::write(&files.ca, &ca.cert).unwrap();
        issue(&own, far_ms);
        assert_eq!((certificate(&files, "N0"), certificate(&files, "n1")), (Some(far_ms), None));
        issue(&own, 1_000_000);
        assert_eq!(certificate(&files, "n0"), None, "it has run out");
        issue(&authority::key().unwrap(), far_ms);
        assert_eq!(certificate(&files, "n0"), None, "it is another key's");
    }
}
