//! Lock for one agent per host (flock(2)); the kernel releases the lock when the agent ends in any way.

use std::fs::{File, OpenOptions};
use std::io::{Read as _, Seek as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use rustix::fs::{FlockOperation, flock};

use super::error::SpoolError;

/// The lock of the one agent of this host; dropping this value releases the lock.
#[derive(Debug)]
pub struct Lock {
    file: File,
    was_there: bool,
}

/// Releases the lock explicitly: a child about to exec has the file open for a moment longer, and would hold the lock.
impl Drop for Lock {
    fn drop(&mut self) {
        // If this call fails, closing the file releases the lock.
        let _ = flock(&self.file, FlockOperation::Unlock);
    }
}

impl Lock {
    /// Returns `true` if an earlier agent has made the lock's file in this /run.
    pub(super) fn was_there(&self) -> bool {
        self.was_there
    }

    pub(super) fn take(path: &Path) -> Result<Self, SpoolError> {
        let io = |doing, e| SpoolError::io(doing, path, e);
        let was_there = path.exists();
        let mut options = OpenOptions::new();
        let mut file = options
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(path)
            .map_err(|e| io("open", e))?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => {
                // The file contains the holder's pid for people; an empty file gives a message without a pid.
                let mut text = String::new();
                let _ = (&file).take(16).read_to_string(&mut text);
                return Err(SpoolError::Locked { path: path.to_owned(), holder: text.trim().parse().ok() });
            }
            Err(e) => return Err(io("lock", e.into())),
        }
        file.set_len(0)
            .and_then(|()| file.rewind())
            .and_then(|()| writeln!(file, "{}", std::process::id()))
            .map_err(|e| io("write", e))?;
        Ok(Self { file, was_there })
    }
}
