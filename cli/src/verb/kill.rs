//! `perilog kill`: a signal for the scripts of running tasks.

use serde::Serialize;

use super::reached::{Which, reach};
use crate::endpoint::Endpoint;
use crate::exit::Exit;
use crate::fault::Fault;
use crate::out::Out;
use crate::values;

/// Send a signal to running scripts
///
/// The signal goes to the process group of the running script. TERM acts as a cancel: the task ends as `cancelled`. If
/// another signal ends the script, the task ends as `failed (signal ...)`.
#[derive(Debug, clap::Args, Serialize)]
pub(crate) struct Args {
    #[command(flatten)]
    #[serde(flatten)]
    which: Which,
    /// HUP, INT, USR1, USR2, TERM or KILL. If the runner of a task is stopped or hangs, KILL reaches the whole unit of
    /// the task.
    #[arg(short, long, value_name = "SIGNAL", default_value = "TERM", value_parser = values::signal)]
    signal: String,
}

pub(crate) fn run(args: Args, endpoint: &Endpoint, mut out: Out) -> Result<Exit, Fault> {
    let job = &args.which.job;
    // The answer counts requests only; the nodes report the effect later. A stopped runner, for one, handles no signal.
    let some = format!("requested SIG{} for {{}} of {job}; see the effect: perilog ps", args.signal);
    let none = format!("no signal sent: no matching task of {job} runs on a connected node; see: perilog ps");
    let tasks = reach(endpoint, &mut out, "Signal", &args, &some, &none)?;
    Ok(if tasks == 0 { Exit::Failed } else { Exit::Ok })
}
