//! `perilog ca`: a real TLS handshake and perilog's own loader judge its output.

#![allow(clippy::unwrap_used, reason = "a test fails by it")]

mod fake;

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use fake::{CliOutput, Place};
use perilog_host::authority;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer, ServerName};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection};
use serde_json::Value;

struct Ca {
    place: Place,
}

impl Ca {
    fn new() -> Self {
        Self::named("test authority")
    }

    fn named(name: &str) -> Self {
        let ca = Self { place: Place::new() };
        let printed = ca.run(&["ca", "init", "--dir", &ca.path("ca"), "--name", name, "-q"]);
        assert_eq!(
            (printed.code, printed.out.as_str(), printed.err.as_str()),
            (Some(0), ca.fingerprint("ca/ca.pem").as_str(), "")
        );
        ca
    }

    fn path(&self, name: &str) -> String {
        self.place.dir().join(name).display().to_string()
    }

    fn run(&self, args: &[&str]) -> CliOutput {
        CliOutput::of(self.place.command(args).output().unwrap())
    }

    fn fingerprint(&self, file: &str) -> String {
        self.run(&["ca", "show", &self.path(file), "-q"]).out
    }

    /// Issues certificates into `out`/HOST. For a single HOST, the files are also in `out`.
    fn issue(&self, role: &str, hosts: &[&str], out: &str) -> CliOutput {
        let (dir, out) = (self.path("ca"), self.path(out));
        let printed = self.run(&[&["ca", "issue", "--dir", &dir, "--role", role, "--out", &out], hosts].concat());
        let made = std::fs::read_dir(&out).into_iter().flatten().map(|entry| entry.unwrap().path());
        let made: Vec<_> = made.filter(|path| path.is_dir()).collect();
        if let (Some(0), [host]) = (printed.code, &made[..]) {
            for file in std::fs::read_dir(host).unwrap().map(|entry| entry.unwrap()) {
                std::fs::copy(file.path(), Path::new(&out).join(file.file_name())).unwrap();
            }
        }
        printed
    }
}

/// Regression test: an `init` that was cut off left a key without a certificate, and the authority could neither be
/// used nor made again.
#[test]
fn an_init_that_was_cut_is_made_again() {
    let ca = Ca::new();
    let read = |name: &str| std::fs::read_to_string(ca.path(name)).unwrap();
    let key = read("ca/ca-key.pem");
    std::fs::remove_file(ca.path("ca/ca.pem")).unwrap();
    let init = || ca.run(&["ca", "init", "--dir", &ca.path("ca"), "-q"]);
    let printed = init();
    assert_eq!((printed.code, printed.err.as_str()), (Some(0), ""));
    assert_eq!(read("ca/ca-key.pem"), key);
    assert_eq!(ca.issue("node", &["n0"], "out").code, Some(0));
    // This authority has let a node in: a lost certificate is no cut within init.
    std::fs::remove_file(ca.path("ca/ca.pem")).unwrap();
    assert_eq!(init().code, Some(2));
}

type Files = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>, Arc<RootCertStore>);

fn load(dir: &str) -> Files {
    let dir = Path::new(dir);
    let mut roots = RootCertStore::empty();
    for root in CertificateDer::pem_file_iter(dir.join("ca.pem")).unwrap() {
        roots.add(root.unwrap()).unwrap();
    }
    let chain = CertificateDer::pem_file_iter(dir.join("cert.pem")).unwrap().map(Result::unwrap).collect();
    (chain, PrivateKeyDer::from_pem_file(dir.join("key.pem")).unwrap(), Arc::new(roots))
}

/// Runs a TLS handshake in memory, in which client and server both show a certificate. `node`, `controller`:
/// directories with the files of client and server. `name`: the name under which the client dials the server. `Err`:
/// one of them refused the other's certificate, or the files cannot be used.
fn handshake(node: &str, controller: &str, name: &str) -> Result<(), rustls::Error> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let (chain, key, roots) = load(controller);
    let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider.clone()).build().unwrap();
    let server =
        ServerConfig::builder_with_provider(provider.clone()).with_protocol_versions(&[&rustls::version::TLS13])?;
    let server = server.with_client_cert_verifier(verifier).with_single_cert(chain, key)?;
    let (chain, key, roots) = load(node);
    let client = ClientConfig::builder_with_provider(provider).with_protocol_versions(&[&rustls::version::TLS13])?;
    let client = client.with_root_certificates(roots).with_client_auth_cert(chain, key)?;
    let mut client = ClientConnection::new(Arc::new(client), ServerName::try_from(name.to_owned()).unwrap())?;
    let mut server = ServerConnection::new(Arc::new(server))?;
    while client.is_handshaking() || server.is_handshaking() {
        let mut wire = Vec::new();
        client.write_tls(&mut wire).unwrap();
        server.read_tls(&mut wire.as_slice()).unwrap();
        server.process_new_packets()?;
        wire.clear();
        server.write_tls(&mut wire).unwrap();
        client.read_tls(&mut wire.as_slice()).unwrap();
        client.process_new_packets()?;
    }
    // The server judges the client's last message.
    let mut wire = Vec::new();
    client.write_tls(&mut wire).unwrap();
    server.read_tls(&mut wire.as_slice()).unwrap();
    server.process_new_packets().map(drop)
}

#[test]
fn nodes_and_controller_know_each_other_by_what_was_issued() {
    let ca = Ca::new();
    assert_eq!(ca.issue("controller", &["ctl.site.example", "10.0.0.1", "fd00::1"], "ctl").code, Some(0));
    assert_eq!(ca.issue("node", &["n[0-1]", "login1"], "nodes").code, Some(0));
    let (ctl, n0) = (ca.path("ctl"), ca.path("nodes/n0"));
    for name in ["ctl.site.example", "10.0.0.1", "fd00::1"] {
        handshake(&n0, &ctl, name).unwrap();
    }
    handshake(&ca.path("nodes/login1"), &ctl, "10.0.0.1").unwrap();
    // The handshake fails under another name, in the other role, and from another authority.
    assert!(handshake(&n0, &ctl, "other.site.example").is_err());
    assert!(handshake(&n0, &n0, "n0").is_err());
    assert!(handshake(&ctl, &ctl, "10.0.0.1").is_err());
    let other = Ca::new();
    assert_eq!(other.issue("node", &["n0"], "n0").code, Some(0));
    assert!(handshake(&other.path("n0"), &ctl, "10.0.0.1").is_err());
}

#[test]
fn perilogs_own_loader_takes_what_was_issued() {
    use perilog_host::tls::{ClientTls, ServerTls, TlsFiles};
    let ca = Ca::new();
    ca.issue("controller", &["ctl"], "ctl");
    ca.issue("node", &["n0"], "n0");
    let files = |dir: &str| {
        let at = |name: &str| PathBuf::from(ca.path(dir)).join(name);
        TlsFiles { ca: at("ca.pem"), cert: at("cert.pem"), key: at("key.pem"), crl: None }
    };
    ServerTls::load(&files("ctl")).unwrap();
    ClientTls::load(&files("n0")).unwrap();
}

#[test]
fn keys_are_for_their_owner_and_nothing_is_overwritten_unasked() {
    let ca = Ca::new();
    ca.issue("node", &["n0"], "n0");
    let mode = |name: &str| std::fs::metadata(ca.path(name)).unwrap().mode() & 0o777;
    assert_eq!(
        (mode("ca/ca-key.pem"), mode("n0/key.pem"), mode("n0/cert.pem"), mode("ca")),
        (0o600, 0o600, 0o644, 0o700)
    );

    let before = ca.fingerprint("n0/cert.pem");
    let again = ca.issue("node", &["n0"], "n0");
    assert_eq!((again.code, again.err.contains("n0/ca.pem exists: use --force")), (Some(2), true), "{}", again.err);
    assert_eq!(ca.fingerprint("n0/cert.pem"), before);
    assert_eq!(ca.issue("node", &["n0", "--force"], "n0").code, Some(0));
    assert_ne!(ca.fingerprint("n0/cert.pem"), before);
    let files: Vec<_> = std::fs::read_dir(ca.path("n0/n0")).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(files.len(), 3, "no temporary file is left: {files:?}");

    let again = ca.run(&["ca", "init", "--dir", &ca.path("ca")]);
    assert_eq!(again.code, Some(2), "{}", again.err);

    std::fs::set_permissions(ca.path("ca/ca-key.pem"), std::os::unix::fs::PermissionsExt::from_mode(0o640)).unwrap();
    let read_by_others = ca.issue("node", &["n1"], "n1");
    assert_eq!((read_by_others.code, read_by_others.err.contains("(mode 0640); chmod 600")), (Some(2), true));
    assert!(!Path::new(&ca.path("n1")).exists(), "nothing was begun");
}

#[test]
fn wrong_names_are_refused_before_anything_is_written() {
    let ca = Ca::new();
    #[rustfmt::skip]
    let table: [(&str, &[&str], &str); 4] = [
        ("node", &["n0", "n[0-3]"], "n0 is named twice"),
        ("node", &["10.0.0.1"], "an address, but the certificate of a node needs its host name"),
        ("node", &["-n0"], "unexpected argument"),
        ("controller", &["ctl/x"], "    ctl/x\n       ^"),
    ];
    for (role, hosts, part) in table {
        let printed = ca.issue(role, hosts, "out");
        assert_eq!((printed.code, printed.err.contains(part)), (Some(2), true), "{hosts:?}: {}", printed.err);
    }
    assert!(!Path::new(&ca.path("out")).exists());
}

#[test]
fn show_prints_what_certificates_contain() {
    let ca = Ca::new();
    ca.issue("controller", &["ctl", "10.0.0.1"], "ca/issued");
    let printed = ca.run(&["ca", "show", "--dir", &ca.path("ca"), "--json"]);
    let all: Value = serde_json::from_str(&printed.out).unwrap();
    let all = all["certificates"].as_array().unwrap();
    let field = |at: usize, name: &str| all[at][name].as_str().unwrap().to_owned();
    assert_eq!(all.len(), 3, "ca.pem twice and cert.pem: {all:#?}");
    assert_eq!((field(0, "role"), field(0, "subject")), ("authority".to_owned(), "CN=test authority".to_owned()));
    assert_eq!((field(2, "role"), field(2, "issuer")), ("controller".to_owned(), "CN=test authority".to_owned()));
    assert_eq!(all[2]["names"], serde_json::json!(["ctl", "10.0.0.1"]));
    assert!(field(2, "not_after") < field(0, "not_after"));
    assert_eq!(field(2, "fingerprint_sha256").len(), 32 * 3 - 1);
    let none = ca.run(&["ca", "show", &ca.path("ca/ca-key.pem")]);
    assert_eq!((none.code, none.err.contains("has no certificate in it")), (Some(2), true));
}

#[test]
fn a_certificate_does_not_outlive_its_authority() {
    let ca = Ca { place: Place::new() };
    let dir = ca.path("ca");
    assert_eq!(ca.run(&["ca", "init", "--dir", &dir, "--days", "10"]).code, Some(0));
    assert_eq!(ca.issue("node", &["n0"], "n0").code, Some(0));
    let end = |file: &str| {
        let shown: Value = serde_json::from_str(&ca.run(&["ca", "show", &ca.path(file), "--json"]).out).unwrap();
        shown["certificates"][0]["not_after"].clone()
    };
    assert_eq!(end("ca/ca.pem"), end("n0/cert.pem"));
}

/// Returns an error unless a controller with the authority's revocation list would accept the certificate in the
/// directory `node`. A real verifier (rustls) decides.
fn let_in(ca: &Ca, node: &str) -> Result<(), rustls::Error> {
    let (chain, _, roots) = load(&ca.path(node));
    let list = CertificateRevocationListDer::from_pem_file(ca.path("ca/crl.pem")).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider).with_crls([list]).build().unwrap();
    verifier.verify_client_cert(&chain[0], &[], rustls::pki_types::UnixTime::now()).map(drop)
}

#[test]
fn revoked_certificates_stay_refused_and_others_pass() {
    let ca = Ca::new();
    ca.issue("node", &["n[0-3]"], "nodes");
    let (dir, revoked) = (ca.path("ca"), Err(rustls::Error::InvalidCertificate(rustls::CertificateError::Revoked)));
    let revoke = |what: &[&str]| ca.run(&[&["ca", "revoke", "--dir", &dir], what].concat());
    let serial = |file: &str| {
        let shown: Value = serde_json::from_str(&ca.run(&["ca", "show", &ca.path(file), "--json"]).out).unwrap();
        shown["certificates"][0]["serial"].as_str().unwrap().to_owned()
    };
    // The list of a new authority is empty, and good.
    (0..4).for_each(|n| let_in(&ca, &format!("nodes/n{n}")).unwrap());
    assert!(revoke(&[]).out.contains("nothing is revoked"));

    // Revokes by host, which has two certificates by now; by serial number; by file; and again.
    ca.issue("node", &["n0", "--force"], "again");
    let printed = revoke(&["n0"]);
    assert_eq!((printed.code, printed.err.contains("reload")), (Some(0), true), "{} {}", printed.out, printed.err);
    assert_eq!((let_in(&ca, "nodes/n0"), let_in(&ca, "again")), (revoked.clone(), revoked.clone()));
    let number = serial("nodes/n1/cert.pem");
    assert_eq!(revoke(&["-q", &format!("0x{number}")]).out, number.clone() + "\n");
    assert_eq!(revoke(&["-q", &ca.path("nodes/n2/cert.pem")]).out, serial("nodes/n2/cert.pem") + "\n");
    assert_eq!(revoke(&["-q", "n0"]).out, "", "it is revoked already");
    for (node, expect) in [("n0", &revoked), ("n1", &revoked), ("n2", &revoked), ("n3", &Ok(()))] {
        assert_eq!(&let_in(&ca, &format!("nodes/{node}")), expect, "{node}");
    }
    let listed: Value = serde_json::from_str(&revoke(&["--json"]).out).unwrap();
    let names: Vec<_> = listed["revoked"].as_array().unwrap().iter().map(|row| row["names"].clone()).collect();
    assert_eq!(names, ["n0", "n0", "n1", "n2"]);

    // A certificate issued after the revocation is accepted.
    ca.issue("node", &["n0"], "renewed");
    let_in(&ca, "renewed").unwrap();

    let other = Ca::new();
    other.issue("node", &["n9"], "n9");
    #[rustfmt::skip]
    let table = [
        ("n9", "has no record of a certificate for n9"),
        (&other.path("n9/cert.pem"), "was not issued by the authority in"),
        (&ca.path("ca/ca.pem"), "was not issued by the authority in"),
        ("0xzz", "expected at most 40 hexadecimal digits"),
        ("n 9", "malformed host name"),
    ];
    for (what, part) in table {
        let printed = revoke(&[what]);
        assert_eq!((printed.code, printed.err.contains(part)), (Some(2), true), "{what}: {}", printed.err);
    }
}

#[test]
fn a_host_is_revoked_whole_however_its_name_was_written() {
    let ca = Ca::new();
    for (at, name) in ["n0", "N0", "n0."].into_iter().enumerate() {
        assert_eq!(ca.issue("node", &[name], &format!("{at}")).code, Some(0));
    }
    let printed = ca.run(&["ca", "revoke", "--dir", &ca.path("ca"), "-q", "N0."]);
    assert_eq!((printed.code, printed.out.lines().count()), (Some(0), 3), "{}", printed.err);
    for at in 0..3 {
        assert!(let_in(&ca, &format!("{at}")).is_err(), "{at}");
    }
}

/// Regression test: a crash in the middle of a write left a torn line in issued.jsonl, and every later revocation
/// failed.
#[test]
fn a_torn_line_of_issued_jsonl_does_not_stop_a_revocation() {
    let ca = Ca::new();
    ca.issue("node", &["n[0-1]"], "nodes");
    let path = ca.path("ca/issued.jsonl");
    let whole = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, &whole[..whole.len() - 30]).unwrap();
    ca.issue("node", &["n2"], "n2");
    let revoke = |what: &str| ca.run(&["ca", "revoke", "--dir", &ca.path("ca"), "-q", what]);
    for node in ["nodes/n0", "n2"] {
        let printed = revoke(node.trim_start_matches("nodes/"));
        let reported = "/ca/issued.jsonl:2: skipped, because this line is no complete record";
        assert_eq!((printed.code, printed.err.matches(reported).count()), (Some(0), 1), "{}", printed.err);
        assert_eq!(let_in(&ca, node), Err(rustls::Error::InvalidCertificate(rustls::CertificateError::Revoked)));
    }
    // The host of the lost line is unknown; revoking by its file works.
    assert_eq!(revoke("n1").code, Some(2));
    assert_eq!(revoke(&ca.path("nodes/n1/cert.pem")).code, Some(0));
    assert!(let_in(&ca, "nodes/n1").is_err());
}

/// Regression test: `perilog ca revoke`, run by root under umask 077, wrote a revocation list that the controller could
/// not read. The controller then could neither reload nor start.
#[test]
fn a_strict_umask_changes_neither_readers_nor_owners() {
    // The one authority whose directory may belong to another user than root: the controller's.
    let ca = Ca::named("perilog enrolment of test");
    let is_root = rustix::process::geteuid().is_root();
    let whose = |name: &str| {
        std::fs::metadata(ca.path(name)).map(|file| (file.mode() & 0o777, file.uid(), file.gid())).unwrap()
    };
    let own = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
    let (daemon, list) = if is_root { ((64_001, 64_002), (64_003, 64_004)) } else { (own, own) };
    let give = |name: &str, (user, group): (u32, u32)| {
        std::os::unix::fs::chown(ca.path(name), Some(user), Some(group)).unwrap()
    };
    give("ca", daemon);
    give("ca/crl.pem", list);
    // For root, /var/lib/perilog belongs to the controller's user, in a mount namespace of this command.
    let state = "mount -t tmpfs tmpfs /var/lib; mkdir /var/lib/perilog; chown 64001 /var/lib/perilog; ";
    let strictly = |args: &[&str]| {
        let words: Vec<&str> = [env!("CARGO_BIN_EXE_perilog")].into_iter().chain(args.iter().copied()).collect();
        let script = format!("set -e; {}umask 077; exec \"$@\"", if is_root { state } else { "" });
        let shell = ["unshare", "--mount", "sh", "-c", &script, "sh"];
        let shell = if is_root { &shell[..] } else { &shell[2..] };
        let output = std::process::Command::new(shell[0]).args(&shell[1..]).args(words).output();
        CliOutput::of(output.unwrap())
    };
    let (dir, out) = (ca.path("ca"), ca.path("n0"));
    let issue = ["ca", "issue", "--dir", &dir, "--role", "node", "--out", &out, "n0"];
    if is_root {
        let printed = ca.run(&issue);
        assert!(printed.code == Some(2) && printed.err.contains("belongs to uid 64001"), "{}", printed.err);
    }
    let printed = strictly(&issue);
    assert_eq!(printed.code, Some(0), "{}", printed.err);
    assert_eq!(whose("ca/issued.jsonl"), (0o600, daemon.0, daemon.1));
    assert_eq!((whose("n0/n0/cert.pem"), whose("n0/n0/key.pem")), ((0o644, own.0, own.1), (0o600, own.0, own.1)));

    assert_eq!(strictly(&["ca", "revoke", "--dir", &dir, "n0"]).code, Some(0));
    assert_eq!(whose("ca/crl.pem"), (0o644, list.0, list.1), "the owner of what it replaces");
    std::fs::remove_file(ca.path("ca/crl.pem")).unwrap();
    assert_eq!(strictly(&["ca", "revoke", "--dir", &dir, "n0"]).code, Some(0));
    assert_eq!(whose("ca/crl.pem"), (0o644, daemon.0, daemon.1), "the owner of the directory");

    // A link that the directory's owner put in place of the list is not followed.
    std::fs::write(ca.path("elsewhere"), "").unwrap();
    std::fs::remove_file(ca.path("ca/issued.jsonl")).unwrap();
    std::os::unix::fs::symlink(ca.path("elsewhere"), ca.path("ca/issued.jsonl")).unwrap();
    let out = ca.path("n1");
    let printed = strictly(&["ca", "issue", "--dir", &dir, "--role", "node", "--out", &out, "n1"]);
    assert!(
        printed.code != Some(0) && printed.err.contains("ca/issued.jsonl: it is no regular file"),
        "{}",
        printed.err
    );
    assert_eq!(std::fs::read_to_string(ca.path("elsewhere")).unwrap(), "");
}

#[test]
fn an_unreadable_list_allows_revoking_by_file_or_number() {
    let ca = Ca::new();
    ca.issue("node", &["n[0-1]"], "nodes");
    std::fs::remove_file(ca.path("ca/issued.jsonl")).unwrap();
    std::fs::create_dir(ca.path("ca/issued.jsonl")).unwrap();
    let revoke = |what: &str| ca.run(&["ca", "revoke", "--dir", &ca.path("ca"), "-q", what]);
    for what in ["0xabcd", &ca.path("nodes/n0/cert.pem")] {
        let printed = revoke(what);
        assert_eq!(
            (printed.code, printed.err.contains("the hosts of the revoked certificates are not known")),
            (Some(0), true),
            "{}",
            printed.err
        );
    }
    assert!(let_in(&ca, "nodes/n0").is_err());
    assert_ne!(revoke("n1").code, Some(0));
    assert_eq!(let_in(&ca, "nodes/n1"), Ok(()));
}

/// Writes issued.jsonl, and a revocation list with these serial numbers and revocation times.
fn write_lists(ca: &Ca, issued: &[authority::Issued], revoked: &[(String, u64)]) {
    let lines: Vec<String> = issued.iter().map(|issued| serde_json::to_string(issued).unwrap() + "\n").collect();
    std::fs::write(ca.path("ca/issued.jsonl"), lines.concat()).unwrap();
    let text = |name: &str| std::fs::read_to_string(ca.path(name)).unwrap();
    let key = authority::KeyPair::from_pem(&text("ca/ca-key.pem")).unwrap();
    let issuer = authority::Issuer::from_ca_cert_pem(&text("ca/ca.pem"), key).unwrap();
    let revoked: Vec<_> =
        revoked.iter().map(|(serial, at_ms)| authority::Revoked { serial: serial.clone(), at_ms: *at_ms }).collect();
    let list = authority::revocations(&issuer, 1, &revoked, 0, 4_000_000_000_000).unwrap();
    std::fs::write(ca.path("ca/crl.pem"), list).unwrap();
}

fn issued(serial: &str, host: &str, not_after_ms: u64) -> authority::Issued {
    let (names, role) = (vec![host.to_owned()], "node".to_owned());
    authority::Issued { serial: serial.to_owned(), role, names, not_after_ms, enrolled_ms: Some(1) }
}

#[test]
fn a_list_that_no_controller_would_read_is_not_written() {
    let ca = Ca::new();
    let serials: Vec<(String, u64)> = (0..180_000_u64).map(|n| (format!("40{n:030X}"), 1_000)).collect();
    write_lists(&ca, &[], &serials);
    let before = std::fs::read(ca.path("ca/crl.pem")).unwrap();
    assert!(before.len() > 8 << 20);
    let printed = ca.run(&["ca", "revoke", "--dir", &ca.path("ca"), "-q", "0xabcd"]);
    let reported = "no controller reads more than 8388608: nothing was revoked";
    assert_eq!((printed.code, printed.err.contains(reported)), (Some(2), true), "{}", printed.err);
    assert!(std::fs::read(ca.path("ca/crl.pem")).unwrap() == before);
}

#[test]
fn old_entries_leave_the_list_but_a_hosts_newest_stays() {
    let ca = Ca::new();
    let (old, lately, later) = (1_000, perilog_host::clock::wall_ms() - 60_000, 4_000_000_000_000);
    let of_n0 = [issued("40", "n0", old), issued("41", "n0", old), issued("42", "n0", lately), issued("43", "N0", old)];
    let of_n1 = [issued("44", "n1", later), issued("45", "n1", later)];
    let revoked =
        |serials: &[(&str, u64)]| serials.iter().map(|(serial, at)| ((*serial).to_owned(), *at)).collect::<Vec<_>>();
    let list = revoked(&[("40", old), ("41", lately), ("42", old), ("43", old), ("44", old), ("46", old)]);
    write_lists(&ca, &[of_n0.as_slice(), of_n1.as_slice()].concat(), &list);
    let printed = ca.run(&["ca", "revoke", "--dir", &ca.path("ca"), "--json"]);
    let listed: Value = serde_json::from_str(&printed.out).unwrap();
    let serials: Vec<_> = listed["revoked"].as_array().unwrap().iter().map(|row| row["serial"].clone()).collect();
    assert_eq!(serials, ["41", "42", "43", "44", "46"]);
}

#[test]
fn revoke_says_what_to_do_next_for_each_authority() {
    let ca = Ca::new();
    ca.issue("node", &["n0"], "a");
    ca.issue("node", &["n0"], "b");
    let revoke = |what: &str| ca.run(&["ca", "revoke", "--dir", &ca.path("ca"), what]).err;
    let printed = revoke(&ca.path("a/cert.pem"));
    assert!(
        printed.contains("n0 has 1 other valid certificate") && printed.contains("[tls] crl in controller.toml"),
        "{printed}"
    );
    let printed = revoke(&ca.path("b/cert.pem"));
    assert!(!printed.contains("is good"), "{printed}");
    // Earlier, an operator who followed "bring it to [tls] crl" cut off all certificates of the site's own authority.
    write_lists(&ca, &[issued("44", "n1", 4_000_000_000_000)], &[]);
    let printed = revoke("n1");
    assert!(!printed.contains("[tls] crl") && printed.contains("systemctl reload perilog-controller"), "{printed}");
    assert!(
        printed.contains("its certificate was revoked") && printed.contains("perilog doctor controller"),
        "{printed}"
    );
}

/// Returns the names that `perilog ca list` prints with these arguments.
fn listed(ca: &Ca, args: &[&str]) -> Vec<String> {
    let printed = ca.run(&[&["ca", "list", "--dir", &ca.path("ca"), "-q"], args].concat());
    assert_eq!(printed.code, Some(0), "{}", printed.err);
    printed.out.lines().map(str::to_owned).collect()
}

#[test]
fn a_current_certificate_is_renewed_and_the_old_one_goes_on() {
    let ca = Ca::new();
    assert_eq!(ca.issue("controller", &["ctl", "10.0.0.1"], "ctl").code, Some(0));
    assert_eq!(ca.issue("node", &["n[0-2]", "--days", "20"], "nodes").code, Some(0));
    assert_eq!(ca.run(&["ca", "revoke", "--dir", &ca.path("ca"), "n1"]).code, Some(0));
    // The soonest end comes first.
    assert_eq!(listed(&ca, &[]), ["n0", "n2", "ctl,10.0.0.1"]);
    assert_eq!((listed(&ca, &["--all"]).len(), listed(&ca, &["--within", "30"])), (4, vec!["n0".into(), "n2".into()]));

    let renew = |args: &[&str], out: &str| {
        let (dir, out) = (ca.path("ca"), ca.path(out));
        ca.run(&[&["ca", "renew", "--dir", &dir, "--out", &out], args].concat())
    };
    let made = |out: &str| {
        let mut names: Vec<_> =
            std::fs::read_dir(ca.path(out)).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    };
    let printed = renew(&["--all", "--within", "30"], "new");
    assert_eq!((printed.code, made("new")), (Some(0), vec!["n0".into(), "n2".into()]), "{}", printed.err);
    // Hosts change one after the other: each of old and new meets each of old and new.
    assert_eq!(renew(&["10.0.0.1"], "newer").code, Some(0));
    assert_eq!(made("newer"), ["ctl"]);
    for node in ["nodes/n0", "new/n0"] {
        for controller in ["ctl", "newer/ctl"] {
            handshake(&ca.path(node), &ca.path(controller), "10.0.0.1").unwrap();
        }
    }
    assert_ne!(ca.fingerprint("nodes/n0/cert.pem"), ca.fingerprint("new/n0/cert.pem"));
    // Those that were replaced are no more to be renewed.
    assert_eq!(
        (listed(&ca, &[]).len(), listed(&ca, &["--within", "30"]).len(), listed(&ca, &["--all"]).len()),
        (3, 0, 7)
    );
    let printed = renew(&["--all", "--within", "30"], "none");
    assert!(printed.err.contains("no certificate needs a renewal"), "{}", printed.err);
    for (host, out) in [("n1", "out"), ("n9", "out")] {
        let printed = renew(&[host], out);
        assert_eq!(
            (printed.code, printed.err.contains("no certificate for")),
            (Some(2), true),
            "{host}: {}",
            printed.err
        );
    }
    assert_eq!(renew(&["n0"], "new").code, Some(2), "its files are there");
    assert!(!Path::new(&ca.path("out")).exists());
}

/// The files of each host are in `OUT/HOST`, for one host as for many, and also after a renewal. If a host has both a
/// node's and a controller's certificate, `--role` chooses the one to renew.
#[test]
fn files_are_in_a_directory_of_the_hosts_name() {
    let ca = Ca::new();
    let there = |file: &str| Path::new(&ca.path(file)).exists();
    assert_eq!(ca.issue("node", &["ctl"], "nodes").code, Some(0));
    assert_eq!(ca.issue("controller", &["ctl", "10.0.0.1"], "controllers").code, Some(0));
    assert!(there("nodes/ctl/key.pem") && there("controllers/ctl/key.pem"));
    let renew = |args: &[&str]| {
        let (dir, out) = (ca.path("ca"), ca.path("new"));
        ca.run(&[&["ca", "renew", "--dir", &dir, "--all", "--out", &out], args].concat())
    };
    let printed = renew(&[]);
    assert!(printed.code == Some(2) && printed.err.contains("--role controller"), "{}", printed.err);
    assert!(!there("new"));
    assert_eq!(renew(&["--role", "controller"]).code, Some(0));
    assert!(ca.run(&["ca", "show", &ca.path("new/ctl/cert.pem")]).out.contains("controller"));
}

/// `perilog ca list` shows a certificate that a node got by enrolling. `perilog ca renew --all` leaves it out: the node
/// renews it itself, and another certificate would never reach the node.
#[test]
fn what_was_enrolled_is_listed_and_not_renewed() {
    let ca = Ca::new();
    assert_eq!(ca.issue("node", &["n0"], "n0").code, Some(0));
    let line =
        "{\"serial\":\"AB\",\"role\":\"node\",\"names\":[\"n1\"],\"not_after_ms\":4000000000000,\"enrolled_ms\":1}\n";
    let path = ca.path("ca/issued.jsonl");
    std::fs::write(&path, std::fs::read_to_string(&path).unwrap() + line).unwrap();
    assert_eq!(listed(&ca, &[]).len(), 2);
    let printed = ca.run(&["ca", "renew", "--dir", &ca.path("ca"), "--all", "--out", &ca.path("new")]);
    assert!(printed.err.contains("left out 1 certificate"), "{}", printed.err);
    assert!(!Path::new(&ca.path("new/n1")).exists() && Path::new(&ca.path("new/n0/cert.pem")).exists());
    let printed = ca.run(&["ca", "list", "--dir", &ca.path("nowhere")]);
    assert_eq!(printed.code, Some(8), "no authority is no list: {} {}", printed.out, printed.err);
}
