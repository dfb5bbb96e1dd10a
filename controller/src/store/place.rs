//! Checks of the place of the store's file: it is on a file system of this host, and open in one controller.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use perilog_core::defect;
use perilog_host::durable;
use rustix::fs::{FlockOperation, flock, statfs};

use super::OpenError;

/// File systems (statfs(2)) of other hosts, or served by a process (FUSE). SQLite's locks and shared memory do not work
/// on them, and after a fail-over a part of the acknowledged records would be missing.
#[rustfmt::skip]
const NETWORK: &[(u32, &str)] = &[
    (0x6969, "NFS"), (0x0bd0_0bd0, "Lustre"), (0xff53_4d42, "CIFS"), (0x517b, "SMB"), (0xfe53_4d42, "SMB2"),
    (0x4750_4653, "GPFS"),
    (0x6573_5546, "FUSE"), (0x1983_0326, "BeeGFS"), (0x00c3_6400, "Ceph"), (0x5346_414f, "AFS"), (0x6b41_4653, "AFS"),
    (0x7375_7245, "Coda"),
    (0x0116_1970, "GFS2"), (0x7461_636f, "OCFS2"), (0xaad7_aaea, "PanFS"), (0x2003_0528, "OrangeFS"), (0x564c, "NCP"),
];
const TMPFS: u32 = 0x0102_1994;
/// Maximum length in bytes of the text in the file of the lock: the id of a boot is a UUID.
const MOST_NOTED: usize = 64;

/// Refuses a directory on a network file system, and warns about a directory in memory (tmpfs).
pub(super) fn check_file_system(dir: &Path) -> Result<(), OpenError> {
    let found = statfs(dir).map_err(|e| OpenError::Place { path: dir.to_owned(), source: e.into() })?;
    check_kind(dir, u32::try_from(found.f_type & 0xffff_ffff).unwrap_or_default())
}

fn check_kind(dir: &Path, kind: u32) -> Result<(), OpenError> {
    if let Some((_, name)) = NETWORK.iter().find(|(number, _)| *number == kind) {
        return Err(OpenError::Network { dir: dir.to_owned(), kind: name });
    }
    if kind == TMPFS {
        tracing::warn!(dir = %dir.display(),
                       "the store is in memory (tmpfs): it does not survive a reboot of this host");
    }
    Ok(())
}

/// Creates the store's file if it is missing. The file contains environments and output of root's scripts, so only the
/// owner may read it. SQLite gives -wal and -shm the same mode.
pub(super) fn create_private(path: &Path) -> Result<(), OpenError> {
    let made = OpenOptions::new().read(true).append(true).create(true).mode(0o600).open(path);
    made.map(drop).map_err(|source| OpenError::Place { path: path.to_owned(), source })
}

/// Writes a small file beside the store that only the owner may read. After a crash or a power cut the file is whole,
/// or as it was before. On return it is on the disk.
pub(super) fn replace(path: &Path, text: &str) -> io::Result<()> {
    if defect!(HostNotedInPlace) {
        return fs::write(path, text);
    }
    durable::replace(path, 0o600, text.as_bytes())?;
    durable::sync_directory(path.parent().unwrap_or(Path::new("/")))
}

/// A lock that is held as long as the store is open: a second controller would be a second writer with its own epoch.
#[derive(Debug)]
pub(super) struct Lock(File);

impl Lock {
    /// Returns the text that [`Lock::note`] wrote, and removes it.
    pub(super) fn take_note(&self) -> String {
        let mut bytes = [0; MOST_NOTED];
        let read = self.0.read_at(&mut bytes, 0).unwrap_or(0);
        self.forget_note();
        String::from_utf8_lossy(&bytes[..read]).into_owned()
    }

    /// Writes a text of at most [`MOST_NOTED`] bytes to the lock's file. A disk without room leaves no text there.
    pub(super) fn note(&self, text: &str) {
        self.forget_note();
        if self.0.write_all_at(text.as_bytes(), 0).is_err() {
            self.forget_note();
        }
    }

    pub(super) fn forget_note(&self) {
        // A disk that does not take this ends the controller at its next commit.
        let _ = self.0.set_len(0);
    }
}

/// Removes the text in the file of the lock of this store, which a controller may hold.
pub(super) fn forget_note(store: &Path) {
    let _ = OpenOptions::new().write(true).truncate(true).open(beside(store, "lock"));
}

/// Releases the lock explicitly: a child about to exec (a hook) has the file open for a moment longer, and would hold
/// the lock.
impl Drop for Lock {
    fn drop(&mut self) {
        // If this call fails, closing the file releases the lock.
        let _ = flock(&self.0, FlockOperation::Unlock);
    }
}

pub(super) fn lock(path: &Path) -> Result<Lock, OpenError> {
    let path = beside(path, "lock");
    let failed = |source| OpenError::Place { path: path.clone(), source };
    let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(&path);
    let file = file.map_err(failed)?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Lock(file)),
        Err(errno) if errno.kind() == io::ErrorKind::WouldBlock => Err(OpenError::InUse { path: path.clone() }),
        Err(errno) => Err(failed(errno.into())),
    }
}

/// Returns the path of a file beside the store: `controller.db` and `lock` make `controller.db-lock`.
pub(super) fn beside(path: &Path, what: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push("-");
    name.push(what);
    name.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_on_another_host_is_refused_by_name() {
        let dir = Path::new("/srv");
        for (kind, name) in [(0x6969, "NFS"), (0x0bd0_0bd0, "Lustre"), (0x6573_5546, "FUSE"), (0xff53_4d42, "CIFS")] {
            let error = check_kind(dir, kind).unwrap_err().to_string();
            assert!(error.starts_with(&format!("/srv is on a network file system ({name})")), "{error}");
        }
        for kind in [0xef53, 0x5846_5342, TMPFS] {
            check_kind(dir, kind).unwrap();
        }
        assert!(check_file_system(Path::new("/none")).unwrap_err().to_string().contains("/none: No such file"));
    }

    #[test]
    fn a_store_has_one_controller_and_one_reader() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("c.db");
        let held = lock(&path).unwrap();
        assert!(matches!(lock(&path), Err(OpenError::InUse { .. })));
        // A child about to exec has the file open for a moment longer.
        let _child = held.0.try_clone().unwrap();
        drop(held);
        lock(&path).unwrap();
        create_private(&path).unwrap();
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    }
}
