//! Static runner of a package: `perilog-runner` for musl, beside the one that asks the host's NSS
//! (`agent/src/runner/second.rs`).

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::{flags, succeed};
use crate::cargo;
use crate::stages::print_line;

/// File name of the static runner beside the other programs, as `packaging/install.sh` expects it.
const NAME: &str = "perilog-runner-static";

/// What cargo builds: the runner, without the parts that only daemons need.
const PACKAGE: [&str; 5] = ["-p", "perilog-agent", "--bin", "perilog-runner", "--no-default-features"];

/// Builds the runner in release for the target `triple`, and puts it beside the other programs in `binaries`. `None`:
/// the toolchain has no standard library for musl, and packages have one runner.
pub(crate) fn build(triple: Option<&str>, target: &Path, binaries: &Path) -> Result<()> {
    let program = binaries.join(NAME);
    if program.exists() {
        // It may be of an earlier commit.
        std::fs::remove_file(&program).with_context(|| format!("removing {}", program.display()))?;
    }
    let Some(triple) = triple else { return Ok(()) };
    let mut command = cargo::command();
    command.args(["build", "--release", "--locked", "--target", triple]).args(PACKAGE);
    flags::pass(&mut command, &flags::without_paths()?);
    let status = command.status().context("running cargo")?;
    ensure!(status.success(), "the static runner cannot be built for {triple}");
    let built = target.join(triple).join("release/perilog-runner");
    std::fs::copy(&built, &program).with_context(|| format!("copying {}", built.display()))?;
    Ok(())
}

/// Builds the static runner for tests, without optimization, and puts the runner of `binaries` beside it, as a package
/// has both. Returns the path of the static one; `None`: the toolchain has no standard library for musl.
pub(crate) fn build_for_tests(target: &Path, binaries: &Path) -> Result<Option<PathBuf>> {
    let Some(triple) = triple()? else { return Ok(None) };
    cargo::run(&[&["build", "--quiet", "--target", &triple], &PACKAGE[..]].concat())?;
    let built = target.join(&triple).join("debug/perilog-runner");
    let (own, beside) = (binaries.join("perilog-runner"), built.with_file_name("perilog-runner-nss"));
    std::fs::copy(&own, &beside).with_context(|| format!("copying {}", own.display()))?;
    Ok(Some(built))
}

/// Returns the toolchain's target for musl on this kind of processor. `None`: the toolchain has no standard library for
/// it, and the function has printed how to get it.
pub(crate) fn triple() -> Result<Option<String>> {
    let triple = name();
    let sysroot = succeed(Command::new("rustc").args(["--print", "sysroot"]))?;
    if Path::new(sysroot.trim()).join("lib/rustlib").join(&triple).is_dir() {
        return Ok(Some(triple));
    }
    print_line(&format!("no static runner, which begins in half the time: rustup target add {triple}"))?;
    Ok(None)
}

/// Returns the name of the target for musl on this kind of processor.
pub(super) fn name() -> String {
    format!("{}-unknown-linux-musl", std::env::consts::ARCH)
}
