//! `cargo xtask`: the one door for developers and CI. CI runs nothing that a laptop does not.

mod bench;
mod cargo;
mod demo;
mod dist;
mod mutate;
mod nodes;
mod pages;
mod prerequisites;
mod privilege;
mod sim;
mod stages;
mod tally;
mod test;
mod tidy;
mod usage;

use std::process::ExitCode;

use anyhow::Result;
use usage::Usage;

const HELP: &str = "\
usage: cargo xtask COMMAND

  demo    boot a controller and four real systemd nodes on this machine, run a prolog and an epilog on
          them, kill daemons in the middle, and compare what the scripts wrote with what the controller knows
  demo tolerance
          one node of four fails a check: what a job may be forgiven, and what never; how it goes on without
  demo release
          an epilog hangs on one node of four: the others are given back, each with its part of R, over kills
          of the controller; the one is held, drained, and settled by hand
  test    everything that passes or fails but packages: format, lints, tidy, pure tests, tests on real nodes
  test packages
          makes .deb and .rpm of what it has built, installs, upgrades, removes and purges them on real nodes
  ci      the same: CI runs nothing of its own
  sim     histories of a simulated cluster: --for 10m searches fresh ones, --seed S shows one; what fails is
          shrunk and kept under sim/regressions
  mutate  can they fail? switches on one deliberate defect after the other, and names the seed or the test that
          turned red
  tidy    the house rules that no compiler knows: who may know whom, what the core must not do, file sizes
  bench [unit|idle|fan|core] [--OPTION NUMBER...]
          what a task, an idle agent and ten thousand agents cost, beside the bare parts (docs/performance.md)
  pages DIR
          manual pages and shell completions, as packages install them: DIR/man, DIR/completions
  dist [deb] [rpm]
          packages for sites in target/dist, built in release and checked by lintian and rpmlint (docs/building.md)
  help    this text

Nodes need root. As another user, run the command as yourself: it builds as you and asks sudo(8) for the rest.
What the system lacks is named and installed through apt-get or dnf.
";

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
        ["sim", arguments @ ..] => sim::run(arguments),
        ["mutate", arguments @ ..] => mutate::run(arguments),
        ["tidy"] => tidy::run(),
        ["pages", directory] => pages::run(directory),
        ["dist", kinds @ ..] => dist::run(kinds),
        ["bench"] => bench::run(&bench::ALL, &[]),
        ["bench", name, options @ ..] if bench::ALL.contains(name) => bench::run(&[name], options),
        ["help" | "-h" | "--help"] | [] => stages::say(HELP.trim_end()).map(|()| true),
        // As root, by ourselves.
        [nodes::TESTS, binaries, programs @ ..] => nodes::tests(binaries, programs),
        [nodes::DEMO, binaries, name] => demo::on_nodes(binaries, name),
        other => Err(Usage(format!("no such command: {}\n\n{HELP}", other.join(" "))).into()),
    }
}
