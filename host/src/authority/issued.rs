//! Certificates that an authority has issued: issued.jsonl in the authority's directory, one line per certificate. With
//! this list the operator can revoke a host whose certificates are lost.
//!
//! A crash or a full disk may cut off a write and leave a malformed line. The next record begins on a new line, so the
//! damage stays in one line. Readers skip the malformed line and report it.

use std::collections::{HashMap, HashSet};
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;

use serde::{Deserialize, Serialize};

use super::{Lock, canonical};

pub const ISSUED: &str = "issued.jsonl";

/// A certificate that the authority issued. The reader skips fields of a later version.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Issued {
    /// The serial number in hexadecimal, two digits a byte, without colons.
    pub serial: String,
    pub role: String,
    pub names: Vec<String>,
    /// End of the certificate's validity, in milliseconds since 1970.
    pub not_after_ms: u64,
    /// The time at which the controller issued the certificate to an enrolling host; `None` if an operator issued it
    /// manually.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enrolled_ms: Option<u64>,
}

impl Issued {
    /// Returns `true` if this certificate is for `host` (canonical).
    pub fn is_of(&self, host: &str) -> bool {
        self.names.iter().any(|name| canonical(name) == host)
    }
}

/// Returns the certificates of `host` (canonical) to revoke with the host, in the order of their issue.
///
/// The result has all certificates issued manually, the enrolled certificates that have not expired, and the host's
/// newest certificate: its entry in the revocation list shows that the operator revoked the host. Other expired
/// certificates are left out, because a host that enrols at each boot would fill the revocation list.
pub fn of_host<'a>(issued: &'a [Issued], host: &str, now_ms: u64) -> Vec<&'a Issued> {
    let its: Vec<&Issued> = issued.iter().filter(|issued| issued.is_of(host)).collect();
    let newest = its.last().map(|newest| newest.serial.clone());
    let counts = |issued: &&Issued| !issued.has_run_out(now_ms) || Some(&issued.serial) == newest.as_ref();
    its.into_iter().filter(counts).collect()
}

/// Returns the serial numbers of expired certificates of revoked hosts: a session that began with such a certificate
/// must end. The revocation list, whose serial numbers are `revoked`, leaves most expired certificates out
/// ([`of_host`]).
///
/// The result has each host's expired enrolled certificates up to the last one that `revoked` lists, in the order of
/// their issue. Certificates with which the host has enrolled again since then are not among them; sessions of the
/// older ones must end nevertheless, because they may belong to an impostor.
pub fn run_out(issued: &[Issued], revoked: &HashSet<String>, now_ms: u64) -> HashSet<String> {
    let mut last: HashMap<String, usize> = HashMap::new();
    for (at, issued) in issued.iter().enumerate().filter(|(_, issued)| revoked.contains(&issued.serial)) {
        last.extend(issued.names.iter().map(|name| (canonical(name), at)));
    }
    let of_them = issued.iter().enumerate().filter(|(at, issued)| {
        let is_out = |name: &String| last.get(&canonical(name)).is_some_and(|last| at <= last);
        issued.has_run_out(now_ms) && issued.names.iter().any(is_out)
    });
    of_them.map(|(_, issued)| issued.serial.clone()).collect()
}

impl Issued {
    pub(super) fn has_run_out(&self, now_ms: u64) -> bool {
        self.enrolled_ms.is_some() && self.not_after_ms < now_ms
    }
}

/// The parsed lines of issued.jsonl.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Known {
    pub issued: Vec<Issued>,
    /// Line numbers of the malformed lines, counted from 1.
    pub skipped: Vec<usize>,
}

/// Parses lines of issued.jsonl: the whole file, or an appended part.
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

/// Appends certificates to issued.jsonl of the locked authority; the records are on disk on return.
///
/// # Errors
/// I/O errors of the file or of its directory. After the latter, the records are in the file.
pub fn remember(lock: &Lock, issued: &[Issued]) -> io::Result<()> {
    let path = lock.dir().join(ISSUED);
    let mut options = OpenOptions::new();
    // Root appends in a directory that another user owns: the owner must not redirect the write with a symbolic link.
    let no_link = rustix::fs::OFlags::NOFOLLOW.bits().cast_signed();
    options.read(true).append(true).create(true).mode(0o600).custom_flags(no_link);
    let mut file = options.open(path)?;
    let mut text = String::new();
    if !ends_a_line(&mut file)? {
        text.push('\n');
    }
    for issued in issued {
        text += &serde_json::to_string(issued)?;
        text.push('\n');
    }
    let before = file.metadata()?.len();
    file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).inspect_err(|_| {
        // After a failed fsync, these bytes are perhaps only in memory. The next record must not stand behind them.
        let _ = file.set_len(before).and_then(|()| file.sync_all());
    })?;
    // Without an fsync of the directory, a power cut loses a new file's name.
    File::open(lock.dir())?.sync_all()
}

/// Returns `true` if the file is empty or ends in a newline, so that appended text begins a new line.
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
        let names = vec!["n0".to_owned()];
        Issued { serial: serial.to_owned(), role: "node".to_owned(), names, not_after_ms: 1, enrolled_ms: None }
    }

    /// A node that boots often gets many certificates, so its revocation leaves most expired ones out of the list. The
    /// revocation still ends all sessions of the node, including sessions that began with an expired certificate.
    #[test]
    fn run_out_certificates_are_not_listed_but_end_their_sessions() {
        let enrolled = |serial: &str, host: &str, until_ms: u64| Issued {
            names: vec![host.to_owned()],
            not_after_ms: until_ms,
            enrolled_ms: Some(1),
            ..issued(serial)
        };
        let by_operator = Issued { names: vec!["N0.".to_owned()], ..issued("01") };
        let list = [
            by_operator,
            enrolled("02", "n0", 5),
            enrolled("03", "n1", 5),
            enrolled("04", "n0", 20),
            enrolled("05", "n0", 6),
        ];
        let of = |host: &str| of_host(&list, host, 10).iter().map(|issued| issued.serial.as_str()).collect::<Vec<_>>();
        assert_eq!((of("n0"), of("n1"), of("n2")), (vec!["01", "04", "05"], vec!["03"], vec![]));
        let gone = |revoked: &[&str]| {
            let mut gone: Vec<_> =
                run_out(&list, &revoked.iter().map(ToString::to_string).collect(), 10).into_iter().collect();
            gone.sort();
            gone
        };
        assert_eq!(gone(&["01", "04", "05"]), ["02", "05"]);
        // The host has enrolled again: its newest certificate is not revoked. Regression: a session from before the
        // revocation went on here with an expired certificate.
        assert_eq!(gone(&["01", "04"]), ["02"]);
        assert_eq!(gone(&["01"]), [""; 0], "all that is older is manual, and on the list if it is to be");
        assert_eq!(gone(&["03"]), ["03"]);
    }

    /// Regression test: after a power loss in the middle of a write, the next record was appended to the torn line, and
    /// no reader could parse the list.
    #[test]
    fn a_line_that_was_cut_off_stays_alone_and_is_reported() {
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
            // Only the final newline is missing: the record is whole.
            let (expect, skipped) =
                if cut == whole.len() - 1 { (&["01", "02", "03"][..], vec![]) } else { (&["01", "03"][..], vec![2]) };
            assert_eq!((serials.as_slice(), known.skipped), (expect, skipped), "{cut} of {}", whole.len());
        }
        // Zero bytes that a file system writes in place of lost data, and bytes that are no text.
        let odd = [whole.as_slice(), &[0; 64], b"\n\xff\xfe\n", whole.as_slice()].concat();
        let known = known(&odd);
        assert_eq!((known.issued.len(), known.skipped), (4, vec![3, 4]));
    }
}
