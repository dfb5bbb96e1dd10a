//! perilog-runner: runs the scripts of one task inside its unit, and records their results.
//!
//! The runner is small and synchronous, because only systemd keeps it alive: one process, one poll(2), no runtime. The
//! runner claims the task so that no other start runs anything ([`directory`]) and runs the scripts in order ([`task`],
//! [`sequence`], [`attempt`]). The runner accepts the scripts' reports ([`control`], [`reports`]), enforces their
//! limits ([`watchdog`]), keeps their output ([`output`]), waits for what they leave behind ([`leftovers`]) and exits
//! with the largest status ([`tally`], [`exit`]). The agent, not the runner, decides the task's outcome: the agent
//! judges the files that the runner leaves.

mod args;
mod attempt;
mod boot;
mod child;
mod control;
mod descendants;
mod digest;
mod directory;
mod environment;
mod exit;
mod forensics;
mod headline;
mod leftovers;
mod lists;
mod output;
mod own_unit;
#[path = "../report/protocol.rs"]
mod protocol;
mod reports;
mod rlimits;
mod scripts;
mod second;
mod sequence;
mod signals;
mod stage;
mod steps;
mod tally;
mod task;
mod turn;
mod users;
mod watchdog;

use std::env;
use std::io::{self, Write};
use std::process::ExitCode;

use args::Command;

fn main() -> ExitCode {
    perilog_core::switch_on_defect!(perilog_host::defect::chosen());
    let reported = match args::parse(env::args_os().skip(1)) {
        Ok(Command::Run { run_dir, since_boot_ms, stem }) => return run(&run_dir, since_boot_ms, &stem),
        Ok(Command::Enter) => return stage::enter(),
        Ok(Command::Help) => io::stdout().write_all(args::HELP.as_bytes()),
        Ok(Command::Version) => writeln!(io::stdout(), "perilog-runner {}", env!("CARGO_PKG_VERSION")),
        Err(wrong) => {
            task::complain(&format!("{wrong} (see perilog-runner --help)"));
            return ExitCode::from(exit::USAGE);
        }
    };
    reported.map_or(ExitCode::FAILURE, |()| ExitCode::SUCCESS)
}

fn run(run_dir: &std::path::Path, since_boot_ms: Option<u64>, stem: &str) -> ExitCode {
    match task::run(run_dir, since_boot_ms, stem) {
        Ok(status) => ExitCode::from(status),
        Err(refusal) => {
            task::complain(&format!("nothing is run: {}", refusal.text));
            ExitCode::from(refusal.status)
        }
    }
}
