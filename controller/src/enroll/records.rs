//! Records in the authority's directory: revoked certificates, and hosts whose newest certificate is revoked. The
//! controller reads the records under the authority's lock for each request. So a revoked host gets no certificate
//! without a new token, even before a reload, which ends the host's session.
//!
//! The controller reads a file again only if it has changed, and only the new lines of the list of issued certificates.

use std::collections::{HashMap, HashSet};
use std::fs::{File, Metadata};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use perilog_host::authority::{self, CRL, ISSUED, Issued, Lock, canonical};

/// Maximum size of the revocation list in bytes. TLS accepts no larger list (`perilog_host::tls`).
const LARGEST_LIST: u64 = 8 * 1024 * 1024;

/// Size in bytes below which the controller does not prune the list of issued certificates. A thousand nodes that boot
/// once a day fill it in about a week.
const SMALL: u64 = 1024 * 1024;

/// Prunes a large list of issued certificates when the controller starts, before any session begins
/// ([`authority::forget`]). Returns the number of removed lines.
///
/// # Errors
/// A sentence for the log. The list is unchanged then, or it was pruned and only its name is not synced.
pub(super) fn forget(dir: &Path, now_ms: u64) -> Result<usize, String> {
    let path = dir.join(ISSUED);
    if !path.metadata().is_ok_and(|list| list.len() >= SMALL) {
        return Ok(0);
    }
    let lock = Lock::try_take(dir).map_err(|error| format!("cannot lock {}: {error}", dir.display()))?;
    let lock = lock.ok_or_else(|| format!("{} is locked by another process", dir.display()))?;
    let mut records = Records::default();
    records.read_list(dir).map_err(|error| failed(&lock, CRL, &error))?;
    authority::forget(&lock, &records.revoked, now_ms).map_err(|error| failed(&lock, ISSUED, &error))
}

#[derive(Default)]
pub(super) struct Records {
    /// Identity of the revocation list that was read last: inode, size and time of writing in seconds and nanoseconds.
    /// A new list is a new file. `None`: no list was read, or the last one was unusable.
    list: Option<(u64, u64, i64, i64)>,
    revoked: HashSet<String>,
    issued: Place,
    /// Certificates by canonical host name.
    hosts: HashMap<String, Given>,
}

/// The certificates that the authority has issued for a host.
#[derive(Default)]
struct Given {
    /// Serial number (hexadecimal) of the newest certificate that the host has got.
    newest: String,
    /// Times at which the host got certificates, in milliseconds since 1970: those less than an hour before the newest.
    lately: Vec<u64>,
}

pub(super) const HOUR_MS: u64 = 3_600_000;
/// Maximum number of a host's certificates in an hour that the controller remembers. A host gets more in an hour only
/// with new tokens.
pub(super) const COUNTED: usize = 10_000;

/// The place up to which the controller has read the list of issued certificates.
#[derive(Default)]
struct Place {
    file: Option<u64>,
    /// Number of bytes read so far, in whole lines.
    offset: u64,
    lines: usize,
}

impl Records {
    /// Returns why the host gets no certificate: the certificate `serial` is revoked, or the host's newest one is.
    /// `None`: neither is revoked. `host`: canonical name; `serial`: number of the certificate that the visitor shows,
    /// or that its used token gave; `None`: neither exists.
    ///
    /// # Errors
    /// A sentence for the log: a record is unreadable or lost, so the host must be refused, too.
    pub(super) fn refused(&mut self, lock: &Lock, host: &str, serial: Option<&str>) -> Result<Option<Refused>, String> {
        self.read_list(lock.dir()).map_err(|error| failed(lock, CRL, &error))?;
        self.read_issued(lock.dir()).map_err(|error| failed(lock, ISSUED, &error))?;
        self.is_whole(lock)?;
        if serial.is_some_and(|serial| self.revoked.contains(serial)) {
            return Ok(Some(Refused::Certificate));
        }
        let is_out = self.hosts.get(host).is_some_and(|given| self.revoked.contains(&given.newest));
        Ok(is_out.then_some(Refused::Host))
    }

    /// Checks that the authority can record another certificate, so that it can be revoked later: the list of issued
    /// certificates exists, or no certificate is revoked yet. Otherwise the list was lost, and a new one would lack the
    /// revoked certificates' hosts.
    ///
    /// # Errors
    /// A sentence: the list was lost, or a file cannot be read.
    pub(super) fn can_be_revoked(&mut self, lock: &Lock) -> Result<(), String> {
        self.read_issued(lock.dir()).map_err(|error| failed(lock, ISSUED, &error))?;
        if self.issued.file.is_some() {
            return Ok(());
        }
        self.read_list(lock.dir()).map_err(|error| failed(lock, CRL, &error))?;
        self.is_whole(lock)
    }

    /// Checks that the list of issued certificates exists, unless no certificate is revoked. Without that list, the
    /// revoked serial numbers name no hosts.
    fn is_whole(&self, lock: &Lock) -> Result<(), String> {
        if self.issued.file.is_some() || self.revoked.is_empty() {
            return Ok(());
        }
        let path = lock.dir().join(ISSUED);
        Err(format!(
            "{}: the list is missing, so the revoked hosts are unknown: restore it. If there is no copy, make a new \
             authority (remove {}, restart the controller; nodes need new tokens)",
            path.display(),
            lock.dir().display()
        ))
    }

    /// Returns the number of certificates that this host (canonical) got within the last hour.
    ///
    /// # Errors
    /// A sentence for the log: the list of issued certificates cannot be read.
    pub(super) fn lately(&mut self, lock: &Lock, host: &str, now_ms: u64) -> Result<usize, String> {
        self.read_issued(lock.dir()).map_err(|error| failed(lock, ISSUED, &error))?;
        let lately = self.hosts.get(host).map_or(&[][..], |given| &given.lately);
        Ok(lately.iter().filter(|at_ms| now_ms.abs_diff(**at_ms) < HOUR_MS).count())
    }

    fn read_list(&mut self, dir: &Path) -> io::Result<()> {
        let missing = |error: io::Error| match error.kind() {
            io::ErrorKind::NotFound => io::Error::new(
                error.kind(),
                "the list is missing, so the revoked certificates are unknown: restore it, or start a new one (perilog \
                 ca revoke)",
            ),
            _ => error,
        };
        let file = File::open(dir.join(CRL)).map_err(missing)?;
        let is = |file: &Metadata| (file.ino(), file.len(), file.mtime(), file.mtime_nsec());
        let list = is(&file.metadata()?);
        if self.list == Some(list) {
            return Ok(());
        }
        self.list = None;
        let mut pem = Vec::new();
        file.take(LARGEST_LIST + 1).read_to_end(&mut pem)?;
        if pem.len() as u64 > LARGEST_LIST {
            return Err(io::Error::other(format!("is larger than {LARGEST_LIST} bytes")));
        }
        self.revoked = authority::revoked(&pem).map_err(io::Error::other)?;
        self.list = Some(list);
        Ok(())
    }

    /// Brings `hosts` up to date with the list of issued certificates: reads the lines that were added since the last
    /// call, or all lines of a new file. If the file is missing, forgets all hosts.
    fn read_issued(&mut self, dir: &Path) -> io::Result<()> {
        let mut file = match File::open(dir.join(ISSUED)) {
            // The list does not exist yet, or was lost: the revocation list shows which.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                (self.issued, self.hosts) = Default::default();
                return Ok(());
            }
            opened => opened?,
        };
        let is = file.metadata()?;
        if self.issued.file != Some(is.ino()) || is.len() < self.issued.offset {
            (self.issued, self.hosts) = Default::default();
            self.issued.file = Some(is.ino());
        }
        if is.len() == self.issued.offset {
            return Ok(());
        }
        file.seek(SeekFrom::Start(self.issued.offset))?;
        let mut added = Vec::new();
        file.read_to_end(&mut added)?;
        // Skips a torn last line; the next record begins on a new line.
        added.truncate(added.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1));
        let known = authority::known(&added);
        for line in known.skipped {
            tracing::warn!(
                "{}:{}: this line is not a record of a certificate, and is skipped (was it cut off while it was \
                 written?): its host is not known",
                dir.join(ISSUED).display(),
                self.issued.lines + line
            );
        }
        self.issued.offset += added.len() as u64;
        self.issued.lines += added.iter().filter(|byte| **byte == b'\n').count();
        known.issued.into_iter().for_each(|issued| self.note(issued));
        Ok(())
    }

    fn note(&mut self, issued: Issued) {
        for name in &issued.names {
            let given = self.hosts.entry(canonical(name)).or_default();
            given.newest.clone_from(&issued.serial);
            let Some(at_ms) = issued.enrolled_ms else { continue };
            given.lately.retain(|other| at_ms.abs_diff(*other) < HOUR_MS);
            if given.lately.len() < COUNTED {
                given.lately.push(at_ms);
            }
        }
    }
}

fn failed(lock: &Lock, name: &str, error: &io::Error) -> String {
    format!("{}: {error}", lock.dir().join(name).display())
}

/// The reason why a host gets no certificate unless it shows a new token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refused {
    /// The shown certificate is revoked.
    Certificate,
    /// The host's newest certificate is revoked.
    Host,
}
