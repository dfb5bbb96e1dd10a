//! `perilog cancel`: asks scripts to stop (SIGTERM once, which they can trap) and keeps waiting scripts from beginning.

use serde::Serialize;

use super::reached::{Which, reach};
use crate::endpoint::Endpoint;
use crate::exit::Exit;
use crate::fault::Fault;
use crate::out::Out;

/// Ask scripts to stop, and keep the rest from beginning
///
/// A script gets SIGTERM once and may finish its work; a node that is away gets the request when it is back. A cancel
/// drains no node, except for an epilog: its clean-up did not happen. Without ACTION the epilog goes on.
#[derive(Debug, clap::Args, Serialize)]
pub(crate) struct Args {
    #[command(flatten)]
    #[serde(flatten)]
    which: Which,
    /// Why, for the event log.
    #[arg(long = "reason", value_name = "TEXT")]
    why: Option<String>,
}

pub(crate) fn run(args: Args, endpoint: &Endpoint, mut out: Out) -> Result<Exit, Fault> {
    let job = &args.which.job;
    let some = format!("asked {{}} of {job} to stop; wait for the end with: perilog wait {job}");
    let none = format!("nothing to cancel: what was named of {job} has ended");
    reach(endpoint, &mut out, "Cancel", &args, &some, &none)?;
    Ok(Exit::Ok)
}
