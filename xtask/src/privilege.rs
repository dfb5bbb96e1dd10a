//! Root privilege: the check for it, and commands that get it through sudo(8).

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

/// Returns `true` if this process is root.
pub(crate) fn is_root() -> Result<bool> {
    let status = std::fs::read_to_string("/proc/self/status").context("reading /proc/self/status")?;
    // Uid: real, effective, saved, file system
    let uids = status.lines().find_map(|line| line.strip_prefix("Uid:")).context("no Uid in /proc/self/status")?;
    Ok(uids.split_whitespace().nth(1) == Some("0"))
}

/// Returns a command that runs `program` as root: directly, or through sudo(8), which may ask for a password on the
/// terminal.
pub(crate) fn command(program: &Path) -> Result<Command> {
    if is_root()? {
        return Ok(Command::new(program));
    }
    let mut command = Command::new("sudo");
    command.arg("--").arg(program);
    Ok(command)
}

/// Makes sudo(8) ask for its password now, before the build and not after. Does nothing as root.
pub(crate) fn obtain() -> Result<()> {
    if !is_root()? {
        let status = Command::new("sudo").arg("-v").status();
        let status =
            status.context("this needs root, for namespaces and mounts, and there is no sudo(8): run it as root")?;
        ensure!(
            status.success(),
            "this needs root, for namespaces and mounts, and sudo(8) does not give it: run it as root"
        );
    }
    Ok(())
}
