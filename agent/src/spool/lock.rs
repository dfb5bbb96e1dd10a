//! One agent per host: a lock (flock(2)) that the kernel lets go when the agent ends, however it ends.

use std::fs::{File, OpenOptions};
use std::io::{Read as _, Seek as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use rustix::fs::{FlockOperation, flock};

use super::error::SpoolError;

/// Held while it lives.
#[derive(Debug)]
pub struct Lock {
    file: File,
}

/// Let go by name: a child that is about to be executed has the file open for a moment more, and would hold it.
impl Drop for Lock {
    fn drop(&mut self) {
        // Where that fails closing does it.
        let _ = flock(&self.file, FlockOperation::Unlock);
    }
}

impl Lock {
    pub(super) fn take(path: &Path) -> Result<Self, SpoolError> {
        let io = |doing, e| SpoolError::io(doing, path, e);
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
                // The holder's pid is there for people; without it the message says less.
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
        Ok(Self { file })
    }
}
