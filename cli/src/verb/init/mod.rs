//! `perilog init`: sets this host up as the controller or as a node, in one command, and undoes that.
//!
//! ```text
//!   look ──> There ─┐
//!                   ├─ plan (pure) ──> steps, or conflicts ──> shown ──> carried out, one by one, each recorded first
//!   arguments ──────┘
//! ```
//! * All checks come before the first change: with a conflict, nothing is changed.
//! * `init` never replaces a file that it did not write; the [`record`] lists the files that it wrote.
//! * A change that is made already is no step: the same command again changes nothing.
//! * `undo` removes the files that the record lists, unless they have changed since, and prints those that it leaves.
//!
//! | module | holds |
//! |---|---|
//! | `controller`, `node` | arguments, the present state of the host, and the pure plan of that role |
//! | `step` | one change, and the plan as it is shown |
//! | `act` | carries steps out |
//! | `record` | the list of files, units and directories that `init` made on this host |
//! | `dropin` | whether `init` wrote a drop-in |
//! | `settings` | texts of the drop-ins, and what the daemons make of them before they are written |
//! | `enrol` | the node's authority and certificate |
//! | `units` | systemd |
//! | `undo` | the plan that removes what `init` made |

mod act;
mod controller;
mod dropin;
mod enrol;
mod node;
mod record;
mod settings;
mod step;
mod undo;
mod units;

use std::path::{Path, PathBuf};

use perilog_core::Span;
use perilog_host::clock;

use self::step::{Plan, Shown};
pub(in crate::verb) use self::units::state;
use crate::endpoint::Endpoint;
use crate::exit::{self, Exit};
use crate::fault::Fault;
use crate::out::{Out, OutputFormat};
use crate::{text, values};

/// Set this host up as the controller or as a node, or undo that
///
/// Prints a numbered plan, and carries it out; if a check fails, init changes nothing. What exists already stays as it
/// is: the same command again changes nothing. `perilog init undo` removes what init made.
#[derive(Debug, clap::Args)]
#[command(after_help = help())]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    Controller(controller::Args),
    Node(node::Args),
    Undo(undo::Args),
}

/// Options of both roles.
#[derive(Debug, clap::Args)]
struct Common {
    /// Print the plan and change nothing.
    #[arg(long)]
    dry_run: bool,
    /// How long to wait until the daemon answers and, on a node, until the controller has accepted the node.
    #[arg(long, value_name = "DURATION", value_parser = values::span, default_value = "1m")]
    wait: Span,
}

fn help() -> String {
    format!(
        "{}\n\
         \n\
         Of init: 2 if a check fails (nothing was changed), or if the controller refuses the token; 8 if a step fails \
         (repeat the command to continue from there); 124 if the daemon runs and the time of --wait is over.",
        exit::help()
    )
}

pub(crate) fn run(args: Args, endpoint: &Endpoint, out: Out) -> Result<Exit, Fault> {
    if !rustix::process::geteuid().is_root() {
        return Err(Fault::NotPermitted {
            text: "init reads keys and changes this host: run it as root (sudo)".to_owned(),
        });
    }
    match args.what {
        What::Controller(args) => controller::run(args, endpoint, out),
        What::Node(args) => node::run(args, out),
        What::Undo(args) => undo::run(&args, out),
    }
}

/// The role that `init` sets a host up for. One host may have both.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Role {
    Controller,
    Node,
}

impl Role {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Controller => "controller",
            Self::Node => "node",
        }
    }

    /// Returns the name of the daemon's configuration: `controller` or `agent`.
    const fn daemon(self) -> &'static str {
        match self {
            Self::Controller => "controller",
            Self::Node => "agent",
        }
    }

    fn program(self) -> PathBuf {
        Path::new("/usr/sbin").join(format!("perilog-{}", self.daemon()))
    }

    /// Returns the path of the drop-in that `init` writes. The daemons read `site.toml` after this file, so the site's
    /// own lines win.
    fn dropin(self) -> PathBuf {
        Path::new("/etc/perilog").join(format!("{}.d", self.daemon())).join("init.toml")
    }
}

/// Shows the plan. Carries the plan out, unless `--dry-run` is set or the plan has no steps. Returns `true` if no step
/// of the plan is left.
fn show_and_do(plan: &Plan, common: &Common, out: &mut Out, act: &mut act::Acting) -> Result<bool, Fault> {
    if common.dry_run || plan.is_empty() {
        out.show(&Shown::planned(plan))?;
        return Ok(plan.is_empty());
    }
    if out.format == OutputFormat::Table {
        out.show(&Shown::planned(plan))?;
    }
    for (number, (text, step)) in (1..).zip(plan.steps()) {
        let done = act.carry_out(step);
        if let Err(fault) = done {
            return Err(in_step(number, text, fault));
        }
        if out.format == OutputFormat::Table {
            out.text(&format!("  {number} done\n"))?;
        }
    }
    if out.format == OutputFormat::Json {
        out.show(&Shown::done(plan))?;
    }
    Ok(true)
}

/// Adds number and text of the failed step to an error. A wrong request, and one that the controller refused, becomes a
/// usage error; a timeout stays a timeout. Other errors also say how to go on and how to undo, except a closed pipe,
/// which stays unchanged.
fn in_step(number: usize, step: &str, fault: Fault) -> Fault {
    let text = format!("step {number} ({step}): {fault}");
    match fault {
        Fault::PipeClosed => fault,
        Fault::Usage(_) | Fault::Refused { .. } => Fault::Usage(text),
        Fault::Late(_) => Fault::Late(text),
        _ => Fault::Other(format!(
            "{text}; the steps before it are done: repeat the command to continue from there, or undo them with \
             perilog init undo"
        )),
    }
}

/// Returns the error with which `init` refuses to change anything. Its text lists all conflicts.
fn refused(conflicts: &[String]) -> Fault {
    let list: String = conflicts.iter().map(|conflict| format!("\n  {conflict}")).collect();
    Fault::Usage(format!("nothing was changed because of {}:{list}", text::count(conflicts.len() as u64, "conflict")))
}

/// Waits until `is_so` returns `true`, at most until `until_ms` (CLOCK_MONOTONIC). Returns `false` past the limit.
#[expect(clippy::disallowed_methods, reason = "the daemons do not announce when they are ready for this")]
fn wait_until(until_ms: u64, mut is_so: impl FnMut() -> bool) -> bool {
    const PAUSE: std::time::Duration = std::time::Duration::from_millis(200);
    loop {
        if is_so() {
            return true;
        }
        if clock::mono_ms() >= until_ms {
            return false;
        }
        std::thread::sleep(PAUSE);
    }
}
