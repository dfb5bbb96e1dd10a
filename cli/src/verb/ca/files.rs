//! The files of an authority and of those it issues to. Keys are readable by their owner alone, from the first byte on.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use perilog_host::authority::Lock;
pub(super) use perilog_host::authority::{CA_CERT, CA_KEY, CRL};

use crate::fault::Fault;

/// What a daemon has under /etc/perilog/tls, beside `ca.pem`.
pub(super) const CERT: &str = "cert.pem";
pub(super) const KEY: &str = "key.pem";

/// A certificate or key has no megabyte.
const LARGEST: u64 = 1024 * 1024;
/// What an authority has issued and revoked: a hundred thousand certificates many times over.
const LARGEST_LIST: u64 = 256 * 1024 * 1024;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Who {
    Everybody,
    OwnerOnly,
}

/// Makes `dir` and what is above it; others may not look into what is new.
pub(super) fn directory(dir: &Path) -> Result<(), Fault> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(dir);
    made.map_err(|source| Fault::File { what: "cannot make", path: dir.to_owned(), source })
}

/// Keeps others who ask for it out of an authority's directory, until it is dropped.
pub(super) fn lock(dir: &Path) -> Result<Lock, Fault> {
    Lock::take(dir).map_err(|source| Fault::File { what: "cannot lock", path: dir.to_owned(), source })
}

/// Nothing is there. Not: it cannot be looked at.
pub(super) fn is_missing(path: &Path) -> bool {
    path.symlink_metadata().is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
}

/// Refuses where one of `names` is in `dir` already.
pub(super) fn absent(dir: &Path, names: &[&str], advice: &str) -> Result<(), Fault> {
    match names.iter().map(|name| dir.join(name)).find(|path| path.symlink_metadata().is_ok()) {
        Some(path) => Err(Fault::Usage(format!("{} exists: {advice}", path.display()))),
        None => Ok(()),
    }
}

/// Writes a whole file or nothing (temporary file, fsync, rename).
pub(super) fn write(path: &Path, who: Who, text: &str) -> Result<(), Fault> {
    let failed = |source| Fault::File { what: "cannot write", path: path.to_owned(), source };
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.new", std::process::id()));
    let temporary = path.with_file_name(name);
    let written = write_new(&temporary, who, text).and_then(|()| fs::rename(&temporary, path));
    written.map_err(|error| {
        // Nothing to do about a second failure; the first one is told.
        let _ = fs::remove_file(&temporary);
        failed(error)
    })
}

fn write_new(path: &PathBuf, who: Who, text: &str) -> io::Result<()> {
    let mode = match who {
        Who::Everybody => 0o644,
        Who::OwnerOnly => 0o600,
    };
    let mut file: File = OpenOptions::new().write(true).create_new(true).mode(mode).open(path)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

pub(super) fn read(path: &Path) -> Result<String, Fault> {
    let bytes = read_up_to(path, LARGEST, "a certificate has fewer")?;
    let odd = |error| Fault::File {
        what: "cannot read",
        path: path.to_owned(),
        source: io::Error::new(io::ErrorKind::InvalidData, error),
    };
    String::from_utf8(bytes).map_err(odd)
}

/// A list of an authority, which grows with what it does.
pub(super) fn read_list(path: &Path) -> Result<Vec<u8>, Fault> {
    read_up_to(path, LARGEST_LIST, "no such list has more")
}

fn read_up_to(path: &Path, largest: u64, why: &str) -> Result<Vec<u8>, Fault> {
    let failed = |source| Fault::File { what: "cannot read", path: path.to_owned(), source };
    let size = fs::metadata(path).map_err(failed)?.len();
    if size > largest {
        return Err(failed(io::Error::new(io::ErrorKind::InvalidData, format!("{size} bytes, {why}"))));
    }
    fs::read(path).map_err(failed)
}

/// Reads a key that only its owner can read.
pub(super) fn read_secret(path: &Path) -> Result<String, Fault> {
    let failed = |source| Fault::File { what: "cannot read", path: path.to_owned(), source };
    let mode = fs::metadata(path).map_err(failed)?.mode() & 0o777;
    if mode & 0o077 != 0 {
        let path = path.display();
        return Err(Fault::Usage(format!(
            "{path} can be read by others (mode {mode:04o}): chmod 600 {path}, and ask who has read it"
        )));
    }
    read(path)
}
