//! Files of an authority and of its certificates. Only the owner can read a key, from the first byte on. Public files
//! are readable under every umask. In a daemon's directory, files keep their owner although root writes them.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::Path;

use perilog_host::authority::Lock;
pub(in crate::verb) use perilog_host::authority::{CA_CERT, CA_KEY, CRL};
use perilog_host::durable;
use sha2::{Digest, Sha256};

use crate::fault::Fault;

/// File name of a daemon's certificate under /etc/perilog/tls, beside `ca.pem`. `KEY`: file name of its key.
pub(in crate::verb) const CERT: &str = "cert.pem";
pub(in crate::verb) const KEY: &str = "key.pem";

/// Maximum size in bytes of a certificate or key: real ones are far smaller.
const LARGEST: u64 = 1024 * 1024;
/// Maximum size in bytes of a list of issued or revoked certificates: room for far more than a hundred thousand.
const LARGEST_LIST: u64 = 256 * 1024 * 1024;

/// The users that can read a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::verb) enum Who {
    Everybody,
    OwnerOnly,
    /// Users whom the permissions `mode` (chmod(1)) of a file of this owner and this group allow.
    Exactly {
        mode: u32,
        uid: u32,
        gid: u32,
    },
}

/// Creates `dir` and its parents; other users may not read new directories. On return their names are on the disk.
pub(in crate::verb) fn directory(dir: &Path) -> Result<(), Fault> {
    durable::make_directory(dir).map_err(|source| Fault::File { what: "cannot make", path: dir.to_owned(), source })
}

/// Locks an authority's directory against other processes, until the returned lock is dropped.
pub(super) fn lock(dir: &Path) -> Result<Lock, Fault> {
    Lock::take(dir).map_err(|source| Fault::File { what: "cannot lock", path: dir.to_owned(), source })
}

/// Returns `true` if there is no file at `path`. A file that cannot be looked at counts as one that exists.
pub(super) fn is_missing(path: &Path) -> bool {
    path.symlink_metadata().is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
}

/// Fails if `dir` contains a file of one of the `names`; the error ends with `advice`.
pub(super) fn absent(dir: &Path, names: &[&str], advice: &str) -> Result<(), Fault> {
    match names.iter().map(|name| dir.join(name)).find(|path| path.symlink_metadata().is_ok()) {
        Some(path) => Err(Fault::Usage(format!("{} exists: {advice}", path.display()))),
        None => Ok(()),
    }
}

/// Directory that systemd makes for the controller's user (`StateDirectory=`).
const STATE: &str = "/var/lib/perilog";

/// Fails if another user than root or the caller owns the file or directory: that user can replace the key. `enrols`:
/// the file is of the authority that enrols nodes, which the controller's user owns, too.
pub(super) fn is_own(path: &Path, enrols: bool) -> Result<(), Fault> {
    let controllers = Path::new(STATE).metadata().ok().filter(|_| enrols).map(|state| state.uid());
    is_own_of(path, rustix::process::geteuid().as_raw(), controllers)
}

/// Checks the owner of a file or directory for a caller with the user id `own`. `controllers`: the user id of the
/// controller's user, if that user may own it.
fn is_own_of(path: &Path, own: u32, controllers: Option<u32>) -> Result<(), Fault> {
    let found = path.metadata().map_err(|source| Fault::File { what: "cannot read", path: path.to_owned(), source })?;
    let uid = found.uid();
    if uid == 0 || uid == own || Some(uid) == controllers {
        return Ok(());
    }
    Err(Fault::Usage(format!(
        "{path} belongs to uid {uid}, who can replace the authority's key; find out who made it, then chown it to root",
        path = path.display()
    )))
}

/// Writes a whole file or nothing (temporary file, fsync, rename). On return the file is on disk under its name.
pub(in crate::verb) fn write(path: &Path, who: Who, text: &str) -> Result<(), Fault> {
    write_as(path, who, who == Who::Everybody, text)
}

/// Writes a whole file or nothing. `who`: the users that can read the file. `give_away`: the file gets the owner of the
/// file that it replaces, or else of the directory. For a key, callers pass `false`.
fn write_as(path: &Path, who: Who, give_away: bool, text: &str) -> Result<(), Fault> {
    let failed = |source| Fault::File { what: "cannot write", path: path.to_owned(), source };
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.new", std::process::id()));
    let temporary = path.with_file_name(name);
    let written =
        write_new(&temporary, give_away.then_some(path), who, text).and_then(|()| fs::rename(&temporary, path));
    written.map_err(|error| {
        // A second failure changes nothing; the verb reports the first.
        let _ = fs::remove_file(&temporary);
        failed(error)
    })?;
    sync(path).map_err(failed)
}

/// Writes `text` into a new file `temporary` and syncs it. `like`: a path whose owner and group the file gets;
/// `None`: this process's user owns the file. `who`: the users that can read the file.
fn write_new(temporary: &Path, like: Option<&Path>, who: Who, text: &str) -> io::Result<()> {
    let mode = match who {
        Who::Everybody => 0o644,
        Who::OwnerOnly => 0o600,
        Who::Exactly { mode, .. } => mode,
    };
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(temporary)?;
    if let Some(path) = like {
        give(&file, path)?;
    }
    if let Who::Exactly { uid, gid, .. } = who {
        fchown(&file, Some(uid), Some(gid))?;
    }
    // Sets the mode explicitly, because the umask could make a list unreadable for the daemon.
    file.set_permissions(Permissions::from_mode(mode))?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

/// Gives the new file `file` to the owner and group of the file at `path`, or of its directory if no file is there.
/// Does nothing if this process is not root: only root can give a file away.
fn give(file: &File, path: &Path) -> io::Result<()> {
    if !rustix::process::geteuid().is_root() {
        return Ok(());
    }
    let whose = match path.symlink_metadata() {
        Ok(there) if there.is_file() => there,
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => directory_of(path).metadata()?,
    };
    fchown(file, Some(whose.uid()), Some(whose.gid()))
}

/// Syncs the directory of `path`, so that a rename survives a power cut.
fn sync(path: &Path) -> io::Result<()> {
    File::open(directory_of(path))?.sync_all()
}

fn directory_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Creates issued.jsonl, the list of issued certificates, empty, unless it exists. It belongs to the owner of the
/// directory, and only that owner can read it. Fails if anything but a regular file is at `path`, such as a link.
pub(super) fn begin_list(path: &Path) -> Result<(), Fault> {
    let failed = |source| Fault::File { what: "cannot write", path: path.to_owned(), source };
    match path.symlink_metadata() {
        Ok(there) if there.is_file() => return Ok(()),
        Ok(_) => {
            return Err(failed(io::Error::new(io::ErrorKind::InvalidInput, "it is no regular file (perhaps a link)")));
        }
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
        Err(_) => {}
    }
    // Creates the list under a temporary name first, so that it never appears with another owner.
    write_as(path, Who::OwnerOnly, true, "")
}

pub(in crate::verb) fn read(path: &Path) -> Result<String, Fault> {
    let bytes = read_up_to(path, LARGEST, "a certificate has fewer")?;
    let odd = |error| Fault::File {
        what: "cannot read",
        path: path.to_owned(),
        source: io::Error::new(io::ErrorKind::InvalidData, error),
    };
    String::from_utf8(bytes).map_err(odd)
}

/// Reads an authority's list of issued or revoked certificates, which may be far larger than a certificate.
pub(in crate::verb) fn read_list(path: &Path) -> Result<Vec<u8>, Fault> {
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

/// Returns the SHA-256 of `bytes`, in hexadecimal.
pub(in crate::verb) fn digest(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Reads a key; refuses a key that other users can read.
pub(super) fn read_secret(path: &Path) -> Result<String, Fault> {
    let failed = |source| Fault::File { what: "cannot read", path: path.to_owned(), source };
    let mode = fs::metadata(path).map_err(failed)?.mode() & 0o777;
    if mode & 0o077 != 0 {
        let path = path.display();
        return Err(Fault::Usage(format!(
            "other users can read {path} (mode {mode:04o}); chmod 600 {path}, and find out who has read it"
        )));
    }
    read(path)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by it")]
mod tests {
    use super::*;

    /// The controller could not read its key on the second host: every file arrived as 0600 of root.
    #[test]
    fn a_file_gets_the_owner_and_the_mode_that_are_named() {
        let dir = tempfile::tempdir().unwrap();
        let own = dir.path().metadata().unwrap();
        // Only root may give a file to another group.
        let gid = if own.uid() == 0 { 64_123 } else { own.gid() };
        let path = dir.path().join("key.pem");
        write(&path, Who::Exactly { mode: 0o640, uid: own.uid(), gid }, "k").unwrap();
        let found = path.metadata().unwrap();
        assert_eq!((found.mode() & 0o7777, found.uid(), found.gid()), (0o640, own.uid(), gid));
    }

    #[test]
    fn an_authority_of_another_user_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let uid = dir.path().metadata().unwrap().uid();
        assert!(is_own_of(dir.path(), uid, None).is_ok());
        // The files of root are good for everybody, and a test may run as root.
        if uid != 0 {
            let error = is_own_of(dir.path(), uid + 1, None).unwrap_err().to_string();
            assert!(error.contains(&format!("belongs to uid {uid}")), "{error}");
        } else {
            fchown(File::open(dir.path()).unwrap(), Some(65_534), None).unwrap();
            let error = is_own_of(dir.path(), 0, None).unwrap_err().to_string();
            assert!(error.contains("belongs to uid 65534"), "{error}");
            assert!(is_own_of(dir.path(), 0, Some(65_533)).is_err());
            assert!(is_own_of(dir.path(), 0, Some(65_534)).is_ok());
        }
    }
}
