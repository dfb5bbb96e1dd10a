//! Makes .deb packages with dpkg-buildpackage(1) and debhelper(7), from `packaging/deb`.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;

use super::{Contents, collect, succeed, tree, version};
use crate::git;

pub(super) fn pack(contents: &Contents<'_>, directory: &Path) -> Result<Vec<PathBuf>> {
    let above = directory.join("deb");
    let source = above.join(format!("perilog-{}", version()));
    tree::copy(&source)?;
    // Debian's tools look for `debian/` at the top of the source.
    tree::copy_directory(&source.join("packaging/deb"), &source.join("debian"))?;
    let mut command = Command::new("dpkg-buildpackage");
    // The programs are built already. So the packages that a distribution builds with need not be installed.
    command.args(["--build=binary", "--no-check-builddeps", "--no-sign"]).current_dir(&source);
    command.env("PERILOG_BINARIES", contents.binaries).env("PERILOG_PAGES", contents.pages);
    command.envs(contents.libraries.map(|libraries| ("PERILOG_LIBRARIES", libraries)));
    command.envs(git::epoch());
    if contents.loosely {
        command.env("DPKG_DEB_COMPRESSOR_TYPE", "gzip").env("DPKG_DEB_COMPRESSOR_LEVEL", "1");
    }
    succeed(&mut command)?;
    collect(&above, "deb", directory)
}
