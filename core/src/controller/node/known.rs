//! Known hosts: hosts that have said hello to this controller, and drained hosts. An operator's request for another
//! host is most often a typing mistake, so the controller refuses the request, unless the operator insists.

use crate::controller::io::{Refusal, Reply};
use crate::controller::node::Nodes;
use crate::controller::releases::drain::Drains;
use crate::hostlist::HostList;

/// Maximum number of unknown hosts of a job for which the reply names the known host that was meant: for each, the
/// controller compares all names.
const MOST_MEANT: usize = 16;

impl Nodes {
    /// Checks that no host in the list is unknown to the controller. `force`: words for the text of the refusal, which
    /// ends with `force` and then ` --force`; for example `nothing was drained; to drain such hosts too:`.
    ///
    /// # Errors
    /// `NoSuchNode`: a host has never said Hello to this controller and has no drain.
    pub(crate) fn check_known(&self, hosts: &HostList, drains: &Drains, force: &str) -> Result<(), Refusal> {
        let unknown = || hosts.iter().filter(|host| !self.contains_key(*host) && !drains.contains_key(*host));
        let Some(first) = unknown().next() else { return Ok(()) };
        let unknown = HostList::from_names(unknown()).unwrap_or_default();
        let meant = match self.meant(first) {
            Some(meant) => format!("; did you mean {meant}?"),
            None => ", and".to_owned(),
        };
        let text = format!("no node {unknown} has ever connected to this controller{meant} {force} --force");
        Err(Refusal::NoSuchNode(text))
    }

    /// Returns the reply to a request that added a job, with those of its hosts whose agents have never connected, and
    /// the known hosts that were most likely meant by them.
    pub(crate) fn with_unknown(&self, reply: Reply) -> Reply {
        match reply {
            Reply::Added { job, attempt, hosts, attached, over, .. } => {
                let unknown = || hosts.iter().filter(|host| !self.contains_key(*host));
                let meant = HostList::sorted(unknown().take(MOST_MEANT).filter_map(|host| self.meant(host)));
                let unknown = HostList::from_names(unknown()).unwrap_or_default();
                Reply::Added { job, attempt, hosts, attached, over, unknown, meant }
            }
            other => other,
        }
    }
}
