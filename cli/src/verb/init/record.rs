//! The record of `init` on this host: /etc/perilog/init-controller.json and init-node.json, which only root can read.
//! Each entry is on disk before the change that it describes, so that `undo` finds a change that a crash cut short.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::Role;
use crate::fault::Fault;
use crate::verb::ca::files::{self, Who, digest};

/// Version of the record's format.
const VERSION: u32 = 1;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Record {
    version: u32,
    /// The files that `init` wrote, by path, each with the SHA-256 of its content. `None`: the content may change, for
    /// example because a daemon renews the file, or a crash came before its digest was known.
    pub(super) files: BTreeMap<PathBuf, Option<String>>,
    /// Directories that `init` made, outermost first.
    pub(super) directories: Vec<PathBuf>,
    /// Units that `init` enabled.
    pub(super) enabled: Vec<String>,
    /// Directories of the authorities that init made.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub(super) authorities: BTreeSet<PathBuf>,
    #[serde(skip)]
    path: PathBuf,
}

/// The state of a file now, compared with the file that `init` wrote.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Now {
    Gone,
    Same,
    Changed,
}

impl Record {
    pub(super) fn path_of(role: Role) -> PathBuf {
        PathBuf::from(format!("/etc/perilog/init-{}.json", role.as_str()))
    }

    pub(super) fn empty(path: PathBuf) -> Self {
        let (files, directories, enabled) = (BTreeMap::new(), Vec::new(), Vec::new());
        Self { version: VERSION, files, directories, enabled, authorities: BTreeSet::new(), path }
    }

    /// Reads a role's record; `None`: `init` made nothing for this role here.
    pub(super) fn read(path: PathBuf) -> Result<Option<Self>, Fault> {
        let failed = |source| Fault::File { what: "cannot read", path: path.clone(), source };
        let text = match fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(failed(error)),
        };
        let record: Self = serde_json::from_slice(&text).map_err(|error| failed(error.into()))?;
        if record.version > VERSION {
            return Err(Fault::Other(format!("a later version of perilog wrote {}; upgrade perilog", path.display())));
        }
        Ok(Some(Self { path, ..record }))
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn save(&self) -> Result<(), Fault> {
        let text = serde_json::to_string_pretty(self).map_err(|error| Fault::Other(error.to_string()))?;
        files::write(&self.path, Who::OwnerOnly, &format!("{text}\n"))
    }

    /// Records a file before `init` writes it. `text`: the content; `None`: the content is not known or may change, so
    /// any content will do. Without `text`, skips a file that exists and is not in the record: `init` did not make it,
    /// and `undo` leaves it.
    pub(super) fn will_write(&mut self, path: &Path, text: Option<&str>) -> Result<(), Fault> {
        if text.is_none() && !self.files.contains_key(path) && path.symlink_metadata().is_ok() {
            return Ok(());
        }
        self.will_make_directory(path.parent().unwrap_or(Path::new("/")))?;
        self.files.insert(path.to_owned(), text.map(|text| digest(text.as_bytes())));
        self.save()
    }

    /// Records `dir` and its parents, as far as they do not exist yet, and saves the record before `init` makes them.
    pub(super) fn will_make_directory(&mut self, dir: &Path) -> Result<(), Fault> {
        let mut missing: Vec<PathBuf> = dir.ancestors().take_while(|dir| !dir.exists()).map(Path::to_owned).collect();
        missing.retain(|dir| !self.directories.contains(dir));
        if missing.is_empty() {
            return Ok(());
        }
        self.directories.extend(missing.into_iter().rev());
        self.save()
    }

    /// Compares the file at `path` with `made`, the digest of what `init` wrote there. `made` of `None`: any content
    /// counts as the same.
    pub(super) fn now(path: &Path, made: Option<&str>) -> Now {
        match (fs::read(path), made) {
            (Err(error), _) if error.kind() == ErrorKind::NotFound => Now::Gone,
            (Err(_), _) => Now::Changed,
            (Ok(_), None) => Now::Same,
            (Ok(text), Some(made)) if digest(&text) == made => Now::Same,
            (Ok(_), Some(_)) => Now::Changed,
        }
    }

    /// Returns `true` if `init` wrote this file, and the file has not changed since.
    pub(super) fn owns(&self, path: &Path) -> bool {
        self.files.get(path).is_some_and(|made| Self::now(path, made.as_deref()) == Now::Same)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_made_is_known_again_and_what_others_changed_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let mut record = Record::empty(at("init.json"));
        record.will_write(&at("a/b/c.toml"), Some("x = 1\n")).unwrap();
        record.will_write(&at("renewed.pem"), None).unwrap();
        fs::write(at("brought.pem"), "another's").unwrap();
        record.will_write(&at("brought.pem"), None).unwrap();
        assert!(!record.owns(&at("brought.pem")), "it was there before");
        assert_eq!(record.directories, [at("a"), at("a/b")], "and not the one that was there");
        assert!(!record.owns(&at("a/b/c.toml")), "it is not written yet");
        fs::create_dir_all(at("a/b")).unwrap();
        fs::write(at("a/b/c.toml"), "x = 1\n").unwrap();
        fs::write(at("renewed.pem"), "1").unwrap();
        let read = Record::read(at("init.json")).unwrap().unwrap();
        assert_eq!(read, record);
        assert!(read.owns(&at("a/b/c.toml")) && read.owns(&at("renewed.pem")) && !read.owns(&at("init.json")));
        fs::write(at("a/b/c.toml"), "x = 2\n").unwrap();
        fs::write(at("renewed.pem"), "2").unwrap();
        assert!(!read.owns(&at("a/b/c.toml")) && read.owns(&at("renewed.pem")));
        assert_eq!(Record::read(at("none")).unwrap(), None);
        fs::write(at("init.json"), "{").unwrap();
        assert!(Record::read(at("init.json")).unwrap_err().to_string().contains("init.json"));
    }
}
