//! Enrolment authority on the controller's host: only the controller trusts the authority, and only for certificates of
//! nodes. An attacker who steals the authority's key can impersonate a node, never the controller, because agents do
//! not trust the authority (docs/decisions/0011). The authority's directory has the form that `perilog ca` gives, and
//! `perilog ca revoke` revokes the authority's certificates.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use perilog_host::authority::{
    self, BACKDATED_MS, CA_CERT, CA_KEY, CRL, Error, ISSUED, Issued, Issuer, KeyPair, Lock, Requested,
};
use perilog_host::durable;

/// Life of the authority: ten years. To replace the authority, an operator removes the directory; nodes then enrol
/// again.
const LASTS_MS: u64 = 3650 * 86_400_000;

pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
}

/// Serial number and end of the next certificate to sign.
pub(super) struct Next {
    number: [u8; 16],
    /// The certificate's serial number in hexadecimal.
    pub(super) serial: String,
    pub(super) until_ms: u64,
}

impl Next {
    pub(super) fn new(now_ms: u64, lasts_ms: u64) -> Self {
        let number = serial();
        let serial = number.iter().map(|byte| format!("{byte:02X}")).collect();
        Self { number, serial, until_ms: now_ms.saturating_add(lasts_ms) }
    }
}

/// The reason why the enrolment cannot be opened: a file of its authority or its tokens fails, or a key or certificate
/// is malformed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AuthorityError {
    #[error("{}: {source}", path.display())]
    File { path: PathBuf, source: io::Error },
    #[error("{}: {source}", path.display())]
    Certificate { path: PathBuf, source: Error },
}

impl Authority {
    /// Opens the authority, and creates a missing one. `name` is the cluster's name.
    pub(super) fn open(dir: &Path, name: &str, now_ms: u64) -> Result<Self, AuthorityError> {
        let failed = |source| AuthorityError::File { path: dir.to_owned(), source };
        let wrong = |source| AuthorityError::Certificate { path: dir.to_owned(), source };
        durable::make_directory(dir).map_err(failed)?;
        if !dir.join(CA_CERT).exists() {
            make(dir, name, now_ms).map_err(wrong)?.map_err(failed)?;
            tracing::info!("made the authority of enrolment in {}", dir.display());
        }
        let text = |name: &str| {
            let path = dir.join(name);
            fs::read_to_string(&path).map_err(|source| AuthorityError::File { path, source })
        };
        let key = KeyPair::from_pem(&text(CA_KEY)?).map_err(wrong)?;
        let issuer = Issuer::from_ca_cert_pem(&text(CA_CERT)?, key).map_err(wrong)?;
        Ok(Self { issuer })
    }

    /// Issues a certificate (PEM) for a host. The certificate is on the list of issued certificates before the function
    /// returns it.
    pub(super) fn certify(
        &self,
        lock: &Lock,
        requested: &Requested,
        host: &str,
        next: &Next,
        now_ms: u64,
    ) -> Result<String, String> {
        let Next { number, serial, until_ms } = next;
        let from_ms = now_ms.saturating_sub(BACKDATED_MS.min(until_ms.saturating_sub(now_ms) / 10));
        let cert =
            requested.certify(&self.issuer, host, number, from_ms, *until_ms).map_err(|error| error.to_string())?;
        let issued = Issued {
            serial: serial.clone(),
            role: "node".to_owned(),
            names: vec![host.to_owned()],
            not_after_ms: *until_ms,
            enrolled_ms: Some(now_ms),
        };
        authority::remember(lock, &[issued]).map_err(|error| format!("{}: {error}", lock.dir().display()))?;
        Ok(cert)
    }
}

/// First words of an enrolment authority's name.
const NAMED: &str = "perilog enrolment of";

/// Returns `true` if `issuer` names an enrolment authority: nodes renew the certificates of such an authority
/// themselves.
pub(crate) fn enrols(issuer: &str) -> bool {
    issuer.contains(NAMED)
}

/// Creates an authority in `dir`. The authority's own certificate is written last: if it exists, all other files exist.
///
/// # Errors
/// The outer error: the key, the certificate or the revocation list could not be made. The inner error: a file could
/// not be written or synced.
fn make(dir: &Path, name: &str, now_ms: u64) -> Result<io::Result<()>, Error> {
    let until_ms = now_ms + LASTS_MS;
    // The name is unique among the authorities of the site, because the name distinguishes revocation lists.
    let name = format!("{NAMED} {name} {}", uuid::Uuid::new_v4().simple());
    let made = authority::new(&name, now_ms.saturating_sub(BACKDATED_MS), until_ms)?;
    let issuer = Issuer::from_ca_cert_pem(&made.cert, KeyPair::from_pem(&made.key)?)?;
    let none = authority::revocations(&issuer, 1, &[], now_ms, until_ms)?;
    let write = |name: &str, mode: u32, text: &str| durable::replace(&dir.join(name), mode, text.as_bytes());
    let sync = || durable::sync_directory(dir);
    Ok(write(CA_KEY, 0o600, &made.key)
        .and_then(|()| write(ISSUED, 0o600, ""))
        .and_then(|()| write(CRL, 0o644, &none))
        .and_then(|()| sync())
        .and_then(|()| write(CA_CERT, 0o644, &made.cert))
        // The next start must not take a certificate for whole whose name a power cut loses.
        .and_then(|()| sync().inspect_err(|_| drop(fs::remove_file(dir.join(CA_CERT))))))
}

/// Returns a random serial number: positive and of full length in every encoding.
fn serial() -> [u8; 16] {
    let mut serial = *uuid::Uuid::new_v4().as_bytes();
    serial[0] = serial[0] & 0x3f | 0x40;
    serial
}
