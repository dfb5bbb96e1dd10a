//! The anchor: the newest commit of the store, in a file beside it.
//!
//! ```text
//! perilog 1 epoch 00000000000000000012 nonce 0123456789abcdef commit 00000000000000004711
//! ```
//!
//! Restoring a copy of the store leaves the anchor unchanged, so the controller notices at its start that the store is
//! behind. The controller writes the anchor after each commit, at once and without waiting for the disk. After a power
//! cut the anchor may be older than the store, or missing; neither proves anything. The line has a fixed width, so that
//! a later line covers an earlier line.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use perilog_core::{Commit, Epoch};

use super::{OpenError, place};

#[derive(Debug)]
pub(super) struct Anchor {
    path: PathBuf,
    file: File,
    /// Whether the last write failed, and the journal has a line about the failure.
    failed: bool,
}

impl Anchor {
    /// Opens the anchor of a store; creates an empty anchor if the file is missing.
    pub(super) fn open(store: &Path) -> Result<Self, OpenError> {
        let path = place::beside(store, "anchor");
        let opened = OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(&path);
        match opened {
            Ok(file) => Ok(Self { path, file, failed: false }),
            Err(source) => Err(OpenError::Place { path, source }),
        }
    }

    /// Returns the commit in the anchor; `None` if the anchor is new or unreadable.
    pub(super) fn read(&self) -> Option<Commit> {
        let mut bytes = [0; 2 * WIDTH];
        let read = self.file.read_at(&mut bytes, 0).unwrap_or(0);
        let text = std::str::from_utf8(&bytes[..read]).unwrap_or("?");
        let commit = parse(text);
        if commit.is_none() && !text.is_empty() {
            tracing::warn!("{} cannot be read: the controller goes on as if there were no anchor", self.path.display());
        }
        commit
    }

    /// Writes the newest commit. A disk without room must not stop a batch, so a failure is only logged. The nodes'
    /// marks can still show that a store is behind.
    pub(super) fn write(&mut self, newest: Commit) {
        match self.file.write_all_at(line(newest).as_bytes(), 0) {
            Ok(()) => self.failed = false,
            Err(error) if !std::mem::replace(&mut self.failed, true) => {
                tracing::warn!(%error, "{} cannot be written", self.path.display());
            }
            Err(_) => {}
        }
    }
}

fn line(Commit { epoch, number }: Commit) -> String {
    format!("perilog 1 epoch {:020} nonce {:016x} commit {number:020}\n", epoch.number, epoch.nonce)
}

/// Number of bytes in the anchor's line, with the line feed.
const WIDTH: usize = 88;

fn parse(text: &str) -> Option<Commit> {
    let words: Vec<&str> = text.strip_suffix('\n')?.split(' ').collect();
    let ["perilog", "1", "epoch", epoch, "nonce", nonce, "commit", number] = words[..] else { return None };
    let epoch = Epoch { number: epoch.parse().ok()?, nonce: u64::from_str_radix(nonce, 16).ok()? };
    Some(Commit { epoch, number: number.parse().ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn commit(epoch: u64, nonce: u64, number: u64) -> Commit {
        Commit { epoch: Epoch { number: epoch, nonce }, number }
    }

    #[test]
    fn an_anchor_is_read_as_it_was_written() {
        let dir = tempfile::tempdir().unwrap();
        let store = dir.path().join("c.db");
        let mut anchor = Anchor::open(&store).unwrap();
        assert_eq!(anchor.read(), None);
        for commit in [commit(1, 2, 3), commit(u64::MAX, u64::MAX, u64::MAX), commit(0, 0, 0)] {
            assert_eq!(line(commit).len(), WIDTH);
            anchor.write(commit);
            assert_eq!(anchor.read(), Some(commit));
            assert_eq!(Anchor::open(&store).unwrap().read(), Some(commit));
        }
    }

    #[test]
    fn an_anchor_that_cannot_be_read_is_none() {
        let dir = tempfile::tempdir().unwrap();
        let store = dir.path().join("c.db");
        let good = line(commit(7, 8, 9));
        for damaged in [&good[..60], "", "\0\0\0", "perilog 2 epoch 1 nonce 1 commit 1\n", &format!("{good}{good}")] {
            std::fs::write(dir.path().join("c.db-anchor"), damaged).unwrap();
            assert_eq!(Anchor::open(&store).unwrap().read(), None, "{damaged:?}");
        }
    }
}
