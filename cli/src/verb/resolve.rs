//! `perilog resolve`: an operator's word in the place of an outcome that will not come.

use serde::Serialize;

use super::reached::{Which, reach};
use crate::door::Door;
use crate::exit::Exit;
use crate::fault::Fault;
use crate::out::Out;

/// Settle by hand what will not end by itself
///
/// The ranks count as failed from now on, or with --ok as ok. For what will not end by itself, such as a node that is gone for good. It stops no script: one that lives goes on, and its own result
/// is recorded as late. Recorded with your uid and the reason, for good.
#[derive(Debug, clap::Args, Serialize)]
pub(crate) struct Args {
    #[command(flatten)]
    #[serde(flatten)]
    which: Which,
    /// Why, for those who read the log later.
    #[arg(long, value_name = "TEXT", value_parser = reason)]
    reason: String,
    /// They count as ok.
    #[arg(long)]
    ok: bool,
}

pub(crate) fn run(args: Args, door: &Door, mut out: Out) -> Result<Exit, Fault> {
    let job = &args.which.job;
    if args.which.targets.is_none() {
        return Err(Fault::Usage(format!(
            "say which ranks of {job} are meant: --ranks RANKS (an idset or a hostlist)"
        )));
    }
    let some = format!("resolved {{}} of {job} as {}", if args.ok { "ok" } else { "failed" });
    let none = format!("nothing to resolve: what was named of {job} has ended");
    let tasks = reach(door, &mut out, "Resolve", &args, &some, &none)?;
    Ok(if tasks == 0 { Exit::Failed } else { Exit::Ok })
}

fn reason(text: &str) -> Result<String, &'static str> {
    if text.trim().is_empty() { Err("expected a reason, in words") } else { Ok(text.to_owned()) }
}
