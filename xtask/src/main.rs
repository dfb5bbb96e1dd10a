//! `cargo xtask`: the one command for developers and CI. CI runs only commands that a laptop can run.

mod bench;
mod beside;
mod cargo;
mod demo;
mod dependencies;
mod dist;
mod elsewhere;
mod fuzz;
mod git;
mod mutate;
mod nodes;
mod pages;
mod prerequisites;
mod privilege;
mod processors;
mod release;
mod roots;
mod sim;
mod soak;
mod stages;
mod tally;
mod test;
mod tidy;
mod usage;

use std::process::ExitCode;

use anyhow::Result;
use usage::{HELP, Usage};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match run(&arguments) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::from(if error.is::<Usage>() { Usage::STATUS } else { 1 })
        }
    }
}

fn run(arguments: &[&str]) -> Result<bool> {
    match arguments {
        ["demo"] => demo::run(demo::FIRST),
        ["demo", name] if demo::is_there(name) => demo::run(name),
        ["test" | "ci"] => test::run(),
        ["test", "packages"] => test::packages(),
        ["test", "quick"] => test::quick(),
        ["test", "nodes", words @ ..] => elsewhere::run(words),
        ["test", "tour"] => elsewhere::tour(),
        ["test", "mixed"] => elsewhere::mixed(),
        ["test", names @ ..] => test::named(names),
        ["sim", arguments @ ..] => sim::run(arguments),
        ["fuzz", arguments @ ..] => fuzz::run(arguments),
        ["soak", kind, arguments @ ..] if soak::ALL.contains(kind) => soak::run(kind, arguments),
        ["soak", arguments @ ..] => soak::run(soak::CLUSTER, arguments),
        ["mutate", arguments @ ..] => mutate::run(arguments),
        ["tidy"] => tidy::run(),
        ["freeze"] => tidy::freeze(),
        ["pages", directory] => pages::run(directory),
        ["release", options @ ..] => release::run(options),
        ["dist", arguments @ ..] => dist::run(arguments),
        ["bench"] => bench::run_all(),
        ["bench", name, options @ ..] if bench::ALL.contains(name) => bench::run(&[name], options),
        ["help" | "-h" | "--help"] | [] => stages::print_line(HELP.trim_end()).map(|()| true),
        // Commands of this program to itself, as root.
        [nodes::TESTS, binaries, program, at_once, seconds, bases, tests @ ..] => {
            nodes::tests(binaries, program, at_once, seconds, bases, tests)
        }
        [nodes::SOAK, binaries, kind, seconds, seed] => soak::on_nodes(binaries, kind, seconds, seed),
        [nodes::DEMO, binaries, name] => demo::on_nodes(binaries, name),
        other => Err(Usage(format!("no such command: {}\n\n{HELP}", other.join(" "))).into()),
    }
}
