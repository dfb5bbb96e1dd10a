//! Verbs, each a file or a directory: arguments, request and output.

pub(crate) mod action;
pub(crate) mod backup;
pub(crate) mod ca;
pub(crate) mod cancel;
pub(crate) mod controller;
mod copies;
pub(crate) mod doctor;
pub(crate) mod drain;
pub(crate) mod events;
pub(crate) mod export;
pub(crate) mod failed;
pub(crate) mod failover;
pub(crate) mod hook;
pub(crate) mod init;
pub(crate) mod job;
pub(crate) mod jobs;
pub(crate) mod kill;
pub(crate) mod lint;
pub(crate) mod logs;
pub(crate) mod milestone;
pub(crate) mod node;
pub(crate) mod nodes;
pub(crate) mod ps;
pub(crate) mod quiet;
pub(crate) mod reached;
pub(crate) mod recover;
pub(crate) mod resolve;
pub(crate) mod restore;
pub(crate) mod run;
mod shell;
pub(crate) mod show;
pub(crate) mod skew;
pub(crate) mod stats;
pub(crate) mod status;
pub(crate) mod timeline;
pub(crate) mod token;
pub(crate) mod top;
pub(crate) mod try_;
pub(crate) mod wait;
pub(crate) mod why;

use crate::args::{Cli, Verb};
use crate::exit::Exit;
use crate::fault::Fault;
use crate::out::Out;

/// Returns the host name that the kernel has.
fn own_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

pub(crate) fn run(cli: Cli, out: Out) -> Result<Exit, Fault> {
    let endpoint = cli.global.controller();
    match cli.verb {
        Verb::Run(args) => run::run(args, endpoint, out),
        Verb::Ps(args) => ps::run(args, &endpoint, out),
        Verb::Show(args) => show::run(args, &endpoint, out),
        Verb::Node(args) => node::run(&args, &endpoint, out),
        Verb::Nodes(args) => nodes::run(args, &endpoint, out),
        Verb::Events(args) => events::run(args, endpoint, out),
        Verb::Wait(args) => wait::run(args, endpoint, out),
        Verb::Milestone(args) => milestone::run(args, &endpoint, out),
        Verb::Cancel(args) => cancel::run(args, &endpoint, out),
        Verb::Action(args) => action::run(args, &endpoint, out),
        Verb::Jobs(args) => jobs::run(args, &endpoint, out),
        Verb::Job(args) => job::run(args, &endpoint, out),
        Verb::Hook(args) => hook::run(args, endpoint, out),
        Verb::Failed(args) => failed::run(args, &endpoint, out),
        Verb::Drain(args) => drain::run(args, &endpoint, out),
        Verb::Undrain(args) => drain::lift(args, &endpoint, out),
        Verb::Kill(args) => kill::run(args, &endpoint, out),
        Verb::Resolve(args) => resolve::run(args, &endpoint, out),
        Verb::Logs(args) => logs::run(args, &endpoint, out),
        Verb::Why(args) => why::run(args, &endpoint, out),
        Verb::Timeline(args) => timeline::run(args, &endpoint, out),
        Verb::Stats(args) => stats::run(args, &endpoint, out),
        Verb::Skew(args) => skew::run(args, &endpoint, out),
        Verb::Top(args) => top::run(args, &endpoint, &out),
        Verb::Doctor(args) => doctor::run(args, &endpoint, out),
        Verb::Status(args) => status::run(args, &endpoint, out),
        Verb::Quiesce(args) => quiet::run(args, endpoint, out),
        Verb::Resume(args) => quiet::resume(args, &endpoint, out),
        Verb::Export(args) => export::run(args, &endpoint, out),
        Verb::Controller(args) => controller::run(args, &endpoint, out),
        Verb::Init(args) => init::run(args, &endpoint, out),
        Verb::Ca(args) => ca::run(args, out),
        Verb::Token(args) => token::run(args, &endpoint, out),
        Verb::Lint(args) => lint::run(&args, out),
        Verb::Try(args) => try_::run(args, out),
    }
}
