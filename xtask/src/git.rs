//! Asking git: what belongs to a release, and what was before.

use std::process::Command;

use crate::cargo;

/// git(1) on this tree, also where it belongs to somebody else than who runs it: CI is often root in another user's clone.
pub(crate) fn command() -> Command {
    let root = cargo::root();
    let mut command = Command::new("git");
    command.arg("-c").arg(format!("safe.directory={}", root.display())).arg("-C").arg(root);
    command
}
