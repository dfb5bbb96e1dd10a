//! `cargo xtask bench unit|hook|flux|slurm|takeover|idle|fan|feed|history|core`: builds in release, measures as root
//! (`core` without root and without nodes), shows the table, and keeps the JSON document with the raw samples as
//! `target/bench/<name>.json`. `bench/src` describes the measurements.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use perilog_tests::flux;
use serde_json::Value;

use crate::Usage;
use crate::cargo;
use crate::dist::static_runner;
use crate::prerequisites;
use crate::privilege;
use crate::stages::print_line;

pub(crate) const ALL: [&str; 10] =
    ["unit", "hook", "flux", "slurm", "takeover", "idle", "fan", "feed", "history", "core"];

/// Names of the bench's options, which say how much a measurement measures.
const OPTIONS: [&str; 7] = ["samples", "bursts", "seconds", "agents", "rounds", "ranks", "jobs"];

/// Runs every measurement with default options, and `flux` only if this machine has a Flux. Never returns `false`.
pub(crate) fn run_all() -> Result<bool> {
    let (major, minor) = flux::OLDEST;
    let names: Vec<&str> = ALL.into_iter().filter(|name| *name != "flux" || flux::is_here()).collect();
    if names.len() < ALL.len() {
        print_line(&format!("not measured, for no Flux {major}.{minor} or newer is on PATH: flux"))?;
    }
    run(&names, &[])
}

/// Runs the named measurements, each with these `options` (`--samples 30`). Never returns `false`: failures are errors.
pub(crate) fn run(names: &[&str], options: &[&str]) -> Result<bool> {
    check(options)?;
    if names.contains(&"history") {
        cargo::run(&["build", "--release", "-p", "perilog-controller"])?;
    }
    if names.iter().any(|name| !["history", "core"].contains(name)) {
        prerequisites::ensure_nodes()?;
        // Two builds: in one, features that the bench enables in a dependency would also change the measured daemons.
        cargo::run(&[
            "build",
            "--release",
            "-p",
            "perilog-agent",
            "-p",
            "perilog-controller",
            "-p",
            "perilog",
            "-p",
            "perilog-flux",
            "-p",
            "perilog-hold",
        ])?;
        let target = cargo::target()?;
        static_runner::build(static_runner::triple()?.as_deref(), &target, &target.join("release"))?;
    }
    cargo::run(&["build", "--release", "-p", "perilog-bench"])?;
    let target = cargo::target()?;
    for name in names {
        print_line(&format!("== {name}"))?;
        let document = match *name {
            "core" => measure(Command::new(target.join("release/perilog-bench-core")).args(options), name)?,
            _ => {
                let mut command = privilege::command(&target.join("release/perilog-bench"))?;
                measure(command.arg(name).args(options), name)?
            }
        };
        print_line(document["table"].as_str().context("a report without a table")?.trim_end())?;
        print_line(&format!("== raw samples: {}", keep(&target, name, &document)?.display()))?;
    }
    Ok(true)
}

/// Refuses options that the bench itself would refuse (`bench/src/options.rs`), before the build.
fn check(options: &[&str]) -> Result<()> {
    let is_number = |value: &&str| value.split(',').all(|number| number.parse::<usize>().is_ok());
    for pair in options.chunks(2) {
        let wrong = match pair {
            [name, ..] if !name.strip_prefix("--").is_some_and(|name| OPTIONS.contains(&name)) => {
                format!("no such option: {name}; there are --{}", OPTIONS.join(", --"))
            }
            [_, value] if is_number(value) => continue,
            [name, value] => format!("{name} {value}: not numbers"),
            _ => format!("{} has no value", pair.join(" ")),
        };
        return Err(Usage(format!("bench: {wrong}")).into());
    }
    Ok(())
}

fn measure(command: &mut Command, name: &str) -> Result<Value> {
    let command = command.stdin(Stdio::null()).stderr(Stdio::inherit());
    let output = command.output().with_context(|| format!("running {}", Path::new(command.get_program()).display()))?;
    ensure!(output.status.success(), "bench {name} failed");
    serde_json::from_slice(&output.stdout).with_context(|| format!("what bench {name} reports"))
}

/// Writes a measurement's JSON to `target/bench/`, as the user who builds, not as root; returns the path.
fn keep(target: &Path, name: &str, document: &Value) -> Result<PathBuf> {
    let path = target.join("bench").join(format!("{name}.json"));
    let write = || {
        std::fs::create_dir_all(target.join("bench"))?;
        std::fs::write(&path, format!("{document:#}\n"))
    };
    write().with_context(|| format!("writing {}", path.display()))?;
    Ok(path)
}
