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
/// The signal goes to the process group of the running script. TERM is a cancel: the task ends as `cancelled`. A script
/// that another signal ends is `failed (signal ...)`.
#[derive(Debug, clap::Args, Serialize)]
pub(crate) struct Args {
    #[command(flatten)]
    #[serde(flatten)]
    which: Which,
    /// HUP, INT, USR1, USR2, TERM or KILL. KILL reaches all of the unit where its runner is stopped or hangs.
    #[arg(short, long, value_name = "SIGNAL", default_value = "TERM", value_parser = values::signal)]
    signal: String,
}

pub(crate) fn run(args: Args, endpoint: &Endpoint, mut out: Out) -> Result<Exit, Fault> {
    let job = &args.which.job;
    // The answer counts requests only; the nodes report the effect later. A stopped runner, for one, handles no signal.
    let some = format!("asked for SIG{} to {{}} of {job}; what comes of it: perilog ps", args.signal);
    let none = format!("no signal sent: nothing of {job} runs on a connected node; see: perilog ps");
    let tasks = reach(endpoint, &mut out, "Signal", &args, &some, &none)?;
    Ok(if tasks == 0 { Exit::Failed } else { Exit::Ok })
}
