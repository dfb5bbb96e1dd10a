//! Certificates for tests, of the kind that `perilog ca` makes: an authority, and certificates of the controller and of
//! nodes.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use perilog_host::clock;
use perilog_host::tls::{ClientTls, TlsFiles};
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, CertificateSigningRequestParams,
    CertifiedIssuer, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyIdMethod, KeyPair, KeyUsagePurpose, RevokedCertParams,
    SerialNumber, date_time_ymd,
};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

#[derive(Clone)]
pub(crate) struct Authority {
    dir: PathBuf,
    issuer: Arc<CertifiedIssuer<'static, KeyPair>>,
}

impl Authority {
    pub(crate) fn new(dir: &Path) -> Self {
        fs::create_dir_all(dir).unwrap();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        fs::write(dir.join("ca.pem"), issuer.pem()).unwrap();
        Self { dir: dir.to_owned(), issuer: Arc::new(issuer) }
    }

    pub(crate) fn controller(&self) -> TlsFiles {
        self.controller_as("localhost")
    }

    /// Makes the controller's certificate for this name, in place of an earlier one.
    pub(crate) fn controller_as(&self, name: &str) -> TlsFiles {
        self.issue("controller", name, ExtendedKeyUsagePurpose::ServerAuth)
    }

    pub(crate) fn agent(&self, host: &str) -> ClientTls {
        ClientTls::load(&self.files(host)).unwrap()
    }

    pub(crate) fn files(&self, host: &str) -> TlsFiles {
        self.issue(host, host, ExtendedKeyUsagePurpose::ClientAuth)
    }

    /// Makes a certificate of a host that ends in a day, so that the node should renew it now.
    pub(crate) fn due(&self, host: &str) -> TlsFiles {
        let mut params = CertificateParams::new(vec![host.to_owned()]).unwrap();
        params.not_after = (UNIX_EPOCH + Duration::from_millis(clock::wall_ms()) + DAY).into();
        self.issue_with(params, host, ExtendedKeyUsagePurpose::ClientAuth)
    }

    /// Signs a request (PEM) for a host.
    pub(crate) fn sign(&self, request: &str, host: &str) -> String {
        let mut request = CertificateSigningRequestParams::from_pem(request).unwrap();
        request.params = CertificateParams::new(vec![host.to_owned()]).unwrap();
        request.params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        request.signed_by(&self.issuer).unwrap().pem()
    }

    fn issue(&self, file: &str, name: &str, usage: ExtendedKeyUsagePurpose) -> TlsFiles {
        self.issue_with(CertificateParams::new(vec![name.to_owned()]).unwrap(), file, usage)
    }

    fn issue_with(&self, mut params: CertificateParams, file: &str, usage: ExtendedKeyUsagePurpose) -> TlsFiles {
        params.extended_key_usages = vec![usage];
        params.serial_number = Some(serial(file));
        let key = KeyPair::generate().unwrap();
        let path = |what: &str| self.dir.join(format!("{file}.{what}"));
        let files = TlsFiles { ca: self.dir.join("ca.pem"), cert: path("pem"), key: path("key"), crl: None };
        fs::write(&files.cert, params.signed_by(&key, &self.issuer).unwrap().pem()).unwrap();
        fs::write(&files.key, key.serialize_pem()).unwrap();
        fs::set_permissions(&files.key, Permissions::from_mode(0o600)).unwrap();
        files
    }
    /// Writes a revocation list with the certificates of these hosts, and returns its path.
    pub(crate) fn revoke(&self, hosts: &[&str]) -> PathBuf {
        let certificate = |host: &&str| RevokedCertParams {
            serial_number: serial(host),
            revocation_time: date_time_ymd(2020, 1, 1),
            reason_code: None,
            invalidity_date: None,
        };
        let params = CertificateRevocationListParams {
            this_update: date_time_ymd(2020, 1, 1),
            next_update: date_time_ymd(2200, 1, 1),
            crl_number: SerialNumber::from(1),
            issuing_distribution_point: None,
            revoked_certs: hosts.iter().map(certificate).collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        let path = self.dir.join("crl.pem");
        fs::write(&path, params.signed_by(&self.issuer).unwrap().pem().unwrap()).unwrap();
        path
    }

    /// Makes a certificate for `host` that the key of the host `attacker` has signed, instead of the authority. The
    /// file has both certificates, as a chain.
    pub(crate) fn forged(&self, host: &str, attacker: &str) -> TlsFiles {
        let stolen = self.files(attacker);
        let text = |path: &Path| fs::read_to_string(path).unwrap();
        let signer = KeyPair::from_pem(&text(&stolen.key)).unwrap();
        let issuer = Issuer::from_ca_cert_pem(&text(&stolen.cert), signer).unwrap();
        let mut params = CertificateParams::new(vec![host.to_owned()]).unwrap();
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let key = KeyPair::generate().unwrap();
        let chain = params.signed_by(&key, &issuer).unwrap().pem() + &text(&stolen.cert);
        fs::write(&stolen.cert, chain).unwrap();
        fs::write(&stolen.key, key.serialize_pem()).unwrap();
        stolen
    }
}

/// Derives a certificate's serial number from a name: the same name gives the same number.
fn serial(name: &str) -> SerialNumber {
    SerialNumber::from_slice(&[b"1", &name.as_bytes()[..name.len().min(15)]].concat())
}
