//! `perilog kill`: a signal for the scripts of running tasks.

use serde::Serialize;

use super::reached::{Which, reach};
use crate::door::Door;
use crate::exit::Exit;
use crate::fault::Fault;
use crate::out::Out;
use crate::values;

/// Send a signal to running scripts
///
/// It goes to the process group of the script that runs; what ends by it is `failed (signal ...)`. To stop a task in good order: cancel.
#[derive(Debug, clap::Args, Serialize)]
pub(crate) struct Args {
    #[command(flatten)]
    #[serde(flatten)]
    which: Which,
    /// TERM, SIGKILL, 10...
    #[arg(short, long, value_name = "SIGNAL", value_parser = values::signal)]
    signal: String,
}

pub(crate) fn run(args: Args, door: &Door, mut out: Out) -> Result<Exit, Fault> {
    let job = &args.which.job;
    let some = format!("sent SIG{} to {{}} of {job}", args.signal);
    let none =
        format!("no signal sent: nothing that was named of {job} runs on a node that is connected; see: perilog ps");
    let tasks = reach(door, &mut out, "Signal", &args, &some, &none)?;
    Ok(if tasks == 0 { Exit::Failed } else { Exit::Ok })
}
