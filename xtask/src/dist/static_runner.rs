//! Static runner of a package: `perilog-runner` for musl, beside the one that asks the host's NSS
//! (`agent/src/runner/second.rs`).

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use super::succeed;
use crate::cargo;
use crate::stages::say;

/// File name of the static runner beside the other programs, as `packaging/install.sh` expects it.
const NAME: &str = "perilog-runner-static";

/// Builds the runner in release for musl on this kind of processor, and puts it beside the other programs in `target`.
/// If the toolchain has no standard library for musl, prints how to get it; packages then have one runner.
pub(crate) fn build(target: &Path) -> Result<()> {
    let program = target.join("release").join(NAME);
    if program.exists() {
        // It may be of an earlier commit.
        std::fs::remove_file(&program).with_context(|| format!("removing {}", program.display()))?;
    }
    let triple = format!("{}-unknown-linux-musl", std::env::consts::ARCH);
    let sysroot = succeed(Command::new("rustc").args(["--print", "sysroot"]))?;
    if !Path::new(sysroot.trim()).join("lib/rustlib").join(&triple).is_dir() {
        return say(&format!("no static runner, which begins in half the time: rustup target add {triple}"));
    }
    let package = ["-p", "perilog-agent", "--bin", "perilog-runner", "--no-default-features"];
    cargo::run(&[&["build", "--release", "--locked", "--target", &triple], &package[..]].concat())?;
    let built = target.join(&triple).join("release/perilog-runner");
    std::fs::copy(&built, &program).with_context(|| format!("copying {}", built.display()))?;
    Ok(())
}
