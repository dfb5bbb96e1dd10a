//! Source tree of a release: the files that git knows, in their present state.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::{cargo, git};

/// Replaces the directory `to` by a copy of all files that git knows.
pub(super) fn copy(to: &Path) -> Result<()> {
    if to.exists() {
        std::fs::remove_dir_all(to).with_context(|| format!("removing {}", to.display()))?;
    }
    let root = cargo::root();
    let listed = super::succeed(git::command().args(["ls-files", "-z"]))?;
    for name in listed.split('\0').filter(|name| !name.is_empty()) {
        // Skips a file that is removed from the tree, but not yet in git.
        if root.join(name).is_file() {
            put(&root.join(name), &to.join(name))?;
        }
    }
    Ok(())
}

/// Copies a directory's files recursively.
pub(super) fn copy_directory(from: &Path, to: &Path) -> Result<()> {
    let mut open: Vec<PathBuf> = vec![from.to_owned()];
    while let Some(directory) = open.pop() {
        for entry in std::fs::read_dir(&directory).with_context(|| format!("reading {}", directory.display()))? {
            let path = entry.with_context(|| format!("reading {}", directory.display()))?.path();
            if path.is_dir() {
                open.push(path);
            } else {
                put(&path, &to.join(path.strip_prefix(from).context("a path below its directory")?))?;
            }
        }
    }
    Ok(())
}

/// Copies a file and gives it the mode of a release (0644 or 0755), whatever umask the checkout was made with.
fn put(from: &Path, to: &Path) -> Result<()> {
    let put = || -> std::io::Result<()> {
        if let Some(parent) = to.parent() {
            std::fs::create_dir_all(parent)?;
        }
        std::fs::copy(from, to)?;
        let mode = if from.metadata()?.permissions().mode() & 0o100 == 0 { 0o644 } else { 0o755 };
        std::fs::set_permissions(to, std::fs::Permissions::from_mode(mode))
    };
    put().with_context(|| format!("copying {} to {}", from.display(), to.display()))
}
