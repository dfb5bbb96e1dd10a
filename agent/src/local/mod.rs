//! The agent's own socket, /run/perilog/agent.sock: `io.perilog.Agent` in Varlink.
//!
//! It asks the loop and waits; what is allowed is decided here by the peer's credentials, what happens is decided by the machine. Each caller
//! has one slot for what it is told, which always holds the latest: a caller that reads slowly misses phases, never the end.

mod callers;
mod exec;
mod numbers;
mod service;
mod shown;

pub use callers::{Asked, Callers, End, Followed, NodeStatus};
pub use exec::status;
pub use numbers::Known;
pub use service::Agent;
pub use shown::task;
