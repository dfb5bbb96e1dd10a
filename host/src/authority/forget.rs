//! Pruning of issued.jsonl. The list grows with each boot of a node; without a limit the list would become too large to
//! read when an operator revokes a host.

use std::collections::{HashMap, HashSet};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, fchown};

use super::{ISSUED, Issued, Lock, canonical};

/// Milliseconds (one day) for which a certificate stays in the list after its expiry, because clocks of hosts differ.
const KEPT_MS: u64 = 86_400_000;

/// Drops the lines of enrolled certificates that have expired, and returns the number of dropped lines.
///
/// Three kinds of line stay: the newest certificate of each host (the evidence that an operator revoked the host),
/// revoked certificates, and malformed lines. At every moment the list is complete on disk, with its mode and owner.
///
/// Call this only while no session depends on an expired certificate: revoking the host could no longer end such a
/// session ([`super::run_out`]).
///
/// # Errors
/// I/O errors; the list is then unchanged, unless only the last sync of the directory failed.
pub fn forget(lock: &Lock, revoked: &HashSet<String>, now_ms: u64) -> io::Result<usize> {
    let path = lock.dir().join(ISSUED);
    let text = fs::read(&path)?;
    let lines: Vec<&[u8]> = text.split_inclusive(|byte| *byte == b'\n').collect();
    let read: Vec<Option<Issued>> = lines.iter().map(|line| serde_json::from_slice(line).ok()).collect();
    let mut newest = HashMap::new();
    for (at, issued) in read.iter().enumerate().filter_map(|(at, issued)| Some((at, issued.as_ref()?))) {
        newest.extend(issued.names.iter().map(|name| (canonical(name), at)));
    }
    let is_needed = |at: usize, issued: &Issued| {
        !issued.has_run_out(now_ms.saturating_sub(KEPT_MS))
            || revoked.contains(&issued.serial)
            || issued.names.iter().any(|name| newest.get(&canonical(name)) == Some(&at))
    };
    let both = lines.iter().zip(&read).enumerate();
    let stays = both.filter(|(at, (_, issued))| issued.as_ref().is_none_or(|issued| is_needed(*at, issued)));
    let left: Vec<&[u8]> = stays.map(|(_, (line, _))| *line).collect();
    let dropped = lines.len() - left.len();
    if dropped > 0 {
        replace(lock, &left.concat())?;
    }
    Ok(dropped)
}

fn replace(lock: &Lock, text: &[u8]) -> io::Result<()> {
    let (path, temporary) = (lock.dir().join(ISSUED), lock.dir().join("issued.jsonl.new"));
    let old = fs::symlink_metadata(&path)?;
    // A call that was cut short left the file. Another file or link of this name is not written to.
    match fs::remove_file(&temporary) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary)?;
    fchown(&file, Some(old.uid()), Some(old.gid()))?;
    file.set_permissions(old.permissions())?;
    file.write_all(text)?;
    file.sync_all()?;
    fs::rename(temporary, path)?;
    File::open(lock.dir())?.sync_all()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::authority::{known, remember};

    const NOW: u64 = 10 * KEPT_MS;

    #[test]
    fn forget_keeps_the_newest_the_revoked_and_the_hand_issued() {
        let dir = tempfile::tempdir().unwrap();
        let lock = Lock::take(dir.path()).unwrap();
        let path = dir.path().join(ISSUED);
        let issued = |serial: &str, host: &str, not_after_ms: u64, enrolled_ms: Option<u64>| Issued {
            serial: serial.to_owned(),
            role: "node".to_owned(),
            names: vec![host.to_owned()],
            not_after_ms,
            enrolled_ms,
        };
        let over = NOW - KEPT_MS - 1;
        let list = [
            issued("01", "n0", over, None),
            issued("02", "n0", over, Some(1)),
            issued("03", "n0", over, Some(1)),
            issued("04", "n0", over + 1, Some(1)),
            issued("05", "N0.", NOW, Some(1)),
            issued("06", "n1", over, Some(1)),
            issued("07", "n0", over, Some(1)),
        ];
        remember(&lock, &list[..3]).unwrap();
        // A record of a later release, and a line that a crash cut off.
        let odd = "{\"of\":\"another kind\"}\n{\"serial\":\"08";
        fs::write(&path, [fs::read(&path).unwrap().as_slice(), odd.as_bytes()].concat()).unwrap();
        remember(&lock, &list[3..]).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        let revoked = ["03".to_owned()].into();
        assert_eq!(forget(&lock, &revoked, NOW).unwrap(), 1);
        let text = fs::read(&path).unwrap();
        let left = known(&text);
        let serials: Vec<_> = left.issued.iter().map(|issued| issued.serial.as_str()).collect();
        assert_eq!((serials.as_slice(), left.skipped.len()), (&["01", "03", "04", "05", "06", "07"][..], 2));
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o640);
        assert_eq!(forget(&lock, &revoked, NOW).unwrap(), 0);
        assert_eq!(fs::read(&path).unwrap(), text);
    }
}
