//! Local socket of the agent, /run/perilog/agent.sock: `io.perilog.Agent` in Varlink.
//!
//! The socket passes each request to the agent's event loop and waits for the reply; only `Await` reads the spool
//! instead. The socket decides permissions by the peer's credentials; the machine decides what happens to tasks. Each
//! caller has one slot with the latest state: a slow caller misses phases, never the end.

mod awaited;
mod callers;
mod exec;
mod numbers;
mod service;
mod shown;

use perilog_host::varlink::WrongParameter;
use serde_json::value::RawValue;

pub use awaited::JobTask;
pub use callers::{Callers, End, Followed, LocalRequest, NodeStatus};
pub use exec::status;
pub use numbers::LocalTask;
pub use service::Agent;
pub use shown::task;

/// Parses the parameters of a call; `None` for methods without parameters.
pub(crate) fn check_parameters(method: &str, parameters: &RawValue) -> Option<Result<(), WrongParameter>> {
    match method {
        "Exec" => Some(WrongParameter::parse_at::<exec::Parameters>(parameters, method).map(drop)),
        "Await" => Some(WrongParameter::parse_at::<awaited::Parameters>(parameters, method).map(drop)),
        _ => None,
    }
}
