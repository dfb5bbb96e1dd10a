//! Command line: global options and the verbs. Each verb declares its own arguments.

use std::ffi::OsString;
use std::path::PathBuf;

use anstream::ColorChoice;
use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::{Parser, Subcommand, ValueEnum};

use crate::endpoint::{Daemon, Endpoint};
use crate::exit;
use crate::out::{Out, OutputFormat};
use crate::{remote, verb};

/// Runs and watches prologs, epilogs and housekeeping, and repairs what is stuck.
///
/// Ranks (--ranks) are an idset (0-3,7) or a hostlist ("n[0-3,7]"). Quote a hostlist with brackets, because a shell
/// takes the brackets for a pattern of file names. Lengths of time are written 500ms, 30s, 5m, 1h30m, 7d, 1w; --since
/// also takes dates. A job has the name that its resource manager gives it. Write a Flux job id in the form f58, with
/// or without its sign (ƒuZZybuNNy or fuZZybuNNy); convert other forms with flux job id --to=f58plain.
#[derive(Debug, Parser)]
#[command(name = "perilog", version, after_help = exit::help(), max_term_width = 120, disable_help_subcommand = true)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) verb: Verb,
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Global options")]
pub(crate) struct Global {
    /// Run this command on HOST, over ssh; write it before the verb. File names in the command are files of HOST.
    #[arg(short = 'H', long, value_name = "HOST", value_parser = OsStringValueParser::new().try_map(remote::host))]
    pub(crate) host: Option<OsString>,
    /// The controller's socket.
    #[arg(
        long,
        global = true,
        env = "PERILOG_SOCKET",
        value_name = "PATH",
        default_value = "/run/perilog/controller.sock",
        hide_env_values = true
    )]
    socket: PathBuf,
    /// Print JSON, one value a line: the replies of the API (api.md in /usr/share/doc/perilog). Ignore unknown members.
    #[arg(long, global = true, conflicts_with = "quiet")]
    pub(crate) json: bool,
    /// Print names only; most verbs that change something print nothing.
    #[arg(short, long, global = true)]
    pub(crate) quiet: bool,
    /// Colours: auto (respects NO_COLOR), always, never.
    #[arg(long, global = true, value_enum, value_name = "WHEN", default_value = "auto", hide_possible_values = true)]
    color: Color,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Color {
    Auto,
    Always,
    Never,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    Run(verb::run::Args),
    Jobs(verb::jobs::Args),
    Job(verb::job::Args),
    Action(verb::action::Args),
    Ps(verb::ps::Args),
    Show(verb::show::Args),
    Nodes(verb::nodes::Args),
    Node(verb::node::Args),
    Events(verb::events::Args),
    Wait(verb::wait::Args),
    Milestone(verb::milestone::Args),
    Cancel(verb::cancel::Args),
    Kill(verb::kill::Args),
    Resolve(verb::resolve::Args),
    Hook(verb::hook::Args),
    Logs(verb::logs::Args),
    Why(verb::why::Args),
    Failed(verb::failed::Args),
    Drain(verb::drain::Args),
    Undrain(verb::drain::Lift),
    Timeline(verb::timeline::Args),
    Stats(verb::stats::Args),
    Skew(verb::skew::Args),
    Top(verb::top::Args),
    Doctor(verb::doctor::Args),
    Status(verb::status::Args),
    Quiesce(verb::quiet::Args),
    Resume(verb::quiet::Resume),
    Export(verb::export::Args),
    Controller(verb::controller::Args),
    Init(verb::init::Args),
    Ca(verb::ca::Args),
    Token(verb::token::Args),
    Lint(verb::lint::Args),
    Try(verb::try_::Args),
}

impl Global {
    pub(crate) fn controller(&self) -> Endpoint {
        Endpoint { daemon: Daemon::Controller, path: self.socket.clone() }
    }

    /// Opens standard output in the form that `--json` or `--quiet` asks for. Also applies `--color` to the whole
    /// program, standard error included.
    pub(crate) fn out(&self) -> Out {
        let choice = match self.color {
            Color::Auto => ColorChoice::Auto,
            Color::Always => ColorChoice::Always,
            Color::Never => ColorChoice::Never,
        };
        choice.write_global();
        Out::stdout(match (self.json, self.quiet) {
            (true, _) => OutputFormat::Json,
            (_, true) => OutputFormat::Quiet,
            _ => OutputFormat::Table,
        })
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn commands_that_the_controller_hands_out_are_understood() {
        // The commands of `WhyTask::next` (core/src/controller/interface/view.rs).
        for line in [
            "perilog logs f1 --rank 3",
            "perilog resolve f1 prolog --ranks 3 --reason TEXT",
            "perilog kill f1 prolog --ranks 3 -s KILL",
            "perilog job cancel f1",
            "perilog cancel f1 prolog --ranks 3",
        ] {
            assert!(Cli::try_parse_from(line.split(' ')).is_ok(), "{line}");
        }
    }
}
