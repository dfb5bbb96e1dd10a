//! `perilog node forget`: takes dismantled nodes out of the list of nodes.

use perilog_core::HostList;
use serde_json::json;

use super::reached::reach;
use crate::endpoint::Endpoint;
use crate::exit::Exit;
use crate::fault::Fault;
use crate::out::Out;
use crate::values;

/// Take dismantled nodes out of the list of nodes
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// Has the controller forget nodes that are gone for good: all of these, or none.
    ///
    /// Refused while one of them is connected, or a job or a task is on it. A drain of it stays, until perilog undrain
    /// --forget. An agent that dials again makes its host a new node; to keep it out, revoke its certificate (perilog
    /// ca revoke).
    Forget {
        #[arg(value_name = "HOSTLIST", value_parser = values::hosts)]
        nodes: HostList,
        /// Forget no node, but what these reported and the store does not have, such as tasks that a thief of a node's
        /// key has invented. Their sessions end, and their agents report anew. First revoke the stolen key.
        #[arg(long)]
        reports: bool,
    },
}

pub(crate) fn run(args: &Args, endpoint: &Endpoint, mut out: Out) -> Result<Exit, Fault> {
    let What::Forget { nodes, reports } = &args.what;
    let mut parameters = json!({ "nodes": nodes });
    if *reports {
        parameters["reports"] = true.into();
        let some = "forgot {} that the store does not know\nthe agents connect again within seconds, and report their \
                    tasks: perilog nodes";
        reach(endpoint, &mut out, "NodeForget", &parameters, some, &some.replace("{}", "0 tasks"))?;
        return Ok(Exit::Ok);
    }
    let some = format!("forgot {nodes}");
    reach(endpoint, &mut out, "NodeForget", &parameters, &some, &some)?;
    Ok(Exit::Ok)
}
