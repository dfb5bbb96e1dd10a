//! Reserve for a full disk, so that the store can still write epilogs and completions: a file of zeros beside the
//! store. The store removes the file when the disk is full, and creates it again when the disk has room.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FallocateFlags, fallocate, statvfs};

use super::place::beside;

/// Size in bytes of the reserve: room for all records that the running actions of a large cluster may still write. A
/// completion with output has at most some 100 KiB, and nearly all are under 1 KiB.
const SIZE: u64 = 8 * 1024 * 1024;
/// Free room in bytes that the reserve needs to be created again: twice its size, or the disk would be full again at
/// once.
pub(super) const ROOM: u64 = 2 * SIZE;
/// Free room in bytes below which an I/O error of SQLite counts as a full disk: SQLite's shared memory and checkpoints
/// do not always report a full disk.
const NO_ROOM: u64 = 256 * 1024;

#[derive(Debug)]
pub(super) struct Reserve {
    path: PathBuf,
    held: bool,
}

impl Reserve {
    /// Takes over the reserve that exists beside the store, or creates it if the disk has room.
    pub(super) fn new(store: &Path) -> Self {
        let path = beside(store, "reserve");
        let held = path.metadata().is_ok_and(|found| found.len() >= SIZE);
        let mut reserve = Self { path, held };
        reserve.refill();
        reserve
    }

    pub(super) const fn is_held(&self) -> bool {
        self.held
    }

    /// Frees the reserve's room on the disk; returns `true` if the reserve existed.
    pub(super) fn release(&mut self) -> bool {
        let released = std::mem::replace(&mut self.held, false) && fs::remove_file(&self.path).is_ok();
        if released {
            tracing::error!(reserve = %self.path.display(),
                            "the store's disk is full: its reserve is in use, and no new prolog begins");
        }
        released
    }

    /// Creates the reserve again if the disk has room; returns `true` if the reserve exists now.
    pub(super) fn refill(&mut self) -> bool {
        if !self.held && self.free().is_ok_and(|free| free >= ROOM) {
            self.held = self.make().is_ok();
            if !self.held {
                // A partial reserve is useless.
                let _ = fs::remove_file(&self.path);
            }
        }
        self.held
    }

    /// Returns `true` if the disk has less than [`NO_ROOM`] bytes free.
    pub(super) fn disk_is_full(&self) -> bool {
        self.free().is_ok_and(|free| free < NO_ROOM)
    }

    fn free(&self) -> io::Result<u64> {
        let dir = self.path.parent().unwrap_or_else(|| Path::new("."));
        let found = statvfs(dir)?;
        Ok(found.f_bavail.saturating_mul(found.f_frsize))
    }

    fn make(&self) -> io::Result<()> {
        let file: File = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&self.path)?;
        // Allocates blocks: a hole would reserve no room.
        fallocate(&file, FallocateFlags::empty(), 0, SIZE)?;
        file.sync_all()
    }
}
