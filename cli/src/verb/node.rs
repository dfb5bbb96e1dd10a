//! `perilog node forget`: takes dismantled nodes out of the list of nodes.

use perilog_core::HostList;
use serde_json::json;

use super::reached::reach;
use crate::endpoint::Endpoint;
use crate::exit::Exit;
use crate::fault::Fault;
use crate::out::Out;
use crate::values;

/// Remove dismantled nodes from the list of nodes
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// Removes nodes that are gone for good from the controller's list: all of these, or none.
    ///
    /// The controller refuses this while one of the nodes is connected, or has a job or a task. The drain of a removed
    /// node stays until perilog undrain --forget. If its agent connects again, the host is a new node; to prevent that,
    /// revoke its certificate (perilog ca revoke).
    Forget {
        #[arg(value_name = "HOSTLIST", value_parser = values::hosts)]
        nodes: HostList,
        /// Keep the nodes, and forget only what they reported and the store does not have, such as tasks that the thief
        /// of a node's key has invented. First revoke that key's certificate. The sessions of the nodes end, and their
        /// agents connect and report again.
        #[arg(long)]
        reports: bool,
    },
}

pub(crate) fn run(args: &Args, endpoint: &Endpoint, mut out: Out) -> Result<Exit, Fault> {
    let What::Forget { nodes, reports } = &args.what;
    let mut parameters = json!({ "nodes": nodes });
    if *reports {
        parameters["reports"] = true.into();
        let some = "forgot {} that the store does not know\nthe agents connect and report their tasks again within \
                    seconds; see perilog nodes";
        reach(endpoint, &mut out, "NodeForget", &parameters, some, &some.replace("{}", "0 tasks"))?;
        return Ok(Exit::Ok);
    }
    let some = format!("forgot {nodes}");
    reach(endpoint, &mut out, "NodeForget", &parameters, &some, &some)?;
    Ok(Exit::Ok)
}
