//! The host whose controller used the store last: its machine id (machine-id(5)), in a file beside the store.
//!
//! A store on a file system that moves between hosts shows in this way that the controller has moved. The file is
//! written once the controller has committed its first batch on a host. A host without a machine id is never another.

use std::io;
use std::path::{Path, PathBuf};

use super::place;

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
        Self::read(store, std::fs::read_to_string(MACHINE).ok())
    }

    fn read(store: &Path, machine: Option<String>) -> Self {
        let machine = machine.map(|id| id.trim().to_owned()).filter(|id| !id.is_empty());
        let path = place::beside(store, "host");
        let last = match std::fs::read_to_string(&path) {
            Ok(text) => Some(text.trim().to_owned()),
            // No controller of this version has used the store.
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => {
                tracing::warn!(
                    "{} cannot be read ({error}): this start counts as a move of the controller from another host",
                    path.display()
                );
                Some(String::new())
            }
        };
        let is_noted = machine.is_none() || machine == last;
        let has_moved = !is_noted && last.is_some();
        let has_moved =
            if perilog_core::defect!(EmptyNoteIgnored) { has_moved && last != Some(String::new()) } else { has_moved };
        Self { path, machine, is_noted, has_moved }
    }

    /// Returns `true` if a controller on another host used the store last. A file that does not say which host it was,
    /// because it is empty or unreadable, counts as another's: a drain that is sent once more does no harm.
    pub(super) const fn has_moved(&self) -> bool {
        self.has_moved
    }

    /// Notes this host in the file, if the file names another. A disk without room leaves the file as it is: the next
    /// start counts as a move once more.
    pub(super) fn note(&mut self) {
        let Some(machine) = self.machine.as_deref().filter(|_| !self.is_noted) else { return };
        self.is_noted = true;
        if let Err(error) = place::replace(&self.path, &format!("{machine}\n")) {
            tracing::warn!(
                "{} cannot be written ({error}): the next start counts as a move of the controller from another host",
                self.path.display()
            );
        }
    }
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

    /// A power cut left the note empty, and the move after it passed for a restart.
    #[test]
    fn a_note_that_names_no_host_is_a_move() {
        perilog_core::switch_on_defect!(perilog_host::defect::chosen());
        let dir = tempfile::tempdir().unwrap();
        let store = dir.path().join("c.db");
        let on = |machine: &str| Host::read(&store, Some(format!("{machine}\n")));
        let note = dir.path().join("c.db-host");
        for damaged in [&b""[..], b"\n", &[0xff]] {
            std::fs::write(&note, damaged).unwrap();
            assert!(on("a").has_moved(), "{damaged:?}");
            on("a").note();
            assert!(!on("a").has_moved() && on("b").has_moved(), "{damaged:?}");
        }
        // A directory cannot be read, and a file does not replace it.
        std::fs::remove_file(&note).unwrap();
        std::fs::create_dir(&note).unwrap();
        let mut host = on("a");
        host.note();
        assert!(host.has_moved() && on("a").has_moved());
        let left: Vec<_> = dir.path().read_dir().unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left, ["c.db-host"], "no temporary file stays");
    }

    #[test]
    fn a_note_is_whole_or_as_before() {
        use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
        let dir = tempfile::tempdir().unwrap();
        let store = dir.path().join("c.db");
        let note = dir.path().join("c.db-host");
        Host::read(&store, Some("a".to_owned())).note();
        let before = note.metadata().unwrap();
        assert_eq!(before.permissions().mode() & 0o777, 0o600);
        // The note is another file, which is renamed: a reader finds one or the other.
        let _open = std::fs::File::open(&note).unwrap();
        Host::read(&store, Some("b".to_owned())).note();
        assert_ne!(note.metadata().unwrap().ino(), before.ino());
    }
}
