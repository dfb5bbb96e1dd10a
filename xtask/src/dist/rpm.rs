//! Makes .rpm packages with rpmbuild(8), from `packaging/rpm/perilog.spec`.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::{Contents, collect, succeed, tree, version};

pub(super) fn pack(contents: &Contents<'_>, directory: &Path) -> Result<Vec<PathBuf>> {
    let top = directory.join("rpm");
    let name = format!("perilog-{}", version());
    tree::copy(&top.join(&name))?;
    let sources = top.join("SOURCES");
    std::fs::create_dir_all(&sources).with_context(|| format!("making {}", sources.display()))?;
    let archive = sources.join(format!("{name}.tar.gz"));
    succeed(Command::new("tar").arg("-C").arg(&top).arg("-czf").arg(&archive).args(["--owner=0", "--group=0", &name]))?;
    let define = |name: &str, value: &Path| [String::from("--define"), format!("{name} {}", value.display())];
    let mut command = Command::new("rpmbuild");
    // As for .deb: the build must not depend on a package named cargo on this machine.
    command.args(["-bb", "--nodeps", "--quiet"]).args(define("_topdir", &top));
    command.args(define("perilog_binaries", contents.binaries)).args(define("perilog_pages", contents.pages));
    if contents.loosely {
        command.args(["--define", "_binary_payload w1.gzdio"]);
    }
    succeed(command.arg(top.join(&name).join("packaging/rpm/perilog.spec")))?;
    let architecture = succeed(Command::new("rpm").args(["--eval", "%{_target_cpu}"]))?;
    collect(&top.join("RPMS").join(architecture.trim()), "rpm", directory)
}
