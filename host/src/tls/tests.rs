//! Tests with real handshakes over loopback, and certificates made for the tests.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;

use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, CertifiedIssuer, DnType,
    ExtendedKeyUsagePurpose, IsCa, KeyIdMethod, KeyPair, KeyUsagePurpose, RevocationReason, RevokedCertParams,
    SerialNumber, date_time_ymd,
};

use super::*;
use crate::link::{self, Dial, Keepalive, LinkError, Listener};

/// A directory with an authority and the certificates that the authority issued.
pub(crate) struct Authority {
    dir: tempfile::TempDir,
    issuer: CertifiedIssuer<'static, KeyPair>,
}

pub(crate) const SERVER: &[ExtendedKeyUsagePurpose] = &[ExtendedKeyUsagePurpose::ServerAuth];
pub(crate) const CLIENT: &[ExtendedKeyUsagePurpose] = &[ExtendedKeyUsagePurpose::ClientAuth];

impl Authority {
    pub(crate) fn new() -> Self {
        Self::named("authority")
    }

    pub(crate) fn named(name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("ca.pem"), issuer.pem()).unwrap();
        Self { dir, issuer }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn issue(&self, name: &str, usage: &[ExtendedKeyUsagePurpose]) -> TlsFiles {
        self.issue_with(name, usage, |_| {})
    }

    pub(crate) fn issue_with(
        &self,
        name: &str,
        usage: &[ExtendedKeyUsagePurpose],
        change: impl FnOnce(&mut CertificateParams),
    ) -> TlsFiles {
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        params.extended_key_usages = usage.to_vec();
        change(&mut params);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let files = TlsFiles {
            ca: self.path("ca.pem"),
            cert: self.path(&format!("{name}.pem")),
            key: self.path(&format!("{name}.key")),
            crl: None,
        };
        fs::write(&files.cert, certificate.pem()).unwrap();
        fs::write(&files.key, key.serialize_pem()).unwrap();
        fs::set_permissions(&files.key, Permissions::from_mode(0o600)).unwrap();
        files
    }

    pub(crate) fn revoke(&self, serial: u64) -> PathBuf {
        let params = CertificateRevocationListParams {
            this_update: date_time_ymd(2020, 1, 1),
            next_update: date_time_ymd(2200, 1, 1),
            crl_number: SerialNumber::from(1),
            issuing_distribution_point: None,
            revoked_certs: vec![RevokedCertParams {
                serial_number: SerialNumber::from(serial),
                revocation_time: date_time_ymd(2020, 1, 1),
                reason_code: Some(RevocationReason::KeyCompromise),
                invalidity_date: None,
            }],
            key_identifier_method: KeyIdMethod::Sha256,
        };
        let path = self.path("crl.pem");
        fs::write(&path, params.signed_by(&self.issuer).unwrap().pem().unwrap()).unwrap();
        path
    }
}

/// Connects a client with a server. Returns the result of the client, then of the server: the names in the other side's
/// certificate, or the error. The client learns of a refusal only when it reads (RFC 8446 4.4.2).
async fn meet(
    server: &TlsFiles,
    client: &TlsFiles,
    name: &str,
) -> (Result<Vec<String>, LinkError>, Result<Vec<String>, LinkError>) {
    let socket = link::bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = socket.local_addr().unwrap().to_string();
    let listener = Listener::new(socket, Some(ServerTls::load(server).unwrap()), Keepalive::default()).unwrap();
    let accept = async {
        let mut link = listener.next().await.handshake().await?;
        link.writer.send("hello".into()).await?;
        Ok(link.identity.names)
    };
    let dial =
        Dial { server_name: name.to_owned(), tls: Some(ClientTls::load(client).unwrap()), ..Dial::plain(address) };
    let connect = async {
        let mut link = link::dial(&dial).await?;
        link.reader.next().await?;
        Ok(link.identity.names)
    };
    tokio::join!(connect, accept)
}

fn fault<T: std::fmt::Debug>(result: Result<T, LinkError>) -> TlsFault {
    let error = result.expect_err("must fail");
    error.tls_fault().unwrap_or_else(|| panic!("no TLS fault in {error}"))
}

/// Regression test: after its certificate was replaced, the log of a reload said that nothing had changed.
#[test]
fn what_was_read_anew_is_named() {
    let ca = Authority::new();
    let files = ca.issue("ctl", SERVER);
    let load = |files: &TlsFiles| ServerTls::load(files).unwrap();
    let before = load(&files);
    assert_eq!(load(&files).changes_since(&before), [""; 0]);
    let renewed = ca.issue("ctl", SERVER);
    assert_eq!(load(&renewed).changes_since(&before), ["certificate"]);
    let with_list = TlsFiles { crl: Some(ca.revoke(66)), ..renewed.clone() };
    assert_eq!(load(&with_list).changes_since(&load(&renewed)), ["revocation lists"]);
    let stranger = Authority::new();
    let strangers = TlsFiles { ca: stranger.issue("x", SERVER).ca, ..renewed.clone() };
    assert_eq!(load(&strangers).changes_since(&load(&renewed)), ["authorities"]);
}

#[tokio::test]
async fn each_side_learns_the_other_names() {
    let ca = Authority::new();
    let (server, client) = (ca.issue("ctl.example", SERVER), ca.issue("Node1.Example", CLIENT));
    let (seen_by_client, seen_by_server) = meet(&server, &client, "ctl.example").await;
    assert_eq!(seen_by_client.unwrap(), ["ctl.example"]);
    assert_eq!(seen_by_server.unwrap(), ["node1.example"]);
    assert_eq!(ServerTls::load(&server).unwrap().names(), ["ctl.example"]);
}

/// An attacker with a node's key must not play the controller, whatever names the certificate has.
#[tokio::test]
async fn a_node_certificate_is_no_server() {
    let ca = Authority::new();
    let (attacker, client) = (ca.issue("ctl.example", CLIENT), ca.issue("n1", CLIENT));
    let (client, server) = meet(&attacker, &client, "ctl.example").await;
    assert_eq!(fault(client), TlsFault::WrongUsage);
    assert_eq!(fault(server), TlsFault::RefusedByPeer);
}

#[tokio::test]
async fn a_controller_certificate_is_no_client() {
    let ca = Authority::new();
    let (server, client) = (ca.issue("ctl.example", SERVER), ca.issue("other", SERVER));
    let (client, server) = meet(&server, &client, "ctl.example").await;
    assert_eq!(fault(server), TlsFault::WrongUsage);
    assert_eq!(fault(client), TlsFault::RefusedByPeer);
}

#[tokio::test]
async fn another_name_is_refused() {
    let ca = Authority::new();
    let (server, client) = (ca.issue("ctl.example", SERVER), ca.issue("n1", CLIENT));
    assert_eq!(fault(meet(&server, &client, "other.example").await.0), TlsFault::WrongName);
}

#[tokio::test]
async fn strangers_are_refused_on_both_sides() {
    let (ours, theirs) = (Authority::named("ours"), Authority::named("theirs"));
    let (server, client) = (ours.issue("ctl", SERVER), theirs.issue("n1", CLIENT));
    assert_eq!(fault(meet(&server, &client, "ctl").await.0), TlsFault::UnknownAuthority);
    let naive = TlsFiles { ca: server.ca.clone(), ..client };
    assert_eq!(fault(meet(&server, &naive, "ctl").await.1), TlsFault::UnknownAuthority);
}

#[tokio::test]
async fn a_certificate_not_yet_valid_is_distinguished_from_an_expired_one() {
    let ca = Authority::new();
    let client = ca.issue("n1", CLIENT);
    let tomorrow = ca.issue_with("ctl", SERVER, |params| params.not_before = date_time_ymd(2200, 1, 1));
    assert_eq!(fault(meet(&tomorrow, &client, "ctl").await.0), TlsFault::NotYetValid);
    let yesterday = ca.issue_with("ctl", SERVER, |params| params.not_after = date_time_ymd(2001, 1, 1));
    assert_eq!(fault(meet(&yesterday, &client, "ctl").await.0), TlsFault::Expired);
}

#[tokio::test]
async fn the_revoked_are_refused_and_the_others_are_not() {
    let ca = Authority::new();
    let crl = Some(ca.revoke(66));
    let server = TlsFiles { crl, ..ca.issue("ctl", SERVER) };
    let serial =
        |number: u64| move |params: &mut CertificateParams| params.serial_number = Some(SerialNumber::from(number));
    let bad = ca.issue_with("n66", CLIENT, serial(66));
    assert_eq!(fault(meet(&server, &bad, "ctl").await.1), TlsFault::Revoked);
    let good = ca.issue_with("n67", CLIENT, serial(67));
    assert_eq!(meet(&server, &good, "ctl").await.1.unwrap(), ["n67"]);
    // The client checks the list as well.
    let careful = TlsFiles { crl: server.crl.clone(), ..good };
    let revoked = ca.issue_with("ctl", SERVER, serial(66));
    assert_eq!(fault(meet(&revoked, &careful, "ctl").await.0), TlsFault::Revoked);
}

#[test]
fn files_are_refused_with_their_path_and_what_to_do() {
    let ca = Authority::new();
    let good = ca.issue("n1", CLIENT);
    let other = ca.issue("n2", CLIENT);
    let garbage = ca.path("garbage");
    fs::write(&garbage, "-----BEGIN CERTIFICATE-----\n%%%\n-----END CERTIFICATE-----\n").unwrap();
    let empty = ca.path("empty");
    fs::write(&empty, "").unwrap();
    fs::set_permissions(&empty, Permissions::from_mode(0o600)).unwrap();
    let missing = ca.path("missing");
    let exposed = ca.path("exposed");
    fs::copy(&good.key, &exposed).unwrap();
    fs::set_permissions(&exposed, Permissions::from_mode(0o644)).unwrap();
    let g = || good.clone();
    for (files, names, part) in [
        (TlsFiles { ca: missing.clone(), ..g() }, &missing, "No such file"),
        (TlsFiles { ca: empty.clone(), ..g() }, &empty, "no certificate"),
        (TlsFiles { ca: garbage.clone(), ..g() }, &garbage, "PEM"),
        (TlsFiles { cert: good.key.clone(), ..g() }, &good.key, "no certificate"),
        (TlsFiles { key: empty.clone(), ..g() }, &empty, "no private key"),
        (TlsFiles { key: exposed.clone(), ..g() }, &exposed, "mode 0644"),
        (TlsFiles { key: other.key.clone(), ..g() }, &other.key, "together"),
        (TlsFiles { crl: Some(good.cert.clone()), ..g() }, &good.cert, "no revocation list"),
    ] {
        for text in [ServerTls::load(&files).unwrap_err().to_string(), ClientTls::load(&files).unwrap_err().to_string()]
        {
            assert!(text.contains(&names.display().to_string()) && text.contains(part), "{text}");
        }
    }
    assert!(ClientTls::load(&good).is_ok());
    // Root may let a group read its key; other owners may not.
    fs::set_permissions(&good.key, Permissions::from_mode(0o640)).unwrap();
    assert_eq!(ClientTls::load(&good).is_ok(), rustix::process::geteuid().is_root());
}

#[test]
fn only_host_names_count() {
    let ca = Authority::new();
    for (sans, expect) in [
        (vec!["n1.example", "N2.EXAMPLE."], vec!["n1.example", "n2.example"]),
        (vec!["*.example", "10.0.0.1"], vec![]),
        (vec!["n1\u{1b}[2J", "n2"], vec!["n2"]),
        (vec![], vec![]),
    ] {
        let files = ca.issue_with("x", CLIENT, |params| {
            *params = CertificateParams::new(sans.iter().map(|san| (*san).to_owned()).collect::<Vec<_>>()).unwrap();
        });
        assert_eq!(ClientTls::load(&files).unwrap().names(), expect);
    }
    assert!(dns_names(&rustls::pki_types::CertificateDer::from(vec![1, 2, 3])).is_empty());
}

/// A peer with a certificate of another authority is refused, although that authority has the same name: an authority
/// that was created anew shares only its name with the old one.
#[tokio::test]
async fn an_authority_of_the_same_name_is_a_stranger() {
    let (ours, theirs) = (Authority::new(), Authority::new());
    let (server, client) = (ours.issue("ctl", SERVER), theirs.issue("n1", CLIENT));
    assert_eq!(fault(meet(&server, &client, "ctl").await.0), TlsFault::UnknownAuthority);
}

/// Python script: a client that uses OpenSSL, because perilog's build of rustls cannot speak TLS 1.2. The client
/// connects twice, the second time with the session from the first.
const CLIENT_SIDE: &str = r#"
import socket, ssl, sys
port, version, ca, cert, key = sys.argv[1:]
context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
context.maximum_version = getattr(ssl.TLSVersion, version)
context.load_verify_locations(ca)
context.load_cert_chain(cert, key)
session = None
for _ in range(2):
    with socket.create_connection(("127.0.0.1", int(port))) as raw:
        try:
            with context.wrap_socket(raw, server_hostname="ctl", session=session) as tls:
                tls.recv(64)
                session = tls.session
                ticket = "a ticket" if session and session.has_ticket else "no ticket"
                print(tls.version(), ticket, "resumed" if tls.session_reused else "whole")
        except ssl.SSLError as error:
            print(error.reason)
"#;

/// Python script: a server that uses OpenSSL, and offers clients session tickets, as OpenSSL does by default.
const SERVER_SIDE: &str = r#"
import socket, ssl, sys
version, ca, cert, key = sys.argv[1:]
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.maximum_version = getattr(ssl.TLSVersion, version)
context.verify_mode = ssl.CERT_REQUIRED
context.load_verify_locations(ca)
context.load_cert_chain(cert, key)
listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
for _ in range(2):
    raw, _ = listener.accept()
    with raw:
        try:
            with context.wrap_socket(raw, server_side=True) as tls:
                tls.sendall(b"\0\0\0\5hello")
                print(tls.version(), "resumed" if tls.session_reused else "whole")
        except ssl.SSLError as error:
            print(error.reason)
"#;

fn python(script: &str, arguments: &[&str], files: &TlsFiles) -> std::process::Child {
    let mut command = std::process::Command::new("python3");
    command.args(["-c", script]).args(arguments).args([&files.ca, &files.cert, &files.key]);
    command.stdout(std::process::Stdio::piped()).spawn().expect("python3, which `cargo xtask test` asks for")
}

/// Starts a client that uses OpenSSL and speaks at most TLS `version`; it dials perilog's server twice. Returns the
/// lines that the client printed, and the number of handshakes that the server completed.
async fn openssl_dials(version: &str) -> (Vec<String>, usize) {
    let ca = Authority::new();
    let socket = link::bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let port = socket.local_addr().unwrap().port().to_string();
    let tls = ServerTls::load(&ca.issue("ctl", SERVER)).unwrap();
    let listener = Listener::new(socket, Some(tls), Keepalive::default()).unwrap();
    let client = python(CLIENT_SIDE, &[&port, version], &ca.issue("n1", CLIENT));
    let mut taken = 0;
    for _ in 0..2 {
        if let Ok(mut link) = listener.next().await.handshake().await {
            taken += 1;
            link.writer.send("hello".into()).await.unwrap();
        }
    }
    (printed(client), taken)
}

/// Starts a server that uses OpenSSL and speaks at most TLS `version`; dials it twice with perilog's client. Returns
/// the lines that the server printed, and the number of handshakes that the client completed.
async fn openssl_answers(version: &str) -> (Vec<String>, usize) {
    use std::io::BufRead;
    let ca = Authority::new();
    let mut server = python(SERVER_SIDE, &[version], &ca.issue("ctl", SERVER));
    let mut port = String::new();
    let mut output = std::io::BufReader::new(server.stdout.take().unwrap());
    output.read_line(&mut port).unwrap();
    let tls = ClientTls::load(&ca.issue("n1", CLIENT)).unwrap();
    let address = format!("127.0.0.1:{}", port.trim());
    let dial = Dial { server_name: "ctl".to_owned(), tls: Some(tls), ..Dial::plain(address) };
    let mut taken = 0;
    for _ in 0..2 {
        if let Ok(mut link) = link::dial(&dial).await {
            // Tickets come with the first frame.
            taken += usize::from(link.reader.next().await.is_ok());
        }
    }
    let lines = output.lines().map(Result::unwrap).collect();
    assert!(server.wait().unwrap().success());
    (lines, taken)
}

fn printed(client: std::process::Child) -> Vec<String> {
    let output = client.wait_with_output().unwrap();
    assert!(output.status.success());
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

#[tokio::test]
async fn tls_1_2_is_refused_on_both_sides() {
    let refused = |reason: &str| (vec![reason.to_owned(); 2], 0);
    assert_eq!(openssl_dials("TLSv1_2").await, refused("TLSV1_ALERT_PROTOCOL_VERSION"));
    assert_eq!(openssl_answers("TLSv1_2").await, refused("UNSUPPORTED_PROTOCOL"));
}

#[tokio::test]
async fn no_session_is_resumed_and_no_ticket_handed_out() {
    let twice = |line: &str| (vec![line.to_owned(); 2], 2);
    assert_eq!(openssl_dials("TLSv1_3").await, twice("TLSv1.3 no ticket whole"));
    assert_eq!(openssl_answers("TLSv1_3").await, twice("TLSv1.3 whole"));
}

/// webpki alone would accept a certificate without an extended key usage, for a client and for a server.
#[tokio::test]
async fn both_sides_refuse_a_certificate_without_key_usage() {
    let ca = Authority::new();
    let (ctl, node) = (ca.issue("ctl", SERVER), ca.issue("n1", CLIENT));
    let (mute_ctl, mute_node) = (ca.issue("mute-ctl", &[]), ca.issue("mute-n1", &[]));
    let (_, server) = meet(&ctl, &mute_node, "ctl").await;
    assert_eq!(fault(server), TlsFault::WrongUsage);
    let (client, _) = meet(&mute_ctl, &node, "mute-ctl").await;
    assert_eq!(fault(client), TlsFault::WrongUsage);
}
