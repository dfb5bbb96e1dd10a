//! Which scripts a task has: the node's directories in order, in each the names sorted by their bytes, or one command.
//!
//! All are found and checked before the first one runs: what is wrong with the last script of a prolog is known before the first has changed
//! anything. What happens to be there and is no script is skipped: editors' and packages' leavings in silence, the rest with a warning.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use perilog_core::task::Run;

use crate::trust;

/// What is executed, by its path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Script {
    /// File name: what records, the plan and people call it.
    pub(crate) name: String,
    pub(crate) path: PathBuf,
    pub(crate) args: Vec<String>,
}

#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) scripts: Vec<Script>,
    /// What was left out that somebody may have meant.
    pub(crate) warnings: Vec<String>,
}

/// Finds what `run` names.
///
/// # Errors
/// A sentence for `configuration`: a directory or command is missing or not absolute, or others than root can write it.
pub(crate) fn find(run: &Run) -> Result<Found, String> {
    let mut found = Found::default();
    match run {
        Run::Directories(directories) => {
            for directory in directories {
                look_into(absolute(directory, "script directory")?, &mut found)?;
            }
        }
        Run::Command(words) => {
            let (program, args) = words.split_first().ok_or("the command is empty")?;
            let path = absolute(program, "command")?;
            trust::check(path)?;
            let name = path.file_name().map_or_else(|| program.clone(), |n| n.to_string_lossy().into_owned());
            found.scripts.push(Script { name, path: path.to_owned(), args: args.to_vec() });
        }
    }
    Ok(found)
}

fn absolute<'a>(path: &'a str, what: &str) -> Result<&'a Path, String> {
    let path = Path::new(path);
    if path.is_absolute() { Ok(path) } else { Err(format!("{what} {path:?} is not an absolute path")) }
}

fn look_into(directory: &Path, found: &mut Found) -> Result<(), String> {
    trust::check(directory).map_err(|e| format!("script directory {e}"))?;
    let failed = |e: std::io::Error| format!("script directory {}: {e}", directory.display());
    let mut names = fs::read_dir(directory)
        .map_err(failed)?
        .map(|entry| entry.map(|e| e.file_name()))
        .collect::<Result<Vec<_>, _>>()
        .map_err(failed)?;
    names.retain(|name| !is_leaving(name.as_bytes()));
    names.sort();
    for name in names {
        let path = directory.join(&name);
        let meta = fs::metadata(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        let skip = |why: &str| format!("{} is skipped: {why}", path.display());
        if !meta.is_file() {
            found.warnings.push(skip("not a regular file"));
        } else if meta.permissions().mode() & 0o111 == 0 {
            found.warnings.push(skip("not executable"));
        } else {
            trust::check(&path)?;
            let name = name.into_string().map_err(|_| format!("{}: its name is not UTF-8", path.display()))?;
            found.scripts.push(Script { name, path, args: Vec::new() });
        }
    }
    Ok(())
}

/// What editors, rpm and dpkg leave beside a script; hidden files too.
fn is_leaving(name: &[u8]) -> bool {
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
    use super::*;

    #[test]
    fn leavings_are_told_from_scripts() {
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
    fn what_is_wrong_with_a_run_is_said() {
        let directories = |d: &str| Run::Directories(vec![d.to_owned()]);
        let command = |c: &[&str]| Run::Command(c.iter().map(|w| (*w).to_owned()).collect());
        for (run, part) in [
            (directories("prolog.d"), "\"prolog.d\" is not an absolute path"),
            (directories("/nowhere/prolog.d"), "script directory /nowhere: No such file"),
            (directories("/tmp"), "script directory /tmp: everyone can write it"),
            (directories("/proc/version"), "script directory /proc/version: Not a directory"),
            (command(&[]), "the command is empty"),
            (command(&["true"]), "not an absolute path"),
            (command(&["/nowhere/x"]), "/nowhere: No such file"),
        ] {
            let why = find(&run).unwrap_err();
            assert!(why.contains(part), "{why}");
        }
        assert_eq!(find(&Run::Directories(Vec::new())), Ok(Found::default()));
    }
}
