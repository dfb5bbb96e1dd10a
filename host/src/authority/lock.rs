//! Lock on an authority's directory: one process at a time signs, revokes, or appends to the lists. So no revocation
//! comes between a check of the revocation list and the certificate signed because of that check.

use std::fs::{File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

/// Exclusive lock across processes (flock(2) of the directory). Other callers wait until this value is dropped.
#[derive(Debug)]
pub struct Lock {
    dir: PathBuf,
    file: File,
}

/// Releases the lock explicitly: a child about to exec has the file open for a moment longer, and would hold the lock.
impl Drop for Lock {
    fn drop(&mut self) {
        // If this call fails, closing the file releases the lock.
        let _ = self.file.unlock();
    }
}

impl Lock {
    /// Waits until no other process holds the lock, and takes the lock.
    ///
    /// # Errors
    /// The directory does not exist or cannot be read, or its file system refuses the lock.
    pub fn take(dir: &Path) -> io::Result<Self> {
        let file = File::open(dir)?;
        file.lock()?;
        Ok(Self { dir: dir.to_owned(), file })
    }

    /// Takes the lock if it is free; returns `None` if another process or thread has the lock.
    ///
    /// # Errors
    /// The errors of [`Self::take`].
    pub fn try_take(dir: &Path) -> io::Result<Option<Self>> {
        let file = File::open(dir)?;
        match file.try_lock() {
            Ok(()) => Ok(Some(Self { dir: dir.to_owned(), file })),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    /// Returns the locked directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression test: a child that had not executed its program yet kept a lock that the controller had released.
    #[test]
    fn a_dropped_lock_is_free_though_its_file_is_open() {
        let dir = tempfile::tempdir().unwrap();
        let lock = Lock::take(dir.path()).unwrap();
        let _of_a_child = lock.file.try_clone().unwrap();
        drop(lock);
        assert!(Lock::try_take(dir.path()).unwrap().is_some());
    }
}
