//! What the authority's directory says of hosts: which certificates are revoked, and which hosts somebody has thrown out, their newest certificate being
//! revoked. Looked at as it is now, under the authority's lock: what is revoked counts before the reload that ends its session.
//!
//! Files are read again only where they have changed, and the list of what was issued from where it ended.

use std::collections::{HashMap, HashSet};
use std::fs::{File, Metadata};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use perilog_host::authority::{self, CRL, ISSUED, Issued, Lock, canonical};

/// Of a revocation list. Certificates are verified by none that is larger (`perilog_host::tls`).
const LARGEST_LIST: u64 = 8 * 1024 * 1024;

/// A list of what was issued that is smaller is left alone. This is a boot a day of a thousand nodes, for a week.
const SMALL: u64 = 1024 * 1024;

/// Drops what nobody needs of the list of what was issued, where it is large, before there are sessions ([`authority::forget`]); how many lines.
///
/// # Errors
/// A sentence: the list stays as it is.
pub(super) fn forget(dir: &Path, now_ms: u64) -> Result<usize, String> {
    let path = dir.join(ISSUED);
    if !path.metadata().is_ok_and(|list| list.len() >= SMALL) {
        return Ok(0);
    }
    let lock = Lock::try_take(dir).map_err(|error| format!("cannot lock {}: {error}", dir.display()))?;
    let lock = lock.ok_or_else(|| format!("{} is locked by somebody else", dir.display()))?;
    let mut records = Records::default();
    records.read_list(dir).map_err(|error| failed(&lock, CRL, &error))?;
    authority::forget(&lock, &records.revoked, now_ms).map_err(|error| failed(&lock, ISSUED, &error))
}

#[derive(Default)]
pub(super) struct Records {
    /// Of the revocation list that was read: its number, its size, and when it was written. A new list is a new file.
    list: Option<(u64, u64, i64, i64)>,
    revoked: HashSet<String>,
    issued: Place,
    /// By canonical names.
    hosts: HashMap<String, Given>,
}

/// What a host was given.
#[derive(Default)]
struct Given {
    /// The serial number of the newest.
    newest: String,
    /// When those of the last hour were, wall clock.
    lately: Vec<u64>,
}

pub(super) const HOUR_MS: u64 = 3_600_000;
/// Certificates of one host that are counted.
pub(super) const COUNTED: usize = 10_000;

/// How far the list of what was issued is read.
#[derive(Default)]
struct Place {
    file: Option<u64>,
    /// Bytes; whole lines.
    offset: u64,
    lines: usize,
}

impl Records {
    /// Whether this certificate is revoked, or the newest one of this host (canonical).
    ///
    /// # Errors
    /// A sentence: nobody can tell, and nobody may be let in by it.
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

    /// Whether what is given now may begin the list of what was issued, where there is none: it must not stand in the place of one that was lost.
    ///
    /// # Errors
    /// A sentence: it was lost.
    pub(super) fn can_be_revoked(&mut self, lock: &Lock) -> Result<(), String> {
        self.read_issued(lock.dir()).map_err(|error| failed(lock, ISSUED, &error))?;
        if self.issued.file.is_some() {
            return Ok(());
        }
        self.read_list(lock.dir()).map_err(|error| failed(lock, CRL, &error))?;
        self.is_whole(lock)
    }

    /// Both lists were read. Without the one, nobody knows of which hosts the other speaks.
    fn is_whole(&self, lock: &Lock) -> Result<(), String> {
        if self.issued.file.is_some() || self.revoked.is_empty() {
            return Ok(());
        }
        let path = lock.dir().join(ISSUED);
        Err(format!(
            "{}: there is no such list, and which hosts are out is not known: bring it back. Where nobody has it, begin anew (remove {}, restart the controller; nodes need new tokens)",
            path.display(),
            lock.dir().display()
        ))
    }

    /// How many certificates this host (canonical) was given within an hour.
    ///
    /// # Errors
    /// As for [`Self::refused`].
    pub(super) fn lately(&mut self, lock: &Lock, host: &str, now_ms: u64) -> Result<usize, String> {
        self.read_issued(lock.dir()).map_err(|error| failed(lock, ISSUED, &error))?;
        let lately = self.hosts.get(host).map_or(&[][..], |given| &given.lately);
        Ok(lately.iter().filter(|at_ms| now_ms.abs_diff(**at_ms) < HOUR_MS).count())
    }

    fn read_list(&mut self, dir: &Path) -> io::Result<()> {
        let missing = |error: io::Error| match error.kind() {
            io::ErrorKind::NotFound => io::Error::new(
                error.kind(),
                "there is no such list, and who is on it is not known: bring it back, or begin a new one (perilog ca revoke)",
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

    /// What was added since.
    fn read_issued(&mut self, dir: &Path) -> io::Result<()> {
        let mut file = match File::open(dir.join(ISSUED)) {
            // Nobody was given one yet, or it was lost: the list of what is revoked says which.
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
        // A line without an end was cut off; whoever adds to the list ends it first.
        added.truncate(added.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1));
        let known = authority::known(&added);
        for line in known.skipped {
            tracing::warn!(
                "{}:{}: no record of a certificate, and skipped (was its writing cut off?): whom it was for is not known here",
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

/// Why no machine's word does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refused {
    /// The one that was shown.
    Certificate,
    /// The newest one of the host.
    Host,
}
