//! What an authority has issued: issued.jsonl in its directory, a line for each certificate. So that a host's certificates can be revoked when nobody
//! has them any more.
//!
//! A write that was cut off (a crash, a full disk) leaves a line that is no record. It stays alone: the next record begins a line of its own. Whoever reads
//! skips it and says so.

use std::fs::OpenOptions;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;

use serde::{Deserialize, Serialize};

use super::Lock;

pub const ISSUED: &str = "issued.jsonl";

/// One certificate. Reading skips what a later version has added.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Issued {
    /// Hexadecimal, two digits a byte, without colons.
    pub serial: String,
    pub role: String,
    pub names: Vec<String>,
    /// Milliseconds since the epoch.
    pub not_after_ms: u64,
}

/// Lines of the list, read again.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Known {
    pub issued: Vec<Issued>,
    /// Lines that are no record, the first of the text being 1.
    pub skipped: Vec<usize>,
}

/// Reads lines of the list: all of it, or what was added.
pub fn known(text: &[u8]) -> Known {
    let mut known = Known::default();
    for (at, line) in text.split(|byte| *byte == b'\n').enumerate() {
        match serde_json::from_slice(line) {
            Ok(issued) => known.issued.push(issued),
            Err(_) if line.is_empty() => {}
            Err(_) => known.skipped.push(at + 1),
        }
    }
    known
}

/// Adds certificates to the list of the authority that is locked; they are on disk when it returns.
///
/// # Errors
/// Of the file.
pub fn remember(lock: &Lock, issued: &[Issued]) -> io::Result<()> {
    let mut file = OpenOptions::new().read(true).append(true).create(true).mode(0o600).open(lock.dir().join(ISSUED))?;
    let mut text = String::new();
    if !ends_a_line(&mut file)? {
        text.push('\n');
    }
    for issued in issued {
        text += &serde_json::to_string(issued)?;
        text.push('\n');
    }
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

/// Whether what is added begins a line.
fn ends_a_line(file: &mut (impl Read + Seek)) -> io::Result<bool> {
    if file.seek(SeekFrom::End(0))? == 0 {
        return Ok(true);
    }
    file.seek(SeekFrom::End(-1))?;
    let mut last = [0];
    file.read_exact(&mut last)?;
    Ok(last == *b"\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn issued(serial: &str) -> Issued {
        Issued { serial: serial.to_owned(), role: "node".to_owned(), names: vec!["n0".to_owned()], not_after_ms: 1 }
    }

    /// The machine lost its power in the middle of a write: what comes after it was once glued to what was there, and no list could be read any more.
    #[test]
    fn a_line_that_was_cut_off_stays_alone_and_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(ISSUED);
        let lock = Lock::take(dir.path()).unwrap();
        remember(&lock, &[issued("01"), issued("02")]).unwrap();
        let whole = std::fs::read(&path).unwrap();
        for cut in [whole.len() - 1, whole.len() - 2, whole.len() / 2 + 1] {
            std::fs::write(&path, &whole[..cut]).unwrap();
            remember(&lock, &[issued("03")]).unwrap();
            let known = known(&std::fs::read(&path).unwrap());
            let serials: Vec<_> = known.issued.iter().map(|issued| issued.serial.as_str()).collect();
            // All but its end was written: it is whole.
            let (expect, skipped) =
                if cut == whole.len() - 1 { (&["01", "02", "03"][..], vec![]) } else { (&["01", "03"][..], vec![2]) };
            assert_eq!((serials.as_slice(), known.skipped), (expect, skipped), "{cut} of {}", whole.len());
        }
        // What a file system puts in the place of what it lost; and text that is none.
        let odd = [whole.as_slice(), &[0; 64], b"\n\xff\xfe\n", whole.as_slice()].concat();
        let known = known(&odd);
        assert_eq!((known.issued.len(), known.skipped), (4, vec![3, 4]));
    }
}
