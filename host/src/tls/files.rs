//! Loads PEM files into rustls types, with errors that name the file and the remedy.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustls::RootCertStore;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer};
use rustls::server::VerifierBuilderError;
use x509_parser::extensions::ParsedExtension;
use x509_parser::prelude::{ASN1Time, FromDer, X509Certificate};

use super::TlsFiles;

/// Maximum size of a file in bytes. A bundle of all public authorities is a quarter of this; a revocation list of a
/// hundred thousand certificates fits.
pub const MAX_FILE: u64 = 8 * 1024 * 1024;

/// The reason why certificates cannot be loaded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    #[error("{}: there is no such revocation list, so the revoked certificates are unknown: restore the list, or begin \
             a new one (perilog ca revoke) and revoke the same certificates again", path.display())]
    NoList { path: PathBuf },
    #[error("{}: cannot be read: {source}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("{}: other users can use the private key (mode {mode:04o}); run chmod 0600 on it (0640 is allowed if root \
             owns it), and replace it if they may have read it", path.display())]
    Exposed { path: PathBuf, mode: u32 },
    #[error("{}: the private key belongs to uid {uid}, who can replace it; run chown root on it", path.display())]
    Foreign { path: PathBuf, uid: u32 },
    #[error("{}: is larger than {MAX_FILE} bytes", path.display())]
    TooLarge { path: PathBuf },
    #[error("{}: holds no {what} in PEM form", path.display())]
    Empty { path: PathBuf, what: &'static str },
    #[error("{}: is not a valid PEM file: {source}", path.display())]
    Pem { path: PathBuf, source: pem::Error },
    #[error("{}: an authority's certificate cannot be used: {source}", path.display())]
    Authority { path: PathBuf, source: rustls::Error },
    #[error("{}: {source}", path.display())]
    Verifier { path: PathBuf, source: VerifierBuilderError },
    #[error("{} and {}: certificate and key cannot be used together: {source}", cert.display(), key.display())]
    Pair { cert: PathBuf, key: PathBuf, source: rustls::Error },
}

impl TlsError {
    pub(super) fn verifier(files: &TlsFiles, source: VerifierBuilderError) -> Self {
        let path = match &source {
            VerifierBuilderError::InvalidCrl(_) => files.crl.as_ref().unwrap_or(&files.ca),
            _ => &files.ca,
        };
        Self::Verifier { path: path.clone(), source }
    }

    pub(super) fn pair(files: &TlsFiles, source: rustls::Error) -> Self {
        Self::Pair { cert: files.cert.clone(), key: files.key.clone(), source }
    }
}

/// Trusted authorities and their revocation lists.
pub(super) struct Trusted {
    pub roots: RootCertStore,
    pub crls: Vec<CertificateRevocationListDer<'static>>,
}

impl Trusted {
    pub(super) fn load(ca: &Path, crl: Option<&Path>) -> Result<Self, TlsError> {
        let mut trusted = Self { roots: RootCertStore::empty(), crls: Vec::new() };
        trusted.add(ca, crl)?;
        Ok(trusted)
    }

    pub(super) fn add(&mut self, ca: &Path, crl: Option<&Path>) -> Result<(), TlsError> {
        for authority in all::<CertificateDer<'static>>(ca, "certificate", Readable::ByAll)? {
            self.roots.add(authority).map_err(|source| TlsError::Authority { path: ca.to_owned(), source })?;
        }
        if let Some(crl) = crl {
            let lists = all(crl, "revocation list", Readable::ByAll).map_err(|error| match error {
                TlsError::Read { path, source } if source.kind() == io::ErrorKind::NotFound => {
                    TlsError::NoList { path }
                }
                other => other,
            });
            self.crls.extend(lists?);
        }
        Ok(())
    }
}

/// Returns the begin and the expiry of this host's certificate, in milliseconds since 1970; `None` if the file
/// does not exist.
pub(super) fn validity(path: &Path) -> Result<Option<(u64, u64)>, TlsError> {
    if path.symlink_metadata().is_err_and(|error| error.kind() == io::ErrorKind::NotFound) {
        return Ok(None);
    }
    let chain = all::<CertificateDer<'static>>(path, "certificate", Readable::ByAll)?;
    let empty = || TlsError::Empty { path: path.to_owned(), what: "certificate" };
    let first = chain.first().ok_or_else(empty)?;
    let (_, first) = X509Certificate::from_der(first).map_err(|_| empty())?;
    let ms = |time: ASN1Time| u64::try_from(time.timestamp()).unwrap_or(0).saturating_mul(1000);
    Ok(Some((ms(first.validity().not_before), ms(first.validity().not_after))))
}

/// The files of a [`TlsFiles`], read and parsed: the trusted authorities with their revocation lists, this host's
/// certificate chain, and its private key.
pub(super) struct Loaded {
    pub trusted: Trusted,
    pub chain: Vec<CertificateDer<'static>>,
    pub key: PrivateKeyDer<'static>,
}

pub(super) fn load(files: &TlsFiles) -> Result<Loaded, TlsError> {
    let trusted = Trusted::load(&files.ca, files.crl.as_deref())?;
    let chain = all(&files.cert, "certificate", Readable::ByAll)?;
    let key = all::<PrivateKeyDer<'static>>(&files.key, "private key", Readable::ByOwner)?
        .into_iter()
        .next()
        .ok_or_else(|| TlsError::Empty { path: files.key.clone(), what: "private key" })?;
    Ok(Loaded { trusted, chain, key })
}

/// Returns the certificate of the authority that issued the last certificate of `chain`, from the authorities in the
/// file `ca`. `None` if that certificate is unreadable or self-signed, or no authority of `ca` issued it.
pub(super) fn issuer(
    ca: &Path,
    chain: &[CertificateDer<'static>],
) -> Result<Option<CertificateDer<'static>>, TlsError> {
    let Some(Ok((_, last))) = chain.last().map(|last| X509Certificate::from_der(last)) else { return Ok(None) };
    let authorities = all::<CertificateDer<'static>>(ca, "certificate", Readable::ByAll)?;
    let issued = |authority: &CertificateDer<'_>| {
        X509Certificate::from_der(authority)
            .is_ok_and(|(_, it)| it.subject() == last.issuer() && same_key(key_id(&it).own, key_id(&last).signer))
    };
    let is_its_own = last.subject() == last.issuer();
    Ok(authorities.into_iter().find(|authority| !is_its_own && issued(authority)))
}

/// Identifiers of a certificate's own key and of its signer's key (RFC 5280, 4.2.1.2 and 4.2.1.1); `None` if absent.
/// They distinguish authorities of the same name.
struct KeyIds<'c> {
    own: Option<&'c [u8]>,
    signer: Option<&'c [u8]>,
}

fn key_id<'c>(certificate: &'c X509Certificate<'_>) -> KeyIds<'c> {
    let mut ids = KeyIds { own: None, signer: None };
    for extension in certificate.extensions() {
        match extension.parsed_extension() {
            ParsedExtension::SubjectKeyIdentifier(id) => ids.own = Some(id.0),
            ParsedExtension::AuthorityKeyIdentifier(id) => ids.signer = id.key_identifier.as_ref().map(|id| id.0),
            _ => {}
        }
    }
    ids
}

/// Returns `true` if the key identifiers are equal, or one of them is absent.
fn same_key(own: Option<&[u8]>, signer: Option<&[u8]>) -> bool {
    own.zip(signer).is_none_or(|(own, signer)| own == signer)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Readable {
    ByAll,
    ByOwner,
}

/// Reads all PEM sections of one kind; fails if the file has none.
fn all<T: PemObject>(path: &Path, what: &'static str, readable: Readable) -> Result<Vec<T>, TlsError> {
    let text = read(path, readable)?;
    let items: Vec<T> = T::pem_slice_iter(&text)
        .collect::<Result<_, _>>()
        .map_err(|source| TlsError::Pem { path: path.to_owned(), source })?;
    if items.is_empty() {
        return Err(TlsError::Empty { path: path.to_owned(), what });
    }
    Ok(items)
}

fn read(path: &Path, readable: Readable) -> Result<Vec<u8>, TlsError> {
    read_as(rustix::process::geteuid().as_raw(), path, readable)
}

/// Reads a file for a process of user `own`. A private key must belong to that user or to root, and other users must
/// not be able to read it; the group of root's key may.
fn read_as(own: u32, path: &Path, readable: Readable) -> Result<Vec<u8>, TlsError> {
    let failed = |source| TlsError::Read { path: path.to_owned(), source };
    let file = File::open(path).map_err(failed)?;
    let meta = file.metadata().map_err(failed)?;
    let (mode, uid) = (meta.mode() & 0o7777, meta.uid());
    if readable == Readable::ByOwner && uid != 0 && uid != own {
        return Err(TlsError::Foreign { path: path.to_owned(), uid });
    }
    // Root gives a key to the group of a daemon that is not root; the group of a user's file may be the group of all
    // users.
    let others = if meta.uid() == 0 { 0o037 } else { 0o077 };
    if readable == Readable::ByOwner && mode & others != 0 {
        return Err(TlsError::Exposed { path: path.to_owned(), mode });
    }
    let mut bytes = Vec::new();
    file.take(MAX_FILE + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > MAX_FILE {
        return Err(TlsError::TooLarge { path: path.to_owned() });
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression test: a daemon read a key that another user owned.
    #[test]
    fn a_key_of_another_owner_is_refused() {
        let file = tempfile::NamedTempFile::new().unwrap();
        // Root gives the file to another user; the test then reads as two different users.
        let _ = std::os::unix::fs::chown(file.path(), Some(65534), None);
        let uid = file.as_file().metadata().unwrap().uid();
        assert!(read_as(uid, file.path(), Readable::ByOwner).is_ok());
        let error = read_as(uid + 1, file.path(), Readable::ByOwner).unwrap_err().to_string();
        assert!(error.contains(&format!("belongs to uid {uid}")), "{error}");
        assert!(read_as(uid + 1, file.path(), Readable::ByAll).is_ok());
    }
}
