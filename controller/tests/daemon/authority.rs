//! Certificates as `perilog ca` makes them: one authority, a server's and clients'.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use perilog_host::tls::{ClientTls, TlsFiles};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, ExtendedKeyUsagePurpose, IsCa, KeyPair, KeyUsagePurpose,
};

pub(crate) struct Authority {
    dir: PathBuf,
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl Authority {
    pub(crate) fn new(dir: &Path) -> Self {
        fs::create_dir_all(dir).unwrap();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        fs::write(dir.join("ca.pem"), issuer.pem()).unwrap();
        Self { dir: dir.to_owned(), issuer }
    }

    pub(crate) fn controller(&self) -> TlsFiles {
        self.issue("controller", "localhost", ExtendedKeyUsagePurpose::ServerAuth)
    }

    pub(crate) fn agent(&self, host: &str) -> ClientTls {
        ClientTls::load(&self.files(host)).unwrap()
    }

    pub(crate) fn files(&self, host: &str) -> TlsFiles {
        self.issue(host, host, ExtendedKeyUsagePurpose::ClientAuth)
    }

    fn issue(&self, file: &str, name: &str, usage: ExtendedKeyUsagePurpose) -> TlsFiles {
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        params.extended_key_usages = vec![usage];
        let key = KeyPair::generate().unwrap();
        let path = |what: &str| self.dir.join(format!("{file}.{what}"));
        let files = TlsFiles { ca: self.dir.join("ca.pem"), cert: path("pem"), key: path("key"), crl: None };
        fs::write(&files.cert, params.signed_by(&key, &self.issuer).unwrap().pem()).unwrap();
        fs::write(&files.key, key.serialize_pem()).unwrap();
        fs::set_permissions(&files.key, Permissions::from_mode(0o600)).unwrap();
        files
    }
}
