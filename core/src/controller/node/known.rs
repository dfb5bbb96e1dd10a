//! Known hosts: hosts whose agents have connected to this controller, and drained hosts. An operator's request for
//! another host is most often a typing mistake, so the controller refuses the request, unless the operator insists.

use crate::controller::interface::io::{Refusal, Reply};
use crate::controller::state::Nodes;
use crate::controller::state::drains::Drains;
use crate::controller::state::spelling::folded;
use crate::defect;
use crate::hostlist::HostList;
use crate::ids::HostName;
use crate::nearest::nearest;

/// Maximum number of unknown hosts of a job for which the reply names the known host that was meant: for each, the
/// controller compares all names.
const MOST_MEANT: usize = 16;

impl Nodes {
    /// Checks that each host has a node or a drain. `force`: the text before ` --force` at the end of the refusal, such
    /// as `nothing was drained; to drain hosts before their first connection, add`.
    ///
    /// # Errors
    /// `NoSuchNode`: a host never sent Hello, or an operator had its node forgotten since, and it has no drain.
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

impl Nodes {
    /// Returns the known host of which `host` is another spelling. `None`: the host is known as `host`, or not at all.
    pub(crate) fn other_spelling(&self, host: &str) -> Option<&HostName> {
        if defect!(CaseIgnored) {
            return None;
        }
        let known = self.spellings.0.get(&folded(host)).filter(|known| known.as_str() != host)?;
        (!self.contains_key(host)).then_some(known)
    }

    /// Checks that no host in the list is another spelling of a known host.
    ///
    /// # Errors
    /// `Invalid`: the first such host, with its name.
    pub(crate) fn check_spelling(&self, hosts: &HostList) -> Result<(), Refusal> {
        let other = hosts.iter().find_map(|host| Some((host, self.other_spelling(host)?)));
        match other {
            Some((host, known)) => {
                Err(Refusal::Invalid(format!("host {host} is known here as {known}: use that spelling")))
            }
            None => Ok(()),
        }
    }

    /// Returns the known host that an operator most likely meant by an unknown one: another spelling, the same host
    /// with or without its domain, or a name that differs by a slip of the fingers.
    pub(crate) fn meant(&self, host: &str) -> Option<&str> {
        let name = folded(host);
        let short = name.split_once('.').and_then(|(short, _)| self.spellings.0.get(short));
        let domain = format!("{name}.");
        let long = self.spellings.0.range(domain.clone()..).next().filter(|(known, _)| known.starts_with(&domain));
        let known = self.other_spelling(host).or(short).or(long.map(|(_, known)| known)).map(HostName::as_str);
        // A host that differs in its digits only is another host, and no slip of the fingers.
        let slips = || self.keys().map(HostName::as_str).filter(|known| !letters(known).eq(letters(host)));
        known.or_else(|| nearest(host, slips()))
    }

    /// Returns the question `; did you mean HOST?` for an unknown host; empty if no known host is like it.
    pub(crate) fn did_you_mean(&self, host: &str) -> String {
        self.meant(host).map(|meant| format!("; did you mean {meant}?")).unwrap_or_default()
    }
}

/// Returns a host's name without its digits.
fn letters(host: &str) -> impl Iterator<Item = char> {
    host.chars().filter(|letter| !letter.is_ascii_digit())
}
