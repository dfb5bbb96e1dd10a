//! `perilog`: the operator's and the resource manager's door.
//!
//! It asks the controller (or, for `try`, the agent of this host) over a Varlink socket and shows the answer; it decides nothing about
//! jobs. One file per verb in `verb/`; every verb speaks through [`out::Faces`] in three faces: a table for people, the API's JSON for
//! programs, next to nothing for shell scripts. Errors are [`fault::Fault`], exit codes [`exit::Exit`], both in one place.
//!
//! A library for the sake of `pages/` only, which makes manual pages and completions of [`command`].

mod args;
mod attempts;
mod columns;
mod door;
mod exec;
mod exit;
mod fault;
mod log;
mod out;
mod patience;
mod style;
mod tail;
mod text;
mod values;
mod verb;
mod when;

use std::process::ExitCode;

use clap::{CommandFactory, Parser};

use crate::args::Cli;
use crate::fault::Fault;

/// All of the program.
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    let out = cli.global.out();
    let exit = verb::run(cli, out).unwrap_or_else(|fault| {
        if !matches!(fault, Fault::PipeClosed) {
            out::aside(&fault);
        }
        fault.exit()
    });
    ExitCode::from(exit.code())
}

/// The command line: what `--help` says.
pub fn command() -> clap::Command {
    Cli::command()
}
