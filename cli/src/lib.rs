//! `perilog`: the command of operators and resource managers.
//!
//! Most verbs ask the controller over a Varlink socket and show the answer. `try`, and the hooks on a node, ask this
//! host's agent. `ca`, `lint`, `doctor` and `init` work on this host's files and units. No verb decides about jobs.
//! Each verb is a file or a directory in `verb/`. An answer has three faces ([`out::Render`]): a table for people, the
//! API's JSON for programs, and bare names or nothing for shell scripts. `fault::Fault` holds all errors,
//! `exit::Exit` all exit codes.
//!
//! The crate is a library only for `pages/`, which makes manual pages and completions from [`command`].

mod args;
mod attempts;
mod columns;
mod endpoint;
mod exec;
mod exit;
mod fault;
mod guide;
mod log;
mod out;
mod remote;
mod session;
mod style;
mod tail;
mod text;
mod values;
mod verb;
mod when;

use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches};

use crate::args::Cli;
use crate::exit::Exit;
use crate::fault::Fault;
use crate::remote::Remote;

/// Runs the program `perilog`; returns its exit status.
pub fn main() -> ExitCode {
    let exit = run().unwrap_or_else(|fault| {
        if !matches!(fault, Fault::PipeClosed) {
            out::aside(&fault);
            guide::remark(&fault).iter().for_each(out::aside);
        }
        fault.exit()
    });
    ExitCode::from(exit.code())
}

fn run() -> Result<Exit, Fault> {
    if let Some(remote) = Remote::of(std::env::args_os()) {
        return Err(remote.become_ssh());
    }
    let words = guide::help_of(std::env::args_os().collect());
    let matches = match guide::guided(command()).try_get_matches_from(words) {
        Ok(matches) => matches,
        Err(error) => match guide::advice(&error) {
            Some(text) => return Err(Fault::Usage(text)),
            None => error.exit(),
        },
    };
    let cli = Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    let out = cli.global.out();
    verb::run(cli, out)
}

/// Returns the definition of the command line, from which clap makes `--help`.
pub fn command() -> clap::Command {
    Cli::command()
}
