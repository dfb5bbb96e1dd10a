//! `perilog-bench`: the cost of perilog, beside that of its bare parts on the same machine in the same minute.
//!
//! | command | measures |
//! |---|---|
//! | `unit` | one task through a real agent, against its unit over a bare D-Bus connection and `systemd-run --wait` |
//! | `hook` | `perilog hook slurm-prolog`, against `systemd-run --wait` |
//! | `flux` | a job's prolog under a real Flux: the stock plugin, perilog's hook, and the edge |
//! | `slurm` | a job's prologs under a real Slurm: plain, in a bare unit of systemd, and by perilog's hook |
//! | `idle` | the cost of a connected idle agent |
//! | `fan` | one action over thousands of simulated agents on a real controller, against the bare wire |
//! | `feed` | the verdict at an edge's feed, against that at a follower of the job's events |
//! | `history` | requests to a real controller with thousands of finished jobs in its store, against one with few |
//! | `takeover` | the next work after a power cut of the controller's host under Pacemaker, beside slurmctld's backup |
//! | `core` (`perilog-bench-core`) | the controller's machine alone, one action over 65,536 ranks against 8,192 |
//!
//! Standard output is one JSON document (the table for people is its `table`), standard error shows the progress.
//! `cargo xtask bench` builds everything in release, runs this, shows the table and keeps the document. The other
//! commands are parts of these, in processes of their own: `swarm`, `echo`, `acceptor` and `dialler` (fan),
//! `node-unit`, `node-hook` and `node-idle` (inside of a node).

mod authority;
mod controller;
mod fan;
mod flux;
mod history;
mod idle;
mod noise;
mod part;
mod process;
mod slurm;
mod takeover;
mod unit;

use std::io::Write as _;
use std::process::ExitCode;

use anyhow::{Result, bail};

use perilog_bench::{options::Options, report};

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "perilog-bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let Some((word, rest)) = arguments.split_first() else {
        bail!("unit, hook, flux, slurm, takeover, idle, fan, feed or history?")
    };
    let options = || Options::parse(rest);
    match (word.as_str(), rest) {
        ("unit", _) => report::print(&unit::run(&options()?)?),
        ("hook", _) => report::print(&unit::run_hook(&options()?)?),
        ("flux", _) => report::print(&flux::run(&options()?)?),
        ("slurm", _) => report::print(&slurm::run(&options()?)?),
        ("takeover", _) => report::print(&takeover::run(&options()?)?),
        ("idle", _) => report::print(&idle::run(&options()?)?),
        ("fan", _) => report::print(&fan::run(&options()?)?),
        ("feed", _) => report::print(&fan::feed::run(&options()?)?),
        ("history", _) => report::print(&history::run(&options()?)?),
        ("swarm", [directory]) => fan::swarm::serve(directory.as_ref()),
        ("acceptor", [directory]) => fan::handshakes::accept(directory.as_ref()),
        ("dialler", [directory]) => fan::handshakes::dial(directory.as_ref()),
        ("echo", [directory]) => fan::echo::serve(directory.as_ref()),
        ("node-unit", _) => report::print(&unit::node::run(&options()?)?),
        ("node-hook", _) => report::print(&unit::hook::run(&options()?)?),
        ("node-idle", _) => report::print(&idle::on_node(&options()?)?),
        _ => bail!("no such measurement: {word}"),
    }
}
