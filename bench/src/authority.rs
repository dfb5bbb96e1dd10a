//! Certificates as `perilog ca` makes them, for thousands of agents. All agents share one key, which saves time and
//! changes nothing for the controller: each has a certificate with its own name.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use perilog_host::tls::TlsFiles;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, ExtendedKeyUsagePurpose, IsCa, KeyPair, KeyUsagePurpose,
};

/// Name of the bench's cluster.
pub(crate) const CLUSTER: &str = "bench";
/// Host name in the certificate of the bench's servers.
pub(crate) const SERVER: &str = "localhost";

/// Returns the paths of the TLS files of the bench's servers, the controller among them.
pub(crate) fn server(directory: &Path) -> TlsFiles {
    files(directory, SERVER, SERVER)
}

pub(crate) fn agent(directory: &Path, host: &str) -> TlsFiles {
    files(directory, host, "agent")
}

fn files(directory: &Path, name: &str, key: &str) -> TlsFiles {
    let path = |file: String| -> PathBuf { directory.join("tls").join(file) };
    TlsFiles {
        ca: path("ca.pem".to_owned()),
        cert: path(format!("{name}.pem")),
        key: path(format!("{key}.key")),
        crl: None,
    }
}

/// Makes the authority, the controller's certificate, and a certificate for each host.
pub(crate) fn make(directory: &Path, hosts: impl Iterator<Item = String>) -> Result<()> {
    fs::create_dir_all(directory.join("tls")).context("a directory for certificates")?;
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate()?)?;
    fs::write(server(directory).ca, issuer.pem()).context("writing the authority")?;
    let issue = |files: &TlsFiles, name: &str, usage, key: &KeyPair| -> Result<()> {
        let mut params = CertificateParams::new(vec![name.to_owned()])?;
        params.extended_key_usages = vec![usage];
        fs::write(&files.cert, params.signed_by(key, &issuer)?.pem()).context("writing a certificate")
    };
    let keep = |files: &TlsFiles, key: &KeyPair| -> Result<()> {
        fs::write(&files.key, key.serialize_pem()).context("writing a key")?;
        fs::set_permissions(&files.key, Permissions::from_mode(0o600)).context("writing a key")
    };
    let (of_server, of_agents) = (KeyPair::generate()?, KeyPair::generate()?);
    keep(&server(directory), &of_server)?;
    issue(&server(directory), SERVER, ExtendedKeyUsagePurpose::ServerAuth, &of_server)?;
    keep(&agent(directory, ""), &of_agents)?;
    for host in hosts {
        issue(&agent(directory, &host), &host, ExtendedKeyUsagePurpose::ClientAuth, &of_agents)?;
    }
    Ok(())
}
