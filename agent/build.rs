//! Links the unwinder of panics statically (libgcc_eh.a) in a native build for glibc, if the compiler has that archive.
//! By default, Rust's standard library loads the same code from libgcc_s.so.1. The agent executes a runner for every
//! task, and loading this one library would be a tenth of the runner's own cost (docs/performance.md).

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let gnu = env::var("CARGO_CFG_TARGET_ENV").is_ok_and(|env| env == "gnu");
    let native = env::var("HOST").ok() == env::var("TARGET").ok();
    if !gnu || !native || !linkable() {
        return;
    }
    let Some(directory) = env::var_os("OUT_DIR").map(PathBuf::from) else {
        return;
    };
    // What the linker takes for libgcc_s is one line in its own language, which names the archive.
    if fs::write(directory.join("libgcc_s.so"), "INPUT(-lgcc_eh)\n").is_ok() {
        println!("cargo::rustc-link-arg-bins=-L{}", directory.display());
    }
}

/// Returns `true` if the compiler has the archive libgcc_eh.a. `cc -print-file-name` prints the absolute path of an
/// archive that it has, and only the name of one that it lacks.
fn linkable() -> bool {
    let answer = Command::new("cc").arg("-print-file-name=libgcc_eh.a").output();
    answer.is_ok_and(|answer| Path::new(String::from_utf8_lossy(&answer.stdout).trim()).is_absolute())
}
