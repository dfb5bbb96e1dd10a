//! Drain order: an operator's request to drain many hosts or lift their drains, which takes several batches.

use std::collections::VecDeque;

use crate::controller::interface::io::{Client, Now, Reply};
use crate::hostlist::HostList;
use crate::ids::HostName;

/// An operator's request to drain hosts, or to lift their drains, that is being carried out. A request for all hosts of
/// a large cluster takes several batches (`quota`).
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct DrainOrder {
    pub(crate) client: Client,
    pub(crate) uid: u32,
    pub(crate) act: Act,
    /// Time of the request (milliseconds since 1970): all its drains have this time, so lists show them in one row.
    pub(crate) at_ms: u64,
    /// All hosts of the request.
    pub(crate) asked: HostList,
    /// Hosts that are still to be drained, or whose drains are still to be lifted.
    pub(crate) hosts: VecDeque<HostName>,
    pub(crate) done: u64,
    pub(crate) already: Vec<HostName>,
    pub(crate) lifting: Vec<HostName>,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Act {
    Drain { reason: String },
    Undrain { forget: bool, notice_id: Option<u64> },
}

impl DrainOrder {
    pub(crate) fn new(
        (client, uid): (Client, u32),
        act: Act,
        asked: &HostList,
        hosts: impl IntoIterator<Item = HostName>,
        now: Now,
    ) -> Self {
        let (hosts, already, lifting) = (hosts.into_iter().collect(), Vec::new(), Vec::new());
        Self { client, uid, act, at_ms: now.wall_ms, asked: asked.clone(), hosts, done: 0, already, lifting }
    }

    /// Returns `true` if no host of the order is left.
    pub(crate) fn is_done(&self) -> bool {
        self.hosts.is_empty()
    }

    /// Returns the reply to the request, once the order is done.
    pub(crate) fn reply(&self) -> Reply {
        let list = |hosts: &[HostName]| HostList::sorted(hosts.iter().map(HostName::as_str));
        let (tasks, already) = (self.done, list(&self.already));
        match self.act {
            Act::Drain { .. } => Reply::Drained { tasks, already },
            Act::Undrain { .. } => Reply::Undrained { tasks, already, lifting: list(&self.lifting) },
        }
    }
}
