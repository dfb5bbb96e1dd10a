//! The record: the calls that changed files, in their order, with the batches that the store acknowledged between them.
//!
//! A record is a file of entries. An entry is a line of words, and for a write the written bytes behind the line. Names
//! are relative to the recorded directory; the directory itself has the name `.`.

use std::fmt;

/// A call that changed a file or a name, or an acknowledged batch.
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
    Unlink {
        name: &'a str,
    },
    /// The program reported this batch as durable.
    Acknowledged {
        batch: u64,
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
            Self::Unlink { name } => writeln!(f, "unlink {name}"),
            Self::Acknowledged { batch } => writeln!(f, "acknowledged {batch}"),
        }
    }
}

/// Reads all entries of a record. Returns `None` if the record is malformed.
pub fn read(mut record: &[u8]) -> Option<Vec<Entry<'_>>> {
    let mut entries = Vec::new();
    while !record.is_empty() {
        let end = record.iter().position(|byte| *byte == b'\n')?;
        let words: Vec<&str> = std::str::from_utf8(&record[..end]).ok()?.split(' ').collect();
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
            ["unlink", name] => Entry::Unlink { name },
            ["acknowledged", batch] => Entry::Acknowledged { batch: batch.parse().ok()? },
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
            Entry::Acknowledged { batch: 9 },
            Entry::Unlink { name: "b" },
        ];
        let mut record = Vec::new();
        for entry in &entries {
            record.extend(entry.to_string().as_bytes());
            if let Entry::Write { bytes, .. } = entry {
                record.extend(*bytes);
            }
        }
        assert_eq!(read(&record).as_deref(), Some(&entries[..]));
        assert_eq!(read(&record[..record.len() - 1]), None);
    }
}
