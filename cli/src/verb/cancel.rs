//! `perilog cancel`: asks scripts to stop (SIGTERM once, which they can trap) and keeps waiting scripts from beginning.

use serde::Serialize;

use super::reached::{Which, reach};
use crate::endpoint::Endpoint;
use crate::exit::Exit;
use crate::fault::Fault;
use crate::out::Out;

/// Ask scripts to stop, and keep further ones from beginning
///
/// A running script gets SIGTERM once, and may finish its work. A node that is offline gets the request when it is
/// online again. A cancel drains no node, except the cancel of an epilog, because then the clean-up did not happen.
/// Without ACTION the epilog is not cancelled.
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
    let some = format!("asked {{}} of {job} to stop; to wait for the end: perilog wait {job}");
    let none = format!("nothing to cancel: no unfinished task of {job} matches");
    reach(endpoint, &mut out, "Cancel", &args, &some, &none)?;
    Ok(Exit::Ok)
}
