//! Calls of git, which tells the files of a release and the commits of the source.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::cargo;

/// Returns a git(1) command for this source tree.
pub(crate) fn command() -> Command {
    at(&cargo::root())
}

/// Returns a git(1) command for the tree below this directory. Works also if another user owns the tree: CI is often
/// root in another user's clone.
pub(crate) fn at(root: &Path) -> Command {
    let mut command = Command::new("git");
    command.arg("-c").arg(format!("safe.directory={}", root.display())).arg("-C").arg(root);
    command
}

/// Environment variable with which packagers fix the date, so that the same source makes the same files
/// (<https://reproducible-builds.org/specs/source-date-epoch/>).
pub(crate) const EPOCH: &str = "SOURCE_DATE_EPOCH";

/// Returns [`EPOCH`] with the time of the last commit (s since 1970), to be set for a packager. `None`: it is set
/// already, or the source has no history.
pub(crate) fn epoch() -> Option<(&'static str, String)> {
    if std::env::var_os(EPOCH).is_some() {
        return None;
    }
    let mut command = command();
    let output = command.args(["log", "-1", "--format=%ct"]).stderr(Stdio::null()).output().ok()?;
    let epoch = String::from_utf8(output.stdout).ok().filter(|_| output.status.success())?.trim().to_owned();
    (!epoch.is_empty()).then_some((EPOCH, epoch))
}
