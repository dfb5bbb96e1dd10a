//! One at a time in an authority's directory: whoever signs, revokes, or adds to its lists. Between looking at the revocation list and the certificate that is
//! signed because of it, nobody revokes.

use std::fs::{File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

/// Until it is dropped, whoever else asks waits, in whichever process (flock(2) of the directory).
#[derive(Debug)]
pub struct Lock {
    dir: PathBuf,
    _file: File,
}

impl Lock {
    /// Waits until nobody else has it.
    ///
    /// # Errors
    /// There is no such directory, or it cannot be read.
    pub fn take(dir: &Path) -> io::Result<Self> {
        let file = File::open(dir)?;
        file.lock()?;
        Ok(Self { dir: dir.to_owned(), _file: file })
    }

    /// None where somebody else has it.
    ///
    /// # Errors
    /// As for [`Self::take`].
    pub fn try_take(dir: &Path) -> io::Result<Option<Self>> {
        let file = File::open(dir)?;
        match file.try_lock() {
            Ok(()) => Ok(Some(Self { dir: dir.to_owned(), _file: file })),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    /// What is locked.
    pub fn dir(&self) -> &Path {
        &self.dir
    }
}
