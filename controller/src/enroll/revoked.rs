//! Hosts that somebody has thrown out: the newest certificate that they were given is revoked. A machine's word (munge's) does not bring such a host back,
//! a human's (a token) does.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use perilog_host::authority::{self, CRL, ISSUED, Issued};

pub(super) struct Revoked {
    dir: PathBuf,
    seen: Mutex<Seen>,
}

/// What came of which list.
#[derive(Default)]
struct Seen {
    /// Of the file: its number, its size, and when it was written. A new list is a new file.
    list: Option<(u64, u64, i64, i64)>,
    hosts: HashSet<String>,
}

impl Revoked {
    pub(super) fn new(dir: &Path) -> Self {
        Self { dir: dir.to_owned(), seen: Mutex::default() }
    }

    /// Looks at the list as it is now: what is revoked counts before the reload that ends its session.
    ///
    /// # Errors
    /// The authority's files cannot be read; then nobody knows.
    pub(super) fn has(&self, host: &str) -> io::Result<bool> {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let list = match fs::metadata(self.dir.join(CRL)) {
            Ok(file) => Some((file.ino(), file.len(), file.mtime(), file.mtime_nsec())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        if list != seen.list {
            *seen = Seen { list, hosts: if list.is_some() { thrown_out(&self.dir)? } else { HashSet::new() } };
        }
        Ok(seen.hosts.contains(&host.to_ascii_lowercase()))
    }

    /// The host has a newer certificate.
    pub(super) fn is_back(&self, host: &str) {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).hosts.remove(&host.to_ascii_lowercase());
    }
}

fn thrown_out(dir: &Path) -> io::Result<HashSet<String>> {
    let revoked = authority::revoked(&fs::read_to_string(dir.join(CRL))?).map_err(io::Error::other)?;
    if revoked.is_empty() {
        return Ok(HashSet::new());
    }
    let issued = match fs::read_to_string(dir.join(ISSUED)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        read => read?,
    };
    let mut newest: HashMap<String, String> = HashMap::new();
    for line in issued.lines().filter(|line| !line.is_empty()) {
        let issued: Issued = serde_json::from_str(line)?;
        newest.extend(issued.names.iter().map(|name| (name.to_ascii_lowercase(), issued.serial.clone())));
    }
    Ok(newest.into_iter().filter(|(_, serial)| revoked.contains(serial)).map(|(host, _)| host).collect())
}
