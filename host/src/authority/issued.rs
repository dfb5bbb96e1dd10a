//! What an authority has issued: issued.jsonl in its directory, a line for each certificate. So that a host's certificates can be revoked when nobody
//! has them any more.
//!
//! A write that was cut off (a crash, a full disk) leaves a line that is no record. It stays alone: the next record begins a line of its own. Whoever reads
//! skips it and says so.

use std::collections::{HashMap, HashSet};
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;

use serde::{Deserialize, Serialize};

use super::{Lock, canonical};

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
    /// When the controller gave it to a host that asked for it; none where somebody has issued it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enrolled_ms: Option<u64>,
}

impl Issued {
    /// Whether it is this host's (canonical).
    pub fn is_of(&self, host: &str) -> bool {
        self.names.iter().any(|name| canonical(name) == host)
    }
}

/// The certificates of a host (canonical) that are to be revoked with it, of a list in the order of its issue: all that a machine's asking has not made too
/// many, which is all that somebody has issued, what was enrolled and has not run out, and the newest, by which it is known that the host was thrown out.
pub fn of_host<'a>(issued: &'a [Issued], host: &str, now_ms: u64) -> Vec<&'a Issued> {
    let its: Vec<&Issued> = issued.iter().filter(|issued| issued.is_of(host)).collect();
    let newest = its.last().map(|newest| newest.serial.clone());
    let counts = |issued: &&Issued| !issued.has_run_out(now_ms) || Some(&issued.serial) == newest.as_ref();
    its.into_iter().filter(counts).collect()
}

/// The serial numbers that [`of_host`] has left out: sessions may stand on them. `revoked`: what is on the list. Of a host that is all up to the last of its
/// certificates that is revoked, also where a token has brought the host back since: who had a session before may be another.
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
    let path = lock.dir().join(ISSUED);
    let is_new = !path.try_exists()?;
    let mut options = OpenOptions::new();
    // Root adds to it in a directory of somebody else's: where a link leads is not for them to say.
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
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    // A file without a name in its directory is gone with the power.
    if is_new { File::open(lock.dir())?.sync_all() } else { Ok(()) }
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
        let names = vec!["n0".to_owned()];
        Issued { serial: serial.to_owned(), role: "node".to_owned(), names, not_after_ms: 1, enrolled_ms: None }
    }

    /// A node that boots often is given many certificates: the list of a host that was thrown out must not grow with all that it ever had. Its sessions end
    /// all the same, those that began with one that has run out, too.
    #[test]
    fn what_a_machine_was_given_and_has_run_out_is_left_out_but_for_the_newest_and_ends_its_sessions() {
        let enrolled = |serial: &str, host: &str, until_ms: u64| Issued {
            names: vec![host.to_owned()],
            not_after_ms: until_ms,
            enrolled_ms: Some(1),
            ..issued(serial)
        };
        let by_hand = Issued { names: vec!["N0.".to_owned()], ..issued("01") };
        let list = [
            by_hand,
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
        // Somebody has brought it back: its newest is good. This once let a session go on that stood before the revocation, on what had run out then.
        assert_eq!(gone(&["01", "04"]), ["02"]);
        assert_eq!(gone(&["01"]), [""; 0], "all that is older is by hand, and on the list if it is to be");
        assert_eq!(gone(&["03"]), ["03"]);
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
