//! Calls of git, which tells the files of a release and the commits of the source.

use std::process::Command;

use crate::cargo;

/// Returns a git(1) command for this source tree. Works also if another user owns the tree: CI is often root in another
/// user's clone.
pub(crate) fn command() -> Command {
    let root = cargo::root();
    let mut command = Command::new("git");
    command.arg("-c").arg(format!("safe.directory={}", root.display())).arg("-C").arg(root);
    command
}
