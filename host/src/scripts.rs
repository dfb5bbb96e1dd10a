//! Scripts of a directory, as root executes them. perilog-runner runs the scripts that this module finds; `perilog
//! doctor` lists them by the same rules.
//!
//! The module skips entries that are no scripts: leftovers of editors and packages silently, all others with a reason.

use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::StatVfsMountFlags;

use crate::trust::{self, Untrusted};

/// An entry of a directory of scripts.
#[derive(Debug)]
pub enum Entry {
    Script {
        /// Name of the file, without its directory.
        name: String,
        path: PathBuf,
    },
    /// A skipped entry that the administrator may have meant as a script.
    Skipped { path: PathBuf, why: Skip },
    /// A problem that forbids running any script of the directory.
    Wrong(Wrong),
}

/// The reason why an entry is skipped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Skip {
    #[error("not executable")]
    NotExecutable,
    #[error("not a regular file")]
    NoFile,
}

impl Skip {
    /// Returns what an administrator does about the skipped entry.
    pub fn remedy(self, path: &Path) -> String {
        let path = path.display();
        match self {
            Self::NotExecutable => format!("if it is a script: chmod 0755 {path}; if not, remove it"),
            Self::NoFile => "remove it".to_owned(),
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum Wrong {
    #[error(transparent)]
    Untrusted(#[from] Untrusted),
    #[error("{}: {source}", path.display())]
    Unreadable { path: PathBuf, source: io::Error },
    #[error("{}: its name is not UTF-8", path.display())]
    Name { path: PathBuf },
    #[error("{}: its file system is mounted noexec, so nothing there can be executed", path.display())]
    NoExec { path: PathBuf },
}

/// Lists the entries of `directory`, an absolute path, in byte order of their names. The list has no bound, because
/// only root can add files to such a directory.
///
/// # Errors
/// [`Wrong`]: the path is relative or has too many symbolic links; the directory is missing or cannot be read; or other
/// users than root can write it or a parent.
pub fn directory(directory: &Path) -> Result<Vec<Entry>, Wrong> {
    trust::check(directory)?;
    let trusted = |entry| match entry {
        Entry::Script { name, path } => match trust::check(&path) {
            Ok(()) => Entry::Script { name, path },
            Err(untrusted) => Entry::Wrong(untrusted.into()),
        },
        other => other,
    };
    Ok(list(directory)?.into_iter().map(trusted).collect())
}

/// Lists the entries of a directory without a check of who can write them: for an author's own directory, which no node
/// runs.
///
/// # Errors
/// [`Wrong::Unreadable`]: the directory cannot be read.
pub fn list(directory: &Path) -> Result<Vec<Entry>, Wrong> {
    let unreadable = |source: io::Error| Wrong::Unreadable { path: directory.to_owned(), source };
    let mut names = fs::read_dir(directory)
        .map_err(unreadable)?
        .map(|entry| entry.map(|e| e.file_name()))
        .collect::<Result<Vec<_>, _>>()
        .map_err(unreadable)?;
    names.retain(|name| !is_leaving(name.as_bytes()));
    names.sort();
    let entry = |name| entry(directory.join(&name), name).unwrap_or_else(Entry::Wrong);
    Ok(names.into_iter().map(entry).collect())
}

fn entry(path: PathBuf, name: std::ffi::OsString) -> Result<Entry, Wrong> {
    let meta = fs::metadata(&path).map_err(|source| Wrong::Unreadable { path: path.clone(), source })?;
    if !meta.is_file() {
        return Ok(Entry::Skipped { path, why: Skip::NoFile });
    }
    if meta.permissions().mode() & 0o111 == 0 {
        return Ok(Entry::Skipped { path, why: Skip::NotExecutable });
    }
    let name = name.into_string().map_err(|_| Wrong::Name { path: path.clone() })?;
    if is_noexec(&path) {
        return Err(Wrong::NoExec { path });
    }
    Ok(Entry::Script { name, path })
}

/// Returns `true` if the file system of `path` is mounted `noexec`. Follows a link. `false` also if `path` cannot be
/// examined.
pub fn is_noexec(path: &Path) -> bool {
    rustix::fs::statvfs(path).is_ok_and(|found| found.f_flag.contains(StatVfsMountFlags::NOEXEC))
}

/// Returns `true` for a name that people give to a script in order to park it. The runner runs the script all the same:
/// perilog does not guess what a name means.
pub fn is_parked(name: &str) -> bool {
    const ENDS: [&str; 7] = [".disabled", ".orig", ".save", ".rej", ".old", ".off", ".pacsave"];
    ENDS.iter().any(|end| name.ends_with(end)) || (name.len() > 1 && name.starts_with('#') && name.ends_with('#'))
}

/// Returns `true` for a file that an editor, rpm or dpkg left behind, and for every hidden file.
pub fn is_leaving(name: &[u8]) -> bool {
    let extension = name.rsplit(|b| *b == b'.').next().filter(|e| e.len() < name.len()).unwrap_or_default();
    name.starts_with(b".")
        || name.ends_with(b"~")
        || extension.starts_with(b"rpm")
        || extension.starts_with(b"dpkg-")
        || extension == b"bak"
        || extension == b"swp"
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;
    use std::os::unix::ffi::OsStringExt;

    use super::*;

    #[test]
    fn a_name_that_is_not_utf8_is_wrong_and_says_which() {
        let dir = tempfile::tempdir().unwrap();
        let name = OsString::from_vec(b"10-caf\xe9".to_vec());
        let path = dir.path().join(&name);
        fs::write(&path, "#!/bin/sh\n").unwrap();
        let skipped = entry(path.clone(), name.clone()).unwrap();
        assert!(matches!(skipped, Entry::Skipped { why: Skip::NotExecutable, .. }), "{skipped:?}");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        let wrong = entry(path, name).unwrap_err().to_string();
        assert!(wrong.ends_with("10-caf\u{fffd}: its name is not UTF-8"), "{wrong}");
    }

    #[test]
    fn leftover_files_are_distinguished_from_scripts() {
        for (name, expect) in [
            ("10-mount", false),
            ("10-mount.sh", false),
            ("rpm", false),
            ("10-rpm.sh", false),
            ("bak", false),
            (".hidden", true),
            ("10-mount~", true),
            ("10-mount.rpmsave", true),
            ("10-mount.rpmnew", true),
            ("10-mount.dpkg-old", true),
            ("10-mount.sh.dpkg-dist", true),
            ("10-mount.dpkg", false),
            ("10-mount.bak", true),
            (".10-mount.swp", true),
            ("10-mount.swp", true),
        ] {
            assert_eq!(is_leaving(name.as_bytes()), expect, "{name}");
        }
    }

    #[test]
    fn parked_scripts_are_distinguished_from_others() {
        for (name, expect) in [
            ("10-mount", false),
            ("10-mount.sh", false),
            ("10-old", false),
            ("#", false),
            ("10-mount.disabled", true),
            ("10-mount.sh.orig", true),
            ("10-mount.save", true),
            ("10-mount.rej", true),
            ("10-mount.old", true),
            ("10-mount.off", true),
            ("10-mount.pacsave", true),
            ("#10-mount#", true),
        ] {
            assert_eq!(is_parked(name), expect, "{name}");
        }
    }
}
