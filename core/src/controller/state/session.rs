//! Sessions of agents.

use crate::controller::interface::io::SessionId;
use crate::ids::{BootId, HostName, MachineId};
use crate::message::Hello;

/// A connection of an agent.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Session {
    pub(crate) peer: String,
    pub(crate) stage: Stage,
}

/// Stage of a session: a session is greeting, probing, open or over.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Stage {
    /// The Hello is not complete. Contains the pages that have arrived; `None` before the first page.
    Greeting(Option<Box<Hello>>),
    /// The Hello is complete, but an older session of the host is open. This session waits until the older one answers
    /// the probe with this nonce, or until the time `until_ms` (monotonic).
    Probing {
        hello: Box<Hello>,
        older: SessionId,
        nonce: u64,
        until_ms: u64,
    },
    Open {
        host: HostName,
        machine: MachineId,
        boot: BootId,
        link: u64,
    },
    /// The controller has ended the session, and drops its late messages.
    Over,
}
