//! The host whose controller used the store last: its machine id (machine-id(5)), in a file beside the store.
//!
//! A store on a file system that moves between hosts shows in this way that the controller has moved. The file is
//! written once the controller has committed its first batch on a host. A host without a machine id is never another.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use perilog_core::defect;

use super::{directory, place};

const MACHINE: &str = "/etc/machine-id";

#[derive(Debug)]
pub(super) struct Host {
    path: PathBuf,
    machine: Option<String>,
    /// Whether the file names this host.
    is_noted: bool,
    has_moved: bool,
}

impl Host {
    pub(super) fn of(store: &Path) -> Self {
        Self::read(store, fs::read_to_string(MACHINE).ok())
    }

    fn read(store: &Path, machine: Option<String>) -> Self {
        let machine = machine.map(|id| id.trim().to_owned()).filter(|id| !id.is_empty());
        let path = place::beside(store, "host");
        // A missing file: no controller of this version has used the store.
        let last = fs::read_to_string(&path).unwrap_or_default();
        let last = last.trim();
        let is_noted = machine.as_deref().is_none_or(|machine| machine == last);
        Self { path, machine, is_noted, has_moved: !is_noted && !last.is_empty() }
    }

    /// Returns `true` if a controller on another host used the store last.
    pub(super) const fn has_moved(&self) -> bool {
        self.has_moved
    }

    /// Notes this host in the file, if the file names another. A disk without room leaves the file as it is: the next
    /// start counts as a move once more.
    pub(super) fn note(&mut self) {
        let Some(machine) = self.machine.as_deref().filter(|_| !self.is_noted) else { return };
        self.is_noted = true;
        if let Err(error) = write(&self.path, &format!("{machine}\n")) {
            tracing::warn!(%error, "{} cannot be written", self.path.display());
        }
    }
}

/// Writes the file whole or not at all: after a power cut, a torn name would count as another host's.
fn write(path: &Path, text: &str) -> io::Result<()> {
    if defect!(HostNotedInPlace) {
        return fs::write(path, text);
    }
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(".new");
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&temporary)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(&temporary, path)?;
    File::open(directory(path))?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_host_is_noticed_until_it_is_noted() {
        let dir = tempfile::tempdir().unwrap();
        let store = dir.path().join("c.db");
        let on = |machine: &str| Host::read(&store, Some(format!("{machine}\n")));
        let mut first = on("a");
        assert!(!first.has_moved(), "a new store");
        first.note();
        assert!(!on("a").has_moved());
        assert!(on("b").has_moved() && on("b").has_moved(), "a controller that ended before its first commit");
        on("b").note();
        assert!(!on("b").has_moved() && on("a").has_moved());
        for none in [None, Some("\n".to_owned())] {
            let mut nameless = Host::read(&store, none);
            nameless.note();
            assert!(!nameless.has_moved());
        }
        assert!(!on("b").has_moved(), "a host without an id notes nothing");
    }
}
