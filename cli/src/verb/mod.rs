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

pub(crate) fn run(cli: Cli, out: Out) -> Result<Exit, Fault> {
    let door = cli.global.controller();
    match cli.verb {
        Verb::Run(args) => run::run(args, door, out),
        Verb::Ps(args) => ps::run(args, &door, out),
        Verb::Show(args) => show::run(args, &door, out),
        Verb::Node(args) => node::run(&args, &door, out),
        Verb::Nodes(args) => nodes::run(args, &door, out),
        Verb::Events(args) => events::run(args, door, out),
        Verb::Wait(args) => wait::run(args, door, out),
        Verb::Milestone(args) => milestone::run(args, &door, out),
        Verb::Cancel(args) => cancel::run(args, &door, out),
        Verb::Action(args) => action::run(args, &door, out),
        Verb::Jobs(args) => jobs::run(args, &door, out),
        Verb::Job(args) => job::run(args, &door, out),
        Verb::Hook(args) => hook::run(args, door, out),
        Verb::Failed(args) => failed::run(args, &door, out),
        Verb::Drain(args) => drain::run(args, &door, out),
        Verb::Undrain(args) => drain::lift(args, &door, out),
        Verb::Kill(args) => kill::run(args, &door, out),
        Verb::Resolve(args) => resolve::run(args, &door, out),
        Verb::Logs(args) => logs::run(args, &door, out),
        Verb::Why(args) => why::run(args, &door, out),
        Verb::Timeline(args) => timeline::run(args, &door, out),
        Verb::Stats(args) => stats::run(args, &door, out),
        Verb::Skew(args) => skew::run(args, &door, out),
        Verb::Top(args) => top::run(args, &door, &out),
        Verb::Doctor(args) => doctor::run(args, &door, out),
        Verb::Status(args) => status::run(args, &door, out),
        Verb::Quiesce(args) => quiet::run(args, door, out),
        Verb::Resume(args) => quiet::resume(args, &door, out),
        Verb::Export(args) => export::run(args, &door, out),
        Verb::Controller(args) => controller::run(args, &door, out),
        Verb::Init(args) => init::run(args, &door, out),
        Verb::Ca(args) => ca::run(args, out),
        Verb::Token(args) => token::run(args, &door, out),
        Verb::Lint(args) => lint::run(&args, out),
        Verb::Try(args) => try_::run(args, out),
    }
}
