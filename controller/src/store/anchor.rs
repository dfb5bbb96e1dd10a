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

    /// Returns the commit in the anchor. `None`: the anchor is new, or it cannot be used, which the journal then has.
    pub(super) fn read(&self) -> Option<Commit> {
        self.examine().unwrap_or_else(|trouble| {
            tracing::warn!(
                "{} {trouble}: by this file the controller cannot see at this start whether the store is an older copy",
                self.path.display()
            );
            None
        })
    }

    /// Returns the commit in the anchor; `None` if the anchor is new.
    ///
    /// # Errors
    /// The fault of the file, as a text that follows the file's path.
    fn examine(&self) -> Result<Option<Commit>, String> {
        let mut bytes = [0; 2 * WIDTH];
        let read = self.file.read_at(&mut bytes, 0).map_err(|error| format!("cannot be read ({error})"))?;
        let malformed = || "is malformed and is ignored".to_owned();
        match std::str::from_utf8(&bytes[..read]).map_err(|_| malformed())? {
            "" => Ok(None),
            text => parse(text).map(Some).ok_or_else(malformed),
        }
    }

    /// Writes the newest commit. A disk without room must not stop a batch, so a failure is only logged. The nodes'
    /// marks can still show that a store is behind.
    pub(super) fn write(&mut self, newest: Commit) {
        match self.file.write_all_at(line(newest).as_bytes(), 0) {
            Ok(()) => self.failed = false,
            Err(error) if !std::mem::replace(&mut self.failed, true) => {
                tracing::warn!(
                    "{} cannot be written ({error}): by this file the controller may not see at its next start whether \
                     the store is an older copy",
                    self.path.display()
                );
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
            let anchor = Anchor::open(&store).unwrap();
            assert_eq!(anchor.read(), None, "{damaged:?}");
            assert_eq!(anchor.examine().is_err(), !damaged.is_empty(), "{damaged:?}");
        }
    }

    /// A read error was silent, and a malformed anchor was said to be unreadable.
    #[test]
    fn an_anchor_of_no_use_is_named_with_its_fault() {
        let dir = tempfile::tempdir().unwrap();
        let store = dir.path().join("c.db");
        std::fs::write(dir.path().join("c.db-anchor"), b"\xff\n").unwrap();
        let malformed = Anchor::open(&store).unwrap();
        assert_eq!(malformed.examine().unwrap_err(), "is malformed and is ignored");
        let file = OpenOptions::new().write(true).open(dir.path().join("c.db-anchor")).unwrap();
        let unreadable = Anchor { file, ..malformed };
        let fault = unreadable.examine().unwrap_err();
        assert!(fault.starts_with("cannot be read (Bad file descriptor"), "{fault}");
        assert_eq!(unreadable.read(), None);
    }
}
