//! `cargo xtask pages DIR`: manual pages and completions for packages, as `DIR/man/*` and `DIR/completions/*`. `pages/`
//! makes them; this module chooses the date.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use crate::stages::print_line;
use crate::{cargo, git};

pub(crate) fn run(directory: &str) -> Result<bool> {
    let directory = std::path::absolute(directory).with_context(|| directory.to_owned())?;
    make(&directory)?;
    print_line(&format!("{} and {}", directory.join("man").display(), directory.join("completions").display()))?;
    Ok(true)
}

/// Builds `perilog-pages`, and writes manual pages, completions and guides below the directory.
pub(crate) fn make(directory: &Path) -> Result<()> {
    write(&cargo::build_program(&["build", "--package", "perilog-pages"], "perilog-pages")?, directory)
}

/// Writes the pages as [`make`] does, with a `perilog-pages` that is built already.
pub(crate) fn write(program: &Path, directory: &Path) -> Result<()> {
    let mut command = Command::new(program);
    command.arg(directory).stdin(Stdio::null());
    command.envs(git::epoch());
    let status = command.status().with_context(|| format!("running {}", program.display()))?;
    ensure!(status.success(), "perilog-pages failed");
    Ok(())
}
