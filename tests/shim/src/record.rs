//! The record: the calls that changed files, in their order, with what was acknowledged between them.
//!
//! A record is a file of entries. An entry is a line of words, and for a write the written bytes behind the line. Names
//! are relative to the recorded directory; the directory itself has the name `.`. No name has a space.

use std::fmt;

/// A call that changed a file or a name, or a test's mark.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Entry<'a> {
    /// A file was opened, and created if it was missing.
    Open {
        name: &'a str,
        truncate: bool,
    },
    Write {
        name: &'a str,
        at: usize,
        bytes: &'a [u8],
    },
    Size {
        name: &'a str,
        len: usize,
    },
    /// An fsync or fdatasync; with `failed`, the caller got an I/O error.
    Sync {
        name: &'a str,
        failed: bool,
    },
    Rename {
        from: &'a str,
        to: &'a str,
    },
    /// A file has a further name.
    Link {
        from: &'a str,
        to: &'a str,
    },
    /// A file or an empty directory was removed.
    Unlink {
        name: &'a str,
    },
    /// A directory was made.
    Directory {
        name: &'a str,
    },
    /// A call about this file failed because a test wanted it to; a sync has an entry of its own.
    Failed {
        name: &'a str,
        errno: i32,
    },
    /// The program reported this as durable.
    Acknowledged {
        what: &'a str,
    },
}

impl fmt::Display for Entry<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Open { name, truncate } => writeln!(f, "open {name} {truncate}"),
            Self::Write { name, at, bytes } => writeln!(f, "write {name} {at} {}", bytes.len()),
            Self::Size { name, len } => writeln!(f, "size {name} {len}"),
            Self::Sync { name, failed } => writeln!(f, "sync {name} {failed}"),
            Self::Rename { from, to } => writeln!(f, "rename {from} {to}"),
            Self::Link { from, to } => writeln!(f, "link {from} {to}"),
            Self::Unlink { name } => writeln!(f, "unlink {name}"),
            Self::Directory { name } => writeln!(f, "directory {name}"),
            Self::Failed { name, errno } => writeln!(f, "failed {name} {errno}"),
            Self::Acknowledged { what } => writeln!(f, "acknowledged {what}"),
        }
    }
}

impl Entry<'_> {
    /// Returns the bytes of this entry in a record.
    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = self.to_string().into_bytes();
        if let Entry::Write { bytes: written, .. } = self {
            bytes.extend_from_slice(written);
        }
        bytes
    }
}

/// Reads all entries of a record. Returns `None` if the record is malformed.
#[cfg_attr(not(test), allow(dead_code, reason = "the shim only writes"))]
pub fn read(mut record: &[u8]) -> Option<Vec<Entry<'_>>> {
    let mut entries = Vec::new();
    while !record.is_empty() {
        let end = record.iter().position(|byte| *byte == b'\n')?;
        let line = std::str::from_utf8(&record[..end]).ok()?;
        let words: Vec<&str> = line.split(' ').collect();
        record = &record[end + 1..];
        entries.push(match words[..] {
            ["open", name, truncate] => Entry::Open { name, truncate: truncate.parse().ok()? },
            ["write", name, at, len] => {
                let (bytes, rest) = record.split_at_checked(len.parse().ok()?)?;
                record = rest;
                Entry::Write { name, at: at.parse().ok()?, bytes }
            }
            ["size", name, len] => Entry::Size { name, len: len.parse().ok()? },
            ["sync", name, failed] => Entry::Sync { name, failed: failed.parse().ok()? },
            ["rename", from, to] => Entry::Rename { from, to },
            ["link", from, to] => Entry::Link { from, to },
            ["unlink", name] => Entry::Unlink { name },
            ["directory", name] => Entry::Directory { name },
            ["failed", name, errno] => Entry::Failed { name, errno: errno.parse().ok()? },
            ["acknowledged", ..] => Entry::Acknowledged { what: line.split_once(' ')?.1 },
            _ => return None,
        });
    }
    Some(entries)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let entries = [
            Entry::Open { name: "a", truncate: true },
            Entry::Write { name: "a", at: 7, bytes: b"two\nlines" },
            Entry::Size { name: "a", len: 8 },
            Entry::Sync { name: ".", failed: true },
            Entry::Rename { from: "a", to: "b" },
            Entry::Link { from: "b", to: "d/c" },
            Entry::Directory { name: "d" },
            Entry::Failed { name: "b", errno: 5 },
            Entry::Acknowledged { what: "batch 9" },
            Entry::Unlink { name: "b" },
        ];
        let mut record = Vec::new();
        entries.iter().for_each(|entry| record.extend(entry.bytes()));
        assert_eq!(read(&record).as_deref(), Some(&entries[..]));
        assert_eq!(read(&record[..record.len() - 1]), None);
    }
}
