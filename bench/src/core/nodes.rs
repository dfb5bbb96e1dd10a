//! Nodes of the simulated site: their names, and what they send.

use anyhow::Result;
use perilog_core::controller::Input;
use perilog_core::controller::io::SessionId;
use perilog_core::ids::MachineId;
use perilog_core::message::{FromAgent, Hello};
use perilog_core::{BootId, HostName};

/// Returns `count` host names with numbers in the middle, as on many sites; such names fold badly into a hostlist.
pub(crate) fn names(count: u32) -> impl Iterator<Item = String> {
    (0..count).map(|n| format!("x{}c{}s{}b{}n{}", 1000 + n / 256, n / 32 % 8, n / 4 % 8, n / 2 % 2, n % 2))
}

/// Returns the Hello of the node `host`, which has no tasks. `link` is the number of its session, and must grow.
/// `node`, the number of the node's first session, serves as machine id and boot id.
pub(crate) fn hello(host: &str, node: SessionId, link: u64) -> Result<Hello> {
    Ok(Hello {
        host: HostName::new(host)?,
        machine: MachineId::new(&format!("{:032x}", node.0))?,
        boot: BootId::new(&format!("{:032x}", node.0))?,
        link,
        version: "0".to_owned(),
        actions: None,
        newest: None,
        tasks: Vec::new(),
        more: false,
    })
}

pub(crate) fn message(session: SessionId, message: FromAgent) -> Input {
    Input::Message { session, names: None, peer: "10.0.0.1:5115".to_owned(), message }
}
